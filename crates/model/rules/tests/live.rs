//! Edits of an image while packets are evaluated: the outcome is that of an image of the edited
//! text, and rules that stay keep their state.

mod ruleset;

use std::collections::BTreeMap;

use fairpath_core::rules::{CounterMode, LiveImage, ReplaceError, check};
use fairpath_rules::image::{Applied, EditError, Live, Lookups, SPACE, build};
use fairpath_rules::{
    ChainId, Core, Counters, Facts, Family, Hook, Names, Packet, Verdict, WithCounters,
    rule_string, to_text,
};
use fairpath_statistics::Random;
use fairpath_units::test_seeds;
use ruleset::ruleset;

/// Sequences of edits in a full run, edits of each, and packets after each.
const SEQUENCES: u64 = 100;
const EDITS: usize = 40;
const PACKETS: usize = 25;

fn live(text: &str, family: Family, lookups: Lookups) -> (Live<'static>, Core) {
    let live = Live::new(ruleset(family, text), None, lookups).expect("small");
    let core = Core::follow(&live, CounterMode::Exact).expect("valid image");
    (live, core)
}

/// Applies an edit to set and core. The core's image must be that of the set, and valid.
fn edit(live: &mut Live, core: &mut Core, lines: &str) -> Applied {
    let applied = live
        .apply(lines.as_bytes(), "edit", &Names::default())
        .unwrap_or_else(|problem| panic!("{problem}\n{lines}"));
    core.apply(live, &applied).expect("valid image");
    core.evaluator().0.memory_mut().follow(live.image());
    check(live.image().bytes()).expect("valid image");
    applied
}

/// Each rule as text, and each policy, with its id.
fn ids(live: &Live) -> Vec<(String, u32)> {
    let mut out = Vec::new();
    for (at, table) in live.ruleset().tables.iter().enumerate() {
        for (id, chain) in table.chains() {
            let name = format!("{} {}", table.name, chain.name());
            if let Some(policy) = live.policy_id(at, id) {
                out.push((name.clone(), policy));
            }
            let ids = live.rule_ids(at, id);
            assert_eq!(ids.len(), chain.rules.len(), "{name}");
            for (rule, id) in chain.rules.iter().zip(ids) {
                let text = rule_string(live.ruleset().family, table, chain, rule);
                out.push((format!("{name} {text}"), id));
            }
        }
    }
    out.sort();
    let mut unique: Vec<u32> = out.iter().map(|(_, id)| *id).collect();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), out.len(), "two rules have one id");
    out
}

/// Counters by rule, for rules that are there once.
fn counters(live: &Live, core: &Core) -> BTreeMap<String, Vec<Counters>> {
    let mut out: BTreeMap<String, Vec<Counters>> = BTreeMap::new();
    for (rule, id) in ids(live) {
        out.entry(rule).or_default().push(core.counters(id));
    }
    out
}

/// Slots of all rules, in the order of chains by name: equal sets have equal lists.
fn slots(live: &Live) -> Vec<u32> {
    let mut out = Vec::new();
    for (at, table) in live.ruleset().tables.iter().enumerate() {
        for (id, _) in table.sorted() {
            out.extend(live.slots(at, id));
        }
    }
    out
}

/// Makes rules and edits, with chains `c0` to `c5`, whose jumps lead to higher ones only.
struct Maker {
    random: Random,
    family: Family,
}

const CHAINS: usize = 6;

