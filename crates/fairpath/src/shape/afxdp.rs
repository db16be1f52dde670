//! The AF_XDP port: the monitor's XDP program takes packets, this process schedules and sends them.
//!
//! One thread, both sides' lanes, frames of one UMEM as handles. What the XDP program leaves to the
//! stack (its own traffic, groups, neighbour discovery) is charged to the rate where the stack sends
//! it. As a bridge, both interfaces are ports of one kernel bridge, which goes on when this process is
//! gone; as a router, the kernel's routes decide, and the kernel goes on.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_afxdp::{
    Arrival, ForwardCounts, Forwarder, FrameId, LinkQueue, LinkState, Order, Outcome, Placement,
    Plan, Port, QueueId, RingStatistics, Stop,
};
use fairpath_bpf::{Attached, Exit, ForwardPlan, Forwarding, StackSent, Way};
use fairpath_core::sched::Op;
use fairpath_core::{Frame, Link as LinkKind, Way as Passing};
use fairpath_netlink::{Ethtool, Link, Links};
use fairpath_shape::{Both, CHARGES, Lane, Leaving, Lines, Side};
use fairpath_units::Nanos;

use super::backend::{Backend, Job, Reading};
use super::lanes::{self, Command, Gauge, Lead, Orders};
use super::{Mode, OnFailure, Via};
use crate::run::Kernel;
use crate::watch::monotonic_ns;

/// Entries of each ring.
const RING: u32 = 2048;
/// Arrivals that wait for the scheduler before it is told of them without anything leaving.
const GATHERED: usize = 64;
/// How long packets that wait have to leave at the end.
const FLUSH: Duration = Duration::from_millis(300);

/// What the thread counts.
#[derive(Clone, Debug, Default)]
struct Counts {
    forwarder: ForwardCounts,
    /// By side: what the kernel lost before the scheduler, and what it could not send.
    rings: Both<RingStatistics>,
    refused: Both<u64>,
    charged_bytes: Both<u64>,
    /// An interface that is no more.
    gone: Option<String>,
}

/// The port.
pub struct Afxdp {
    lead: Lead<Counts>,
    gauges: Both<Gauge>,
    handles: u32,
    programs: Vec<Attached>,
    thread: Option<JoinHandle<()>>,
    stop: Stop,
    about: String,
}

/// Both interfaces as they are now.
struct Ends {
    inside: Link,
    outside: Link,
    macs: Both<[u8; 6]>,
    /// Of their bridge.
    bridge: Option<[u8; 6]>,
    queues: Both<u32>,
    /// VLAN devices of the inside interface.
    vlans: Vec<Link>,
}

