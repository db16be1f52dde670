# `fairpath shape` on these kernels: the port that is chosen, and every other one that there is.
#
#     near ---- lan [this host: fairpath run] wan ---- far
#
# kernels: floor newest
# needs: fairpath ip tc ping iperf3 jq nft
# timeout: 420

BPS=4000000
NEAR=192.0.2.2
FAR=198.51.100.2

for side in near far; do ip netns add $side; done
ip link add lan type veth peer name near0 netns near
ip link add wan type veth peer name far0 netns far
ip address add 192.0.2.1/24 dev lan
ip address add 198.51.100.1/24 dev wan
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
for link in lan wan; do ip link set $link up; done
ip -n near link set near0 up
ip -n far link set far0 up
ip -n near route add default via 192.0.2.1
ip -n far route add default via 198.51.100.1
echo 1 >/proc/sys/net/ipv4/ip_forward
await 10 ip netns exec near ping -c 1 -W 2 $FAR
ip netns exec near iperf3 --server >/tmp/server 2>&1 &
await 10 sh -c "ip netns exec near busybox netstat -ltn | grep -q :5201"

mkdir -p /run/fp
daemon=
begin() {
	cat >/run/fp/f.toml <<-END
		[control]
		socket = "/run/fp/control.sock"
		[state]
		file = "off"
		[metrics]
		listen = "off"
		[monitor]
		interfaces = ["lan", "wan"]
		flows = 4096
		[shape]
		inside = "lan"
		outside = "wan"
		down = "100mbit"
		via = "$1"
		[[class]]
		name = "near"
		prefix = "$NEAR"
		down = "4mbit"
	END
	# The last run's must not answer for this one before it has begun.
	: >/tmp/daemon
	fairpath run --config /run/fp/f.toml >/tmp/daemon 2>&1 &
	daemon=$!
	await 60 grep -q "ready after\|^fairpath:" /tmp/daemon
	grep "shaping via" /tmp/daemon || fail "$1: $(tail -3 /tmp/daemon)"
}

status() {
	fairpath shape status --socket /run/fp/control.sock --format json >/tmp/status
}

# The class holds its rate, and everything that came is sent, held or dropped for a reason.
holds_rate() {
	ip netns exec far iperf3 --client $NEAR --time 6 --json >/tmp/client 2>&1 || {
		cat /tmp/client /tmp/daemon
		fail "$1: iperf3 failed"
	}
	bps=$(jq '.end.sum_received.bits_per_second | floor' /tmp/client)
	[ "$bps" -ge $((BPS / 4)) ] && [ "$bps" -le $BPS ] || fail "$1: $bps bit/s in a class of $BPS"
	sleep 3
	status
	jq -c 'select(.class == "near") | .down' /tmp/status
	jq -e 'select(.class == "near") | .down
		| .enqueued_packets > 500 and .enqueued_packets == .sent_packets + .dropped_packets + .backlog_packets' \
		/tmp/status >/dev/null || fail "$1: the account does not add up"
}

goes_on() {
	ip netns exec near ping -c 5 -i 0.2 -W 2 $FAR >/tmp/ping || fail "$1: no packet passes"
}

end() {
	kill $daemon
	wait $daemon || fail "$1: $(tail -3 /tmp/daemon)"
	for link in lan wan; do
		tc qdisc show dev $link | grep -q "htb\|fairpath" && fail "$1: $(tc qdisc show dev $link)"
	done
	nft list tables | grep -q fairpath && fail "$1: $(nft list tables)"
	goes_on "$1, ended"
}

chosen=qdisc
[ -e /sys/kernel/btf/vmlinux ] && case $(uname -r) in 6.12*) chosen=kernel ;; esac
begin auto
grep -q "shaping via $chosen" /tmp/daemon || fail "$chosen was expected: $(grep shaping /tmp/daemon)"
holds_rate "$chosen"
pass "auto is $chosen here: $bps bit/s in a class of $BPS"

# Killed: the kernel continues, and the next process adopts the state.
tc -s qdisc show dev lan >/tmp/before
kill -9 $daemon
goes_on "$chosen, killed"
grep -q "^qdisc $(head -1 /tmp/before | cut -d' ' -f2) " /tmp/before || fail "no root qdisc"
root=$(head -1 /tmp/before | cut -d' ' -f2)
tc qdisc show dev lan | grep -q "qdisc $root" || fail "killed, and $root is gone: $(tc qdisc show dev lan)"
begin auto
tc qdisc show dev lan | grep -q "qdisc $root" || fail "not continued: $(tc qdisc show dev lan)"
holds_rate "$chosen, continued"
pass "killed and continued, $chosen shapes on: $bps bit/s"
end "$chosen"

for via in nfqueue afxdp kernel; do
	[ $via = $chosen ] && continue
	begin $via
	holds_rate $via
	end $via
	pass "via $via: $bps bit/s in a class of $BPS"
done
