//! The commands of `fairpath sched`: one module each, with its arguments, files and output.

mod check;
mod generate;
mod homes;
mod list;
mod new;
mod output;
mod own;
mod picture;
mod replay;
mod run;
mod show;
mod subject;
mod test;

use clap::Subcommand;

/// What `fairpath sched` can do.
#[derive(Subcommand)]
pub enum Command {
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
    /// Write the manual pages, or the outline that `fairpath` makes completions from
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Runs a command; `whole` is the command line that it belongs to.
///
/// # Errors
/// Those of the command.
pub fn run(command: &Command, whole: clap::Command) -> anyhow::Result<()> {
    match command {
        Command::New(args) => new::run(args),
        Command::Check(args) => check::run(args),
        Command::List(args) => list::run(args),
        Command::Show(args) => show::run(args),
        Command::Run(args) => run::run(args),
        Command::Test(args) => test::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Generate(args) => generate::run(whole, args),
    }
}
