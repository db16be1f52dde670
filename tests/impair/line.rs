//! The line behind the delay: its bytes, its opportunities, its queue.

use std::fs;
use std::time::Duration;

use fairpath_testbed::{Need, Router, requires};

use crate::by;
use crate::scene::{Ended, Impaired, router};
use crate::stream::{Course, FRAME, Stream, there_and_back};

by!(cells_and_opportunities_are_what_packets_take_of_a_line: afxdp, nfqueue);
by!(codel_drops_what_waits_too_long_and_a_limit_what_is_too_many: afxdp, nfqueue);
by!(delayed_packets_are_not_in_the_queue: afxdp, nfqueue);

const MS: u64 = 1_000_000;
/// Of a frame at 300 kbit/s, ns.
const SLOW: u64 = FRAME * 8 * 1_000_000_000 / 300_000;

/// Packets arrive faster than the link rate, so each leaves after those before it; `leaves` returns the
/// time since the first, ns.
fn assert_busy(ended: &Ended, direction: &str, stream: &Stream, leaves: impl Fn(u32) -> u64) {
    let count = stream.sent.len() as u32;
    assert_eq!(stream.arrived.len() as u32, count, "{direction}");
    assert_eq!(stream.inversions(), 0, "{direction}");
    stream.assert_not_before(|number| stream.sent_at(0) + leaves(number));
    let sum: u64 = (0..count).map(leaves).sum();
    let wanted = sum as f64 / f64::from(count) - stream.mean_sent_ns();
    let planned = ended.planned_ns(direction);
    // Between sending and coming to the port a busy machine may take its time.
    assert!(
        (planned - wanted).abs() < wanted * 0.2,
        "{direction}: {planned} of {wanted}"
    );
}

fn cells_and_opportunities_are_what_packets_take_of_a_line(port: &'static str) {
    requires!(Need::Root);
    const COUNT: u32 = 300;
    /// Opportunities of a round, ms; the last is when it begins again.
    const TIMES: [u64; 5] = [10, 20, 30, 40, 200];
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("a trace");
    let lines = TIMES.map(|time| format!("{time}\n"));
    fs::write(&trace, lines.concat()).unwrap();
    let there = format!("rate_trace=\"{}\"", trace.display());
    let words = [
        "--to-peer",
        &there,
        "--from-peer",
        "rate 1mbit overhead 24 cell 48",
    ];
    let (streams, ended) = there_and_back(port, &words, COUNT, [COUNT as usize; 2]);
    ended.assert_true_or_late();
    // Five of 1,504 bytes a round, the first at once; a packet leaves as long as a byte is left.
    assert_busy(&ended, "to-peer", &streams[0], |number| {
        let chance = u64::from(number) * FRAME / 1504;
        let (round, of_round) = (chance / 5, (chance % 5) as usize);
        let time = [0, TIMES[0], TIMES[1], TIMES[2], TIMES[3]][of_round];
        (round * TIMES[4] + time) * MS
    });
    // Whole cells of 48 bytes take 53 each.
    let cells = (FRAME + 24).div_ceil(48) * 53;
    assert_busy(&ended, "from-peer", &streams[1], |number| {
        u64::from(number) * cells * 8 * 1000
    });
}

/// Both have 300 kbit/s; there CoDel drops (RFC 8289: after 100 ms above 5 ms, then ever faster), back
/// a limit of 20 packets does.
fn codel_drops_what_waits_too_long_and_a_limit_what_is_too_many(port: &'static str) {
    requires!(Need::Root);
    const COUNT: u32 = 300;
    let words = [
        "--to-peer",
        "rate 300kbit policy codel queue-limit 1000",
        "--from-peer",
        "rate 300kbit queue-limit 20",
    ];
    let (streams, ended) = there_and_back(port, &words, COUNT, [usize::MAX; 2]);
    ended.assert_true_or_late();
    let dropped =
        ["to-peer", "from-peer"].map(|direction| ended.number(direction, "queue_dropped_packets"));
    for (at, direction) in ["to-peer", "from-peer"].into_iter().enumerate() {
        let arrived = streams[at].arrived.len() as u64;
        assert_eq!(arrived + dropped[at], u64::from(COUNT), "{direction}");
        assert_eq!(
            ended.number(direction, "sent_packets"),
            arrived,
            "{direction}"
        );
        assert_eq!(
            ended.number(direction, "lost_packets"),
            0,
            "{direction}: by the queue, not the impairment"
        );
        assert_eq!(streams[at].inversions(), 0, "{direction}");
    }
    println!("{port}: {dropped:?} dropped by CoDel and by the limit");
    // In 0.8 s: at 105 ms, and then 100 ms over the root of their number apart.
    assert!((8..=25).contains(&dropped[0]), "{dropped:?}");
    // Of those that there is no place for, none waits; the others have 20 before them, and the one
    // that is being sent.
    assert!(dropped[1] > 100 && dropped[1] < 280, "{dropped:?}");
    let planned = ended.planned_ns("from-peer");
    let [min, most] = [8, 21].map(|packets| (packets * SLOW) as f64);
    assert!((min..=most).contains(&planned), "{planned} of {most}");
}

/// 50 packets are under way, and the queue has 30 places.
fn delayed_packets_are_not_in_the_queue(port: &'static str) {
    requires!(Need::Root);
    const COUNT: u32 = 120;
    let net = router();
    let words = [
        "--to-peer",
        "delay 100ms rate 1mbit queue-limit 30",
        "--from-peer",
        "none",
    ];
    let impaired = Impaired::between(&net, port, &words);
    let course = Course::new(&net.client, &net.server, Router::SERVER.v4, COUNT);
    let stream = course.every(Duration::from_millis(2)).run(COUNT as usize);
    let ended = impaired.end();
    ended.assert_true_or_late();
    assert_eq!(ended.number("to-peer", "queue_dropped_packets"), 0);
    assert_eq!(stream.arrived.len(), COUNT as usize);
    stream.assert_not_before(|number| stream.sent_at(number) + 100 * MS);
}
