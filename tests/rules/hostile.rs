//! Packets that must not change the answers to others: an evaluation leaves nothing in the memory of its CPU. And
//! names that could become other rules.

use std::time::Duration;

use fairpath_testbed::{FrameSocket, Need, Testbed, requires, wait_for};
use fairpath_wire::ip::IpProto;
use fairpath_wire::{Frame, ipv6};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::commands::fairpath;
use super::live::{Router, filter};

/// More bytes than programs read of a packet.
const LONG: usize = 1500;
const PATIENCE: Duration = Duration::from_secs(10);

/// The protocol of a packet whose extension headers are long is not known. That of a short one after it, on the
/// same CPU, is.
#[test]
fn unknown_facts_are_those_of_one_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("long").unwrap());
    let rules = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n";
    let file = router.file("rules.v6", rules);
    router.done(&["load", &file, "--family", "ipv6"]);
    let link = || Frame::ethernet([0; 6], [0; 6]);
    let options = |bytes| ipv6::Extension::DestinationOptions(vec![0; bytes]);
    let here = ipv6::Header::new("::1".parse().unwrap(), "::1".parse().unwrap());
    let header = ipv6::Header {
        extensions: vec![options(LONG), options(6)],
        ..here.clone()
    };
    let long = link().ipv6_header(header).udp(5000, 7001).build();
    // Too short for ports, which the rule does not read.
    let header = ipv6::Header {
        protocol: IpProto::UDP,
        ..here
    };
    let short = link().ipv6_header(header).payload(&[1; 4]).build();
    let socket = FrameSocket::open(&router.netns, "lo").unwrap();
    let send = |frame: &[u8]| {
        let mut cpus = CpuSet::new();
        cpus.set(0).unwrap();
        sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
        socket.send(frame).unwrap();
    };
    let shown = || -> serde_json::Value {
        serde_json::from_str(&router.done(&["show", "--format", "json"])).unwrap()
    };
    let unknown = |packets: u64| {
        let found = wait_for(PATIENCE, || {
            (shown()["packets_dropped_unknown"] == packets).then_some(())
        });
        found.unwrap_or_else(|| panic!("{:#}", shown()));
    };
    let accepted = |packets: u64| {
        let found = wait_for(PATIENCE, || {
            (router.packets("-A INPUT -p udp -j ACCEPT") == packets).then_some(())
        });
        found.unwrap_or_else(|| panic!("{packets}: {:#}", shown()));
    };
    let on_one_cpu = |frame: &Vec<u8>| router.netns.enter(|| send(frame)).unwrap();
    on_one_cpu(&short);
    accepted(1);
    on_one_cpu(&long);
    unknown(1);
    on_one_cpu(&short);
    accepted(2);
    unknown(1);
}

/// Rules are kept as text, so a name that reads as something else would make them another set, or none.
#[test]
fn names_with_blanks_and_quotes_are_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("names").unwrap());
    let text = filter(&["INPUT -i lo -j ACCEPT"]).replace("*filter\n", "*filter\n:web - [0:0]\n");
    router.load(&text);
    let before = router.done(&["counters"]);
    let file = router.file("file.v4", &text);
    for name in [
        "eth 0",
        "a\"b",
        "\"",
        "a\tb",
        " a",
        "lo -s 10.9.9.9",
        "a\\b",
        "a'b",
    ] {
        for option in ["-i", "-o"] {
            let rule = ["-A", "web", option, name, "-j", "DROP"];
            let mut loaded = router.command(&["apply", "--loaded"]);
            let mut of_file = std::process::Command::new(fairpath());
            of_file.args(["rules", "apply", &file, "--in-place"]);
            for command in [&mut loaded, &mut of_file] {
                let output = command.arg("--").args(rule).output().unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{name:?}: {output:?}");
                assert!(
                    error.contains("the format of the save tools cannot have such a name"),
                    "{name:?}: {error}"
                );
            }
        }
    }
    assert_eq!(router.done(&["counters"]), before);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}
