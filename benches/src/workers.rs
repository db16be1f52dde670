//! CPU time of a packet by two workers of the daemon, next to one: by AF_XDP and by NFQUEUE. And by HTB at each of two
//! transmit queues, next to HTB at the root.
//!
//! ```text
//!   outside: inject, CPUs 0 and 1 in turn ── lan [router: fairpath run, 1 or 2 workers] wan ── sink
//! ```
//!
//! Each interface has two queues. The generator sends more than the rate of the link, to many
//! destinations: by AF_XDP its CPU selects the queue and thereby the worker, by NFQUEUE a hash of the
//! addresses does. The rate must be held. The CPU time is that of the daemon, per packet that left. HTB runs in the kernel:
//! there, the time is that of all CPUs with packets, less that without. It includes generator and forwarding.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::{Injector, Traffic};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::cpus::{Ahead, Busy, process_time};
use crate::measure::{Measured, Target};
use crate::routed::{CLASSES, FAN, FAN_NETWORK, FLOOR_BPS, IP_BYTES, take_frames};
use crate::scene::Scene;
use crate::shape::via::{Daemon, Via};
use crate::slice;
use crate::table::build;

/// Of one worker's packets a CPU-second, at least, in percent.
const TARGET: f64 = 90.0;
/// Distance from the configured rate, at most, in percent.
const RATE_TARGET: f64 = 1.0;
const VIAS: [Via; 3] = [Via::Afxdp, Via::Nfqueue, Via::Kernel];
/// The rate of the link: 16,500 packets per second.
const LINE_BPS: u64 = 200_000_000;
/// Packets of a call.
const CALL: u32 = 1_000;
/// From one call to the next one, or longer: a call waits for ticks of the kernel's clock.
const EVERY: Duration = Duration::from_millis(10);
/// Ethernet.
const LINK_BYTES: u32 = 14;
/// For queues to fill, and for neighbours.
const WARM: Duration = Duration::from_millis(500);

/// A back end.
#[derive(Debug, Serialize)]
pub struct WorkersRow {
    via: Via,
    /// Of the daemon, or with HTB of all CPUs, a packet, by one worker and by two.
    one_ns: Measured,
    two_ns: Measured,
    /// One worker's time, as a share of that of two in the same round.
    ratio: Measured,
    /// Shares of the configured rate.
    one_rate: Measured,
    two_rate: Measured,
}

/// Measures all of these back ends.
///
/// # Errors
/// Where the bench itself fails: no root, one CPU, no release binary.
pub fn rows(rounds: u32, time: Duration) -> anyhow::Result<Vec<WorkersRow>> {
    let _ahead = Ahead::of_others();
    let scene = Scene::build()?;
    scene.route_to_servers(&[FAN_NETWORK])?;
    scene.set_queues(2)?;
    let traffic = Traffic {
        fan: Some(FAN),
        ..scene.traffic(1, IP_BYTES)
    };
    VIAS.map(|via| row(&scene, &traffic, via, rounds, time))
        .into_iter()
        .collect()
}

fn row(
    scene: &Scene,
    traffic: &Traffic,
    via: Via,
    rounds: u32,
    time: Duration,
) -> anyhow::Result<WorkersRow> {
    let mut all = [const { (Vec::new(), Vec::new()) }; 2];
    for round in 0..rounds {
        let mut order = [1, 2];
        order.rotate_left(round as usize % 2);
        for workers in order {
            let (ns, rate) = once(scene, traffic, via, workers, time)?;
            let lists = &mut all[workers as usize - 1];
            lists.0.push(ns);
            lists.1.push(rate);
        }
    }
    let [(one_ns, one_rate), (two_ns, two_rate)] =
        all.map(|(ns, rate)| (Measured::of(ns), Measured::of(rate)));
    Ok(WorkersRow {
        via,
        ratio: one_ns.pairs(&two_ns, |one, two| one / two),
        one_ns,
        two_ns,
        one_rate,
        two_rate,
    })
}

