//! `fairpath features`: what this kernel, this user and these interfaces can do; see `fairpath-features`.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, bail};
use fairpath_features::{find_out, kernel_support};

/// Arguments of `fairpath features`.
#[derive(clap::Args)]
pub struct Args {
    /// Report only this interface (may be repeated); without it, all
    #[arg(short, long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Text for people, or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print docs/kernel-support.md and try nothing
    #[arg(long)]
    docs: bool,
    /// Load every BPF object of this binary, attach nothing, and say what the verifier made of it
    #[arg(long, hide = true)]
    load_all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs the subcommand. A feature that is missing is an answer, not a failure.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.load_all {
        return load_all();
    }
    let output = if args.docs {
        kernel_support()
    } else {
        let report = find_out(&args.interfaces)?;
        match args.format {
            Format::Text => report.text(colour_wanted()),
            Format::Json => report.json().context("write the report as JSON")?,
        }
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}

/// One line an object; fails where one was refused.
fn load_all() -> anyhow::Result<()> {
    let mut refused = 0;
    for object in fairpath_bpf::load_all() {
        match object.result {
            Ok(()) => println!("object {} ok", object.name),
            Err(error) => {
                refused += 1;
                println!("object {} error {error:#}", object.name);
            }
        }
    }
    if refused > 0 {
        bail!(
            "load every BPF object: the kernel refused {refused}; `fairpath features` tells what it lacks"
        );
    }
    Ok(())
}

fn colour_wanted() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
