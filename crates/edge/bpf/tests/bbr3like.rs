//! The congestion control `fp_bbr3like` on real connections: client, router with a narrow link, server.
//!
//! Rates have wide limits: other load disturbs pacing by a timer. The exact behaviour is tested without a
//! network, in fairpath-core.

use std::fs;
use std::time::{Duration, Instant};

use fairpath_bpf::{BBR3LIKE, Bbr3Error, Bbr3Like, Bbr3Phase, Dropper};
use fairpath_testbed::{
    Impairment, Iperf3, Iperf3Report, Iperf3Server, Need, Netns, Router, Testbed, requires,
};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

const RATE_BPS: f64 = 20e6;
const PORT: u16 = 5201;
/// Longest time for a connection to be seen.
const DEADLINE: Duration = Duration::from_secs(20);

/// Names are the machine's: tests that register take turns.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    fairpath_bpf::quiet_libbpf();
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn is_known() -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    known.split_whitespace().any(|name| name == BBR3LIKE)
}

/// 20 Mbit/s with a buffer of one bandwidth-delay product, 20 ms.
fn narrow(testbed: &Testbed) -> Router {
    let direction = Impairment::delay(Duration::from_millis(10));
    let net = Router::builder().wan_wire(direction.clone(), direction);
    let net = net.build(testbed).unwrap();
    let shape = "tc qdisc add dev wan root tbf rate 20mbit burst 16000 limit 60000";
    net.router
        .run(&shape.split(' ').collect::<Vec<_>>())
        .unwrap();
    net
}

/// Drops a share of the data where it arrives at the router.
fn attach(net: &Router, share: f64) -> Dropper {
    let attach = || {
        let index = IfIndex(if_nametoindex("lan").unwrap());
        Dropper::attach(index, "lan", share, 1000).unwrap()
    };
    net.router.enter(attach).unwrap()
}

fn transfer(net: &Router, seconds: u32) -> Iperf3Report {
    let _server = Iperf3Server::start(&net.server, PORT).unwrap();
    let flow = Iperf3::to(Router::SERVER.v4, PORT).congestion(BBR3LIKE);
    flow.seconds(seconds).run(&net.client).unwrap()
}

/// True if a socket of `ns` uses it, as the kernel reports.
fn in_use(ns: &Netns) -> bool {
    let text = ns.run(&["ss", "-H", "-t", "-i", "-n"]).unwrap();
    text.split_whitespace().any(|word| word == BBR3LIKE)
}

#[test]
fn registration_is_unique_and_ends_with_the_value() {
    requires!(Need::Root);
    let _turn = turn();
    let first = Bbr3Like::register().unwrap();
    assert!(is_known());
    let error = Bbr3Like::register().unwrap_err();
    assert!(matches!(error, Bbr3Error::Taken), "{error}");
    assert!(error.to_string().contains(BBR3LIKE), "{error}");
    assert!(is_known());
    drop(first);
    assert!(!is_known());
    drop(Bbr3Like::register().unwrap());
}

#[test]
fn flow_without_loss_fills_the_link_and_probes() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tc"));
    let _turn = turn();
    let registered = Bbr3Like::register().unwrap();
    let testbed = Testbed::new();
    let report = transfer(&narrow(&testbed), 6);
    assert_eq!(report.congestion.as_deref(), Some(BBR3LIKE));
    let share = report.goodput_bps / RATE_BPS;
    let counts = registered.counts();
    assert!(
        (0.5..1.0).contains(&share),
        "{share}: {report:?} {counts:?}"
    );
    // iperf3's control connection may use it, too; each begins once.
    assert!(counts.connections >= 1, "{counts:?}");
    assert_eq!(counts.without_memory, 0);
    // Drain may begin and end with the same ACK, where a busy machine has sent too little: it is not seen then.
    for phase in [Bbr3Phase::Down, Bbr3Phase::Cruise] {
        assert!(counts.entered(phase) >= 1, "{phase:?}: {counts:?}");
    }
    // Six seconds hold at least one probe for bandwidth, and each is begun by a refill.
    assert!(counts.entered(Bbr3Phase::Up) >= 1, "{counts:?}");
    assert!(counts.entered(Bbr3Phase::Refill) >= counts.entered(Bbr3Phase::Up));
}

#[test]
fn loss_above_the_threshold_lowers_the_rate() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tc"));
    let _turn = turn();
    let testbed = Testbed::new();
    let net = narrow(&testbed);
    for (share, min, answered) in [(0.01, 0.35, false), (0.05, 0.02, true)] {
        let registered = Bbr3Like::register().unwrap();
        let dropper = attach(&net, share);
        let report = transfer(&net, 6);
        let (eligible, dropped) = dropper.counts();
        let counts = registered.counts();
        let reported = format!("{share}: {dropped} of {eligible}, {report:?} {counts:?}");
        assert!(dropped > 0, "{reported}");
        assert!(report.goodput_bps / RATE_BPS >= min, "{reported}");
        // TCP finds what was dropped, and a little of what was not, or of the queue.
        assert!(counts.losses * 2 >= dropped, "{reported}");
        if answered {
            assert!(counts.over_threshold >= 1, "{reported}");
        }
    }
}

#[test]
fn a_connection_outlives_the_registration() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tc"),
        Need::Tool("ss")
    );
    let _turn = turn();
    let registered = Bbr3Like::register().unwrap();
    let testbed = Testbed::new();
    let net = narrow(&testbed);
    let _server = Iperf3Server::start(&net.server, PORT).unwrap();
    let flow = Iperf3::to(Router::SERVER.v4, PORT).congestion(BBR3LIKE);
    let run = flow.clone().seconds(4).start(&net.client).unwrap();
    let begin = Instant::now();
    while !in_use(&net.client) {
        assert!(begin.elapsed() < DEADLINE, "no connection uses {BBR3LIKE}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(registered);
    assert!(!is_known());
    let report = run.finish().unwrap();
    assert!(report.goodput_bps > 0.2 * RATE_BPS, "{report:?}");
    let refused = flow.seconds(1).run(&net.client);
    assert!(refused.is_err(), "{refused:?}");
}
