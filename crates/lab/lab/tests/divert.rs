//! Other programs receive the packets of a router, and are removed again.

use std::path::PathBuf;

use fairpath_lab::divert::{Program, Programs};
use fairpath_testbed::{Need, Netns, Ping, Router, Testbed, requires};

/// Packets that queue 0 has shown so far; none where it is not bound.
fn queued(router: &Netns) -> Option<u64> {
    let table = router
        .enter(|| std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue"))
        .unwrap()
        .unwrap();
    // queue_num portid queue_total copy_mode copy_range queue_dropped user_dropped id_sequence 1
    let line = table.lines().next()?;
    line.split_whitespace().nth(7)?.parse().ok()
}

fn accepts_what_passes(program: Program, gso: bool) {
    let net = Router::new(&Testbed::new()).unwrap();
    let mut programs = Programs::new(PathBuf::from("/nonexistent"), std::env::temp_dir());
    let ping = || {
        let report = Ping::to(Router::SERVER.v4)
            .count(5)
            .run(&net.client)
            .unwrap();
        assert_eq!(report.received, 5, "{program:?}");
    };
    let diverted = programs.divert(&net.router, program, gso).unwrap().unwrap();
    ping();
    let seen = queued(&net.router).unwrap();
    assert!(
        seen >= 10,
        "{seen} packets of five round trips in the queue"
    );
    drop(diverted);
    assert_eq!(queued(&net.router), None, "the program is gone");
    ping();
}

#[test]
fn a_c_program_accepts_gso_packets_and_segments() {
    requires!(
        Need::Root,
        Need::Tool("iptables"),
        Need::Tool("ping"),
        Need::Tool("cc")
    );
    accepts_what_passes(Program::C, true);
    accepts_what_passes(Program::C, false);
}

#[test]
fn a_program_in_go_accepts_what_passes() {
    requires!(
        Need::Root,
        Need::Tool("iptables"),
        Need::Tool("ping"),
        Need::Tool("go")
    );
    accepts_what_passes(Program::Go, true);
}
