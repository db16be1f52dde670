//! TCP's edge cases, one test each; the numbers are the field notes' (docs/design/0003).

mod traffic;

use fairpath_core::{Config, Frame, FrameDirection, Mode, Reason};
use fairpath_wire::tcp::Flags;
use traffic::script::{A, B, Talk};
use traffic::{MS, SECOND};

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);

fn open() -> Talk {
    let mut talk = Talk::default();
    talk.handshake(0);
    assert_eq!(talk.rtts(), [20, 10]);
    talk
}

/// 100 bytes of A's at `seq`, answered 20 ms later.
fn exchange(talk: &mut Talk, ms: u64, seq: u32) {
    talk.at(ms).seq(seq).ack(501).data(100).send();
    talk.at(ms + 20).from(B).seq(501).ack(seq + 100).send();
    assert_eq!(talk.rtts(), [20]);
}

/// Notes 2.4: a pure ACK is no question; B's data after a pause are no answer to it.
#[test]
fn pure_acks_are_not_timed() {
    let mut talk = Talk::default();
    talk.handshake_ts(0);
    talk.rtts();
    talk.at(100).seq(1001).ack(501).ts(5, 2).send();
    talk.at(900)
        .from(B)
        .seq(501)
        .ack(1001)
        .data(10)
        .ts(3, 5)
        .send();
    assert_eq!(talk.rtts(), []);
}

/// Notes 2.4: B thinks 500 ms between its ACK and its answer, and A before it asks again; neither is in a sample.
#[test]
fn think_time_is_in_no_sample() {
    let mut talk = open();
    exchange(&mut talk, 100, 1001);
    talk.at(620).from(B).seq(501).ack(1101).data(50).send();
    talk.at(630).seq(1101).ack(551).send();
    talk.at(1500).seq(1101).ack(551).data(10).send();
    talk.at(1520).from(B).seq(551).ack(1111).send();
    assert_eq!(talk.rtts(), [10, 20]);
}

/// Notes 2.9: a sample's direction is that of the data, for either initiator.
#[test]
fn the_measured_side_is_the_one_that_answers() {
    let mut talk = open();
    talk.at(100).from(B).seq(501).ack(1001).data(10).send();
    talk.at(110).from(A).seq(1001).ack(511).send();
    let sample = talk.samples[0];
    assert_eq!(sample.key.endpoint(sample.measured).port(), 40_000);
    assert_eq!(
        (sample.rtt, sample.seq, sample.ack, sample.acked_bytes),
        (10 * MS, 511, 511, 10)
    );
}

/// Notes 2.9: a segment with data answers and asks at the same time, each leg by its own.
#[test]
fn data_that_answer_data_give_a_sample_each() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(10).send();
    talk.at(120).from(B).seq(501).ack(1011).data(10).send();
    talk.at(130).seq(1011).ack(511).data(10).send();
    talk.at(150).from(B).seq(511).ack(1021).send();
    assert_eq!(talk.rtts(), [20, 10, 20]);
}

/// Notes 2.15: any byte sent twice makes its answer ambiguous.
#[test]
fn retransmitted_data_are_not_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(105).seq(1001).ack(501).data(100).send();
    talk.at(120).from(B).seq(501).ack(1101).send();
    assert_eq!(talk.rtts(), []);
    exchange(&mut talk, 200, 1101);
}

/// Notes 2.15: tcptrace's `intervening_xmits`: the ACK of the later segment waited for the earlier one.
#[test]
fn data_behind_a_retransmission_are_not_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(101).seq(1101).ack(501).data(100).send();
    talk.at(150).seq(1001).ack(501).data(100).send();
    talk.at(170).from(B).seq(501).ack(1201).send();
    assert_eq!(talk.rtts(), []);
    exchange(&mut talk, 200, 1201);
}

/// Notes 2.15: what was sent after the retransmission is measured again.
#[test]
fn new_data_after_a_retransmission_are_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(110).seq(1001).ack(501).data(100).send();
    talk.at(115).seq(1101).ack(501).data(100).send();
    talk.at(135).from(B).seq(501).ack(1201).send();
    assert_eq!(talk.rtts(), [20]);
}

