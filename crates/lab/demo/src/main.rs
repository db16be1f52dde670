//! fairpath demo: client, router and server on one machine, measured and judged.
//!
//! ```text
//! client ──[2 ms each way]── lan [router: fairpath rtt, run] wan ──[10 ms each way]── server
//! ```
//!
//! Real tools make the traffic, `fairpath rtt` measures it in the middle, `fairpath run` counts it by class, and what it says is held
//! against what was planted (delays, loss) and what others see (`ping`, the sender's own kernel).
//! The exit status is 0 only if every check holds.
//!
//! Deliberately absent: any measuring of its own. The demo reads what `fairpath rtt` wrote.

mod check;
mod classes;
mod interrupt;
mod kernel;
mod lab;
mod loss;
mod needs;
mod out;
mod outcome;
mod parts;
mod progress;
mod report;
mod samples;
mod schedule;
mod spread;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use lab::Lab;
use out::Out;
use parts::Plan;
use progress::Progress;
use report::Report;
use samples::Records;
use schedule::Schedule;

/// Show and check `fairpath rtt` on a client, a router and a server in namespaces of this machine
///
/// Real traffic passes a router between two wires of known delay; `fairpath rtt` watches the router.
/// What it measured is then printed beside what was planted, what `ping` says and what the sender's
/// own kernel says (`ss -ti`), each with a stated tolerance. Takes some 40 seconds and needs root.
/// Nothing outside the namespaces is touched, and nothing is left behind but the files in DIR.
#[derive(Parser)]
#[command(
    name = "fairpath-demo",
    bin_name = "fairpath demo",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 every check holds, 1 one does not or a part failed, 2 wrong usage."
)]
struct Cli {
    /// Keep the samples (JSON lines) and the report here
    #[arg(
        long,
        visible_alias = "keep",
        value_name = "DIR",
        default_value = "demo-out"
    )]
    out: PathBuf,
    /// Less of everything: some 20 seconds
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fairpath demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every check holds.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    needs::check()?;
    let out = Out::prepare(&cli.out)?;
    interrupt::remove_when_interrupted(&out)?;
    let samples = out.samples();

    let plan = if cli.quick { Plan::QUICK } else { Plan::FULL };
    let parts = plan.parts();
    let mut progress = Progress::new(parts.len());
    let lab = progress.run(
        "client, router and server in namespaces; fairpath rtt and fairpath run start",
        || Lab::build(&samples, &out.daemon()),
    )?;
    let mut done = Vec::new();
    for part in parts {
        let outcome = progress.part(part.title, || part.run(&lab));
        done.push((part, outcome));
    }
    let (summary, reported, wire_drops) = lab.finish()?;
    let title = "ten transfers and a call under FIFO and FQ-CoDel, simulated";
    let schedule = progress.run(title, Schedule::run);

    let records = Records::read(&samples)?;
    let report = Report::new(&done, &records, reported, schedule, wire_drops);
    let text = report.text(progress.elapsed(), &samples);
    out.remove_daemon();
    out.write("rtt-summary.txt", &summary)?;
    out.write("report.txt", &text)?;
    let printed = io::stdout().write_all(text.as_bytes());
    printed.context("print the report")?;
    Ok(report.failed() == 0)
}