impl Maker {
    fn base(&mut self) -> &'static str {
        self.random.pick(&["INPUT", "FORWARD"])
    }

    fn chain(&mut self, live: &Live) -> String {
        if self.random.one_in(3) {
            return self.base().to_owned();
        }
        let table = live.ruleset().table("filter").expect("it has one");
        let names: Vec<String> = table
            .chains()
            .filter(|(_, chain)| chain.hook.is_none())
            .map(|(_, chain)| chain.name().into_owned())
            .collect();
        match names.len() {
            0 => "INPUT".to_owned(),
            count => names[self.random.index(count)].clone(),
        }
    }

    fn rule(&mut self, live: &Live, chain: &str) -> String {
        let random = &mut self.random;
        let octet = random.below(6);
        let port = random.below(4);
        let conditions: &[String] = &match self.family {
            Family::Bridge => [
                String::new(),
                format!("-s 02:00:00:00:00:0{octet}"),
                format!("-p IPv4 --ip-proto 17 --ip-dport {port}"),
                format!("-i eth{}", octet % 2),
                format!("-p ARP --arp-op {}", 1 + port % 2),
                "--limit 1/sec --limit-burst 3".to_owned(),
            ],
            _ => [
                String::new(),
                format!("-s 10.0.0.{octet}"),
                format!("-p udp -m udp --dport {port}"),
                format!("-i eth{} -m mark --mark {port}", octet % 2),
                format!("-m statistic --mode nth --every {} --packet 0", 2 + port),
                format!("-m limit --limit 1/sec --limit-burst {}", 2 + octet),
            ],
        };
        let condition = &conditions[random.index(conditions.len())];
        let level: Option<usize> = chain.strip_prefix('c').and_then(|name| name.parse().ok());
        let next = level.map_or(0, |level| level + 1);
        let there = |name: &String| {
            let table = live.ruleset().table("filter").expect("it has one");
            table.find(name.as_bytes()).is_some()
        };
        let jumps: Vec<String> = (next..CHAINS)
            .map(|at| format!("c{at}"))
            .filter(there)
            .collect();
        let target = match random.below(5) {
            0 | 1 if !jumps.is_empty() => {
                format!("-j {}", jumps[random.index(jumps.len())])
            }
            2 => "-j ACCEPT".to_owned(),
            3 => "-j DROP".to_owned(),
            4 if self.family == Family::Bridge => {
                format!("-j mark --mark-set {port} --mark-target CONTINUE")
            }
            4 => format!("-j LOG --log-prefix x{octet}"),
            _ => "-j RETURN".to_owned(),
        };
        let target = match target.as_str() {
            "-j RETURN" if level.is_none() && self.family == Family::Bridge => "-j CONTINUE",
            target => target,
        };
        format!("{condition} {target}")
    }

    /// A line that is valid for the set as it is.
    fn line(&mut self, live: &Live) -> String {
        let table = live.ruleset().table("filter").expect("it has one");
        let chain = self.chain(live);
        let content = table.get(table.find(chain.as_bytes()).expect("it is there"));
        let count = content.rules.len() as u64;
        let place = 1 + self.random.below(count.max(1));
        let rule = self.rule(live, &chain);
        match self.random.below(14) {
            0..4 => format!("-A {chain} {rule}"),
            4 | 5 => format!("-I {chain} {place} {rule}"),
            6 if count > 0 => format!("-D {chain} {place}"),
            7 if count > 0 => {
                let at = place as usize - 1;
                let rule = &content.rules[at];
                let text = rule_string(self.family, table, content, rule);
                text.replacen("-A ", "-D ", 1)
            }
            8 if count > 0 => format!("-R {chain} {place} {rule}"),
            9 if self.random.one_in(3) => format!("-F {chain}"),
            10 => {
                let policy = self.random.pick(&["ACCEPT", "DROP"]);
                let chain = match self.family {
                    Family::Bridge => chain,
                    _ => self.base().to_owned(),
                };
                format!("-P {chain} {policy}")
            }
            11 => {
                let free: Vec<usize> = (0..CHAINS)
                    .filter(|at| table.find(format!("c{at}").as_bytes()).is_none())
                    .collect();
                match free.len() {
                    0 => format!("-A {chain} {rule}"),
                    count => format!("-N c{}", free[self.random.index(count)]),
                }
            }
            12 => {
                // The last chain leads nowhere, so only its callers matter.
                let used = |name: &str| {
                    let id = table.find(name.as_bytes());
                    table.chains().any(|(_, chain)| {
                        chain.rules.iter().any(|rule| match rule.target {
                            fairpath_rules::Target::Jump(to) => Some(to) == id,
                            _ => false,
                        })
                    })
                };
                match chain.starts_with('c') && !used(&chain) {
                    true => format!("-F {chain}\n-X {chain}"),
                    false => format!("-A {chain} {rule}"),
                }
            }
            // The chain again, with other rules behind those that it has.
            _ if chain.starts_with('c') && self.family != Family::Bridge => {
                let mut lines = format!(":{chain} - [0:0]\n");
                for rule in &content.rules {
                    lines.push_str(&rule_string(self.family, table, content, rule));
                    lines.push('\n');
                }
                format!("{lines}-A {chain} {rule}")
            }
            _ => format!("-A {chain} {rule}"),
        }
    }

    fn packet(&mut self) -> (Vec<u8>, Facts) {
        let random = &mut self.random;
        let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, random.below(7) as u8];
        if self.family == Family::Bridge && random.one_in(3) {
            bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, random.below(3) as u8]);
            bytes.extend([0; 20]);
        } else {
            bytes.extend([
                8,
                0,
                0x45,
                0,
                0,
                28,
                0,
                0,
                0,
                0,
                64,
                random.pick(&[17, 17, 6]),
                0,
                0,
            ]);
            bytes.extend([10, 0, 0, random.below(7) as u8, 192, 0, 2, 1]);
            bytes.extend([0, 9, 0, random.below(5) as u8, 0, 8, 0, 0]);
            bytes.extend([0; 12]);
        }
        let facts = Facts {
            input: Some(random.pick(&[&b"eth0"[..], b"eth1"]).into()),
            output: Some(random.pick(&[&b"eth0"[..], b"eth1"]).into()),
            logical_input: Some(b"br0"[..].into()),
            logical_output: Some(b"br0"[..].into()),
            mark: random.below(4) as u32,
            ..Facts::usual()
        };
        (bytes, facts)
    }
}

