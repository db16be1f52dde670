//! Many classes, changed while packets flow.

use std::fmt::Write;
use std::time::Duration;

use fairpath_testbed::{Need, requires};

use crate::by;
use crate::scene::{Counted, Numbered, Scene, for_a_time, queue};

const CLASSES: usize = 10_000;
const CHANGED: usize = 1_000;

/// An ISP of regions, sites and subscribers; from the second time on, a thousand subscribers have
/// another rate, a thousand are new, and a thousand are gone. `anna` is the prefix of the one with traffic.
pub fn isp(generation: usize, anna: &str) -> String {
    let mut csv = String::from("name,parent,prefix,down_floor,down\nisp,,,,900M\n");
    for region in 0..10 {
        let _ = writeln!(csv, "region {region},isp,,,200M");
        for site in 0..20 {
            let _ = writeln!(csv, "site {region} {site},region {region},,,50M");
        }
    }
    let _ = writeln!(csv, "anna,site 0 0,{anna},5M,20M");
    let first = generation * CHANGED;
    for number in first..first + CLASSES - 212 {
        let (a, b) = (number >> 8, number & 255);
        let (region, site) = (number % 10, number / 10 % 20);
        let rate = if number % 10 < generation { 4 } else { 2 };
        let _ = writeln!(
            csv,
            "s{number},site {region} {site},100.{}.{}.{b}/32,,{rate}M",
            64 + (a >> 8),
            a & 255
        );
    }
    csv
}

by!(a_thousand_of_ten_thousand_classes_change_under_load_and_no_packet_is_lost: nfqueue, afxdp, kernel);

fn a_thousand_of_ten_thousand_classes_change_under_load_and_no_packet_is_lost(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::in_order(port);
    scene.place.write("isp.csv", &isp(0, "10.10.1.2"));
    scene.configure_with("class_files = [\"isp.csv\"]\n", "down = \"950mbit\"", "");
    let daemon = scene.start();
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(
        &scene.net.server,
        scene.to_client(),
        Duration::from_millis(1),
        400,
    );
    for generation in 1..=3 {
        for_a_time(Duration::from_millis(300));
        scene.place.write("isp.csv", &isp(generation, "10.10.1.2"));
        let answer = daemon.reload();
        assert_eq!(answer["answer"], "done", "{answer:#}");
        let text = answer["text"].as_str().unwrap_or_default();
        assert!(!text.contains("shaping is unchanged"), "{text}");
    }
    for_a_time(Duration::from_millis(300));
    let sent = source.finish();
    let arrived = sink.drain(Duration::from_secs(2));
    let queue = queue(&daemon, "down", Some("anna"));
    println!("{port}: {sent} sent, {arrived:?}; {queue}");
    assert_eq!((arrived.count, arrived.reordered), (sent, 0), "{queue:#}");
    // Her counts continue during all changes.
    assert!(
        queue["enqueued_packets"].as_u64() >= Some(sent),
        "{queue:#}"
    );
}