/// ns for each packet that left, and the share of the configured rate.
fn once(
    scene: &Scene,
    traffic: &Traffic,
    via: Via,
    workers: u32,
    time: Duration,
) -> anyhow::Result<(f64, f64)> {
    let daemon = Daemon::start(
        &scene.router,
        via,
        CLASSES,
        FLOOR_BPS,
        LINE_BPS,
        Some(workers),
    )?;
    let _taking = match via {
        Via::Afxdp => None,
        _ => Some(take_frames(scene)?),
    };
    let process = daemon.id();
    let measure = || {
        slice::settle(0)?;
        let idle = Busy::start()?;
        thread::sleep(WARM);
        let (wall, spent) = idle.so_far()?;
        let injector = Injector::new(traffic)?;
        send(&injector, WARM)?;
        let (arrived, started) = (injector.arrived(), Instant::now());
        let (busy, of_process) = (Busy::start()?, process_time(process)?);
        send(&injector, time)?;
        let packets = injector.arrived().since(arrived).packets();
        let seconds = started.elapsed().as_secs_f64();
        let cpu = match via {
            Via::Kernel => busy.so_far()?.1 - spent / wall * seconds,
            _ => (process_time(process)? - of_process).as_secs_f64(),
        };
        if packets == 0 {
            bail!("nothing left of {} packets", injector.sent());
        }
        let bits = packets as f64 * f64::from(IP_BYTES + LINK_BYTES) * 8.0;
        let ns = cpu * 1e9 / packets as f64;
        anyhow::Ok((ns, bits / seconds / LINE_BPS as f64))
    };
    scene.outside.enter(measure)?
}

/// Sends at the pace, by both CPUs in turn.
fn send(injector: &Injector, time: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    for call in 0.. {
        let due = EVERY * call;
        if due >= time {
            break;
        }
        thread::sleep(due.saturating_sub(started.elapsed()));
        let mut cpu = CpuSet::new();
        cpu.set(call as usize % 2)?;
        sched_setaffinity(Pid::from_raw(0), &cpu).context("stay on a CPU")?;
        injector.send(CALL)?;
    }
    thread::sleep(time.saturating_sub(started.elapsed()));
    Ok(())
}

/// The targets of the issue.
pub fn targets(rows: &[WorkersRow]) -> Vec<Target> {
    let of = |row: &WorkersRow| {
        let (name, off) = (row.via.name(), |rate: &Measured| {
            (rate.median - 1.0).abs() * 1e2
        });
        [
            Target::at_least(
                format!("{name}, packets a CPU-second of two workers, against one"),
                row.ratio.median * 1e2,
                TARGET,
                "%",
            ),
            Target::at_most(
                format!("{name}, distance of two workers from the rate"),
                off(&row.two_rate),
                RATE_TARGET,
                "%",
            ),
        ]
    };
    rows.iter().flat_map(of).collect()
}

/// For people.
pub fn text(rows: &[WorkersRow]) -> String {
    let ns = |m: &Measured| format!("{:.0} [{:.0}, {:.0}]", m.median, m.min, m.most);
    let share = |m: &Measured| {
        format!(
            "{:.1} [{:.1}, {:.1}]",
            m.median * 1e2,
            m.min * 1e2,
            m.most * 1e2
        )
    };
    let row = |row: &WorkersRow| {
        vec![
            row.via.name().to_owned(),
            ns(&row.one_ns),
            ns(&row.two_ns),
            format!("{:.2} ±{:.0}%", row.ratio.median, row.ratio.spread() * 1e2),
            share(&row.one_rate),
            share(&row.two_rate),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let heads = [
        "workers",
        "ns, one",
        "two",
        "one / two",
        "% of rate, one",
        "two",
    ];
    let mbit = LINE_BPS / 1_000_000;
    format!(
        "\nCPU time of the daemon, with HTB of all CPUs, for a packet of {IP_BYTES} bytes at {mbit} Mbit/s\n{}",
        build(&heads, &rows)
    )
}
