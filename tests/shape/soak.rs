//! Overload for a long time: nothing leaks.
//!
//! Eighteen seconds in `make test`, a minute in its full form, ten in `make soak`.

use std::time::{Duration, Instant};

use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Router, requires};
use fairpath_tests::Daemon;
use fairpath_units::Share;

use crate::by;
use crate::scene::{
    BERT, Counted, Numbered, Scene, for_a_time, number, settled, snapshot, upstream_lost,
};

/// The maximum growth by allocators and caches after the first third.
const GROWTH_KIB: u64 = 16 * 1024;
/// Connections to the control socket that are open at the moment.
const CLIENTS: usize = 8;

const CLASSES: &str = r#"
[[class]]
name = "anna"
prefix = ["10.10.1.2", "fd00:10:1::2"]
down = "20mbit"
[[class]]
name = "bert"
prefix = "10.10.1.3"
down = "4mbit"
"#;

fn time() -> Duration {
    Duration::from_secs(match cfg!(feature = "soak") {
        true => 600,
        false => Share::reported().choose(60, 18),
    })
}

/// Resident memory and open descriptors of the daemon.
fn held(daemon: &Daemon<'_>) -> (u64, usize) {
    let process = format!("/proc/{}", daemon.process.id());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (
        kib,
        std::fs::read_dir(format!("{process}/fd")).unwrap().count(),
    )
}

by!(mixed_overload_leaks_no_frame_no_handle_and_no_memory: nfqueue, afxdp);

fn mixed_overload_leaks_no_frame_no_handle_and_no_memory(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let time = time();
    let scene = Scene::new(port, Offloads::Off);
    let shape = "down = \"40mbit\"\nup = \"40mbit\"\npackets = 500";
    let daemon = scene.shape(shape, CLASSES);
    scene.meet(&[Router::CLIENT.v4, BERT]);
    let sink = Counted::bind(&scene.net.client, BERT.into());
    // 16 Mbit/s where 4 are allowed, in addition to TCP in both families.
    let every = Duration::from_micros(500);
    let source = Numbered::start(&scene.net.server, BERT.into(), every, 958);
    let server = [5201, 5202].map(|at| Iperf3Server::start(&scene.net.client, at).unwrap());
    let seconds = time.as_secs() as u32;
    let transfers = [0, 1].map(|at| {
        let transfer = Iperf3::to(Router::CLIENT.both()[at], server[at].port());
        let transfer = transfer.parallel(4).congestion("cubic").seconds(seconds);
        transfer.start(&scene.net.server).unwrap()
    });
    let begin = Instant::now();
    let (mut early, mut rounds) = (None, 0);
    while begin.elapsed() < time {
        for_a_time(Duration::from_secs(2));
        // Rates, trees and packets all move at once.
        let rate = format!("{}mbit", 5 + rounds % 20);
        let output = scene.command(&["set", "anna", "--down", &rate]);
        assert!(output.status.success(), "{output:?}");
        if rounds % 3 == 2 {
            let answer = daemon.reload();
            assert_eq!(answer["answer"], "done", "{answer:#}");
        }
        rounds += 1;
        if begin.elapsed() > time / 3 {
            early.get_or_insert_with(|| held(&daemon));
        }
    }
    let sent = source.finish();
    for transfer in transfers {
        transfer.finish().unwrap();
    }
    let arrived = sink.drain(Duration::from_secs(2)).count;
    let line = settled(&daemon, "down", None);
    let (before, after) = (early.unwrap(), held(&daemon));
    println!(
        "{port}: {rounds} rounds; {sent} sent, {arrived} came; KiB and descriptors {before:?} -> {after:?}; {line}"
    );
    assert!(
        after.0 <= before.0 + GROWTH_KIB,
        "{before:?} -> {after:?} KiB"
    );
    assert!(
        after.1 <= before.1 + CLIENTS,
        "{before:?} -> {after:?} descriptors"
    );
    assert_eq!(
        number(&line, "enqueued_packets"),
        number(&line, "sent_packets") + number(&line, "dropped_packets"),
        "{line:#}"
    );
    assert_eq!(number(&line, "backlog_packets"), 0, "{line:#}");
    let counters = snapshot(&daemon)["counters"].clone();
    let count = |name: &str| counters[name].as_u64().unwrap_or(u64::MAX);
    let held = match port {
        "nfqueue" => count("nfqueue_down_held") + count("nfqueue_down_kernel_waiting"),
        _ => count("afxdp_held"),
    };
    assert_eq!(held, 0, "{counters:#}");
    let bert = settled(&daemon, "down", Some("bert"));
    let lost = upstream_lost(&daemon, port, "down");
    assert!(number(&bert, "enqueued_packets") + lost >= sent, "{bert:#}");
    assert!(daemon.stop().success());
}
