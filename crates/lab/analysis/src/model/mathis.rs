//! The square-root law of Reno's saw-tooth.
//!
//! M. Mathis, J. Semke, J. Mahdavi, T. Ott, "The macroscopic behavior of the TCP congestion
//! avoidance algorithm", ACM CCR 27(3), 1997, equation 3: `BW = MSS / RTT * C / sqrt(p)`. For a
//! window that grows by one segment every `b` round trips and halves at evenly spaced losses
//! (section 2) `C = sqrt(3 / (2 b))`: 1.22 without delayed ACKs, 0.87 with. It knows no timeouts,
//! no windows and no link.
//!
//! Which of the two applies to a sender? The paper's counts ACKs, like RFC 5681 without the byte counting of
//! its section 3.1 (RFC 3465). Linux counts the segments that an ACK covers (`tcp_cong_avoid_ai(.., acked)`),
//! so delayed ACKs do not slow it: [`per_segment_goodput_bps`] is stated with the law at the measured `b`.

use super::Conditions;

/// The constant for ACKs that cover `segments_per_ack` segments.
pub fn constant(segments_per_ack: f64) -> f64 {
    (3.0 / (2.0 * segments_per_ack.max(1.0))).sqrt()
}

/// Mean goodput, bits of payload a second; infinite without loss.
pub fn goodput_bps(c: &Conditions) -> f64 {
    if c.loss_event_rate <= 0.0 {
        return f64::INFINITY;
    }
    let window = constant(c.segments_per_ack) / c.loss_event_rate.sqrt();
    c.goodput_bps(window / c.rtt_seconds)
}

/// The same for a sender that counts segments and not ACKs, whatever an ACK covers: `C = 1.22`.
pub fn per_segment_goodput_bps(c: &Conditions) -> f64 {
    goodput_bps(&Conditions {
        segments_per_ack: 1.0,
        ..*c
    })
}

/// `p*`: the rate of loss events at which the law meets `limit_bps`, so that less loss costs
/// nothing. At most 1.
pub fn loss_rate_at(limit_bps: f64, c: &Conditions) -> f64 {
    let one_segment_bps = c.goodput_bps(constant(c.segments_per_ack) / c.rtt_seconds);
    (one_segment_bps / limit_bps).powi(2).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rtt_seconds: f64, segments_per_ack: f64) -> Conditions {
        Conditions {
            rtt_seconds,
            loss_event_rate: 0.01,
            mss_bytes: 1448.0,
            segments_per_ack,
            timeout_seconds: 0.2,
        }
    }

    #[test]
    fn the_constants_are_those_of_the_paper() {
        assert!((constant(1.0) - 1.2247).abs() < 1e-4);
        assert!((constant(2.0) - 0.8660).abs() < 1e-4);
        assert_eq!(
            constant(0.3),
            constant(1.0),
            "no ACK covers less than a segment"
        );
    }

    /// 1448 B, 1 %: the round trips at which the law gives the talk's 235.5 Mbit/s.
    #[test]
    fn the_talks_figure_has_a_local_round_trip() {
        for (rtt, b) in [(0.000_602, 1.0), (0.000_426, 2.0)] {
            let mbit = goodput_bps(&at(rtt, b)) / 1e6;
            assert!((mbit - 235.5).abs() < 0.2, "{mbit}");
        }
    }

    /// 1460 B, 100 ms, 1 %, no delayed ACKs: 1460 * 8 / 0.1 * 1.2247 / 0.1 = 1.4305 Mbit/s.
    #[test]
    fn a_worked_number() {
        let c = Conditions {
            mss_bytes: 1460.0,
            ..at(0.1, 1.0)
        };
        assert!((goodput_bps(&c) - 1.430_5e6).abs() < 1e2);
    }

    /// 1448 B, 2 ms, 1 %: 1448 * 8 / 0.002 / 0.1 = 57.92 Mbit/s, times 0.8660 with delayed ACKs (50.16),
    /// times 1.2247 for who counts segments (70.94), whatever its ACKs cover.
    #[test]
    fn segment_counting_senders_tolerate_delayed_acks() {
        let delayed = at(0.002, 2.0);
        assert!((goodput_bps(&delayed) / 1e6 - 50.160).abs() < 1e-3);
        for b in [1.0, 1.4, 2.0] {
            let per_segment = per_segment_goodput_bps(&at(0.002, b)) / 1e6;
            assert!((per_segment - 70.937).abs() < 1e-3, "{per_segment}");
        }
    }

    #[test]
    fn mathis_gives_the_link_rate_where_models_meet() {
        let c = at(0.000_602, 1.0);
        let p = loss_rate_at(850e6, &c);
        assert!((p - 7.687e-4).abs() < 1e-6, "{p}");
        let there = Conditions {
            loss_event_rate: p,
            ..c
        };
        assert!((goodput_bps(&there) / 850e6 - 1.0).abs() < 1e-9);
        assert_eq!(loss_rate_at(1.0, &c), 1.0);
    }

    #[test]
    fn without_loss_nothing_bounds_it() {
        let c = Conditions {
            loss_event_rate: 0.0,
            ..at(0.1, 1.0)
        };
        assert_eq!(goodput_bps(&c), f64::INFINITY);
    }
}
