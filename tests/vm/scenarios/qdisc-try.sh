# try
#
# kernels: newest
# needs: fairpath qdisc_try ip tc ping iperf3
# timeout: 200
ip netns add near
ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
ip -n near address add 192.0.2.1/24 dev near0
ip -n far address add 192.0.2.2/24 dev far0
ip -n near link set near0 up
ip -n far link set far0 up
FAIRPATH_LIBBPF_LOG=1 qdisc_try fq_codel >/tmp/q 2>&1 &
await 40 grep -q registered /tmp/q
tail -40 /tmp/q
tc -n near qdisc add dev near0 root fairpath || fail "no qdisc"
tc -n near -s qdisc show dev near0
ip netns exec near ping -c 5 -i 0.2 192.0.2.2 | tail -4
ip netns exec far iperf3 --server --one-off >/tmp/server 2>&1 &
sleep 2
ip netns exec near iperf3 --client 192.0.2.2 --time 5 2>&1 | tail -5
tc -n near -s qdisc show dev near0
ip -n near link set near0 down
tc -n near -s qdisc show dev near0
tc -n near qdisc del dev near0 root
tail -2 /tmp/q | cut -c1-600
fail x
