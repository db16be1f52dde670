//! The programmable packet path for Linux routers: the router's binary.

mod features;

use clap::{Parser, Subcommand};

/// The programmable packet path for Linux routers.
#[derive(Parser)]
#[command(name = "fairpath", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find out what this kernel, this user and these interfaces can do, by trying
    Features(features::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Features(args) => features::run(&args),
    }
}
