//! `fairpath features --cpus`: the queues of real links, and remedies that work.

use std::process::Output;

use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_tests::{PATIENCE, binary};
use serde_json::Value;

/// Would clear the screen, and start a second command in a shell.
const HOSTILE: &str = "w\u{1b}[2J;ls";

/// A veth with two queues of each direction, masks, and a qdisc for each transmit queue.
fn two_queues(ns: &Netns) {
    let veth = "numrxqueues 2 numtxqueues 2 type veth";
    let line = format!("link add name lan {veth} peer name {HOSTILE} numrxqueues 2 numtxqueues 2");
    ns.ip_batch(&[line]).unwrap();
    shell(
        ns,
        "cd /sys/class/net/lan/queues && echo 1 >tx-0/xps_cpus && echo 1 >rx-1/rps_cpus && \
         tc qdisc add dev lan root handle 1: mq && tc qdisc add dev lan parent 1:2 pfifo",
    );
}

fn shell(ns: &Netns, script: &str) {
    let mut command = ns.command("sh");
    command.args(["-c", script]);
    ns.spawn(command).unwrap().finish(PATIENCE).unwrap();
}

fn features(ns: &Netns, words: &[&str]) -> Output {
    let mut command = ns.command(binary::fairpath());
    command.args(["features", "--cpus"]).args(words);
    command.output().unwrap()
}

/// The text with single spaces, as `name`'s report has it.
fn text(ns: &Netns, words: &[&str]) -> String {
    let output = features(ns, words);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The machine, and the interface `lan`.
fn json(ns: &Netns) -> (Value, Value) {
    let output = features(ns, &["lan", "--format", "json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.next().unwrap())
}

#[test]
fn queues_masks_and_qdiscs_are_printed() {
    requires!(Need::Root, Need::Tool("tc"));
    let ns = Testbed::new().netns("here").unwrap();
    two_queues(&ns);
    let text = text(&ns, &[]);
    for row in [
        "queues rx 2, tx 2; channels: rx 2 of at most 2, tx 2 of at most 2",
        "RSS unknown: the driver reports no table",
        "interrupts none",
        "by queue queue RPS XPS qdisc",
        "1 0 off pfifo",
        "Interface w?[2J;ls (ifindex 2)",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
    assert!(text.contains("\nqdisc mq over 2 ("), "{text}");
    assert!(!text.contains("Interface lo "), "{text}");
    let (cpus, lan) = json(&ns);
    assert_eq!(
        (&cpus["type"], &lan["type"]),
        (&"cpus".into(), &"interface".into())
    );
    assert_eq!(lan["rx_queues"][1]["rps_cpus"], Value::from(vec![0]));
    assert_eq!(lan["tx_queues"][0]["xps_cpus"], Value::from(vec![0]));
    assert_eq!(lan["tx_queues"][1]["qdisc"], "pfifo");
}

#[test]
fn the_remedy_for_few_queues_works() {
    requires!(Need::Root, Need::Tool("tc"), Need::Tool("ethtool"));
    let ns = Testbed::new().netns("here").unwrap();
    two_queues(&ns);
    shell(&ns, "ethtool -L lan rx 1");
    let (cpus, lan) = json(&ns);
    let count = |key: &str| cpus[key].as_array().unwrap().len();
    if count("online") < count("isolated") + count("nohz_full") + 2 {
        let name = "the_remedy_for_few_queues_works";
        fairpath_units::skip_test(name, "two CPUs", "needs two CPUs for packets");
        return;
    }
    assert_eq!(lan["advice"][0]["collision"], "few_queues", "{lan}");
    shell(&ns, lan["advice"][0]["command"].as_str().unwrap());
    let text = text(&ns, &["lan"]);
    assert!(text.ends_with("no collisions"), "{text}");
}

#[test]
fn unknown_interfaces_of_cpus_are_refused() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    let output = features(&ns, &["wan0"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let expected = "interface \"wan0\": not in this network namespace; there are lo";
    assert!(message.contains(expected), "{message}");
}
