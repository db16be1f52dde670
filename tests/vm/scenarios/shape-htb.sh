# HTB follows our marks on these kernels, with the leaves that they have: cake, else fq_codel, and the configured one.
#
#     near (htb-shape on near0's egress) ----------- far
#
# kernels: floor newest
# needs: htb-shape ip tc ping iperf3 jq
# timeout: 240

BPS=2000000
DURATION_S=6
NEAR=192.0.2.1
FAR=192.0.2.2
# An emulated processor that shares its host may be slow; what counts is the upper bound, far below the line.
LEAST_BPS=500000
MOST_BPS=2000000

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
# `ip netns exec` hides what is mounted behind it.
mkdir -p /tmp/bpf
mount -t bpf -o mode=700 bpf /tmp/bpf
ip netns exec far iperf3 --server >/tmp/server 2>&1 &
await 10 ip netns exec near ping -c 1 -W 2 $FAR
await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q :5201"

shaper=
shape() {
	[ -z "$shaper" ] || kill -9 $shaper
	: >/tmp/shape
	ip netns exec near htb-shape near0 /tmp/bpf $FAR/32 $BPS "$@" >/tmp/shape 2>&1 &
	shaper=$!
	await 60 grep -q . /tmp/shape
	cat /tmp/shape
	grep -q "^shaping" /tmp/shape || fail "htb-shape $*: $(cat /tmp/shape)"
}

leaf_is() {
	found=$(tc -n near -j qdisc show dev near0 | jq -r '.[] | select(.parent == "fa1:5") | .kind')
	[ "$found" = "$1" ] || fail "the leaf is $found, $1 was expected"
}

# Packets that the class sent so far.
sent() {
	tc -n near -s class show dev near0 | awk '$3 == "fa1:5" { here = 1 } here && $1 == "Sent" { print $4; exit }'
}

holds_rate() {
	before=$(sent)
	ip netns exec near iperf3 --client $FAR --time $DURATION_S --json >/tmp/client 2>&1 || {
		cat /tmp/client /tmp/server
		fail "iperf3 failed"
	}
	bps=$(jq '.end.sum_received.bits_per_second | floor' /tmp/client)
	[ "$bps" -ge $LEAST_BPS ] && [ "$bps" -le $MOST_BPS ] || fail "$bps bit/s in a class of $BPS"
	tc -n near -s class show dev near0
	after=$(sent)
	[ "$after" -gt "$((before + 100))" ] || fail "the class sent $before and then $after packets"
}

shape
leaf_is cake
holds_rate
pass "cake below a marked class of 2 Mbit/s: $bps bit/s"

# As if a process had been interrupted between a class and its leaf.
tc -n near qdisc del dev near0 parent fa1:5
leaf_is ""
shape
leaf_is cake
pass "a leaf that lacks its queue is given it"

# Another process continues; the first was killed.
shape fq_codel
grep -q "handed over true, program Over" /tmp/shape || fail "not continued: $(cat /tmp/shape)"
leaf_is fq_codel
holds_rate
pass "fq_codel, continued: $bps bit/s"

kill -9 $shaper
shaper=
holds_rate
pass "after kill -9 it is shaped: $bps bit/s"
umount /tmp/bpf
