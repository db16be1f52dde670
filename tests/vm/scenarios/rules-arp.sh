# Rules of arptables with a VLAN device and a bond, next to arptables-legacy in the same namespace: both count the
# same packets.
#
# kernels: floor newest
# needs: arptables-legacy fairpath ip ping
# timeout: 240

ip link set lo up
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link add near1 type veth peer name far1 netns far
ip link add link near0 name near0.5 type vlan id 5
ip -n far link add link far0 name far0.5 type vlan id 5
ip link add bond7 type bond mode active-backup miimon 100
ip link set near1 master bond7
for link in near0 near0.5 near1 bond7; do ip link set "$link" up; done
for link in far0 far0.5 far1; do ip -n far link set "$link" up; done
number=0
for pair in near0:far0 near0.5:far0.5 bond7:far1; do
	number=$((number + 1))
	ip address add 192.0.$number.1/24 dev "${pair%:*}"
	ip -n far address add 192.0.$number.2/24 dev "${pair#*:}"
	# One request for each address.
	echo 1 >"/proc/sys/net/ipv4/neigh/${pair%:*}/mcast_solicit"
done
await 10 ip netns exec far ping -c 1 -W 1 192.0.3.1

{
	printf '*filter\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:FORWARD ACCEPT\n'
	for link in near0 near0.5 near1 bond7; do
		printf -- '-A INPUT -i %s\n-A OUTPUT -o %s\n' "$link" "$link"
	done
	printf -- '-A INPUT\n-A OUTPUT\n\n'
} >/tmp/rules.arp
legacy=
if arptables-legacy -A INPUT >/tmp/listed 2>&1; then
	legacy=1
	arptables-legacy -F
	sed -n '/^-A/p' /tmp/rules.arp | while read -r rule; do
		# shellcheck disable=SC2086
		arptables-legacy $rule
	done
fi
fairpath rules load /tmp/rules.arp
[ -z "$legacy" ] || arptables-legacy -Z

for number in 1 2 3; do
	ip neigh flush all
	ip -n far neigh flush all
	ip netns exec far ping -c 1 -W 5 192.0.$number.1 >/dev/null || fail "no answer of 192.0.$number.1"
	ping -c 1 -W 1 192.0.$number.9 >/dev/null && fail "an answer of no one"
done

# Nothing comes or goes while both are read, such as a probe of a neighbour.
for link in near0 near1; do ip link set "$link" down; done
# Packets of the rules in order: INPUT, then OUTPUT.
counted() {
	fairpath rules counters | sed -n 's/^\[\([0-9]*\):.* -A .*/\1/p' | tr '\n' ' '
}
ours=$(counted)
# The far host asks, and this one answers, then looks for another; each first looks for the other one again.
# shellcheck disable=SC2086
set -- $ours
[ "$1" -ge 1 ] && [ "$2" -ge 1 ] && [ "$4" -ge 1 ] || fail "$ours"
[ "$3" = 0 ] && [ "$8" = 0 ] || fail "a port of the bond has packets: $ours"
[ "$5" = $(($1 + $2 + $4)) ] || fail "$ours"
[ "$6" -ge 2 ] && [ "$7" -ge 2 ] && [ "$9" -ge 2 ] || fail "$ours"
[ "${10}" = $(($6 + $7 + $9)) ] || fail "$ours"
pass "each packet meets the rules once, by the interface with the address"
if [ -n "$legacy" ]; then
	theirs=$(arptables-legacy -L -n -v -x | sed -n 's/.*pcnt=\([0-9]*\) .*/\1/p' | tr '\n' ' ')
	[ "$ours" = "$theirs" ] || fail "ours $ours, of arptables $theirs"
	pass "counters are those of arptables"
fi
fairpath rules unload
ip netns del far
