//! A link at the end of a scheduler: it requests a packet when the last one has left, in virtual
//! time. Also traffic for it, from a fixed seed.

#![allow(dead_code)] // every test binary uses another part of it

use std::collections::HashMap;

use fairpath_core::sched::{Drop, Meta, NEVER, Op, Outcome, OutcomeKind, SchedRuntime};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// splitmix64 (Steele, Lea, Flood 2014).
pub struct Dice(pub u64);

impl Dice {
    /// 0 to `most` - 1.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// A packet that left, when the link began to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub at: u64,
    pub source: usize,
    pub bytes: u32,
    pub sojourn: u64,
    pub marked: bool,
}

/// Operations between two audits, which walk all of the memory.
const AUDIT_EVERY: u32 = 500;

/// Runs operations one by one and audits now and then: for long runs.
pub struct Audited<H: SchedRuntime> {
    pub runtime: H,
    left: u32,
}

impl<H: SchedRuntime> Audited<H> {
    pub fn new(runtime: H) -> Audited<H> {
        Audited { runtime, left: 0 }
    }

    pub fn run(&mut self, op: Op) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        self.runtime.run(&[op], &mut outcomes).unwrap();
        if self.left == 0 {
            self.runtime.audit().unwrap();
            self.left = AUDIT_EVERY;
        }
        self.left -= 1;
        outcomes
    }
}

/// Sources that have packets waiting whenever they are on, and a link of a rate. Every handle given
/// comes back once, or the test fails.
pub struct Link<H: SchedRuntime> {
    pub runtime: Audited<H>,
    pub now: u64,
    rate_bps: u64,
    templates: Vec<Meta>,
    waiting: Vec<u32>,
    owners: HashMap<u32, (usize, u32)>,
    free: Vec<u32>,
    pub dropped: Vec<(usize, Drop)>,
}

impl<H: SchedRuntime> Link<H> {
    /// `packets` handles; one source for each template.
    pub fn new(runtime: H, packets: u32, rate_bps: u64, templates: Vec<Meta>) -> Link<H> {
        Link {
            runtime: Audited::new(runtime),
            now: 0,
            rate_bps,
            waiting: vec![0; templates.len()],
            templates,
            owners: HashMap::new(),
            free: (1..=packets).rev().collect(),
            dropped: vec![],
        }
    }

    /// The transmission time of this number of bytes, in ns.
    pub fn busy(&self, bytes: u32) -> u64 {
        u64::from(bytes) * 8 * SECOND / self.rate_bps
    }

    /// Gives the source's next packet to the scheduler.
    pub fn offer(&mut self, source: usize) {
        let handle = self.free.pop().expect("the test has handles enough");
        let mut meta = self.templates[source];
        meta.arrival = self.now;
        self.owners.insert(handle, (source, meta.bytes));
        self.waiting[source] += 1;
        self.run(Op::enqueue(self.now, handle, meta));
    }

    /// Until `until`, keeps `depth` packets of each source waiting while `on` says so; what left.
    pub fn saturate(
        &mut self,
        until: u64,
        depth: u32,
        on: impl Fn(usize, u64) -> bool,
    ) -> Vec<Sent> {
        let mut sent = vec![];
        while self.now < until {
            for source in 0..self.templates.len() {
                while self.waiting[source] < depth && on(source, self.now) {
                    self.offer(source);
                }
            }
            let (one, again) = self.run(Op::dequeue(self.now, 1));
            match one {
                Some(one) => {
                    self.now += self.busy(one.bytes);
                    sent.push(one);
                }
                // Nothing may leave: when something may, or a source may have been turned on.
                None => self.now = again.min(self.now + MS).max(self.now + 1),
            }
        }
        sent
    }

    /// `count` packets leave, and their sources send the next ones: for many sources.
    pub fn saturate_by_turns(&mut self, count: usize, depth: u32) -> Vec<Sent> {
        for source in 0..self.templates.len() {
            (0..depth).for_each(|_| self.offer(source));
        }
        let mut sent = Vec::with_capacity(count);
        while sent.len() < count {
            let (one, _) = self.run(Op::dequeue(self.now, 1));
            let one = one.expect("no packet is throttled");
            self.now += self.busy(one.bytes);
            self.offer(one.source);
            sent.push(one);
        }
        sent
    }

    fn run(&mut self, op: Op) -> (Option<Sent>, u64) {
        let mut sent = None;
        let mut again = NEVER;
        for outcome in self.runtime.run(op) {
            match outcome.kind {
                OutcomeKind::Nothing => again = outcome.at,
                OutcomeKind::Sent | OutcomeKind::Dropped => {
                    let owner = self.owners.remove(&outcome.handle);
                    let (source, bytes) = owner.expect("the packet waits");
                    self.waiting[source] -= 1;
                    self.free.push(outcome.handle);
                    if let Some(drop) = outcome.drop() {
                        self.dropped.push((source, drop));
                        continue;
                    }
                    let (at, sojourn, marked) = (self.now, outcome.at, outcome.marked());
                    sent = Some(Sent {
                        at,
                        source,
                        bytes,
                        sojourn,
                        marked,
                    });
                }
                _ => {}
            }
        }
        (sent, again)
    }
}

/// Bytes that left of each source.
pub fn bytes_by_source(sent: &[Sent], sources: usize) -> Vec<u64> {
    let mut bytes = vec![0; sources];
    for one in sent {
        bytes[one.source] += u64::from(one.bytes);
    }
    bytes
}

/// Panics where `what` is more than 1 % off.
pub fn within_a_percent(what: u64, expected: u64, name: &str) {
    let off = what.abs_diff(expected) as f64 / expected as f64;
    assert!(
        off <= 0.01,
        "{name}: {what} instead of {expected}, {:.2} % off",
        100.0 * off
    );
}
