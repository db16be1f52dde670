//! Forwarded packets a second with the monitor off and on, in turn, in the same run.
//!
//! The turns of a round: nothing, empty programs at the same hooks, Fairpath on one interface (each
//! packet meets one hook), Fairpath on both (two), ePPing on one if given. Then once more each
//! with the kernel's statistics on and empty programs in addition to the monitor's, on the same packets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_bpf::cost::{Empty, RunTime};
use fairpath_bpf::{Hook, Traffic};
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::peer::{self, Reported, Watcher};
use crate::scene::{LAN, Scene, WAN, attach_empty};
use crate::slice::{self, Plan, Slice};
use crate::table::{build, grouped};

/// Table entries per flow, so that sets rarely overflow.
const PLACES_PER_FLOW: u32 = 2;
const USUAL_PLACES: u32 = 65_536;
/// ns a hook execution that are good enough, by number of flows.
const TARGETS: [(u32, f64); 2] = [(1_000, 100.0), (100_000, 150.0)];
const EPPING_ALL: &str = "ePPing, every TSval";
/// Its default.
const EPPING_SAMPLED: &str = "ePPing, every 100 ms";
/// Of ePPing's sampled cost, at every number of flows.
const EPPING_SHARE: f64 = 0.5;
const ONE_INTERFACE: &str = "fairpath, one interface";
/// tcx hooks, where all that is compared here sits.
const HOOKS: [Hook; 2] = [Hook::TcxIngress, Hook::TcxEgress];

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Bytes of a data packet, from the IP header on
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1500])]
    sizes: Vec<u32>,
    /// Flows that take turns
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1_000, 10_000, 100_000])]
    flows: Vec<u32>,
    /// Rounds of all turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Measured time of one turn, milliseconds
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// CPU that carries the packets
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// CPU that carries the process that reads the samples
    #[arg(long, default_value_t = 1)]
    watcher_cpu: usize,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            sizes: vec![64, 1500],
            flows: vec![1, 100, 1_000, 10_000, 100_000],
            rounds: 5,
            millis: 1000,
            cpu: 0,
            watcher_cpu: 1,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    cpu: usize,
    watcher_cpu: usize,
    rounds: u32,
    millis: u64,
    scenarios: Vec<Scenario>,
    targets: Vec<Target>,
}

/// One size and number of flows.
#[derive(Debug, Serialize)]
struct Scenario {
    ip_bytes: u32,
    flows: u32,
    off_pps: Measured,
    /// Empty programs: on both interfaces, two hooks a packet.
    empty_pps: Measured,
    watched: Vec<Watched>,
}

/// One watcher in a scenario.
#[derive(Debug, Serialize)]
struct Watched {
    name: &'static str,
    hooks: u32,
    pps: Measured,
    /// Of all hooks, by throughput: 1/on - 1/off.
    ns_a_packet: Measured,
    /// The same less what empty programs at as many hooks cost in the same run.
    net_ns_a_packet: Measured,
    /// By the kernel's statistics.
    programs: Vec<Program>,
    /// Samples that could be taken: one of each ACK but of a flow's first data, taken in all rounds.
    samples_possible: u64,
    reported: Reported,
}

