//! Tens of thousands of new flows a second, for as long as it takes.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Router, Testbed, requires};
use fairpath_tests::new_flows::{CLIENTS, NewFlows, SERVERS};
use fairpath_tests::{Daemon, Place};
use fairpath_units::Share;
use serde_json::Value;

use super::{Site, counter};

const RATE: u64 = 50_000;
/// The generator takes its CPU's time; on a busy machine it does not come to its rate.
const MIN_RATE: u64 = 5_000;
/// The maximum growth of the process once it is warm, with any traffic: no flow is remembered in it.
const GROWTH_BYTES: u64 = 8 << 20;
const WARM: Duration = Duration::from_secs(10);

/// A class for every sixteenth of the addresses of new flows, and one for the other side.
fn classes() -> String {
    let clients: String = (0..16)
        .map(|i| {
            let net = i * 16;
            format!("[[class]]\nname = \"part {i}\"\nprefix = \"198.18.{net}.0/20\"\n")
        })
        .collect();
    format!("{clients}[[class]]\nname = \"far\"\nprefix = \"198.19.0.0/16\"\n")
}

/// Resident memory that is the process's own: what it maps of the kernel's tables is not counted.
fn own_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse::<u64>().ok()).unwrap() * 1024
}

/// Every flow is reported as opened, or counted by its outcome; memory stays constant.
fn every_new_flow_is_accounted_for(time: Duration) {
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let v4 = |host: fairpath_testbed::Host| IpAddr::V4(host.v4);
    site.router()
        .add_route(CLIENTS, v4(Router::CLIENT))
        .unwrap();
    site.router()
        .add_route(SERVERS, v4(Router::SERVER))
        .unwrap();
    let place = Place::new();
    let rest = format!("uplinks = [\"wan\"]\n{}", classes());
    place.configure(&["lan", "wan"], &rest);
    let daemon = Daemon::start(site.router(), &place);
    let started = Instant::now();
    let new_flows = NewFlows::start(&site.net.client, &site.net.server, RATE).unwrap();
    // How long it lasts is what is tested.
    thread::sleep(WARM.min(time / 2));
    let warm = own_memory(daemon.process.id());
    let kernel = daemon.status()["gauges"]["kernel_memory_bytes"].clone();
    let mut most = warm;
    while started.elapsed() < time {
        thread::sleep(Duration::from_secs(1));
        most = most.max(own_memory(daemon.process.id()));
    }
    let begun = new_flows.stop().unwrap();
    let rate = begun as f64 / started.elapsed().as_secs_f64();
    let what_became = |status: &Value| {
        ["flows_opened", "flows_refused", "half_open_failed"]
            .iter()
            .chain(&["half_open_evicted", "lock_failures"])
            .map(|name| counter(status, name))
            .sum::<u64>()
    };
    let status = daemon.status_when("all new flows accounted for", |status| {
        what_became(status) + begun / 1000 >= begun
    });
    // Rows follow the counters at the next reading.
    let opened = counter(&status, "flows_opened");
    let all_opened = |row: &Value| row["flows"]["opened"] == opened;
    daemon.row_when("far", "the far side of all", all_opened);
    let parts: u64 = (0..16)
        .map(|i| daemon.row(&format!("part {i}")))
        .map(|row| row["flows"]["opened"].as_u64().unwrap())
        .sum();
    assert_eq!(parts, opened);
    println!(
        "{begun} flows in {:?} ({rate:.0}/s): {opened} opened in classes, {} refused, {} half-open failed, {} evicted; {} KiB of the process's own, at most {} more",
        started.elapsed(),
        counter(&status, "flows_refused"),
        counter(&status, "half_open_failed"),
        counter(&status, "half_open_evicted"),
        warm / 1024,
        (most - warm) / 1024,
    );
    assert!(rate >= MIN_RATE as f64, "only {rate:.0} flows a second");
    assert!(opened >= begun / 2, "{opened} of {begun} opened");
    assert!(most - warm <= GROWTH_BYTES, "{warm} grew to {most} bytes");
    assert_eq!(daemon.status()["gauges"]["kernel_memory_bytes"], kernel);
    assert_eq!(counter(&status, "events_lost"), 0);
    assert_eq!(counter(&status, "readings_failed"), 0);
    assert_eq!(daemon.stop().code(), Some(0));
}

/// Eighteen seconds of it in `make test`.
#[test]
fn a_minute_of_new_flows_takes_bounded_memory() {
    requires!(Need::Root);
    every_new_flow_is_accounted_for(Duration::from_secs(Share::reported().choose(60, 18)));
}

/// An hour, or what `FAIRPATH_SOAK_SECONDS` says.
#[cfg(feature = "soak")]
#[test]
fn soak_an_hour_of_flows_takes_bounded_memory() {
    requires!(Need::Root);
    let output = std::env::var("FAIRPATH_SOAK_SECONDS").ok();
    let seconds = output.and_then(|text| text.parse().ok()).unwrap_or(3600);
    every_new_flow_is_accounted_for(Duration::from_secs(seconds));
}
