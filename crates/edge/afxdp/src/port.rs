//! The port: sockets that share a UMEM, and the cycle of its frames.
//!
//! ```text
//!   refill -> fill ring -> kernel -> RX ring -> receive -> held: bytes, bytes_mut
//!      ^                                                    |        |
//!    free <- reap <- completion ring <- kernel <- TX ring <-+ send   + discard
//! ```
//!
//! Invariant: every frame is free, in the kernel, or held by the user of the port, and
//! [`Port::frames`] always adds up to the same number. A held frame stays until it is sent or
//! discarded. Sending never fails silently: without capacity, the frame stays held. If an interface
//! is removed, its queue returns its frames and the others continue.
//!
//! One thread uses a port. Deliberately absent: order, time, and the meaning of packets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fairpath_units::Nanos;
use libc::xdp_desc;

use crate::frames::{FrameCounts, FrameId, Frames, MAX_PARTS};
use crate::metadata::{FrameMetadata, METADATA_BYTES};
use crate::open::{Copying, LinkQueue, MAX_RING, MAX_SOCKETS, OpenError, Plan};
use crate::socket::{self, Options, RingStatistics, SendResult, Socket};
use crate::umem::Umem;

/// Bytes of metadata that the XDP program writes before a packet: the time of arrival.
const STAMP_BYTES: u32 = 8;
/// Headers that a forwarder reads of most packets: Ethernet, IPv4 and TCP.
const HEADER_BYTES: u32 = 14 + 20 + 20;
/// Retries of a busy queue and the pause between them: half a second in total.
const BUSY_TRIES: u32 = 100;
/// See [`BUSY_TRIES`].
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// A queue of the plan, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(pub usize);

/// The state of a queue's link at its last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It sends.
    Up,
    /// Down or without carrier, perhaps temporarily.
    Down,
    /// The interface was removed, with the packets in its rings. The port must be opened again when
    /// it returns.
    Removed,
}

/// Counters of a queue, in addition to those of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets received.
    pub received: u64,
    /// Packets handed to the kernel to be sent.
    pub sent: u64,
    /// Sent frames that the kernel returned.
    pub completed: u64,
    /// Calls to the kernel for sending.
    pub kicks: u64,
    /// Calls that returned "later" or "link down".
    pub put_off: u64,
    /// Completed packets that the kernel dropped because the link had no carrier.
    pub refused: u64,
    /// Sent packets that were not completed when the interface was removed.
    pub lost: u64,
    /// Packets of more frames than the kernel sends: dropped, and not received.
    pub too_long: u64,
}

/// A queue, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// The queue.
    pub link: LinkQueue,
    /// The state of its link.
    pub state: LinkState,
    /// Counters of the port.
    pub counts: QueueCounts,
    /// Counters of the kernel; zeros after the interface was removed.
    pub kernel: RingStatistics,
}

struct Queue {
    link: LinkQueue,
    /// None: the interface was removed.
    socket: Option<Socket>,
    state: LinkState,
    counts: QueueCounts,
    /// Frames in the fill ring or in the kernel for reception.
    filling: u32,
    /// Sent and not completed: at most the size of the completion ring.
    sending: u32,
    /// Written to the TX ring since the last kick.
    unkicked: u32,
    /// A packet whose last frame has not arrived yet.
    open: Option<OpenPacket>,
}

/// A packet of several frames while they arrive.
#[derive(Clone, Copy)]
struct OpenPacket {
    head: FrameId,
    last: FrameId,
    too_long: bool,
}

/// An open port. Dropping it closes the sockets, and the stack gets the traffic again.
pub struct Port {
    queues: Vec<Queue>,
    frames: Frames,
    ring: u32,
    holdable: u32,
    /// Frames of the largest packet.
    parts: u32,
    zero_copy: bool,
    umem: Umem,
}

