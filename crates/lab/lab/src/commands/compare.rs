//! `fairpath lab compare A B`: the differences between two directories of results, with intervals.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;

use fairpath_analysis::{compare, page, results};

use super::Format;

/// Compare two directories of results, with confidence intervals.
///
/// Runs are compared at the same setting. A difference counts only where its interval excludes zero.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath lab compare before after\n  \
    fairpath lab compare before after --format json\n  \
    fairpath lab compare before after --output compared")]
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
    /// Write a page with the figures of both to this directory
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the differences.
///
/// # Errors
/// The results cannot be read or compared.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let [first, second] = [&args.first, &args.second].map(|directory| results::read(directory));
    let names = names(&args.first, &args.second);
    let [a, b] = &names;
    let (document, compared) = page::comparison(&first?, &second?, [a, b])?;
    if let Some(directory) = &args.output {
        refuse_results(directory)?;
        let page = page::write_document(&document, directory).context("write the page")?;
        fairpath_cli::print_stderr(format_args!("{}\n", page.display()));
    }
    if args.format == Format::Json {
        let text = serde_json::to_string_pretty(&compared).context("write the comparison")?;
        return fairpath_cli::print(format_args!("{text}\n"));
    }
    let [a, b] = [&args.first, &args.second].map(|directory| directory.display().to_string());
    fairpath_cli::print(compare::text(&compared, &a, &b))
}

/// Names for lines of figures: the last parts of the paths, if they differ.
fn names(first: &Path, second: &Path) -> [String; 2] {
    let last = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    match (last(first), last(second)) {
        (Some(a), Some(b)) if a != b => [a, b],
        _ if first != second => [first, second].map(|path| path.display().to_string()),
        _ => ["first", "second"].map(str::to_owned),
    }
}

/// A directory of results has its own page.
fn refuse_results(directory: &Path) -> anyhow::Result<()> {
    if directory.join("manifest.json").exists() {
        bail!(
            "write the comparison to {}: it has results of an experiment: choose another --output",
            directory.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lines_differ() {
        let of = |a: &str, b: &str| names(Path::new(a), Path::new(b));
        assert_eq!(of("x/before", "y/after"), ["before", "after"]);
        assert_eq!(of("x/run", "y/run"), ["x/run", "y/run"]);
        assert_eq!(of("run", "run"), ["first", "second"]);
    }

    #[test]
    fn results_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        refuse_results(directory.path()).unwrap();
        std::fs::write(directory.path().join("manifest.json"), "{}").unwrap();
        let refused = refuse_results(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("choose another --output"), "{refused}");
    }
}
