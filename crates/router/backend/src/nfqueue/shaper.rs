//! The NFQUEUE port: netfilter hands over what leaves by an interface, and takes it back in another
//! order.
//!
//! Each worker of a side has a thread, three queues and a shaper instance. A hash of both addresses selects the worker,
//! so a connection has one, and keeps its order. Packets stay in the kernel, and this process receives
//! their headers. Slow GSO packets are split ([`super::instance`]). Others are charged as their segments, by the MTU
//! of the interface, because NFQUEUE does not report the segment size. Rates count Ethernet frames without checksum:
//! 14 bytes are added to each segment.
//!
//! A packet to be marked (CE) is sent to a queue that copies whole packets ([`super::waiting`]).

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use anyhow::{Context, bail};
use fairpath_bpf::RttMonitor;
use fairpath_class::Whom;
use fairpath_core::sched::Op;
use fairpath_netlink::Link;
use fairpath_nfqueue::Config;
use fairpath_shape::{Both, Lines, Side, packets_of};

use super::diversion::{Diversion, Divert, Diverted};
use super::instance::{Counts, Instance};
use super::packet::{At, HEADER_BYTES};
use super::waiting::SideQueues;
use super::worker::Running;
use crate::orders::Lead;
use crate::shape::{Backend, Ended, Job, Reading, Thread};
use crate::team::Team;
use crate::workers::{self, Capacity, Count};
use crate::{OnFailure, Via};

/// Packets that wait in the kernel for this process, in addition to the scheduled ones.
const IN_FLIGHT: u32 = 1024;
/// Handles in addition to those of the scheduler: for packets of one reading, before the scheduler
/// reports its drops.
const SPARE_HANDLES: u32 = 256;
/// Queues of a worker, of both sides: where rules send packets, segments, marks.
const QUEUES: u16 = 6;

/// The numbers of queues: first those that rules send packets to, down, then up; then those of segments, of marks.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    first: u16,
    workers: u16,
}

impl Numbers {
    /// Of these workers, from the configured number on.
    fn of(job: &Job<'_>, workers: u32) -> anyhow::Result<Numbers> {
        let (first, workers) = (job.config.queue, u16::try_from(workers).unwrap_or(u16::MAX));
        let last = u32::from(first) + u32::from(QUEUES) * u32::from(workers) - 1;
        if last > u32::from(u16::MAX) {
            bail!(
                "shape via nfqueue with {workers} workers: they need the queues {first} to {last}, and there are {}: lower [shape] queue or workers",
                u16::MAX
            );
        }
        Ok(Numbers { first, workers })
    }

    /// The queue of a worker, by kind: 0 where rules send packets, 1 segments, 2 marks.
    fn queue(self, kind: u16, side: Side, worker: u16) -> u16 {
        let sides = kind * 2 + u16::from(side == Side::Up);
        self.first + sides * self.workers + worker
    }

    fn all(self) -> RangeInclusive<u16> {
        self.first..=self.first + (QUEUES * self.workers - 1)
    }
}

/// The rate that a worker carries with GSO packets.
const CAPACITY: Capacity = Capacity {
    bps: 2_500_000_000,
    both: false,
};

/// The port.
pub struct Nfqueue {
    sides: Both<Option<NfqueueLink>>,
    diversion: Option<Diversion>,
    about: String,
}

struct NfqueueLink {
    // Instances are dropped before their team.
    running: Vec<Running<Counts>>,
    team: Team,
}

impl NfqueueLink {
    fn leads(&self) -> Vec<&Lead<Counts>> {
        self.running.iter().map(Running::lead).collect()
    }

    /// Ends all workers, and returns the number of released packets.
    fn stop(&mut self) -> anyhow::Result<u64> {
        // All, even after a failure.
        let released: Vec<_> = self.running.iter_mut().map(Running::stop).collect();
        released.into_iter().sum()
    }
}

