//! The project's automation: everything the Makefile and CI do, and nothing they do elsewhere.
//!
//! One file per subcommand. [`tidy`] has the project rules as pure functions over file texts, so each is
//! tested on small inputs. Commands run in the repository's root.

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
    /// Check formatting, lints, the format of the C code, and the project rules
    Check,
    /// Check the project rules: dependencies, places of code, links, commits, words, sentences
    Tidy,
    Words(tidy::words::Args),
    Prose(tidy::prose::Args),
    Shots(shots::Args),
    /// Run all tests, and list skipped tests with their reasons
    Test(test::Args),
    /// Test the native core with AddressSanitizer and UBSan on corrupted packets
    Sanitize,
    /// Measure speed as ratios to a peer in the same run
    Bench(bench::Args),
    /// Run all tests in full, then those of more than a minute
    Soak(bench::Args),
    /// Write the generated pages of docs/, or the manual pages
    Docs(docs::Args),
    /// Build the binary for arm64, and run it in an emulator
    Cross,
    /// Build the Debian package
    Deb(deb::Args),
    /// Run scenarios in guests: Debian's kernels in QEMU
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

/// True if `cargo xtask` has a subcommand of this name.
fn has_subcommand(name: &str) -> bool {
    use clap::CommandFactory;
    Cli::command().find_subcommand(name).is_some()
}
