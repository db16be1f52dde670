//! An evaluator that knows less never says something else: with hidden facts and cut bytes, core and
//! reference give the outcome of the whole packet, or say that it is unknown.

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{
    Connection, Core, CoreOutcome, Hook, Outcome, Owner, Packet, Reference, Ruleset, Verdict,
};
use fairpath_statistics::Random;
use fairpath_tests::oracle::compare::{Answer, counts_of_core, counts_of_reference, differing};
use fairpath_tests::oracle::packets::{Toward, frames};
use fairpath_units::test_seeds;

use super::legacy::Tool;
use super::rulesets::generate;
use super::{family, hooks, packet, parse};

/// Frames of a ruleset.
const FRAMES: usize = 24;
/// Partial packets made of each frame.
const VIEWS: usize = 4;

/// Matches that need facts, for any place of a rule of IPv4 and IPv6.
const MATCHES: [&str; 21] = [
    "-i in0",
    "-i lo",
    "! -i eth+",
    "-m state --state NEW",
    "-m conntrack ! --ctstate NEW --ctdir REPLY",
    "-m conntrack ! --ctstate NEW --ctdir ORIGINAL",
    "-m conntrack --ctstate INVALID,NEW --ctstatus ASSURED,CONFIRMED",
    "-m conntrack ! --ctstate ESTABLISHED ! --ctstatus CONFIRMED --ctdir REPLY",
    "-m connmark --mark 1",
    "-m conntrack --ctstatus CONFIRMED",
    "-m connlimit --connlimit-above 2",
    "-m connlimit --connlimit-upto 65536 --connlimit-daddr",
    "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --src-type LOCAL --dst-type UNICAST",
    "-m owner --uid-owner 0",
    "-m physdev --physdev-in in0",
    "-m rpfilter",
    "-m pkttype --pkt-type unicast",
    "-m time --timestart 10:00 --timestop 12:00",
    "-m statistic --mode random --probability 0.5",
    "-m mac ! --mac-source 02:00:00:00:00:01",
];

/// Matches of a connection.
const OF_CONNECTION: std::ops::Range<usize> = 3..7;

/// Targets that change a connection or read it. The first four are of table raw.
const TARGETS: [&str; 7] = [
    "CT --notrack",
    "NOTRACK",
    "CT --zone 1",
    "CT --zone 2",
    "CONNMARK --set-mark 1",
    "CONNMARK --save-mark",
    "CONNMARK --restore-mark",
];

/// Adds matches and targets that need facts to the rules of a generated ruleset, and after table raw
/// one that shows what it left of the connection.
pub(crate) fn with_facts(text: &str, random: &mut Random) -> String {
    let add = |line: &str, random: &mut Random| {
        let extra = random.pick(&MATCHES);
        let (option, name) = (extra.trim_start_matches("! "), extra.split(' ').nth(1));
        let is_new = !line.contains(&option[..2])
            || option.starts_with("-m") && name.is_some_and(|name| !line.contains(name));
        match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            // Behind the chain, or before the target.
            ["-A", chain, rest] if is_new && random.one_in(2) => {
                format!("-A {chain} {extra} {rest}")
            }
            ["-A", ..] if is_new => match line.find(" -j ").or(line.find(" -g ")) {
                Some(at) => format!("{} {extra}{}", &line[..at], &line[at..]),
                None => format!("{line} {extra}"),
            },
            _ => line.to_owned(),
        }
    };
    let is_raw = text.starts_with("*raw");
    let targets = match is_raw {
        true => &TARGETS[..],
        false => &TARGETS[4..],
    };
    let lines = text.lines().map(|line| {
        let line = match random.below(3) {
            0 => line.to_owned(),
            1 => add(line, random),
            _ => add(&add(line, random), random),
        };
        let has_target = line.contains(" -j ") || line.contains(" -g ");
        match line.starts_with("-A") && !has_target && random.one_in(3) {
            true => format!("{line} -j {}", random.pick(targets)),
            false => line,
        }
    });
    let text = lines.fold(String::new(), |text, line| text + &line + "\n");
    if !is_raw {
        return text;
    }
    let rules: String = (0..4)
        .map(|_| {
            let matched = MATCHES[OF_CONNECTION][random.index(OF_CONNECTION.len())];
            let target = random.pick(&["", "", " -j DROP", " -j ACCEPT"]);
            format!("-A PREROUTING {matched}{target}\n")
        })
        .collect();
    format!("{text}*mangle\n:PREROUTING ACCEPT [0:0]\n{rules}COMMIT\n")
}

