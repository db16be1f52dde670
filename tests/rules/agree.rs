//! The runtimes of the core agree: natively and in the kernel, with and without lookups, on shipped
//! examples and generated packets.

use fairpath_bpf::{KernelRules, RUN_PACKETS};
use fairpath_core::rules::{CounterMode, Work};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{
    Connection, Core, Facts, Family, Hook, Names, Packet, Ruleset, Verdict, outcome, read,
};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, requires};
use fairpath_tests::oracle::bridge;
use fairpath_tests::oracle::packets::frames;
use fairpath_units::test_seeds;

use crate::oracle::legacy::Tool;
use crate::oracle::partial::{complete, hide, with_facts};
use crate::oracle::rulesets::generate;
use crate::oracle::{family, hooks, parse};

const EXAMPLES: [(&str, Family); 4] = [
    ("home.v4", Family::Ipv4),
    ("docker.v4", Family::Ipv4),
    ("blocklist.v4", Family::Ipv4),
    ("home.v6", Family::Ipv6),
];

fn example(name: &str, family: Family) -> Ruleset {
    let path = format!("{}/../examples/rules/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(path).unwrap();
    read(&mut &text[..], name, family, &Names::default())
        .unwrap()
        .complete()
        .unwrap()
}

/// Bytes of the link-layer header. Without its addresses no lookup would be used.
const LINK_BYTES: usize = 14;

/// A packet with addresses and ports that rules of the examples name, or others.
fn bytes(family: Family, random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[6u8, 6, 6, 17, 17, 1, 58, 47]);
    let ports = [22u16, 53, 67, 80, 443, 546, 8080, 40_000];
    let mut transport = vec![0u8; random.pick(&[20usize, 20, 20, 20, 12, 3])];
    let mut head = [random.pick(&ports), random.pick(&ports)]
        .map(u16::to_be_bytes)
        .concat();
    if protocol == 1 || protocol == 58 {
        head[0] = random.pick(&[8, 0, 128, 134, 135, 136]);
    }
    let length = transport.len().min(4);
    transport[..length].copy_from_slice(&head[..length]);
    if transport.len() > 13 {
        transport[12] = 0x50;
        transport[13] = random.draw() as u8;
    }
    if family == Family::Ipv6 {
        let mut out = vec![
            0x60,
            0,
            0,
            0,
            0,
            transport.len() as u8,
            protocol,
            random.pick(&[255, 64]),
        ];
        for _ in 0..2 {
            out.extend(random.pick(&[
                [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10],
                [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            ]));
        }
        out.extend(transport);
        return out;
    }
    let total = (20 + transport.len()) as u16;
    let mut out = vec![0x45, 0];
    out.extend(total.to_be_bytes());
    let fragment = random.pick(&[0u8, 0, 0, 0, 0, 1, 9]);
    out.extend([0, 0, 0, fragment, 64, protocol, 0, 0]);
    for _ in 0..2 {
        let any = (random.draw() as u32).to_be_bytes();
        out.extend(random.pick(&[
            [203, 0, 113, 7],
            [192, 168, 1, 10],
            [172, 17, 0, 2],
            [127, 0, 0, 1],
            any,
            any,
        ]));
    }
    out.extend(transport);
    out
}

fn facts(hook: Hook, random: &mut Random) -> Facts {
    let names: [&[u8]; 4] = [b"lan", b"wan", b"docker0", b"lo"];
    let name = |has: bool, random: &mut Random| -> Option<Box<[u8]>> {
        if !has {
            return Some(b""[..].into());
        }
        (!random.one_in(20)).then(|| random.pick(&names).into())
    };
    Facts {
        input: name(hook.has_input(), random),
        output: name(hook.has_output(), random),
        connection: (!random.one_in(20)).then(|| Connection {
            state: random.pick(&[1, 2, 4, 8, 16]),
            ..Connection::default()
        }),
        source_type: Some(2),
        destination_type: Some(random.pick(&[2, 4, 8])),
        now: random.below(10_000_000_000),
        ..Facts::usual()
    }
}

/// The hook and the packets of a turn, in order of time.
fn packets(family: Family, seed: u64) -> (Hook, Vec<(Vec<u8>, Facts)>) {
    let mut random = Random::new(seed);
    let hook = random.pick(&[Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output]);
    let mut packets: Vec<(Vec<u8>, Facts)> = (0..RUN_PACKETS)
        .map(|_| {
            let link = vec![2; LINK_BYTES];
            let bytes = [link, bytes(family, &mut random)].concat();
            (bytes, facts(hook, &mut random))
        })
        .collect();
    packets.sort_by_key(|(_, facts)| facts.now);
    (hook, packets)
}

fn packet<'a>(family: Family, (bytes, facts): &'a (Vec<u8>, Facts)) -> Packet<'a> {
    Packet {
        family,
        bytes,
        network: LINK_BYTES,
        length: bytes.len() - LINK_BYTES,
        facts: facts.clone(),
    }
}

