//! Use of a limit by many virtual CPUs, next to the rules of the field, in virtual time.
//!
//! Each CPU offers packets at a part of the rate, and each rule decides when one may leave. So the figures are the same
//! on any machine. The rules: equal parts of the rate; the rule of `cake_mq` (every 200 us, a queue has the rate divided
//! by the queues that were active); and one bucket that all share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::Context;
use fairpath_core::limit::{LimitConfig, LimitCpu, LimitRate, Limits};
use fairpath_sim::plan::Demand;
use fairpath_statistics::Random;
use serde::Serialize;

use crate::measure::Target;
use crate::table::build;

/// Bytes of a packet.
const BYTES: u32 = 1514;
/// Before a run, so that buckets are full as after a pause, and a part of it that is not counted.
const START_NS: u64 = 1_000_000_000;
/// A rule may send this much after a pause.
const DEPTH_NS: f64 = 100_000.0;
/// The time between two looks of a queue at the others (`cake_mq`).
const CAKE_SYNC_NS: f64 = 200_000.0;
/// A queue holds packets for this time.
const QUEUE_NS: f64 = 10_000_000.0;
/// Of a run: what pools have at its begin and at its end is 100 us of the rate, so it takes much longer than that.
const RUN_NS: f64 = 40_000_000.0;
/// The same in packets at the whole rate, for low rates. 10 % more before is not counted.
const PACKETS: f64 = 20_000.0;

const DEMANDS: [(Demand, &str); 4] = [
    (Demand::All, "all"),
    (Demand::One, "one, others 0.1 %"),
    (Demand::Quarter, "a quarter, others 0.2 %"),
    (Demand::Zipf, "power law, 1.3 times"),
];
/// CPUs and bits a second.
const CASES: [(u32, u64); 6] = [
    (8, 25_000_000_000),
    (64, 100_000_000_000),
    (128, 400_000_000_000),
    (64, 1_000_000_000),
    (64, 5_000_000),
    (512, 5_000_000),
];
/// The target of use, and of shared operations a packet at [`SHARED_CPUS`].
const USED: f64 = 0.995;
const USED_LOW: f64 = 0.99;
const SHARED: f64 = 0.15;
const SHARED_CPUS: u32 = 64;
/// A rate of few Mbit/s.
const LOW_BITS: u64 = 10_000_000;

/// The findings of one demand.
#[derive(Debug, Serialize)]
pub(super) struct CompareRow {
    cpus: u32,
    rate_bps: u64,
    demand: &'static str,
    rules: Vec<RuleFindings>,
}

#[derive(Debug, Serialize)]
struct RuleFindings {
    rule: &'static str,
    /// Of what could be sent at the rate.
    used_ratio: f64,
    /// Operations on memory of other CPUs.
    shared_per_packet: f64,
}

/// When packets of CPUs may leave.
trait Rule {
    /// A packet leaves now, or may try again at a time in nanoseconds. `waits`: by CPU, whether packets wait there.
    fn send(&mut self, cpu: usize, now: f64, waits: &dyn Fn(usize) -> bool) -> Result<(), f64>;

    /// Operations on memory of other CPUs so far.
    fn shared(&self) -> u64;
}

struct Pools {
    limits: Limits,
    cpus: Vec<LimitCpu>,
}

impl Pools {
    fn new(cpus: u32, bits: u64) -> anyhow::Result<Pools> {
        let rate = LimitRate::new(bits);
        let limits = Limits::new(cpus, &[LimitConfig { rate, parent: None }])?;
        let all: Option<Vec<LimitCpu>> = (0..cpus).map(|cpu| limits.cpu(cpu)).collect();
        let cpus = all.context("the CPU of a limit is in use")?;
        Ok(Pools { limits, cpus })
    }
}

impl Rule for Pools {
    fn send(&mut self, cpu: usize, now: f64, _: &dyn Fn(usize) -> bool) -> Result<(), f64> {
        let sent = self.cpus[cpu].take(0, BYTES, now as u64);
        sent.map_err(|later| later as f64)
    }