fn start(family: Family) -> String {
    let user = if family == Family::Bridge {
        "ACCEPT"
    } else {
        "- [0:0]"
    };
    let mut text = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n".to_owned();
    for chain in 0..CHAINS {
        text.push_str(&format!(":c{chain} {user}\n"));
    }
    text.push_str("-A INPUT -j c0\n-A FORWARD -j c1\n");
    for at in 0..90 {
        match family {
            Family::Bridge => text.push_str(&format!("-A c1 -s 02:00:00:00:01:{at:02x} -j DROP\n")),
            _ => text.push_str(&format!("-A c1 -s 10.0.1.{at} -j DROP\n")),
        }
    }
    if family.is_ip() {
        text.push_str("COMMIT\n");
    }
    text
}

/// Evaluates packets with the edited image and one that is built from the edited text, which begins
/// with the state of the edited one.
fn compare(maker: &mut Maker, live: &Live, core: &mut Core, lookups: Lookups, now: &mut u64) {
    let text = to_text(live.ruleset(), WithCounters::Never);
    let (scratch, mut other) = self::live(&text, maker.family, lookups);
    let (from, to) = (slots(live), slots(&scratch));
    assert_eq!(from.len(), to.len());
    for (from, to) in from.into_iter().zip(to) {
        let state = core.evaluator().0.memory().state(from);
        other.evaluator().0.memory_mut().set_state(to, state);
    }
    let before = counters(live, core);
    for _ in 0..PACKETS {
        let (bytes, mut facts) = maker.packet();
        *now += 200_000_000;
        facts.now = *now;
        let packet = Packet {
            family: maker.family,
            bytes: &bytes,
            network: 14,
            length: bytes.len() - 14,
            facts,
        };
        let hook = maker.random.pick(&[Hook::Input, Hook::Forward]);
        let (a, b) = (core.evaluate(hook, &packet), other.evaluate(hook, &packet));
        let (a, b) = (a.expect("complete"), b.expect("complete"));
        assert_eq!((&a.verdict, a.changes), (&b.verdict, b.changes), "{text}");
        assert!(!matches!(a.verdict, Verdict::Unknown(_)), "{text}");
    }
    let after = counters(live, core);
    let fresh = counters(&scratch, &other);
    let sum = |counters: &[Counters]| counters.iter().map(|one| one.packets).sum::<u64>();
    assert_eq!(after.len(), fresh.len());
    for (rule, counted) in &after {
        let counted = sum(counted) - sum(&before[rule]);
        assert_eq!(counted, sum(&fresh[rule]), "{rule}\n{text}");
    }
}

