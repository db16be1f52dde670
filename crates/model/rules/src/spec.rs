//! The matches and targets that Fairpath knows, as tables: for each option its words, the type of
//! its value, and whether it can be negated. Reading and writing are the same code for all.
//!
//! The order of options is that of the canonical form. [`crate::canonical`] has what a table cannot
//! express: defaults, aliases and requirements.

mod tables;
mod u32_test;

pub use tables::SPECS;
pub use u32_test::{Location, U32Test, U32Word};

use crate::tree::Family;

/// The type of an option's value in a family.
pub fn type_in(kind: Kind, option: u8, family: Family) -> Type {
    if kind == Kind::TargetReject && family == Family::Ipv6 {
        return Type::Begun(tables::REJECTS6);
    }
    kind.spec().options[usize::from(option)].ty
}

/// Names of ARP operations.
pub fn arp_opcodes() -> Names {
    tables::ARP_OPCODES
}

/// Names of types of service.
pub fn tos_names() -> Names {
    tables::TOS_NAMES
}

/// A match or a target. The discriminants are indexes into [`SPECS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The frame's own header.
    Ip,
    /// Match or type `arp header`.
    ArpHeader,
    /// Of bridges: header.
    BridgeHeader,
    /// Match or type `addrtype`.
    Addrtype,
    /// Match or type `ah`.
    Ah,
    /// Match or type `ah6`.
    Ah6,
    /// Match or type `comment`.
    Comment,
    /// Match or type `connlimit`.
    Connlimit,
    /// Match or type `connmark`.
    Connmark,
    /// Match or type `conntrack`.
    Conntrack,
    /// Match or type `dccp`.
    Dccp,
    /// Match or type `dscp`.
    Dscp,
    /// Match or type `dst`.
    Dst,
    /// Match or type `ecn`.
    Ecn,
    /// Match or type `esp`.
    Esp,
    /// Match or type `frag`.
    Frag,
    /// Match or type `hashlimit`.
    Hashlimit,
    /// Match or type `hbh`.
    Hbh,
    /// Match or type `hl`.
    Hl,
    /// Match or type `icmp`.
    Icmp,
    /// Match or type `icmp6`.
    Icmp6,
    /// Match or type `iprange`.
    Iprange,
    /// Match or type `ipv6 header`.
    Ipv6Header,
    /// Match or type `length`.
    Length,
    /// Match or type `limit`.
    Limit,
    /// Match or type `mac`.
    Mac,
    /// Match or type `mark`.
    Mark,
    /// Match or type `multiport`.
    Multiport,
    /// Match or type `owner`.
    Owner,
    /// Match or type `physdev`.
    Physdev,
    /// Match or type `pkttype`.
    Pkttype,
    /// Match or type `quota`.
    Quota,
    /// Match or type `recent`.
    Recent,
    /// Match or type `rpfilter`.
    Rpfilter,
    /// Match or type `rt`.
    Rt,
    /// Match or type `sctp`.
    Sctp,
    /// Match or type `set`.
    Set,
    /// Match or type `state`.
    State,
    /// Match or type `statistic`.
    Statistic,
    /// Match or type `tcp`.
    Tcp,
    /// Match or type `tcpmss`.
    Tcpmss,
    /// Match or type `time`.
    Time,
    /// Match or type `tos`.
    Tos,
    /// Match or type `ttl`.
    Ttl,
    /// Match or type `u32`.
    U32,
    /// Match or type `udp`.
    Udp,
    // Bridges.
    /// Match or type `among`.
    Among,
    /// Of bridges: ip.
    BridgeIp,
    /// Of bridges: ip6.
    BridgeIp6,
    /// Of bridges: arp.
    BridgeArp,
    /// Of bridges: limit.
    BridgeLimit,
    /// Of bridges: mark.
    BridgeMark,
    /// Of bridges: pkttype.
    BridgePkttype,
    /// Match or type `dot3`.
    Dot3,
    /// Match or type `stp`.
    Stp,
    /// Match or type `vlan`.
    Vlan,
    /// Watchers of bridges: every frame matches them, and is logged. The rule keeps its target.
    BridgeLog,
    /// Of bridges: nflog.
    BridgeNflog,
    /// A match that Fairpath does not know.
    Opaque,
    // Targets.
    /// Target CLASSIFY.
    TargetClassify,
    /// Target CONNMARK.
    TargetConnmark,
    /// Target CT.
    TargetCt,
    /// Target DNAT.
    TargetDnat,
    /// Target DSCP.
    TargetDscp,
    /// Target HL.
    TargetHl,
    /// Target LOG.
    TargetLog,
    /// Target MARK.
    TargetMark,
    /// Target MASQUERADE.
    TargetMasquerade,
    /// Target NETMAP.
    TargetNetmap,
    /// Target NFLOG.
    TargetNflog,
    /// Target NFQUEUE.
    TargetNfqueue,
    /// Target NOTRACK.
    TargetNotrack,
    /// Target REDIRECT.
    TargetRedirect,
    /// Target REJECT.
    TargetReject,
    /// Target SET.
    TargetSet,
    /// Target SNAT.
    TargetSnat,
    /// Target TCPMSS.
    TargetTcpmss,
    /// Target TOS.
    TargetTos,
    /// Target TPROXY.
    TargetTproxy,
    /// Target TRACE.
    TargetTrace,
    /// Target TTL.
    TargetTtl,
    /// Match or type `arp mangle`.
    ArpMangle,
    /// Of bridges: arpreply.
    BridgeArpreply,
    /// Of bridges: dnat.
    BridgeDnat,
    /// Of bridges: mark target.
    BridgeMarkTarget,
    /// Of bridges: redirect.
    BridgeRedirect,
    /// Of bridges: snat.
    BridgeSnat,
    /// A target that Fairpath does not know.
    OpaqueTarget,
}

