//! `fairpath rtt`: RTTs and loss of passing traffic, live or from a capture.
//!
//! ```text
//!   interfaces -> live.rs (kernel runtime) ---.
//!                                              >- events -> output.rs -> records, summary, table
//!   capture -> offline.rs (native runtime) ---'
//! ```

mod args;
mod by;
mod live;
mod offline;
mod output;
mod progress;
mod report;

pub use args::Args;

/// Runs `fairpath rtt`.
///
/// # Errors
/// See the source of packets.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.read {
        Some(path) => offline::run(args, path),
        None => live::run(args),
    }
}
