//! Generated programs: interpreted and compiled, they answer, change and fail alike.
//!
//! Addresses are those of arguments, of the stack, of constants and computed ones, with offsets about both ends of
//! each region. Jumps lead anywhere, calls to the function itself, so that programs end by every fault.

use std::collections::BTreeMap;

use fairpath_core::sched::Meta;
use fairpath_statistics::Random;
use fairpath_units::test_seeds;

use super::object::{EXIT, object, op, wide};
use super::{State, run};

const PROGRAMS: u64 = 10_000;
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    63,
    64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x2_0000_0000,
    1 << 63,
    u64::MAX,
];
/// Bytes of packet, flow, class, global and call, by the register of the argument.
const BYTES: [i16; 5] = [112, 64, 128, 64, 120];

/// One step of a program: an instruction, or two.
fn step(random: &mut Random) -> Vec<u64> {
    let register = |random: &mut Random| random.below(10) as u8;
    match random.below(20) {
        0..6 => vec![arithmetic(random)],
        6 => wide(register(random), constant(random)).to_vec(),
        7 | 8 => vec![op(0xbf, register(random), random.below(11) as u8, 0, 0)],
        9..14 => vec![memory(random)],
        // Jumps get their distance later.
        14..18 => {
            let codes = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13];
            let code = codes[random.below(12) as usize] << 4;
            let class = if code == 0 || random.below(2) == 0 {
                5
            } else {
                6
            };
            let by_register = if code == 0 {
                0
            } else {
                random.below(2) as u8 * 8
            };
            let (dst, src) = (register(random), register(random));
            let src = if by_register == 0 { 0 } else { src };
            vec![op(
                code | by_register | class,
                dst,
                src,
                0,
                EDGES[random.below(12) as usize] as i32,
            )]
        }
        18 if random.below(4) == 0 => vec![op(0x85, 0, 1, 0, 0)],
        19 if random.below(4) == 0 => vec![EXIT],
        _ => vec![op(0xb7, register(random), 0, 0, random.below(200) as i32)],
    }
}

fn constant(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => EDGES[random.below(12) as usize],
        1 => random.draw(),
        _ => (random.below(9) << 32) + random.below(600),
    }
}

fn arithmetic(random: &mut Random) -> u64 {
    let code = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13][random.below(14) as usize];
    let class = if random.below(2) == 0 { 7 } else { 4 };
    let (dst, src) = (random.below(10) as u8, random.below(11) as u8);
    match code {
        8 => op(0x80 | class, dst, 0, 0, 0),
        13 => {
            let to_big = random.below(2) as u8 * 8;
            let code = if class == 7 { 0xd7 } else { 0xd4 | to_big };
            op(code, dst, 0, 0, 16 << random.below(3))
        }
        _ if random.below(2) == 0 => op(code << 4 | 8 | class, dst, src, 0, 0),
        _ => op(code << 4 | class, dst, 0, 0, constant(random) as i32),
    }
}

fn memory(random: &mut Random) -> u64 {
    let (bits, size) = [(0x10, 1), (0x08, 2), (0x00, 4), (0x18, 8)][random.below(4) as usize];
    let base = [1, 2, 3, 4, 5, 10, 10, random.below(10) as u8][random.below(8) as usize];
    let (begin, end) = match base {
        1..6 => (0, BYTES[usize::from(base) - 1]),
        10 => (-512, 0),
        _ => (0, 8),
    };
    let offset = match random.below(8) {
        0 => begin - 1 - random.below(2) as i16,
        1 => end - size + random.below(3) as i16,
        2 => begin,
        3 => end - size,
        _ => begin + random.below((end - begin) as u64) as i16 - 1,
    };
    let other = random.below(10) as u8;
    match random.below(3) {
        0 => op(0x61 | bits, other, base, offset, 0),
        1 => op(0x63 | bits, base, other, offset, 0),
        _ => op(0x62 | bits, base, 0, offset, constant(random) as i32),
    }
}

fn program(random: &mut Random) -> Vec<u64> {
    let steps: Vec<Vec<u64>> = (0..5 + random.below(40)).map(|_| step(random)).collect();
    let mut starts = Vec::new();
    let mut at = 0;
    for step in &steps {
        starts.push(at);
        at += step.len() as i64;
    }
    starts.push(at);
    let mut text: Vec<u64> = steps.into_iter().flatten().collect();
    text.push(EXIT);
    for (number, start) in starts.iter().enumerate().take(starts.len() - 1) {
        let instruction = text[*start as usize];
        let code = instruction as u8;
        let to = |random: &mut Random| {
            // Rarely back: a loop mostly ends by its budget.
            let from = if random.below(12) == 0 { 0 } else { number + 1 };
            let choice = from as u64 + random.below((starts.len() - from) as u64);
            starts[choice as usize] - start - 1
        };
        if code == 0x85 {
            let distance = -start - 1;
            text[*start as usize] = op(0x85, 0, 1, 0, distance as i32);
        } else if matches!(code & 7, 5 | 6) && code != EXIT as u8 {
            let off = (to(random) as i16).cast_unsigned();
            text[*start as usize] = instruction & !0xffff_0000 | u64::from(off) << 16;
        }
    }
    text
}

/// In place of two from different runs, [`run`] compares both machines.
#[test]
fn generated_programs_agree_interpreted_and_compiled() {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for seed in test_seeds(PROGRAMS) {
        let mut random = Random::new(seed);
        let text = program(&mut random);
        let mut state = State::default();
        let words = state.flow.iter_mut().chain(&mut state.class);
        for word in words.chain(&mut state.global).chain(&mut state.call) {
            *word = constant(&mut random);
        }
        let packet = Meta {
            arrival: random.draw(),
            bytes: random.draw() as u32,
            dscp: random.draw() as u8,
            ..Meta::default()
        };
        let object = object(&text);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&object, &packet, &mut state)
        }));
        let result = result.unwrap_or_else(|_| panic!("seed {seed}: {text:016x?}"));
        let end = match result {
            Ok(_) => "returned".to_owned(),
            Err(fault) => fault.violation.to_string().chars().take(12).collect(),
        };
        *ends.entry(end).or_default() += 1;
    }
    println!("{ends:?}");
    for end in [
        "returned",
        "it reads",
        "it writes",
        "it loops",
        "its function",
    ] {
        let found = ends.keys().any(|key| key.starts_with(end));
        assert!(found, "no program ended so: {end}");
    }
}
