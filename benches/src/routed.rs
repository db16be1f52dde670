//! Packets per second through the back end AF_XDP of `fairpath run`, next to forwarding by the stack.
//!
//! ```text
//!   outside: inject, CPU 0 ── lan [router: the stack, or the daemon's worker on CPU 1] wan ── outside: sink
//! ```
//!
//! Packets of 1,500 bytes in one direction, and with an ACK for each; GRO and GSO are off. One router
//! forwards by its routes, with the daemon and without it in turn, and the first of both changes with
//! every round. The rate of the link limits nothing. The receiver runs the sink at XDP or at tcx: at
//! XDP, its veth copies each packet of AF_XDP in the time of the worker, and none of the stack.
//!
//!   rate      the generator sends more than either forwards
//!   CPU time  it sends at a pace that both hold: time of its thread, in which the kernel receives, of
//!             the daemon, in which it sends. The cost of the generator is included in both

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Attached, Fan, Hook, Injector, Sink, Traffic};
use serde::Serialize;

use crate::afxdp;
use crate::cpus::{Ahead, process_time};
use crate::measure::{Measured, Target, thread_ns};
use crate::scene::{Scene, attach_empty};
use crate::shape::via::{Daemon, Via};
use crate::slice;
use crate::table::{build, grouped};

/// Of the stack's packets per second, at least, in percent.
const TARGET: f64 = 100.0;
/// Bytes of a data packet, from the IP header on.
pub const IP_BYTES: u32 = 1500;
/// 5-tuples of data and ACKs.
const FLOWS: u32 = 100;
/// Destinations of data alone.
pub const FAN: Fan = Fan {
    each: [1, 1, 4, 16],
};
/// The network of these.
pub const FAN_NETWORK: &str = "16.0.0.0/8";
/// The rate of the link in each direction, which no packet waits for.
const LINE_BPS: u64 = 100_000_000_000;
/// Classes, none of which the packets belong to.
pub const CLASSES: u32 = 2;
/// The floor of each.
pub const FLOOR_BPS: u64 = 8_000;
/// Packets of a call at a pace: half of a receive ring.
const CALL: u32 = 1_000;
/// From one of these calls to the next one, or longer: a call waits for ticks of the kernel's clock.
const EVERY: Duration = Duration::from_millis(10);
/// For packets that are still on their way.
const DRAIN: Duration = Duration::from_millis(20);

/// A kind of traffic.
#[derive(Debug, Serialize)]
pub struct RoutedRow {
    /// An ACK for each data packet.
    acks: bool,
    /// The receiver runs XDP.
    xdp: bool,
    stack_pps: Measured,
    afxdp_pps: Measured,
    /// Of measurements taken one after the other.
    ratio: Measured,
    /// Of all CPUs, a packet.
    stack_ns: Measured,
    afxdp_ns: Measured,
    /// Of the daemon among them.
    daemon_ns: Measured,
}

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Stack,
    Afxdp,
}

/// Results of one of both in one round.
struct Once {
    pps: f64,
    ns: f64,
    daemon_ns: f64,
}

/// ACKs or none, and where packets end.
const KINDS: [(bool, Sink); 4] = [
    (false, Sink::Tcx),
    (true, Sink::Tcx),
    (false, Sink::Xdp),
    (true, Sink::Xdp),
];

/// Measures all kinds.
///
/// # Errors
/// Where the bench itself fails: no root, one CPU, no release binary.
pub fn rows(scene: &Scene, rounds: u32, time: Duration) -> anyhow::Result<Vec<RoutedRow>> {
    let _ahead = Ahead::of_others();
    scene.route_to_servers(&[FAN_NETWORK])?;
    let row = |kind| row(scene, kind, rounds, time);
    KINDS.into_iter().map(row).collect()
}

fn row(
    scene: &Scene,
    (acks, sink): (bool, Sink),
    rounds: u32,
    time: Duration,
) -> anyhow::Result<RoutedRow> {
    let traffic = Traffic {
        sink,
        fan: (!acks).then_some(FAN),
        ..scene.traffic(FLOWS, IP_BYTES)
    };
    let [mut stack, mut ours] = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let mut order = [Who::Stack, Who::Afxdp];
        order.rotate_left(round as usize % 2);
        for who in order {
            let once = once(scene, &traffic, who, time)?;
            match who {
                Who::Stack => stack.push(once),
                Who::Afxdp => ours.push(once),
            }
        }
    }
    let of = |all: &[Once], get: fn(&Once) -> f64| Measured::of(all.iter().map(get).collect());
    let (stack_pps, afxdp_pps) = (of(&stack, |once| once.pps), of(&ours, |once| once.pps));
    Ok(RoutedRow {
        acks,
        xdp: sink == Sink::Xdp,
        ratio: afxdp_pps.pairs(&stack_pps, |ours, stack| ours / stack),
        stack_pps,
        afxdp_pps,
        stack_ns: of(&stack, |once| once.ns),
        afxdp_ns: of(&ours, |once| once.ns),
        daemon_ns: of(&ours, |once| once.daemon_ns),
    })
}

