//! Changes while several workers carry packets: classes, a kill, receive queues.

use std::net::IpAddr;
use std::time::Duration;

use fairpath_testbed::{Need, Netns, Offloads, Router, requires};
use fairpath_tests::Daemon;

use crate::by;
use crate::classes::isp;
use crate::life::left_nothing;
use crate::scene::{Arrived, Counted, Numbered, Scene, for_a_time, queue};
use crate::workers::{MBIT, Senders, by_worker, captured, give_subscribers, rate, subscriber};

/// Flows to as many subscribers: both workers have some.
const FLOWS: u8 = 6;
const MS: Duration = Duration::from_millis(1);

/// Numbered datagrams to several subscribers.
struct Flows(Vec<(Counted, Numbered)>);

impl Flows {
    fn start(scene: &Scene) -> Flows {
        let flow = |number| {
            let to: IpAddr = subscriber(number).into();
            let sink = Counted::bind(&scene.net.client, to);
            (sink, Numbered::start(&scene.net.server, to, 2 * MS, 400))
        };
        Flows((0..FLOWS).map(flow).collect())
    }

    /// By flow: packets sent, and what arrived.
    fn finish(self) -> Vec<(u64, Arrived)> {
        let sent: Vec<_> = (self.0.into_iter())
            .map(|(sink, source)| (source.finish(), sink))
            .collect();
        let each = sent.into_iter();
        each.map(|(sent, sink)| (sent, sink.drain(Duration::from_secs(1))))
            .collect()
    }
}

/// A router with two workers, subscribers, and links without reordering.
fn scene(port: &'static str) -> Scene {
    let scene = Scene::with_workers(port, Offloads::Off);
    for ns in [&scene.net.client, &scene.net.router, &scene.net.server] {
        ns.receive_on(0).unwrap();
    }
    give_subscribers(&scene);
    scene
}

by!(classes_change_on_all_workers: nfqueue, afxdp);

/// A thousand of ten thousand classes, three times.
fn classes_change_on_all_workers(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = scene(port);
    scene.place.write("isp.csv", &isp(0, "10.10.1.0/24"));
    scene.configure_with("class_files = [\"isp.csv\"]\n", "down = \"950mbit\"", "");
    let daemon = scene.start();
    let flows = Flows::start(&scene);
    for generation in 1..=3 {
        for_a_time(Duration::from_millis(300));
        scene
            .place
            .write("isp.csv", &isp(generation, "10.10.1.0/24"));
        let answer = daemon.reload();
        assert_eq!(answer["answer"], "done", "{answer:#}");
        let text = answer["text"].as_str().unwrap_or_default();
        assert!(!text.contains("shaping is unchanged"), "{text}");
    }
    for_a_time(Duration::from_millis(300));
    let flows = flows.finish();
    let queue = queue(&daemon, "down", Some("anna"));
    let workers = by_worker(&daemon, "down", "anna");
    println!("{port}: {flows:?}; {workers:?}");
    for (sent, arrived) in &flows {
        assert_eq!((arrived.count, arrived.reordered), (*sent, 0), "{queue:#}");
    }
    assert!(workers.iter().all(|sent| *sent > 100), "{workers:?}");
    // Counts continue during all changes.
    let sent: u64 = flows.iter().map(|(sent, _)| sent).sum();
    assert!(
        queue["enqueued_packets"].as_u64() >= Some(sent),
        "{queue:#}"
    );
}

by!(killed_workers_leave_traffic_to_the_stack: nfqueue, afxdp);

fn killed_workers_leave_traffic_to_the_stack(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = scene(port);
    let daemon = scene.shape("down = \"100mbit\"\nup = \"100mbit\"", "");
    let flows = Flows::start(&scene);
    for_a_time(500 * MS);
    daemon.kill();
    for_a_time(500 * MS);
    let flows = flows.finish();
    println!("{port}: {flows:?}");
    for (sent, arrived) in flows {
        assert!(arrived.longest_gap <= 100 * MS, "{arrived:?}");
        assert!(sent - arrived.count <= 60, "{sent} sent, {arrived:?}");
    }
    let daemon = Daemon::start(&scene.net.router, &scene.place);
    daemon.logs("shaping via");
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

/// Sets the queues of interfaces; returns what `ethtool` wrote if the kernel refused.
fn set_queues(ns: &Netns, links: &[&str], queues: &str) -> Vec<String> {
    let set = |link: &&str| {
        let words = ["ethtool", "-L", link, "rx", queues, "tx", queues];
        ns.run(&words).err().map(|error| error.to_string())
    };
    links.iter().filter_map(set).collect()
}

const LINKS: [&str; 2] = ["lan", "wan"];

by!(queues_change_in_use: nfqueue, afxdp);

/// Queues are removed and added while all of them carry packets: the rate holds, or the reason is logged.
fn queues_change_in_use(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = Scene::with_workers(port, Offloads::Off);
    give_subscribers(&scene);
    let daemon = scene.shape("down = \"20mbit\"\nup = \"20mbit\"", "");
    let all: Vec<_> = (0..FLOWS).map(subscriber).collect();
    let server: IpAddr = Router::SERVER.v4.into();
    let senders = Senders::start(&scene.net.client, &all, 2, server, 60.0 * MBIT);
    let router = &scene.net.router;
    for queues in ["1", "2", "1", "2"] {
        let refused = set_queues(router, &LINKS, queues);
        // Links are down during the change, and neighbours are resolved again.
        for_a_time(500 * MS);
        let held = (0..3).any(|_| {
            let bps = rate(&captured(&scene, Duration::from_secs(1))) / MBIT;
            println!("{port}: {queues} queues, {refused:?}: {bps:.2} Mbit/s");
            assert!(bps <= 20.6, "{bps} Mbit/s");
            bps >= 18.0
        });
        assert!(held, "less than 18 Mbit/s with {queues} queues");
    }
    drop(senders);
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(queues_added_later_pass_nothing_unshaped: nfqueue, afxdp);

/// The interfaces get a second queue while packets flow: whatever arrives there has the same rate.
fn queues_added_later_pass_nothing_unshaped(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = Scene::with_workers(port, Offloads::Off);
    give_subscribers(&scene);
    let net = &scene.net;
    // An XDP program of veth needs as many receive queues as the other end may send to.
    for ns in [&net.client, &net.server] {
        assert_eq!(set_queues(ns, &["eth0"], "1"), [""; 0]);
    }
    assert_eq!(set_queues(&net.router, &LINKS, "1"), [""; 0]);
    let daemon = scene.shape("down = \"20mbit\"\nup = \"20mbit\"\nworkers = 1", "");
    let all: Vec<_> = (0..FLOWS).map(subscriber).collect();
    let server: IpAddr = Router::SERVER.v4.into();
    let senders = Senders::start(&scene.net.client, &all, 2, server, 60.0 * MBIT);
    for_a_time(500 * MS);
    assert_eq!(set_queues(&net.router, &LINKS, "2"), [""; 0]);
    for ns in [&net.client, &net.server] {
        assert_eq!(set_queues(ns, &["eth0"], "2"), [""; 0]);
    }
    for_a_time(1500 * MS);
    let bps = rate(&captured(&scene, Duration::from_secs(2)));
    println!("{port}: {:.2} Mbit/s", bps / MBIT);
    assert!((18.0..=20.6).contains(&(bps / MBIT)), "{bps}");
    drop(senders);
    assert!(daemon.stop().success());
    left_nothing(&scene);
}
