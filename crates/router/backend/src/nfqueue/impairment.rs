//! Impairment through NFQUEUE: netfilter hands over packets, and takes them back later, or not.
//!
//! A direction is a queue, a rule and a thread. The queue is bound without GSO, so the kernel segments GSO
//! packets, and each packet on the wire has its outcome. Neighbour discovery passes. The rules let
//! packets pass if no process reads the queue, and are removed when this process ends (`watch.rs`).

use anyhow::{Context, bail};
use fairpath_impair::{Counts, Plan, Ready};
use fairpath_netlink::Link;
use fairpath_nfqueue::{COPY_LIMIT_BYTES, Config, ReceiveBuffer};
use fairpath_shape::Side;

use super::beyond::Beyond;
use super::diversion::{Diversion, Divert, Diverted, Exempt};
use super::packet::{At, HEADER_BYTES};
use super::path::Impaired;
use super::watch::Watch;
use super::worker::Running;
use crate::OnFailure;
use crate::impair::Engine;
use crate::raw::RawSockets;
use crate::start::How;

/// Of second packets, which keeps them from the queue: "fp" and a number that other programs are unlikely
/// to use. Only packets that leave can be duplicated, not packets for this host.
const MARK: u32 = 0x6670_0001;
/// Packets that wait in the kernel for this process, in addition to the scheduled ones.
const IN_FLIGHT: u32 = 4096;

/// One direction's packets, by where netfilter meets them.
pub struct ImpairedDirection {
    /// Which they are.
    pub what: Diverted,
    /// The MTU of the interface that they leave by.
    pub mtu_bytes: u32,
}

/// The port.
pub struct Nfqueue {
    lines: Vec<Running<Counts>>,
    diversion: Option<Diversion>,
    #[expect(dead_code, reason = "takes the rules away if this process is killed")]
    watch: Watch,
    about: String,
    /// The check that all released packets are forwarded.
    beyond: Option<Beyond>,
}

/// Starts the back end with a queue for each direction.
///
/// # Errors
/// As [`Nfqueue::start`].
pub fn start_directions(
    how: &How,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    let directions: Vec<_> = directions
        .iter()
        .map(|ready| {
            let direction = direction(ready.direction.name, &interface, peer.as_ref());
            (direction, &ready.plan)
        })
        .collect();
    Ok(Box::new(Nfqueue::start(how, &directions)?))
}

/// Where netfilter meets a direction's packets.
fn direction(name: &str, interface: &Link, peer: Option<&Link>) -> ImpairedDirection {
    let (own, other) = (&interface.name, peer.map_or("", |peer| &peer.name));
    let (what, out) = match name {
        "to-peer" => (Diverted::Through(own.clone(), other.to_owned()), peer),
        "from-peer" => (Diverted::Through(other.to_owned(), own.clone()), None),
        "ingress" => (Diverted::Arriving(own.clone()), None),
        _ => (Diverted::Leaving(own.clone()), None),
    };
    ImpairedDirection {
        what,
        mtu_bytes: out.unwrap_or(interface).mtu_bytes,
    }
}

impl Nfqueue {
    /// Binds queues from `queue` on, starts threads, and sends packets to them.
    ///
    /// # Errors
    /// Where a queue is taken, no rule can be made, or packets cannot be sent a second time.
    pub fn start(how: &How, directions: &[(ImpairedDirection, &Plan)]) -> anyhow::Result<Nfqueue> {
        let (mut lines, mut diverts, mut reported) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (direction, plan)) in (how.queue..).zip(directions) {
            let (line, buffer) = start(number, direction, plan, how.precise)?;
            lines.push(line);
            reported.push(format!("{} by queue {number}", direction.what));
            if buffer.bytes < buffer.requested_bytes {
                reported.push(format!(
                    "its receive buffer is {} of {} bytes: raise net.core.rmem_max",
                    buffer.bytes, buffer.requested_bytes
                ));
            }
            let what = direction.what.clone();
            diverts.push(Divert {
                what,
                queue: number,
                queues: 1,
            });
        }
        // Packets arrive from here on. A failure before this line has diverted none.
        let exempt = Exempt {
            mark: MARK,
            neighbours: true,
        };
        let watch = Watch::start(how.queue)?;
        let is_forwarded =
            |direction: &ImpairedDirection| matches!(direction.what, Diverted::Through(..));
        let forwarded = directions
            .iter()
            .all(|(direction, _)| is_forwarded(direction));
        let beyond = forwarded.then(Beyond::begin).flatten();
        let last = diverts.iter().map(|divert| divert.queue).max();
        let queues = how.queue..=last.unwrap_or(how.queue);
        let diversion = Diversion::begin(&diverts, queues, OnFailure::Pass, Some(exempt))?;
        reported.push(format!("rules by {}", diversion.by()));
        Ok(Nfqueue {
            lines,
            diversion: Some(diversion),
            watch,
            about: reported.join(", "),
            beyond,
        })
    }
}

/// Binds a direction's queue and starts its worker.
fn start(
    number: u16,
    direction: &ImpairedDirection,
    plan: &Plan,
    precise: bool,
) -> anyhow::Result<(Running<Counts>, ReceiveBuffer)> {
    let copied = match plan.changes {
        true => COPY_LIMIT_BYTES,
        false => HEADER_BYTES,
    };
    let queue = Config::new(number)
        .copy_bytes(copied)
        .gso(false)
        .length(plan.packets + IN_FLIGHT)
        .bind()?;
    let buffer = queue.receive_buffer();
    let again = plan
        .changes
        .then(|| RawSockets::open(Some(MARK)))
        .transpose()?;
    let path = plan.path_without_marks(plan.packets)?;
    let at = At {
        side: Side::Down,
        inside: 0,
        out: 0,
        mtu_bytes: direction.mtu_bytes,
    };
    let name = format!("impair {}", plan.name);
    let schedule = Impaired::new(path, again, precise);
    let running = Running::start(name, queue, None, schedule, at, plan.packets)?;
    Ok((running, buffer))
}

impl Engine for Nfqueue {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self) -> anyhow::Result<Vec<Counts>> {
        if let Some(diversion) = &mut self.diversion
            && diversion.repair()?
        {
            bail!(
                "another program removed or changed the rules of the packet queues: packets passed without impairment"
            );
        }
        let counts = (self.lines.iter()).map(|line| Ok(line.lead().count()?.0));
        let mut counts: Vec<Counts> = counts.collect::<anyhow::Result<_>>()?;
        // Second packets come from this host.
        let release = counts.iter().map(|of| of.sent - of.copies).sum();
        // Which direction they were of is not known.
        if let (Some(beyond), Some(first)) = (&self.beyond, counts.first_mut()) {
            first.stopped = beyond.missing(release);
        }
        Ok(counts)
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<Vec<Counts>> {
        // The rules go first: what comes after them is the stack's.
        let ended = self.diversion.take().map_or(Ok(()), |rules| rules.end());
        let counts = self.read();
        for line in &mut self.lines {
            line.stop().context("release the packets of a queue")?;
        }
        ended.context("remove the rules")?;
        counts
    }
}

impl Drop for Nfqueue {
    fn drop(&mut self) {
        if let Some(diversion) = self.diversion.take()
            && let Err(error) = diversion.end()
        {
            fairpath_cli::note(format_args!(
                "remove the rules of the packet queues: {error:#}"
            ));
        }
    }
}
