//! Shares, runs and independence of losses.

use fairpath_core::sched::{Drop, Meta};

use super::bed::{Bed, errors, mean, runs, spec};

const PACKETS: u64 = 1_000_000;
/// Standard errors that a mean may lie away.
const FAR: f64 = 4.4;

/// The chi-square of counts against expectations, and its degrees of freedom.
fn chi_square(counts: &[u64], expected: &[f64]) -> (f64, f64) {
    let parts = counts.iter().zip(expected);
    let sum = parts.map(|(count, expected)| (*count as f64 - expected).powi(2) / expected);
    (sum.sum(), counts.len() as f64 - 1.0)
}

/// Below this in all but one of a hundred thousand cases (Wilson and Hilferty, 1931).
fn chi_square_limit(freedom: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + 4.265 * part.sqrt()).powi(3)
}

#[track_caller]
fn assert_runs_are_geometric(lengths: &[u64], ends: f64) {
    // As many lengths as are expected five times.
    let most = 1 + ((5.0 / lengths.len() as f64).ln() / (1.0 - ends).ln()) as usize;
    let most = most.clamp(2, 40);
    let mut counts = vec![0; most];
    for length in lengths {
        counts[(*length as usize - 1).min(most - 1)] += 1;
    }
    let all = lengths.len() as f64;
    let expected: Vec<f64> = (0..most)
        .map(|at| {
            let longer = (1.0 - ends).powi(at as i32);
            all * if at == most - 1 {
                longer
            } else {
                longer * ends
            }
        })
        .collect();
    let (chi, freedom) = chi_square(&counts, &expected);
    assert!(
        chi < chi_square_limit(freedom),
        "{chi} of {freedom}: {counts:?}"
    );
}

#[test]
fn each_packet_is_lost_with_its_share_whatever_became_of_the_one_before() {
    let bed = Bed::new("loss=1%").stream(PACKETS, 1000);
    let lost = bed.fates.iter().filter(|fate| fate.lost()).count() as u64;
    assert!(errors(lost, PACKETS, 0.01) < FAR, "{lost}");
    assert!(
        bed.fates
            .iter()
            .all(|fate| !fate.lost() || fate.outcome.drop() == Some(Drop::Impaired))
    );
    assert_eq!((bed.stats().packets, bed.stats().lost), (PACKETS, lost));
    // In pieces of 10,000, losses are binomial.
    let pieces: Vec<u64> = bed
        .fates
        .chunks(10_000)
        .map(|piece| piece.iter().filter(|fate| fate.lost()).count() as u64)
        .collect();
    let sum: f64 = pieces
        .iter()
        .map(|count| (*count as f64 - 100.0).powi(2) / 99.0)
        .sum();
    assert!(sum < chi_square_limit(100.0), "{sum}");
    let gaps = runs(bed.fates.iter().map(|fate| !fate.lost()));
    assert_runs_are_geometric(&gaps, 0.01);
    assert_runs_are_geometric(&bed.bursts(), 0.99);
    assert_eq!(bed.stats().bursts, bed.bursts().len() as u64);
}

#[test]
fn nothing_and_all_are_exact() {
    assert_eq!(Bed::new("loss=0%").stream(100_000, 10).stats().lost, 0);
    assert_eq!(
        Bed::new("loss=100%").stream(100_000, 10).stats().lost,
        100_000
    );
}

#[test]
fn correlation_keeps_the_share_and_makes_bursts_of_the_asked_length() {
    for (share, correlation) in [(0.01, 0.25), (0.05, 0.5), (0.1, 0.75), (0.2, 0.9)] {
        let text = format!("loss={share} loss_correlation={correlation} seed=3");
        let bed = Bed::new(&text).stream(PACKETS, 10);
        let ends = (1.0 - share) * (1.0 - correlation);
        // Neighbours alike: the variance of the mean grows by (1 + correlation) / (1 - correlation).
        let wider = f64::sqrt((1.0 + correlation) / (1.0 - correlation));
        let lost = bed.stats().lost;
        assert!(errors(lost, PACKETS, share) < FAR * wider, "{text}: {lost}");
        let bursts = bed.bursts();
        let error = f64::sqrt((1.0 - ends) / bursts.len() as f64) / ends;
        assert!(
            (mean(&bursts) - 1.0 / ends).abs() < FAR * error,
            "{text}: {}",
            mean(&bursts)
        );
        assert_runs_are_geometric(&bursts, ends);
    }
}

