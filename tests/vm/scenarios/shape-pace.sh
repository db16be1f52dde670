# `fairpath shape via police` where the interface has fq: packets wait for their time instead of being dropped.
#
#     near ---- lan (fq) [this host: fairpath run] wan ---- far
#
# kernels: floor newest
# needs: fairpath ip tc ping iperf3 jq tcpdump
# timeout: 400

BPS=4000000
NEAR=192.0.2.2
FAR=198.51.100.2
# UDP of iperf3 with 1,400 bytes, and its time at the rate, microseconds.
FRAME=1442
GAP_US=$((FRAME * 8 * 1000000 / BPS))
PAYLOAD=1400

for side in near far; do ip netns add $side; done
ip link add lan numtxqueues 2 numrxqueues 2 type veth peer name near0 numtxqueues 2 numrxqueues 2 netns near
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
	up = "100mbit"
	via = "police"
	[[class]]
	name = "site"
	down = "6mbit"
	[[class]]
	name = "near"
	parent = "site"
	prefix = "$NEAR"
	down = "4mbit"
END
daemon=
begin() {
	: >/tmp/daemon
	fairpath run --config /run/fp/f.toml >/tmp/daemon 2>&1 &
	daemon=$!
	await 60 grep -q "ready after\|^fairpath:" /tmp/daemon
	grep "shaping via" /tmp/daemon || fail "$(tail -3 /tmp/daemon)"
}

status() {
	fairpath shape status --socket /run/fp/control.sock --format json >/tmp/status
}

about() {
	status
	jq -e -s --arg text "$1" '.[0].shape.description | contains($text)' /tmp/status >/dev/null
}

# A count of the class's queue.
count() {
	status
	jq "select(.class == \"near\") | .down.$1 // 0" /tmp/status
}

dropped() {
	count 'dropped_packets_by_reason.queue_full'
}

udp=
send() {
	ip netns exec far iperf3 --client $NEAR --udp --bitrate 6M --length $PAYLOAD --time "$1" --json >/tmp/client 2>&1 &
	udp=$!
	await 10 sh -c "ip netns exec near tcpdump -Z root -i near0 -n -c 100 udp port 5201"
}

# Captures packets above 1,000 bytes for $1 seconds: their rate is in $bps, the median of those of each 43 kB in $usual,
# and the median gap in $median, microseconds. A host that runs more than the guest interrupts it for longer than packets
# wait, which leaves less of $bps, and brings packets together. Segments of a GSO packet have 66 bytes of headers each.
capture() {
	ip netns exec near tcpdump -Z root -i near0 -n -tt -e "dst port 5201 and greater 1000" >/tmp/packets 2>/tmp/tcpdump &
	tcpdump=$!
	await 10 grep -q "^[0-9]" /tmp/packets
	offered=$(cat /sys/class/net/wan/statistics/rx_packets)
	sleep "$1"
	offered=$((($(cat /sys/class/net/wan/statistics/rx_packets) - offered) * FRAME * 8 / $1))
	kill -INT $tcpdump
	wait $tcpdump || true
	awk 'match($0, / length [0-9]+: /) {
		bytes = substr($0, RSTART + 8) + 0
		more = int((bytes - 67) / 1448)
		printf "%.0f %d\n", $1 * 1000000, bytes + 66 * more
	}' /tmp/packets >/tmp/times
	frames=$(wc -l </tmp/times)
	[ "$frames" -ge 100 ] || fail "$frames packets were captured: $(tail -3 /tmp/packets /tmp/tcpdump)"
	bps=$(awk 'NR == 1 { first = $1; next } { sum += $2; last = $1 } END { printf "%.0f", sum * 8000000 / (last - first) }' /tmp/times)
	awk 'NR == 1 { first = $1; next } { sum += $2 } sum > 43000 {
		printf "%.0f\n", sum * 8000000 / ($1 - first)
		first = $1
		sum = 0
	}' /tmp/times | sort -n >/tmp/rates
	usual=$(sed -n "$((($(wc -l </tmp/rates) + 1) / 2))p" /tmp/rates)
	awk 'NR > 1 { print $1 - before } { before = $1 }' /tmp/times | sort -n >/tmp/gaps
	median=$(sed -n "$((frames / 2))p" /tmp/gaps)
	echo "$bps of $offered bit/s, usually $usual, gaps of $(sed -n "$((frames / 10))p" /tmp/gaps) $median $(sed -n "$((frames * 9 / 10))p" /tmp/gaps) us"
}

# No capture has more than the rate, within 1 %. Without a queue, a sender that the guest interrupts gets less.
limits_rate() {
	capture 5
	[ "$bps" -le $((BPS + BPS / 100)) ] || fail "$1: $bps bit/s in a class of $BPS"
}

# Packets wait: the rate is usually held within 2 %. A guest without time is repeated.
holds_rate() {
	for _ in 1 2 3 4 5; do
		limits_rate "$1"
		[ "$usual" -lt $((BPS - BPS / 50)) ] || break
		repeated "$1: $usual bit/s"
	done
	[ "$usual" -ge $((BPS - BPS / 50)) ] && [ "$usual" -le $((BPS + BPS / 50)) ] || fail "$1: $usual bit/s in a class of $BPS"
}

# The same, and a packet leaves each $GAP_US.
paces() {
	holds_rate "$1"
	[ "$median" -ge $((GAP_US * 9 / 10)) ] && [ "$median" -le $((GAP_US * 11 / 10)) ] ||
		fail "$1: the median gap is $median us, not $GAP_US"
}

