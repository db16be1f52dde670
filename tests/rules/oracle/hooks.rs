//! Rules at the kernel's hooks have the verdicts and counters of iptables-legacy on real packets.

use fairpath_bpf::{
    FrameFamily, HOOK_FAMILIES, HookCounts, HookRules, HookSet, IP_FAMILIES, NewRules, Pins,
};
use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, Used, build};
use fairpath_rules::{
    Answer as AtPoint, Counters, Family, Point, Ruleset, not_evaluated_word, rule_answer,
};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::oracle::compare::{self, Answer, counts};
use fairpath_tests::oracle::packets::{Toward, refused};
use fairpath_tests::oracle::pools::IN;
use fairpath_units::{IfIndex, test_seeds};

use super::compare::{answer, concerns};
use super::legacy::{Legacy, Tool};
use super::{FRAMES, frames_of, parse};
use crate::oracle::rulesets::generate;

/// The rules of one family.
pub fn one(ruleset: &Ruleset, built: &Built, hooks: &mut HookRules) {
    set(ruleset, built, hooks, None);
}

/// The same, in the shadow with the bits of tables that may drop packets.
pub fn set(
    ruleset: &Ruleset,
    built: &Built,
    hooks: &mut HookRules,
    shadow: Option<[u32; IP_FAMILIES]>,
) {
    // The first ones: the numbers stay as they are.
    let placed = Used::default().place(built.clone(), None).unwrap();
    let mut sets = [None; HOOK_FAMILIES];
    sets[ruleset.family as usize] = Some(HookSet {
        image: &placed.image,
        counters: &placed.counters,
        slots: &placed.slots,
        tables: &placed.tables,
        needs: placed.needs,
        rules: 0,
        egress: false,
        limits: false,
    });
    let new = NewRules {
        sets,
        mode: CounterMode::Exact,
        shadow,
        ..NewRules::default()
    };
    hooks.set(&new).unwrap();
}

/// True if the programs evaluate each rule of a set.
pub fn is_exact(ruleset: &Ruleset) -> bool {
    let chains = || ruleset.tables.iter().flat_map(|table| table.chains());
    // Those that reach any rule.
    let hooks: Vec<_> = chains()
        .filter(|(_, chain)| !chain.rules.is_empty())
        .filter_map(|(_, chain)| chain.hook)
        .collect();
    let mut rules = chains().flat_map(|(_, chain)| &chain.rules);
    rules.all(|rule| {
        let answer = rule_answer(rule, ruleset.family, &hooks, Point::Netfilter);
        let exact = answer == AtPoint::Exact;
        let known = not_evaluated_word(ruleset.family, rule).is_none();
        exact && known
    })
}

/// The counters of loaded rules.
pub fn counts_of_hooks(
    ruleset: &Ruleset,
    built: &Built,
    hooks: &HookRules,
) -> Vec<compare::RuleCount> {
    let memory = hooks.memory(ruleset.family as usize).expect("a set");
    counts(ruleset, |table, id, rule| {
        let id = match rule {
            Some(rule) => Some(built.rule_id(table, id, rule)),
            None => built.policy_id(table, id),
        };
        id.map(|id| {
            let counter = memory.counter(id);
            Counters {
                packets: counter.packets,
                bytes: counter.bytes,
            }
        })
    })
}

/// The counters of loaded rules after frames, and the number of frames that passed a hook.
pub fn answer_of_hooks(
    ours: &Legacy,
    hooks: &mut HookRules,
    (text, ruleset): (&str, &Ruleset),
    lookups: Lookups,
    hook: &str,
    frames: &[Vec<u8>],
) -> Answer {
    let built = build(ruleset, None, lookups).unwrap();
    one(ruleset, &built, hooks);
    let before = ours.passed(hook);
    ours.inject(frames);
    let mut counts = counts_of_hooks(ruleset, &built, hooks);
    counts.retain(|count| concerns(text, count));
    Answer {
        counts,
        accepted: ours.passed(hook) - before,
    }
}

/// Each packet was evaluated. Fragments may be parked in reassembly while rules change.
pub fn assert_all_whole(hooks: &HookRules) {
    let parked = hooks.counts().parked;
    let only_parked = HookCounts {
        parked,
        ..HookCounts::default()
    };
    assert_eq!(hooks.counts(), only_parked);
}

fn agree(tool: Tool, count: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let (kernel, ours) = (Legacy::new(tool), Legacy::new(tool));
    let mut hooks = HookRules::load().unwrap();
    ours.enter(|| hooks.attach().unwrap());
    let (mut compared, mut frames_compared) = (0, 0);
    for seed in test_seeds(count) {
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        if generated.tracked || !is_exact(&ruleset) {
            continue;
        }
        let frames = frames_of(tool, &generated, seed, FRAMES);
        let of_kernel = answer(&kernel, &generated.text, &frames);
        let set = (&*generated.text, &ruleset);
        let hook = match generated.toward {
            Toward::Input => "INPUT",
            Toward::Ingress => "PREROUTING",
        };
        for lookups in [Lookups::Never, Lookups::Always] {
            let of_hooks = answer_of_hooks(&ours, &mut hooks, set, lookups, hook, &frames);
            let named = vec![("hooks", of_hooks)];
            let different = compare::differing(&of_kernel, named);
            assert!(
                different.is_none(),
                "seed {seed}, {lookups:?}\n{}\n{of_kernel:?}\n{different:?}\n{:?}",
                generated.text,
                hooks.counts()
            );
        }
        compared += 1;
        frames_compared += frames.len();
    }
    assert_all_whole(&hooks);
    println!("{tool:?}: {compared} of {count} rulesets, {frames_compared} frames");
    assert!(compared > 0);
}