#[test]
fn gilbert_elliott_loses_its_mean_and_stays_bad_as_long_as_asked() {
    let text = "gilbert_elliott=p=1%,r=25%,h=70%,k=0.1% seed=9";
    assert!((spec(text).mean_loss() - 0.02788).abs() < 5e-6);
    let bed = Bed::new(text).stream(2 * PACKETS, 10);
    let share = bed.stats().lost as f64 / (2 * PACKETS) as f64;
    // The states' correlation of 0.74 widens the error of the mean 2.3-fold at most.
    let error = (0.02788f64 * 0.97212 / (2 * PACKETS) as f64).sqrt() * 2.3;
    assert!((share - 0.02788).abs() < FAR * error, "{share}");
    // With all lost in the bad state and none in the good one, runs are the stays.
    let stays = Bed::new("gilbert_elliott=p=1%,r=25% seed=4").stream(PACKETS, 10);
    assert_runs_are_geometric(&stays.bursts(), 0.25);
    let good = runs(stays.fates.iter().map(|fate| !fate.lost()));
    assert_runs_are_geometric(&good, 0.01);
}

#[test]
fn four_states_lose_their_mean_and_single_losses_stay_single() {
    let text = "four_state=p13=1%,p31=30%,p32=10%,p23=80%,p14=0.5%";
    assert!(
        (spec(text).mean_loss() - 0.03677).abs() < 5e-6,
        "{}",
        spec(text).mean_loss()
    );
    let bed = Bed::new(text).stream(2 * PACKETS, 10);
    let share = bed.stats().lost as f64 / (2 * PACKETS) as f64;
    assert!((share - 0.03677).abs() < 0.001, "{share}");
    // A burst loses for as long as 3 stays: it ends by p31 or p32.
    let bursts = Bed::new("four_state=p13=1%,p31=30%,p32=10%,p23=80%").stream(PACKETS, 10);
    assert_runs_are_geometric(&bursts.bursts(), 0.4);
    let alone = Bed::new("four_state=p13=0%,p31=100%,p14=5%").stream(PACKETS, 10);
    assert!(alone.bursts().iter().all(|length| *length == 1));
    let share = alone.stats().lost as f64 / PACKETS as f64;
    assert!((share - 0.05 / 1.05).abs() < 0.001, "{share}");
}

#[test]
fn a_pattern_is_followed_over_and_over() {
    let bed = Bed::new("pattern=0010001").stream(700, 10);
    for (at, fate) in bed.fates.iter().enumerate() {
        assert_eq!(fate.lost(), matches!(at % 7, 2 | 6), "{at}");
    }
}

#[test]
fn one_seed_gives_one_fate_to_each_packet_and_directions_differ() {
    let text = "loss=20% delay=5ms jitter=1ms duplicate=5% corrupt=5% reorder=3%";
    let fates = |seed: u64, direction: u64, every: u64| {
        let spec = spec(&format!("{text} seed={seed}"));
        let bed = Bed::of(&spec, direction).stream(20_000, every);
        bed.fates
    };
    let first = fates(1, 0, 1000);
    assert_eq!(first, fates(1, 0, 1000));
    // At another pace other packets are overtaken, but each has its own fate.
    let kind = |fates: &[super::bed::Fate]| -> Vec<_> {
        let of = |fate: &super::bed::Fate| (fate.lost(), fate.outcome.flags, fate.outcome.bit);
        fates.iter().map(of).collect()
    };
    assert_eq!(kind(&first), kind(&fates(1, 0, 77_777)));
    for (seed, direction) in [(1, 1), (2, 0), (2, 1)] {
        let other = kind(&fates(seed, direction, 1000));
        let alike = kind(&first)
            .iter()
            .zip(&other)
            .filter(|(a, b)| a.0 && b.0)
            .count();
        // Independent: both lose 4 % of the packets.
        assert!(
            errors(alike as u64, 20_000, 0.04) < FAR,
            "{seed} {direction}: {alike}"
        );
    }
}

#[test]
fn a_super_packet_takes_as_many_numbers_as_segments_and_has_the_fate_of_its_first() {
    let each = Bed::new("loss=30%").stream(10_000, 10);
    let mut bed = Bed::new("loss=30%");
    let (mut number, mut expected_lost) = (0, 0);
    for packet in 0..2000 {
        let segments = 1 + packet % 5;
        let lost = each.fates[number].lost();
        let meta = Meta {
            bytes: 1000 * segments as u32,
            segments: segments as u8,
            ..Meta::default()
        };
        bed.send(packet * 10, meta);
        assert_eq!(bed.fates[packet as usize].lost(), lost, "{packet}");
        expected_lost += if lost { segments } else { 0 };
        number += segments as usize;
    }
    let stats = bed.stats();
    assert_eq!((stats.packets, stats.lost), (number as u64, expected_lost));
    assert_eq!(stats.supers, 1600);
}
