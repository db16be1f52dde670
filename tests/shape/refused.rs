//! Refused requests are reported, and change and leave nothing.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, requires};
use fairpath_tests::{Daemon, Place, binary};
use serde_json::Value;

use crate::by;
use crate::scene::{Scene, snapshot};

const PATIENCE: Duration = Duration::from_secs(30);
const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";

/// A daemon that refuses to start: what it says.
fn refuses(scene: &Scene) -> String {
    let mut daemon = Daemon::spawn(&scene.net.router, &scene.place);
    let status = daemon.process.wait(PATIENCE).unwrap();
    assert!(!status.success());
    daemon.process.close_tails();
    daemon.process.stderr()
}

fn qdiscs(scene: &Scene) -> String {
    scene.net.router.run(&["tc", "qdisc", "show"]).unwrap()
}

fn rules(scene: &Scene) -> String {
    let list = ["iptables-legacy", "-t", "mangle", "-S"];
    scene.net.router.run(&list).unwrap()
}

by!(an_occupied_queue_is_reported_and_the_other_released: nfqueue);

fn an_occupied_queue_is_reported_and_the_other_released(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let other = Place::new();
    let add = "link add spare0 type veth peer name spare1".to_owned();
    scene.net.router.ip_batch(&[add]).unwrap();
    let holds = "[shape]\ninside = \"spare0\"\nvia = \"nfqueue\"\nqueue = 41\ndown = \"100mbit\"";
    other.configure(&["spare0"], holds);
    let holder = Daemon::start(&scene.net.router, &other);
    holder.logs("shaping via");
    // A recording ends with its shaper instance.
    scene.configure(&format!("{RATES}\nrecord = \"recordings\""), "");
    let output = refuses(&scene);
    assert!(output.contains("queue 41"), "{output}");
    assert!(holder.stop().success());
    assert!(!rules(&scene).contains("fairpath"), "{}", rules(&scene));
    let daemon = scene.start();
    assert!(daemon.stop().success());
}

by!(a_side_that_cannot_be_shaped_leaves_the_other_alone: kernel);

fn a_side_that_cannot_be_shaped_leaves_the_other_alone(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let add = ["tc", "qdisc", "add", "dev", "wan", "root", "pfifo"];
    scene.net.router.run(&add).unwrap();
    let before = qdiscs(&scene);
    scene.configure(RATES, "");
    let output = refuses(&scene);
    assert!(
        output.contains("\"wan\"") && output.contains("pfifo"),
        "{output}"
    );
    assert_eq!(qdiscs(&scene), before);
    // The bpffs is unmounted, and its directory removed.
    assert!(!scene.place.path("pins").exists());
}

by!(rules_of_others_to_our_queues_are_found: nfqueue);

fn rules_of_others_to_our_queues_are_found(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("iptables-legacy")
    );
    let scene = Scene::new(port, Offloads::Off);
    let change = |verb: &str, queues: &str| {
        let line = format!("iptables-legacy -t raw {verb} PREROUTING -p udp -j NFQUEUE {queues}");
        let words: Vec<&str> = line.split(' ').collect();
        scene.net.router.run(&words).unwrap();
    };
    // The last one that we use is for marks.
    let ours = "--queue-balance 45:50";
    change("-A", ours);
    scene.configure(RATES, "");
    let output = refuses(&scene);
    assert!(
        output.contains("queues 40 to 45") && output.contains("table raw: -A PREROUTING"),
        "{output}"
    );
    assert!(!rules(&scene).contains("fairpath"), "{}", rules(&scene));
    change("-D", ours);
    change("-A", "--queue-balance 46:50");
    let daemon = scene.start();
    let has_note = |shape: &Value| shape["description"].to_string().contains("table raw");
    assert!(!has_note(&snapshot(&daemon)));
    change("-A", "--queue-num 41");
    assert!(has_note(&snapshot(&daemon)));
    daemon.logs("a rule of another program sends packets to queues 40 to 45");
    change("-D", "--queue-num 41");
    assert!(!has_note(&snapshot(&daemon)));
    assert!(daemon.stop().success());
}

by!(stop_succeeds_without_the_rules: nfqueue);

fn stop_succeeds_without_the_rules(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    // As a firewall's reload does.
    for words in [["-F"], ["-X"]] {
        let command = [&["iptables-legacy", "-t", "mangle"][..], &words].concat();
        scene.net.router.run(&command).unwrap();
    }
    let output = scene.command(&["stop"]);
    assert!(output.status.success(), "{output:?}");
    let six = ["ip6tables-legacy", "-t", "mangle", "-S"];
    let left = scene.net.router.run(&six).unwrap();
    assert!(!left.contains("fairpath"), "{left}");
    assert!(daemon.stop().success());
}

