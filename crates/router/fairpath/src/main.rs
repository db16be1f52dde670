//! The programmable packet path for Linux routers: the router's binary.
//!
//! One module a subcommand. `fairpath NAME` runs `fairpath-NAME` where NAME is none of them, as
//! git does: the lab and the demo are binaries of their own, and so is `fairpath sched`, because it
//! embeds Lua.

mod check;
mod class;
mod external;
mod features;
mod generate;
mod impair;
mod rtt;
mod run;
mod shape;
mod status;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// The programmable packet path for Linux routers.
#[derive(Parser)]
#[command(
    name = "fairpath",
    version,
    max_term_width = 100,
    after_help = "More: `fairpath demo` shows the main job on one machine (binary fairpath-demo).\n\
                  Exit status: 0 done, 1 failed, 2 wrong usage."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check what a configuration says of classes: subscribers, sites, uplinks
    Class(class::Args),
    /// Find out what this kernel, this user and these interfaces can do, by trying
    Features(features::Args),
    /// Tell the round-trip times, loss and reordering that passing traffic experiences
    Rtt(Box<rtt::Args>),
    /// Make a network worse on purpose: loss, delay, rate and the rest, and tell whether truly so
    Impair(Box<impair::Args>),
    /// Run the daemon: watch interfaces, count by class, answer the others
    Run(run::Args),
    /// Packet schedulers: list and show policies, simulate a link
    Sched,
    /// Give every class its rate and every flow its fair share
    Shape(Box<shape::Args>),
    /// Tell how the daemon is
    Status(status::StatusArgs),
    /// Let the daemon take in its configuration again
    Reload(status::ReloadArgs),
    /// Hold a class against limits, for Nagios and cron
    Check(check::Args),
    /// Show the classes: rates, delay on both sides, delay under load, loss, flows; live or once
    Top(top::Args),
    /// Write the manual pages or the shells' completions, as packages install them
    #[command(hide = true)]
    Generate(generate::Args),
    /// A command of its own binary: fairpath-NAME
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

fn main() -> ExitCode {
    fairpath_bpf::quiet_libbpf();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = match external::shown(&words) {
        Some(words) => Command::External(words),
        None => {
            Cli::try_parse()
                .unwrap_or_else(|error| check::leave(&error))
                .command
        }
    };
    let result = match command {
        Command::Class(args) => class::run(&args),
        Command::Impair(args) => match impair::run(&args) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Features(args) => features::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sched => external::run(&[external::SCHED.into()]),
        Command::Shape(args) => shape::run(&args),
        Command::Status(args) => status::status(&args),
        Command::Reload(args) => status::reload(&args),
        Command::Check(args) => return check::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Generate(args) => generate::run(Cli::command(), &args),
        Command::External(words) => external::run(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain in one line: object, operation, cause, remedy; causes that the outer
            // message already ends with are not said twice.
            let mut text = String::new();
            for cause in error.chain() {
                let cause = cause.to_string();
                if !text.contains(&cause) {
                    if !text.is_empty() {
                        text.push_str(": ");
                    }
                    text.push_str(&cause);
                }
            }
            eprintln!("fairpath: {text}");
            ExitCode::FAILURE
        }
    }
}
