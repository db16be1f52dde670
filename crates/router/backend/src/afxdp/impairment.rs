//! Impairment through AF_XDP: what goes between two interfaces, both directions in one thread.
//!
//! The monitor's XDP program takes packets and notes when they came; it decides by which interface a
//! packet leaves, as for `fairpath shape` (bridge or router). A direction is an exit: what leaves by
//! the peer is "to-peer". What the XDP program leaves to the stack is not impaired.

use std::os::fd::BorrowedFd;

use anyhow::{Context, bail};
use fairpath_afxdp::{Forwarder, LinkState, QueueId};
use fairpath_bpf::{ForwardOutcome, Options, RttMonitor};
use fairpath_core::Config;
use fairpath_impair::{Counts, Plan};
use fairpath_netlink::Link;
use fairpath_shape::{CHARGES, Side};

use super::ends::{Ends, Rings, about, first_queues, open_port};
use super::paths::Paths;
use super::skipped::Skipped;
use super::watch::Begun;
use super::worker::{Running, Schedule, Worker, lead_packets};
use crate::How;
use crate::impair::{Engine, awake};
use crate::interfaces::Interfaces;
use crate::orders::Command;

/// For the monitor, whose flows are not used.
const FLOWS: u32 = 1024;

/// Reasons for packets between both interfaces to pass through the stack.
const SLIPS: [ForwardOutcome; 7] = [
    ForwardOutcome::NoSocket,
    ForwardOutcome::NoHeadroom,
    ForwardOutcome::NoScratch,
    ForwardOutcome::TooBig,
    ForwardOutcome::Options,
    ForwardOutcome::NoNeighbour,
    ForwardOutcome::Tunnel,
];

/// Counters of the thread.
#[derive(Clone, Default)]
pub struct Reported {
    /// By exit: leaving by the interface, leaving by the peer.
    counts: [Counts; 2],
    /// Frames that the kernel dropped because a receive ring was full, by egress interface.
    ring_lost: [u64; 2],
    removed: Option<String>,
}

/// The port.
pub struct Afxdp {
    running: Running<Reported>,
    monitor: RttMonitor,
    /// The interface, the peer.
    interfaces: Interfaces,
    about: String,
}

impl Afxdp {
    /// Between `interface` and `peer`; `plans` are to the peer, from the peer.
    ///
    /// # Errors
    /// Where interfaces are not fit, or the kernel refuses.
    pub fn start(interface: Link, peer: Link, how: &How, plans: &[&Plan]) -> anyhow::Result<Afxdp> {
        let ends = Ends::look("impair", interface, peer)?;
        if ends.is_one_armed() {
            bail!(
                "impair between {:?} and itself: name another --peer",
                ends.inside.name
            );
        }
        let mode = ends.mode(how.mode)?;
        let begun = Begun::new(Skipped::new(
            format!("impair {:?} and {:?}", ends.inside.name, ends.outside.name),
            [[&ends.inside, &ends.outside]],
            mode,
            "--via nfqueue, which does not bypass it",
        ))?;
        let held = plans.iter().map(|plan| plan.packets + CHARGES).sum();
        let rings = Rings::of(&ends, 0, 1);
        let (port, frames, placement) = open_port(&ends, &rings, held, &[])?;
        let [to_peer, from_peer] = plans else {
            bail!(
                "impair via afxdp: two directions are needed, not {}",
                plans.len()
            );
        };
        // An exit is where packets leave: the peer is the second.
        let paths = [from_peer.path(frames)?, to_peer.path(frames)?];
        let first = first_queues(&ends, &rings);
        let exits = [first.down, first.up];
        let limit = plans.iter().map(|plan| plan.packets).sum();
        let mut order = Paths::new(paths, exits, limit, ends.inside.ifindex.0);
        order.precise = how.precise;
        let mut monitor = load()?;
        lead_packets(&mut monitor, &ends.plan(mode, None)?, &ends, [&port])?;
        let about = about(&ends, mode, &[&port], &placement.to_string());
        let worker = Worker {
            port,
            rings,
            placement,
            schedule: order,
        };
        let mut afxdp = Afxdp {
            running: Running::start("impair afxdp", &ends, vec![worker])?,
            monitor,
            interfaces: Interfaces::watch([&ends.inside, &ends.outside])?,
            about,
        };
        afxdp.running.attach(&mut afxdp.monitor, &ends, begun)?;
        // Attaching can restart a driver. Its drops then are not packets of the run.
        afxdp.interfaces = Interfaces::watch([&ends.inside, &ends.outside])?;
        Ok(afxdp)
    }
}

