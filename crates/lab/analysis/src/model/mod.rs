//! The goodput of a flow in theory, from its *measured* round trip and rate of loss events.
//!
//! | model | what it knows | source |
//! |---|---|---|
//! | [`mathis`] | Reno's saw-tooth without timeouts | Mathis et al., CCR 27(3), 1997 |
//! | [`padhye`] | Reno with timeouts, as Linux had no SACK | Padhye et al., ToN 8(2), 2000 |
//! | [`cubic`] | CUBIC, its Reno-friendly region included | RFC 9438 section 5 |
//!
//! BBR has no entry: its rate does not follow the rate of loss, so no response function of this form
//! exists. No model includes the link: [`Prediction::bounded`] does.

pub mod cubic;
pub mod mathis;
pub mod padhye;

/// The conditions of a flow that the models use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Mean round trip with the queue in it, seconds.
    pub rtt_seconds: f64,
    /// Loss events a segment sent (not losses: congestion control halves once for many).
    pub loss_event_rate: f64,
    /// Payload of a segment, bytes.
    pub mss_bytes: f64,
    /// Segments that one ACK covers; 1: every segment is acknowledged.
    pub segments_per_ack: f64,
    /// First retransmission timeout, seconds.
    pub timeout_seconds: f64,
}

impl Conditions {
    /// Segments a second, as bits of payload a second.
    fn goodput_bps(&self, segments_per_second: f64) -> f64 {
        segments_per_second * self.mss_bytes * 8.0
    }
}

/// Goodput that each model predicts, bits a second; infinite without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// [`mathis`].
    pub mathis_bps: f64,
    /// [`padhye`].
    pub padhye_bps: f64,
    /// [`cubic`]; none for a flow that is not CUBIC.
    pub cubic_bps: Option<f64>,
}

impl Prediction {
    /// The predictions of the models for a flow under `conditions`; `None` for a congestion control
    /// without a model (only `reno` and `cubic` have one).
    pub fn of(congestion: &str, conditions: &Conditions) -> Option<Prediction> {
        let described = matches!(congestion, "reno" | "cubic");
        described.then(|| Prediction {
            mathis_bps: mathis::goodput_bps(conditions),
            padhye_bps: padhye::goodput_bps(conditions),
            cubic_bps: (congestion == "cubic").then(|| cubic::goodput_bps(conditions)),
        })
    }

    /// The same, no model above what the link lets through.
    pub fn bounded(self, limit_bps: f64) -> Prediction {
        Prediction {
            mathis_bps: self.mathis_bps.min(limit_bps),
            padhye_bps: self.padhye_bps.min(limit_bps),
            cubic_bps: self.cubic_bps.map(|bps| bps.min(limit_bps)),
        }
    }

    /// Both flows' models together, for flows that share a link.
    pub fn plus(self, other: Prediction) -> Prediction {
        Prediction {
            mathis_bps: self.mathis_bps + other.mathis_bps,
            padhye_bps: self.padhye_bps + other.padhye_bps,
            cubic_bps: match (self.cubic_bps, other.cubic_bps) {
                (Some(a), Some(b)) => Some(a + b),
                _ => None,
            },
        }
    }

    /// Mathis or RFC 9438, whichever is nearer to the measurement, with its name.
    ///
    /// The two differ at high loss only by how an ACK for several segments counts. Padhye does not
    /// compete: its timeouts are those of a sender without SACK.
    pub fn nearest(&self, measured_bps: f64) -> (&'static str, f64) {
        let mathis = ("Mathis", self.mathis_bps);
        match self.cubic_bps {
            Some(cubic) if (cubic - measured_bps).abs() < (mathis.1 - measured_bps).abs() => {
                ("RFC 9438", cubic)
            }
            _ => mathis,
        }
    }
}

/// The residual of a measurement, as a share of the prediction: 0.1 is 10 % above.
pub fn residual(measured_bps: f64, predicted_bps: f64) -> f64 {
    measured_bps / predicted_bps - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions() -> Conditions {
        Conditions {
            rtt_seconds: 0.000_602,
            loss_event_rate: 0.01,
            mss_bytes: 1448.0,
            segments_per_ack: 2.0,
            timeout_seconds: 0.2,
        }
    }

    #[test]
    fn only_reno_and_cubic_are_predicted() {
        assert!(Prediction::of("bbr", &conditions()).is_none());
        let reno = Prediction::of("reno", &conditions()).unwrap();
        assert_eq!(reno.cubic_bps, None);
        let cubic = Prediction::of("cubic", &conditions()).unwrap();
        assert!(cubic.cubic_bps.unwrap() > cubic.mathis_bps, "{cubic:?}");
    }

    #[test]
    fn without_loss_the_link_is_the_prediction() {
        let no_loss = Conditions {
            loss_event_rate: 0.0,
            ..conditions()
        };
        let bounded = Prediction::of("cubic", &no_loss).unwrap().bounded(9e8);
        assert_eq!(
            bounded,
            Prediction {
                mathis_bps: 9e8,
                padhye_bps: 9e8,
                cubic_bps: Some(9e8)
            }
        );
    }

    #[test]
    fn nearer_of_mathis_and_the_rfc_is_named() {
        let prediction = Prediction {
            mathis_bps: 100.0,
            padhye_bps: 119.0,
            cubic_bps: Some(140.0),
        };
        assert_eq!(prediction.nearest(115.0), ("Mathis", 100.0));
        assert_eq!(prediction.nearest(125.0), ("RFC 9438", 140.0));
        assert!((residual(125.0, 100.0) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn flows_on_one_link_add_up() {
        let one = Prediction {
            mathis_bps: 1.0,
            padhye_bps: 2.0,
            cubic_bps: Some(3.0),
        };
        let reno = Prediction {
            cubic_bps: None,
            ..one
        };
        assert_eq!(one.plus(one).cubic_bps, Some(6.0));
        assert_eq!(one.plus(reno).cubic_bps, None);
        assert_eq!(one.plus(reno).mathis_bps, 2.0);
    }
}
