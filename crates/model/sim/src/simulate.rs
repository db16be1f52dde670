//! A scheduler and a link in virtual time.
//!
//! ```text
//! Arrivals --enqueue--> Home --dequeue when the link is free--> link --> sent, in its time
//!     ^                   |                                                |
//!     '------ dropped ----'------------------- sent -----------------------'
//! ```
//!
//! The link asks for a packet whenever it is free: it is the only clock. What came and what left,
//! was dropped or still waits must add up, by our own count and by the scheduler's; otherwise there
//! are no findings but an error. Operations go to the home in batches as long as no sender could
//! react in between, so a batch changes nothing but the number of calls.
//!
//! Absent: propagation delay (a sender's `rtt` stands for it), several links, rates that change.

mod batch;
mod findings;
mod histogram;
mod series;
mod waiting;

use fairpath_core::sched::{Home, HomeError, NEVER, Op, Outcome};
use thiserror::Error;

pub use findings::{Count, Findings, Inversions, LinkTime, Measured};
pub use histogram::Histogram;
pub use series::{SLOTS, Series};

use crate::traffic::{Arrivals, TrafficError};
use batch::Batch;
use fairpath_sched::tree::Tree;

/// Operations that go to the home at once, at most; no more than the handles a plan can spare.
pub const BATCH: usize = 48;
/// Longest wait for a scheduler that wants to be asked again at once.
const MOST_PATIENCE_NS: u64 = 1_000_000;
/// Events between two looks at whether to go on.
const LOOK_EVERY: u32 = 1 << 14;

/// The link and when to end.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Of the link, bits a second.
    pub rate_bps: u64,
    /// Bytes that every packet takes on the link besides its own: preamble, gap, checksum.
    pub overhead_bytes: u32,
    /// When to end; `None`: when the traffic ended and nothing waits.
    pub duration_ns: Option<u64>,
}

/// A simulation has no findings.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The home.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Packets came into being or got lost.
    #[error("the scheduler does not account for its packets at {at_ns} ns: {wrong}")]
    Accounting {
        /// Virtual time.
        at_ns: u64,
        /// What does not add up.
        wrong: String,
    },
    /// No packet can come although the scheduler may hold more.
    #[error(
        "the plan has no handle left at {at_ns} ns with {held} packets waiting; give it more packets than its limit"
    )]
    Handles {
        /// Virtual time.
        at_ns: u64,
        /// Packets that wait.
        held: u64,
    },
}

/// Who sees every operation and what became of it: a recorder.
pub type Tap<'a> = &'a mut dyn FnMut(&[Op], &[Outcome]);

/// Who sees how far it is, in virtual ns, and says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> bool;

/// When the link asks next.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// Sending until then.
    Busy(u64),
    /// Nothing may leave before then.
    Idle { since: u64, until: u64 },
}

/// Simulates until the end that `settings` name, or until `watch` says no.
///
/// Native and in release, two million packets a second and more (`cargo run --release -p
/// fairpath-bench -- sched`); memory is that of the home and of the rows.
///
/// # Errors
/// [`SimulateError`].
pub fn simulate<'h, A: Arrivals>(
    home: &'h mut dyn Home,
    tree: &'h Tree,
    traffic: &mut A,
    settings: &Settings,
    tap: Option<Tap<'h>>,
    watch: Watch<'_>,
) -> Result<Findings, SimulateError> {
    let mut run = Run {
        batch: Batch::new(home, tree, tap),
        traffic,
        settings: *settings,
        link: Link::Idle {
            since: 0,
            until: NEVER,
        },
        time: LinkTime::default(),
        carry: 0,
        now: 0,
        patience_ns: 1,
    };
    run.batch.set_weights(run.traffic)?;
    let interrupted = run.go(watch)?;
    run.finish(interrupted)
}

struct Run<'a, 'h, A> {
    batch: Batch<'h>,
    traffic: &'a mut A,
    settings: Settings,
    link: Link,
    time: LinkTime,
    /// What sending took beyond whole ns, in parts of the rate.
    carry: u64,
    now: u64,
    /// How long to leave a scheduler that gives nothing and wants to be asked again at once.
    patience_ns: u64,
}

