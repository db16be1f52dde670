# A kernel without BPF qdiscs refuses a custom policy by name and reason, as HTB does everywhere, and nothing changes. The
# same policy shapes through NFQUEUE, as machine code.
#
# kernels: floor
# needs: fairpath ip tc nft ping
# policies: last.c
# timeout: 120

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add 192.0.2.1/24 dev near0
ip -n far address add 192.0.2.2/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
tc -n near qdisc show dev near0 >/tmp/before

START="ip netns exec near fairpath shape start --inside near0 --down 8mbit --policy /fairpath/policies/last.o --via"

refused() {
	status=0
	$START "$1" >/tmp/out 2>&1 || status=$?
	[ "$status" -eq "$3" ] || fail "$1 ended with status $status: $(cat /tmp/out)"
	grep -q "$2" /tmp/out || fail "$1 does not name the reason: $(cat /tmp/out)"
	tc -n near qdisc show dev near0 | cmp -s - /tmp/before || fail "$1 left $(tc -n near qdisc show dev near0)"
}

refused qdisc "Linux 6.16" 1
pass "without BPF qdiscs, a custom policy is refused: $(tail -n 1 /tmp/out)"
refused kernel "no scheduler of Fairpath" 2
pass "HTB refuses it, too: $(tail -n 1 /tmp/out)"

$START nfqueue >/tmp/log 2>&1 &
shaper=$!
await 60 grep -q "shaping via nfqueue" /tmp/log
await 20 ip netns exec near ping -c 1 -W 2 192.0.2.2
fairpath shape status >/tmp/status || fail "no status: $(cat /tmp/log)"
grep -q "last (compiled)" /tmp/status || fail "it is not compiled: $(cat /tmp/status)"
kill $shaper
wait $shaper || fail "it ended with an error: $(cat /tmp/log)"
pass "NFQUEUE runs it as machine code"
