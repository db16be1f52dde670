//! Packets in time: made by a specification, or read from a capture.
//!
//! ```text
//! "bulk flows=2; voice" -> Spec -> Generator --.
//!                                              +--> Arrivals -> simulation
//! pcap, pcapng, gzip -> headers -> Capture ----'        ^            |
//!                                                       '-- sent, dropped (senders that react)
//! ```
//!
//! The same specification and seed give the same packets. Absent: payload, handshakes, fragments,
//! retransmissions; what a scheduler sees of a packet is its length, its headers and its time.

mod capture;
mod generator;
mod sender;
mod spec;

use fairpath_core::sched::Meta;
use thiserror::Error;

pub use capture::{Capture, Looks};
pub use generator::{Generator, MAX_TRANSFERS};
pub use spec::{BadSpec, Hint, Kind, MAX_FLOWS, MAX_SOURCES, SYNTAX, Sizes, Source, Spec};

/// Rows of a report at most; what belongs to none of them is counted in one called "others".
pub const MAX_ROWS: usize = 4096;

/// A packet that comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// As the scheduler sees it; `meta.arrival` is when.
    pub meta: Meta,
    /// The row of the report that it belongs to.
    pub row: u32,
    /// Given back when it left or was dropped.
    pub sender: u32,
}

/// A row of a report: a flow, or a group of flows that come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Unique among the rows.
    pub name: String,
    /// Number of its class; 0 none.
    pub class: u32,
    /// Its share beside others.
    pub weight: u32,
    /// A packet of it, to know its leaf by. `None` for groups.
    pub sample: Option<Meta>,
}

/// Traffic came to an end that is none.
#[derive(Debug, Error)]
pub enum TrafficError {
    /// The capture is damaged or cannot be read.
    #[error("read the capture: {0}")]
    Capture(#[from] fairpath_wire::capture::ReadError),
}

/// A flow of finite size was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its row.
    pub row: u32,
    /// From its first packet's arrival to its last one's departure.
    pub took_ns: u64,
    /// How many bytes it had.
    pub bytes: u64,
    /// Some of its packets were dropped, and nobody sent them again.
    pub lost: bool,
}

/// Where packets come from. Times never go back.
pub trait Arrivals {
    /// When the next packet comes; `None` if none will, unless a sender reacts.
    ///
    /// # Errors
    /// [`TrafficError`].
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError>;

    /// The packet whose time [`Arrivals::next_time`] gave.
    fn take(&mut self) -> Option<Arrival>;

    /// A packet of `sender` has left at `now`; a flow that is complete by that is told.
    fn sent(&mut self, sender: u32, now: u64, marked: bool) -> Option<Finished>;

    /// A packet of `sender` was dropped at `now`; likewise.
    fn dropped(&mut self, sender: u32, now: u64) -> Option<Finished>;

    /// The least time from a packet's fate to a packet that comes because of it.
    fn patience_ns(&self) -> u64;

    /// The rows so far; they only become more.
    fn rows(&self) -> &[Row];

    /// What was left out, by reason; empty where nothing was.
    fn left_out(&self) -> Vec<(&'static str, u64)>;
}
