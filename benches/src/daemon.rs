//! The costs of the daemon: `fairpath run` as an operator would run it.
//!
//! | case | classes | traffic | outputs |
//! |---|---|---|---|
//! | flood | ten thousand | many flows, as fast as the generator can | none |
//! | exports | 2,040 | 5,000 flows, 30,000 packets per second | page, metrics, rows |
//!
//! The generator sends on one CPU; the daemon reads every second on the other. Its CPU time is the
//! process's own, kernel side included (the test runs that close silent flows). The page and the
//! metrics are requested as a browser and Prometheus do, from the CPU of the generator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Hook, Injector, Traffic};
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

/// Share of one core that the daemon may take without outputs, and with them.
const FLOOD_PERCENT: f64 = 0.5;
const EXPORTS_PERCENT: f64 = 1.0;
/// Time from the start of the process to its message that it is ready, with 10,000 classes.
const START_MS: f64 = 1000.0;
/// Classes of the case with outputs, of which [`SITES`] have no addresses, and its flows.
const EXPORTS_CLASSES: u32 = 2_040;
const EXPORTS_FLOWS: u32 = 5_000;
const EXPORTS_PPS: u32 = 30_000;
const SITES: u32 = 100;
/// Pause between two groups of packets.
const PACE: Duration = Duration::from_millis(10);
/// The address of page and metrics in the router's namespace.
const PAGE: &str = "127.0.0.1:9910";
/// The page requests this every second, Prometheus that every 15 s.
const PAGE_EVERY: Duration = Duration::from_secs(1);
const PAGE_REQUEST: &str = "GET /api/page?sort=tree&offset=0&limit=34&lists=10&after_ms=9999999999999 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
const SCRAPE_EVERY: Duration = Duration::from_secs(15);
const SCRAPE_REQUEST: &str =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";
const START_DEADLINE: Duration = Duration::from_secs(120);
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// The kinds of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// Many flows, no outputs
    Flood,
    /// Page, metrics and rows
    Exports,
}

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these cases
    #[arg(long)]
    only: Option<Only>,
    /// Classes of the flood
    #[arg(long, default_value_t = 10_000)]
    classes: u32,
    /// Flows of the flood
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
            only: None,
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
    seconds: u64,
    rows: Vec<CaseRow>,
    targets: Vec<Target>,
}

/// A case.
#[derive(Clone, Copy, Debug, Serialize)]
struct Case {
    classes: u32,
    flows: u32,
    exports: bool,
}

/// The result of a case.
#[derive(Debug, Serialize)]
struct CaseRow {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    spent: Spent,
    resident_bytes: u64,
    kernel_bytes: u64,
    start_ms: f64,
    samples_unbinned: u64,
    pairs_evicted: u64,
    readings_skipped: u64,
}

/// Rate and CPU time of a case.
#[derive(Debug, Serialize)]
struct Spent {
    pps: Measured,
    cpu_percent: Measured,
    /// The same by name of the thread.
    threads_percent: BTreeMap<String, f64>,
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
        for case in cases(args) {
            eprintln!("fairpath-bench: daemon, {}", case.name());
            rows.push(measure(args, &scene, &fairpath, case)?);
        }
        Ok(())
    })??;
    Ok(DaemonReport {
        seconds: args.seconds,
        targets: rows.iter().flat_map(CaseRow::targets).collect(),
        rows,
    })
}

fn cases(args: &Args) -> Vec<Case> {
    let flood = args.flows.iter().map(|flows| Case {
        classes: args.classes,
        flows: *flows,
        exports: false,
    });
    let exports = Case {
        classes: EXPORTS_CLASSES,
        flows: EXPORTS_FLOWS,
        exports: true,
    };
    flood
        .chain([exports])
        .filter(|case| {
            args.only
                .is_none_or(|only| case.exports == (only == Only::Exports))
        })
        .collect()
}

impl Case {
    fn name(&self) -> String {
        let outputs = match self.exports {
            true => ", page, metrics and rows",
            false => "",
        };
        let [classes, flows] = [self.classes, self.flows].map(|n| grouped(n.into()));
        format!("{classes} classes, {flows} flows{outputs}")
    }
}

impl CaseRow {
    fn targets(&self) -> Vec<Target> {
        let case = self.case;
        let bound = match case.exports {
            true => EXPORTS_PERCENT,
            false => FLOOD_PERCENT,
        };
        let cpu = format!("{}: the daemon's own CPU", case.name());
        let start = format!("{}: from start to ready", case.name());
        vec![
            Target::at_most(cpu, self.spent.cpu_percent.median, bound, "% of a core"),
            Target::at_most(start, self.start_ms, START_MS, "ms"),
        ]
    }
}

