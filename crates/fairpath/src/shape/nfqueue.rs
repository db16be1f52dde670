//! The NFQUEUE port: netfilter hands over what leaves by an interface, and takes it back in another
//! order.
//!
//! A thread, a queue and a lane for each side. Packets stay in the kernel; only their headers come here.
//! Super-packets come whole and are charged as the segments that they will be, by the interface's MTU:
//! NFQUEUE does not tell the segments' size. Rates count Ethernet frames without their checksum: 14
//! bytes are added to each segment.
//!
//! Packets cannot be marked (CE) here, since super-packets cannot be written back: policies drop.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_class::Criterion;
use fairpath_core::sched::Op;
use fairpath_core::{Frame, Link, Way};
use fairpath_netlink::Links;
use fairpath_nfqueue::{
    Config, Counters, Held, Holding, KernelCounts, Packet, Queue, Verdict, Wait,
};
use fairpath_shape::{Both, Lane, Leaving, Lines, Side};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use super::backend::{Backend, Job, Reading};
use super::diversion::{Diversion, Divert};
use super::lanes::{self, Command, Gauge, Lead, Orders, Orphan};
use super::{OnFailure, Via};
use crate::run::Kernel;
use crate::watch::monotonic_ns;

/// Packets that wait in the kernel for this process besides those that are held here.
const ON_THE_WAY: u32 = 1024;
/// Bytes of a packet that are looked at: Ethernet's are made up, so less than the parser's most.
const HEADER_BYTES: u32 = 160;
/// An Ethernet header, which packets have on the wire and not here.
const ETHERNET: u32 = 14;
/// Handles beside those that the scheduler may hold: for what comes with one reading, before the
/// scheduler says what it drops for it.
const SPARE_HANDLES: u32 = 256;
/// Packets let go in one turn: some 100 us.
const TURN: u32 = 64;
/// How long leaving may take.
const DRAIN: Duration = Duration::from_secs(2);

/// What a thread counts.
#[derive(Clone, Copy, Debug)]
struct Counts {
    own: Counters,
    kernel: Option<KernelCounts>,
    /// Packets dropped because all handles were taken.
    no_handle: u64,
    /// Verdicts that could not be sent.
    failed: u64,
    /// What was held here when its interface went.
    held: u64,
}

/// The port.
pub struct Nfqueue {
    sides: Both<Option<Line>>,
    diversion: Option<Diversion>,
    about: String,
}

struct Line {
    lead: Lead<Counts>,
    gauge: Gauge,
    thread: Option<JoinHandle<()>>,
    handles: u32,
}

