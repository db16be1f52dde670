//! Validation: compares the measurements of a direction with its configuration. Pure.
//!
//! | check | condition of a valid run |
//! |---|---|
//! | loss | the 99.9 % interval of the measured loss contains the configured one ([`interval`]) |
//! | pattern | exactly the packets of the pattern are lost |
//! | delay | the mean added delay is within 5 % of the planned, and the planned of the configured |
//! | scatter | the deviation of the lateness is within 5 % of the planned delay, and the planned deviation is the configured one |
//! | bypassed | at most 0.1 % of the packets that should be impaired, or ten |
//! | unplanned drops | none in this process or in the queues of the kernel, and the counters are readable |
//!
//! The planned delay of a packet is its random delay plus the time for rate and queue in virtual time.
//! It is compared with the configuration only if nothing else delays packets. Keeping the order under
//! jitter lengthens delays by design, which is reported but valid. The added delay is compared with the
//! planned one for all packets that wait, also for a rate, a slot or a release.
//!
//! Mean and scatter are each compared by two clocks: the virtual clock of the plan with the
//! configuration, and the clock of the back end with the plan. A mean alone is valid also if a few
//! packets are very late. The maximum of the lateness has no limit, since one late wake-up determines it.

use std::sync::Arc;

use crate::counts::Counts;
use crate::interval;

/// Maximum relative error of a mean delay.
const DELAY_SHARE: f64 = 0.05;
/// Mean lateness that is always allowed with a configured delay, ns.
const MIN_LATE_NS: f64 = 50e3;
/// The same without a configured delay, ns. An idle link has no planned delay, but a thread takes time
/// to wake.
const MIN_LATE_OF_LINK_NS: f64 = 500e3;
/// Minimum delayed packets for a comparison of means.
const MIN_DELAYS: u64 = 10;
/// The same for deviations. Of fewer packets, one late wake-up decides.
const MIN_SCATTERED: u64 = 100;
/// The limits of the lateness's deviation are those of its mean, times this where they are constant. A
/// timer of a virtual machine that is 2 ms late once in a thousand times adds 63 us.
const SCATTERS: f64 = 5.0;
/// Difference of planned deviations that rounding can cause, ns.
const ROUNDING_NS: f64 = 1e3;
/// The deviation of an observed deviation, times the root of the packets, as a share of it: 0.7 for a
/// normal distribution, 3 for one with a kurtosis of 37.
const HEAVY_TAIL: f64 = 3.0;
/// Maximum share of packets that bypass the impairment. The first packet to an unresolved neighbour
/// always does.
const BYPASSED_SHARE: f64 = 0.001;
const MIN_BYPASSED: u64 = 10;
/// Maximum digits after the point of a share in percent. 64-bit probabilities are not smaller.
const MAX_DIGITS: i32 = 20;
/// 99.9 % of a normal distribution are within this number of deviations.
const DEVIATIONS: f64 = 3.29;

/// The configuration of a direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configured {
    /// The mean loss, 0 to 1.
    pub loss: f64,
    /// The variance of a loss share over that of independent losses.
    pub inflation: f64,
    /// The repeated pattern of losses, if losses are not random.
    pub pattern: Option<Arc<[bool]>>,
    /// The mean delay, ns, or `None` without a delay.
    pub delay_ns: Option<f64>,
    /// The deviation of delays, ns.
    pub jitter_ns: f64,
    /// The deviation of delays, ns, of which negative ones count as 0.
    pub deviation_ns: f64,
    /// The effect of correlated delays: `n` of them are worth `n / delay_inflation` independent ones.
    pub delay_inflation: f64,
    /// Only the configured delay affects packets: no rate, and no early packets.
    pub only_delay: bool,
    /// Packets wait for a delay, a rate, slots or releases.
    pub holds: bool,
    /// Packets keep their order under jitter, which increases the mean by design.
    pub kept_order: bool,
}

/// The result of the comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// The measured loss, or `None` before the first packet.
    pub loss: Option<f64>,
    /// Its interval.
    pub loss_interval: [f64; 2],
    /// The reasons why the run is invalid. Empty for a valid run.
    pub why: Vec<String>,
}

