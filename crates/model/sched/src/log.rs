//! Operation logs: the operations of a scheduler and their outcomes, recorded in one runtime and
//! replayed in any.
//!
//! ```text
//!   file   "fpschlog" version block* end
//!   block  kind u32, length u32, CRC-32 of kind, length and payload, payload        little endian
//!   RUN    runtime, program, plan, names of nodes and policies: a new scheduler begins
//!   OPS    operations, with their outcomes if the run has them, in ascending order of time
//!   END    numbers of runs and operations: a file without it is incomplete
//! ```
//!
//! Numbers are LEB128. An enqueue of a known flow takes about 12 bytes, and a dequeue with its outcome
//! about 15. Every block has its own table of flows, so memory is bounded by one block. For any input
//! [`Reader`] returns either the recorded operations or an error with offset and cause. It never
//! panics and never allocates more than the limit of a block. Absent: compression, and replay from the
//! middle of a run.

mod code;
pub mod describe;
mod plan;
mod read;
mod replay;
mod write;

pub use plan::{PolicyName, Run};
pub use read::{Batch, Part, Reader, Summary, check};
pub use replay::{BEFORE, Difference, MakeRuntimes, Replay, ReplayError, Replayed, Side, replay};
pub use write::Writer;

/// The first bytes of a log.
pub const MAGIC: [u8; 8] = *b"fpschlog";
/// The version of the format.
pub const VERSION: u32 = 3;
/// Maximum operations of a block. A replay passes them to a runtime in one call.
pub const BLOCK_OPS: usize = 8192;
/// Maximum size of a block of operations, bytes.
pub const MAX_OPS_BYTES: u32 = 4 << 20;
/// Maximum size of the description of a run. A plan of 100,000 nodes takes 10 MB.
pub const MAX_RUN_BYTES: u32 = 64 << 20;
/// Size at which a block of operations is written. The rest up to [`MAX_OPS_BYTES`] is for the
/// outcomes of its last operation.
const FULL_BLOCK_BYTES: usize = 1 << 20;

const RUN: u32 = 0x204e_5552; // "RUN "
const OPS: u32 = 0x2053_504f; // "OPS "
const END: u32 = 0x2044_4e45; // "END "

/// An error of an operation log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read or written.
    #[error("operation log: {what}")]
    Io {
        /// "read" or "write".
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a log or is corrupt.
    #[error("operation log, byte {offset}: {cause}")]
    Corrupt {
        /// The offset of the block in the file.
        offset: u64,
        /// The cause and the remedy.
        cause: String,
    },
    /// The operation cannot be recorded.
    #[error("record operation {index} of this run: {cause}")]
    Record {
        /// The operation, counted from 0.
        index: u64,
        /// Why.
        cause: &'static str,
    },
}

#[cfg(test)]
mod tests;
