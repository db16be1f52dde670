//! The binary of `fairpath sched`. The commands are in the library.

use std::process::ExitCode;

use clap::Parser;
use fairpath_author::commands::{self, Command};
use fairpath_cli::Global;

/// Write, check, simulate and test packet schedulers.
#[derive(Parser)]
#[command(
    name = "fairpath-sched",
    bin_name = "fairpath sched",
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        fairpath sched show fq_codel\n  \
        fairpath sched run stfq --rate 100mbit --traffic 'bulk flows=4; voice'\n\n\
        Exit status: 0 success, 1 failure, 2 wrong usage."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli: Cli = fairpath_cli::parse("sched");
    if !cli.global.verbose {
        fairpath_bpf::quiet_libbpf();
    }
    match commands::run(&cli.command, fairpath_cli::command::<Cli>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fairpath_cli::report(&error),
    }
}
