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
pub use check::{ImageError, check, check_chains, check_sets, check_shared};
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
    image_bytes: usize,
    slots: usize,
    tables: usize,
    counters: usize,
    /// Bytes of a row of counters.
    stride: usize,
    rows: usize,
}

/// Regions of state that several images share, as offsets from the memory of one.
///
/// Each number of an image (id, slot, place of a table) names the same state as in the others. So a
/// rule that stays in a new image keeps its state without a copy.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    /// Slots, aligned to 64.
    pub slots: usize,
    /// Memory of tables, aligned to 64.
    pub tables: usize,
    /// Rows of counters, aligned to 64.
    pub counters: usize,
    /// Number of slots.
    pub most_slots: u32,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Counters in a row.
    pub most_ids: u32,
    /// Rows. Packets that are evaluated at the same time count in different ones, or atomically. In
    /// the last one only [`Memory::subtract`] writes.
    pub rows: usize,
}

impl Shared {
    /// Bytes of a row.
    fn stride(&self) -> usize {
        self.most_ids as usize * size_of::<Counter>()
    }

    /// Compares the numbers of an image with the regions.
    fn holds(&self, header: &Header) -> Result<(), ImageError> {
        let fits = header.rules <= self.most_ids
            && header.slots <= self.most_slots
            && header.table_bytes <= self.table_bytes;
        match fits {
            true => Ok(()),
            false => Err(ImageError {
                at: 20,
                problem: "numbers of its state are outside of the memory",
            }),
        }
    }

    fn layout(&self, image_bytes: usize) -> Layout {
        Layout {
            image: size_of::<Rules>().next_multiple_of(ALIGN),
            image_bytes,
            slots: self.slots,
            tables: self.tables,
            counters: self.counters,
            stride: self.stride(),
            rows: self.rows,
        }
    }
}

/// The seed of tables until [`Memory::set_seed`]: fixed, so that tests are repeatable.
const SEED: u64 = 1;

const ALIGN: usize = 64;

/// Mode sampled: packets of which one counts, until [`Memory::set_sampling`].
pub const SAMPLE_EVERY: u32 = 64;

/// The layout of an image whose state no other one has, and its bytes.
fn layout(image: &[u8], header: &Header) -> (Layout, usize) {
    let image_at = size_of::<Rules>().next_multiple_of(ALIGN);
    let slots = (image_at + image.len()).next_multiple_of(ALIGN);
    let tables = (slots + header.slots as usize * SLOT_BYTES).next_multiple_of(ALIGN);
    let counters = (tables + header.table_bytes as usize).next_multiple_of(ALIGN);
    let stride = header.rules as usize * size_of::<Counter>();
    let layout = Layout {
        image: image_at,
        image_bytes: image.len(),
        slots,
        tables,
        counters,
        stride,
        rows: 1,
    };
    (layout, counters + stride)
}

