//! A bound queue: packets in, verdicts out.
//!
//! There are two kinds, which differ in the use of a packet:
//!
//! | kind | a packet | verdicts | for |
//! |---|---|---|---|
//! | [`Holding`] | may be kept and released in any order | packed, one each | schedulers, delays |
//! | [`InOrder`] | is decided before the next one is read | packed, one for each run of equal ones
//! | filters, marking |
//!
//! The kernel's verdict for a run applies to *every* waiting packet with an id up to the given one,
//! so it would release held packets. Only the second kind uses it, and that kind cannot hold
//! packets.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::config::{Config, unbind_message};
use crate::counters::{Counters, KernelCounts, KernelTable};
use crate::error::{BindError, QueueError};
use crate::intake::{Intake, Packets};
use crate::packet::Packet;
use crate::rewrite::Rewrite;
use crate::socket::{Slots, Socket};
use crate::verdict::{Load, Pending, Verdict, Verdicts};

const BIND_SEQUENCE: u32 = 1;

/// The kind of a queue.
pub trait Mode: sealed::Sealed + Debug {}

mod sealed {
    pub trait Sealed {}
}

/// Packets may be kept and released in any order.
#[derive(Debug)]
pub enum Holding {}

/// Each packet is decided before the next one is read.
#[derive(Debug)]
pub enum InOrder {}

impl sealed::Sealed for Holding {}
impl sealed::Sealed for InOrder {}
impl Mode for Holding {}
impl Mode for InOrder {}

/// The time to wait for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until a packet arrives, or a signal.
    Forever,
    /// Until a packet arrives, or a signal, but at most this long.
    For(Duration),
    /// Not at all.
    Not,
}

/// The socket's receive buffer, as counted by the kernel (payload and about 2 KiB per packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Requested.
    pub requested_bytes: usize,
    /// Granted.
    pub bytes: usize,
    /// True if `net.core.rmem_max` was overridden. If not, and `bytes` is less than requested,
    /// raise it.
    pub forced: bool,
}

/// A packet queue of the namespace in which it was bound.
///
/// Dropping it unbinds it, and the kernel drops its waiting packets: call [`Queue::drain`] first.
/// It is `Send`: use one thread per queue, each with its own socket and queue number.
#[derive(Debug)]
pub struct Queue<M: Mode> {
    number: u16,
    socket: Socket,
    table: KernelTable,
    intake: Intake,
    pending: Pending,
    buffer: ReceiveBuffer,
    mode: PhantomData<fn() -> M>,
}

/// The result of one read, and the sink for verdicts.
#[derive(Debug)]
pub struct Received<'a> {
    /// The packets. Those that are not taken come again.
    pub packets: Packets<'a>,
    /// Gives verdicts, also for packets held earlier.
    pub verdicts: Verdicts<'a>,
}

/// The decision of a filter about one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The packet continues unchanged.
    Unchanged(Verdict),
    /// The packet gets new content.
    Changed(Verdict, Rewrite),
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Answer {
        Answer::Unchanged(verdict)
    }
}

impl Config {
    /// Binds the queue for packets that may be held and released in any order.
    ///
    /// Packets arrive from then on. In the calling thread's network namespace; needs
    /// `CAP_NET_ADMIN` there.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(&self) -> Result<Queue<Holding>, BindError> {
        Queue::open(self)
    }

    /// Binds the queue for packets that are decided one by one: at best a third less CPU than
    /// [`Config::bind`].
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_in_order(&self) -> Result<Queue<InOrder>, BindError> {
        Queue::open(self)
    }
}

impl<M: Mode> Queue<M> {
    fn open(config: &Config) -> Result<Queue<M>, BindError> {
        let number = config.queue;
        let failed = |operation| move |source| system(number, operation, source);
        let socket = Socket::open().map_err(|source| no_socket(number, source))?;
        let requested_bytes = config.buffer_wanted();
        let set = socket.set_receive_buffer(requested_bytes);
        let (bytes, forced) = set.map_err(failed("set the receive buffer"))?;
        let reports = socket.set_overrun_reports(config.overrun_reports);
        reports.map_err(failed("set the overrun reports"))?;
        let (count, slot_bytes) = config.slots();
        let mut intake = Intake::new(Slots::new(count, slot_bytes));
        let message = config.bind_message(BIND_SEQUENCE);
        socket.send(&message).map_err(failed("send the request"))?;
        let code = acknowledgement(&socket, &mut intake).map_err(failed("read the answer"))?;
        if code != 0 {
            let source = io::Error::from_raw_os_error(code);
            return Err(refused(config, socket.port(), source));
        }
        let table = KernelTable::open().map_err(failed("open the kernel's counts in /proc"))?;
        Ok(Queue {
            number,
            socket,
            table,
            intake,
            pending: Pending::new(number, fresh()),
            buffer: ReceiveBuffer {
                requested_bytes,
                bytes,
                forced,
            },
            mode: PhantomData,
        })
    }

