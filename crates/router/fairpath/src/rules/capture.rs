//! Packets of a capture, with facts from the command line.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail};
use fairpath_rules::{Connection, Facts, Family, Hook, Owner, Packet};
use fairpath_wire::capture::{LinkType, Reader};

/// Facts that a packet's bytes do not have. Without them, an answer that depends on one is unknown.
#[derive(Clone, Default, clap::Args)]
pub struct FactArgs {
    /// Hook at which rules run
    #[arg(long, value_enum, value_name = "HOOK")]
    pub hook: Option<HookArg>,
    /// Input interface
    #[arg(short, long, value_name = "NAME")]
    pub in_interface: Option<String>,
    /// Output interface
    #[arg(short, long, value_name = "NAME")]
    pub out_interface: Option<String>,
    /// Port of a bridge at which the packet came; "" if none
    #[arg(long, value_name = "NAME", requires = "physdev_out")]
    pub physdev_in: Option<String>,
    /// Port of a bridge at which it leaves; "" if none
    #[arg(long, value_name = "NAME", requires = "physdev_in")]
    pub physdev_out: Option<String>,
    /// Bridges: the bridge of the input port; "" if none
    #[arg(long, value_name = "NAME", requires = "logical_out")]
    pub logical_in: Option<String>,
    /// Bridges: the bridge of the output port; "" if none
    #[arg(long, value_name = "NAME", requires = "logical_in")]
    pub logical_out: Option<String>,
    /// State of the connection: NEW, ESTABLISHED, RELATED, INVALID or UNTRACKED; with ,SNAT or ,DNAT if
    /// it is translated
    #[arg(long, value_name = "STATE")]
    pub ctstate: Option<String>,
    /// Direction of the packet in its connection: ORIGINAL or REPLY (of NEW always ORIGINAL)
    #[arg(long, value_name = "DIRECTION", requires = "ctstate")]
    pub ctdir: Option<String>,
    /// Status of the connection: NONE, or EXPECTED, SEEN_REPLY, ASSURED, CONFIRMED with commas
    #[arg(long, value_name = "LIST", requires = "ctstate")]
    pub ctstatus: Option<String>,
    /// Connections that connlimit counts, this one included (1 to 65535). Connection tracking can then
    /// read the packet
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: Option<u16>,
    /// Packet mark (default: 0)
    #[arg(long, value_name = "MARK", value_parser = number)]
    pub mark: Option<u32>,
    /// Mark of the connection
    #[arg(long, value_name = "MARK", value_parser = number, requires = "ctstate")]
    pub ctmark: Option<u32>,
    /// Type of the source address, as addrtype names it (LOCAL, UNICAST ...)
    #[arg(long, value_name = "TYPE")]
    pub src_type: Option<String>,
    /// Type of the destination address
    #[arg(long, value_name = "TYPE")]
    pub dst_type: Option<String>,
    /// Packet type: unicast, broadcast or multicast
    #[arg(long, value_name = "TYPE")]
    pub pkt_type: Option<String>,
    /// User of the local socket
    #[arg(
        long,
        value_name = "UID",
        requires = "gid_owner",
        conflicts_with = "no_socket"
    )]
    pub uid_owner: Option<u32>,
    /// Group of the local socket
    #[arg(long, value_name = "GID", requires = "uid_owner")]
    pub gid_owner: Option<u32>,
    /// The packet has no local socket
    #[arg(long)]
    pub no_socket: bool,
    /// True if the route back leads through the input interface
    #[arg(long, value_name = "BOOL")]
    pub reverse_path: Option<bool>,
    /// MTU of the path for TCPMSS: the smaller one of both directions
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65575))]
    pub path_mtu: Option<u32>,
    /// Time for matches of time, seconds since 1970. The time zone of the kernel is taken for UTC
    #[arg(long, value_name = "SECONDS")]
    pub date: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum HookArg {
    /// Before routing
    Prerouting,
    /// To this host
    Input,
    /// Through this host
    Forward,
    /// From this host
    Output,
    /// After routing
    Postrouting,
    /// Bridges: before the bridge decides
    Brouting,
}