impl Nfqueue {
    /// Binds the queues, starts the threads, and sends packets to them.
    ///
    /// # Errors
    /// A class has criteria that are not visible here, a queue is occupied, or no rule can be added.
    pub fn start(job: &Job<'_>) -> anyhow::Result<Nfqueue> {
        refuse_unseen(job)?;
        let workers = count(job);
        let numbers = Numbers::of(job, workers.workers)?;
        let mut diverts = Vec::new();
        let mut buffers = Vec::new();
        let sides = Both::try_of(|side| {
            let Some(name) = job.interface(side) else {
                return Ok(None);
            };
            // A rule may precede its interface.
            diverts.push(Divert {
                what: Diverted::Leaving(name.to_owned()),
                queue: numbers.queue(0, side, 0),
                queues: numbers.workers,
            });
            let Some(link) = job.links.get(side) else {
                return Ok(None);
            };
            let (line, buffer) = NfqueueLink::start(job, side, link, numbers)?;
            buffers.push(buffer);
            anyhow::Ok(Some(line))
        })?;
        // Packets arrive from here on. A failure before this line has diverted none.
        let diversion = Diversion::begin(&diverts, numbers.all(), job.config.on_failure, None)?;
        let queues: Vec<String> = diverts
            .iter()
            .map(|d| format!("{} by queue {}", d.what, d.numbers(" to ")))
            .collect();
        // One is usual.
        let team = match workers.workers {
            1 => String::new(),
            _ => format!("; {workers} for each direction"),
        };
        let bypass = match job.config.on_failure {
            OnFailure::Pass => "traffic continues without shaping if this process ends",
            OnFailure::Stop => "traffic stops if this process ends",
        };
        let about = format!(
            "{}{team}; rules by {}, {bypass}{}",
            queues.join(", "),
            diversion.by(),
            buffers.concat()
        );
        Ok(Nfqueue {
            sides,
            diversion: Some(diversion),
            about,
        })
    }

    fn line(&mut self, side: Side) -> anyhow::Result<&mut NfqueueLink> {
        let line = self.sides.get_mut(side).as_mut();
        line.with_context(|| format!("{} is not shaped: it has no interface", side.name()))
    }
}

/// Refuses classes that need a link-layer header, which packets towards subscribers do not have yet.
fn refuse_unseen(job: &Job<'_>) -> anyhow::Result<()> {
    for class in job.classes.classes() {
        let unseen = class
            .criteria
            .iter()
            .find_map(|criterion| match criterion.whom() {
                Whom::Link(what) => Some(what),
                Whom::Any | Whom::Inside => None,
            });
        if let Some(what) = unseen {
            bail!(
                "class {:?} has a {what} as criterion, which netfilter does not provide at the queue ({}): \
                 use prefixes, or via = \"qdisc\", \"kernel\" or \"afxdp\"",
                class.name,
                job.config.inside
            );
        }
    }
    Ok(())
}

/// Workers of each side: as configured, or at most one for each CPU, as far as there are queue numbers.
fn count(job: &Job<'_>) -> Count {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let numbers = (u32::from(u16::MAX) + 1 - u32::from(job.config.queue)) / u32::from(QUEUES);
    let most = job.config.workers.unwrap_or(numbers.min(cpus as u32));
    workers::count(job, most, CAPACITY)
}

impl NfqueueLink {
    fn start(
        job: &Job<'_>,
        side: Side,
        link: &Link,
        numbers: Numbers,
    ) -> anyhow::Result<(NfqueueLink, String)> {
        let at = At {
            side,
            inside: job.links.down.as_ref().map_or(0, |link| link.ifindex.0),
            out: link.ifindex.0,
            mtu_bytes: link.mtu_bytes,
        };
        let workers = numbers.workers.into();
        let limit = job.lines.trees.get(side).plan.config.limit_packets;
        let held = job.lines.held_with(side, packets_of(limit, workers));
        let handles = held + SPARE_HANDLES;
        let (team, instances) = Team::begin(job, side, handles, false, workers)?;
        let (mut running, mut notes) = (Vec::new(), String::new());
        for (worker, instance) in (0..).zip(instances) {
            let number = numbers.queue(0, side, worker);
            let queue = Config::new(number)
                .copy_bytes(HEADER_BYTES)
                // Each packet on the wire has its own outcome.
                .gso(!job.lines.is_impaired(side))
                .length(handles + IN_FLIGHT)
                .bind()?;
            let [segments, marks] = [1, 2].map(|kind| numbers.queue(kind, side, worker));
            let sides = SideQueues::bind(segments, marks, handles + IN_FLIGHT)?;
            let buffer = queue.receive_buffer();
            if buffer.bytes < buffer.requested_bytes {
                notes += &format!(
                    "; the receive buffer of queue {number} is {} of {} bytes: raise net.core.rmem_max",
                    buffer.bytes, buffer.requested_bytes
                );
            }
            let name = match workers {
                1 => format!("shape {}", side.name()),
                _ => format!("shape {} {worker}", side.name()),
            };
            let instance = Instance::new(instance, side);
            running.push(Running::start(
                name,
                queue,
                Some(sides),
                instance,
                at,
                handles,
            )?);
        }
        Ok((NfqueueLink { running, team }, notes))
    }
}

