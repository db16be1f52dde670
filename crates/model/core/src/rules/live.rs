//! An image whose chains are replaced while packets are evaluated with it.
//!
//! ```text
//!   header │ chains ... │ sets │ tables │ free ─────────────┐
//!      │      chain table ── flip ──> new blob in free space │
//!      └── generation
//! ```
//!
//! [`LiveImage::replace`] writes new blobs to free space, then changes the chain table: one word, or
//! for several chains a second table that takes the place of the first by one word of the header. So
//! one reading of the table gives all chains before the change, or all of them after it. The core
//! reads it once for each table of a hook.
//! Replaced blobs are free again after [`LiveImage::reclaim`], when no packet reads them any more.
//!
//! Invariant: the bytes are an image that [`check`] accepts, and free space is no part of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::abi::{FAMILIES, HOOKS, Header, TABLES, UNIT};
use super::check::{ImageError, check, check_chains};

/// Base chains by family, hook and order, and bits of those of table nat.
pub type Entries = ([[[u32; TABLES]; HOOKS]; FAMILIES], [[u32; HOOKS]; FAMILIES]);

/// An image and its free space.
#[derive(Debug)]
pub struct LiveImage {
    bytes: Vec<u8>,
    /// Free parts: offset, bytes.
    free: BTreeMap<usize, usize>,
    /// Replaced parts, which packets may still read.
    retired: Vec<Range<usize>>,
    /// The part of the chain table that can be released.
    table: Range<usize>,
    id: u64,
}

/// Changed parts of an image: [`super::Memory::apply`] copies them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// The image, and its generation before.
    pub(super) image: u64,
    pub(super) from: u32,
    /// Parts that no packet reads yet.
    pub(super) parts: Vec<Range<usize>>,
    /// Then words that make them visible: the chain table, or the header.
    pub(super) words: Vec<Range<usize>>,
    /// Slots of new rules with their first values.
    pub slots: Vec<(u32, u64)>,
    /// Ids whose counters begin at 0.
    pub zeroed: Vec<u32>,
}

/// The state that a new image keeps of an old one: numbers in the old one, and in the new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carry {
    /// Ids of counters.
    pub ids: Vec<(u32, u32)>,
    /// Slots.
    pub slots: Vec<(u32, u32)>,
    /// Tables with equal descriptions.
    pub tables: Vec<(u32, u32)>,
}

/// A chain could not be replaced. The image is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// No free part is large enough.
    #[error("the image has no space for the chain: build it again")]
    Full,
    /// A blob is corrupt.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Offsets of words of [`Header`].
const GENERATION: usize = 12;
const CHAINS: usize = 16;
const CHAIN_AT: usize = 28;
const ENTRY: usize = 64;
const CHAIN_HEADER: usize = 16;
/// Offset of the bytes of a blob in its header.
const CHAIN_BYTES: usize = 12;

