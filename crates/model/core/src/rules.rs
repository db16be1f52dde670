//! Rules: the native runtime of `bpf/core/rules`.
//!
//! ```text
//!   image (built by fairpath-rules) ─ check ─> Evaluator: header, image, counters, state
//!   packet + facts ─> Work ─ read ─ evaluate ─> verdict, rule, changes
//! ```
//!
//! [`Memory`] is the memory of an evaluator at any place; `fairpath-bpf` uses it for the kernel's
//! arena. Invariant: only an image that [`check`] accepted is interpreted.

mod abi;
mod check;
mod ffi;

use std::ptr::NonNull;

pub use abi::*;
pub use check::{ImageError, check};

/// Packets that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum CounterMode {
    /// Nothing.
    None = 0,
    /// One packet of many at random, as many.
    Sampled = 1,
    /// Every packet, as iptables.
    #[default]
    Exact = 2,
}

/// Memory of an evaluator: header, image, slots of state, tables, counters.
///
/// Neither it nor the place that it describes is shared between threads while it is used.
pub struct Memory {
    at: NonNull<u8>,
    layout: Layout,
}

/// Offsets of the parts.
#[derive(Debug, Clone, Copy)]
struct Layout {
    image: usize,
    slots: usize,
    tables: usize,
    counters: usize,
    bytes: usize,
}

/// The seed of tables until [`Memory::set_seed`]: fixed, so that tests are repeatable.
const SEED: u64 = 1;

const ALIGN: usize = 64;

/// Mode sampled: packets of which one counts, until [`Memory::set_sampling`].
pub const SAMPLE_EVERY: u32 = 64;

fn layout(image: &[u8], header: &Header) -> Layout {
    let image_at = size_of::<Rules>().next_multiple_of(ALIGN);
    let slots = (image_at + image.len()).next_multiple_of(ALIGN);
    let tables = (slots + header.slots as usize * SLOT_BYTES).next_multiple_of(ALIGN);
    let counters = (tables + header.table_bytes as usize).next_multiple_of(ALIGN);
    Layout {
        image: image_at,
        slots,
        tables,
        counters,
        bytes: counters + header.rules as usize * size_of::<Counter>(),
    }
}