fn measure(args: &Args, scene: &Scene, fairpath: &PathBuf, case: Case) -> anyhow::Result<CaseRow> {
    let place = tempfile::tempdir().context("make a directory for the daemon")?;
    let file = place.path().join("fairpath.toml");
    fs::write(&file, configuration(case)).context("write the daemon's configuration")?;
    let started = Instant::now();
    let daemon = start(&scene.router, fairpath, &file, args.daemon_cpu)?;
    let start_ms = started.elapsed().as_secs_f64() * 1e3;
    let over = AtomicBool::new(false);
    let spent = thread::scope(|scope| {
        let clients = case.exports.then(|| {
            scope.spawn(|| {
                let requested = scene.router.enter(|| request_outputs(args.cpu, &over));
                requested.context("enter the router's namespace")?
            })
        });
        let spent = rounds(args, scene, case, daemon.id());
        over.store(true, Ordering::Relaxed);
        if let Some(clients) = clients {
            clients.join().expect("the clients do not panic")?;
        }
        spent
    })?;
    let status = status(&scene.router, fairpath, place.path())?;
    let reported = |path: &str| {
        let number = status.pointer(path).and_then(Value::as_u64);
        number.with_context(|| format!("no {path} in the daemon's status"))
    };
    let row = CaseRow {
        case,
        spent,
        resident_bytes: resident(daemon.id())?,
        kernel_bytes: reported("/gauges/kernel_memory_bytes")?,
        start_ms,
        samples_unbinned: reported("/counters/samples_unbinned")?,
        pairs_evicted: reported("/counters/pairs_evicted")?,
        readings_skipped: reported("/counters/readings_skipped")?,
    };
    daemon.signal(Signal::SIGTERM);
    daemon.finish(STOP_DEADLINE)?;
    Ok(row)
}

/// Measures rates and CPU time.
fn rounds(args: &Args, scene: &Scene, case: Case, pid: u32) -> anyhow::Result<Spent> {
    let traffic = scene.traffic(case.flows, 1500);
    let plan = Plan {
        cpu: args.cpu,
        watcher_cpu: args.daemon_cpu,
        time: Duration::from_secs(args.seconds),
        statistics: false,
    };
    let (mut pps, mut cpu) = (Vec::new(), Vec::new());
    let mut threads: BTreeMap<String, f64> = BTreeMap::new();
    if case.exports {
        // Flows begin, and the first window is filled.
        paced(scene, &traffic, &plan, SCRAPE_EVERY)?;
    }
    let measured = Instant::now();
    for _ in 0..args.rounds {
        let (began, before) = (Instant::now(), ticks(pid)?);
        let threads_before = thread_ticks(pid)?;
        pps.push(match case.exports {
            true => paced(scene, &traffic, &plan, plan.time.max(2 * SCRAPE_EVERY))?,
            false => slice::run(scene, &traffic, None, &plan)?.pps,
        });
        let spent = (ticks(pid)? - before) as f64 / ticks_a_second()?;
        cpu.push(100.0 * spent / began.elapsed().as_secs_f64());
        for (name, ticks) in thread_ticks(pid)? {
            let ticks = ticks - threads_before.get(&name).unwrap_or(&0);
            *threads.entry(name).or_default() += 100.0 * ticks as f64 / ticks_a_second()?;
        }
    }
    let seconds = measured.elapsed().as_secs_f64();
    threads.values_mut().for_each(|percent| *percent /= seconds);
    threads.retain(|_, percent| *percent > 0.0);
    Ok(Spent {
        pps: Measured::of(pps),
        cpu_percent: Measured::of(cpu),
        threads_percent: threads,
    })
}

/// Sends [`EXPORTS_PPS`] for a while. Returns the forwarded packets per second.
fn paced(scene: &Scene, traffic: &Traffic, plan: &Plan, time: Duration) -> anyhow::Result<f64> {
    // A round-trip time is at most a few groups.
    let traffic = Traffic {
        lag: EXPORTS_PPS / 100,
        ..*traffic
    };
    scene.outside.enter(|| -> anyhow::Result<f64> {
        slice::settle(plan.cpu)?;
        let injector = Injector::new(&traffic)?;
        let began = Instant::now();
        while began.elapsed() < time {
            // A call may take several times the pause.
            let due = f64::from(EXPORTS_PPS) * began.elapsed().as_secs_f64();
            let group = (due as u64).saturating_sub(injector.sent());
            injector.send(u32::try_from(group)?.max(1))?;
            thread::sleep(PACE);
        }
        Ok(injector.arrived().packets() as f64 / began.elapsed().as_secs_f64())
    })?
}

