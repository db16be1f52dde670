//! Whether a direction was impaired as was asked for. Pure.
//!
//! | question | answer that is true |
//! |---|---|
//! | loss | what was asked for lies in the 99.9 % interval of what was seen ([`interval`]) |
//! | pattern | exactly those of its packets that it has |
//! | delay | the mean that was added is within 5 % of the planned, and the planned of the asked |
//! | passed by | at most a thousandth of those that should have met it, or ten |
//! | own drops | none: neither here nor in the kernel's queues on the way here, and that is known |
//!
//! The planned delay of a packet is its drawn one, and what rate and queue add to it in virtual time.
//! It is held against what was asked for only where nothing but the delay holds packets; order that is
//! kept under jitter lengthens it by design, which is told and is no fault. What was added is held
//! against the planned wherever packets wait, be it for a rate, a slot or a release. Lateness is always
//! told and never judged by itself: it is in the mean.

use std::sync::Arc;

use crate::counts::Counts;
use crate::interval;

/// By how much of it a mean delay may be off.
const DELAY_SHARE: f64 = 0.05;
/// A mean may be late by so much, however short the delay that was asked for, ns.
const LEAST_LATE_NS: f64 = 50e3;
/// Likewise where no delay was: on an idle line none is planned, and a thread takes its time to wake.
const LEAST_LATE_OF_LINE_NS: f64 = 500e3;
/// Fewer delayed packets say nothing of a mean.
const LEAST_DELAYS: u64 = 10;
/// Of packets that should have met the impairment, so many may have slipped by it; the first to a
/// neighbour that nobody has asked for yet always does.
const SLIPPED_SHARE: f64 = 0.001;
const LEAST_SLIPPED: u64 = 10;
/// Digits of a share in percent behind the point: less is drawn by no 64-bit chance.
const MOST_DIGITS: i32 = 20;
/// Of a normal distribution, 99.9 % are within so many deviations.
const DEVIATIONS: f64 = 3.29;

/// What was asked of a direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The mean loss, 0 to 1.
    pub loss: f64,
    /// The variance of a loss share over that of independent losses.
    pub inflation: f64,
    /// Which packets are lost, over and over, where that is a pattern: nothing of it is chance.
    pub pattern: Option<Arc<[bool]>>,
    /// The mean delay, ns; `None` where none is asked for.
    pub delay_ns: Option<f64>,
    /// The deviation of delays, ns.
    pub jitter_ns: f64,
    /// Delays are correlated: a mean of `n` is worth one of `n / delay_inflation`.
    pub delay_inflation: f64,
    /// Nothing but the delay holds packets: no rate, and none goes ahead of others.
    pub only_delay: bool,
    /// Packets are held: by a delay, a rate, slots or releases.
    pub holds: bool,
    /// Jitter, and packets keep their order: the mean is longer by design.
    pub kept_order: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// The share that was lost; `None` before the first packet.
    pub loss: Option<f64>,
    /// Its interval.
    pub loss_interval: [f64; 2],
    /// What is not true, in words; empty: all is.
    pub why: Vec<String>,
}

impl Asked {
    /// How many of the first `packets` a pattern loses; `None` where losses are drawn.
    pub fn lost_by_pattern(&self, packets: u64) -> Option<u64> {
        let bits = self.pattern.as_ref().filter(|bits| !bits.is_empty())?;
        let ones = |bits: &[bool]| bits.iter().filter(|is_lost| **is_lost).count() as u64;
        let length = bits.len() as u64;
        let rest = usize::try_from(packets % length).unwrap_or_default();
        Some(packets / length * ones(bits) + ones(&bits[..rest]))
    }
}

/// Holds counts against what was asked for.
pub fn judge(asked: &Asked, counts: &Counts) -> Truth {
    let (low, high) = interval::of_share(counts.lost, counts.came, asked.inflation.max(1.0));
    let mut truth = Truth {
        loss: (counts.came > 0).then(|| counts.lost as f64 / counts.came as f64),
        loss_interval: [low, high],
        why: Vec::new(),
    };
    truth.why.extend(of_loss(asked, counts, [low, high]));
    truth.why.extend(of_delay(asked, counts));
    truth.why.extend(of_drops(counts));
    truth
}

