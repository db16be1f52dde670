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
        return Type::Choice(tables::REJECTS6);
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
    ArpHeader,
    BridgeHeader,
    Addrtype,
    Ah,
    Ah6,
    Comment,
    Connlimit,
    Connmark,
    Conntrack,
    Dccp,
    Dscp,
    Dst,
    Ecn,
    Esp,
    Frag,
    Hashlimit,
    Hbh,
    Hl,
    Icmp,
    Icmp6,
    Iprange,
    Ipv6Header,
    Length,
    Limit,
    Mac,
    Mark,
    Multiport,
    Owner,
    Physdev,
    Pkttype,
    Quota,
    Recent,
    Rpfilter,
    Rt,
    Sctp,
    Set,
    State,
    Statistic,
    Tcp,
    Tcpmss,
    Time,
    Tos,
    Ttl,
    U32,
    Udp,
    // Bridges.
    Among,
    BridgeIp,
    BridgeIp6,
    BridgeArp,
    BridgeLimit,
    BridgeMark,
    BridgePkttype,
    Dot3,
    Stp,
    Vlan,
    /// A match that Fairpath does not know.
    Opaque,
    // Targets.
    TargetClassify,
    TargetConnmark,
    TargetCt,
    TargetDnat,
    TargetDscp,
    TargetHl,
    TargetLog,
    TargetMark,
    TargetMasquerade,
    TargetNetmap,
    TargetNflog,
    TargetNfqueue,
    TargetNotrack,
    TargetRedirect,
    TargetReject,
    TargetSet,
    TargetSnat,
    TargetTcpmss,
    TargetTos,
    TargetTproxy,
    TargetTrace,
    TargetTtl,
    ArpMangle,
    BridgeLog,
    BridgeNflog,
    BridgeArpreply,
    BridgeDnat,
    BridgeMarkTarget,
    BridgeRedirect,
    BridgeSnat,
    /// A target that Fairpath does not know.
    OpaqueTarget,
}

impl Kind {
    pub fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    pub fn is_target(self) -> bool {
        self >= Kind::TargetClassify
    }

    /// True for the items of the frame's own header, which need no `-m`.
    pub fn is_header(self) -> bool {
        self <= Kind::BridgeHeader
    }
}

/// Families in which a match exists, as bits of [`Family`].
pub const IPV4: u8 = 1;
pub const IPV6: u8 = 2;
pub const IP: u8 = IPV4 | IPV6;
pub const ARP: u8 = 4;
pub const BRIDGE: u8 = 8;

/// A match or a target.
#[derive(Debug)]
pub struct Spec {
    pub kind: Kind,
    /// The word after `-m` or `-j`.
    pub name: &'static str,
    pub families: u8,
    /// Protocols one of which `-p` must name; empty: any.
    pub protocols: &'static [u8],
    pub options: &'static [Opt],
}

impl Spec {
    pub fn option_index(&self, name: &str) -> Option<u8> {
        self.options
            .iter()
            .position(|option| option.names[0] == name)
            .map(|at| at as u8)
    }

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
    Or,
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
        max: u64,
        digits: u8,
    },
    /// `a:b`, or one number; decimal.
    Range(u32),
    /// `a-b`, addresses.
    AddressRange,
    /// Ports with service names, `a:b`; the full range means any.
    Ports,
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
    Text(usize),
    /// Text that is printed as it is: addresses of NAT.
    Word,
    Rate,
    /// Packets by time, or bytes (`10kb/s`).
    HashRate,
    Mac,
    MacMask,
    Interface,
    Protocol,
    /// A number of a protocol, printed as number.
    ProtocolNumber,
    /// Type and code of ICMP, by names.
    IcmpType(&'static [(&'static str, u8, u8, u8)]),
    /// A set of names, separated by commas, printed in this order.
    Bits(Names),
    Choice(Names),
    /// The same, printed as number.
    Named(Names),
    MonthDays,
    Date,
    TimeOfDay,
    /// A share of 2^31.
    Probability,
    U32,
    /// Users or groups: `a` or `a-b`.
    Users,
    Groups,
    SetMatch,
    /// Types of an IPv6 option and lengths, or of SCTP chunks.
    OptionList,
    Chunks,
    AddressList,
    /// A class of traffic control, `0001:0012`.
    Handle,
    Words,
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