impl Port {
    /// Opens a socket for each queue of the plan, all on one UMEM, with full fill rings.
    ///
    /// With [`Copying::Tried`], one driver without zero copy makes all copy. Nothing arrives before
    /// the sockets are in the map of an XDP program.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(plan: &Plan) -> Result<Port, OpenError> {
        check(plan)?;
        let mut port = match (Port::bind_when_free(plan, plan.copying), plan.copying) {
            (Err(error @ OpenError::Socket { .. }), Copying::Tried) if !is_busy(&error) => {
                Port::bind_when_free(plan, Copying::Copy)?
            }
            (result, _) => result?,
        };
        for queue in 0..port.queues.len() {
            port.refill(QueueId(queue));
        }
        Ok(port)
    }

    /// Retries while a queue is busy: the kernel frees the queues of a dead process a little later.
    fn bind_when_free(plan: &Plan, copying: Copying) -> Result<Port, OpenError> {
        for _ in 0..BUSY_TRIES {
            match Port::bind(plan, copying) {
                Err(error) if is_busy(&error) => std::thread::sleep(BUSY_PAUSE),
                result => return result,
            }
        }
        Port::bind(plan, copying)
    }

    fn bind(plan: &Plan, copying: Copying) -> Result<Port, OpenError> {
        let umem = Umem::map(plan.frames, plan.frame_bytes, plan.node)?;
        let mut queues: Vec<Queue> = Vec::new();
        for link in &plan.queues {
            let first = queues.first().and_then(|queue| queue.socket.as_ref());
            let options = Options {
                copying,
                several: plan.parts > 1,
            };
            let socket = Socket::open(link, &umem, plan.ring, options, first)?;
            queues.push(Queue {
                link: link.clone(),
                socket: Some(socket),
                state: LinkState::Up,
                counts: QueueCounts::default(),
                filling: 0,
                sending: 0,
                unkicked: 0,
                open: None,
            });
        }
        let mut sockets = queues.iter().flat_map(|queue| &queue.socket);
        Ok(Port {
            zero_copy: sockets.all(|socket| socket.is_zero_copy().unwrap_or(false)),
            holdable: plan.holdable(),
            parts: plan.parts,
            queues,
            frames: Frames::new(plan.frames, plan.frame_bytes),
            ring: plan.ring,
            umem,
        })
    }

    /// The queues, in the order of the plan, with the socket of each for the map of the XDP
    /// program. Queues of removed interfaces are omitted.
    pub fn sockets(&self) -> impl Iterator<Item = (&LinkQueue, BorrowedFd<'_>)> {
        let queues = self.queues.iter();
        queues.filter_map(|queue| Some((&queue.link, queue.socket.as_ref()?.as_fd())))
    }

    /// The socket of a queue, for polling; none after its interface was removed.
    pub fn socket(&self, queue: QueueId) -> Option<BorrowedFd<'_>> {
        self.queues[queue.0].socket.as_ref().map(Socket::as_fd)
    }

    /// A queue of the plan.
    pub fn link(&self, queue: QueueId) -> &LinkQueue {
        &self.queues[queue.0].link
    }

    /// The state of a queue's link when the port last sent or checked ([`Port::look`]).
    pub fn state(&self, queue: QueueId) -> LinkState {
        self.queues[queue.0].state
    }

    /// Packets that may be held without stopping reception.
    pub fn holdable(&self) -> u32 {
        self.holdable
    }

    /// True if all queues use zero copy.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Frames of the largest packet.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Frames by state.
    pub fn frames(&self) -> FrameCounts {
        self.frames.counts()
    }

    /// Descriptors and calls for a frame in another state; 0 unless there is a defect.
    pub fn strays(&self) -> u64 {
        self.frames.strays
    }

    /// Counters of a queue.
    pub fn counts(&self, queue: QueueId) -> QueueCounts {
        self.queues[queue.0].counts
    }

    /// Counters of the kernel for the socket of a queue, constant after its interface was removed.
    ///
    /// # Errors
    /// The error of the kernel; a bound socket always answers.
    pub fn statistics(&self, queue: QueueId) -> io::Result<RingStatistics> {
        let socket = self.queues[queue.0].socket.as_ref();
        socket.map_or(Ok(RingStatistics::default()), Socket::statistics)
    }

    /// The whole state of a queue. A system call.
    ///
    /// # Errors
    /// As [`Port::statistics`].
    pub fn report(&self, queue: QueueId) -> io::Result<QueueReport> {
        Ok(QueueReport {
            link: self.link(queue).clone(),
            state: self.state(queue),
            counts: self.counts(queue),
            kernel: self.statistics(queue)?,
        })
    }

    /// Puts free frames into the fill ring of a queue, as many as fit.
    pub fn refill(&mut self, queue: QueueId) {
        let Queue {
            socket: Some(socket),
            filling,
            ..
        } = &mut self.queues[queue.0]
        else {
            return;
        };
        let wanted = self.ring - (*filling).min(self.ring);
        for _ in 0..socket.fill.capacity(wanted) {
            let Some(address) = self.frames.take(queue.0) else {
                break;
            };
            // The capacity was reserved.
            socket.fill.push(address);
            *filling += 1;
        }
        socket.fill.submit();
    }

    /// Appends up to `most` received packets of a queue to `into`; they are held from then on.
    pub fn receive(&mut self, queue: QueueId, most: usize, into: &mut Vec<FrameId>) -> usize {
        let Queue {
            socket: Some(socket),
            counts,
            filling,
            open,
            ..
        } = &mut self.queues[queue.0]
        else {
            return 0;
        };
        let before = into.len();
        while into.len() - before < most {
            let Some(entry) = socket.rx.pop() else {
                break;
            };
            let Some(frame) = self.frames.arrive(entry.addr, entry.len) else {
                continue;
            };
            *filling -= 1;
            let continued = entry.options & libc::XDP_PKT_CONTD != 0;
            if !continued && open.is_none() {
                into.push(frame);
                continue;
            }
            let packet = OpenPacket::with(open.take(), frame, &mut self.frames);
            match (continued, packet.too_long) {
                (true, _) => *open = Some(packet),
                (false, true) => {
                    self.frames.drop(packet.head);
                    counts.too_long += 1;
                }
                (false, false) => into.push(packet.head),
            }
        }
        socket.rx.release();
        let received = into.len() - before;
        counts.received += received as u64;
        received
    }

    /// A held packet from the Ethernet header on: its first frame. Empty if it is not held.
    pub fn bytes(&self, frame: FrameId) -> &[u8] {
        let held = self.frames.packet(frame);
        // SAFETY: `packet` returns held frames only.
        held.and_then(|(address, len)| unsafe { self.umem.get(address, len) })
            .unwrap_or_default()
    }

    /// Like [`Port::bytes`], mutable.
    pub fn bytes_mut(&mut self, frame: FrameId) -> &mut [u8] {
        let held = self.frames.packet(frame);
        // SAFETY: `packet` returns held frames only.
        held.and_then(|(address, len)| unsafe { self.umem.get_mut(address, len) })
            .unwrap_or_default()
    }

    /// A held packet's bytes, one slice for each frame.
    pub fn each(&self, frame: FrameId) -> impl Iterator<Item = &[u8]> {
        let each = self.frames.each(frame);
        // SAFETY: of a held packet only.
        each.filter_map(|(address, len)| unsafe { self.umem.get(address, len) })
    }

    /// The length of a held packet in bytes, all frames together. `first` is that of its first frame.
    pub(crate) fn length(&self, frame: FrameId, first: usize) -> usize {
        match self.frames.parts(frame) {
            1 => first,
            _ => self.each(frame).map(<[u8]>::len).sum(),
        }
    }

    /// Inverts bits of the byte at `offset` of a held packet. False: it is shorter.
    pub(crate) fn invert(&mut self, frame: FrameId, offset: usize, mask: u8) -> bool {
        let mut left = offset as u64;
        let mut each = self.frames.each(frame);
        let part = each.find_map(|(address, len)| {
            let here = (left < u64::from(len)).then_some(address + left);
            left = left.saturating_sub(len.into());
            here
        });
        // SAFETY: a byte of a held packet.
        let byte = part.and_then(|address| unsafe { self.umem.get_mut(address, 1) });
        byte.is_some_and(|byte| {
            byte[0] ^= mask;
            true
        })
    }

    /// The metadata of a held packet from the XDP program, if it writes any.
    pub fn metadata(&self, frame: FrameId) -> Option<FrameMetadata> {
        let bytes = self.head(frame, 0)?;
        FrameMetadata::read(bytes.first_chunk()?)
    }

    /// Loads the metadata and the headers of a held packet into the cache, without waiting.
    pub(crate) fn prefetch_head(&self, frame: FrameId) {
        if let Some(head) = self.head(frame, HEADER_BYTES) {
            fairpath_core::prefetch(head);
        }
    }

    /// The metadata of a held packet and its first bytes, `most` of them at most.
    fn head(&self, frame: FrameId, most: u32) -> Option<&[u8]> {
        let (address, len) = self.frames.packet(frame)?;
        let before = address.checked_sub(METADATA_BYTES as u64)?;
        // SAFETY: of the same held frame, whose packets begin after the kernel's headroom.
        unsafe { self.umem.get(before, METADATA_BYTES as u32 + len.min(most)) }
    }

    /// The time at which a held packet reached the XDP program (`CLOCK_MONOTONIC`), if that writes
    /// it.
    ///
    /// Undefined for packets of a program that does not.
    pub fn stamp(&self, frame: FrameId) -> Option<Nanos> {
        let (address, _) = self.frames.packet(frame)?;
        let before = address.checked_sub(u64::from(STAMP_BYTES))?;
        // SAFETY: of the same held frame, whose packets begin after the kernel's headroom.
        let bytes = unsafe { self.umem.get(before, STAMP_BYTES) }?;
        Some(Nanos(u64::from_ne_bytes(bytes.try_into().ok()?)))
    }

    /// Packets of any length that the TX ring of a queue accepts now, at most `most`.
    pub fn capacity(&mut self, queue: QueueId, most: u32) -> u32 {
        self.entries(queue, most.saturating_mul(self.parts)) / self.parts
    }

    /// Entries of a TX ring that can be used now, at most `most`.
    fn entries(&mut self, queue: QueueId, most: u32) -> u32 {
        let ring = self.ring;
        let queue = &mut self.queues[queue.0];
        let completable = ring - queue.sending.min(ring);
        let entries = |socket: &mut Socket| socket.tx.capacity(most).min(completable);
        queue.socket.as_mut().map_or(0, entries)
    }

    /// Puts a held packet into the TX ring of a queue; [`Port::flush`] sends. False if the ring has
    /// not an entry for each of its frames, or the packet is not held.
    pub fn send(&mut self, queue: QueueId, frame: FrameId) -> bool {
        let parts = self.frames.parts(frame);
        if self.entries(queue, parts) < parts {
            return false;
        }
        if self.frames.packet(frame).is_none() {
            self.frames.strays += 1;
            return false;
        }
        let number = queue.0;
        let queue = &mut self.queues[number];
        let Some(socket) = &mut queue.socket else {
            return false;
        };
        for (part, (addr, len)) in (1..).zip(self.frames.each(frame)) {
            let options = match part < parts {
                true => libc::XDP_PKT_CONTD,
                false => 0,
            };
            socket.tx.push(xdp_desc { addr, len, options });
        }
        self.frames.send(frame, number);
        queue.sending += parts;
        queue.unkicked += parts;
        queue.counts.sent += 1;
        true
    }

    /// A duplicate of a held packet, held as well; `None` if too few frames are free.
    pub fn copy(&mut self, of: FrameId) -> Option<FrameId> {
        let copy = self.frames.copy(of)?;
        let bytes: Vec<Vec<u8>> = self.each(of).map(<[u8]>::to_vec).collect();
        for ((address, len), bytes) in self.frames.each(copy).zip(bytes) {
            // SAFETY: of a held packet.
            let part = unsafe { self.umem.get_mut(address, len) };
            part?.copy_from_slice(&bytes);
        }
        Some(copy)
    }

    /// Drops a held packet. False if it was not held.
    pub fn discard(&mut self, frame: FrameId) -> bool {
        self.frames.drop(frame)
    }

    /// Publishes the TX ring of a queue and wakes the kernel, if it needs to be woken.
    pub fn flush(&mut self, queue: QueueId) {
        let Queue {
            socket: Some(socket),
            counts,
            unkicked,
            ..
        } = &mut self.queues[queue.0]
        else {
            return;
        };
        socket.tx.submit();
        if *unkicked == 0 {
            return;
        }
        counts.kicks += 1;
        let mut kicked = socket.kick(*unkicked);
        if kicked == SendResult::Refused {
            // One refused packet may have its own reason. A second one means that the link is down.
            counts.refused += 1;
            kicked = socket.wake();
        }
        self.record_state(queue, kicked);
    }

    /// Checks the state of the link through the socket. Packets in the TX ring leave, if possible.
    /// A system call.
    pub fn look(&mut self, queue: QueueId) -> LinkState {
        if let Some(socket) = &self.queues[queue.0].socket {
            let reported = socket.wake();
            self.record_state(queue, reported);
        }
        self.state(queue)
    }

    fn record_state(&mut self, queue: QueueId, kicked: SendResult) {
        let number = queue.0;
        let queue = &mut self.queues[number];
        let Some(socket) = &mut queue.socket else {
            return;
        };
        queue.unkicked = match kicked {
            SendResult::Sent => 0,
            _ => socket.tx.unread(),
        };
        queue.counts.put_off += u64::from(kicked != SendResult::Sent);
        queue.counts.refused += u64::from(kicked == SendResult::Refused);
        queue.state = match kicked {
            SendResult::Sent | SendResult::Later => LinkState::Up,
            SendResult::Down | SendResult::Refused => LinkState::Down,
            SendResult::Removed => LinkState::Removed,
        };
        if kicked == SendResult::Removed {
            self.close(QueueId(number));
        }
    }

    /// Reclaims the frames in the rings of a queue whose interface was removed.
    fn close(&mut self, queue: QueueId) {
        self.reap(queue);
        let number = queue.0;
        let queue = &mut self.queues[number];
        queue.socket = None;
        (queue.filling, queue.sending, queue.unkicked) = (0, 0, 0);
        if let Some(packet) = queue.open.take() {
            self.frames.drop(packet.head);
        }
        queue.counts.lost += u64::from(self.frames.take_back(number));
    }

    /// Reclaims the sent frames of a queue.
    pub fn reap(&mut self, queue: QueueId) -> u32 {
        let queue = &mut self.queues[queue.0];
        let Some(socket) = &mut queue.socket else {
            return 0;
        };
        let mut back = 0;
        while let Some(address) = socket.completion.pop() {
            back += u32::from(self.frames.complete(address));
        }
        socket.completion.release();
        queue.sending -= back.min(queue.sending);
        queue.counts.completed += u64::from(back);
        back
    }

    /// Entries of the TX ring of a queue that the kernel delayed.
    pub fn unsent(&self, queue: QueueId) -> u32 {
        self.queues[queue.0].unkicked
    }

    /// The number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Never: a port has at least one queue.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

