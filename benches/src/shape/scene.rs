//! The router, its subscribers, and traffic to two of them.

use std::net::Ipv4Addr;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_testbed::{
    Iperf3, Iperf3Report, Iperf3Server, Netns, Offloads, Ping, PingReport, Router, Testbed,
};

use super::text::QUIET_CPUS;
use crate::cpus::{Busy, process_time, settle};

/// The first subscriber's address: the first of the /16 that subscribers have.
const SUBSCRIBERS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
/// The CPU of both ends of all connections.
const ENDS_CPU: usize = 0;
/// The CPU of the pings.
const PING_CPU: usize = 1;
/// Between two echo requests. Of 10 ms and less, `ping` does not sleep, but keeps its CPU busy.
const PING_EVERY: Duration = Duration::from_millis(20);
/// For connections to fill the line before latency counts.
const FILL: Duration = Duration::from_millis(300);
/// Pings end before the flows do, by as much.
const SPARE: Duration = Duration::from_millis(100);
/// The maximum time until the machine is quiet: the kernel still frees what the one before had.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of connections down, and of those up.
const PORTS: [u16; 2] = [5201, 5202];

/// A router between a server and subscribers, without a shaper yet.
pub struct Scene {
    net: Router,
    servers: [Iperf3Server; 2],
    classes: u32,
}

/// The traffic.
pub struct Load {
    /// Connections in a direction.
    pub flows: u32,
    /// Connections flow up, too.
    pub both_ways: bool,
    /// The duration of sending.
    pub time: Duration,
    /// A rate that the sender itself keeps to, Ethernet frames, all connections together.
    pub held_bps: Option<u64>,
}

/// Pings without flows.
pub struct Idle {
    /// To the two subscribers.
    pub pings: [Times; 2],
    /// CPU seconds of all CPUs, a second.
    pub busy: f64,
    /// Of the shaper's process among them, if there is one.
    pub own: Option<f64>,
}

/// Results of pings while flows run.
pub struct Loaded {
    /// To the flows' subscriber, and to the other.
    pub pings: [Times; 2],
    /// Bits that the receivers got.
    pub bits: f64,
    /// Bit/s at the receiver of the direction that had less.
    pub goodput_bps: f64,
    /// From the first connection to the end of the last.
    pub seconds: f64,
    /// CPU seconds of all CPUs.
    pub busy: f64,
    /// CPU seconds of the shaper's process, if there is one.
    pub own: Option<f64>,
}

/// Round trips of one ping.
pub struct Times {
    /// The middle one, seconds.
    pub p50: f64,
    /// Of a hundred, the worst but one.
    pub p99: f64,
    /// Requests without an answer.
    pub lost: u32,
}

/// The address of a class's subscriber.
pub fn subscriber(class: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(SUBSCRIBERS) + class)
}

impl Scene {
    /// A router for this number of classes; two of them have subscribers.
    ///
    /// # Errors
    /// No root, or a tool is missing.
    pub fn build(classes: u32) -> anyhow::Result<Scene> {
        let net = Router::builder()
            .offloads(Offloads::On)
            .build(&Testbed::new())?;
        let [down, up] = PORTS.map(|port| Iperf3Server::start(&net.client, port));
        let scene = Scene {
            net,
            servers: [down?, up?],
            classes,
        };
        for address in scene.busy().map(|ip| format!("{ip}/32")) {
            let net = &scene.net;
            let gateway = Router::CLIENT.v4.to_string();
            let add = ["ip", "address", "add", &address, "dev", "eth0"];
            net.client.run(&add)?;
            let route = ["ip", "route", "add", &address, "via", &gateway];
            net.router.run(&route)?;
        }
        Ok(scene)
    }

    /// Where the shaper runs.
    pub fn router(&self) -> &Netns {
        &self.net.router
    }

    /// Classes to make.
    pub fn classes(&self) -> u32 {
        self.classes
    }

    /// Addresses of the flows' subscriber and of the other, from the middle and the end of the list.
    fn busy(&self) -> [Ipv4Addr; 2] {
        [self.classes / 2, self.classes.max(2) - 1].map(subscriber)
    }

    /// Pings alone, on a machine that is quiet by then, or has had its time to be; the CPU time of
    /// `process` apart.
    ///
    /// # Errors
    /// No answer arrives.
    pub fn idle(&self, time: Duration, process: Option<u32>) -> anyhow::Result<Idle> {
        become_quiet()?;
        let (busy, own_before) = (Busy::start()?, own(process)?);
        thread::sleep(FILL);
        let pings = thread::scope(|scope| {
            let pings = self
                .busy()
                .map(|ip| scope.spawn(move || self.ping(ip, time)));
            times(pings)
        })?;
        thread::sleep(SPARE);
        let (wall, spent) = busy.so_far()?;
        Ok(Idle {
            pings,
            busy: spent / wall,
            own: since(own_before, own(process)?).map(|own| own / wall),
        })
    }

