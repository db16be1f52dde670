//! The binary of `fairpath sched`. The commands are in the library.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fairpath_author::commands::{self, Command};

/// Write, check, simulate and test packet schedulers
#[derive(Parser)]
#[command(
    name = "fairpath-sched",
    bin_name = "fairpath sched",
    max_term_width = 100,
    after_help = "Examples:\n  \
        fairpath sched show fq_codel\n  \
        fairpath sched run stfq --rate 100mbit --traffic 'bulk flows=4; voice'\n\n\
        Exit status: 0 success, 1 failure, 2 wrong usage."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    fairpath_bpf::quiet_libbpf();
    match commands::run(&Cli::parse().command, Cli::command()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairpath: error: {}", line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Joins the chain of causes into one line and skips causes that an outer message already contains.
fn line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let between = if text.is_empty() { "" } else { ": " };
            text = text + between + &cause;
        }
    }
    text
}