impl Nfqueue {
    /// Binds the queues, starts the threads, and sends packets to them.
    ///
    /// # Errors
    /// Where a class is told by what is not seen here, a queue is taken, or no rule can be made.
    pub fn start(job: &Job<'_>) -> anyhow::Result<Nfqueue> {
        refuse_unseen(job)?;
        let mut diverts = Vec::new();
        let mut buffers = Vec::new();
        let mut links = Links::open()?;
        let sides = Both::try_of(|side| {
            let Some(interface) = job.interface(side) else {
                return Ok(None);
            };
            let queue = job.config.queue + u16::from(side == Side::Up);
            diverts.push(Divert {
                interface: interface.to_owned(),
                queue,
            });
            let mut index = |name: &str| -> anyhow::Result<(u32, u32)> {
                let link = links.by_name(name)?;
                let link =
                    link.with_context(|| format!("shape {name:?}: there is no such interface"))?;
                Ok((link.ifindex.0, link.mtu_bytes))
            };
            let (out, mtu) = index(interface)?;
            let (inside, _) = index(&job.config.inside)?;
            let (line, buffer) = Line::start(job, side, queue, [inside, out, mtu])?;
            buffers.push(buffer);
            anyhow::Ok(Some(line))
        })?;
        // Packets come from here on; whoever fails above has diverted none.
        let diversion = Diversion::begin(&diverts, job.config.on_failure)?;
        let queues: Vec<String> = diverts
            .iter()
            .map(|d| format!("{} by queue {}", d.interface, d.queue))
            .collect();
        let bypass = match job.config.on_failure {
            OnFailure::Pass => "passed by if this process goes",
            OnFailure::Stop => "closed if this process goes",
        };
        let about = format!(
            "{}; rules by {}, {bypass}{}",
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

    fn line(&self, side: Side) -> anyhow::Result<&Line> {
        let line = self.sides.get(side).as_ref();
        line.with_context(|| format!("{} is not scheduled: no interface is named", side.name()))
    }
}

/// What leaves towards subscribers is seen before it has a link-layer header.
fn refuse_unseen(job: &Job<'_>) -> anyhow::Result<()> {
    for class in job.classes.classes() {
        let unseen = class.criteria.iter().find_map(|criterion| match criterion {
            Criterion::Mac(_) => Some("MAC address"),
            Criterion::Vlan(_) => Some("VLAN"),
            _ => None,
        });
        if let Some(what) = unseen {
            bail!(
                "class {:?} is told by its {what}, which packets do not have yet where netfilter queues them ({}); \
                 give it prefixes, or use via = \"qdisc\", \"kernel\" or \"afxdp\"",
                class.name,
                job.config.inside
            );
        }
    }
    Ok(())
}

impl Line {
    fn start(
        job: &Job<'_>,
        side: Side,
        number: u16,
        [inside, out, mtu]: [u32; 3],
    ) -> anyhow::Result<(Line, String)> {
        let tree = job.lines.trees.get(side);
        let handles = tree.plan.config.limit_packets + SPARE_HANDLES;
        let (lane, gauge) = lanes::begin(job, side, handles, false)?;
        let queue = Config::new(number)
            .copy_bytes(HEADER_BYTES)
            .length(handles + ON_THE_WAY)
            .bind()?;
        let buffer = queue.receive_buffer();
        let note = match buffer.bytes < buffer.asked_bytes {
            true => format!(
                "; the receive buffer of queue {number} is {} of {} bytes: raise net.core.rmem_max",
                buffer.bytes, buffer.asked_bytes
            ),
            false => String::new(),
        };
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.context("make a descriptor to wake a thread by")?);
        let rung = Arc::clone(&bell);
        let (lead, orders) = lanes::pair(move || {
            // Only a full counter refuses, and then the thread is woken anyway.
            let _ = rung.write(1);
        });
        let worker = Worker {
            queue,
            lane,
            orders,
            bell,
            side,
            inside,
            out,
            mtu,
            held: (0..=handles).map(|_| None).collect(),
            free: (1..=handles).rev().collect(),
            leaving: Vec::new(),
            no_handle: 0,
            failed: 0,
        };
        let thread = thread::Builder::new()
            .name(format!("shape {}", side.name()))
            .spawn(move || worker.run())
            .context("start a thread for a packet queue")?;
        let line = Line {
            lead,
            gauge,
            thread: Some(thread),
            handles,
        };
        Ok((line, note))
    }
}

impl Backend for Nfqueue {
    fn via(&self) -> Via {
        Via::Nfqueue
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self, _: &Kernel) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        for side in Side::BOTH {
            let Some(line) = self.sides.get(side) else {
                continue;
            };
            let counts = line.lead.count()?;
            *reading.figures.get_mut(side) = Some(line.gauge.read());
            reading.stopped = reading.stopped.or(line.gauge.stopped());
            name_counts(side, &counts, &mut reading.counters);
        }
        Ok(reading)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        self.line(side)?.lead.apply(side, op)
    }

    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()> {
        refuse_unseen(job)?;
        for side in Side::BOTH {
            let trees = [job.lines.trees.get(side), before.trees.get(side)];
            if let Some(Line {
                lead,
                gauge,
                handles,
                ..
            }) = self.sides.get_mut(side)
            {
                lanes::replace(lead, gauge, side, trees, job.rules, *handles, false)?;
            }
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        // The rules go first: what comes after them is the stack's.
        let ended = match self.diversion.take() {
            Some(diversion) => diversion.end().context("take the rules away"),
            None => Ok(()),
        };
        let mut let_go = 0;
        for side in Side::BOTH {
            if let Some(line) = self.sides.get_mut(side) {
                let_go += line.lead.stop()?;
                if let Some(thread) = line.thread.take() {
                    // A panic in it was printed.
                    let _ = thread.join();
                }
            }
        }
        ended?;
        Ok(format!("{let_go} packets that waited were let go"))
    }
}

impl Drop for Nfqueue {
    fn drop(&mut self) {
        // Not stopped: what waits is lost, but nothing else may be.
        if let Some(diversion) = self.diversion.take()
            && let Err(error) = diversion.end()
        {
            tracing::warn!("take the rules of the packet queues away: {error:#}");
        }
    }
}

fn name_counts(side: Side, counts: &Counts, into: &mut BTreeMap<String, u64>) {
    let side = side.name();
    let mut put = |name: &str, n: u64| {
        into.insert(format!("nfqueue_{side}_{name}"), n);
    };
    put("received", counts.own.packets.received);
    put("accepted", counts.own.verdicts.accepted);
    put("dropped", counts.own.verdicts.dropped);
    put("verdicts_refused", counts.own.packets.refused);
    put("verdicts_failed", counts.failed);
    put("no_handle", counts.no_handle);
    put("held", counts.held);
    if let Some(kernel) = counts.kernel {
        put("queue_dropped", kernel.queue_dropped.into());
        put("user_dropped", kernel.user_dropped.into());
        put("kernel_waiting", kernel.waiting.into());
    }
}

/// What a thread works on.
struct Worker {
    queue: Queue<Holding>,
    lane: Lane,
    orders: Orders<Counts>,
    bell: Arc<EventFd>,
    side: Side,
    inside: u32,
    out: u32,
    mtu: u32,
    /// By handle.
    held: Vec<Option<Held>>,
    free: Vec<u32>,
    leaving: Vec<Leaving>,
    no_handle: u64,
    failed: u64,
}

impl Worker {
    fn run(mut self) {
        lanes::prefer_this_thread();
        match self.serve() {
            Ok(()) => {}
            Err(error) => tracing::error!("shape {}: {error:#}", self.side.name()),
        }
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        loop {
            let now = monotonic_ns()?;
            let came = self.take(now)?;
            let next = self.lane.turn(now, TURN, &mut self.leaving)?;
            let left = self.let_go()?;
            loop {
                let command = match self.orders.next() {
                    Ok(Some(command)) => command,
                    Ok(None) => break,
                    Err(Orphan) => return Ok(()),
                };
                let now = monotonic_ns()?;
                let rest = lanes::obey(&mut self.lane, command, now, &mut self.leaving);
                self.let_go()?;
                match rest {
                    Some(Command::Count(reply)) => drop(reply.try_send(self.counts())),
                    Some(Command::Stop(reply)) => {
                        let done = self.leave();
                        let _ = reply.try_send(done.map_err(|error| format!("{error:#}")));
                        return Ok(());
                    }
                    _ => {}
                }
            }
            if came == 0 && left == 0 {
                self.rest(next)?;
            }
        }
    }

