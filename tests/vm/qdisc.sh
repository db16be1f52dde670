# What scenarios of BPF qdiscs share; they source it as /fairpath/qdisc.sh.
#
#     near (near0: NEAR) ----------- far (far0: FAR, iperf3's server)
#
#     near_and_far      makes the two namespaces and the link, starts the server, and waits until both answer
#     link_near_and_far makes the link between them, with its addresses
#     mount_pins        mounts the bpffs that `shape-qdisc` pins in
#     serve             starts `shape-qdisc`, the server of `ask`; its process is $tool
#     ask WORD...       sends a request; the answer is in /tmp/answer, an error ends the scenario
#     field PATH        prints a field of the answer
#     holds TEST TEXT   fails with TEXT unless jq's TEST is true of the answer
#     sums_hold NAME    fails unless all packets of a qdisc are accounted for
#     tcp SECONDS OMIT  prints what TCP brings to the far side
#     rate_holds BPS TEXT [OMIT]  fails unless TCP gets a rate; what it got is in $got

NEAR=192.0.2.1
FAR=192.0.2.2

link_near_and_far() {
	ip link add near0 netns near type veth peer name far0 netns far
	ip -n near address add $NEAR/24 dev near0
	ip -n far address add $FAR/24 dev far0
	ip -n near link set near0 up
	ip -n far link set far0 up
}

near_and_far() {
	ip netns add near
	ip netns add far
	link_near_and_far
	ip netns exec far iperf3 --server >/tmp/server 2>&1 &
	await 10 ip netns exec near ping -c 1 -W 2 $FAR
	await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q :5201"
}

mount_pins() {
	mkdir -p /run/pins
	mount -t bpf -o mode=700 bpf /run/pins
}

serve() {
	mkdir -p /run/tool
	rm -f /run/tool/socket
	ip netns exec near shape-qdisc serve /run/pins /run/tool/socket >/tmp/trouble 2>&1 &
	tool=$!
	await 10 test -S /run/tool/socket
}

ask() {
	shape-qdisc ask /run/tool/socket "$@" >/tmp/answer || fail "$*: $(cat /tmp/answer)"
	echo "$*: $(cat /tmp/answer)"
}

field() {
	jq -r "$1" /tmp/answer
}

holds() {
	jq -e "$1" /tmp/answer >/dev/null || fail "$2: $(cat /tmp/answer)"
}

sums_hold() {
	ask stats "$1"
	holds .agree "no time to read"
	holds '.came == .sent + .dropped + .lost + .waiting and .strangers == 0' "packets are missing"
	holds '.sched_enqueued == .came and .sched_sent == .sent and .sched_bytes == .sent_bytes' "the scheduler counts otherwise"
}

# Bits a second in frames that TCP brought to the far side in $1 seconds after $2; a frame has 66 bytes in addition to its data.
tcp() {
	ip netns exec near iperf3 --client $FAR --omit "$2" --time "$1" --json >/tmp/iperf || {
		cat /tmp/iperf
		fail "iperf3 failed"
	}
	jq '.end.sum_received.bits_per_second / 1448 * 1514 | floor' /tmp/iperf
}

# TCP gets $1 bit/s within 5 %, never more; less only where the host leaves the guest no time, which is repeated and counted.
rate_holds() {
	for _ in 1 2 3 4 5; do
		got=$(tcp 4 "${3:-1}")
		[ "$got" -le $(($1 * 105 / 100)) ] || fail "$2: $got is more than $1 bit/s"
		[ "$got" -lt $(($1 * 95 / 100)) ] || return 0
		repeated "$2: $got is less than $1 bit/s"
	done
	fail "$2: $got is less than $1 bit/s"
}