quietly tc qdisc replace dev lan root fq
begin
about "lan by 3 limits without queues, delaying packets by fq" || fail "not paced: $(cat /tmp/status)"
about "flow_limit 100" || fail "short flows are not reported: $(cat /tmp/status)"
about "wan by 1 limit without queues, dropping packets: its qdisc is noqueue, not fq" || fail "$(cat /tmp/status)"
quietly tc qdisc replace dev lan root fq limit 2000 flow_limit 2000
await 10 about "lan by 3 limits without queues, delaying packets by fq; wan"
pass "status reports which interface delays, and why the other one drops"

# Sends $1 packets at once; $got is the number of answers.
burst() {
	ip netns exec far ping -q -l "$1" -c "$1" -i 1 -W 1 -s 1400 $NEAR >/tmp/ping || true
	got=$(sed -n 's|.* \([0-9]*\) received.*|\1|p' /tmp/ping)
}

lost() {
	[ "$(dropped)" = $((before + 40 - got)) ]
}

# Ten packets at once take 26 ms at the rate: none is lost, and the last one waits for those that are sent faster.
before=$(dropped)
burst 10
[ "$got" = 10 ] || fail "a burst lost packets: $(cat /tmp/ping)"
longest=$(sed -n 's|^rtt .* = [^/]*/[^/]*/\([0-9]*\)\..*|\1|p' /tmp/ping)
[ "$longest" -ge 8 ] || fail "a burst was not delayed: $(cat /tmp/ping)"
# Forty take 113 ms, and 50 may wait: the others are dropped, and counted.
for _ in 1 2 3 4 5; do
	burst 40
	[ "$got" -ge 15 ] || fail "a long burst: $(cat /tmp/ping)"
	await 10 lost
	[ "$got" -gt 25 ] || break
	repeated "a burst of 40 packets was not sent at once, and $got passed"
	before=$(dropped)
done
[ "$got" -le 25 ] || fail "a long burst: $(cat /tmp/ping)"
pass "a burst of 10 waits up to $longest ms; of 40 packets at once, $got pass, and the others are counted"

send 3600
paces "UDP"
pass "UDP above the rate is sent at $usual bit/s, one packet each $median us"

quietly tc qdisc replace dev lan root pfifo limit 1000
limits_rate "another qdisc"
await 10 about "lan by 3 limits without queues, dropping packets: its qdisc is pfifo, not fq"
grep -q "continues by dropping packets: its qdisc is pfifo" /tmp/daemon || fail "not logged: $(tail -3 /tmp/daemon)"
jq -e -s '.[0].shape.counters.police_down_unpaced >= 1' /tmp/status >/dev/null || fail "not counted: $(cat /tmp/status)"
pass "with another qdisc, packets are dropped: $bps bit/s"

quietly tc qdisc replace dev lan root fq limit 2000 flow_limit 2000 horizon 1s
await 10 about "dropping packets: the horizon of its qdisc fq is 1s, not above 5s"
quietly tc qdisc replace dev lan root fq limit 2000 flow_limit 2000 horizon 10s
await 10 about "lan by 3 limits without queues, delaying packets by fq; wan"
paces "fq again"
pass "with fq again, packets wait again: $usual bit/s, a packet each $median us"

# fq in each queue of mq, then in one only.
quietly tc qdisc replace dev lan root handle 1: mq
for queue in 1 2; do quietly tc qdisc replace dev lan parent 1:$queue fq limit 2000 flow_limit 2000; done
await 10 about "lan by 3 limits without queues, delaying packets by fq; wan"
paces "mq"
quietly tc qdisc replace dev lan parent 1:1 pfifo limit 1000
quietly tc qdisc replace dev lan parent 1:2 pfifo limit 1000
await 10 about "dropping packets: its qdisc is pfifo, not fq"
limits_rate "mq without fq"
pass "fq below mq delays packets, another qdisc there ends it"

# Without the process: the program itself finds that fq is absent.
quietly tc qdisc del dev lan root
quietly tc qdisc replace dev lan root fq limit 2000 flow_limit 2000
await 10 about "lan by 3 limits without queues, delaying packets by fq; wan"
kill -9 $daemon
wait $daemon || true
paces "killed"
quietly tc qdisc replace dev lan root pfifo limit 1000
limits_rate "killed, and another qdisc"
quietly tc qdisc replace dev lan root fq limit 2000 flow_limit 2000
begin
paces "continued"
pass "killed, the rate is held with and without fq: $usual bit/s"
kill $udp
wait $udp || true

ip netns exec far iperf3 --client $NEAR --time 3600 >/tmp/client 2>&1 &
tcp=$!
holds_rate "TCP"
kill $tcp
wait $tcp || true
sleep 3
status
jq -e 'select(.class == "near") | .down | .enqueued_packets == .sent_packets + .dropped_packets' /tmp/status >/dev/null ||
	fail "packets are missing: $(cat /tmp/status)"
pass "TCP gets $usual bit/s of $BPS"

kill $daemon
wait $daemon || fail "$(tail -3 /tmp/daemon)"
send 4
capture 2
[ "$bps" -gt $((BPS * 5 / 4)) ] || fail "stopped, and $bps bit/s pass"
tc qdisc show dev lan | grep -q "qdisc fq " || fail "fq was removed: $(tc qdisc show dev lan)"
pass "stopped, nothing limits: $bps bit/s"
