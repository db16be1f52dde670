//! Packets that are made from the conditions of rules.
//!
//! ```text
//!   a rule or the end of a chain ── its callers up to a base chain ── a path
//!   conditions of some rules ──> fields ──> conditions of the path ──> packet and facts
//! ```
//!
//! Each condition sets the fields that it compares to a value inside or just outside of it. So paths
//! through several chains are met as often as those of short ones, and half of the packets aim at
//! rules that changed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use crate::bridge::LENGTH;
use crate::packet::{Connection, Facts};
use crate::sets::Sets;
use crate::spec::{Kind, Location, U32Word};
use crate::tree::{ChainId, Family, Hook, Item, Ruleset, SetMatch, Table, Target, Value};

/// Nested jumps that a path follows.
const MAX_DEPTH: usize = 64;
/// A bit of `--ctstate`.
const NEW: u8 = 2;
/// Other conditions that a packet meets.
const CONDITIONS: usize = 6;

/// A generator for choices: the same for the same sets (Steele et al., SplitMix64).
pub(super) struct Choice(pub u64);

impl Choice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::image::mix(self.0)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.draw() % count.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A place that a packet shall reach: a rule, or after the last one the end of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aim {
    pub table: usize,
    pub chain: ChainId,
    pub rule: usize,
}

/// The rules of a set, and the rules that lead to each chain.
pub(super) struct Guide<'a> {
    ruleset: &'a Ruleset,
    callers: Vec<Vec<Vec<(ChainId, u32)>>>,
    /// Chains that have rules, with the number of the first of them.
    starts: Vec<(usize, Aim)>,
    rules: usize,
    elements: HashMap<&'a [u8], Elements>,
}

/// An element of a set: network, its length, protocol and port.
type Element = (IpAddr, u8, u8, u16);

/// The elements of a set, those that the other set does not have first.
struct Elements {
    all: Vec<Element>,
    changed: usize,
}

impl Elements {
    fn new(name: &str, sets: &Sets, other: Option<&Sets>) -> Self {
        let has: HashSet<Element> = other.map_or_else(HashSet::new, |other| list(name, other));
        let (same, mut all): (Vec<_>, Vec<_>) = list(name, sets)
            .into_iter()
            .partition(|element| has.contains(element));
        let changed = all.len();
        all.extend(same);
        all[..changed].sort_unstable();
        all[changed..].sort_unstable();
        Self { all, changed }
    }

    fn any(&self, choice: &mut Choice) -> Option<Element> {
        let of_changed = self.changed > 0 && choice.one_in(2);
        let count = if of_changed {
            self.changed
        } else {
            self.all.len()
        };
        self.all.get(choice.below(count)).copied()
    }
}

/// The elements of a set, or of the members of a list.
fn list(name: &str, sets: &Sets) -> HashSet<Element> {
    let Some(set) = sets.get(name) else {
        return HashSet::new();
    };
    let members = set.members().filter_map(|name| sets.get(name));
    std::iter::once(set)
        .chain(members)
        .flat_map(|set| set.elements())
        .map(|element| (element.net, element.length, element.proto, element.port))
        .collect()
}

impl<'a> Guide<'a> {
    pub fn new(ruleset: &'a Ruleset, sets: Option<&Sets>, other: Option<&Sets>) -> Self {
        let mut guide = Guide {
            ruleset,
            callers: Vec::new(),
            starts: Vec::new(),
            rules: 0,
            elements: HashMap::new(),
        };
        let rules = ruleset.tables.iter().flat_map(Table::chains);
        for item in
            rules.flat_map(|(_, chain)| chain.rules.iter().flat_map(|rule| rule.items.iter()))
        {
            if let (Value::Set(set), Some(sets)) = (&item.value, sets) {
                let name = String::from_utf8_lossy(&set.name);
                guide
                    .elements
                    .entry(&set.name)
                    .or_insert_with(|| Elements::new(&name, sets, other));
            }
        }
        for (table, tree) in ruleset.tables.iter().enumerate() {
            let mut callers = vec![Vec::new(); tree.bound() as usize];
            for (chain, content) in tree.chains() {
                let rule = 0;
                guide.starts.push((guide.rules, Aim { table, chain, rule }));
                // The end of the chain is one more place.
                guide.rules += content.rules.len() + 1;
                for (at, rule) in content.rules.iter().enumerate() {
                    if let Target::Jump(to) | Target::Goto(to) = rule.target {
                        callers[to.0 as usize].push((chain, at as u32));
                    }
                }
            }
            guide.callers.push(callers);
        }
        guide
    }

