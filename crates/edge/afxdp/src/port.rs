//! The port: sockets that share a UMEM, and frames that go round between them.
//!
//! ```text
//!   refill -> fill ring -> kernel -> RX ring -> receive -> held: bytes, bytes_mut
//!      ^                                                    |        |
//!    free <- reap <- completion ring <- kernel <- TX ring <-+ send   + discard
//! ```
//!
//! Invariant: every frame is free, with the kernel, or held by the port's user, and
//! [`Port::frames`] adds up to the same number at any time. A held frame stays until it is sent or
//! discarded; sending never fails silently: what finds no room stays held. A queue whose interface is
//! removed gives its frames back and leaves the others working.
//!
//! A port is one thread's. Deliberately absent: order, time, and what packets mean.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fairpath_units::Nanos;
use libc::xdp_desc;

use crate::frames::{FrameCounts, FrameId, Frames};
use crate::note::{NOTE_BYTES, Note};
use crate::open::{Copying, LinkQueue, MAX_RING, MAX_SOCKETS, OpenError, Plan};
use crate::socket::{self, Kicked, RingStatistics, Socket};
use crate::umem::Umem;

/// Bytes of metadata that the XDP program writes before a packet: when it came.
const STAMP_BYTES: u32 = 8;
/// How often a busy queue is tried, and how long a pause is: half a second in all.
const BUSY_TRIES: u32 = 100;
/// See [`BUSY_TRIES`].
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Which of the plan's queues, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(pub usize);

/// How a queue's link is, as far as its socket told when it was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It sends.
    Up,
    /// It is down or has no carrier; that may change.
    Down,
    /// The interface was removed, and with it what its rings held: the port must be opened again when
    /// it is back.
    Gone,
}

/// What a queue did, in addition what the kernel counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets received.
    pub received: u64,
    /// Packets handed to the kernel to be sent.
    pub sent: u64,
    /// Sent, and their frames back.
    pub completed: u64,
    /// Calls that told the kernel to send.
    pub kicks: u64,
    /// Those that it answered with "later" or "link down".
    pub put_off: u64,
    /// Of the completed, packets that the kernel dropped since the link had no carrier.
    pub refused: u64,
    /// Of the sent, packets that were not completed when the interface was removed.
    pub lost: u64,
}

/// A queue, for who shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Which.
    pub link: LinkQueue,
    /// How its link is.
    pub state: LinkState,
    /// What the port did.
    pub counts: QueueCounts,
    /// What the kernel counted; zeros once the interface is gone.
    pub kernel: RingStatistics,
}

struct Queue {
    link: LinkQueue,
    /// None: its interface is gone.
    socket: Option<Socket>,
    state: LinkState,
    counts: QueueCounts,
    /// Frames in the fill ring or with the kernel to be filled.
    filling: u32,
    /// Sent and not completed: never more than the completion ring has room for.
    sending: u32,
    /// Written to the TX ring since the last kick.
    unkicked: u32,
}

/// An open port; dropping it closes the sockets, and traffic goes to the stack again.
pub struct Port {
    queues: Vec<Queue>,
    frames: Frames,
    ring: u32,
    holdable: u32,
    zero_copy: bool,
    umem: Umem,
}

impl Port {
    /// Opens a socket for each queue of the plan, all on one UMEM, with full fill rings.
    ///
    /// With [`Copying::Tried`], one driver that must copy makes all copy. Nothing arrives before the
    /// sockets are in the map of an XDP program.
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

