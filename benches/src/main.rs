//! `make bench`: how fast Fairpath is, always beside a peer in the same run.
//!
//! ```text
//!   live.rs     packets through a router, monitor off and on        scene.rs, slice.rs
//!   offline.rs  a capture through fairpath, tshark and tcptrace     made.rs
//!   classes.rs  files with many classes through `fairpath class check`
//!   all         medians and spread, targets beside them             measure.rs, table.rs
//! ```
//!
//! A report and no test: a missed target is printed and the exit status stays 0. It is not 0 where
//! the bench itself failed.

mod classes;
mod live;
mod machine;
mod made;
mod measure;
mod offline;
mod peer;
mod scene;
mod slice;
mod table;

use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use machine::Machine;
use serde_json::json;

/// Measures Fairpath's speed beside its peers, on this machine, now.
#[derive(Parser)]
#[command(name = "fairpath-bench")]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Tables for people, or one JSON object
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
}

#[derive(Subcommand)]
enum What {
    /// Forwarded packets per second with the monitor off and on (root)
    Live(live::Args),
    /// Packets per second from a capture, beside tshark and tcptrace
    Offline(offline::Args),
    /// Seconds that a check of many classes takes
    Classes(classes::Args),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// One JSON object
    Json,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let machine = Machine::look()?;
    let text = args.format == Format::Text;
    if text {
        print!("{}", machine.text());
    }
    let (live_args, offline_args, class_args) = match args.what {
        Some(What::Live(live)) => (Some(live), None, None),
        Some(What::Offline(offline)) => (None, Some(offline), None),
        Some(What::Classes(classes)) => (None, None, Some(classes)),
        None => (
            Some(live::Args::usual()),
            Some(offline::Args::usual()),
            Some(classes::Args::usual()),
        ),
    };
    let live = live_args.map(|args| live::run(&args)).transpose()?;
    if let (true, Some(report)) = (text, &live) {
        print!("{}", report.text());
    }
    let offline = offline_args.map(|args| offline::run(&args)).transpose()?;
    if let (true, Some(report)) = (text, &offline) {
        print!("{}", report.text());
    }
    let classes = class_args.map(|args| classes::run(&args)).transpose()?;
    if let (true, Some(report)) = (text, &classes) {
        print!("{}", report.text());
    }
    if !text {
        println!(
            "{}",
            json!({ "schema": 1, "machine": machine, "live": live, "offline": offline, "classes": classes })
        );
    }
    Ok(())
}

/// The release binary beside this program.
fn fairpath() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("fairpath");
    if !path.exists() {
        bail!(
            "{} is missing; build it (cargo build --release --package fairpath)",
            path.display()
        );
    }
    Ok(path)
}
