//! The configuration of a pool and its PIFOs, and why it may be invalid.

use super::ffi::RawPifoConfig;

/// The result of a push when `capacity` items are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The new item is refused.
    #[default]
    Refuse,
    /// The item of the largest rank is pushed out, the latest of those; it may be the new one.
    PushOut,
}

/// The result for a rank outside of the range of a PIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// It goes into the first or last bucket, in order of arrival.
    #[default]
    Clamp,
    /// It is refused.
    Drop,
    /// It is refused as an error of the caller.
    Error,
}

/// A window of buckets, twice `buckets << shift` ranks wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Of each half: 1 to 2^20 ([`Kind::Cffs`]), 1 to 523 ([`Kind::Gradient`]).
    pub buckets: u32,
    /// A bucket is `1 << shift` ranks wide, 0 to 63.
    pub shift: u8,
    /// Its start, rounded down to a bucket.
    pub base: u64,
    /// Ranks below it.
    pub below: Outside,
    /// Ranks above it.
    pub beyond: Outside,
}

/// The kind of a PIFO; see `bpf/core/pifo/pifo.h` for order, cost and memory of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exact order of any ranks, O(log n).
    Heap,
    /// Strict priority: the rank is the band.
    Bands {
        /// 1 to 64.
        bands: u32,
        /// Ranks from `bands` on.
        beyond: Outside,
    },
    /// Buckets in a moving window, O(1) (Eiffel, NSDI 2019).
    Cffs(Window),
    /// The same, found by division; approximate.
    Gradient(Window),
    /// A few FIFOs with adaptive bounds; approximate (SP-PIFO, NSDI 2020).
    SpPifo {
        /// 1 to 64.
        lists: u32,
        /// Maximum of items of one list, from 1.
        each: u32,
    },
    /// One FIFO with admission by rank; approximate (AIFO, SIGCOMM 2021).
    Aifo {
        /// Stored ranks, 1 to 1024.
        window: u32,
        /// Share of the capacity in which everything is admitted, in 256ths; below 256.
        headroom: u32,
    },
    /// Eligible times and ranks (PIEO, SIGCOMM 2019), over two PIFOs with smaller numbers.
    Pieo {
        /// The PIFO of items that are not yet eligible.
        wheel: u32,
        /// The PIFO of eligible items, by rank.
        ready: u32,
    },
}

/// One PIFO of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PifoConfig {
    /// Its kind.
    pub kind: Kind,
    /// Maximum of items; of [`Kind::Pieo`], all items of the pool.
    pub capacity: u32,
    /// When full.
    pub full: WhenFull,
}

/// An invalid configuration of a pool or PIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PifoConfigError {
    /// No such kind.
    #[error("format a PIFO: unknown kind; use one of `Kind`")]
    Kind,
    /// Capacity.
    #[error(
        "format a PIFO: its capacity (or that of an SP-PIFO's lists) is 0, or does not fit the pool; use 1 to the number of items of the pool (a PIEO: exactly that number)"
    )]
    Capacity,
    /// Buckets.
    #[error(
        "format a PIFO: too many or too few buckets for its kind; use 1 to 2^20 (cFFS), 523 (gradient), 64 (bands, SP-PIFO), 1024 (AIFO's window)"
    )]
    Buckets,
    /// Width of a bucket.
    #[error("format a PIFO: invalid bucket width; use a shift from 0 to 63, and only for a window")]
    Shift,
    /// Policies.
    #[error("format a PIFO: its kind cannot push packets out; let it refuse packets when full")]
    Policy,
    /// Numbers.
    #[error("format a pool: invalid size; use 1 to 2^28 items and 1 to 2^24 PIFOs")]
    Number,
    /// Space.
    #[error("format a PIFO: its arrays are outside the pool; enlarge the pool")]
    Space,
    /// Headroom, or the halves of a PIEO.
    #[error(
        "format a PIFO: the headroom is 1 or more, or the wheel and the ready queue of a PIEO are not two heaps or windows that were formatted before it, with a ready queue that clamps and refuses; correct the configuration"
    )]
    Parts,
}

impl PifoConfigError {
    pub(crate) fn check(code: i32) -> Result<(), PifoConfigError> {
        Err(match code {
            0 => return Ok(()),
            1 => PifoConfigError::Kind,
            2 => PifoConfigError::Capacity,
            3 => PifoConfigError::Buckets,
            4 => PifoConfigError::Shift,
            5 => PifoConfigError::Policy,
            6 => PifoConfigError::Number,
            7 => PifoConfigError::Space,
            _ => PifoConfigError::Parts,
        })
    }
}

impl PifoConfig {
    /// A PIFO that refuses when full.
    pub fn new(kind: Kind, capacity: u32) -> PifoConfig {
        let full = WhenFull::Refuse;
        PifoConfig {
            kind,
            capacity,
            full,
        }
    }

    /// The same, pushing out when full.
    #[must_use]
    pub fn pushing_out(self) -> PifoConfig {
        let full = WhenFull::PushOut;
        PifoConfig { full, ..self }
    }

    pub(crate) fn raw(&self) -> RawPifoConfig {
        let config = RawPifoConfig {
            capacity: self.capacity,
            full: self.full as u8,
            ..RawPifoConfig::default()
        };
        let of_window = |kind, window: Window| RawPifoConfig {
            kind,
            buckets: window.buckets,
            shift: window.shift,
            below: window.below as u8,
            beyond: window.beyond as u8,
            base: window.base,
            ..config
        };
        match self.kind {
            Kind::Heap => RawPifoConfig { kind: 1, ..config },
            Kind::Bands { bands, beyond } => RawPifoConfig {
                kind: 2,
                buckets: bands,
                beyond: beyond as u8,
                ..config
            },
            Kind::Cffs(window) => of_window(3, window),
            Kind::Gradient(window) => of_window(4, window),
            Kind::SpPifo { lists, each } => RawPifoConfig {
                kind: 5,
                buckets: lists,
                each,
                ..config
            },
            Kind::Aifo { window, headroom } => RawPifoConfig {
                kind: 6,
                buckets: window,
                headroom,
                ..config
            },
            Kind::Pieo { wheel, ready } => RawPifoConfig {
                kind: 7,
                wheel,
                ready,
                ..config
            },
        }
    }
}
