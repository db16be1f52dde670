//! Frames and rulesets of ebtables, from a seed: one base chain with rules, and chains that it calls.
//!
//! ```text
//!            e0 ══ in0 ┐       ┌ out0 ══ e1
//! BROUTING, PREROUTING ├─ br0 ─┤ FORWARD, POSTROUTING; from br0: OUTPUT
//!                      └ INPUT ┘
//! ```
//!
//! Frames of ports are of every kind, also with headers that are cut short or wrong: a bridge does not read them. Chains
//! jump to later chains only. Limits refill after minutes.
//!
//! Deliberately absent: translation of addresses and `arpreply`, which no evaluator answers.

use std::fmt::{Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::Built;
use fairpath_rules::{
    Core, Facts, Family, Hook, Names, Packet, Reference, Ruleset, Unknown, Verdict, read,
};
use fairpath_statistics::Random;

use super::compare::{Answer, RuleCount, counts_of_core, counts_of_reference};
use super::packets::{ETH_ARP, ETH_IPV4, ETH_IPV6, Ipv4, Toward, packet};
use super::pools::{
    Focus, HOSTS4, HOSTS6, ICMP, ICMP6, IN, IN_MAC, MACS, ODD4, ODD6, OUT_MAC, PORTS, TOS,
};

/// The bridge.
pub const BRIDGE: &str = "br0";
/// The port that frames leave by.
pub const OUT: &str = "out0";
/// The link-layer address of the bridge.
pub const BRIDGE_MAC: [u8; 6] = [0x02, 0xfa, 0x30, 0, 0, 3];

const BROADCAST: [u8; 6] = [0xff; 6];
/// The group of bridges. Without spanning tree it is forwarded as any other.
const BGA: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
/// Destinations of frames: hosts behind the other port, and groups.
const FAR: [[u8; 6]; 9] = [
    MACS[2],
    MACS[3],
    MACS[4],
    MACS[3],
    BROADCAST,
    BGA,
    BGA,
    [0x01, 0, 0x5e, 0, 0, 1],
    [0x33, 0x33, 0, 0, 0, 1],
];
/// Sources; the kernel drops those of groups.
const SOURCES: [[u8; 6]; 4] = [OUT_MAC, MACS[2], MACS[3], MACS[4]];

const ETH_RARP: u16 = 0x8035;
const ETH_VLAN: u16 = 0x8100;
const ETH_PROVIDER: u16 = 0x88a8;
/// Types without a match, from the smallest on.
const TYPES: [u16; 5] = [0x0600, 0x1234, 0x88cc, 0x9000, 0xffff];
/// Lengths of frames without a type; a match could compare those from 0x3c on.
const LENGTHS: [u16; 7] = [0, 3, 0x3b, 0x3c, 0x64, 0x05dc, 0x05ff];
const TAGS: [u16; 6] = [0, 1, 5, 0xffe, 0xfff, 0x800];
/// Lengths of packets at which headers, or fields that matches read, end.
const CUTS: [usize; 20] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 17, 18, 19, 20, 23, 24, 27, 28, 39,
];
/// A service access point of spanning tree, of SNAP, of raw IPX, and others.
const SAPS: [u8; 5] = [0x42, 0xaa, 0xff, 0x04, 0xfe];
/// The first bytes of a spanning tree message as the match has it, and two others.
const STP: [[u8; 6]; 3] = [
    [0x42, 0x42, 0x03, 0, 0, 0],
    [0x42, 0x42, 0x03, 0, 0, 2],
    [0x42, 0x42, 0x03, 0, 1, 0],
];
const IGMP: [u8; 5] = [0, 0x11, 0x16, 0x22, 0xff];
/// Values of fields of spanning tree, for numbers of every size.
const SMALL: [u8; 6] = [0, 1, 2, 0x80, 0x81, 0xff];

/// A base chain, and how frames get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its table.
    pub table: &'static str,
    /// Its name.
    pub chain: &'static str,
    /// Its hook.
    pub hook: Hook,
}

const fn base(table: &'static str, chain: &'static str, hook: Hook) -> Base {
    Base { table, chain, hook }
}

