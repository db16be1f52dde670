//! The hash against its definition, and against keys that are chosen to collide.

use std::path::Path;
use std::process::Command;

use fairpath_statistics::Random;

use super::*;
use crate::{CELL_WAYS, Key, PAIR_WAYS};

#[path = "../../tests/traffic/occupancy.rs"]
mod occupancy;
use occupancy::refusals;

/// 2^64.
const ALL: u128 = 1 << 64;

/// hash.h as the paper writes it: 128-bit integers and remainders.
struct Oracle(Vec<u128>);

fn mix64(x: u128) -> u128 {
    let x = (x ^ x >> 30) * 0xbf58_476d_1ce4_e5b9 % ALL;
    let x = (x ^ x >> 27) * 0x94d0_49bb_1331_11eb % ALL;
    x ^ x >> 31
}

impl Oracle {
    fn new(seed: u64) -> Oracle {
        let state = |i: u128| (mix64(u128::from(seed)) + i * 0x9e37_79b9_7f4a_7c15) % ALL;
        Oracle((1..=11).map(|i| mix64(state(i))).collect())
    }

    fn hash(&self, words: &[u64]) -> u64 {
        let mut sum = self.0[0];
        for (word, keys) in words.iter().zip(self.0[1..].chunks(2)) {
            let low = keys[0] + u128::from(*word as u32);
            let high = keys[1] + u128::from(*word >> 32);
            sum += (low % ALL) * (high % ALL) % ALL;
        }
        mix64(sum % ALL) as u64
    }

    /// Of the key of a flow. IPv4 has both addresses in one word.
    fn flow(&self, words: [u64; 5]) -> u32 {
        let hash = if words[4] >> 40 == 4 {
            self.hash(&[words[1] >> 32 | words[3] >> 32 << 32, words[4]])
        } else {
            self.hash(&words)
        };
        hash as u32
    }
}

impl HashKeys {
    fn one(&self, a: u64) -> u64 {
        // SAFETY: the keys are read only.
        unsafe { ffi::fp_native_hash_1(self, a) }
    }

    fn three(&self, [a, b, c]: [u64; 3]) -> u64 {
        // SAFETY: the keys are read only.
        unsafe { ffi::fp_native_hash_3(self, a, b, c) }
    }

    fn flow(&self, words: [u64; 5]) -> u32 {
        let key = Key::of_words(words);
        // SAFETY: both are read only.
        unsafe { ffi::fp_native_hash_key(self, &raw const key) }
    }
}

#[test]
fn the_hash_is_its_definition() {
    let seed = fairpath_units::test_seed();
    let mut random = Random::new(seed);
    for seed in [0, 1, u64::MAX].into_iter().chain([random.draw()]) {
        let (keys, oracle) = (HashKeys::new(seed), Oracle::new(seed));
        for _ in 0..1000 {
            // Halves of all zeros and all ones, too.
            let mut word = || match random.below(4) {
                0 => random.draw() >> 32,
                1 => random.draw() | 0xffff_ffff,
                _ => random.draw(),
            };
            let words = [word(), word(), word(), word(), word() & 0xffff_ffff_ffff];
            let mut words = words;
            for family in [6, 4] {
                words[4] = words[4] & 0xff_ffff_ffff | family << 40;
                let of_flow = oracle.flow(words);
                assert_eq!(keys.flow(words), of_flow, "{words:x?}");
            }
            assert_eq!(Key::of_words(words).words(), words);
            let three = [words[0], words[1], words[2]];
            assert_eq!(keys.three(three), oracle.hash(&three), "{three:x?}");
            assert_eq!(keys.one(words[3]), oracle.hash(&words[3..4]));
            let mut meta = Meta {
                source_port: words[4] as u16,
                destination_port: (words[4] >> 16) as u16,
                protocol: (words[4] >> 32) as u8,
                ..Meta::default()
            };
            let bytes = |a: u64, b: u64| {
                let both = [a.to_ne_bytes(), b.to_ne_bytes()].concat();
                <[u8; 16]>::try_from(both).expect("sixteen bytes")
            };
            meta.source = bytes(words[0], words[1]);
            meta.destination = bytes(words[2], words[3]);
            let rest = u64::from(meta.source_port) << 32
                | u64::from(meta.destination_port) << 8
                | u64::from(meta.protocol);
            let hash = oracle.hash(&[words[0], words[1], words[2], words[3], rest]) as u32;
            assert_eq!(keys.of_meta(&meta), hash.max(1));
        }
    }
}

