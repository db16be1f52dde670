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
mod live;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub use abi::*;
pub use check::{ImageError, check};
pub use live::{Carry, Entries, LiveImage, Patch, ReplaceError};

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
    /// The [`LiveImage`] that the image follows; 0: none.
    follows: u64,
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
        let memory = Memory {
            at,
            layout,
            follows: 0,
        };
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
        // SAFETY: counter_place() compares the id with the layout.
        unsafe { self.counter_place(id).read_volatile() }
    }

    /// The place of a counter, aligned to 8.
    fn counter_place(&self, id: u32) -> NonNull<Counter> {
        let at = self.layout.counters + id as usize * size_of::<Counter>();
        assert!(
            at + size_of::<Counter>() <= self.layout.bytes,
            "id {id} is not of this image"
        );
        // SAFETY: inside of the layout by the comparison above.
        unsafe { self.at.add(at) }.cast()
    }

    fn header(&self) -> &Header {
        // SAFETY: format() wrote the image there.
        let header = unsafe { self.at.add(self.layout.image) }.cast::<Header>();
        // SAFETY: the header is the beginning of the image.
        unsafe { header.as_ref() }
    }

    /// The description of a table, and its place in the memory.
    fn table_place(&self, number: u32) -> (Table, NonNull<u8>) {
        let header = self.header();
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
        (table, unsafe { self.at.add(store) })
    }

    /// The state of a table: entries in use, and what it evicted, expired and refused.
    ///
    /// # Panics
    ///
    /// The image has no such table.
    pub fn table(&self, number: u32) -> Store {
        let (_, store) = self.table_place(number);
        // SAFETY: a table begins with its state, aligned to 8.
        unsafe { store.cast::<Store>().read_volatile() }
    }

    /// The bytes of the image.
    fn image(&self) -> &[u8] {
        let bytes = self.layout.slots - self.layout.image;
        // SAFETY: format() wrote the image there.
        let place = unsafe { self.at.add(self.layout.image) };
        // SAFETY: the layout reserves these bytes for it.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), bytes) }
    }

    /// From now on [`Memory::apply`] copies changes of this image. O(bytes).
    ///
    /// # Panics
    ///
    /// The memory has another image.
    pub fn follow(&mut self, image: &LiveImage) {
        let bytes = image.bytes();
        assert!(
            self.image().get(..bytes.len()) == Some(bytes),
            "the memory has another image"
        );
        self.follows = image.id();
    }

    /// Copies a change of the image that this memory follows: first the state of new rules and parts
    /// that no packet reads yet, then the words that lead to them, at last the generation. Packets
    /// may be evaluated at the same time. O(bytes of the patch).
    ///
    /// # Panics
    ///
    /// The image is another one, or the patch is not its last change, or one before it is missing.
    pub fn apply(&mut self, image: &LiveImage, patch: &Patch) {
        let in_order = self.header().generation == patch.from
            && image.generation() == patch.from.wrapping_add(1);
        assert!(
            self.follows == image.id() && patch.image == image.id() && in_order,
            "apply each change of one image, in order"
        );
        for (slot, value) in &patch.slots {
            self.set_state(*slot, *value);
        }
        for id in &patch.zeroed {
            self.zero_counter(*id);
        }
        for part in &patch.parts {
            let bytes = &image.bytes()[part.clone()];
            // SAFETY: the image has the part, and the layout its bytes.
            let place = unsafe { self.at.add(self.layout.image + part.start) };
            // SAFETY: as above; the source is another allocation, and no packet reads free parts.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        }
        for word in &patch.words {
            let bytes = image.bytes()[word.clone()].try_into().expect("four bytes");
            // SAFETY: a word of the image, aligned to 4.
            let place = unsafe { self.at.add(self.layout.image + word.start) }.cast::<u32>();
            // SAFETY: as above; the core's code reads whole words.
            let place = unsafe { AtomicU32::from_ptr(place.as_ptr()) };
            place.store(u32::from_le_bytes(bytes), Ordering::Release);
        }
    }

    /// Takes state from the memory of an old image: counters, slots, tables, and the seed of tables.
    /// This memory is new: no packet was evaluated with it. Packets that are evaluated with the old
    /// memory at the same time may be missing.
    ///
    /// # Panics
    ///
    /// A number is not of its image, or the descriptions of a table differ.
    pub fn carry(&mut self, old: &Memory, carry: &Carry) {
        // SAFETY: format() wrote both headers.
        let keys = unsafe { old.at.cast::<Rules>().as_ref() }.keys;
        // SAFETY: as above.
        unsafe { self.at.cast::<Rules>().as_mut() }.keys = keys;
        for (from, to) in &carry.ids {
            let counter = old.counter(*from);
            // SAFETY: counter_place() compares the id with the layout.
            unsafe { self.counter_place(*to).write_volatile(counter) };
        }
        for (from, to) in &carry.slots {
            self.set_state(*to, old.state(*from));
        }
        for (from, to) in &carry.tables {
            let ((table, source), (other, place)) = (old.table_place(*from), self.table_place(*to));
            assert!(
                table
                    == Table {
                        at: table.at,
                        ..other
                    },
                "the descriptions of table {from} and {to} differ"
            );
            let bytes = table.bytes().expect("check() accepted the table") as usize;
            // SAFETY: both tables have these bytes, in different allocations.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), place.as_ptr(), bytes) };
        }
    }

    /// The first word of a slot.
    ///
    /// # Panics
    ///
    /// The image has no such slot.
    pub fn state(&self, slot: u32) -> u64 {
        assert!(
            slot < self.header().slots,
            "slot {slot} is not of this image"
        );
        // SAFETY: inside of the layout by the comparison above, aligned to 8.
        unsafe { self.slot(slot as usize).read_volatile() }
    }

    /// Changes it.
    ///
    /// # Panics
    ///
    /// The image has no such slot.
    pub fn set_state(&mut self, slot: u32, value: u64) {
        assert!(
            slot < self.header().slots,
            "slot {slot} is not of this image"
        );
        // SAFETY: as in state().
        unsafe { self.slot(slot as usize).write_volatile(value) };
    }

    /// Sets a counter to 0.
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn zero_counter(&mut self, id: u32) {
        // SAFETY: counter_place() compares the id with the layout.
        unsafe { self.counter_place(id).write_volatile(Counter::default()) };
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
        let chains = self.memory.header().chains;
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
