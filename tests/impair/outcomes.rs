//! With one seed each packet has one outcome: that of the core, in every back end.

use fairpath_testbed::{Need, requires};

use crate::by;
use crate::scene::Ended;
use crate::stream::{self, Stream};
use crate::twin;

by!(losses_of_chains_are_those_of_the_seed: xdp, afxdp, nfqueue);
by!(delays_are_those_of_the_seed_packet_by_packet: afxdp, nfqueue);

const COUNT: u32 = 1000;
const SEED: u64 = 41;

/// There and back, and how it ended.
fn there_and_back(
    port: &'static str,
    words: [&str; 2],
    wanted: [usize; 2],
) -> ([Stream; 2], Ended) {
    let seed = SEED.to_string();
    let [there, back] = words;
    let words = ["--to-peer", there, "--from-peer", back, "--seed", &seed];
    stream::there_and_back(port, &words, COUNT, wanted)
}

/// The four states' mean loss (Salsano and others, 2012): of bursts, and of packets lost alone.
fn four_states_lose([p13, p31, p32, p23, p14]: [f64; 5]) -> f64 {
    let weight = p13 * p23 + p23 * p31 + p14 * p23 * p31 + p13 * p32;
    (p13 * p23 + p14 * p23 * p31) / weight
}

fn losses_of_chains_are_those_of_the_seed(port: &'static str) {
    requires!(Need::Root);
    let words = [
        "four_state=p13=5%,p31=30%,p32=10%,p23=80%,p14=1%",
        "loss=10% loss_correlation=40%",
    ];
    let outcomes =
        [0, 1].map(|direction| twin::delays(words[direction], SEED, direction as u64, COUNT));
    let wanted = outcomes
        .each_ref()
        .map(|outcomes| twin::survivors(outcomes));
    let ([there, back], ended) =
        there_and_back(port, words, wanted.each_ref().map(|numbers| numbers.len()));
    assert_eq!(there.numbers(), wanted[0]);
    assert_eq!(back.numbers(), wanted[1]);
    ended.assert_valid();
    let means = [four_states_lose([0.05, 0.3, 0.1, 0.8, 0.01]), 0.1];
    for (at, direction) in ["to-peer", "from-peer"].into_iter().enumerate() {
        let left = wanted[at].len() as u64;
        assert_eq!(ended.number(direction, "sent_packets"), left);
        assert_eq!(
            ended.number(direction, "lost_packets"),
            u64::from(COUNT) - left
        );
        let requested = ended.direction(direction)["configured_loss_ratio"]
            .as_f64()
            .unwrap();
        assert!(
            (requested - means[at]).abs() < 1e-9,
            "{requested} {}",
            means[at]
        );
        // Of 1,000 in bursts, a mean has a deviation of 0.013 at most.
        let lost = 1.0 - left as f64 / f64::from(COUNT);
        assert!(
            (lost - requested).abs() < 0.045,
            "{direction}: {lost} of {requested}"
        );
    }
    // A loss follows a loss with p + (1 - p) * correlation, so bursts are 1 / (0.9 * 0.6) long.
    let lost: Vec<usize> = (0..COUNT as usize)
        .filter(|n| outcomes[1][*n].is_none())
        .collect();
    let together = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1);
    let bursts = lost.len() - together.count();
    let mean = lost.len() as f64 / bursts as f64;
    assert!((1.5..=2.3).contains(&mean), "{mean}: 1.85 are configured");
}

fn delays_are_those_of_the_seed_packet_by_packet(port: &'static str) {
    requires!(Need::Root);
    let words = [
        "loss=10% delay=20ms jitter=5ms distribution=normal correlation=50% order=free",
        "delay=20ms reorder=10% reorder_gap=5",
    ];
    let outcomes =
        [0, 1].map(|direction| twin::delays(words[direction], SEED, direction as u64, COUNT));
    let wanted = outcomes
        .each_ref()
        .map(|outcomes| twin::survivors(outcomes));
    let (streams, ended) =
        there_and_back(port, words, wanted.each_ref().map(|numbers| numbers.len()));
    ended.assert_true_or_late();
    for (at, direction) in ["to-peer", "from-peer"].into_iter().enumerate() {
        let (stream, outcomes) = (&streams[at], &outcomes[at]);
        assert_eq!(stream.numbers(), wanted[at], "{direction}");
        let of = |number: u32| outcomes[number as usize].unwrap();
        stream.assert_not_before(|number| stream.sent_at(number) + of(number));
        // In virtual time nothing is late: to the nanosecond, the plan is what the seed draws.
        let sum: u64 = outcomes.iter().flatten().sum();
        let planned = ended.planned_ns(direction);
        assert_eq!(planned, sum as f64 / wanted[at].len() as f64, "{direction}");
    }
    // 900 of 5 ms, correlated by a half: worth 300.
    assert!((ended.planned_ns("to-peer") - 20e6).abs() < 1e6);
    // Four wait at least, then each goes ahead with its chance: one of 14.
    let ahead = outcomes[1]
        .iter()
        .filter(|delay| **delay == Some(0))
        .count();
    assert!((45..=100).contains(&ahead), "{ahead}");
    assert!(
        (ended.planned_ns("from-peer") - 20e6 * (1.0 - ahead as f64 / f64::from(COUNT))).abs()
            < 1.0,
        "others have the whole delay"
    );
    // Who goes ahead passes those of the last 20 ms.
    let passed = streams.each_ref().map(Stream::inversions);
    assert!(passed.iter().all(|passed| *passed > 200), "{passed:?}");
}
