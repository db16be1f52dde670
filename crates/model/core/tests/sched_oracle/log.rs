//! Logs of random operations. Nothing in a log depends on outcomes, so any part of it is a log too,
//! and a failing one can be shrunk.

use fairpath_core::sched::{IMPAIR_WORDS, Meta, Op, OpKind, Setting, encode_rate};
pub use fairpath_statistics::Random;

use super::trees::{self, Tree};

const HOUR: u64 = 3_600_000_000_000;

/// The generator of a log: time continues, and sometimes jumps.
#[derive(Clone, Debug)]
pub struct Writer {
    now: u64,
    /// Maximum increase of time by an operation.
    pace: u64,
    /// Packets that come in a hundred operations: queues fill, drain, and idle.
    comes: u64,
    flows: u64,
    handle: u32,
}

impl Writer {
    pub fn new(random: &mut Random) -> Writer {
        let starts = [
            0,
            1_000_000,
            (1 << 32) - 5000,
            1 << 63,
            u64::MAX - (1 << 49),
        ];
        Writer {
            now: random.pick(&starts),
            pace: random.pick(&[3, 300, 100_000, 5_000_000]),
            comes: 50,
            flows: random.pick(&[2, 8, 24]),
            handle: 0,
        }
    }

    pub fn write(&mut self, random: &mut Random, tree: &Tree, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.one(random, tree)).collect()
    }

    fn advance(&mut self, random: &mut Random) {
        let step = match random.below(1000) {
            // Idle for days.
            0 => random.below(100 * HOUR),
            1..5 => random.below(1_000_000_000),
            5..20 => {
                self.comes = random.pick(&[10, 40, 50, 60, 90]);
                0
            }
            20..400 => 0,
            _ => random.below(self.pace),
        };
        self.now = self.now.saturating_add(step);
    }

    fn flow(&self, random: &mut Random) -> u32 {
        (random.below(self.flows) as u32).wrapping_mul(0x9e37_79b1)
    }

    fn meta(&self, random: &mut Random, tree: &Tree) -> Meta {
        let any = 1 + random.below(1514) as u32;
        let bytes = match tree.huge {
            true => random.draw() as u32 >> random.pick(&[7, 8, 14]),
            false => random.pick(&[60, 1514, any, any, 9000]),
        };
        let segments = random.pick(&[0, 0, 0, 1, 2, 5]);
        let mut meta = Meta {
            segments,
            arrival: self.now,
            hint: random.draw() >> random.pick(&[0, 1, 30, 44, 58, 62]),
            bytes,
            flow_hash: self.flow(random),
            class_id: random.below(tree.plan.class_table.len() as u64 + 1) as u32,
            mark: random.below(80) as u32,
            dscp: random.below(64) as u8,
            ecn: random.below(4) as u8,
            ..Meta::default()
        };
        if random.below(3) > 0 {
            meta.ack_flags = Meta::PURE_ACK | random.pick(&[0x10, 0x10, 0x10, 0x50]);
            meta.ack = random
                .pick(&[0u32, u32::MAX])
                .wrapping_add(random.below(5) as u32);
            for block in meta.sack.iter_mut().take(random.below(3) as usize) {
                let left = meta.ack.wrapping_add(1 + random.below(4) as u32);
                let right = left.wrapping_add(1 + random.below(4) as u32);
                *block = u64::from(left) << 32 | u64::from(right);
            }
        }
        meta.source[15] = random.below(4) as u8;
        meta.destination[15] = random.below(4) as u8;
        meta
    }

    fn one(&mut self, random: &mut Random, tree: &Tree) -> Op {
        self.advance(random);
        // Time that goes back is taken as standing still.
        let back = if random.below(200) == 0 {
            random.below(1 << 20)
        } else {
            0
        };
        let (now, packets) = (self.now.saturating_sub(back), tree.plan.config.packets);
        let anyone = random.below(u64::from(packets) + 2) as u32;
        if random.below(100) >= 94 {
            return self.rare(random, tree, now, anyone);
        }
        if random.below(100) < self.comes {
            self.handle = self.handle % packets + 1;
            let handle = if random.below(20) == 0 {
                anyone
            } else {
                self.handle
            };
            return Op::enqueue(now, handle, self.meta(random, tree));
        }
        let count = random.pick(&[0, 1, 1, 1, 2, 3, 70]);
        let value = if random.below(10) == 0 {
            1 + random.below(4000)
        } else {
            0
        };
        Op {
            value,
            ..Op::dequeue(now, count)
        }
    }

    fn rare(&self, random: &mut Random, tree: &Tree, now: u64, anyone: u32) -> Op {
        let nodes = tree.plan.nodes.len() as u64;
        let node = random.below(nodes + 2) as u32;
        match random.below(6) {
            5 => impairment(random, tree, now),
            0 | 1 => Op::remove(now, anyone),
            4 => Op {
                count: random.below(5) as u32,
                ..Op::node(now, node, Setting::Cost, setting(random))
            },
            2 => {
                let costs = [0, 1, 16384, random.below(60_000) as u32, u32::MAX];
                Op::weight(now, node, self.flow(random), random.pick(&costs))
            }
            _ => {
                let index = random.below(9) as usize;
                let policy = &tree.policies[(node.clamp(1, nodes as u32) - 1) as usize];
                Op::param(now, node, index as u32, trees::param(random, policy, index))
            }
        }
    }
}

/// A word of an impairment becomes that of another, so that what belongs together is mixed.
fn impairment(random: &mut Random, tree: &Tree, now: u64) -> Op {
    let all = &tree.plan.impairments;
    let to = random.below(all.len() as u64 + 2) as u32;
    let word = random.below(IMPAIR_WORDS as u64 + 1) as usize;
    let from = all.get(random.below(all.len() as u64) as usize);
    let value = from.and_then(|from| from.to_words().get(word).copied());
    Op::impair(now, to, word as u32, value.unwrap_or(0))
}

/// A cost, a rate or a burst: often none, sometimes more than a cost can be.
fn setting(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 + random.below(60_000),
        _ => encode_rate(100_000 + random.below(1_000_000_000)),
    }
}

/// An operation as people read it.
pub fn describe(op: &Op) -> String {
    let (now, meta) = (op.now, op.meta);
    match op.kind {
        OpKind::Enqueue => format!(
            "at {now} packet {} comes: {} bytes, flow {:#x}, class {}, dscp {}, ecn {}, mark {}, hint {}, {} -> {}",
            op.handle,
            meta.bytes,
            meta.flow_hash,
            meta.class_id,
            meta.dscp,
            meta.ecn,
            meta.mark,
            meta.hint,
            meta.source[15],
            meta.destination[15]
        ),
        OpKind::Dequeue if op.value == 0 => format!("at {now} {} may leave", op.count),
        OpKind::Dequeue => format!("at {now} {} or {} bytes may leave", op.count, op.value),
        OpKind::Param => {
            format!(
                "at {now} parameter {} of node {} is {}",
                op.count, op.node, op.value
            )
        }
        OpKind::Weight => {
            format!(
                "at {now} flow {:#x} at node {} costs {}",
                op.handle, op.node, op.value
            )
        }
        OpKind::Remove => format!("at {now} packet {} is taken out", op.handle),
        OpKind::Impair => format!(
            "at {now} word {} of impairment {} is {}",
            op.count, op.node, op.value
        ),
        OpKind::Node => {
            let what = ["cost", "floor", "ceiling", "burst"];
            let what = what.get(op.count as usize).copied().unwrap_or("nothing");
            format!("at {now} {what} of node {} is {}", op.node, op.value)
        }
    }
}
