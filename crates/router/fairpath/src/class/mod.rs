//! `fairpath class`: what operators say of their classes, before a monitor is told.

mod check;
mod report;

pub use check::read_files;

use clap::Subcommand;

/// Arguments of `fairpath class`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check files with classes: all problems at once, with line and column
    ///
    /// All FILEs together are one configuration: parents may be in one file and children in
    /// another. NAME.toml has [[class]] tables, and what its class_files and [labels] name is read
    /// too; NAME.json is LibreQoS's network.json. Any other file is CSV, told apart by its first
    /// line: LibreQoS's ShapedDevices.csv, labels of prefixes (prefix,label), or Fairpath's own
    /// (name,parent,prefix,...).
    Check(check::Args),
}

/// Runs `fairpath class`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Check(args) => check::run(args),
    }
}