impl Kind {
    /// The entry of the table.
    pub fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// True for targets.
    pub fn is_target(self) -> bool {
        self >= Kind::TargetClassify
    }

    /// True for a watcher: a match that is always true and logs.
    pub fn is_watcher(self) -> bool {
        matches!(self, Kind::BridgeLog | Kind::BridgeNflog)
    }

    /// True for the items of the frame's own header, which need no `-m`.
    pub fn is_header(self) -> bool {
        self <= Kind::BridgeHeader
    }
}

/// Families in which a match exists, as bits of [`Family`].
pub const IPV4: u8 = 1;
/// ip6tables.
pub const IPV6: u8 = 2;
/// iptables and ip6tables.
pub const IP: u8 = IPV4 | IPV6;
/// arptables.
pub const ARP: u8 = 4;
/// ebtables.
pub const BRIDGE: u8 = 8;

/// A match or a target.
#[derive(Debug)]
pub struct Spec {
    /// The kind.
    pub kind: Kind,
    /// The word after `-m` or `-j`.
    pub name: &'static str,
    /// Families as bits.
    pub families: u8,
    /// Protocols one of which `-p` must name; empty: any.
    pub protocols: &'static [u8],
    /// The options.
    pub options: &'static [Opt],
}

impl Spec {
    /// The option with this name, canonical or not.
    pub fn option_index(&self, name: &str) -> Option<u8> {
        self.options
            .iter()
            .position(|option| option.names.contains(&name))
            .map(|at| at as u8)
    }

    /// True if the match exists in a family.
    pub fn is_in(&self, family: Family) -> bool {
        self.families & (1 << family as u8) != 0
    }
}

/// Looks up a match by the word after `-m`.
pub fn find_match(name: &[u8], family: Family) -> Option<Kind> {
    find(name, family, false)
}

/// Looks up a target by the word after `-j`.
pub fn find_target(name: &[u8], family: Family) -> Option<Kind> {
    find(name, family, true)
}

fn find(name: &[u8], family: Family, target: bool) -> Option<Kind> {
    SPECS
        .iter()
        .filter(|spec| spec.kind.is_target() == target && !spec.name.is_empty())
        .find(|spec| spec.name.as_bytes() == name && spec.is_in(family))
        .map(|spec| spec.kind)
}

/// An option of a match or a target.
#[derive(Debug)]
pub struct Opt {
    /// The canonical word first.
    pub names: &'static [&'static str],
    /// Type of the value.
    pub ty: Type,
    /// True if `!` is permitted.
    pub not: bool,
    /// Words that stand for this option with a fixed value: `--syn`.
    pub alias: &'static [(&'static str, Alias)],
}

/// The effect of a word that is short for an option.
#[derive(Debug, Clone, Copy)]
pub enum Alias {
    /// The value of the option, as text (two words for two arguments).
    Value(&'static str),
    /// The argument is read by another type; the numbers become value and mask.
    And,
    /// Match or type `or`.
    Or,
    /// Match or type `xor`.
    Xor,
    /// `--set-mark`: all bits of the mask are changed.
    Set,
    /// The same value type under another word with other names.
    Named(&'static [(&'static str, u64)]),
}

/// Names of numbers: choices and sets.
pub type Names = &'static [(&'static str, u64)];