fn plan_bps(snapshot: &Value) -> Option<u64> {
    snapshot["links"][0]["ceil_bps"].as_u64()
}

by!(a_refused_reload_changes_nothing: nfqueue);

fn a_refused_reload_changes_nothing(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let by_mac = "[[class]]\nname = \"anna\"\nmac = \"02:00:00:00:00:01\"";
    scene.configure("down = \"10mbit\"", by_mac);
    let answer = daemon.reload().to_string();
    assert!(answer.contains("shaping is unchanged"), "{answer}");
    assert_eq!(plan_bps(&snapshot(&daemon)), Some(100_000_000));
    scene.configure("down = \"20mbit\"", "");
    let answer = daemon.reload().to_string();
    assert!(!answer.contains("unchanged"), "{answer}");
    assert_eq!(plan_bps(&snapshot(&daemon)), Some(20_000_000));
    assert!(daemon.stop().success());
}

fn hundred_classes() -> String {
    let class = |n| format!("[[class]]\nname = \"s{n}\"\nprefix = \"100.64.0.{n}\"\n");
    (1..=100).map(class).collect()
}

by!(a_reload_warns_of_long_rounds: nfqueue);

fn a_reload_warns_of_long_rounds(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let classes = hundred_classes();
    let warning = "shape down: node";
    let daemon = scene.shape("down = \"100mbit\"", &classes);
    assert_eq!(daemon.count_in_log(warning), 0);
    // A packet of each of 100 children takes 121 ms. The second time, nothing changes.
    for _ in 0..2 {
        scene.configure("down = \"10mbit\"", &classes);
        assert_eq!(daemon.reload()["answer"], "done");
        daemon.logs("the lightest child can wait as long");
        assert_eq!(daemon.count_in_log(warning), 1);
    }
    scene.configure("down = \"5mbit\"", &classes);
    assert_eq!(daemon.reload()["answer"], "done");
    assert_eq!(daemon.count_in_log(warning), 2);
    assert!(daemon.stop().success());
}

by!(a_start_warns_of_long_rounds: nfqueue);

fn a_start_warns_of_long_rounds(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let classes = hundred_classes();
    let daemon = scene.shape("down = \"10mbit\"", &classes);
    daemon.logs("the lightest child can wait as long");
    assert!(daemon.stop().success());
}

by!(more_packets_than_a_port_was_made_for_take_another: nfqueue, afxdp);

fn more_packets_than_a_port_was_made_for_take_another(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(&format!("{RATES}\npackets = 1000"), "");
    for (packets, again) in [(500, false), (1000, false), (20_000, true), (15_000, false)] {
        scene.configure(&format!("{RATES}\npackets = {packets}"), "");
        let answer = daemon.reload().to_string();
        let reported = answer.contains("no shaping for");
        assert_eq!(reported, again, "{packets}: {answer}");
    }
    assert!(daemon.stop().success());
}

#[test]
fn kernel_without_lasting_pins_is_refused() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new("kernel", Offloads::Off);
    let before = qdiscs(&scene);
    scene.configure(RATES, "");
    // With a separate mount namespace, as by `ip netns exec`.
    let mut command = scene.net.router.command(binary::fairpath());
    command
        .args(["run", "--config"])
        .arg(scene.place.path("fairpath.toml"));
    let mut process = scene.net.router.spawn(command).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    process.close_tails();
    let output = process.stderr();
    assert!(!status.success(), "{output}");
    for part in ["ip netns exec", "nsenter --net", "nfqueue"] {
        assert!(output.contains(part), "{part} is not in: {output}");
    }
    assert_eq!(qdiscs(&scene), before);
    // The remedy: the mount namespace of the caller.
    let daemon = scene.start();
    assert!(daemon.stop().success());
}

by!(a_rate_too_low_for_htb_names_its_class: kernel);

fn a_rate_too_low_for_htb_names_its_class(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let before = qdiscs(&scene);
    let class = "[[class]]\nname = \"anna\"\nprefix = \"100.64.1.0/24\"\ndown = \"10mbit\"";
    scene.configure(RATES, &format!("{class}\ndown_floor = \"1bit\"\n"));
    let output = refuses(&scene);
    for part in ["class \"anna\"", "8 bit/s", "nfqueue"] {
        assert!(output.contains(part), "{part} is not in: {output}");
    }
    assert_eq!(qdiscs(&scene), before);
}