/// Notes 2.16: an ACK of two segments is the newer one's, whose answer it is at the earliest.
#[test]
fn delayed_ack_is_matched_with_the_newest_segment() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(130).seq(1101).ack(501).data(100).send();
    talk.at(150).from(B).seq(501).ack(1201).send();
    assert_eq!(talk.rtts(), [20]);
}

/// Notes 2.19.
#[test]
fn duplicate_acks_are_not_measured() {
    let mut talk = open();
    exchange(&mut talk, 100, 1001);
    talk.at(150).seq(1101).ack(501).data(100).send();
    talk.at(151).seq(1201).ack(501).data(100).send();
    for ms in 171..175 {
        talk.at(ms).from(B).seq(501).ack(1101).send();
    }
    assert_eq!(talk.rtts(), []);
}

/// Notes 2.19, RFC 9293 section 3.8.4: with a byte or without, once or often.
#[test]
fn keep_alives_are_not_measured() {
    let mut talk = Talk::default();
    talk.handshake_ts(0);
    talk.rtts();
    talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
    talk.at(120).from(B).seq(501).ack(1101).ts(3, 5).send();
    talk.rtts();
    for (i, bytes) in [0, 1, 1, 0].into_iter().enumerate() {
        let ms = 10_000 * (i as u64 + 1);
        talk.at(ms)
            .seq(1100)
            .ack(501)
            .data(bytes)
            .ts(1000 + i as u32, 3)
            .send();
        talk.at(ms + 20)
            .from(B)
            .seq(501)
            .ack(1101)
            .ts(4, 1000 + i as u32)
            .send();
    }
    assert_eq!(talk.rtts(), []);
    assert_eq!(talk.monitor.stats().keepalives, 2, "those with a byte");
    talk.at(60_000)
        .seq(1101)
        .ack(501)
        .data(100)
        .ts(2000, 3)
        .send();
    talk.at(60_020)
        .from(B)
        .seq(501)
        .ack(1201)
        .ts(5, 2000)
        .send();
    assert_eq!(talk.rtts(), [20]);
}

/// Notes 2.19: the probe's byte is answered when B reads, not when it arrives.
#[test]
fn zero_window_probes_are_not_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(120).from(B).seq(501).ack(1101).window(0).send();
    assert_eq!(talk.rtts(), [20]);
    talk.at(400).seq(1101).ack(501).data(1).send(); // next byte
    talk.at(420).from(B).seq(501).ack(1101).window(0).send();
    talk.at(800).seq(1101).ack(501).data(1).send(); // again
    talk.at(2000).from(B).seq(501).ack(1102).window(1000).send();
    assert_eq!(talk.rtts(), []);
    exchange(&mut talk, 3000, 1102);
}

/// Notes 2.11: handshakes give both legs, without waiting for a TSval to change.
#[test]
fn a_handshake_gives_both_legs() {
    let mut talk = Talk::default();
    talk.handshake_ts(0);
    let legs: Vec<_> = talk
        .samples
        .iter()
        .map(|s| (s.rtt / MS, s.acked_bytes))
        .collect();
    assert_eq!(legs, [(20, 0), (10, 0)]);
    assert_eq!(talk.monitor.stats().samples_handshake, 2);
}