fn of_loss(asked: &Asked, counts: &Counts, [low, high]: [f64; 2]) -> Option<String> {
    let (lost, came) = (counts.lost, counts.came);
    // Segments of a super-packet share a place in the pattern, which is told by itself.
    if let Some(wanted) = asked
        .lost_by_pattern(came)
        .filter(|_| counts.super_packets == 0)
    {
        // The last one that came may not have met its fate yet.
        let least = wanted.saturating_sub(u64::from(counts.held > 0));
        let is_right = (least..=wanted).contains(&lost);
        return (!is_right).then(|| {
            format!("{lost} of {came} packets were lost, and the pattern loses {wanted} of them")
        });
    }
    (!(low..=high).contains(&asked.loss)).then(|| {
        format!(
            "{lost} of {came} packets were lost, which is {} to {} and not {}",
            percent(low),
            percent(high),
            percent(asked.loss)
        )
    })
}

fn of_delay(asked: &Asked, counts: &Counts) -> Option<String> {
    let (added, planned) = counts.mean_delays_ns()?;
    if counts.delays < LEAST_DELAYS || !asked.holds {
        return None;
    }
    let least = match asked.delay_ns {
        Some(_) => LEAST_LATE_NS,
        None => LEAST_LATE_OF_LINE_NS,
    };
    if (added - planned).abs() > (planned * DELAY_SHARE).max(least) {
        return Some(format!(
            "packets left {:.3} ms late on average, more than 5 % of the planned {:.3} ms",
            (added - planned) / 1e6,
            planned / 1e6
        ));
    }
    let wanted = asked.delay_ns?;
    let most = wanted * DELAY_SHARE;
    let worth = counts.delays as f64 / asked.delay_inflation.max(1.0);
    let scatter = DEVIATIONS * asked.jitter_ns / worth.sqrt();
    let longer = planned - wanted > most + scatter && !asked.kept_order;
    let shorter = wanted - planned > most + scatter;
    (asked.only_delay && (longer || shorter)).then(|| {
        format!(
            "the mean delay was {:.3} ms, not within 5 % of {:.3} ms",
            planned / 1e6,
            wanted / 1e6
        )
    })
}

fn of_drops(counts: &Counts) -> Vec<String> {
    let mut why: Vec<String> = counts.own.why().collect();
    why.extend(counts.unread.iter().map(|what| {
        format!("whether packets were dropped before they came here is not known: {what}")
    }));
    let slipped = counts.slipped as f64;
    let is_many = slipped > SLIPPED_SHARE * (counts.came as f64 + slipped);
    if counts.slipped > LEAST_SLIPPED && is_many {
        why.push(format!(
            "{} packets passed without meeting the impairment (IP options, longer than the MTU, or no neighbour known); use --via nfqueue, which has them",
            counts.slipped
        ));
    }
    if counts.queue_dropped > 0 {
        why.push(format!(
            "{} packets were dropped in the kernel before they came here: this machine is too slow for them",
            counts.queue_dropped
        ));
    }
    if counts.reordered > 0 {
        why.push(format!(
            "{} packets were overtaken against the plan",
            counts.reordered
        ));
    }
    if counts.super_packets > 0 {
        why.push(format!(
            "{} super-packets had one fate for all their segments; turn off the sender's offloads (ethtool -K IF tso off gso off gro off)",
            counts.super_packets
        ));
    }
    why
}