    /// Takes what came; how many packets.
    fn take(&mut self, now: u64) -> anyhow::Result<usize> {
        let (mut came, mut refused) = (0, Vec::new());
        let (side, link) = (self.side, [self.inside, self.out, self.mtu]);
        for (packet, held) in self.queue.receive(Wait::Not)?.packets {
            came += 1;
            let Some(handle) = self.free.pop() else {
                refused.push(held);
                continue;
            };
            let (frame, head, bytes) = describe(&packet, now, side, link);
            self.lane
                .arrive(handle, &frame, &head.bytes[..head.len], bytes);
            self.held[handle as usize] = Some(held);
        }
        self.no_handle += refused.len() as u64;
        for held in refused {
            self.queue.release().give(held, Verdict::DROP)?;
        }
        Ok(came)
    }

    /// Gives verdicts on what leaves; how many.
    fn let_go(&mut self) -> anyhow::Result<usize> {
        let mut verdicts = self.queue.release();
        let left = self.leaving.len();
        for leaving in self.leaving.drain(..) {
            let (handle, verdict) = match leaving {
                Leaving::Send { handle, .. } => (handle, Verdict::ACCEPT),
                Leaving::Drop { handle } => (handle, Verdict::DROP),
            };
            if let Some(held) = self.held[handle as usize].take() {
                self.free.push(handle);
                // Kept where it could not be sent, and sent with the next.
                self.failed += u64::from(verdicts.give(held, verdict).is_err());
            }
        }
        if left > 0 {
            self.failed += u64::from(verdicts.flush().is_err());
        }
        Ok(left)
    }

    fn counts(&self) -> Counts {
        Counts {
            own: self.queue.counters(),
            kernel: self.queue.kernel_counts().ok(),
            no_handle: self.no_handle,
            failed: self.failed,
            held: self.queue.held(),
        }
    }

    /// Lets everything go, in the order of its arrival, and takes nothing more.
    fn leave(&mut self) -> anyhow::Result<u64> {
        let held = self.queue.held();
        self.queue.release_all(Verdict::ACCEPT)?;
        Ok(held + self.queue.drain(DRAIN, |_| Verdict::ACCEPT)?)
    }

