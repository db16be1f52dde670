//! The costs of classes: the monitor without and with ten thousand of them, in turn, in the same run.
//!
//! Both count quietly (no events); the second looks every packet's ends up, and counts volume,
//! round-trip times and peers. The clients' addresses are spread over the classes' prefixes. Then what a
//! reload and a reading take, and the memory.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Attached, Hook, Options, RttMonitor, Traffic};
use fairpath_core::{ClassReading, Config, Prefix, Rules};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::scene::{LAN, Scene, WAN, attach_empty};
use crate::slice::{self, Plan};
use crate::table::{build, grouped};

/// ns a packet that classes may add, and all of it may take.
const ADDED_NS: f64 = 60.0;
const TOTAL_NS: f64 = 150.0;
/// Classes of the reload, and how long it may take.
const RELOAD_CLASSES: u32 = 35_000;
const RELOAD_MS: f64 = 1000.0;
/// Addresses that the generator sends from (bpf/prog/inject.bpf.c).
const CLIENTS: u32 = 4096;
/// Readings and reloads that are timed.
const TURNS: usize = 5;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Bytes of a data packet, from the IP header on
    #[arg(long, default_value_t = 1500)]
    size: u32,
    /// Flows that take turns
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000, 100_000])]
    flows: Vec<u32>,
    /// Classes
    #[arg(long, default_value_t = 10_000)]
    classes: u32,
    /// Rounds of all turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Measured time of one turn, milliseconds
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// CPU that carries the packets
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            size: 1500,
            flows: vec![1, 1_000, 100_000],
            classes: 10_000,
            rounds: 5,
            millis: 1000,
            cpu: 0,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct ClassesReport {
    classes: u32,
    rounds: u32,
    millis: u64,
    scenarios: Vec<Scenario>,
    load_ms: f64,
    reload_ms: Measured,
    read_ms: Measured,
    class_bytes: u64,
    table_bytes: u64,
    targets: Vec<Target>,
}