/// A share as people read it: four digits behind the point, or the first three that are not 0.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent.abs() {
        small if small > 0.0 && small < 0.001 => 2 - small.log10().floor() as i32,
        _ => 4,
    };
    let text = format!("{percent:.*}", digits.clamp(4, MOST_DIGITS) as usize);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked {
        loss: 0.01,
        inflation: 1.0,
        pattern: None,
        delay_ns: Some(20e6),
        jitter_ns: 0.0,
        delay_inflation: 1.0,
        only_delay: true,
        holds: true,
        kept_order: false,
    };

    fn counts(lost: u64, planned: u64, late: u64) -> Counts {
        let mut counts = Counts {
            came: 100_000,
            lost,
            ..Counts::default()
        };
        for _ in 0..100 {
            counts.note_left(1, planned, 1 + planned + late);
        }
        counts
    }

    fn why(asked: &Asked, counts: &Counts) -> Vec<String> {
        judge(asked, counts).why
    }

    #[test]
    fn a_run_as_asked_for_is_true() {
        let truth = judge(&ASKED, &counts(1_030, 20_000_000, 30_000));
        assert_eq!(truth.why, [""; 0]);
        assert_eq!(truth.loss, Some(0.0103));
        let [low, high] = truth.loss_interval;
        assert!(low < 0.01 && high > 0.0103 && high - low < 0.003);
    }

    #[test]
    fn loss_outside_of_its_interval_is_named_with_both() {
        for lost in [800, 1_200] {
            let [why] = &why(&ASKED, &counts(lost, 20_000_000, 0))[..] else {
                panic!("{lost}");
            };
            assert!(why.contains("and not 1 %"), "{why}");
        }
        // Bursts of ten make the same count no surprise.
        let bursts = Asked {
            inflation: 10.0,
            ..ASKED
        };
        assert!(why(&bursts, &counts(1_200, 20_000_000, 0)).is_empty());
    }

    #[test]
    fn no_loss_must_be_none_and_no_packets_prove_nothing() {
        let none = Asked { loss: 0.0, ..ASKED };
        assert_eq!(why(&none, &counts(1, 20_000_000, 0)).len(), 1);
        assert!(why(&none, &counts(0, 20_000_000, 0)).is_empty());
        assert!(why(&ASKED, &Counts::default()).is_empty());
    }

    #[test]
    fn a_mean_that_is_late_or_wrong_is_named() {
        assert!(why(&ASKED, &counts(1_000, 20_000_000, 1_100_000))[0].contains("late"));
        assert!(why(&ASKED, &counts(1_000, 18_900_000, 0))[0].contains("not within"));
        assert!(why(&ASKED, &counts(1_000, 21_100_000, 0))[0].contains("not within"));
        // A queue's delay comes on top, order lengthens, jitter scatters.
        let rate = Asked {
            only_delay: false,
            ..ASKED
        };
        let kept = Asked {
            kept_order: true,
            ..ASKED
        };
        let wide = Asked {
            jitter_ns: 5e6,
            ..ASKED
        };
        for asked in [rate, kept, wide] {
            assert!(
                why(&asked, &counts(1_000, 21_100_000, 0)).is_empty(),
                "{asked:?}"
            );
        }
    }

    #[test]
    fn a_pattern_is_exact() {
        // Ten are lost at once: by chance, 10 of 300 at 1 % would be far too many.
        let lumpy = Asked {
            pattern: Some((0..1000).map(|n| n < 10).collect()),
            ..ASKED
        };
        let of = |came, lost, held| Counts {
            came,
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
    fn lateness_counts_wherever_packets_wait() {
        let line = Asked {
            delay_ns: None,
            only_delay: false,
            ..ASKED
        };
        assert!(why(&line, &counts(1_000, 30_000_000, 100_000_000))[0].contains("late"));
        assert!(why(&line, &counts(1_000, 0, 600_000))[0].contains("late"));
        assert!(why(&line, &counts(1_000, 0, 400_000)).is_empty());
        let passing = Asked {
            holds: false,
            ..line
        };
        assert!(why(&passing, &counts(1_000, 0, 100_000_000)).is_empty());
    }

    #[test]
    fn every_own_drop_makes_a_run_untrue() {
        let make: [fn(&mut Counts); 6] = [
            |c| c.own.no_room = 1,
            |c| c.unread.push("read /proc: no such file".into()),
            |c| c.queue_dropped = 1,
            |c| c.reordered = 1,
            |c| c.super_packets = 1,
            |c| c.slipped = 102,
        ];
        for make in make {
            let mut counts = counts(1_000, 20_000_000, 0);
            make(&mut counts);
            assert_eq!(why(&ASKED, &counts).len(), 1);
        }
        // The first to a neighbour, before it is known.
        let first = Counts {
            came: 20,
            slipped: 2,
            ..Counts::default()
        };
        assert!(why(&ASKED, &first).is_empty());
    }

    #[test]
    fn shares_are_written_without_idle_digits() {
        assert_eq!(percent(0.01), "1 %");
        assert_eq!(percent(0.000_123), "0.0123 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1e-7), "0.00001 %");
        assert_eq!(percent(1.234_5e-9), "0.000000123 %");
    }
}
