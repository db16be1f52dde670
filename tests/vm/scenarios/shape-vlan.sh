# `fairpath shape via afxdp` on one interface: a router between two of its VLANs.
#
#     near ---- VLAN 10 ---.
#                        switch ---- trunk [this host: fairpath run]
#     far ----- VLAN 20 ---'
#
# kernels: floor newest
# needs: fairpath ip bridge ethtool ping iperf3 jq
# timeout: 240

BPS=4000000
NEAR=192.0.2.2
FAR=198.51.100.2

for ns in near far switch; do ip netns add $ns; done
ip link add trunk type veth peer name t0 netns switch
ip -n switch link add n0 type veth peer name near0 netns near
ip -n switch link add f0 type veth peer name far0 netns far
ip -n switch link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0
for port in t0 n0 f0; do
	ip -n switch link set $port master br0
	ip -n switch link set $port up
done
ip -n switch link set br0 up
bridge -n switch vlan add dev n0 vid 10 pvid untagged
bridge -n switch vlan add dev f0 vid 20 pvid untagged
bridge -n switch vlan add dev t0 vid 10
bridge -n switch vlan add dev t0 vid 20
# Tags in the frame, as a wire would have them.
ip netns exec switch ethtool -K t0 txvlan off

ip link set trunk up
ip link add link trunk name trunk.10 type vlan id 10
ip link add link trunk name trunk.20 type vlan id 20
ip address add 192.0.2.1/24 dev trunk.10
ip address add 198.51.100.1/24 dev trunk.20
ip link set trunk.10 up
ip link set trunk.20 up
ip -n near address add $NEAR/24 dev near0
ip -n far address add $FAR/24 dev far0
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
	interfaces = ["trunk"]
	flows = 4096
	[shape]
	inside = "trunk"
	outside = "trunk"
	inside_vlan = 10
	outside_vlan = 20
	mode = "router"
	down = "100mbit"
	via = "afxdp"
	[[class]]
	name = "near"
	prefix = "$NEAR"
	down = "4mbit"
END
fairpath run --config /run/fp/f.toml >/tmp/daemon 2>&1 &
await 60 grep -q "ready after\|^fairpath:" /tmp/daemon
grep "shaping via afxdp" /tmp/daemon || fail "$(tail -3 /tmp/daemon)"

ip netns exec far ping -c 5 -i 0.2 $NEAR >/tmp/ping || fail "no answers: $(tail -3 /tmp/ping)"
grep -q "ttl=63" /tmp/ping || fail "one hop: $(head -2 /tmp/ping)"
pass "pings are routed between the VLANs, one hop"

ip netns exec far iperf3 --client $NEAR --time 6 --json >/tmp/client 2>&1 || {
	cat /tmp/client /tmp/daemon
	fail "iperf3 failed"
}
bps=$(jq '.end.sum_received.bits_per_second | floor' /tmp/client)
[ "$bps" -ge $((BPS / 4)) ] && [ "$bps" -le $BPS ] || fail "$bps bit/s in a class of $BPS"
sleep 3
fairpath shape status --socket /run/fp/control.sock --format json >/tmp/status
jq -e 'select(.class == "near") | .down
	| .enqueued_packets > 500 and .enqueued_packets == .sent_packets + .dropped_packets + .backlog_packets' \
	/tmp/status >/dev/null || fail "the class's packets: $(cat /tmp/status)"
pass "$bps bit/s in a class of $BPS, every packet accounted for"
