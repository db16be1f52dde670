//! Cost of an order in the AF_XDP forwarder: core time per packet, compared with first in, first out.
//!
//! Four forwarders, each a separate process on CPU 1, in turn; the first one changes with every round.
//! Before all of them the monitor's own XDP program runs on the generator's CPU: it measures and records
//! class and flow, so that the orders are all that differs.
//!
//! ```text
//!   fifo       a queue for each interface, no scheduler
//!   pifo       a PIFO (cFFS) for each interface, ranks by flow: what the PIFO itself adds
//!   scheduler  the scheduler with one leaf, first in, first out: limits, accounts and sojourns too
//!   fq_codel   10,000 classes with fq_codel each; the generator's 4,096 hosts are in as many of them
//! ```
//!
//! Core time is what the kernel counts for the thread (`schedstat`), its system calls included.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_afxdp::{
    Arrival, Fifo, Forwarder, FrameId, LinkQueue, Order, Outcome, Plan, Port, QueueId, Stop,
};
use fairpath_bpf::{
    Exit, ForwardPlan, Forwarding, Injector, Options, RttMonitor, SenderCheck, Traffic,
};
use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::pifo::{self, POP_BATCH, PifoConfig, Pool, Window};
use fairpath_core::sched::{Change, End};
use fairpath_core::{Config, Rules};
use fairpath_shape::{Both, Leaving, Lines, Settings, ShapeInstance};
use fairpath_testbed::Process;
use fairpath_units::{IfIndex, Nanos};
use nix::net::if_::if_nametoindex;
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::scene::{LAN, Scene, WAN};
use crate::slice;
use crate::table::build;

/// ns a packet that the scheduler may add to first in, first out.
const TARGETS: [(Kind, f64); 2] = [(Kind::Pifo, 25.0), (Kind::FqCodel, 150.0)];
/// Bytes of data packets, from the IP header on.
const SIZES: [u32; 2] = [64, 1500];
/// 5-tuples.
const FLOWS: u32 = 10_000;
/// Classes; the generator's addresses are 10.64.0.1 and up, one class each.
const CLASSES: u32 = 10_000;
/// Packets that each order holds for an interface.
const LIMIT: u32 = 1024;
/// Flows' ranks lie this far apart at most, in ns; a bucket of the PIFO is `1 << RANK_SHIFT`.
const RANKS: u32 = 1 << 18;
const RANK_SHIFT: u8 = 10;
/// Packets of one call of the generator.
const CALL: u32 = 100_000;
/// Packets before anything is measured.
const WARM_CALLS: u32 = 3;
/// For a process to begin: it loads programs and 10,000 classes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The order of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A queue for each interface.
    Fifo,
    /// A PIFO for each interface.
    Pifo,
    /// The scheduler, first in, first out.
    Scheduler,
    /// The scheduler, fq_codel in each class.
    #[value(name = "fq_codel")]
    FqCodel,
}

const KINDS: [Kind; 4] = [Kind::Fifo, Kind::Pifo, Kind::Scheduler, Kind::FqCodel];

/// A size and an order.
#[derive(Debug, Serialize)]
pub struct OrderRow {
    ip_bytes: u32,
    kind: Kind,
    /// Of the forwarder's thread.
    ns_a_packet: Measured,
    /// To first in, first out of the same round.
    added_ns: Measured,
    packets_a_second: Measured,
}

/// Measures all orders.
///
/// # Errors
/// Where the bench itself fails: no root, one CPU.
pub fn rows(scene: &Scene, rounds: u32, time: Duration) -> anyhow::Result<Vec<OrderRow>> {
    let mut rows = Vec::new();
    for ip_bytes in SIZES {
        let traffic = scene.traffic(FLOWS, ip_bytes);
        let mut taken = [const { (Vec::new(), Vec::new()) }; KINDS.len()];
        for round in 0..rounds {
            let mut order = [0, 1, 2, 3];
            order.rotate_left(round as usize % KINDS.len());
            for i in order {
                let (ns, pps) = once(scene, &traffic, KINDS[i], time)?;
                taken[i].0.push(ns);
                taken[i].1.push(pps);
            }
        }
        let measured = taken.map(|(ns, pps)| (Measured::of(ns), Measured::of(pps)));
        let fifo = measured[0].0.clone();
        for (kind, (ns, pps)) in KINDS.into_iter().zip(measured) {
            rows.push(OrderRow {
                ip_bytes,
                kind,
                added_ns: ns.pairs(&fifo, |ns, fifo| ns - fifo),
                ns_a_packet: ns,
                packets_a_second: pps,
            });
        }
    }
    Ok(rows)
}

/// The targets of the issue.
pub fn targets(rows: &[OrderRow]) -> Vec<Target> {
    let of = |row: &OrderRow| {
        let bound = TARGETS.iter().find(|(kind, _)| *kind == row.kind)?.1;
        let what = format!("AF_XDP, {:?} adds, {} bytes", row.kind, row.ip_bytes);
        Some(Target::at_most(what, row.added_ns.median, bound, "ns"))
    };
    rows.iter().filter_map(of).collect()
}

