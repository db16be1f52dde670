# Ten TCP flows and a ping through FQ-CoDel as a BPF qdisc, compared with the kernel's fq_codel under HTB on the same links.
#
#     near (near0: 20 Mbit/s) ----------- far
#
# kernels: newest
# needs: shape-qdisc ip tc ping iperf3 jq
# timeout: 240

. /fairpath/qdisc.sh

between() {
	[ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || fail "$4: $1 is not between $2 and $3"
}

RATE=20000000
SECONDS_EACH=12

# Ticks in which the processor was neither idle nor waiting.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }

# Ten flows and a ping; frames' bits a second in /tmp/rate, Jain's index in /tmp/jain, pings' quantiles in /tmp/p50, p95,
# processor time a Gbit, iperf3's own included, in /tmp/cpu.
load() {
	begun=$(busy)
	ip netns exec near ping -i 0.05 -c $((SECONDS_EACH * 16)) $FAR >/tmp/ping &
	ping=$!
	ip netns exec near iperf3 --client $FAR --parallel 10 --omit 3 --time $SECONDS_EACH --json >/tmp/iperf || {
		cat /tmp/iperf
		fail "iperf3 failed"
	}
	wait $ping
	jq "($(busy) - $begun) / 100 / (.end.sum_received.bytes * 8 / 1e9)" /tmp/iperf >/tmp/cpu
	jq '.end.sum_received.bits_per_second / 1448 * 1514 | floor' /tmp/iperf >/tmp/rate
	jq '[.end.streams[].receiver.bytes] | (add * add) / ((map(. * .) | add) * length)' /tmp/iperf >/tmp/jain
	sed -n 's/.*time=\([0-9.]*\) ms/\1/p' /tmp/ping | sort -n >/tmp/times
	count=$(wc -l </tmp/times)
	for q in 50 95; do
		sed -n "$(((count * q + 99) / 100))p" /tmp/times >/tmp/p$q
	done
	echo "$1: $(cat /tmp/rate) bit/s, Jain $(cat /tmp/jain), ping p50 $(cat /tmp/p50) p95 $(cat /tmp/p95) ms"
}

mount_pins
near_and_far
serve

tc -n near qdisc add dev near0 root handle 1: htb default 1
tc -n near class add dev near0 parent 1: classid 1:1 htb rate $RATE quantum 1514
tc -n near qdisc add dev near0 parent 1:1 fq_codel
load "HTB and fq_codel"
kernel=$(cut -d. -f1 /tmp/p95)
kernel_rate=$(cat /tmp/rate)
kernel_cpu=$(cat /tmp/cpu)
tc -n near qdisc del dev near0 root

ask add one near0 root $RATE 3
load "BPF qdisc"
sums_hold one
# Ten windows of a packet or two do not fill the link with either scheduler: CoDel's target is eight packets of it.
between "$(cat /tmp/rate)" $((kernel_rate * 95 / 100)) $((RATE * 105 / 100)) "ten flows, in frames, compared with fq_codel's $kernel_rate"
jq -e '. >= 0.95' /tmp/jain >/dev/null || fail "Jain's index of ten flows is $(cat /tmp/jain)"
[ "$(cut -d. -f1 /tmp/p95)" -le $((2 * kernel + 10)) ] || fail "p95 of pings is $(cat /tmp/p95) ms, compared with fq_codel's $kernel"
pass "ten flows share $(cat /tmp/rate) bit/s (Jain $(cat /tmp/jain)); p95 of pings $(cat /tmp/p95) ms, compared with HTB with fq_codel: $kernel_rate bit/s, $kernel ms"
pass "processor time a Gbit, iperf3 included, is $(awk "BEGIN { printf \"%.2f\", $(cat /tmp/cpu) / $kernel_cpu }") times that of HTB with fq_codel"
