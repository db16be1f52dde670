//! Random impairments: every part of one, alone and with others.

use fairpath_core::sched::{
    Framing, ImpairConfig, LossConfig, LossModel, NodeConfig, Over, TABLE_PARTS, chance,
};

use super::log::Random;

/// The tables of all impairments of a plan: tables of normal numbers and of deviations, delays, and
/// opportunities. "at" as in a configuration.
struct Words {
    words: Vec<u64>,
    normal_at: u32,
    jitter_at: u32,
    delays_at: u32,
    chances_at: u32,
}

/// Pairs of a delay trace, and opportunities of a rate trace.
const PAIRS: u32 = 9;
const CHANCES: u32 = 11;

impl Words {
    fn write(random: &mut Random) -> Words {
        let mut words = Vec::new();
        let normal_at = 1;
        for table in 0..2u64 {
            let steps = TABLE_PARTS as u64 + 1;
            words.extend((0..steps).map(|entry| ((table * 3) << 24) + entry * (3 << 14)));
        }
        let jitter_at = words.len() as u32 + 1;
        // Any line through nothing: what it says is not the core's concern.
        let slope = random.pick(&[1, 700, 100_000]);
        let middle = TABLE_PARTS as i64 / 2;
        let deviation = |entry: i64| ((entry - middle) * slope) as u64;
        words.extend((0..=TABLE_PARTS as i64).map(deviation));
        let delays_at = words.len() as u32 + 1;
        for pair in 0..u64::from(PAIRS) {
            words.extend([pair * 40_000, random.below(300_000)]);
        }
        let chances_at = words.len() as u32 + 1;
        let mut times: Vec<u64> = (0..CHANCES).map(|_| random.below(200_000)).collect();
        times.sort_unstable();
        words.extend(times);
        Words {
            words,
            normal_at,
            jitter_at,
            delays_at,
            chances_at,
        }
    }
}

fn loss(random: &mut Random) -> LossConfig {
    let models = [
        LossModel::None,
        LossModel::Each,
        LossModel::Two,
        LossModel::Four,
        LossModel::Pattern,
    ];
    let some = |random: &mut Random| chance(random.pick(&[0.0, 0.01, 0.1, 0.3, 0.5, 1.0]));
    LossConfig {
        seed: random.draw(),
        model: random.pick(&models) as u32,
        bits: random.pick(&[0, 1, 7, 64, 100, 1024, 1025]),
        chances: std::array::from_fn(|_| some(random)),
        pattern: std::array::from_fn(|_| random.draw() & random.draw() & random.draw()),
    }
}

fn framing(random: &mut Random) -> Framing {
    let cells = random.pick(&[
        (0, 0, 0),
        (0, 0, 0),
        (48, 53, 0),
        (100, 100, 0),
        (48, 1, 0),
        (64, 65, 1),
    ]);
    Framing {
        overhead: random.pick(&[0, 0, 4, 38, -14, -78]),
        mpu: random.pick(&[0, 0, 64, 2000]),
        cell_payload: cells.0,
        cell_bytes: cells.1,
        cell_partial: cells.2,
        ..Framing::default()
    }
}

fn impairment(random: &mut Random, tables: &Words) -> ImpairConfig {
    let half = |random: &mut Random| random.below(2) == 0;
    let rare = |random: &mut Random| chance(random.pick(&[0.0, 0.0, 0.1, 0.5, 1.0]));
    let mut config = ImpairConfig {
        loss: loss(random),
        delay: random.pick(&[0, 0, 1, 900, 70_000, 30_000_000]),
        copy: rare(random),
        corrupt: rare(random),
        ahead: rare(random),
        gap: random.pick(&[0, 1, 2, 5]),
        free_order: random.below(2) as u32,
        delays_period: random.pick(&[0, 333_333, 360_000]),
        framing: framing(random),
        ..ImpairConfig::default()
    };
    if half(random) {
        (config.normal_at, config.jitter_at) = (tables.normal_at, tables.jitter_at);
        let (rho, fresh) = random.pick(&[(0, 1 << 24), (8_388_608, 14_529_495), (-9_000_000, 1)]);
        (config.rho, config.fresh) = (rho, fresh);
    }
    if half(random) {
        (config.delays_at, config.delays) = (tables.delays_at, PAIRS);
    }
    if random.below(3) == 0 {
        config.slot_min = random.pick(&[0, 100, 50_000]);
        config.slot_spread = random.pick(&[0, 1, 70_000]);
        config.slot_packets = random.pick(&[0, 1, 3]);
        config.slot_bytes = random.pick(&[0, 0, 100, 4000]);
    }
    if random.below(4) == 0 {
        config.release = random.pick(&[1, 1000, 333_333]);
    }
    if random.below(3) > 0 {
        (config.chances_at, config.chances) = (tables.chances_at, CHANCES);
        config.chances_period = random.pick(&[200_000, 250_000, 0]);
    }
    config
}

/// Impairments before some of the leaves of every other tree.
pub fn before(random: &mut Random, nodes: &mut [NodeConfig]) -> (Vec<ImpairConfig>, Vec<u64>) {
    if random.below(2) == 0 {
        return (vec![], vec![]);
    }
    let tables = Words::write(random);
    let count = 1 + random.below(3);
    let impairments: Vec<_> = (0..count).map(|_| impairment(random, &tables)).collect();
    for node in nodes {
        if matches!(node.over, Over::Packets | Over::Flows) && random.below(4) > 0 {
            node.impair = 1 + random.below(count) as u32;
        }
    }
    (impairments, tables.words)
}
