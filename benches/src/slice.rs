//! One measurement: traffic through the router for a while, watched or not.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::cost::{self, RunTime, Statistics};
use fairpath_bpf::{Arrived, Injector, Traffic};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use crate::peer::{Reported, Watcher, Watching};
use crate::scene::Scene;

/// Packets of one call of the warming up.
const CALL: u32 = 100_000;
/// Packets of one measured call, a second or so: each sleeps until a tick of the clock at its end,
/// and 4 ms of 100,000 packets would be 40 ns a packet.
const MEASURED_CALL: u32 = 1_000_000;
/// Packets before anything is measured, at least.
const WARM: u32 = 200_000;
/// Loaded after the watcher, and none of its programs.
const GENERATOR: [&str; 2] = ["inject", "sink"];
/// The minimum share of the sent packets that must have been forwarded.
const MIN_FORWARDED: f64 = 0.98;

/// Where and how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Carries the packets.
    pub cpu: usize,
    /// Carries the watcher's process.
    pub watcher_cpu: usize,
    /// Measured, after the warming up.
    pub time: Duration,
    /// Switch the kernel's BPF statistics on during the run.
    pub statistics: bool,
}

/// A measurement's outcome.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Forwarded a second, both ways.
    pub pps: f64,
    /// Forwarded in all.
    pub arrived: Arrived,
    /// The report of the watcher at its end.
    pub reported: Option<Reported>,
    /// Run time of programs during the slice: those of the watcher, and empty ones next to it.
    pub programs: Vec<(String, RunTime)>,
}

/// Measures once.
///
/// # Errors
/// Where the watcher or the generator fails, or packets are lost on the way.
pub fn run(
    scene: &Scene,
    traffic: &Traffic,
    watcher: Option<&Watcher>,
    plan: &Plan,
) -> anyhow::Result<Slice> {
    let watching = watcher
        .map(|w| w.start(&scene.router, plan.watcher_cpu))
        .transpose()?;
    let mut slice = scene
        .outside
        .enter(|| send(traffic, watching.as_ref(), plan))??;
    slice.reported = watching.map(Watching::stop).transpose()?;
    Ok(slice)
}

/// Runs in the outside namespace, on a separate thread.
fn send(traffic: &Traffic, watching: Option<&Watching>, plan: &Plan) -> anyhow::Result<Slice> {
    settle(plan.cpu)?;
    let injector = Injector::new(traffic)?;
    let _on = plan
        .statistics
        .then(Statistics::enable)
        .transpose()
        .context("switch the kernel's BPF statistics on")?;
    let warm = (2 * traffic.lag + 4 * traffic.flows).max(WARM);
    for _ in 0..warm.div_ceil(CALL) {
        injector.send(CALL)?;
    }
    let programs = || match (plan.statistics, watching) {
        (true, Some(_)) => cost::loaded(),
        _ => Vec::new(),
    };
    let (costs, sent, arrived) = (programs(), injector.sent(), injector.arrived());
    let started = Instant::now();
    while started.elapsed() < plan.time {
        injector.send(MEASURED_CALL)?;
    }
    let elapsed = started.elapsed();
    let packets = injector.arrived().since(arrived).packets();
    let sent = injector.sent() - sent;
    if (packets as f64) < MIN_FORWARDED * sent as f64 {
        bail!("of {sent} packets sent only {packets} were forwarded");
    }
    let ours = watching.map(Watching::programs).unwrap_or_default();
    let programs = programs()
        .into_iter()
        .filter(|p| p.name.starts_with("empty_") || ours.iter().any(|o| o.id == p.id))
        .filter(|p| !GENERATOR.contains(&p.name.as_str()))
        .filter_map(|p| {
            let earlier = costs.iter().find(|c| c.id == p.id)?;
            let spent = p.run_time.since(earlier.run_time);
            // Other load of this host during the run affects no packet.
            (spent.runs >= packets / 4).then_some((p.name, spent))
        })
        .collect();
    Ok(Slice {
        pps: packets as f64 / elapsed.as_secs_f64(),
        arrived: injector.arrived(),
        reported: None,
        programs,
    })
}

/// To one CPU, before whatever else wants it: a niceness would count within our session only.
pub fn settle(cpu: usize) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).with_context(|| format!("CPU {cpu}"))?;
    sched_setaffinity(Pid::from_raw(0), &cpus).with_context(|| format!("stay on CPU {cpu}"))?;
    let output = Command::new("chrt")
        .args(["--fifo", "--pid", "1", &gettid().to_string()])
        .output()
        .context("start chrt")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("go before other processes: {}; needs root", why.trim());
    }
    Ok(())
}