/// One program, by the kernel's statistics.
#[derive(Debug, Serialize)]
struct Program {
    name: String,
    runs: u64,
    gross_ns: f64,
    empty_ns: f64,
    net_ns: f64,
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: no root, no binary, lost packets.
pub fn run(args: &Args) -> anyhow::Result<LiveReport> {
    if args.rounds == 0 || args.flows.is_empty() || args.sizes.is_empty() {
        bail!("nothing to measure: give at least one round, size and number of flows");
    }
    let fairpath = crate::fairpath()?;
    let epping = peer::epping()?;
    let scene = Scene::build()?;
    let mut scenarios = Vec::new();
    scene.router.enter(|| -> anyhow::Result<()> {
        let mut empty = Empty::load().context("load empty programs")?;
        let _takes_frames = attach_empty(&mut empty, &[Hook::Xdp])?;
        for &ip_bytes in &args.sizes {
            for &flows in &args.flows {
                eprintln!("fairpath-bench: {ip_bytes} bytes, {flows} flows");
                let traffic = scene.traffic(flows, ip_bytes);
                let watchers = watchers(&fairpath, epping.as_ref(), flows);
                scenarios.push(Scenario::measure(
                    args, &scene, &mut empty, &traffic, &watchers,
                )?);
            }
        }
        Ok(())
    })??;
    Ok(LiveReport {
        cpu: args.cpu,
        watcher_cpu: args.watcher_cpu,
        rounds: args.rounds,
        millis: args.millis,
        targets: targets(&scenarios),
        scenarios,
    })
}

fn watchers(
    fairpath: &std::path::Path,
    epping: Option<&PathBuf>,
    flows: u32,
) -> Vec<(&'static str, Watcher)> {
    let fairpath = |interfaces| Watcher::Fairpath {
        path: fairpath.to_owned(),
        interfaces,
        flows: (PLACES_PER_FLOW * flows).max(USUAL_PLACES),
    };
    let mut all = vec![
        (ONE_INTERFACE, fairpath(&[LAN])),
        ("fairpath, both", fairpath(&[LAN, WAN])),
    ];
    if let Some(path) = epping {
        for (name, every_ms) in [(EPPING_ALL, 0), (EPPING_SAMPLED, 100)] {
            let epping = Watcher::Epping {
                path: path.clone(),
                interface: LAN,
                every_ms,
            };
            all.push((name, epping));
        }
    }
    all
}

impl Scenario {
    fn measure(
        args: &Args,
        scene: &Scene,
        empty: &mut Empty,
        traffic: &Traffic,
        watchers: &[(&'static str, Watcher)],
    ) -> anyhow::Result<Scenario> {
        let plan = Plan {
            cpu: args.cpu,
            watcher_cpu: args.watcher_cpu,
            time: Duration::from_millis(args.millis),
            statistics: false,
        };
        let (mut off, mut idle) = (Vec::new(), Vec::new());
        let mut on: Vec<Vec<Slice>> = watchers.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.rounds {
            off.push(slice::run(scene, traffic, None, &plan)?.pps);
            {
                let _against = attach_empty(empty, &HOOKS)?;
                idle.push(slice::run(scene, traffic, None, &plan)?.pps);
            }
            for (slices, (_, watcher)) in on.iter_mut().zip(watchers) {
                slices.push(slice::run(scene, traffic, Some(watcher), &plan)?);
            }
        }
        let (off_pps, empty_pps) = (Measured::of(off), Measured::of(idle));
        let mut watched = Vec::new();
        for (slices, (name, watcher)) in on.into_iter().zip(watchers) {
            let _against = attach_empty(empty, &HOOKS)?;
            let counted = Plan {
                statistics: true,
                ..plan
            };
            let programs = slice::run(scene, traffic, Some(watcher), &counted)?.programs;
            let pps = Measured::of(slices.iter().map(|s| s.pps).collect());
            let hooks = watcher.hooks();
            let ns_a_packet = pps.pairs(&off_pps, extra_ns);
            let idle = empty_pps.pairs(&off_pps, extra_ns).median * f64::from(hooks) / 2.0;
            watched.push(Watched {
                name,
                hooks,
                net_ns_a_packet: Measured::of(ns_a_packet.each.iter().map(|n| n - idle).collect()),
                ns_a_packet,
                pps,
                programs: net_of_empty(&programs),
                samples_possible: slices.iter().map(|s| possible(s, traffic)).sum(),
                reported: sum(&slices),
            });
        }
        Ok(Scenario {
            ip_bytes: traffic.ip_bytes,
            flows: traffic.flows,
            off_pps,
            empty_pps,
            watched,
        })
    }
}

/// ns that a packet takes longer at `on` packets a second than at `off`.
fn extra_ns(on: f64, off: f64) -> f64 {
    1e9 / on - 1e9 / off
}

/// An ACK of a flow's first data gives no sample: seen mid-flow, it may be a retransmission.
fn possible(slice: &Slice, traffic: &Traffic) -> u64 {
    slice.arrived.acks.saturating_sub(traffic.flows.into())
}

/// Counts summed over the rounds, sizes of the last.
fn sum(slices: &[Slice]) -> Reported {
    let reported: Vec<&Reported> = slices.iter().filter_map(|s| s.reported.as_ref()).collect();
    let last = reported.last().copied().cloned().unwrap_or_default();
    Reported {
        samples: reported.iter().map(|t| t.samples).sum(),
        events_lost: reported.iter().map(|t| t.events_lost).sum(),
        refused: reported.iter().map(|t| t.refused).sum(),
        ..last
    }
}

fn net_of_empty(programs: &[(String, RunTime)]) -> Vec<Program> {
    let empty = |direction: &str| {
        let name = format!("empty_{direction}");
        let found = programs.iter().find(|(n, _)| *n == name);
        found.map_or(0.0, |(_, run_time)| run_time.per_run_ns())
    };
    programs
        .iter()
        .filter(|(name, _)| !name.starts_with("empty_"))
        .map(|(name, run_time)| {
            let empty_ns = empty(if name.contains("egress") {
                "egress"
            } else {
                "ingress"
            });
            let gross_ns = run_time.per_run_ns();
            Program {
                name: name.clone(),
                runs: run_time.runs,
                gross_ns,
                empty_ns,
                net_ns: gross_ns - empty_ns,
            }
        })
        .collect()
}

/// ns of one execution, the mean of all programs by their runs.
fn mean_net(programs: &[Program]) -> Option<f64> {
    let runs: u64 = programs.iter().map(|p| p.runs).sum();
    let spent: f64 = programs.iter().map(|p| p.net_ns * p.runs as f64).sum();
    (runs > 0).then(|| spent / runs as f64)
}

fn targets(scenarios: &[Scenario]) -> Vec<Target> {
    let mut all: Vec<Target> = scenarios.iter().filter_map(of_epping).collect();
    for scenario in scenarios {
        let Some((_, bound)) = TARGETS.iter().find(|(flows, _)| *flows == scenario.flows) else {
            continue;
        };
        let place = |w: &Watched, how: &str| {
            format!(
                "{}, {} bytes, {} flows, {how}",
                w.name,
                scenario.ip_bytes,
                grouped(scenario.flows.into()),
            )
        };
        for w in scenario
            .watched
            .iter()
            .filter(|w| w.name.starts_with("fairpath"))
        {
            let by_rate = w.net_ns_a_packet.median / f64::from(w.hooks);
            all.push(Target::at_most(
                place(w, "a hook execution by throughput, net of empty"),
                by_rate,
                *bound,
                "ns",
            ));
            if let Some(net) = mean_net(&w.programs) {
                let what = place(
                    w,
                    "a hook execution by the kernel's statistics, net of empty",
                );
                all.push(Target::at_most(what, net, *bound, "ns"));
            }
        }
    }
    all
}

/// The cost on one interface, relative to that of ePPing's samples.
fn of_epping(scenario: &Scenario) -> Option<Target> {
    let cost = |name: &str| {
        let watched = scenario.watched.iter().find(|w| w.name == name);
        watched.map(|w| w.net_ns_a_packet.median)
    };
    let what = format!(
        "{ONE_INTERFACE}, {} bytes, {} flows, relative to {EPPING_SAMPLED}, by throughput",
        scenario.ip_bytes,
        grouped(scenario.flows.into()),
    );
    let share = cost(ONE_INTERFACE)? / cost(EPPING_SAMPLED)?;
    Some(Target::at_most(what, share, EPPING_SHARE, "x"))
}

impl LiveReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nLive: packets through a router on CPU {}, watchers' processes on CPU {}; {} rounds of {} ms, medians, ±half of least to most\n\n",
            self.cpu, self.watcher_cpu, self.rounds, self.millis
        );
        let heads = [
            "bytes flows, watcher",
            "kpps",
            "±",
            "of off",
            "ns/packet",
            "least..most",
            "net of empty",
            "hooks",
            "ns/hook",
        ];
        let rows: Vec<_> = self
            .scenarios
            .iter()
            .flat_map(Scenario::rate_rows)
            .collect();
        out += &build(&heads, &rows);
        out += "\nBy the kernel's statistics (they slow every run), ns a run\n\n";
        let heads = ["bytes flows, watcher", "program", "gross", "empty", "net"];
        let rows: Vec<_> = self
            .scenarios
            .iter()
            .flat_map(Scenario::program_rows)
            .collect();
        out += &build(&heads, &rows);
        out += "\nSamples of all rounds, and memory\n\n";
        let heads = [
            "bytes flows, watcher",
            "samples",
            "of ACKs",
            "lost",
            "refused",
            "tables MiB",
            "resident MiB",
        ];
        let rows: Vec<_> = self
            .scenarios
            .iter()
            .flat_map(Scenario::sample_rows)
            .collect();
        out += &build(&heads, &rows);
        out += "\n";
        out.extend(self.targets.iter().map(Target::text));
        out
    }
}

