# Changes by other programs while a BPF qdisc shapes: it continues, or reports that it does not. The same table as
# tests/shape/changes.rs, with GSO on; then a second process, GSO off, and a flood of this host.
#
#     near (inside: near0, 4 Mbit/s; class "far" of 2) ----------- far (FAR, and OTHER without a class)
#
# kernels: newest
# needs: fairpath ip tc nft ethtool ping iperf3 jq
# timeout: 600

. /fairpath/qdisc.sh
SOCKET=/run/fairpath/control.sock
OTHER=192.0.2.3
LINE=2000000

configure() {
	cat >/tmp/$1.toml <<TOML
[control]
socket = "/run/fairpath/$1.sock"
[state]
file = "/run/fairpath/$1.state"
[metrics]
listen = "off"
[shape]
inside = "near0"
down = "4mbit"
via = "$2"
[[class]]
name = "far"
prefix = "$FAR"
down = "2mbit"
TOML
}

status() {
	fairpath shape status --socket $SOCKET --format json 2>/dev/null | head -n 1 >/tmp/status
	[ -s /tmp/status ]
}
runs() { status && jq -e '.shape.running and .shape.backend == "qdisc"' /tmp/status >/dev/null; }
reports() { status && jq -e '(.shape.running | not) and .shape.failure != null' /tmp/status >/dev/null; }

received() { ip -n far -s -j link show far0 | jq '.[0].stats64.rx.bytes'; }
uptime_cs() { cut -d' ' -f1 /proc/uptime | tr -d .; }
# Bits a second that reach the far side, for a second and a half.
measure() {
	begin=$(uptime_cs)
	before=$(received)
	busybox usleep 1500000
	got=$((($(received) - before) * 800 / ($(uptime_cs) - begin)))
}
# Never more than the class; the lower bound is generous, since packets that a change lost are sent again.
is_shaped() {
	for _ in 1 2 3 4 5 6 7 8; do
		measure
		[ $got -le $((LINE * 110 / 100)) ] || fail "$1: $got bit/s"
		[ $got -lt $((LINE * 60 / 100)) ] || return 0
	done
	fail "$1: $got bit/s"
}

changed() {
	quietly "$@"
	# The burst of a tree that starts again.
	busybox usleep 1000000
	if reports; then
		measure
		echo "$*: ended, $got bit/s, $(jq -c .shape.failure /tmp/status)"
	else
		is_shaped "$*"
		runs || fail "$*: $(cat /tmp/status)"
		echo "$*: $got bit/s"
	fi
}
back() {
	[ $# = 0 ] || "$@" || true
	await 30 runs
	busybox usleep 1000000
	is_shaped "after $change"
}
in_near() { ip netns exec near "$@"; }

mkdir -p /run/fairpath/pins
mount -t bpf -o mode=700 bpf /run/fairpath/pins
near_and_far
ip -n far address add $OTHER/24 dev far0
configure control qdisc
ip netns exec near fairpath run --config /tmp/control.toml >/tmp/log 2>&1 &
daemon=$!
await 60 runs || fail "$(tail -n 5 /tmp/log)"
ip netns exec near iperf3 --client $FAR --time 580 >/dev/null 2>&1 &
bulk=$!
busybox usleep 2000000
is_shaped "at the start"

change="rules flushed"
changed in_near nft flush ruleset
back
change="a filter of others at egress"
quietly tc -n near qdisc add dev near0 clsact
changed tc -n near filter add dev near0 egress protocol ip flower action pass
back tc -n near qdisc del dev near0 clsact
change="an address"
changed ip -n near address add 10.77.0.1/24 dev near0
back ip -n near address del 10.77.0.1/24 dev near0
change="a route"
changed ip -n near route add $FAR/32 dev near0
back ip -n near route del $FAR/32 dev near0
change="the MTU"
changed ip -n near link set near0 mtu 1450
back ip -n near link set near0 mtu 1500
change="neighbours flushed"
changed ip -n near neigh flush dev near0
back
change="GSO off"
changed in_near ethtool -K near0 tso off gso off
back in_near ethtool -K near0 tso on gso on
pass "rules, filter, address, route, MTU, neighbours and GSO: the class has its rate"

change="link down and up"
quietly ip -n near link set near0 down
busybox usleep 300000
changed ip -n near link set near0 up
back
pass "link down and up: shaped again"

# The daemon detects it with its next reading, and tries again every 5 s.
change="root qdisc replaced"
quietly tc -n near qdisc replace dev near0 root pfifo
await 30 reports
why=$(jq -r .shape.failure /tmp/status)
case $why in *near0*) ;; *) fail "reported: $why" ;; esac
back tc -n near qdisc del dev near0 root
pass "root qdisc replaced: reported ($why), and $got bit/s without it"
change="root qdisc deleted"
begun=$(grep -c "shaping via" /tmp/log)
quietly tc -n near qdisc del dev near0 root
begun_again() { [ "$(grep -c "shaping via" /tmp/log)" -gt "$begun" ]; }
# A qdisc that is registered again takes most of ten seconds in a guest, and more next to other tests.
(await 90 begun_again) || fail "$(tail -n 5 /tmp/log)"
back
pass "root qdisc deleted: $got bit/s afterwards"

kind() { tc -n near -j qdisc show dev near0 | jq -r '.[] | select(.root) | .kind'; }
kind=$(kind)
for via in qdisc kernel nfqueue; do
	configure second $via
	[ $via != nfqueue ] || sed -i 's/^via.*/&\nqueue = 50/' /tmp/second.toml
	! in_near fairpath run --config /tmp/second.toml >/tmp/second 2>&1 || fail "a second process shapes via $via"
	grep -q "process $daemon" /tmp/second || fail "$via: $(cat /tmp/second)"
	[ "$(kind)" = "$kind" ] || fail "$via: near0 has $(kind), not $kind"
done
runs || fail "$(cat /tmp/status)"
pass "a second process is refused via qdisc, kernel and nfqueue"

kill $bulk
wait $bulk || true
# 40 Mbit/s to an address without a class, ten times what is left.
await 20 sh -c "! ip netns exec far busybox netstat -tn | grep -q ESTABLISHED"
ip netns exec near iperf3 --client $OTHER --udp --bitrate 40M --time 8 >/dev/null 2>&1 &
flood=$!
busybox usleep 2000000
in_near ping -q -i 0.1 -c 40 $FAR >/tmp/ping || fail "$(cat /tmp/ping)"
grep -q " 0% packet loss" /tmp/ping || fail "$(cat /tmp/ping)"
wait $flood || true
pass "a flood of this host loses no ping of a class: $(tail -n 1 /tmp/ping)"

kill $daemon
wait $daemon || fail "fairpath run ended with status $?"