    fn shared(&self) -> u64 {
        let all = 0..self.cpus.len() as u32;
        all.map(|cpu| u64::from(self.limits.pool(0, cpu).grants))
            .sum()
    }
}

/// A word for each CPU that has a fixed part of the rate, or one for all.
struct Words {
    words: Vec<f64>,
    packet_ns: f64,
    shared: u64,
}

impl Rule for Words {
    fn send(&mut self, cpu: usize, now: f64, _: &dyn Fn(usize) -> bool) -> Result<(), f64> {
        let is_shared = self.words.len() == 1;
        self.shared += u64::from(is_shared);
        let word = &mut self.words[if is_shared { 0 } else { cpu }];
        let ends = word.max(now) + self.packet_ns;
        if ends > now + DEPTH_NS.max(self.packet_ns) {
            return Err(ends - DEPTH_NS.max(self.packet_ns));
        }
        *word = ends;
        Ok(())
    }

    fn shared(&self) -> u64 {
        self.shared
    }
}

/// A queue as `cake_mq` shapes it: no packet before the one before it has left at the present rate.
#[derive(Clone, Default)]
struct CakeQueue {
    next: f64,
    looked: f64,
    sent: f64,
    active: u32,
}

struct Cake {
    queues: Vec<CakeQueue>,
    packet_ns: f64,
    shared: u64,
}

impl Rule for Cake {
    fn send(&mut self, cpu: usize, now: f64, waits: &dyn Fn(usize) -> bool) -> Result<(), f64> {
        let looked = self.queues[cpu].looked;
        if now - looked >= CAKE_SYNC_NS {
            let others = self.queues.iter().enumerate();
            let is_active = |(other, queue): &(usize, &CakeQueue)| {
                *other != cpu && (queue.sent > looked || waits(*other))
            };
            let active = 1 + others.filter(is_active).count() as u32;
            self.shared += self.queues.len() as u64 - 1;
            let queue = &mut self.queues[cpu];
            (queue.active, queue.looked) = (active, now);
        }
        let queue = &mut self.queues[cpu];
        if queue.next > now {
            return Err(queue.next);
        }
        queue.next = queue.next.max(now) + self.packet_ns * f64::from(queue.active.max(1));
        queue.sent = now;
        Ok(())
    }

    fn shared(&self) -> u64 {
        self.shared
    }
}

/// A time in the order of times.
#[derive(PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Runs a rule. O(packets · log CPUs).
fn run(rule: &mut dyn Rule, bits: u64, shares: &[f64]) -> (f64, f64) {
    let packet_ns = f64::from(BYTES) * 8e9 / bits as f64;
    let start = START_NS as f64;
    let length = RUN_NS.max(PACKETS * packet_ns);
    let counted = start + length / 10.0;
    let end = counted + length;
    let mut random = Random::new(shares.len() as u64);
    // A queue holds at least two packets of its CPU, whatever the rate is.
    let queue_ns = QUEUE_NS.max(2.0 * packet_ns * shares.len() as f64);
    let mut arrivals: Vec<f64> = shares
        .iter()
        .map(|share| start + packet_ns / share * random.unit())
        .collect();
    let mut turns: BinaryHeap<_> = (arrivals.iter().enumerate())
        .filter(|(_, at)| at.is_finite())
        .map(|(cpu, at)| Reverse((Time(*at), cpu)))
        .collect();
    let (mut sent, mut all) = (0.0, 0.0);
    while let Some(Reverse((Time(now), cpu))) = turns.pop() {
        if now >= end {
            break;
        }
        let waits = |other: usize| arrivals[other] <= now;
        let next = match rule.send(cpu, now, &waits) {
            Err(later) => later.max(now + 1.0),
            Ok(()) => {
                all += 1.0;
                sent += f64::from(u8::from(now >= counted));
                let arrival = &mut arrivals[cpu];
                *arrival = (*arrival + packet_ns / shares[cpu]).max(now - queue_ns);
                arrival.max(now)
            }
        };
        turns.push(Reverse((Time(next), cpu)));
    }
    let wanted = shares.iter().sum::<f64>().min(1.0) * length / packet_ns;
    (sent / wanted, rule.shared() as f64 / f64::max(all, 1.0))
}

