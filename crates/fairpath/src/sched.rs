//! `fairpath sched`: packet schedulers, from the list of policies to a simulated link.
//!
//! One module a verb. What they do lives in `fairpath-sched`; here are arguments, files and output.

mod check;
mod home;
mod list;
mod new;
mod output;
mod replay;
mod run;
mod show;
mod subject;
mod test;

use clap::Subcommand;

/// Arguments of `fairpath sched`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the policies that are compiled in
    List(list::Args),
    /// Show a policy: its parameters, what it ranks, where it comes from
    Show(show::Args),
    /// Simulate a link: a policy or a tree, and packets that are made or captured
    Run(run::Args),
}

/// Runs `fairpath sched`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Show(args) => show::run(args),
        Command::Run(args) => run::run(args),
    }
}
