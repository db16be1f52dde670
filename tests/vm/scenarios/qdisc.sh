# The scheduler as a BPF qdisc on a device: rates, classes, counts, changes under load, the daemon's death, removal.
#
#     near (near0: root, 20 Mbit/s) ----------- far
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# timeout: 240

NEAR=192.0.2.1
FAR=192.0.2.2
RATE=20000000

# Commands go into a fifo, answers come out, a line each.
tool() {
	rm -f /tmp/commands
	mkfifo /tmp/commands
	: >/tmp/answers
	ip netns exec near shape-qdisc /run/pins </tmp/commands >/tmp/answers 2>/tmp/trouble &
	tool=$!
	exec 3>/tmp/commands
	asked=0
}

answered() {
	[ "$(wc -l </tmp/answers)" -ge "$asked" ]
}

# ask COMMAND...: the answer is in /tmp/answer; an error ends the scenario.
ask() {
	asked=$((asked + 1))
	echo "$*" >&3
	await 30 answered
	tail -n 1 /tmp/answers >/tmp/answer
	echo "$*: $(cat /tmp/answer)"
	! jq -e .error /tmp/answer >/dev/null || fail "$*: $(cat /tmp/answer)"
}

field() {
	jq -r "$1" /tmp/answer
}

# Megabits a second of goodput that the far side received in $1 seconds of TCP; frames are 66 bytes longer than data.
tcp() {
	ip netns exec near iperf3 --client $FAR --time "$1" --json >/tmp/iperf || {
		cat /tmp/iperf
		fail "iperf3 failed"
	}
	jq '.end.sum_received.bits_per_second / 1448 * 1514 | floor' /tmp/iperf
}

between() {
	[ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || fail "$4: $1 is not between $2 and $3"
}

sums_hold() {
	ask stats one
	jq -e '.came == .sent + .dropped + .lost + .waiting and .strangers == 0
		and .sched_enqueued == .came and .sched_sent == .sent and .sched_bytes == .sent_bytes' /tmp/answer >/dev/null ||
		fail "the sums contradict each other"
}

mkdir -p /run/pins
mount -t bpf bpf /run/pins
ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
ip netns exec far iperf3 --server >/tmp/server 2>&1 &
await 10 ip netns exec near ping -c 1 -W 2 $FAR
await 10 sh -c "ip netns exec far busybox netstat -ltn | grep -q :5201"
free_tcp=$(tcp 2)
echo "without a qdisc: $free_tcp bit/s"

tool
ask add one near0 root $RATE 3
name=$(field .name)
tc -n near qdisc show dev near0 | grep -q "qdisc $name" || fail "tc does not show $name"
ip netns exec near ping -c 2 $FAR >/dev/null
sums_hold
[ "$(field .far_packets)" -ge 2 ] || fail "no packet was put into the class of $FAR"
pass "registered, put on, and classifies"

ip netns exec near ping -i 0.2 -c 20 $FAR >/tmp/ping &
ping=$!
got=$(tcp 5)
wait $ping
tail -n 2 /tmp/ping
between "$got" $((RATE * 95 / 100)) $((RATE * 105 / 100)) "TCP, in frames"
pass "TCP gets $got of $RATE bit/s"
