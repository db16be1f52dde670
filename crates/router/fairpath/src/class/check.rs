//! `fairpath class check`: reads files as the daemon would, and tells what is wrong with them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_class::{At, ClassSet, Drafts, MAX_FILE_BYTES, Outcome, References, Uplinks};

use super::report;

/// Arguments of `fairpath class check`.
#[derive(clap::Args)]
pub struct Args {
    /// Files that make one configuration together
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
    /// Lines for people, or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs the subcommand. Errors in the files are a failure; warnings are one with `--strict`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let report = read_files(&args.files).report;
    let output = match args.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report).context("write the report as JSON")?,
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("write to standard output")?,
    }
    let warnings = if args.strict { report.warnings } else { 0 };
    if report.errors + warnings > 0 {
        bail!("check classes: {}", report::counts(&report));
    }
    Ok(())
}

/// Reads files with classes, and those that they name, and builds the tree.
pub fn read_files(files: &[PathBuf]) -> Outcome {
    let mut drafts = Drafts::new();
    let mut uplinks = Uplinks::Unknown;
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
            let beside = path
                .parent()
                .unwrap_or(Path::new(""))
                .join(&reference.value);
            read(&mut drafts, &beside, Some(reference));
        }
    }
    ClassSet::build(drafts, uplinks)
}

/// A file that cannot be read is one of the problems: it stands where the file was named.
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

/// One byte more than allowed is enough to be refused.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}