impl Backend for Nfqueue {
    fn via(&self) -> Via {
        Via::Nfqueue
    }

    fn about(&self) -> String {
        match self.diversion.as_ref().and_then(Diversion::other_rule) {
            Some(rule) => format!("{}; {rule}", self.about),
            None => self.about.clone(),
        }
    }

    fn read(&mut self, _: &RttMonitor) -> anyhow::Result<Reading> {
        if let Some(diversion) = &mut self.diversion
            && diversion.repair()?
        {
            tracing::warn!(
                "shape via nfqueue: another program removed or changed the rules of the packet queues; they are in place again"
            );
        }
        let mut reading = Reading::default();
        for side in Side::BOTH {
            let Some(line) = self.sides.get(side) else {
                continue;
            };
            let mut counts = Counts::default();
            for lead in line.leads() {
                let (more, ran) = lead.count()?;
                counts.add(&more);
                let side = Some(side);
                reading.threads.push(Thread { side, ran });
            }
            let (figures, workers) = line.team.read();
            *reading.figures.get_mut(side) = Some(figures);
            *reading.workers.get_mut(side) = workers;
            reading.stopped = reading.stopped.or(line.team.stopped());
            name_counts(side, &counts, &mut reading.counters);
        }
        Ok(reading)
    }

    fn grants(&self, side: Side, node: u32, worker: u32) -> Option<[u64; 2]> {
        let line = self.sides.get(side).as_ref()?;
        line.team.grants(node, worker)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        let NfqueueLink { running, team } = self.line(side)?;
        let leads: Vec<_> = running.iter().map(Running::lead).collect();
        team.apply(&leads, op)
    }

    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()> {
        refuse_unseen(job)?;
        for side in Side::BOTH {
            let (tree, before) = (job.lines.trees.get(side), before.trees.get(side));
            if let Some(NfqueueLink { running, team }) = self.sides.get_mut(side) {
                let leads: Vec<_> = running.iter().map(Running::lead).collect();
                team.replace(&leads, tree, before, job.rules)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, side: Side) -> anyhow::Result<()> {
        // The rule waits for an interface of the same name.
        match self.sides.get_mut(side).take() {
            Some(mut line) => line.stop().map(drop),
            None => Ok(()),
        }
    }

    fn join(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        let numbers = Numbers::of(job, count(job).workers)?;
        let (line, _) = NfqueueLink::start(job, side, job.link(side)?, numbers)?;
        *self.sides.get_mut(side) = Some(line);
        Ok(())
    }

    fn resize(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        // GSO packets are charged by the MTU.
        self.leave(side)?;
        self.join(job, side)
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        let mut ended = Ended::default();
        // The rules go first: what comes after them is the stack's.
        if let Some(diversion) = self.diversion.take() {
            ended.note(diversion.end().context("remove the rules"));
        }
        let mut release = 0;
        for side in Side::BOTH {
            let Some(line) = self.sides.get_mut(side) else {
                continue;
            };
            match line.stop() {
                Ok(count) => release += count,
                failed => ended.note(failed.map(drop)),
            }
        }
        ended.reported(format!("{release} queued packets were released"))
    }
}

impl Drop for Nfqueue {
    fn drop(&mut self) {
        // Not stopped: what waits is lost, but nothing else may be.
        if let Some(diversion) = self.diversion.take()
            && let Err(error) = diversion.end()
        {
            tracing::warn!("remove the rules of the packet queues: {error:#}");
        }
    }
}

fn name_counts(side: Side, counts: &Counts, into: &mut BTreeMap<String, u64>) {
    let side = side.name();
    let mut put = |name: &str, n: u64| {
        into.insert(format!("nfqueue_{side}_{name}"), n);
    };
    put("received", counts.own.received);
    put("accepted", counts.own.accepted);
    put("dropped", counts.own.dropped);
    put("split", counts.own.split);
    put("marked", counts.own.marked);
    put("verdicts_refused", counts.own.refused);
    put("verdicts_failed", counts.failed);
    put("no_handle", counts.no_handle);
    put("stale", counts.stale);
    put("held", counts.own.held);
    if let Some(kernel) = counts.own.kernel {
        put("queue_dropped", kernel.queue_dropped);
        put("user_dropped", kernel.user_dropped);
        put("kernel_waiting", kernel.waiting);
    }
}