#[test]
fn edited_image_is_that_of_the_edited_text() {
    let (mut patched, mut rebuilt, mut refused) = (0, 0, 0);
    for seed in test_seeds(SEQUENCES) {
        let lookups = Lookups::ALL[seed as usize % 3];
        let family = match seed % 5 {
            0 => Family::Bridge,
            _ => Family::Ipv4,
        };
        let mut maker = Maker {
            random: Random::new(seed),
            family,
        };
        let (mut live, mut core) = self::live(&start(family), family, lookups);
        let mut now = 0;
        for _ in 0..EDITS {
            let mut lines = String::from("*filter\n");
            let count = if maker.random.one_in(3) { 3 } else { 1 };
            let mut planned = live.ruleset().clone();
            for _ in 0..count {
                // Each line is valid after those before it.
                let mut step = Live::new(planned.clone(), None, Lookups::Never).expect("small");
                let line = match family {
                    // A new list needs a whole build.
                    Family::Ipv4 if maker.random.one_in(30) => {
                        let list = maker.random.below(1000);
                        format!("-A OUTPUT -m recent --name list{list} --set -j DROP")
                    }
                    _ => maker.line(&step),
                };
                let one = format!("*filter\n{line}\nCOMMIT\n");
                step.apply(one.as_bytes(), "step", &Names::default())
                    .expect(&line);
                planned = step.ruleset().clone();
                lines.push_str(&line);
                lines.push('\n');
            }
            if maker.random.one_in(6) {
                let (bytes, states) = (live.image().bytes().to_vec(), live.states().to_vec());
                let text = to_text(live.ruleset(), WithCounters::Always);
                let broken = maker.random.pick(&[
                    "-A nowhere -j DROP",
                    "-D INPUT 999",
                    "-A INPUT -j nowhere",
                ]);
                let lines = format!("{lines}{broken}\nCOMMIT\n");
                let problem = live.apply(lines.as_bytes(), "edit", &Names::default());
                assert!(matches!(problem, Err(EditError::Text { .. })), "{lines}");
                assert!(live.image().bytes() == bytes, "{lines}");
                assert_eq!(live.states(), states);
                assert_eq!(to_text(live.ruleset(), WithCounters::Always), text);
                refused += 1;
            }
            lines.push_str("COMMIT\n");
            let before = counters(&live, &core);
            match edit(&mut live, &mut core, &lines) {
                Applied::Patch(_) => patched += 1,
                Applied::Rebuilt(_) => rebuilt += 1,
            }
            if seed % 3 != 0 {
                live.reclaim();
            }
            let after = counters(&live, &core);
            for (rule, counted) in &after {
                match before.get(rule) {
                    None => assert!(
                        counted.iter().all(|one| one.packets == 0),
                        "{rule}\n{lines}"
                    ),
                    // Equal rules are exchanged, so only their number is compared.
                    Some(old) if old.len() == counted.len() => {
                        let sum = |all: &[Counters]| all.iter().map(|one| one.packets).sum::<u64>();
                        assert_eq!(sum(old), sum(counted), "{rule}\n{lines}");
                    }
                    Some(_) => {}
                }
            }
            let text = to_text(live.ruleset(), WithCounters::Never);
            assert_eq!(text, to_text(&planned, WithCounters::Never));
            compare(&mut maker, &live, &mut core, lookups, &mut now);
        }
    }
    println!("{patched} patched, {rebuilt} rebuilt, {refused} refused");
    assert!(patched > rebuilt && rebuilt > 0 && refused > 0);
}

fn filter(lines: &str) -> String {
    format!(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{lines}COMMIT\n"
    )
}

fn udp(source: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source];
    bytes.extend([192, 0, 2, 1, 0, 9, 0, 9, 0, 8, 0, 0]);
    bytes
}

/// The verdict of a packet to this host.
fn send(core: &mut Core, source: u8, now: u64) -> Verdict {
    let bytes = [&[2; 14][..], &udp(source)].concat();
    let packet = Packet {
        family: Family::Ipv4,
        bytes: &bytes,
        network: 14,
        length: bytes.len() - 14,
        facts: Facts {
            now,
            ..Facts::usual()
        },
    };
    core.evaluate(Hook::Input, &packet)
        .expect("complete")
        .verdict
}

fn chain(live: &Live, name: &str) -> ChainId {
    live.ruleset().tables[0]
        .find(name.as_bytes())
        .expect("it is there")
}

const STATEFUL: &str = ":ban - [0:0]\n-A INPUT -j ban\n\
    -A ban -s 10.0.0.1 -m limit --limit 1/hour --limit-burst 2 -j ACCEPT\n\
    -A ban -s 10.0.0.2 -m quota --quota 60 -j ACCEPT\n\
    -A ban -s 10.0.0.3 -m recent --name list --update --seconds 60 --rsource -j DROP\n\
    -A ban -s 10.0.0.3 -m recent --name list --set --rsource -j ACCEPT\n\
    -A ban -s 10.0.0.4 -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 1 \
    --hashlimit-mode srcip --hashlimit-name key -j ACCEPT\n\
    -A ban -j DROP\n";