impl OpenPacket {
    /// A frame after those that arrived; the first one if none did.
    fn with(open: Option<OpenPacket>, frame: FrameId, frames: &mut Frames) -> OpenPacket {
        let Some(mut packet) = open else {
            return OpenPacket {
                head: frame,
                last: frame,
                too_long: false,
            };
        };
        match !packet.too_long && frames.join(packet.head, packet.last, frame) {
            true => packet.last = frame,
            false => {
                packet.too_long = true;
                frames.drop(frame);
            }
        }
        packet
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("queues", &self.queues.len())
            .field("frames", &self.frames.counts())
            .field("zero_copy", &self.zero_copy)
            .finish_non_exhaustive()
    }
}

fn is_busy(error: &OpenError) -> bool {
    matches!(error, OpenError::Socket { source, .. } if source.raw_os_error() == Some(libc::EBUSY))
}

fn check(plan: &Plan) -> Result<(), OpenError> {
    let queues = plan.queues.len();
    if !plan.ring.is_power_of_two() || plan.ring > MAX_RING {
        return Err(OpenError::Ring(plan.ring));
    }
    if !(1..=MAX_PARTS).contains(&plan.parts) || plan.parts > plan.ring {
        return Err(OpenError::Parts(plan.parts));
    }
    if !(1..=MAX_SOCKETS).contains(&queues) || plan.held == 0 || plan.holdable() < plan.held {
        return Err(OpenError::TooFew {
            queues,
            frames: plan.frames,
            held: plan.held.saturating_mul(plan.parts),
            rings: plan.in_rings(),
        });
    }
    plan.queues
        .iter()
        .try_for_each(|link| check_mtu(link, plan))
}

fn check_mtu(link: &LinkQueue, plan: &Plan) -> Result<(), OpenError> {
    let requested = socket::query_socket().and_then(|fd| socket::mtu(fd.as_fd(), &link.name));
    let mtu = requested.map_err(|source| OpenError::Socket {
        doing: "look up the MTU for the",
        name: link.name.clone(),
        queue: link.queue,
        source,
    })?;
    let largest = plan.max_mtu();
    if mtu > largest {
        return Err(OpenError::Mtu {
            name: link.name.clone(),
            mtu,
            largest,
            frame_bytes: plan.frame_bytes,
            parts: plan.parts,
        });
    }
    Ok(())
}