impl HookArg {
    fn hook(self) -> Hook {
        match self {
            HookArg::Prerouting => Hook::Prerouting,
            HookArg::Input => Hook::Input,
            HookArg::Forward => Hook::Forward,
            HookArg::Output => Hook::Output,
            HookArg::Postrouting => Hook::Postrouting,
            HookArg::Brouting => Hook::Brouting,
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    fairpath_rules::value::any_number(text)
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| format!("\"{text}\" is not a number of 32 bits"))
}

const STATES: [&str; 7] = [
    "INVALID",
    "NEW",
    "RELATED",
    "ESTABLISHED",
    "UNTRACKED",
    "SNAT",
    "DNAT",
];
/// Of these states, those that say whether the packet has a connection.
const OWN_STATES: u8 = 31;
const INVALID: u8 = 1;
const NEW: u8 = 2;
const ESTABLISHED: u8 = 8;
const UNTRACKED: u8 = 16;
const DIRECTIONS: [&str; 2] = ["ORIGINAL", "REPLY"];
const STATUSES: [&str; 4] = ["EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"];
const EXPECTED: u8 = 1;
const SEEN_REPLY: u8 = 2;
/// SEEN_REPLY and ASSURED.
const ANSWERED: u8 = 6;
const PACKET_TYPES: [&str; 3] = ["unicast", "broadcast", "multicast"];
const TYPES: [&str; 9] = [
    "UNSPEC",
    "UNICAST",
    "LOCAL",
    "BROADCAST",
    "ANYCAST",
    "MULTICAST",
    "BLACKHOLE",
    "UNREACHABLE",
    "PROHIBIT",
];

fn position(text: &str, names: &[&str], option: &str) -> anyhow::Result<usize> {
    names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
        .with_context(|| format!("{option} \"{text}\" is not one of {}", names.join(", ")))
}

/// Names with commas as bits.
fn bits(text: &str, names: &[&str], option: &str) -> anyhow::Result<u8> {
    text.split(',').try_fold(0, |bits, name| {
        Ok(bits | 1 << position(name, names, option)?)
    })
}

impl FactArgs {
    /// The hook: that of the arguments, or by the interfaces.
    pub fn hook(&self, family: Family) -> Hook {
        match (self.hook, &self.in_interface, &self.out_interface) {
            (Some(hook), ..) => hook.hook(),
            (None, Some(_), Some(_)) => Hook::Forward,
            (None, None, Some(_)) => Hook::Output,
            _ if family == Family::Bridge => Hook::Forward,
            _ => Hook::Input,
        }
    }

    /// The connection of a packet in this state.
    fn connection(&self, text: &str) -> anyhow::Result<Connection> {
        let state = bits(text, &STATES, "--ctstate")?;
        let own = state & OWN_STATES;
        let has_none = own & (INVALID | UNTRACKED) != 0;
        if own.count_ones() != 1 || has_none && state != own {
            bail!(
                "--ctstate {text}: give one of {}; with a comma, SNAT or DNAT to one that has a connection",
                STATES[..5].join(", ")
            );
        }
        if has_none && (self.ctdir.is_some() || self.ctstatus.is_some() || self.ctmark.is_some()) {
            bail!(
                "--ctstate {text}: the packet has no connection; remove --ctdir, --ctstatus and --ctmark"
            );
        }
        let direction = match &self.ctdir {
            Some(text) => Some(position(text, &DIRECTIONS, "--ctdir")? == 1),
            None => (own == NEW || has_none).then_some(false),
        };
        if own == NEW && direction == Some(true) {
            bail!("--ctdir REPLY: no reply is NEW; remove the option, or give another --ctstate");
        }
        let status = match self.ctstatus.as_deref() {
            Some(none) if none.eq_ignore_ascii_case("NONE") => Some(0),
            Some(list) => Some(bits(list, &STATUSES, "--ctstatus")?),
            None => has_none.then_some(0),
        };
        match (own, status) {
            (NEW, Some(status)) if status & ANSWERED != 0 => {
                bail!("--ctstatus: a connection is not NEW after an answer; give ESTABLISHED")
            }
            (NEW, Some(status)) if status & EXPECTED != 0 => {
                bail!("--ctstatus EXPECTED: an expected connection is RELATED at first")
            }
            (ESTABLISHED, Some(status)) if status & SEEN_REPLY == 0 => {
                bail!("--ctstatus: an ESTABLISHED connection has SEEN_REPLY; add it")
            }
            _ => {}
        }
        Ok(Connection {
            state,
            status,
            mark: self.ctmark.or(has_none.then_some(0)),
            reply: direction,
        })
    }