/// Notes 2.11: only handshakes if only they are requested.
#[test]
fn handshake_mode_measures_nothing_else() {
    let config = Config {
        mode: Mode::Handshake as u32,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(config);
    talk.handshake(0);
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(120).from(B).seq(501).ack(1101).send();
    assert_eq!(talk.rtts(), [20, 10]);
}

/// Notes 2.15: the answered SYN is ambiguous.
#[test]
fn a_syn_sent_twice_is_not_measured() {
    let mut talk = Talk::default();
    talk.at(0).seq(1000).flags(Flags::SYN).send();
    talk.at(1000).seq(1000).flags(Flags::SYN).send();
    talk.at(1020)
        .from(B)
        .seq(500)
        .ack(1001)
        .flags(SYN_ACK)
        .send();
    talk.at(1030).seq(1001).ack(501).send();
    assert_eq!(talk.rtts(), [10], "the other leg is");
}

/// Notes 2.15: unless its TSval decides. B answers the second.
#[test]
fn syn_sent_twice_is_measured_by_its_tsval() {
    let mut talk = Talk::default();
    talk.at(0).seq(1000).flags(Flags::SYN).ts(1, 0).send();
    talk.at(1000).seq(1000).flags(Flags::SYN).ts(1001, 0).send();
    talk.at(1020)
        .from(B)
        .seq(500)
        .ack(1001)
        .flags(SYN_ACK)
        .ts(7, 1001)
        .send();
    assert_eq!(talk.rtts(), [20]);
}

/// Notes 2.15: a SYN with data (TCP Fast Open) is its own retransmission with or without them. Fails (20 ms) when SYNs
/// are compared by where they end.
#[test]
fn syn_with_data_sent_twice_is_not_measured() {
    for bytes in [0, 50] {
        let mut talk = Talk::default();
        talk.at(0).seq(1000).flags(Flags::SYN).data(50).send();
        talk.at(1000).seq(1000).flags(Flags::SYN).data(bytes).send();
        talk.at(1020)
            .from(B)
            .seq(500)
            .ack(1001 + bytes)
            .flags(SYN_ACK)
            .send();
        assert_eq!(talk.rtts(), [], "{bytes}");
    }
}

/// Notes 2.11: a client that gives up and begins again is measured by its second try.
#[test]
fn second_try_with_another_number_is_new_handshake() {
    let mut talk = Talk::default();
    talk.at(0).seq(9000).flags(Flags::SYN).send();
    talk.handshake(3000);
    assert_eq!(talk.rtts(), [20, 10]);
    assert_eq!(talk.opened[0].reason, Reason::Syn);
}

/// Notes 2.13: A is done, B never said so; the 5-tuple begins again anywhere in the sequence space. Fails (no sample) when
/// a SYN is known by its number lying before what was seen.
#[test]
fn reused_5_tuple_after_one_fin_is_measured() {
    for isn in [
        0x10,
        900,
        1000u32.wrapping_sub(1 << 29),
        5_000_000,
        0x8000_0000u32,
    ] {
        let mut talk = open();
        talk.at(100).seq(1001).ack(501).flags(FIN_ACK).send();
        talk.at(120).from(B).seq(501).ack(1002).send();
        assert_eq!(talk.rtts(), [20]);
        talk.at(5000).seq(isn).flags(Flags::SYN).send();
        talk.at(5020)
            .from(B)
            .seq(77)
            .ack(isn + 1)
            .flags(SYN_ACK)
            .send();
        talk.at(5030).seq(isn + 1).ack(78).send();
        assert_eq!(talk.rtts(), [20, 10], "isn {isn}");
        assert_eq!(talk.ended[0].reason, Reason::Reuse);
        assert_eq!(talk.monitor.stats().flows_reused, 1);
        talk.at(5100).seq(isn + 1).ack(78).data(100).send();
        talk.at(5120).from(B).seq(78).ack(isn + 101).send();
        assert_eq!(talk.rtts(), [20], "isn {isn}");
    }
}

/// Notes 2.13.
#[test]
fn reused_5_tuple_after_its_end_is_measured() {
    for rst in [false, true] {
        let mut talk = open();
        if rst {
            talk.at(100).seq(1001).ack(501).flags(Flags::RST).send();
        } else {
            talk.at(100).seq(1001).ack(501).flags(FIN_ACK).send();
            talk.at(120)
                .from(B)
                .seq(501)
                .ack(1002)
                .flags(FIN_ACK)
                .send();
            talk.at(130).seq(1002).ack(502).send();
        }
        assert_eq!(talk.ended.len(), 1);
        talk.rtts();
        talk.handshake(1000);
        assert_eq!(talk.rtts(), [20, 10], "rst {rst}");
        assert_eq!(talk.ended.len(), 1, "its first life is reported once");
        assert_eq!(talk.opened.len(), 2);
        exchange(&mut talk, 1100, 1001);
    }
}

/// A stray SYN on an open connection (RFC 5961) does not disturb it.
#[test]
fn a_forged_syn_leaves_the_connection_alone() {
    let mut talk = open();
    talk.at(100).seq(0x7777_0000).flags(Flags::SYN).send();
    exchange(&mut talk, 200, 1001);
    exchange(&mut talk, 300, 1101);
    assert_eq!(talk.ended.len(), 0);
}

/// Notes 2.12.
#[test]
fn rst_without_timestamps_closes_flow_that_has_them() {
    let mut talk = Talk::default();
    talk.handshake_ts(0);
    talk.at(100).from(B).seq(501).flags(Flags::RST).send();
    let record = talk.ended[0];
    assert_eq!(record.reason, Reason::Rst);
    assert_eq!(record.key.endpoint(record.side).port(), 443, "by whom");
}

/// The sender of the first FIN closed the flow; it is reported after both.
#[test]
fn flow_is_closed_by_side_of_first_fin() {
    for first in [A, B] {
        let mut talk = open();
        let seq = [1001, 501];
        talk.at(100)
            .from(first)
            .seq(seq[first])
            .ack(seq[1 - first])
            .flags(FIN_ACK)
            .send();
        assert_eq!(talk.ended.len(), 0);
        let ack = seq[first] + 1;
        talk.at(150)
            .from(1 - first)
            .seq(seq[1 - first])
            .ack(ack)
            .flags(FIN_ACK)
            .send();
        let record = talk.ended[0];
        assert_eq!(record.reason, Reason::Fin);
        assert_eq!(
            record.key.endpoint(record.side).port(),
            [40_000, 443][first]
        );
    }
}

/// The FIN counts in sequence numbers: its ACK is measured as that of data.
#[test]
fn a_fin_is_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).flags(FIN_ACK).send();
    talk.at(120).from(B).seq(501).ack(1002).send();
    assert_eq!(talk.rtts(), [20]);
}