/// For people.
pub fn text(rows: &[OrderRow]) -> String {
    let cell = |m: &Measured| format!("{:.0} [{:.0}, {:.0}]", m.median, m.min, m.most);
    let row = |row: &OrderRow| {
        vec![
            format!("{} bytes, {:?}", row.ip_bytes, row.kind),
            cell(&row.ns_a_packet),
            cell(&row.added_ns),
            format!("{:.0}", row.packets_a_second.median),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let heads = ["order", "ns a packet", "added", "packets/s"];
    format!("\nCore time of the forwarder\n{}", build(&heads, &rows))
}

fn once(
    scene: &Scene,
    traffic: &Traffic,
    kind: Kind,
    time: Duration,
) -> anyhow::Result<(f64, f64)> {
    let mut command = scene.router.command("chrt");
    command.args(["--fifo", "1", "taskset", "--cpu-list", "1"]);
    let name = kind.to_possible_value().context("a kind has a name")?;
    command.arg(std::env::current_exe()?).args([
        "afxdp-forward",
        LAN,
        WAN,
        "--order",
        name.get_name(),
    ]);
    let process = scene.router.spawn(command)?;
    process
        .wait_stdout("forwarding", PATIENCE)
        .with_context(|| process.stderr())?;
    scene.outside.enter(|| measure(&process, traffic, time))?
}

fn measure(process: &Process, traffic: &Traffic, time: Duration) -> anyhow::Result<(f64, f64)> {
    slice::settle(0)?;
    let injector = Injector::new(traffic)?;
    for _ in 0..WARM_CALLS {
        injector.send(CALL)?;
    }
    let (before, cpu, started) = (injector.arrived(), core_ns(process)?, Instant::now());
    while started.elapsed() < time {
        injector.send(CALL)?;
    }
    let packets = injector.arrived().since(before).packets() as f64;
    let cpu = core_ns(process)? - cpu;
    if packets == 0.0 {
        bail!("nothing was forwarded of {} packets", injector.sent());
    }
    Ok((cpu / packets, packets / started.elapsed().as_secs_f64()))
}

/// Nanoseconds that the process had a CPU; it has one thread.
fn core_ns(process: &Process) -> anyhow::Result<f64> {
    let path = format!("/proc/{}/schedstat", process.id());
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let first = text
        .split_whitespace()
        .next()
        .context("schedstat is empty")?;
    Ok(first.parse()?)
}

/// The hidden command `afxdp-forward LAN WAN --order KIND`, without a time limit.
///
/// # Errors
/// Those of port, programs and scheduler.
pub fn forward(links: &[String], kind: Kind) -> anyhow::Result<()> {
    let queue = |name: &String| -> anyhow::Result<LinkQueue> {
        let index = if_nametoindex(name.as_str()).with_context(|| format!("look up {name}"))?;
        Ok(LinkQueue {
            ifindex: IfIndex(index),
            name: name.clone(),
            queue: 0,
        })
    };
    let queues: Vec<_> = links.iter().map(queue).collect::<anyhow::Result<_>>()?;
    let plan = Plan::new(queues).sized(2048, 4 * LIMIT);
    let classes = classes()?;
    let rules = classes.numbered_rules(|_| None, &[]);
    let mut monitor = monitor(&rules)?;
    let port = Port::open(&plan)?;
    monitor.set_forwarding(&forward_plan(&plan.queues)?)?;
    let mut attached = Vec::new();
    for (exit, (link, socket)) in port.sockets().enumerate() {
        monitor.set_socket(exit, link.queue, socket)?;
        attached.push(monitor.attach_forward(link.ifindex, &link.name)?);
    }
    match kind {
        Kind::Fifo => go(port, Fifo::new(2, LIMIT as usize)),
        Kind::Pifo => go(port, Ranked::new(plan.frames)?),
        Kind::Scheduler => go(
            port,
            Scheduled::new("fifo", &ClassSet::default(), &rules, &plan)?,
        ),
        Kind::FqCodel => go(port, Scheduled::new("fq_codel", &classes, &rules, &plan)?),
    }
}

fn go(port: Port, order: impl Order) -> anyhow::Result<()> {
    let mut forwarder = Forwarder::new(port, &[(QueueId(0), QueueId(1))], order)?;
    println!("forwarding");
    forwarder.run(&Stop::new()?, |_| ());
    Ok(())
}

fn monitor(rules: &Rules) -> anyhow::Result<RttMonitor> {
    let config = Config::default()
        .with_flows(1 << 16)
        .with_classes(CLASSES + 1);
    let options = Options::live(Config { quiet: 1, ..config });
    let mut monitor = RttMonitor::load(&options.with_forwarding())?;
    monitor.set_rules(rules, &[])?;
    Ok(monitor)
}

fn forward_plan(queues: &[LinkQueue]) -> anyhow::Result<ForwardPlan> {
    let [lan, wan] = queues else {
        bail!("two interfaces");
    };
    let exit = |link: &LinkQueue, end| Exit {
        ifindex: link.ifindex,
        route: link.ifindex,
        end,
        mtu: 1500,
        vlan: 0,
        mac: [0; 6],
        stack_seen: false,
        sender: SenderCheck::default(),
    };
    Ok(ForwardPlan {
        forwarding: Forwarding::Bridge,
        exits: [exit(lan, End::Receiver), exit(wan, End::Sender)],
        own: Vec::new(),
    })
}

fn classes() -> anyhow::Result<ClassSet> {
    let row = |i: u32| {
        format!(
            "c{i},10.{}.{}.{}/32\n",
            64 + (i >> 16),
            i >> 8 & 255,
            i & 255
        )
    };
    let rows: String = (1..=CLASSES).map(row).collect();
    let mut drafts = Drafts::new();
    drafts.read_file("classes.csv", format!("name,prefix\n{rows}").as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    outcome
        .set
        .with_context(|| format!("build {CLASSES} classes: {:?}", outcome.report))
}

/// A PIFO for each interface: packets of a flow leave as they came, those of others before or after.
struct Ranked {
    pool: Pool,
}

impl Ranked {
    /// Frames are items, from 1.
    fn new(frames: u32) -> anyhow::Result<Ranked> {
        let window = Window {
            buckets: 1024,
            shift: RANK_SHIFT,
            ..Window::default()
        };
        let pifo = PifoConfig::new(pifo::Kind::Cffs(window), LIMIT);
        let pool = Pool::new(frames, &[pifo, pifo])?;
        Ok(Ranked { pool })
    }
}

impl Order for Ranked {
    fn arrive(&mut self, arrival: &Arrival, _packet: &[u8], out: &mut Vec<Outcome>) {
        let flow = arrival.meta.map_or(0, |meta| meta.flow_hash);
        let rank = arrival.now.0 + u64::from(flow % RANKS);
        let q = arrival.exit.min(1) as u32 + 1;
        if self.pool.push(q, arrival.frame.0 + 1, rank).is_err() {
            out.push(Outcome::Drop(arrival.frame));
        }
    }

    fn leave(&mut self, to: QueueId, _now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        let mut items = [0; POP_BATCH];
        let mut capacity = capacity as usize;
        loop {
            let most = capacity.min(POP_BATCH);
            let left = self.pool.pop_batch(to.0 as u32 + 1, &mut items[..most]);
            let sent = items[..left].iter().map(|item| FrameId(item - 1));
            out.extend(sent.map(|frame| Outcome::Send(frame, Change::default())));
            capacity -= left;
            if left < POP_BATCH {
                return;
            }
        }
    }

    fn limit(&self) -> u32 {
        2 * LIMIT
    }
}

/// A scheduler for each interface, without a rate.
struct Scheduled {
    instances: [ShapeInstance; 2],
    wake: [Option<u64>; 2],
    leaving: Vec<Leaving>,
}

impl Scheduled {
    fn new(
        policy: &str,
        classes: &ClassSet,
        rules: &Rules,
        plan: &Plan,
    ) -> anyhow::Result<Scheduled> {
        let settings = Settings {
            policy: policy.to_owned(),
            limit_packets: Some(LIMIT),
            ..Settings::default()
        };
        let lines = Lines::new(classes, &settings)?;
        let Both { down, up } = Both::try_of(|side| {
            ShapeInstance::new(lines.trees.get(side), side.end(), rules, plan.frames, false)
        })?;
        Ok(Scheduled {
            instances: [down, up],
            wake: [None; 2],
            leaving: Vec::new(),
        })
    }
}

impl Order for Scheduled {
    fn arrive(&mut self, arrival: &Arrival, _packet: &[u8], out: &mut Vec<Outcome>) {
        match arrival.meta {
            Some(meta) => {
                let instance = &mut self.instances[arrival.exit.min(1)];
                instance.arrive_as(arrival.frame.0 + 1, arrival.now.0, meta);
            }
            None => out.push(Outcome::Drop(arrival.frame)),
        }
    }

    fn leave(&mut self, to: QueueId, now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        self.leaving.clear();
        let turned = self.instances[to.0].turn(now.0, capacity, &mut self.leaving);
        self.wake[to.0] = turned.expect("a native scheduler does not fail");
        out.extend(self.leaving.iter().map(|leaving| match *leaving {
            Leaving::Send { handle, .. } => Outcome::Send(FrameId(handle - 1), Change::default()),
            Leaving::Drop { handle, .. } => Outcome::Drop(FrameId(handle - 1)),
        }));
    }

    fn limit(&self) -> u32 {
        2 * LIMIT
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.wake.iter().flatten().min().map(|at| Nanos(*at))
    }
}