    /// The facts of a packet at a hook.
    ///
    /// # Errors
    /// A word is not known, or packets have no such interface at the hook.
    pub fn facts(&self, hook: Hook) -> anyhow::Result<Facts> {
        for (option, name, has) in [
            ("--in-interface", &self.in_interface, hook.has_input()),
            ("--out-interface", &self.out_interface, hook.has_output()),
            ("--physdev-in", &self.physdev_in, true),
            ("--physdev-out", &self.physdev_out, true),
            ("--logical-in", &self.logical_in, true),
            ("--logical-out", &self.logical_out, true),
        ] {
            let Some(name) = name else { continue };
            if name.len() > MAX_INTERFACE {
                bail!(
                    "{option} {name}: an interface has at most {MAX_INTERFACE} bytes in its name"
                );
            }
            if !has {
                bail!(
                    "{option} {name}: packets at {} have no such interface; remove the option, or give another --hook",
                    hook.chain()
                );
            }
        }
        let interface = |name: &Option<String>, has: bool| match name {
            Some(name) => Some(name.as_bytes().into()),
            None if has => None,
            None => Some(Box::from(&b""[..])),
        };
        let device = |name: &Option<String>| name.as_ref().map(|name| name.as_bytes().into());
        let kind = |text: &Option<String>, option| -> anyhow::Result<Option<u16>> {
            text.as_ref()
                .map(|text| position(text, &TYPES, option).map(|bit| 1 << bit))
                .transpose()
        };
        let connection = match &self.ctstate {
            None => None,
            Some(state) => Some(self.connection(state)?),
        };
        let packet_type = match &self.pkt_type {
            None => None,
            Some(kind) => Some(position(kind, &PACKET_TYPES, "--pkt-type")? as u8),
        };
        let owner = match (self.uid_owner.zip(self.gid_owner), self.no_socket) {
            (Some((user, group)), _) => Some(Some(Owner { user, group })),
            (None, true) => Some(None),
            (None, false) => None,
        };
        Ok(Facts {
            input: interface(&self.in_interface, hook.has_input()),
            output: interface(&self.out_interface, hook.has_output()),
            physical_input: device(&self.physdev_in),
            physical_output: device(&self.physdev_out),
            logical_input: device(&self.logical_in),
            logical_output: device(&self.logical_out),
            mark: self.mark.unwrap_or(0),
            connection,
            connections: self.connections,
            source_type: kind(&self.src_type, "--src-type")?,
            destination_type: kind(&self.dst_type, "--dst-type")?,
            packet_type,
            owner,
            no_link: false,
            reverse_path: self.reverse_path,
            path_mtu: self.path_mtu,
            now: 0,
            date: self.date.map(|date| (date, 0)),
            random: None,
        })
    }
}

/// Most bytes of a name of an interface.
const MAX_INTERFACE: usize = 15;
/// Of an Ethernet header.
const LINK_BYTES: usize = 14;

/// The offset of the network header and the family, of a frame.
fn network(link: LinkType, data: &[u8]) -> Option<(usize, Family)> {
    let version = |at: usize| match data.get(at)? >> 4 {
        4 => Some((at, Family::Ipv4)),
        6 => Some((at, Family::Ipv6)),
        _ => None,
    };
    let ethertype = |mut at: usize| loop {
        let kind = u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]);
        match kind {
            0x0800 => return Some((at + 2, Family::Ipv4)),
            0x86dd => return Some((at + 2, Family::Ipv6)),
            0x0806 => return Some((at + 2, Family::Arp)),
            0x8100 | 0x88a8 => at += 4,
            _ => return None,
        }
    };
    match link.canonical() {
        LinkType::ETHERNET => ethertype(12),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => version(0),
        LinkType::NULL | LinkType::LOOP => version(4),
        LinkType::LINUX_SLL => ethertype(14),
        LinkType::LINUX_SLL2 => version(20),
        _ => None,
    }
}

/// Packets of a capture.
#[derive(Debug, Default)]
pub struct Seen {
    /// All packets of the file.
    pub packets: u64,
    /// Packets of another family, or without a network header that is known.
    pub skipped: u64,
}

