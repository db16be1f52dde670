# Rules of ebtables with spanning tree, queries for groups, VLAN devices and sockets at a port, next to
# ebtables-legacy in the same namespace: both count the same frames.
#
# kernels: floor newest
# needs: ebtables-legacy fairpath ip ping
# timeout: 240

# Hooks of ebtables end with their namespace only, and AF_XDP of later scenarios bypasses no chain with hooks.
if [ -z "${ROUTER-}" ]; then
	ip netns add router
	export ROUTER=1
	exec busybox nsenter --net=/run/netns/router /bin/sh /fairpath/harness.sh rules-bridge
fi

ip link set lo up
for number in 1 2 3; do
	ip netns add "far$number"
	ip link add "port$number" type veth peer name far0 netns "far$number"
	ip -n "far$number" link set lo up
	ip -n "far$number" link set far0 up
	ip -n "far$number" address add "192.0.9.$number/24" dev far0
done
# A port that is a VLAN device, one below it that is not a port, and a VLAN device on top of a port.
ip link add br0 type bridge stp_state 1 forward_delay 200 hello_time 100 mcast_snooping 1 mcast_querier 1 \
	mcast_query_interval 100 mcast_startup_query_interval 100
ip link add link port3 name port3.7 type vlan id 7
ip link add link port2 name port2.5 type vlan id 5
for link in port1 port2 port3.7; do ip link set "$link" master br0; done
for link in port1 port2 port3 port3.7 port2.5 br0; do ip link set "$link" up; done
ip address add 192.0.9.9/24 dev br0
ip address add 192.0.8.9/24 dev port2.5
ip -n far3 address flush dev far0
for far in far3:7:192.0.9.3 far2:5:192.0.8.2; do
	netns=${far%%:*} rest=${far#*:}
	ip -n "$netns" link add link far0 name far0.tag type vlan id "${rest%%:*}"
	ip -n "$netns" link set far0.tag up
	ip -n "$netns" address add "${rest#*:}/24" dev far0.tag
done
await 20 ip netns exec far1 ping -c 1 -W 1 192.0.9.3

{
	printf '*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n'
	for link in port1 port2 port3 port3.7 br0; do
		printf -- '-A INPUT -i %s\n-A FORWARD -i %s\n-A FORWARD -o %s\n-A OUTPUT -o %s\n' "$link" "$link" "$link" "$link"
	done
	for chain in INPUT FORWARD OUTPUT; do
		for match in '-p 0x0806' '-p 0x0800 --ip-proto 1' '-p 0x0800 --ip-proto 2' '-p 0x86dd' '-p 0x8100' '-d BGA' '-p LENGTH'; do
			printf -- '-A %s %s\n' $chain "$match"
		done
	done
	printf -- '-A INPUT --logical-in br0\n-A FORWARD --logical-in br0 --logical-out br0\n-A OUTPUT --logical-out br0\n'
} >/tmp/rules.bridge
legacy=
if ebtables-legacy -L >/tmp/listed 2>&1; then
	legacy=1
	ebtables-legacy -F
	sed -n '/^-A/p' /tmp/rules.bridge | while read -r rule; do
		# shellcheck disable=SC2086
		ebtables-legacy $rule
	done
fi
fairpath rules load --family bridge /tmp/rules.bridge
# Nothing is on its way while both begin to count.
for link in port1 port2 port3; do ip link set "$link" down; done
fairpath rules counters --zero >/dev/null
[ -z "$legacy" ] || ebtables-legacy -Z
for link in port1 port2 port3; do ip link set "$link" up; done
await 20 ip netns exec far1 ping -c 1 -W 1 192.0.9.3

ip netns exec far1 ping -c 2 -W 5 192.0.9.2 >/dev/null || fail "no answer across the bridge"
ip netns exec far3 ping -c 2 -W 5 192.0.9.9 >/dev/null || fail "no answer of the bridge"
ping -c 2 -W 5 192.0.9.1 >/dev/null || fail "no answer to the bridge"
ping -c 2 -W 5 192.0.8.2 >/dev/null || fail "no answer to a VLAN device on a port"
await 10 sh -c "fairpath rules counters | grep -q '^\[[1-9].* -A OUTPUT .*-d BGA'"
for link in port1 port2 port3; do ip link set "$link" down; done

# Packets and bytes of the rules in order.
ours=$(fairpath rules counters | sed -n 's/^\[\([0-9]*:[0-9]*\)\] -A .*/\1/p' | tr '\n' ' ')
fairpath rules counters
of() { fairpath rules counters | grep -e "-A $1" | head -1 | sed -n 's/^\[\([0-9]*\):.*/\1/p'; }
[ "$(of 'FORWARD .*-i port1')" -ge 2 ] && [ "$(of 'INPUT .*-i port3.7')" -ge 2 ] || fail "$ours"
[ "$(of 'INPUT -i port3 ')" = 0 ] && [ "$(of 'OUTPUT .*-o br0')" = 0 ] || fail "$ours"
[ "$(of 'OUTPUT -p 802_1Q')" = 0 ] || fail "frames of a VLAN device on a port met OUTPUT: $ours"
pass "frames meet the rules by their ports"
if [ -n "$legacy" ]; then
	theirs=$(ebtables-legacy -L --Lc | sed -n 's/.*, pcnt = \([0-9]*\) -- bcnt = \([0-9]*\).*/\1:\2/p' | tr '\n' ' ')
	[ "$ours" = "$theirs" ] || {
		ebtables-legacy -L --Lc
		fail "ours $ours, of ebtables $theirs"
	}
	pass "counters are those of ebtables"
fi
fairpath rules unload
for number in 1 2 3; do ip netns del "far$number"; done
