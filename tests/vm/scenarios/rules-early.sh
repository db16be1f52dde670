# Early drop on this kernel: packets in the driver, and those of a VLAN, whose tags the interface removes.
#
# kernels: floor newest
# needs: fairpath ip ping
# timeout: 180

early() {
	fairpath rules show | sed -n 's/^early drop at near0: \([0-9]*\) packets.*/\1/p'
}

# The packets of the rule.
dropped() {
	fairpath rules counters | sed -n 's/^\[\([0-9]*\):.* -A PREROUTING .*-j DROP$/\1/p'
}

ip link set lo up
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 up
ip -n far link set far0 up
ip address add 192.0.2.1/24 dev near0
ip -n far address add 192.0.2.2/24 dev far0
printf '*raw\n-A PREROUTING -s 192.0.2.2/32 -p icmp -j DROP\nCOMMIT\n' >/tmp/rules
fairpath rules load /tmp/rules --early-drop near0
ip netns exec far ping -c 3 -i 0.2 -W 1 192.0.2.1 >/dev/null && fail "a blocked host has answers"
[ "$(early)" = 3 ] || fail "$(fairpath rules show)"
[ "$(dropped)" = 3 ] || fail "$(fairpath rules counters)"
pass "a driver drops, and counts once"

# The interface hides the tags of VLANs: its driver leaves all packets to the hook.
ip link add link near0 name near0.5 type vlan id 5
ip -n far link add link far0 name far0.5 type vlan id 5
ip address flush dev near0
ip -n far address flush dev far0
ip address add 192.0.2.1/24 dev near0.5
ip -n far address add 192.0.2.2/24 dev far0.5
ip link set near0.5 up
ip -n far link set far0.5 up
ip netns exec far ping -c 3 -i 0.2 -W 1 192.0.2.1 >/dev/null && fail "a blocked host has answers"
[ "$(early)" = 3 ] || fail "$(fairpath rules show)"
[ "$(dropped)" = 6 ] || fail "$(fairpath rules counters)"
fairpath rules unload
ip -o link show near0 | grep -q xdp && fail "unload leaves the program"
pass "packets of VLANs meet the hook"
ip netns del far