/// Uses up limit, quota, list and limit by key, edits, and sends again.
fn state_stays(lines: &str, rebuilds: bool) {
    let (mut live, mut core) = live(&filter(STATEFUL), Family::Ipv4, Lookups::Estimated);
    for (source, accepted) in [(1, 2), (2, 2), (3, 1), (4, 1)] {
        for turn in 0..3 {
            let verdict = send(&mut core, source, turn);
            assert_eq!(
                verdict == Verdict::Accept,
                turn < accepted,
                "{source} {turn}"
            );
        }
    }
    let before = counters(&live, &core);
    let applied = edit(&mut live, &mut core, lines);
    assert_eq!(matches!(applied, Applied::Rebuilt(_)), rebuilds, "{lines}");
    let after = counters(&live, &core);
    for (rule, counted) in &before {
        assert_eq!(Some(counted), after.get(rule), "{rule}");
    }
    for source in 1..5 {
        assert_eq!(send(&mut core, source, 10), Verdict::Drop, "{source}");
    }
    assert_eq!(send(&mut core, 9, 10), Verdict::Drop);
}

#[test]
fn state_outlives_edits_of_its_chain() {
    state_stays("*filter\n-I ban 1 -s 10.0.0.9 -j DROP\nCOMMIT\n", false);
    // The whole chain again, as Docker and kube-proxy write it.
    let again = format!(
        "*filter\n:ban - [0:0]\n-A ban -s 10.0.0.9 -j DROP\n{}COMMIT\n",
        &STATEFUL[STATEFUL.find("-A ban").expect("it has rules")..]
    );
    state_stays(&again, false);
    // In reverse order of other chains, with two chains at once.
    state_stays(
        "*filter\n:new - [0:0]\n-A new -s 10.0.0.9 -j DROP\n-I INPUT 1 -j new\nCOMMIT\n",
        false,
    );
}

#[test]
fn state_outlives_a_whole_build() {
    // Another list has no place in the memory of tables.
    state_stays(
        "*filter\n-I ban 1 -s 10.0.0.9 -m recent --name other --set -j DROP\nCOMMIT\n",
        true,
    );
    // Another table has no chains in the image.
    state_stays(
        "*filter\n-I ban 1 -s 10.0.0.9 -j DROP\nCOMMIT\n*mangle\n-A INPUT -j MARK --set-mark 1\nCOMMIT\n",
        true,
    );
}

#[test]
fn new_rules_begin_with_their_first_state() {
    let (mut live, mut core) = live(&filter(STATEFUL), Family::Ipv4, Lookups::Estimated);
    for turn in 0..3 {
        send(&mut core, 1, turn);
    }
    let slot = live.slots(0, chain(&live, "ban"))[0];
    edit(&mut live, &mut core, "*filter\n-D ban 1\nCOMMIT\n");
    live.reclaim();
    assert_eq!(send(&mut core, 1, 3), Verdict::Drop);
    // The new rule takes the slot and the id of the one that was removed.
    let rule = "-s 10.0.0.1 -m quota --quota 28 -j ACCEPT";
    edit(
        &mut live,
        &mut core,
        &format!("*filter\n-I ban 1 {rule}\nCOMMIT\n"),
    );
    assert_eq!(live.slots(0, chain(&live, "ban"))[0], slot);
    assert_eq!(send(&mut core, 1, 4), Verdict::Accept);
    assert_eq!(send(&mut core, 1, 5), Verdict::Drop);
    let id = live.rule_ids(0, chain(&live, "ban"))[0];
    assert_eq!(core.counters(id).packets, 1);
}

