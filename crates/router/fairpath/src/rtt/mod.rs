//! `fairpath rtt`: what passing traffic experiences, live or from a capture.
//!
//! ```text
//!   interfaces -> live.rs (kernel) --.
//!                                     >- events -> output.rs -> lines, JSON, summary
//!   capture -> offline.rs (native) --'         `-> by.rs -> table by host, flow or class
//! ```

mod args;
mod by;
mod live;
mod offline;
mod output;
mod report;

pub use args::Args;

/// Runs `fairpath rtt`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.read {
        Some(path) => offline::run(args, path),
        None => live::run(args),
    }
}