/// Every fact is known.
pub(crate) fn complete<'a>(tool: Tool, frame: &'a [u8], random: &mut Random) -> Packet<'a> {
    let mut packet = packet(tool, frame);
    let names: [&[u8]; 4] = [b"in0", b"in1", b"eth0", b""];
    let facts = &mut packet.facts;
    if random.one_in(3) {
        facts.input = Some(b"lo"[..].into());
    }
    facts.output = Some(random.pick(&names).into());
    facts.physical_input = Some(random.pick(&names).into());
    facts.physical_output = Some(random.pick(&names).into());
    facts.mark = random.pick(&[0, 0, 1, 0x10]);
    let state = 1 << random.below(5);
    // Only a connection is translated.
    let translated = match state {
        1 | 16 => 0,
        _ => random.pick(&[0, 0, 32, 64]),
    };
    facts.connection = Some(Connection {
        state: state | translated,
        status: Some(random.draw() as u8 & 15),
        mark: Some(random.pick(&[0, 1, 0x10])),
        reply: Some(random.one_in(2)),
    });
    facts.connections = Some(random.pick(&[1, 2, 3, 0xffff]));
    facts.source_type = facts.source_type.or(Some(2));
    facts.destination_type = facts.destination_type.or(Some(4));
    facts.owner = Some(random.one_in(2).then_some(Owner { user: 0, group: 0 }));
    facts.reverse_path = Some(random.one_in(2));
    facts.date = Some((random.below(4_000_000_000), 0));
    facts.random = Some(random.draw() as u32);
    packet
}

/// The packet with fewer facts and bytes.
pub(crate) fn hide<'a>(packet: &Packet<'a>, random: &mut Random) -> Packet<'a> {
    let mut partial = packet.clone();
    let facts = &mut partial.facts;
    let one_in = random.pick(&[2, 4, 16]);
    let mut hidden = || random.one_in(one_in);
    macro_rules! hide {
        ($($fact:ident),*) => { $(if hidden() { facts.$fact = None; })* };
    }
    hide!(input, output, physical_input, physical_output, connection);
    hide!(connections);
    if let Some(connection) = &mut facts.connection {
        for (part, is_hidden) in [(0, hidden()), (1, hidden()), (2, hidden())] {
            match part {
                _ if !is_hidden => {}
                0 => connection.status = None,
                1 => connection.mark = None,
                _ => connection.reply = None,
            }
        }
    }
    hide!(source_type, destination_type, packet_type, owner);
    hide!(reverse_path, date, random);
    if random.one_in(2) {
        let from = packet.network;
        let kept = from + random.below((packet.bytes.len() - from) as u64 + 1) as usize;
        partial.bytes = &packet.bytes[..kept];
    }
    partial
}