/// Clients whose address and port step together, of both families, in front of one server.
fn stepping(n: u64) -> [u64; 5] {
    let (host, port) = ((n / 2) as u32, (1000 + n / 2) as u16);
    let address = match n % 2 {
        0 => [
            0,
            u64::from((0x0a00_0000 + host).swap_bytes()) << 32 | 0xffff_0000,
        ],
        _ => [u64::from(host.swap_bytes()) << 32 | 0xb80d_0120, 1 << 56],
    };
    let rest = u64::from(port.swap_bytes()) | 0xbb01 << 16 | 6 << 32;
    let family = if n.is_multiple_of(2) { 4 } else { 6 };
    [
        address[0],
        address[1],
        0,
        0x0102_00c0_ffff_0000,
        rest | family << 40,
    ]
}

/// Someone who knows one seed finds flows that fill a set, or that have one hash. With another seed
/// they are like any others: at most eight in a set of 8,192, and no two with one hash.
#[test]
fn collisions_of_one_seed_spread_under_another() {
    const SET: u32 = 8191;
    let keys = HashKeys::new(0);
    let mut of_one_set = Vec::new();
    let mut hashes: Vec<(u32, u64)> = Vec::new();
    for n in 0..2_000_000 {
        let hash = keys.flow(stepping(n));
        if hash >> 1 & SET < 4 {
            of_one_set.push(n);
        }
        hashes.push((hash, n));
    }
    hashes.sort_unstable();
    let equal: Vec<[u64; 2]> = hashes
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0)
        .map(|pair| [pair[0].1, pair[1].1])
        .collect();
    // 2,000,000 * 4 / 8192 and 2,000,000^2 / 2^33, with a margin of at least 10 %.
    assert!(
        (850..1100).contains(&of_one_set.len()),
        "{}",
        of_one_set.len()
    );
    assert!((350..580).contains(&equal.len()), "{}", equal.len());
    for seed in 1..=32 {
        let keys = HashKeys::new(seed);
        let mut sets = vec![0; SET as usize + 1];
        for n in &of_one_set {
            sets[(keys.flow(stepping(*n)) >> 1 & SET) as usize] += 1;
        }
        let fullest = sets.iter().max();
        assert!(fullest <= Some(&8), "seed {seed}: {fullest:?} in one set");
        for [a, b] in &equal {
            let still = keys.flow(stepping(*a)) == keys.flow(stepping(*b));
            assert!(!still, "seed {seed}: flows {a} and {b} still collide");
        }
    }
}

/// A hash whose seed is mixed in too late, or whose words cancel each other, has differences that
/// collide under every seed. Up to three bits in one word and the next are tried.
#[test]
fn no_difference_of_few_bits_collides() {
    let bits = |at: &[u32]| at.iter().fold(0, |word, at| word | 1u64 << at);
    let base = stepping(77);
    for seed in 0..4 {
        let keys = HashKeys::new(seed);
        let hash = keys.flow(base);
        let mut tried = 0;
        let mut differs = |word: usize, here: u64, next: u64| {
            let mut words = base;
            words[word] ^= here;
            if word < 4 {
                words[word + 1] ^= next;
            }
            words[4] &= 0xffff_ffff_ffff;
            if words != base {
                tried += 1;
                assert_ne!(
                    keys.flow(words),
                    hash,
                    "seed {seed}: {word} {here:x} {next:x}"
                );
            }
        };
        for word in 0..5 {
            for i in 0..64 {
                for j in 0..64 {
                    differs(word, bits(&[i, j]), 0);
                    differs(word, bits(&[i]), bits(&[j]));
                    differs(word, bits(&[i]), bits(&[j, j ^ 32]));
                }
            }
        }
        assert!(tried > 50_000);
    }
}

/// The number of keys that find their set full.
fn refused(hashes: impl Iterator<Item = u64>, sets: u32, ways: u32) -> u64 {
    let mut used = vec![0; sets as usize];
    for hash in hashes {
        used[(hash as u32 & (sets - 1)) as usize] += 1u64;
    }
    used.iter().map(|n| n.saturating_sub(ways.into())).sum()
}

/// The words of a client's address.
fn client(n: u64, v6: bool) -> [u64; 2] {
    let [a, b, ..] = stepping(2 * n + u64::from(v6));
    [a, b]
}

