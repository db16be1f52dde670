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

use std::collections::HashSet;
use std::ops::Range;

use crate::bridge::LENGTH;
use crate::packet::{Connection, Facts};
use crate::spec::Kind;
use crate::tree::{ChainId, Family, Hook, Item, Ruleset, Target, Value};

/// Nested jumps that a path follows.
const MAX_DEPTH: usize = 64;
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
}

impl<'a> Guide<'a> {
    pub fn new(ruleset: &'a Ruleset) -> Self {
        let mut guide = Guide {
            ruleset,
            callers: Vec::new(),
            starts: Vec::new(),
            rules: 0,
        };
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

    /// A packet that probably reaches the place, and its hook.
    pub fn packet(&self, aim: Aim, choice: &mut Choice) -> Option<(Hook, Fields)> {
        let (hook, path) = self.path(aim, choice)?;
        let mut fields = Fields::new(self.ruleset.family);
        for _ in 0..choice.below(CONDITIONS) {
            let items = self.items(self.any(choice)?);
            if let Some(item) = items.get(choice.below(items.len())) {
                let inside = !choice.one_in(3);
                fields.meet(item, inside, choice);
            }
        }
        let last = path.len() - 1;
        for (at, step) in path.iter().enumerate() {
            let items = self.items(*step);
            // A packet just outside of the rule differs in one condition.
            let outside = (at == last && choice.one_in(3)).then(|| choice.below(items.len()));
            for (number, item) in items.iter().enumerate() {
                fields.meet(item, outside != Some(number), choice);
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
}

/// The type of most addresses, as a bit.
const UNICAST: u16 = 2;
/// Longest name of a device.
const MAX_DEVICE: usize = 15;
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
            state: 2,
            mark: 0,
            packet_type: None,
            types: [None; 2],
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
                    self.mark = mark as u32;
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
            _ => {}
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
                ..Connection::default()
            }),
            mark: self.mark,
            packet_type: self.packet_type.or(to_host.then_some(0)),
            source_type: types(0),
            destination_type: types(1),
            random: Some(choice.draw() as u32),
            reverse_path: Some(true),
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
        (out, network)
    }

    fn transport(&self, out: &mut Vec<u8>) {
        let mut bytes = [0u8; 20];
        bytes[0..2].copy_from_slice(&self.ports[0].to_be_bytes());
        bytes[2..4].copy_from_slice(&self.ports[1].to_be_bytes());
        match self.protocol {
            6 => (bytes[12], bytes[13]) = (0x50, self.tcp_flags),
            // An echo request, unless a condition set the type.
            1 if self.ports[0] == 40_000 => bytes[0..4].copy_from_slice(&[8, 0, 0, 0]),
            58 if self.ports[0] == 40_000 => bytes[0..4].copy_from_slice(&[128, 0, 0, 0]),
            1 | 58 => bytes[2..4].fill(0),
            _ => {}
        }
        out.extend_from_slice(&bytes);
    }

    fn ipv4(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[
            0x45,
            self.tos,
            0,
            40,
            0,
            0,
            0,
            0,
            self.ttl,
            self.protocol,
            0,
            0,
        ]);
        for address in self.addresses {
            out.extend_from_slice(&(address as u32).to_be_bytes());
        }
        self.transport(out);
    }

    fn ipv6(&self, out: &mut Vec<u8>) {
        let first = [
            0x60 | self.tos >> 4,
            self.tos << 4,
            0,
            0,
            0,
            20,
            self.protocol,
            self.ttl,
        ];
        out.extend_from_slice(&first);
        for address in self.addresses {
            out.extend_from_slice(&address.to_be_bytes());
        }
        self.transport(out);
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