/// Requests page and metrics until `over`, each over a connection that stays open.
fn request_outputs(cpu: usize, over: &AtomicBool) -> anyhow::Result<()> {
    slice::settle(cpu)?;
    let connect = || TcpStream::connect(PAGE).context("connect to the daemon's page");
    let (mut page, mut scrape) = (None, None);
    let mut next = [Instant::now(); 2];
    while !over.load(Ordering::Relaxed) {
        let turns = [
            (&mut page, PAGE_REQUEST, PAGE_EVERY),
            (&mut scrape, SCRAPE_REQUEST, SCRAPE_EVERY),
        ];
        for ((stream, request, every), next) in turns.into_iter().zip(&mut next) {
            if Instant::now() < *next {
                continue;
            }
            *next += every;
            // The server ends connections that are idle for long, and old ones.
            let answered = stream.as_mut().map(|stream| exchange(stream, request));
            if !matches!(answered, Some(Ok(()))) {
                let fresh = stream.insert(BufReader::new(connect()?));
                exchange(fresh, request)?;
            }
        }
        let next = next[0].min(next[1]);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Sends a request and reads its answer.
fn exchange(stream: &mut BufReader<TcpStream>, request: &str) -> anyhow::Result<()> {
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut line, mut length) = (String::new(), None);
    if stream.read_line(&mut line)? == 0 || !line.contains(" 200 ") {
        bail!("the daemon's page answered {line:?}");
    }
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            bail!("the answer of the daemon's page ends early");
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse()?);
        }
    }
    let mut content = vec![0; length.context("an answer without length")?];
    stream.read_exact(&mut content)?;
    Ok(())
}

/// The generator's clients as classes under sites: with outputs each class has two of them.
fn configuration(case: Case) -> String {
    let mut text = format!(
        "[control]\nsocket = \"control.sock\"\n[state]\nfile = \"state\"\n\
         [monitor]\ninterfaces = [\"{LAN}\", \"{WAN}\"]\nuplinks = [\"{WAN}\"]\nflows = {}\n\
         [subnets]\nmax = 0\n",
        (2 * case.flows).max(65_536)
    );
    text += &match case.exports {
        true => format!(
            "[metrics]\nlisten = \"{PAGE}\"\n[web]\nlisten = \"{PAGE}\"\n\
             [rows]\njson = \"rows.json\"\nparquet = \"rows\"\n"
        ),
        false => "[metrics]\nlisten = \"off\"\n[web]\nlisten = \"off\"\n".to_owned(),
    };
    let sites = SITES.min(case.classes);
    for site in 0..sites {
        let _ = write!(text, "[[class]]\nname = \"site {site}\"\n");
    }
    let subscribers = case.classes - sites;
    for i in 0..subscribers {
        let host = |i: u32| Ipv4Addr::from(0x0a40_0001 + i);
        let second = case
            .exports
            .then(|| format!(", \"{}\"", host(i + subscribers)));
        let _ = write!(
            text,
            "[[class]]\nname = \"subscriber {i}\"\nparent = \"site {}\"\nprefix = [\"{}\"{}]\n",
            i % sites,
            host(i),
            second.unwrap_or_default()
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
    Ok(stat_of(&stat)?.1)
}

/// CPU time of the threads of a process, by name.
fn thread_ticks(pid: u32) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("list the daemon's threads")?;
    for task in tasks {
        // A thread may end at any time.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            continue;
        };
        let (name, ticks) = stat_of(&stat)?;
        *sums.entry(name).or_default() += ticks;
    }
    Ok(sums)
}

fn stat_of(stat: &str) -> anyhow::Result<(String, u64)> {
    let (begin, rest) = stat
        .rsplit_once(')')
        .context("read the daemon's CPU time")?;
    let (_, name) = begin.split_once('(').unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    field(14)
        .zip(field(15))
        .map(|(user, system)| (name.to_owned(), user + system))
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
            "\nDaemon: `fairpath run` on two interfaces, read every second; turns of {} s, medians (least..most)\n\n",
            self.seconds
        );
        let mib = |bytes: u64| grouped(bytes.div_ceil(1 << 20));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let (case, cpu) = (row.case, &row.spent.cpu_percent);
                vec![
                    grouped(case.classes.into()),
                    grouped(case.flows.into()),
                    if case.exports { "yes" } else { "no" }.to_owned(),
                    format!("{:.0}", row.spent.pps.median / 1e3),
                    format!("{:.2} ({:.2}..{:.2})", cpu.median, cpu.min, cpu.most),
                    mib(row.resident_bytes),
                    mib(row.kernel_bytes),
                    format!("{:.0}", row.start_ms),
                    grouped(row.samples_unbinned),
                    grouped(row.pairs_evicted),
                    grouped(row.readings_skipped),
                ]
            })
            .collect();
        let heads = [
            "classes",
            "flows",
            "outputs",
            "kpps",
            "% of a core",
            "resident MiB",
            "kernel MiB",
            "start ms",
            "unbinned",
            "pairs evicted",
            "skipped",
        ];
        out += &build(&heads, &rows);
        out += "\n  resident counts the kernel's tables too: the process maps them\n";
        for row in &self.rows {
            let threads = row.spent.threads_percent.iter();
            let threads: Vec<String> = threads
                .map(|(name, percent)| format!("{name} {percent:.2}"))
                .collect();
            let _ = writeln!(
                out,
                "  {} flows by thread: {}",
                grouped(row.case.flows.into()),
                threads.join(", ")
            );
        }
        out += "\n";
        out.extend(self.targets.iter().map(Target::text));
        out
    }
}