    /// The queue's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The receive buffer that the kernel granted.
    pub fn receive_buffer(&self) -> ReceiveBuffer {
        self.buffer
    }

    /// Counters since binding.
    pub fn counters(&self) -> Counters {
        Counters {
            packets: self.intake.counters(),
            verdicts: self.pending.counters,
        }
    }

    /// The kernel's counters of this queue. Takes some microseconds, more with many queues.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn kernel_counts(&self) -> Result<KernelCounts, QueueError> {
        let failed = |source| QueueError::Counts {
            queue: self.number,
            source,
        };
        let line = self.table.look(self.number).map_err(failed)?;
        line.ok_or_else(|| failed(io::Error::other("the kernel does not list the queue")))
    }

    /// Sends queued verdicts, then reads unless packets of an earlier read are left.
    pub(crate) fn refill(&mut self, wait: Wait) -> Result<(), QueueError> {
        self.verdicts().flush()?;
        if !self.intake.is_empty() {
            return Ok(());
        }
        match self.socket.receive(self.intake.refill(), wait) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.intake.overrun();
                Ok(())
            }
            other => other.map_err(|source| QueueError::Receive {
                queue: self.number,
                source,
            }),
        }
    }

    pub(crate) fn verdicts(&mut self) -> Verdicts<'_> {
        Verdicts {
            pending: &mut self.pending,
            socket: &self.socket,
        }
    }

    /// Received packets without a verdict; always 0 if they are decided in order.
    pub fn held(&self) -> u64 {
        self.intake.counters().received - self.pending.settled
    }

    /// Decides about each packet of one read. Returns their number.
    pub(crate) fn decide_each<A: Into<Answer>>(
        &mut self,
        wait: Wait,
        decide: &mut impl FnMut(&Packet<'_>) -> A,
    ) -> Result<usize, QueueError> {
        self.refill(wait)?;
        let mut packets = self.intake.packets(self.pending.of);
        let mut verdicts = Verdicts {
            pending: &mut self.pending,
            socket: &self.socket,
        };
        let mut run = Run::default();
        let (mut count, mut outcome) = (0, Ok(()));
        while outcome.is_ok()
            && let Some(packet) = packets.peek()
        {
            let answer = decide(&packet).into();
            if let Answer::Changed(_, rewrite) = &answer
                && rewrite.id() != packet.id
            {
                outcome = Err(verdicts.other_queue(rewrite.id()));
                break;
            }
            packets.hand_out(&packet);
            count += 1;
            outcome = run.add(&packet, answer, &mut verdicts);
        }
        let ended = run.end(&mut verdicts);
        verdicts.pending.settled += count as u64;
        outcome.and(ended).and_then(|()| verdicts.flush())?;
        Ok(count)
    }
}

impl Queue<Holding> {
    /// Sends queued verdicts, then reads the available packets: at most [`Config::at_once`].
    ///
    /// Returns none after the time limit or a signal, or if only refusals arrived. Two system calls
    /// under load, for up to 64 packets each.
    ///
    /// # Errors
    /// If the socket fails. A full receive buffer is counted, and is not an error.
    pub fn receive(&mut self, wait: Wait) -> Result<Received<'_>, QueueError> {
        self.refill(wait)?;
        Ok(Received {
            packets: self.intake.packets(self.pending.of),
            verdicts: Verdicts {
                pending: &mut self.pending,
                socket: &self.socket,
            },
        })
    }

    /// Gives verdicts for packets received earlier.
    pub fn release(&mut self) -> Verdicts<'_> {
        self.verdicts()
    }

    /// Gives all held packets the same verdict at once, in the order of arrival.
    ///
    /// Their [`Held`](crate::Held) values become invalid, including lost ones.
    ///
    /// # Errors
    /// If the verdict cannot be sent.
    pub fn release_all(&mut self, verdict: Verdict) -> Result<(), QueueError> {
        let (held, newest) = (self.held(), self.intake.newest());
        if held == 0 {
            return self.verdicts().flush();
        }
        self.pending.settled += held;
        self.pending.of = fresh();
        let load = Load {
            packets: held,
            bytes: 0,
        };
        self.verdicts().up_to(newest, verdict, load)?;
        self.verdicts().flush()
    }
}

