//! Packets per second through the AF_XDP back end, compared with a minimal AF_XDP forwarder in C.
//!
//! ```text
//!   outside: inject, CPU 0 ── lan [forwarder, CPU 1] wan ── outside: sink, counted
//! ```
//!
//! Copy mode on veth, both ways at once: data of the size that is said, and an ACK for each. The
//! generator sends more than any forwarder takes; the kernel's part of receiving runs on its CPU, and
//! that of sending on the forwarder's. Both forwarders are separate processes, in turn, and the
//! first one changes with every round.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_afxdp::{Fifo, Forwarder, LinkQueue, Plan, Port, QueueId, Stop};
use fairpath_bpf::{Injector, Redirect, RedirectOptions, Traffic};
use fairpath_testbed::Process;
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::order;
use crate::routed;
use crate::scene::{LAN, Scene, WAN};
use crate::slice;
use crate::table::{build, grouped};
use crate::workers;

/// Of the peer's packets, at least, in percent.
const TARGET: f64 = 90.0;
/// Bytes of data packets, from the IP header on.
const SIZES: [u32; 2] = [64, 1500];
/// Packets of one call of the generator.
const CALL: u32 = 100_000;
/// Packets before anything is measured.
const WARM_CALLS: u32 = 3;
/// 5-tuples; neither forwarder reads them.
const FLOWS: u32 = 100;
/// Packets that our order holds for each interface.
const LIMIT: usize = 1024;
/// For a process to begin.
const PATIENCE: Duration = Duration::from_secs(10);
const PEER: &str = include_str!("../peer/xsk_forward.c");

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Rounds of all measurements
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// The parts of the measurement
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Next to a forwarder in C
    Peer,
    /// The cost of an order of packets
    Order,
    /// One worker of the daemon, next to the stack
    Routed,
    /// Two workers of the daemon, next to one
    Workers,
}