#[test]
fn zero_clears_the_counters_it_names() {
    let lines = "-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -s 10.0.0.0/24 -j DROP\n-A INPUT -s 10.0.0.0/24 -j DROP\n";
    for rebuilds in [false, true] {
        let (mut live, mut core) = live(&filter(lines), Family::Ipv4, Lookups::Estimated);
        for source in [1, 1, 2] {
            send(&mut core, source, 0);
        }
        let packets = |live: &Live, core: &Core| -> Vec<u64> {
            let ids = live.rule_ids(0, chain(live, "INPUT"));
            ids.into_iter()
                .map(|id| core.counters(id).packets)
                .collect()
        };
        let table = if rebuilds { "*raw\nCOMMIT\n" } else { "" };
        let zero = |rules: &str| format!("*filter\n{rules}\nCOMMIT\n{table}");
        assert_eq!(packets(&live, &core), [2, 1, 0]);
        // The rule is the second one when it is zeroed, and the third one at the end.
        let edits = zero("-Z INPUT 2\n-I INPUT 1 -s 10.0.0.7 -j DROP");
        assert_eq!(
            matches!(edit(&mut live, &mut core, &edits), Applied::Rebuilt(_)),
            rebuilds
        );
        assert_eq!(packets(&live, &core), [0, 2, 0, 0]);
        edit(&mut live, &mut core, "*filter\n-Z\nCOMMIT\n");
        assert_eq!(packets(&live, &core), [0, 0, 0, 0]);
    }
}

#[test]
fn jumps_in_a_circle_are_refused() {
    let (mut live, _) = live(
        &filter(":a - [0:0]\n:b - [0:0]\n-A INPUT -j a\n-A a -j b\n"),
        Family::Ipv4,
        Lookups::Estimated,
    );
    let before = live.image().bytes().to_vec();
    let problem = live.apply(
        b"*filter\n-A b -s 10.0.0.1 -j a\nCOMMIT\n",
        "edit",
        &Names::default(),
    );
    let text = problem.expect_err("it is a loop").to_string();
    assert!(text.starts_with("line 2: the rule in chain b"), "{text}");
    assert!(live.image().bytes() == before);
    assert_eq!(live.ruleset().rules(), 2);
}

#[test]
fn refused_edit_changes_no_table() {
    let text = format!("{}*raw\nCOMMIT\n", filter(":a - [0:0]\n-A a -j DROP\n"));
    let (mut live, _) = live(&text, Family::Ipv4, Lookups::Estimated);
    let before = (
        to_text(live.ruleset(), WithCounters::Always),
        live.image().bytes().to_vec(),
    );
    for broken in [
        "*filter\n-A nowhere -j DROP\nCOMMIT\n",
        "*raw\n-A PREROUTING -j DROP\n",
        "*other\nCOMMIT\n",
    ] {
        let lines = format!(
            "*filter\n-F a\n-X a\n-N b\n-N c\n-A b -j c\n-P INPUT DROP\nCOMMIT\n*mangle\n-A INPUT -j DROP\nCOMMIT\n{broken}"
        );
        live.apply(lines.as_bytes(), "edit", &Names::default())
            .expect_err(broken);
        let after = (
            to_text(live.ruleset(), WithCounters::Always),
            live.image().bytes().to_vec(),
        );
        assert!(before == after, "{broken}: {}", after.0);
    }
}

/// The place in the image of a chain's first record.
fn place(live: &Live, name: &str) -> usize {
    let number = live.chain_number(0, chain(live, name)) as usize;
    let at = live.image().header().chain_at as usize + 4 * number;
    let word = live.image().bytes()[at..at + 4]
        .try_into()
        .expect("four bytes");
    u32::from_le_bytes(word) as usize
}

#[test]
fn replaced_chains_stay_until_they_are_reclaimed() {
    let (mut live, mut core) = live(
        &filter(":a - [0:0]\n-A INPUT -j a\n"),
        Family::Ipv4,
        Lookups::Estimated,
    );
    edit(
        &mut live,
        &mut core,
        "*filter\n-A a -s 10.0.0.1 -j DROP\nCOMMIT\n",
    );
    let old = place(&live, "a");
    let bytes = live.image().bytes()[old..old + 32].to_vec();
    let append = |live: &mut Live, core: &mut Core| {
        // Two chains: the table of chains is replaced, too.
        let lines = "*filter\n-A a -s 10.0.0.2 -j DROP\n-A INPUT -s 10.0.0.3 -j DROP\nCOMMIT\n";
        edit(live, core, lines);
    };
    for _ in 0..5 {
        append(&mut live, &mut core);
        assert_ne!(place(&live, "a"), old);
        assert_eq!(live.image().bytes()[old..old + 32], bytes);
    }
    let free = live.image().free_bytes();
    live.reclaim();
    assert!(live.image().free_bytes() > free);
    edit(&mut live, &mut core, "*filter\n-F a\nCOMMIT\n");
    assert!(
        place(&live, "a") <= old,
        "the first free part that is large enough"
    );
}