impl Queue<InOrder> {
    /// Reads the available packets, and calls `decide` for each. Returns their number.
    ///
    /// Verdicts are sent before it returns, the first after about 128 KiB of packets. 0 after the
    /// time limit or a signal, or if only refusals arrived. If `decide` panics, its packet and the
    /// following ones come again.
    ///
    /// # Errors
    /// If the socket fails. A full receive buffer is counted, and is not an error.
    pub fn answer<A: Into<Answer>>(
        &mut self,
        wait: Wait,
        mut decide: impl FnMut(&Packet<'_>) -> A,
    ) -> Result<usize, QueueError> {
        self.decide_each(wait, &mut decide)
    }
}

impl<M: Mode> AsFd for Queue<M> {
    /// Readable when packets wait, for event loops.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<M: Mode> Drop for Queue<M> {
    /// Closing unbinds too, but later if a child process that is being started has the socket as
    /// well.
    fn drop(&mut self) {
        // If it fails, closing does it.
        let _ = self.socket.send(&unbind_message(self.number));
    }
}

/// Equal verdicts on consecutive packets.
#[derive(Default)]
struct Run(Option<(Verdict, u32, Load)>);

impl Run {
    fn add(
        &mut self,
        packet: &Packet<'_>,
        answer: Answer,
        verdicts: &mut Verdicts<'_>,
    ) -> Result<(), QueueError> {
        match (answer, &mut self.0) {
            (Answer::Unchanged(verdict), Some((same, last, load))) if verdict == *same => {
                *last = packet.id;
                load.add(packet.len());
                if load.is_full() {
                    self.end(verdicts)
                } else {
                    Ok(())
                }
            }
            (Answer::Unchanged(verdict), _) => {
                let ended = self.end(verdicts);
                self.0 = Some((verdict, packet.id, Load::of(packet.len())));
                ended
            }
            (Answer::Changed(verdict, rewrite), _) => {
                let ended = self.end(verdicts);
                ended.and(verdicts.changed(packet.id, verdict, &rewrite))
            }
        }
    }

    fn end(&mut self, verdicts: &mut Verdicts<'_>) -> Result<(), QueueError> {
        match self.0.take() {
            None => Ok(()),
            Some((verdict, id, Load { packets: 1, bytes })) => {
                verdicts.one(id, verdict, bytes as u32)
            }
            Some((verdict, last, load)) => verdicts.up_to(last, verdict, load),
        }
    }
}

/// A number that was not used for a queue of this process.
fn fresh() -> NonZeroU32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NonZeroU32::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or_else(fresh)
}

/// The answer is in the socket after the request was sent, after packets that arrived in between.
fn acknowledgement(socket: &Socket, intake: &mut Intake) -> io::Result<i32> {
    loop {
        let slots = intake.slots();
        socket.receive(slots, Wait::Not)?;
        if slots.filled() == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let answer = intake.answer_to(BIND_SEQUENCE);
        intake.slots().clear();
        if let Some(code) = answer {
            return Ok(code);
        }
    }
}

fn system(queue: u16, operation: &'static str, source: io::Error) -> BindError {
    BindError::System {
        queue,
        operation,
        source,
    }
}

fn no_socket(queue: u16, source: io::Error) -> BindError {
    match source.raw_os_error() {
        Some(libc::EPROTONOSUPPORT) => BindError::NoQueues { queue, source },
        _ => system(queue, "open a netlink socket", source),
    }
}

/// The error for a refusal of the kernel.
fn refused(config: &Config, ours: u32, source: io::Error) -> BindError {
    let queue = config.queue;
    let line = KernelTable::open().and_then(|table| table.look(queue));
    let owner = line.ok().flatten().map(|line| line.port);
    match (source.raw_os_error(), owner) {
        (Some(libc::EPERM | libc::EBUSY | libc::EEXIST), Some(port)) if port != ours => {
            BindError::Taken {
                queue,
                port,
                source,
            }
        }
        (Some(libc::EPERM), _) => BindError::NotPermitted { queue, source },
        (Some(libc::EINVAL), _) => BindError::NoQueues { queue, source },
        (Some(libc::EOPNOTSUPP | libc::EAGAIN), _) => BindError::Unsupported {
            queue,
            options: config.options(),
            source,
        },
        _ => system(queue, "query the kernel", source),
    }
}
