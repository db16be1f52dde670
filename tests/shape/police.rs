//! Limits without queues: packets above the rate of their class are dropped, whichever CPUs send.

use std::net::IpAddr;
use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Router, requires};
use serde_json::Value;

use crate::scene::{Scene, for_a_time, number, queue, settled};
use crate::workers::{FRAME, MBIT, Senders, captured, excess, give_subscribers, rate, subscriber};

/// Two classes of a site with less than both: 3 + 3 of 4 Mbit/s.
const SITE: &str = "[[class]]\nname = \"site\"\nup = \"4mbit\"\n\
    [[class]]\nname = \"anna\"\nparent = \"site\"\nprefix = \"10.10.1.100/32\"\nup = \"3mbit\"\n\
    [[class]]\nname = \"bert\"\nparent = \"site\"\nprefix = \"10.10.1.101/32\"\nup = \"3mbit\"\n";
const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";

fn scene() -> Scene {
    let scene = Scene::alone("police", Offloads::Off);
    give_subscribers(&scene);
    scene
}

fn server() -> IpAddr {
    Router::SERVER.v4.into()
}

#[test]
fn policed_classes_share_the_rate_above_them() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene();
    let daemon = scene.shape(RATES, SITE);
    let client = &scene.net.client;
    // One sends 10 Mbit/s, the other within its rate.
    let anna = Senders::start(client, &[subscriber(0)], 4, server(), 10.0 * MBIT);
    for_a_time(Duration::from_millis(300));
    let alone = captured(&scene, Duration::from_secs(3));
    let (bps, above) = (rate(&alone), excess(&alone, 3.0 * MBIT));
    println!("alone: {:.3} Mbit/s, {above:.0} bytes above", bps / MBIT);
    assert!((2.97..=3.03).contains(&(bps / MBIT)), "{bps}");
    // 5 ms of the rate, and a packet for each of two CPUs.
    assert!(
        above <= 3.0 * MBIT / 8.0 * 0.005 + 3.0 * FRAME as f64,
        "{above}"
    );
    let bert = Senders::start(client, &[subscriber(1)], 4, server(), 10.0 * MBIT);
    for_a_time(Duration::from_millis(300));
    let both = rate(&captured(&scene, Duration::from_secs(3)));
    println!("both: {:.3} Mbit/s", both / MBIT);
    assert!((3.96..=4.04).contains(&(both / MBIT)), "{both}");
    let sent = anna.finish() + bert.finish();
    let site = settled(&daemon, "up", Some("site"));
    let count = |key: &str| number(&site, key);
    assert_eq!(
        count("enqueued_packets"),
        count("sent_packets") + count("dropped_packets")
    );
    assert!(
        count("enqueued_packets") >= sent && count("backlog_packets") == 0,
        "{site:#}"
    );
    assert!(daemon.stop().success());
    // Nothing is left that drops.
    let free = Senders::start(client, &[subscriber(0)], 1, server(), 10.0 * MBIT);
    for_a_time(Duration::from_millis(200));
    let bps = rate(&captured(&scene, Duration::from_secs(1)));
    assert!(bps > 9.0 * MBIT, "{bps}");
    drop(free);
}

#[test]
fn policed_rates_outlive_kills_and_reloads() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene();
    let daemon = scene.shape(RATES, SITE);
    let client = &scene.net.client;
    let anna = Senders::start(client, &[subscriber(0)], 4, server(), 10.0 * MBIT);
    for_a_time(Duration::from_millis(300));
    let held = |mbit: f64, what: &str| {
        let bps = rate(&captured(&scene, Duration::from_secs(2)));
        println!("{what}: {:.3} Mbit/s", bps / MBIT);
        let range = 0.98 * mbit..=1.02 * mbit;
        assert!(range.contains(&(bps / MBIT)), "{what}: {bps}");
    };
    held(3.0, "begun");
    let before = number(&queue(&daemon, "up", Some("anna")), "enqueued_packets");
    scene.configure(RATES, &SITE.replace("up = \"3mbit\"", "up = \"2mbit\""));
    let done: Value = daemon.reload();
    assert_eq!(done["answer"], "done", "{done}");
    held(2.0, "reloaded");
    let after = number(&queue(&daemon, "up", Some("anna")), "enqueued_packets");
    assert!(
        after > before,
        "{before} before the reload, {after} after it"
    );
    let output = scene.command(&["set", "anna", "--up", "1mbit"]);
    assert!(output.status.success(), "{output:?}");
    held(1.0, "set");
    daemon.kill();
    held(1.0, "killed");
    // The next one replaces the program, with the rates of the file.
    let daemon = scene.start();
    held(2.0, "started again");
    drop(anna);
    assert!(daemon.stop().success());
}

#[test]
fn status_names_the_qdisc_that_prevents_waiting() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tc"));
    let scene = scene();
    let daemon = scene.shape(RATES, SITE);
    let is = |kind: &str| {
        let text = format!(
            "wan by 4 limits without queues, dropping packets: its qdisc is {kind}, not fq"
        );
        daemon.status_when(&text, |status| {
            let about = status["shape"]["description"].as_str();
            about.is_some_and(|about| about.contains(&text))
        })
    };
    is("noqueue");
    let tc = |words: &[&str]| {
        scene
            .net
            .router
            .run(&[&["tc", "qdisc"], words].concat())
            .unwrap()
    };
    tc(&["add", "dev", "wan", "root", "pfifo", "limit", "1000"]);
    let status = is("pfifo");
    assert_eq!(
        status["shape"]["counters"]["police_up_unpaced"], 0,
        "{status:#}"
    );
    daemon.logs("\"wan\" continues by dropping packets: its qdisc is pfifo");
    tc(&["del", "dev", "wan", "root"]);
    is("noqueue");
    assert!(daemon.stop().success());
}

#[test]
fn policed_rates_outlive_a_removed_queue() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = Scene::with_queues("police", Offloads::Off);
    give_subscribers(&scene);
    let daemon = scene.shape(RATES, SITE);
    let client = &scene.net.client;
    let anna = Senders::start(client, &[subscriber(0)], 4, server(), 10.0 * MBIT);
    for_a_time(Duration::from_millis(300));
    for queues in ["1", "2", "1"] {
        for interface in ["wan", "lan"] {
            let words = ["ethtool", "-L", interface, "rx", queues, "tx", queues];
            scene.net.router.run(&words).unwrap();
        }
        let bps = rate(&captured(&scene, Duration::from_secs(2)));
        println!("{queues} queues: {:.3} Mbit/s", bps / MBIT);
        // Never more; a sender of this machine may be late for the burst of 5 ms.
        assert!((1.5..=3.06).contains(&(bps / MBIT)), "{queues}: {bps}");
    }
    let sent = anna.finish();
    let anna = settled(&daemon, "up", Some("anna"));
    let count = |key: &str| number(&anna, key);
    assert_eq!(
        count("enqueued_packets"),
        count("sent_packets") + count("dropped_packets")
    );
    // Packets in a queue that is removed are lost upstream.
    let enqueued = count("enqueued_packets");
    println!("{enqueued} of {sent} packets are enqueued");
    assert!(enqueued <= sent && enqueued * 10 >= sent * 9, "{anna:#}");
    assert!(daemon.stop().success());
}
