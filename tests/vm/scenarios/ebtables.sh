# ebtables-legacy reads the canonical form of `fairpath-rules` as the rule that was written.
#
# Its own listing differs in form: addresses without leading zeros, names of ethertypes, other blanks.
# So each rule and its canonical form (of tests/rules/formats/bridge.txt) are listed, and compared.
# Absent are prefixes (their quotes are those of a file), the ICMPv6 type beyond-scope, which the tool
# refuses, -i +, which it lists, and addresses of one host in an among list, which it does not sort.
#
# kernels: floor
# needs: ebtables-legacy ip
# timeout: 120

# The guest has no such files.
cat >/etc/ethertypes <<'END'
IPv4		0800	ip ip4
ARP		0806	ether-arp
TRILL		22F3
802_1Q		8100	8021q
IPv6		86DD	ip6
MPLS		8847
END
cat >/etc/protocols <<'END'
ip		0	IP
icmp		1	ICMP
igmp		2	IGMP
ipencap		4	IP-ENCAP
tcp		6	TCP
udp		17	UDP
ipv6		41	IPv6
ipv6-icmp	58	IPv6-ICMP
END

# Tables stay in a namespace from the first listing on, and packets around the stack bypass them.
ip netns add bridge
within() {
	ip netns exec bridge "$@"
}

within ebtables-legacy -t filter -L >/tmp/listed 2>&1 ||
	skip ebtables-legacy "this kernel has no ebtable_filter: $(cat /tmp/listed)"

# Table, chain, rule as written, and in the canonical form.
check() {
	printf '%s|%s|%s|%s\n' "$@" >>/tmp/rules
}

