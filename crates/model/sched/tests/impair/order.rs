//! Reordering, early packets, duplication and corruption.

use super::bed::{Bed, MS, errors};

const PACKETS: u64 = 200_000;
const FAR: f64 = 4.4;

#[test]
fn jitter_reorders_only_with_free_order() {
    let jitter = "delay=20ms jitter=15ms distribution=normal";
    let kept = Bed::new(jitter).stream(PACKETS, 100_000);
    assert_eq!((kept.reordered(), kept.stats().reordered), (0, 0));
    assert!(
        kept.stats().held_ns > kept.stats().requested_ns,
        "who waits for others is later"
    );
    let free = Bed::new(&format!("{jitter} order=free")).stream(PACKETS, 100_000);
    assert_eq!(free.stats().held_ns, free.stats().requested_ns);
    assert!(
        free.reordered() as u64 > PACKETS / 2,
        "{}",
        free.reordered()
    );
    assert_eq!(free.reordered() as u64, free.stats().reordered);
}

#[test]
fn configured_share_leaves_early() {
    let bed = Bed::new("delay=10ms reorder=2%").stream(PACKETS, 100_000);
    let ahead = bed
        .results
        .iter()
        .filter(|result| result.delay() == Some(0))
        .count() as u64;
    assert_eq!(ahead, bed.stats().ahead);
    assert!(errors(ahead, PACKETS, 0.02) < FAR, "{ahead}");
    let others = bed
        .results
        .iter()
        .filter(|result| result.delay() != Some(0));
    assert!(others.clone().all(|result| result.delay() == Some(10 * MS)));
    assert!(bed.reordered() > 0);
}

#[test]
fn reorder_gap_separates_early_packets() {
    let every = Bed::new("delay=10ms reorder=100% reorder_gap=5").stream(1000, 100_000);
    for (at, result) in every.results.iter().enumerate() {
        assert_eq!(result.delay() == Some(0), at % 5 == 4, "{at}");
    }
    // At least four packets pass, then each leaves early with its probability: one of 4 + 1 / 0.25.
    let some = Bed::new("delay=10ms reorder=25% reorder_gap=5").stream(PACKETS, 100_000);
    let share = some.stats().ahead as f64 / PACKETS as f64;
    assert!((share * 8.0 - 1.0).abs() < 0.02, "{share}");
}

#[test]
fn duplication_and_corruption_have_configured_shares() {
    let bed = Bed::new("duplicate=2% corrupt=3%").stream(PACKETS, 1000);
    let copied = bed
        .results
        .iter()
        .filter(|result| result.outcome.copied())
        .count() as u64;
    assert!(errors(copied, PACKETS, 0.02) < FAR, "{copied}");
    let bits: Vec<u32> = bed
        .results
        .iter()
        .filter_map(|result| result.outcome.corrupted_bit())
        .collect();
    assert!(
        errors(bits.len() as u64, PACKETS, 0.03) < FAR,
        "{}",
        bits.len()
    );
    let stats = bed.stats();
    assert_eq!((stats.copied, stats.corrupted), (copied, bits.len() as u64));
    // Each of 8,000 bits is equally likely, so each 10 % of the packet is.
    for tenth in 0..10 {
        let here = bits.iter().filter(|bit| **bit / 800 == tenth).count() as u64;
        assert!(
            errors(here, bits.len() as u64, 0.1) < FAR,
            "{tenth}: {here}"
        );
    }
    // Both happen together as often as independent draws predict.
    let both = bed.results.iter().filter(|result| result.outcome.copied());
    let both = both
        .filter(|result| result.outcome.corrupted_bit().is_some())
        .count() as u64;
    assert!(errors(both, PACKETS, 0.0006) < FAR, "{both}");
}
