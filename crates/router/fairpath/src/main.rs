//! The programmable packet path for Linux routers: the router's binary.
//!
//! One module per subcommand. For the subcommands `sched`, `lab` and `demo`, and for unknown ones,
//! `fairpath NAME` runs `fairpath-NAME`. They are separate binaries: the router links neither Lua
//! nor a test bed.

mod alerts;
mod check;
mod class;
mod completions;
mod external;
mod features;
mod generate;
mod history;
mod impair;
mod rtt;
mod rules;
mod run;
mod shape;
mod status;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairpath_backend::privileges;
use fairpath_cli::{Capability, Global};

/// Capabilities that attach the monitor to interfaces.
pub const MONITOR_CAPABILITIES: [Capability; 3] =
    [Capability::NetAdmin, Capability::Perfmon, Capability::Bpf];

/// Measure, shape and impair the packets that a Linux router forwards.
#[derive(Parser)]
#[command(
    name = "fairpath",
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        fairpath rtt -i wan --duration 1m\n  \
        fairpath demo\n\n\
        Exit status: 0 success, 1 failure, 2 wrong usage."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Status(status::StatusArgs),
    Reload(status::ReloadArgs),
    Top(top::Args),
    Alerts(alerts::Args),
    History(Box<history::Args>),
    Check(check::Args),
    Rtt(Box<rtt::Args>),
    Class(class::Args),
    Rules(Box<rules::Args>),
    Shape(Box<shape::Args>),
    Impair(Box<impair::Args>),
    Features(features::Args),
    /// Develop and simulate packet schedulers (binary fairpath-sched).
    Sched,
    /// Run experiments in network namespaces (binary fairpath-lab).
    Lab,
    /// Demonstrate the measurement on one machine in 40 seconds (binary fairpath-demo).
    Demo,
    Completions(completions::Args),
    #[command(hide = true)]
    Generate(generate::Args),
    /// A subcommand of another binary: fairpath-NAME.
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let result = match external::listed(&words[words.len().min(1)..]) {
        Some(words) => external::run(&words),
        None => {
            let cli: Cli = fairpath_cli::parse_from("", &words).unwrap_or_else(|refusal| {
                refusal.exit_with(check::usage_status(&refusal));
            });
            if !cli.global.verbose {
                fairpath_bpf::quiet_libbpf();
            }
            match run(cli) {
                Ok(status) => return status,
                Err(error) => Err(error),
            }
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fairpath_cli::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let global = cli.global;
    match cli.command {
        Command::Check(args) => return Ok(check::run(&args)),
        Command::Impair(args) => return impair::run(&args, &global),
        Command::Alerts(args) => alerts::run(&args),
        Command::History(args) => history::run(&args),
        Command::Class(args) => class::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Features(args) => features::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Rules(args) => return rules::run(&args),
        Command::Run(args) => run::run(&args, &global),
        Command::Shape(args) => shape::run(&args, &global),
        Command::Status(args) => status::status(&args),
        Command::Reload(args) => status::reload(&args),
        Command::Top(args) => top::run(&args, &global),
        Command::Generate(args) => generate::run(&args),
        Command::Sched => external::run(&["sched".into()]),
        Command::Lab => external::run(&["lab".into()]),
        Command::Demo => external::run(&["demo".into()]),
        Command::External(words) => external::run(&words),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The definition of the command line, as help, completions and manual pages have it.
fn definition() -> clap::Command {
    fairpath_cli::command::<Cli>()
}

#[cfg(test)]
mod tests {
    #[test]
    fn definition_is_consistent() {
        super::definition().debug_assert();
    }
}
