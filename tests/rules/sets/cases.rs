//! Inputs of `ipset restore`.
//!
//! Absent are the lines that ipset accepts and the reader refuses deliberately: names of hosts and
//! services, short forms of commands and addresses, `list`, `save` and `test`, and blocks such as
//! 0.0.0.1/30 in hash:ip: ipset does not restore what it saves of them.
//! Lines with `-exist` follow another command, since ipset sends consecutive lines of a set as one.

/// Accepted by both, which then have the same lines.
pub const ACCEPTED: &[&str] = &[
    "create a hash:ip
",
    "create a hash:ip family inet6 hashsize 1000 maxelem 0x10 bucketsize 5 initval 12
",
    "create a hash:ip netmask 32 hashsize 3 bucketsize 1
create b hash:ip netmask 16 hashsize 0 bucketsize 40 maxelem 0
create d hash:ip family inet6 netmask 128
create e hash:ip netmask 64 family ipv6
",
    "create a hash:ip counters comment skbinfo timeout 600
create b hash:net skbinfo comment counters timeout 0
create c hash:ip,port netmask 24
create l list:set size 1
create l2 list:set skbinfo timeout 9 counters comment size 100
",
    "create a iphash -4
create b nethash -6
create c netporthash
create d ipporthash
create e setlist
",
    "# comment
   # comment

	create a hash:ip	maxelem   7 
COMMIT
",
    "create a hash:ip
add a 10.0.0.1
add a 10.0.0.8/29
add a 10.0.1.9-10.0.1.1
add a 255.255.255.250-255.255.255.255
add a 10.0.2.1/32
",
    "create a hash:ip netmask 24
add a 10.0.0.77-10.0.3.1
add a 10.1.0.77/30
add a 10.2.0.0/22
",
    "create a hash:ip family inet6
add a 2001:DB8:0:0::1
add a ::ffff:1.2.3.4
add a ::1.2.3.4
add a ::1
add a ::0.1.0.0
add a 2001:db8::2/128
add a 2001:0:0:1:0:0:0:1
add a 2001:db8:0:1:1:1:1:1
",
    "create a hash:ip family inet6 netmask 64
add a 2001:db8::1
add a 2001:db8:0:1::1
",
    "create a hash:net
add a 10.0.0.1-10.0.0.9
add a 10.1.0.9-10.1.0.1
add a 0.0.0.0/1
add a 0.0.0.0
add a 10.2.3.4/0x8
add a 192.0.2.0/24 nomatch
add a 128.0.0.0-255.255.255.255
",
    "create a hash:net family inet6
add a 2001:db8::1
add a 2001:db8::2/128
add a 2001:db8::2/127 nomatch
add a 8000::/1
",
    "create a hash:ip,port
add a 10.0.0.1,80
add a 10.0.0.1,tcp:81-83
add a 10.0.0.1,TCP:7
add a 10.0.0.2-10.0.0.4,udp:9-8
add a 10.0.1.0/30,sctp:0x10
add a 10.0.0.1,udplite:0
add a 10.0.0.1,icmp:3/0
add a 10.0.0.1,icmp:200/7
add a 10.0.0.1,ICMP:PING
add a 10.0.0.1,icmp:TOS-net
add a 10.0.0.1,47:0
add a 10.0.0.1,IPSEC-ESP:0
add a 10.0.0.1,200:0
add a 10.0.0.1,6:99
add a 255.255.255.254-255.255.255.255,65534-65535
",
    "create a hash:ip,port family inet6
add a ::1/128,80-82
add a ::2,icmpv6:0/0
add a ::2,ipv6-icmp:ping
add a ::2,icmpv6:neigbour-adv
add a ::3,icmpv6:redirect
add a ::3,igmp:0
",
    "create a hash:ip,port netmask 24
add a 10.0.0.9,80
",
    "create a hash:net,port
add a 10.0.0.1/8,80-82
add a 10.0.0.1-10.0.0.6,gre:0
add a 0.0.0.0,1
add a 10.0.0.0-10.255.255.255,udp:1-2
add a 10.0.0.0/9,tcp:80 nomatch
",
    "create a hash:net,port family inet6
add a 2001:db8::/32,icmpv6:ping
add a 2001:db8::1/32,icmpv6:echo-reply
add a 2001:db8::1/33,ipv6-icmp:7/8
add a ::1.2.3.4,udp:7
add a ::ffff:1.2.3.4,udplite:7-8
",
    r#"create a hash:net,port counters comment skbinfo timeout 600
add a 10.0.0.0/8,80 nomatch comment x packets 1 bytes 2 skbqueue 7
add a 10.0.0.1,tcp:80-82 comment "a  b" packets 3 bytes 4 skbmark 0x1/0xff skbprio 1:2 skbqueue 3
add a 10.0.0.2,81 timeout 0
add a 10.0.0.3,22 skbmark 0x0 timeout 2147483
add a 10.0.0.4,22 skbmark 0xf skbprio f:ffff packets 0x10 bytes 010
add a 10.0.0.5,22 skbmark 0x0/0x0 skbprio 0:0 skbqueue 0
add a 10.0.0.6,22 skbmark 0x5/0xffffffff packets 18446744073709551614
add a 10.0.0.7,22 comment a"b c"d bytes 9
"#,
    "create a hash:ip timeout 0
add a 10.0.0.1
add a 10.0.0.2 timeout 900
",
    r##"create a hash:ip comment
add a 10.0.0.1 comment x
create b hash:ip
add a 10.0.0.1 -exist
create c hash:ip
-exist add a 10.0.0.2 comment y
create d hash:ip
add -! a 10.0.0.1 comment "# z \"
"##,
    "create a hash:net
add a 10.0.0.0/8 nomatch
create b hash:ip
add a 10.0.0.0/8 -exist
create b hash:ip -exist
create b hash:ip hashsize 4096 -exist
",
    "create a hash:ip
add a 10.0.0.1-10.0.0.4
del a 10.0.0.2-10.0.0.3
create b hash:ip
del a 10.0.0.9 -exist
destroy c -exist
",
    "create a hash:net
add a 10.0.0.0/8 nomatch
del a 10.1.1.1/8
create b hash:ip,port
add b 10.0.0.1-10.0.0.2,udp:5-6
del b 10.0.0.1,udp:5
",
    "create a hash:ip
add a 10.0.0.1
create b hash:ip
add b 10.0.0.2
flush a
create l list:set
add l a
swap a b
rename l l3
flush b
",
    "create a hash:ip
create b hash:ip maxelem 3
add a 10.0.0.1
swap a b
swap a a
rename a c
destroy b
",
    "create a hash:ip
add a 10.0.0.1
flush
destroy
create b hash:net
",
    "create l list:set size 1
create a hash:ip
create b hash:net
create c hash:ip,port
create d hash:net,port
create e hash:ip
add l a
add l b before a
add l c after b
add l d
add l e before c
del l d after a
del l b before e
",
    r#"create l list:set counters comment skbinfo timeout 600
create a hash:ip
create b hash:ip
add l a timeout 0 packets 1 comment "a  b" skbmark 0x1 skbqueue 2
add l b
create c hash:ip
add l b bytes 7 -exist
"#,
    "create l list:set
create m list:set
create a hash:ip
add l a
swap l m
flush l
",
    "create a hash:net,iface family inet hashsize 1024 maxelem 65536 bucketsize 12
add a 10.0.0.0/8,eth0
create b bitmap:port range 0-100
add b 7
del b 7
add b 8
",
    "create aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa hash:net
create -x hash:net
",
];

