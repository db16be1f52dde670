//! The AF_XDP back end: the XDP program of the monitor redirects packets, and this process schedules and
//! sends them.
//!
//! Each worker is a thread that serves the shaper instances of both sides, with frames of one UMEM as handles. It has
//! its own receive queues of both interfaces, and shares its rates with the others. Packets that
//! the XDP program passes to the stack (own traffic, multicast, neighbour discovery) are charged to a share
//! of the rate where the stack sends them ([`fairpath_shape::Debt`]). In bridge mode both interfaces are ports of one kernel bridge. In
//! router mode the routes of the kernel decide. In both modes the kernel forwards after this process ends.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::bail;
use fairpath_afxdp::{Placement, Port};
use fairpath_bpf::{ForwardOutcome, ForwardPlan, RttMonitor};
use fairpath_core::sched::Op;
use fairpath_shape::{Both, CHARGES, Lines, Side, packets_of};

use super::ends::{Ends, Rings, Vlans, about, open_port};
use super::instances::{Counts, ShapeInstances};
use super::skipped::Skipped;
use super::watch::Begun;
use super::worker::{Running, Worker, lead_packets};
use crate::orders::Command;
use crate::shape::{Backend, Job, Reading, Thread};
use crate::team::Team;
use crate::workers::{self, Capacity};
use crate::{Mode, Via};

/// The rate that a worker carries with packets of 1,500 bytes, copied.
const CAPACITY: Capacity = Capacity {
    bps: 2_000_000_000,
    both: true,
};

/// The port.
pub struct Afxdp {
    // Instances are dropped before their teams.
    running: Running<Counts>,
    teams: Both<Team>,
    about: String,
    ends: Ends,
    mode: Mode,
    vlans: Vlans,
    plan: ForwardPlan,
}

impl Afxdp {
    /// Opens the sockets, starts the thread, and attaches the XDP program.
    ///
    /// # Errors
    /// Where interfaces are not there or not fit, or the kernel refuses.
    pub fn start(job: &Job<'_>, monitor: &mut RttMonitor) -> anyhow::Result<Afxdp> {
        is_ready(monitor)?;
        let Both {
            down: Some(inside),
            up: Some(outside),
        } = job.links.clone()
        else {
            bail!("shape via afxdp: both sides are needed: set [shape] outside");
        };
        let ends = Ends::look("shape", inside, outside)?;
        let mode = ends.mode(job.config.mode)?;
        let begun = Begun::new(Skipped::new(
            format!("shape {:?} and {:?}", job.config.inside, ends.outside.name),
            ends.passed(mode, job.config.vlans)?,
            mode,
            "via = \"nfqueue\", \"qdisc\" or \"kernel\", which do not bypass it",
        ))?;
        let count = workers::count(job, ends.most_workers(), CAPACITY);
        let (ports, frames) = open_ports(job, &ends, count.workers)?;
        let (down_team, down) = Team::begin(job, Side::Down, frames, true, count.workers)?;
        let (up_team, up) = Team::begin(job, Side::Up, frames, true, count.workers)?;
        let plan = ends.plan(mode, job.config.vlans)?;
        let sockets = ports.iter().map(|opened| &opened.port);
        lead_packets(monitor, &plan, &ends, sockets)?;
        let opened: Vec<&Port> = ports.iter().map(|opened| &opened.port).collect();
        let placements: Vec<String> = ports
            .iter()
            .map(|opened| opened.placement.to_string())
            .collect();
        let about = about(
            &ends,
            mode,
            &opened,
            &format!("{count}: {}", placements.join("; ")),
        );
        let mut workers = Vec::new();
        for (number, (opened, (down, up))) in
            ports.into_iter().zip(down.into_iter().zip(up)).enumerate()
        {
            // One worker charges what the stack sends, to the rates of all.
            let sent = match number {
                0 => Some(monitor.stack_sent()?),
                _ => None,
            };
            let limit = Side::BOTH.map(|side| held_by(job, side, count.workers));
            let both = Both { down, up };
            workers.push(Worker {
                schedule: ShapeInstances::new(both, sent, job, (&ends, &opened.rings), limit),
                port: opened.port,
                rings: opened.rings,
                placement: opened.placement,
            });
        }
        let mut afxdp = Afxdp {
            running: Running::start("shape afxdp", &ends, workers)?,
            teams: Both {
                down: down_team,
                up: up_team,
            },
            about,
            mode,
            vlans: job.config.vlans,
            plan,
            ends,
        };
        afxdp.running.attach(monitor, &afxdp.ends, begun)?;
        for lead in afxdp.running.leads() {
            lead.report(Command::Begin)?;
        }
        Ok(afxdp)
    }
}

/// Packets that a worker holds for a side, at most.
fn held_by(job: &Job<'_>, side: Side, workers: u32) -> u32 {
    let limit = job.lines.trees.get(side).plan.config.limit_packets;
    job.lines.held_with(side, packets_of(limit, workers))
}

/// The queues of a worker, and where it runs.
struct Opened {
    rings: Rings,
    port: Port,
    placement: Placement,
}