impl<A: Arrivals> Run<'_, '_, A> {
    /// Gives whether it was interrupted.
    fn go(&mut self, watch: Watch<'_>) -> Result<bool, SimulateError> {
        let end = self.settings.duration_ns.unwrap_or(NEVER);
        let patience = self.traffic.patience_ns();
        let mut events: u32 = 0;
        loop {
            events = events.wrapping_add(1);
            if events.is_multiple_of(LOOK_EVERY) && !watch(self.now) {
                if !self.batch.is_empty() {
                    self.batch.run(self.traffic)?;
                }
                return Ok(true);
            }
            let comes = self.traffic.next_time()?.unwrap_or(NEVER);
            let asks = match self.link {
                Link::Busy(until) | Link::Idle { until, .. } => until,
            };
            let next = comes.min(asks);
            let waited = next.saturating_sub(self.batch.since());
            if next >= end || next == NEVER || waited >= patience || self.batch.is_full() {
                if !self.batch.is_empty() {
                    // A sender that learns of a drop may come before what we were about to do.
                    self.batch.run(self.traffic)?;
                    continue;
                }
                if next >= end || next == NEVER {
                    self.now = if end == NEVER { self.now } else { end };
                    return Ok(false);
                }
            }
            self.now = next;
            if comes <= asks {
                self.comes()?;
            }
            if comes > asks || matches!(self.link, Link::Idle { .. }) {
                self.ask()?;
            }
        }
    }

    fn comes(&mut self) -> Result<(), SimulateError> {
        if let Some(arrival) = self.traffic.take() {
            self.batch.enqueue(self.now, arrival, self.traffic)?;
        }
        Ok(())
    }

    /// The link is free and asks for a packet.
    fn ask(&mut self) -> Result<(), SimulateError> {
        self.rest();
        self.batch.dequeue(self.now);
        let answer = self.batch.run(self.traffic)?;
        if let Some((bytes, times)) = answer.sent {
            let until = self.send(bytes, times);
            self.link = Link::Busy(until);
            self.patience_ns = 1;
            self.batch.departed(self.traffic, until);
            return Ok(());
        }
        let held = self.batch.held();
        if answer.again == NEVER && held > 0 {
            let wrong = format!("it says that it is empty, and {held} packets wait");
            return Err(SimulateError::Accounting {
                at_ns: self.now,
                wrong,
            });
        }
        self.link = Link::Idle {
            since: self.now,
            until: answer.again,
        };
        if answer.again <= self.now {
            // It wants to be asked again now: its time, more of it each time in a row.
            let until = self.now + self.patience_ns;
            self.time.idle_wrong_ns += self.patience_ns;
            self.patience_ns = (self.patience_ns * 2).min(MOST_PATIENCE_NS);
            self.link = Link::Idle {
                since: until,
                until,
            };
        }
        Ok(())
    }

    /// Accounts for the time since the link last sent.
    fn rest(&mut self) {
        if let Link::Idle { since, .. } = self.link {
            let idle = self.now.saturating_sub(since);
            if self.batch.held_before() == 0 {
                self.time.idle_empty_ns += idle;
            } else {
                self.time.idle_held_ns += idle;
            }
            self.link = Link::Idle {
                since: self.now,
                until: self.now,
            };
            self.carry = if idle > 0 { 0 } else { self.carry };
        }
    }

    /// When a packet that begins now has left, exact over many packets.
    #[inline]
    fn send(&mut self, bytes: u32, times: u32) -> u64 {
        const BYTE_NS: u64 = 8_000_000_000;
        let rate = u128::from(self.settings.rate_bps);
        let bytes = (u64::from(bytes) + u64::from(self.settings.overhead_bytes)) * u64::from(times);
        let parts = u128::from(bytes) * u128::from(BYTE_NS) + u128::from(self.carry);
        let (takes, carry) = match u64::try_from(parts) {
            Ok(parts) => (
                parts / self.settings.rate_bps,
                parts % self.settings.rate_bps,
            ),
            Err(_) => ((parts / rate) as u64, (parts % rate) as u64),
        };
        self.carry = carry;
        self.time.busy_ns += takes;
        self.now + takes
    }

    fn finish(mut self, interrupted: bool) -> Result<Findings, SimulateError> {
        self.rest();
        if let Link::Busy(until) = self.link {
            // What is still being sent lies behind the end.
            let behind = until.saturating_sub(self.now);
            match self.settings.duration_ns {
                Some(_) => self.time.busy_ns -= behind,
                None => self.now = until,
            }
        }
        let findings = Findings {
            duration_ns: self.now,
            interrupted,
            link: self.time,
            left_out: self.traffic.left_out(),
            ..Findings::default()
        };
        self.batch.finish(findings, self.traffic.rows())
    }
}