impl Memory {
    /// Bytes of memory for an image.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    pub fn bytes(image: &[u8]) -> Result<usize, ImageError> {
        let header = check(image)?;
        Ok(layout(image, &header).1)
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
        let (layout, _) = layout(image, &header);
        // SAFETY: the caller has the memory.
        let memory = unsafe { Memory::write(at, image, mode, layout) };
        for (slot, state) in states.iter().enumerate().take(header.slots as usize) {
            // SAFETY: slots are inside of the layout, aligned to 8.
            unsafe { memory.slot(slot).write(*state) };
        }
        Ok(memory)
    }

    /// Bytes of memory for an image whose state is shared: header and image.
    pub fn shared_bytes(image: &[u8]) -> usize {
        size_of::<Rules>().next_multiple_of(ALIGN) + image.len()
    }

    /// Writes header and image to `at`. State stays as it is.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt, or has numbers outside of the regions.
    ///
    /// # Safety
    ///
    /// `at` has [`Memory::shared_bytes`], aligned to 64, which no one else accesses but the core's code. The
    /// regions are there, aligned, and written: programs of the kernel add no pages. All of it lives as
    /// long as the result.
    pub unsafe fn format_shared(
        at: NonNull<u8>,
        image: &[u8],
        mode: CounterMode,
        shared: &Shared,
    ) -> Result<Memory, ImageError> {
        let header = check_shared(image)?;
        shared.holds(&header)?;
        // SAFETY: the caller has the memory.
        Ok(unsafe { Memory::write(at, image, mode, shared.layout(image.len())) })
    }

    /// The memory that another process wrote by [`Memory::format_shared`].
    ///
    /// # Errors
    ///
    /// [`ImageError`]: there is no image, or a corrupt one.
    ///
    /// # Safety
    ///
    /// `bytes` can be read from `at`, aligned to 64, and the regions are there. They live as long as the
    /// result.
    pub unsafe fn open_shared(
        at: NonNull<u8>,
        bytes: usize,
        shared: &Shared,
    ) -> Result<Memory, ImageError> {
        // SAFETY: as the caller.
        let memory = unsafe { Memory::trust_shared(at, bytes, shared) }?;
        check_shared(memory.image())?;
        Ok(memory)
    }

    /// The same without a check of the image's parts, which takes O(its bytes).
    ///
    /// # Errors
    ///
    /// [`ImageError`]: its header is corrupt.
    ///
    /// # Safety
    ///
    /// As [`Memory::open_shared`], and the image was accepted before.
    pub unsafe fn trust_shared(
        at: NonNull<u8>,
        bytes: usize,
        shared: &Shared,
    ) -> Result<Memory, ImageError> {
        let corrupt = |problem| ImageError { at: 0, problem };
        let image_at = size_of::<Rules>().next_multiple_of(ALIGN);
        if bytes < image_at + size_of::<Header>() {
            return Err(corrupt("the memory is shorter than a header"));
        }
        // SAFETY: the caller's memory has the bytes.
        let image = unsafe { at.add(image_at) };
        // SAFETY: as above, aligned to 64.
        let length = unsafe { image.cast::<Header>().as_ref() }.bytes as usize;
        if length > bytes - image_at {
            return Err(corrupt("the image is longer than its memory"));
        }
        // SAFETY: as above; packets do not change an image.
        let image = unsafe { std::slice::from_raw_parts(image.as_ptr(), length) };
        let header = Header::of(image).ok_or(corrupt("there is no image"))?;
        shared.holds(&header)?;
        Ok(Memory {
            at,
            layout: shared.layout(length),
            follows: 0,
        })
    }

    /// Makes a copy of a shared memory that was written elsewhere use the regions from here.
    pub fn relocate(&mut self, shared: &Shared) {
        self.layout = shared.layout(self.layout.image_bytes);
        // SAFETY: the memory begins with this header, aligned to 64, and no packet reads a new copy.
        let rules = unsafe { self.at.cast::<Rules>().as_mut() };
        rules.counters = self.layout.counters as u64;
        rules.slots = self.layout.slots as u64;
        rules.tables = self.layout.tables as u64;
    }

    /// Writes header and image.
    ///
    /// # Safety
    ///
    /// `at` has the layout's bytes for both, aligned to 8.
    unsafe fn write(at: NonNull<u8>, image: &[u8], mode: CounterMode, layout: Layout) -> Memory {
        let rules = Rules {
            image: layout.image as u64,
            counters: layout.counters as u64,
            slots: layout.slots as u64,
            tables: layout.tables as u64,
            stride: layout.stride as u64,
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
        Memory {
            at,
            layout,
            follows: 0,
        }
    }

    fn slot(&self, slot: usize) -> NonNull<u64> {
        // SAFETY: callers name slots of the image, which the layout has.
        unsafe { self.at.add(self.layout.slots + slot * SLOT_BYTES) }.cast()
    }

    /// The counter of an id: of a rule or a policy. O(rows).
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn counter(&self, id: u32) -> Counter {
        let mut sum = Counter::default();
        for row in 0..self.layout.rows {
            // SAFETY: counter_place() compares the id with the layout.
            let counter = unsafe { self.counter_place(row, id).read_volatile() };
            sum.packets = sum.packets.wrapping_add(counter.packets);
            sum.bytes = sum.bytes.wrapping_add(counter.bytes);
        }
        sum
    }

    /// A part of a counter, modulo 2^64, that [`Memory::subtract`] changes, and packets do not.
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn subtracted(&self, id: u32) -> Counter {
        // SAFETY: counter_place() compares the id with the layout.
        unsafe { self.counter_place(self.layout.rows - 1, id).read_volatile() }
    }

    /// Subtracts from a counter, in its last row. Packets may count at the same time in other rows.
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn subtract(&mut self, id: u32, by: Counter) {
        let last = self.subtracted(id);
        let last = Counter {
            packets: last.packets.wrapping_sub(by.packets),
            bytes: last.bytes.wrapping_sub(by.bytes),
        };
        let place = self.counter_place(self.layout.rows - 1, id);
        // SAFETY: counter_place() compares the id with the layout.
        unsafe { place.write_volatile(last) };
    }

    /// The place of a counter, aligned to 8.
    fn counter_place(&self, row: usize, id: u32) -> NonNull<Counter> {
        let at = id as usize * size_of::<Counter>();
        assert!(
            row < self.layout.rows && at < self.layout.stride,
            "id {id} is not of this image"
        );
        let at = self.layout.counters + row * self.layout.stride + at;
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

    /// The number of tables: recent lists and limits by key.
    pub fn tables(&self) -> u32 {
        self.header().tables
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

    /// The same by the place of a table in their memory, of a copy of the image: another process may write
    /// that of a shared memory again.
    ///
    /// # Panics
    ///
    /// The place is outside.
    pub fn store(&self, at: u64) -> Store {
        let end = self.layout.tables as u64 + at + size_of::<Store>() as u64;
        let is_inside = end <= self.layout.counters as u64 && at.is_multiple_of(8);
        assert!(is_inside, "no table begins at {at}");
        // SAFETY: inside of the layout by the comparison above.
        let store = unsafe { self.at.add(self.layout.tables + at as usize) };
        // SAFETY: as above, aligned to 8.
        unsafe { store.cast::<Store>().read_volatile() }
    }

    /// The bytes of the image.
    pub fn image(&self) -> &[u8] {
        // SAFETY: write() wrote the image there.
        let place = unsafe { self.at.add(self.layout.image) };
        // SAFETY: the layout has these bytes.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), self.layout.image_bytes) }
    }

    /// From now on [`Memory::apply`] copies changes of this image. O(bytes).
    ///
    /// # Panics
    ///
    /// The memory has another image.
    pub fn follow(&mut self, image: &LiveImage) {
        let bytes = image.bytes();
        assert!(self.image() == bytes, "the memory has another image");
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
        self.take_seed(old);
        for (from, to) in &carry.ids {
            let counter = old.counter(*from);
            // SAFETY: counter_place() compares the id with the layout.
            unsafe { self.counter_place(0, *to).write_volatile(counter) };
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
                        ttl: table.ttl,
                        ..other
                    },
                "the descriptions of table {from} and {to} differ"
            );
            let bytes = table.bytes().expect("check() accepted the table") as usize;
            // SAFETY: both tables have these bytes, in different allocations.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), place.as_ptr(), bytes) };
        }
    }

    /// Runs all tables at a hook on a packet that was read.
    pub fn evaluate(&mut self, hook: u32, work: &mut Work) {
        ffi::evaluate(self.at.cast(), work, hook);
    }

    /// True if a packet that was read is dropped in the driver, because table raw drops it in PREROUTING
    /// without another effect. It is counted then. `length`: bytes of the frame behind its header.
    pub fn drop_early(&mut self, work: &mut Work, length: u32) -> bool {
        ffi::drop_early(self.at.cast(), work, length)
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

    /// Sets a counter to 0, in all rows.
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn zero_counter(&mut self, id: u32) {
        for row in 0..self.layout.rows {
            // SAFETY: counter_place() compares the id with the layout.
            unsafe {
                self.counter_place(row, id)
                    .write_volatile(Counter::default())
            };
        }
    }

    /// Sets the counter of a new rule, in all rows.
    ///
    /// # Panics
    ///
    /// The image has no such id.
    pub fn begin_counter(&mut self, id: u32, first: Counter) {
        self.zero_counter(id);
        // SAFETY: counter_place() compares the id with the layout.
        unsafe {
            self.counter_place(self.layout.rows - 1, id)
                .write_volatile(first)
        };
    }

    /// Empties a part of the memory of tables, which no packet uses.
    ///
    /// # Panics
    ///
    /// The image has no such part.
    pub fn zero_tables(&mut self, part: std::ops::Range<u64>) {
        assert!(
            part.start <= part.end && part.end <= self.header().table_bytes,
            "{part:?} is not of this image"
        );
        // SAFETY: the layout has the memory of tables.
        let at = unsafe { self.at.add(self.layout.tables + part.start as usize) };
        // SAFETY: as above.
        unsafe { at.write_bytes(0, (part.end - part.start) as usize) };
    }

    /// Takes the seed of tables from another memory that shares them.
    pub fn take_seed(&mut self, other: &Memory) {
        // SAFETY: write() wrote both headers.
        let keys = unsafe { other.at.cast::<Rules>().as_ref() }.keys;
        // SAFETY: as above.
        unsafe { self.at.cast::<Rules>().as_mut() }.keys = keys;
    }

    /// Changes the seed of tables, whose keys remote hosts choose: a live runtime draws one at start.
    /// Only before the first packet: entries are found under the seed that added them.
    pub fn set_seed(&mut self, seed: u64) {
        ffi::seed(self.at.cast(), seed);
    }

    /// Sets all counters to 0.
    pub fn zero_counters(&mut self) {
        for id in 0..self.header().rules {
            self.zero_counter(id);
        }
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

    /// See [`Memory::evaluate`].
    pub fn evaluate(&mut self, hook: u32, work: &mut Work) {
        self.memory.evaluate(hook, work);
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
