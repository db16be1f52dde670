//! Latency under load, rate and fairness.

use std::time::{Duration, Instant};

use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Ping, PingReport, Router, requires};

use fairpath_units::{Disturbed, repeat_disturbed};

use crate::by;
use crate::scene::{Scene, for_a_time};

/// CoDel's target.
const TARGET: Duration = Duration::from_millis(5);
const RATE: f64 = 100e6;
const FLOWS: u32 = 10;
/// The number of repetitions of a disturbed measurement.
const TIMES: u32 = 4;

/// Jain's index: 1 where all have the same.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

fn ping(scene: &Scene, count: u32) -> PingReport {
    let ping = Ping::to(Router::SERVER.v4).count(count);
    // Up to 10 ms, `ping` keeps a CPU busy instead of sleeping.
    let ping = ping.interval(Duration::from_millis(15));
    let report = ping.run(&scene.net.client).unwrap();
    assert!(report.received * 100 >= count * 98, "{report:?}");
    report
}

/// The counter of the client's interface, read at some time between the two.
struct Read {
    bytes: u64,
    begun: Instant,
    ended: Instant,
}

/// A loaded machine takes a while to read it.
fn read_bytes(scene: &Scene) -> Read {
    let begun = Instant::now();
    let bytes = scene.net.client.link_counters("eth0").unwrap().rx_bytes;
    Read {
        bytes,
        begun,
        ended: Instant::now(),
    }
}

/// The minimum and the maximum rate between two readings.
fn rates(from: &Read, to: &Read) -> [f64; 2] {
    let bits = (to.bytes - from.bytes) as f64 * 8.0;
    let (longest, shortest) = (to.ended - from.begun, to.begun - from.ended);
    [longest, shortest].map(|time| bits / time.as_secs_f64())
}

/// A figure by the clock: what falls short of it, others may have taken the time for.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// By how much the ping's p99 grew.
    Latency,
    /// The link rate.
    Rate,
    /// The fairness of the flows.
    Fairness,
}

impl Figure {
    const ALL: [Figure; 3] = [Figure::Latency, Figure::Rate, Figure::Fairness];
}

/// A measurement.
#[derive(Debug)]
struct Measured {
    added: Duration,
    fastest_bps: f64,
    streams_bps: Vec<f64>,
}

impl Measured {
    fn holds(&self, figure: Figure) -> bool {
        match figure {
            Figure::Latency => self.added <= 2 * TARGET,
            Figure::Rate => self.fastest_bps >= 0.98 * RATE,
            Figure::Fairness => jain(&self.streams_bps) >= 0.98,
        }
    }

    fn reported(&self, figure: Figure) -> String {
        match figure {
            Figure::Latency => format!("p99 of the ping grew by {:?}", self.added),
            Figure::Rate => format!("{} bit/s on the wire", self.fastest_bps),
            Figure::Fairness => format!("{:?}", self.streams_bps),
        }
    }
}

/// Ten flows and a ping through the line.
fn under_load(scene: &Scene, server: &Iperf3Server, port: &str) -> Measured {
    let idle = ping(scene, 100).quantile(0.99);
    let bulk = Iperf3::to(Router::CLIENT.v4, server.port());
    let bulk = bulk.parallel(FLOWS).seconds(10).congestion("cubic");
    let bulk = bulk.start(&scene.net.server).unwrap();
    // Slow start is over, and CoDel has found its pace.
    for_a_time(Duration::from_secs(3));
    let before = read_bytes(scene);
    let loaded = ping(scene, 400).quantile(0.99);
    let [slowest, fastest] = rates(&before, &read_bytes(scene));
    let report = bulk.finish().unwrap();
    println!(
        "{port}: ping p99 {idle:?} idle, {loaded:?} loaded; {:.2} to {:.2} Mbit/s; Jain's index {:.4}",
        slowest / 1e6,
        fastest / 1e6,
        jain(&report.streams_bps)
    );
    assert_eq!(report.streams_bps.len(), FLOWS as usize);
    // Whatever the machine does, the line is not faster than it shall be.
    assert!(slowest <= 1.02 * RATE, "{slowest} bit/s on the wire");
    Measured {
        added: loaded.saturating_sub(idle),
        fastest_bps: fastest,
        streams_bps: report.streams_bps,
    }
}

by!(ten_bulk_flows_leave_a_ping_its_latency: nfqueue, afxdp);

fn ten_bulk_flows_leave_a_ping_its_latency(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::far(port, Duration::from_millis(10));
    let _daemon = scene.shape("down = \"100mbit\"\nup = \"20mbit\"", "");
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    // A passed figure is not measured again: a repetition is for missed ones.
    let mut wanting = Figure::ALL.to_vec();
    let test = format!("shape::ten_bulk_flows_leave_a_ping_its_latency::{port}");
    repeat_disturbed(&test, TIMES, |_| {
        let measured = under_load(&scene, &server, port);
        wanting.retain(|figure| !measured.holds(*figure));
        let missed: Vec<_> = wanting
            .iter()
            .map(|figure| measured.reported(*figure))
            .collect();
        Disturbed::unless(missed.is_empty(), missed.join("; "))
    });
}

by!(a_fifo_of_the_same_rate_does_not: nfqueue, afxdp, kernel);

/// The same line without flow queues: the test above could fail.
fn a_fifo_of_the_same_rate_does_not(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let policy = match port {
        "kernel" => "",
        _ => "policy = \"fifo\"\npackets = 1000",
    };
    let _daemon = scene.shape(&format!("down = \"100mbit\"\n{policy}"), "");
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    let bulk = Iperf3::to(Router::CLIENT.v4, server.port())
        .parallel(FLOWS)
        .seconds(6);
    let bulk = bulk.congestion("cubic").start(&scene.net.server).unwrap();
    for_a_time(Duration::from_secs(3));
    let loaded = ping(&scene, 150).quantile(0.5);
    drop(bulk);
    println!("{port}: ping p50 {loaded:?} behind a FIFO");
    assert!(loaded > 4 * TARGET, "{loaded:?}");
}
