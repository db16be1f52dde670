//! `fairpath demo`: measures a client, a router and a server on one machine, and checks the results.
//!
//! ```text
//! client ──[2 ms each way]── lan [router: fairpath rtt, run] wan ──[10 ms each way]── server
//! ```
//!
//! Real tools generate the traffic, `fairpath rtt` measures it on the router, and `fairpath run` counts
//! it by class. The results are compared with the configured delays and losses, with `ping`, and with
//! the kernel of the sender. The exit status is 0 only if every check passes.
//!
//! The demo measures nothing itself. It reads the records of `fairpath rtt`.

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

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairpath_cli::Global;

use lab::Lab;
use out::Out;
use parts::Plan;
use progress::Progress;
use report::DemoReport;
use samples::Records;
use schedule::Schedule;

/// Demonstrate and check the measurement in network namespaces of this machine.
///
/// Real traffic crosses a router between two emulated links of known delay. The report compares the
/// results of `fairpath rtt` with the configured delays, with `ping`, and with the kernel of the sender
/// (`ss -ti`), each with a tolerance. It takes about 40 seconds and needs root. It changes nothing
/// outside the namespaces, and leaves nothing except the files in DIR.
#[derive(Parser)]
#[command(
    name = "fairpath-demo",
    bin_name = "fairpath demo",
    after_help = "Examples:\n  \
        fairpath demo\n  \
        fairpath demo --quick --output /tmp/demo\n\n\
        Exit status: 0 every check passed, 1 a check or a part failed, 2 wrong usage."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    /// Directory for the samples (JSON lines) and the report
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    output: PathBuf,
    /// Run shorter parts, about 20 seconds in total
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    match run(&fairpath_cli::parse("demo")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fairpath_cli::report(&error),
    }
}

/// Returns whether every check passed.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    needs::check()?;
    let out = Out::prepare(&cli.output)?;
    interrupt::remove_when_interrupted(&out)?;
    let passed = demonstrate(cli, &out);
    out.remove_daemon();
    passed
}

fn demonstrate(cli: &Cli, out: &Out) -> anyhow::Result<bool> {
    let samples = out.samples();

    let plan = if cli.quick { Plan::QUICK } else { Plan::FULL };
    let parts = plan.parts();
    let mut progress = Progress::new(parts.len(), cli.global.quiet);
    let lab = progress.run(
        "client, router and server in namespaces; fairpath rtt and fairpath run start",
        || Lab::build(&samples, out.daemon()),
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
    let report = DemoReport::new(&done, &records, reported, schedule, wire_drops);
    let text = report.text(progress.elapsed(), &samples);
    out.write("rtt-summary.txt", &summary)?;
    out.write("report.txt", &text)?;
    fairpath_cli::print(text)?;
    Ok(report.failed() == 0)
}