/// All tables of a hook, each from a generated ruleset.
fn tables_of(tool: Tool, hook: Hook, seed: u64, random: &mut Random) -> String {
    let tables = match hook {
        Hook::Prerouting => &["raw", "mangle", "nat"][..],
        Hook::Output => &["raw", "mangle", "nat", "filter", "security"],
        _ => &["mangle", "filter", "security", "nat"],
    };
    let mut text = String::new();
    for (at, table) in tables.iter().enumerate() {
        let generated = generate(tool, seed.wrapping_add(1_000_003 * at as u64)).text;
        let generated = match *table {
            "raw" | "nat" => generated,
            _ => with_facts(&generated, random),
        };
        // Its first table, whatever that is.
        let (head, rest) = generated.split_once('\n').expect("a table");
        let rest = &rest[..rest.find("COMMIT").expect("its end")];
        let base = match head {
            "*filter" => "INPUT",
            _ => "PREROUTING",
        };
        let is_empty = *table == "nat" && random.one_in(4);
        for line in rest.lines() {
            let of_raw = line.contains("-j CT") || line.contains("NOTRACK");
            let of_mangle = ["MARK", "TTL", "HL", "TOS", "DSCP", "TCPMSS"];
            let of_mangle = of_mangle
                .iter()
                .any(|target| line.contains(&format!("-j {target} ")));
            let of_input = hook == Hook::Output && line.contains("-i ");
            if of_input || of_raw && *table != "raw" || of_mangle && *table != "mangle" {
                continue;
            }
            if !is_empty || line.starts_with(':') {
                let mut line = line.replace(base, hook.chain());
                if *table == "nat" {
                    line = line.replace("-j DROP", "-j ACCEPT");
                }
                // Policies that drop leave little to later tables.
                text += &line.replace(" DROP [", " ACCEPT [");
                text.push('\n');
            }
        }
        text.insert_str(
            text.rfind("COMMIT\n").map_or(0, |at| at + 7),
            &format!("*{table}\n"),
        );
        text += "COMMIT\n";
    }
    text
}

/// Core and reference agree about packets at hooks with several tables: verdicts, changes, counters.
fn tables_agree(tool: Tool, count: u64) {
    let mut known = 0;
    for seed in test_seeds(count) {
        let mut random = Random::new(seed);
        let hook = random.pick(&[Hook::Prerouting, Hook::Input, Hook::Output]);
        let text = tables_of(tool, hook, seed, &mut random);
        let ruleset = parse(tool, &text);
        let frames = frames(family(tool), Toward::Ingress, seed, FRAMES);
        for lookups in [Lookups::Never, Lookups::Always] {
            let built = build(&ruleset, None, lookups).unwrap();
            let mut core = Core::new(&built, CounterMode::Exact).unwrap();
            let mut reference = Reference::new(&ruleset, None);
            let mut frames = frames.iter();
            let is_known = frames.all(|frame| {
                let packet = complete(tool, frame, &mut random);
                let of_core = core.evaluate(hook, &packet).expect("frames are complete");
                let of_reference = reference.evaluate(hook, &packet);
                let unknown = |verdict: &Verdict| matches!(verdict, Verdict::Unknown(_));
                if unknown(&of_core.verdict) || unknown(&of_reference.verdict) {
                    return false;
                }
                assert_eq!(
                    (&of_core.verdict, of_core.changes),
                    (&of_reference.verdict, of_reference.changes),
                    "seed {seed}, {lookups:?}\n{text}{packet:?}"
                );
                true
            });
            if is_known {
                known += 1;
                let counted = |counts| Answer {
                    counts,
                    accepted: 0,
                };
                let of_reference = counted(counts_of_reference(&ruleset, &reference));
                let of_core = counted(counts_of_core(&ruleset, &built, &core));
                let different = differing(&of_reference, vec![("core", of_core)]);
                assert!(
                    different.is_none(),
                    "seed {seed}, {lookups:?}\n{text}{of_reference:?}\n{different:?}"
                );
            }
        }
    }
    println!(
        "{tool:?}: all counters of {known} of {} sets agree",
        2 * count
    );
    assert!(known > 0);
}

#[test]
fn tables_of_a_hook_agree() {
    tables_agree(Tool::V4, 400);
    tables_agree(Tool::V6, 400);
}

/// The answers to a packet, and to it with hidden facts and cut bytes, in new evaluators.
struct Contradicting<'a> {
    ruleset: &'a Ruleset,
    built: &'a Built,
    hook: Hook,
}

