//! Packets and their times, generated from a specification or read from a capture.
//!
//! ```text
//! "bulk flows=2; voice" -> Spec -> Generator --.
//!                                              +--> Arrivals -> simulation
//! pcap, pcapng, gzip -> headers -> Capture ----'        ^            |
//!                                                       '-- sent, dropped (senders that react)
//! ```
//!
//! The same specification and seed generate the same packets. Absent: payload, handshakes, fragments
//! and retransmissions. A scheduler reads only the length, the headers and the time of a packet.

mod capture;
mod generator;
mod sender;
mod spec;

use fairpath_core::sched::Meta;
use thiserror::Error;

pub use capture::{Capture, HeaderParser};
pub use generator::{Generator, MAX_TRANSFERS};
pub use spec::{BadSpec, Hint, Kind, MAX_FLOWS, MAX_SOURCES, SYNTAX, Sizes, Source, Spec};

/// Maximum rows of a report. Further flows are counted in the row "others".
pub const MAX_ROWS: usize = 4096;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The description for the scheduler, with the time in `meta.arrival`.
    pub meta: Meta,
    /// The row of the report.
    pub row: u32,
    /// The sender, which is notified when the packet is sent or dropped.
    pub sender: u32,
}

/// A row of a report: a flow or a group of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficRow {
    /// The name, unique among the rows.
    pub name: String,
    /// The number of its class, or 0.
    pub class: u32,
    /// The weight.
    pub weight: u32,
    /// A packet of the flow that identifies its leaf. `None` for groups.
    pub sample: Option<Meta>,
}

/// An error of the traffic.
#[derive(Debug, Error)]
pub enum TrafficError {
    /// The capture is corrupt or cannot be read.
    #[error("read the capture: {0}")]
    Capture(#[from] fairpath_wire::capture::ReadError),
}

/// A completed flow of finite size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The row.
    pub row: u32,
    /// The time from the arrival of the first packet to the departure of the last.
    pub took_ns: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// True if packets were dropped. There are no retransmissions.
    pub lost: bool,
}

/// A source of packets in ascending order of time.
pub trait Arrivals {
    /// The time of the next packet, or `None` if there is none unless a sender reacts.
    ///
    /// # Errors
    /// [`TrafficError`].
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError>;

    /// The packet at the time from [`Arrivals::next_time`].
    fn take(&mut self) -> Option<Arrival>;

    /// A packet of `sender` was sent at `now`. Returns the flow if that completes it.
    fn sent(&mut self, sender: u32, now: u64, marked: bool) -> Option<Finished>;

    /// A packet of `sender` was dropped at `now`. Returns the flow if that completes it.
    fn dropped(&mut self, sender: u32, now: u64) -> Option<Finished>;

    /// The minimum time from the outcome of a packet to a packet sent in reaction.
    fn patience_ns(&self) -> u64;

    /// The rows so far. Rows are only added.
    fn rows(&self) -> &[TrafficRow];

    /// Excluded packets or flows, by reason. Empty without exclusions.
    fn excluded(&self) -> Vec<(&'static str, u64)>;
}
