# The example of a queue outside the tree (examples/edf): real TCP at a configured rate, a call that waits little during
# transfers, and bulk that keeps about its deadline by drops. It ends and is replaced without a leak.
#
# kernels: newest
# needs: ip tc ping iperf3 jq
# examples: edf
# timeout: 150

. /fairpath/qdisc.sh

near_and_far
edf /fairpath/examples/edf.bpf.o 4 5 20 100 400 >/tmp/edf 2>&1 &
edf=$!
await 60 grep -qE "registered|edf:" /tmp/edf
grep -q registered /tmp/edf || fail "$(cat /tmp/edf)"
ip netns exec near tc qdisc replace dev near0 root edf || fail "$(cat /tmp/edf)"

# The average of ten pings with a TOS, in ms.
waits() {
	ip netns exec near ping -Q "$1" -c 10 -i 0.3 $FAR >/tmp/ping || fail "ping: $(cat /tmp/ping)"
	sed -n 's/.* = [0-9.]*\/\([0-9]*\).*/\1/p' /tmp/ping
}

ip netns exec near iperf3 --client $FAR --time 20 --parallel 2 --json >/tmp/tcp 2>&1 &
traffic=$!
sleep 5
voice=$(waits 0xb8)
rest=$(waits 0)
wait $traffic || fail "iperf3: $(cat /tmp/tcp)"
[ "$voice" -lt 30 ] || fail "a call waited $voice ms"
[ "$rest" -gt $((2 * voice)) ] || fail "the rest waited $rest ms, a call $voice ms"
[ "$rest" -lt 250 ] || fail "the rest waited $rest ms by a deadline of 100 ms"
pass "a call waits $voice ms, the rest $rest ms"
bps=$(jq '.end.sum_received.bits_per_second | floor' /tmp/tcp)
[ "$bps" -gt 3000000 ] && [ "$bps" -lt 4100000 ] || fail "TCP got $bps bit/s of 4 Mbit/s"
pass "TCP has the configured rate"

# A second device may not share the queue.
ip link add near1 netns near type veth peer name far1 netns far
if ip netns exec near tc qdisc replace dev near1 root edf 2>/tmp/refused; then
	fail "a second device shares the queue"
fi
pass "another device is refused"

# Packets that wait are freed with the qdisc, and the next one begins empty.
ip netns exec near iperf3 --client $FAR --udp --bitrate 8M --time 2 >/tmp/udp 2>&1 || fail "$(cat /tmp/udp)"
ip netns exec near tc qdisc del dev near0 root
ip netns exec near tc qdisc replace dev near0 root edf || fail "it is not free again"
voice=$(waits 0xb8)
[ "$voice" -lt 30 ] || fail "a ping waited $voice ms behind packets of the last qdisc"
pass "the queue is empty after its qdisc was removed"

# It continues without the process that registered it, until it is removed.
kill -INT $edf
wait $edf || fail "it ended with an error: $(cat /tmp/edf)"
cat /tmp/edf
[ "$(sed -n 's/^rest *[0-9.]* ms *[0-9]* *[0-9]* *\([0-9]*\)$/\1/p' /tmp/edf)" -gt 0 ] || fail "bulk lost no packet"
[ "$(sed -n 's/^voice *[0-9.]* ms *[0-9]* *[0-9]* *\([0-9]*\)$/\1/p' /tmp/edf)" -eq 0 ] || fail "the call lost packets"
waits 0xb8 >/dev/null
ip netns exec near tc qdisc del dev near0 root
if ip netns exec near tc qdisc replace dev near0 root edf 2>/tmp/refused; then
	fail "the qdisc is still registered"
fi
pass "nothing is left behind"
