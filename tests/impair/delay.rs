//! Delay, jitter, order and rate.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fairpath_testbed::{Iperf3, Iperf3Server, Need, Ping, Router, requires};
use fairpath_tests::PATIENCE;
use serde_json::Value;

use crate::by;
use crate::scene::{Impaired, datagrams, router};

by!(pings_take_twice_the_delay: afxdp, nfqueue);
by!(jitter_scatters_and_keeps_order_unless_it_is_free: afxdp, nfqueue);
by!(a_rate_is_what_tcp_gets: afxdp, nfqueue);

fn pings_take_twice_the_delay(port: &'static str) {
    requires!(Need::Root, Need::Tool("ping"));
    let net = router();
    let impaired = Impaired::between(&net, port, &["--delay", "20ms"]);
    for to in Router::SERVER.both() {
        // Not a divisor of the delay: none comes just when another leaves.
        let ping = Ping::to(to).count(50).interval(Duration::from_millis(23));
        let report = ping.run(&net.client).unwrap();
        assert_eq!(report.received, 50, "{report:?}");
        assert!(report.min >= Duration::from_millis(40), "{report:?}");
    }
    let ended = impaired.end();
    ended.assert_true_or_late();
    for name in ["to-peer", "from-peer"] {
        let direction = ended.direction(name);
        println!("{port} {name}: lateness {}", direction["lateness_ns"]);
        assert_eq!(direction["planned_delay_ns"], 20e6);
        assert!(
            direction["mean_delay_ns"].as_f64().unwrap() >= 20e6,
            "{direction:#}"
        );
        assert_eq!(direction["configured_delay_ns"], 20e6);
        assert!(ended.number(name, "enqueued_packets") >= 100);
    }
}

/// From the router itself, to another host and over lo: the kernel's receive time precedes the last delay.
#[test]
fn ping_shows_the_predicted_part_of_own_delays() {
    requires!(Need::Root, Need::Tool("ping"));
    let net = router();
    net.router.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    let lo = IpAddr::from(Ipv4Addr::LOCALHOST);
    for (interface, to, shown) in [("lan", Router::CLIENT.v4.into(), 20), ("lo", lo, 60)] {
        let impaired = Impaired::start(&net.router, &[interface, "--delay", "20ms"]);
        let remark = format!("`ping` shows {shown} ms of it");
        impaired.process.wait_stderr(&remark, PATIENCE).unwrap();
        let report = Ping::to(to).count(20).interval(Duration::from_millis(23));
        let report = report.run(&net.router).unwrap();
        assert_eq!(report.received, 20, "{interface}: {report:?}");
        let shown = Duration::from_millis(shown);
        let is_shown = (shown..shown + Duration::from_millis(15)).contains(&report.min);
        assert!(is_shown, "{interface}: {report:?}");
        impaired.end().assert_true_or_late();
    }
}

fn jitter_scatters_and_keeps_order_unless_it_is_free(port: &'static str) {
    requires!(Need::Root);
    for (order, reorders) in [("kept", false), ("free", true)] {
        let net = router();
        let spec = format!("delay 20ms jitter 5ms distribution normal order {order}");
        let impaired = Impaired::between(&net, port, &["--to-peer", &spec]);
        let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, 1000);
        assert_eq!(arrived.times.len(), 1000, "{order}");
        assert_eq!(
            arrived.inversions > 100,
            reorders,
            "{order}: {}",
            arrived.inversions
        );
        assert!(
            reorders || arrived.inversions == 0,
            "{}",
            arrived.inversions
        );
        let ended = impaired.end();
        ended.assert_true_or_late();
        if !reorders {
            assert_eq!(
                ended.number("to-peer", "reordered_packets"),
                0,
                "by the plan"
            );
        } else {
            // Of 1000 draws the deviation is within 10 % of 5 ms; a busy machine adds some.
            let deviation = &ended.direction("to-peer")["delay_deviation_ns"];
            assert!(deviation.as_f64().unwrap() >= 4.5e6, "{deviation}");
        }
    }
}

fn a_rate_is_what_tcp_gets(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"));
    let net = router();
    let words = [
        "--to-peer",
        "rate 20mbit queue-limit 100",
        "--from-peer",
        "none",
    ];
    let impaired = Impaired::between(&net, port, &words);
    let server = Iperf3Server::start(&net.server, 5201).unwrap();
    let run = Iperf3::to(Router::SERVER.v4, server.port()).seconds(4);
    let report = run.congestion("cubic").run(&net.client).unwrap();
    // Of 1,514 bytes, 1,448 are TCP's.
    let most = 20e6 * 1448.0 / 1514.0;
    let got = report.goodput_bps;
    // Above: what waits in the queue when the sender ends. Below: others have the processors.
    assert!(got < most * 1.05 && got > most * 0.7, "{got} of {most}");
    let lines = impaired.process.stdout();
    let ended = impaired.end();
    ended.assert_true_or_late();
    assert!(
        ended.number("to-peer", "queue_dropped_packets") > 0,
        "a queue that was never full"
    );
    let sent = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let of = |value: &Value| value.as_f64().unwrap();
        (
            of(&line["elapsed_s"]),
            of(&line["directions"][0]["sent_bytes"]),
        )
    });
    let busy: Vec<(f64, f64)> = sent.filter(|(_, bytes)| *bytes > 1e5).collect();
    let bps = |from: &(f64, f64), to: &(f64, f64)| (to.1 - from.1) * 8.0 / (to.0 - from.0);
    let fastest = busy.windows(3).map(|all| bps(&all[0], &all[2]));
    let fastest = fastest.fold(0.0, f64::max);
    // A line is printed some time after its counts: 1 % of two seconds.
    assert!(
        fastest < 20e6 * 1.02 && fastest > 20e6 * 0.7,
        "{fastest}: {busy:?}"
    );
}
