# `fairpath run` impairs by a BPF qdisc: the losses of the simulator, delays, only the selected class; GSO packets are counted.
#
#     near (inside: near0; class "far" is impaired, its neighbour is not) ----------- far
#
# kernels: newest
# needs: fairpath fairpath-sched ip tc ping iperf3 jq
# timeout: 300

NEAR=192.0.2.1
FAR=192.0.2.2
NEIGHBOUR=192.0.2.3
SOCKET=/run/fairpath/control.sock
COUNT=300
# 99.9999 % of 300 binomial draws with 10 % are within these.
LEAST_LOST=8
MOST_LOST=58
DELAY_MS=20
# Without delay: an emulated processor is late by milliseconds.
SOON_MS=15

# More keys of [shape].
configure() {
	cat >/tmp/fairpath.toml <<TOML
[control]
socket = "$SOCKET"
[state]
file = "/run/fairpath/state"
[metrics]
listen = "off"
[shape]
inside = "near0"
via = "qdisc"
$1
[[class]]
name = "far"
prefix = "$FAR"
TOML
}

status() {
	fairpath shape status --socket $SOCKET --format json 2>/dev/null | head -n 1 >/tmp/status
}

shapes() {
	grep -q "ready after" /tmp/log && status && [ -s /tmp/status ] && jq -e '.shape.running and .shape.backend == "qdisc"' /tmp/status
}

begin() {
	ip netns exec near fairpath run --config /tmp/fairpath.toml >/tmp/log 2>&1 &
	daemon=$!
	await 60 sh -c "[ -S $SOCKET ] || ! kill -0 $daemon"
	for _ in $(seq 400); do
		! shapes >/dev/null || return 0
		kill -0 $daemon || break
		busybox usleep 200000
	done
	cat /tmp/status
	fail "$(tail -n 5 /tmp/log)"
}

# As counted a while ago at most: the daemon reads once a second.
counter() {
	busybox sleep 3
	status
	jq ".shape.counters.qdisc_down_$1" /tmp/status
}

name() {
	tc -n near -j qdisc show dev near0 | jq -r '.[] | select(.root) | .kind'
}

# $2 pings to $1; which were answered, and how soon, is in /tmp/ping.
pings() {
	ip netns exec near ping -c "$2" -i 0.02 -W 5 "$1" >/tmp/ping || true
	received=$(sed -n 's/.* \([0-9]*\) received.*/\1/p' /tmp/ping)
	sent=$(sed -n 's/^\([0-9]*\) packets transmitted.*/\1/p' /tmp/ping)
	[ "$sent" = "$2" ] || fail "$sent of $2 pings were sent: $(tail -n 3 /tmp/ping)"
}

# The soonest answer and the median, in whole ms.
soonest() {
	sed -n 's/.*time=\([0-9]*\).*/\1/p' /tmp/ping | sort -n | sed -n 1p
}

median() {
	sed -n 's/.*time=\([0-9]*\).*/\1/p' /tmp/ping | sort -n | sed -n "$((received / 2 + 1))p"
}

# A script that expects the outcomes of the pings.
fates() {
	echo "local far = udp { class = \"far\", length = 98 }"
	echo "local answered = {}"
	sed -n 's/.*icmp_seq=\([0-9]*\) ttl.*/answered[\1] = true/p' /tmp/ping
	cat <<LUA
test("the same packets are lost", function()
	local lost = 0
	for n = 1, $COUNT do
		local before = stats().dropped.impaired or 0
		enqueue(far, n)
		local now = stats().dropped.impaired or 0
		expect_equal(now > before, not answered[n], "packet " .. n .. " lost")
		advance_ns(${DELAY_MS} * MS)
		drain()
	end
end)
LUA
}

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
ip -n far address add $NEIGHBOUR/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
mkdir -p /run/fairpath/pins
mount -t bpf -o mode=700 bpf /run/fairpath/pins
ip netns exec far iperf3 --server >/tmp/server 2>&1 &
await 10 ip netns exec near ping -c 1 -W 2 $FAR
await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q :5201"

