//! The cost of a packet and of an operation on a shared word, measured on this machine.
//!
//! A packet costs the parser, the classifier and the scheduler, with the tree of the plan and shared rates. Its
//! rates are raised, so that packets leave at once. Drivers and sockets are absent.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_class::ClassSet;
use fairpath_core::limit::{LimitConfig, LimitCpu, LimitRate, Limits};
use fairpath_core::sched::encode_rate;
use fairpath_core::{Frame, Link};
use fairpath_sched::tree::Tree;
use fairpath_shape::{Leaving, Lines, ShapeInstance, SharedRates, Side};
use fairpath_sim::plan::{BATCH, Cost};
use fairpath_units::quantity::written;

use super::args::PlanArgs;

/// Cost of a shared operation on a machine with one CPU, where it cannot be measured.
const ASSUMED_SHARED_NS: u64 = 200;
/// Two threads contend less than many CPUs, so no lower cost is used.
const LOWEST_SHARED_NS: u64 = 50;
/// Parts of a measurement. Their median is used, since other processes disturb some.
const PARTS: u32 = 20;
/// The rate of each ceiling while packets are measured.
const RAISED_BPS: u64 = 1_000_000_000_000;
/// Virtual time between two batches: longer than a batch takes at that rate.
const BATCH_NS: u64 = 10_000;
/// Requests to the shared word between two readings of the clock.
const REQUESTS: u32 = 1000;
/// The virtual time of these requests.
const NOW_NS: u64 = 1_000_000_000;
/// Bytes of a measured packet.
const PACKET_BYTES: u32 = 1514;
/// Of the header of an IPv4 packet without options, and of UDP.
const HEAD_BYTES: usize = 28;

/// The costs of a plan, and where they are from.
///
/// # Errors
/// The instance cannot be built.
pub fn cost(args: &PlanArgs, classes: &ClassSet, lines: &Lines) -> anyhow::Result<(Cost, String)> {
    let each = Duration::from_nanos(args.measure / 2);
    let time = written(args.measure / 2, "ns");
    let (local_ns, local_origin) = match args.cost_local {
        Some(given) => (given, "given".to_owned()),
        None => (
            local_ns(classes, lines, each).context("measure the cost of a packet")?,
            format!("measured in {time}"),
        ),
    };
    let (shared_ns, shared_origin) = match args.cost_shared {
        Some(given) => (given, "given".to_owned()),
        None => shared(each, &time).context("measure the cost of a shared word")?,
    };
    let origin = format!(
        "{local_ns} ns a packet ({local_origin}), {shared_ns} ns a shared operation ({shared_origin})"
    );
    let cost = Cost {
        local_ns,
        shared_ns,
    };
    Ok((cost, origin))
}

/// The median of the parts.
fn median(mut parts: Vec<f64>) -> u64 {
    parts.sort_by(f64::total_cmp);
    let middle = parts.get(parts.len() / 2).copied().unwrap_or_default();
    (middle.round() as u64).max(1)
}

fn local_ns(classes: &ClassSet, lines: &Lines, time: Duration) -> anyhow::Result<u64> {
    let mut driven = Driven::new(classes, lines)?;
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let (began, mut packets) = (Instant::now(), 0);
        while began.elapsed() < time / PARTS {
            packets += driven.batch()?;
        }
        parts.push(began.elapsed().as_nanos() as f64 / f64::from(packets.max(1)));
    }
    Ok(median(parts))
}

/// An instance of a worker, with packets of all classes in turn.
struct Driven {
    instance: ShapeInstance,
    classes: u32,
    next_class: u32,
    now: u64,
    leaving: Vec<Leaving>,
}

impl Driven {
    fn new(classes: &ClassSet, lines: &Lines) -> anyhow::Result<Driven> {
        let mut tree: Tree = lines.trees.down.clone();
        for node in tree.plan.nodes.iter_mut().filter(|node| node.ceil != 0) {
            node.ceil = encode_rate(RAISED_BPS);
        }
        let shared = SharedRates::new(&tree, 2, false)?;
        let rules = classes.numbered_rules(|_| None, &[]);
        let (end, part) = (Side::Down.end(), shared.part(0));
        let handles = 4 * BATCH;
        let instance = ShapeInstance::sharing(&tree, end, &rules, handles, false, part)?;
        Ok(Driven {
            instance,
            classes: tree.plan.class_table.len() as u32,
            next_class: 0,
            now: NOW_NS,
            leaving: Vec::new(),
        })
    }

    /// Passes a batch of packets through. Returns their number.
    fn batch(&mut self) -> anyhow::Result<u32> {
        self.now += BATCH_NS;
        for handle in 1..=BATCH {
            self.next_class = (self.next_class + 1) % self.classes.max(1);
            let head = head(handle as u8);
            let frame = Frame {
                now: self.now,
                wire_len: PACKET_BYTES,
                link: Link::Raw as u16,
                ..Frame::default()
            };
            let mut meta = self.instance.look(&frame, &head, PACKET_BYTES);
            meta.class_id = self.next_class;
            self.instance.arrive_as(handle, self.now, meta);
        }
        self.leaving.clear();
        while self.leaving.len() < BATCH as usize {
            self.instance.turn(self.now, BATCH, &mut self.leaving)?;
            self.now += BATCH_NS;
        }
        Ok(BATCH)
    }
}

/// The headers of a UDP packet over IPv4, from documentation addresses.
fn head(flow: u8) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    (head[0], head[9], head[21]) = (0x45, 17, flow);
    head[2..4].copy_from_slice(&(PACKET_BYTES as u16 - 14).to_be_bytes());
    head[12..20].copy_from_slice(&[198, 51, 100, 1, 192, 0, 2, 1]);
    head
}

/// The cost of a request that goes to the shared word, while another thread makes such requests, too.
fn shared(time: Duration, shown: &str) -> anyhow::Result<(u64, String)> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Ok((
            ASSUMED_SHARED_NS,
            "assumed, as this machine has one CPU".to_owned(),
        ));
    }
    // A grant is what a request needs, and the clock does not advance: each request moves the word, and none waits.
    let rate = LimitRate {
        burst: 1_000_000_000_000,
        pools: 0,
        ..LimitRate::new(1_000_000_000)
    };
    let limits = Limits::new(2, &[LimitConfig { rate, parent: None }])?;
    let cpus = [limits.cpu(0), limits.cpu(1)].into_iter().flatten();
    let measured = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .map(|cpu| scope.spawn(move || requests(cpu, time)))
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default());
        ended.max().unwrap_or_default()
    });
    Ok(match measured < LOWEST_SHARED_NS {
        true => (
            LOWEST_SHARED_NS,
            format!("the lowest cost; {measured} ns were measured with 2 threads in {shown}"),
        ),
        false => (measured, format!("measured with 2 threads in {shown}")),
    })
}

fn requests(mut cpu: LimitCpu, time: Duration) -> u64 {
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let (began, mut count) = (Instant::now(), 0u32);
        while began.elapsed() < time / PARTS {
            for _ in 0..REQUESTS {
                // Refused requests would be a longer clock away than this measurement takes.
                let _ = cpu.take(0, 1, NOW_NS);
            }
            count += REQUESTS;
        }
        parts.push(began.elapsed().as_nanos() as f64 / f64::from(count));
    }
    median(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_disturbed_parts() {
        assert_eq!(median(vec![9000.0, 310.2, 309.9, 311.0, 8000.0]), 311);
        assert_eq!(median(Vec::new()), 1);
    }
}