/// Calls `each` with the packets of a family in a capture; it returns false to end.
///
/// # Errors
/// The file cannot be read, or is no capture.
pub fn packets(
    path: &Path,
    family: Family,
    facts: &Facts,
    each: &mut dyn FnMut(u64, &Packet) -> bool,
) -> anyhow::Result<Seen> {
    let mut reader: Reader<Box<dyn std::io::Read>> = if path == Path::new("-") {
        Reader::new(Box::new(std::io::stdin()) as Box<dyn std::io::Read>)
    } else {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        Reader::new(Box::new(file) as Box<dyn std::io::Read>)
    }
    .with_context(|| format!("read {}", path.display()))?;
    let mut seen = Seen::default();
    let mut first = None;
    while let Some(packet) = reader
        .next()
        .with_context(|| format!("read {}", path.display()))?
    {
        seen.packets += 1;
        let found = network(packet.link, packet.data);
        let ethernet = packet.link.canonical() == LinkType::ETHERNET;
        let start = match found {
            // Rules of bridges see all frames.
            _ if family == Family::Bridge => {
                (ethernet && packet.data.len() >= LINK_BYTES).then_some(LINK_BYTES)
            }
            Some((at, of)) if of == family => Some(at),
            _ => None,
        };
        let Some(start) = start else {
            seen.skipped += 1;
            continue;
        };
        let begin = *first.get_or_insert(packet.time_ns);
        let mut facts = facts.clone();
        facts.now = packet.time_ns.saturating_sub(begin);
        facts.date = facts.date.or(Some((packet.time_ns / 1_000_000_000, 0)));
        // `lo` is no Ethernet device, though its captures have such headers, of zeros.
        let is_lo = match facts.input.as_deref() {
            Some(name) => name == b"lo",
            None => packet.data.starts_with(&[0; 12]),
        };
        let has_link = ethernet && (!is_lo || family == Family::Bridge);
        let (bytes, network) = match has_link {
            true => (packet.data, start),
            false => (&packet.data[start..], 0),
        };
        let of_capture = Packet {
            family,
            bytes,
            network,
            length: (packet.wire_len as usize).saturating_sub(start),
            facts,
        };
        if !each(packet.number, &of_capture) {
            break;
        }
    }
    if seen.packets == 0 {
        bail!("{} has no packets", path.display());
    }
    Ok(seen)
}

/// Why the kernel drops a received packet before any rule (`ip_rcv`, `ip6_rcv`, `arp_rcv`). `None`: it
/// does not, or the bytes that show it were not captured.
pub fn malformed(packet: &Packet, hook: Hook) -> Option<&'static str> {
    let bytes = packet.network_bytes();
    let word = |at: usize| usize::from(u16::from_be_bytes(part(bytes, at)));
    let needed = match packet.family {
        Family::Ipv4 => 20,
        Family::Ipv6 => 40,
        Family::Arp => return wrong_arp(packet, hook),
        Family::Bridge => return None,
    };
    if !hook.has_input() || bytes.len() < needed {
        return None;
    }
    if packet.family == Family::Ipv6 {
        // A jumbogram has its length in an option.
        return match (bytes[0] >> 4, word(4)) {
            (6, payload) if payload + needed > packet.length => {
                Some("it is shorter than its length")
            }
            (6, _) => wrong_address(packet, part(bytes, 8), part(bytes, 24))
                .or_else(|| wrong_options(packet)),
            _ => Some("its version is not 6"),
        };
    }
    let header = usize::from(bytes[0] & 15) * 4;
    let total = match word(2) {
        // Linux writes 0 for more than 65,535 bytes.
        0 if packet.length > 0xffff => packet.length,
        total => total,
    };
    let sum: usize = (0..header).step_by(2).map(word).sum();
    match bytes[0] >> 4 {
        4 if header < needed => Some("its header has less than 20 bytes"),
        4 if total > packet.length => Some("it is shorter than its length"),
        4 if total < header => Some("it is shorter than its header"),
        4 if bytes.len() >= header && (sum & 0xffff) + (sum >> 16) != 0xffff => {
            Some("the checksum of its header is wrong")
        }
        4 => None,
        _ => Some("its version is not 4"),
    }
}

/// Only ARP of Ethernet and IPv4 is received. Of a bridge, all kinds meet FORWARD.
fn wrong_arp(packet: &Packet, hook: Hook) -> Option<&'static str> {
    let bytes = packet.network_bytes();
    if hook != Hook::Input {
        return None;
    }
    match bytes.get(4..6) {
        Some([6, 4]) if packet.length < 28 => Some("it is shorter than its addresses"),
        Some([6, 4]) | None => None,
        Some(_) => Some("its addresses are not of Ethernet and IPv4"),
    }
}

