//! Simulates a scheduler and a link in virtual time.
//!
//! ```text
//! Arrivals --enqueue--> runtime --dequeue if the link is free--> link --> sent
//!     ^                   |                                               |
//!     '------ dropped ----'------------------ sent -----------------------'
//! ```
//!
//! The link requests a packet when it is free, and is the only clock. The enqueued, sent, dropped and
//! waiting packets must add up in the simulator and in the scheduler. Otherwise the result is an
//! error. Operations are batched while no sender could react in between, so batches change only the
//! number of calls.
//!
//! Absent: propagation delay (the `rtt` of a sender replaces it), several links, and changes of rate.

mod batch;
mod findings;
mod histogram;
mod series;
mod waiting;

use fairpath_core::sched::{NEVER, Op, Outcome, SchedRuntime, SchedRuntimeError};
use thiserror::Error;

pub use findings::{Count, Findings, Inversions, LinkTime, Measured};
pub use histogram::Histogram;
pub use series::{SLOTS, Series};

use crate::traffic::{Arrivals, TrafficError};
use batch::Batch;
use fairpath_sched::tree::Tree;

/// Maximum operations of a batch. It does not exceed the spare handles of a plan.
pub const BATCH: usize = 48;
/// Maximum time before another request to a scheduler that returns the current time and no packet.
const MOST_PATIENCE_NS: u64 = 1_000_000;
/// Events between two checks for an interruption.
const LOOK_EVERY: u32 = 1 << 14;

/// The link and the end of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The link rate, bits per second.
    pub rate_bps: u64,
    /// Bytes of link overhead per packet: preamble, gap and checksum.
    pub overhead_bytes: u32,
    /// The end, or `None` to stop when the traffic ended and the queue is empty.
    pub duration_ns: Option<u64>,
}

/// An error of a simulation.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// The traffic failed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The runtime failed.
    #[error(transparent)]
    SchedRuntime(#[from] SchedRuntimeError),
    /// The counts of packets do not add up.
    #[error("the scheduler does not account for its packets at {at_ns} ns: {wrong}")]
    Accounting {
        /// Virtual time.
        at_ns: u64,
        /// The difference.
        wrong: String,
    },
    /// The cost of a flow would change its weight.
    #[error("flow {flow:?}: {why}")]
    Weight {
        /// The name of its row.
        flow: String,
        /// The change, and a remedy.
        why: String,
    },
    /// There is no free handle although the scheduler is below its limit.
    #[error(
        "the plan has no free handle at {at_ns} ns with a backlog of {backlog} packets: give it more handles than its limit"
    )]
    Handles {
        /// Virtual time.
        at_ns: u64,
        /// Packets that wait.
        backlog: u64,
    },
}

/// A function that receives every operation and its outcomes, for a recorder.
pub type Tap<'a> = &'a mut dyn FnMut(&[Op], &[Outcome]);

/// A function that receives the virtual time in ns and returns whether to continue.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> bool;

/// The state of the link.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// The link sends until this time.
    Busy(u64),
    /// No packet can leave before `until`.
    Idle { since: u64, until: u64 },
}

/// Simulates until the end in `settings`, or until `watch` returns false.
///
/// The native runtime in a release build simulates at least two million packets per second (`cargo
/// run --release -p fairpath-bench -- sched`). Memory is that of the runtime and the rows.
///
/// # Errors
/// [`SimulateError`].
pub fn simulate<'h, A: Arrivals>(
    runtime: &'h mut dyn SchedRuntime,
    tree: &'h Tree,
    traffic: &mut A,
    settings: &Settings,
    tap: Option<Tap<'h>>,
    watch: Watch<'_>,
) -> Result<Findings, SimulateError> {
    let mut run = Run {
        batch: Batch::new(runtime, tree, tap),
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
    /// The remainder of the transmission time below 1 ns, in parts of the rate.
    carry: u64,
    now: u64,
    /// The wait before another request to a scheduler that returns the current time and no packet.
    patience_ns: u64,
}

impl<A: Arrivals> Run<'_, '_, A> {
    /// Returns whether the simulation was interrupted.
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
            let queries = match self.link {
                Link::Busy(until) | Link::Idle { until, .. } => until,
            };
            let next = comes.min(queries);
            let waited = next.saturating_sub(self.batch.since());
            if next >= end || next == NEVER || waited >= patience || self.batch.is_full() {
                if !self.batch.is_empty() {
                    // A sender that reacts to a drop can be due before the next event.
                    self.batch.run(self.traffic)?;
                    continue;
                }
                if next >= end || next == NEVER {
                    self.now = if end == NEVER { self.now } else { end };
                    return Ok(false);
                }
            }
            self.now = next;
            if comes <= queries {
                self.comes()?;
            }
            if comes > queries || matches!(self.link, Link::Idle { .. }) {
                self.query()?;
            }
        }
    }

    fn comes(&mut self) -> Result<(), SimulateError> {
        if let Some(arrival) = self.traffic.take() {
            self.batch.enqueue(self.now, arrival, self.traffic)?;
        }
        Ok(())
    }

    /// Requests a packet for the free link.
    fn query(&mut self) -> Result<(), SimulateError> {
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
        let backlog = self.batch.backlog();
        if answer.again == NEVER && backlog > 0 {
            let wrong = format!(
                "{backlog} packets wait, and none is ever sent: return a time from SEND_TIME, not NEVER"
            );
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
            // The scheduler returned the current time: wait longer at each repetition.
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
            // A wait that a packet or the end cut short was accounted for as a whole.
            self.time.idle_wrong_ns -= since.saturating_sub(self.now);
            if self.batch.backlog_before() == 0 {
                self.time.idle_empty_ns += idle;
            } else {
                self.time.idle_throttled_ns += idle;
            }
            self.link = Link::Idle {
                since: self.now,
                until: self.now,
            };
            self.carry = if idle > 0 { 0 } else { self.carry };
        }
    }

    /// The departure time of a packet that begins now, exact over many packets.
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
            // The transmission in progress ends after the simulation.
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
            excluded: self.traffic.excluded(),
            ..Findings::default()
        };
        self.batch.finish(findings, self.traffic.rows())
    }
}
