//! The four ways in which matching TSvals is known to go wrong (docs/design/0003, notes 2.7 a to d), packet by packet.
//!
//! Each test says which break of the core was seen to fail it. Host A sends the data; B's side is 20 ms away.

mod traffic;

use fairpath_core::{Config, Mode};
use traffic::script::{A, B, Talk};

/// A talk for each mode that uses timestamps, past its handshake.
fn talks() -> [(Mode, Talk); 2] {
    [Mode::Ts, Mode::Hybrid].map(|mode| {
        let config = Config {
            mode: mode as u32,
            ..Config::default().with_flows(64)
        };
        let mut talk = Talk::new(config);
        talk.handshake_ts(0);
        assert_eq!(talk.rtts(), [20, 10], "the handshake's own");
        (mode, talk)
    })
}

/// A fresh segment with its own TSval is measured again: the error did not stick.
fn continues(talk: &mut Talk, mode: Mode, ms: u64, seq: u32) {
    talk.at(ms)
        .from(A)
        .seq(seq)
        .ack(501)
        .data(100)
        .ts(900, 2)
        .send();
    talk.at(ms + 20)
        .from(B)
        .seq(501)
        .ack(seq + 100)
        .ts(90, 900)
        .send();
    assert_eq!(talk.rtts(), [20], "{mode:?}");
}

/// Notes 2.7 a. Fails (10 ms) when `fp_record_retransmission()` never sets FP_HOLE_AMBIGUOUS.
#[test]
fn a_retransmission_within_one_tick_gives_no_sample() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(110).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(120).from(B).seq(501).ack(1101).ts(3, 5).send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        continues(&mut talk, mode, 200, 1101);
    }
}

/// Notes 2.7 a, the second copy coming as part of a longer segment. The first was lost behind us, so 1101 is answered by
/// the second. Fails (100 ms) when segments that reach into new data are not remembered, as they once were not.
#[test]
fn longer_retransmission_within_one_tick_warns_of_shorter() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(4, 2).send();
        talk.at(200).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(280).seq(1001).ack(501).data(150).ts(5, 2).send();
        talk.at(300).from(B).seq(501).ack(1151).ts(3, 5).send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        continues(&mut talk, mode, 400, 1151);
    }
}

/// The same where the second copy also fills a hole, and where it is answered in part. Fails (100 ms) when hole fillers
/// are not remembered, or warnings hold only for whole segments.
#[test]
fn a_filled_hole_warns_of_the_shorter_segment() {
    for answered in [1201, 1150] {
        for (mode, mut talk) in talks() {
            talk.at(100).seq(1001).ack(501).data(100).ts(4, 2).send();
            talk.at(101).seq(1201).ack(501).data(100).ts(4, 2).send(); // [1101, 1201) was lost upstream
            talk.at(200).seq(1001).ack(501).data(100).ts(5, 2).send();
            talk.at(280).seq(1001).ack(501).data(200).ts(5, 2).send();
            talk.at(300).from(B).seq(501).ack(answered).ts(3, 5).send();
            assert_eq!(talk.rtts(), [], "{mode:?}, {answered}");
        }
    }
}

/// The good case of 2.7 a: a separate TSval distinguishes a retransmission from the original, for either answer.
#[test]
fn retransmissions_with_a_distinct_tsval_are_measured() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(150).seq(1001).ack(501).data(100).ts(6, 2).send();
        talk.at(170).from(B).seq(501).ack(1101).ts(3, 6).send();
        assert_eq!(talk.rtts(), [20], "{mode:?}");
        talk.at(200).seq(1101).ack(501).data(100).ts(7, 3).send();
        talk.at(215).seq(1101).ack(501).data(100).ts(8, 3).send();
        talk.at(220).from(B).seq(501).ack(1201).ts(4, 7).send();
        assert_eq!(
            talk.rtts(),
            [],
            "{mode:?}: the original was answered, which Karn forbids"
        );
    }
}

/// Notes 2.7 b. One slow tick carries two segments, the ACK of the first was lost. Fails (170 ms in `ts`) when
/// `fp_remove_covered()` keeps the first segment whose TSval is echoed instead of the newest.
#[test]
fn a_lost_first_echo_gives_no_sample() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(250).seq(1101).ack(501).data(100).ts(5, 2).send();
        talk.at(270).from(B).seq(501).ack(1201).ts(3, 5).send();
        assert_eq!(talk.rtts(), [20], "{mode:?}");
        continues(&mut talk, mode, 300, 1201);
    }
}

/// Notes 2.7 b, by sequence numbers. B's ACK was lost; what B says next echoes a later packet of A, so it is no first
/// answer. Fails (150 ms in `hybrid`) when `fp_echo_contradicts()` ignores newer echoes.
#[test]
fn newer_echo_means_a_lost_ack() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(200).seq(1101).ack(501).ts(6, 2).send();
        talk.at(250)
            .from(B)
            .seq(501)
            .ack(1101)
            .data(10)
            .ts(3, 6)
            .send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        let vetoed = u64::from(mode == Mode::Hybrid);
        assert_eq!(talk.monitor.stats().refused_stale_ack, vetoed);
        continues(&mut talk, mode, 300, 1101);
    }
}

