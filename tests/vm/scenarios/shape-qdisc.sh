# `fairpath run` shapes through a BPF qdisc: rates by class, status as in tc -s, reload, kill -9, the next start, tins,
# overhead of the link, custom policies, stop.
#
#     near (inside: near0, 8 Mbit/s; class "far" of 4) ----------- far
#
# kernels: newest
# needs: fairpath ip tc ping iperf3 jq
# policies: late.c last.c
# timeout: 600

. /fairpath/qdisc.sh
SOCKET=/run/fairpath/control.sock

configure() {
	cat >/tmp/fairpath.toml <<TOML
[control]
socket = "$SOCKET"
[state]
file = "/run/fairpath/state"
[metrics]
listen = "off"
[shape]
inside = "near0"
down = "8mbit"
via = "qdisc"
${2:-}
[[class]]
name = "far"
prefix = "$FAR"
down = "$1"
TOML
}

status() {
	fairpath shape status --socket $SOCKET --format json 2>/dev/null | head -n 1 >/tmp/status
}

shapes() {
	status && [ -s /tmp/status ] && jq -e '.shape.running and .shape.backend == "qdisc"' /tmp/status
}

begin() {
	ip netns exec near fairpath run --config /tmp/fairpath.toml >/tmp/log 2>&1 &
	daemon=$!
	await 60 sh -c "[ -S $SOCKET ] || ! kill -0 $daemon"
	for _ in $(seq 100); do
		! shapes >/dev/null || return 0
		busybox usleep 200000
	done
	cat /tmp/status
	fail "$(tail -n 5 /tmp/log)"
}

name() {
	tc -n near -j qdisc show dev near0 | jq -r '.[] | select(.root) | .kind'
}

# `ip netns exec` hides what is mounted behind it.
mkdir -p /run/fairpath/pins
mount -t bpf -o mode=700 bpf /run/fairpath/pins
near_and_far

configure 4mbit
begin
cat /tmp/status
fairpath shape status --socket $SOCKET
first=$(name)
case $first in fairpath*) ;; *) fail "near0 has $first" ;; esac
rate_holds 4000000 "TCP in a class of 4 Mbit/s" 2
pass "the class has $got of 4000000 bit/s"

agrees() {
	tc -n near -s -j qdisc show dev near0 >/tmp/tc
	status
	sent=$(jq -r '.shape.links[0].queue.sent_bytes' /tmp/status)
	[ "$sent" -gt 0 ] && [ "$sent" = "$(jq -r '.[] | select(.root) | .bytes' /tmp/tc)" ]
}
await 20 agrees
pass "fairpath status and tc -s agree: $sent bytes"

ip netns exec near ping -q -i 0.05 -c 100 $FAR >/tmp/ping &
ping=$!
configure 6mbit
fairpath reload --socket $SOCKET || fail "the reload was refused"
wait $ping
grep -q " 0% packet loss" /tmp/ping || fail "$(cat /tmp/ping)"
rate_holds 6000000 "TCP after a reload to 6 Mbit/s" 2
[ "$(name)" = "$first" ] || fail "the qdisc was replaced"
pass "reload to 6 Mbit/s: $got bit/s, no ping lost, the same qdisc"

kill -9 $daemon
wait $daemon || true
rate_holds 6000000 "TCP without the daemon" 2
pass "killed, it shapes on: $got of 6000000 bit/s"

ip netns exec near ping -q -i 0.05 -c 200 $FAR >/tmp/ping &
ping=$!
configure 2mbit
begin
wait $ping
grep -q " 0% packet loss" /tmp/ping || fail "$(cat /tmp/ping)"
[ "$(name)" = "$first" ] || fail "$first was not continued: near0 has $(name)"
rate_holds 2000000 "TCP after the next start" 2
await 20 agrees
pass "the next start continues without losing a ping, with 2 Mbit/s: $got"

