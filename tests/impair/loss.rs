//! The number and the choice of lost packets.

use fairpath_testbed::{Need, Router, requires};
use serde_json::Value;

use crate::by;
use crate::scene::{Ended, Impaired, Scene, datagrams, router};
use crate::stream::Course;
use crate::twin;

by!(loss_is_within_its_confidence_interval: xdp, afxdp, nfqueue);
by!(loss_bursts_match_the_model: xdp, afxdp, nfqueue);
by!(a_pattern_loses_its_ones: xdp, afxdp, nfqueue);

const COUNT: u32 = 4000;

fn interval(ended: &Ended, direction: &str) -> [f64; 2] {
    let of = |at: usize| {
        ended.direction(direction)["loss_interval_ratio"][at]
            .as_f64()
            .unwrap()
    };
    [of(0), of(1)]
}

fn loss_is_within_its_confidence_interval(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    let impaired = Impaired::between(&net, port, &["--loss", "10%", "--seed", "5"]);
    for to in Router::SERVER.both() {
        let arrived = datagrams(&net.client, &net.server, to, COUNT / 2);
        let lost = COUNT / 2 - arrived.times.len() as u32;
        assert!((120..=290).contains(&lost), "{to}: {lost}");
        assert_eq!(arrived.inversions, 0);
    }
    let ended = impaired.end();
    ended.assert_valid();
    let direction = ended.direction("to-peer");
    // All that was sent came to the impairment.
    assert_eq!(
        ended.number("to-peer", "enqueued_packets"),
        u64::from(COUNT),
        "{direction:#}"
    );
    let [low, high] = interval(&ended, "to-peer");
    assert!(
        low < 0.1 && 0.1 < high && high - low < 0.04,
        "{direction:#}"
    );
    let sent = ended.number("to-peer", "sent_packets");
    assert_eq!(
        sent + ended.number("to-peer", "lost_packets"),
        u64::from(COUNT)
    );
    assert_eq!(ended.number("to-peer", "stopped_packets"), 0);
    assert_eq!(ended.report["backend"], port);
}

fn loss_bursts_match_the_model(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    // 20 % of the time bad, five packets each.
    let model = ["--gemodel", "5%,20%,100%,0%", "--seed", "11"];
    let impaired = Impaired::between(&net, port, &model);
    let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, COUNT);
    let ended = impaired.end();
    ended.assert_valid();
    let lost: Vec<u32> = (0..COUNT)
        .filter(|n| !arrived.times.contains_key(n))
        .collect();
    let bursts = 1 + lost
        .windows(2)
        .filter(|pair| pair[1] != pair[0] + 1)
        .count();
    let mean = lost.len() as f64 / bursts as f64;
    assert!(
        (3.5..=6.5).contains(&mean),
        "{mean}: {} in {bursts}",
        lost.len()
    );
    let requested = ended.direction("to-peer")["configured_loss_ratio"]
        .as_f64()
        .unwrap();
    assert!((requested - 0.2).abs() < 1e-9, "{requested}");
}

fn a_pattern_loses_its_ones(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    let impaired = Impaired::between(&net, port, &["--to-peer", "pattern 00010"]);
    let wanted: Vec<u32> = (0..1000).filter(|n| n % 5 != 3).collect();
    let course = Course::new(&net.client, &net.server, Router::SERVER.v4, 1000);
    let arrived = course.run(wanted.len());
    assert_eq!(arrived.numbers(), wanted);
    // The other direction is let alone.
    let back = datagrams(&net.server, &net.client, Router::CLIENT.v4, 300);
    assert_eq!(back.times.len(), 300);
    impaired.end().assert_valid();
}

#[test]
fn three_back_ends_with_one_seed_lose_equally() {
    requires!(Need::Root);
    let models = [
        (["--loss", "20%"], "loss=20%"),
        (
            ["--gemodel", "5%,30%,90%,1%"],
            "gilbert_elliott=p=5%,r=30%,h=90%,k=1%",
        ),
    ];
    for (model, words) in models {
        let outcomes = [0, 1].map(|direction| twin::delays(words, 77, direction, 1500));
        // How many will come; which ones, the ports are to agree about.
        let [to_server, to_client] = outcomes.map(|outcomes| twin::survivors(&outcomes).len());
        let mut all = Vec::new();
        for port in ["xdp", "afxdp", "nfqueue"] {
            let net = router();
            let words = [&model[..], &["--seed", "77"]].concat();
            let impaired = Impaired::between(&net, port, &words);
            let there = Course::new(&net.client, &net.server, Router::SERVER.v4, 1500);
            let back = Course::new(&net.server, &net.client, Router::CLIENT.v4, 1500);
            let there = there.run(to_server).numbers();
            let back = back.run(to_client).numbers();
            impaired.end().assert_valid();
            assert!(there.len() < 1450 && back.len() < 1450);
            assert_ne!(there, back, "directions have separate outcomes");
            all.push((port, there, back));
        }
        for (port, there, back) in &all[1..] {
            assert!(*there == all[0].1 && *back == all[0].2, "{port}, {model:?}");
        }
    }
}

#[test]
fn two_droppers_keep_their_configured_loss() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let count = |net: &Scene| {
        let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, COUNT);
        f64::from(COUNT - arrived.times.len() as u32) / f64::from(COUNT)
    };
    let net = router();
    let rule_text =
        "-A FORWARD -i lan -p udp -m statistic --mode random --probability 0.05 -j DROP";
    let mut rule = vec!["iptables-legacy"];
    rule.extend(rule_text.split(' '));
    net.router.run(&rule).unwrap();
    let kernels = count(&net);
    drop(net);
    let net = router();
    let impaired = Impaired::between(&net, "afxdp", &["--to-peer", "loss 5%"]);
    let ours = count(&net);
    let ended = impaired.end();
    ended.assert_valid();
    // Six deviations of a difference of two shares of 4,000: the kernel's dropper has no seed.
    let most = 6.0 * (2.0 * 0.05 * 0.95 / f64::from(COUNT)).sqrt();
    assert!((kernels - ours).abs() < most, "{kernels} {ours}");
    let [low, high] = interval(&ended, "to-peer");
    assert!((low..=high).contains(&ours));
}

#[test]
fn without_a_peer_directions_are_separate() {
    requires!(Need::Root);
    let net = router();
    let words = ["wan", "--egress", "loss 30%", "--ingress", "none"];
    let impaired = Impaired::start(&net.router, &words);
    let there = datagrams(&net.client, &net.server, Router::SERVER.v4, 1000);
    let back = datagrams(&net.server, &net.client, Router::CLIENT.v4, 300);
    assert!(
        (580..=820).contains(&there.times.len()),
        "{}",
        there.times.len()
    );
    assert_eq!(back.times.len(), 300);
    let ended = impaired.end();
    ended.assert_valid();
    assert_eq!(ended.report["backend"], Value::from("nfqueue"));
    drop(net);
    let net = router();
    let impaired = Impaired::start(&net.router, &["wan", "--ingress", "loss 30%"]);
    let back = datagrams(&net.server, &net.client, Router::CLIENT.v4, 1000);
    assert!(
        (580..=820).contains(&back.times.len()),
        "{}",
        back.times.len()
    );
    let ended = impaired.end();
    ended.assert_valid();
    assert_eq!(ended.report["backend"], Value::from("xdp"));
}
