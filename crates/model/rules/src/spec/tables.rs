//! The table of matches and targets, in the order of [`Kind`].

use super::{ARP, Alias, BRIDGE, HexForm, IP, IPV4, IPV6, Kind, Names, Opt, Spec, Type, opt};
use crate::arp::Field;
use Type::{
    AddressList, AddressRange, Among, ArpField, Begun, Bits, Choice, Chunks, Date, Dec,
    DecimalPorts, Exact, Flag, Groups, Handle, HashBurst, HashRate, Hex, Hex16, HexUpper,
    IcmpRange, IcmpType, IgmpRange, Interface, IpProtocol, Mac, MacMask, MacName, Mark, MarkOrBits,
    Mask, MonthDays, Name, Named, Named10, Named16, NamedAny, NatAddress, NatPorts, Net, Net6,
    Numbered, OptionList, OrderedRange, PlainNet, PortList, Ports, Probability, Protocol,
    ProtocolNumber, Quoted, Range, Rate, SetMatch, TcpFlags, Text, TimeOfDay, Tos, U32, Users,
    Word, Words, XMark,
};

const U8: Type = Dec(255);
const U16: Type = Dec(65_535);
const U32_NUMBER: Type = Dec(u32::MAX as u64);
const U64: Type = Dec(u64::MAX);
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const ESP: u8 = 50;
const AH: u8 = 51;

const STATES: Names = &[
    ("INVALID", 1),
    ("NEW", 2),
    ("RELATED", 4),
    ("ESTABLISHED", 8),
    ("UNTRACKED", 16),
];
const CT_STATES: Names = &[
    ("INVALID", 1),
    ("NEW", 2),
    ("RELATED", 4),
    ("ESTABLISHED", 8),
    ("UNTRACKED", 16),
    ("SNAT", 32),
    ("DNAT", 64),
];
/// Bits of the kernel's connection status; NONE stands for no bit.
const CT_STATUSES: Names = &[
    ("NONE", 0),
    ("EXPECTED", 1),
    ("SEEN_REPLY", 2),
    ("ASSURED", 4),
    ("CONFIRMED", 8),
];
const ADDRESS_TYPES: Names = &[
    ("UNSPEC", 1 << 0),
    ("UNICAST", 1 << 1),
    ("LOCAL", 1 << 2),
    ("BROADCAST", 1 << 3),
    ("ANYCAST", 1 << 4),
    ("MULTICAST", 1 << 5),
    ("BLACKHOLE", 1 << 6),
    ("UNREACHABLE", 1 << 7),
    ("PROHIBIT", 1 << 8),
    ("THROW", 1 << 9),
    ("NAT", 1 << 10),
    ("XRESOLVE", 1 << 11),
];
const PACKET_TYPES: Names = &[
    ("unicast", 0),
    ("host", 0),
    ("broadcast", 1),
    ("bcast", 1),
    ("multicast", 2),
    ("mcast", 2),
];
const BRIDGE_PACKET_TYPES: Names = &[
    ("host", 0),
    ("broadcast", 1),
    ("multicast", 2),
    ("otherhost", 3),
    ("outgoing", 4),
    ("loopback", 5),
    ("fastroute", 6),
];
const DCCP_TYPES: Names = &[
    ("REQUEST", 1 << 0),
    ("RESPONSE", 1 << 1),
    ("DATA", 1 << 2),
    ("ACK", 1 << 3),
    ("DATAACK", 1 << 4),
    ("CLOSEREQ", 1 << 5),
    ("CLOSE", 1 << 6),
    ("RESET", 1 << 7),
    ("SYNC", 1 << 8),
    ("SYNCACK", 1 << 9),
    ("INVALID", 1 << 10),
];
/// RFC 4594, RFC 3662: names of code points.
const DSCP_CLASSES: Names = &[
    ("CS0", 0x00),
    ("CS1", 0x08),
    ("CS2", 0x10),
    ("CS3", 0x18),
    ("CS4", 0x20),
    ("CS5", 0x28),
    ("CS6", 0x30),
    ("CS7", 0x38),
    ("BE", 0x00),
    ("AF11", 0x0a),
    ("AF12", 0x0c),
    ("AF13", 0x0e),
    ("AF21", 0x12),
    ("AF22", 0x14),
    ("AF23", 0x16),
    ("AF31", 0x1a),
    ("AF32", 0x1c),
    ("AF33", 0x1e),
    ("AF41", 0x22),
    ("AF42", 0x24),
    ("AF43", 0x26),
    ("EF", 0x2e),
];
const LOG_LEVELS: Names = &[
    ("emerg", 0),
    ("panic", 0),
    ("alert", 1),
    ("crit", 2),
    ("error", 3),
    ("warning", 4),
    ("notice", 5),
    ("info", 6),
    ("debug", 7),
];
const HASH_MODES: Names = &[("srcip", 1), ("srcport", 2), ("dstip", 4), ("dstport", 8)];
const WEEKDAYS: Names = &[
    ("Mon", 1 << 1),
    ("Tue", 1 << 2),
    ("Wed", 1 << 3),
    ("Thu", 1 << 4),
    ("Fri", 1 << 5),
    ("Sat", 1 << 6),
    ("Sun", 1 << 7),
];
/// Extension headers, as the kernel numbers them.
const IPV6_HEADERS: Names = &[
    ("hop-by-hop", 128),
    ("hop", 128),
    ("ipv6-opts", 64),
    ("dst", 64),
    ("ipv6-route", 32),
    ("route", 32),
    ("ipv6-frag", 16),
    ("frag", 16),
    ("ah", 8),
    ("auth", 8),
    ("esp", 4),
    ("ipv6-nonxt", 2),
    ("none", 2),
    ("protocol", 1),
    ("prot", 1),
    ("0", 128),
    ("60", 64),
    ("43", 32),
    ("44", 16),
    ("51", 8),
    ("50", 4),
    ("59", 2),
];
const REJECTS: Names = &[
    ("icmp-net-unreachable", 0),
    ("net-unreach", 0),
    ("icmp-host-unreachable", 1),
    ("host-unreach", 1),
    ("icmp-proto-unreachable", 2),
    ("proto-unreach", 2),
    ("icmp-port-unreachable", 3),
    ("port-unreach", 3),
    ("icmp-net-prohibited", 4),
    ("net-prohib", 4),
    ("icmp-host-prohibited", 5),
    ("host-prohib", 5),
    ("tcp-reset", 6),
    ("tcp-rst", 6),
    ("icmp-admin-prohibited", 7),
    ("admin-prohib", 7),
];
pub(super) const REJECTS6: Names = &[
    ("icmp6-no-route", 16),
    ("no-route", 16),
    ("icmp6-adm-prohibited", 17),
    ("adm-prohibited", 17),
    ("icmp6-addr-unreachable", 18),
    ("addr-unreach", 18),
    ("icmp6-port-unreachable", 19),
    ("port-unreach", 19),
    ("icmp6-policy-fail", 20),
    ("policy-fail", 20),
    ("icmp6-reject-route", 21),
    ("reject-route", 21),
    ("tcp-reset", 6),
];
const CT_EVENTS: Names = &[
    ("new", 1 << 0),
    ("related", 1 << 1),
    ("destroy", 1 << 2),
    ("reply", 1 << 3),
    ("assured", 1 << 4),
    ("protoinfo", 1 << 5),
    ("helper", 1 << 6),
    ("mark", 1 << 7),
    ("natseqinfo", 1 << 8),
    ("secmark", 1 << 9),
];
const EXPECT_EVENTS: Names = &[("new", 1)];
pub(super) const TOS_NAMES: Names = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];
const BRIDGE_TARGETS: Names = &[("ACCEPT", 0), ("DROP", 1), ("CONTINUE", 2), ("RETURN", 3)];
const MANGLE_TARGETS: Names = &[("ACCEPT", 0), ("DROP", 1), ("CONTINUE", 2)];
const BRIDGE_LOG_LEVELS: Names = &[
    ("emerg", 0),
    ("alert", 1),
    ("crit", 2),
    ("error", 3),
    ("warning", 4),
    ("notice", 5),
    ("info", 6),
    ("debug", 7),
];
const STP_TYPES: Names = &[("config", 0), ("tcn", 128)];
const STP_FLAGS: Names = &[("topology-change", 1), ("topology-change-ack", 128)];
const IGMP_TYPES: Names = &[
    ("membership-query", 0x11),
    ("membership-report-v1", 0x12),
    ("membership-report-v2", 0x16),
    ("leave-group", 0x17),
    ("membership-report-v3", 0x22),
];
const ARP_HARDWARE: Names = &[("Ethernet", 1)];
pub(super) const ARP_OPCODES: Names = &[
    ("Request", 1),
    ("Reply", 2),
    ("Request_Reverse", 3),
    ("Reply_Reverse", 4),
    ("DRARP_Request", 5),
    ("DRARP_Reply", 6),
    ("DRARP_Error", 7),
    ("InARP_Request", 8),
    ("ARP_NAK", 9),
];