/// Refused by both; the last line is wrong.
pub const REFUSED: &[&str] = &[
    "create a hash:nope
",
    "create a
",
    "create
",
    "create a hash:ip
create a hash:ip
",
    "create a hash:ip
create a hash:ip maxelem 3 -exist
",
    "create a hash:ip
create a hash:net -exist
",
    "create a hash:ip family any
",
    "create a hash:ip family ipv6 family inet6
",
    "create a hash:ip family inet foo
",
    "create a hash:ip bucketsize 300
",
    "create a hash:ip hashsize 4294967295
",
    "create a hash:ip timeout 2147484
",
    "create a hash:ip maxelem 4294967296
",
    "create a hash:ip maxelem x
",
    "create a hash:ip maxelem
",
    "create a hash:ip netmask 0
",
    "create a hash:ip netmask 33
",
    "create a hash:ip netmask 129 family inet6
",
    "create a hash:net netmask 24
",
    "create a hash:net size 3
",
    "create a list:set maxelem 3
",
    "create a list:set family inet
",
    "create a hash:ip initval 12 initval 13
",
    "create aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa hash:net
",
    "create a hash:ip
add a
",
    "create a hash:ip
add b 10.0.0.1
",
    "create a hash:ip
add a 0.0.0.0/30
",
    "create a hash:ip
add a 0.0.0.0
",
    "create a hash:ip netmask 8
add a 0.1.2.3
",
    "create a hash:ip
add a 10.0.0.5-0.0.0.0
",
    "create a hash:ip
add a 10.0.0.0/0
",
    "create a hash:ip
add a 10.0.0.1-10.0.0.2/31
",
    "create a hash:ip
add a 10.0.0.1 10.0.0.2
",
    "create a hash:ip
add a 10.0.0.1,80
",
    "create a hash:ip
add a 10.0.0.1,
",
    "create a hash:ip
add a 10.0.0.256
",
    "create a hash:ip
add a 10.0.0.1 nomatch
",
    "create a hash:ip
add a 10.0.0.0/15
",
    "create a hash:ip maxelem 2
add a 10.0.0.1-10.0.0.3
",
    "create a hash:ip
add a 10.0.0.1
add a 10.0.0.1
",
    "create a hash:ip
add a 10.0.0.3
add a 10.0.0.1-10.0.0.4
",
    "create a hash:ip family inet6
add a 10.0.0.1
",
    "create a hash:ip family inet6
add a ::
",
    "create a hash:ip family inet6
add a ::1-::2
",
    "create a hash:ip family inet6
add a ::1/127
",
    "create a hash:ip
add a ::1
",
    "create a hash:ip
add a 10.0.0.1 timeout 5
",
    "create a hash:ip
add a 10.0.0.1 comment x
",
    "create a hash:ip
add a 10.0.0.1 packets 1
",
    "create a hash:ip
add a 10.0.0.1 skbqueue 1
",
    "create a hash:ip timeout 5
add a 10.0.0.1 timeout 3 timeout 4
",
    "create a hash:ip timeout 5
add a 10.0.0.1 timeout 2147484
",
    "create a hash:ip counters
add a 10.0.0.1 packets 18446744073709551615
",
    r#"create a hash:ip comment
add a 10.0.0.1 comment ""
"#,
    r#"create a hash:ip comment
add a 10.0.0.1 comment "unclosed
"#,
    "create a hash:ip comment
add a 10.0.0.1 comment # x
",
    "create a hash:ip skbinfo
add a 10.0.0.1 skbprio 1
",
    "create a hash:ip skbinfo
add a 10.0.0.1 skbmark 5
",
    "create a hash:ip skbinfo
add a 10.0.0.1 skbqueue 65536
",
    "create a hash:net
add a 0.0.0.0/0
",
    "create a hash:net
add a 0.0.0.0-255.255.255.255
",
    "create a hash:net
add a 10.0.0.0/33
",
    "create a hash:net
add a 10.0.0.0/-1
",
    "create a hash:net
add a 10.0.0.0/
",
    "create a hash:net
add a 10.1.2.3/8
add a 10.1.2.3/8 nomatch
",
    "create a hash:net family inet6
add a ::/0
",
    "create a hash:net family inet6
add a ::1/129
",
    "create a hash:net family inet6
add a 2001:db8::1-2001:db8::4
",
    "create a hash:ip,port
add a 10.0.0.1
",
    "create a hash:ip,port
add a 0.0.0.0,80
",
    "create a hash:ip,port
add a 10.0.0.1,gre:1
",
    "create a hash:ip,port
add a 10.0.0.1,0:0
",
    "create a hash:ip,port
add a 10.0.0.1,256:0
",
    "create a hash:ip,port
add a 10.0.0.1,ip:0
",
    "create a hash:ip,port
add a 10.0.0.1,nope:0
",
    "create a hash:ip,port
add a 10.0.0.1,tcp
",
    "create a hash:ip,port
add a 10.0.0.1,tcp:
",
    "create a hash:ip,port
add a 10.0.0.1,tcp:70000
",
    "create a hash:ip,port
add a 10.0.0.1,tcp:1-70000
",
    "create a hash:ip,port
add a 10.0.0.1,icmp:nope
",
    "create a hash:ip,port
add a 10.0.0.1,icmp:256/0
",
    "create a hash:ip,port
add a 10.0.0.1,tcp:80,tcp:81
",
    "create a hash:ip,port family inet6
add a ::1/64,80
",
    "create a hash:ip,port family inet6
add a ::,80
",
    "create a hash:net,port
add a 0.0.0.0/0,1
",
    "create a hash:ip
del a 10.0.0.1
",
    "create a hash:ip
add a 10.0.0.1-10.0.0.4
del a 10.0.0.4-10.0.0.5
",
    "create a hash:net
add a 10.0.0.0/8 nomatch
del a 10.0.0.0/8 nomatch
",
    "create a hash:ip
flush b
",
    "create a hash:ip
destroy b
",
    "create a hash:ip
swap a b
",
    "create a hash:ip
swap b a
",
    "create a hash:ip
create b hash:ip family inet6
swap a b
",
    "create a hash:ip
create b hash:net
swap a b
",
    "create a hash:ip,port
create b hash:net,port
swap a b
",
    "create a hash:ip
rename a a
",
    "create a hash:ip
rename b c
",
    "create l list:set
add l nope
",
    "create l list:set
add l l
",
    "create l list:set
create m list:set
add l m
",
    "create l list:set
create a hash:ip
add l a
add l a
",
    "create l list:set
create a hash:ip
create b hash:ip
add l a before b
",
    "create l list:set
create a hash:ip
add l a
add l a after a
",
    "create l list:set
create a hash:ip
del l a
",
    "create l list:set
create a hash:ip
create b hash:ip
add l a
add l b
del l b before a
",
    "create l list:set
create a hash:ip
add l a
destroy a
",
    "create l list:set
create a hash:ip
add l a
destroy
",
    "create l list:set
create a hash:ip
add l a
rename a b
",
    "ipset create a hash:ip
",
    "version
",
];