impl Afxdp {
    /// Opens the sockets, starts the thread, and attaches the XDP program.
    ///
    /// # Errors
    /// Where interfaces are not there or not fit, or the kernel refuses.
    pub fn start(job: &Job<'_>, kernel: &mut Kernel) -> anyhow::Result<Afxdp> {
        let Some(outside) = &job.config.outside else {
            bail!("shape via afxdp: both sides are needed; name the interface [shape] outside");
        };
        if !kernel.forwards() {
            bail!(
                "shape via afxdp: the monitor was loaded without its forwarding program; restart with via = \"afxdp\" and [monitor] hook = \"tcx\""
            );
        }
        if job.config.on_failure == OnFailure::Stop {
            bail!(
                "shape via afxdp: on_failure = \"stop\" cannot be held: when the process is gone, the kernel forwards; use via = \"nfqueue\", or take the routes or the bridge away"
            );
        }
        let ends = Ends::look(&job.config.inside, outside)?;
        let mode = ends.mode(job.config.mode)?;
        refuse_skipped(job, &ends, mode)?;
        let (port, frames, placement) = open_port(job, &ends)?;
        let (down, down_gauge) = lanes::begin(job, Side::Down, frames, true)?;
        let (up, up_gauge) = lanes::begin(job, Side::Up, frames, true)?;
        let lanes = Both { down, up };
        let gauges = Both {
            down: down_gauge,
            up: up_gauge,
        };
        kernel
            .monitor_mut()
            .set_forwarding(&ends.plan(mode, job)?)?;
        for (link, socket) in port.sockets() {
            // One interface may be both exits.
            for (exit, end) in [&ends.inside, &ends.outside].into_iter().enumerate() {
                if end.ifindex == link.ifindex {
                    kernel.monitor().set_socket(exit, link.queue, socket)?;
                }
            }
        }
        let sent = kernel.monitor().stack_sent()?;
        let one_armed = ends.inside.ifindex == ends.outside.ifindex;
        let order = Lanes::new(lanes, sent, job, &ends, one_armed);
        let pairs = pairs(&ends);
        let exits = [ends.inside.ifindex, ends.outside.ifindex];
        let zero_copy = port.is_zero_copy();
        let forwarder = Forwarder::with_exits(port, &pairs, &exits, order)?;
        let stop = Stop::new().context("make a descriptor to end the thread by")?;
        let bell = forwarder.bell();
        let (lead, orders) = lanes::pair(move || bell.ring());
        let about = about(&ends, mode, zero_copy, &placement);
        let (theirs, firsts) = (stop.clone(), first_queues(&ends));
        let thread = thread::Builder::new()
            .name("shape afxdp".into())
            .spawn(move || carry(forwarder, &orders, &theirs, &placement, firsts))
            .context("start the thread that carries packets")?;
        let mut afxdp = Afxdp {
            lead,
            gauges,
            handles: frames,
            programs: Vec::new(),
            thread: Some(thread),
            stop,
            about,
        };
        for link in [&ends.inside, &ends.outside]
            .iter()
            .take(if one_armed { 1 } else { 2 })
        {
            let program = kernel
                .monitor_mut()
                .attach_forward(link.ifindex, &link.name)?;
            afxdp.programs.push(program);
        }
        Ok(afxdp)
    }
}

impl Ends {
    fn look(inside: &str, outside: &str) -> anyhow::Result<Ends> {
        let mut links = Links::open()?;
        let mut find = |name: &str| -> anyhow::Result<Link> {
            let link = links.by_name(name)?;
            link.with_context(|| format!("shape {name:?}: there is no such interface"))
        };
        let (inside, outside) = (find(inside)?, find(outside)?);
        let all = links.list()?;
        let bridge = inside.master.and_then(|master| {
            let link = all.iter().find(|link| link.ifindex == master)?;
            mac_of(&link.name).ok()
        });
        let mut ethtool = Ethtool::open().ok();
        let mut queues = |link: &Link| {
            let channels = ethtool
                .as_mut()
                .and_then(|e| e.channels(link.ifindex).ok()?);
            channels.map_or(1, |c| (c.combined + c.rx).max(1))
        };
        Ok(Ends {
            macs: Both {
                down: mac_of(&inside.name)?,
                up: mac_of(&outside.name)?,
            },
            queues: Both {
                down: queues(&inside),
                up: queues(&outside),
            },
            bridge,
            vlans: all
                .into_iter()
                .filter(|link| link.is_kind("vlan") && link.lower == Some(inside.ifindex))
                .collect(),
            inside,
            outside,
        })
    }

    /// Bridge where both are ports of one bridge, or are told apart by VLANs; router otherwise.
    fn mode(&self, wanted: Option<Mode>) -> anyhow::Result<Mode> {
        let (a, b) = (&self.inside, &self.outside);
        let bridged = a.master.is_some() && a.master == b.master && self.bridge.is_some();
        let one_armed = a.ifindex == b.ifindex;
        match wanted {
            None if bridged || one_armed => Ok(Mode::Bridge),
            None => Ok(Mode::Router),
            Some(Mode::Bridge) if !bridged && !one_armed => bail!(
                "shape via afxdp as a bridge: {:?} and {:?} are no ports of one bridge, so nothing would carry broadcasts, or anything when this process is gone; \
                 make a bridge of both (ip link set {} master br0)",
                a.name,
                b.name,
                a.name
            ),
            Some(mode) => Ok(mode),
        }
    }