/// Notes 2.7 c. A delayed ACK covers two segments and echoes the first (RFC 7323 section 4.3); the third has the second's
/// TSval and its ACK echoes that. Fails (119 ms in `ts`) when `fp_remove_covered()` leaves covered segments with a newer TSval on
/// the list and keeps the first that is echoed, as matching without sequence numbers does.
#[test]
fn acknowledged_tsvals_are_not_matched_later() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(101).seq(1101).ack(501).data(100).ts(6, 2).send();
        talk.at(121).from(B).seq(501).ack(1201).ts(3, 5).send();
        let first = if mode == Mode::Ts { 21 } else { 20 };
        assert_eq!(
            talk.rtts(),
            [first],
            "{mode:?}: the segment echoed, or the newest"
        );
        talk.at(200).seq(1201).ack(501).data(100).ts(6, 2).send();
        talk.at(220).from(B).seq(501).ack(1301).ts(4, 6).send();
        assert_eq!(talk.rtts(), [20], "{mode:?}");
        continues(&mut talk, mode, 300, 1301);
    }
}

/// Notes 2.7 d and 2.6. What is seen first is a copy of what was sent in the same tick before we looked, and the answer
/// is to that. Fails (5 ms) when `fp_handle_data()` remembers the first data of a direction that began without SYN.
#[test]
fn first_data_of_a_midflow_is_not_measured() {
    for mode in [Mode::Ts, Mode::Hybrid, Mode::Seq] {
        let config = Config {
            mode: mode as u32,
            ..Config::default().with_flows(64)
        };
        let mut talk = Talk::new(config);
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(105).from(B).seq(501).ack(1101).ts(3, 5).send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        continues(&mut talk, mode, 200, 1101);
    }
}

/// Notes 2.7 d: also for the second segment of a retransmitted burst, which a clock distinguishes from its original. Fails
/// (10 ms in `hybrid`) when `fp_echo_contradicts()` ignores older echoes.
#[test]
fn older_echo_answers_an_earlier_copy() {
    for mode in [Mode::Ts, Mode::Hybrid] {
        let config = Config {
            mode: mode as u32,
            ..Config::default().with_flows(64)
        };
        let mut talk = Talk::new(config);
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(101).seq(1101).ack(501).data(100).ts(5, 2).send();
        talk.at(111).from(B).seq(501).ack(1201).ts(3, 4).send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        continues(&mut talk, mode, 200, 1201);
    }
}

/// Notes 2.2: TSvals compare serially (RFC 7323 section 5.2), across their wrap too.
#[test]
fn tsvals_are_distinguished_across_their_wrap() {
    for (mode, mut talk) in talks() {
        // A's clock was at 1; it has come round to just below 2^32 by way of more than half a turn.
        let mut seq = 1001;
        for (i, tsval) in [0x4000_0000, 0x8000_0000, 0xc000_0000, u32::MAX]
            .into_iter()
            .enumerate()
        {
            let ms = 100 + 100 * i as u64;
            talk.at(ms).seq(seq).ack(501).data(100).ts(tsval, 2).send();
            talk.at(ms + 20)
                .from(B)
                .seq(501)
                .ack(seq + 100)
                .ts(3, tsval)
                .send();
            assert_eq!(talk.rtts(), [20], "{mode:?}, {tsval:x}");
            seq += 100;
        }
        talk.at(600)
            .seq(seq)
            .ack(501)
            .data(100)
            .ts(u32::MAX, 2)
            .send();
        talk.at(650).seq(seq).ack(501).data(100).ts(0, 2).send();
        talk.at(670).from(B).seq(501).ack(seq + 100).ts(3, 0).send();
        assert_eq!(talk.rtts(), [20], "{mode:?}: TSval 0 is one like any other");
    }
}

/// Notes 2.2: after a pause of more than half a turn of the clock every TSval looks old; the data are measured all the same.
#[test]
fn tsval_half_a_turn_later_is_still_matched() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        talk.at(120).from(B).seq(501).ack(1101).ts(3, 5).send();
        talk.at(200_000)
            .seq(1101)
            .ack(501)
            .data(100)
            .ts(0x9000_0000, 2)
            .send();
        talk.at(200_020)
            .from(B)
            .seq(501)
            .ack(1201)
            .ts(3, 0x9000_0000)
            .send();
        assert_eq!(talk.rtts(), [20, 20], "{mode:?}");
    }
}

/// Notes 2.5: TSecr counts only with the ACK flag.
#[test]
fn an_echo_without_ack_flag_matches_nothing() {
    for (mode, mut talk) in talks() {
        talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
        let none = fairpath_wire::tcp::Flags::default();
        talk.at(110)
            .from(B)
            .seq(501)
            .ack(1101)
            .flags(none)
            .ts(3, 5)
            .send();
        assert_eq!(talk.rtts(), [], "{mode:?}");
        talk.at(120).from(B).seq(501).ack(1101).ts(3, 5).send();
        assert_eq!(talk.rtts(), [20], "{mode:?}");
    }
}

/// Notes 2.8: more than one TSval waits at a time: ticks shorter than the round trip all match.
#[test]
fn many_tsvals_wait_at_the_same_time() {
    for (mode, mut talk) in talks() {
        for i in 0..50 {
            let ms = 100 + u64::from(i);
            talk.at(ms)
                .seq(1001 + 100 * i)
                .ack(501)
                .data(100)
                .ts(5 + i, 2)
                .send();
            if i >= 20 {
                talk.at(ms)
                    .from(B)
                    .seq(501)
                    .ack(1101 + 100 * (i - 20))
                    .ts(3, 5 + i - 20)
                    .send();
            }
        }
        assert_eq!(talk.rtts(), [20; 30], "{mode:?}");
    }
}
