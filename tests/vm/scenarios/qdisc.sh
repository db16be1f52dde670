# The scheduler as a BPF qdisc: rates, classes, counts that agree with tc's, and the order that it has natively.
#
#     near (near0: root, 20 Mbit/s) ----------- far
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# timeout: 300

. /fairpath/qdisc.sh

RATE=20000000

mount_pins
near_and_far
serve

ask add one near0 root $RATE 3
name=$(field .name)
tc -n near qdisc show dev near0 | grep -q "qdisc $name" || fail "tc does not show $name"
ip netns exec near ping -c 2 $FAR >/dev/null
sums_hold one
holds '.far_packets >= 2' "no packet was put into the class of $FAR"
pass "registered, put on, and classifies"

# The tag that is not in the packet yet, and a link without any header.
ip -n near link add near0.5 link near0 type vlan id 5
ip -n near address add 203.0.113.1/24 dev near0.5
ip -n near link set near0.5 up
ip -n far link add far0.5 link far0 type vlan id 5
ip -n far address add 203.0.113.2/24 dev far0.5
ip -n far link set far0.5 up
await 10 ip netns exec near ping -c 1 -W 2 203.0.113.2
ip netns exec near ping -c 3 203.0.113.2 >/dev/null
ask stats one
holds '.vlan_packets >= 4' "no packet was put into the class of its VLAN"
pass "a VLAN's tag leads to its class"
ip -n near link add raw type wireguard
ip -n near address add 192.0.2.129/25 dev raw
ip -n near link set raw up
ip -n near route add $FAR/32 dev raw table 9
ip -n near rule add from 192.0.2.129 table 9
ask add raw raw root $RATE 3
ip netns exec near ping -c 3 -W 1 -I 192.0.2.129 $FAR >/dev/null 2>&1 || true
ask stats raw
holds '.far_packets >= 3' "no packet of a raw link was put into its class"
pass "a link without a header has classes"
ask off raw
ask remove raw

# An interval of traffic whose queue is not empty the whole time.
ip netns exec near ping -i 0.2 -c 20 $FAR >/tmp/ping &
ping=$!
rate_holds $RATE "TCP, in frames"
wait $ping
tail -n 2 /tmp/ping
pass "TCP gets $got of $RATE bit/s"
median=$(sed -n 's/.*time=\([0-9.]*\) ms/\1/p' /tmp/ping | sort -n | sed -n 10p)
[ "${median%.*}" -lt 20 ] || fail "the median of pings during TCP is $median ms"
pass "the median of pings during TCP is $median ms"

sums_hold one
holds '.sent_segments > 2 * .sent' "no GSO packet was sent: GSO is not tested"
holds '.sent_bytes == .tc_bytes and .sent_segments == .tc_packets and .dropped == .tc_drops' "tc -s counts otherwise"
holds '.sched_marked == 0' "a packet was marked"
pass "GSO packets are charged by segments; $(field .sent_bytes) bytes and $(field .sent_segments) packets, as in tc -s"

ask rate one $((RATE / 2))
ip netns exec near ping -c 1 $FAR >/dev/null
ask settle one
rate_holds $((RATE / 2)) "TCP after a change"
ask stats one
holds '.posts_refused == 0 and .flips == 0' "a setting was refused"
pass "a posted rate holds from then on: $got bit/s"

ask off one
tc -n near qdisc show dev near0 | grep -q noqueue || fail "the default did not return"
pass "taken off, the default returns"
ask remove one
holds '.pinned == []' "a pin is left"

# Everything from the first packet on is logged: a queue of FQ-CoDel that fills and drops.
ask add logged near0 root 4000000 3 60000
ip netns exec near iperf3 --client $FAR --udp --bitrate 6M --length 1000 --time 2 --json >/tmp/iperf || cat /tmp/iperf
ip netns exec near ping -i 0.01 -c 100 $FAR >/dev/null &
ip netns exec near iperf3 --client $FAR --parallel 3 --time 3 --json >/tmp/iperf || cat /tmp/iperf
wait $!
ask replay logged
holds '.sent > 1000 and .dropped > 10' "too little happened"
pass "$(field .replayed) operations on real packets gave the order that they give natively ($(field .sent) sent, $(field .dropped) dropped)"
sums_hold logged