    /// Runs flows and pings together; the CPU time of `process` is separate.
    ///
    /// # Errors
    /// A flow fails, or no answer arrives.
    pub fn loaded(&self, load: &Load, process: Option<u32>) -> anyhow::Result<Loaded> {
        thread::scope(|scope| {
            let (busy, own_before) = (Busy::start()?, own(process)?);
            let directions = &self.servers[..if load.both_ways { 2 } else { 1 }];
            let flows: Vec<_> = directions
                .iter()
                .map(|server| scope.spawn(|| self.flows(load, server)))
                .collect();
            thread::sleep(FILL);
            let pings = self
                .busy()
                .map(|ip| scope.spawn(move || self.ping(ip, load.time)));
            let reports: Result<Vec<_>, _> = flows.into_iter().map(joined).collect();
            let reports = reports?;
            let (seconds, busy) = busy.so_far()?;
            let own = since(own_before, own(process)?);
            Ok(Loaded {
                pings: times(pings)?,
                bits: reports
                    .iter()
                    .map(|of| of.bytes_received as f64 * 8.0)
                    .sum(),
                goodput_bps: reports
                    .iter()
                    .map(|of| of.goodput_bps)
                    .fold(f64::INFINITY, f64::min),
                seconds,
                busy,
                own,
            })
        })
    }

    /// Connections with one server: the second one sends to the first namespace.
    fn flows(&self, load: &Load, server: &Iperf3Server) -> anyhow::Result<Iperf3Report> {
        // The one CPU is one that its starter may use.
        settle(ENDS_CPU)?;
        let mut flows = Iperf3::to(self.busy()[0], server.port())
            .congestion("cubic")
            .parallel(load.flows)
            .seconds(load.time.as_secs() as u32)
            .one_cpu();
        if server.port() == PORTS[1] {
            flows = flows.reverse();
        }
        if let Some(bps) = load.held_bps {
            flows = flows.bitrate_bps(payload_bps(bps) / u64::from(load.flows));
        }
        let report = flows.run(&self.net.server)?;
        if report.bytes_received == 0 {
            bail!("nothing came through");
        }
        Ok(report)
    }

    fn ping(&self, ip: Ipv4Addr, time: Duration) -> anyhow::Result<PingReport> {
        let time = time.saturating_sub(FILL + SPARE);
        let count = (time.as_nanos() / PING_EVERY.as_nanos()) as u32;
        let ping = Ping::to(ip).count(count).interval(PING_EVERY);
        Ok(ping.on_cpu(PING_CPU).run(&self.net.server)?)
    }
}

fn become_quiet() -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let busy = Busy::start()?;
        thread::sleep(Duration::from_secs(1));
        let (wall, spent) = busy.so_far()?;
        if spent / wall < QUIET_CPUS / 2.0 {
            break;
        }
    }
    Ok(())
}

fn own(process: Option<u32>) -> anyhow::Result<Option<Duration>> {
    process.map(process_time).transpose()
}

/// Seconds of CPU time between two readings.
fn since(before: Option<Duration>, after: Option<Duration>) -> Option<f64> {
    let (before, after) = before.zip(after)?;
    Some(after.saturating_sub(before).as_secs_f64())
}

/// TCP's payload in frames of an MTU of 1500: 1448 of 1514 bytes.
pub fn payload_bps(frames_bps: u64) -> u64 {
    (u128::from(frames_bps) * 1448 / 1514) as u64
}

fn joined<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    let result = handle.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn times(
    pings: [ScopedJoinHandle<'_, anyhow::Result<PingReport>>; 2],
) -> anyhow::Result<[Times; 2]> {
    let [same, other] = pings.map(joined);
    Ok([Times::of(&same?)?, Times::of(&other?)?])
}

impl Times {
    fn of(report: &PingReport) -> anyhow::Result<Times> {
        let mut sorted: Vec<f64> = report.times.iter().map(Duration::as_secs_f64).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied()
        };
        let both = at(0.5).zip(at(0.99));
        let (p50, p99) =
            both.with_context(|| format!("of {} pings none came back", report.sent))?;
        Ok(Times {
            p50,
            p99,
            lost: report.sent.saturating_sub(report.received),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(times_ms: &[u64], sent: u32) -> PingReport {
        PingReport {
            sent,
            received: times_ms.len() as u32,
            duplicates: 0,
            min: Duration::ZERO,
            avg: Duration::ZERO,
            max: Duration::ZERO,
            times: times_ms
                .iter()
                .map(|ms| Duration::from_millis(*ms))
                .collect(),
        }
    }

    #[test]
    fn p99_is_nearest_rank_and_lost_pings_count() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let times = Times::of(&report(&hundred, 103)).unwrap();
        assert_eq!((times.p50, times.p99, times.lost), (0.05, 0.099, 3));
        let ten = Times::of(&report(&hundred[..10], 10)).unwrap();
        assert_eq!((ten.p50, ten.p99), (0.095, 0.1));
        let one = Times::of(&report(&[7], 1)).unwrap();
        assert_eq!((one.p50, one.p99, one.lost), (0.007, 0.007, 0));
        assert!(Times::of(&report(&[], 5)).is_err());
    }
}