    /// Any place of the set.
    pub fn any(&self, choice: &mut Choice) -> Option<Aim> {
        let number = choice.below(self.rules);
        let after = self.starts.partition_point(|(start, _)| *start <= number);
        let (start, aim) = *self.starts.get(after.checked_sub(1)?)?;
        Some(Aim {
            rule: number - start,
            ..aim
        })
    }

    fn items(&self, aim: Aim) -> &'a [Item] {
        let chain = self.ruleset.tables[aim.table].get(aim.chain);
        chain.rules.get(aim.rule).map_or(&[], |rule| &rule.items)
    }

    /// Rules from a base chain to a place, and the hook.
    fn path(&self, aim: Aim, choice: &mut Choice) -> Option<(Hook, Vec<Aim>)> {
        let table = &self.ruleset.tables[aim.table];
        let mut path = vec![aim];
        let mut chain = aim.chain;
        while path.len() <= MAX_DEPTH {
            if let Some(hook) = table.get(chain).hook {
                path.reverse();
                return Some((hook, path));
            }
            let callers = &self.callers[aim.table][chain.0 as usize];
            let (caller, rule) = *callers.get(choice.below(callers.len()))?;
            path.push(Aim {
                table: aim.table,
                chain: caller,
                rule: rule as usize,
            });
            chain = caller;
        }
        None
    }

    fn meet(&self, fields: &mut Fields, item: &Item, holds: bool, choice: &mut Choice) {
        let Value::Set(set) = &item.value else {
            return fields.meet(item, holds, choice);
        };
        let element = self.elements.get(&*set.name);
        if let Some(element) = element.and_then(|elements| elements.any(choice)) {
            fields.element(set, element, holds != item.not, choice);
        }
    }

    /// A packet that probably reaches the place, and its hook.
    pub fn packet(&self, aim: Aim, choice: &mut Choice) -> Option<(Hook, Fields)> {
        let (hook, path) = self.path(aim, choice)?;
        let mut fields = Fields::new(self.ruleset.family);
        for _ in 0..choice.below(CONDITIONS) {
            let items = self.items(self.any(choice)?);
            if let Some(item) = items.get(choice.below(items.len())) {
                let inside = !choice.one_in(3);
                self.meet(&mut fields, item, inside, choice);
            }
        }
        let last = path.len() - 1;
        for (at, step) in path.iter().enumerate() {
            let items = self.items(*step);
            // A packet just outside of the rule differs in one condition.
            let outside = (at == last && choice.one_in(3)).then(|| choice.below(items.len()));
            for (number, item) in items.iter().enumerate() {
                self.meet(&mut fields, item, outside != Some(number), choice);
            }
        }
        if !hook.has_input() {
            fields.input.clear();
            fields.logical[0].clear();
        }
        if !hook.has_output() {
            fields.output.clear();
            fields.logical[1].clear();
        }
        Some((hook, fields))
    }
}

/// Fields of a packet.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    family: Family,
    /// Of IP or ARP: source, destination.
    addresses: [u128; 2],
    protocol: u8,
    /// The first two words of the transport header: ports, or type and code.
    ports: [u16; 2],
    tcp_flags: u8,
    tos: u8,
    ttl: u8,
    /// Of the frame: source, destination.
    macs: [u64; 2],
    ethertype: u16,
    /// Priority and number, if the frame has a tag.
    tag: Option<u16>,
    /// Hardware, protocol, operation.
    arp: [u16; 3],
    arp_length: u8,
    arp_macs: [u64; 2],
    input: Vec<u8>,
    output: Vec<u8>,
    logical: [Vec<u8>; 2],
    state: u8,
    mark: u32,
    packet_type: Option<u8>,
    /// Types of the addresses.
    types: [Option<u16>; 2],
    connection_mark: u32,
    /// Of the IP packet, if a condition compares it.
    length: Option<usize>,
    fragment: bool,
    /// Of AH or ESP.
    spi: u32,
    mss: Option<u16>,
    tcp_option: Option<u8>,
    /// Types and flags.
    chunks: Vec<(u8, u8)>,
    dccp_type: u8,
    /// Words that conditions of u32 read, and what they shall find.
    words: Vec<(U32Word, u32)>,
}

/// The type of most addresses, as a bit.
const UNICAST: u16 = 2;
/// Longest name of a device.
const MAX_DEVICE: usize = 15;
/// Bytes of a transport header, to which conditions of u32 go.
const MAX_TRANSPORT: usize = 64;
/// Longest packet for conditions of u32.
const MAX_WORDS_LENGTH: usize = 1500;
const MAC: u64 = 0xffff_ffff_ffff;