# Without traffic the old tree stays active: each class keeps its counts, and what is set is not lost.
came() {
	fairpath shape status --socket $SOCKET --limit 10 --format json |
		jq "select(.class == \"$1\") | .down.enqueued_packets"
}
# A class without packets may be omitted.
keeps_counts() {
	for _ in $(seq 10); do
		echo "far $before, now $(came far); anna $(came anna)"
		[ "$(came far)" = "$before" ] && case "$(came anna)" in '' | 0) ;; *) false ;; esac || fail "$1: counts of other classes"
		busybox usleep 200000
	done
}
before=$(came far)
[ "${before:-0}" -gt 0 ] || fail "far has no counts"
other='[[class]]
name = "anna"
prefix = "198.18.0.0/15"'
configure 2mbit "$other"
fairpath reload --socket $SOCKET || fail "the reload was refused"
keeps_counts "after a reload"
fairpath shape set far --down 3mbit --socket $SOCKET
keeps_counts "after a rate was set"
rate_holds 3000000 "TCP in a class that was set before a packet came" 2
configure 2mbit
fairpath reload --socket $SOCKET
configure 5mbit "$other"
fairpath reload --socket $SOCKET
rate_holds 5000000 "TCP after two reloads without a packet between" 2
pass "reloads without traffic: counts by class, a rate that was set, a second reload"

ip -n near link delete near0
await 30 sh -c "fairpath shape status --socket $SOCKET | grep 'down is not shaped: interface \"near0\" is absent'"
link_near_and_far
await 30 grep 'interface "near0" is there: shaping down after' /tmp/log
rate_holds 5000000 "TCP after the interface was removed and returned" 2
pass "an interface that returns is shaped: $got of 5000000 bit/s; $(grep -o 'shaping down after.*' /tmp/log)"

# 986 bytes of IP and 40 of PPPoE over ATM are 22 cells of 53.
configure 5mbit 'diffserv = "diffserv3"
overhead = "pppoe-llcsnap"'
fairpath reload --socket $SOCKET || fail "the reload was refused"
# The tree is active from the next packet on, and the echoes of it are counted.
quietly ip netns exec near ping -q -c 2 -s 958 $FAR
count() {
	fairpath shape status --socket $SOCKET --limit 10 --format json |
		jq -r 'select(.class == "far") | .down | "\(.sent_packets) \(.sent_bytes)"'
}
is_settled() {
	was=$now
	now=$(count)
	[ -n "$now" ] && [ "$now" = "$was" ]
}
now=
await 20 is_settled
set -- $now
quietly ip netns exec near ping -q -i 0.05 -c 20 -s 958 -Q 0xb8 $FAR
has_more() { [ "$(count)" = "$(($1 + 20)) $(($2 + 20 * 22 * 53))" ]; }
await 20 has_more "$1" "$2" || fail "$1 packets of $2 bytes before, now $(count)"
pass "20 packets of voice cost 440 cells"

# Custom policies: an object of root only, loaded and replaced by a reload.
cp /fairpath/policies/late.o /fairpath/policies/last.o /run/fairpath
policy() {
	configure 5mbit "policy = \"/run/fairpath/$1\""
	fairpath reload --socket $SOCKET >/tmp/reload 2>&1
}
fastest() {
	ip netns exec near ping -c 5 -i 0.2 $FAR >/tmp/ping
	sed -n 's/.*time=\([0-9]*\).*/\1/p' /tmp/ping | sort -n | head -n 1
}
! policy late.c || fail "a C file was accepted"
grep -q "run .fairpath sched build" /tmp/reload || fail "$(cat /tmp/reload)"
chmod 666 /run/fairpath/late.o
! policy late.o || fail "an object that others can change was accepted"
grep "can be changed by other users" /tmp/reload || fail "$(cat /tmp/reload)"
chmod 600 /run/fairpath/late.o
policy late.o || fail "$(cat /tmp/reload)"
[ "$(fastest)" -ge 5 ] || fail "the policy holds no packet: $(cat /tmp/ping)"
fairpath shape status --socket $SOCKET
kill -9 $daemon
wait $daemon || true
[ "$(fastest)" -ge 5 ] || fail "the policy ended with the daemon: $(cat /tmp/ping)"
begin
[ "$(fastest)" -ge 5 ] || fail "the next daemon lost the policy: $(cat /tmp/ping)"
policy last.o || fail "$(cat /tmp/reload)"
[ "$(fastest)" -lt 5 ] || fail "the policy was not replaced: $(cat /tmp/ping)"
[ "$(name)" != noqueue ] || fail "near0 has no qdisc"
pass "custom policies are loaded, continued and replaced"

fairpath shape stop --socket $SOCKET
[ "$(name)" = noqueue ] || fail "near0 has $(name) after stop"
ls /run/fairpath/pins | grep -q qdisc && fail "a pin is left"
kill $daemon
wait $daemon || fail "fairpath run ended with status $?"
pass "stop restores the default and leaves nothing"
