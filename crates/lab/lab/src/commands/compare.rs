//! `fairpath lab compare A B`: what differs between two directories of results, with its interval.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;

use fairpath_analysis::{compare, results};

/// Which two.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Results to compare with
    #[arg(value_name = "A")]
    first: PathBuf,
    /// Results that are compared
    #[arg(value_name = "B")]
    second: PathBuf,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the verdict.
///
/// # Errors
/// Results that cannot be read or compared.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let [first, second] = [&args.first, &args.second].map(|directory| results::read(directory));
    let compared = compare::compare(&first?, &second?)?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&compared).context("write the comparison")?
        );
        return Ok(());
    }
    let [a, b] = [&args.first, &args.second].map(|directory| directory.display().to_string());
    print!("{}", compare::text(&compared, &a, &b));
    Ok(())
}
