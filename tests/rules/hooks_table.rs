//! The table of hooks in the guide, next to what `fairpath rules load` and the kernel do.

use std::collections::{BTreeMap, BTreeSet};

use fairpath_rules::spec::SPECS;
use fairpath_rules::{Family, HOOKS, Hook, HookAnswer, answers, hook_answer, tables_of};
use fairpath_testbed::{Need, Testbed, requires};

use super::live::Router;

/// A rule for each match and target, without its chain; 4 and 6: the family.
const RULES: &str = "
46 -m addrtype --dst-type LOCAL
4 -p ah -m ah --ahspi 1
6 -m ah --ahspi 1
46 -m comment --comment x
46 -p tcp -m connlimit --connlimit-above 3
46 -m connmark --mark 1
46 -m conntrack --ctstate NEW
46 -p dccp -m dccp --sport 1
46 -m dscp --dscp 1
6 -m dst --dst-len 8
46 -m ecn --ecn-ip-ect 1
46 -p esp -m esp --espspi 1
6 -m frag --fragid 1
46 -m hashlimit --hashlimit-upto 1/sec --hashlimit-name h
6 -m hbh --hbh-len 8
6 -m hl --hl-eq 1
4 -p icmp -m icmp --icmp-type 8
6 -p ipv6-icmp -m icmp6 --icmpv6-type 128
4 -m iprange --src-range 192.0.2.1-192.0.2.2
6 -m iprange --src-range 2001:db8::1-2001:db8::2
6 -m ipv6header --header frag --soft
46 -m length --length 1
46 -m limit --limit 1/sec
46 -m mac --mac-source 02:00:00:00:00:01
46 -m mark --mark 1
46 -p tcp -m multiport --ports 1
46 -m owner --uid-owner 1
46 -m physdev --physdev-in x
46 -m pkttype --pkt-type unicast
46 -m quota --quota 1
46 -m recent --set --name r
46 -m rpfilter
6 -m rt --rt-type 0
46 -p sctp -m sctp --sport 1
46 -m set --match-set s src
46 -m state --state NEW
46 -m statistic --mode nth --every 2 --packet 0
46 -p tcp -m tcp --sport 1
46 -p tcp -m tcpmss --mss 1
46 -m time --timestart 01:00
46 -m tos --tos 1
4 -m ttl --ttl-eq 1
46 -m u32 --u32 0=1
46 -p udp -m udp --sport 1
46 -j CLASSIFY --set-class 1:1
46 -p udp -j CONNMARK --set-mark 1
46 -j CT --notrack
4 -p udp -j DNAT --to-destination 192.0.2.1
6 -p udp -j DNAT --to-destination 2001:db8::1
46 -j DSCP --set-dscp 1
6 -j HL --hl-set 1
46 -j LOG
46 -j MARK --set-mark 1
46 -j MASQUERADE
4 -j NETMAP --to 192.0.2.0/24
6 -j NETMAP --to 2001:db8::/64
46 -j NFLOG
46 -j NFQUEUE --queue-num 1
46 -j NOTRACK
46 -p tcp -j REDIRECT --to-ports 1
46 -j REJECT
46 -j SET --add-set t src
4 -j SNAT --to-source 192.0.2.1
6 -j SNAT --to-source 2001:db8::1
46 -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 900
46 -j TOS --set-tos 1
46 -p tcp -j TPROXY --on-port 1
46 -j TRACE
4 -j TTL --ttl-set 1
";

/// The words of RULES for a family: the name in the table, the answers, and the rule.
fn samples(family: Family) -> Vec<(String, [HookAnswer; HOOKS.len()], &'static str)> {
    let digit = if family == Family::Ipv4 { '4' } else { '6' };
    let lines = RULES.lines().filter_map(|line| line.split_once(' '));
    let lines = lines.filter(|(families, _)| families.contains(digit));
    lines
        .map(|(_, rule)| {
            let option = if rule.contains("-j ") { "-j " } else { "-m " };
            let name = rule
                .split(option)
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            let is_target = option == "-j ";
            let mut specs = SPECS.iter().filter(|spec| spec.is_in(family));
            let spec = specs.find(|spec| spec.name == name && spec.kind.is_target() == is_target);
            let kind = spec.unwrap().kind;
            (
                format!("{option}{name}"),
                HOOKS.map(|hook| hook_answer(kind, family, hook)),
                rule,
            )
        })
        .collect()
}

