# `fairpath impair` and the kernel's netem cause the same loss and the same delay, by every back end.
#
#     near ---- lan [this host: fairpath impair, or netem] wan ---- far
#
# kernels: floor newest
# needs: fairpath ip tc ping jq nft
# timeout: 420

NEAR=192.0.2.2
FAR=198.51.100.2
# Of pings, each way alike: an emulated processor sends them slowly.
COUNT=300
LOSS_PERCENT=20
# 99.9999 % of 300 binomial draws with 20 % are within these: netem has no seed.
LEAST_LOST=24
MOST_LOST=101
DELAY_MS=50
# An emulated processor is late by milliseconds, each way.
MOST_MS=80

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

impair=
begin() {
	# The last run's must not answer for this one before it has begun.
	: >/tmp/out
	fairpath impair lan --peer wan --no-self-test --seed 6 --format json --write /tmp/json "$@" >/tmp/out 2>&1 &
	impair=$!
	await 60 grep -q "^ready: \|^fairpath:" /tmp/out
	grep "^ready: " /tmp/out || fail "$*: $(tail -3 /tmp/out)"
	# The stack resolves a route's next hop, XDP does not.
	ip netns exec far ping -c 1 -W 1 $NEAR >/dev/null || true # the impairment may drop its answer
}

end() {
	kill -INT $impair
	wait $impair || true
	tail -1 /tmp/json | jq -c '.directions[] | {name, enqueued_packets, lost_packets, lateness_ns}'
	# On an emulated processor packets may leave late; this is the only permitted reason.
	tail -1 /tmp/json | jq -e '.final and (.reasons | all(contains("mean lateness")))' >/dev/null || fail "$1: not valid: $(tail -1 /tmp/json)"
	nft list tables | grep fairpath && fail "$1: rules were left"
	ip link show lan | grep -q xdp && fail "$1: a program was left"
	true
}

# How many of COUNT pings are not answered.
lost() {
	ip netns exec near ping -q -c $COUNT -i 0.02 -W 5 $FAR >/tmp/ping
	received=$(sed -n 's/.* \([0-9]*\) received.*/\1/p' /tmp/ping)
	echo $((COUNT - received))
}

loses() {
	n=$(lost)
	[ "$n" -ge $LEAST_LOST ] && [ "$n" -le $MOST_LOST ] || fail "$1: $n of $COUNT lost, not $LEAST_LOST to $MOST_LOST"
	pass "$1: $n of $COUNT lost"
}

# The median round trip in whole ms.
median() {
	ip netns exec near ping -c 21 -i 0.1 -W 2 $FAR >/tmp/ping
	sed -n 's/.*time=\([0-9]*\).*/\1/p' /tmp/ping | sort -n | sed -n 11p
}

delays() {
	ms=$(median)
	[ -n "$ms" ] && [ "$ms" -ge $DELAY_MS ] && [ "$ms" -le $MOST_MS ] || fail "$1: the median is $ms ms, not $DELAY_MS to $MOST_MS"
	pass "$1: the median is $ms ms"
}

tc qdisc add dev wan root netem loss $LOSS_PERCENT%
loses netem
tc qdisc replace dev wan root netem delay ${DELAY_MS}ms
delays netem
tc qdisc delete dev wan root

for via in xdp afxdp nfqueue; do
	begin --via $via --to-peer "loss $LOSS_PERCENT%"
	loses $via
	end $via
done
for via in afxdp nfqueue; do
	begin --via $via --to-peer "delay ${DELAY_MS}ms"
	delays $via
	end $via
done
