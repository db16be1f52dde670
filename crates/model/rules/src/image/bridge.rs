//! Rules of bridges as records: ebtables has no match that drops a frame, so all comparisons are
//! plain ones.

use fairpath_core::rules::{action, l4, meta, test, word};

use super::encoded::Compare;
use super::rule::{Encoder, raw_mac, raw32, raw128};
use crate::packet::Unknown;
use crate::spec::{Kind, Location, U32Test, U32Word};
use crate::tree::{Group, Item, Value};

/// The largest length of an 802.3 frame; larger numbers are types.
const LAST_LENGTH: u32 = 0x5ff;
const TYPE: u32 = 48;
/// The service access point of SNAP.
const SNAP: u32 = 0xaa;
/// Bytes of a message of spanning tree.
const STP_BYTES: u32 = 37;

/// A field of the packet, and its accepted numbers.
struct Field(U32Word);

impl Field {
    /// The word of 32 bits at `at`, shifted to the right, under a mask.
    fn new(at: u32, shift: u32, mask: u32, ranges: Vec<(u32, u32)>) -> Self {
        Self(U32Word {
            offset: at,
            steps: vec![Location::ShiftRight(shift), Location::And(mask)],
            ranges,
        })
    }
}

/// A range of numbers up to `max`, or negated, the numbers outside of it.
fn outside(first: u32, last: u32, max: u32, not: bool) -> Vec<(u32, u32)> {
    if !not {
        return vec![(first, last)];
    }
    let below = first.checked_sub(1).map(|end| (0, end));
    let above = (last < max).then(|| (last + 1, max));
    below.into_iter().chain(above).collect()
}