fn once(scene: &Scene, traffic: &Traffic, who: Who, time: Duration) -> anyhow::Result<Once> {
    let _taking = match who {
        Who::Stack => Some(take_frames(scene)?),
        Who::Afxdp => None,
    };
    let daemon = match who {
        Who::Stack => None,
        Who::Afxdp => {
            let daemon = Daemon::start(
                &scene.router,
                Via::Afxdp,
                CLASSES,
                FLOOR_BPS,
                LINE_BPS,
                None,
            )?;
            daemon.stay_on(1)?;
            Some(daemon)
        }
    };
    let process = daemon.as_ref().map(Daemon::id);
    let measure = || {
        let pps = afxdp::measure(traffic, time)?;
        let (ns, daemon_ns) = cost(traffic, time, process)?;
        anyhow::Ok(Once { pps, ns, daemon_ns })
    };
    scene.outside.enter(measure)?
}

/// Lets the router take frames of the generator: without any XDP program, a veth drops them.
///
/// # Errors
/// It has a program.
pub fn take_frames(scene: &Scene) -> anyhow::Result<Vec<Attached>> {
    let attach = || attach_empty(&mut Empty::load()?, &[Hook::Xdp]);
    scene.router.enter(attach)?
}

/// CPU time of a packet in ns, and that of the daemon's process.
fn cost(traffic: &Traffic, time: Duration, process: Option<u32>) -> anyhow::Result<(f64, f64)> {
    slice::settle(0)?;
    let injector = Injector::new(traffic)?;
    let own = || -> anyhow::Result<f64> {
        let time = process.map(process_time).transpose()?;
        Ok(time.unwrap_or_default().as_nanos() as f64)
    };
    injector.send(traffic.lag.max(1) * 2)?;
    thread::sleep(DRAIN);
    let (sent, arrived) = (injector.sent(), injector.arrived());
    let (ns, daemon, started) = (thread_ns()?, own()?, Instant::now());
    let mut due = started;
    while started.elapsed() < time {
        injector.send(CALL)?;
        due += EVERY;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    thread::sleep(DRAIN);
    let (ns, daemon) = (thread_ns()? - ns, own()? - daemon);
    let packets = injector.arrived().since(arrived).packets();
    let sent = injector.sent() - sent;
    if (packets as f64) < 0.99 * sent as f64 {
        bail!("of {sent} packets at a pace of {CALL} in {EVERY:?} only {packets} were forwarded");
    }
    let packets = packets as f64;
    Ok(((ns + daemon) / packets, daemon / packets))
}

/// The target of the issue.
pub fn targets(rows: &[RoutedRow]) -> Vec<Target> {
    let of = |row: &RoutedRow| {
        let what = format!("AF_XDP, a worker, {}, against the stack", name(row));
        Target::at_least(what, row.ratio.median * 1e2, TARGET, "%")
    };
    rows.iter().map(of).collect()
}

fn name(row: &RoutedRow) -> String {
    let acks = if row.acks { " and ACKs" } else { "" };
    let to = if row.xdp { ", to XDP" } else { "" };
    format!("{IP_BYTES} bytes{acks}{to}")
}

/// For people.
pub fn text(rows: &[RoutedRow]) -> String {
    let pps = |m: &Measured| format!("{} ±{:.0}%", grouped(m.median as u64), m.spread() * 1e2);
    let ns = |m: &Measured| format!("{:.0} [{:.0}, {:.0}]", m.median, m.min, m.most);
    let row = |row: &RoutedRow| {
        vec![
            name(row),
            pps(&row.stack_pps),
            pps(&row.afxdp_pps),
            format!("{:.2} ±{:.0}%", row.ratio.median, row.ratio.spread() * 1e2),
            ns(&row.stack_ns),
            ns(&row.afxdp_ns),
            ns(&row.daemon_ns),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let heads = [
        "packets/s",
        "stack",
        "AF_XDP",
        "ratio",
        "stack ns",
        "AF_XDP ns",
        "of the daemon",
    ];
    format!(
        "\nForwarding by one worker of the daemon and by the stack; CPU time of a packet, with its generator's\n{}",
        build(&heads, &rows)
    )
}