cat >/tmp/tree.toml <<TOML
[[node]]
name = "link"
policy = "stfq"

[[node]]
name = "bad"
parent = "link"
policy = "fifo"
match = { class = "far" }
impair = { loss = "10%", delay = "${DELAY_MS}ms", seed = 6 }

[[node]]
name = "good"
parent = "link"
policy = "fifo"
match = { class = "*" }
TOML
configure 'tree = "/tmp/tree.toml"'
begin
first=$(name)
case $first in fairpath*) ;; *) fail "near0 has $first" ;; esac
pings $FAR $COUNT
lost=$((COUNT - received))
[ $lost -ge $LEAST_LOST ] && [ $lost -le $MOST_LOST ] || fail "$lost of $COUNT lost, not $LEAST_LOST to $MOST_LOST"
[ "$(soonest)" -ge $DELAY_MS ] || fail "an answer came after $(soonest) ms, not $DELAY_MS"
[ "$(counter dropped)" = $lost ] || fail "$(counter dropped) dropped, $lost lost"
pass "$lost of $COUNT lost, answers after $(soonest) ms and more; a sender on this machine gets no error for a loss"

fates >/tmp/fates.lua
# Outcomes are the same without delay.
sed "s/, delay = [^,]*//" /tmp/tree.toml >/tmp/loss.toml
fairpath sched test /tmp/loss.toml /tmp/fates.lua --class-file /tmp/fairpath.toml >/tmp/tap || fail "not the simulator's outcomes: $(tail -n 8 /tmp/tap)"
pass "the simulator loses the same packets: $(tail -n 1 /tmp/tap)"

pings $NEIGHBOUR 100
[ "$received" = 100 ] && [ "$(median)" -lt $SOON_MS ] || fail "the neighbour: $received of 100, median $(median) ms"
pass "who has no impairment: none of 100 lost, the median is $(median) ms"

configure '[shape.impair_class.far]
down = "delay=40ms"'
fairpath reload --socket $SOCKET || fail "the reload was refused"
pings $FAR 100
[ "$received" = 100 ] || fail "$received of 100 after the loss was taken back"
[ "$(soonest)" -ge 40 ] || fail "an answer came after $(soonest) ms, not 40"
pings $NEIGHBOUR 100
[ "$received" = 100 ] && [ "$(median)" -lt $SOON_MS ] || fail "the neighbour: $received of 100, median $(median) ms"
pass "a reload to 40 ms for a class, without loss; its neighbour is let alone"

[ "$(counter impaired_whole)" = 0 ] || fail "pings are not GSO packets"
tcp() {
	ip netns exec near iperf3 --client $FAR --time 2 --bitrate 20M --json >/tmp/iperf || fail "iperf3: $(cat /tmp/iperf)"
}
tcp
whole=$(counter impaired_whole)
[ "$whole" -gt 0 ] || fail "no GSO packet of TCP was counted"
jq -e '.shape.description | contains("gso_max_segs 1")' /tmp/status || fail "the remedy for GSO packets is not reported"
ip -n near link set dev near0 gso_max_segs 1
tcp
[ "$(counter impaired_whole)" = "$whole" ] || fail "$(counter impaired_whole) GSO packets after $whole: the remedy has no effect"
pass "TCP: $whole GSO packets are reported, none more after gso_max_segs 1"

for bad in duplicate=1% corrupt=1%; do
	configure "[shape.impair]
down = \"$bad\""
	! fairpath reload --socket $SOCKET >/tmp/refusal 2>&1 || fail "$bad was taken"
	grep -q "via qdisc cannot duplicate or corrupt" /tmp/refusal || fail "$(cat /tmp/refusal)"
done
pass "duplication and corruption are refused"

fairpath shape stop --socket $SOCKET
[ "$(name)" = noqueue ] || fail "near0 has $(name) after stop"
kill $daemon
wait $daemon || fail "fairpath run ended with status $?"
pass "stop restores the default"