/// Fails when the half-open table takes a third packet without a check of its flags.
#[test]
fn a_fin_on_the_handshakes_third_packet_counts() {
    let mut talk = Talk::default();
    talk.at(0).seq(1000).flags(Flags::SYN).send();
    talk.at(20).from(B).seq(500).ack(1001).flags(SYN_ACK).send();
    talk.at(30).seq(1001).ack(501).flags(FIN_ACK).send();
    talk.at(50).from(B).seq(501).ack(1002).flags(FIN_ACK).send();
    assert_eq!(
        talk.ended
            .iter()
            .map(|record| record.reason)
            .collect::<Vec<_>>(),
        [Reason::Fin]
    );
}

/// Notes 2.18: around 2^32, for sequence numbers of both sides.
#[test]
fn sequence_numbers_wrap() {
    let mut talk = Talk::default();
    let isn = u32::MAX - 150;
    talk.at(0).seq(isn).flags(Flags::SYN).send();
    talk.at(20)
        .from(B)
        .seq(u32::MAX)
        .ack(isn + 1)
        .flags(SYN_ACK)
        .send();
    talk.at(30).seq(isn + 1).ack(0).send();
    assert_eq!(talk.rtts(), [20, 10]);
    for i in 0..4u32 {
        let seq = (isn + 1).wrapping_add(100 * i);
        talk.at(100 + 50 * u64::from(i))
            .seq(seq)
            .ack(0)
            .data(100)
            .send();
        talk.at(120 + 50 * u64::from(i))
            .from(B)
            .seq(0)
            .ack(seq.wrapping_add(100))
            .send();
    }
    assert_eq!(talk.rtts(), [20; 4]);
}

/// Notes 2.20: one GSO packet is many segments on the wire; an ACK of some of them is an answer too.
#[test]
fn an_ack_inside_a_gso_packet_is_measured() {
    let mut talk = open();
    talk.at(100)
        .seq(1001)
        .ack(501)
        .data(3000)
        .seen(|f| f.segs = 3)
        .send();
    talk.at(120).from(B).seq(501).ack(2001).send();
    talk.at(121).from(B).seq(501).ack(4001).send();
    assert_eq!(talk.rtts(), [20, 21]);
    talk.finish();
    let record = talk.ended[0];
    assert_eq!(
        record.counts[0].packets + record.counts[1].packets,
        3 + 3 + 2,
        "wire packets"
    );
    assert_eq!(talk.monitor.stats().tcp_packets, 3 + 3 + 2);
}

/// Notes 2.15: what we did not see cannot be matched; what comes later can.
#[test]
fn ack_of_data_never_seen_is_not_measured() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(120).from(B).seq(501).ack(1301).send();
    assert_eq!(talk.rtts(), []);
    exchange(&mut talk, 200, 1301);
    talk.finish();
    let counts = talk.ended[0].counts;
    assert_eq!(counts[0].unobserved_bytes + counts[1].unobserved_bytes, 200);
}

