//! The costs of the daemon: `fairpath run` with ten thousand classes and a flow table that is full of
//! active flows, as an operator would run it.
//!
//! The generator sends as fast as it can on one CPU; the daemon reads every second on the other. Its
//! CPU time is the process's own, kernel side included (the test runs that close silent flows).

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::Hook;
use fairpath_bpf::cost::Empty;
use fairpath_testbed::{Netns, Process};
use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;
use serde_json::Value;

use crate::measure::{Measured, Target};
use crate::peer::resident;
use crate::scene::{LAN, Scene, WAN, attach_empty};
use crate::slice::{self, Plan};
use crate::table::{build, grouped};

/// Share of one core that the daemon may take.
const CPU_PERCENT: f64 = 1.0;
const START_DEADLINE: Duration = Duration::from_secs(120);
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Classes
    #[arg(long, default_value_t = 10_000)]
    classes: u32,
    /// Flows that take turns
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000])]
    flows: Vec<u32>,
    /// Measured time of one turn, seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Turns of each number of flows
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// CPU that carries the packets
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// CPU that carries the daemon
    #[arg(long, default_value_t = 1)]
    daemon_cpu: usize,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            classes: 10_000,
            flows: vec![1_000, 100_000],
            seconds: 10,
            rounds: 3,
            cpu: 0,
            daemon_cpu: 1,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct DaemonReport {
    classes: u32,
    seconds: u64,
    rows: Vec<FlowCountRow>,
    targets: Vec<Target>,
}

