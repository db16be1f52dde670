//! The first rules of a chain, which the programs at the hooks evaluate before they read the packet.

use fairpath_bpf::HookRules;
use fairpath_rules::image::Lookups;
use fairpath_statistics::Random;
use fairpath_testbed::requires;
use fairpath_tests::oracle::compare;
use fairpath_tests::oracle::packets::{
    ETH_IPV4, ETH_IPV6, Ipv4, TCP, Toward, UDP, frames, plain, v6_with,
};
use fairpath_tests::oracle::pools::{HOSTS4, HOSTS6, OWN4, OWN6};
use fairpath_units::test_seeds;

use super::compare::answer;
use super::hooks::{answer_of_hooks, assert_all_whole, is_exact};
use super::legacy::{Legacy, Tool};
use super::{family, is_fragment, network, parse};

/// Flows of a set of rules, and other frames.
const FLOWS: u16 = 8;
const OTHERS: usize = 48;

/// Two of these are a rule: what it reads, and its target.
const MATCHES: [&str; 17] = [
    "",
    "-i in0",
    "-i in0",
    "! -i in0",
    "-i in+",
    "-i lo",
    "! -i lo",
    "-m conntrack --ctstate ESTABLISHED,RELATED",
    "-m conntrack --ctstate ESTABLISHED",
    "-m conntrack --ctstate NEW",
    "-m conntrack --ctstate INVALID",
    "-m conntrack ! --ctstate INVALID",
    "-m conntrack --ctstate INVALID,UNTRACKED",
    "-i in0 -m conntrack --ctstate ESTABLISHED",
    "! -i in0 -m conntrack ! --ctstate ESTABLISHED",
    "-m conntrack --ctstatus CONFIRMED",
    "-p udp",
];
const TARGETS: [&str; 8] = [
    "-j ACCEPT",
    "-j ACCEPT",
    "-j DROP",
    "",
    "-j RETURN",
    "-j more",
    "-g more",
    "-m mark --mark 1 -j DROP",
];

/// A set with table mangle in PREROUTING, and table filter in INPUT.
fn rules(random: &mut Random) -> String {
    let mut text = String::new();
    for (table, base, policy) in [("mangle", "PREROUTING", "ACCEPT"), ("filter", "INPUT", "")] {
        let policy = match policy {
            "" => random.pick(&["ACCEPT", "DROP"]),
            one => one,
        };
        text.push_str(&format!(
            "*{table}\n:{base} {policy} [0:0]\n:more - [0:0]\n"
        ));
        for chain in [base, "more"] {
            for _ in 0..random.index(7) {
                let (one, target) = (random.pick(&MATCHES), random.pick(&TARGETS));
                let target = match chain {
                    // Drops of table mangle hide most from table filter.
                    "more" => random.pick(&["-j RETURN", "-j ACCEPT", ""]),
                    "PREROUTING" if target == "-j DROP" && random.below(4) > 0 => "",
                    _ => target,
                };
                text.push_str(&format!("-A {chain} {one} {target}\n"));
            }
        }
        text.push_str("COMMIT\n");
    }
    text
}

/// A frame of a flow with own ports, to the namespace or as if it came back from it.
fn frame(tool: Tool, port: u16, is_reply: bool, random: &mut Random) -> Vec<u8> {
    let (protocol, rest) = match port % 2 {
        0 => (UDP, vec![0, 8, 0, 0]),
        _ => {
            let flags = random.pick(&[0x02, 0x10, 0x12, 0x18, 0x04, 0x11, 0x3f]);
            let middle = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags];
            (TCP, [&middle[..], &[0xff, 0xff, 0, 0, 0, 0]].concat())
        }
    };
    let ports = match is_reply {
        false => [port.to_be_bytes(), 80u16.to_be_bytes()],
        true => [80u16.to_be_bytes(), port.to_be_bytes()],
    };
    let data = [&ports.concat()[..], &rest].concat();
    if tool == Tool::V6 {
        let (from, to) = match is_reply {
            false => (HOSTS6[0], OWN6),
            true => (OWN6, HOSTS6[0]),
        };
        return plain(ETH_IPV6, &v6_with((from, to), (0, 64), protocol, &data));
    }
    let (from, to) = match is_reply {
        false => (HOSTS4[0], OWN4),
        true => (OWN4, HOSTS4[0]),
    };
    let header = Ipv4 {
        from,
        to,
        ..Ipv4::new(protocol)
    };
    plain(ETH_IPV4, &header.packet(&data))
}

/// Flows in both directions, between other frames.
fn traffic(tool: Tool, set: u16, seed: u64, random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = frames(family(tool), Toward::Input, seed, OTHERS);
    all.retain(|frame| !is_fragment(&frame[network(frame)..]));
    for flow in 0..FLOWS {
        let port = 1024 + set * FLOWS + flow;
        // Rules see the answer, if at all, in PREROUTING: its source is an own address.
        for is_reply in [false, true, false, false] {
            all.push(frame(tool, port, is_reply, random));
        }
    }
    // Others come between those of flows.
    for _ in 0..all.len() {
        let moved = all.remove(random.index(OTHERS.min(all.len())));
        all.insert(random.index(all.len() + 1), moved);
    }
    all
}

fn agree(tool: Tool, count: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let (kernel, ours) = (Legacy::new(tool), Legacy::new(tool));
    for space in [&kernel, &ours] {
        space.track_connections();
    }
    let mut hooks = ours.enter(|| HookRules::load().unwrap());
    ours.enter(|| hooks.attach().unwrap());
    let mut established = 0;
    for (set, seed) in test_seeds(count).enumerate() {
        let mut random = Random::new(seed);
        let text = rules(&mut random);
        let ruleset = parse(tool, &text);
        assert!(is_exact(&ruleset), "{text}");
        let frames = traffic(tool, set as u16, seed, &mut random);
        let of_kernel = answer(&kernel, &text, &frames);
        let lookups = Lookups::Estimated;
        let of_hooks = answer_of_hooks(
            &ours,
            &mut hooks,
            (&text, &ruleset),
            lookups,
            "INPUT",
            &frames,
        );
        let different = compare::differing(&of_kernel, vec![("hooks", of_hooks)]);
        assert!(
            different.is_none(),
            "seed {seed}\n{text}\n{of_kernel:?}\n{different:?}\n{:?}",
            hooks.counts()
        );
        let of_input = text.lines().filter(|line| line.starts_with("-A INPUT"));
        let reads: Vec<bool> = of_input.map(|line| line.contains(" ESTABLISHED")).collect();
        let read = of_kernel
            .counts
            .iter()
            .filter(|count| count.chain == "INPUT" && count.rule.is_some_and(|rule| reads[rule]));
        established += read.map(|count| count.packets).sum::<u64>();
    }
    assert_all_whole(&hooks);
    println!("{tool:?}: {count} rulesets, {established} packets of known connections");
    assert!(established > 0);
}

#[test]
fn first_rules_are_those_of_iptables() {
    agree(Tool::V4, 300);
}

#[test]
fn first_rules_are_those_of_ip6tables() {
    agree(Tool::V6, 300);
}