/// Notes 2.24: one packet at up to four points counts once, and its answer is measured at the first.
#[test]
fn a_packet_seen_at_several_points_counts_once() {
    let mut talk = open();
    let places = |i: u32| {
        move |frame: &mut Frame| {
            frame.ifindex = 2 + i / 2;
            frame.direction = if i.is_multiple_of(2) {
                FrameDirection::In
            } else {
                FrameDirection::Out
            } as u8;
            frame.vlan = if i == 3 { 7 } else { 0 };
        }
    };
    let mut packets = 3;
    for round in 0..10 {
        let (ms, seq) = (100 + 100 * u64::from(round), 1001 + 100 * round);
        for i in 0..4 {
            talk.at_ns(ms * MS + u64::from(i))
                .seq(seq)
                .ack(501)
                .data(100)
                .seen(places(i))
                .send();
        }
        for i in 0..4 {
            let at = (ms + 20) * MS + u64::from(i);
            talk.at_ns(at)
                .from(B)
                .seq(501)
                .ack(seq + 100)
                .seen(places(i))
                .send();
        }
        assert_eq!(talk.rtts(), [20], "round {round}");
        packets += 2;
    }
    assert_eq!(talk.monitor.stats().tcp_packets, packets);
    assert_eq!(talk.monitor.stats().second_hook_packets, 6 * 10);
}

/// Notes 2.24: a retransmission stays one at the second point, and Karn's rule holds.
#[test]
fn a_retransmission_seen_at_several_points_counts_once() {
    let mut talk = open();
    let at = |i: u32| move |frame: &mut Frame| frame.ifindex = 2 + i;
    for (ms, copies) in [(100, 2), (300, 2)] {
        for i in 0..copies {
            talk.at_ns(ms * MS + u64::from(i))
                .seq(1001)
                .ack(501)
                .data(100)
                .seen(at(i))
                .send();
        }
    }
    talk.at(320).from(B).seq(501).ack(1101).seen(at(1)).send();
    assert_eq!(talk.rtts(), []);
    talk.finish();
    let counts = talk.ended[0].counts;
    assert_eq!(
        counts[0].retransmitted_packets + counts[1].retransmitted_packets,
        1
    );
}

/// A route changes in mid-flow: the new interface continues without a wrong sample.
#[test]
fn flows_are_measured_across_interfaces() {
    let mut talk = open();
    for (i, ifindex) in [2, 2, 3, 3, 2].into_iter().enumerate() {
        let (ms, seq) = (100 + 100 * i as u64, 1001 + 100 * i as u32);
        talk.at(ms)
            .seq(seq)
            .ack(501)
            .data(100)
            .seen(|f| f.ifindex = ifindex)
            .send();
        talk.at(ms + 20)
            .from(B)
            .seq(501)
            .ack(seq + 100)
            .seen(|f| f.ifindex = 9)
            .send();
        assert_eq!(talk.rtts(), [20]);
    }
}

