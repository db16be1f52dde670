//! The commands of `fairpath sched`. Each module has the arguments and the output of one command.

mod build;
mod check;
mod figure;
mod generate;
mod list;
mod new;
mod output;
mod own;
mod replay;
mod run;
mod runtimes;
mod show;
mod subject;
mod test;
mod watch;

use clap::Subcommand;

/// The subcommands of `fairpath sched`.
#[derive(Subcommand)]
pub enum Command {
    /// Create a policy and its test script from a template
    New(new::Args),
    /// Compile a policy, verify it, and compare its runtimes
    Check(check::Args),
    /// Check a policy and write the object that a router loads
    Build(build::Args),
    /// List the built-in policies
    List(list::Args),
    /// Show the parameters, functions and source of a policy
    Show(show::Args),
    /// Simulate a link with generated or captured packets
    Run(run::Args),
    /// Test a policy or a tree with Lua scripts
    Test(test::Args),
    /// Replay an operation log and compare the outcomes
    Replay(replay::Args),
    /// Write the manual pages, or the outline for shell completions
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Runs a command. `whole` is the definition of the complete command line.
///
/// # Errors
/// The errors of the command.
pub fn run(command: &Command, whole: clap::Command) -> anyhow::Result<()> {
    match command {
        Command::New(args) => new::run(args),
        Command::Check(args) => check::run(args),
        Command::Build(args) => build::run(args),
        Command::List(args) => list::run(args),
        Command::Show(args) => show::run(args),
        Command::Run(args) => run::run(args),
        Command::Test(args) => test::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Generate(args) => generate::run(whole, args),
    }
}