    /// The interface that routes name for a VLAN: its device.
    fn vlan_device(&self, vlan: u16) -> anyhow::Result<&Link> {
        let is_its = |link: &&Link| link.vlan_id.is_some_and(|id| id.0 == vlan);
        self.vlans.iter().find(is_its).with_context(|| {
            let name = &self.inside.name;
            format!(
                "shape via afxdp as a router on {name:?}: it has no device for VLAN {vlan}, by which routes could lead; \
                 make one (ip link add link {name} name {name}.{vlan} type vlan id {vlan}), or use mode = \"bridge\""
            )
        })
    }

    /// The devices whose stages packets pass by.
    fn passed(&self, mode: Mode, job: &Job<'_>) -> anyhow::Result<Vec<[&Link; 2]>> {
        let mut passed = vec![[&self.inside, &self.outside]];
        if let (Mode::Router, Some([a, b])) = (mode, job.config.vlans) {
            passed.push([self.vlan_device(a)?, self.vlan_device(b)?]);
        }
        Ok(passed)
    }

    fn exit(&self, side: Side, mode: Mode, job: &Job<'_>) -> anyhow::Result<Exit> {
        let (link, vlan) = match side {
            Side::Down => (&self.inside, job.config.vlans.unwrap_or_default()[0]),
            Side::Up => (&self.outside, job.config.vlans.unwrap_or_default()[1]),
        };
        let mut exit = Exit {
            ifindex: link.ifindex,
            route: link.ifindex,
            end: side.end(),
            mtu: link.mtu_bytes,
            vlan,
            mac: *self.macs.get(side),
            stack_seen: true,
        };
        if mode == Mode::Router && vlan != 0 {
            let device = self.vlan_device(vlan)?;
            (exit.route, exit.mtu) = (device.ifindex, device.mtu_bytes);
            exit.mac = mac_of(&device.name)?;
        }
        Ok(exit)
    }

    fn plan(&self, mode: Mode, job: &Job<'_>) -> anyhow::Result<ForwardPlan> {
        let mut own = vec![self.macs.down, self.macs.up];
        own.extend(self.bridge);
        own.dedup();
        Ok(ForwardPlan {
            forwarding: match mode {
                Mode::Bridge => Forwarding::Bridge,
                Mode::Router => Forwarding::Router,
            },
            exits: [
                self.exit(Side::Down, mode, job)?,
                self.exit(Side::Up, mode, job)?,
            ],
            own: match mode {
                Mode::Bridge => own,
                Mode::Router => Vec::new(),
            },
        })
    }

    fn is_one_armed(&self) -> bool {
        self.inside.ifindex == self.outside.ifindex
    }
}

fn mac_of(name: &str) -> anyhow::Result<[u8; 6]> {
    let addresses = nix::ifaddrs::getifaddrs().context("list the interfaces' addresses")?;
    addresses
        .filter(|address| address.interface_name == name)
        .find_map(|address| address.address?.as_link_addr()?.addr())
        .with_context(|| format!("shape {name:?} via afxdp: it has no MAC address; use via = \"nfqueue\" or \"kernel\""))
}

/// Stages of the stack that packets would pass by, and that this router has.
fn refuse_skipped(job: &Job<'_>, ends: &Ends, mode: Mode) -> anyhow::Result<()> {
    let mut stages = Vec::new();
    for links in ends.passed(mode, job)? {
        stages.extend(super::skipped::stages(links, mode)?);
    }
    if let Some(first) = stages.first() {
        bail!(
            "shape {:?} and {:?} via afxdp: packets would pass by {first}{}; take it away, or use via = \"nfqueue\", \"qdisc\" or \"kernel\", which keep it",
            job.config.inside,
            ends.outside.name,
            match stages.len() {
                1 => String::new(),
                more => format!(" and {} more", more - 1),
            }
        );
    }
    Ok(())
}

