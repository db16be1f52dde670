//! `fairpath class`: validation of classes without a daemon.

mod check;
mod report;

use clap::Subcommand;

pub use check::load;

/// Validate the classes of a configuration: subscribers, sites and uplinks.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath class check /etc/fairpath/fairpath.toml\n  \
    fairpath class check --format json subscribers.csv")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
}

/// Runs `fairpath class`.
///
/// # Errors
/// Those of the subcommand.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Check(args) => check::run(args),
    }
}
