# Kept rules after real restarts of Debian: loaded from the disk before the network, and closed if they are cut.
#
#     guest: eth0 10.9.0.1 ----------- eth0 10.9.0.2, in a namespace
#
# kernels: floor
# user-space: debian
# needs: fairpath mmdebstrap dpkg-deb dpkg-shlibdeps
# timeout: 300

PACKAGE=/fairpath/packages/old.deb
UNIT=fairpath-rules.service
KEPT=/var/lib/fairpath/rules
PATIENCE_S=60

trap 'status=$?; [ $status = 0 ] || journalctl --no-pager --boot --lines 40 --unit $UNIT' EXIT

property() { systemctl show --property "$1" --value "$2"; }
must_be() { [ "$(property "$1" $UNIT)" = "$2" ] || fail "$1 of the unit is $(property "$1" $UNIT), not $2"; }
refused() { ! "$@" >/run/scenario/refused 2>&1; }

neighbour() {
	ip netns add host
	ip link add eth0 type veth peer name eth0 netns host
	ip address add 10.9.0.1/24 dev eth0
	ip link set eth0 up
	ip -n host address add 10.9.0.2/24 dev eth0
	ip -n host link set eth0 up
}
host_pings() { ip netns exec host /usr/bin/ping -c 1 -W 2 10.9.0.1; }
counted() { fairpath rules counters | grep -e '--dport 7002 -j DROP' | grep -q "$1"; }

case $FAIRPATH_VM_RESTARTS in
0)
	quietly dpkg --install $PACKAGE
	quietly systemctl enable $UNIT
	printf '*filter\n-A INPUT -p udp -m udp --dport 7001 -j DROP\nCOMMIT\n' >/tmp/rules.v4
	quietly fairpath rules load /tmp/rules.v4
	quietly fairpath rules apply --loaded -- -A INPUT -p udp -m udp --dport 7002 -j DROP
	cat /proc/sys/kernel/random/boot_id >/root/boot
	restart
	;;
1)
	[ "$(cat /proc/sys/kernel/random/boot_id)" != "$(cat /root/boot)" ] || fail "this is the same start"
	grep -q '^/dev/vda / ' /proc/mounts || fail "the root is $(grep ' / ' /proc/mounts)"
	must_be ActiveState active
	loaded=$(property ActiveEnterTimestampMonotonic $UNIT)
	network=$(property ActiveEnterTimestampMonotonic network-pre.target)
	[ "$loaded" -gt 0 ] && [ "$loaded" -le "$network" ] || fail "loaded at $loaded us, and network-pre.target was at $network us"
	neighbour
	quietly host_pings
	counted 0 || fail "$(fairpath rules counters)"
	for port in 7001 7002; do
		ip netns exec host /bin/bash -c "echo x >/dev/udp/10.9.0.1/$port"
	done
	await $PATIENCE_S counted 1
	pass "after a restart, the unit has loaded the rules with their edit before the network, and they drop"
	printf '\n[rules]\nfail = "closed"\n' >>/etc/fairpath/fairpath.toml
	truncate -s -5 $KEPT
	restart
	;;
2)
	must_be ActiveState failed
	neighbour
	refused host_pings || fail "the machine answers, though its rules are cut"
	quietly /usr/bin/ping -c 1 -W 5 10.9.0.2
	quietly fairpath rules show
	pass "after a restart with cut rules and fail = \"closed\", only connections that the machine begins pass"
	quietly fairpath rules unload
	quietly host_pings
	pass "unload ends the closed rules"
	;;
esac
