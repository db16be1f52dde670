//! Blocks: counts by key as bytes, for files. A key is a row or a step.
//!
//! ```text
//! block     version, CRC-32 of the rest, deflate(varints)
//! varints   n | mask of columns | n distances of keys | n values of each column of the mask |
//!           for each leg: n numbers of buckets | all distances of buckets | all counts - 1
//! ```
//!
//! Values of one kind are next to each other, so that they compress well.

use std::io::{Read, Write};

use fairpath_core::{BUCKETS, INSIDE, OUTSIDE};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::counts::{Counts, NUMBERS};
use super::pad::Sums;

/// Version of the format. Blocks of others are refused.
const VERSION: u8 = 1;
/// Bytes of version and checksum.
const HEAD: usize = 5;
/// Maximum number of samples of a bucket: many times those of a step. More are not kept.
const MAX_SAMPLES: u64 = 1 << 32;
/// Maximum size of an uncompressed block, many times that of 512 rows with 200 buckets a leg.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

/// Bytes that are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Written by another version.
    #[error("read a block of counts: it has version {0}, and this program reads version {VERSION}")]
    Version(u8),
    /// Corrupted.
    #[error("read a block of counts: it is corrupted: {0}")]
    Corrupted(&'static str),
    /// Too large.
    #[error("read a block of counts: it is larger than {MAX_BLOCK_BYTES} bytes")]
    TooLarge,
}

/// Effort of the compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For blocks that are replaced within hours.
    Fast,
    /// For blocks that are kept.
    Small,
}

/// Encodes counts whose keys increase. O(values).
///
/// # Panics
/// If keys do not increase.
pub fn encode(counts: &[(u64, Counts)], effort: Effort) -> Vec<u8> {
    let mut plain = Vec::with_capacity(counts.len() * 64);
    let numbers: Vec<[u64; NUMBERS]> = counts.iter().map(|(_, c)| c.numbers()).collect();
    let used = |column: &usize| numbers.iter().any(|all| all[*column] != 0);
    let columns: Vec<usize> = (0..NUMBERS).filter(used).collect();
    put(&mut plain, counts.len() as u64);
    put(
        &mut plain,
        columns.iter().fold(0, |mask, at| mask | 1 << at),
    );
    let mut next = 0;
    for (key, _) in counts {
        assert!(*key >= next, "keys increase");
        put(&mut plain, key - next);
        next = key + 1;
    }
    for column in columns {
        numbers.iter().for_each(|all| put(&mut plain, all[column]));
    }
    let mut parts = [const { [Vec::new(), Vec::new(), Vec::new()] }; 2];
    let mut sums = Sums::default();
    for (_, counts) in counts {
        counts.add_up(&mut sums);
        for leg in [INSIDE, OUTSIDE] {
            let [lengths, distances, samples] = &mut parts[leg];
            let used = sums.buckets(leg).filter(|(_, count)| *count > 0);
            let (mut length, mut next) = (0, 0);
            for (bucket, count) in used {
                length += 1;
                put(distances, u64::from(bucket) - next);
                put(samples, count.min(MAX_SAMPLES) - 1);
                next = u64::from(bucket) + 1;
            }
            put(lengths, length);
        }
    }
    parts.iter().flatten().for_each(|part| plain.extend(part));
    let level = match effort {
        Effort::Fast => Compression::fast(),
        Effort::Small => Compression::best(),
    };
    sealed(&plain, level)
}

