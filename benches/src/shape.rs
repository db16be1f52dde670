//! The costs of shaping: real TCP through a router, by each of Fairpath's ports, by an HTB that was
//! made by hand, by one TBF, and unshaped.
//!
//! ```text
//! server ── wan [router: 1,000 or 10,000 classes, two of them busy] lan ── client, two subscribers
//! ```
//!
//! Data flows down to one subscriber, over one or eight connections; a ping goes to the same subscriber
//! (the queue that it shares with the flows) and one to another (what all packets wait for). Both ways
//! are shaped. Offloads are on, as a veth has them: the kernel's own queues receive GSO packets, AF_XDP
//! frames, because the kernel segments for it.
//!
//! With `--both-ways`, as many connections also flow up, so pings wait behind data in both directions.
//!
//! Both ends of the connections are on one CPU, since a connection on two reorders its own packets; the
//! pings are on the other. CPU time is that of all CPUs, ends included, less what the same pings took
//! without flows. Every shaper gets its own router, and all rates and flows in turn; ratios are of
//! the same round. Absent: targets; the issue names none, only the peer.

mod htb;
mod report;
mod scene;
mod tbf;
mod text;
pub mod via;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;

use crate::cpus::Ahead;
pub use report::ShapeReport;
use report::{Case, Lists};
use scene::{Load, Scene};
use via::{Running, Via};

/// The capacity of the addresses, in classes: a /16, hashed by its last two octets.
const MAX_CLASSES: u32 = 60_000;
/// Two classes are busy.
const MIN_CLASSES: u32 = 2;
/// Connections of one iperf3.
const MAX_FLOWS: u32 = 128;
/// The slowest line: a flow of one second should bring some hundred packets.
const MIN_RATE: f64 = 0.01;
/// The fastest line.
const MAX_RATE: f64 = 100.0;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds of everything
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Rates of the line, Gbit/s of Ethernet frames
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 1.0, 5.0])]
    rates: Vec<f64>,
    /// Classes
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    classes: Vec<u32>,
    /// TCP connections, all to one subscriber
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    flows: Vec<u32>,
    /// The shapers
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Via::ALL)]
    ports: Vec<Via>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// As many connections up, too
    #[arg(long)]
    both_ways: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            rounds: 1,
            rates: vec![0.1, 1.0, 5.0],
            classes: vec![1_000, 10_000],
            flows: vec![1, 8],
            ports: Via::ALL.to_vec(),
            seconds: 3,
            both_ways: false,
        }
    }

    /// Latency under load in both directions, from a slow line to a fast one.
    pub fn latency() -> Args {
        Args {
            rates: vec![0.019, 0.095, 0.5, 2.0],
            classes: vec![100],
            flows: vec![4],
            seconds: 10,
            both_ways: true,
            ..Args::usual()
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let some = [&self.classes, &self.flows]
            .iter()
            .all(|list| !list.is_empty());
        if self.rounds == 0 || self.seconds == 0 || self.rates.is_empty() || !some {
            bail!(
                "nothing to measure: give a round, a second, a rate, a number of classes and one of flows"
            );
        }
        let rates = MIN_RATE..=MAX_RATE;
        if let Some(rate) = self.rates.iter().find(|rate| !rates.contains(*rate)) {
            bail!("--rates {rate}: between {MIN_RATE} and {MAX_RATE} Gbit/s");
        }
        let classes = MIN_CLASSES..=MAX_CLASSES;
        if let Some(n) = self.classes.iter().find(|n| !classes.contains(*n)) {
            bail!("--classes {n}: between {MIN_CLASSES} and {MAX_CLASSES}");
        }
        if let Some(n) = self.flows.iter().find(|n| !(1..=MAX_FLOWS).contains(*n)) {
            bail!("--flows {n}: between 1 and {MAX_FLOWS}");
        }
        Ok(())
    }

    /// Rates of the line, bit/s.
    fn lines(&self) -> Vec<u64> {
        let whole = |rate: &f64| (rate * 1e9).round() as u64;
        self.rates.iter().map(whole).collect()
    }

    /// The shaper and the number of classes; without a shaper there are none.
    fn shapers(&self) -> BTreeSet<(Via, u32)> {
        let of = |via: &Via| -> Vec<(Via, u32)> {
            match via {
                Via::None | Via::Tbf => vec![(*via, 0)],
                via => self.classes.iter().map(|n| (*via, *n)).collect(),
            }
        };
        self.ports.iter().flat_map(of).collect()
    }
}

/// Measures it all. A shaper that fails is excluded from then on, and the report gives the reason.
///
/// # Errors
/// Where nothing could be measured; it needs root, the release binary, `tc`, `iperf3` and `ping`.
pub fn run(args: &Args) -> anyhow::Result<ShapeReport> {
    args.check()?;
    crate::fairpath()?;
    let _ahead = Ahead::of_others();
    let mut measured: BTreeMap<Case, Lists> = BTreeMap::new();
    let mut failed: BTreeMap<(Via, u32), String> = BTreeMap::new();
    for round in 0..args.rounds {
        let mut order: Vec<(Via, u32)> = args.shapers().into_iter().collect();
        let first = round as usize % order.len().max(1);
        order.rotate_left(first);
        for shaper in order {
            if failed.contains_key(&shaper) {
                continue;
            }
            if let Err(error) = measure(args, shaper, &mut measured) {
                eprintln!("fairpath-bench: shape: {}: {error:#}", shaper.0.name());
                failed.insert(shaper, format!("{error:#}"));
            }
        }
    }
    if let (true, Some(why)) = (measured.is_empty(), failed.values().next()) {
        bail!("nothing could be measured: {why}");
    }
    Ok(ShapeReport::of(args, measured, failed))
}

/// One shaper with one number of classes: all rates, all numbers of flows.
fn measure(
    args: &Args,
    (via, classes): (Via, u32),
    measured: &mut BTreeMap<Case, Lists>,
) -> anyhow::Result<()> {
    eprintln!("fairpath-bench: shape, {}, {classes} classes", via.name());
    let lines = args.lines();
    let scene = Scene::build(classes)?;
    let mut running = Running::start(via, &scene, &lines)?;
    let time = Duration::from_secs(args.seconds.into());
    let idle = scene.idle(time, running.process())?;
    for line_bps in lines {
        running.set_line(line_bps)?;
        for &flows in &args.flows {
            let load = Load {
                flows,
                time,
                both_ways: args.both_ways,
                // Without a link rate the sender limits itself: the same packets per second.
                held_bps: (via == Via::None).then_some(line_bps),
            };
            let loaded = scene.loaded(&load, running.process())?;
            let case = Case {
                line_bps,
                flows,
                classes,
                via,
            };
            let lists = measured.entry(case).or_default();
            lists.push(&idle, &loaded);
        }
    }
    Ok(())
}