/// Addresses of IPv6 with which no packet is received (`ip6_rcv_core`). `lo` receives more.
fn wrong_address(packet: &Packet, from: [u8; 16], to: [u8; 16]) -> Option<&'static str> {
    let is_lo = packet.facts.input.as_deref() == Some(b"lo");
    let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
    match to {
        _ if from[0] == 0xff => Some("its source is multicast"),
        [0xff, scope, ..] if scope & 15 == 0 => Some("its destination has scope 0"),
        // Only the input is not known: it may be `lo`.
        _ if is_lo || packet.facts.input.is_none() => None,
        [0xff, scope, ..] if scope & 15 == 1 => Some("its destination is of one interface"),
        _ if [from, to].contains(&loopback) => Some("it has an address of loopback"),
        _ => None,
    }
}

/// Options of the first hop-by-hop header that end the packet (`ip6_parse_tlv`).
fn wrong_options(packet: &Packet) -> Option<&'static str> {
    const HEADER: usize = 40;
    /// `net.ipv6.max_hbh_opts_number`.
    const MOST_OPTIONS: usize = 8;
    const MOST_PADDING: usize = 7;
    let bytes = packet.network_bytes();
    if bytes[6] != 0 {
        return None;
    }
    // Bytes behind the payload are removed before.
    let length = match usize::from(u16::from_be_bytes(part(bytes, 4))) {
        0 => packet.length,
        payload => HEADER + payload,
    };
    let cut = Some("its hop-by-hop options are cut");
    if length < HEADER + 8 {
        return cut;
    }
    let size = (usize::from(*bytes.get(HEADER + 1)?) + 1) * 8;
    if length < HEADER + size {
        return cut;
    }
    let header = bytes.get(HEADER..HEADER + size)?;
    let (mut at, mut padding, mut options) = (2, 0, 0);
    while let [kind, rest @ ..] = &header[at..] {
        let (value, bytes) = match (kind, rest) {
            (0, _) => (&[][..], 1),
            (_, [length, rest @ ..]) => match rest.get(..usize::from(*length)) {
                Some(value) => (value, 2 + value.len()),
                None => return cut,
            },
            _ => return cut,
        };
        if *kind < 2 {
            padding += bytes;
        } else {
            (padding, options) = (0, options + 1);
        }
        if padding > MOST_PADDING || *kind == 1 && value.iter().any(|byte| *byte != 0) {
            return Some("its hop-by-hop padding is wrong");
        }
        if options > MOST_OPTIONS {
            return Some("it has more than 8 hop-by-hop options");
        }
        if is_dropped(*kind, value, at, packet) {
            return Some("a hop-by-hop option is wrong, or unknown and requires it");
        }
        at += bytes;
    }
    None
}

/// True if an option at this offset of its header ends the packet.
fn is_dropped(kind: u8, value: &[u8], at: usize, packet: &Packet) -> bool {
    match kind {
        0 | 1 => false,
        // Router alert.
        5 => value.len() != 2,
        // CALIPSO: accepted only from a domain that the host has.
        7 => true,
        // IOAM.
        0x31 => !at.is_multiple_of(4),
        // Jumbo: only of a packet that needs it.
        0xc2 => {
            let length = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            let is_aligned = value.len() == 4 && at & 3 == 2;
            let rest = packet.length.saturating_sub(40);
            let is_long = length.is_some_and(|length| length > 0xffff && length as usize <= rest);
            let payload: [u8; 2] = part(packet.network_bytes(), 4);
            !is_aligned || !is_long || payload != [0; 2]
        }
        unknown => unknown >> 6 != 0,
    }
}

/// A packet in words, with the facts that are known.
pub fn describe(packet: &Packet) -> String {
    let bytes = packet.network_bytes();
    let mut out = match packet.family {
        Family::Ipv4 | Family::Ipv6 => ip_text(bytes),
        Family::Arp => arp_text(bytes),
        Family::Bridge => frame_text(packet.bytes),
    };
    let facts = &packet.facts;
    for (word, name) in [
        ("in", &facts.input),
        ("out", &facts.output),
        ("logical in", &facts.logical_input),
        ("logical out", &facts.logical_output),
    ] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            let _ = write!(out, ", {word} {}", String::from_utf8_lossy(name));
        }
    }
    let named = |bits: u16, names: &[&str]| {
        let set = names
            .iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 != 0);
        set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    };
    if let Some(connection) = facts.connection.filter(|connection| connection.state != 0) {
        let _ = write!(out, ", {}", named(connection.state.into(), &STATES));
    }
    for (word, kind) in [
        ("source", facts.source_type),
        ("destination", facts.destination_type),
    ] {
        if let Some(bits) = kind {
            let _ = write!(out, ", {word} {}", named(bits, &TYPES));
        }
    }
    if let Some(kind) = facts
        .packet_type
        .and_then(|kind| PACKET_TYPES.get(usize::from(kind)))
    {
        let _ = write!(out, ", {kind}");
    }
    if facts.mark != 0 {
        let _ = write!(out, ", mark 0x{:x}", facts.mark);
    }
    out
}

