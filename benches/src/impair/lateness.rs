//! The lateness of packets that `fairpath impair` delays by 20 ms, and its effect on sparse ones.
//!
//! ```text
//!   sender ── lan [router: fairpath impair lan --peer wan --to-peer "delay 20ms"] wan ── receiver
//! ```
//!
//! Lateness is the command's own histogram (`--format json`): from a packet's planned time to the clock behind
//! the call that handed it to the kernel. The receiver's clock is independent of the plan: a sparse packet
//! with a delay of 20 ms is compared with the same path without the command, in the same round, so the
//! cost of the path (two wake-ups, no batch that waits to be full) is measured. Fewer than 1,000
//! packets have their maximum in place of p99.9.
//!
//! A round is every pace by every port; each has a separate process. An invalid run is
//! reported with its reasons, and its figures count.

mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_testbed::{Process, Router, Testbed};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use report::Case;
pub use report::LatenessReport;

use super::paced::{self, Passed};
use crate::cpus::{Ahead, process_time};

/// The configured impairment.
const DELAY: &str = "delay 20ms";
const DELAY_US: f64 = 20_000.0;
/// Packets a second up to which a flow is sparse: each finds all threads asleep. They run twice as long.
const SPARSE: u32 = 100;
/// To be ready, and to end, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Lateness")]
#[group(skip)]
pub struct Args {
    /// Datagrams a second
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 8_000, 10_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    paces: Vec<u32>,
    /// The back ends that delay
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Port::ALL)]
    ports: Vec<Port>,
    /// Seconds of each run; sparse ones (100 a second and fewer) take twice as long
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Rounds of all paces by all ports
    #[arg(long, default_value_t = 3)]
    lateness_rounds: u32,
}

/// By what packets come to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// Past the stack
    Afxdp,
    /// The same with --precise
    AfxdpPrecise,
    /// By netfilter
    Nfqueue,
    /// The same with --precise
    NfqueuePrecise,
}

impl Port {
    const ALL: [Port; 4] = [
        Port::Afxdp,
        Port::AfxdpPrecise,
        Port::Nfqueue,
        Port::NfqueuePrecise,
    ];

    fn name(self) -> &'static str {
        match self {
            Port::Afxdp => "afxdp",
            Port::AfxdpPrecise => "afxdp precise",
            Port::Nfqueue => "nfqueue",
            Port::NfqueuePrecise => "nfqueue precise",
        }
    }

    /// The options of the command.
    fn options(self) -> &'static [&'static str] {
        match self {
            Port::Afxdp => &["--via", "afxdp"],
            Port::AfxdpPrecise => &["--via", "afxdp", "--precise"],
            Port::Nfqueue => &["--via", "nfqueue"],
            Port::NfqueuePrecise => &["--via", "nfqueue", "--precise"],
        }
    }
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            paces: vec![10, 1_000, 8_000, 10_000],
            ports: Port::ALL.to_vec(),
            seconds: 10,
            lateness_rounds: 3,
        }
    }

    fn time(&self, pace: u32) -> Duration {
        let times = if pace <= SPARSE { 2 } else { 1 };
        Duration::from_secs(u64::from(self.seconds) * times)
    }
}

/// Measures it.
///
/// # Errors
/// Where the bench itself fails; it needs root and the release binary.
pub fn run(args: &Args) -> anyhow::Result<LatenessReport> {
    if args.lateness_rounds == 0 || args.seconds == 0 || args.paces.is_empty() {
        bail!("nothing to measure: give a round, a second and a pace");
    }
    crate::fairpath()?;
    let _ahead = Ahead::of_others();
    let net = Router::new(&Testbed::new())?;
    let mut cases: Vec<Case> = Vec::new();
    for round in 0..args.lateness_rounds {
        for &pace in &args.paces {
            let time = args.time(pace);
            eprintln!("fairpath-bench: lateness, round {round}, {pace} packets/s");
            let without = match pace <= SPARSE {
                true => Some(paced::run(&net, pace, time)?),
                false => None,
            };
            for &port in &args.ports {
                let one = delayed(&net, port, pace, time);
                let one = one.with_context(|| format!("by {} at {pace}/s", port.name()))?;
                let is_it = |case: &Case| (case.port, case.pace) == (port, pace);
                let at = cases.iter().position(is_it).unwrap_or_else(|| {
                    cases.push(Case::new(port, pace));
                    cases.len() - 1
                });
                cases[at].push(one, without.as_ref());
            }
        }
    }
    Ok(LatenessReport::of(args.lateness_rounds, cases))
}

/// One run with the command.
pub struct One {
    passed: Passed,
    reported: Reported,
    direction: DirectionReport,
    cpu_percent: f64,
}

/// The last line of `fairpath impair --format json`; other keys are ignored.
#[derive(Deserialize)]
struct Reported {
    #[serde(rename = "valid")]
    is_true: bool,
    #[serde(rename = "reasons")]
    why: Vec<String>,
    directions: Vec<DirectionReport>,
}

#[derive(Clone, Deserialize)]
struct DirectionReport {
    name: String,
    #[serde(rename = "enqueued_packets")]
    packets: u64,
    #[serde(rename = "backend_dropped_packets")]
    own_dropped: u64,
    #[serde(rename = "kernel_dropped_packets")]
    queue_dropped: u64,
    lateness_ns: Option<[u64; 4]>,
}

fn delayed(net: &Router, port: Port, pace: u32, time: Duration) -> anyhow::Result<One> {
    let words = ["--to-peer", DELAY, "--from-peer", "none", "--seed", "1"];
    let mut command = net.router.command_without_sysfs(crate::fairpath()?);
    command.args(["impair", "lan", "--peer", "wan"]);
    command.args(port.options());
    command.args(words);
    command.args(["--format", "json", "--no-self-test", "--yes"]);
    let mut process = net.router.spawn(command)?;
    process.wait_stderr("ready: impairing", DEADLINE)?;
    process.wait_stderr("back end", DEADLINE)?;
    let (before, begun) = (process_time(process.id())?, Instant::now());
    let passed = paced::run(net, pace, time)?;
    let used = process_time(process.id())?.saturating_sub(before);
    let cpu_percent = 100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64();
    let reported = last_words(&mut process)?;
    let direction = reported
        .directions
        .iter()
        .find(|direction| direction.name == "to-peer");
    let direction = direction
        .context("the report has no direction to-peer")?
        .clone();
    if direction.packets < passed.sent {
        bail!(
            "of {} datagrams {} met the delay: the others went another way",
            passed.sent,
            direction.packets
        );
    }
    Ok(One {
        passed,
        reported,
        direction,
        cpu_percent,
    })
}

fn last_words(process: &mut Process) -> anyhow::Result<Reported> {
    process.signal(Signal::SIGINT);
    // Its status has the validity of the run, which is also in its report.
    process.wait(DEADLINE)?;
    process.close_tails();
    let output = process.stdout();
    let last = output.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("read its report: {}", process.stderr()))
}