impl Configured {
    /// Mean lateness that is always allowed.
    fn min_late_ns(&self) -> f64 {
        match self.delay_ns {
            Some(_) => MIN_LATE_NS,
            None => MIN_LATE_OF_LINK_NS,
        }
    }

    /// The losses of a pattern in `packets` packets, or `None` for random losses.
    pub fn lost_by_pattern(&self, packets: u64) -> Option<u64> {
        let bits = self.pattern.as_ref().filter(|bits| !bits.is_empty())?;
        let ones = |bits: &[bool]| bits.iter().filter(|is_lost| **is_lost).count() as u64;
        let length = bits.len() as u64;
        let rest = usize::try_from(packets % length).unwrap_or_default();
        Some(packets / length * ones(bits) + ones(&bits[..rest]))
    }
}

/// Compares counts with the configuration.
pub fn validate(configured: &Configured, counts: &Counts) -> Validation {
    let (low, high) =
        interval::of_share(counts.lost, counts.arrived, configured.inflation.max(1.0));
    let mut validation = Validation {
        loss: (counts.arrived > 0).then(|| counts.lost as f64 / counts.arrived as f64),
        loss_interval: [low, high],
        why: Vec::new(),
    };
    validation
        .why
        .extend(of_loss(configured, counts, [low, high]));
    validation.why.extend(of_delay(configured, counts));
    validation
        .why
        .extend(of_lateness_scatter(configured, counts));
    validation
        .why
        .extend(of_planned_scatter(configured, counts));
    validation.why.extend(of_drops(counts));
    validation
}

fn of_loss(configured: &Configured, counts: &Counts, [low, high]: [f64; 2]) -> Option<String> {
    let (lost, arrived) = (counts.lost, counts.arrived);
    // The segments of a GSO packet share one outcome, which is reported separately.
    if let Some(wanted) = configured
        .lost_by_pattern(arrived)
        .filter(|_| counts.gso_packets == 0)
    {
        // The outcome of the last packet can be pending.
        let min = wanted.saturating_sub(u64::from(counts.held > 0));
        let is_right = (min..=wanted).contains(&lost);
        return (!is_right).then(|| {
            format!("{lost} of {arrived} packets were lost, but the pattern loses {wanted}")
        });
    }
    (!(low..=high).contains(&configured.loss)).then(|| {
        format!(
            "{lost} of {arrived} packets were lost, which is {} to {} instead of {}",
            percent(low),
            percent(high),
            percent(configured.loss)
        )
    })
}

fn of_delay(configured: &Configured, counts: &Counts) -> Option<String> {
    let (added, planned) = counts.mean_delays_ns()?;
    if counts.delays < MIN_DELAYS || !configured.holds {
        return None;
    }
    let min = configured.min_late_ns();
    if (added - planned).abs() > (planned * DELAY_SHARE).max(min) {
        return Some(format!(
            "the mean lateness was {:.3} ms, more than 5 % of the planned {:.3} ms",
            (added - planned) / 1e6,
            planned / 1e6
        ));
    }
    let wanted = configured.delay_ns?;
    let max = wanted * DELAY_SHARE;
    let worth = counts.delays as f64 / configured.delay_inflation.max(1.0);
    let scatter = DEVIATIONS * configured.jitter_ns / worth.sqrt();
    let longer = planned - wanted > max + scatter && !configured.kept_order;
    let shorter = wanted - planned > max + scatter;
    (configured.only_delay && (longer || shorter)).then(|| {
        format!(
            "the mean delay was {:.3} ms, not within 5 % of {:.3} ms",
            planned / 1e6,
            wanted / 1e6
        )
    })
}

