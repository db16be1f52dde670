# `fairpath lab` with `engine = "netem"`: runs over the kernel's loss, delay, rate and jitter, true by its account.
#
#     client ---- lan [router: netem] wan ---- server
#
# kernels: newest
# needs: fairpath fairpath-lab ip tc ethtool iperf3 jq
# timeout: 300

cat >/tmp/x.toml <<'EOF'
name = "x"
title = "netem"
question = "Does the kernel impair as configured?"
topology = "router"
engine = "netem"
seconds = 6
warmup = 1
measures-machine = true

[links.wan]
delay = "25ms"

[links.wan.to.server]
loss = "5%"

[links.wan.to.router]
rate = "20mbit"
limit = 100

[flows.bulk]
congestion = "cubic"
bitrate = "2mbit"

[pings.ping]

[[axis]]
name = "jitter"
set = ["links.wan.to.router.jitter"]
values = ["0ms", "3ms"]
EOF

fairpath-lab run /tmp/x.toml --output /tmp/out --fairpath "$(command -v fairpath)" >/tmp/told 2>&1 || fail "$(tail -3 /tmp/told)"
tail -2 /tmp/told

for run in /tmp/out/runs/*.json; do jq -c --monochrome-output '{setting, links, faults}' $run; done

# Of the first run with this jitter.
with() {
	jq -s "map(select(.setting.jitter == \"$1\")) | first" /tmp/out/runs/*.json >/tmp/run
	# That an emulated processor is slow is no fault of netem's.
	jq -e '[.faults[].kind] | all(. == "not-measured" or . == "shared-cpu")' /tmp/run >/dev/null || fail "$1: invalid: $(jq -c .faults /tmp/run)"
	jq -e '.links | length == 2 and all(.engine == "netem")' /tmp/run >/dev/null || fail "$1: links: $(jq -c .links /tmp/run)"
	jq -e '.links[] | select(.name == "router/wan: towards server") | .packets > 200 and .lost > 0' /tmp/run >/dev/null || fail "$1: no loss: $(jq -c .links /tmp/run)"
	pass "jitter $1: it lost $(jq '[.links[].lost] | add' /tmp/run) of $(jq '[.links[].packets] | add' /tmp/run) packets"
}

with 3ms
jq -e '.commands[] | .argv | select(index("netem")) | index("3000us")' /tmp/run >/dev/null || fail "no jitter was configured"
jq -e '[.pings[].rtts_ns[][1]] | max - min >= 3e6' /tmp/run >/dev/null || fail "pings do not differ"
pass "pings differ by $(jq '[.pings[].rtts_ns[][1]] | (max - min) / 1e6 | floor' /tmp/run) ms"
with 0ms
jq -e '[.pings[].rtts_ns[][1]] | min >= 50e6' /tmp/run >/dev/null || fail "a ping came back before its delay"
pass "pings take $(jq '[.pings[].rtts_ns[][1]] | min / 1e6 | floor' /tmp/run) ms at least"
ip netns list | grep . && fail "a namespace was left"
[ -f /tmp/out/index.html ] || fail "there is no page"
pass "the page is there, and no namespace"
