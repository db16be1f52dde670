//! A rule as a record of the image: comparisons of words, tests, and an action.
//!
//! ```text
//!   header of the frame (here) ─┐
//!   matches.rs, bridge.rs ──────┼── comparisons, tests ── record
//!   target.rs ──────────────────┘         '── more than fit: all are tests
//! ```
//!
//! Comparisons are those of the frame's header, then of matches before any that can drop a packet,
//! then those of the first match with a transport header, then of matches after it. Matches that
//! can be no comparison are tests, in written order.

use fairpath_core::rules::{COMPARES, UNIT, action, l4, test, word};

use super::BuildError;
use super::encoded::{Compare, Encoded, Placed, put_record};
use super::set::SetTable;
use super::table::Tables;
use crate::packet::Unknown;
use crate::sets::Sets;
use crate::spec::Kind;
use crate::tree::{Family, Group, Item, Rule, Ruleset, Value};

/// Encodes rules of one family.
pub struct Encoder<'a> {
    pub(super) family: Family,
    /// The number in the image of the table's chain 0.
    pub chain_base: u32,
    /// The numbers in the image of the table's chains, if they are not in order.
    pub chains: Vec<u32>,
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
    pub(super) dropping: bool,
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
pub fn name_words(name: &[u8]) -> [(u64, u64); 2] {
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
            chains: Vec::new(),
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
        let mut watchers = 0;
        for group in rule.matches() {
            if group.kind == Kind::BridgeHeader {
                self.bridge_header(group);
            } else if group.kind.is_watcher() {
                watchers += 1;
            } else if group.kind.is_header() {
                self.header(group);
            } else {
                self.extension(group);
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

    /// The items of the frame's header.
    fn header(&mut self, group: Group) {
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
    pub(super) fn needs(&mut self, bit: u64) {
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
    pub(super) fn transport(&mut self, not: bool, mask: u64, value: u64) {
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

    pub(super) fn port(&mut self, item: &Item, shift: u32) {
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
}

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