fn open_port(job: &Job<'_>, ends: &Ends) -> anyhow::Result<(Port, u32, Placement)> {
    let mut queues = Vec::new();
    let links = match ends.is_one_armed() {
        true => vec![(&ends.inside, Side::Down)],
        false => vec![(&ends.inside, Side::Down), (&ends.outside, Side::Up)],
    };
    for (link, side) in links {
        queues.extend((0..*ends.queues.get(side)).map(|queue| LinkQueue {
            ifindex: link.ifindex,
            name: link.name.clone(),
            queue,
        }));
    }
    let held: u32 = Side::BOTH
        .map(|side| job.lines.trees.get(side).plan.config.limit_packets + CHARGES)
        .iter()
        .sum();
    let placement = Placement::of(&queues, &[]);
    let mut plan = Plan::new(queues).sized(RING, held);
    plan.node = placement.node;
    let mtu = ends.inside.mtu_bytes.max(ends.outside.mtu_bytes);
    if mtu > Plan::largest_mtu(plan.frame_bytes) {
        plan.frame_bytes = 4096;
    }
    let frames = plan.frames;
    Ok((Port::open(&plan)?, frames, placement))
}

/// Each queue of one interface with one of the other; of one interface, with itself.
fn pairs(ends: &Ends) -> Vec<(QueueId, QueueId)> {
    let (a, b) = (ends.queues.down as usize, ends.queues.up as usize);
    if ends.is_one_armed() {
        return (0..a)
            .map(|queue| (QueueId(queue), QueueId(queue)))
            .collect();
    }
    let paired = (0..a.min(b)).map(|queue| (QueueId(queue), QueueId(a + queue)));
    // What is left over receives; it leaves by the note's exit.
    let rest = (a.min(b)..a).map(|queue| (QueueId(queue), QueueId(queue)));
    let rest_b = (a.min(b)..b).map(|queue| (QueueId(a + queue), QueueId(a + queue)));
    paired.chain(rest).chain(rest_b).collect()
}

/// The queue by which each side's packets leave.
fn first_queues(ends: &Ends) -> Both<QueueId> {
    Both {
        down: QueueId(0),
        up: match ends.is_one_armed() {
            true => QueueId(0),
            false => QueueId(ends.queues.down as usize),
        },
    }
}

fn about(ends: &Ends, mode: Mode, zero_copy: bool, placement: &Placement) -> String {
    let mode = match (mode, ends.is_one_armed()) {
        (Mode::Bridge, true) => "bridge between VLANs of",
        (Mode::Bridge, false) => "bridge between",
        (Mode::Router, _) => "router between",
    };
    let copy = if zero_copy { "zero copy" } else { "copied" };
    format!(
        "{mode} {} ({} queues) and {} ({} queues), {copy}; {placement}; the kernel forwards if this process goes",
        ends.inside.name, ends.queues.down, ends.outside.name, ends.queues.up
    )
}

/// Both lanes as the forwarder's order; an exit is a side.
struct Lanes {
    lanes: [Lane; 2],
    /// Class numbers by the monitor's slots.
    classes: Vec<u32>,
    sent: StackSent,
    charged: [u64; 2],
    charged_total: [u64; 2],
    wake: [Option<u64>; 2],
    gathered: [usize; 2],
    first: [QueueId; 2],
    one_armed: bool,
    ifindexes: [u32; 2],
    limit: u32,
    leaving: Vec<Leaving>,
    dropped: Vec<Leaving>,
    failed: u64,
}

impl Lanes {
    fn new(
        lanes: Both<Lane>,
        sent: StackSent,
        job: &Job<'_>,
        ends: &Ends,
        one_armed: bool,
    ) -> Lanes {
        let limit: u32 = Side::BOTH
            .map(|side| job.lines.trees.get(side).plan.config.limit_packets)
            .iter()
            .sum();
        let first = first_queues(ends);
        Lanes {
            lanes: [lanes.down, lanes.up],
            classes: job.slots.to_vec(),
            charged: [sent.read(0).bytes, sent.read(1).bytes],
            charged_total: [0; 2],
            sent,
            wake: [None; 2],
            gathered: [0; 2],
            first: [first.down, first.up],
            one_armed,
            ifindexes: [ends.inside.ifindex.0, ends.outside.ifindex.0],
            limit,
            leaving: Vec::new(),
            dropped: Vec::new(),
            failed: 0,
        }
    }