impl Contradicting<'_> {
    fn evaluate(&self, packet: &Packet) -> (CoreOutcome, Outcome) {
        let mut core = Core::new(self.built, CounterMode::Exact).unwrap();
        core.trace(true);
        let mut reference = Reference::new(self.ruleset, None);
        (
            core.evaluate(self.hook, packet).expect("not seen"),
            reference.trace(true).evaluate(self.hook, packet),
        )
    }

    /// The numbers of known and unknown outcomes of the core. With `paths`, the rules that matched are
    /// compared, too.
    fn compare(&self, whole: &Packet, random: &mut Random, paths: bool, context: &str) -> [u64; 2] {
        let is_known = |verdict: &Verdict| !matches!(verdict, Verdict::Unknown(_));
        let (core, reference) = self.evaluate(whole);
        if is_known(&core.verdict) && is_known(&reference.verdict) {
            assert_eq!(
                (&core.verdict, core.changes),
                (&reference.verdict, reference.changes),
                "{context}{whole:?}"
            );
        }
        let mut counts = [0, 0];
        for _ in 0..VIEWS {
            let partial = hide(whole, random);
            let (of_core, of_reference) = self.evaluate(&partial);
            counts[usize::from(!is_known(&of_core.verdict))] += 1;
            if is_known(&of_core.verdict) {
                let part = (&of_core.verdict, of_core.rule, of_core.changes);
                let all = (&core.verdict, core.rule, core.changes);
                assert_eq!(part, all, "core, {context}{partial:?}");
                if paths {
                    assert_eq!(of_core.matched, core.matched, "{context}{partial:?}");
                }
            }
            if is_known(&of_reference.verdict) {
                let part = (&of_reference.verdict, of_reference.at, of_reference.changes);
                let all = (&reference.verdict, reference.at, reference.changes);
                assert_eq!(part, all, "reference, {context}{partial:?}");
            }
        }
        counts
    }
}

/// One table, or with `all` each table of a hook: then, the counter of an empty chain of nat may be
/// unknown where the verdict is known.
fn never_contradicts(tool: Tool, count: u64, all: bool) {
    let mut sums = [0, 0];
    for seed in test_seeds(count) {
        let mut random = Random::new(seed);
        let generated = generate(tool, seed);
        let (hook, text) = if all {
            let hook = random.pick(&[Hook::Prerouting, Hook::Input, Hook::Output]);
            (hook, tables_of(tool, hook, seed, &mut random))
        } else {
            let text = match tool {
                Tool::Arp => generated.text,
                Tool::V4 | Tool::V6 => with_facts(&generated.text, &mut random),
            };
            let hooks = hooks(tool, generated.toward);
            (*hooks.last().expect("a hook"), text)
        };
        let ruleset = parse(tool, &text);
        let toward = if all {
            Toward::Ingress
        } else {
            generated.toward
        };
        let frames = frames(family(tool), toward, seed, FRAMES);
        for lookups in [Lookups::Never, Lookups::Always] {
            let built = build(&ruleset, None, lookups).unwrap();
            let contradicting = Contradicting {
                ruleset: &ruleset,
                built: &built,
                hook,
            };
            for frame in &frames {
                let whole = complete(tool, frame, &mut random);
                let context = format!("seed {seed}, {lookups:?}\n{text}");
                let counts = contradicting.compare(&whole, &mut random, !all, &context);
                sums = [0, 1].map(|at| sums[at] + counts[at]);
            }
        }
    }
    let [known, unknown] = sums;
    println!("{known} outcomes are those of the whole packet, {unknown} are unknown");
    assert!(known > 0 && unknown > 0);
}

#[test]
fn partial_packets_are_never_contradicted() {
    never_contradicts(Tool::V4, 200, false);
    never_contradicts(Tool::V6, 200, false);
    never_contradicts(Tool::Arp, 50, false);
}

#[test]
fn partial_packets_are_never_contradicted_by_later_tables() {
    never_contradicts(Tool::V4, 100, true);
    never_contradicts(Tool::V6, 100, true);
}