/// All base chains of ebtables.
pub const BASES: [Base; 7] = [
    base("filter", "FORWARD", Hook::Forward),
    base("nat", "PREROUTING", Hook::Prerouting),
    base("filter", "INPUT", Hook::Input),
    base("broute", "BROUTING", Hook::Brouting),
    base("nat", "POSTROUTING", Hook::Postrouting),
    base("filter", "OUTPUT", Hook::Output),
    base("nat", "OUTPUT", Hook::Output),
];

impl Base {
    /// The base chain of a seed.
    pub fn of(seed: u64) -> Base {
        BASES[(seed % BASES.len() as u64) as usize]
    }

    /// True if frames arrive at the port `in0`, else the bridge device sends them.
    pub fn is_from_port(self) -> bool {
        self.hook != Hook::Output
    }

    /// True if an accepted frame arrives at the bridge device, which takes all frames; else it leaves by `out0`.
    pub fn is_seen_at_bridge(self) -> bool {
        matches!(self.hook, Hook::Brouting | Hook::Prerouting | Hook::Input)
    }

    /// The facts of a frame here.
    fn facts(self, frame: &[u8]) -> Facts {
        let name = |has: bool, name: &str| -> Option<Box<[u8]>> {
            Some(if has {
                name.as_bytes().into()
            } else {
                b""[..].into()
            })
        };
        let input = !matches!(self.hook, Hook::Output | Hook::Postrouting);
        let output = matches!(self.hook, Hook::Forward | Hook::Output | Hook::Postrouting);
        let packet_type = match &frame[..6] {
            // Only what arrives gets a type.
            _ if !self.is_from_port() => 0,
            own if own == IN_MAC || own == BRIDGE_MAC => 0,
            to if to == BROADCAST => 1,
            [first, ..] if first & 1 == 1 => 2,
            _ => 3,
        };
        Facts {
            input: name(input, IN),
            output: name(output, OUT),
            logical_input: name(input, BRIDGE),
            logical_output: name(output, BRIDGE),
            packet_type: Some(packet_type),
            ..Facts::default()
        }
    }

    /// A frame as rules of this chain see it.
    pub fn packet(self, frame: &[u8]) -> Packet<'_> {
        let network = network(frame);
        Packet {
            family: Family::Bridge,
            bytes: frame,
            network,
            length: frame.len().saturating_sub(network),
            facts: self.facts(frame),
        }
    }
}

/// The offset of the network header: the kernel takes the outer tag out.
fn network(frame: &[u8]) -> usize {
    match frame[12..14] {
        [0x81, 0] | [0x88, 0xa8] => 18,
        _ => 14,
    }
}

/// False for a frame that the kernel drops before any hook: two bytes must follow its tag.
fn is_seen(frame: &[u8]) -> bool {
    frame.len() >= network(frame) + if network(frame) == 18 { 2 } else { 0 }
}

/// Frames for a base chain; the same for the same seed.
pub fn frames(base: Base, seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let focus = Focus::of(seed);
    let one = |_| match is_of_groups(seed) && random.one_in(2) {
        true => group_frame(&mut random),
        false => frame(&mut random, base, focus),
    };
    (0..count).map(one).collect()
}

/// True if half of a seed's frames, and many of its rules, are of spanning tree and IGMP, so that these meet.
fn is_of_groups(seed: u64) -> bool {
    seed % 5 == 2
}

/// A message of spanning tree or IGMP.
fn group_frame(random: &mut Random) -> Vec<u8> {
    let (ethertype, bytes) = match random.below(4) {
        0 => {
            let kind = random.pick(&IGMP);
            let packet = Ipv4::new(2).packet(&[kind, 0, 0, 0, 224, 0, 0, 1]);
            (ETH_IPV4, packet)
        }
        _ => (random.pick(&LENGTHS), spanning_tree(random)),
    };
    let ethertype = ethertype.to_be_bytes();
    [&BGA[..], &random.pick(&SOURCES), &ethertype, &bytes].concat()
}