/// The other tables of the core: cells of classes, pairs of a class and a peer, flows and hosts at
/// leaves. Numbers of classes and leaves are sequential, like the addresses of their hosts.
#[test]
fn structured_keys_of_every_table_spread() {
    const KEYS: u32 = 8192;
    for seed in 0..8 {
        let keys = HashKeys::new(seed);
        let all = || 0..u64::from(KEYS);
        let check = |what: &str, hashes: &mut dyn Iterator<Item = u64>, ways: u32| {
            let hashes: Vec<u64> = hashes.collect();
            for sets in [1024, 4096] {
                let number = refused(hashes.iter().copied(), sets, ways);
                let limit = refusals(KEYS, sets, ways);
                assert!(
                    number <= limit,
                    "seed {seed}, {what}: {number}, not {limit}"
                );
            }
        };
        // fp_count_cell(): one bucket of each class, and many of a few classes.
        let cell = |slot: u64, bucket: u64| keys.one((slot << 11 | bucket) + 1);
        check("cells", &mut all().map(|n| cell(n, 300)), CELL_WAYS);
        check(
            "buckets",
            &mut all().map(|n| cell(n >> 9, n % 512)),
            CELL_WAYS,
        );
        for v6 in [false, true] {
            // fp_pair_add(): peers of one class, and one peer of each class.
            let kind = 3 | 128 << 8;
            let pair = |slot: u64, n: u64| {
                let [a, b] = client(n, v6);
                keys.three([a, b, slot << 32 | kind])
            };
            check("peers", &mut all().map(|n| pair(5, n)), PAIR_WAYS);
            check("a peer", &mut all().map(|n| pair(n, 5)), PAIR_WAYS);
            check("pairs", &mut all().map(|n| pair(n, n)), PAIR_WAYS);
            // fp_find_flow(): flows of one leaf, and one of each leaf.
            let hash = |n| u64::from(keys.flow(stepping(2 * n + u64::from(v6))));
            check("flows", &mut all().map(|n| keys.one(1 << 32 | hash(n))), 8);
            check("leaves", &mut all().map(|n| keys.one(n << 32 | hash(5))), 8);
            check("both", &mut all().map(|n| keys.one(n << 32 | hash(n))), 8);
            // fp_find_host().
            let host = |n, leaf| {
                let [a, b] = client(n, v6);
                keys.three([a, b, leaf])
            };
            check("hosts", &mut all().map(|n| host(n, 2)), 8);
            check("hosts of leaves", &mut all().map(|n| host(n, 2 * n)), 8);
        }
    }
}

/// The output of known_keys.c, built by this compiler; `None` without the compiler.
fn compiled(compiler: &str, flags: &[&str], arguments: &[String]) -> Option<String> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = format!(
        "known-keys-{}-{compiler}{}",
        std::process::id(),
        flags.concat()
    );
    let program = std::env::temp_dir().join(name);
    let core = crate_dir.join("../../../bpf/core");
    let built = Command::new(compiler)
        .args(flags)
        .args(["-std=gnu11", "-Wall", "-Wno-unused-function", "-I"])
        .arg(core)
        .arg("-o")
        .arg(&program)
        .arg(crate_dir.join("src/hash/known_keys.c"))
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler} {flags:?}: {errors}");
    let run = Command::new(&program).args(arguments).output();
    std::fs::remove_file(&program).expect("it was built");
    let run = run.expect("it was built");
    assert!(run.status.success(), "{compiler} {flags:?}");
    Some(String::from_utf8(run.stdout).expect("numbers"))
}

/// Without `-fno-strict-aliasing`, too: the installed headers are compiled by others.
#[test]
fn known_keys_hash_alike_with_every_compiler() {
    let seed = 0x0123_4567_89ab_cdef;
    let keys = HashKeys::new(seed);
    let mut arguments = vec![seed.to_string()];
    let mut expected = String::new();
    for n in [0, 1, 77, 5_000, 65_535, 131_071] {
        let words = stepping(n);
        let hash = keys.flow(words);
        arguments.extend(words.map(|word| word.to_string()));
        expected += &format!("{hash} {hash} 1\n");
    }
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let mut built = 0;
    for compiler in ["gcc", clang.as_str()] {
        for flags in [
            &["-O0"][..],
            &["-O2"],
            &["-O3"],
            &["-O2", "-fno-strict-aliasing"],
        ] {
            let Some(output) = compiled(compiler, flags, &arguments) else {
                continue;
            };
            assert_eq!(output, expected, "{compiler} {flags:?}");
            built += 1;
        }
    }
    assert!(built >= 4, "neither gcc nor {clang} is installed");
}
