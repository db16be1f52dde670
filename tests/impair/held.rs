//! Packets that are held: slots, releases, and a delay that changes.
//!
//! No packet arrives too early, which is independent of other load. The planned delay of the back end shows
//! that it was not longer.

use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Router, requires};
use fairpath_units::{Disturbed, repeat_disturbed};

use crate::by;
use crate::scene::{Impaired, router};
use crate::stream::{Course, FRAME, Stream, there_and_back};

by!(slots_admit_the_configured_packets_or_bytes: afxdp, nfqueue);
by!(releases_come_at_multiples_of_their_time: afxdp, nfqueue);
by!(a_delay_trace_is_followed_by_time: afxdp, nfqueue);

const MS: u64 = 1_000_000;

/// Slots are 20 ms apart; there four packets fit into one, and back as many as it takes to have 300 bytes.
fn slots_admit_the_configured_packets_or_bytes(port: &'static str) {
    requires!(Need::Root);
    const COUNT: u32 = 96;
    const SLOT: u64 = 20 * MS;
    let words = [
        "--to-peer",
        "slot 20ms,20ms,4",
        "--from-peer",
        "slot min=20ms,max=20ms,bytes=300",
    ];
    let (streams, ended) = there_and_back(port, &words, COUNT, [COUNT as usize; 2]);
    ended.assert_true_or_late();
    let of_bytes = 300u64.div_ceil(FRAME) as u32;
    for (direction, stream, capacity) in [
        ("to-peer", &streams[0], 4),
        ("from-peer", &streams[1], of_bytes),
    ] {
        assert_eq!(stream.arrived.len(), COUNT as usize, "{direction}");
        assert_eq!(stream.inversions(), 0, "{direction}");
        let slot = |number: u32| SLOT * u64::from(1 + number / capacity);
        stream.assert_not_before(|number| stream.sent_at(0) + slot(number));
        // They come faster than slots take them, so all slots are full.
        let sum: u64 = (0..COUNT).map(slot).sum();
        let wanted = sum as f64 / f64::from(COUNT) - stream.mean_sent_ns();
        let planned = ended.planned_ns(direction);
        assert!(
            (planned - wanted).abs() < SLOT as f64,
            "{direction}: {planned} {wanted}"
        );
    }
}

fn releases_come_at_multiples_of_their_time(port: &'static str) {
    requires!(Need::Root);
    const COUNT: u32 = 400;
    const RELEASE: u64 = 20 * MS;
    let words = [
        "--to-peer",
        "release 20ms",
        "--from-peer",
        "delay 30ms release 20ms",
    ];
    let (streams, ended) = there_and_back(port, &words, COUNT, [COUNT as usize; 2]);
    ended.assert_true_or_late();
    for (direction, stream, delay) in [
        ("to-peer", &streams[0], 0),
        ("from-peer", &streams[1], 30 * MS),
    ] {
        assert_eq!(stream.arrived.len(), COUNT as usize, "{direction}");
        assert_eq!(stream.inversions(), 0, "{direction}");
        // Multiples of the clock that both read, whenever the run began.
        stream
            .assert_not_before(|number| (stream.sent_at(number) + delay).next_multiple_of(RELEASE));
        // Anything from nothing to the whole time: half of it, where they come all the time.
        let waited = ended.planned_ns(direction) - delay as f64;
        let share = waited / RELEASE as f64;
        assert!(
            (0.2..0.8).contains(&share),
            "{direction}: {share} of a release"
        );
    }
}

/// Times that a machine may take a second for 200 packets.
const TRIES: u32 = 3;

/// The trace begins with the first packet; two trains of packets meet a delay each.
fn a_delay_trace_is_followed_by_time(port: &'static str) {
    requires!(Need::Root);
    let test = format!("impair::a_delay_trace_is_followed_by_time::{port}");
    repeat_disturbed(&test, TRIES, |_| follows_a_delay_trace(port));
}

fn follows_a_delay_trace(port: &'static str) -> Result<(), Disturbed> {
    const COUNT: u32 = 200;
    const STEP: Duration = Duration::from_secs(1);
    let net = router();
    let words = [
        "--to-peer",
        "delay_trace=\"0s 20ms, 1s 60ms, 100s\"",
        "--from-peer",
        "none",
    ];
    let impaired = Impaired::between(&net, port, &words);
    let begin = Instant::now();
    let train = |first: u32| -> Stream {
        let course = Course::new(&net.client, &net.server, Router::SERVER.v4, COUNT);
        course.first(first).run(COUNT as usize)
    };
    let before = train(0);
    let is_in_time = begin.elapsed() < STEP;
    thread::sleep((begin + STEP + STEP / 10).saturating_duration_since(Instant::now()));
    let after = train(COUNT);
    let ended = impaired.end();
    ended.assert_true_or_late();
    assert_eq!(
        (before.arrived.len(), after.arrived.len()),
        (COUNT as usize, COUNT as usize)
    );
    before.assert_not_before(|number| before.sent_at(number) + 20 * MS);
    after.assert_not_before(|number| after.sent_at(number) + 60 * MS);
    // Else some of the first train had the second delay.
    Disturbed::unless(is_in_time, "200 packets took a second")?;
    assert_eq!(ended.planned_ns("to-peer"), 40e6);
    Ok(())
}
