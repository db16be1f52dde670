//! Reno with timeouts.
//!
//! J. Padhye, V. Firoiu, D. Towsley, J. Kurose, "Modeling TCP Reno performance: a simple model and
//! its empirical validation", IEEE/ACM ToN 8(2), 2000: the full model (equation 32), with the chance
//! that a loss ends in a timeout (equation 24) and back-off by doubling (equation 29), and its
//! approximation (equation 33, also RFC 5348 section 3.1). The receiver's window is omitted: a run that it
//! limits is invalid and is not compared.
//!
//! SACK, RACK and tail loss probes avoid most of these timeouts for present senders. So at short
//! round-trip times this model is far below the measurements. The page states the difference.

use super::Conditions;

/// Mean goodput by the full model, bits of payload a second; infinite without loss.
pub fn goodput_bps(c: &Conditions) -> f64 {
    let p = c.loss_event_rate;
    if p <= 0.0 {
        return f64::INFINITY;
    }
    // At p = 1 nothing ever arrives; the formula divides by 1 - p.
    if p >= 1.0 {
        return 0.0;
    }
    let b = c.segments_per_ack.max(1.0);
    let window = mean_window_at_loss(p, b);
    let timeouts = timeout_share(p, window) / (1.0 - p);
    let segments = (1.0 - p) / p + window + timeouts;
    let seconds =
        c.rtt_seconds * (b / 2.0 * window + 1.0) + timeouts * c.timeout_seconds * back_off(p);
    c.goodput_bps(segments / seconds)
}

/// The approximation.
pub fn approximate_goodput_bps(c: &Conditions) -> f64 {
    let p = c.loss_event_rate;
    if p <= 0.0 {
        return f64::INFINITY;
    }
    let b = c.segments_per_ack.max(1.0);
    let saw_tooth = c.rtt_seconds * (2.0 * b * p / 3.0).sqrt();
    let timeouts = (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    c.goodput_bps(1.0 / (saw_tooth + c.timeout_seconds * timeouts))
}

/// E[W_u], segments (equation 13).
fn mean_window_at_loss(p: f64, b: f64) -> f64 {
    let part = (2.0 + b) / (3.0 * b);
    part + (8.0 * (1.0 - p) / (3.0 * b * p) + part * part).sqrt()
}

/// The probability that a loss in a window of `w` segments causes a timeout (equation 24).
fn timeout_share(p: f64, w: f64) -> f64 {
    if w <= 3.0 {
        return 1.0;
    }
    let q = 1.0 - p;
    let three = q.powi(3);
    let share = (1.0 - three) * (1.0 + three * (1.0 - q.powf(w - 3.0))) / (1.0 - q.powf(w));
    share.min(1.0)
}

/// f(p): mean length of a row of doubling timeouts, in first timeouts (equation 29).
fn back_off(p: f64) -> f64 {
    // p + 2 p^2 + 4 p^3 + ... + 32 p^6: doubling ends at 64 times the first.
    1.0 + p
        + 2.0 * p.powi(2)
        + 4.0 * p.powi(3)
        + 8.0 * p.powi(4)
        + 16.0 * p.powi(5)
        + 32.0 * p.powi(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rtt_seconds: f64, p: f64, b: f64) -> Conditions {
        Conditions {
            rtt_seconds,
            loss_event_rate: p,
            mss_bytes: 1448.0,
            segments_per_ack: b,
            timeout_seconds: 0.2,
        }
    }

    fn segments_per_second(bps: f64) -> f64 {
        bps / (1448.0 * 8.0)
    }

    /// Worked with an independent program from the paper's equations.
    #[test]
    fn worked_numbers_of_the_full_model() {
        for (rtt, p, b, expected) in [
            (0.1, 0.01, 1.0, 115.694),
            (0.1, 0.01, 2.0, 81.082),
            (0.1, 0.0001, 1.0, 1221.779),
            (0.1, 0.0001, 2.0, 863.176),
        ] {
            let got = segments_per_second(goodput_bps(&at(rtt, p, b)));
            assert!((got / expected - 1.0).abs() < 1e-4, "{rtt} {p} {b}: {got}");
        }
    }

    /// At the talk's 1 % and 0.602 ms: 19.6 Mbit/s, a twelfth of what was measured there.
    #[test]
    fn a_local_network_is_predicted_far_too_low() {
        let c = at(0.000_602, 0.01, 2.0);
        assert!((approximate_goodput_bps(&c) / 1e6 - 19.61).abs() < 0.01);
        assert!((goodput_bps(&c) / 1e6 - 19.85).abs() < 0.01);
    }

    #[test]
    fn both_forms_agree_where_loss_is_rare() {
        for p in [1e-4, 1e-3, 1e-2] {
            for b in [1.0, 2.0] {
                let c = at(0.1, p, b);
                let ratio = goodput_bps(&c) / approximate_goodput_bps(&c);
                assert!((ratio - 1.0).abs() < 0.05, "{p} {b}: {ratio}");
            }
        }
    }

    #[test]
    fn without_timeouts_it_is_the_square_root_law() {
        let c = Conditions {
            timeout_seconds: 0.0,
            ..at(0.1, 1e-6, 2.0)
        };
        let ratio = goodput_bps(&c) / super::super::mathis::goodput_bps(&c);
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn the_ends_of_the_range_are_finite() {
        assert_eq!(goodput_bps(&at(0.1, 0.0, 1.0)), f64::INFINITY);
        assert_eq!(goodput_bps(&at(0.1, 1.0, 1.0)), 0.0);
        let nearly = goodput_bps(&at(0.1, 0.9, 1.0));
        assert!(nearly > 0.0 && nearly < 1e5, "{nearly}");
    }
}