fn frame(random: &mut Random, base: Base, focus: Focus) -> Vec<u8> {
    let is_local = base.is_seen_at_bridge() && random.one_in(4);
    let to = match is_local {
        true => random.pick(&[BRIDGE_MAC, IN_MAC]),
        false => random.pick(&FAR),
    };
    let mut frame = [to, random.pick(&SOURCES)].concat();
    let (ethertype, packet) = payload(random, focus);
    // A packet socket of the bridge would send a tag as bytes, which a VLAN device does not.
    if base.is_from_port() && random.one_in(4) {
        let outer = random.pick(&[ETH_VLAN, ETH_VLAN, ETH_PROVIDER]);
        frame.extend(tag(random, outer));
        if random.one_in(3) {
            let inner = random.pick(&[ETH_VLAN, ETH_PROVIDER]);
            frame.extend(tag(random, inner));
        }
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    match random.below(8) {
        0 => frame.resize(frame.len().max(60), 0),
        1 => frame.resize(frame.len() + 7, 0x5a),
        _ => {}
    }
    frame
}

fn tag(random: &mut Random, ethertype: u16) -> [u8; 4] {
    let control = (random.below(16) as u16) << 12 | random.pick(&TAGS) & 0xfff;
    let [[a, b], [c, d]] = [ethertype, control].map(u16::to_be_bytes);
    [a, b, c, d]
}

/// An ethertype or a length, and what follows.
fn payload(random: &mut Random, focus: Focus) -> (u16, Vec<u8>) {
    let (ethertype, mut bytes) = match random.below(12) {
        0 | 1 => (random.pick(&LENGTHS), link_control(random)),
        2 => {
            // The match of spanning tree does not compare the type.
            let tree = random.one_in(2).then(|| spanning_tree(random));
            let bytes = tree.unwrap_or_else(|| vec![0x5a; random.index(40)]);
            (random.pick(&TYPES), bytes)
        }
        3 => {
            let types = [ETH_ARP, ETH_ARP, ETH_RARP];
            (random.pick(&types), odd_arp(random))
        }
        _ => packet(random, Family::Bridge, Toward::Ingress, focus),
    };
    // Frames of a length are longer: the kernel reads behind the end of short ones, which no evaluator knows.
    if ethertype > LENGTHS[LENGTHS.len() - 1] {
        match random.below(10) {
            0 => bytes.truncate(random.pick(&CUTS)),
            1 => bytes.truncate(random.index(bytes.len() + 1)),
            2 if !bytes.is_empty() => {
                let at = random.index(bytes.len().min(60));
                bytes[at] = random.pick(&[0, 1, 0x45, 0x7f, 0x80, 0xff, 44, 59]);
            }
            _ => {}
        }
    }
    (ethertype, bytes)
}

/// A header of 802.2, often of SNAP or of spanning tree.
fn link_control(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => spanning_tree(random),
        1 => {
            let control = random.pick(&[0x03, 0x00, 0x01, 0x04, 0xff]);
            let ty = random
                .pick(&[ETH_IPV4, ETH_ARP, 0x0012, 0x0800])
                .to_be_bytes();
            let mut bytes = vec![0xaa, random.pick(&[0xaa, 0xaa, 0x42]), control];
            // The type is behind one byte of control, or two.
            bytes.extend(if random.one_in(2) {
                &[0, 0, 0][..]
            } else {
                &[0, 0, 0, 0]
            });
            bytes.extend(ty);
            bytes.extend([0; 8]);
            bytes
        }
        _ => {
            let saps = [random.pick(&SAPS), random.pick(&SAPS)];
            let control = [random.pick(&[0x03, 0xff, 0, 4])];
            [&saps[..], &control, &[0; 20]].concat()
        }
    }
}

fn spanning_tree(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(&STP).to_vec();
    bytes.push(random.pick(&SMALL));
    for _ in 0..2 {
        bytes.extend([random.pick(&SMALL), random.pick(&SMALL)]);
        bytes.extend(random.pick(&MACS));
        if bytes.len() < 20 {
            bytes.extend([0, 0, random.pick(&[0, 0, 1]), random.pick(&SMALL)]);
        }
    }
    for _ in 0..5 {
        bytes.extend([random.pick(&[0, 0, 1, 0xff]), random.pick(&SMALL)]);
    }
    // The match reads no field of a message that is shorter than 37 bytes.
    if random.one_in(6) {
        bytes.truncate(random.pick(&[10, 36, 37]));
    }
    bytes
}