impl Memory {
    /// Bytes of memory for an image.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    pub fn bytes(image: &[u8]) -> Result<usize, ImageError> {
        let header = check(image)?;
        Ok(layout(image, &header).bytes)
    }

    /// Writes the parts to `at`.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    ///
    /// # Safety
    ///
    /// `at` has [`Memory::bytes`] zeroed bytes, aligned to 8, that live as long as the result, and
    /// that only it and the core's code access.
    pub unsafe fn format(
        at: NonNull<u8>,
        image: &[u8],
        states: &[u64],
        mode: CounterMode,
    ) -> Result<Memory, ImageError> {
        let header = check(image)?;
        let layout = layout(image, &header);
        let rules = Rules {
            image: layout.image as u64,
            counters: layout.counters as u64,
            slots: layout.slots as u64,
            tables: layout.tables as u64,
            stride: (header.rules as usize * size_of::<Counter>()) as u64,
            mode: mode as u32,
            sample_every: SAMPLE_EVERY,
            zero: [0; 2],
            keys: [0; HASH_KEYS],
            end: 0,
        };
        // SAFETY: the caller's memory begins with this header, aligned to 8.
        unsafe { at.cast::<Rules>().write(rules) };
        ffi::seed(at.cast(), SEED);
        // SAFETY: the layout reserves the image's bytes there.
        let place = unsafe { at.add(layout.image) };
        // SAFETY: as above; the source is another allocation.
        unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), place.as_ptr(), image.len()) };
        let memory = Memory { at, layout };
        for (slot, state) in states.iter().enumerate().take(header.slots as usize) {
            // SAFETY: slots are inside of the layout, aligned to 8.
            unsafe { memory.slot(slot).write(*state) };
        }
        Ok(memory)
    }

    fn slot(&self, slot: usize) -> NonNull<u64> {
        // SAFETY: callers name slots of the image, which the layout has.
        unsafe { self.at.add(self.layout.slots + slot * SLOT_BYTES) }.cast()
    }

    /// The counter of an id: of a rule or a policy.
    pub fn counter(&self, id: u32) -> Counter {
        let at = self.layout.counters + id as usize * size_of::<Counter>();
        assert!(
            at + size_of::<Counter>() <= self.layout.bytes,
            "id {id} is not of this image"
        );
        // SAFETY: inside of the layout by the comparison above.
        let place = unsafe { self.at.add(at) }.cast::<Counter>();
        // SAFETY: as above, aligned to 8.
        unsafe { place.read_volatile() }
    }

    /// The state of a table: entries in use, and what it evicted, expired and refused.
    ///
    /// # Panics
    ///
    /// The image has no such table.
    pub fn table(&self, number: u32) -> Store {
        // SAFETY: format() wrote the image there.
        let header = unsafe { self.at.add(self.layout.image) }.cast::<Header>();
        // SAFETY: the header is the beginning of the image.
        let header = unsafe { header.as_ref() };
        assert!(
            number < header.tables,
            "table {number} is not of this image"
        );
        let at = header.table_at as usize + number as usize * size_of::<Table>();
        // SAFETY: check() accepted the place of the descriptions.
        let table = unsafe { self.at.add(self.layout.image + at) }.cast::<Table>();
        // SAFETY: as above.
        let table = unsafe { table.read_unaligned() };
        let store = self.layout.tables + table.at as usize;
        // SAFETY: check() accepted the place of the table in its memory, which the layout has.
        let store = unsafe { self.at.add(store) }.cast::<Store>();
        // SAFETY: as above, aligned to 8.
        unsafe { store.read_volatile() }
    }

    /// Changes the seed of tables, whose keys remote hosts choose: a live runtime draws one at start.
    /// Only before the first packet: entries are found under the seed that added them.
    pub fn set_seed(&mut self, seed: u64) {
        ffi::seed(self.at.cast(), seed);
    }

    /// Sets all counters to 0.
    pub fn zero_counters(&mut self) {
        let bytes = self.layout.bytes - self.layout.counters;
        // SAFETY: the counters are the end of the layout.
        let counters = unsafe { self.at.add(self.layout.counters) };
        // SAFETY: as above.
        unsafe { counters.write_bytes(0, bytes) };
    }

    /// Mode sampled: one packet of `every` counts, `every` times. At least 1, which counts all.
    pub fn set_sampling(&mut self, every: u32) {
        // SAFETY: format() wrote the header.
        unsafe { self.at.cast::<Rules>().as_mut() }.sample_every = every.max(1);
    }

    /// Changes what is counted.
    pub fn set_mode(&mut self, mode: CounterMode) {
        // SAFETY: format() wrote the header.
        unsafe { self.at.cast::<Rules>().as_mut() }.mode = mode as u32;
    }
}

/// Evaluates packets with an image, natively.
pub struct Evaluator {
    memory: Memory,
    /// Owns what `memory` points to.
    _bytes: Vec<u64>,
}

impl Evaluator {
    /// Checks an image and makes its memory. `states`: first values of its slots.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    pub fn new(image: &[u8], states: &[u64], mode: CounterMode) -> Result<Evaluator, ImageError> {
        let bytes = Memory::bytes(image)?;
        let mut memory = vec![0u64; bytes.div_ceil(8)];
        ffi::advise(&mut memory);
        let at = NonNull::from(&mut memory[..]).cast::<u8>();
        // SAFETY: the vector has the bytes, is zero, aligned, and lives as long as the evaluator.
        let formatted = unsafe { Memory::format(at, image, states, mode) }?;
        Ok(Evaluator {
            memory: formatted,
            _bytes: memory,
        })
    }

    /// Fills the words of a packet that come from its bytes. False if rules do not see the packet.
    pub fn read(&self, work: &mut Work) -> bool {
        ffi::read(work)
    }

    /// Runs all tables at a hook on a packet that was read.
    pub fn evaluate(&mut self, hook: u32, work: &mut Work) {
        ffi::evaluate(self.memory.at.cast(), work, hook);
    }

    /// Runs one base chain.
    ///
    /// # Panics
    ///
    /// The image has no such chain.
    pub fn evaluate_chain(&mut self, chain: u32, work: &mut Work) {
        // SAFETY: format() wrote the image there.
        let header = unsafe { self.memory.at.add(self.memory.layout.image) }.cast::<Header>();
        // SAFETY: the header is the beginning of the image.
        let chains = unsafe { header.as_ref() }.chains;
        assert!(chain < chains, "chain {chain} is not of this image");
        ffi::evaluate_chain(self.memory.at.cast(), work, chain);
    }

    /// The counters and the mode.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The same, to change them.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
