//! A save file: read, written, read again, built, and evaluated with packets from the input.

use fairpath_core::rules::{CounterMode, check};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{
    Connection, Core, Facts, Family, Hook, Names, Packet, Ruleset, Sets, WithCounters, read, write,
};

/// Sets that rules can name.
const SETS: &[u8] = include_bytes!("../../seeds/rules_ipset/all");
/// Bytes of a packet, and packets of an input.
const PACKET: usize = 96;
const PACKETS: usize = 4;

/// The file is everything before the first zero byte, and packets come after it. Without one, the
/// file's own bytes are packets.
pub fn run(input: &[u8], family: Family) {
    let (text, packets) = match input.iter().position(|byte| *byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, input),
    };
    let names = Names::default();
    let parse = |text: &[u8]| {
        let mut text = text;
        read(&mut text, "input", family, &names)
            .expect("memory can be read")
            .complete()
    };
    let Ok(ruleset) = parse(text) else { return };
    let written = text_of(&ruleset);
    let again = parse(&written).unwrap_or_else(|problem| {
        panic!("{problem}\n{}", String::from_utf8_lossy(&written));
    });
    let rewritten = text_of(&again);
    assert!(
        written == rewritten,
        "{}\nis not\n{}",
        String::from_utf8_lossy(&written),
        String::from_utf8_lossy(&rewritten)
    );
    evaluate(&ruleset, packets, family);
}

fn text_of(ruleset: &Ruleset) -> Vec<u8> {
    let mut out = Vec::new();
    write(ruleset, WithCounters::AsRead, &mut out).expect("memory can be written");
    out
}

fn image(ruleset: &Ruleset, sets: &Sets, lookups: Lookups) -> Option<Built> {
    let built = build(ruleset, Some(sets), lookups).ok()?;
    check(&built.image).expect("a built image is accepted");
    Some(built)
}

/// With tables and without, each packet has the same outcome and each counter the same value.
fn evaluate(ruleset: &Ruleset, packets: &[u8], family: Family) {
    let sets = Sets::read("sets", SETS).expect("the sets are valid");
    let image = |lookups| image(ruleset, &sets, lookups);
    let Some((linear, tables)) = image(Lookups::Never).zip(image(Lookups::Always)) else {
        return;
    };
    let mut cores = [&linear, &tables]
        .map(|built| Core::new(built, CounterMode::Exact).expect("a built image is accepted"));
    for core in &mut cores {
        core.trace(true);
    }
    for (number, bytes) in packets.chunks(PACKET).take(PACKETS).enumerate() {
        // Packets without a link-layer header do not use lookups.
        let link = if family.is_ip() { 14 } else { 0 };
        let frame = [&vec![2; link], bytes].concat();
        let packet = Packet {
            family,
            bytes: &frame,
            network: link,
            length: bytes.len() + if number == 3 { 1000 } else { 0 },
            facts: facts(number, bytes),
        };
        for hook in Hook::ALL {
            let [mut one, mut other] = cores.each_mut().map(|core| core.evaluate(hook, &packet));
            for outcome in [&mut one, &mut other].into_iter().flatten() {
                // A lookup compares fewer rules.
                outcome.evaluated = 0;
            }
            assert_eq!(one, other, "packet {number} at {hook:?}");
        }
    }
    for id in 0..linear.ids {
        assert_eq!(cores[0].counters(id), cores[1].counters(id), "id {id}");
    }
}

/// Everything is known, or nothing.
fn facts(number: usize, bytes: &[u8]) -> Facts {
    if number & 1 == 1 {
        return Facts::default();
    }
    let first = bytes.first().copied().unwrap_or_default();
    Facts {
        connection: Some(Connection {
            state: 1 << (first & 3),
            ..Connection::default()
        }),
        packet_type: Some(first & 3),
        now: u64::from(first) * 1_000_000,
        random: Some(u32::from(first) << 24),
        ..Facts::usual()
    }
}