/// A number inside or just outside of a range of `full`; `None`: there is none.
fn number(range: Range<u128>, full: u128, inside: bool, choice: &mut Choice) -> Option<u128> {
    let (first, last) = (range.start, range.end);
    if inside {
        let width = last.wrapping_sub(first);
        return Some(match choice.below(3) {
            0 => first,
            1 => last,
            _ if width == 0 => first,
            _ => {
                let any = u128::from(choice.draw()) << 64 | u128::from(choice.draw());
                first.wrapping_add(any % width) & full
            }
        });
    }
    let below = first.checked_sub(1);
    let above = (last < full).then(|| last + 1);
    if choice.one_in(2) {
        below.or(above)
    } else {
        above.or(below)
    }
}

/// The same of a value under a mask, which may have holes.
fn masked(value: u128, mask: u128, full: u128, inside: bool, choice: &mut Choice) -> Option<u128> {
    let free = !mask & full;
    let any = u128::from(choice.draw()) << 64 | u128::from(choice.draw());
    if inside {
        return Some(value & mask | [0, free, any & free][choice.below(3)]);
    }
    // The lowest bit of the mask is the nearest value outside.
    (mask & full != 0).then(|| (value & mask ^ 1 << (mask & full).trailing_zeros()) | any & free)
}

impl Fields {
    fn new(family: Family) -> Self {
        let addresses = match family {
            Family::Ipv6 => [0x2001_0db8 << 96 | 9, 0x2001_0db8 << 96 | 10],
            _ => [0xc633_6409, 0xc633_640a],
        };
        Self {
            family,
            addresses,
            protocol: 6,
            ports: [40_000, 9],
            tcp_flags: 2,
            tos: 0,
            ttl: 64,
            macs: [0x0200_0000_0009, 0x0200_0000_000a],
            ethertype: match family {
                Family::Arp => 0x0806,
                Family::Ipv6 => 0x86dd,
                _ => 0x0800,
            },
            tag: None,
            arp: [1, 0x0800, 1],
            arp_length: 6,
            arp_macs: [0x0200_0000_0009, 0],
            input: b"other0".to_vec(),
            output: b"other1".to_vec(),
            logical: [b"other2".to_vec(), b"other2".to_vec()],
            state: NEW,
            mark: 0,
            packet_type: None,
            types: [None; 2],
            connection_mark: 0,
            length: None,
            fragment: false,
            spi: 256,
            mss: None,
            tcp_option: None,
            chunks: vec![(0, 3)],
            dccp_type: 0,
            words: Vec::new(),
        }
    }

