//! A FIFO behind an impairment, packets at equal intervals, and the outcome of each.

use fairpath_core::sched::{
    Changes, ImpairStats, Meta, NEVER, Op, Outcome, OutcomeKind, SchedRuntime, Scheduler, policies,
};
use fairpath_sched::impair::Spec;
use fairpath_sched::tree::{Known, Tree};

pub const MS: u64 = 1_000_000;

/// The outcome of a packet and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketResult {
    pub arrived: u64,
    /// The time of departure, or `None` for a dropped packet.
    pub left: Option<u64>,
    pub outcome: Outcome,
}

impl PacketResult {
    pub fn lost(&self) -> bool {
        self.left.is_none()
    }

    pub fn delay(&self) -> Option<u64> {
        self.left.map(|left| left - self.arrived)
    }
}

pub struct Bed {
    pub scheduler: Scheduler,
    /// The results in order of arrival.
    pub results: Vec<PacketResult>,
    /// The packet of each handle, and free handles.
    packet_of: Vec<usize>,
    free: Vec<u32>,
    now: u64,
    /// The next time at which a packet can leave.
    next: u64,
    outcomes: Vec<Outcome>,
}

pub fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

pub fn fifo() -> Tree {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let fifo = policies()
        .iter()
        .find(|policy| policy.name == "fifo")
        .unwrap();
    Tree::of_policy(fifo, known).unwrap()
}

impl Bed {
    pub fn new(text: &str) -> Bed {
        Bed::of(&spec(text), 0)
    }

    pub fn of(spec: &Spec, direction: u64) -> Bed {
        let mut tree = fifo();
        tree.impair(spec, direction);
        Bed::of_tree(&tree)
    }

    pub fn of_tree(tree: &Tree) -> Bed {
        let packets = tree.plan.config.packets;
        Bed {
            scheduler: Scheduler::new(&tree.plan).unwrap(),
            results: Vec::new(),
            packet_of: vec![usize::MAX; packets as usize + 1],
            free: (1..=packets).rev().collect(),
            now: 0,
            next: NEVER,
            outcomes: Vec::new(),
        }
    }

    pub fn stats(&self) -> ImpairStats {
        self.scheduler.impair_stats(1)
    }

    fn run(&mut self, op: Op) {
        self.outcomes.clear();
        self.scheduler.run(&[op], &mut self.outcomes).unwrap();
        for outcome in std::mem::take(&mut self.outcomes) {
            let left = match outcome.kind {
                OutcomeKind::Sent => Some(self.now),
                OutcomeKind::Dropped => None,
                OutcomeKind::Nothing => {
                    self.next = outcome.at;
                    continue;
                }
                _ => continue,
            };
            let result = &mut self.results[self.packet_of[outcome.handle as usize]];
            (result.left, result.outcome) = (left, outcome);
            self.free.push(outcome.handle);
        }
    }

    /// Replaces the tree at `at` by another one with the same numbers of nodes and handles.
    pub fn replace(&mut self, tree: &Tree, at: u64) {
        self.drain(at);
        self.now = at;
        let mut next = Scheduler::new(&tree.plan).unwrap();
        let changes = Changes::none(tree.plan.nodes.len());
        let mut outcomes = Vec::new();
        next.adopt(&mut self.scheduler, &changes, at, &mut outcomes)
            .unwrap();
        assert_eq!(outcomes, [], "no packet is dropped");
        self.scheduler = next;
        self.next = at;
    }

    /// Dequeues packets at their times until `end`.
    fn drain(&mut self, end: u64) {
        while self.next <= end {
            self.now = self.now.max(self.next);
            self.next = NEVER;
            self.run(Op::dequeue(self.now, u32::MAX));
        }
    }

    /// Enqueues a packet at `at`. The link sends every packet as soon as it can leave.
    pub fn send(&mut self, at: u64, meta: Meta) {
        self.drain(at);
        self.now = at;
        let handle = self.free.pop().expect("as many handles as packets wait");
        self.packet_of[handle as usize] = self.results.len();
        self.results.push(PacketResult {
            arrived: at,
            left: None,
            outcome: Outcome::default(),
        });
        self.run(Op::enqueue(at, handle, meta));
        self.next = at;
        self.drain(at);
    }

    /// Sends `count` packets of 1,000 bytes, one per `every_ns`, and drains the queue.
    pub fn stream(mut self, count: u64, every_ns: u64) -> Bed {
        let meta = Meta {
            bytes: 1000,
            ..Meta::default()
        };
        for packet in 0..count {
            self.send(packet * every_ns, meta);
        }
        self.finish();
        self
    }

    pub fn finish(&mut self) {
        self.drain(NEVER - 1);
        self.scheduler.audit().unwrap();
        assert_eq!(
            self.free.len() + 1,
            self.packet_of.len(),
            "all handles are free again"
        );
    }

    /// The delays of sent packets, ns.
    pub fn delays(&self) -> Vec<u64> {
        self.results
            .iter()
            .filter_map(PacketResult::delay)
            .collect()
    }

    /// The lengths of bursts of losses.
    pub fn bursts(&self) -> Vec<u64> {
        runs(self.results.iter().map(PacketResult::lost))
    }

    /// Packets that left after a later packet.
    pub fn reordered(&self) -> usize {
        let mut earliest = NEVER;
        let left = self.results.iter().rev().filter_map(|result| result.left);
        left.filter(|left| {
            let is_reordered = *left > earliest;
            earliest = earliest.min(*left);
            is_reordered
        })
        .count()
    }
}

/// Lengths of runs of `true`.
pub fn runs(bits: impl Iterator<Item = bool>) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut run = 0;
    for bit in bits.chain([false]) {
        if bit {
            run += 1;
        } else if run > 0 {
            runs.push(run);
            run = 0;
        }
    }
    runs
}

pub fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len() as f64
}

pub fn sigma(values: &[u64]) -> f64 {
    let mean = mean(values);
    let squares = values.iter().map(|value| (*value as f64 - mean).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

/// The distance of a count from a share of `n`, in standard errors.
pub fn errors(count: u64, n: u64, share: f64) -> f64 {
    let n = n as f64;
    ((count as f64 / n) - share).abs() / (share * (1.0 - share) / n).sqrt()
}
