//! The quality of a call: the E-model of ITU-T G.107 (06/2015) for narrow-band speech.
//!
//! Everything but delay and loss has the defaults of its table 2, so that what differs between two
//! results is the network. Loss is what playout misses ([`crate::playout`]): lost packets and late
//! ones. Deliberately absent: wide-band (G.107.1) and advantage factors.

/// Resistance of a codec to loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    /// Equipment impairment `Ie` without loss.
    pub impairment: f64,
    /// Packet-loss robustness `Bpl`.
    pub robustness: f64,
}

impl Codec {
    /// G.711 that plays silence for what is missing (G.113 appendix I; the default of G.107).
    pub const G711: Codec = Codec {
        impairment: 0.0,
        robustness: 4.3,
    };
    /// G.711 with concealment (G.711 appendix I), as telephones have it (G.113 appendix I).
    pub const G711_CONCEALED: Codec = Codec {
        impairment: 0.0,
        robustness: 25.1,
    };
}

/// The sound that the listener receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Mouth to ear, ms.
    pub delay_ms: f64,
    /// Share of packets that are missing at playout, 0..1.
    pub loss: f64,
    /// Mean burst length against that of independent loss; 1: independent.
    pub burst_ratio: f64,
}

/// G.107 states the burst ratio's validity as 1 to 8 (table 2).
const BURST_RATIO: (f64, f64) = (1.0, 8.0);

// Defaults of G.107 table 2, in its symbols.
const SLR: f64 = 8.0;
const RLR: f64 = 2.0;
const STMR: f64 = 15.0;
const D_S: f64 = 3.0;
const D_R: f64 = 3.0;
const TELR: f64 = 65.0;
const WEPL: f64 = 110.0;
const QDU: f64 = 1.0;
const N_C: f64 = -70.0;
const N_FOR: f64 = -64.0;
const P_S: f64 = 35.0;
const P_R: f64 = 35.0;

/// The rating factor R (equation 7-1), about 93.2 at best.
pub fn rating(received: &Received, codec: Codec) -> f64 {
    let noise = noise_dbm();
    let signal = signal_to_noise(noise);
    signal
        - simultaneous(signal, noise, received.delay_ms)
        - delayed(signal, noise, received.delay_ms)
        - equipment(received, codec)
}

/// Mean opinion score of a conversation (annex B), 1 to 4.5.
pub fn mos(rating: f64) -> f64 {
    if rating <= 0.0 {
        return 1.0;
    }
    if rating >= 100.0 {
        return 4.5;
    }
    // Below R = 6.5 the polynomial dips under 1, which no listener can give.
    (1.0 + 0.035 * rating + rating * (rating - 60.0) * (100.0 - rating) * 7e-6).max(1.0)
}

/// No: all noise at the 0 dBr point, dBm0p (7-3 to 7-7).
fn noise_dbm() -> f64 {
    let olr = SLR + RLR;
    let capacity_sender = P_S - SLR - D_S - 100.0 + 0.004 * (P_S - olr - D_S - 14.0).powi(2);
    let lstr = STMR + D_R;
    let effective = P_R + 10.0 * (1.0 + 10f64.powf((10.0 - lstr) / 10.0)).log10();
    let capacity_receiver = RLR - 121.0 + effective + 0.008 * (effective - 35.0).powi(2);
    let floor = N_FOR + RLR;
    10.0 * [N_C, capacity_sender, capacity_receiver, floor]
        .iter()
        .map(|dbm| 10f64.powf(dbm / 10.0))
        .sum::<f64>()
        .log10()
}

/// Ro (7-2).
fn signal_to_noise(noise: f64) -> f64 {
    15.0 - 1.5 * (SLR + noise)
}

/// Is: too loud, side tone, quantisation (7-8 to 7-15).
fn simultaneous(signal: f64, noise: f64, delay_ms: f64) -> f64 {
    let x = SLR + RLR + 0.2 * (64.0 + noise - RLR);
    let loudness = 20.0 * ((1.0 + (x / 8.0).powi(8)).powf(1.0 / 8.0) - x / 8.0);
    let q = 37.0 - 15.0 * QDU.log10();
    let g = 1.07 + 0.258 * q + 0.0602 * q * q;
    let y = (signal - 100.0) / 15.0 + 46.0 / 8.4 - g / 9.0;
    let z = 46.0 / 30.0 - g / 40.0;
    let quantising = 15.0 * (1.0 + 10f64.powf(y) + 10f64.powf(z)).log10();
    loudness + side_tone(delay_ms) + quantising
}

/// Ist (7-10, 7-11).
fn side_tone(delay_ms: f64) -> f64 {
    let echo = (-delay_ms / 4.0).exp() * 10f64.powf(-TELR / 10.0);
    let s = -10.0 * (10f64.powf(-STMR / 10.0) + echo).log10();
    12.0 * (1.0 + ((s - 13.0) / 6.0).powi(8)).powf(1.0 / 8.0)
        - 28.0 * (1.0 + ((s + 1.0) / 19.4).powi(35)).powf(1.0 / 35.0)
        - 13.0 * (1.0 + ((s - 3.0) / 33.0).powi(13)).powf(1.0 / 13.0)
        + 29.0
}