#[test]
fn lookups_change_no_verdict_and_counter() {
    for (name, family) in EXAMPLES {
        let ruleset = example(name, family);
        let built = Lookups::ALL.map(|lookups| build(&ruleset, None, lookups).unwrap());
        let mut evaluated = [0; 3];
        for seed in test_seeds(200) {
            let mut cores = built
                .each_ref()
                .map(|built| Core::new(built, CounterMode::Exact).unwrap());
            let (hook, packets) = packets(family, seed);
            for each in &packets {
                let packet = packet(family, each);
                let outcomes = cores
                    .each_mut()
                    .map(|core| core.evaluate(hook, &packet).expect("whole packets"));
                for (sum, outcome) in evaluated.iter_mut().zip(&outcomes) {
                    *sum += u64::from(outcome.evaluated);
                }
                let [linear, estimated, always] =
                    outcomes.map(|outcome| (outcome.verdict, outcome.rule, outcome.changes));
                assert_eq!(linear, estimated, "{name}, seed {seed}: {each:?}");
                assert_eq!(linear, always, "{name}, seed {seed}: {each:?}");
            }
            for id in 0..built[0].ids {
                let [linear, tables @ ..] = cores.each_ref().map(|core| core.counters(id));
                assert_eq!(tables, [linear; 2], "{name}, seed {seed}, id {id}");
            }
        }
        let [linear, lookup, _] = evaluated;
        let has_lookups = built[1].plans.iter().any(|plan| plan.segment.is_some());
        assert_eq!(lookup < linear, has_lookups, "{name}: {evaluated:?}");
    }
}

/// Packets have the same outcomes and counters natively and in the kernel.
fn runtimes_agree(built: &Built, hook: Hook, packets: &[Packet], context: &str) {
    let mode = CounterMode::Exact;
    let mut core = Core::new(built, mode).unwrap();
    let mut kernel = KernelRules::load(&built.image, &built.states, mode).unwrap();
    let mut works: Vec<Work> = packets
        .iter()
        .map(|packet| {
            let mut work = Work::new();
            built.fill(&mut work, packet);
            *work
        })
        .collect();
    kernel.run(hook as u32, 1, &mut works).unwrap();
    for (packet, work) in packets.iter().zip(&works) {
        let native = core.evaluate(hook, packet);
        let of_kernel = (work.verdict != 0).then(|| outcome(work, packet));
        assert_eq!(native, of_kernel, "{context}: {packet:02x?}");
    }
    for id in 0..built.ids {
        let counter = kernel.memory().counter(id);
        let native = core.counters(id);
        assert_eq!(
            (counter.packets, counter.bytes),
            (native.packets, native.bytes),
            "{context}, id {id}"
        );
    }
}

