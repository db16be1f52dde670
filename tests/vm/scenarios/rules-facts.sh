# Facts that loaded rules read from the kernel: the date after the clock was set, link-layer sources behind a VLAN
# tag, owners.
#
# kernels: floor newest
# needs: fairpath ip nft ping setpriv
# timeout: 180

# The packets of the rule that ends so.
packets() {
	fairpath rules counters | sed -n "s/^\[\([0-9]*\):.* $1\$/\1/p"
}

ip link set lo up
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 up
ip -n far link set far0 address 02:00:00:00:00:0f up
ip link add link near0 name near0.5 type vlan id 5
ip -n far link add link far0 name far0.5 type vlan id 5
ip address add 192.0.2.1/24 dev near0.5
ip -n far address add 192.0.2.2/24 dev far0.5
ip link set near0.5 up
ip -n far link set far0.5 up

cat >/tmp/rules <<-END
	*filter
	-A INPUT -i near0.5 -p icmp -m mac --mac-source 02:00:00:00:00:0f
	-A INPUT -p icmp -m mac ! --mac-source 02:00:00:00:00:0f
	-A OUTPUT -p icmp -m owner --uid-owner 0 -m time --datestart 2033-05-01 --datestop 2033-05-02
	-A OUTPUT -p icmp -m time --timestart 21:00:00 --timestop 23:00:00 --kerneltz
	-A OUTPUT -p icmp -m owner ! --uid-owner 0
	COMMIT
END
fairpath rules load /tmp/rules
await 10 ip netns exec far ping -c 1 -W 1 192.0.2.1
[ "$(packets '--mac-source 02:00:00:00:00:0f')" ] || fail "$(fairpath rules counters)"
fairpath rules counters --zero >/dev/null
ip netns exec far ping -c 1 -W 5 192.0.2.1 >/dev/null || fail "no answer"
[ "$(packets '-i near0.5 .*')" = 1 ] || fail "$(fairpath rules counters)"
[ "$(packets '! --mac-source 02:00:00:00:00:0f')" = 0 ] || fail "$(fairpath rules counters)"
pass "the link-layer source is that behind the tag"
[ "$(packets 'owner ! --uid-owner 0')" = 1 ] || fail "$(fairpath rules counters)"
pass "an answer of the kernel has a socket without an owner"

[ "$(packets '2033-05-02.*')" = 0 ] || fail "$(fairpath rules counters)"
date -s '2033-05-01 12:00:00' >/dev/null
ping -c 1 -W 5 127.0.0.1 >/dev/null || fail "no answer"
[ "$(packets '2033-05-02.*')" = 1 ] || fail "$(fairpath rules counters)"
date -s '2033-05-03 12:00:00' >/dev/null
ping -c 1 -W 5 127.0.0.1 >/dev/null || fail "no answer"
[ "$(packets '2033-05-02.*')" = 1 ] || fail "$(fairpath rules counters)"
pass "rules see the new date at once"
