//! `fairpath lab report DIR`: writes the page of complete or partial results.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::session;

/// Write the page of complete or partial results, and print a summary and the path of the page.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath lab report results\n  \
    chromium \"$(fairpath lab report results)\"")]
pub struct Args {
    /// Directory that `fairpath lab run --output DIR` wrote
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the page into the directory of results, and prints a summary and the path.
///
/// # Errors
/// There are no results, or the file system is full.
pub fn run(args: &Args) -> anyhow::Result<()> {
    session::report(&args.directory)?.print()
}
