//! CUBIC's response function.
//!
//! RFC 9438 section 5.1: the mean window between evenly spaced losses is
//! `(C (3 + beta) / (4 (1 - beta)))^(1/4) * (RTT / p)^(3/4)` segments, with C = 0.4 and beta = 0.7
//! (section 4.1, 4.6). In the Reno-friendly region (section 4.3) the window is that of an
//! AIMD(alpha, beta) sender whose alpha is chosen to equal Reno: `sqrt(3 / (2 p))` for every
//! segment acknowledged. CUBIC takes the larger of both.
//!
//! RFC and Linux count segments and not ACKs, so delayed ACKs do not slow this growth.

use super::Conditions;

/// The scale of the cubic function, segments / s^3 (RFC 9438 section 5).
const C: f64 = 0.4;
/// The remaining share of the window after a loss (RFC 9438 section 4.6).
const BETA: f64 = 0.7;

/// Mean window in segments; infinite without loss.
pub fn window(rtt_seconds: f64, loss_event_rate: f64) -> f64 {
    window_of(C, rtt_seconds, loss_event_rate)
}

/// The Reno-friendly region's share of it: what a Reno sender would have.
fn reno_window(loss_event_rate: f64) -> f64 {
    (1.5 / loss_event_rate).sqrt()
}

fn window_of(c: f64, rtt_seconds: f64, p: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    let shape = (c * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    (shape * (rtt_seconds / p).powf(0.75)).max(reno_window(p))
}

/// True if the Reno-friendly region decides.
pub fn is_reno_friendly(rtt_seconds: f64, loss_event_rate: f64) -> bool {
    loss_event_rate > 0.0 && window(rtt_seconds, loss_event_rate) <= reno_window(loss_event_rate)
}

/// Mean goodput, bits of payload a second; infinite without loss.
pub fn goodput_bps(c: &Conditions) -> f64 {
    c.goodput_bps(window(c.rtt_seconds, c.loss_event_rate) / c.rtt_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 section 5.1, table 1 (RTT 0.1 s) and table 2 (0.01 s), columns C = 0.04, 0.4, 4.
    ///
    /// The cubic region is exact to the segment; the RFC rounds sqrt(3/2) to 1.2 in Reno's.
    #[test]
    fn the_tables_of_the_rfc() {
        let rows = [
            (0.1, 1e-2, [12.0, 12.0, 12.0]),
            (0.1, 1e-3, [38.0, 38.0, 59.0]),
            (0.1, 1e-4, [120.0, 187.0, 333.0]),
            (0.1, 1e-5, [593.0, 1054.0, 1874.0]),
            (0.1, 1e-6, [3332.0, 5926.0, 10538.0]),
            (0.1, 1e-7, [18740.0, 33325.0, 59261.0]),
            (0.1, 1e-8, [105_383.0, 187_400.0, 333_250.0]),
            (0.01, 1e-4, [120.0, 120.0, 120.0]),
            (0.01, 1e-7, [3795.0, 5926.0, 10538.0]),
            (0.01, 1e-8, [18740.0, 33325.0, 59261.0]),
        ];
        for (rtt, p, expected) in rows {
            for (c, expected) in [0.04, 0.4, 4.0].into_iter().zip(expected) {
                let got = window_of(c, rtt, p);
                let holds = if got <= reno_window(p) {
                    (got / expected - 1.0).abs() < 0.03
                } else {
                    got.round() == expected
                };
                assert!(holds, "{rtt} {p} {c}: {got}");
            }
        }
    }

    #[test]
    fn short_round_trips_are_renos() {
        assert!(is_reno_friendly(0.000_6, 0.01));
        assert!(!is_reno_friendly(0.1, 1e-4));
        assert!((window(0.000_6, 0.01) - 12.247).abs() < 1e-3);
    }

    #[test]
    fn without_loss_nothing_bounds_it() {
        assert_eq!(window(0.1, 0.0), f64::INFINITY);
        assert!(!is_reno_friendly(0.1, 0.0));
    }
}