/// Name, type, first and last code.
const ICMP_TYPES: &[(&str, u8, u8, u8)] = &[
    ("any", 255, 0, 255),
    ("echo-reply", 0, 0, 255),
    ("pong", 0, 0, 255),
    ("destination-unreachable", 3, 0, 255),
    ("network-unreachable", 3, 0, 0),
    ("host-unreachable", 3, 1, 1),
    ("protocol-unreachable", 3, 2, 2),
    ("port-unreachable", 3, 3, 3),
    ("fragmentation-needed", 3, 4, 4),
    ("source-route-failed", 3, 5, 5),
    ("network-unknown", 3, 6, 6),
    ("host-unknown", 3, 7, 7),
    ("network-prohibited", 3, 9, 9),
    ("host-prohibited", 3, 10, 10),
    ("TOS-network-unreachable", 3, 11, 11),
    ("TOS-host-unreachable", 3, 12, 12),
    ("communication-prohibited", 3, 13, 13),
    ("host-precedence-violation", 3, 14, 14),
    ("precedence-cutoff", 3, 15, 15),
    ("source-quench", 4, 0, 255),
    ("redirect", 5, 0, 255),
    ("network-redirect", 5, 0, 0),
    ("host-redirect", 5, 1, 1),
    ("TOS-network-redirect", 5, 2, 2),
    ("TOS-host-redirect", 5, 3, 3),
    ("echo-request", 8, 0, 255),
    ("ping", 8, 0, 255),
    ("router-advertisement", 9, 0, 255),
    ("router-solicitation", 10, 0, 255),
    ("time-exceeded", 11, 0, 255),
    ("ttl-exceeded", 11, 0, 255),
    ("ttl-zero-during-transit", 11, 0, 0),
    ("ttl-zero-during-reassembly", 11, 1, 1),
    ("parameter-problem", 12, 0, 255),
    ("ip-header-bad", 12, 0, 0),
    ("required-option-missing", 12, 1, 1),
    ("timestamp-request", 13, 0, 255),
    ("timestamp-reply", 14, 0, 255),
    ("address-mask-request", 17, 0, 255),
    ("address-mask-reply", 18, 0, 255),
];
const ICMP6_TYPES: &[(&str, u8, u8, u8)] = &[
    ("destination-unreachable", 1, 0, 255),
    ("no-route", 1, 0, 0),
    ("communication-prohibited", 1, 1, 1),
    ("beyond-scope", 1, 2, 2),
    ("address-unreachable", 1, 3, 3),
    ("port-unreachable", 1, 4, 4),
    ("failed-policy", 1, 5, 5),
    ("reject-route", 1, 6, 6),
    ("packet-too-big", 2, 0, 255),
    ("time-exceeded", 3, 0, 255),
    ("ttl-exceeded", 3, 0, 255),
    ("ttl-zero-during-transit", 3, 0, 0),
    ("ttl-zero-during-reassembly", 3, 1, 1),
    ("parameter-problem", 4, 0, 255),
    ("bad-header", 4, 0, 0),
    ("unknown-header-type", 4, 1, 1),
    ("unknown-option", 4, 2, 2),
    ("echo-request", 128, 0, 255),
    ("ping", 128, 0, 255),
    ("echo-reply", 129, 0, 255),
    ("pong", 129, 0, 255),
    ("router-solicitation", 133, 0, 255),
    ("router-advertisement", 134, 0, 255),
    ("neighbour-solicitation", 135, 0, 255),
    ("neighbor-solicitation", 135, 0, 255),
    ("neighbour-advertisement", 136, 0, 255),
    ("neighbor-advertisement", 136, 0, 255),
    ("redirect", 137, 0, 255),
];

