//! `fairpath sched`: packet schedulers, from the list of policies to a simulated link.
//!
//! One module a verb. What they do lives in `fairpath-sched`; here are arguments, files and output.

mod check;
mod homes;
mod list;
mod new;
mod output;
pub mod own;
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
    /// Write a policy to begin with, and its script
    New(new::Args),
    /// Compile a policy, ask the verifier, try it in every home
    Check(check::Args),
    /// List the policies that are compiled in
    List(list::Args),
    /// Show a policy: its parameters, what it ranks, where it comes from
    Show(show::Args),
    /// Simulate a link: a policy or a tree, and packets that are made or captured
    Run(run::Args),
    /// Run Lua scripts and their expectations against a policy or a tree
    Test(test::Args),
    /// Replay an operation log and compare its outcomes
    Replay(replay::Args),
}

/// Runs `fairpath sched`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::New(args) => new::run(args),
        Command::Check(args) => check::run(args),
        Command::List(args) => list::run(args),
        Command::Show(args) => show::run(args),
        Command::Run(args) => run::run(args),
        Command::Test(args) => test::run(args),
        Command::Replay(args) => replay::run(args),
    }
}
