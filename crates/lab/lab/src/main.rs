//! fairpath lab: see the library.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use fairpath_lab::session::Ended;
use fairpath_lab::{commands, interrupt};

/// Experiments about loss, delay, queues and congestion control, in namespaces of this machine
///
/// Real traffic crosses emulated links; what is measured becomes one page, with intervals, models and
/// every command. A run that was not emulated truthfully is named and left out. Needs root; nothing
/// outside the namespaces is touched, and nothing is left behind but DIR.
#[derive(Parser)]
#[command(
    name = "fairpath-lab",
    bin_name = "fairpath lab",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment, and write its page
    Run(commands::run::Args),
    /// The experiments that come with it
    List,
    /// An experiment in words, or its file
    Show(commands::show::Args),
    /// The page of results, finished or not
    Report(commands::report::Args),
    /// What differs between two directories of results
    Compare(commands::compare::Args),
    /// Accept every packet of a queue; the experiment nfqueue runs it
    #[command(hide = true)]
    Accept(commands::accept::Args),
    /// Write the manual pages, as packages install them
    #[command(hide = true)]
    Generate(commands::generate::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::List => commands::list::run(),
        Command::Show(args) => commands::show::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Accept(args) => commands::accept::run(args),
        Command::Generate(args) => commands::generate::run(Cli::command(), args),
        Command::Run(args) => match commands::run::run(args) {
            Ok(Ended::Whole) => Ok(()),
            Ok(Ended::Interrupted) => return ExitCode::from(interrupt::STATUS),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairpath lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