/// Compresses, with version and checksum.
fn sealed(plain: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(vec![VERSION, 0, 0, 0, 0], level);
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    let mut block = written.expect("memory takes all bytes");
    let sum = crc32fast::hash(&block[HEAD..]);
    block[1..HEAD].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Decodes the counts of the keys that are `wanted`, in the order of keys. O(values of the block).
///
/// # Errors
/// [`BlockError`].
pub fn decode(
    block: &[u8],
    wanted: impl Fn(u64) -> bool,
) -> Result<Vec<(u64, Counts)>, BlockError> {
    let (head, packed) = block
        .split_first_chunk::<HEAD>()
        .ok_or(BlockError::Corrupted("too short"))?;
    let [version, sum @ ..] = *head;
    if version != VERSION {
        return Err(BlockError::Version(version));
    }
    if u32::from_le_bytes(sum) != crc32fast::hash(packed) {
        return Err(BlockError::Corrupted("its checksum differs"));
    }
    let mut plain = Vec::new();
    let mut decoder = DeflateDecoder::new(packed).take(MAX_BLOCK_BYTES as u64 + 1);
    let read = decoder.read_to_end(&mut plain);
    read.map_err(|_| BlockError::Corrupted("it does not decompress"))?;
    if plain.len() > MAX_BLOCK_BYTES {
        return Err(BlockError::TooLarge);
    }
    let mut rest = &plain[..];
    let n = length(&mut rest)?;
    let mask = get(&mut rest)?;
    if mask >> NUMBERS != 0 {
        return Err(BlockError::Corrupted("unknown columns"));
    }
    // The place of each key in the result.
    let (mut places, mut found) = (Vec::with_capacity(n), Vec::new());
    let mut next = 0u64;
    for _ in 0..n {
        let key = next.checked_add(get(&mut rest)?);
        let key = key.filter(|key| *key < u64::MAX);
        let key = key.ok_or(BlockError::Corrupted("a key is too large"))?;
        next = key + 1;
        places.push(wanted(key).then_some(found.len()));
        if wanted(key) {
            found.push((key, [0; NUMBERS]));
        }
    }
    for column in (0..NUMBERS).filter(|column| mask >> column & 1 == 1) {
        for place in &places {
            let value = get(&mut rest)?;
            if let Some(place) = place {
                found[*place].1[column] = value;
            }
        }
    }
    let mut counts: Vec<(u64, Counts)> = found
        .iter()
        .map(|(key, numbers)| (*key, Counts::from_numbers(numbers)))
        .collect();
    for leg in [INSIDE, OUTSIDE] {
        let lengths: Vec<usize> = (0..n)
            .map(|_| length(&mut rest))
            .collect::<Result<_, _>>()?;
        let mut buckets = Vec::new();
        for (place, length) in places.iter().zip(&lengths) {
            let mut next = 0u64;
            for _ in 0..*length {
                let bucket = next.saturating_add(get(&mut rest)?);
                if bucket >= BUCKETS as u64 {
                    return Err(BlockError::Corrupted("a bucket does not exist"));
                }
                next = bucket + 1;
                if place.is_some() {
                    buckets.push(bucket as u16);
                }
            }
        }
        let mut buckets = buckets.into_iter();
        for (place, length) in places.iter().zip(&lengths) {
            for _ in 0..*length {
                let count = get(&mut rest)?;
                if count >= MAX_SAMPLES {
                    return Err(BlockError::Corrupted("too many samples"));
                }
                if let Some(place) = place
                    && let Some(bucket) = buckets.next()
                {
                    counts[*place].1.add_bucket(leg, bucket, count + 1);
                }
            }
        }
    }
    if !rest.is_empty() {
        return Err(BlockError::Corrupted("bytes are left"));
    }
    Ok(counts)
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> Result<u64, BlockError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes
            .split_first()
            .ok_or(BlockError::Corrupted("it ends early"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BlockError::Corrupted("a number is too long"))
}

/// A number of values, each of which has at least one byte.
fn length(bytes: &mut &[u8]) -> Result<usize, BlockError> {
    let length = get(bytes)?;
    if length > bytes.len() as u64 {
        return Err(BlockError::Corrupted("it ends early"));
    }
    Ok(length as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts() -> impl Strategy<Value = Counts> {
        let number = prop_oneof![3 => Just(0u64), 2 => 0..1000u64, 1 => any::<u32>().prop_map(u64::from), 1 => Just(u64::MAX)];
        let numbers = prop::collection::vec(number, NUMBERS);
        let bucket = (
            0..2usize,
            0..BUCKETS as u16,
            prop_oneof![1..5u64, Just(5_000_000)],
        );
        let buckets = prop::collection::vec(bucket, 0..40);
        (numbers, buckets).prop_map(|(numbers, buckets)| {
            let mut counts = Counts::from_numbers(&numbers.try_into().unwrap());
            for (leg, bucket, count) in buckets {
                counts.add_bucket(leg, bucket, count);
            }
            counts
        })
    }

    fn table() -> impl Strategy<Value = Vec<(u64, Counts)>> {
        let key = prop_oneof![0..50u64, any::<u64>().prop_map(|key| key.min(u64::MAX - 1))];
        prop::collection::btree_map(key, counts(), 0..30).prop_map(|all| all.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn decoding_returns_the_counts_of_the_range(
            all in table(), from in any::<u64>(), near in 0..60u64, until in any::<u64>()
        ) {
            for effort in [Effort::Fast, Effort::Small] {
                let block = encode(&all, effort);
                prop_assert_eq!(&decode(&block, |_| true).unwrap(), &all);
                for keys in [from..until, near..near + 7, near..near] {
                    let some: Vec<_> = all.iter().filter(|(key, _)| keys.contains(key)).cloned().collect();
                    prop_assert_eq!(decode(&block, |key| keys.contains(&key)).unwrap(), some);
                }
            }
        }

        #[test]
        fn corrupted_blocks_are_refused_or_decoded_without_panic(
            all in table(), at in any::<prop::sample::Index>(), byte in any::<u8>(), end in any::<prop::sample::Index>()
        ) {
            let mut block = encode(&all, Effort::Fast);
            let at = at.index(block.len());
            block[at] = byte;
            block.truncate(end.index(block.len()) + 1);
            let kept = decode(&block, |_| true);
            prop_assert!(kept.is_err() || block == encode(&all, Effort::Fast));
            // The same without compression, where corruption reaches the values.
            let mut plain = Vec::new();
            DeflateDecoder::new(&encode(&all, Effort::Fast)[HEAD..]).read_to_end(&mut plain).unwrap();
            let at = at.min(plain.len() - 1);
            plain[at] = byte;
            let _ = decode(&sealed(&plain, Compression::none()), |_| true);
        }
    }

    #[test]
    fn other_versions_are_named() {
        let mut block = encode(&[], Effort::Fast);
        assert_eq!(decode(&block, |_| true), Ok(Vec::new()));
        block[0] = 9;
        assert_eq!(decode(&block, |_| true), Err(BlockError::Version(9)));
        assert_eq!(
            decode(&block[..3], |_| true),
            Err(BlockError::Corrupted("too short"))
        );
    }

    #[test]
    fn a_block_that_expands_without_end_is_refused() {
        let block = sealed(&vec![0; MAX_BLOCK_BYTES + 1], Compression::best());
        assert_eq!(decode(&block, |_| true), Err(BlockError::TooLarge));
    }
}
