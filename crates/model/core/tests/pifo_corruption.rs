//! Corrupted pools: every operation ends, no memory outside changes, and an audit detects it.
//!
//! `cargo xtask sanitize` runs this under AddressSanitizer and UBSan, where straying by a byte is a failure.

mod pifo_oracle;

use fairpath_core::pifo::{Kind, Op, PifoConfig, Pool, Refusal, Window};
use fairpath_units::test_seeds;
use pifo_oracle::log::{Random, Writer, plan};

/// Pools, words that are overwritten in each, and operations after each.
const POOLS: u64 = 60;
const WORDS: usize = 150;
const OPS: usize = 150;

fn corruption(random: &mut Random) -> u64 {
    let small = random.below(400);
    let anything = random.draw();
    random.pick(&[
        0,
        1,
        small,
        small << 32,
        u64::MAX,
        1 << 63,
        1 << 31,
        anything,
    ])
}

#[test]
fn corrupted_words_never_cause_hangs_or_overruns() {
    for seed in test_seeds(POOLS) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let mut pool = Pool::new(plan.items, &plan.pifos).unwrap();
        let mut writer = Writer::new(&plan);
        for _ in 0..WORDS {
            let mut log = writer.write(&mut random, OPS);
            pool.run(&mut log);
            let mut out = [0; 64];
            for q in 1..=plan.pifos.len() as u32 {
                pool.pop_batch(q, &mut out);
            }
            for op in log
                .iter()
                .filter(|op| ["pop", "peek", "last", "pieo pop"].contains(&op.name()))
            {
                assert!(op.answer <= plan.items, "{op:?}");
            }
            // Descriptors are a small part of a large pool: half of the blows go there.
            let items = 16 + 4 * (plan.items as usize + 2);
            let descriptors = 24 * (plan.pifos.len() + 1);
            let anywhere = 16 + random.below(pool.words() as u64 - 16) as usize;
            let descriptor = items + random.below(descriptors as u64) as usize;
            let item = 16 + random.below(items as u64 - 16) as usize;
            pool.overwrite(
                random.pick(&[anywhere, descriptor, item]),
                corruption(&mut random),
            );
            // Whatever it finds, it ends.
            let _ = pool.audit();
        }
    }
}

#[test]
fn invalid_headers_refuse_until_repaired() {
    let mut pool = Pool::new(10, &[PifoConfig::new(Kind::Heap, 10)]).unwrap();
    pool.push(1, 1, 5).unwrap();
    let magic_and_version = 0x4f46_4950 | 4 << 32;
    pool.overwrite(0, magic_and_version + 1);
    assert_eq!(pool.push(1, 2, 5), Err(Refusal::Pifo));
    assert_eq!(
        (pool.pop(1), pool.peek(1), pool.last(1)),
        (None, None, None)
    );
    assert!(pool.audit().is_err());
    pool.overwrite(0, magic_and_version);
    assert_eq!(pool.pop(1), Some(1));
    // Bytes, room, where PIFOs and arrays are, how many items and PIFOs.
    for word in 1..6 {
        for value in [0, u64::MAX, 1 << 20, 1 << 40] {
            let mut pool = Pool::new(10, &[PifoConfig::new(Kind::Heap, 10)]).unwrap();
            pool.overwrite(word, value);
            assert_eq!(
                pool.push(1, 2, 5),
                Err(Refusal::Pifo),
                "word {word}, {value:#x}"
            );
        }
    }
}

/// A pool with something in each PIFO, and its audit after one word was changed.
fn flaw_after(kind: Kind, change: impl Fn(&Pool) -> (usize, u64)) -> String {
    let mut pool = Pool::new(8, &[PifoConfig::new(kind, 8)]).unwrap();
    for item in 1..=6 {
        // 3, 2, 2, 1, 1, 0: two runs, and a heap of three.
        pool.push(1, item, u64::from(item) * 3 % 7 % 4).unwrap();
    }
    pool.audit().unwrap();
    let (word, value) = change(&pool);
    pool.overwrite(word, value);
    pool.audit().unwrap_err().to_string()
}

/// Each item of a heap leaves once, whatever its record says about its place.
#[test]
fn wrong_places_lose_no_item_of_a_heap() {
    for place in [5, 1 << 31, 1 << 31 | 1, u64::from(u32::MAX)] {
        for item in 1..=6_usize {
            let mut pool = Pool::new(8, &[PifoConfig::new(Kind::Heap, 8)]).unwrap();
            // Two runs, and a heap of three.
            for (item, rank) in (1..).zip([30, 20, 21, 11, 12, 10]) {
                pool.push(1, item, rank).unwrap();
            }
            pool.overwrite(16 + 4 * item + 3, place | 1 << 32);
            let mut left: Vec<u32> = (0..8).filter_map(|_| pool.pop(1)).collect();
            left.sort_unstable();
            assert_eq!(left, [1, 2, 3, 4, 5, 6], "item {item} at {place:#x}");
        }
    }
}

#[test]
fn an_audit_names_what_is_wrong() {
    // Items begin at word 16, four words each; descriptors behind nine of them, 24 words each.
    let item = |i: usize| 16 + 4 * i;
    let pifo = |q: usize| 16 + 4 * 10 + 24 * q;
    let arrays = pifo(2);
    let window = Window {
        buckets: 100,
        ..Window::default()
    };
    let bands = Kind::Bands {
        bands: 4,
        beyond: fairpath_core::pifo::Outside::Drop,
    };
    // The bits of each half of a window stand behind its own buckets.
    let bits = arrays + window.buckets as usize;
    let cases: [(&str, Kind, usize, u64); 12] = [
        ("descriptor", Kind::Heap, pifo(1), 0xff),
        ("another position", Kind::Heap, item(2) + 3, 7 | 1 << 32),
        ("precedes", Kind::Heap, item(6), 99),
        ("precedes", Kind::Heap, item(3), 1),
        ("bits or sums", Kind::Heap, item(3), 99),
        ("item count", Kind::Heap, arrays + 6, 2),
        // The rank at the first position, behind 8 words of runs and 6 of space.
        ("bits or sums", Kind::Heap, arrays + 14, 99),
        (
            "another position",
            Kind::Cffs(window),
            item(2) + 3,
            7 | 1 << 32,
        ),
        ("links", Kind::Cffs(window), item(5) + 2, 6 << 32),
        ("bits or sums", bands, pifo(1) + 5, 0b0101),
        ("bits or sums", Kind::Cffs(window), bits, 1 << 50),
        ("bits or sums", Kind::Cffs(window), bits + 102, 1 << 50),
    ];
    for (what, kind, word, value) in cases {
        let reported = flaw_after(kind, |_| (word, value));
        assert!(
            reported.contains(what),
            "{kind:?}, word {word}: {reported}, not {what}"
        );
    }
    // An item that is queued nowhere.
    let mut pool = Pool::new(8, &[PifoConfig::new(Kind::Heap, 8)]).unwrap();
    pool.overwrite(item(3) + 3, 1 << 32);
    assert!(
        pool.audit()
            .unwrap_err()
            .to_string()
            .contains("as queued and is not")
    );
    let mut log = [Op::remove(3), Op::pop(1)];
    pool.run(&mut log);
    assert_eq!((log[0].answer, log[1].answer), (5, 0));
    assert_eq!(pool.pool_counts().broken, 1);
}
