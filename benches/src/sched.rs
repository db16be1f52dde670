//! Packets a second through a simulated link, on one core, natively.
//!
//! No peer simulates the same, so the target is a rate. A packet is one that came: it is made,
//! enqueued, dequeued or dropped, and measured. Time is the process's own CPU time.

use anyhow::{Context, bail};
use fairpath_core::sched::{Scheduler, policies};
use fairpath_sched::tree::{Known, Tree};
use fairpath_sim::simulate::{Settings, simulate};
use fairpath_sim::traffic::{Generator, Spec};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::table::{build, grouped};

/// Packets a second that are enough.
const TARGET: f64 = 3e6;
/// Of the link.
const RATE_BPS: u64 = 1_000_000_000;

/// The options of the simulation.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Virtual seconds of each case
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds of all cases
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            seconds: 10,
            rounds: 5,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct SchedReport {
    seconds: u64,
    cases: Vec<Case>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct Case {
    policy: &'static str,
    traffic: &'static str,
    packets: u64,
    packets_per_second: Measured,
}

/// Policies that do the least, the most usual and the most work; a queue that is short, and one
/// that is full.
const CASES: [(&str, &str); 6] = [
    ("fifo", "poisson flows=1000 rate=0.9mbit"),
    ("fifo", "cbr flows=100 rate=12mbit"),
    ("stfq", "poisson flows=1000 rate=0.9mbit"),
    ("stfq", "cbr flows=100 rate=12mbit"),
    ("fq_codel", "poisson flows=1000 rate=0.9mbit"),
    ("fq_codel", "bulk flows=100 rtt=20ms"),
];

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails.
pub fn run(args: &Args) -> anyhow::Result<SchedReport> {
    if args.rounds == 0 || args.seconds == 0 {
        bail!("nothing to measure: give at least one round and one second");
    }
    let mut rates = vec![Vec::new(); CASES.len()];
    let mut packets = [0; CASES.len()];
    for _ in 0..args.rounds {
        for (at, (policy, traffic)) in CASES.iter().enumerate() {
            let (arrived, seconds) = once(policy, traffic, args.seconds)?;
            packets[at] = arrived;
            rates[at].push(arrived as f64 / seconds);
        }
    }
    let cases = CASES.iter().zip(rates).zip(packets);
    let cases: Vec<Case> = cases
        .map(|(((policy, traffic), rates), packets)| Case {
            policy,
            traffic,
            packets,
            packets_per_second: Measured::of(rates),
        })
        .collect();
    let target = |case: &Case| {
        let what = format!("simulation, {}, {}", case.policy, case.traffic);
        Target::at_least(
            what,
            case.packets_per_second.median / 1e6,
            TARGET / 1e6,
            "million packets/s",
        )
    };
    let targets = cases.iter().map(target).collect();
    Ok(SchedReport {
        seconds: args.seconds,
        cases,
        targets,
    })
}

/// Packets that came, and seconds of CPU time.
fn once(policy: &str, traffic: &str, seconds: u64) -> anyhow::Result<(u64, f64)> {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let found = policies().iter().find(|known| known.name == policy);
    let tree = Tree::of_policy(
        found.with_context(|| format!("find policy {policy}"))?,
        known,
    )?;
    let mut runtime = Scheduler::new(&tree.plan)?;
    let spec = Spec::read(traffic)?;
    let generator = Generator::new(&spec, 1, |name| name.parse().ok());
    let mut generator = generator.map_err(|class| anyhow::anyhow!("there is no class {class}"))?;
    let settings = Settings {
        rate_bps: RATE_BPS,
        overhead_bytes: 24,
        duration_ns: Some(seconds * 1_000_000_000),
    };
    let begun = cpu_seconds()?;
    let found = simulate(
        &mut runtime,
        &tree,
        &mut generator,
        &settings,
        None,
        &mut |_| true,
    )?;
    Ok((found.total.offered.packets, cpu_seconds()? - begun))
}

fn cpu_seconds() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("read the CPU time")?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

impl SchedReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads = ["policy, traffic", "packets", "million/s", "least", "most"];
        let row = |case: &Case| {
            let rate = &case.packets_per_second;
            let rates = [rate.median, rate.min, rate.most].map(|rate| format!("{:.2}", rate / 1e6));
            let what = format!("{}, {}", case.policy, case.traffic);
            [vec![what, grouped(case.packets)], rates.to_vec()].concat()
        };
        let rows: Vec<_> = self.cases.iter().map(row).collect();
        let targets: String = self.targets.iter().map(Target::text).collect();
        format!(
            "\nsimulated link of 1 Gbit/s, {} virtual seconds, packets a second of CPU time\n{}{targets}",
            self.seconds,
            build(&heads, &rows)
        )
    }
}