/// The bytes from `at` on as an array; zeros where the packet ends.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|offset| bytes.get(at + offset).copied().unwrap_or(0))
}

fn ip_text(bytes: &[u8]) -> String {
    let v6 = part::<1>(bytes, 0)[0] >> 4 == 6;
    let (protocol, source, destination, transport) = if v6 {
        let address = |at| std::net::Ipv6Addr::from(part::<16>(bytes, at)).to_string();
        (part::<1>(bytes, 6)[0], address(8), address(24), 40)
    } else {
        let address = |at| std::net::Ipv4Addr::from(part::<4>(bytes, at)).to_string();
        let header = usize::from(part::<1>(bytes, 0)[0] & 15) * 4;
        (part::<1>(bytes, 9)[0], address(12), address(16), header)
    };
    let name = fairpath_rules::protocol_name(protocol)
        .map_or_else(|| format!("protocol {protocol}"), str::to_owned);
    let [from, to] = [0, 2].map(|at| u16::from_be_bytes(part(bytes, transport + at)));
    match protocol {
        6 | 17 | 33 | 132 | 136 if bytes.len() >= transport + 4 => {
            let [source, destination] = [source, destination].map(|address| match v6 {
                true => format!("[{address}]"),
                false => address,
            });
            format!("{name} {source}:{from} to {destination}:{to}")
        }
        1 | 58 if bytes.len() > transport + 1 => {
            format!(
                "{name} type {} code {} {source} to {destination}",
                from >> 8,
                from & 255
            )
        }
        _ => format!("{name} {source} to {destination}"),
    }
}

fn mac_text(bytes: &[u8], at: usize) -> String {
    part::<6>(bytes, at)
        .map(|byte| format!("{byte:02x}"))
        .join(":")
}

/// ARP of Ethernet and IPv4, and its fields that are unusual.
fn arp_text(bytes: &[u8]) -> String {
    let [hardware, protocol, operation] = [0, 2, 6].map(|at| u16::from_be_bytes(part(bytes, at)));
    let address = |at| std::net::Ipv4Addr::from(part::<4>(bytes, at));
    let operation = match operation {
        1 => "request".to_owned(),
        2 => "reply".to_owned(),
        other => format!("operation {other}"),
    };
    let mut out = format!(
        "ARP {operation} {} ({}) to {} ({})",
        address(14),
        mac_text(bytes, 8),
        address(24),
        mac_text(bytes, 18)
    );
    let [length] = part(bytes, 4);
    for (name, number, usual) in [
        ("hardware type", hardware, 1),
        ("protocol type", protocol, 0x0800),
        ("hardware length", u16::from(length), 6),
    ] {
        if number != usual {
            let _ = write!(out, ", {name} 0x{number:x}");
        }
    }
    out
}

fn frame_text(bytes: &[u8]) -> String {
    let mut out = format!("frame {} to {}", mac_text(bytes, 6), mac_text(bytes, 0));
    let mut at = 12;
    let mut kind = u16::from_be_bytes(part(bytes, at));
    if matches!(kind, 0x8100 | 0x88a8) {
        let tag = u16::from_be_bytes(part(bytes, at + 2));
        let _ = write!(out, ", VLAN {} priority {}", tag & 0xfff, tag >> 13);
        at += 4;
        kind = u16::from_be_bytes(part(bytes, at));
    }
    let payload = bytes.get(at + 2..).unwrap_or_default();
    let _ = match kind {
        0x0800 | 0x86dd => write!(out, ", {}", ip_text(payload)),
        0x0806 => write!(out, ", {}", arp_text(payload)),
        0x8035 => write!(out, ", reverse {}", arp_text(payload)),
        0..0x0600 => write!(out, ", length {kind}"),
        _ => write!(out, ", type 0x{kind:04x}"),
    };
    out
}