    /// Sets the fields that a condition compares, so that it holds or not. Conditions of other fields
    /// change nothing: the evaluator decides.
    fn meet(&mut self, item: &Item, holds: bool, choice: &mut Choice) {
        if item.is_head() {
            self.carry(item.kind);
            return;
        }
        self.carry(item.kind);
        let inside = holds != item.not;
        let name = item.name();
        let side = usize::from(
            name == "-d"
                || name.contains("dst")
                || name.contains("dport")
                || name == "-o"
                || name.ends_with("out"),
        );
        match (name, &item.value) {
            (
                "-s" | "-d" | "--ip-src" | "--ip-dst" | "--ip6-src" | "--ip6-dst" | "--arp-ip-src"
                | "--arp-ip-dst",
                Value::Pair(..) | Value::Ipv6(_),
            ) => self.address(side, &item.value, inside, choice),
            ("--src-range" | "--dst-range", Value::Pair(first, last)) => {
                let range = u128::from(*first)..u128::from(*last);
                put(
                    &mut self.addresses[side],
                    number(range, u32::MAX.into(), inside, choice),
                );
            }
            ("--src-range" | "--dst-range", Value::Ipv6(pair)) => {
                let range = pair[0]..pair[1];
                put(
                    &mut self.addresses[side],
                    number(range, u128::MAX, inside, choice),
                );
            }
            ("-s" | "-d", Value::Wide(pair)) => mac(&mut self.macs[side], pair, inside, choice),
            ("--src-mac" | "--dst-mac" | "--arp-mac-src" | "--arp-mac-dst", Value::Wide(pair)) => {
                mac(&mut self.arp_macs[side], pair, inside, choice);
            }
            ("--mac-source", Value::Number(address)) => {
                mac(&mut self.macs[0], &[*address, MAC], inside, choice);
            }
            ("--among-src" | "--among-dst", Value::Numbers(list)) => {
                if let Some(entry) = list.get(choice.below(list.len())) {
                    mac(
                        &mut self.macs[side],
                        &[(entry >> 33) as u64, MAC],
                        inside,
                        choice,
                    );
                    if *entry as u32 != 0 {
                        self.addresses[side] = u128::from(*entry as u32);
                    }
                }
            }
            ("-p", Value::Number(ty)) if self.family == Family::Bridge => {
                self.frame_type(*ty as u16, inside);
            }
            ("-p" | "--ip-proto" | "--ip6-proto", Value::Number(protocol)) => {
                let others = [6, 17, 1, 47].iter().find(|other| **other != *protocol);
                let other = others.copied().unwrap_or_default();
                self.protocol = if inside { *protocol } else { other } as u8;
            }
            (
                "--sport" | "--dport" | "--ip-sport" | "--ip-dport" | "--ip6-sport" | "--ip6-dport",
                Value::Pair(first, last),
            ) => self.port(side, *first..*last, inside, choice),
            ("--sports" | "--dports" | "--ports", Value::Ranges(ranges)) => {
                if let Some((first, last)) = ranges.get(choice.below(ranges.len())) {
                    let side = if name == "--ports" {
                        choice.below(2)
                    } else {
                        side
                    };
                    self.port(side, u32::from(*first)..u32::from(*last), inside, choice);
                }
            }
            ("--icmp-type" | "--icmpv6-type", Value::Pair(ty, codes)) => {
                let code = number(
                    u128::from(codes & 255)..u128::from(codes >> 8),
                    255,
                    true,
                    choice,
                );
                let ty = if inside { *ty } else { ty ^ 1 };
                self.ports[0] = (ty as u16) << 8 | code.unwrap_or(0) as u16;
            }
            ("--ip-icmp-type" | "--ip6-icmp-type", Value::Pair(types, codes)) => {
                let range = u128::from(types & 255)..u128::from(types >> 8 & 255);
                let ty = number(range, 255, inside, choice).unwrap_or(0);
                self.ports[0] = (ty as u16) << 8 | (codes & 255) as u16;
            }
            ("--tcp-flags", Value::Pair(mask, flags)) => {
                let (flags, mask) = (u128::from(*flags), u128::from(*mask));
                if let Some(flags) = masked(flags, mask, 255, inside, choice) {
                    self.tcp_flags = flags as u8;
                }
            }
            ("--tos", Value::Pair(value, mask)) => {
                let (value, mask) = (u128::from(*value), u128::from(*mask));
                if let Some(tos) = masked(value, mask, 255, inside, choice) {
                    self.tos = tos as u8;
                }
            }
            ("--dscp", Value::Number(dscp)) => {
                self.tos = ((if inside { *dscp } else { dscp ^ 1 }) << 2) as u8;
            }
            ("--ip-tos" | "--ip6-tclass", Value::Number(tos)) => {
                self.tos = if inside { *tos } else { tos ^ 1 } as u8;
            }
            ("-i", Value::Text(pattern)) => device(&mut self.input, pattern, inside, choice),
            ("-o", Value::Text(pattern)) => device(&mut self.output, pattern, inside, choice),
            ("--logical-in" | "--logical-out", Value::Text(pattern)) => {
                device(&mut self.logical[side], pattern, inside, choice);
            }
            ("--state" | "--ctstate", Value::Number(bits)) => {
                let wanted = if inside { *bits } else { !*bits };
                let states: Vec<u8> = (0..5).filter(|bit| wanted >> bit & 1 != 0).collect();
                if let Some(bit) = states.get(choice.below(states.len())) {
                    self.state = 1 << bit;
                }
            }
            ("--mark", Value::Pair(value, mask)) => {
                let (value, mask) = (u128::from(*value), u128::from(*mask));
                if let Some(mark) = masked(value, mask, u32::MAX.into(), inside, choice) {
                    match item.kind {
                        Kind::Connmark => self.connection_mark = mark as u32,
                        _ => self.mark = mark as u32,
                    }
                }
            }
            ("--mark", Value::Number(bits)) => self.mark = if inside { *bits as u32 } else { 0 },
            ("--h-type" | "--proto-type" | "--opcode", Value::Pair(value, mask)) => {
                let at = match name {
                    "--h-type" => 0,
                    "--proto-type" => 1,
                    _ => 2,
                };
                self.arp_field(at, *value, *mask, inside, choice);
            }
            ("--arp-htype" | "--arp-ptype" | "--arp-op", Value::Number(value)) => {
                let at = match name {
                    "--arp-htype" => 0,
                    "--arp-ptype" => 1,
                    _ => 2,
                };
                self.arp_field(at, *value as u32, 0xffff, inside, choice);
            }
            ("--h-length", Value::Pair(value, mask)) => {
                let (value, mask) = (u128::from(*value), u128::from(*mask));
                if let Some(length) = masked(value, mask, 255, inside, choice) {
                    self.arp_length = length as u8;
                }
            }
            ("--arp-gratuitous", _) => {
                self.addresses[1] = self.addresses[0] ^ u128::from(!inside);
            }
            ("--vlan-id", Value::Number(id)) => {
                let id = if inside { *id } else { id ^ 1 } as u16;
                self.tag = Some(self.tag.unwrap_or(0) & 0xe000 | id & 0xfff);
            }
            ("--vlan-prio", Value::Number(priority)) => {
                let priority = if inside { *priority } else { priority ^ 1 } as u16;
                self.tag = Some(self.tag.unwrap_or(1) & 0xfff | priority << 13);
            }
            ("--vlan-encap", Value::Number(ty)) => {
                self.ethertype = if inside { *ty as u16 } else { 0x88b5 };
            }
            ("--pkt-type" | "--pkttype-type", Value::Number(ty)) => {
                self.packet_type = Some(if inside { *ty } else { (ty + 1) % 3 } as u8);
            }
            ("--src-type" | "--dst-type", Value::Number(bits)) => {
                let side = usize::from(name == "--dst-type");
                let wanted = if inside { *bits } else { !*bits };
                // Unicast, local, broadcast or multicast: others have no packets usually.
                let bit = [1, 2, 3, 5, 0, 4, 6, 7, 8]
                    .iter()
                    .find(|bit| wanted >> **bit & 1 != 0);
                self.types[side] = bit.map(|bit| 1 << bit);
            }
            ("--ttl-eq" | "--hl-eq", Value::Number(ttl)) => {
                self.ttl = if inside { *ttl } else { ttl ^ 1 } as u8;
            }
            ("--ttl-lt" | "--hl-lt", Value::Number(ttl)) => {
                self.ttl = if inside { ttl.saturating_sub(1) } else { *ttl } as u8;
            }
            ("--ttl-gt" | "--hl-gt", Value::Number(ttl)) => {
                self.ttl = if inside { (ttl + 1).min(255) } else { *ttl } as u8;
            }
            _ => self.meet_header(item, inside, choice),
        }
    }