#[test]
fn kernel_and_native_agree() {
    requires!(Need::Root);
    for (name, family) in EXAMPLES {
        let ruleset = example(name, family);
        let built = Lookups::ALL.map(|lookups| build(&ruleset, None, lookups).unwrap());
        // Each seed loads a program, so the three take turns.
        for (seed, built) in test_seeds(20).zip(built.iter().cycle()) {
            let (hook, packets) = packets(family, seed);
            let packets: Vec<Packet> = packets.iter().map(|each| packet(family, each)).collect();
            runtimes_agree(built, hook, &packets, &format!("{name}, seed {seed}"));
        }
    }
}

/// Generated rules with facts of which some are not known.
#[test]
fn kernel_and_native_agree_on_generated_rules() {
    requires!(Need::Root);
    for seed in test_seeds(24) {
        let tool = [Tool::V4, Tool::V6][seed as usize % 2];
        let mut random = Random::new(seed);
        let generated = generate(tool, seed);
        let text = with_facts(&generated.text, &mut random);
        let ruleset = parse(tool, &text);
        let lookups = random.pick(&Lookups::ALL);
        let built = build(&ruleset, None, lookups).unwrap();
        let frames = frames(family(tool), generated.toward, seed, RUN_PACKETS);
        let packets: Vec<Packet> = frames
            .iter()
            .map(|frame| {
                let whole = complete(tool, frame, &mut random);
                let partial = hide(&whole, &mut random);
                // The caller answers for a packet without its network header.
                match random.one_in(3) && partial.network_bytes().len() >= 40 {
                    true => partial,
                    false => whole,
                }
            })
            .collect();
        let hook = *hooks(tool, generated.toward).last().expect("a hook");
        let context = format!("seed {seed}, {lookups:?}\n{text}");
        runtimes_agree(&built, hook, &packets, &context);
    }
}

/// Packets that a driver drops are dropped by table raw, with the same counters and no other effect.
#[test]
fn early_drops_are_those_of_raw() {
    let mut dropped = 0;
    for seed in test_seeds(200) {
        let tool = [Tool::V4, Tool::V6][seed as usize % 2];
        let mut random = Random::new(seed);
        let generated = generate(tool, seed);
        let built = build(&parse(tool, &generated.text), None, Lookups::Estimated).unwrap();
        let [mut early, mut hook] =
            [(); 2].map(|()| Core::new(&built, CounterMode::Exact).unwrap());
        for frame in frames(family(tool), generated.toward, seed, 100) {
            let packet = complete(tool, &frame, &mut random);
            if early.drop_early(&packet) {
                let outcome = hook.evaluate(Hook::Prerouting, &packet).expect("a packet");
                assert_eq!(outcome.verdict, Verdict::Drop, "seed {seed}: {packet:02x?}");
                dropped += 1;
            }
        }
        for id in 0..built.ids {
            assert_eq!(
                early.counters(id),
                hook.counters(id),
                "seed {seed}, id {id}"
            );
        }
        let [early, hook] = [&mut early, &mut hook].map(|core| {
            let memory = core.evaluator().0.memory();
            (0..built.states.len() as u32)
                .map(|slot| memory.state(slot))
                .collect::<Vec<_>>()
        });
        assert_eq!(early, hook, "seed {seed}");
    }
    assert!(dropped > 100, "{dropped}");
}

/// Rules and frames of bridges, which no shipped example has.
#[test]
fn kernel_and_native_agree_on_bridges() {
    requires!(Need::Root);
    for seed in test_seeds(50) {
        let base = bridge::Base::of(seed);
        let text = bridge::generate(base, seed);
        let built = build(&bridge::parse(&text), None, Lookups::Always).unwrap();
        let frames = bridge::frames(base, seed, RUN_PACKETS);
        let packets: Vec<Packet> = frames.iter().map(|frame| base.packet(frame)).collect();
        runtimes_agree(&built, base.hook, &packets, &format!("seed {seed}\n{text}"));
    }
}
