//! The AF_XDP back end: the XDP program of the monitor redirects packets, and this process schedules and
//! sends them.
//!
//! One thread serves the shaper instances of both sides, with frames of one UMEM as handles. Packets that
//! the XDP program passes to the stack (own traffic, multicast, neighbour discovery) are charged to a share
//! of the rate where the stack sends them ([`fairpath_shape::Debt`]). In bridge mode both interfaces are ports of one kernel bridge. In
//! router mode the routes of the kernel decide. In both modes the kernel forwards after this process ends.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::bail;
use fairpath_bpf::{ForwardOutcome, ForwardPlan, RttMonitor};
use fairpath_core::sched::Op;
use fairpath_shape::{Both, CHARGES, Lines, Side};

use super::ends::{Ends, Vlans, about, open_port};
use super::instances::{Counts, ShapeInstances};
use super::skipped::Skipped;
use super::watch::Begun;
use super::worker::{Running, lead_packets};
use crate::orders::{self, Command, Gauge};
use crate::shape::{Backend, Job, Reading};
use crate::{Mode, Via};

/// The port.
pub struct Afxdp {
    running: Running<Counts>,
    gauges: Both<Gauge>,
    handles: u32,
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
        let held = Side::BOTH.map(|side| job.lines.held(side) + CHARGES);
        let (port, frames, placement) = open_port(&ends, held.iter().sum())?;
        let (down_gauge, down) = orders::begin(job, Side::Down, frames, true)?;
        let (up_gauge, up) = orders::begin(job, Side::Up, frames, true)?;
        // Instances are dropped before gauges.
        let gauges = Both {
            down: down_gauge,
            up: up_gauge,
        };
        let instances = Both { down, up };
        let plan = ends.plan(mode, job.config.vlans)?;
        lead_packets(monitor, &plan, &ends, &port)?;
        let about = about(&ends, mode, port.is_zero_copy(), &placement);
        let sent = monitor.stack_sent()?;
        let instances = ShapeInstances::new(instances, sent, job, &ends, ends.is_one_armed());
        let mut afxdp = Afxdp {
            running: Running::start("shape afxdp", port, &ends, placement, instances)?,
            gauges,
            handles: frames,
            about,
            mode,
            vlans: job.config.vlans,
            plan,
            ends,
        };
        afxdp.running.attach(monitor, &afxdp.ends, begun)?;
        afxdp.running.lead().report(Command::Begin)?;
        Ok(afxdp)
    }
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
        let counts = self.running.lead().count()?;
        if let Some(name) = &counts.removed {
            bail!("the interface {name:?} was removed");
        }
        self.follow_plan(monitor)?;
        let mut reading = Reading::default();
        reading.figures.down = Some(self.gauges.down.read());
        reading.figures.up = Some(self.gauges.up.read());
        let stopped = self.gauges.down.stopped();
        reading.stopped = stopped.or_else(|| self.gauges.up.stopped());
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

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        self.running.lead().apply(side, op)
    }

    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()> {
        for side in Side::BOTH {
            let trees = [job.lines.trees.get(side), before.trees.get(side)];
            let gauge = self.gauges.get_mut(side);
            orders::replace(
                self.running.lead(),
                gauge,
                side,
                trees,
                job.rules,
                self.handles,
                true,
            )?;
        }
        self.running
            .lead()
            .report(Command::Classes(job.slots.to_vec()))
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
        let sent = self.running.lead().stop();
        self.running.join();
        Ok(format!("{} packets were forwarded", sent?))
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