    /// A turn of one side; what leaves is told as outcomes.
    fn turn(&mut self, exit: usize, now: u64, room: u32, out: &mut Vec<Outcome>) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.append(&mut self.dropped);
        self.gathered[exit] = 0;
        match self.lanes[exit].turn(now, room, &mut leaving) {
            Ok(next) => self.wake[exit] = next,
            // A native scheduler does not fail, whatever its policy does.
            Err(_) => self.failed += 1,
        }
        out.extend(leaving.drain(..).map(|leaving| match leaving {
            Leaving::Send {
                handle,
                mark: false,
            } => Outcome::Send(FrameId(handle - 1)),
            Leaving::Send { handle, mark: true } => Outcome::SendMarked(FrameId(handle - 1)),
            Leaving::Drop { handle } => Outcome::Drop(FrameId(handle - 1)),
        }));
        self.leaving = leaving;
    }

    /// What the stack has sent by this exit since the last time.
    fn charge(&mut self, exit: usize) {
        let bytes = self.sent.read(exit).bytes;
        let more = bytes.wrapping_sub(self.charged[exit]);
        if more > 0 {
            self.charged[exit] = bytes;
            self.charged_total[exit] += more;
            self.lanes[exit].charge(more);
        }
    }
}

impl Order for Lanes {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        let exit = arrival.exit.min(1);
        let (handle, now) = (arrival.frame.0 + 1, arrival.now.0);
        match arrival.meta {
            Some(mut meta) => {
                let slot = meta.class_id as usize;
                meta.class_id = self.classes.get(slot).copied().unwrap_or(0);
                self.lanes[exit].arrive_as(handle, now, meta);
            }
            None => {
                let (way, at) = match exit {
                    0 => (Passing::Out, 0),
                    _ => (Passing::In, 0),
                };
                let frame = Frame {
                    now,
                    wire_len: packet.len() as u32,
                    segs: 1,
                    ifindex: self.ifindexes[at],
                    link: LinkKind::Ethernet as u16,
                    way: way as u8,
                    ..Frame::default()
                };
                self.lanes[exit].arrive(handle, &frame, packet, packet.len() as u32);
            }
        }
        self.gathered[exit] += 1;
        if self.gathered[exit] >= GATHERED {
            self.turn(exit, now, 0, out);
        }
    }

    fn leave(&mut self, to: QueueId, now: Nanos, room: u32, out: &mut Vec<Outcome>) {
        let mut left = room;
        for exit in 0..2 {
            if self.first[exit] != to {
                continue;
            }
            self.charge(exit);
            // One interface has one ring for both sides: the first leaves half of it at least.
            let share = match self.one_armed && exit == 0 {
                true => left.div_ceil(2),
                false => left,
            };
            let before = out.len();
            self.turn(exit, now.0, share, out);
            let sent = out[before..]
                .iter()
                .filter(|outcome| !matches!(outcome, Outcome::Drop(_)));
            left = left.saturating_sub(sent.count() as u32);
        }
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.wake.iter().flatten().min().map(|at| Nanos(*at))
    }
}

/// The thread: packets until the end.
fn carry(
    mut forwarder: Forwarder<Lanes>,
    orders: &Orders<Counts>,
    stop: &Stop,
    placement: &Placement,
    firsts: Both<QueueId>,
) {
    if let Err(error) = placement.pin() {
        tracing::warn!("pin the thread that carries packets ({placement}): {error}");
    }
    lanes::prefer_this_thread();
    let mut end = None;
    forwarder.run(stop, |forwarder| {
        loop {
            match orders.next() {
                Ok(Some(command)) => end = obey(forwarder, command, firsts).or(end.take()),
                Ok(None) => break,
                Err(lanes::Orphan) => {
                    stop.ask();
                    break;
                }
            }
        }
        if end.is_some() {
            stop.ask();
        }
    });
    if let Some(reply) = end {
        // Packets come no more; those that wait leave at their rate, for a while.
        let begin = Instant::now();
        let quiet = Stop::new();
        while forwarder.counts().held() > 0 && begin.elapsed() < FLUSH {
            if !forwarder.turn()
                && let Ok(quiet) = &quiet
            {
                forwarder.sleep(quiet);
            }
        }
        let left = forwarder.counts().held();
        let done = match left {
            0 => Ok(forwarder.counts().sent),
            left => Err(format!(
                "{left} packets that waited longer than {FLUSH:?} were dropped"
            )),
        };
        let _ = reply.try_send(done);
    }
}