impl Encoder<'_> {
    /// The items of the frame's header.
    pub(super) fn bridge_header(&mut self, group: Group) {
        for item in group.items {
            match (item.name(), &item.value) {
                ("-p", Value::Number(number)) if *number == u64::from(crate::bridge::LENGTH) => {
                    let flags = test::IN_HEADER | if item.not { test::NOT } else { 0 };
                    let tested = self.tested;
                    let place = u64::from(TYPE) | 16 << 8;
                    self.test(
                        test::RANGE,
                        flags,
                        word::SMAC,
                        LAST_LENGTH << 16,
                        place,
                        &[],
                    );
                    self.tested = tested;
                }
                ("-p", Value::Number(number)) => {
                    self.in_header(word::SMAC, item.not, 0xffff << TYPE, number << TYPE);
                }
                ("-s" | "-d", Value::Wide(pair)) => {
                    let place = if item.name() == "-s" {
                        word::SMAC
                    } else {
                        word::DMAC
                    };
                    self.header_words(item.not, &[(place, raw_mac(pair[1]), raw_mac(pair[0]))]);
                }
                ("-i" | "-o", Value::Text(name)) => self.interface(item, name),
                ("--logical-in" | "--logical-out", Value::Text(name)) => {
                    let out = usize::from(item.name() == "--logical-out");
                    let flags = test::IN_HEADER | if item.not { test::NOT } else { 0 };
                    let tested = self.tested;
                    self.port_name(flags, out, 4, Some(name));
                    self.tested = tested;
                }
                _ => self.unknown(Unknown::OpaqueMatch),
            }
        }
    }

    pub(super) fn bridge_match(&mut self, group: Group) {
        match group.kind {
            Kind::BridgeMark => {
                if let Some((value, mask, not)) = group.pair("--mark") {
                    self.compare(word::MARK, not, u64::from(mask), u64::from(value));
                } else if let Some((bits, not)) = group.number("--mark") {
                    self.any_bits(word::MARK, 0, bits, not);
                }
            }
            Kind::BridgePkttype => {
                if let Some((number, not)) = group.number("--pkttype-type") {
                    self.compare(word::MISC, not, 0xff, number);
                }
            }
            Kind::Dot3 => self.link_control(group),
            Kind::Stp => self.spanning_tree(group),
            Kind::Among => group.items.iter().for_each(|item| self.among(item)),
            kind => {
                self.has(l4::HEADER);
                for item in group.items.iter().filter(|item| !item.is_head()) {
                    match kind {
                        Kind::BridgeArp => self.arp(item),
                        Kind::Vlan => self.vlan(item),
                        _ => self.ip(item),
                    }
                }
            }
        }
    }

    /// Bits of the word of the transport header that must be set.
    fn has(&mut self, bits: u64) {
        let there = |compare: &Compare| {
            compare.word == word::L4 && !compare.not && compare.mask & compare.value & bits == bits
        };
        if self.tested || !self.early.iter().any(there) {
            self.compare(word::L4, false, bits, bits);
        }
    }

    fn ip(&mut self, item: &Item) {
        let name = item.name();
        let name = name.strip_prefix("--ip6-").or(name.strip_prefix("--ip-"));
        match (name.unwrap_or_default(), &item.value) {
            ("src", Value::Pair(address, mask)) => {
                self.compare(word::ADDR, item.not, raw32(*mask), raw32(*address));
            }
            ("dst", Value::Pair(address, mask)) => {
                let (mask, address) = (raw32(*mask) << 32, raw32(*address) << 32);
                self.compare(word::ADDR, item.not, mask, address);
            }
            (side @ ("src" | "dst"), Value::Ipv6(net)) => {
                let first = if side == "src" {
                    word::ADDR
                } else {
                    word::ADDR2
                };
                let (address, mask) = (raw128(net[0]), raw128(net[1]));
                let half = |at: usize| Compare {
                    word: first + at,
                    not: false,
                    mask: mask[at],
                    value: address[at],
                };
                if item.not {
                    self.words(&[half(0), half(1)], true, false);
                } else {
                    for at in 0..2 {
                        self.compare(first + at, false, mask[at], address[at]);
                    }
                }
            }
            ("tos" | "tclass", Value::Number(tos)) => {
                self.compare(word::META, item.not, 0xff << meta::TOS, tos << meta::TOS);
            }
            ("proto", Value::Number(number)) => {
                self.compare(word::L4, false, l4::FAILED, 0);
                self.compare(word::L4, item.not, 0xff, *number);
            }
            (side @ ("sport" | "dport"), Value::Pair(first, last)) => {
                self.has(l4::PORTS);
                let shift = if side == "sport" { 16 } else { 32 };
                if first == last {
                    self.compare(
                        word::L4,
                        item.not,
                        0xffff << shift,
                        u64::from(*first) << shift,
                    );
                } else {
                    self.range(word::L4, shift, 16, *first, *last, item.not);
                }
            }
            ("icmp-type", Value::Pair(types, codes)) => {
                self.has(l4::PORTS);
                let flags = if item.not { test::NOT } else { 0 };
                self.test(test::TYPES, flags, 0, types | codes << 16, 0, &[]);
            }
            ("igmp-type", Value::Pair(first, last)) => {
                self.has(l4::PORTS);
                self.range(word::L4, 16, 8, *first, *last, item.not);
            }
            _ => self.unknown(Unknown::OpaqueMatch),
        }
    }

    fn arp(&mut self, item: &Item) {
        match (item.name(), &item.value) {
            ("--arp-op", Value::Number(number)) => {
                self.compare(word::ARP, item.not, 0xffff, *number);
            }
            ("--arp-htype", Value::Number(number)) => {
                self.compare(word::ARP, item.not, 0xffff << 16, number << 16);
            }
            ("--arp-ptype", Value::Number(number)) => {
                self.compare(word::ARP, item.not, 0xffff << 32, number << 32);
            }
            (name @ ("--arp-ip-src" | "--arp-ip-dst"), Value::Pair(address, mask)) => {
                let shift = if name == "--arp-ip-src" { 0 } else { 32 };
                self.has(l4::ADDRESSES);
                let (mask, address) = (raw32(*mask) << shift, raw32(*address) << shift);
                self.compare(word::ADDR, item.not, mask, address);
            }
            (name @ ("--arp-mac-src" | "--arp-mac-dst"), Value::Wide(pair)) => {
                let (bit, place) = if name == "--arp-mac-src" {
                    (l4::SENDER, word::ADDR1)
                } else {
                    (l4::RECEIVER, word::ADDR2)
                };
                self.has(bit);
                self.compare(place, item.not, raw_mac(pair[1]), raw_mac(pair[0]));
            }
            ("--arp-gratuitous", _) => {
                self.has(l4::ADDRESSES);
                self.compare(word::L4, item.not, l4::GRATUITOUS, l4::GRATUITOUS);
            }
            _ => self.unknown(Unknown::OpaqueMatch),
        }
    }

    fn vlan(&mut self, item: &Item) {
        let Value::Number(number) = item.value else {
            self.unknown(Unknown::OpaqueMatch);
            return;
        };
        let (place, mask, shift) = match item.name() {
            "--vlan-id" => (word::DMAC, 0xfff, 48),
            "--vlan-prio" => (word::DMAC, 7, 61),
            _ => (word::MISC, 0xffff, TYPE),
        };
        self.compare(place, item.not, mask << shift, number << shift);
    }

    /// 802.2. The type of SNAP is behind one byte of control, or two; for two, the kernel reads it one byte too late.
    ///
    /// Tests are for other numbers, and negated: so a frame that is too short fails none of them, and its header decides.
    fn link_control(&mut self, group: Group) {
        self.has(l4::HEADER);
        if let Some((sap, not)) = group.number("--802_3-sap") {
            // Both access points must be this one; negated, none of them.
            self.access_points(sap as u32, not);
        }
        if let Some((ty, not)) = group.number("--802_3-type") {
            self.access_points(SNAP, false);
            let other = outside(ty as u32, ty as u32, 0xffff, !not);
            let control = |first, last| Field::new(0, 8, 3, vec![(first, last)]);
            let ty = |at| Field::new(at, 0, 0xffff, other.clone());
            self.fields(&[control(1, 3), ty(4)], true);
            self.fields(&[control(0, 0), ty(6)], true);
        }
    }

    fn access_points(&mut self, sap: u32, not: bool) {
        for shift in [24, 16] {
            let other = outside(sap, sap, 0xff, !not);
            self.fields(&[Field::new(0, shift, 0xff, other)], true);
        }
    }

    /// Messages of spanning tree. The kernel takes the byte of the version for the type, so it knows no type but `config`.
    fn spanning_tree(&mut self, group: Group) {
        let start = [(0, 0x4242_0300), (2, 0x0300_0000)];
        let start = start.map(|(at, number)| Field::new(at, 0, u32::MAX, vec![(number, number)]));
        self.fields(&start, false);
        if let Some((ty, not)) = group.number("--stp-type")
            && (ty == 0) == not
        {
            self.never();
        }
        let has_fields = |item: &&Item| !item.is_head() && item.name() != "--stp-type";
        if group.items.iter().any(|item| has_fields(&item)) {
            self.fields(&[Field::new(STP_BYTES - 4, 0, 0, vec![(0, 0)])], false);
        }
        for item in group.items.iter().filter(has_fields) {
            let (end, max) = match item.name() {
                "--stp-flags" => (7, 0xff),
                "--stp-root-prio" => (9, 0xffff),
                "--stp-root-addr" => (15, 0xffff),
                "--stp-root-cost" => (19, u32::MAX),
                "--stp-sender-prio" => (21, 0xffff),
                "--stp-sender-addr" => (27, 0xffff),
                "--stp-port" => (29, 0xffff),
                "--stp-msg-age" => (31, 0xffff),
                "--stp-max-age" => (33, 0xffff),
                "--stp-hello-time" => (35, 0xffff),
                _ => (STP_BYTES, 0xffff),
            };
            let (first, last) = match &item.value {
                Value::Number(number) => (*number as u32, *number as u32),
                Value::Pair(first, last) => (*first, *last),
                Value::Wide(pair) => {
                    let [address, mask] = **pair;
                    let half = |at: u32, shift: u32| {
                        let wanted = (address & mask) >> shift;
                        let (mask, wanted) = ((mask >> shift) as u32, wanted as u32);
                        Field::new(at, 0, mask, vec![(wanted, wanted)])
                    };
                    self.fields(&[half(end - 6, 16), half(end - 4, 0)], item.not);
                    continue;
                }
                _ => {
                    self.unknown(Unknown::OpaqueMatch);
                    continue;
                }
            };
            let ranges = outside(first, last, max, item.not);
            self.fields(&[Field::new(end - 4, 0, max, ranges)], false);
        }
    }

    /// Fields that must all have one of their numbers, negated as a whole.
    fn fields(&mut self, fields: &[Field], not: bool) {
        let tests = fields.iter().map(|Field(word)| word.clone()).collect();
        self.u32_program(&U32Test { tests }, not);
    }

    /// A list of addresses: a set of the image.
    fn among(&mut self, item: &Item) {
        match &item.value {
            Value::Numbers(list) => {
                let addresses = list.iter().map(|entry| {
                    let address = raw_mac((entry >> 33) as u64);
                    (address, *entry as u32)
                });
                let set = self.sets.among(addresses);
                let flags = if item.not { test::NOT } else { 0 };
                let receiver = usize::from(item.name() == "--among-dst");
                self.test(test::AMONG, flags, receiver, set, 0, &[]);
            }
            _ if item.is_head() => {}
            _ => self.unknown(Unknown::OpaqueMatch),
        }
    }

    /// The target `mark`: the change is the last test, and the action is its verdict.
    pub(super) fn bridge_mark(&mut self, options: Group) -> u32 {
        let full = u64::from(u32::MAX);
        for item in options.items {
            let Value::Number(mark) = item.value else {
                continue;
            };
            let (value, mask) = match item.name() {
                "--mark-set" => (mark, full),
                "--mark-or" => (mark, mark),
                "--mark-and" => (0, !mark & full),
                "--mark-xor" => (mark, 0),
                _ => continue,
            };
            self.test(test::DO_MARK, test::STATEFUL, 0, value as u32, mask, &[]);
        }
        match options.number("--mark-target") {
            None | Some((0, _)) => action::ACCEPT,
            Some((1, _)) => action::DROP,
            Some((2, _)) => action::NONE,
            Some(_) => action::RETURN,
        }
    }
}