#[test]
fn ipv4_rules_at_hooks_are_the_kernels() {
    agree(Tool::V4, 2000);
}

#[test]
fn ipv6_rules_at_hooks_are_the_kernels() {
    agree(Tool::V6, 2000);
}

/// Frames with other bits, ends and more bytes. The sender's socket refuses those without a payload.
fn mutated(frames: &[Vec<u8>], seed: u64) -> Vec<Vec<u8>> {
    const MINIMUM: usize = 15;
    let mut random = Random::new(seed);
    let mut one = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        match random.below(4) {
            0 => frame.truncate(MINIMUM + random.index(frame.len() - MINIMUM)),
            1 => frame.extend(vec![0; random.index(40)]),
            _ => {}
        }
        for _ in 0..random.below(4) {
            let at = random.index(frame.len().min(42));
            frame[at] ^= 1 << random.below(8);
        }
        frame
    };
    frames.iter().map(&mut one).collect()
}

/// Both namespaces get the same frames: as they should be, odd, and broken ones.
#[test]
fn arp_rules_at_tcx_are_the_kernels() {
    let [root, program, nft] = Tool::Arp.needs();
    requires!(root, program, nft);
    let (kernel, ours) = (Legacy::new(Tool::Arp), Legacy::new(Tool::Arp));
    let mut hooks = ours.enter(|| HookRules::load().unwrap());
    let place = std::env::temp_dir().join(format!("fairpath-arp-{}", std::process::id()));
    let pins = Pins::at(place).unwrap();
    ours.enter(|| {
        let index = nix::net::if_::if_nametoindex(IN).unwrap();
        let interfaces = [(IfIndex(index), IN)];
        hooks
            .attach_frames(&pins, FrameFamily::Arp, &interfaces)
            .unwrap();
    });
    let (mut frames_compared, mut passed) = (0, 0);
    for seed in test_seeds(60) {
        let generated = generate(Tool::Arp, seed);
        let ruleset = parse(Tool::Arp, &generated.text);
        let mut frames = frames_of(Tool::Arp, &generated, seed, FRAMES);
        frames.extend(refused(Family::Arp).into_iter().map(|(_, frame)| frame));
        frames.extend(mutated(&frames, seed));
        // The kernel drops a tag without a type before all, and the sender's socket an empty frame.
        let is_tagged = |frame: &Vec<u8>| matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
        frames.retain(|frame| frame.len() > if is_tagged(frame) { 19 } else { 14 });
        let of_kernel = answer(&kernel, &generated.text, &frames);
        let set = (&*generated.text, &ruleset);
        for lookups in [Lookups::Never, Lookups::Always] {
            let of_hooks = answer_of_hooks(&ours, &mut hooks, set, lookups, "INPUT", &frames);
            let named = vec![("tcx", of_hooks)];
            let different = compare::differing(&of_kernel, named);
            assert!(
                different.is_none(),
                "seed {seed}, {lookups:?}\n{}\n{of_kernel:?}\n{different:?}\n{:?}",
                generated.text,
                hooks.counts()
            );
        }
        frames_compared += frames.len();
        passed += of_kernel.accepted;
    }
    assert_all_whole(&hooks);
    ours.enter(|| HookRules::keep_frames(&pins, FrameFamily::Arp, &[]).unwrap());
    pins.unmount().unwrap();
    println!("{frames_compared} frames, {passed} of them passed");
    assert!(passed > 0);
}

/// Sets of two colours: each drops every packet, one port in table raw and the other in table filter.
/// A packet that meets a mixture passes.
#[test]
fn no_packet_meets_a_mixture() {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};
    requires!(Need::Root);
    const CHANGES: u32 = 300;
    let testbed = Testbed::new();
    let netns = testbed.netns("mixed").unwrap();
    netns.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    let mut hooks = HookRules::load().unwrap();
    let images = [(7001, 7002), (7002, 7001)].map(|(early, late)| {
        let text = format!(
            "*raw\n-A PREROUTING -p udp -m udp --dport {early} -j DROP\nCOMMIT\n\
             *filter\n-A INPUT -p udp -m udp --dport {late} -j DROP\nCOMMIT\n"
        );
        let tree = parse(Tool::V4, &text);
        let built = build(&tree, None, Lookups::default()).unwrap();
        (tree, built)
    });
    let (tree, built) = &images[0];
    one(tree, built, &mut hooks);
    let done = AtomicBool::new(false);
    let sockets = netns.enter(|| {
        [7001, 7002, 7003].map(|port| {
            let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
    });
    let [first, second, third] = sockets.unwrap();
    netns.enter(|| hooks.attach().unwrap()).unwrap();
    let (sent, received) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let sender = netns.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap());
            let sender = sender.unwrap();
            let (mut sent, mut received) = (0u64, 0u64);
            let mut buffer = [0; 8];
            while !done.load(Ordering::Relaxed) {
                for port in [7001, 7002, 7003] {
                    sender.send_to(b"x", ("127.0.0.1", port)).unwrap();
                }
                sent += 1;
                while third.recv(&mut buffer).is_ok() {
                    received += 1;
                }
            }
            while third.recv(&mut buffer).is_ok() {
                received += 1;
            }
            (sent, received)
        });
        for number in 0..CHANGES {
            let (tree, built) = &images[number as usize & 1];
            one(tree, built, &mut hooks);
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let mut buffer = [0; 8];
    let mixed = [&first, &second].map(|socket| socket.recv(&mut buffer).is_ok());
    println!("{sent} packets of each port, {CHANGES} changes");
    assert_eq!((mixed, received), ([false; 2], sent));
    assert_eq!(hooks.counts(), HookCounts::default());
}