/// The form of an option's value in text.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// No argument.
    Flag,
    /// An address and its mask. `-s`: the mask is always printed, lists give one rule each.
    Net,
    /// The same, without the mask of a whole address.
    PlainNet,
    /// One address as a mask: `--mask 255.255.255.0`.
    Mask,
    /// Decimal up to a limit.
    Dec(u64),
    /// The same, printed in hexadecimal with at least this number of digits.
    Hex {
        /// Maximum.
        max: u64,
        /// Minimum of digits.
        digits: u8,
    },
    /// `a:b`, or one number; decimal.
    Range(u32),
    /// `a-b`, addresses.
    AddressRange,
    /// Ports with service names, `a:b`; the full range means any. Digits as in C.
    Ports,
    /// The same with decimal digits. The end may be before the start, so that none matches.
    DecimalPorts,
    /// Up to 15 ports and ranges, `a,b:c`.
    PortList,
    /// Mask and value of TCP flags: two arguments.
    TcpFlags,
    /// `value/mask` in hexadecimal; a full mask is omitted.
    Mark,
    /// The same, and the mask is always printed.
    XMark,
    /// `value/mask` of a byte.
    Tos,
    /// Match or type `text`.
    Text(usize),
    /// Text that is printed as it is: addresses of NAT.
    Word,
    /// Match or type `rate`.
    Rate,
    /// Packets by time, or bytes (`10kb/s`).
    HashRate,
    /// The burst of one: packets, or bytes.
    HashBurst,
    /// Match or type `mac`.
    Mac,
    /// Match or type `mac mask`.
    MacMask,
    /// Match or type `interface`.
    Interface,
    /// Match or type `protocol`.
    Protocol,
    /// A number of a protocol, printed as number.
    ProtocolNumber,
    /// Type and code of ICMP, by names.
    IcmpType(&'static [(&'static str, u8, u8, u8)]),
    /// A set of names, separated by commas, printed in this order.
    Bits(Names),
    /// Match or type `choice`.
    Choice(Names),
    /// The same, printed as number.
    Named(Names),
    /// The first name that begins so, without regard to case.
    Begun(Names),
    /// Match or type `month days`.
    MonthDays,
    /// Match or type `date`.
    Date,
    /// Match or type `time of day`.
    TimeOfDay,
    /// A share of 2^31.
    Probability,
    /// Match or type `u32`.
    U32,
    /// Users or groups: `a` or `a-b`.
    Users,
    /// Match or type `groups`.
    Groups,
    /// Match or type `set match`.
    SetMatch,
    /// Types of an IPv6 option and lengths, or of SCTP chunks.
    OptionList,
    /// Match or type `chunks`.
    Chunks,
    /// Match or type `address list`.
    AddressList,
    /// A class of traffic control, `0001:0012`.
    Handle,
    /// Match or type `words`.
    Words,
    /// A field of an ARP header with its mask.
    ArpField(crate::arp::Field),
    /// Like [`Type::MacMask`], written as `Unicast` and so on where a name exists.
    MacName,
    /// A choice without regard to case, or a decimal number up to a limit.
    Named10(Names, u64),
    /// The same, written as a number.
    Numbered(Names, u64),
    /// A choice without regard to case, or a number as in C up to a limit.
    NamedAny(Names, u64),
    /// A choice in exactly these letters.
    Exact(Names),
    /// A name that is written without quotes unless it needs them.
    Name(usize),
    /// An address of NAT with ports, written as it is.
    NatAddress,
    /// Ports of NAT: one, or a range with a hyphen.
    NatPorts,
    /// A choice without regard to case, or a hexadecimal number up to a limit.
    Named16(Names, u64),
    /// Text of a bridge's watcher: always in quotes, and refused if it is longer.
    Quoted(usize),
    /// Hexadecimal with or without `0x`, or the name of an ethertype.
    Hex16 {
        /// Maximum.
        max: u64,
        /// Minimum of digits.
        digits: u8,
        /// The form of the value.
        form: HexForm,
    },
    /// A number, written as `0x0A`.
    HexUpper(u64),
    /// IPv6 addresses in a bridge's rule.
    Net6,
    /// A protocol of IP in a bridge's rule.
    IpProtocol,
    /// Ranges of types and codes: two numbers, `first | last << 8` each.
    IcmpRange(&'static [(&'static str, u8, u8, u8)]),
    /// A name or a range of IGMP types.
    IgmpRange(Names),
    /// A mark with its mask, or `/mask` (a number): any of these bits.
    MarkOrBits,
    /// A range whose end is not before its start.
    OrderedRange(u32),
    /// Link-layer addresses with IPv4 addresses, sorted: `mac << 33 | has address << 32 | address`.
    Among,
}

/// The letters of [`Type::Hex16`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HexForm {
    /// `0xab`.
    Lower,
    /// The same, and names of ethertypes are read.
    LowerNames,
    /// `00AB`, and names of ethertypes are read.
    BareNames,
}

const fn opt(names: &'static [&'static str], ty: Type) -> Opt {
    Opt {
        names,
        ty,
        not: false,
        alias: &[],
    }
}

impl Opt {
    const fn not(self) -> Self {
        Self { not: true, ..self }
    }

    const fn alias(self, alias: &'static [(&'static str, Alias)]) -> Self {
        Self { alias, ..self }
    }
}