/// ARP with lengths of addresses that its fields disagree with.
fn odd_arp(random: &mut Random) -> Vec<u8> {
    let hardware = random.pick(&[1u16, 1, 6, 0x0100]);
    let protocol = random.pick(&[ETH_IPV4, ETH_IPV4, ETH_IPV6]);
    let lengths = [
        random.pick(&[6u8, 6, 0, 8, 255]),
        random.pick(&[4u8, 4, 0, 16]),
    ];
    let operation = random.pick(&[1u16, 2, 3, 256]);
    let numbers = [hardware, protocol].map(u16::to_be_bytes).concat();
    let mut packet = [&numbers[..], &lengths, &operation.to_be_bytes()].concat();
    for _ in 0..2 {
        let mac = random.pick(&MACS);
        packet.extend(&mac[..mac.len().min(lengths[0].into())]);
        packet.extend(random.pick(&HOSTS4));
    }
    packet
}

/// Reads a generated ruleset.
///
/// # Panics
/// If it is refused.
pub fn parse(text: &str) -> Ruleset {
    let read = read(
        &mut text.as_bytes(),
        "generated",
        Family::Bridge,
        &Names::default(),
    );
    let complete = read.ok().and_then(|reading| reading.complete().ok());
    complete.unwrap_or_else(|| panic!("refused: {text}"))
}

/// The answer of the core, or the first reason why it has none.
///
/// # Errors
/// The reason.
pub fn of_core(
    base: Base,
    ruleset: &Ruleset,
    built: &Built,
    frames: &[Vec<u8>],
) -> Result<Answer, Unknown> {
    let mut core = Core::new(built, CounterMode::Exact).expect("the image was just built");
    let verdict = |frame: &Vec<u8>| Some(core.evaluate(base.hook, &base.packet(frame))?.verdict);
    let accepted = accepted(frames, verdict)?;
    let counts = without_policies(counts_of_core(ruleset, built, &core));
    Ok(Answer { counts, accepted })
}

/// The answer of the reference.
///
/// # Errors
/// The reason why it has none.
pub fn of_reference(base: Base, ruleset: &Ruleset, frames: &[Vec<u8>]) -> Result<Answer, Unknown> {
    let mut reference = Reference::new(ruleset, None);
    let verdict = |frame: &Vec<u8>| {
        let outcome = is_seen(frame).then(|| reference.evaluate(base.hook, &base.packet(frame)));
        Some(outcome?.verdict)
    };
    let accepted = accepted(frames, verdict)?;
    let counts = without_policies(counts_of_reference(ruleset, &reference));
    Ok(Answer { counts, accepted })
}

/// Counts accepted frames. A frame without a verdict does not reach the rules, and is dropped.
fn accepted(
    frames: &[Vec<u8>],
    mut verdict: impl FnMut(&Vec<u8>) -> Option<Verdict>,
) -> Result<u64, Unknown> {
    let mut accepted = 0;
    for frame in frames {
        match verdict(frame) {
            Some(Verdict::Unknown(reason)) => return Err(reason),
            verdict => accepted += u64::from(verdict == Some(Verdict::Accept)),
        }
    }
    Ok(accepted)
}

/// The kernel does not count what a policy of a bridge decides.
fn without_policies(mut counts: Vec<RuleCount>) -> Vec<RuleCount> {
    counts.retain(|count| count.rule.is_some());
    counts
}

const USER_CHAINS: [&str; 4] = ["a", "blocked", "c-3", "last"];

/// The ruleset of this seed, for its base chain.
pub fn generate(base: Base, seed: u64) -> String {
    let mut random = Random::new(seed);
    Generator {
        base,
        focus: Focus::of(seed),
        of_groups: is_of_groups(seed),
        random: &mut random,
    }
    .text()
}

struct Generator<'a> {
    base: Base,
    focus: Focus,
    of_groups: bool,
    random: &'a mut Random,
}

