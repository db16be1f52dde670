//! The values of classes for a capture, compared with all samples of the same capture.
//!
//! One class of everything is counted in the core's cells; the quantiles of its histogram must be
//! those of the sorted samples, which the core reports one by one, within three percent.

use std::fs::File;
use std::path::Path;

use fairpath_core::{
    ClassReading, Config, Event, Frame, INSIDE, Link, Monitor, OUTSIDE, Prefix, Rules,
};
use fairpath_history::Histogram;
use fairpath_wire::capture::{LinkType, Packet, Reader};

/// Reported quantiles of classes, and some more.
const QUANTILES: [f64; 6] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99];
const MOST_OFF: f64 = 0.03;
/// Shorter round trips lie below the histogram's range.
const SHORTEST_NS: u64 = 10_000;

fn frame_of(packet: &Packet<'_>) -> Option<Frame> {
    let link = match packet.link.canonical() {
        LinkType::ETHERNET => Link::Ethernet,
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Link::Raw,
        LinkType::LINUX_SLL => Link::Sll,
        LinkType::LINUX_SLL2 => Link::Sll2,
        _ => return None,
    };
    Some(Frame {
        now: packet.time_ns,
        wire_len: packet.wire_len,
        link: link as u16,
        ..Frame::default()
    })
}

/// All samples of a capture, sorted, and the class's histograms of both legs.
pub fn counted(capture: &Path) -> (Vec<u64>, [Histogram; 2]) {
    let mut monitor = Monitor::new(&Config::default().with_flows(4096).with_classes(4));
    let everything = ["0.0.0.0", "::"].map(|a| (Prefix::new(a.parse().unwrap(), 0), 1));
    let rules = Rules {
        prefixes: everything.to_vec(),
        ..Rules::default()
    };
    monitor.set_rules(&rules, &[]).unwrap();
    let mut reader = Reader::new(File::open(capture).unwrap()).unwrap();
    let mut samples = Vec::new();
    while let Some(packet) = reader.next().unwrap_or(None) {
        let Some(frame) = frame_of(&packet) else {
            continue;
        };
        monitor.frame(&frame, packet.data, |event| {
            if let Event::Sample(sample) = event {
                samples.push(sample.rtt);
            }
        });
    }
    samples.sort_unstable();
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    let mut legs = [Histogram::default(), Histogram::default()];
    for cell in &reading.cells {
        assert_eq!(cell.slot, 1);
        legs[usize::from(cell.leg)].add(cell.bucket, cell.count.into());
    }
    (samples, legs)
}

/// The maximum error of a histogram's quantiles; all samples must be in it.
fn farthest_off(samples: &[u64], histogram: &Histogram) -> f64 {
    assert_eq!(histogram.count(), samples.len() as u64);
    let off = QUANTILES.map(|q| {
        let rank = ((q * samples.len() as f64).ceil() as usize).max(1);
        let exact = samples[rank - 1].max(SHORTEST_NS) as f64;
        let reported = histogram.quantile(q).unwrap().max(SHORTEST_NS) as f64;
        (reported / exact - 1.0).abs()
    });
    off.into_iter().fold(0.0, f64::max)
}

#[test]
fn class_quantiles_are_within_3_percent() {
    let mut compared = 0;
    for capture in super::captures().iter().chain(&super::external()) {
        let (samples, legs) = counted(capture);
        if samples.is_empty() {
            continue;
        }
        for leg in [INSIDE, OUTSIDE] {
            let off = farthest_off(&samples, &legs[leg]);
            assert!(off <= MOST_OFF, "{capture:?}, leg {leg}: {off}");
        }
        compared += 1;
    }
    assert!(compared >= 15, "{compared} captures only");
}

/// Filters leave the same samples out that they would have to be omitted of afterwards.
#[test]
fn filters_give_samples_of_flows_that_they_name() {
    let capture = super::directory().join("two-way.pcap.gz");
    let samples = |how: &[&str]| super::subject::samples(&capture, how).all.len();
    let all = samples(&[]);
    let by_port = |how: &str| samples(&[how, "port 43379"]);
    assert!(all > 100);
    assert_eq!((by_port("--only"), by_port("--exclude")), (all, 0));
    let elsewhere = ["--only", "192.0.2.0/24", "--only", "10.10.0.0/16 port 1"];
    assert_eq!(samples(&elsewhere), 0);
    assert_eq!(
        samples(&["--only", "10.10.1.2", "--exclude", "port 1"]),
        all
    );
}