type Reply = std::sync::mpsc::SyncSender<Result<u64, String>>;

/// Carries out a command; the end's reply where that is asked for.
fn obey(
    forwarder: &mut Forwarder<Lanes>,
    command: Command<Counts>,
    firsts: Both<QueueId>,
) -> Option<Reply> {
    match command {
        Command::Count(reply) => {
            let _ = reply.try_send(counts(forwarder, firsts));
            None
        }
        Command::Classes(classes) => {
            forwarder.order_mut().classes = classes;
            None
        }
        Command::Stop(reply) => Some(reply),
        Command::Apply(side, ..) | Command::Replace(side, ..) => {
            let now = monotonic_ns().unwrap_or(0);
            let exit = usize::from(side == Side::Up);
            let order = forwarder.order_mut();
            // What has no place any more goes with the next turn.
            lanes::obey(&mut order.lanes[exit], command, now, &mut order.dropped);
            None
        }
    }
}

fn counts(forwarder: &Forwarder<Lanes>, firsts: Both<QueueId>) -> Counts {
    let port = forwarder.port();
    let mut counts = Counts {
        forwarder: forwarder.counts(),
        ..Counts::default()
    };
    for queue in (0..port.len()).map(QueueId) {
        let side = match firsts.up != firsts.down && queue.0 >= firsts.up.0 {
            true => Side::Up,
            false => Side::Down,
        };
        if let Ok(ring) = port.statistics(queue) {
            let sum = counts.rings.get_mut(side);
            sum.rx_dropped += ring.rx_dropped;
            sum.rx_ring_full += ring.rx_ring_full;
            sum.tx_invalid += ring.tx_invalid;
        }
        if port.state(queue) == LinkState::Gone {
            counts.gone = Some(port.link(queue).name.clone());
        }
        let own = port.counts(queue);
        *counts.refused.get_mut(side) += own.refused + own.lost;
    }
    let charged = forwarder.order().charged_total;
    counts.charged_bytes = Both {
        down: charged[0],
        up: charged[1],
    };
    counts
}

impl Backend for Afxdp {
    fn via(&self) -> Via {
        Via::Afxdp
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self, kernel: &Kernel) -> anyhow::Result<Reading> {
        let counts = self.lead.count()?;
        if let Some(name) = &counts.gone {
            bail!("the interface {name:?} is gone");
        }
        let mut reading = Reading::default();
        reading.figures.down = Some(self.gauges.down.read());
        reading.figures.up = Some(self.gauges.up.read());
        let stopped = self.gauges.down.stopped();
        reading.stopped = stopped.or_else(|| self.gauges.up.stopped());
        let ways = kernel.monitor().ways();
        name_counts(&counts, &mut reading.counters);
        for (exit, side) in ["inside", "outside"].iter().enumerate() {
            for (way, name) in Way::ALL {
                let frames = ways[exit].of(way);
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
        self.lead.apply(side, op)
    }

    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()> {
        for side in Side::BOTH {
            let trees = [job.lines.trees.get(side), before.trees.get(side)];
            let gauge = self.gauges.get_mut(side);
            lanes::replace(
                &self.lead,
                gauge,
                side,
                trees,
                job.rules,
                self.handles,
                true,
            )?;
        }
        self.lead.tell(Command::Classes(job.slots.to_vec()))
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        // Nothing comes any more: the kernel forwards.
        self.programs.clear();
        let sent = self.lead.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
        Ok(format!("{} packets were carried", sent?))
    }
}

impl Drop for Afxdp {
    fn drop(&mut self) {
        self.programs.clear();
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
    put("no_room".into(), all.no_room);
    put("no_link".into(), all.no_link);
    put("held".into(), all.held());
    put("checksums_completed".into(), all.completed);
    for side in Side::BOTH {
        let (ring, name) = (counts.rings.get(side), side.name());
        put(format!("{name}_rx_dropped"), ring.rx_dropped);
        put(format!("{name}_rx_ring_full"), ring.rx_ring_full);
        put(format!("{name}_refused"), *counts.refused.get(side));
        put(
            format!("{name}_stack_bytes"),
            *counts.charged_bytes.get(side),
        );
    }
}
