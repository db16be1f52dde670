//! Delays: distributions (Kolmogorov-Smirnov test), correlation, traces, slots and releases.

use fairpath_core::sched::Meta;
use fairpath_statistics::kolmogorov::distance;

use super::bed::{Bed, MS, mean, sigma, spec};

const PACKETS: u64 = 200_000;
/// Points at which distributions are compared.
const PLACES: usize = 5_000;
/// An interval at which no packet waits for the previous one.
const APART: u64 = 100 * MS;

#[test]
fn delay_is_exact_and_keeps_the_order() {
    let bed = Bed::new("delay=20ms").stream(10_000, 1000);
    assert!(bed.delays().iter().all(|delay| *delay == 20 * MS));
    let stats = bed.stats();
    assert_eq!(
        (stats.delayed, stats.late_ns, stats.reordered),
        (10_000, 0, 0)
    );
    assert_eq!(
        (stats.requested_ns, stats.held_ns),
        (10_000 * 20 * MS, 10_000 * 20 * MS)
    );
}

#[test]
fn delays_have_the_configured_distribution() {
    for name in ["uniform", "normal", "pareto", "paretonormal"] {
        for correlation in ["0%", "60%"] {
            let text = format!(
                "delay=60ms jitter=5ms distribution={name} correlation={correlation} order=free seed=7"
            );
            let spec = spec(&text);
            let mut bed = Bed::of(&spec, 0).stream(PACKETS, APART);
            assert_eq!(bed.stats().late_ns, 0);
            let mut delays = bed.delays();
            delays.sort_unstable();
            bed.results.clear();
            // Correlated samples are worth (1 - r) / (1 + r) times as many independent ones.
            let free = PACKETS as f64 * if correlation == "0%" { 1.0 } else { 0.25 };
            let share = |delay: u64| {
                let from_mean = delay as f64 - 60.0 * MS as f64;
                Some(spec.distribution.share_below(5 * MS, from_mean))
            };
            let far = distance(&delays, PLACES, share);
            assert!(far < 2.5 / free.sqrt(), "{text}: {far}");
            let mean = mean(&delays);
            let expected = spec.mean_delay_ns();
            assert!(
                (mean / expected - 1.0).abs() < 0.003,
                "{text}: {mean} {expected}"
            );
        }
    }
}

/// The correlation of each value with the next.
fn correlation(values: &[u64]) -> f64 {
    let (mean, sigma) = (mean(values), sigma(values));
    let pairs = values.windows(2);
    let products = pairs.map(|pair| (pair[0] as f64 - mean) * (pair[1] as f64 - mean));
    products.sum::<f64>() / (values.len() as f64 - 1.0) / sigma.powi(2)
}

#[test]
fn correlation_keeps_the_standard_deviation() {
    for rho in [-0.5, 0.0, 0.25, 0.5, 0.75, 0.9] {
        let percent = rho * 100.0;
        let text = format!("delay=50ms jitter=4ms distribution=normal correlation={percent}%");
        let text = text.replace(" correlation=0%", "");
        let delays = Bed::new(&text).stream(PACKETS, APART).delays();
        let [sigma, found] = [sigma(&delays) / MS as f64, correlation(&delays)];
        assert!((sigma / 4.0 - 1.0).abs() < 0.03, "{text}: {sigma}");
        assert!((found - rho).abs() < 0.012, "{text}: {found}");
    }
}

#[test]
fn measured_distribution_is_reproduced() {
    let file = std::env::temp_dir().join(format!("fairpath-delays-{}.txt", std::process::id()));
    let lines: String = (0..=100)
        .map(|at| format!("{}us # {at}\n", 10_000 + at * at))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let spec = spec(&format!("distribution={}", file.display()));
    std::fs::remove_file(&file).unwrap();
    let mut delays = Bed::of(&spec, 0).stream(PACKETS, APART).delays();
    assert!((mean(&delays) / spec.mean_delay_ns() - 1.0).abs() < 0.002);
    delays.sort_unstable();
    for percent in [1, 10, 50, 90, 99] {
        let got = delays[delays.len() * percent / 100] as f64;
        let expected = 1e7 + 1000.0 * (percent * percent) as f64;
        assert!(
            (got / expected - 1.0).abs() < 0.01,
            "{percent} %: {got} {expected}"
        );
    }
}