/// One number of flows; ns a packet, which meets two hooks, net of empty programs.
#[derive(Debug, Serialize)]
struct Scenario {
    flows: u32,
    off_pps: Measured,
    empty_ns: Measured,
    rtt_ns: Measured,
    classes_ns: Measured,
    added_ns: Measured,
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: no root, lost packets.
pub fn run(args: &Args) -> anyhow::Result<ClassesReport> {
    if args.rounds == 0 || args.flows.is_empty() || args.classes == 0 {
        bail!("nothing to measure: give at least one round, class and number of flows");
    }
    let scene = Scene::build()?;
    scene.router.enter(|| measure(args, &scene))?
}

fn measure(args: &Args, scene: &Scene) -> anyhow::Result<ClassesReport> {
    let mut empty = Empty::load().context("load empty programs")?;
    let _takes_frames = attach_empty(&mut empty, &[Hook::Xdp])?;
    let mut scenarios = Vec::new();
    for &flows in &args.flows {
        eprintln!("fairpath-bench: {} classes, {flows} flows", args.classes);
        scenarios.push(Scenario::measure(args, scene, &mut empty, flows)?);
    }
    let config = Config::default().with_classes(RELOAD_CLASSES);
    let started = Instant::now();
    let mut monitor = RttMonitor::load(&Options::live(config))?;
    let load_ms = started.elapsed().as_secs_f64() * 1e3;
    let rules = rules(RELOAD_CLASSES);
    let reload_ms = timed(|| Ok(monitor.set_rules(&rules, &[])?))?;
    let mut reading = ClassReading::default();
    let read_ms = timed(|| {
        monitor.read_classes(&mut reading);
        Ok(())
    })?;
    Ok(ClassesReport {
        classes: args.classes,
        rounds: args.rounds,
        millis: args.millis,
        targets: targets(&scenarios, &reload_ms),
        scenarios,
        load_ms,
        reload_ms,
        read_ms,
        class_bytes: Config::default().with_classes(16_000).class_bytes(),
        table_bytes: monitor.bytes(),
    })
}

fn timed(mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Measured> {
    let mut each = Vec::new();
    for _ in 0..TURNS {
        let started = Instant::now();
        call()?;
        each.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Measured::of(each))
}

/// The given number of classes over the clients' 10.64.0.0/10, in prefixes of three lengths.
fn rules(classes: u32) -> Rules {
    let step = (1 << 22) / classes.max(1);
    let prefix = |i: u32| {
        let address = Ipv4Addr::from(0x0a40_0000 + i * step);
        (
            Prefix::new(IpAddr::V4(address), [32, 30, 26][i as usize % 3]),
            i + 1,
        )
    };
    let mut prefixes: Vec<(Prefix, u32)> = (0..classes).map(prefix).collect();
    prefixes.sort_unstable();
    prefixes.dedup_by_key(|(prefix, _)| *prefix);
    Rules {
        prefixes,
        ..Rules::default()
    }
}

/// A monitor on both interfaces, with `classes` of them or without any.
struct Watching {
    _attached: Vec<Attached>,
    _monitor: RttMonitor,
}

fn watch(flows: u32, classes: u32) -> anyhow::Result<Watching> {
    let mut config = Config::default().with_flows((2 * flows).max(65_536));
    config.quiet = 1;
    config.seed = 1;
    if classes > 0 {
        config = config.with_classes(classes);
    }
    let mut monitor = RttMonitor::load(&Options::live(config))?;
    if classes > 0 {
        monitor.set_rules(&spread(flows, classes), &[])?;
    }
    let mut attached = Vec::new();
    for name in [LAN, WAN] {
        let index = IfIndex(if_nametoindex(name).with_context(|| format!("look up {name}"))?);
        for hook in [Hook::TcxIngress, Hook::TcxEgress] {
            attached.push(monitor.attach(hook, index, name, false)?);
        }
    }
    Ok(Watching {
        _attached: attached,
        _monitor: monitor,
    })
}

/// Each of the generator's clients is a class; the others fill the same network.
fn spread(flows: u32, classes: u32) -> Rules {
    let mut all = rules(classes);
    let clients = flows.min(classes).min(CLIENTS);
    let client = |i: u32| {
        let address = Ipv4Addr::from(0x0a40_0001 + i);
        (Prefix::new(IpAddr::V4(address), 32), i + 1)
    };
    all.prefixes.extend((0..clients).map(client));
    all.prefixes.sort_by_key(|(prefix, _)| *prefix);
    all.prefixes.dedup_by_key(|(prefix, _)| *prefix);
    all
}

impl Scenario {
    fn measure(
        args: &Args,
        scene: &Scene,
        empty: &mut Empty,
        flows: u32,
    ) -> anyhow::Result<Scenario> {
        let traffic = scene.traffic(flows, args.size);
        let plan = Plan {
            cpu: args.cpu,
            watcher_cpu: 0,
            time: Duration::from_millis(args.millis),
            statistics: false,
        };
        let pps = |traffic: &Traffic| slice::run(scene, traffic, None, &plan).map(|s| s.pps);
        let [mut off, mut idle, mut rtt, mut with] = [const { Vec::new() }; 4];
        for _ in 0..args.rounds {
            off.push(pps(&traffic)?);
            {
                let _against = attach_empty(empty, &[Hook::TcxIngress, Hook::TcxEgress])?;
                idle.push(pps(&traffic)?);
            }
            {
                let _watching = watch(flows, 0)?;
                rtt.push(pps(&traffic)?);
            }
            let _watching = watch(flows, args.classes)?;
            with.push(pps(&traffic)?);
        }
        let [off, idle, rtt, with] = [off, idle, rtt, with].map(Measured::of);
        let extra = |on: f64, off: f64| 1e9 / on - 1e9 / off;
        Ok(Scenario {
            flows,
            empty_ns: idle.pairs(&off, extra),
            rtt_ns: rtt.pairs(&idle, extra),
            classes_ns: with.pairs(&idle, extra),
            added_ns: with.pairs(&rtt, extra),
            off_pps: off,
        })
    }
}

fn targets(scenarios: &[Scenario], reload_ms: &Measured) -> Vec<Target> {
    let mut all = Vec::new();
    for s in scenarios {
        let flows = grouped(s.flows.into());
        let what = format!("{flows} flows, added by classes, a packet (two hooks)");
        all.push(Target::at_most(what, s.added_ns.median, ADDED_NS, "ns"));
        let what = format!("{flows} flows, RTT and classes, a hook");
        all.push(Target::at_most(
            what,
            s.classes_ns.median / 2.0,
            TOTAL_NS,
            "ns",
        ));
    }
    let what = format!("reload of {} classes", grouped(RELOAD_CLASSES.into()));
    all.push(Target::at_most(what, reload_ms.median, RELOAD_MS, "ms"));
    all
}

impl ClassesReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nClasses: {} of them; packets through a router meet two hooks; {} rounds of {} ms, medians (least..most), ns a packet net of empty programs\n\n",
            grouped(self.classes.into()),
            self.rounds,
            self.millis
        );
        let range = |m: &Measured| format!("{:.0} ({:.0}..{:.0})", m.median, m.min, m.most);
        let rows: Vec<Vec<String>> = self
            .scenarios
            .iter()
            .map(|s| {
                vec![
                    grouped(s.flows.into()),
                    format!("{:.0}", s.off_pps.median / 1e3),
                    range(&s.empty_ns),
                    range(&s.rtt_ns),
                    range(&s.classes_ns),
                    range(&s.added_ns),
                ]
            })
            .collect();
        let heads = [
            "flows",
            "kpps off",
            "empty",
            "RTT",
            "RTT and classes",
            "added",
        ];
        out += &build(&heads, &rows);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        out += &format!(
            "\n  loading {:.0} ms; reload of {} classes {:.0} ms, reading them {:.0} ms (both wait for running programs)\n  memory: {:.1} MiB count 16,000 classes on one CPU\n\n",
            self.load_ms,
            grouped(RELOAD_CLASSES.into()),
            self.reload_ms.median,
            self.read_ms.median,
            mib(self.class_bytes),
        );
        out.extend(self.targets.iter().map(Target::text));
        out
    }
}