impl Scenario {
    fn label(&self, who: &str) -> String {
        format!(
            "{:>5} {:>7} {who}",
            self.ip_bytes,
            grouped(self.flows.into())
        )
    }

    fn rate_rows(&self) -> Vec<Vec<String>> {
        let kpps = |m: &Measured| format!("{:.0}", m.median / 1e3);
        let spread = |m: &Measured| format!("{:.0} %", 100.0 * m.spread());
        let share = |m: &Measured| format!("{:.1} %", 100.0 * m.median / self.off_pps.median);
        let dash = || "-".to_owned();
        let empty = self.empty_pps.pairs(&self.off_pps, extra_ns);
        let range = |m: &Measured| format!("{:.0}..{:.0}", m.min, m.most);
        let mut off = vec![
            self.label("off"),
            kpps(&self.off_pps),
            spread(&self.off_pps),
        ];
        off.extend(std::iter::repeat_with(dash).take(6));
        let mut rows = vec![
            off,
            vec![
                self.label("empty programs"),
                kpps(&self.empty_pps),
                spread(&self.empty_pps),
                share(&self.empty_pps),
                format!("{:.0}", empty.median),
                range(&empty),
                dash(),
                "2".to_owned(),
                format!("{:.0}", empty.median / 2.0),
            ],
        ];
        rows.extend(self.watched.iter().map(|w| {
            vec![
                self.label(w.name),
                kpps(&w.pps),
                spread(&w.pps),
                share(&w.pps),
                format!("{:.0}", w.ns_a_packet.median),
                range(&w.ns_a_packet),
                format!("{:.0}", w.net_ns_a_packet.median),
                w.hooks.to_string(),
                format!("{:.0}", w.net_ns_a_packet.median / f64::from(w.hooks)),
            ]
        }));
        rows
    }

    fn program_rows(&self) -> Vec<Vec<String>> {
        let row = |w: &Watched, p: &Program| {
            vec![
                self.label(w.name),
                p.name.clone(),
                format!("{:.0}", p.gross_ns),
                format!("{:.0}", p.empty_ns),
                format!("{:.0}", p.net_ns),
            ]
        };
        let rows = |w| Watched::programs(w).iter().map(move |p| row(w, p));
        self.watched.iter().flat_map(rows).collect()
    }

    fn sample_rows(&self) -> Vec<Vec<String>> {
        let mib = |bytes: u64| grouped(bytes.div_ceil(1 << 20));
        let fairpath = self.watched.iter();
        fairpath
            .map(|w| {
                vec![
                    self.label(w.name),
                    grouped(w.reported.samples),
                    format!(
                        "{:.2} %",
                        100.0 * w.reported.samples as f64 / w.samples_possible.max(1) as f64
                    ),
                    grouped(w.reported.events_lost),
                    grouped(w.reported.refused),
                    mib(w.reported.table_bytes),
                    mib(w.reported.resident_bytes),
                ]
            })
            .collect()
    }
}

impl Watched {
    fn programs(&self) -> &[Program] {
        &self.programs
    }
}
