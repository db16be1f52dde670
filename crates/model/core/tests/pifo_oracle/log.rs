//! Logs of random operations, and pools they go to. Nothing in a log depends on answers, so any
//! part of it is a log too, and a failing one can be shrunk.

use fairpath_core::pifo::{Kind, Op, Outside, PifoConfig, PoolCounts, WhenFull, Window};
pub use fairpath_statistics::Random;

use super::Oracle;

/// A pool, and where its ranks begin.
#[derive(Clone, Debug)]
pub struct Plan {
    pub items: u32,
    pub pifos: Vec<PifoConfig>,
    /// Ranks begin here: 0, before 2^32, before 2^64, or anywhere.
    pub origin: u64,
    /// The number of ranks from anywhere in 10,000 operations: a window that follows one far ahead
    /// leaves all others below.
    pub wild: u64,
    /// Maximum increase of time by an operation, in ranks.
    pub pace: u64,
}

const OUTSIDES: [Outside; 3] = [Outside::Clamp, Outside::Drop, Outside::Error];

fn window(random: &mut Random, sizes: &[u32], origin: u64) -> Window {
    Window {
        buckets: random.pick(sizes),
        shift: random.pick(&[0, 0, 0, 1, 4, 63]),
        base: random.pick(&[0, origin]),
        below: random.pick(&OUTSIDES),
        beyond: random.pick(&OUTSIDES),
    }
}

/// A pool with every kind in it.
pub fn plan(random: &mut Random) -> Plan {
    let items = random.pick(&[3, 40, 300, 300]);
    let near_wrap = |at: u128| (at - 2_000) as u64;
    let anywhere = random.draw();
    let origin = random.pick(&[0, near_wrap(1 << 32), near_wrap(1 << 64), anywhere]);
    let mut pifos = vec![
        PifoConfig::new(Kind::Heap, items),
        PifoConfig::new(Kind::Heap, items),
        PifoConfig::new(Kind::Pieo { wheel: 1, ready: 2 }, items),
    ];
    let mut add = |random: &mut Random, kind| {
        let capacity = random.pick(&[1, 2, items / 3, items, items]).max(1);
        let mut config = PifoConfig::new(kind, capacity);
        if random.below(2) == 0 && !matches!(kind, Kind::SpPifo { .. } | Kind::Aifo { .. }) {
            config.full = WhenFull::PushOut;
        }
        pifos.push(config);
    };
    add(random, Kind::Heap);
    let bands = random.pick(&[1, 4, 64]);
    let beyond = random.pick(&OUTSIDES);
    add(random, Kind::Bands { bands, beyond });
    for _ in 0..3 {
        let sizes = [1, 2, 3, 63, 64, 65, 100, 4096, 4097, 5000];
        let window = window(random, &sizes, origin);
        add(random, Kind::Cffs(window));
    }
    let big = window(random, &[262_144, 262_145, 1 << 20, 777_777], origin);
    if random.below(16) == 0 {
        add(random, Kind::Cffs(big));
    }
    let gradient = window(random, &[1, 5, 100, 523], origin);
    add(random, Kind::Gradient(gradient));
    let lists = random.pick(&[1, 2, 8, 64]);
    let each = random.pick(&[1, 10, items]);
    add(random, Kind::SpPifo { lists, each });
    let (window, headroom) = (random.pick(&[1, 5, 64]), random.pick(&[0, 25, 255]));
    add(random, Kind::Aifo { window, headroom });
    Plan {
        items,
        pifos,
        origin,
        wild: random.pick(&[0, 0, 0, 1, 100]),
        pace: random.pick(&[1, 9, 60]),
    }
}

/// The generator of a log: virtual time continues, and sometimes jumps.
pub struct Writer {
    plan: Plan,
    now: u64,
    /// Pushes in a thousand operations: queues fill, drain, and idle.
    pushes: u64,
}

impl Writer {
    pub fn new(plan: &Plan) -> Writer {
        Writer {
            plan: plan.clone(),
            now: plan.origin,
            pushes: 500,
        }
    }

