//! `fairpath sched build`: check a custom policy and write its object.
//!
//! A daemon loads objects only: it needs no compiler, and runs none as root.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use fairpath_files::Existing;

use super::check;
use super::check::findings::{Findings, Format};

/// Arguments of `fairpath sched build`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched build mine.c                  write mine.o next to it\n  \
    fairpath sched build mine.c --write build/m  write it elsewhere\n\n\
    The policy is checked as by `fairpath sched check`; after a problem, nothing is written.\n\
    A router runs it with policy = \"mine.o\" in [shape]. Build it again for another version of Fairpath.\n\
    The build needs clang 19 (apt-get install clang-19), and no privileges.\n\
    Exit status: 0 success, 1 failure, 2 wrong usage.")]
pub struct Args {
    /// Policy in C
    #[arg(value_name = "FILE.c")]
    file: PathBuf,
    /// Write the object to this file [default: that of the policy, with .o]
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let check = check::Args {
        file: args.file.clone(),
        tree: None,
        seed: 1,
        format: Format::Text,
        watch: false,
    };
    let mut findings = Findings::new(&args.file);
    let built = check::stages(&check, &mut findings);
    if let Err(problem) = &built {
        findings.problems.push(format!("{problem:#}"));
    }
    fairpath_cli::print(findings.output(Format::Text)?)?;
    let Ok(own) = built else {
        bail!(
            "build policy {}: the problems are listed above",
            args.file.display()
        );
    };
    let output = match &args.write {
        Some(output) => output.clone(),
        None => args.file.with_extension("o"),
    };
    let object = own.author.object();
    fairpath_files::output(&output, Existing::Truncate)
        .and_then(|mut file| file.write_all(object))
        .with_context(|| format!("write {}", output.display()))?;
    fairpath_cli::print(format_args!(
        "Wrote {}. A router runs it with policy = \"{}\" in [shape].\n",
        output.display(),
        output.display()
    ))
}
