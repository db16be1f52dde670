//! A rule as a record of the image: comparisons of words, tests, and an action.
//!
//! Comparisons are those of the frame's header, then of matches before any that can drop a packet,
//! then those of the first match with a transport header, then of matches after it. Matches that
//! can be no comparison are tests, in written order.

use fairpath_core::rules::{
    COMPARES, CONNECTIONS, NONE, UNIT, action, l4, meta, recent, test, word,
};

use super::BuildError;
use super::encoded::{Compare, Encoded, Placed, put_record};
use super::set::SetTable;
use super::table::Tables;
use crate::hash_rate::BYTES;
use crate::packet::Unknown;
use crate::sets::Sets;
use crate::spec::{Kind, Location, U32Test};
use crate::tree::{Family, Group, Item, Rule, Ruleset, Target, Value};

/// Encodes rules of one family.
pub struct Encoder<'a> {
    family: Family,
    /// The number in the image of the table's chain 0.
    pub chain_base: u32,
    /// First values of slots of state.
    pub states: Vec<u64>,
    /// Slots of rules that an edit removed.
    pub free_slots: Vec<u32>,
    /// Recent lists and limits by key.
    pub tables: Tables,
    pub(super) sets: SetTable<'a>,
    header: Vec<Compare>,
    pub(super) early: Vec<Compare>,
    transport: Option<Compare>,
    late: Vec<Compare>,
    tests: Vec<u8>,
    count: usize,
    /// A match that can drop the packet was encoded: later comparisons come after it.
    dropping: bool,
    /// A match that is a test was encoded: the order of effects is that of tests.
    pub(super) tested: bool,
}

pub(super) fn raw32(number: u32) -> u64 {
    u64::from(number.swap_bytes())
}

