//! fairpath sched: see the library.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fairpath_author::commands::{self, Command};

/// Packet schedulers: list and show policies, simulate a link
#[derive(Parser)]
#[command(
    name = "fairpath-sched",
    bin_name = "fairpath sched",
    max_term_width = 100
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
            eprintln!("fairpath: {}", line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The chain of causes in one line, without those that an outer message already ends with.
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