    /// Until a packet comes, one may leave, or somebody wants something.
    fn rest(&self, next: Option<u64>) -> anyhow::Result<()> {
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        let mut fds = [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN), bell];
        let wait = match next {
            Some(at) => Some(Duration::from_nanos(at.saturating_sub(monotonic_ns()?))),
            None => None,
        };
        match ppoll(&mut fds, wait.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for packets"),
        }
        // It is rung after the telling: what comes after this reading rings it again.
        let _ = self.bell.read();
        Ok(())
    }
}

/// An Ethernet header and what follows.
struct Head {
    bytes: [u8; (ETHERNET + HEADER_BYTES) as usize],
    len: usize,
}

/// The packet as the classifier and policies know packets: its frame, first bytes, bytes on the wire.
fn describe(
    packet: &Packet<'_>,
    now: u64,
    side: Side,
    [inside, out, mtu]: [u32; 3],
) -> (Frame, Head, u32) {
    let payload = packet.payload();
    let mut head = Head {
        bytes: [0; (ETHERNET + HEADER_BYTES) as usize],
        len: 0,
    };
    let copied = payload.len().min(HEADER_BYTES as usize);
    head.bytes[12..14].copy_from_slice(&packet.ether_type().0.to_be_bytes());
    head.bytes[14..14 + copied].copy_from_slice(&payload[..copied]);
    head.len = ETHERNET as usize + copied;
    let segments = segments(packet, payload, mtu);
    let (segs, bytes) = (segments.count.get(), segments.bytes);
    // The end whose class counts must be the one of whose link something is known.
    let way = match side {
        Side::Down => Way::Out,
        Side::Up => Way::In,
    };
    let came_by = packet.devices().input.map_or(0, |index| index.0);
    let frame = Frame {
        now,
        wire_len: bytes,
        segs,
        ifindex: match side {
            Side::Down => out,
            Side::Up if came_by != 0 => came_by,
            Side::Up => inside,
        },
        rx_ifindex: came_by,
        link: Link::Ethernet as u16,
        way: way as u8,
        mark: packet.mark(),
        ..Frame::default()
    };
    (frame, head, bytes)
}

/// What a packet is on the wire.
#[derive(Debug, PartialEq, Eq)]
struct Segments {
    count: NonZeroU32,
    bytes: u32,
}

/// A super-packet's segments carry as much as the MTU allows, each with all headers.
fn segments(packet: &Packet<'_>, payload: &[u8], mtu: u32) -> Segments {
    segments_of(
        packet.len(),
        packet.info().gso(),
        header_bytes(payload),
        mtu,
    )
}

fn segments_of(len: u32, gso: bool, headers: u32, mtu: u32) -> Segments {
    let room = mtu.saturating_sub(headers).max(1);
    let count = match gso && len > mtu {
        true => len.saturating_sub(headers).div_ceil(room).max(1),
        false => 1,
    };
    let bytes = len + (count - 1) * headers + count * ETHERNET;
    Segments {
        count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN),
        bytes,
    }
}

/// Bytes of the headers that each segment of a super-packet repeats: IP and TCP or UDP.
fn header_bytes(ip: &[u8]) -> u32 {
    let byte = |at: usize| u32::from(ip.get(at).copied().unwrap_or(0));
    let (network, protocol) = match byte(0) >> 4 {
        4 => ((byte(0) & 15) * 4, byte(9)),
        _ => (40, byte(6)),
    };
    let transport = match protocol {
        6 => (byte(network as usize + 12) >> 4) * 4,
        _ => 8,
    };
    network + transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_packet_is_charged_as_its_segments() {
        let of = |len, gso| {
            let Segments { count, bytes } = segments_of(len, gso, 52, 1500);
            (count.get(), bytes)
        };
        assert_eq!(of(1500, false), (1, 1514));
        assert_eq!(of(60, false), (1, 74));
        // 45 segments of 1448 bytes of data: 45 * 1514 on the wire.
        assert_eq!(of(52 + 45 * 1448, true), (45, 45 * 1514));
        assert_eq!(of(52 + 1448 + 1, true), (2, 1514 + 52 + 1 + 14));
        // An MTU that cannot be is survived.
        let _ = segments_of(60_000, true, 52, 40);
    }

    #[test]
    fn headers_are_measured_in_both_families() {
        let mut ip = [0; 64];
        (ip[0], ip[9], ip[32]) = (0x45, 6, 0x80);
        assert_eq!(header_bytes(&ip), 52);
        let mut ip = [0; 64];
        (ip[0], ip[6], ip[52]) = (0x60, 6, 0x50);
        assert_eq!(header_bytes(&ip), 60);
        assert_eq!(header_bytes(&[]), 48);
    }
}
