# Requirements of the other scenarios: modules load, BTF is available, netem delays as configured. Needs no fairpath.
#
# kernels: floor newest
# needs: ip tc ping
# timeout: 60

DELAY_MS=20
PINGS=10

# Built in or a module, all of it loads.
for module in veth sch_netem sch_fq sch_fq_codel sch_cake sch_htb sch_ingress cls_flower cls_bpf cls_u32 act_mirred \
	act_police act_bpf 8021q wireguard bridge tun dummy ifb tcp_bbr nf_tables nfnetlink_queue nf_conntrack; do
	builtin=$(grep -c "/$module\.ko" "/lib/modules/$(uname -r)/modules.builtin" || true)
	[ "$builtin" -gt 0 ] || modprobe "$module" || fail "module $module does not load"
done
pass "modules load"

[ -s /sys/kernel/btf/vmlinux ] || fail "/sys/kernel/btf/vmlinux is absent"
[ -s /sys/kernel/btf/veth ] || fail "/sys/kernel/btf/veth is absent"
pass "the kernel and its modules have BTF"

ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add 192.0.2.1/24 dev near0
ip -n far address add 192.0.2.2/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
ip netns exec near ping -q -c 1 -W 5 192.0.2.2 >/dev/null || fail "no ping without netem"
pass "packets cross a veth between namespaces"

# The kernel loads a module on demand, too.
tc -n far qdisc add dev far0 root netem delay "${DELAY_MS}ms"
# rtt min/avg/max/mdev = 20.331/20.6/21.1/0.2 ms
min_us=$(ip netns exec near ping -q -c "$PINGS" -i 0.1 -W 5 192.0.2.2 |
	awk -F'[=/ ]+' '/^rtt/ { printf "%d", $6 * 1000 }')
echo "minimum of $PINGS pings: $min_us us"
[ "$min_us" -ge $((DELAY_MS * 1000)) ] || fail "minimum is $min_us us behind a netem of $DELAY_MS ms"
[ "$min_us" -le $((DELAY_MS * 2000)) ] || fail "minimum is $min_us us behind a netem of $DELAY_MS ms"
pass "netem delays a ping by $DELAY_MS ms (minimum $min_us us)"
