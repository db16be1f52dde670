//! The guarantees of each kind of queue, and the errors of earlier ones.

mod pifo_oracle;

use fairpath_core::pifo::{Kind, Outside, PifoConfig, Pool, Refusal, Window};
use fairpath_units::test_seed;
use pifo_oracle::log::Random;

fn one(kind: Kind, capacity: u32) -> Pool {
    Pool::new(capacity, &[PifoConfig::new(kind, capacity)]).unwrap()
}

/// A window that is never left without its being a failure.
fn strict(buckets: u32, base: u64) -> Window {
    let (below, beyond) = (Outside::Error, Outside::Error);
    Window {
        buckets,
        base,
        below,
        beyond,
        shift: 0,
    }
}

/// Beginnings of ranks: at both ends, and before 2^32.
const ORIGINS: [u64; 3] = [0, (1 << 32) - 3_000, u64::MAX - (1 << 22)];

/// Pushes and pops ranks that lie at most two halves of the window ahead of the last one popped; checks every pop
/// against a stable sort of what is queued.
fn assert_stable_sort(kind: Kind, buckets: u64, origin: u64, seed: u64) {
    const ITEMS: u32 = 500;
    let mut pool = one(kind, ITEMS);
    let mut random = Random::new(seed);
    let mut free: Vec<u32> = (1..=ITEMS).collect();
    let mut queued: Vec<(u64, u64, u32)> = Vec::new();
    let mut base = pool.counts(1).base;
    let mut arrival = 0;
    let mut last = origin;
    for _ in 0..4_000 {
        let what = format!("{kind:?}, origin {origin}, seed {seed}");
        if random.below(100) < 52 && !free.is_empty() {
            let item = free.swap_remove(random.below(free.len() as u64) as usize);
            // From where the window begins, as far as it surely goes.
            let from = last.max(pool.counts(1).base);
            let rank = from.saturating_add(random.below(buckets));
            assert_eq!(pool.push(1, item, rank), Ok(None), "{what}, rank {rank}");
            arrival += 1;
            queued.push((rank, arrival, item));
        } else {
            queued.sort_unstable();
            let expected = (!queued.is_empty()).then(|| queued.remove(0));
            assert_eq!(pool.peek(1), expected.map(|e| e.2), "{what}");
            assert_eq!(pool.pop(1), expected.map(|e| e.2), "{what}");
            let Some((rank, _, item)) = expected else {
                continue;
            };
            let now = pool.counts(1).base;
            assert!(
                now >= base,
                "{what}: the window went back from {base} to {now}"
            );
            assert!(
                matches!(kind, Kind::Heap) || rank >= now,
                "{what}: {rank} was popped below {now}"
            );
            (base, last) = (now, rank);
            free.push(item);
        }
    }
    pool.audit().unwrap();
}

#[test]
fn unclamped_cffs_output_is_a_stable_sort() {
    for (n, origin) in (0..).zip(ORIGINS) {
        let seed = test_seed().wrapping_add(n);
        assert_stable_sort(Kind::Heap, 1 << 20, origin, seed);
        for buckets in [1, 2, 3, 63, 64, 65, 4_096, 4_097, 262_145, 1 << 20] {
            let kind = Kind::Cffs(strict(buckets, origin));
            assert_stable_sort(kind, buckets.into(), origin, seed);
        }
    }
}

#[test]
fn a_rank_below_the_current_is_served_first() {
    let mut pool = one(Kind::Cffs(strict(8, 0)), 10);
    for (item, rank) in [(1, 5), (2, 6), (3, 12)] {
        pool.push(1, item, rank).unwrap();
    }
    assert_eq!(pool.pop(1), Some(1));
    pool.push(1, 4, 2).unwrap();
    assert_eq!(
        [pool.pop(1), pool.pop(1), pool.pop(1)],
        [Some(4), Some(2), Some(3)]
    );
}

/// One array indexed by modulo would serve rank 9 (place 1) before rank 5.
#[test]
fn ranks_of_the_next_turn_wait() {
    let mut pool = one(Kind::Cffs(strict(8, 0)), 10);
    for (item, rank) in [(1, 9), (2, 5), (3, 15), (4, 7)] {
        pool.push(1, item, rank).unwrap();
    }
    let order: Vec<_> = std::iter::from_fn(|| pool.pop(1)).collect();
    assert_eq!(order, [2, 4, 1, 3]);
    assert_eq!(pool.counts(1).rotations, 1);
}

/// A bitmap of no levels made the predecessor write before its array.
#[test]
fn one_bucket_is_a_queue() {
    for kind in [Kind::Cffs(strict(1, 7)), Kind::Gradient(strict(1, 7))] {
        let mut pool = one(kind, 4);
        for (item, rank) in [(1, 8), (2, 7), (3, 8), (4, 7)] {
            pool.push(1, item, rank).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| pool.pop(1)).collect();
        assert_eq!(order, [2, 4, 1, 3], "{kind:?}");
        assert_eq!(pool.push(1, 1, 8), Ok(None));
        assert_eq!(pool.push(1, 2, 10), Err(Refusal::Rank), "two buckets ahead");
        pool.audit().unwrap();
    }
}

