# The scheduler as a BPF qdisc shares nothing and keeps nothing: two devices, queues of mq, link down, removal.
#
#     near (near0, near1, near2 with two queues) ----------- far
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# timeout: 240

. /fairpath/qdisc.sh

# link N QUEUES: near$N with 198.51.N.1, and its far end with .2.
link() {
	ip link add "near$1" netns near numtxqueues "$2" numrxqueues "$2" type veth peer name "far$1" netns far \
		numtxqueues "$2" numrxqueues "$2"
	ip -n near address add 198.51.$1.1/24 dev "near$1"
	ip -n far address add 198.51.$1.2/24 dev "far$1"
	ip -n near link set "near$1" up
	ip -n far link set "far$1" up
	await 10 ip netns exec near ping -c 1 -W 2 198.51.$1.2
}

# More than the link takes, without waiting for it: what the send buffers hold is in the qdisc afterwards.
fill() {
	ip netns exec near iperf3 --client "$1" --udp --bitrate 1M --parallel 8 --length 1000 --time 1 >/dev/null 2>&1 || true
}

# Kilobytes that the guest has left.
left() {
	sync
	awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo
}

mount_pins
ip netns add near
ip netns add far
link 10 1
link 11 1
link 12 2
for n in 10 11; do
	ip netns exec far iperf3 --server --bind 198.51.$n.2 >/tmp/server$n 2>&1 &
	await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q 198.51.$n.2:5201"
done
serve

# Two at a time, each with its own rate.
ask add a near10 root 8000000 3
ask add b near11 root 4000000 3
rate() {
	jq '.end.sum_received.bits_per_second / 1448 * 1514 | floor' "/tmp/iperf$1"
}
# Never more than its own; less only where the host leaves the guest no time, which is repeated and counted.
both() {
	for n in 10 11; do
		ip netns exec near iperf3 --client 198.51.$n.2 --omit 1 --time 5 --json >/tmp/iperf$n &
		[ $n = 10 ] && first=$! || second=$!
	done
	wait "$first" "$second"
	echo "$(rate 10) and $(rate 11) bit/s"
	[ "$(rate 10)" -le 8400000 ] && [ "$(rate 11)" -le 4200000 ] || fail "more than a device's own: $(rate 10), $(rate 11)"
	[ "$(rate 10)" -ge 7600000 ] && [ "$(rate 11)" -ge 3800000 ]
}
for round in 1 2 3 4 5; do
	! both || break
	repeated "less than a device's own: $(rate 10), $(rate 11)"
	[ $round -lt 5 ] || fail "less than a device's own: $(rate 10), $(rate 11)"
done
sums_hold a
sums_hold b
pass "two devices at once: $(rate 10) of 8000000 and $(rate 11) of 4000000 bit/s"

# The link goes down with packets waiting, again and again.
ask rate b 100000
before=
for round in $(seq 20); do
	fill 198.51.11.2
	ip -n near link set near11 down
	ip -n near link set near11 up
	[ "$round" = 3 ] && before=$(left)
done
after=$(left)
ask stats b
holds '.lost > 200 and .waiting == 0 and .resets >= 20' "nothing waited, or it still does"
grown=$((before - after))
# Seventeen rounds of what waits would be some six megabytes.
[ $grown -lt 2000 ] || fail "$grown kB are gone after $(field .lost) packets were freed by resets"
pass "$(field .lost) packets freed by $(field .resets) resets, $grown kB more in use"
sums_hold b
ask rate b 4000000
ip netns exec near ping -c 2 198.51.11.2 >/dev/null || fail "nothing passes after the resets"

# Removed with packets waiting, by us and with its device.
ask rate b 100000
ask stats b
lost=$(field .lost)
fill 198.51.11.2
ask off b
holds ".taken and .lost > $lost" "nothing waited"
ask on b
fill 198.51.11.2
ip -n near link delete near11
await 10 sh -c 'shape-qdisc ask /run/tool/socket stats b | jq .used | grep -qx false'
sums_hold b
holds '.waiting == 0' "packets wait in a device that is gone"
sums_hold a
pass "removed, and its device removed, with packets waiting: all are freed"

# Queues of mq: each follows its own object; together they carry all.
ask add q0 near12 0 8000000 3
ask add q1 near12 1 8000000 3
tc -n near -s qdisc show dev near12
ip netns exec far iperf3 --server --bind 198.51.12.2 >/tmp/server12 2>&1 &
await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q 198.51.12.2:5201"
ip netns exec near iperf3 --client 198.51.12.2 --parallel 8 --time 3 >/dev/null
sums_hold q0
q0=$(field .sent_segments)
holds '.sent_bytes == .tc_bytes' "tc -s counts otherwise"
sums_hold q1
q1=$(field .sent_segments)
holds '.sent_bytes == .tc_bytes' "tc -s counts otherwise"
[ "$q0" -gt 0 ] && [ "$q1" -gt 0 ] || fail "one queue carried all: $q0 and $q1"
pass "two queues of mq have their own: $q0 and $q1 packets"
ask off q0
ask off q1
sums_hold q0