/// Asymmetric routing: only one direction passes.
#[test]
fn a_one_sided_flow_is_counted_as_such() {
    let config = Config {
        flow_timeout: 10 * SECOND,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(config);
    talk.at(0).seq(1000).flags(Flags::SYN).send();
    for i in 0..10 {
        talk.at(30 + i)
            .seq(1001 + 100 * i as u32)
            .ack(501)
            .data(100)
            .send();
    }
    talk.finish();
    assert_eq!(
        (talk.opened.len(), talk.ended.len(), talk.rtts().len()),
        (0, 0, 0)
    );
    let stats = talk.monitor.stats();
    assert_eq!((stats.one_sided_flows, stats.one_sided_bytes), (1, 1000));
}

/// A flow ends after its idle timeout, and is reported then.
#[test]
fn a_silent_flow_is_closed_by_its_timeout() {
    let config = Config {
        flow_timeout: 10 * SECOND,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(config);
    talk.handshake(0);
    talk.flow.port = [1, 2];
    for second in 1..30 {
        talk.at(second * 1000).seq(1).ack(1).data(10).send();
    }
    let record = talk.ended[0];
    let seconds = record.time / SECOND;
    assert!(
        (10..=19).contains(&seconds),
        "{seconds}: a table is looked through within 8 s"
    );
    assert_eq!((record.reason, record.opened), (Reason::Timeout, 0));
}

/// A match that waited longer than max_rtt is no round trip.
#[test]
fn matches_older_than_max_rtt_are_refused() {
    let config = Config {
        max_rtt: SECOND,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(config);
    talk.handshake(0);
    talk.rtts();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(1101).from(B).seq(501).ack(1101).send();
    assert_eq!(talk.rtts(), []);
    assert_eq!(talk.monitor.stats().refused_age, 1);
}

/// Captures of several queues are not always in order.
#[test]
fn an_answer_before_its_question_is_refused() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    talk.at(99).from(B).seq(501).ack(1101).send();
    assert_eq!(talk.rtts(), []);
    assert_eq!(talk.monitor.stats().refused_clock, 1);
}

/// Notes 2.10: only output is suppressed, not measurement: the minimum RTT includes all.
#[test]
fn rate_limit_suppresses_only_output() {
    for (rate_limit, rate_limit_rtts) in [(100 * MS, 0), (0, 5 * 256)] {
        let config = Config {
            rate_limit,
            rate_limit_rtts,
            ..Config::default().with_flows(64)
        };
        let mut talk = Talk::new(config);
        talk.handshake(0);
        talk.rtts();
        for i in 0..40 {
            let (ms, seq) = (200 + 30 * i, 1001 + 100 * i as u32);
            talk.at(ms).seq(seq).ack(501).data(100).send();
            talk.at(ms + 20).from(B).seq(501).ack(seq + 100).send();
        }
        let given: Vec<u64> = talk.samples.iter().map(|sample| sample.time / MS).collect();
        assert!(
            given.windows(2).all(|pair| pair[1] - pair[0] >= 100),
            "{given:?}"
        );
        assert_eq!(given.len(), 10, "every fourth");
        talk.finish();
        let samples = talk.ended[0].counts.map(|counts| counts.samples);
        assert_eq!(samples.iter().sum::<u32>(), 42);
        assert_eq!(talk.monitor.stats().samples_suppressed, 30);
    }
}

/// Notes 2.11: RST and lone FIN begin nothing; data under way do.
#[test]
fn stray_ends_open_no_flow() {
    let mut talk = Talk::default();
    talk.at(0).seq(1).ack(1).flags(Flags::RST).send();
    talk.at(1).from(B).seq(1).ack(1).flags(FIN_ACK).send();
    assert_eq!(talk.monitor.usage().flows, 0);
    talk.at(2).seq(1).ack(1).data(10).send();
    talk.at(3).from(B).seq(1).ack(11).send();
    assert_eq!(talk.opened[0].reason, Reason::FirstSeen);
}

/// A router's own sample belongs to the hook that saw the packet come in.
#[test]
fn monitored_ingress_prevents_a_second_sample() {
    let mut talk = open();
    talk.at(100).seq(1001).ack(501).data(100).send();
    let on_its_egress = |frame: &mut Frame| frame.flags = Frame::SEEN_BEFORE;
    talk.at(120)
        .from(B)
        .seq(501)
        .ack(1101)
        .seen(on_its_egress)
        .send();
    assert_eq!(talk.rtts(), []);
}

/// Captures with coarse times have round trips of 0, which are then the minimum, not 1.
#[test]
fn round_trip_of_zero_is_its_own_minimum() {
    let mut talk = open();
    for (sent, answered, seq) in [(100, 105, 1001), (200, 200, 1101), (300, 303, 1201)] {
        talk.at(sent).seq(seq).ack(501).data(100).send();
        talk.at(answered).from(B).seq(501).ack(seq + 100).send();
    }
    let reported: Vec<_> = talk
        .samples
        .iter()
        .map(|s| (s.rtt / MS, s.min / MS))
        .collect();
    assert_eq!(reported[reported.len() - 3..], [(5, 5), (0, 0), (3, 0)]);
    assert!(
        talk.samples.iter().all(|s| s.min <= s.rtt),
        "in nanoseconds"
    );
    talk.finish();
    let flow = &talk.ended[0];
    assert_eq!((flow.min[B], flow.counts[A].samples > 0), (0, true));
}