    /// The same for fields of headers that few rules compare.
    fn meet_header(&mut self, item: &Item, inside: bool, choice: &mut Choice) {
        let mut within = |first: u32, last: u32, full: u128| {
            number(u128::from(first)..u128::from(last), full, inside, choice)
        };
        match (item.name(), &item.value) {
            ("--length", Value::Pair(first, last)) => {
                let length = within(*first, *last, 0xffff);
                self.length = length.map(|length| length as usize).or(self.length);
            }
            ("--ahspi" | "--espspi", Value::Pair(first, last)) => {
                let spi = within(*first, *last, u32::MAX.into());
                self.spi = spi.map_or(self.spi, |spi| spi as u32);
                self.protocol = if item.name() == "--ahspi" { 51 } else { 50 };
            }
            ("--mss", Value::Pair(first, last)) => {
                let mss = within(*first, *last, 0xffff);
                self.mss = mss.map(|mss| mss as u16);
            }
            ("--tcp-option", Value::Number(option)) => {
                self.tcp_option = inside.then_some(*option as u8);
            }
            ("--ecn-ip-ect", Value::Number(ecn)) => {
                self.tos = self.tos & !3 | (if inside { *ecn } else { ecn ^ 1 }) as u8 & 3;
            }
            ("--ecn-tcp-ece", _) => self.tcp_flags = self.tcp_flags & !0x40 | u8::from(inside) << 6,
            ("--ecn-tcp-cwr", _) => self.tcp_flags = self.tcp_flags & !0x80 | u8::from(inside) << 7,
            ("--dccp-types", Value::Number(bits)) => {
                let wanted = if inside { *bits } else { !*bits };
                let types: Vec<u8> = (0..10).filter(|bit| wanted >> bit & 1 != 0).collect();
                if let Some(ty) = types.get(choice.below(types.len())) {
                    self.dccp_type = *ty;
                }
            }
            ("-f", _) => self.fragment = inside,
            ("--chunk-types", Value::Numbers(wanted)) => {
                let [mode, list @ ..] = &wanted[..] else {
                    return;
                };
                let chunk = |entry: &u128| (*entry as u8, (entry >> 16) as u8);
                self.chunks = list.iter().map(chunk).collect();
                let at = choice.below(list.len());
                if *mode == 0 {
                    self.chunks = vec![self.chunks[at]];
                }
                if !inside && let Some(last) = self.chunks.last_mut() {
                    let mask = list.last().map_or(0, |entry| (entry >> 8) as u8);
                    match mask != 0 && choice.one_in(2) {
                        true => last.1 ^= 1 << mask.trailing_zeros(),
                        false => last.0 ^= 1 << choice.below(4),
                    }
                }
            }
            ("--u32", Value::U32(test)) => {
                // One of the tests fails.
                let outside = (!inside).then(|| choice.below(test.tests.len()));
                for (at, word) in test.tests.iter().enumerate() {
                    let (first, last) = word.ranges[choice.below(word.ranges.len())];
                    let range = u128::from(first)..u128::from(last);
                    let holds = outside != Some(at);
                    if let Some(value) = number(range, u32::MAX.into(), holds, choice) {
                        self.words.push((word.clone(), value as u32));
                    }
                }
            }
            _ => {}
        }
    }