pub(super) fn raw128(number: u128) -> [u64; 2] {
    let bytes = number.to_be_bytes();
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// A name of an interface as two words, with masks: all bytes and the end, or a prefix.
fn name_words(name: &[u8]) -> [(u64, u64); 2] {
    let (prefix, length) = match name.strip_suffix(b"+") {
        Some(prefix) => (prefix, prefix.len()),
        None => (name, name.len() + 1),
    };
    let mut bytes = [0u8; 16];
    bytes[..prefix.len()].copy_from_slice(prefix);
    let mut mask = [0u8; 16];
    mask[..length.min(16)].fill(0xff);
    [0, 8].map(|at| {
        let number =
            |from: &[u8; 16]| u64::from_le_bytes(from[at..at + 8].try_into().expect("eight bytes"));
        (number(&mask), number(&bytes))
    })
}

impl<'a> Encoder<'a> {
    pub fn new(family: Family, sets: Option<&'a Sets>) -> Self {
        Self {
            family,
            chain_base: 0,
            states: Vec::new(),
            free_slots: Vec::new(),
            tables: Tables::default(),
            sets: SetTable::new(sets),
            header: Vec::new(),
            early: Vec::new(),
            transport: None,
            late: Vec::new(),
            tests: Vec::new(),
            count: 0,
            dropping: false,
            tested: false,
        }
    }

    /// Makes the tables that rules share by name. As in the kernel, the first rule in the order of save
    /// files decides about a table.
    pub fn prepare(&mut self, ruleset: &Ruleset) {
        let shares = |rule: &Rule| {
            let mut items = rule.items.iter();
            items.any(|item| matches!(item.kind, Kind::Recent | Kind::Hashlimit))
        };
        for table in &ruleset.tables {
            if !table
                .chains()
                .any(|(_, chain)| chain.rules.iter().any(shares))
            {
                continue;
            }
            for (_, chain) in table.sorted() {
                for group in chain.rules.iter().flat_map(|rule| rule.matches()) {
                    match group.kind {
                        Kind::Recent => drop(self.tables.recent(group, self.family)),
                        Kind::Hashlimit => drop(self.tables.limit(group, self.family)),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Appends the sets that rules used; returns their offsets.
    ///
    /// # Errors
    ///
    /// [`BuildError::SetCollides`].
    pub fn write_sets(&self, out: &mut Vec<u8>) -> Result<Vec<u32>, BuildError> {
        self.sets.write(out)
    }

    /// Appends the record of a rule.
    ///
    /// # Errors
    ///
    /// The rule has too many tests.
    pub fn encode(&mut self, rule: &Rule, id: u32, out: &mut Encoded) -> Result<(), BuildError> {
        self.header.clear();
        self.early.clear();
        self.transport = None;
        self.late.clear();
        self.tests.clear();
        self.count = 0;
        self.dropping = false;
        self.tested = false;
        let mut protocol = 0;
        let mut watchers = 0;
        for group in rule.matches() {
            if group.kind == Kind::BridgeHeader {
                self.bridge_header(group);
            } else if group.kind.is_watcher() {
                watchers += 1;
            } else if group.kind.is_header() {
                protocol = self.header(group);
            } else {
                self.extension(group, protocol);
            }
        }
        // Watchers see what all matches let pass, before the target.
        for _ in 0..watchers {
            self.test(test::DO_LOG, test::STATEFUL, 0, 0, 0, &[]);
        }
        let too_large = BuildError::RuleTooLarge { line: rule.line };
        let act = self.target(rule);
        let mut compares = std::mem::take(&mut self.header);
        compares.append(&mut self.early);
        compares.extend(self.transport);
        compares.append(&mut self.late);
        let overflow = compares.len().saturating_sub(COMPARES);
        if overflow > 0 {
            return self.overflowing(rule, compares, act, id, out);
        }
        let start = out.bytes.len() as u32;
        let units = 1 + compares.len() + self.tests.len() / UNIT;
        if units > usize::from(u16::MAX) || self.count > 128 {
            self.header = compares;
            return Err(too_large);
        }
        let mut shape = 0;
        for (at, compare) in compares.iter().enumerate() {
            shape |= compare.shape() << (5 * at);
        }
        let act = match act & 0xff {
            // The change is the last test: its place from the record.
            action::TARGET => action::TARGET | (((units - 1) * UNIT) as u32) << 8,
            _ => act,
        };
        put_record(
            &mut out.bytes,
            units as u16,
            compares.len() as u8,
            self.count as u8,
            shape,
            act,
            id,
        );
        for compare in &compares {
            out.bytes.extend_from_slice(&compare.mask.to_le_bytes());
            out.bytes.extend_from_slice(&compare.value.to_le_bytes());
        }
        out.bytes.extend_from_slice(&self.tests);
        out.records.push(Placed {
            start,
            units: units as u16,
            first_shape: compares.first().map(|compare| compare.shape()),
        });
        compares.clear();
        self.header = compares;
        Ok(())
    }

    /// A rule with more comparisons than fit: those after the first become tests.
    fn overflowing(
        &mut self,
        rule: &Rule,
        compares: Vec<Compare>,
        act: u32,
        id: u32,
        out: &mut Encoded,
    ) -> Result<(), BuildError> {
        let own = std::mem::take(&mut self.tests);
        let count = std::mem::take(&mut self.count);
        // Tests of the header, such as those of addresses, are before its protocol.
        let (header, own) = divided(&own, count);
        self.tests.extend_from_slice(&header);
        let pivot = compares
            .iter()
            .position(|c| c.word == word::L4 && c.mask & (l4::PORTS | l4::HEADER) != 0)
            .unwrap_or(compares.len());
        for (at, compare) in compares.iter().enumerate() {
            let mut compare = *compare;
            if at == pivot {
                // The protocol belongs to the header.
                let header = compare.mask & (0xff | l4::FRAGMENT);
                self.words(
                    &[Compare {
                        mask: header,
                        value: compare.value & header,
                        ..compare
                    }],
                    false,
                    true,
                );
                compare.mask &= !header;
                compare.value &= !header;
            }
            self.words(
                &[Compare {
                    not: false,
                    ..compare
                }],
                compare.not,
                at < pivot,
            );
        }
        self.count += count;
        self.tests.extend_from_slice(&own);
        let units = 1 + self.tests.len() / UNIT;
        if units > usize::from(u16::MAX) || self.count > 128 {
            return Err(BuildError::RuleTooLarge { line: rule.line });
        }
        let act = match act & 0xff {
            action::TARGET => action::TARGET | (((units - 1) * UNIT) as u32) << 8,
            _ => act,
        };
        let start = out.bytes.len() as u32;
        put_record(
            &mut out.bytes,
            units as u16,
            0,
            self.count as u8,
            0,
            act,
            id,
        );
        out.bytes.extend_from_slice(&self.tests);
        out.records.push(Placed {
            start,
            units: units as u16,
            first_shape: None,
        });
        Ok(())
    }

    /// Appends a test.
    pub(super) fn test(&mut self, kind: u8, flags: u8, small: usize, a: u32, b: u64, data: &[u8]) {
        let units = 1 + data.len().div_ceil(UNIT);
        self.tests.push(kind);
        self.tests.push(units as u8);
        self.tests.push(flags);
        self.tests.push(small as u8);
        self.tests.extend_from_slice(&a.to_le_bytes());
        self.tests.extend_from_slice(&b.to_le_bytes());
        self.tests.extend_from_slice(data);
        self.tests
            .resize(self.tests.len().next_multiple_of(UNIT), 0);
        self.count += 1;
        self.tested = true;
    }

    /// Comparisons that hold together, negated as a whole.
    pub(super) fn words(&mut self, compares: &[Compare], not: bool, header: bool) {
        let mut shape = 0;
        let mut data = Vec::with_capacity(16 * compares.len());
        for (at, compare) in compares.iter().enumerate() {
            shape |= (compare.word as u32) << (5 * at);
            data.extend_from_slice(&compare.mask.to_le_bytes());
            data.extend_from_slice(&compare.value.to_le_bytes());
        }
        let flags = if not { test::NOT } else { 0 } | if header { test::IN_HEADER } else { 0 };
        let tested = self.tested;
        self.test(test::WORDS, flags, 0, shape, compares.len() as u64, &data);
        // Tests of the header come before all matches.
        self.tested = tested || !header;
    }

    pub(super) fn unknown(&mut self, reason: Unknown) {
        self.test(test::UNKNOWN, 0, 0, reason as u32, 0, &[]);
    }

    pub(super) fn never(&mut self) {
        self.test(test::NEVER, 0, 0, 0, 0, &[]);
    }

    /// A comparison that belongs to the frame's header.
    pub(super) fn in_header(&mut self, word: usize, not: bool, mask: u64, value: u64) {
        if !not
            && let Some(same) = self
                .header
                .iter_mut()
                .find(|c| c.word == word && !c.not && c.mask & mask == 0)
        {
            same.mask |= mask;
            same.value |= value;
            return;
        }
        self.header.push(Compare {
            word,
            not,
            mask,
            value,
        });
    }

    /// The same over several words.
    pub(super) fn header_words(&mut self, not: bool, words: &[(usize, u64, u64)]) {
        if not && words.iter().filter(|(_, mask, _)| *mask != 0).count() > 1 {
            let compares: Vec<Compare> = words
                .iter()
                .map(|(word, mask, value)| Compare {
                    word: *word,
                    not: false,
                    mask: *mask,
                    value: *value,
                })
                .collect();
            self.words(&compares, true, true);
            return;
        }
        let mut any = false;
        for (word, mask, value) in words {
            if *mask != 0 {
                self.in_header(*word, not, *mask, *value);
                any = true;
            }
        }
        if !any && not {
            // Matches no packet, such as `! -i +`.
            self.in_header(words[0].0, true, 0, 0);
        }
    }

    /// The items of the frame's header. Returns the protocol, 0 none.
    fn header(&mut self, group: Group) -> u8 {
        let mut protocol = 0;
        let mut last = None;
        for item in group.items {
            match (item.name(), &item.value) {
                ("-s" | "-d", Value::Pair(address, mask)) => {
                    let shift = if item.name() == "-s" { 0 } else { 32 };
                    self.header_words(
                        item.not,
                        &[(word::ADDR, raw32(*mask) << shift, raw32(*address) << shift)],
                    );
                }
                ("-s" | "-d", Value::Ipv6(net)) => {
                    let first = if item.name() == "-s" {
                        word::ADDR
                    } else {
                        word::ADDR2
                    };
                    let (address, mask) = (raw128(net[0]), raw128(net[1]));
                    self.header_words(
                        item.not,
                        &[
                            (first, mask[0], address[0]),
                            (first + 1, mask[1], address[1]),
                        ],
                    );
                }
                ("-i" | "-o", Value::Text(name)) => self.interface(item, name),
                // Any protocol, but in IPv6 a packet must lead to one.
                ("-p", Value::Number(0)) => {
                    if self.family == Family::Ipv6 {
                        last = Some(Compare {
                            word: word::L4,
                            not: false,
                            mask: l4::FAILED,
                            value: 0,
                        });
                    }
                }
                ("-p", Value::Number(number)) if item.not => {
                    last = Some(Compare {
                        word: word::L4,
                        not: true,
                        mask: 0xff,
                        value: *number,
                    });
                }
                ("-p", Value::Number(number)) => {
                    protocol = *number as u8;
                    last = Some(Compare {
                        word: word::L4,
                        not: false,
                        mask: 0xff,
                        value: *number,
                    });
                }
                ("-f", _) => {
                    let value = if item.not { 0 } else { l4::FRAGMENT };
                    self.in_header(word::L4, false, l4::FRAGMENT, value);
                }
                _ => self.arp_item(item),
            }
        }
        // xtables compares the protocol last of the header in IPv6, where it can drop the packet.
        if let Some(compare) = last {
            self.header
                .retain(|c| c.word != word::L4 || compare.not || c.not);
            let fragment = group
                .get("-f")
                .map(|item| if item.not { 0 } else { l4::FRAGMENT });
            self.header.push(match fragment {
                Some(value) if !compare.not => Compare {
                    mask: compare.mask | l4::FRAGMENT,
                    value: compare.value | value,
                    ..compare
                },
                _ => compare,
            });
        }
        protocol
    }

    pub(super) fn interface(&mut self, item: &Item, name: &[u8]) {
        let first = if item.name() == "-i" {
            word::IN
        } else {
            word::OUT
        };
        let [(mask, value), (mask1, value1)] = name_words(name);
        self.header_words(
            item.not,
            &[(first, mask, value), (first + 1, mask1, value1)],
        );
    }

    fn arp_item(&mut self, item: &Item) {
        let (at, width) = match item.name() {
            "--src-mac" | "--dst-mac" => {
                if let Value::Wide(pair) = &item.value {
                    let place = if item.name() == "--src-mac" {
                        word::SMAC
                    } else {
                        word::DMAC
                    };
                    self.header_words(item.not, &[(place, raw_mac(pair[1]), raw_mac(pair[0]))]);
                }
                return;
            }
            "--opcode" => (0, 0xffff),
            "--h-type" => (16, 0xffff),
            "--proto-type" => (32, 0xffff),
            "--h-length" => (48, 0xff),
            _ => {
                self.unknown(Unknown::OpaqueMatch);
                return;
            }
        };
        if let Value::Pair(value, mask) = item.value {
            let mask = u64::from(mask & width) << at;
            self.header_words(item.not, &[(word::ARP, mask, u64::from(value) << at)]);
        }
    }

    /// A comparison of a match: where possible one of the record, otherwise a test.
    pub(super) fn compare(&mut self, word: usize, not: bool, mask: u64, value: u64) {
        let compare = Compare {
            word,
            not,
            mask,
            value,
        };
        if self.family == Family::Bridge
            && !self.tested
            && !not
            && let Some(same) = self
                .early
                .iter_mut()
                .find(|c| c.word == word && !c.not && c.mask & mask == 0)
        {
            same.mask |= mask;
            same.value |= value;
        } else if self.tested {
            self.words(
                &[Compare {
                    not: false,
                    ..compare
                }],
                not,
                false,
            );
        } else if self.dropping {
            self.late.push(compare);
        } else {
            self.early.push(compare);
        }
    }

    /// The transport header that a match needs: joined with the protocol if it is the first match
    /// that can drop the packet.
    fn needs(&mut self, bit: u64) {
        if self.tested || self.dropping {
            self.words(
                &[Compare {
                    word: word::L4,
                    not: false,
                    mask: bit,
                    value: bit,
                }],
                false,
                false,
            );
        } else {
            // The protocol is compared before all matches, so it joins only the first of them.
            let protocol = self
                .header
                .iter()
                .position(|c| c.word == word::L4 && !c.not && c.mask & 0xff != 0)
                .filter(|_| self.early.is_empty());
            let mut compare = match protocol {
                Some(at) => self.header.remove(at),
                None => Compare {
                    word: word::L4,
                    not: false,
                    mask: 0,
                    value: 0,
                },
            };
            compare.mask |= bit;
            compare.value |= bit;
            self.transport = Some(compare);
        }
        self.dropping = true;
    }

    /// A part of the transport header, after [`Encoder::needs`].
    fn transport(&mut self, not: bool, mask: u64, value: u64) {
        if let Some(compare) = &mut self.transport
            && !self.tested
            && !not
            && self.late.is_empty()
            && compare.mask & mask == 0
        {
            compare.mask |= mask;
            compare.value |= value;
        } else {
            self.compare(word::L4, not, mask, value);
        }
    }

    pub(super) fn range(
        &mut self,
        word: usize,
        shift: u32,
        width: u32,
        first: u32,
        last: u32,
        not: bool,
    ) {
        self.test(
            test::RANGE,
            if not { test::NOT } else { 0 },
            word,
            first | last << 16,
            u64::from(shift) | u64::from(width) << 8,
            &[],
        );
    }

    fn port(&mut self, item: &Item, shift: u32) {
        let Value::Pair(first, last) = item.value else {
            return;
        };
        if first == last {
            self.transport(item.not, 0xffff << shift, u64::from(first) << shift);
        } else {
            self.range(word::L4, shift, 16, first, last, item.not);
        }
    }

    /// Bits one of which must be set.
    pub(super) fn any_bits(&mut self, word: usize, shift: u32, bits: u64, not: bool) {
        self.compare(word, !not, bits << shift, 0);
    }

    /// The number is a fact. A limit beyond its bits is not exceeded.
    fn connlimit(&mut self, group: Group) {
        for (name, above) in [("--connlimit-upto", false), ("--connlimit-above", true)] {
            if let Some((limit, not)) = group.number(name) {
                let last = limit.min(0xffff) as u32;
                self.range(word::TYPE, CONNECTIONS, 16, 0, last, above != not);
            }
        }
    }

    /// Requires a connection: neither INVALID nor UNTRACKED.
    fn has_connection(&mut self) {
        self.compare(word::META, false, 17 << meta::STATE, 0);
    }

    fn slot(&mut self, first: u64) -> u32 {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None => {
                self.states.push(0);
                self.states.len() as u32 - 1
            }
        };
        self.states[slot as usize] = first;
        slot
    }

    fn extension(&mut self, group: Group, protocol: u8) {
        let _ = protocol;
        match group.kind {
            Kind::Comment => {}
            Kind::Tcp | Kind::Udp | Kind::Sctp | Kind::Dccp | Kind::Icmp | Kind::Icmp6 => {
                self.transport_match(group);
            }
            Kind::Multiport => self.multiport(group),
            Kind::State => {
                if let Some((bits, not)) = group.number("--state") {
                    self.any_bits(word::META, meta::STATE, bits, not);
                }
            }
            Kind::Conntrack => self.conntrack(group),
            Kind::Mark | Kind::Connmark => {
                if let Some((value, mask, not)) = group.pair("--mark") {
                    let shift = if group.kind == Kind::Mark { 0 } else { 32 };
                    if group.kind == Kind::Connmark {
                        self.has_connection();
                    }
                    let (mask, value) = (u64::from(mask) << shift, u64::from(value) << shift);
                    self.compare(word::MARK, not, mask, value);
                }
            }
            Kind::Mac => {
                if let Some((address, not)) = group.number("--mac-source") {
                    self.compare(word::SMAC, not, raw_mac(MAC), raw_mac(address));
                }
            }
            Kind::Length => {
                if let Some((first, last, not)) = group.pair("--length") {
                    self.range(word::META, meta::LENGTH, 16, first, last, not);
                }
            }
            Kind::Ttl | Kind::Hl => self.ttl(group),
            Kind::Dscp => {
                if let Some((dscp, not)) = group.number("--dscp") {
                    self.compare(word::META, not, 0xfc << meta::TOS, dscp << (meta::TOS + 2));
                }
            }
            Kind::Tos => {
                if let Some((value, mask, not)) = group.pair("--tos") {
                    self.compare(
                        word::META,
                        not,
                        u64::from(mask) << meta::TOS,
                        u64::from(value) << meta::TOS,
                    );
                }
            }
            Kind::Pkttype => {
                if let Some((number, not)) = group.number("--pkt-type") {
                    self.compare(word::MISC, not, 0xff, number);
                }
            }
            Kind::Addrtype => self.addrtype(group),
            Kind::Iprange => self.iprange(group),
            Kind::Rpfilter => self.rpfilter(group),
            Kind::Set => self.set(group),
            Kind::BridgeIp
            | Kind::BridgeIp6
            | Kind::BridgeArp
            | Kind::BridgeMark
            | Kind::BridgePkttype
            | Kind::Dot3
            | Kind::Stp
            | Kind::Vlan
            | Kind::Among => self.bridge_match(group),
            _ => self.stateful_match(group),
        }
    }

    fn transport_match(&mut self, group: Group) {
        self.needs(l4::HEADER);
        // xtables compares options last, because a broken one drops the packet.
        let (last, first): (Vec<&Item>, Vec<&Item>) = group
            .items
            .iter()
            .partition(|item| matches!(item.name(), "--tcp-option" | "--dccp-option"));
        for item in first.into_iter().chain(last) {
            match (item.name(), &item.value) {
                ("--sport", _) => self.port(item, 16),
                ("--dport", _) => self.port(item, 32),
                ("--tcp-flags", Value::Pair(mask, flags)) => {
                    let (mask, flags) = (u64::from(*mask) << 48, u64::from(*flags) << 48);
                    if mask == 0 || flags & !mask != 0 {
                        // The comparison is constant.
                        if (flags & !mask == 0) == item.not {
                            self.never();
                        }
                    } else {
                        self.transport(item.not, mask, flags);
                    }
                }
                ("--tcp-option", Value::Number(option)) => {
                    let flags = if item.not { test::NOT } else { 0 };
                    self.test(test::TCP_OPTION, flags, 0, *option as u32, 0, &[]);
                }
                ("--dccp-types", Value::Number(types)) => {
                    let flags = if item.not { test::NOT } else { 0 };
                    // INVALID is every type from 10 on.
                    let types = *types as u32;
                    let types = if types & 1 << 10 != 0 {
                        types | 0xfc00
                    } else {
                        types
                    };
                    self.test(test::DCCP, flags, 0, types, 0, &[]);
                }
                ("--dccp-option", _) => self.unknown(Unknown::OpaqueMatch),
                ("--chunk-types", Value::Numbers(numbers)) => self.chunks(numbers, item.not),
                ("--icmp-type" | "--icmpv6-type", Value::Pair(ty, codes)) => {
                    self.icmp_type(group.kind, *ty, *codes, item.not);
                }
                _ => {}
            }
        }
    }

    fn icmp_type(&mut self, kind: Kind, ty: u32, codes: u32, not: bool) {
        if ty == 255 && kind == Kind::Icmp {
            if not {
                self.never();
            }
            return;
        }
        let (first, last) = (codes & 0xff, codes >> 8);
        let (mut mask, mut value) = (0xff << 16, u64::from(ty) << 16);
        if first == last {
            mask |= 0xff << 24;
            value |= u64::from(first) << 24;
        }
        self.transport(not, mask, value);
    }

    fn chunks(&mut self, numbers: &[u128], not: bool) {
        let mut types = [0u64; 4];
        let mut entries = Vec::new();
        for entry in &numbers[1..] {
            let ty = *entry as usize & 255;
            types[ty / 64] |= 1 << (ty % 64);
            if entry >> 8 != 0 {
                entries.push(*entry as u32);
            }
        }
        let mut data = Vec::new();
        for number in types {
            data.extend_from_slice(&number.to_le_bytes());
        }
        for entry in &entries {
            data.extend_from_slice(&entry.to_le_bytes());
        }
        let flags = if not { test::NOT } else { 0 };
        let mode = numbers[0] as usize;
        self.test(test::CHUNKS, flags, mode, entries.len() as u32, 0, &data);
    }

    fn multiport(&mut self, group: Group) {
        let Some(item) = group.items.iter().find(|item| !item.is_head()) else {
            return;
        };
        let Value::Ranges(ranges) = &item.value else {
            return;
        };
        let which = match item.name() {
            "--sports" => 1,
            "--dports" => 2,
            _ => 3,
        };
        let mut data = Vec::new();
        for (first, last) in ranges.iter() {
            data.extend_from_slice(&(u32::from(*first) | u32::from(*last) << 16).to_le_bytes());
        }
        // A separate test, which can drop the packet.
        self.dropping = true;
        let flags = if item.not { test::NOT } else { 0 };
        self.test(test::PORTS, flags, which, ranges.len() as u32, 0, &data);
    }

    fn conntrack(&mut self, group: Group) {
        let state = group.number("--ctstate");
        if let Some((bits, not)) = state {
            self.any_bits(word::META, meta::STATE, bits, not);
            let others = group.items.iter().filter(|item| !item.is_head()).count() > 1;
            let reaches = |bit| (bits & bit != 0) != not;
            if others && (reaches(1) || reaches(16)) {
                // Without a connection the kernel ignores the other options.
                self.unknown(Unknown::OpaqueMatch);
                return;
            }
        } else {
            self.has_connection();
        }
        for item in group.items {
            match (item.name(), &item.value) {
                ("-m" | "--ctstate", _) => {}
                ("--ctstatus", Value::Number(bits)) => {
                    self.any_bits(word::META, meta::STATUS, *bits, item.not);
                }
                ("--ctdir", Value::Number(reply)) => {
                    self.compare(word::META, false, 1 << meta::REPLY, reply << meta::REPLY);
                }
                _ => self.unknown(Unknown::Connection),
            }
        }
    }

    fn ttl(&mut self, group: Group) {
        for item in group.items {
            let Value::Number(ttl) = item.value else {
                continue;
            };
            let ttl = ttl as u32;
            match &item.name()[item.name().len() - 2..] {
                "eq" => self.compare(
                    word::META,
                    item.not,
                    0xff << meta::TTL,
                    u64::from(ttl) << meta::TTL,
                ),
                "lt" if ttl == 0 => self.never(),
                "lt" => self.range(word::META, meta::TTL, 8, 0, ttl - 1, false),
                _ if ttl == 255 => self.never(),
                _ => self.range(word::META, meta::TTL, 8, ttl + 1, 255, false),
            }
        }
    }

    fn addrtype(&mut self, group: Group) {
        let limited = group.has("--limit-iface-in") || group.has("--limit-iface-out");
        for (at, name) in ["--src-type", "--dst-type"].into_iter().enumerate() {
            let Some((bits, not)) = group.number(name) else {
                continue;
            };
            if limited || self.family == Family::Ipv6 {
                let flags = if not { test::NOT } else { 0 };
                let what = at | usize::from(limited) << 1;
                self.test(test::ADDRTYPE, flags, what, bits as u32, 0, &[]);
            } else {
                self.any_bits(word::TYPE, 16 * at as u32, bits, not);
            }
        }
    }

    fn iprange(&mut self, group: Group) {
        for item in group.items {
            let destination = usize::from(item.name() == "--dst-range");
            let data: Vec<u8> = match &item.value {
                Value::Pair(first, last) => [u64::from(*first), u64::from(*last), 0, 0]
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect(),
                Value::Ipv6(range) => range
                    .iter()
                    .flat_map(|address| [(address >> 64) as u64, *address as u64])
                    .flat_map(u64::to_le_bytes)
                    .collect(),
                _ => continue,
            };
            let flags = if item.not { test::NOT } else { 0 };
            self.test(test::ADDRESSES, flags, destination, 0, 0, &data);
        }
    }

    fn rpfilter(&mut self, group: Group) {
        let plain = ["--loose", "--validmark", "--accept-local"];
        if plain.iter().any(|name| group.has(name)) {
            self.unknown(Unknown::ReversePath);
            return;
        }
        let passes = u64::from(!group.has("--invert"));
        self.compare(word::MISC, false, 0x100, passes << 8);
    }

    fn set(&mut self, group: Group) {
        let Some(Item {
            value: Value::Set(set),
            not,
            ..
        }) = group.get("--match-set")
        else {
            return;
        };
        let extra = group.items.iter().filter(|item| !item.is_head()).count() > 1;
        let name = String::from_utf8_lossy(&set.name).into_owned();
        let dimensions = set.destinations.len();
        if self.sets.dimension(&name) > dimensions {
            // The kernel does not find a packet of which a rule names too few parts.
            if !not {
                self.never();
            }
            return;
        }
        match self.sets.number(&name) {
            Ok(number) if !extra => {
                let mut fields = 0;
                for (at, destination) in set.destinations.iter().enumerate() {
                    fields |= usize::from(*destination) << at;
                }
                let flags = if *not { test::NOT } else { 0 };
                self.test(test::SET, flags, fields, number, dimensions as u64, &[]);
            }
            Ok(_) => self.unknown(Unknown::OpaqueMatch),
            Err(reason) => self.unknown(reason),
        }
    }

    fn stateful_match(&mut self, group: Group) {
        match group.kind {
            Kind::Limit | Kind::BridgeLimit => {
                let per_packet = group.number("--limit").map_or(1, |(rate, _)| rate);
                let burst = group.number("--limit-burst").map_or(5, |(burst, _)| burst);
                let slot = self.slot(0);
                // The kernel multiplies numbers of 32 bits, so a slow rate cuts the burst.
                let all = per_packet.wrapping_mul(burst) & u64::from(u32::MAX);
                let data: Vec<u8> = [limit_ns(per_packet), limit_ns(all)]
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                self.test(test::LIMIT, test::STATEFUL, 0, slot, 0, &data);
            }
            Kind::Quota => {
                if let Some((bytes, not)) = group.number("--quota") {
                    let slot = self.slot(bytes);
                    let flags = test::STATEFUL | if not { test::NOT } else { 0 };
                    self.test(test::QUOTA, flags, 0, slot, bytes, &[]);
                }
            }
            Kind::Statistic => self.statistic(group),
            Kind::Time => self.time(group),
            Kind::Owner => self.owner(group),
            Kind::Physdev => self.physdev(group),
            Kind::U32 => {
                if let Some(Item {
                    value: Value::U32(program),
                    not,
                    ..
                }) = group.get("--u32")
                {
                    self.u32_program(program, *not);
                }
            }
            Kind::Ecn => self.ecn(group),
            Kind::Esp | Kind::Ah => {
                let name = if group.kind == Kind::Esp {
                    "--espspi"
                } else {
                    "--ahspi"
                };
                let (first, last, not) = group.pair(name).unwrap_or((0, u32::MAX, false));
                let offset = if group.kind == Kind::Esp { 0 } else { 4 };
                let flags = if not { test::NOT } else { 0 };
                self.dropping = true;
                self.test(test::SPI, flags, offset, first, u64::from(last), &[]);
            }
            Kind::Tcpmss => {
                if let Some((first, last, not)) = group.pair("--mss") {
                    let flags = if not { test::NOT } else { 0 };
                    self.dropping = true;
                    self.test(test::TCP_MSS, flags, 0, first | last << 16, 0, &[]);
                }
            }
            Kind::Frag | Kind::Hbh | Kind::Dst | Kind::Rt | Kind::Ah6 => {
                self.extension_header(group)
            }
            Kind::Ipv6Header => {
                if let Some((bits, not)) = group.number("--header") {
                    let flags = if not { test::NOT } else { 0 };
                    let soft = usize::from(group.has("--soft"));
                    self.test(test::HEADERS, flags, soft, bits as u32, 0, &[]);
                }
            }
            Kind::Recent => self.recent(group),
            Kind::Hashlimit => self.hashlimit(group),
            Kind::Connlimit => self.connlimit(group),
            _ => self.unknown(Unknown::OpaqueMatch),
        }
    }

    fn recent(&mut self, group: Group) {
        let actions = [
            ("--set", recent::SET),
            ("--rcheck", recent::CHECK),
            ("--update", recent::UPDATE),
            ("--remove", recent::REMOVE),
        ];
        let action = actions
            .iter()
            .find_map(|(name, action)| Some((group.get(name)?.not, *action)));
        let (Some((not, action)), Some(list)) = (action, self.tables.recent(group, self.family))
        else {
            self.unknown(Unknown::OpaqueMatch);
            return;
        };
        let mut what = action;
        for (name, bit) in [
            ("--rdest", recent::DEST),
            ("--rttl", recent::TTL),
            ("--reap", recent::REAP),
        ] {
            what |= if group.has(name) { bit } else { 0 };
        }
        let number = |name| group.number(name).map_or(0, |(number, _)| number);
        let times = number("--seconds") | number("--hitcount") << 32;
        let flags = test::STATEFUL | if not { test::NOT } else { 0 };
        self.test(test::RECENT, flags, what, list, times, &[]);
    }

    fn hashlimit(&mut self, group: Group) {
        let upto = group.number("--hashlimit-upto");
        let rate = upto.or(group.number("--hashlimit-above"));
        let (Some((rate, not)), Some(table)) = (rate, self.tables.limit(group, self.family)) else {
            self.unknown(Unknown::OpaqueMatch);
            return;
        };
        let above = upto.is_none() != not;
        let flags = test::STATEFUL | if above { test::NOT } else { 0 };
        let bytes = usize::from(rate & BYTES != 0);
        // A packet without the ports of the key is dropped.
        self.dropping = true;
        self.test(test::HASHLIMIT, flags, bytes, table, 0, &[]);
    }

    fn statistic(&mut self, group: Group) {
        if let Some((share, not)) = group.number("--probability") {
            let flags = if not { test::NOT } else { 0 };
            self.test(test::RANDOM, flags, 0, share as u32, 0, &[]);
        } else if let (Some((every, not)), Some((packet, _))) =
            (group.number("--every"), group.number("--packet"))
        {
            let slot = self.slot(packet);
            let flags = test::STATEFUL | if not { test::NOT } else { 0 };
            self.test(test::NTH, flags, 0, slot, every, &[]);
        }
    }

    fn time(&mut self, group: Group) {
        let number = |name, default| group.number(name).map_or(default, |(number, _)| number);
        let days = |name| match group.number(name) {
            None => u32::MAX,
            Some((days, false)) => days as u32,
            Some((days, true)) => !(days as u32),
        };
        let mut data = Vec::new();
        for seconds in [number("--datestart", 0), number("--datestop", u64::MAX)] {
            data.extend_from_slice(&seconds.to_le_bytes());
        }
        for part in [
            number("--timestart", 0) as u32,
            number("--timestop", 86_399) as u32,
            days("--weekdays"),
            days("--monthdays"),
            u32::from(group.has("--contiguous")),
            u32::from(group.has("--kerneltz")),
        ] {
            data.extend_from_slice(&part.to_le_bytes());
        }
        self.test(test::TIME, 0, 0, 0, 0, &data);
    }

    fn owner(&mut self, group: Group) {
        for item in group.items {
            let which = match item.name() {
                "--uid-owner" => 0,
                "--gid-owner" => 1,
                "--socket-exists" => 2,
                "--suppl-groups" => {
                    self.unknown(Unknown::OpaqueMatch);
                    continue;
                }
                _ => continue,
            };
            let (first, last) = match item.value {
                Value::Pair(first, last) => (first, last),
                _ => (0, 0),
            };
            let flags = if item.not { test::NOT } else { 0 };
            self.test(test::OWNER, flags, which, first, u64::from(last), &[]);
        }
    }

    fn physdev(&mut self, group: Group) {
        for item in group.items {
            let (out, a) = match item.name() {
                "--physdev-in" => (0, 1),
                "--physdev-out" => (1, 1),
                "--physdev-is-in" => (0, 2),
                "--physdev-is-out" => (1, 2),
                "--physdev-is-bridged" => (0, 3),
                _ => continue,
            };
            let name = match &item.value {
                Value::Text(name) => Some(&name[..]),
                _ => None,
            };
            let flags = if item.not { test::NOT } else { 0 };
            self.port_name(flags, out, a, name);
        }
    }

    /// A test of a bridge port's name, or of the bridge's.
    pub(super) fn port_name(&mut self, flags: u8, out: usize, a: u32, name: Option<&[u8]>) {
        let data: Vec<u8> = name
            .map_or([(0, 0); 2], name_words)
            .iter()
            .flat_map(|(mask, value)| [*mask, *value])
            .flat_map(u64::to_le_bytes)
            .collect();
        self.test(test::PHYSICAL, flags, out, a, 0, &data);
    }

    pub(super) fn u32_program(&mut self, program: &U32Test, not: bool) {
        let mut words: Vec<u32> = Vec::new();
        for test in &program.tests {
            words.push(test.offset);
            words.push(test.steps.len() as u32);
            words.push(test.ranges.len() as u32);
            for step in &test.steps {
                let (operation, number) = match step {
                    Location::And(number) => (0, *number),
                    Location::ShiftLeft(number) => (1, *number),
                    Location::ShiftRight(number) => (2, *number),
                    Location::At(number) => (3, *number),
                };
                words.push(operation);
                words.push(number);
            }
            for (first, last) in &test.ranges {
                words.push(*first);
                words.push(*last);
            }
        }
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = if not { test::NOT } else { 0 };
        self.test(test::U32, flags, 0, program.tests.len() as u32, 0, &data);
    }

    fn ecn(&mut self, group: Group) {
        let (mut which, mut wanted, mut inverted) = (0, 0u64, 0u64);
        for item in group.items {
            match (item.name(), &item.value) {
                ("--ecn-tcp-ece", _) => {
                    which |= 1;
                    wanted |= u64::from(!item.not);
                }
                ("--ecn-tcp-cwr", _) => {
                    which |= 2;
                    wanted |= u64::from(!item.not) << 1;
                }
                ("--ecn-ip-ect", Value::Number(ect)) => {
                    which |= 4;
                    wanted |= ect << 4;
                    inverted = if item.not { 4 } else { 0 };
                }
                _ => {}
            }
        }
        self.test(test::ECN, 0, 0, which, wanted | inverted << 32, &[]);
    }

    /// IPv6 extension headers: `struct fp_rules_extension`.
    fn extension_header(&mut self, group: Group) {
        let (header, range, length, options) = match group.kind {
            Kind::Frag => (44, "--fragid", "", ""),
            Kind::Hbh => (0, "", "--hbh-len", "--hbh-opts"),
            Kind::Dst => (60, "", "--dst-len", "--dst-opts"),
            Kind::Rt => (43, "--rt-segsleft", "--rt-len", ""),
            _ => (51, "--ahspi", "--ahlen", ""),
        };
        let mut checks = 0u32;
        let mut data = [0u32; 24];
        data[0] = header;
        if let Some((first, last, not)) = group.pair(range) {
            checks |= 1 | if not { 2 } else { 0 };
            (data[2], data[3]) = (first, last);
        }
        // The kernel takes length 0 of `-m ah` as any.
        let given = group
            .number(length)
            .filter(|(bytes, _)| group.kind != Kind::Ah6 || *bytes != 0);
        if let Some((bytes, not)) = given {
            checks |= 4 | if not { 8 } else { 0 };
            data[4] = bytes as u32;
        }
        if let Some((ty, not)) = group.number("--rt-type") {
            checks |= 16 | if not { 32 } else { 0 };
            data[5] = ty as u32;
        }
        for (name, bit) in [
            ("--fragres", 64),
            ("--rt-0-res", 64),
            ("--ahres", 64),
            ("--fragfirst", 128),
            ("--fragmore", 256),
            ("--fraglast", 512),
        ] {
            if group.has(name) {
                checks |= bit;
            }
        }
        if let Some(Item {
            value: Value::Numbers(list),
            ..
        }) = group.get(options)
        {
            checks |= 1024;
            data[6] = list.len() as u32;
            for (at, option) in list.iter().take(16).enumerate() {
                data[8 + at] = *option as u32;
            }
        }
        data[1] = checks;
        let bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.dropping = true;
        self.test(test::EXTENSION, 0, 0, 0, 0, &bytes);
        if group.has("--rt-0-addrs") {
            self.unknown(Unknown::OpaqueMatch);
        }
    }

    /// The action of a rule. A change of the packet becomes the last test.
    fn target(&mut self, rule: &Rule) -> u32 {
        let chain = |id: crate::tree::ChainId| (self.chain_base + id.0) << 8;
        match rule.target {
            Target::None | Target::Continue => action::NONE,
            Target::Accept => action::ACCEPT,
            Target::Drop => action::DROP,
            Target::Return => action::RETURN,
            Target::Queue => action::QUEUE,
            Target::Jump(id) => action::JUMP | chain(id),
            Target::Goto(id) => action::GOTO | chain(id),
            Target::Extension(kind) => self.target_extension(kind, rule.target_options()),
        }
    }

    fn change(&mut self, kind: u8, small: usize, a: u32, b: u64) -> u32 {
        self.test(kind, 0, small, a, b, &[]);
        action::TARGET
    }

    fn target_extension(&mut self, kind: Kind, options: Group) -> u32 {
        let pair = |name| options.pair(name).map(|(a, b, _)| (a, u64::from(b)));
        let unknown = |reason: Unknown| action::UNKNOWN | (reason as u32) << 8;
        match kind {
            Kind::TargetReject => {
                let (answer, _) = options.number("--reject-with").unwrap_or((3, false));
                action::REJECT | (answer as u32) << 8
            }
            Kind::TargetMark => match pair("--set-xmark") {
                Some((value, mask)) => self.change(test::SET_MARK, 0, value, mask),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetConnmark => {
                if let Some((value, mask)) = pair("--set-xmark") {
                    return self.change(test::SET_CONNMARK, 0, value, mask);
                }
                let mask = |name| options.number(name).map_or(u64::from(u32::MAX), |(m, _)| m);
                let masks = mask("--nfmask") | mask("--ctmask") << 32;
                let kind = if options.has("--save-mark") {
                    test::SAVE_CONNMARK
                } else {
                    test::RESTORE_CONNMARK
                };
                self.change(kind, 0, 0, masks)
            }
            Kind::TargetClassify => match pair("--set-class") {
                Some((major, minor)) => {
                    self.change(test::SET_PRIORITY, 0, major << 16 | minor as u32, 0)
                }
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetTos => match pair("--set-tos") {
                Some((value, mask)) => self.change(test::SET_TOS, 0, value, mask),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetDscp => match options.number("--set-dscp") {
                Some((dscp, _)) => self.change(test::SET_DSCP, 0, dscp as u32, 0),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetTtl | Kind::TargetHl => {
                for item in options.items {
                    let how = match &item.name()[item.name().len() - 3..] {
                        "set" => 0,
                        "dec" => 1,
                        _ => 2,
                    };
                    if let Value::Number(ttl) = item.value {
                        return self.change(test::SET_TTL, how, ttl as u32, 0);
                    }
                }
                unknown(Unknown::OpaqueTarget)
            }
            Kind::TargetTcpmss => {
                let mss = options.number("--set-mss").map_or(0, |(mss, _)| mss as u32);
                self.change(test::SET_MSS, 0, mss, 0)
            }
            Kind::TargetNotrack => self.change(test::SET_UNTRACKED, 0, 0, 0),
            Kind::TargetCt if options.has("--notrack") => self.change(test::SET_UNTRACKED, 0, 0, 0),
            Kind::TargetCt => {
                let slot = self.slot(0);
                self.change(test::SET_TEMPLATE, 0, slot, 0)
            }
            Kind::TargetLog | Kind::TargetNflog | Kind::TargetTrace => {
                self.change(test::SET_LOGGED, 0, 0, 0)
            }
            Kind::BridgeMarkTarget => self.bridge_mark(options),
            Kind::TargetNfqueue => action::QUEUE,
            Kind::TargetDnat
            | Kind::TargetSnat
            | Kind::TargetMasquerade
            | Kind::TargetRedirect
            | Kind::TargetNetmap => unknown(Unknown::Translation),
            _ => unknown(Unknown::OpaqueTarget),
        }
    }
}

const MAC: u64 = 0xffff_ffff_ffff;

/// A link-layer address as its bytes are loaded.
pub(super) fn raw_mac(address: u64) -> u64 {
    address.swap_bytes() >> 16
}

/// Tests of the frame's header, and the others, in order.
fn divided(tests: &[u8], count: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut header, mut others) = (Vec::new(), Vec::new());
    let mut at = 0;
    for _ in 0..count {
        let end = at + usize::from(tests[at + 1]) * UNIT;
        let part = match tests[at + 2] & test::IN_HEADER {
            0 => &mut others,
            _ => &mut header,
        };
        part.extend_from_slice(&tests[at..end]);
        at = end;
    }
    (header, others)
}

const _: () = assert!(NONE == u32::MAX);

/// Nanoseconds of a limit's ten-thousandths of a second, as the kernel counts them in 32 bits: the
/// result is rounded, and wraps for slow rates (`user2credits` of xt_limit.c with HZ 250 or 1000).
fn limit_ns(number: u64) -> u64 {
    const CREDITS: u32 = 32_000;
    let number = number as u32;
    let credits = if number > u32::MAX / CREDITS {
        (number / 10_000).wrapping_mul(CREDITS)
    } else {
        number * CREDITS / 10_000
    };
    u64::from(credits) * (1_000_000_000 / u64::from(CREDITS))
}