/// The ports of workers, and the frames of each.
fn open_ports(job: &Job<'_>, ends: &Ends, workers: u32) -> anyhow::Result<(Vec<Opened>, u32)> {
    let held: u32 = Side::BOTH
        .map(|side| held_by(job, side, workers) + CHARGES)
        .iter()
        .sum();
    let (mut ports, mut taken, mut most) = (Vec::new(), Vec::new(), 0);
    for worker in 0..workers {
        let rings = Rings::of(ends, worker, workers);
        let (port, frames, placement) = open_port(ends, &rings, held, &taken)?;
        taken.extend(placement.cpu);
        most = most.max(frames);
        ports.push(Opened {
            rings,
            port,
            placement,
        });
    }
    Ok((ports, most))
}

impl Afxdp {
    /// Applies what changed of the plan since the start, such as `rp_filter`.
    fn follow_plan(&mut self, monitor: &RttMonitor) -> anyhow::Result<()> {
        // A renamed interface keeps the plan that it had.
        let Ok(plan) = self.ends.plan(self.mode, self.vlans) else {
            return Ok(());
        };
        if plan != self.plan {
            monitor.set_forwarding(&plan)?;
            tracing::info!("shape via afxdp: addresses or rp_filter of an interface changed");
            self.plan = plan;
        }
        Ok(())
    }
}

/// Whether the monitor has the program that forwards, which it is loaded with or without.
///
/// # Errors
/// What to do.
pub fn is_ready(monitor: &RttMonitor) -> anyhow::Result<()> {
    if !monitor.forwards() {
        bail!(
            "shape via afxdp: the monitor was loaded without the forwarding program: restart with via = \"afxdp\" and [monitor] hook = \"tcx\""
        );
    }
    Ok(())
}

impl Backend for Afxdp {
    fn via(&self) -> Via {
        Via::Afxdp
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self, monitor: &RttMonitor) -> anyhow::Result<Reading> {
        self.running.check()?;
        let mut counts = Counts::default();
        let mut threads = Vec::new();
        for lead in self.running.leads() {
            let (more, ran) = lead.count()?;
            counts.add(&more);
            threads.push(Thread { side: None, ran });
        }
        if let Some(name) = &counts.removed {
            bail!("the interface {name:?} was removed");
        }
        self.follow_plan(monitor)?;
        let mut reading = Reading {
            threads,
            ..Reading::default()
        };
        for side in Side::BOTH {
            let (figures, workers) = self.teams.get(side).read();
            *reading.figures.get_mut(side) = Some(figures);
            *reading.workers.get_mut(side) = workers;
        }
        let stopped = self.teams.down.stopped();
        reading.stopped = stopped.or_else(|| self.teams.up.stopped());
        reading.stack = counts.stack.map(Some);
        let outcomes = monitor.outcomes();
        name_counts(&counts, &mut reading.counters);
        for (exit, side) in ["inside", "outside"].iter().enumerate() {
            for (outcome, name) in ForwardOutcome::ALL {
                let frames = outcomes[exit].of(outcome);
                if frames > 0 {
                    let key = format!(
                        "afxdp_from_{side}_{}",
                        name.replace([' ', '-'], "_").to_lowercase()
                    );
                    reading.counters.insert(key, frames);
                }
            }
        }
        Ok(reading)
    }

    fn grants(&self, side: Side, node: u32, worker: u32) -> Option<[u64; 2]> {
        self.teams.get(side).grants(node, worker)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        self.teams.get_mut(side).apply(&self.running.leads(), op)
    }

    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()> {
        let leads = self.running.leads();
        for side in Side::BOTH {
            let (tree, before) = (job.lines.trees.get(side), before.trees.get(side));
            let team = self.teams.get_mut(side);
            team.replace(&leads, tree, before, job.rules)?;
        }
        for lead in leads {
            lead.report(Command::Classes(job.slots.to_vec()))?;
        }
        Ok(())
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.running.ended()
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        if self.running.check().is_err() {
            self.running.end();
            return Ok("queued packets were dropped".to_owned());
        }
        // Nothing comes any more: the kernel forwards.
        self.running.detach();
        let sent: Vec<_> = (self.running.leads().iter())
            .map(|lead| lead.stop())
            .collect();
        self.running.join();
        let sent: u64 = sent.into_iter().sum::<anyhow::Result<u64>>()?;
        Ok(format!("{sent} packets were forwarded"))
    }
}

fn name_counts(counts: &Counts, into: &mut BTreeMap<String, u64>) {
    let all = &counts.forwarder;
    let mut put = |name: String, n: u64| {
        into.insert(format!("afxdp_{name}"), n);
    };
    put("received".into(), all.received);
    put("sent".into(), all.sent);
    put("dropped".into(), all.dropped);
    put("stale".into(), all.stale);
    put("ring_full".into(), all.no_capacity);
    put("no_link".into(), all.no_link);
    put("held".into(), all.held());
    put("checksums_completed".into(), all.completed);
    for side in Side::BOTH {
        let (ring, name) = (counts.rings.get(side), side.name());
        put(format!("{name}_rx_dropped"), ring.rx_dropped);
        put(format!("{name}_rx_ring_full"), ring.rx_ring_full);
        put(format!("{name}_refused"), *counts.refused.get(side));
        put(format!("{name}_stack_bytes"), counts.stack.get(side).sent);
    }
}