    /// An address and a port inside or just outside of an element.
    fn element(&mut self, set: &SetMatch, element: Element, inside: bool, choice: &mut Choice) {
        let (net, length, protocol, port) = element;
        let side = |at: usize| usize::from(set.destinations.get(at).copied().unwrap_or(false));
        let (net, width) = match net {
            IpAddr::V4(net) => (u128::from(net.to_bits()), 32),
            IpAddr::V6(net) => (net.to_bits(), 128),
        };
        let full = u128::MAX >> (128 - width);
        let mask = full & !full.checked_shr(length.into()).unwrap_or(0);
        let address = masked(
            net,
            mask,
            full,
            inside || protocol != 0 && choice.one_in(2),
            choice,
        );
        put(&mut self.addresses[side(0)], address);
        if protocol != 0 {
            self.protocol = protocol;
            let outside = u32::from(port ^ u16::from(!inside && choice.one_in(2)));
            self.port(side(1), outside..outside, true, choice);
        }
    }

    /// Makes the frame one that a match can read.
    fn carry(&mut self, kind: Kind) {
        match kind {
            Kind::BridgeIp => self.frame_type(0x0800, true),
            Kind::BridgeIp6 => self.frame_type(0x86dd, true),
            Kind::BridgeArp if self.ethertype != 0x8035 => self.frame_type(0x0806, true),
            Kind::Vlan => self.tag = self.tag.or(Some(1)),
            _ => {}
        }
        if kind == Kind::BridgeIp6 && self.addresses[0] <= u32::MAX.into() {
            self.addresses = Fields::new(Family::Ipv6).addresses;
        }
    }

    fn frame_type(&mut self, ty: u16, inside: bool) {
        let wanted = match ty {
            0x8100 => {
                self.tag = inside.then(|| self.tag.unwrap_or(1));
                return;
            }
            LENGTH if inside => 38,
            _ if inside => ty,
            0x0800 => 0x0806,
            _ => 0x0800,
        };
        (self.tag, self.ethertype) = (None, wanted);
    }

    fn address(&mut self, side: usize, value: &Value, inside: bool, choice: &mut Choice) {
        let (value, mask, full) = match value {
            Value::Pair(value, mask) => ((*value).into(), (*mask).into(), u32::MAX.into()),
            Value::Ipv6(pair) => (pair[0], pair[1], u128::MAX),
            _ => return,
        };
        put(
            &mut self.addresses[side],
            masked(value, mask, full, inside, choice),
        );
    }

    fn port(&mut self, side: usize, range: Range<u32>, inside: bool, choice: &mut Choice) {
        let range = u128::from(range.start)..u128::from(range.end);
        if let Some(port) = number(range, 0xffff, inside, choice) {
            self.ports[side] = port as u16;
        }
    }

    fn arp_field(&mut self, at: usize, value: u32, mask: u32, inside: bool, choice: &mut Choice) {
        let found = masked(value.into(), mask.into(), 0xffff, inside, choice);
        if let Some(found) = found {
            self.arp[at] = found as u16;
        }
    }