impl Part {
    const ALL: [Part; 4] = [Part::Peer, Part::Order, Part::Routed, Part::Workers];
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            seconds: 2,
            rounds: 7,
            parts: Part::ALL.to_vec(),
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct AfxdpReport {
    rows: Vec<ForwardingRow>,
    orders: Vec<order::OrderRow>,
    routed: Vec<routed::RoutedRow>,
    workers: Vec<workers::WorkersRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct ForwardingRow {
    ip_bytes: u32,
    ours_pps: Measured,
    peer_pps: Measured,
    /// Of measurements taken one after the other.
    ratio: Measured,
}

#[derive(Clone, Copy)]
enum Who {
    Ours,
    Peer,
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: no root, no C compiler, one CPU.
pub fn run(args: &Args) -> anyhow::Result<AfxdpReport> {
    if args.rounds == 0 || args.seconds == 0 {
        bail!("nothing to measure: give at least one round and one second");
    }
    let scene = Scene::build()?;
    let time = Duration::from_secs(args.seconds);
    let requested = |part| args.parts.contains(&part);
    let rows = requested(Part::Peer).then(|| peer_rows(&scene, args.rounds, time));
    let rows = rows.transpose()?.unwrap_or_default();
    let orders = requested(Part::Order).then(|| order::rows(&scene, args.rounds, time));
    let orders = orders.transpose()?.unwrap_or_default();
    let routed = requested(Part::Routed).then(|| routed::rows(&scene, args.rounds, time));
    let routed = routed.transpose()?.unwrap_or_default();
    let workers = requested(Part::Workers).then(|| workers::rows(args.rounds, time));
    let workers = workers.transpose()?.unwrap_or_default();
    let target = |row: &ForwardingRow| {
        let what = format!("AF_XDP, copy mode, {} bytes, against C", row.ip_bytes);
        Target::at_least(what, row.ratio.median * 1e2, TARGET, "%")
    };
    let mut targets: Vec<_> = rows.iter().map(target).collect();
    targets.extend(order::targets(&orders));
    targets.extend(routed::targets(&routed));
    targets.extend(workers::targets(&workers));
    Ok(AfxdpReport {
        rows,
        orders,
        routed,
        workers,
        targets,
    })
}

/// Both forwarders, for each size of packets.
fn peer_rows(scene: &Scene, rounds: u32, time: Duration) -> anyhow::Result<Vec<ForwardingRow>> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let peer = build_peer(dir.path())?;
    let mut rows = Vec::new();
    for ip_bytes in SIZES {
        let traffic = scene.traffic(FLOWS, ip_bytes);
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let mut order = [Who::Ours, Who::Peer];
            order.rotate_left(round as usize % 2);
            for who in order {
                let pps = once(scene, &traffic, who, &peer, time)?;
                match who {
                    Who::Ours => ours.push(pps),
                    Who::Peer => theirs.push(pps),
                }
            }
        }
        let (ours, theirs) = (Measured::of(ours), Measured::of(theirs));
        rows.push(ForwardingRow {
            ip_bytes,
            ratio: ours.pairs(&theirs, |ours, theirs| ours / theirs),
            ours_pps: ours,
            peer_pps: theirs,
        });
    }
    Ok(rows)
}

fn build_peer(dir: &Path) -> anyhow::Result<PathBuf> {
    let (source, program) = (dir.join("xsk_forward.c"), dir.join("xsk_forward"));
    std::fs::write(&source, PEER).with_context(|| format!("write {source:?}"))?;
    let status = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status()
        .context("start cc")?;
    if !status.success() {
        bail!("compile the peer: cc: {status}");
    }
    Ok(program)
}

/// Forwarded a second.
fn once(
    scene: &Scene,
    traffic: &Traffic,
    who: Who,
    peer: &Path,
    time: Duration,
) -> anyhow::Result<f64> {
    let _forwarder = start(scene, who, peer)?;
    scene.outside.enter(|| measure(traffic, time))?
}

fn start(scene: &Scene, who: Who, peer: &Path) -> anyhow::Result<Process> {
    let mut command = scene.router.command("chrt");
    command.args(["--fifo", "1", "taskset", "--cpu-list", "1"]);
    match who {
        Who::Ours => {
            let program = std::env::current_exe()?;
            command.arg(program).args(["afxdp-forward", LAN, WAN])
        }
        Who::Peer => command.arg(peer).args([LAN, WAN]),
    };
    let process = scene.router.spawn(command)?;
    process
        .wait_stdout("forwarding", PATIENCE)
        .with_context(|| process.stderr())?;
    Ok(process)
}

/// Runs in the outside namespace, on a separate thread.
///
/// # Errors
/// Nothing is forwarded.
pub fn measure(traffic: &Traffic, time: Duration) -> anyhow::Result<f64> {
    slice::settle(0)?;
    let injector = Injector::new(traffic)?;
    for _ in 0..WARM_CALLS {
        injector.send(CALL)?;
    }
    let (before, started) = (injector.arrived(), Instant::now());
    while started.elapsed() < time {
        injector.send(CALL)?;
    }
    let packets = injector.arrived().since(before).packets();
    let seconds = started.elapsed().as_secs_f64();
    if packets == 0 {
        bail!("nothing was forwarded of {} packets", injector.sent());
    }
    Ok(packets as f64 / seconds)
}

/// The hidden command `afxdp-forward LAN WAN`: our forwarder, without a time limit.
///
/// # Errors
/// Those of the port and its programs.
pub fn forward(links: &[String]) -> anyhow::Result<()> {
    let queue = |name: &String| -> anyhow::Result<LinkQueue> {
        let index = if_nametoindex(name.as_str()).with_context(|| format!("look up {name}"))?;
        Ok(LinkQueue {
            ifindex: IfIndex(index),
            name: name.clone(),
            queue: 0,
        })
    };
    let queues = links.iter().map(queue).collect::<anyhow::Result<_>>()?;
    let port = Port::open(&Plan::new(queues))?;
    let mut redirects = Vec::new();
    for (link, socket) in port.sockets() {
        let mut redirect = Redirect::load(&RedirectOptions::default())?;
        redirect.set_socket(link.queue, socket)?;
        redirect.attach(link.ifindex, &link.name)?;
        redirects.push(redirect);
    }
    let fifo = Fifo::new(port.len(), LIMIT);
    let mut forwarder = Forwarder::new(port, &[(QueueId(0), QueueId(1))], fifo)?;
    println!("forwarding");
    forwarder.run(&Stop::new()?, |_| ());
    Ok(())
}

impl AfxdpReport {
    /// For people.
    pub fn text(&self) -> String {
        let cell = |m: &Measured| format!("{} ±{:.0}%", grouped(m.median as u64), m.spread() * 1e2);
        let row = |row: &ForwardingRow| {
            vec![
                format!("{} bytes and ACKs", row.ip_bytes),
                cell(&row.ours_pps),
                cell(&row.peer_pps),
                format!("{:.2} ±{:.0}%", row.ratio.median, row.ratio.spread() * 1e2),
            ]
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let heads = ["packets/s", "fairpath", "xsk_forward.c", "ratio"];
        let targets: String = self.targets.iter().map(Target::text).collect();
        let mut out = String::new();
        if !rows.is_empty() {
            out += "\nAF_XDP, copy mode on veth, generator and forwarder on different CPUs\n";
            out += &build(&heads, &rows);
        }
        if !self.orders.is_empty() {
            out += &order::text(&self.orders);
        }
        if !self.routed.is_empty() {
            out += &routed::text(&self.routed);
        }
        if !self.workers.is_empty() {
            out += &workers::text(&self.workers);
        }
        out + &targets
    }
}
