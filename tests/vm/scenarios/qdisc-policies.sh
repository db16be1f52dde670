# Custom policies in BPF qdiscs: three run in one tree, in their native order, and two devices have different ones. They are
# replaced while packets wait, and every packet is accounted for. One that the verifier refuses changes nothing. They continue
# after a kill, and when a link was down, and leave nothing behind.
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# policies: last.c short.c late.c refused.c
# timeout: 800

. /fairpath/qdisc.sh

RATE=4000000
POLICIES=/fairpath/policies

# The fastest of five pings to an address, in ms.
fastest() {
	ip netns exec near ping -c 5 -i 0.2 "$1" >/tmp/ping
	sed -n 's/.*time=\([0-9]*\).*/\1/p' /tmp/ping | sort -n | head -n 1
}

# Fails unless the next packet to an address waits 5 ms.
held() {
	got=$(fastest "$1")
	[ "$got" -ge 5 ] || fail "a packet did not wait: $got ms"
}

# Objects with their paths.
files() {
	for name in "$@"; do
		echo "$POLICIES/$name.o"
	done
}

# True if packets wait in the first qdisc.
waits() {
	ask stats one
	[ "$(field .waiting)" -gt 1 ]
}

# Swaps the leaves of the first qdisc, and waits until a packet has activated the new plan.
leaves() {
	# shellcheck disable=SC2046
	ask leaves one $(files "$@")
	ip netns exec near ping -c 1 -W 1 $FAR >/dev/null || true
	ask settle one
}

mount_pins
near_and_far
serve

ask add one near0 root $RATE 3fifo 20000
# Active with the first packet, so that the log begins with this plan.
# shellcheck disable=SC2046
ask leaves one $(files last short late)
ip netns exec near iperf3 --client $FAR --udp --bitrate 2500K --parallel 2 --length 500 --time 4 >/tmp/udp 2>&1 || { cat /tmp/udp; fail "iperf3 failed"; }
sums_hold one
ask replay one
holds '.sent > 1000' "too few packets were repeated"
pass "three policies in one tree leave packets in their native order"

leaves late
held $FAR
pass "a policy holds the next packet for 5 ms"

if shape-qdisc ask /run/tool/socket leaves one $POLICIES/refused.o >/tmp/answer; then
	fail "a policy with an endless loop was accepted"
fi
cat /tmp/answer
grep -q "the verifier refuses it at .*refused.c:" /tmp/answer || fail "the line of the refusal is missing"
held $FAR
sums_hold one
pass "a policy that the verifier refuses changes nothing"

# Another device, another policy.
ip link add near1 netns near type veth peer name far1 netns far
ip -n near address add 198.51.100.1/24 dev near1
ip -n far address add 198.51.100.2/24 dev far1
ip -n near link set near1 up
ip -n far link set far1 up
await 10 ip netns exec near ping -c 1 -W 2 198.51.100.2
ask add two near1 root $RATE 1fifo
leaves last
# shellcheck disable=SC2046
ask leaves two $(files late)
held 198.51.100.2
got=$(fastest $FAR)
[ "$got" -lt 5 ] || fail "the other device has the policy, too: $got ms"
pass "two devices have different policies"
ask off two
ask remove two

# Other policies while packets wait: of UDP, then of TCP.
moved=0
for traffic in "--udp --bitrate 6M" "--parallel 2"; do
	# shellcheck disable=SC2086
	ip netns exec near iperf3 --client $FAR $traffic --time 12 >/tmp/traffic 2>&1 &
	client=$!
	await 30 waits
	for set in last "short late" "last short late" short "late last short"; do
		sleep 1.5
		# shellcheck disable=SC2086
		leaves $set
		ask stats one
		moved=$((moved + $(field .moved)))
	done
	wait $client || { cat /tmp/traffic; fail "iperf3 failed"; }
done
sums_hold one
holds '.lost == 0 and .strangers == 0 and .flips >= 12' "packets were lost in a change"
[ "$moved" -gt 0 ] || fail "no packet waited while the policies changed"
pass "policies change under load, and every packet is accounted for"

leaves late
held $FAR
kill -9 $tool
wait $tool 2>/dev/null || true
held $FAR
pass "a policy continues without its process"
serve
ask find one near0 root $RATE 3fifo
holds .found "the qdisc was not found"
leaves late
held $FAR
pass "the next process finds it, and replaces its policies"

ip -n near link set near0 down
ip -n near link set near0 up
await 10 ip netns exec near ping -c 1 -W 2 $FAR
held $FAR
sums_hold one
pass "a policy continues after its link was down"
ask off one
ask remove one
[ -z "$(ls /run/pins)" ] || fail "pins remain: $(ls /run/pins)"
pass "nothing is left behind"
