//! The threads that shape: how busy they and their CPUs are, and which class a CPU keeps below its rate.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use fairpath_history::snapshot::{QueueWorker, Worker};
use fairpath_shape::Side;

use crate::orders::Ran;
use crate::shape::Thread;
use crate::team::WorkerFigures;

/// A CPU that is not idle for this share of an interval bounds what its threads carry.
const BUSY: f64 = 0.97;
/// A class that sends less than this share of its ceiling is below it.
const BELOW: f64 = 0.9;

/// Ticks of each CPU: idle, and all.
type Ticks = BTreeMap<u32, [u64; 2]>;

/// The threads at the last readings.
#[derive(Debug, Default)]
pub struct Threads {
    before: Vec<Ran>,
    ticks: Ticks,
    present: Vec<Worker>,
}

impl Threads {
    /// Takes a reading `interval` after the one before.
    pub fn take(&mut self, threads: &[Thread], interval: Duration) {
        let ticks = read_ticks();
        let mut numbers: BTreeMap<Option<&str>, u32> = BTreeMap::new();
        let workers = threads.iter().enumerate().map(|(at, thread)| {
            let direction = thread.side.map(Side::name);
            let number = numbers.entry(direction).or_default();
            let worker = *number;
            *number += 1;
            let before = self.before.get(at).map_or(thread.ran.ns, |ran| ran.ns);
            let ran = thread.ran.ns.saturating_sub(before) as f64;
            Worker {
                worker,
                direction: direction.map(str::to_owned),
                cpu: thread.ran.cpu,
                busy_ratio: (ran / interval.as_nanos().max(1) as f64).min(1.0),
                cpu_busy_ratio: busy(&self.ticks, &ticks, thread.ran.cpu),
            }
        });
        self.present = workers.collect();
        self.before = threads.iter().map(|thread| thread.ran).collect();
        self.ticks = ticks;
    }

    /// As they are now.
    pub fn workers(&self) -> &[Worker] {
        &self.present
    }

    /// The CPU that keeps a class below its ceiling, and the remedy. `parts`: of each worker.
    pub fn bound(&self, side: Side, ceil: Option<u64>, parts: &[QueueWorker]) -> Option<String> {
        let ceil = ceil.filter(|ceil| *ceil > 0)? as f64;
        let rate: f64 = parts.iter().map(|part| part.rate_bps).sum();
        if rate >= ceil * BELOW {
            return None;
        }
        let most = parts.iter().filter(|part| part.backlog_packets > 0);
        let most = most.max_by(|a, b| a.rate_bps.total_cmp(&b.rate_bps))?;
        let serves = |worker: &&Worker| {
            let sides = worker.direction.as_deref();
            worker.worker == most.worker && sides.is_none_or(|name| name == side.name())
        };
        let worker = self.present.iter().find(serves)?;
        let busy = worker.cpu_busy_ratio.filter(|busy| *busy >= BUSY)?;
        let share = most.rate_bps / rate.max(1.0) * 100.0;
        Some(format!(
            "CPU {} is busy ({:.0} %), and its worker {} carries {share:.0} % of the class: {}",
            worker.cpu,
            busy * 100.0,
            worker.worker,
            match parts.len() {
                1 => "use more queues and workers, or a faster CPU",
                _ => "spread its flows over more queues (ethtool -L, RSS), or use a faster CPU",
            }
        ))
    }
}

/// The part of each worker in a node. `before`: at the reading before, `interval` seconds ago.
pub fn parts(
    now: &[WorkerFigures],
    before: &[WorkerFigures],
    interval: f64,
    node: usize,
    grants: impl Fn(u32) -> Option<[u64; 2]>,
) -> Vec<QueueWorker> {
    let part = |(worker, figures): (u32, &WorkerFigures)| {
        let sent_bytes = figures.sent_bytes.get(node).copied().unwrap_or(0);
        let before = before.get(worker as usize);
        let earlier = before.and_then(|figures| figures.sent_bytes.get(node).copied());
        let more = sent_bytes.saturating_sub(earlier.unwrap_or(sent_bytes));
        let [grants, waits] = grants(worker).unwrap_or_default();
        QueueWorker {
            worker,
            sent_packets: figures.sent.get(node).copied().unwrap_or(0),
            sent_bytes,
            rate_bps: match interval {
                interval if interval > 0.0 => more as f64 * 8.0 / interval,
                _ => 0.0,
            },
            backlog_packets: figures.held.get(node).copied().unwrap_or(0),
            grants,
            waits,
            ceil_bps: figures.ceil_bps.get(node).copied().filter(|bps| *bps > 0),
        }
    };
    (0..).zip(now).map(part).collect()
}

fn read_ticks() -> Ticks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines().filter_map(ticks_of).collect()
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`: guests are among users.
fn ticks_of(line: &str) -> Option<(u32, [u64; 2])> {
    // The first line, without a number, is of all.
    let (cpu, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
    let cpu = cpu.parse().ok()?;
    let words = ticks.split_whitespace();
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).take(8).collect();
    let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or(0);
    Some((cpu, [idle, ticks.iter().sum()]))
}

/// The share of time that a CPU was not idle.
fn busy(before: &Ticks, now: &Ticks, cpu: u32) -> Option<f64> {
    let ([idle, all], [idle_before, all_before]) = (now.get(&cpu)?, before.get(&cpu)?);
    let all = all.checked_sub(*all_before).filter(|all| *all > 0)?;
    Some(1.0 - idle.saturating_sub(*idle_before) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(cpu: u32, ns: u64) -> Thread {
        Thread {
            side: None,
            ran: Ran { cpu, ns },
        }
    }

    #[test]
    fn ticks_are_those_of_one_cpu() {
        let line = "cpu3 10 20 30 40 50 60 70 80 90 100";
        assert_eq!(ticks_of(line), Some((3, [90, 360])));
        assert_eq!(ticks_of("cpu  1 2 3 4 5"), None);
        assert_eq!(ticks_of("intr 5"), None);
    }

    #[test]
    fn busy_cpu_of_most_bytes_is_named() {
        let mut threads = Threads::default();
        threads.take(&[thread(0, 0), thread(1, 0)], Duration::from_secs(1));
        threads.take(
            &[thread(0, 100), thread(1, 900)],
            Duration::from_nanos(1000),
        );
        let busy: Vec<f64> = threads.workers().iter().map(|w| w.busy_ratio).collect();
        assert_eq!(busy, [0.1, 0.9]);
        let parts = |backlog: u64| {
            [10e6, 70e6].map(|rate_bps| QueueWorker {
                worker: u32::from(rate_bps > 50e6),
                rate_bps,
                backlog_packets: backlog,
                ..QueueWorker::default()
            })
        };
        let mut bound = |busy: Option<f64>, ceil: u64, backlog: u64| {
            threads.present[1].cpu_busy_ratio = busy;
            threads.bound(Side::Down, Some(ceil), &parts(backlog))
        };
        let text = bound(Some(0.99), 100_000_000, 5).unwrap();
        assert!(
            text.contains("CPU 1 is busy (99 %)") && text.contains("88 %"),
            "{text}"
        );
        // An idle CPU, a class at its rate, and one without packets are not bound.
        assert_eq!(bound(Some(0.5), 100_000_000, 5), None);
        assert_eq!(bound(None, 100_000_000, 5), None);
        assert_eq!(bound(Some(0.99), 80_000_000, 5), None);
        assert_eq!(bound(Some(0.99), 100_000_000, 0), None);
    }
}