/// Id: talker's echo, listener's echo, delay itself (7-16 to 7-28).
fn delayed(signal: f64, noise: f64, delay_ms: f64) -> f64 {
    let roe = -1.5 * (noise - RLR);
    let terv = TELR - 40.0 * ((1.0 + delay_ms / 10.0) / (1.0 + delay_ms / 150.0)).log10()
        + 6.0 * (-0.3 * delay_ms * delay_ms).exp();
    let re = 80.0 + 2.5 * (terv - 14.0);
    let half = (roe - re) / 2.0;
    let talker = (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - (-delay_ms).exp());

    let round_trip = 2.0 * delay_ms;
    let rle = 10.5 * (WEPL + 7.0) * (round_trip + 1.0).powf(-0.25);
    let half = (signal - rle) / 2.0;
    let listener = half + (half * half + 169.0).sqrt();
    talker + listener + too_long(delay_ms)
}

/// Idd: nothing up to 100 ms (7-27, 7-28 with sT = 1, mT = 100).
fn too_long(delay_ms: f64) -> f64 {
    if delay_ms <= 100.0 {
        return 0.0;
    }
    let x = (delay_ms / 100.0).log2();
    25.0 * ((1.0 + x.powi(6)).powf(1.0 / 6.0) - 3.0 * (1.0 + (x / 3.0).powi(6)).powf(1.0 / 6.0)
        + 2.0)
}

/// Ie,eff (7-29).
fn equipment(received: &Received, codec: Codec) -> f64 {
    let percent = received.loss * 100.0;
    let burst_ratio = received.burst_ratio.clamp(BURST_RATIO.0, BURST_RATIO.1);
    codec.impairment
        + (95.0 - codec.impairment) * percent / (percent / burst_ratio + codec.robustness)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G.107's own algorithm with its defaults: (delay ms, loss %, codec, burst ratio) -> (R, MOS).
    /// R without delay and loss is the Recommendation's 93.2.
    #[test]
    fn reference_values_to_two_hundredths() {
        let plain = Codec::G711;
        let concealed = Codec::G711_CONCEALED;
        for (delay_ms, percent, codec, burst_ratio, r, score) in [
            (0.0, 0.0, plain, 1.0, 93.21, 4.41),
            (100.0, 0.0, plain, 1.0, 90.66, 4.35),
            (100.0, 1.0, plain, 1.0, 72.74, 3.72),
            (100.0, 2.0, plain, 1.0, 60.51, 3.13),
            (100.0, 5.0, plain, 1.0, 39.59, 2.04),
            (100.0, 10.0, plain, 1.0, 24.23, 1.39),
            (200.0, 0.0, plain, 1.0, 85.80, 4.22),
            (200.0, 1.0, plain, 1.0, 67.88, 3.50),
            (200.0, 2.0, plain, 1.0, 55.65, 2.87),
            (400.0, 0.0, plain, 1.0, 62.25, 3.22),
            (100.0, 0.0, concealed, 1.0, 90.66, 4.35),
            (100.0, 1.0, concealed, 1.0, 87.02, 4.26),
            (100.0, 2.0, concealed, 1.0, 83.65, 4.15),
            (100.0, 5.0, concealed, 1.0, 74.88, 3.82),
            (100.0, 10.0, concealed, 1.0, 63.60, 3.28),
            (100.0, 1.0, plain, 2.0, 70.87, 3.64),
            (100.0, 5.0, plain, 2.0, 20.81, 1.28),
        ] {
            let received = Received {
                delay_ms,
                loss: percent / 100.0,
                burst_ratio,
            };
            let got = rating(&received, codec);
            assert!((got - r).abs() <= 0.02, "{received:?}: R {got}, not {r}");
            assert!(
                (mos(got) - score).abs() <= 0.02,
                "{received:?}: {}",
                mos(got)
            );
        }
    }

    #[test]
    fn score_stays_between_one_and_four_and_half() {
        assert_eq!([mos(-5.0), mos(0.0), mos(3.0)], [1.0, 1.0, 1.0]);
        assert_eq!([mos(100.0), mos(120.0)], [4.5, 4.5]);
        let scores: Vec<f64> = (0..=100).map(|r| mos(f64::from(r))).collect();
        assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn burst_ratios_are_clamped_to_the_recommendation() {
        let received = |burst_ratio| Received {
            delay_ms: 50.0,
            loss: 0.02,
            burst_ratio,
        };
        let of = |burst_ratio| rating(&received(burst_ratio), Codec::G711);
        assert_eq!(of(0.5), of(1.0));
        assert_eq!(of(50.0), of(8.0));
        assert!(of(8.0) < of(2.0));
    }
}
