//! The binary `fairpath-lab`: the command line of the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairpath_cli::Global;
use fairpath_lab::session::Ended;
use fairpath_lab::{commands, interrupt};

/// Run experiments with loss, delay, queues and congestion control in network namespaces.
///
/// Real TCP and UDP traffic crosses emulated links. The result is one page with confidence intervals,
/// models and every command. Runs with an invalid emulation are named and excluded. Needs root. It
/// changes nothing outside its namespaces, and leaves nothing except the directory of results.
#[derive(Parser)]
#[command(
    name = "fairpath-lab",
    bin_name = "fairpath lab",
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        fairpath lab list\n  \
        fairpath lab run ripe88 --quick --output results\n  \
        fairpath lab report results\n\n\
        Exit status: 0 success, 1 failure, 2 wrong usage, 3 finished but a setting has no valid run, \
        130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    List(commands::list::Args),
    Show(commands::show::Args),
    Report(commands::report::Args),
    Compare(commands::compare::Args),
    #[command(hide = true)]
    Accept(commands::accept::Args),
    #[command(hide = true)]
    Generate(commands::generate::Args),
}

/// The status of a finished experiment that has a setting without a valid run.
const INCOMPLETE: u8 = 3;

fn main() -> ExitCode {
    let cli: Cli = fairpath_cli::parse("lab");
    if !cli.global.verbose {
        fairpath_bpf::quiet_libbpf();
    }
    let result = match &cli.command {
        Command::List(args) => commands::list::run(args),
        Command::Show(args) => commands::show::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Accept(args) => commands::accept::run(args),
        Command::Generate(args) => commands::generate::run(fairpath_cli::command::<Cli>(), args),
        Command::Run(args) => match commands::run::run(args) {
            Ok(Ended::Whole) => Ok(()),
            Ok(Ended::Incomplete) => return ExitCode::from(INCOMPLETE),
            Ok(Ended::Interrupted) => return ExitCode::from(interrupt::STATUS),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fairpath_cli::report(&error),
    }
}
