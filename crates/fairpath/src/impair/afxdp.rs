//! Impairment through AF_XDP: what goes between two interfaces, both directions in one thread.
//!
//! The monitor's XDP program takes packets and notes when they came; it decides by which interface a
//! packet leaves, as for `fairpath shape` (bridge or router). A direction is an exit: what leaves by
//! the peer is "to-peer". What the XDP program leaves to the stack is not impaired.

use std::thread::{self, JoinHandle};

use anyhow::{Context, bail};
use fairpath_afxdp::{
    Arrival, ForwardCounts, Forwarder, FrameId, LinkState, Order, Outcome, Placement, QueueId, Stop,
};
use fairpath_bpf::{Attached, Options, RttMonitor, Way as ByWay};
use fairpath_core::sched::HomeError;
use fairpath_core::{Config, Frame, Link as LinkKind, Way};
use fairpath_netlink::Link;
use fairpath_shape::{CHARGES, Side};
use fairpath_units::Nanos;

use super::counts::Counts;
use super::engine::{Engine, Plan, awake_ns};
use super::path::{Departure, Path};
use crate::shape::afxdp::ends::{Ends, about, first_queues, open_port, pairs};
use crate::shape::afxdp::sent;
use crate::shape::lanes::{self, Command, Lead, Orders, Orphan};
use crate::shape::{Mode, skipped};
use crate::watch::monotonic_ns;

/// Of the monitor, whose flows nobody asks for.
const FLOWS: u32 = 1024;
const RING_BYTES: u32 = 1 << 12;

/// Ways by which packets between both interfaces pass this process, and go on by the stack.
const SLIPS: [ByWay; 7] = [
    ByWay::NoSocket,
    ByWay::NoRoom,
    ByWay::NoDesk,
    ByWay::TooBig,
    ByWay::Options,
    ByWay::NoNeighbour,
    ByWay::Tunnel,
];

/// What the thread tells.
#[derive(Clone, Default)]
struct Told {
    /// By exit: leaving by the interface, leaving by the peer.
    counts: [Counts; 2],
    forwarder: ForwardCounts,
    /// Frames that the kernel had no room for, by the exit of whoever received them.
    lost_before: [u64; 2],
    gone: Option<String>,
}

/// The port.
pub struct Afxdp {
    lead: Lead<Told>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    programs: Vec<Attached>,
    monitor: RttMonitor,
    about: String,
}

impl Afxdp {
    /// Between `interface` and `peer`; `plans` are to the peer, from the peer.
    ///
    /// # Errors
    /// Where interfaces are not fit, or the kernel refuses.
    pub fn start(
        interface: Link,
        peer: Link,
        mode: Option<Mode>,
        plans: &[&Plan],
    ) -> anyhow::Result<Afxdp> {
        let ends = Ends::look("impair", interface, peer)?;
        if ends.is_one_armed() {
            bail!(
                "impair between {:?} and itself: name another --peer",
                ends.inside.name
            );
        }
        let mode = ends.mode(mode)?;
        refuse_skipped(&ends, mode)?;
        let held = plans.iter().map(|plan| plan.packets + CHARGES).sum();
        let (port, frames, placement) = open_port(&ends, held)?;
        let [to_peer, from_peer] = plans else {
            bail!(
                "impair via afxdp: two directions are needed, and there are {}",
                plans.len()
            );
        };
        let order = Paths {
            // An exit is where packets leave: the peer is the second.
            paths: [from_peer.path(frames)?, to_peer.path(frames)?],
            exits: [first_queues(&ends).down, first_queues(&ends).up],
            limit: plans.iter().map(|plan| plan.packets).sum(),
            inside: ends.inside.ifindex.0,
            failure: None,
        };
        let mut monitor = load()?;
        monitor.set_forwarding(&ends.plan(mode, None)?)?;
        for (link, socket) in port.sockets() {
            let exit = usize::from(link.ifindex == ends.outside.ifindex);
            monitor.set_socket(exit, link.queue, socket)?;
        }
        let zero_copy = port.is_zero_copy();
        let exits = [ends.inside.ifindex, ends.outside.ifindex];
        let forwarder = Forwarder::with_exits(port, &pairs(&ends), &exits, order)?;
        let stop = Stop::new().context("make a descriptor to end the thread by")?;
        let bell = forwarder.bell();
        let (lead, orders) = lanes::pair(move || bell.ring());
        let about = about(&ends, mode, zero_copy, &placement);
        let theirs = stop.clone();
        let thread = thread::Builder::new()
            .name("impair afxdp".into())
            .spawn(move || carry(forwarder, &orders, &theirs, &placement))
            .context("start the thread that carries packets")?;
        let mut afxdp = Afxdp {
            lead,
            stop,
            thread: Some(thread),
            programs: Vec::new(),
            monitor,
            about,
        };
        for link in [&ends.inside, &ends.outside] {
            let program = afxdp.monitor.attach_forward(link.ifindex, &link.name)?;
            afxdp.programs.push(program);
        }
        Ok(afxdp)
    }

