# The scheduler as a BPF qdisc lives on: new plans under load without a packet lost, kill -9, the next start.
#
#     near (near0: root) ----------- far
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# timeout: 300

. /fairpath/qdisc.sh

mount_pins
near_and_far
serve

# UDP by eight sockets, each at $1 bit/s, for $2 seconds, in the background; its outcome is in /tmp/udp. The
# queue has the contents of their send buffers: about 47 packets each.
udp() {
	ip netns exec near iperf3 --client $FAR --udp --bitrate "$1" --parallel 8 --length 1000 --time "$2" --json >/tmp/udp &
	udp=$!
	busybox usleep 500000
}

udp_arrives() {
	wait $udp || {
		cat /tmp/udp
		fail "iperf3 failed"
	}
	jq -e '.end.sum.packets > 500 and .end.sum.lost_packets == 0' /tmp/udp >/dev/null ||
		fail "$1: $(jq -c .end.sum /tmp/udp)"
	pass "$1: none of $(jq .end.sum.packets /tmp/udp) packets was lost"
}

# There is always a packet that activates a request.
ip netns exec near ping -q -i 0.3 $FAR >/dev/null &
pings=$!
# More comes than may leave: some hundred packets wait, and move over each time.
ask add one near0 root 3000000 3fifo
name=$(field .name)
udp 450k 20
most=0
while kill -0 $udp 2>/dev/null; do
	for classes in 10 3 100 1000; do
		ask swap one 3000000 $classes 0
		ask settle one
	done
	sums_hold one
	holds '.flips_refused == 0' "a plan was refused"
	[ "$(field .moved)" -lt "$most" ] || most=$(field .moved)
done
plans=$(field .flips)
[ "$plans" -ge 4 ] && [ "$most" -gt 100 ] || fail "$plans plans, $most packets waited"
udp_arrives "$plans plans under load, of up to $most packets waiting"
sums_hold one

udp 450k 60
ask swap one 3000000 10000 0
ask settle one
sums_hold one
first=$(field .flip_ns)
ask swap one 3000000 10000 1000
ask settle one
sums_hold one
second=$(field .flip_ns)
moved=$(field .moved)
[ "$moved" -gt 100 ] || fail "only $moved packets waited"
udp_arrives "10,000 classes made, and 1,000 of them removed, 1,000 added, 9,000 renumbered"
sums_hold one
holds '.dropped == 0 and .lost == 0 and .no_handle == 0' "packets were dropped"
pass "the two took $((first / 1000)) and $((second / 1000)) us of an emulated processor, with $moved packets in the second"

# No other device can have the name, and the attempt changes nothing.
ip -n near link add later type veth peer name later1
ip -n near link set later up
ip -n near link set later1 up
! tc -n near qdisc add dev later root "$name" 2>/tmp/refusal || fail "two devices share $name"
ip netns exec near ping -c 2 $FAR >/dev/null || fail "no packet passes after a refused second device"
sums_hold one
pass "a second device is refused and the first continues"

ip netns exec near shape-qdisc serve /run/pins /run/tool/other >/dev/null 2>&1 &
await 10 test -S /run/tool/other
! shape-qdisc ask /run/tool/other find one near0 root 3000000 3fifo >/tmp/refusal || fail "two processes have it"
grep -q "process $(pidof -s shape-qdisc)\|process $tool" /tmp/refusal || fail "$(cat /tmp/refusal)"
sums_hold one
pass "another process gets the owner in the error: $(jq -r .error /tmp/refusal)"

udp 200k 8
kill -9 $tool
wait $tool || true
udp_arrives "kill -9"
tc -n near -s qdisc show dev near0 | tee /tmp/tc
grep -q "qdisc $name" /tmp/tc || fail "the qdisc is gone"
rate_holds 3000000 "TCP without a daemon"
pass "it shapes on without its daemon: $got of 3000000 bit/s"

tc -n near qdisc del dev near0 root
tc -n near qdisc add dev later root "$name" || fail "a device that comes later cannot have it"
tc -n near qdisc del dev later root
tc -n near qdisc add dev near0 root "$name"
ip netns exec near ping -c 2 $FAR >/dev/null
pass "it continues under its name, on another device, too"

serve
udp 450k 30
ask find one near0 root 3000000 20fifo
holds '.found' "the old one was not found"
ask settle one
sums_hold one
holds '.note == "classes by number" and .flips == '"$((plans + 3))" "it is another one"
udp_arrives "the next start continues it, with another plan"
sums_hold one
pass "the gap was $(($(field .flip_ns) / 1000)) us of an emulated processor"

# A qdisc that cannot be continued is removed: its packets are lost, and counted.
# The kernel passes nothing during that time, without a counter: few packets arrive, from senders that never wait for buffers.
# Those send on while the new one is loaded, which takes long in a guest.
ask rate one 450000
kill $pings
udp 62k 60
many_wait() {
	ask stats one
	[ "$(field .waiting)" -gt 60 ]
}
await 20 many_wait
ask renew one
lost=$(field .lost)
took=$(field .put_ms)
[ "$(field .name)" != "$name" ] || fail "two of one name"
name=$(field .name)
wait $udp || fail "iperf3 failed"
gone=$(jq .end.sum.lost_packets /tmp/udp)
# The eight send together, every 129 ms; now and then a packet of iperf3's own connection waits, too.
rounds=$((1 + ${took%.*} / 129))
[ "$lost" -gt 50 ] && [ "$gone" -ge $((lost - 3)) ] && [ "$gone" -le $((lost + 5 + 8 * rounds)) ] ||
	fail "$gone packets were lost, $lost are counted, and it took $took ms"
sums_hold one
pass "one that is put in the place of another: $gone packets lost, $lost that waited counted, $took ms of an emulated processor"

ask off one
ask remove one
holds '.pinned == []' "a pin is left"
! tc -n near qdisc add dev near0 root "$name" 2>/tmp/refusal || fail "the name is still there"
pass "removed, the name is gone"