fn built(lines: &str) -> Vec<u8> {
    let set = ruleset(Family::Ipv4, &filter(lines));
    build(&set, None, Lookups::default()).expect("small").image
}

#[test]
fn images_whose_chains_share_bytes_are_refused() {
    let mut image = built(":a - [0:0]\n:b - [0:0]\n-A a -j DROP\n-A b -s 10.0.0.1 -j DROP\n");
    let header = LiveImage::new(image.clone(), SPACE)
        .expect("apart")
        .header();
    let last = header.chain_at as usize + 4 * (header.chains as usize - 1);
    image.copy_within(last - 4..last, last);
    check(&image).expect("it can be interpreted");
    let problem = LiveImage::new(image, SPACE).expect_err("its chains are not apart");
    assert_eq!(problem.problem, "a chain shares its bytes");
}

#[test]
fn corrupt_chains_change_no_image() {
    let mut image = LiveImage::new(built(":a - [0:0]\n-A a -j DROP\n"), SPACE).expect("apart");
    let header = image.header();
    let entries = (header.entry, header.nat);
    let chain = image.chain(0).to_vec();
    let before = image.bytes().to_vec();
    let mut short = chain.clone();
    short[12] += 16;
    let mut endless = chain.clone();
    let end = endless.len() - 16;
    // The last record is a rule, so the chain has no end.
    endless[end + 2] = 0;
    for blob in [short, endless] {
        let problem = image.replace(&[(0, blob)], &entries);
        assert!(
            matches!(problem, Err(ReplaceError::Image(_))),
            "{problem:?}"
        );
        assert!(image.bytes() == before);
    }
    let large = vec![0; SPACE + 16];
    assert_eq!(
        image.replace(&[(0, large)], &entries),
        Err(ReplaceError::Full)
    );
    assert_eq!(image.free_bytes(), SPACE);
    image
        .replace(&[(0, chain)], &entries)
        .expect("a chain of the image");
}

#[test]
#[should_panic(expected = "apply each change of one image, in order")]
fn changes_are_applied_in_order() {
    let (mut live, mut core) = live(&filter(":a - [0:0]\n"), Family::Ipv4, Lookups::Estimated);
    let edit = |live: &mut Live, lines: &[u8]| live.apply(lines, "edit", &Names::default());
    edit(&mut live, b"*filter\n-A a -j DROP\nCOMMIT\n").expect("valid");
    let second = edit(&mut live, b"*filter\n-A INPUT -j a\nCOMMIT\n").expect("valid");
    let _ = core.apply(&live, &second);
}

#[test]
fn image_of_constant_set_does_not_grow() {
    for reclaims in [true, false] {
        let (mut live, mut core) = live(
            &filter(":a - [0:0]\n-A INPUT -j a\n"),
            Family::Ipv4,
            Lookups::Estimated,
        );
        let (first, mut largest, mut rebuilt) = (live.image().bytes().len(), 0, 0);
        for turn in 0..2000 {
            let source = turn % 250;
            let lines = format!(
                "*filter\n-I a 1 -s 10.0.0.{source} -m limit --limit 1/sec -j DROP\n-N new{turn}\nCOMMIT\n"
            );
            for lines in [lines, format!("*filter\n-D a 1\n-X new{turn}\nCOMMIT\n")] {
                let applied = live.apply(lines.as_bytes(), "edit", &Names::default());
                let applied = applied.expect("it is valid");
                rebuilt += u32::from(matches!(applied, Applied::Rebuilt(_)));
                core.apply(&live, &applied).expect("valid image");
                if reclaims {
                    live.reclaim();
                }
            }
            largest = largest.max(live.image().bytes().len());
        }
        println!("reclaims {reclaims}: {rebuilt} of 4000 rebuilt");
        assert!(largest <= first + SPACE);
        // Without release, the 64 spare ids are used up after 64 of them.
        assert_eq!(rebuilt == 0, reclaims);
        assert!(rebuilt <= 4000 / 64 + 1);
    }
}
