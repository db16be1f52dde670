//! Interfaces that get another name, the name of each other, or another MTU while they are shaped.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, requires, wait_for};
use fairpath_tests::Daemon;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::by;
use crate::life::{left_nothing, passes_and_is_counted};
use crate::scene::{Counted, Numbered, Scene, for_a_time};

const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";
const ANNA: &str = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2\"\ndown = \"3mbit\"\n";
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives interfaces of the router other names, one after the other: `lan>x` names `lan` `x`.
fn rename(scene: &Scene, names: &[&str]) {
    let line = |names: &&str| {
        let (from, to) = names.split_once('>').unwrap();
        format!("link set {from} name {to}")
    };
    let lines: Vec<String> = names.iter().map(line).collect();
    scene.net.router.ip_batch(&lines).unwrap();
}

/// Waits until the log has a text so often.
fn logs(daemon: &Daemon<'_>, text: &str, times: usize) {
    let is_there = || (daemon.process.stderr().matches(text).count() >= times).then_some(());
    let found = wait_for(PATIENCE, is_there);
    assert!(found.is_some(), "{text}: {}", daemon.process.stderr());
}

fn is_complete(status: &Value) -> bool {
    status["shape"]["running"] == true && status["shape"]["failure"].is_null()
}

by!(swapped_names_leave_classes_their_rates: kernel, nfqueue);

fn swapped_names_leave_classes_their_rates(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, ANNA);
    // The second swap restores the names, so that `lan` leads to the client again.
    for times in 1..=2 {
        // The daemon sees the result, and no step.
        daemon.process.signal(Signal::SIGSTOP);
        rename(&scene, &["lan>x", "wan>lan", "x>wan"]);
        daemon.process.signal(Signal::SIGCONT);
        logs(&daemon, "is there: shaping up after", times);
    }
    daemon.status_when("complete", is_complete);
    let sockets = scene.net.router.run(&["cat", "/proc/net/unix"]).unwrap();
    let held = sockets.matches("@fairpath-shape-").count();
    assert_eq!(held, 2, "{sockets}");
    scene.meet(&[fairpath_testbed::Router::CLIENT.v4]);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    // 8 Mbit/s to a class with 3.
    let every = Duration::from_millis(1);
    let source = Numbered::start(&scene.net.server, scene.to_client(), every, 958);
    for_a_time(Duration::from_secs(2));
    let (count, sent) = (sink.count(), source.finish());
    println!("{port}: {count} of {sent}");
    assert!(count < sent / 2, "{count} of {sent}");
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(a_renamed_interface_is_no_longer_shaped: kernel, nfqueue);

fn a_renamed_interface_is_no_longer_shaped(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, ANNA);
    rename(&scene, &["lan>old"]);
    daemon.logs("interface \"lan\" was renamed: shaping down ends until it returns");
    let qdiscs = ["tc", "qdisc", "show", "dev", "old"];
    let qdiscs = scene.net.router.run(&qdiscs).unwrap();
    assert!(!qdiscs.contains("htb"), "{qdiscs}");
    rename(&scene, &["old>lan"]);
    daemon.logs("interface \"lan\" is there: shaping down after");
    daemon.status_when("complete", is_complete);
    passes_and_is_counted(&scene, &daemon);
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(another_mtu_is_applied_at_once: kernel, nfqueue);

fn another_mtu_is_applied_at_once(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, ANNA);
    let set = scene.command(&["set", "line", "--down", "50mbit"]);
    assert!(set.status.success(), "{set:?}");
    let mtu = ["ip", "link", "set", "lan", "mtu", "1300"];
    scene.net.router.run(&mtu).unwrap();
    daemon.logs("interface \"lan\" has another MTU, 1300: shaping down after");
    daemon.status_when("complete", is_complete);
    passes_and_is_counted(&scene, &daemon);
    let ceil = daemon.status()["shape"]["links"][0]["ceil_bps"].as_u64();
    assert_eq!(ceil, Some(50_000_000));
    assert!(daemon.stop().success());
    left_nothing(&scene);
}
