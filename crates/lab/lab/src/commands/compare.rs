//! `fairpath lab compare A B`: the differences between two directories of results, with intervals.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;

use fairpath_analysis::{compare, results};

use super::Format;

/// Compare two directories of results, with confidence intervals.
///
/// Runs are compared at the same setting. A difference counts only where its interval excludes zero.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath lab compare before after\n  \
    fairpath lab compare before after --format json")]
pub struct Args {
    /// Directory of the first results
    #[arg(value_name = "A")]
    first: PathBuf,
    /// Directory of the second results
    #[arg(value_name = "B")]
    second: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Prints the differences.
///
/// # Errors
/// The results cannot be read or compared.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let [first, second] = [&args.first, &args.second].map(|directory| results::read(directory));
    let compared = compare::compare(&first?, &second?)?;
    if args.format == Format::Json {
        let text = serde_json::to_string_pretty(&compared).context("write the comparison")?;
        return fairpath_cli::print(format_args!("{text}\n"));
    }
    let [a, b] = [&args.first, &args.second].map(|directory| directory.display().to_string());
    fairpath_cli::print(compare::text(&compared, &a, &b))
}