fn load() -> anyhow::Result<RttMonitor> {
    let mut core = Config::default().with_flows(FLOWS);
    core.seed = getrandom::u64().context("draw the seed of the flow hash")?;
    core.quiet = 1;
    Ok(RttMonitor::load(&Options::live(core).with_forwarding())?)
}

impl Engine for Afxdp {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self) -> anyhow::Result<Vec<Counts>> {
        self.running.check()?;
        let lead = self.running.leads()[0];
        let (reported, _) = lead.count()?;
        if let Some(name) = &reported.removed {
            bail!("the interface {name:?} was removed");
        }
        let [from_peer, to_peer] = reported.counts;
        let mut counts = vec![to_peer, from_peer];
        // What came by the interface was on its way to the peer.
        for (counts, lost) in counts.iter_mut().zip(reported.ring_lost) {
            counts.queue_dropped += lost;
        }
        let mut stack = [0; 2];
        for (at, (counts, outcomes)) in counts.iter_mut().zip(self.monitor.outcomes()).enumerate() {
            counts.slipped = SLIPS.iter().map(|outcome| outcomes.of(*outcome)).sum();
            counts.passed = counts.slipped;
            counts.own.untaken += outcomes.of(ForwardOutcome::Lost);
            let directions_by_it = ForwardOutcome::ALL.iter().map(|(outcome, _)| *outcome);
            let by_it = directions_by_it.filter(|outcome| {
                !matches!(outcome, ForwardOutcome::ToSocket | ForwardOutcome::Lost)
            });
            stack[at] = by_it.map(|outcome| outcomes.of(outcome)).sum();
        }
        // What arrives by the one leaves by the other.
        for (at, dropped) in self.interfaces.since().into_iter().enumerate() {
            match dropped {
                Ok(dropped) => {
                    // Frames that no socket received are among those that passed through the stack.
                    counts[at].queue_dropped += dropped.before.saturating_sub(stack[at]);
                    counts[1 - at].own.behind += dropped.behind;
                }
                Err(error) => counts[at].unread.push(error),
            }
        }
        Ok(counts)
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.running.ended()
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<Vec<Counts>> {
        // Nothing comes any more: the kernel forwards. What waits in the pipe is no more.
        self.running.detach();
        let counts = self.read();
        self.running.end();
        counts
    }
}

impl Schedule for Paths {
    type Counts = Reported;

    fn begin(forwarder: &mut Forwarder<Paths>) {
        let precise = forwarder.order().precise;
        forwarder.stay_awake(awake(precise));
    }

    fn not_pinned(why: &str) {
        fairpath_cli::note(format_args!("{why}"));
    }

    fn counts(forwarder: &Forwarder<Paths>) -> Reported {
        report(forwarder)
    }

    /// A path runs as it began.
    fn obey(_: &mut Forwarder<Paths>, _: Command<Reported>) {}

    /// What waits in the pipe is no more.
    fn end(forwarder: &mut Forwarder<Paths>) -> Result<u64, String> {
        Ok(forwarder.counts().sent)
    }
}

fn report(forwarder: &Forwarder<Paths>) -> Reported {
    let (port, order) = (forwarder.port(), forwarder.order());
    let mut reported = Reported {
        counts: order.reported(),
        ..Reported::default()
    };
    for queue in (0..port.len()).map(QueueId) {
        let side = match queue.0 >= order.second_exit().0 {
            true => Side::Up,
            false => Side::Down,
        };
        let exit = usize::from(side == Side::Up);
        match port.statistics(queue) {
            Ok(ring) => {
                reported.ring_lost[exit] += ring.lost();
                // Packets in a queue's ring leave by the interface of that side.
                reported.counts[exit].own.refused += ring.tx_invalid;
            }
            Err(error) => {
                let name = &port.link(queue).name;
                let what = format!("counters of the AF_XDP socket on {name:?}: {error}");
                // What comes by this side leaves by the other.
                reported.counts[1 - exit].unread.push(what);
            }
        }
        let own = port.counts(queue);
        reported.counts[exit].own.no_link += own.refused + own.lost;
        if port.state(queue) == LinkState::Removed {
            reported.removed = Some(port.link(queue).name.clone());
        }
    }
    reported
}
