//! Operation logs: what a scheduler was asked and what it answered, recorded in one home, replayed
//! in any.
//!
//! ```text
//!   file   "fpschlog" version block* end
//!   block  kind u32, length u32, CRC-32 of kind, length and payload, payload        little endian
//!   RUN    home, program, plan, names of nodes and policies: a scheduler, fresh from here on
//!   OPS    operations, each with its outcomes if the run says so; times never go back
//!   END    numbers of runs and operations: a file without it was cut
//! ```
//!
//! Numbers are LEB128; an enqueue of a known flow takes about 12 bytes, a dequeue with its outcome
//! about 15. Every block stands alone (the flows it names are its own), so memory is bounded by a
//! block. Whatever the bytes are, [`Reader`] gives an error with offset and cause or what was
//! written; it never panics and never allocates more than a block's limit. Absent: compression,
//! and a state in the middle: a replay begins at a run's beginning.

mod code;
pub mod describe;
mod plan;
mod read;
mod replay;
mod write;

pub use plan::{PolicyName, Run};
pub use read::{Batch, Part, Reader, Summary, check};
pub use replay::{BEFORE, Difference, MakeHomes, Replay, ReplayError, Replayed, Side, replay};
pub use write::Writer;

/// The first bytes of a log.
pub const MAGIC: [u8; 8] = *b"fpschlog";
/// Of the format.
pub const VERSION: u32 = 2;
/// Operations of one block, at most: what a replay gives a home at once.
pub const BLOCK_OPS: usize = 8192;
/// Bytes of a block of operations, at most.
pub const MAX_OPS_BYTES: u32 = 4 << 20;
/// Bytes of a run's description, at most: a plan of 100,000 nodes takes 10 MB.
pub const MAX_RUN_BYTES: u32 = 64 << 20;
/// A block of operations is written when it has this many bytes; the rest to
/// [`MAX_OPS_BYTES`] is for the outcomes of its last operation.
const FULL_BLOCK_BYTES: usize = 1 << 20;

const RUN: u32 = 0x204e_5552; // "RUN "
const OPS: u32 = 0x2053_504f; // "OPS "
const END: u32 = 0x2044_4e45; // "END "

/// A log could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system said no.
    #[error("operation log: {what}")]
    Io {
        /// "read" or "write".
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are not a log, or no longer the one that was written.
    #[error("operation log, byte {offset}: {cause}")]
    Corrupt {
        /// Of the block in question, from the beginning of the file.
        offset: u64,
        /// What is wrong with it, and what to do.
        cause: String,
    },
    /// What is to be recorded is no log.
    #[error("record operation {index} of this run: {cause}")]
    Record {
        /// From 0.
        index: u64,
        /// Why.
        cause: &'static str,
    },
}

#[cfg(test)]
mod tests;