/// Ranks of 32 bits wrapped after four gigabytes of virtual time; these do not.
#[test]
fn ranks_use_all_64_bits() {
    for origin in [(1 << 32) - 10, u64::MAX - 19] {
        let mut pool = one(Kind::Cffs(strict(10, origin)), 20);
        for item in (1..=20u32).rev() {
            pool.push(1, item, origin + u64::from(item - 1)).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| pool.pop(1)).collect();
        assert_eq!(order, (1..=20).collect::<Vec<u32>>());
    }
}

/// Without a new beginning, all of these would lie in the last bucket by arrival until the window got there.
#[test]
fn idle_time_queues_restart_at_new_times() {
    let day = 86_400_000_000_000;
    let mut pool = one(
        Kind::Cffs(Window {
            shift: 10,
            ..strict(1_000, 0)
        }),
        100,
    );
    for idle in 1..=30u64 {
        let now = idle * day;
        // The first to come is not the first to go.
        for (item, late) in [(1, 200), (2, 900), (3, 100), (4, 0)] {
            assert_eq!(
                pool.push(1, item, now + late * 1_024),
                Ok(None),
                "day {idle}"
            );
        }
        let order: Vec<_> = std::iter::from_fn(|| pool.pop(1)).collect();
        assert_eq!(order, [4, 3, 1, 2], "day {idle}");
    }
    assert_eq!(pool.counts(1).rebases, 30);
    assert_eq!(pool.counts(1).was_beyond + pool.counts(1).was_below, 0);
}

#[test]
fn outside_ranks_are_clamped_dropped_or_errors() {
    for (policy, below, beyond) in [
        (Outside::Clamp, Ok(None), Ok(None)),
        (Outside::Drop, Err(Refusal::Below), Err(Refusal::Beyond)),
        (Outside::Error, Err(Refusal::Rank), Err(Refusal::Rank)),
    ] {
        let window = Window {
            buckets: 4,
            base: 100,
            below: policy,
            beyond: policy,
            shift: 0,
        };
        let mut pool = one(Kind::Cffs(window), 10);
        pool.push(1, 1, 100).unwrap();
        pool.push(1, 2, 107).unwrap();
        assert_eq!(pool.push(1, 3, 99), below, "{policy:?}");
        assert_eq!(pool.push(1, 4, 108), beyond, "{policy:?}");
        let counts = pool.counts(1);
        assert_eq!((counts.was_below, counts.was_beyond), (1, 1));
        assert_eq!(counts.errors, if policy == Outside::Error { 2 } else { 0 });
        let order: Vec<_> = std::iter::from_fn(|| pool.pop(1)).collect();
        let all: &[u32] = if below.is_ok() {
            &[1, 3, 2, 4]
        } else {
            &[1, 2]
        };
        assert_eq!(order, all, "{policy:?}");
    }
}

#[test]
fn full_queue_refuses_or_pushes_out_last_one() {
    let kinds = [
        Kind::Heap,
        Kind::Bands {
            bands: 64,
            beyond: Outside::Error,
        },
        Kind::Cffs(strict(50, 0)),
        Kind::Gradient(strict(50, 0)),
    ];
    for kind in kinds {
        let config = PifoConfig::new(kind, 3);
        let mut pool = Pool::new(9, &[config, config.pushing_out()]).unwrap();
        for (q, out) in [(1, Err(Refusal::Full)), (2, Ok(Some(3)))] {
            let first = 1 + 4 * (q - 1);
            for (item, rank) in (first..).zip([10, 20, 20]) {
                pool.push(q, item, rank).unwrap();
            }
            let before = pool.counts(q);
            // As late as the last one: it would be last itself.
            assert_eq!(pool.push(q, 9, 20), Err(Refusal::Full), "{kind:?}");
            let out = out.map(|o: Option<u32>| o.map(|o| o + first - 1));
            assert_eq!(pool.push(q, 9, 19), out, "{kind:?}");
            let counts = pool.counts(q);
            assert_eq!(counts.count, 3);
            assert_eq!(
                counts.was_full - before.was_full,
                if out.is_ok() { 1 } else { 2 }
            );
            let _ = pool.remove(9);
        }
        pool.audit().unwrap();
    }
}

#[test]
fn a_refused_push_or_move_leaves_no_trace() {
    let window = Window {
        below: Outside::Drop,
        beyond: Outside::Drop,
        ..strict(10, 100)
    };
    let mut pool = one(Kind::Cffs(window), 3);
    for (item, rank) in [(1, 105), (2, 103)] {
        pool.push(1, item, rank).unwrap();
    }
    let (count, item) = (pool.counts(1).count, pool.item(1));
    assert_eq!(pool.push(1, 3, 99), Err(Refusal::Below));
    assert_eq!(
        pool.push(1, 1, 101),
        Err(Refusal::Item),
        "it is queued already"
    );
    assert_eq!(pool.push(2, 3, 101), Err(Refusal::Pifo));
    assert_eq!(
        pool.push(1, 4, 101),
        Err(Refusal::Item),
        "there is no item 4"
    );
    assert_eq!(pool.move_to(1, 120), Err(Refusal::Beyond));
    assert_eq!(
        pool.move_to(3, 101),
        Err(Refusal::Item),
        "it is queued nowhere"
    );
    assert_eq!((pool.counts(1).count, pool.item(1)), (count, item));
    assert_eq!(pool.item(3).pifo, 0);
    assert_eq!(
        (pool.pool_counts().bad_items, pool.pool_counts().bad_pifos),
        (3, 1)
    );
    pool.audit().unwrap();
}

