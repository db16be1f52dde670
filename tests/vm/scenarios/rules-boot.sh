# Kept rules and their unit on Debian: loaded by systemd, and refused if they are cut.
#
#     guest: eth0 10.9.0.1 ----------- eth0 10.9.0.2, in a namespace
#
# A start of the unit stands for a start of the machine, whose disk is in memory here.
#
# kernels: floor
# user-space: debian
# needs: fairpath mmdebstrap dpkg-deb dpkg-shlibdeps
# timeout: 400

PACKAGE=/fairpath/packages/old.deb
UNIT=fairpath-rules.service
KEPT=/var/lib/fairpath/rules
# Starting loads BPF programs, which takes seconds on an emulated processor.
PATIENCE_S=60

trap 'status=$?; [ $status = 0 ] || journalctl --no-pager --lines 40 --unit $UNIT --unit fairpath.service' EXIT

state_of() { systemctl show --property "$1" --value $UNIT; }
must_be() { [ "$(state_of "$1")" = "$2" ] || fail "$1 of the unit is $(state_of "$1"), not $2"; }
refused() { ! "$@" >/run/scenario/refused 2>&1; }

ip netns add host
ip link add eth0 type veth peer name eth0 netns host
ip address add 10.9.0.1/24 dev eth0
ip link set eth0 up
ip -n host address add 10.9.0.2/24 dev eth0
ip -n host link set eth0 up

## Installed, and not enabled
quietly dpkg --install $PACKAGE
must_be UnitFileState disabled
must_be ActiveState inactive
quietly systemd-analyze verify --man=no /usr/lib/systemd/system/$UNIT
case " $(state_of Before) " in
*" network-pre.target "*) ;;
*) fail "the unit is before $(state_of Before)" ;;
esac
quietly systemctl enable $UNIT
pass "the unit is installed, not enabled, and ordered before the network"

## Kept, and loaded by the unit
printf '*filter\n-A INPUT -p udp -m udp --dport 7001 -j REJECT\nCOMMIT\n' >/tmp/rules.v4
# The daemon answers, within what its unit allows.
await $PATIENCE_S fairpath rules load --require-answers /tmp/rules.v4
quietly fairpath rules apply --loaded -- -A INPUT -p udp -m udp --dport 7002 -j DROP
[ "$(stat -c '%U %a' $KEPT)" = "root 600" ] || fail "the kept rules are $(stat -c '%U %a' $KEPT)"
quietly fairpath rules unload --keep-file
quietly systemctl start $UNIT
must_be ActiveState active
fairpath rules counters | grep -q 'dport 7002 -j DROP' || fail "the rules are not there"
fairpath rules show | grep -q 'kept for the next start' || fail "$(fairpath rules show)"
quietly systemctl restart $UNIT
pass "the daemon answers rejected packets, and the unit loads rules with their edits"

## Cut
quietly fairpath rules unload --keep-file
quietly systemctl stop $UNIT
truncate -s -5 $KEPT
refused systemctl start $UNIT || fail "cut rules were loaded"
must_be ActiveState failed
refused fairpath rules show || fail "rules are there"
quietly ip netns exec host /usr/bin/ping -c 1 -W 2 10.9.0.1
pass "with cut rules, the unit fails, and no rules are there"