    /// A rank near now, or far from it.
    fn rank(&self, random: &mut Random) -> u64 {
        let far = random.pick(&[4, 70, 130, 5_000, 300_000]);
        let ahead = random.below(far);
        if random.below(10_000) < self.plan.wild {
            let far = self.now.saturating_add(random.below(1 << 40));
            let (last, anywhere) = (u64::MAX - random.below(3), random.draw());
            return random.pick(&[0, 2, far, last, anywhere]);
        }
        match random.below(20) {
            0 => self.now.saturating_sub(random.below(200)),
            1 => random.below(70),
            _ => self.now.saturating_add(ahead),
        }
    }

    fn advance(&mut self, random: &mut Random) {
        match random.below(3_000) {
            // Idle for days, in nanoseconds.
            0 => self.now = self.now.saturating_add(random.below(1 << 50)),
            // Another beginning.
            1 if self.plan.wild > 0 => self.now = self.plan.origin,
            2..=40 => self.pushes = random.pick(&[200, 450, 600, 800, 950]),
            _ => self.now = self.now.saturating_add(random.below(self.plan.pace)),
        }
    }

    pub fn write(&mut self, random: &mut Random, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.one(random)).collect()
    }

    fn one(&mut self, random: &mut Random) -> Op {
        self.advance(random);
        let pifos = self.plan.pifos.len() as u64;
        // From 3: the halves of the PIEO are its own. Sometimes one that is not there.
        let q = match random.below(200) {
            0 => random.pick(&[0, pifos as u32 + 1, u32::MAX]),
            _ => (3 + random.below(pifos - 2)) as u32,
        };
        let item = match random.below(200) {
            0 => random.pick(&[0, self.plan.items + 1, u32::MAX]),
            _ => (1 + random.below(self.plan.items.into())) as u32,
        };
        let what = random.below(1_000);
        if what >= 900 {
            return match what % 8 {
                0 => Op::peek(q),
                1 => Op::last(q),
                2 => Op::remove(item),
                3 => Op::pieo_next(q),
                _ => Op::move_to(item, self.rank(random)),
            };
        }
        let push = what * 1_000 < self.pushes * 900;
        match (push, q == 3) {
            (true, true) => Op::pieo_push(q, item, self.rank(random), self.rank(random)),
            (true, false) => Op::push(q, item, self.rank(random)),
            (false, true) => Op::pieo_pop(q, self.now),
            (false, false) => Op::pop(q),
        }
    }
}

/// The first operation that differs, with those before it that speak of the same PIFO or item.
pub fn assert_same(what: &str, plan: &Plan, expected: &[Op], got: &[Op]) {
    let Some(at) = expected.iter().zip(got).position(|(a, b)| a != b) else {
        assert_eq!(expected.len(), got.len(), "{what}");
        return;
    };
    let (q, item) = (expected[at].q, expected[at].item);
    let near = |op: &&Op| op.q == q || (item != 0 && op.item == item);
    let mut before: Vec<&Op> = expected[..at].iter().rev().filter(near).take(8).collect();
    before.reverse();
    panic!(
        "{what}: operation {at} differs\n  oracle {:?}\n  here   {:?}\n  before {before:#?}\n  pool {plan:?}",
        expected[at], got[at]
    );
}

/// Checks the counters of PIFOs against the oracle. The oracle does not split a PIEO in two.
pub fn assert_counts(
    what: &str,
    plan: &Plan,
    oracle: &Oracle,
    mut of: impl FnMut(u32) -> fairpath_core::pifo::PifoCounts,
) {
    for q in 4..=plan.pifos.len() as u32 {
        let mut got = of(q);
        got.searched = 0;
        let expected = oracle.counts(q);
        assert_eq!(
            expected,
            got,
            "{what}: PIFO {q}, {:?}",
            plan.pifos[q as usize - 1]
        );
    }
}

/// No contradiction was met.
pub fn assert_whole(what: &str, counts: PoolCounts) {
    assert_eq!(counts.broken, 0, "{what}");
}