#[test]
fn negative_delays_count_as_zero() {
    let text = "delay=1ms jitter=4ms distribution=normal order=free";
    let delays = Bed::new(text).stream(PACKETS, APART).delays();
    assert!(delays.contains(&0));
    let (got, expected) = (mean(&delays), spec(text).mean_delay_ns());
    assert!((got / expected - 1.0).abs() < 0.01, "{got} {expected}");
}

#[test]
fn delay_trace_repeats() {
    let text = "delay_trace=\"0s 5ms, 100ms 40ms, 150ms 1ms, 200ms\"";
    let bed = Bed::new(text).stream(1000, MS);
    for result in &bed.results {
        let requested = match result.arrived / MS % 200 {
            0..100 => 5,
            100..150 => 40,
            _ => 1,
        };
        // Order is kept: no packet passes one with a delay of 40 ms.
        assert!(result.delay().unwrap() >= requested * MS, "{result:?}");
    }
    let free = Bed::new(&format!("{text} order=free")).stream(1000, MS);
    let delay = |at: usize| free.results[at].delay().unwrap() / MS;
    assert_eq!(
        [0, 99, 100, 149, 150, 199, 200, 350].map(delay),
        [5, 5, 40, 40, 1, 1, 5, 1]
    );
    assert_eq!(spec(text).mean_delay_ns(), 12.75e6);
}

#[test]
fn slots_limit_packets_and_keep_their_intervals() {
    let bed = Bed::new("slot=min=10ms,max=14ms,packets=8 seed=5").stream(40_000, MS);
    let mut left: Vec<u64> = bed
        .results
        .iter()
        .map(|result| result.left.unwrap())
        .collect();
    assert!(left.is_sorted());
    left.dedup();
    let distances: Vec<u64> = left.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The load exceeds the slots: each is full, and the next opens after its interval.
    assert!(distances.iter().all(|ns| (10 * MS..=14 * MS).contains(ns)));
    assert!((mean(&distances) / (12.0 * MS as f64) - 1.0).abs() < 0.01);
    assert_eq!(left.len(), 40_000 / 8);
    // A packet that arrives after its slot opened begins a new slot.
    let sparse = Bed::new("slot=min=10ms,packets=8").stream(100, 50 * MS);
    assert!(sparse.delays().iter().all(|delay| *delay == 10 * MS));
}

#[test]
fn last_packet_of_a_slot_may_exceed_bytes() {
    let mut bed = Bed::new("slot=min=10ms,bytes=2500");
    let meta = Meta {
        bytes: 1000,
        ..Meta::default()
    };
    (0..9).for_each(|at| bed.send(at, meta));
    bed.finish();
    let left: Vec<u64> = bed
        .results
        .iter()
        .map(|result| result.left.unwrap() / MS)
        .collect();
    assert_eq!(left, [10, 10, 10, 20, 20, 20, 30, 30, 30]);
}

#[test]
fn packets_leave_together_at_releases() {
    let bed = Bed::new("delay=3ms release=10ms").stream(1000, MS);
    for result in &bed.results {
        let due = result.arrived + 3 * MS;
        assert_eq!(result.left, Some(due.next_multiple_of(10 * MS)));
    }
}

#[test]
fn queue_limits_exclude_delayed_packets() {
    // 40,000 packets are in the delay queue, four times the limit of the scheduler.
    let bed = Bed::new("delay=400ms").stream(100_000, 10_000);
    assert_eq!(bed.delays().len(), 100_000);
}
