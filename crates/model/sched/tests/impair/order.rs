//! Order, packets that go ahead, copies and wrong bits.

use super::bed::{Bed, MS, errors};

const PACKETS: u64 = 200_000;
const FAR: f64 = 4.4;

#[test]
fn order_is_kept_whatever_the_jitter_unless_it_is_free() {
    let jitter = "delay=20ms jitter=15ms distribution=normal";
    let kept = Bed::new(jitter).stream(PACKETS, 100_000);
    assert_eq!((kept.overtaken(), kept.stats().overtaken), (0, 0));
    assert!(
        kept.stats().held_ns > kept.stats().asked_ns,
        "who waits for others is later"
    );
    let free = Bed::new(&format!("{jitter} order=free")).stream(PACKETS, 100_000);
    assert_eq!(free.stats().held_ns, free.stats().asked_ns);
    assert!(
        free.overtaken() as u64 > PACKETS / 2,
        "{}",
        free.overtaken()
    );
    assert_eq!(free.overtaken() as u64, free.stats().overtaken);
}

#[test]
fn the_asked_share_goes_ahead_and_the_others_keep_their_order() {
    let bed = Bed::new("delay=10ms reorder=2%").stream(PACKETS, 100_000);
    let ahead = bed
        .fates
        .iter()
        .filter(|fate| fate.delay() == Some(0))
        .count() as u64;
    assert_eq!(ahead, bed.stats().ahead);
    assert!(errors(ahead, PACKETS, 0.02) < FAR, "{ahead}");
    let others = bed.fates.iter().filter(|fate| fate.delay() != Some(0));
    assert!(others.clone().all(|fate| fate.delay() == Some(10 * MS)));
    assert!(bed.overtaken() > 0);
}

#[test]
fn a_gap_spaces_those_that_go_ahead() {
    let every = Bed::new("delay=10ms reorder=100% reorder_gap=5").stream(1000, 100_000);
    for (at, fate) in every.fates.iter().enumerate() {
        assert_eq!(fate.delay() == Some(0), at % 5 == 4, "{at}");
    }
    // Four at least, then each with its chance: one of 4 + 1 / 0.25.
    let some = Bed::new("delay=10ms reorder=25% reorder_gap=5").stream(PACKETS, 100_000);
    let share = some.stats().ahead as f64 / PACKETS as f64;
    assert!((share * 8.0 - 1.0).abs() < 0.02, "{share}");
}

#[test]
fn the_asked_shares_are_copied_and_corrupted_at_any_bit() {
    let bed = Bed::new("duplicate=2% corrupt=3%").stream(PACKETS, 1000);
    let copied = bed
        .fates
        .iter()
        .filter(|fate| fate.outcome.copied())
        .count() as u64;
    assert!(errors(copied, PACKETS, 0.02) < FAR, "{copied}");
    let bits: Vec<u32> = bed
        .fates
        .iter()
        .filter_map(|fate| fate.outcome.corrupted_bit())
        .collect();
    assert!(
        errors(bits.len() as u64, PACKETS, 0.03) < FAR,
        "{}",
        bits.len()
    );
    let stats = bed.stats();
    assert_eq!((stats.copied, stats.corrupted), (copied, bits.len() as u64));
    // Any of 8,000 bits, as often in each tenth of the packet.
    for tenth in 0..10 {
        let here = bits.iter().filter(|bit| **bit / 800 == tenth).count() as u64;
        assert!(
            errors(here, bits.len() as u64, 0.1) < FAR,
            "{tenth}: {here}"
        );
    }
    // Both at once as often as they are both drawn.
    let both = bed.fates.iter().filter(|fate| fate.outcome.copied());
    let both = both
        .filter(|fate| fate.outcome.corrupted_bit().is_some())
        .count() as u64;
    assert!(errors(both, PACKETS, 0.0006) < FAR, "{both}");
}
