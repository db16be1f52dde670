//! Matches as comparisons, where these have their meaning, or as tests.

use fairpath_core::rules::{CONNECTIONS, HAS_LINK, l4, meta, recent, test, word};

use super::rule::{Encoder, name_words, raw_mac};
use crate::hash_rate::BYTES;
use crate::packet::Unknown;
use crate::spec::{Kind, Location, U32Test};
use crate::tree::{Family, Group, Item, Value};

const MAC: u64 = 0xffff_ffff_ffff;

impl Encoder<'_> {
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

    pub(super) fn slot(&mut self, first: u64) -> u32 {
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

    pub(super) fn extension(&mut self, group: Group) {
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
                    let (mask, value) = (raw_mac(MAC), raw_mac(address));
                    if not {
                        self.compare(word::SMAC, false, HAS_LINK, HAS_LINK);
                        self.compare(word::SMAC, true, mask, value);
                    } else {
                        self.compare(word::SMAC, false, mask | HAS_LINK, value | HAS_LINK);
                    }
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
        /// INVALID, UNTRACKED: without a connection the kernel tests the state only. The direction
        /// and the status of such a packet are 0.
        const NONE: u64 = 17 << meta::STATE;
        match group.number("--ctstate") {
            Some((bits, not)) => self.any_bits(word::META, meta::STATE, bits, not),
            None => self.has_connection(),
        }
        for item in group.items {
            match (item.name(), &item.value) {
                ("-m" | "--ctstate", _) => {}
                ("--ctstatus", Value::Number(bits)) if item.not => {
                    self.any_bits(word::META, meta::STATUS, *bits, true);
                }
                ("--ctstatus", Value::Number(bits)) => {
                    self.any_bits(word::META, 0, bits << meta::STATUS | NONE, false);
                }
                ("--ctdir", Value::Number(1)) => {
                    self.any_bits(word::META, 0, 1 << meta::REPLY | NONE, false);
                }
                ("--ctdir", _) => self.compare(word::META, false, 1 << meta::REPLY, 0),
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
                // The kernel multiplies numbers of 32 bits, so a slow rate cuts the burst.
                let all = per_packet.wrapping_mul(burst) & u64::from(u32::MAX);
                let times = [per_packet, all].map(limit_ns);
                // It refuses a burst that is less than one packet then.
                if times[1] < times[0] {
                    return self.unknown(Unknown::OpaqueMatch);
                }
                let slot = self.slot(0);
                let data: Vec<u8> = times
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
}

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