const SYN: &[(&str, Alias)] = &[("--syn", Alias::Value("FIN,SYN,RST,ACK SYN"))];
const MARK_WORDS: &[(&str, Alias)] = &[
    ("--set-mark", Alias::Set),
    ("--and-mark", Alias::And),
    ("--or-mark", Alias::Or),
    ("--xor-mark", Alias::Xor),
];

const fn spec(
    kind: Kind,
    name: &'static str,
    families: u8,
    protocols: &'static [u8],
    options: &'static [Opt],
) -> Spec {
    Spec {
        kind,
        name,
        families,
        protocols,
        options,
    }
}

const RANDOM: &[&str] = &["--random"];
const RANDOM_FULLY: &[&str] = &["--random-fully"];
const PERSISTENT: &[&str] = &["--persistent"];
const PORT_PROTOCOLS: &[u8] = &[TCP, UDP, UDPLITE, SCTP, DCCP];
const SPORT: &[&str] = &["--sport", "--source-port"];
const DPORT: &[&str] = &["--dport", "--destination-port"];

/// All matches and targets.
pub static SPECS: &[Spec] = &[
    spec(
        Kind::Ip,
        "",
        IP,
        &[],
        &[
            opt(&["-s", "--source", "--src"], Net).not(),
            opt(&["-d", "--destination", "--dst"], Net).not(),
            opt(&["-i", "--in-interface"], Interface).not(),
            opt(&["-o", "--out-interface"], Interface).not(),
            opt(&["-p", "--protocol"], Protocol).not(),
            opt(&["-f", "--fragments"], Flag).not(),
        ],
    ),
    spec(
        Kind::ArpHeader,
        "",
        ARP,
        &[],
        &[
            opt(&["-i", "--in-interface"], Interface).not(),
            opt(&["-o", "--out-interface"], Interface).not(),
            opt(&["-s", "--source-ip", "--src-ip"], Net).not(),
            opt(&["--src-mac", "--source-mac"], MacMask).not(),
            opt(&["-d", "--destination-ip", "--dst-ip"], Net).not(),
            opt(&["--dst-mac", "--destination-mac"], MacMask).not(),
            opt(&["--h-length", "-l"], ArpField(Field::Length)).not(),
            opt(&["--opcode"], ArpField(Field::Opcode)).not(),
            opt(&["--h-type"], ArpField(Field::Hardware)).not(),
            opt(&["--proto-type"], ArpField(Field::Protocol)).not(),
        ],
    ),
    spec(
        Kind::BridgeHeader,
        "",
        BRIDGE,
        &[],
        &[
            opt(&["-p", "--protocol", "--proto"], Protocol).not(),
            opt(&["-s", "--source", "--src"], MacName).not(),
            opt(&["-d", "--destination", "--dst"], MacName).not(),
            opt(&["-i", "--in-interface", "--in-if"], Interface).not(),
            opt(&["--logical-in"], Interface).not(),
            opt(&["-o", "--out-interface", "--out-if"], Interface).not(),
            opt(&["--logical-out"], Interface).not(),
        ],
    ),
    spec(
        Kind::Addrtype,
        "addrtype",
        IP,
        &[],
        &[
            opt(&["--src-type"], Bits(ADDRESS_TYPES)).not(),
            opt(&["--dst-type"], Bits(ADDRESS_TYPES)).not(),
            opt(&["--limit-iface-in"], Flag),
            opt(&["--limit-iface-out"], Flag),
        ],
    ),
    spec(
        Kind::Ah,
        "ah",
        IPV4,
        &[AH],
        &[opt(&["--ahspi"], Range(u32::MAX)).not()],
    ),
    spec(
        Kind::Ah6,
        "ah",
        IPV6,
        &[],
        &[
            opt(&["--ahspi"], Range(u32::MAX)).not(),
            opt(&["--ahlen"], U32_NUMBER).not(),
            opt(&["--ahres"], Flag),
        ],
    ),
    spec(
        Kind::Comment,
        "comment",
        IP,
        &[],
        &[opt(&["--comment"], Text(255))],
    ),
    spec(
        Kind::Connlimit,
        "connlimit",
        IP,
        &[],
        &[
            opt(&["--connlimit-upto"], U32_NUMBER),
            opt(&["--connlimit-above"], U32_NUMBER).not(),
            opt(&["--connlimit-mask"], Dec(128)),
            opt(&["--connlimit-saddr"], Flag),
            opt(&["--connlimit-daddr"], Flag),
        ],
    ),
    spec(
        Kind::Connmark,
        "connmark",
        IP,
        &[],
        &[opt(&["--mark"], Mark).not()],
    ),
    spec(
        Kind::Conntrack,
        "conntrack",
        IP,
        &[],
        &[
            opt(&["--ctstate"], Bits(CT_STATES)).not(),
            opt(&["--ctproto"], ProtocolNumber).not(),
            opt(&["--ctorigsrc"], PlainNet).not(),
            opt(&["--ctorigdst"], PlainNet).not(),
            opt(&["--ctreplsrc"], PlainNet).not(),
            opt(&["--ctrepldst"], PlainNet).not(),
            opt(&["--ctorigsrcport"], DecimalPorts).not(),
            opt(&["--ctorigdstport"], DecimalPorts).not(),
            opt(&["--ctreplsrcport"], DecimalPorts).not(),
            opt(&["--ctrepldstport"], DecimalPorts).not(),
            opt(&["--ctstatus"], Bits(CT_STATUSES)).not(),
            opt(&["--ctexpire"], Range(u32::MAX)).not(),
            opt(&["--ctdir"], Choice(&[("ORIGINAL", 0), ("REPLY", 1)])),
        ],
    ),
    spec(
        Kind::Dccp,
        "dccp",
        IP,
        &[DCCP],
        &[
            opt(SPORT, DecimalPorts).not(),
            opt(DPORT, DecimalPorts).not(),
            opt(&["--dccp-types"], Bits(DCCP_TYPES)).not(),
            opt(&["--dccp-option"], U8).not(),
        ],
    ),
    spec(
        Kind::Dscp,
        "dscp",
        IP,
        &[],
        &[opt(&["--dscp"], Hex { max: 63, digits: 2 })
            .not()
            .alias(&[("--dscp-class", Alias::Named(DSCP_CLASSES))])],
    ),
    spec(
        Kind::Dst,
        "dst",
        IPV6,
        &[],
        &[
            opt(&["--dst-len"], U32_NUMBER).not(),
            opt(&["--dst-opts"], OptionList),
        ],
    ),
    spec(
        Kind::Ecn,
        "ecn",
        IP,
        &[],
        &[
            opt(&["--ecn-tcp-ece"], Flag).not(),
            opt(&["--ecn-tcp-cwr"], Flag).not(),
            opt(&["--ecn-ip-ect"], Dec(3)).not(),
        ],
    ),
    spec(
        Kind::Esp,
        "esp",
        IP,
        &[ESP],
        &[opt(&["--espspi"], Range(u32::MAX)).not()],
    ),
    spec(
        Kind::Frag,
        "frag",
        IPV6,
        &[],
        &[
            opt(&["--fragid"], Range(u32::MAX)).not(),
            opt(&["--fraglen"], U32_NUMBER).not(),
            opt(&["--fragres"], Flag),
            opt(&["--fragfirst"], Flag),
            opt(&["--fragmore"], Flag),
            opt(&["--fraglast"], Flag),
        ],
    ),
    spec(
        Kind::Hashlimit,
        "hashlimit",
        IP,
        &[],
        &[
            opt(&["--hashlimit-upto", "--hashlimit"], HashRate).not(),
            opt(&["--hashlimit-above"], HashRate).not(),
            opt(&["--hashlimit-burst"], HashBurst),
            opt(&["--hashlimit-mode"], Bits(HASH_MODES)),
            opt(&["--hashlimit-name"], Name(255)),
            opt(&["--hashlimit-htable-size"], U32_NUMBER),
            opt(&["--hashlimit-htable-max"], U32_NUMBER),
            opt(&["--hashlimit-htable-gcinterval"], U32_NUMBER),
            opt(&["--hashlimit-htable-expire"], U32_NUMBER),
            opt(&["--hashlimit-srcmask"], Dec(128)),
            opt(&["--hashlimit-dstmask"], Dec(128)),
            opt(&["--hashlimit-rate-match"], Flag),
            opt(
                &["--hashlimit-rate-interval"],
                Named10(&[], u32::MAX as u64),
            ),
        ],
    ),
    spec(
        Kind::Hbh,
        "hbh",
        IPV6,
        &[],
        &[
            opt(&["--hbh-len"], U32_NUMBER).not(),
            opt(&["--hbh-opts"], OptionList),
        ],
    ),
    spec(
        Kind::Hl,
        "hl",
        IPV6,
        &[],
        &[
            opt(&["--hl-eq", "--hl"], U8).not(),
            opt(&["--hl-lt"], U8),
            opt(&["--hl-gt"], U8),
        ],
    ),
    spec(
        Kind::Icmp,
        "icmp",
        IPV4,
        &[ICMP],
        &[opt(&["--icmp-type"], IcmpType(ICMP_TYPES)).not()],
    ),
    spec(
        Kind::Icmp6,
        "icmp6",
        IPV6,
        &[ICMP6],
        &[opt(&["--icmpv6-type"], IcmpType(ICMP6_TYPES)).not()],
    ),
    spec(
        Kind::Iprange,
        "iprange",
        IP,
        &[],
        &[
            opt(&["--src-range"], AddressRange).not(),
            opt(&["--dst-range"], AddressRange).not(),
        ],
    ),
    spec(
        Kind::Ipv6Header,
        "ipv6header",
        IPV6,
        &[],
        &[
            opt(&["--header"], Bits(IPV6_HEADERS)).not(),
            opt(&["--soft"], Flag),
        ],
    ),
    spec(
        Kind::Length,
        "length",
        IP,
        &[],
        &[opt(&["--length"], Range(65_535)).not()],
    ),
    spec(
        Kind::Limit,
        "limit",
        IP | BRIDGE,
        &[],
        &[
            opt(&["--limit"], Rate),
            opt(&["--limit-burst"], Dec(10_000)),
        ],
    ),
    spec(
        Kind::Mac,
        "mac",
        IP,
        &[],
        &[opt(&["--mac-source"], Mac).not()],
    ),
    spec(Kind::Mark, "mark", IP, &[], &[opt(&["--mark"], Mark).not()]),
    spec(
        Kind::Multiport,
        "multiport",
        IP,
        PORT_PROTOCOLS,
        &[
            opt(&["--sports", "--source-ports"], PortList).not(),
            opt(&["--dports", "--destination-ports"], PortList).not(),
            opt(&["--ports"], PortList).not(),
        ],
    ),
    spec(
        Kind::Owner,
        "owner",
        IP,
        &[],
        &[
            opt(&["--socket-exists"], Flag).not(),
            opt(&["--uid-owner"], Users).not(),
            opt(&["--gid-owner"], Groups).not(),
            opt(&["--suppl-groups"], Flag),
        ],
    ),
    spec(
        Kind::Physdev,
        "physdev",
        IP,
        &[],
        &[
            opt(&["--physdev-is-in"], Flag).not(),
            opt(&["--physdev-in"], Interface).not(),
            opt(&["--physdev-is-out"], Flag).not(),
            opt(&["--physdev-out"], Interface).not(),
            opt(&["--physdev-is-bridged"], Flag).not(),
        ],
    ),
    spec(
        Kind::Pkttype,
        "pkttype",
        IP,
        &[],
        &[opt(&["--pkt-type"], Choice(PACKET_TYPES)).not()],
    ),
    spec(
        Kind::Quota,
        "quota",
        IP,
        &[],
        &[opt(&["--quota"], U64).not()],
    ),
    spec(
        Kind::Recent,
        "recent",
        IP,
        &[],
        &[
            opt(&["--set"], Flag).not(),
            opt(&["--rcheck"], Flag).not(),
            opt(&["--update"], Flag).not(),
            opt(&["--remove"], Flag).not(),
            opt(&["--seconds"], U32_NUMBER),
            opt(&["--reap"], Flag),
            opt(&["--hitcount"], U32_NUMBER),
            opt(&["--rttl"], Flag),
            opt(&["--name"], Name(199)),
            opt(&["--mask"], Mask),
            opt(&["--rsource"], Flag),
            opt(&["--rdest"], Flag),
        ],
    ),
    spec(
        Kind::Rpfilter,
        "rpfilter",
        IP,
        &[],
        &[
            opt(&["--loose"], Flag),
            opt(&["--validmark"], Flag),
            opt(&["--accept-local"], Flag),
            opt(&["--invert"], Flag),
        ],
    ),
    spec(
        Kind::Rt,
        "rt",
        IPV6,
        &[],
        &[
            opt(&["--rt-type"], U32_NUMBER).not(),
            opt(&["--rt-segsleft"], Range(u32::MAX)).not(),
            opt(&["--rt-len"], U32_NUMBER).not(),
            opt(&["--rt-0-res"], Flag),
            opt(&["--rt-0-addrs"], AddressList),
            opt(&["--rt-0-not-strict"], Flag),
        ],
    ),
    spec(
        Kind::Sctp,
        "sctp",
        IP,
        &[SCTP],
        &[
            opt(SPORT, Ports).not(),
            opt(DPORT, Ports).not(),
            opt(&["--chunk-types"], Chunks).not(),
        ],
    ),
    spec(
        Kind::Set,
        "set",
        IP,
        &[],
        &[
            opt(&["--match-set"], SetMatch).not(),
            opt(&["--return-nomatch"], Flag),
            opt(&["--update-counters"], Flag).not(),
            opt(&["--update-subcounters"], Flag).not(),
        ],
    ),
    spec(
        Kind::State,
        "state",
        IP,
        &[],
        &[opt(&["--state"], Bits(STATES)).not()],
    ),
    spec(
        Kind::Statistic,
        "statistic",
        IP,
        &[],
        &[
            opt(&["--mode"], Choice(&[("random", 0), ("nth", 1)])),
            opt(&["--probability"], Probability).not(),
            opt(&["--every"], U32_NUMBER).not(),
            opt(&["--packet"], U32_NUMBER),
        ],
    ),
    spec(
        Kind::Tcp,
        "tcp",
        IP,
        &[TCP],
        &[
            opt(SPORT, Ports).not(),
            opt(DPORT, Ports).not(),
            opt(&["--tcp-option"], U8).not(),
            opt(&["--tcp-flags"], TcpFlags).not().alias(SYN),
        ],
    ),
    spec(
        Kind::Tcpmss,
        "tcpmss",
        IP,
        &[TCP],
        &[opt(&["--mss"], Range(65_535)).not()],
    ),
    spec(
        Kind::Time,
        "time",
        IP,
        &[],
        &[
            opt(&["--timestart"], TimeOfDay),
            opt(&["--timestop"], TimeOfDay),
            opt(&["--monthdays"], MonthDays).not(),
            opt(&["--weekdays"], Bits(WEEKDAYS)).not(),
            opt(&["--datestart"], Date),
            opt(&["--datestop"], Date),
            opt(&["--kerneltz"], Flag),
            opt(&["--contiguous"], Flag),
            opt(&["--utc"], Flag),
            opt(&["--localtz"], Flag),
        ],
    ),
    spec(Kind::Tos, "tos", IP, &[], &[opt(&["--tos"], Tos).not()]),
    spec(
        Kind::Ttl,
        "ttl",
        IPV4,
        &[],
        &[
            opt(&["--ttl-eq", "--ttl"], U8).not(),
            opt(&["--ttl-lt"], U8),
            opt(&["--ttl-gt"], U8),
        ],
    ),
    spec(Kind::U32, "u32", IP, &[], &[opt(&["--u32"], U32).not()]),
    spec(
        Kind::Udp,
        "udp",
        IP,
        &[UDP],
        &[
            opt(SPORT, DecimalPorts).not(),
            opt(DPORT, DecimalPorts).not(),
        ],
    ),
    spec(
        Kind::Among,
        "among",
        BRIDGE,
        &[],
        &[
            opt(&["--among-src"], Among).not(),
            opt(&["--among-dst"], Among).not(),
        ],
    ),
    spec(
        Kind::BridgeIp,
        "ip",
        BRIDGE,
        &[],
        &[
            opt(&["--ip-src", "--ip-source"], Net).not(),
            opt(&["--ip-dst", "--ip-destination"], Net).not(),
            opt(&["--ip-tos"], HexUpper(255)).not(),
            opt(&["--ip-proto", "--ip-protocol"], IpProtocol).not(),
            opt(&["--ip-sport", "--ip-source-port"], Ports).not(),
            opt(&["--ip-dport", "--ip-destination-port"], Ports).not(),
            opt(&["--ip-icmp-type"], IcmpRange(ICMP_TYPES)).not(),
            opt(&["--ip-igmp-type"], IgmpRange(IGMP_TYPES)).not(),
        ],
    ),
    spec(
        Kind::BridgeIp6,
        "ip6",
        BRIDGE,
        &[],
        &[
            opt(&["--ip6-src", "--ip6-source"], Net6).not(),
            opt(&["--ip6-dst", "--ip6-destination"], Net6).not(),
            opt(&["--ip6-tclass"], HexUpper(255)).not(),
            opt(&["--ip6-proto", "--ip6-protocol"], IpProtocol).not(),
            opt(&["--ip6-sport", "--ip6-source-port"], Ports).not(),
            opt(&["--ip6-dport", "--ip6-destination-port"], Ports).not(),
            opt(&["--ip6-icmp-type"], IcmpRange(ICMP6_TYPES)).not(),
        ],
    ),
    spec(
        Kind::BridgeArp,
        "arp",
        BRIDGE,
        &[],
        &[
            opt(&["--arp-op", "--arp-opcode"], Named10(ARP_OPCODES, 65_535)).not(),
            opt(&["--arp-htype"], Numbered(ARP_HARDWARE, 65_535)).not(),
            opt(
                &["--arp-ptype"],
                Hex16 {
                    max: 65_535,
                    digits: 1,
                    form: HexForm::LowerNames,
                },
            )
            .not(),
            opt(&["--arp-ip-src"], Net).not(),
            opt(&["--arp-ip-dst"], Net).not(),
            opt(&["--arp-mac-src"], MacMask).not(),
            opt(&["--arp-mac-dst"], MacMask).not(),
            opt(&["--arp-gratuitous"], Flag).not(),
        ],
    ),
    spec(
        Kind::BridgeLimit,
        "",
        BRIDGE,
        &[],
        &[
            opt(&["--limit"], Rate),
            opt(&["--limit-burst"], Dec(10_000)),
        ],
    ),
    spec(
        Kind::BridgeMark,
        "mark_m",
        BRIDGE,
        &[],
        &[opt(&["--mark"], MarkOrBits).not()],
    ),
    spec(
        Kind::BridgePkttype,
        "pkttype",
        BRIDGE,
        &[],
        &[opt(&["--pkttype-type"], Named16(BRIDGE_PACKET_TYPES, 255)).not()],
    ),
    spec(
        Kind::Dot3,
        "802_3",
        BRIDGE,
        &[],
        &[
            opt(
                &["--802_3-sap"],
                Hex16 {
                    max: 255,
                    digits: 2,
                    form: HexForm::Lower,
                },
            )
            .not(),
            opt(
                &["--802_3-type"],
                Hex16 {
                    max: 65_535,
                    digits: 4,
                    form: HexForm::Lower,
                },
            )
            .not(),
        ],
    ),
    spec(
        Kind::Stp,
        "stp",
        BRIDGE,
        &[],
        &[
            opt(&["--stp-type"], NamedAny(STP_TYPES, 255)).not(),
            opt(&["--stp-flags"], NamedAny(STP_FLAGS, 255)).not(),
            opt(&["--stp-root-prio"], OrderedRange(65_535)).not(),
            opt(&["--stp-root-addr"], MacMask).not(),
            opt(&["--stp-root-cost"], OrderedRange(u32::MAX)).not(),
            opt(&["--stp-sender-prio"], OrderedRange(65_535)).not(),
            opt(&["--stp-sender-addr"], MacMask).not(),
            opt(&["--stp-port"], OrderedRange(65_535)).not(),
            opt(&["--stp-msg-age"], OrderedRange(65_535)).not(),
            opt(&["--stp-max-age"], OrderedRange(65_535)).not(),
            opt(&["--stp-hello-time"], OrderedRange(65_535)).not(),
            opt(&["--stp-forward-delay"], OrderedRange(65_535)).not(),
        ],
    ),
    spec(
        Kind::Vlan,
        "vlan",
        BRIDGE,
        &[],
        &[
            opt(&["--vlan-id"], Named10(&[], 4_094)).not(),
            opt(&["--vlan-prio"], Named10(&[], 7)).not(),
            opt(
                &["--vlan-encap"],
                Hex16 {
                    max: 65_535,
                    digits: 4,
                    form: HexForm::BareNames,
                },
            )
            .not(),
        ],
    ),
    spec(
        Kind::BridgeLog,
        "log",
        BRIDGE,
        &[],
        &[
            opt(&["--log-level"], Exact(BRIDGE_LOG_LEVELS)),
            opt(&["--log-prefix"], Quoted(29)),
            opt(&["--log-ip"], Flag),
            opt(&["--log-arp"], Flag),
            opt(&["--log-ip6"], Flag),
            opt(&["--log"], Flag),
        ],
    ),
    spec(
        Kind::BridgeNflog,
        "nflog",
        BRIDGE,
        &[],
        &[
            opt(&["--nflog-prefix"], Quoted(63)),
            opt(&["--nflog-group"], U16),
            opt(&["--nflog-range"], U32_NUMBER),
            opt(&["--nflog-threshold"], U16),
            opt(&["--nflog"], Flag),
        ],
    ),
    spec(
        Kind::Opaque,
        "",
        IP | ARP | BRIDGE,
        &[],
        &[opt(&[""], Words)],
    ),
    spec(
        Kind::TargetClassify,
        "CLASSIFY",
        IP | ARP,
        &[],
        &[opt(&["--set-class"], Handle)],
    ),
    spec(
        Kind::TargetConnmark,
        "CONNMARK",
        IP,
        &[],
        &[
            opt(&["--set-xmark"], XMark).alias(MARK_WORDS),
            opt(&["--save-mark"], Flag),
            opt(&["--restore-mark"], Flag),
            opt(
                &["--nfmask"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(
                &["--ctmask"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(
                &["--mask"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(&["--left-shift-mark"], Dec(31)),
            opt(&["--right-shift-mark"], Dec(31)),
        ],
    ),
    spec(
        Kind::TargetCt,
        "CT",
        IP,
        &[],
        &[
            opt(&["--notrack"], Flag),
            opt(&["--helper"], Word),
            opt(&["--timeout"], Word),
            opt(&["--ctevents"], Bits(CT_EVENTS)),
            opt(&["--expevents"], Bits(EXPECT_EVENTS)),
            opt(&["--zone-orig"], Word),
            opt(&["--zone-reply"], Word),
            opt(&["--zone"], Word),
        ],
    ),
    spec(
        Kind::TargetDnat,
        "DNAT",
        IP,
        &[],
        &[
            opt(&["--to-destination"], NatAddress),
            opt(RANDOM, Flag),
            opt(PERSISTENT, Flag),
        ],
    ),
    spec(
        Kind::TargetDscp,
        "DSCP",
        IP,
        &[],
        &[opt(&["--set-dscp"], Hex { max: 63, digits: 2 })
            .alias(&[("--set-dscp-class", Alias::Named(DSCP_CLASSES))])],
    ),
    spec(
        Kind::TargetHl,
        "HL",
        IPV6,
        &[],
        &[
            opt(&["--hl-set"], U8),
            opt(&["--hl-dec"], U8),
            opt(&["--hl-inc"], U8),
        ],
    ),
    spec(
        Kind::TargetLog,
        "LOG",
        IP,
        &[],
        &[
            opt(&["--log-prefix"], Text(29)),
            opt(&["--log-level"], Named(LOG_LEVELS)),
            opt(&["--log-tcp-sequence"], Flag),
            opt(&["--log-tcp-options"], Flag),
            opt(&["--log-ip-options"], Flag),
            opt(&["--log-uid"], Flag),
            opt(&["--log-macdecode"], Flag),
        ],
    ),
    spec(
        Kind::TargetMark,
        "MARK",
        IP | ARP,
        &[],
        &[opt(&["--set-xmark"], XMark).alias(MARK_WORDS)],
    ),
    spec(
        Kind::TargetMasquerade,
        "MASQUERADE",
        IP,
        &[],
        &[
            opt(&["--to-ports"], NatPorts),
            opt(RANDOM, Flag),
            opt(RANDOM_FULLY, Flag),
        ],
    ),
    spec(
        Kind::TargetNetmap,
        "NETMAP",
        IP,
        &[],
        &[opt(&["--to"], Net)],
    ),
    spec(
        Kind::TargetNflog,
        "NFLOG",
        IP,
        &[],
        &[
            opt(&["--nflog-prefix"], Text(63)),
            opt(&["--nflog-group"], U16),
            opt(&["--nflog-range"], U32_NUMBER),
            opt(&["--nflog-size"], U32_NUMBER),
            opt(&["--nflog-threshold"], U16),
        ],
    ),
    spec(
        Kind::TargetNfqueue,
        "NFQUEUE",
        IP,
        &[],
        &[
            opt(&["--queue-num"], U16),
            opt(&["--queue-balance"], Range(65_535)),
            opt(&["--queue-bypass"], Flag),
            opt(&["--queue-cpu-fanout"], Flag),
        ],
    ),
    spec(Kind::TargetNotrack, "NOTRACK", IP, &[], &[]),
    spec(
        Kind::TargetRedirect,
        "REDIRECT",
        IP,
        &[],
        &[opt(&["--to-ports"], NatPorts), opt(RANDOM, Flag)],
    ),
    spec(
        Kind::TargetReject,
        "REJECT",
        IP,
        &[],
        &[opt(&["--reject-with"], Begun(REJECTS))],
    ),
    spec(
        Kind::TargetSet,
        "SET",
        IP,
        &[],
        &[
            opt(&["--add-set"], SetMatch),
            opt(&["--del-set"], SetMatch),
            opt(&["--timeout"], U32_NUMBER),
            opt(&["--exist"], Flag),
        ],
    ),
    spec(
        Kind::TargetSnat,
        "SNAT",
        IP,
        &[],
        &[
            opt(&["--to-source"], NatAddress),
            opt(RANDOM, Flag),
            opt(RANDOM_FULLY, Flag),
            opt(PERSISTENT, Flag),
        ],
    ),
    spec(
        Kind::TargetTcpmss,
        "TCPMSS",
        IP,
        &[TCP],
        &[
            opt(&["--set-mss"], Dec(65_515)),
            opt(&["--clamp-mss-to-pmtu"], Flag),
        ],
    ),
    spec(
        Kind::TargetTos,
        "TOS",
        IP,
        &[],
        &[opt(&["--set-tos"], Tos).alias(&[
            ("--and-tos", Alias::And),
            ("--or-tos", Alias::Or),
            ("--xor-tos", Alias::Xor),
        ])],
    ),
    spec(
        Kind::TargetTproxy,
        "TPROXY",
        IP,
        &[],
        &[
            opt(&["--on-port"], Named10(&[], 65_535)),
            opt(&["--on-ip"], Word),
            opt(&["--tproxy-mark"], XMark),
        ],
    ),
    spec(Kind::TargetTrace, "TRACE", IP, &[], &[]),
    spec(
        Kind::TargetTtl,
        "TTL",
        IPV4,
        &[],
        &[
            opt(&["--ttl-set"], U8),
            opt(&["--ttl-dec"], U8),
            opt(&["--ttl-inc"], U8),
        ],
    ),
    spec(
        Kind::ArpMangle,
        "mangle",
        ARP,
        &[],
        &[
            opt(&["--mangle-ip-s"], PlainNet),
            opt(&["--mangle-ip-d"], PlainNet),
            opt(&["--mangle-mac-s"], Mac),
            opt(&["--mangle-mac-d"], Mac),
            opt(&["--mangle-target"], Exact(MANGLE_TARGETS)),
        ],
    ),
    spec(
        Kind::BridgeArpreply,
        "arpreply",
        BRIDGE,
        &[],
        &[
            opt(&["--arpreply-mac"], Mac),
            opt(&["--arpreply-target"], Exact(BRIDGE_TARGETS)),
        ],
    ),
    spec(
        Kind::BridgeDnat,
        "dnat",
        BRIDGE,
        &[],
        &[
            opt(&["--to-dst", "--to-destination"], Mac),
            opt(&["--dnat-target"], Exact(BRIDGE_TARGETS)),
        ],
    ),
    spec(
        Kind::BridgeMarkTarget,
        "mark",
        BRIDGE,
        &[],
        &[
            opt(
                &["--mark-set", "--set-mark"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(
                &["--mark-or"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(
                &["--mark-and"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(
                &["--mark-xor"],
                Hex {
                    max: u32::MAX as u64,
                    digits: 1,
                },
            ),
            opt(&["--mark-target"], Exact(BRIDGE_TARGETS)),
        ],
    ),
    spec(
        Kind::BridgeRedirect,
        "redirect",
        BRIDGE,
        &[],
        &[opt(&["--redirect-target"], Exact(BRIDGE_TARGETS))],
    ),
    spec(
        Kind::BridgeSnat,
        "snat",
        BRIDGE,
        &[],
        &[
            opt(&["--to-src", "--to-source"], Mac),
            opt(&["--snat-arp"], Flag),
            opt(&["--snat-target"], Exact(BRIDGE_TARGETS)),
        ],
    ),
    spec(
        Kind::OpaqueTarget,
        "",
        IP | ARP | BRIDGE,
        &[],
        &[opt(&[""], Words)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_indexes_of_the_table() {
        for (at, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.kind as usize, at, "{}", spec.name);
        }
        assert_eq!(SPECS.len(), Kind::OpaqueTarget as usize + 1);
    }
}