check filter INPUT '-p 802_1Q --vlan-encap 0x3c' '-p 802_1Q --vlan-encap 003C -j CONTINUE'
check filter INPUT '-d ! BGA' '-d ! BGA -j CONTINUE'
check filter OUTPUT '-o ! eth0' '-o ! eth0 -j CONTINUE'
check filter OUTPUT '--out-interface eth0' '-o eth0 -j CONTINUE'
check filter OUTPUT '--out-if eth0' '-o eth0 -j CONTINUE'
check filter INPUT '-p IPv4 ! --ip-src 1.2.3.4' '-p IPv4 --ip-src ! 1.2.3.4 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-source ! ::1' '-p IPv6 --ip6-src ! ::1 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-destination ::1' '-p IPv6 --ip6-dst ::1 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-protocol tcp --ip6-sport ! 5 ! --ip6-dport 6:7' '-p IPv6 --ip6-proto tcp --ip6-sport ! 5 --ip6-dport ! 6:7 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-protocol tcp --ip6-source-port 5 --ip6-destination-port 6' '-p IPv6 --ip6-proto tcp --ip6-sport 5 --ip6-dport 6 -j CONTINUE'
check filter INPUT '-p ARP --arp-mac-src ! Multicast' '-p ARP --arp-mac-src ! 01:00:00:00:00:00/01:00:00:00:00:00 -j CONTINUE'
check filter INPUT '' '-j CONTINUE'
check filter INPUT '-p ipv4 -j DROP' '-p IPv4 -j DROP'
check filter INPUT '-p ip -j DROP' '-p IPv4 -j DROP'
check filter INPUT '-p ARP' '-p ARP -j CONTINUE'
check filter INPUT '-p arp' '-p ARP -j CONTINUE'
check filter INPUT '-p LENGTH' '-p Length -j CONTINUE'
check filter INPUT '-p Length' '-p Length -j CONTINUE'
check filter INPUT '-p length' '-p Length -j CONTINUE'
check filter INPUT '-p 802_1Q' '-p 802_1Q -j CONTINUE'
check filter INPUT '-p 0x0806' '-p ARP -j CONTINUE'
check filter INPUT '-p 0806' '-p ARP -j CONTINUE'
check filter INPUT '-p 806' '-p ARP -j CONTINUE'
check filter INPUT '-p 0x1234' '-p 0x1234 -j CONTINUE'
check filter INPUT '-p 0xffff' '-p 0xffff -j CONTINUE'
check filter INPUT '-p IPv6' '-p IPv6 -j CONTINUE'
check filter INPUT '-p 8021q' '-p 802_1Q -j CONTINUE'
check filter INPUT '-p 22F3' '-p TRILL -j CONTINUE'
check filter INPUT '-p 0x8847' '-p MPLS -j CONTINUE'
check filter INPUT '-p 0x1000' '-p 0x1000 -j CONTINUE'
check filter INPUT '-p ! ARP' '-p ! ARP -j CONTINUE'
check filter INPUT '! -p ARP' '-p ! ARP -j CONTINUE'
check filter INPUT '-p ! ARP -s ! 00:11:22:33:44:55' '-p ! ARP -s ! 00:11:22:33:44:55 -j CONTINUE'
check filter INPUT '! -s 0:1:2:3:4:5' '-s ! 00:01:02:03:04:05 -j CONTINUE'
check filter INPUT '-s Unicast -d Multicast' '-s Unicast -d Multicast -j CONTINUE'
check filter INPUT '-s Broadcast -d BGA' '-s Broadcast -d BGA -j CONTINUE'
check filter INPUT '-s unicast -d MULTICAST' '-s Unicast -d Multicast -j CONTINUE'
check filter INPUT '-s bga -d broadcast' '-s BGA -d Broadcast -j CONTINUE'
check filter INPUT '-s 00:00:00:00:00:00/01:00:00:00:00:00' '-s Unicast -j CONTINUE'
check filter INPUT '-s 01:00:00:00:00:00/01:00:00:00:00:00' '-s Multicast -j CONTINUE'
check filter INPUT '-s ff:ff:ff:ff:ff:ff/ff:ff:ff:ff:ff:ff' '-s Broadcast -j CONTINUE'
check filter INPUT '-s 01:80:c2:00:00:00/ff:ff:ff:ff:ff:ff' '-s BGA -j CONTINUE'
check filter INPUT '-s ff:ff:ff:ff:ff:ff' '-s Broadcast -j CONTINUE'
check filter INPUT '-s 00:11:22:33:44:55/ff:ff:ff:00:00:00' '-s 00:11:22:00:00:00/ff:ff:ff:00:00:00 -j CONTINUE'
check filter INPUT '-s 00:11:22:33:44:55/ff:00:ff:00:00:00' '-s 00:00:22:00:00:00/ff:00:ff:00:00:00 -j CONTINUE'
check nat OUTPUT '-o b' '-o b -j CONTINUE'
check filter INPUT '-p LENGTH --802_3-sap 0x42 -j DROP' '-p Length --802_3-sap 0x42 -j DROP'
check filter INPUT '-p LENGTH --802_3-sap ! 4 -j DROP' '-p Length --802_3-sap ! 0x04 -j DROP'
check filter INPUT '-p LENGTH ! --802_3-type 0x0012 -j DROP' '-p Length --802_3-type ! 0x0012 -j DROP'
check filter INPUT '-p LENGTH --802_3-type 18 -j DROP' '-p Length --802_3-type 0x0018 -j DROP'
check filter INPUT '--among-src 00:11:22:33:44:55=1.2.3.4,00:11:22:33:44:44' '--among-src 0:11:22:33:44:44,0:11:22:33:44:55=1.2.3.4 -j CONTINUE'
check filter INPUT '--among-dst 00:11:22:33:44:55,00:11:22:33:44:44' '--among-dst 0:11:22:33:44:44,0:11:22:33:44:55 -j CONTINUE'
check filter INPUT '! --among-dst 0:1:2:3:4:5=10.0.0.1 --among-src 6:6:6:6:6:6' '--among-src 6:6:6:6:6:6 --among-dst ! 0:1:2:3:4:5=10.0.0.1 -j CONTINUE'
check filter INPUT '--among-src ! 00:11:22:33:44:55=1.2.3.4 --among-dst 00:11:22:33:44:55 -j DROP' '--among-src ! 0:11:22:33:44:55=1.2.3.4 --among-dst 0:11:22:33:44:55 -j DROP'
check filter INPUT '-p IPv4 --among-src 00:11:22:33:44:55=1.2.3.4' '-p IPv4 --among-src 0:11:22:33:44:55=1.2.3.4 -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode Request' '-p ARP --arp-op Request -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode 1' '-p ARP --arp-op Request -j CONTINUE'
check filter INPUT '-p ARP --arp-op 2' '-p ARP --arp-op Reply -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode 10' '-p ARP --arp-op 10 -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode 300' '-p ARP --arp-op 300 -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode request' '-p ARP --arp-op Request -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode InARP_Request' '-p ARP --arp-op InARP_Request -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode ARP_NAK' '-p ARP --arp-op ARP_NAK -j CONTINUE'
check filter INPUT '-p ARP --arp-htype 1' '-p ARP --arp-htype 1 -j CONTINUE'
check filter INPUT '-p ARP --arp-htype Ethernet' '-p ARP --arp-htype 1 -j CONTINUE'
check filter INPUT '-p ARP --arp-htype 10' '-p ARP --arp-htype 10 -j CONTINUE'
check filter INPUT '-p ARP --arp-htype ! 6' '-p ARP --arp-htype ! 6 -j CONTINUE'
check filter INPUT '-p ARP --arp-ptype 0x800' '-p ARP --arp-ptype 0x800 -j CONTINUE'
check filter INPUT '-p ARP --arp-ptype IPv4' '-p ARP --arp-ptype 0x800 -j CONTINUE'
check filter INPUT '-p ARP --arp-ptype 800' '-p ARP --arp-ptype 0x800 -j CONTINUE'
check filter INPUT '-p ARP --arp-ptype 0x0806' '-p ARP --arp-ptype 0x806 -j CONTINUE'
check filter INPUT '-p ARP --arp-ip-src 1.2.3.4/24 --arp-ip-dst ! 5.6.7.8' '-p ARP --arp-ip-src 1.2.3.0/24 --arp-ip-dst ! 5.6.7.8 -j CONTINUE'
check filter INPUT '-p ARP --arp-ip-src 1.2.3.4/255.0.255.0' '-p ARP --arp-ip-src 1.0.3.0/255.0.255.0 -j CONTINUE'
check filter INPUT '-p ARP --arp-mac-src 0:1:2:3:4:5 --arp-mac-dst ! 0:1:2:3:4:5/ff:ff:0:0:0:0' '-p ARP --arp-mac-src 00:01:02:03:04:05 --arp-mac-dst ! 00:01:00:00:00:00/ff:ff:00:00:00:00 -j CONTINUE'
check filter INPUT '-p ARP --arp-mac-src Unicast --arp-mac-dst Broadcast' '-p ARP --arp-mac-src 00:00:00:00:00:00/01:00:00:00:00:00 --arp-mac-dst ff:ff:ff:ff:ff:ff -j CONTINUE'
check filter INPUT '-p ARP --arp-gratuitous' '-p ARP --arp-gratuitous -j CONTINUE'
check filter INPUT '-p ARP ! --arp-gratuitous' '-p ARP ! --arp-gratuitous -j CONTINUE'
check filter INPUT '-p ARP --arp-gratuitous --arp-ip-dst 1.2.3.4 --arp-opcode 1 --arp-htype 1 --arp-ptype 0x800 --arp-mac-dst 1:1:1:1:1:1 --arp-mac-src 2:2:2:2:2:2 --arp-ip-src 5.5.5.5' '-p ARP --arp-op Request --arp-htype 1 --arp-ptype 0x800 --arp-ip-src 5.5.5.5 --arp-ip-dst 1.2.3.4 --arp-mac-src 02:02:02:02:02:02 --arp-mac-dst 01:01:01:01:01:01 --arp-gratuitous -j CONTINUE'
check filter INPUT '-p IPv4 --ip-src 1.2.3.4/24 --ip-dst ! 5.6.7.8 --ip-tos 5' '-p IPv4 --ip-src 1.2.3.0/24 --ip-dst ! 5.6.7.8 --ip-tos 0x05 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-source 4.4.4.4/255.255.255.255' '-p IPv4 --ip-src 4.4.4.4 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-tos 0x10' '-p IPv4 --ip-tos 0x10 -j CONTINUE'
check filter INPUT '-p IPv4 ! --ip-tos 0xff' '-p IPv4 --ip-tos ! 0xFF -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto tcp' '-p IPv4 --ip-proto tcp -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto 6' '-p IPv4 --ip-proto tcp -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto ! udp' '-p IPv4 --ip-proto ! udp -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto 200' '-p IPv4 --ip-proto 200 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto 0' '-p IPv4 --ip-proto ip -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp' '-p IPv4 --ip-proto igmp -j CONTINUE'
check filter INPUT '-p IPv4 --ip-protocol tcp --ip-source-port 80:90 --ip-destination-port ! 5:' '-p IPv4 --ip-proto tcp --ip-sport 80:90 --ip-dport ! 5:65535 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-protocol udp --ip-sport :90' '-p IPv4 --ip-proto udp --ip-sport 0:90 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-protocol udp --ip-sport :' '-p IPv4 --ip-proto udp --ip-sport 0:65535 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-protocol udp ! --ip-sport :' '-p IPv4 --ip-proto udp --ip-sport ! 0:65535 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type echo-request' '-p IPv4 --ip-proto icmp --ip-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 1:10/0:255' '-p IPv4 --ip-proto icmp --ip-icmp-type 1:10/0:255 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 1:10' '-p IPv4 --ip-proto icmp --ip-icmp-type 1:10/0:255 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 8/0' '-p IPv4 --ip-proto icmp --ip-icmp-type 8/0 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 8' '-p IPv4 --ip-proto icmp --ip-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type ! 8/1:3' '-p IPv4 --ip-proto icmp --ip-icmp-type ! 8/1:3 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type network-unreachable' '-p IPv4 --ip-proto icmp --ip-icmp-type network-unreachable -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp --ip-igmp-type membership-query' '-p IPv4 --ip-proto igmp --ip-igmp-type membership-query -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-src ::1/64 --ip6-dst ! 2001:db8::1' '-p IPv6 --ip6-src ::/64 --ip6-dst ! 2001:db8::1 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-src 2001:db8::1/ffff:0:ffff::' '-p IPv6 --ip6-src 2001::/ffff:0:ffff:: -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-src ::/0' '-p IPv6 --ip6-src ::/0 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-tclass 0x1f' '-p IPv6 --ip6-tclass 0x1F -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-tclass ! 5' '-p IPv6 --ip6-tclass ! 0x05 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto tcp --ip6-sport 4:5 --ip6-dport 6' '-p IPv6 --ip6-proto tcp --ip6-sport 4:5 --ip6-dport 6 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto 58 --ip6-icmp-type echo-request' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type 1:10/0:255' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type 1:10/0:255 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type router-solicitation' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type router-solicitation -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type ping' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type 1/1' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type communication-prohibited -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type 1/1:3' '-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type 1/1:3 -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto icmp' '-p IPv6 --ip6-proto icmp -j CONTINUE'
check filter INPUT '-p IPv6 --ip6-proto ! 6' '-p IPv6 --ip6-proto ! tcp -j CONTINUE'
check filter INPUT '--limit 3/s' '--limit 3/sec --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 100' '--limit 100/sec --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 1000/hour --limit-burst 10' '--limit 1000/hour --limit-burst 10 -j CONTINUE'
check filter INPUT '--limit-burst 10' '--limit 3/hour --limit-burst 10 -j CONTINUE'
check filter INPUT '--limit 5/min --limit-burst 5' '--limit 5/min --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 5/day' '--limit 5/day --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 10000/s' '--limit 10000/sec --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 59/m' '--limit 59/min --limit-burst 5 -j CONTINUE'
check filter INPUT '--limit 7/min' '--limit 7/min --limit-burst 5 -j CONTINUE'
check filter INPUT '--mark 1' '--mark 0x1 -j CONTINUE'
check filter INPUT '--mark 0x10/0xff' '--mark 0x10/0xff -j CONTINUE'
check filter INPUT '--mark /0xff' '--mark /0xff -j CONTINUE'
check filter INPUT '--mark ! 5' '--mark ! 0x5 -j CONTINUE'
check filter INPUT '! --mark 5/1' '--mark ! 0x5/0x1 -j CONTINUE'
check filter INPUT '--mark 5/0' '--mark 0x5/0x0 -j CONTINUE'
check filter INPUT '--mark 16' '--mark 0x10 -j CONTINUE'
check filter INPUT '--mark 5/4294967295' '--mark 0x5 -j CONTINUE'
check filter INPUT '--pkttype-type host' '--pkttype-type host -j CONTINUE'
check filter INPUT '--pkttype-type ! broadcast' '--pkttype-type ! broadcast -j CONTINUE'
check filter INPUT '--pkttype-type multicast' '--pkttype-type multicast -j CONTINUE'
check filter INPUT '--pkttype-type otherhost' '--pkttype-type otherhost -j CONTINUE'
check filter INPUT '--pkttype-type Outgoing' '--pkttype-type outgoing -j CONTINUE'
check filter INPUT '--pkttype-type 5' '--pkttype-type loopback -j CONTINUE'
check filter INPUT '--pkttype-type fastroute' '--pkttype-type fastroute -j CONTINUE'
check filter INPUT '--pkttype-type 8' '--pkttype-type 8 -j CONTINUE'
check filter INPUT '-d BGA --stp-type config' '-d BGA --stp-type config -j CONTINUE'
check filter INPUT '-d BGA --stp-type 128' '-d BGA --stp-type tcn -j CONTINUE'
check filter INPUT '-d BGA --stp-type tcn' '-d BGA --stp-type tcn -j CONTINUE'
check filter INPUT '-d BGA --stp-flags topology-change' '-d BGA --stp-flags topology-change -j CONTINUE'
check filter INPUT '-d BGA --stp-flags topology-change-ack' '-d BGA --stp-flags topology-change-ack -j CONTINUE'
check filter INPUT '-d BGA --stp-flags 1' '-d BGA --stp-flags topology-change -j CONTINUE'
check filter INPUT '-d BGA --stp-flags 129' '-d BGA --stp-flags 129 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-prio 1:10' '-d BGA --stp-root-prio 1:10 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-prio ! 5' '-d BGA --stp-root-prio ! 5 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-addr 0:1:2:3:4:5' '-d BGA --stp-root-addr 00:01:02:03:04:05 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-addr 0:1:2:3:4:5/ff:ff:ff:0:0:0' '-d BGA --stp-root-addr 00:01:02:00:00:00/ff:ff:ff:00:00:00 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-cost 5' '-d BGA --stp-root-cost 5 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-cost 5: --stp-sender-prio :10' '-d BGA --stp-root-cost 5:4294967295 --stp-sender-prio 0:10 -j CONTINUE'
check filter INPUT '-d BGA --stp-sender-addr 1:2:3:4:5:6 --stp-port 7 --stp-msg-age 8 --stp-max-age 9:10 --stp-hello-time 11 --stp-forward-delay ! 12' '-d BGA --stp-sender-addr 01:02:03:04:05:06 --stp-port 7 --stp-msg-age 8 --stp-max-age 9:10 --stp-hello-time 11 --stp-forward-delay ! 12 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-prio :' '-d BGA --stp-root-prio 0:65535 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-prio 0:65535' '-d BGA --stp-root-prio 0:65535 -j CONTINUE'
check filter INPUT '-d BGA ! --stp-root-addr 0:1:2:3:4:5' '-d BGA --stp-root-addr ! 00:01:02:03:04:05 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-addr Unicast' '-d BGA --stp-root-addr 00:00:00:00:00:00/01:00:00:00:00:00 -j CONTINUE'
check filter INPUT '-d BGA --stp-root-addr 1:1:1:1:1:1/0:0:0:0:0:0' '-d BGA --stp-root-addr 00:00:00:00:00:00/00:00:00:00:00:00 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-id 5' '-p 802_1Q --vlan-id 5 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-id ! 0' '-p 802_1Q --vlan-id ! 0 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-prio 3' '-p 802_1Q --vlan-prio 3 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-prio ! 7' '-p 802_1Q --vlan-prio ! 7 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap ARP' '-p 802_1Q --vlan-encap 0806 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 0x800' '-p 802_1Q --vlan-encap 0800 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 0800' '-p 802_1Q --vlan-encap 0800 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap ! IPv6' '-p 802_1Q --vlan-encap ! 86DD -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 9000' '-p 802_1Q --vlan-encap 9000 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 2048' '-p 802_1Q --vlan-encap 2048 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 64' '-p 802_1Q --vlan-encap 0064 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 0x1234' '-p 802_1Q --vlan-encap 1234 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 0x5ff' '-p 802_1Q --vlan-encap 05FF -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-id 5 --vlan-prio 1' '-p 802_1Q --vlan-id 5 -j CONTINUE'
check filter INPUT '-p 802_1Q --vlan-encap 0x806 --vlan-prio 3 --vlan-id ! 5' '-p 802_1Q --vlan-id ! 5 --vlan-encap 0806 -j CONTINUE'
check filter INPUT '--log' '--log-level notice -j CONTINUE'
check filter INPUT '--log -j DROP' '--log-level notice -j DROP'
check filter INPUT '--log-level debug' '--log-level debug -j CONTINUE'
check filter INPUT '--log-ip --log' '--log-level notice --log-ip -j CONTINUE'
check filter INPUT '--log-level error' '--log-level error -j CONTINUE'
check filter INPUT '--nflog' '--nflog-group 1 -j CONTINUE'
check filter INPUT '--nflog -j DROP' '--nflog-group 1 -j DROP'
check filter INPUT '--nflog-group 3' '--nflog-group 3 -j CONTINUE'
check filter INPUT '--nflog-threshold 1 -j ACCEPT' '--nflog-group 1 -j ACCEPT'
check filter INPUT '--nflog --nflog-group 4 --log' '--nflog-group 4 --log-level notice -j CONTINUE'
check filter INPUT '-j mark --mark-set 5 --nflog-group 3 --mark-target CONTINUE' '--nflog-group 3 -j mark --mark-set 0x5 --mark-target CONTINUE'
check filter INPUT '-j mark --mark-set 5 --mark-target CONTINUE --nflog-group 3' '--nflog-group 3 -j mark --mark-set 0x5 --mark-target CONTINUE'
check filter INPUT '--log --nflog-group 4' '--log-level notice --nflog-group 4 -j CONTINUE'
check nat PREROUTING '-p ARP -j arpreply --arpreply-mac 0:1:2:3:4:5' '-p ARP -j arpreply --arpreply-mac 00:01:02:03:04:05'
check nat PREROUTING '-p ARP -j arpreply --arpreply-mac 0:1:2:3:4:5 --arpreply-target ACCEPT' '-p ARP -j arpreply --arpreply-mac 00:01:02:03:04:05 --arpreply-target ACCEPT'
check nat PREROUTING '-p ARP -j arpreply --arpreply-mac 0:1:2:3:4:5 --arpreply-target DROP' '-p ARP -j arpreply --arpreply-mac 00:01:02:03:04:05'
check nat PREROUTING '-j dnat --to-destination 0:1:2:3:4:5' '-j dnat --to-dst 00:01:02:03:04:05 --dnat-target ACCEPT'
check nat PREROUTING '-j dnat --to-dst 0:1:2:3:4:5 --dnat-target ACCEPT' '-j dnat --to-dst 00:01:02:03:04:05 --dnat-target ACCEPT'
check nat PREROUTING '-j dnat --to-dst 0:1:2:3:4:5 --dnat-target CONTINUE' '-j dnat --to-dst 00:01:02:03:04:05 --dnat-target CONTINUE'
check nat POSTROUTING '-j snat --to-source 0:1:2:3:4:5' '-j snat --to-src 00:01:02:03:04:05 --snat-target ACCEPT'
check nat POSTROUTING '-j snat --to-src 0:1:2:3:4:5 --snat-target DROP' '-j snat --to-src 00:01:02:03:04:05 --snat-target DROP'
check nat POSTROUTING '-j snat --to-src 0:1:2:3:4:5 --snat-arp' '-j snat --to-src 00:01:02:03:04:05 --snat-arp --snat-target ACCEPT'
check nat POSTROUTING '-j snat --to-src 0:1:2:3:4:5 --snat-arp --snat-target CONTINUE' '-j snat --to-src 00:01:02:03:04:05 --snat-arp --snat-target CONTINUE'
check nat POSTROUTING '-j snat --to-src 0:1:2:3:4:5 --snat-target ACCEPT' '-j snat --to-src 00:01:02:03:04:05 --snat-target ACCEPT'
check filter INPUT '-j mark --mark-set 5' '-j mark --mark-set 0x5 --mark-target ACCEPT'
check filter INPUT '-j mark --set-mark 5' '-j mark --mark-set 0x5 --mark-target ACCEPT'
check filter INPUT '-j mark --mark-or 5' '-j mark --mark-or 0x5 --mark-target ACCEPT'
check filter INPUT '-j mark --mark-and 5 --mark-target DROP' '-j mark --mark-and 0x5 --mark-target DROP'
check filter INPUT '-j mark --mark-set 5 --mark-target ACCEPT' '-j mark --mark-set 0x5 --mark-target ACCEPT'
check filter INPUT '--mark 4 -j mark --mark-set 5' '--mark 0x4 -j mark --mark-set 0x5 --mark-target ACCEPT'
check nat PREROUTING '-j redirect --redirect-target ACCEPT' '-j redirect'
check filter INPUT '-sUnicast' '-s Unicast -j CONTINUE'
check filter INPUT '--source Unicast --destination Multicast' '-s Unicast -d Multicast -j CONTINUE'
check filter INPUT '--src Unicast --dst Multicast' '-s Unicast -d Multicast -j CONTINUE'
check filter INPUT '--proto ARP' '-p ARP -j CONTINUE'
check filter INPUT '--protocol ARP' '-p ARP -j CONTINUE'
check filter INPUT '--in-if eth0' '-i eth0 -j CONTINUE'
check filter INPUT '--in-interface eth0 --jump DROP' '-i eth0 -j DROP'
check filter INPUT '--source=Unicast' '-s Unicast -j CONTINUE'
check filter INPUT '-p IPv4 --ip-src 1.2.3.4 --mark 3 --ip-dst 1.2.3.5' '-p IPv4 --ip-src 1.2.3.4 --ip-dst 1.2.3.5 --mark 0x3 -j CONTINUE'
check filter INPUT '-i abcdefghijklmno' '-i abcdefghijklmno -j CONTINUE'
check filter INPUT '-p LENGTH --802_3-sap 0xaa -j DROP' '-p Length --802_3-sap 0xaa -j DROP'
check filter INPUT '-p LENGTH --802_3-type 0xabcd -j DROP' '-p Length --802_3-type 0xabcd -j DROP'
check filter INPUT '-p IPv4 --mark 3 --ip-src 1.2.3.4' '-p IPv4 --mark 0x3 --ip-src 1.2.3.4 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-src 1.2.3.4 -j mark --mark-set 3' '-p IPv4 --ip-src 1.2.3.4 -j mark --mark-set 0x3 --mark-target ACCEPT'
check filter INPUT '-p 802_1Q --vlan-id 0 --vlan-prio 1' '-p 802_1Q --vlan-id 0 --vlan-prio 1 -j CONTINUE'
check filter INPUT '-p ARP --arp-ptype ! ARP' '-p ARP --arp-ptype ! 0x806 -j CONTINUE'
check filter INPUT '-p ARP --arp-opcode ! Request' '-p ARP --arp-op ! Request -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto 41' '-p IPv4 --ip-proto ipv6 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto 4' '-p IPv4 --ip-proto ipencap -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto TCP' '-p IPv4 --ip-proto tcp -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type Echo-Request' '-p IPv4 --ip-proto icmp --ip-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type echo-req' '-p IPv4 --ip-proto icmp --ip-icmp-type echo-request -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 3/0:255' '-p IPv4 --ip-proto icmp --ip-icmp-type destination-unreachable -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 3:3/1' '-p IPv4 --ip-proto icmp --ip-icmp-type host-unreachable -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto icmp --ip-icmp-type 0:255' '-p IPv4 --ip-proto icmp --ip-icmp-type 0:255/0:255 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v1' '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v1 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v2' '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v2 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp --ip-igmp-type leave-group' '-p IPv4 --ip-proto igmp --ip-igmp-type leave-group -j CONTINUE'
check filter INPUT '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v3' '-p IPv4 --ip-proto igmp --ip-igmp-type membership-report-v3 -j CONTINUE'
check filter INPUT '--log-level 7' '--log-level debug -j CONTINUE'
check filter INPUT '--log-level 0' '--log-level emerg -j CONTINUE'
check filter INPUT '--log-level emerg' '--log-level emerg -j CONTINUE'
check filter INPUT '--log-level 1' '--log-level alert -j CONTINUE'
check filter INPUT '--log-level 2' '--log-level crit -j CONTINUE'
check nat OUTPUT '-j dnat --to-dst 1:2:3:4:5:6' '-j dnat --to-dst 01:02:03:04:05:06 --dnat-target ACCEPT'
check filter INPUT '--among-src 1:2:3:4:5:6=10.0.0.1,0:0:0:0:0:0' '--among-src 0:0:0:0:0:0,1:2:3:4:5:6=10.0.0.1 -j CONTINUE'
check filter INPUT '-p IPv4 --ip-sport 5 --ip-proto tcp' '-p IPv4 --ip-proto tcp --ip-sport 5 -j CONTINUE'