/// Refuses an image in which a chain shares bytes with anything else: the bytes of a replaced chain
/// are used again.
fn check_apart(bytes: &[u8], header: &Header) -> Result<(), ImageError> {
    let word = |at: usize| -> usize {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let table = |at: u32, count: u32| (0..count as usize).map(move |n| word(at as usize + 4 * n));
    let mut blobs: Vec<(usize, usize)> = table(header.chain_at, header.chains)
        .map(|start| start - CHAIN_HEADER)
        .map(|start| (start, start + word(start + CHAIN_BYTES)))
        .collect();
    blobs.sort_unstable();
    let shared = blobs.windows(2).find(|pair| pair[0].1 > pair[1].0);
    let others = [header.chain_at, header.set_at, header.table_at].map(|at| at as usize);
    let behind = others
        .into_iter()
        .chain(table(header.set_at, header.sets))
        .min();
    let last = blobs
        .last()
        .filter(|(_, end)| behind.is_some_and(|at| at < *end));
    match shared.map(|pair| pair[1]).or(last.copied()) {
        Some((at, _)) => Err(ImageError {
            at,
            problem: "a chain shares its bytes",
        }),
        None => Ok(()),
    }
}

impl LiveImage {
    /// Checks an image, and appends free space.
    ///
    /// # Errors
    ///
    /// The image is corrupt, or too large with that space.
    pub fn new(mut bytes: Vec<u8>, space: usize) -> Result<Self, ImageError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut header = check(&bytes)?;
        check_apart(&bytes, &header)?;
        let start = bytes.len();
        bytes.resize((start + space).next_multiple_of(UNIT), 0);
        header.bytes = bytes.len() as u32;
        header.write_to(&mut bytes);
        let table = header.chain_at as usize;
        let end = table + 4 * header.chains as usize;
        Ok(Self {
            free: [(start, bytes.len() - start)].into(),
            retired: Vec::new(),
            // Its ends may share a unit with other parts.
            table: table.next_multiple_of(UNIT).min(end)..end & !(UNIT - 1),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            bytes,
        })
    }

    /// The image.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The header.
    pub fn header(&self) -> Header {
        // SAFETY: check() accepted the image, which begins with plain numbers.
        unsafe { self.bytes.as_ptr().cast::<Header>().read_unaligned() }
    }

    /// Differs from that of any other image of this process.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Changes with each replacement.
    pub fn generation(&self) -> u32 {
        self.word(GENERATION)
    }

    /// Bytes that new chains can use, in all parts together.
    pub fn free_bytes(&self) -> usize {
        self.free.values().sum()
    }

    /// The blob of a chain: its header, records and tables.
    ///
    /// # Panics
    ///
    /// The image has no such chain.
    pub fn chain(&self, number: u32) -> &[u8] {
        &self.bytes[self.place(number)]
    }

    fn place(&self, number: u32) -> Range<usize> {
        assert!(
            number < self.word(CHAINS),
            "chain {number} is not of this image"
        );
        let start = self.word(self.table_at() + 4 * number as usize) as usize - CHAIN_HEADER;
        start..start + self.word(start + CHAIN_BYTES) as usize
    }

    fn table_at(&self) -> usize {
        self.word(CHAIN_AT) as usize
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    }

    fn put(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Replaces chains and the base chains of hooks, all or none of them. O(bytes of the chains), and
    /// for several chains O(number of all chains).
    ///
    /// # Errors
    ///
    /// [`ReplaceError`]: the image is unchanged.
    ///
    /// # Panics
    ///
    /// The image has no such chain.
    pub fn replace(
        &mut self,
        chains: &[(u32, Vec<u8>)],
        entries: &Entries,
    ) -> Result<Patch, ReplaceError> {
        assert!(
            chains.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "each chain once, in order of their numbers"
        );
        let copies = chains.len() > 1;
        let table_bytes = 4 * self.word(CHAINS) as usize;
        let sizes = chains.iter().map(|(_, blob)| blob.len());
        let parts = self.allocate(sizes.chain(copies.then_some(table_bytes)))?;
        let saved: Vec<Vec<u8>> = parts
            .iter()
            .map(|part| self.bytes[part.clone()].to_vec())
            .collect();
        for ((_, blob), part) in chains.iter().zip(&parts) {
            self.bytes[part.start..part.start + blob.len()].copy_from_slice(blob);
        }
        if let Err(problem) = self.check_blobs(&parts[..chains.len()]) {
            for (part, bytes) in parts.into_iter().zip(&saved) {
                self.bytes[part.clone()].copy_from_slice(bytes);
                self.release(part);
            }
            return Err(problem.into());
        }
        let mut patch = Patch {
            image: self.id,
            from: self.generation(),
            ..Patch::default()
        };
        for (number, _) in chains {
            let place = self.place(*number);
            self.retired.push(place);
        }
        if let Some(part) = parts.get(chains.len()) {
            let table = self.table_at();
            self.bytes
                .copy_within(table..table + table_bytes, part.start);
            self.retired
                .push(std::mem::replace(&mut self.table, part.clone()));
            self.put(CHAIN_AT, part.start as u32);
            patch.words.push(CHAIN_AT..CHAIN_AT + 4);
        }
        for ((number, _), part) in chains.iter().zip(&parts) {
            let word = self.table_at() + 4 * *number as usize;
            self.put(word, (part.start + CHAIN_HEADER) as u32);
            if !copies {
                patch.words.push(word..word + 4);
            }
        }
        patch.parts = parts;
        self.enter(entries, &mut patch);
        self.put(GENERATION, patch.from.wrapping_add(1));
        patch.words.push(GENERATION..GENERATION + 4);
        Ok(patch)
    }

    /// Checks blobs that were written to these parts.
    fn check_blobs(&self, parts: &[Range<usize>]) -> Result<(), ImageError> {
        for part in parts {
            if part.len() < CHAIN_HEADER
                || self.word(part.start + CHAIN_BYTES) as usize != part.len()
            {
                return Err(ImageError {
                    at: part.start,
                    problem: "the number of bytes of a chain is another one",
                });
            }
        }
        let starts: Vec<usize> = parts.iter().map(|part| part.start + CHAIN_HEADER).collect();
        check_chains(&self.bytes, &starts)
    }

    /// Changes the base chains of hooks.
    fn enter(&mut self, (entry, nat): &Entries, patch: &mut Patch) {
        let entry = entry.iter().flatten().flatten();
        let words: Vec<u32> = entry.chain(nat.iter().flatten()).copied().collect();
        for (at, word) in words.into_iter().enumerate() {
            let at = ENTRY + 4 * at;
            if self.word(at) != word {
                self.put(at, word);
                patch.words.push(at..at + 4);
            }
        }
    }

    /// Releases replaced parts. The caller knows that no packet reads them any more: natively at
    /// once, in the kernel after a grace period.
    pub fn reclaim(&mut self) {
        for part in std::mem::take(&mut self.retired) {
            self.release(part);
        }
    }

    /// The first free parts that are large enough.
    fn allocate(
        &mut self,
        sizes: impl Iterator<Item = usize>,
    ) -> Result<Vec<Range<usize>>, ReplaceError> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for size in sizes {
            let size = size.next_multiple_of(UNIT);
            let Some((start, bytes)) = self
                .free
                .iter()
                .find(|(_, bytes)| **bytes >= size)
                .map(|(start, bytes)| (*start, *bytes))
            else {
                parts.into_iter().for_each(|part| self.release(part));
                return Err(ReplaceError::Full);
            };
            self.free.remove(&start);
            if bytes > size {
                self.free.insert(start + size, bytes - size);
            }
            parts.push(start..start + size);
        }
        Ok(parts)
    }

    /// Adds a free part, joined with its neighbours.
    fn release(&mut self, part: Range<usize>) {
        if part.is_empty() {
            return;
        }
        let (mut start, mut bytes) = (part.start, part.len());
        if let Some(next) = self.free.remove(&part.end) {
            bytes += next;
        }
        if let Some((before, length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            start = *before;
            bytes += length;
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_header() {
        assert_eq!(std::mem::offset_of!(Header, generation), GENERATION);
        assert_eq!(std::mem::offset_of!(Header, chain_at), CHAIN_AT);
        assert_eq!(std::mem::offset_of!(Header, chains), CHAINS);
        assert_eq!(std::mem::offset_of!(Header, entry), ENTRY);
        let nat = ENTRY + 4 * FAMILIES * HOOKS * TABLES;
        assert_eq!(std::mem::offset_of!(Header, nat), nat);
    }
}