    /// Tries again while a queue is busy: the kernel frees those of a process that ended a little later.
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
            let socket = Socket::open(link, &umem, plan.ring, copying, first)?;
            queues.push(Queue {
                link: link.clone(),
                socket: Some(socket),
                state: LinkState::Up,
                counts: QueueCounts::default(),
                filling: 0,
                sending: 0,
                unkicked: 0,
            });
        }
        let mut sockets = queues.iter().flat_map(|queue| &queue.socket);
        Ok(Port {
            zero_copy: sockets.all(|socket| socket.is_zero_copy().unwrap_or(false)),
            holdable: plan.holdable(),
            queues,
            frames: Frames::new(plan.frames, plan.frame_bytes),
            ring: plan.ring,
            umem,
        })
    }

    /// The queues, in the plan's order, and the socket of each for the XDP program's map. Those whose
    /// interface is gone are omitted.
    pub fn sockets(&self) -> impl Iterator<Item = (&LinkQueue, BorrowedFd<'_>)> {
        let queues = self.queues.iter();
        queues.filter_map(|queue| Some((&queue.link, queue.socket.as_ref()?.as_fd())))
    }

    /// The socket of a queue, to be waited for; none where its interface is gone.
    pub fn socket(&self, queue: QueueId) -> Option<BorrowedFd<'_>> {
        self.queues[queue.0].socket.as_ref().map(Socket::as_fd)
    }

    /// A queue as the plan has it.
    pub fn link(&self, queue: QueueId) -> &LinkQueue {
        &self.queues[queue.0].link
    }

    /// How a queue's link was when the port last sent or looked ([`Port::look`]).
    pub fn state(&self, queue: QueueId) -> LinkState {
        self.queues[queue.0].state
    }

    /// Frames that may be held at once without receiving having to wait.
    pub fn holdable(&self) -> u32 {
        self.holdable
    }

    /// Whether drivers fill and empty frames themselves, on every queue.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Where the frames are.
    pub fn frames(&self) -> FrameCounts {
        self.frames.counts()
    }

    /// Descriptors and calls that named a frame that was elsewhere; 0 unless something is broken.
    pub fn strays(&self) -> u64 {
        self.frames.strays
    }

    /// What a queue did.
    pub fn counts(&self, queue: QueueId) -> QueueCounts {
        self.queues[queue.0].counts
    }

    /// What the kernel counted at a queue's socket; nothing more is told once its interface is gone.
    ///
    /// # Errors
    /// What the kernel says; a bound socket always answers.
    pub fn statistics(&self, queue: QueueId) -> io::Result<RingStatistics> {
        let socket = self.queues[queue.0].socket.as_ref();
        socket.map_or(Ok(RingStatistics::default()), Socket::statistics)
    }

    /// All that there is to tell of a queue. A system call.
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

    /// Gives free frames to a queue's fill ring, as many as fit: one ring full, if there are so many.
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
        for _ in 0..socket.fill.room(wanted) {
            let Some(address) = self.frames.take(queue.0) else {
                break;
            };
            // Room was asked for.
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
            ..
        } = &mut self.queues[queue.0]
        else {
            return 0;
        };
        let before = into.len();
        for _ in 0..most {
            let Some(entry) = socket.rx.pop() else {
                break;
            };
            if let Some(frame) = self.frames.arrive(entry.addr, entry.len) {
                into.push(frame);
                *filling -= 1;
            }
        }
        socket.rx.release();
        let received = into.len() - before;
        counts.received += received as u64;
        received
    }

    /// A held frame's packet, from the Ethernet header on; empty for a frame that is not held.
    pub fn bytes(&self, frame: FrameId) -> &[u8] {
        let held = self.frames.packet(frame);
        // SAFETY: `packet` tells of held frames only.
        held.and_then(|(address, len)| unsafe { self.umem.get(address, len) })
            .unwrap_or_default()
    }

    /// As [`Port::bytes`], to be changed.
    pub fn bytes_mut(&mut self, frame: FrameId) -> &mut [u8] {
        let held = self.frames.packet(frame);
        // SAFETY: `packet` tells of held frames only.
        held.and_then(|(address, len)| unsafe { self.umem.get_mut(address, len) })
            .unwrap_or_default()
    }

    /// What the XDP program noted about a held packet, if it notes anything.
    pub fn note(&self, frame: FrameId) -> Option<Note> {
        let (address, _) = self.frames.packet(frame)?;
        let before = address.checked_sub(NOTE_BYTES as u64)?;
        // SAFETY: of the same held frame, whose packets begin behind the kernel's headroom.
        let bytes = unsafe { self.umem.get(before, NOTE_BYTES as u32) }?;
        Note::read(bytes.first_chunk()?)
    }

    /// When a held packet came to the XDP program (`CLOCK_MONOTONIC`), if that writes the time.
    ///
    /// Meaningless for packets of a program that does not.
    pub fn stamp(&self, frame: FrameId) -> Option<Nanos> {
        let (address, _) = self.frames.packet(frame)?;
        let before = address.checked_sub(u64::from(STAMP_BYTES))?;
        // SAFETY: of the same held frame, whose packets begin behind the kernel's headroom.
        let bytes = unsafe { self.umem.get(before, STAMP_BYTES) }?;
        Some(Nanos(u64::from_ne_bytes(bytes.try_into().ok()?)))
    }

    /// Packets that a queue's TX ring takes now, at most `most`.
    pub fn room(&mut self, queue: QueueId, most: u32) -> u32 {
        let ring = self.ring;
        let queue = &mut self.queues[queue.0];
        let completable = ring - queue.sending.min(ring);
        let room = |socket: &mut Socket| socket.tx.room(most).min(completable);
        queue.socket.as_mut().map_or(0, room)
    }

    /// Puts a held packet into a queue's TX ring; [`Port::flush`] sends. False: no room, or not held.
    pub fn send(&mut self, queue: QueueId, frame: FrameId) -> bool {
        if self.room(queue, 1) == 0 {
            return false;
        }
        let Some((address, len)) = self.frames.packet(frame) else {
            self.frames.strays += 1;
            return false;
        };
        let number = queue.0;
        let queue = &mut self.queues[number];
        let Some(socket) = &mut queue.socket else {
            return false;
        };
        self.frames.send(frame, number);
        socket.tx.push(xdp_desc {
            addr: address,
            len,
            options: 0,
        });
        queue.sending += 1;
        queue.unkicked += 1;
        queue.counts.sent += 1;
        true
    }

    /// A second packet with the bytes of a held one, held as well; `None` where no frame is free.
    pub fn copy(&mut self, of: FrameId) -> Option<FrameId> {
        let copy = self.frames.copy(of)?;
        let bytes = self.bytes(of).to_vec();
        self.bytes_mut(copy).copy_from_slice(&bytes);
        Some(copy)
    }

    /// Forgets a held packet. False: it was not held.
    pub fn discard(&mut self, frame: FrameId) -> bool {
        self.frames.drop(frame)
    }

    /// Publishes what was put into a queue's TX ring and tells the kernel, if it wants to be told.
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
        if kicked == Kicked::Refused {
            // One packet may be refused for its own sake; a second one tells of the link.
            counts.refused += 1;
            kicked = socket.tell();
        }
        self.note_state(queue, kicked);
    }

    /// Asks the socket how its link is; what waits in the TX ring leaves, if it can. A system call.
    pub fn look(&mut self, queue: QueueId) -> LinkState {
        if let Some(socket) = &self.queues[queue.0].socket {
            let told = socket.tell();
            self.note_state(queue, told);
        }
        self.state(queue)
    }

    fn note_state(&mut self, queue: QueueId, kicked: Kicked) {
        let number = queue.0;
        let queue = &mut self.queues[number];
        let Some(socket) = &mut queue.socket else {
            return;
        };
        queue.unkicked = match kicked {
            Kicked::Sent => 0,
            _ => socket.tx.unread(),
        };
        queue.counts.put_off += u64::from(kicked != Kicked::Sent);
        queue.counts.refused += u64::from(kicked == Kicked::Refused);
        queue.state = match kicked {
            Kicked::Sent | Kicked::Later => LinkState::Up,
            Kicked::Down | Kicked::Refused => LinkState::Down,
            Kicked::Gone => LinkState::Gone,
        };
        if kicked == Kicked::Gone {
            self.close(QueueId(number));
        }
    }

    /// Takes back what the rings of a queue have, whose interface the kernel has let go of.
    fn close(&mut self, queue: QueueId) {
        self.reap(queue);
        let number = queue.0;
        let queue = &mut self.queues[number];
        queue.socket = None;
        (queue.filling, queue.sending, queue.unkicked) = (0, 0, 0);
        queue.counts.lost += u64::from(self.frames.take_back(number));
    }

    /// Takes frames back that a queue has sent.
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

    /// Packets in a queue's TX ring that the kernel put off.
    pub fn unsent(&self, queue: QueueId) -> u32 {
        self.queues[queue.0].unkicked
    }

    /// How many queues there are.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Never: a port has a queue at least.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
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
    if !(1..=MAX_SOCKETS).contains(&queues) || plan.held == 0 || plan.holdable() < plan.held {
        return Err(OpenError::TooFew {
            queues,
            frames: plan.frames,
            held: plan.held,
            rings: plan.frames - plan.holdable(),
        });
    }
    plan.queues
        .iter()
        .try_for_each(|link| check_mtu(link, plan.frame_bytes))
}

fn check_mtu(link: &LinkQueue, frame_bytes: u32) -> Result<(), OpenError> {
    let asked = socket::asking().and_then(|fd| socket::mtu(fd.as_fd(), &link.name));
    let mtu = asked.map_err(|source| OpenError::Socket {
        doing: "look up the MTU for the",
        name: link.name.clone(),
        queue: link.queue,
        source,
    })?;
    let largest = Plan::largest_mtu(frame_bytes);
    if mtu > largest {
        return Err(OpenError::Mtu {
            name: link.name.clone(),
            mtu,
            largest,
            frame_bytes,
        });
    }
    Ok(())
}
