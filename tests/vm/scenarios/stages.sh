# The netfilter hooks of the stack are named on kernels that list every one, and each only once.
#
# kernels: floor newest
# needs: stages ip tc nft ping
# timeout: 120

NEAR=192.0.2.1
FAR=192.0.2.2

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up

told() {
	ip netns exec near stages near0 >/tmp/told 2>&1 || fail "stages: $(cat /tmp/told)"
	cat /tmp/told
	[ "$(cat /tmp/told)" = "$1" ] || fail "reported: $(cat /tmp/told), expected: $1"
}

told ""
pass "nothing to pass, nothing reported"

ip netns exec near nft -f - <<'NFT'
table ip nat {
	chain out { type nat hook postrouting priority 100; oifname "near0" masquerade; }
}
table inet filter {
	chain through { type filter hook forward priority 0; ct state invalid drop; }
	chain empty { type filter hook prerouting priority 0; }
}
table inet fast {
	flowtable f { hook ingress priority 0; devices = { near0 }; }
	chain away { type filter hook forward priority 1; meta l4proto { tcp, udp } flow add @f; }
}
NFT
tc -n near qdisc add dev near0 clsact
tc -n near filter add dev near0 egress protocol ip flower action pass
await 10 ip netns exec near ping -c 1 -W 2 $FAR
told "netfilter (nft inet filter through)
netfilter (nft inet fast away)
NAT (nft ip nat out)
conntrack (1 connections tracked; without such rules, \`conntrack -F\` removes what is left)
tc filter (egress flower on \"near0\")"
pass "each stage once, by its name"
