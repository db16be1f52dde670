# `fairpath rtt` measures the delay that netem makes, on the side where it is.
#
#     near (rtt on near0) ----------- far (netem on far0's egress)
#
# kernels: floor newest
# needs: fairpath ip tc ping iperf3 jq
# timeout: 90

# The contract with `fairpath rtt --format json`: one object a line.
IS_SAMPLE='.type == "sample"'
RTT_NS=.rtt_ns
# The measured host: the end of the path that the round trip goes to.
MEASURED=.dst_address

DELAY_MS=20
MEDIAN_LIMIT_MS=25
DURATION_S=8
MIN_SAMPLES=20
NEAR=192.0.2.1
FAR=192.0.2.2

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
tc -n far qdisc add dev far0 root netem delay ${DELAY_MS}ms

ip netns exec far iperf3 --server --one-off >/tmp/server 2>&1 &
await 10 ip netns exec near ping -c 1 -W 2 $FAR
await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q :5201"

ip netns exec near fairpath rtt -i near0 --duration ${DURATION_S}s --format json >/tmp/samples 2>/tmp/errors &
rtt=$!
# Loading takes seconds on an emulated processor; traffic begins once it is watched.
await 60 grep -q "watching near0" /tmp/errors
ip netns exec near ping -q -i 0.2 -w $DURATION_S $FAR >/dev/null &
# Slow enough for an emulated processor: the queue that netem is must not become a bottleneck.
ip netns exec near iperf3 --client $FAR --bitrate 2M --time $((DURATION_S - 1)) >/tmp/client 2>&1 || {
	cat /tmp/client /tmp/server
	fail "iperf3 failed"
}
wait $rtt || {
	cat /tmp/errors
	fail "fairpath rtt ended with status $?"
}
cat /tmp/errors
head -n 5 /tmp/samples

jq "select($IS_SAMPLE and $MEASURED == \"$FAR\") | $RTT_NS" /tmp/samples | sort -n >/tmp/rtts
samples=$(wc -l </tmp/rtts)
[ "$samples" -ge $MIN_SAMPLES ] || fail "$samples samples towards $FAR, at least $MIN_SAMPLES were expected"
pass "$samples samples towards the side behind netem"

min_ns=$(head -n 1 /tmp/rtts)
[ "$min_ns" -ge $((DELAY_MS * 1000000)) ] || fail "minimum is $min_ns ns behind a netem of $DELAY_MS ms"
pass "minimum is $min_ns ns"

median_ns=$(sed -n "$(((samples + 1) / 2))p" /tmp/rtts)
[ "$median_ns" -le $((MEDIAN_LIMIT_MS * 1000000)) ] || fail "median is $median_ns ns, above $MEDIAN_LIMIT_MS ms"
pass "median is $median_ns ns"
