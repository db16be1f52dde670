//! `fairpath lab report DIR`: the page of results, finished or not.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::session;

/// Of which results.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What `fairpath lab run --out DIR` wrote
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes it beside the results and says where.
///
/// # Errors
/// No results, or no room.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let page = session::report(&args.directory)?;
    println!("{}", page.display());
    Ok(())
}
