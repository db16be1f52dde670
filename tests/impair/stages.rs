//! XDP has one program an interface: `impair` and `rtt` are stages of it, each of a separate process.

use std::time::Duration;

use fairpath_testbed::{Need, Ping, Router, requires, wait_for};
use fairpath_tests::PATIENCE;
use fairpath_tests::rtt::Rtt;
use nix::sys::signal::Signal;

use crate::scene::{Impaired, Scene, datagrams, router};

/// The maximum time until a stage is detached after its owner was killed.
const SOON: Duration = Duration::from_secs(1);

fn arrived(net: &Scene, count: u32) -> usize {
    let arrived = datagrams(&net.server, &net.client, Router::CLIENT.v4, count);
    arrived.times.len()
}

fn pings(net: &Scene) -> u32 {
    let ping = Ping::to(Router::SERVER.v4).count(5);
    let ping = ping.interval(Duration::from_millis(200));
    ping.run(&net.client).unwrap().received
}

fn root(net: &Scene) -> bool {
    let reported = net.router.run(&["ip", "-details", "link", "show", "wan"]);
    reported.unwrap().contains("name fairpath_xdp")
}

/// Upstream loss is not measured, and the remaining process continues as before.
#[test]
fn impair_that_is_killed_leaves_measuring_process_alone() {
    requires!(Need::Root, Need::Tool("ping"), Need::Tool("ip"));
    let net = router();
    let rtt = Rtt::watch(&net.router, &["wan"], &["--hook", "xdp"]);
    let mut impaired = Impaired::start(&net.router, &["wan", "--ingress", "loss 100%"]);
    assert_eq!((arrived(&net, 100), pings(&net)), (0, 0));
    impaired.process.signal(Signal::SIGKILL);
    impaired.process.wait(PATIENCE).unwrap();
    // The guarantee is a time: there is nothing to observe before it.
    std::thread::sleep(SOON);
    assert_eq!((arrived(&net, 500), pings(&net)), (500, 5));
    assert!(root(&net));
    let records = rtt.stop();
    // Answers that were dropped gave no sample.
    assert_eq!(records.by("icmp").count(), 5, "{:#}", records.summary);
    let removed = wait_for(SOON, || (!root(&net)).then_some(()));
    assert!(removed.is_some(), "the root is there after the last owner");
}

#[test]
fn measuring_process_that_is_killed_leaves_impair_alone() {
    requires!(Need::Root, Need::Tool("ping"), Need::Tool("ip"));
    let net = router();
    let mut rtt = Rtt::watch(&net.router, &["wan"], &["--hook", "xdp"]);
    let impaired = Impaired::start(&net.router, &["wan", "--ingress", "pattern 10"]);
    assert_eq!(arrived(&net, 100), 50);
    rtt.process.signal(Signal::SIGKILL);
    rtt.process.wait(PATIENCE).unwrap();
    assert_eq!(arrived(&net, 500), 250);
    // A second one joins and leaves.
    let rtt = Rtt::watch(&net.router, &["wan"], &["--hook", "xdp"]);
    assert_eq!(arrived(&net, 500), 250);
    let records = rtt.stop();
    assert!(records.number("/packets") >= 250, "{:#}", records.summary);
    assert_eq!(arrived(&net, 500), 250);
    let ended = impaired.end();
    ended.assert_valid();
    assert_eq!(ended.report["backend"], "xdp");
    let removed = wait_for(SOON, || (!root(&net)).then_some(()));
    assert!(removed.is_some(), "the root is there after the last owner");
}