/// One number of flows.
#[derive(Debug, Serialize)]
struct FlowCountRow {
    flows: u32,
    pps: Measured,
    cpu_percent: Measured,
    resident_bytes: u64,
    kernel_bytes: u64,
    start_ms: f64,
    samples_unbinned: u64,
    pairs_evicted: u64,
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: no root, no binary, lost packets.
pub fn run(args: &Args) -> anyhow::Result<DaemonReport> {
    let fairpath = crate::fairpath()?;
    let scene = Scene::build()?;
    let mut rows = Vec::new();
    scene.router.enter(|| -> anyhow::Result<()> {
        let mut empty = Empty::load().context("load empty programs")?;
        let _takes_frames = attach_empty(&mut empty, &[Hook::Xdp])?;
        for &flows in &args.flows {
            eprintln!("fairpath-bench: daemon, {flows} flows");
            rows.push(measure(args, &scene, &fairpath, flows)?);
        }
        Ok(())
    })??;
    Ok(DaemonReport {
        classes: args.classes,
        seconds: args.seconds,
        targets: rows
            .iter()
            .map(|row| {
                let what = format!("{} flows, the daemon's own CPU", grouped(row.flows.into()));
                Target::at_most(what, row.cpu_percent.median, CPU_PERCENT, "% of a core")
            })
            .collect(),
        rows,
    })
}

fn measure(
    args: &Args,
    scene: &Scene,
    fairpath: &PathBuf,
    flows: u32,
) -> anyhow::Result<FlowCountRow> {
    let place = tempfile::tempdir().context("make a directory for the daemon")?;
    let file = place.path().join("fairpath.toml");
    fs::write(&file, configuration(args, flows)).context("write the daemon's configuration")?;
    let started = Instant::now();
    let daemon = start(&scene.router, fairpath, &file, args.daemon_cpu)?;
    let start_ms = started.elapsed().as_secs_f64() * 1e3;
    let traffic = scene.traffic(flows, 1500);
    let plan = Plan {
        cpu: args.cpu,
        watcher_cpu: args.daemon_cpu,
        time: Duration::from_secs(args.seconds),
        statistics: false,
    };
    let (mut pps, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let (began, before) = (Instant::now(), ticks(daemon.id())?);
        pps.push(slice::run(scene, &traffic, None, &plan)?.pps);
        let spent = (ticks(daemon.id())? - before) as f64 / ticks_a_second()?;
        cpu.push(100.0 * spent / began.elapsed().as_secs_f64());
    }
    let status = status(&scene.router, fairpath, place.path())?;
    let reported = |path: &str| {
        let number = status.pointer(path).and_then(Value::as_u64);
        number.with_context(|| format!("no {path} in the daemon's status"))
    };
    let row = FlowCountRow {
        flows,
        pps: Measured::of(pps),
        cpu_percent: Measured::of(cpu),
        resident_bytes: resident(daemon.id())?,
        kernel_bytes: reported("/gauges/kernel_memory_bytes")?,
        start_ms,
        samples_unbinned: reported("/counters/samples_unbinned")?,
        pairs_evicted: reported("/counters/pairs_evicted")?,
    };
    daemon.signal(Signal::SIGTERM);
    daemon.finish(STOP_DEADLINE)?;
    Ok(row)
}

/// The generator's clients, each a class, under a hundred sites.
fn configuration(args: &Args, flows: u32) -> String {
    let mut text = format!(
        "[control]\nsocket = \"control.sock\"\n[state]\nfile = \"state\"\n[metrics]\nlisten = \"off\"\n\
         [monitor]\ninterfaces = [\"{LAN}\", \"{WAN}\"]\nuplinks = [\"{WAN}\"]\nflows = {}\n\
         [subnets]\nmax = 0\n",
        (2 * flows).max(65_536)
    );
    let sites = 100.min(args.classes);
    for site in 0..sites {
        let _ = write!(text, "[[class]]\nname = \"site {site}\"\n");
    }
    for i in 0..args.classes - sites {
        let host = std::net::Ipv4Addr::from(0x0a40_0001 + i);
        let _ = write!(
            text,
            "[[class]]\nname = \"subscriber {i}\"\nparent = \"site {}\"\nprefix = \"{host}\"\n",
            i % sites
        );
    }
    text
}

fn start(
    router: &Netns,
    fairpath: &PathBuf,
    file: &std::path::Path,
    cpu: usize,
) -> anyhow::Result<Process> {
    let mut command = router.command_without_sysfs("taskset");
    command.arg("-c").arg(cpu.to_string()).arg(fairpath);
    command.args(["run", "--config"]).arg(file);
    if let Some(place) = file.parent() {
        command.current_dir(place);
    }
    let daemon = router.spawn(command)?;
    daemon.wait_stderr("ready after", START_DEADLINE)?;
    Ok(daemon)
}

fn status(router: &Netns, fairpath: &PathBuf, place: &std::path::Path) -> anyhow::Result<Value> {
    let mut command: Command = router.command(fairpath);
    command.args(["status", "--format", "json", "--socket"]);
    let output = command.arg(place.join("control.sock")).output()?;
    if !output.status.success() {
        bail!(
            "query the daemon: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("read the daemon's status")
}

/// CPU time of a process and its threads so far, clock ticks (proc_pid_stat(5), fields 14 and 15).
fn ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("read the daemon's CPU time; did it end early?")?;
    let (_, rest) = stat
        .rsplit_once(')')
        .context("read the daemon's CPU time")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    field(14)
        .zip(field(15))
        .map(|(user, system)| user + system)
        .context("read the daemon's CPU time")
}

fn ticks_a_second() -> anyhow::Result<f64> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.context("read the ticks of the clock")?;
    Ok(ticks as f64)
}

impl DaemonReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nDaemon: `fairpath run` with {} classes on two interfaces, read every second; turns of {} s, medians (least..most)\n\n",
            grouped(self.classes.into()),
            self.seconds
        );
        let mib = |bytes: u64| grouped(bytes.div_ceil(1 << 20));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let cpu = &row.cpu_percent;
                vec![
                    grouped(row.flows.into()),
                    format!("{:.0}", row.pps.median / 1e3),
                    format!("{:.2} ({:.2}..{:.2})", cpu.median, cpu.min, cpu.most),
                    mib(row.resident_bytes),
                    mib(row.kernel_bytes),
                    format!("{:.0}", row.start_ms),
                    grouped(row.samples_unbinned),
                    grouped(row.pairs_evicted),
                ]
            })
            .collect();
        let heads = [
            "flows",
            "kpps",
            "% of a core",
            "resident MiB",
            "kernel MiB",
            "start ms",
            "unbinned",
            "pairs evicted",
        ];
        out += &build(&heads, &rows);
        out += "\n  resident counts the kernel's tables too: the process maps them\n\n";
        out.extend(self.targets.iter().map(Target::text));
        out
    }
}
