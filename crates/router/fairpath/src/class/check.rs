//! `fairpath class check`: read files as the daemon does, and report all problems.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_class::{
    At, ClassSet, Drafts, MAX_FILE_BYTES, Outcome, References, Severity, Uplinks,
};

use super::report;

/// Validate files with classes, and report all problems with line and column.
///
/// All FILEs together are one configuration: parents may be in one file and children in another.
/// NAME.toml has [[class]] tables; files that its class_files and [labels] name are read as well.
/// NAME.json is LibreQoS's network.json. Any other file is CSV, recognised by its first line:
/// LibreQoS's ShapedDevices.csv, labels of prefixes (prefix,label), or Fairpath's own format
/// (name,parent,prefix,...).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath class check /etc/fairpath/fairpath.toml\n  \
    fairpath class check --strict network.json ShapedDevices.csv")]
pub struct Args {
    /// Files of one configuration
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Fail on warnings as well
    #[arg(long)]
    strict: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One problem per line, and a summary
    Text,
    /// One JSON object per line
    Json,
}

/// Runs `fairpath class check`.
///
/// # Errors
/// The files have errors or, with `--strict`, warnings.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let report = build(&args.files, Uplinks::Unknown).report;
    let output = match args.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report).context("write the report as JSON")?,
    };
    fairpath_cli::print(output)?;
    let warnings = if args.strict { report.warnings } else { 0 };
    if report.errors + warnings > 0 {
        bail!("check classes: {}", report::counts(&report));
    }
    Ok(())
}

/// The classes of `files`. `has_uplinks` says that uplinks are named elsewhere.
///
/// # Errors
/// The first error in the files.
pub fn load(files: &[PathBuf], has_uplinks: bool) -> anyhow::Result<ClassSet> {
    let uplinks = match has_uplinks {
        true => Uplinks::Given,
        false => Uplinks::Unknown,
    };
    let Outcome { set, report, .. } = build(files, uplinks);
    let mut problems = report.problems.iter();
    let first = problems.find(|problem| problem.severity == Severity::Error);
    set.with_context(|| match first {
        Some(problem) => format!("read classes: {problem}"),
        None => format!("read classes: {}", report::counts(&report)),
    })
}

fn build(files: &[PathBuf], mut uplinks: Uplinks) -> Outcome {
    let mut drafts = Drafts::new();
    for path in files {
        let references = read(&mut drafts, path, None);
        let is_toml = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("toml"));
        uplinks = match uplinks {
            _ if references.uplinks => Uplinks::Given,
            Uplinks::Unknown if is_toml => Uplinks::Missing,
            before => before,
        };
        let named = references.class_files.iter().chain(&references.labels);
        for reference in named {
            let relative = path
                .parent()
                .unwrap_or(Path::new(""))
                .join(&reference.value);
            read(&mut drafts, &relative, Some(reference));
        }
    }
    ClassSet::build(drafts, uplinks)
}

/// A file that cannot be read is a problem at the place that names it.
fn read(drafts: &mut Drafts, path: &Path, named: Option<&At<String>>) -> References {
    let name = path.display().to_string();
    match content(path) {
        Ok(content) => drafts.read_file(&name, &content),
        Err(error) => {
            let text = format!("file \"{name}\" cannot be read: {error}");
            match named {
                Some(reference) => drafts.refuse(reference.place, text),
                None => drafts.refuse_file(&name, text),
            }
            References::default()
        }
    }
}

/// Reads at most one byte more than allowed, which is then refused.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}