    /// Facts that are not in the bytes; those of matches that a set uses are known.
    pub fn facts(&self, used: &HashSet<Kind>, choice: &mut Choice) -> Facts {
        let types = |side: usize| {
            let usual = used.contains(&Kind::Addrtype).then_some(UNICAST);
            self.types[side].or(usual)
        };
        let to_host = [Kind::Pkttype, Kind::BridgePkttype]
            .iter()
            .any(|kind| used.contains(kind));
        let name = |name: &Vec<u8>| Some(name.clone().into());
        let bridge = self.family == Family::Bridge;
        Facts {
            input: name(&self.input),
            output: name(&self.output),
            logical_input: bridge.then(|| self.logical[0].clone().into()),
            logical_output: bridge.then(|| self.logical[1].clone().into()),
            connection: self.family.is_ip().then_some(Connection {
                state: self.state,
                // The first packet of a new connection. Other states say nothing of the rest.
                status: (self.state == NEW).then_some(0),
                mark: Some(self.connection_mark),
                reply: (self.state == NEW).then_some(false),
            }),
            connections: used
                .contains(&Kind::Connlimit)
                .then(|| 1 << (choice.draw() % 8)),
            mark: self.mark,
            packet_type: self.packet_type.or(to_host.then_some(0)),
            source_type: types(0),
            destination_type: types(1),
            random: Some(choice.draw() as u32),
            reverse_path: Some(!used.contains(&Kind::Rpfilter) || choice.one_in(2)),
            ..Facts::default()
        }
    }

    /// The frame, and the offset of its network header.
    pub fn bytes(&self) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity(80);
        for address in [self.macs[1], self.macs[0]] {
            out.extend_from_slice(&address.to_be_bytes()[2..]);
        }
        if let Some(tag) = self.tag.filter(|_| self.family == Family::Bridge) {
            out.extend_from_slice(&[0x81, 0]);
            out.extend_from_slice(&tag.to_be_bytes());
        }
        out.extend_from_slice(&self.ethertype.to_be_bytes());
        let network = out.len();
        match self.ethertype {
            0x0800 => self.ipv4(&mut out),
            0x86dd => self.ipv6(&mut out),
            0x0806 | 0x8035 => self.arp(&mut out),
            _ => out.resize(network + 46, 0),
        }
        for (word, value) in &self.words {
            write_word(&mut out[network..], word, *value);
        }
        (out, network)
    }

    fn transport(&self, out: &mut Vec<u8>) {
        let mut bytes = [0u8; 20];
        bytes[0..2].copy_from_slice(&self.ports[0].to_be_bytes());
        bytes[2..4].copy_from_slice(&self.ports[1].to_be_bytes());
        let mut rest = Vec::new();
        match self.protocol {
            6 => {
                if let Some(mss) = self.mss {
                    rest.extend([2, 4]);
                    rest.extend(mss.to_be_bytes());
                }
                match self.tcp_option {
                    Some(option @ (0 | 1)) => rest.extend([option; 4]),
                    Some(option) => rest.extend([option, 4, 0, 0]),
                    None => {}
                }
                bytes[12] = ((bytes.len() + rest.len()) as u8 / 4) << 4;
                bytes[13] = self.tcp_flags;
            }
            // An echo request, unless a condition set the type.
            1 if self.ports[0] == 40_000 => bytes[0..4].copy_from_slice(&[8, 0, 0, 0]),
            58 if self.ports[0] == 40_000 => bytes[0..4].copy_from_slice(&[128, 0, 0, 0]),
            1 | 58 => bytes[2..4].fill(0),
            // The length is in words, and the type is after a flag.
            33 => (bytes[4], bytes[8]) = (4, self.dccp_type << 1),
            50 => bytes[0..4].copy_from_slice(&self.spi.to_be_bytes()),
            51 => {
                // No header follows; three words.
                bytes[0..2].copy_from_slice(&[59, 1]);
                bytes[4..8].copy_from_slice(&self.spi.to_be_bytes());
            }
            132 => {
                out.extend_from_slice(&bytes[..12]);
                for (ty, flags) in &self.chunks {
                    out.extend_from_slice(&[*ty, *flags, 0, 4]);
                }
                return;
            }
            _ => {}
        }
        out.extend_from_slice(&bytes);
        out.extend_from_slice(&rest);
    }

    /// The length of an IP packet with these bytes.
    fn total(&self, bytes: usize, header: usize) -> usize {
        let reach = |word: &U32Word| {
            let steps = word.steps.iter().map(|step| match step {
                Location::At(number) => *number as usize,
                _ => 0,
            });
            word.offset as usize + steps.sum::<usize>() + header + MAX_TRANSPORT
        };
        let words = self.words.iter().map(|(word, _)| reach(word)).max();
        let needed = words.map_or(bytes, |words| {
            words.clamp(bytes, MAX_WORDS_LENGTH.max(bytes))
        });
        self.length.map_or(needed, |length| length.max(header))
    }

    fn ipv4(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[
            0x45,
            self.tos,
            0,
            0,
            0,
            0,
            0,
            u8::from(self.fragment),
            self.ttl,
            self.protocol,
            0,
            0,
        ]);
        for address in self.addresses {
            out.extend_from_slice(&(address as u32).to_be_bytes());
        }
        self.transport(out);
        let total = self.total(out.len() - start, 20);
        out.resize(start + total, 0);
        out[start + 2..start + 4].copy_from_slice(&(total as u16).to_be_bytes());
    }

    fn ipv6(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let first = [
            0x60 | self.tos >> 4,
            self.tos << 4,
            0,
            0,
            0,
            0,
            self.protocol,
            self.ttl,
        ];
        out.extend_from_slice(&first);
        for address in self.addresses {
            out.extend_from_slice(&address.to_be_bytes());
        }
        self.transport(out);
        let total = self.total(out.len() - start, 40);
        out.resize(start + total, 0);
        out[start + 4..start + 6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
    }

    fn arp(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.arp[0].to_be_bytes());
        out.extend_from_slice(&self.arp[1].to_be_bytes());
        out.extend_from_slice(&[self.arp_length, 4]);
        out.extend_from_slice(&self.arp[2].to_be_bytes());
        for (mac, address) in self.arp_macs.iter().zip(self.addresses) {
            out.extend_from_slice(&mac.to_be_bytes()[2..]);
            out.extend_from_slice(&(address as u32).to_be_bytes());
        }
    }
}

