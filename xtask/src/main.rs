//! The project's automation: everything the Makefile and CI do, and nothing they do elsewhere.
//!
//! One file per subcommand; [`tidy`] holds the house rules as pure functions over file texts, so
//! that each is tested on a made-up input. Commands run in the repository's root.

mod bench;
mod build;
mod check;
mod cross;
mod deb;
mod docs;
mod manual;
mod pages;
mod run;
mod sanitize;
mod shots;
mod skips;
mod test;
mod tidy;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's automation.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, clippy, the C's layout, and tidy
    Check,
    /// Check the project rules: dependencies, places of code, links, commits, words, sentences
    Tidy,
    Words(tidy::words::Args),
    Prose(tidy::prose::Args),
    Shots(shots::Args),
    /// Every test tier, then what was skipped and why
    Test(test::Args),
    /// The native core under AddressSanitizer and UBSan, fed with damaged packets
    Sanitize,
    /// Speed, as ratios to a peer in the same run
    Bench(bench::Args),
    /// The tests that take more than a minute
    Soak(bench::Args),
    /// Generated pages of docs/, and the manual pages
    Docs(docs::Args),
    /// The binary for arm64, built and tried in an emulator
    Cross,
    /// The Debian package
    Deb(deb::Args),
    /// The guest tier: boots Debian's kernels in QEMU and runs scenarios in them
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let done = run::in_root(|| match command {
        Command::Check => check::run(),
        Command::Tidy => tidy::run(),
        Command::Words(args) => tidy::words::list(&args),
        Command::Prose(args) => tidy::prose::list(&args),
        Command::Shots(args) => shots::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Sanitize => sanitize::run(),
        Command::Bench(args) => bench::bench(&args),
        Command::Soak(args) => bench::soak(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Cross => cross::run(),
        Command::Deb(args) => deb::run(&args),
        Command::Vm(args) => vm::run(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether `cargo xtask` has a subcommand of this name.
fn has_subcommand(name: &str) -> bool {
    use clap::CommandFactory;
    Cli::command().find_subcommand(name).is_some()
}
