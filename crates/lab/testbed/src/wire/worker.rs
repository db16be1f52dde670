//! The thread of one direction: take, decide, wait, put.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use super::DirectionStats;
use super::encap::Encap;
use super::impair::{Engine, Impairment, Outcome};
use super::port::{Inbox, Port, Received, now_ns};
use crate::link::Mac;

/// Frames taken before due ones are sent again: bounds what taking adds to a delay (16 × 2 us).
const TAKE_AT_ONCE: usize = 16;
/// Errors in a row after which a port is given up; a link that goes down gives one.
const ERROR_LIMIT: u32 = 64;
/// Nice value of the threads: delays should be exact in spite of the load of the traffic.
const NICE: libc::c_int = -15;

/// The change of a frame between the ports.
#[derive(Debug)]
pub(super) enum Transform {
    Pass,
    Wrap { encap: Encap, dst: Mac, src: Mac },
    Unwrap(Encap),
}

impl Transform {
    /// The outgoing form of `frame`, in `scratch` if it must be built; `None` if it is of another kind.
    fn apply<'a>(&self, frame: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        match self {
            Transform::Pass => Some(frame),
            Transform::Unwrap(encap) => encap.unwrap(frame),
            Transform::Wrap { encap, dst, src } => {
                encap.wrap((*dst, *src), frame, scratch)?;
                Some(scratch)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    taken: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    duplicated: AtomicU64,
    delayed: AtomicU64,
    queue_full: AtomicU64,
    refused: AtomicU64,
    send_failed: AtomicU64,
    kernel_dropped: AtomicU64,
    partial_checksums: AtomicU64,
    midflow: AtomicU64,
    late_max_ns: AtomicU64,
    late_sum_ns: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// The state that the owner and the thread of one direction share.
#[derive(Debug)]
pub(super) struct Shared {
    source: Arc<Port>,
    counters: Counters,
    stop: EventFd,
    changed: AtomicBool,
    change: Mutex<Option<Impairment>>,
}

impl Shared {
    pub(super) fn new(source: Arc<Port>) -> io::Result<Shared> {
        Ok(Shared {
            source,
            counters: Counters::default(),
            stop: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            changed: AtomicBool::new(false),
            change: Mutex::new(None),
        })
    }

    pub(super) fn stop(&self) {
        // The only failure is an overflow, and then it has been stopped.
        let _ = self.stop.write(1);
    }

    pub(super) fn change(&self, impairment: Impairment) {
        *self.change.lock().unwrap_or_else(PoisonError::into_inner) = Some(impairment);
        self.changed
            .store(true, std::sync::atomic::Ordering::Release);
    }

    fn take_change(&self) -> Option<Impairment> {
        if !self
            .changed
            .swap(false, std::sync::atomic::Ordering::Acquire)
        {
            return None;
        }
        self.change
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(super) fn stats(&self) -> DirectionStats {
        let counters = &self.counters;
        let drops = self.source.take_kernel_drops();
        let kernel_dropped = counters.kernel_dropped.fetch_add(drops, Relaxed) + drops;
        DirectionStats {
            taken: counters.taken.load(Relaxed),
            sent: counters.sent.load(Relaxed),
            lost: counters.lost.load(Relaxed),
            duplicated: counters.duplicated.load(Relaxed),
            delayed: counters.delayed.load(Relaxed),
            queue_full: counters.queue_full.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            send_failed: counters.send_failed.load(Relaxed),
            kernel_dropped,
            partial_checksums: counters.partial_checksums.load(Relaxed),
            midflow: counters.midflow.load(Relaxed),
            late_max_ns: counters.late_max_ns.load(Relaxed),
            late_sum_ns: counters.late_sum_ns.load(Relaxed),
        }
    }
}

/// One direction at work.
#[derive(Debug)]
pub(super) struct Direction {
    shared: Arc<Shared>,
    destination: Arc<Port>,
    transform: Transform,
    engine: Engine,
    inbox: Inbox,
    scratch: Vec<u8>,
    errors_in_a_row: u32,
}

impl Direction {
    pub(super) fn new(
        shared: Arc<Shared>,
        destination: Arc<Port>,
        transform: Transform,
        impairment: Impairment,
    ) -> Direction {
        Direction {
            shared,
            destination,
            transform,
            engine: Engine::new(impairment),
            inbox: Inbox::new(),
            scratch: Vec::new(),
            errors_in_a_row: 0,
        }
    }

    /// Works until it is stopped or the source fails permanently.
    pub(super) fn run(mut self) {
        punctual();
        while self.wait().is_continue() && self.errors_in_a_row < ERROR_LIMIT {
            self.take();
            self.put_due();
            self.shared
                .counters
                .midflow
                .store(self.engine.len() as u64, Relaxed);
        }
    }

    /// Sleeps until a frame arrives or one is due; breaks when stopped.
    fn wait(&self) -> ControlFlow<()> {
        let timeout = self
            .engine
            .next_event()
            .map(|due| due.saturating_sub(now_ns()));
        let timeout = timeout.map(|ns| TimeSpec::new((ns / NANOS) as i64, (ns % NANOS) as i64));
        let source = PollFd::new(self.shared.source.as_fd(), PollFlags::POLLIN);
        let stop = PollFd::new(self.shared.stop.as_fd(), PollFlags::POLLIN);
        let mut both = [source, stop];
        // An interrupted wait is a short one.
        let _ = ppoll(&mut both, timeout, None);
        match both[1].any() {
            Some(true) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn take(&mut self) {
        for _ in 0..TAKE_AT_ONCE {
            let received = self.shared.source.receive(&mut self.inbox);
            if let Some(impairment) = self.shared.take_change() {
                self.engine.change(impairment);
            }
            match received {
                Received::Empty => return,
                Received::Broken => {
                    self.errors_in_a_row += 1;
                    return;
                }
                Received::Oversized => {
                    count(&self.shared.counters.taken);
                    count(&self.shared.counters.refused);
                }
                Received::Frame {
                    arrival_ns,
                    partial_checksum,
                } => {
                    self.offer(arrival_ns, partial_checksum);
                }
            }
            self.errors_in_a_row = 0;
        }
    }

    fn offer(&mut self, arrival_ns: u64, partial_checksum: bool) {
        let counters = &self.shared.counters;
        count(&counters.taken);
        if partial_checksum {
            count(&counters.partial_checksums);
        }
        let Some(frame) = self.transform.apply(self.inbox.frame(), &mut self.scratch) else {
            return count(&counters.refused);
        };
        match self.engine.offer(arrival_ns, frame) {
            Outcome::Queued => {}
            Outcome::Duplicated => count(&counters.duplicated),
            Outcome::Delayed => count(&counters.delayed),
            Outcome::Lost => count(&counters.lost),
            Outcome::QueueFull => count(&counters.queue_full),
        }
    }

    fn put_due(&mut self) {
        let counters = &self.shared.counters;
        while let Some((due_ns, frame)) = self.engine.take_due(now_ns()) {
            let late_ns = now_ns().saturating_sub(due_ns);
            match self.destination.send(&frame) {
                Ok(()) => count(&counters.sent),
                Err(_) => count(&counters.send_failed),
            }
            counters.late_max_ns.fetch_max(late_ns, Relaxed);
            counters.late_sum_ns.fetch_add(late_ns, Relaxed);
            self.engine.recycle(frame);
        }
    }
}

const NANOS: u64 = 1_000_000_000;

/// Requests exact timers and priority; a refusal costs only precision.
fn punctual() {
    // The default slack of 50 us would be most of the error.
    let _ = prctl::set_timerslack(1);
    // SAFETY: no pointer is passed; id 0 with PRIO_PROCESS is the calling thread on Linux.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}