/// Changes the word that a test of u32 reads last, so that it finds `value`.
fn write_word(packet: &mut [u8], word: &U32Word, value: u32) {
    let read = |packet: &[u8], at: usize| {
        let bytes = packet.get(at..at.checked_add(4)?)?;
        bytes.try_into().ok().map(u32::from_be_bytes)
    };
    let (mut at, mut steps) = (word.offset as usize, Vec::new());
    let mut start = 0;
    for step in &word.steps {
        let Location::At(number) = step else {
            steps.push(*step);
            continue;
        };
        let Some(found) = read(packet, at) else {
            return;
        };
        let moved = steps.drain(..).fold(found, |found, step| match step {
            Location::And(mask) => found & mask,
            Location::ShiftLeft(bits) => found.checked_shl(bits).unwrap_or(0),
            Location::ShiftRight(bits) => found.checked_shr(bits).unwrap_or(0),
            Location::At(_) => found,
        });
        start += moved as usize;
        at = start + *number as usize;
    }
    let (mut value, mut mask) = (value, u32::MAX);
    for step in steps.iter().rev() {
        match step {
            Location::And(kept) => mask &= kept,
            Location::ShiftLeft(bits) => {
                (value, mask) = (
                    value.checked_shr(*bits).unwrap_or(0),
                    mask.checked_shr(*bits).unwrap_or(0),
                );
            }
            Location::ShiftRight(bits) => {
                (value, mask) = (
                    value.checked_shl(*bits).unwrap_or(0),
                    mask.checked_shl(*bits).unwrap_or(0),
                );
            }
            Location::At(_) => {}
        }
    }
    if let Some(found) = read(packet, at) {
        let new = found & !mask | value & mask;
        packet[at..at + 4].copy_from_slice(&new.to_be_bytes());
    }
}

fn put(field: &mut u128, value: Option<u128>) {
    *field = value.unwrap_or(*field);
}

fn mac(field: &mut u64, pair: &[u64; 2], inside: bool, choice: &mut Choice) {
    let found = masked(pair[0].into(), pair[1].into(), MAC.into(), inside, choice);
    if let Some(found) = found {
        *field = found as u64;
    }
}

/// A name of a device. Nearest outside is a longer or another one.
fn device(field: &mut Vec<u8>, pattern: &[u8], inside: bool, choice: &mut Choice) {
    let end: &[u8] = [&b"0"[..], b"17"][choice.below(2)];
    *field = match pattern.strip_suffix(b"+") {
        Some(prefix) if inside => [prefix, end].concat(),
        None if inside => pattern.to_vec(),
        None if choice.one_in(2) && pattern.len() < MAX_DEVICE => [pattern, b"7"].concat(),
        _ => b"other0".to_vec(),
    };
    field.truncate(MAX_DEVICE);
}
