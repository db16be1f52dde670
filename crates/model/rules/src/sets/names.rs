//! Names of protocols (netbase of Debian 12) and of ICMP types (ipset 7.17): the tool prints them.

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const ICMPV6: u8 = 58;

/// True for TCP, UDP, SCTP and UDP-Lite.
pub(super) fn has_ports(proto: u8) -> bool {
    matches!(proto, TCP | 17 | 132 | 136)
}

/// Number, name, and alias of /etc/protocols.
const PROTOCOLS: &[(u8, &str, &str)] = &[
    (1, "icmp", "ICMP"),
    (2, "igmp", "IGMP"),
    (3, "ggp", "GGP"),
    (4, "ipencap", "IP-ENCAP"),
    (5, "st", "ST"),
    (6, "tcp", "TCP"),
    (8, "egp", "EGP"),
    (9, "igp", "IGP"),
    (12, "pup", "PUP"),
    (17, "udp", "UDP"),
    (20, "hmp", "HMP"),
    (22, "xns-idp", "XNS-IDP"),
    (27, "rdp", "RDP"),
    (29, "iso-tp4", "ISO-TP4"),
    (33, "dccp", "DCCP"),
    (36, "xtp", "XTP"),
    (37, "ddp", "DDP"),
    (38, "idpr-cmtp", "IDPR-CMTP"),
    (41, "ipv6", "IPv6"),
    (43, "ipv6-route", "IPv6-Route"),
    (44, "ipv6-frag", "IPv6-Frag"),
    (45, "idrp", "IDRP"),
    (46, "rsvp", "RSVP"),
    (47, "gre", "GRE"),
    (50, "esp", "IPSEC-ESP"),
    (51, "ah", "IPSEC-AH"),
    (57, "skip", "SKIP"),
    (58, "ipv6-icmp", "IPv6-ICMP"),
    (59, "ipv6-nonxt", "IPv6-NoNxt"),
    (60, "ipv6-opts", "IPv6-Opts"),
    (73, "rspf", "RSPF"),
    (81, "vmtp", "VMTP"),
    (88, "eigrp", "EIGRP"),
    (89, "ospf", "OSPFIGP"),
    (93, "ax.25", "AX.25"),
    (94, "ipip", "IPIP"),
    (97, "etherip", "ETHERIP"),
    (98, "encap", "ENCAP"),
    (103, "pim", "PIM"),
    (108, "ipcomp", "IPCOMP"),
    (112, "vrrp", "VRRP"),
    (115, "l2tp", "L2TP"),
    (124, "isis", "ISIS"),
    (132, "sctp", "SCTP"),
    (133, "fc", "FC"),
    (135, "mobility-header", "Mobility-Header"),
    (136, "udplite", "UDPLite"),
    (137, "mpls-in-ip", "MPLS-in-IP"),
    (138, "manet", "manet"),
    (139, "hip", "HIP"),
    (140, "shim6", "Shim6"),
    (141, "wesp", "WESP"),
    (142, "rohc", "ROHC"),
    (143, "ethernet", "Ethernet"),
];

/// The number of a protocol. `icmpv6` is ipset's own name of 58.
pub(super) fn protocol(name: &str) -> Option<u8> {
    if name.eq_ignore_ascii_case("icmpv6") {
        return Some(ICMPV6);
    }
    let is_it = |row: &&(u8, &str, &str)| row.1 == name || row.2 == name;
    PROTOCOLS.iter().find(is_it).map(|row| row.0)
}

pub(super) fn protocol_name(proto: u8) -> Option<&'static str> {
    let found = PROTOCOLS.iter().find(|row| row.0 == proto);
    found.map(|row| row.1)
}

/// Name, type and code; the first name of a pair is the one that is printed.
type IcmpNames = &'static [(&'static str, u8, u8)];

const ICMP_NAMES: IcmpNames = &[
    ("echo-reply", 0, 0),
    ("pong", 0, 0),
    ("network-unreachable", 3, 0),
    ("host-unreachable", 3, 1),
    ("protocol-unreachable", 3, 2),
    ("port-unreachable", 3, 3),
    ("fragmentation-needed", 3, 4),
    ("source-route-failed", 3, 5),
    ("network-unknown", 3, 6),
    ("host-unknown", 3, 7),
    ("network-prohibited", 3, 9),
    ("host-prohibited", 3, 10),
    ("TOS-network-unreachable", 3, 11),
    ("TOS-host-unreachable", 3, 12),
    ("communication-prohibited", 3, 13),
    ("host-precedence-violation", 3, 14),
    ("precedence-cutoff", 3, 15),
    ("source-quench", 4, 0),
    ("network-redirect", 5, 0),
    ("host-redirect", 5, 1),
    ("TOS-network-redirect", 5, 2),
    ("TOS-host-redirect", 5, 3),
    ("echo-request", 8, 0),
    ("ping", 8, 0),
    ("router-advertisement", 9, 0),
    ("router-solicitation", 10, 0),
    ("ttl-zero-during-transit", 11, 0),
    ("ttl-zero-during-reassembly", 11, 1),
    ("ip-header-bad", 12, 0),
    ("required-option-missing", 12, 1),
    ("timestamp-request", 13, 0),
    ("timestamp-reply", 14, 0),
    ("address-mask-request", 17, 0),
    ("address-mask-reply", 18, 0),
];

const ICMPV6_NAMES: IcmpNames = &[
    ("no-route", 1, 0),
    ("communication-prohibited", 1, 1),
    ("address-unreachable", 1, 3),
    ("port-unreachable", 1, 4),
    ("packet-too-big", 2, 0),
    ("ttl-zero-during-transit", 3, 0),
    ("ttl-zero-during-reassembly", 3, 1),
    ("bad-header", 4, 0),
    ("unknown-header-type", 4, 1),
    ("unknown-option", 4, 2),
    ("echo-request", 128, 0),
    ("ping", 128, 0),
    ("echo-reply", 129, 0),
    ("pong", 129, 0),
    ("router-solicitation", 133, 0),
    ("router-advertisement", 134, 0),
    ("neighbour-solicitation", 135, 0),
    ("neigbour-solicitation", 135, 0),
    ("neighbour-advertisement", 136, 0),
    ("neigbour-advertisement", 136, 0),
    ("redirect", 137, 0),
];

fn icmp_names(proto: u8) -> IcmpNames {
    match proto {
        ICMPV6 => ICMPV6_NAMES,
        _ => ICMP_NAMES,
    }
}

/// Type and code (`type << 8 | code`) of a name of `proto`, which may be abbreviated: the first wins.
pub(super) fn icmp(proto: u8, name: &str) -> Option<u16> {
    let is_it = |row: &&(&str, u8, u8)| {
        let start = row.0.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let row = icmp_names(proto).iter().find(is_it)?;
    Some(u16::from_be_bytes([row.1, row.2]))
}

pub(super) fn icmp_name(proto: u8, port: u16) -> Option<&'static str> {
    let [kind, code] = port.to_be_bytes();
    let mut rows = icmp_names(proto).iter();
    rows.find(|row| (row.1, row.2) == (kind, code))
        .map(|row| row.0)
}
