//! Shares, bursts and independence of losses.

use fairpath_core::sched::{Drop, Meta};

use super::bed::{Bed, errors, mean, runs, spec};

const PACKETS: u64 = 1_000_000;
/// Allowed distance of a mean, in standard errors.
const FAR: f64 = 4.4;

/// The chi-square of counts against expectations, and its degrees of freedom.
fn chi_square(counts: &[u64], expected: &[f64]) -> (f64, f64) {
    let parts = counts.iter().zip(expected);
    let sum = parts.map(|(count, expected)| (*count as f64 - expected).powi(2) / expected);
    (sum.sum(), counts.len() as f64 - 1.0)
}

/// The limit that one of 100,000 cases exceeds (Wilson and Hilferty, 1931).
fn chi_square_limit(freedom: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + 4.265 * part.sqrt()).powi(3)
}

#[track_caller]
fn assert_runs_are_geometric(lengths: &[u64], ends: f64) {
    // Only lengths that are expected at least five times.
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
fn losses_are_independent_and_have_their_share() {
    let bed = Bed::new("loss=1%").stream(PACKETS, 1000);
    let lost = bed.results.iter().filter(|result| result.lost()).count() as u64;
    assert!(errors(lost, PACKETS, 0.01) < FAR, "{lost}");
    assert!(
        bed.results
            .iter()
            .all(|result| !result.lost() || result.outcome.drop() == Some(Drop::Impaired))
    );
    assert_eq!((bed.stats().packets, bed.stats().lost), (PACKETS, lost));
    // Losses in blocks of 10,000 packets are binomial.
    let pieces: Vec<u64> = bed
        .results
        .chunks(10_000)
        .map(|piece| piece.iter().filter(|result| result.lost()).count() as u64)
        .collect();
    let sum: f64 = pieces
        .iter()
        .map(|count| (*count as f64 - 100.0).powi(2) / 99.0)
        .sum();
    assert!(sum < chi_square_limit(100.0), "{sum}");
    let gaps = runs(bed.results.iter().map(|result| !result.lost()));
    assert_runs_are_geometric(&gaps, 0.01);
    assert_runs_are_geometric(&bed.bursts(), 0.99);
    assert_eq!(bed.stats().bursts, bed.bursts().len() as u64);
}

#[test]
fn loss_of_0_and_100_percent_is_exact() {
    assert_eq!(Bed::new("loss=0%").stream(100_000, 10).stats().lost, 0);
    assert_eq!(
        Bed::new("loss=100%").stream(100_000, 10).stats().lost,
        100_000
    );
}

#[test]
fn correlation_keeps_share_and_sets_burst_length() {
    for (share, correlation) in [(0.01, 0.25), (0.05, 0.5), (0.1, 0.75), (0.2, 0.9)] {
        let text = format!("loss={share} loss_correlation={correlation} seed=3");
        let bed = Bed::new(&text).stream(PACKETS, 10);
        let ends = (1.0 - share) * (1.0 - correlation);
        // Correlation increases the variance of the mean by (1 + correlation) / (1 - correlation).
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
fn gilbert_elliott_has_its_mean_and_burst_length() {
    let text = "gilbert_elliott=p=1%,r=25%,h=70%,k=0.1% seed=9";
    assert!((spec(text).mean_loss() - 0.02788).abs() < 5e-6);
    let bed = Bed::new(text).stream(2 * PACKETS, 10);
    let share = bed.stats().lost as f64 / (2 * PACKETS) as f64;
    // The correlation of 0.74 between states widens the error of the mean by at most 2.3.
    let error = (0.02788f64 * 0.97212 / (2 * PACKETS) as f64).sqrt() * 2.3;
    assert!((share - 0.02788).abs() < FAR * error, "{share}");
    // If only the bad state loses packets, bursts are its visits.
    let stays = Bed::new("gilbert_elliott=p=1%,r=25% seed=4").stream(PACKETS, 10);
    assert_runs_are_geometric(&stays.bursts(), 0.25);
    let good = runs(stays.results.iter().map(|result| !result.lost()));
    assert_runs_are_geometric(&good, 0.01);
}

#[test]
fn four_state_model_has_its_mean_and_bursts() {
    let text = "four_state=p13=1%,p31=30%,p32=10%,p23=80%,p14=0.5%";
    assert!(
        (spec(text).mean_loss() - 0.03677).abs() < 5e-6,
        "{}",
        spec(text).mean_loss()
    );
    let bed = Bed::new(text).stream(2 * PACKETS, 10);
    let share = bed.stats().lost as f64 / (2 * PACKETS) as f64;
    assert!((share - 0.03677).abs() < 0.001, "{share}");
    // A burst lasts as long as state 3, which ends by p31 or p32.
    let bursts = Bed::new("four_state=p13=1%,p31=30%,p32=10%,p23=80%").stream(PACKETS, 10);
    assert_runs_are_geometric(&bursts.bursts(), 0.4);
    let alone = Bed::new("four_state=p13=0%,p31=100%,p14=5%").stream(PACKETS, 10);
    assert!(alone.bursts().iter().all(|length| *length == 1));
    let share = alone.stats().lost as f64 / PACKETS as f64;
    assert!((share - 0.05 / 1.05).abs() < 0.001, "{share}");
}

#[test]
fn pattern_repeats() {
    let bed = Bed::new("pattern=0010001").stream(700, 10);
    for (at, result) in bed.results.iter().enumerate() {
        assert_eq!(result.lost(), matches!(at % 7, 2 | 6), "{at}");
    }
}

#[test]
fn seed_repeats_outcomes_and_directions_differ() {
    let text = "loss=20% delay=5ms jitter=1ms duplicate=5% corrupt=5% reorder=3%";
    let results = |seed: u64, direction: u64, every: u64| {
        let spec = spec(&format!("{text} seed={seed}"));
        let bed = Bed::of(&spec, direction).stream(20_000, every);
        bed.results
    };
    let first = results(1, 0, 1000);
    assert_eq!(first, results(1, 0, 1000));
    // At another pace, other packets are reordered, but the outcome of each stays the same.
    let kind = |results: &[super::bed::PacketResult]| -> Vec<_> {
        let of = |result: &super::bed::PacketResult| {
            (result.lost(), result.outcome.flags, result.outcome.bit)
        };
        results.iter().map(of).collect()
    };
    assert_eq!(kind(&first), kind(&results(1, 0, 77_777)));
    for (seed, direction) in [(1, 1), (2, 0), (2, 1)] {
        let other = kind(&results(seed, direction, 1000));
        let alike = kind(&first)
            .iter()
            .zip(&other)
            .filter(|(a, b)| a.0 && b.0)
            .count();
        // Independent directions both lose 4 % of the packets.
        assert!(
            errors(alike as u64, 20_000, 0.04) < FAR,
            "{seed} {direction}: {alike}"
        );
    }
}

#[test]
fn gso_packet_has_outcome_of_its_first_segment() {
    let each = Bed::new("loss=30%").stream(10_000, 10);
    let mut bed = Bed::new("loss=30%");
    let (mut number, mut expected_lost) = (0, 0);
    for packet in 0..2000 {
        let segments = 1 + packet % 5;
        let lost = each.results[number].lost();
        let meta = Meta {
            bytes: 1000 * segments as u32,
            segments: segments as u8,
            ..Meta::default()
        };
        bed.send(packet * 10, meta);
        assert_eq!(bed.results[packet as usize].lost(), lost, "{packet}");
        expected_lost += if lost { segments } else { 0 };
        number += segments as usize;
    }
    let stats = bed.stats();
    assert_eq!((stats.packets, stats.lost), (number as u64, expected_lost));
    assert_eq!(stats.gso_packets, 1600);
}