impl Generator<'_> {
    fn text(&mut self) -> String {
        let users = &USER_CHAINS[..self.random.index(USER_CHAINS.len() + 1)];
        let Base { table, chain, .. } = self.base;
        let policy = if self.chance(3) { "DROP" } else { "ACCEPT" };
        let mut text = format!("*{table}\n:{chain} {policy}\n");
        for user in users {
            let policy = self.pick(&["ACCEPT", "DROP", "RETURN", "RETURN", "RETURN"]);
            writeln!(text, ":{user} {policy}").unwrap();
        }
        // Lookups are for chains of 64 rules and more.
        let few = if self.chance(16) { 64 } else { 0 };
        for _ in 0..few + 1 + self.random.below(9) {
            writeln!(text, "-A {chain}{}", self.rule(users, true)).unwrap();
        }
        for (at, user) in users.iter().enumerate() {
            for _ in 0..self.random.below(6) {
                writeln!(text, "-A {user}{}", self.rule(&users[at + 1..], false)).unwrap();
            }
        }
        text
    }

    /// True in one of `times` cases.
    fn chance(&mut self, times: u64) -> bool {
        self.random.one_in(times)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.random.pick(from)
    }

    /// `option value`, negated in one of four cases, before the option or before the value.
    fn maybe_not(&mut self, option: &str, value: impl Display) -> String {
        match self.random.below(8) {
            0 => format!(" ! {option} {value}"),
            1 => format!(" {option} ! {value}"),
            _ => format!(" {option} {value}"),
        }
    }

    /// The same with one of `values`.
    fn one_of(&mut self, option: &str, values: &[&str]) -> String {
        let value = self.pick(values);
        self.maybe_not(option, value)
    }

    fn rule(&mut self, later: &[&str], is_base: bool) -> String {
        let mut rule = self.addresses() + &self.devices();
        // The match of spanning tree needs this destination.
        let often = if self.of_groups { 2 } else { 10 };
        let is_tree = !rule.contains("-d ") && self.chance(often);
        if is_tree {
            rule += " -d BGA";
        }
        // A rule has one protocol, so only one of these matches.
        let protocol = match self.random.below(12) {
            0..3 => self.ip(),
            3 | 4 => self.ip6(),
            5 | 6 => self.arp(),
            7 => self.vlan(),
            8 => self.link_control(),
            9 => {
                let types = [
                    "0x0800", "0806", "86dd", "0x8100", "1234", "LENGTH", "0x0600",
                ];
                self.one_of("-p", &types)
            }
            _ => String::new(),
        };
        let mut matches = vec![protocol];
        if is_tree {
            let tree = self.spanning_tree();
            matches = match self.of_groups {
                true => vec![tree],
                false => vec![matches.concat(), tree],
            };
        }
        // Each of these may occur once, and in any order: a limit counts what the matches before it let pass.
        let kinds: [fn(&mut Self) -> String; 4] =
            [Self::mark, Self::packet_type, Self::limit, Self::among];
        for one in kinds {
            if self.chance(5) {
                let at = self.random.index(matches.len() + 1);
                let text = one(self);
                matches.insert(at, text);
            }
        }
        rule += &matches.concat();
        let watcher = match self.random.below(8) {
            0 => " --log-level debug --log-prefix \"to be read\"",
            1 => " --nflog-group 3",
            _ => "",
        };
        let target = self.target(later, is_base);
        // The tool accepts a watcher also behind the target, or between its options.
        match (self.random.below(4), target.split_once(" --mark-target")) {
            (0, Some((mark, verdict))) => rule + mark + watcher + " --mark-target" + verdict,
            (1, _) => rule + &target + watcher,
            _ => rule + watcher + &target,
        }
    }

    fn mac(&mut self) -> String {
        let from = if self.chance(6) { &FAR[..] } else { &MACS[..] };
        let bytes = self.pick(from);
        bytes.map(|byte| format!("{byte:02x}")).join(":")
    }

    fn masked_mac(&mut self) -> String {
        let names = ["Unicast", "Multicast", "Broadcast", "BGA"];
        if self.chance(4) {
            return self.pick(&names).to_owned();
        }
        let masks = [
            "",
            "",
            "/ff:ff:ff:00:00:00",
            "/00:00:00:ff:ff:ff",
            "/ff:00:ff:00:ff:00",
            "/01:00:00:00:00:00",
            "/00:00:00:00:00:01",
            "/00:00:00:00:00:00",
        ];
        self.mac() + self.pick(&masks)
    }

    fn addresses(&mut self) -> String {
        let mut text = String::new();
        for option in ["-s", "-d"] {
            if self.chance(5) {
                let mac = self.masked_mac();
                text += &self.maybe_not(option, mac);
            }
        }
        text
    }

    /// Names of devices; the tool refuses those that a base chain does not have.
    fn devices(&mut self) -> String {
        let names = [
            "+", "in0", "out0", "br0", "in+", "out0+", "o+", "b+", "in00", "eth0",
        ];
        let input = !matches!(self.base.hook, Hook::Output | Hook::Postrouting);
        let output = matches!(
            self.base.hook,
            Hook::Forward | Hook::Output | Hook::Postrouting
        );
        let mut text = String::new();
        for (option, is_there) in [
            ("-i", input),
            ("--logical-in", input),
            ("-o", output),
            ("--logical-out", output),
        ] {
            if is_there && self.chance(9) {
                text += &self.one_of(option, &names);
            }
        }
        text
    }

    /// The tool takes /0 for /32.
    fn network4(&mut self) -> String {
        let masks = [
            "",
            "",
            "/32",
            "/24",
            "/8",
            "/1",
            "/0.0.0.0",
            "/31",
            "/255.0.255.0",
            "/0.0.0.1",
            "/255.255.0.255",
        ];
        let from = if self.chance(3) {
            &ODD4[..]
        } else {
            &HOSTS4[..]
        };
        let address = Ipv4Addr::from(self.pick(from));
        format!("{address}{}", self.pick(&masks))
    }

    fn network6(&mut self) -> String {
        let masks = [
            "",
            "",
            "/128",
            "/64",
            "/32",
            "/1",
            "/0",
            "/127",
            "/ffff::ffff",
            "/ffff:0:ffff::",
        ];
        let from = if self.chance(3) {
            &ODD6[..]
        } else {
            &HOSTS6[..]
        };
        let address = Ipv6Addr::from(self.pick(from));
        format!("{address}{}", self.pick(&masks))
    }

    fn number_of(&mut self, values: &[u8]) -> String {
        format!("{:#04x}", self.pick(values))
    }

    fn ports(&mut self) -> String {
        let (one, other) = (self.pick(&PORTS), self.pick(&PORTS));
        let (low, high) = (one.min(other), one.max(other));
        match self.random.below(6) {
            0 => format!("{low}:{high}"),
            1 => format!(":{high}"),
            2 => format!("{low}:"),
            _ => one.to_string(),
        }
    }

    /// `type`, `type/code` and ranges of both.
    fn control_type(&mut self, kinds: &[(u8, u8)]) -> String {
        let ((ty, code), (other, last)) = (self.pick(kinds), self.pick(kinds));
        match self.random.below(4) {
            0 => ty.to_string(),
            1 => format!("{ty}/{code}"),
            2 => format!(
                "{}:{}/{}:{}",
                ty.min(other),
                ty.max(other),
                code.min(last),
                code.max(last)
            ),
            _ => format!("{}:{}", ty.min(other), ty.max(other)),
        }
    }

    /// The protocol of the transport header, and options that need it. `prefix` is `--ip` or `--ip6`.
    fn transport(&mut self, prefix: &str) -> String {
        let is_v4 = prefix == "--ip";
        let control = if is_v4 { 1 } else { 58 };
        let any = self.chance(2);
        let protocol = match self.focus {
            _ if self.of_groups && is_v4 => 2,
            _ if any => self.pick(&[6, 17, control, 2, 44, 50, 51, 59, 60, 132, 136, 0]),
            Focus::Tcp => 6,
            Focus::Udp => 17,
            Focus::Icmp => control,
            Focus::Sctp => 132,
            Focus::Dccp => 33,
            Focus::Ah => 51,
            Focus::Esp => 50,
            Focus::Extensions => 44,
        };
        let option = format!("{prefix}-proto");
        let mut text = match self.chance(8) {
            true => return format!(" {option} ! {protocol}"),
            false => format!(" {option} {protocol}"),
        };
        match protocol {
            6 | 17 | 33 | 132 => {
                for side in ["sport", "dport"] {
                    if self.chance(2) {
                        let ports = self.ports();
                        text += &self.maybe_not(&format!("{prefix}-{side}"), ports);
                    }
                }
            }
            1 | 58 if protocol == control => {
                let kinds = if is_v4 { &ICMP } else { &ICMP6 };
                let kind = self.control_type(kinds);
                text += &self.maybe_not(&format!("{prefix}-icmp-type"), kind);
            }
            2 if is_v4 => {
                text += &self.one_of("--ip-igmp-type", &["17", "0", "16:34", "1:255", "0:255"])
            }
            _ => {}
        }
        text
    }

    fn ip(&mut self) -> String {
        let mut text = " -p 0x0800".to_owned();
        for option in ["--ip-src", "--ip-dst"] {
            if self.chance(3) {
                let network = self.network4();
                text += &self.maybe_not(option, network);
            }
        }
        if self.chance(5) {
            let tos = self.number_of(&TOS);
            text += &self.maybe_not("--ip-tos", tos);
        }
        if self.chance(2) {
            text += &self.transport("--ip");
        }
        text
    }

    fn ip6(&mut self) -> String {
        let mut text = " -p 0x86dd".to_owned();
        for option in ["--ip6-src", "--ip6-dst"] {
            if self.chance(3) {
                let network = self.network6();
                text += &self.maybe_not(option, network);
            }
        }
        if self.chance(5) {
            let class = self.number_of(&TOS);
            text += &self.maybe_not("--ip6-tclass", class);
        }
        if !self.chance(4) {
            text += &self.transport("--ip6");
        }
        text
    }

    fn arp(&mut self) -> String {
        let mut text = match self.chance(5) {
            true => " -p 0x8035".to_owned(),
            false => " -p 0x0806".to_owned(),
        };
        let fields: [(&str, &[&str]); 3] = [
            (
                "--arp-op",
                &["Request", "2", "256", "0", "InARP_Request", "10"],
            ),
            ("--arp-htype", &["1", "6", "256", "65535"]),
            (
                "--arp-ptype",
                &["0x0800", "800", "0x86dd", "0x0000", "0x0806"],
            ),
        ];
        for (option, values) in fields {
            if self.chance(4) {
                text += &self.one_of(option, values);
            }
        }
        for option in ["--arp-ip-src", "--arp-ip-dst"] {
            if self.chance(4) {
                let network = self.network4();
                text += &self.maybe_not(option, network);
            }
        }
        for option in ["--arp-mac-src", "--arp-mac-dst"] {
            if self.chance(4) {
                let mac = self.masked_mac();
                text += &self.maybe_not(option, mac);
            }
        }
        if self.chance(6) {
            text += self.pick(&[" --arp-gratuitous", " ! --arp-gratuitous"]);
        }
        text
    }

    /// Numbers are hexadecimal, also without 0x. The tool refuses a priority next to a VLAN other than 0.
    fn vlan(&mut self) -> String {
        let mut text = " -p 0x8100".to_owned();
        match self.random.below(4) {
            0 => text += &self.one_of("--vlan-id", &["0", "1", "5", "4094"]),
            1 => text += &self.one_of("--vlan-prio", &["0", "1", "3", "7"]),
            2 => text += &format!(" --vlan-id 0{}", self.one_of("--vlan-prio", &["0", "5"])),
            _ => {}
        }
        if self.chance(2) {
            let types = [
                "0x0800", "0800", "9000", "86DD", "0x0806", "0x8100", "0x88A8", "0x003C", "0x05FF",
                "64",
            ];
            text += &self.one_of("--vlan-encap", &types);
        }
        text
    }

    /// The tool refuses two options of this match, as if they were one.
    fn link_control(&mut self) -> String {
        let types = ["0x0800", "0800", "12", "0x0000", "0x0806", "0x1200"];
        let option = match self.random.below(3) {
            0 => {
                let sap = self.number_of(&SAPS);
                self.maybe_not("--802_3-sap", sap)
            }
            1 => self.one_of("--802_3-type", &types),
            _ => String::new(),
        };
        " -p LENGTH".to_owned() + &option
    }

    /// One or two fields; more would rarely match together.
    fn spanning_tree(&mut self) -> String {
        let ranges = ["0", "1", "1:128", "0:65535", "257", "2:33024", "65535"];
        let numbers = [
            "--stp-root-prio",
            "--stp-root-cost",
            "--stp-sender-prio",
            "--stp-port",
            "--stp-msg-age",
            "--stp-max-age",
            "--stp-hello-time",
            "--stp-forward-delay",
        ];
        let mut text = String::new();
        for _ in 0..1 + self.random.below(2) {
            let field = match self.random.below(12) {
                0 => self.one_of("--stp-type", &["config", "tcn", "2"]),
                1 => self.one_of("--stp-flags", &["topology-change", "0", "129"]),
                kind @ 2..4 => {
                    let option = ["--stp-root-addr", "--stp-sender-addr"][kind as usize - 2];
                    let mac = self.masked_mac();
                    self.maybe_not(option, mac)
                }
                kind => self.one_of(numbers[kind as usize - 4], &ranges),
            };
            let option = field.split(' ').find(|word| word.starts_with('-'));
            if !text.contains(option.unwrap_or_default()) {
                text += &field;
            }
        }
        text
    }

    fn mark(&mut self) -> String {
        self.one_of(
            "--mark",
            &[
                "0",
                "1",
                "0x10/0xf0",
                "/0x11",
                "/0",
                "5/0x5",
                "0/0xff",
                "0xffffffff",
            ],
        )
    }

    fn packet_type(&mut self) -> String {
        let kinds = [
            "host",
            "broadcast",
            "multicast",
            "otherhost",
            "outgoing",
            "5",
        ];
        self.one_of("--pkttype-type", &kinds)
    }

    /// No bucket refills within a test. The kernel refuses a burst that takes more than 37 hours.
    fn limit(&mut self) -> String {
        let (rate, most) = self.pick(&[("1/hour", 9), ("6/hour", 20), ("1/day", 1)]);
        let burst = 1 + self.random.below(most);
        format!(" --limit {rate} --limit-burst {burst}")
    }

    /// Addresses with and without one of IPv4; the tool refuses 0.0.0.0.
    fn among(&mut self) -> String {
        let mut text = String::new();
        let options: &[&str] = self.pick(&[
            &["--among-src"][..],
            &["--among-dst"],
            &["--among-src", "--among-dst"],
        ]);
        for option in options {
            let mut members = Vec::new();
            for _ in 0..1 + self.random.below(5) {
                let mac = self.mac();
                let from = match self.chance(3) {
                    true => &ODD4[..3],
                    false => &HOSTS4[..],
                };
                let address = self.pick(from);
                members.push(match self.chance(2) {
                    true => mac,
                    false => format!("{mac}={}", Ipv4Addr::from(address)),
                });
            }
            text += &self.maybe_not(option, members.join(","));
        }
        text
    }

    /// Base chains have no RETURN.
    fn target(&mut self, later: &[&str], is_base: bool) -> String {
        let verdicts = ["ACCEPT", "DROP", "CONTINUE", "RETURN"];
        let verdicts = &verdicts[..if is_base { 3 } else { 4 }];
        match self.random.below(12) {
            0..2 => " -j ACCEPT".to_owned(),
            2..4 => " -j DROP".to_owned(),
            4 => " -j CONTINUE".to_owned(),
            5 if !is_base => " -j RETURN".to_owned(),
            6 | 7 => {
                let options = [
                    "--mark-set 1",
                    "--mark-set 0xffffffff",
                    "--mark-or 0x10",
                    "--mark-and 0xfe",
                    "--mark-xor 0x11",
                    "--mark-or 0",
                ];
                let option = self.pick(&options);
                let verdict = match self.random.below(4) {
                    0 => String::new(),
                    1 => format!(" --mark-target {}", self.pick(verdicts)),
                    _ => " --mark-target CONTINUE".to_owned(),
                };
                format!(" -j mark {option}{verdict}")
            }
            8.. if !later.is_empty() => format!(" -j {}", self.pick(later)),
            _ => String::new(),
        }
    }
}