# Adds both forms of each rule, and then lists each chain once: every start of a program takes long here.
cat >/tmp/compare <<'END'
while IFS='|' read -r table chain written canonical; do
	for rule in "$written" "$canonical"; do
		# shellcheck disable=SC2086 # words of the rule
		error=$(ebtables-legacy -t "$table" -A "$chain" $rule 2>&1) ||
			echo "$table $chain $rule: refused: $error"
	done
done </tmp/rules >/tmp/refused
[ ! -s /tmp/refused ] || {
	cat /tmp/refused
	exit
}
cut -d '|' -f 1,2 /tmp/rules | sort -u | while IFS='|' read -r table chain; do
	ebtables-legacy -t "$table" -L "$chain" | sed 1,3d >/tmp/chain
	grep "^$table|$chain|" /tmp/rules | {
		while IFS='|' read -r _ _ written canonical; do
			read -r first <&3
			read -r second <&3
			[ -n "$first" ] && [ "$first" = "$second" ] ||
				echo "$table $chain $written: $first; $canonical: $second"
		done
		! read -r more <&3 || echo "$table $chain has more rules: $more"
	} 3</tmp/chain
done
END
within sh /tmp/compare >/tmp/failed 2>&1 || fail "compare: $(cat /tmp/failed)"

[ ! -s /tmp/failed ] || fail "$(cat /tmp/failed)"
pass "the canonical form is the same rule"