/// A table of iptables that has the hook, and permits the target.
fn table_of(rule: &str, hook: Hook, family: Family) -> &'static str {
    let target = rule.split("-j ").nth(1).unwrap_or_default();
    let name = match target.split(' ').next().unwrap() {
        "REJECT" => "filter",
        "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP" => "nat",
        "CT" | "NOTRACK" | "TRACE" => "raw",
        _ => "mangle",
    };
    let mut tables = tables_of(family).iter();
    let (name, hooks) = tables.find(|(table, _)| *table == name).unwrap();
    // A hook that the table does not have: the target is tried in one that has it.
    if hooks.contains(&hook) {
        name
    } else {
        "mangle"
    }
}

fn files_of(rules: &[(&'static str, String)]) -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (table, rule) in rules {
        *tables.entry(table).or_default() += &format!("{rule}\n");
    }
    let tables = tables.iter();
    tables
        .map(|(name, rules)| format!("*{name}\n{rules}COMMIT\n"))
        .collect()
}

#[test]
fn every_match_and_target_has_a_sample() {
    let names = |family| samples(family).into_iter().map(|sample| sample.0);
    let sampled: BTreeSet<String> = names(Family::Ipv4).chain(names(Family::Ipv6)).collect();
    let rows: BTreeSet<String> = answers()
        .filter(|row| !row.hooks.iter().all(|answer| answer.word() == "refused"))
        .map(|row| row.name)
        .collect();
    assert_eq!(sampled, rows);
}

/// Exact and moved rules load, those that are deferred are refused without `--defer`, and iptables takes exactly those
/// that are not refused.
#[test]
fn table_of_hooks_is_what_load_does() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let inet = if family == Family::Ipv4 {
            "inet"
        } else {
            "inet6"
        };
        let router = Router::new(testbed.netns("table").unwrap());
        let restore = format!("{}-legacy-restore", family.tool());
        let mut sets = String::new();
        for name in ["s", "t"] {
            let words = ["ipset", "create", name, "hash:ip", "family", inet];
            router.netns.run(&words).unwrap();
            sets += &format!("create {name} hash:ip family {inet}\n");
        }
        let sets = router.file("sets", &sets);
        for (at, hook) in HOOKS.into_iter().enumerate() {
            let line = |rule: &str| {
                let chain = hook.chain();
                (table_of(rule, hook, family), format!("-A {chain} {rule}"))
            };
            let of = |word| {
                let samples = samples(family).into_iter();
                let samples = samples.filter(|sample| sample.1[at].word() == word);
                samples.map(|sample| line(sample.2)).collect::<Vec<_>>()
            };
            for rule in of("refused") {
                let file = router.file("refused", &files_of(std::slice::from_ref(&rule)));
                let taken = router.netns.run(&[&restore, &file]);
                assert!(taken.is_err(), "{rule:?}");
            }
            let (exact, deferred) = ([of("exact"), of("moved")].concat(), of("deferred"));
            let file = router.file("exact", &files_of(&exact));
            router.done(&["load", &file, &sets, "--family", &family_word(family)]);
            router.netns.run(&[&restore, &file]).unwrap();
            let file = router.file("deferred", &files_of(&deferred));
            let words = ["load", &file, &sets, "--family", &family_word(family)];
            let refused = router.fails(&[&words[..], &["--nat=refuse"]].concat());
            let all = format!("{} rules are refused", deferred.len());
            assert!(refused.contains(&all), "{hook:?}: {all}: {refused}");
            router.netns.run(&[&restore, &file]).unwrap();
        }
    }
}

fn family_word(family: Family) -> String {
    family.to_string().to_lowercase()
}