/// Compares the rules for all demands.
pub(super) fn compare() -> anyhow::Result<Vec<CompareRow>> {
    let mut rows = Vec::new();
    for (cpus, bits) in CASES {
        for (demand, name) in DEMANDS {
            let packet_ns = f64::from(BYTES) * 8e9 / bits as f64;
            let words = |count: u32, packet_ns| Words {
                words: vec![0.0; count as usize],
                packet_ns,
                shared: 0,
            };
            let mut pools = Pools::new(cpus, bits)?;
            let mut equal = words(cpus, packet_ns * f64::from(cpus));
            let mut bucket = words(1, packet_ns);
            let mut cake = Cake {
                queues: vec![CakeQueue::default(); cpus as usize],
                packet_ns,
                shared: 0,
            };
            let rules: [(&str, &mut dyn Rule); 4] = [
                ("pools", &mut pools),
                ("equal parts", &mut equal),
                ("cake_mq's rule", &mut cake),
                ("one bucket", &mut bucket),
            ];
            let shares = demand.shares(cpus);
            let found = rules.map(|(rule, by)| {
                let (used_ratio, shared_per_packet) = run(by, bits, &shares);
                RuleFindings {
                    rule,
                    used_ratio,
                    shared_per_packet,
                }
            });
            rows.push(CompareRow {
                cpus,
                rate_bps: bits,
                demand: name,
                rules: found.into(),
            });
        }
    }
    Ok(rows)
}

/// The targets of the pools.
pub(super) fn targets(rows: &[CompareRow]) -> Vec<Target> {
    let lowest = |is: &dyn Fn(&&CompareRow) -> bool| {
        let used = rows.iter().filter(is).map(|row| row.rules[0].used_ratio);
        used.fold(f64::INFINITY, f64::min) * 100.0
    };
    let shared = rows.iter().filter(|row| row.cpus == SHARED_CPUS);
    let shared = shared
        .filter(|row| row.rate_bps > 10_000_000_000)
        .map(|row| row.rules[0].shared_per_packet)
        .fold(0.0, f64::max);
    vec![
        Target::at_least(
            "use of a limit at many CPUs, least of all demands".to_owned(),
            lowest(&|row| row.rate_bps > LOW_BITS),
            USED * 100.0,
            "%",
        ),
        Target::at_least(
            "use of a limit of 5 Mbit/s at many CPUs".to_owned(),
            lowest(&|row| row.rate_bps <= LOW_BITS),
            USED_LOW * 100.0,
            "%",
        ),
        Target::at_most(
            "shared operations a packet at 64 CPUs".to_owned(),
            shared,
            SHARED,
            "",
        ),
    ]
}

/// For people.
pub(super) fn text(rows: &[CompareRow]) -> String {
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let rate = match row.rate_bps {
                bits if bits >= 1_000_000_000 => format!("{} Gbit/s", bits / 1_000_000_000),
                bits => format!("{} Mbit/s", bits / 1_000_000),
            };
            let mut cells = vec![row.cpus.to_string(), rate, row.demand.to_owned()];
            let each = row.rules.iter();
            cells.extend(each.map(|found| {
                let used = found.used_ratio * 100.0;
                format!("{used:.1} %, {:.2}", found.shared_per_packet)
            }));
            cells
        })
        .collect();
    "Use of a limit by virtual CPUs, and shared operations a packet:\n".to_owned()
        + &build(
            &[
                "CPUs",
                "limit",
                "demand",
                "pools",
                "equal parts",
                "cake_mq's rule",
                "one bucket",
            ],
            &table,
        )
}