    fn join(&mut self) {
        self.programs.clear();
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn load() -> anyhow::Result<RttMonitor> {
    let mut core = Config::default().with_flows(FLOWS);
    core.seed = getrandom::u64().context("draw the seed of the flow hash")?;
    core.quiet = 1;
    let options = Options {
        ring_bytes: RING_BYTES,
        ..Options::live(core)
    };
    Ok(RttMonitor::load(&options.with_forwarding())?)
}

/// Stages of the stack that packets would pass by, and that this host has.
fn refuse_skipped(ends: &Ends, mode: Mode) -> anyhow::Result<()> {
    let stages = skipped::stages([&ends.inside, &ends.outside], mode)?;
    let Some(first) = stages.first() else {
        return Ok(());
    };
    bail!(
        "impair {:?} and {:?} via afxdp: packets would pass by {first}{}; take it away, or use --via nfqueue, which keeps it",
        ends.inside.name,
        ends.outside.name,
        match stages.len() {
            1 => String::new(),
            more => format!(" and {} more", more - 1),
        }
    )
}

impl Engine for Afxdp {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self) -> anyhow::Result<Vec<Counts>> {
        let told = self.lead.count()?;
        if let Some(name) = &told.gone {
            bail!("the interface {name:?} is gone");
        }
        let [from_peer, to_peer] = told.counts;
        let mut counts = vec![to_peer, from_peer];
        // What came by the interface was on its way to the peer.
        for (counts, lost) in counts.iter_mut().zip(told.lost_before) {
            counts.queue_dropped += lost;
        }
        for (counts, ways) in counts.iter_mut().zip(self.monitor.ways()) {
            counts.slipped = SLIPS.iter().map(|way| ways.of(*way)).sum();
            counts.passed = counts.slipped;
            counts.own_dropped += ways.of(ByWay::Lost);
        }
        // Which direction they were of is not known.
        let all = told.forwarder;
        counts[0].own_dropped += all.no_room + all.no_link + all.not_copied;
        Ok(counts)
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<Vec<Counts>> {
        // Nothing comes any more: the kernel forwards. What waits in the pipe is no more.
        self.programs.clear();
        let counts = self.read();
        self.join();
        counts
    }
}

impl Drop for Afxdp {
    fn drop(&mut self) {
        self.join();
    }
}

/// Both directions as the forwarder's order.
struct Paths {
    paths: [Path; 2],
    exits: [QueueId; 2],
    limit: u32,
    inside: u32,
    failure: Option<HomeError>,
}

impl Paths {
    fn drop_all(&mut self, exit: usize, out: &mut Vec<Outcome>) {
        while let Some(handle) = self.paths[exit].take_dropped() {
            out.push(Outcome::Drop(FrameId(handle - 1)));
        }
    }

    fn note<T: Default>(&mut self, done: Result<T, HomeError>) -> T {
        done.unwrap_or_else(|error| {
            // A native scheduler does not fail, whatever its policy does.
            self.failure.get_or_insert(error);
            T::default()
        })
    }
}

impl Order for Paths {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        let exit = arrival.exit.min(1);
        let handle = arrival.frame.0 + 1;
        let path = &mut self.paths[exit];
        let done = match arrival.meta {
            Some(mut meta) => {
                let came = meta.arrival.min(arrival.now.0);
                (meta.class_id, meta.arrival) = (0, came);
                path.arrive_as(handle, came, meta)
            }
            None => {
                let frame = Frame {
                    now: arrival.now.0,
                    wire_len: packet.len() as u32,
                    segs: 1,
                    ifindex: self.inside,
                    link: LinkKind::Ethernet as u16,
                    way: Way::Out as u8,
                    ..Frame::default()
                };
                path.arrive(handle, &frame, packet, packet.len() as u32)
            }
        };
        if !self.note(done) {
            out.push(Outcome::Drop(arrival.frame));
        }
        self.drop_all(exit, out);
    }

    fn leave(&mut self, to: QueueId, _: Nanos, room: u32, out: &mut Vec<Outcome>) {
        for exit in 0..2 {
            if self.exits[exit] != to {
                continue;
            }
            // The turn began before this packet's: its clock is old.
            let now = monotonic_ns().unwrap_or(0);
            // Those of the last time have been handed over by now.
            self.paths[exit].note_sent(now);
            let done = self.paths[exit].run_to(now);
            self.note(done);
            self.drop_all(exit, out);
            for _ in 0..room {
                let Some(Departure { handle, deed, .. }) = self.paths[exit].take() else {
                    break;
                };
                // What cannot be sent twice is counted by the forwarder, against the plan.
                let counts = self.paths[exit].counts_mut();
                counts.copies += u64::from(deed.twice);
                counts.sent += u64::from(deed.twice);
                counts.corrupted += u64::from(deed.flip.is_some());
                out.push(sent(FrameId(handle - 1), deed));
            }
        }
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn wake_at(&self) -> Option<Nanos> {
        let due = self.paths.iter().filter_map(Path::wake_at);
        due.min().map(Nanos)
    }
}

/// The thread: packets until the end.
fn carry(
    mut forwarder: Forwarder<Paths>,
    orders: &Orders<Told>,
    stop: &Stop,
    placement: &Placement,
) {
    if let Err(error) = placement.pin() {
        eprintln!("fairpath impair: pin the thread that carries packets ({placement}): {error}");
    }
    forwarder.stay_awake(Nanos(awake_ns()));
    forwarder.run(stop, |forwarder| {
        loop {
            match orders.next() {
                Ok(Some(Command::Count(reply))) => drop(reply.try_send(tell(forwarder))),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Orphan) => {
                    stop.ask();
                    break;
                }
            }
        }
    });
}

fn tell(forwarder: &Forwarder<Paths>) -> Told {
    let (port, order) = (forwarder.port(), forwarder.order());
    let mut told = Told {
        counts: [0, 1].map(|exit| order.paths[exit].counts().clone()),
        forwarder: forwarder.counts(),
        ..Told::default()
    };
    for queue in (0..port.len()).map(QueueId) {
        let side = match queue.0 >= order.exits[1].0 {
            true => Side::Up,
            false => Side::Down,
        };
        let lost = &mut told.lost_before[usize::from(side == Side::Up)];
        if let Ok(ring) = port.statistics(queue) {
            *lost += ring.rx_dropped + ring.rx_ring_full;
        }
        if port.state(queue) == LinkState::Gone {
            told.gone = Some(port.link(queue).name.clone());
        }
    }
    told
}