/// By the clock of the back end: packets that are late by different times.
fn of_lateness_scatter(configured: &Configured, counts: &Counts) -> Option<String> {
    let (_, planned) = counts.mean_delays_ns()?;
    let scatter = counts.lateness_deviation_ns()?;
    if counts.delays < MIN_SCATTERED || !configured.holds {
        return None;
    }
    let max = (planned * DELAY_SHARE).max(configured.min_late_ns() * SCATTERS);
    (scatter > max).then(|| {
        format!(
            "the lateness had a standard deviation of {:.3} ms, more than {:.3} ms: other programs need the processors, or the rate is too high",
            scatter / 1e6,
            max / 1e6
        )
    })
}

/// By the virtual clock: delays that scatter more or less than configured.
fn of_planned_scatter(configured: &Configured, counts: &Counts) -> Option<String> {
    let planned = counts.planned_deviation_ns()?;
    // Packets that keep their order wait for each other, and scatter less.
    let is_own = configured.only_delay && !configured.kept_order;
    if counts.delays < MIN_SCATTERED || !is_own || configured.delay_ns.is_none() {
        return None;
    }
    let wanted = configured.deviation_ns;
    let worth = counts.delays as f64 / configured.delay_inflation.max(1.0);
    let chance = DEVIATIONS * HEAVY_TAIL * wanted / worth.sqrt();
    let max = wanted * DELAY_SHARE + chance + ROUNDING_NS;
    ((planned - wanted).abs() > max).then(|| {
        format!(
            "the planned delays had a standard deviation of {:.3} ms instead of {:.3} ms",
            planned / 1e6,
            wanted / 1e6
        )
    })
}

fn of_drops(counts: &Counts) -> Vec<String> {
    let mut why: Vec<String> = counts.own.why().collect();
    why.extend(counts.unread.iter().map(|what| {
        format!("drops in the kernel are unknown, because a counter could not be read: {what}")
    }));
    let slipped = counts.slipped as f64;
    let is_many = slipped > BYPASSED_SHARE * (counts.arrived as f64 + slipped);
    if counts.slipped > MIN_BYPASSED && is_many {
        why.push(format!(
            "{} packets bypassed the impairment (IP options, longer than the MTU, or an unresolved neighbour): use --via nfqueue, which impairs them",
            counts.slipped
        ));
    }
    if counts.queue_dropped > 0 {
        why.push(format!(
            "{} packets were dropped in the kernel before the impairment: reduce the load on this machine",
            counts.queue_dropped
        ));
    }
    if counts.reordered > 0 {
        why.push(format!(
            "{} packets were reordered unexpectedly",
            counts.reordered
        ));
    }
    if counts.gso_packets > 0 {
        why.push(format!(
            "{} GSO packets had one outcome for all of their segments: disable the sender's offloads (ethtool -K IF tso off gso off gro off)",
            counts.gso_packets
        ));
    }
    why
}