/// An item may stand for a PIFO: here one a child, ranked by the child's first, and ranked again when that changes.
#[test]
fn pifo_of_pifos_serves_the_smallest_of_all() {
    const CHILDREN: u32 = 4;
    const PACKETS: u32 = 200;
    let child = PifoConfig::new(Kind::Heap, PACKETS);
    let root = PifoConfig::new(Kind::Heap, CHILDREN);
    let window = PifoConfig::new(Kind::Cffs(strict(2_000, 0)), PACKETS);
    // Children 1 to 4 of two kinds, root 5; item PACKETS + c stands for child c.
    let mut pool = Pool::new(PACKETS + CHILDREN, &[child, window, child, window, root]).unwrap();
    let mut random = Random::new(test_seed());
    let mut ranks = Vec::new();
    for packet in 1..=PACKETS {
        let c = 1 + packet % CHILDREN;
        let rank = random.below(1_000);
        ranks.push(rank);
        pool.push(c, packet, rank).unwrap();
        let first = pool.item(pool.peek(c).unwrap()).rank;
        if pool.push(5, PACKETS + c, first).is_err() {
            pool.move_to(PACKETS + c, first).unwrap();
        }
    }
    ranks.sort_unstable();
    for expected in ranks {
        let c = pool.pop(5).unwrap() - PACKETS;
        let packet = pool.pop(c).unwrap();
        assert_eq!(pool.item(packet).rank, expected);
        if let Some(next) = pool.peek(c) {
            let rank = pool.item(next).rank;
            pool.push(5, PACKETS + c, rank).unwrap();
        }
    }
    pool.audit().unwrap();
}

#[test]
fn a_batch_is_what_single_pops_would_give() {
    let mut pool = one(Kind::Heap, 200);
    for item in 1..=150u32 {
        pool.push(1, item, u64::from(item * 7 % 150)).unwrap();
    }
    let mut batch = [0; 100];
    assert_eq!(pool.pop_batch(1, &mut batch[..10]), 10);
    assert_eq!(
        pool.pop_batch(1, &mut batch[10..]),
        64,
        "a batch has a limit"
    );
    let ranks = batch[..74].iter().map(|&item| u64::from(item * 7 % 150));
    assert!(ranks.eq(0..74));
    assert_eq!(
        pool.pop_batch(1, &mut batch[..]) + pool.pop_batch(1, &mut batch),
        76
    );
    assert_eq!(pool.pop_batch(1, &mut batch), 0);
}

#[test]
fn invalid_pifo_configurations_are_refused() {
    use fairpath_core::pifo::PifoConfigError;
    let window = |buckets, shift| {
        Kind::Cffs(Window {
            buckets,
            shift,
            ..Window::default()
        })
    };
    let cases = [
        (Kind::Heap, 0, PifoConfigError::Capacity),
        (Kind::Heap, 11, PifoConfigError::Capacity),
        (window(0, 0), 10, PifoConfigError::Buckets),
        (window((1 << 20) + 1, 0), 10, PifoConfigError::Buckets),
        (window(10, 64), 10, PifoConfigError::Shift),
        (
            Kind::Gradient(Window {
                buckets: 524,
                ..Window::default()
            }),
            10,
            PifoConfigError::Buckets,
        ),
        (
            Kind::Bands {
                bands: 65,
                beyond: Outside::Drop,
            },
            10,
            PifoConfigError::Buckets,
        ),
        (
            Kind::SpPifo { lists: 8, each: 0 },
            10,
            PifoConfigError::Capacity,
        ),
        (
            Kind::Aifo {
                window: 1_025,
                headroom: 0,
            },
            10,
            PifoConfigError::Buckets,
        ),
        (
            Kind::Aifo {
                window: 10,
                headroom: 256,
            },
            10,
            PifoConfigError::Parts,
        ),
        (
            Kind::Pieo { wheel: 1, ready: 1 },
            10,
            PifoConfigError::Parts,
        ),
    ];
    for (kind, capacity, invalid_field) in cases {
        let reported = Pool::new(10, &[PifoConfig::new(kind, capacity)]).unwrap_err();
        assert_eq!(reported, invalid_field, "{kind:?}");
    }
    let approximate = PifoConfig::new(
        Kind::Aifo {
            window: 5,
            headroom: 0,
        },
        10,
    );
    assert_eq!(
        Pool::new(10, &[approximate.pushing_out()]).unwrap_err(),
        PifoConfigError::Policy
    );
    assert_eq!(
        Pool::new(0, &[approximate]).unwrap_err(),
        PifoConfigError::Number
    );
    assert_eq!(Pool::new(10, &[]).unwrap_err(), PifoConfigError::Number);
}