/// A share in percent with four digits after the point, or with the first three that are not 0.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent.abs() {
        small if small > 0.0 && small < 0.001 => 2 - small.log10().floor() as i32,
        _ => 4,
    };
    let text = format!("{percent:.*}", digits.clamp(4, MAX_DIGITS) as usize);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURED: Configured = Configured {
        loss: 0.01,
        inflation: 1.0,
        pattern: None,
        delay_ns: Some(20e6),
        jitter_ns: 0.0,
        deviation_ns: 0.0,
        delay_inflation: 1.0,
        only_delay: true,
        holds: true,
        kept_order: false,
    };

    fn counts(lost: u64, planned: u64, late: u64) -> Counts {
        let mut counts = Counts {
            arrived: 100_000,
            lost,
            ..Counts::default()
        };
        for _ in 0..100 {
            counts.note_left(1, planned, 1 + planned + late);
        }
        counts
    }

    fn why(configured: &Configured, counts: &Counts) -> Vec<String> {
        validate(configured, counts).why
    }

    #[test]
    fn run_as_configured_is_valid() {
        let validation = validate(&CONFIGURED, &counts(1_030, 20_000_000, 30_000));
        assert_eq!(validation.why, [""; 0]);
        assert_eq!(validation.loss, Some(0.0103));
        let [low, high] = validation.loss_interval;
        assert!(low < 0.01 && high > 0.0103 && high - low < 0.003);
    }

    #[test]
    fn loss_outside_of_its_interval_is_invalid() {
        for lost in [800, 1_200] {
            let [why] = &why(&CONFIGURED, &counts(lost, 20_000_000, 0))[..] else {
                panic!("{lost}");
            };
            assert!(why.contains("instead of 1 %"), "{why}");
        }
        // With bursts of ten the same count is plausible.
        let bursts = Configured {
            inflation: 10.0,
            ..CONFIGURED
        };
        assert!(why(&bursts, &counts(1_200, 20_000_000, 0)).is_empty());
    }

    #[test]
    fn unconfigured_loss_is_invalid() {
        let none = Configured {
            loss: 0.0,
            ..CONFIGURED
        };
        assert_eq!(why(&none, &counts(1, 20_000_000, 0)).len(), 1);
        assert!(why(&none, &counts(0, 20_000_000, 0)).is_empty());
        assert!(why(&CONFIGURED, &Counts::default()).is_empty());
    }

    #[test]
    fn late_or_wrong_mean_delay_is_invalid() {
        assert!(why(&CONFIGURED, &counts(1_000, 20_000_000, 1_100_000))[0].contains("late"));
        assert!(why(&CONFIGURED, &counts(1_000, 18_900_000, 0))[0].contains("not within"));
        assert!(why(&CONFIGURED, &counts(1_000, 21_100_000, 0))[0].contains("not within"));
        // A queue, kept order and jitter all change the mean delay.
        let rate = Configured {
            only_delay: false,
            ..CONFIGURED
        };
        let kept = Configured {
            kept_order: true,
            ..CONFIGURED
        };
        let wide = Configured {
            jitter_ns: 5e6,
            ..CONFIGURED
        };
        for configured in [rate, kept, wide] {
            assert!(
                why(&configured, &counts(1_000, 21_100_000, 0)).is_empty(),
                "{configured:?}"
            );
        }
    }

    /// Packets with these planned delays and lateness.
    fn scattered(packets: u64, each: impl Fn(u64) -> (u64, u64)) -> Counts {
        let mut counts = Counts::default();
        for n in 0..packets {
            let (planned, late) = each(n);
            counts.note_left(1, planned, 1 + planned + late);
        }
        counts
    }

    const DELAY: Configured = Configured {
        loss: 0.0,
        ..CONFIGURED
    };

    #[test]
    fn scattered_lateness_is_invalid_with_a_valid_mean() {
        // One of a hundred packets is 17 ms late: a mean of 0.17 ms, a deviation of 1.7 ms.
        let late = |n: u64| {
            (
                20_000_000,
                if n.is_multiple_of(100) { 17_000_000 } else { 0 },
            )
        };
        let reasons = why(&DELAY, &scattered(10_000, late));
        let [reason] = &reasons[..] else {
            panic!("{reasons:?}");
        };
        assert!(
            reason.starts_with("the lateness had a standard deviation of 1.69"),
            "{reason}"
        );
        // One of ten thousand alone is a late wake-up.
        let once = |n: u64| (20_000_000, if n == 77 { 17_000_000 } else { 30_000 });
        assert_eq!(why(&DELAY, &scattered(10_000, once)), [""; 0]);
        // 5 % of the planned delay, or 250 us of a short one.
        let by = |delay: u64, off: u64| {
            scattered(1_000, move |n| {
                (delay, if n.is_multiple_of(2) { off } else { 0 })
            })
        };
        let short = Configured {
            delay_ns: Some(300e3),
            ..DELAY
        };
        assert_eq!(why(&DELAY, &by(20_000_000, 1_900_000)).len(), 0);
        assert_eq!(
            why(&DELAY, &by(20_000_000, 2_100_000)).len(),
            2,
            "and its mean"
        );
        assert!(why(&short, &by(300_000, 90_000)).is_empty());
        // A rate alone: idle links wait for threads to wake.
        let line = Configured {
            delay_ns: None,
            only_delay: false,
            ..DELAY
        };
        let wakes = |late: u64| {
            scattered(1_000, move |n| {
                (0, if n.is_multiple_of(20) { late } else { 0 })
            })
        };
        assert!(why(&line, &wakes(9_000_000)).is_empty());
        assert_eq!(why(&line, &wakes(12_000_000)).len(), 2, "and its mean");
    }

    #[test]
    fn planned_scatter_is_compared_with_the_jitter() {
        let jitter = Configured {
            jitter_ns: 5e6,
            deviation_ns: 5e6,
            ..DELAY
        };
        let by = |off: u64| {
            scattered(100_000, move |n| {
                (
                    if n.is_multiple_of(2) {
                        20_000_000 + off
                    } else {
                        20_000_000 - off
                    },
                    0,
                )
            })
        };
        assert_eq!(why(&jitter, &by(5_000_000)), [""; 0]);
        for off in [0, 4_000_000, 6_000_000] {
            let reasons = why(&jitter, &by(off));
            assert!(
                reasons[0].contains("instead of 5.000 ms"),
                "{off}: {reasons:?}"
            );
        }
        let reasons = why(&DELAY, &by(500_000));
        assert!(
            reasons[0].contains("0.500 ms instead of 0.000 ms"),
            "{reasons:?}"
        );
        // Order shortens the scatter, and few packets do not show it.
        let kept = Configured {
            kept_order: true,
            ..jitter.clone()
        };
        assert!(why(&kept, &by(1_000_000)).is_empty());
        let few = scattered(99, |_| (20_000_000, 0));
        assert!(why(&jitter, &few).is_empty());
    }

    #[test]
    fn pattern_must_match_exactly() {
        // Ten losses in a row are valid for a pattern, but too many for random losses of 1 %.
        let lumpy = Configured {
            pattern: Some((0..1000).map(|n| n < 10).collect()),
            ..CONFIGURED
        };
        let of = |arrived, lost, held| Counts {
            arrived,
            lost,
            held,
            ..Counts::default()
        };
        for right in [of(300, 10, 0), of(5, 5, 0), of(1_003, 13, 0), of(5, 4, 1)] {
            assert!(why(&lumpy, &right).is_empty(), "{right:?}");
        }
        for wrong in [of(300, 9, 0), of(300, 11, 0), of(2_000, 21, 3), of(5, 3, 1)] {
            let why = why(&lumpy, &wrong);
            assert!(why.len() == 1 && why[0].contains("the pattern"), "{why:?}");
        }
    }

    #[test]
    fn lateness_counts_for_rates_and_slots() {
        let line = Configured {
            delay_ns: None,
            only_delay: false,
            ..CONFIGURED
        };
        assert!(why(&line, &counts(1_000, 30_000_000, 100_000_000))[0].contains("late"));
        assert!(why(&line, &counts(1_000, 0, 600_000))[0].contains("late"));
        assert!(why(&line, &counts(1_000, 0, 400_000)).is_empty());
        let passing = Configured {
            holds: false,
            ..line
        };
        assert!(why(&passing, &counts(1_000, 0, 100_000_000)).is_empty());
    }

    #[test]
    fn every_unplanned_drop_is_invalid() {
        let make: [fn(&mut Counts); 6] = [
            |c| c.own.no_capacity = 1,
            |c| c.unread.push("read /proc: no such file".into()),
            |c| c.queue_dropped = 1,
            |c| c.reordered = 1,
            |c| c.gso_packets = 1,
            |c| c.slipped = 102,
        ];
        for make in make {
            let mut counts = counts(1_000, 20_000_000, 0);
            make(&mut counts);
            assert_eq!(why(&CONFIGURED, &counts).len(), 1);
        }
        // The first packet to an unresolved neighbour.
        let first = Counts {
            arrived: 20,
            slipped: 2,
            ..Counts::default()
        };
        assert!(why(&CONFIGURED, &first).is_empty());
    }

    #[test]
    fn shares_have_no_trailing_zeros() {
        assert_eq!(percent(0.01), "1 %");
        assert_eq!(percent(0.000_123), "0.0123 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1e-7), "0.00001 %");
        assert_eq!(percent(1.234_5e-9), "0.000000123 %");
    }
}
