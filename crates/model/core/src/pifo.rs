//! PIFOs over numbers: several kinds in one pool of items (`bpf/core/pifo/pifo.h`).
//!
//! [`Pool::new`] is the native runtime. [`Pool::format`] uses memory of another owner, such as the
//! kernel's arena in `fairpath-bpf`. Items and PIFOs are numbers from 1 whose meaning the caller
//! defines. An item may represent a PIFO.
//!
//! Corrupted memory affects results, never safety: see [`Pool::overwrite`].

mod config;
mod ffi;
mod op;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

pub use config::{Kind, Outside, PifoConfig, PifoConfigError, WhenFull, Window};
use ffi::{RawAudit, RawItem, RawPifo, RawPool, RawPoolConfig};
pub use op::Op;

/// Maximum of items of one [`Pool::pop_batch`].
pub const POP_BATCH: usize = 64;
/// A time that never comes.
pub const NEVER: u64 = u64::MAX;
/// Of `struct fp_pool`, in words; the bytes behind may be overwritten without harm.
const HEADER_WORDS: usize = 16;
/// Of `struct fp_pool`.
const ALIGN: usize = 64;

/// Why an item was refused. Each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `capacity` items are queued, and this one would be pushed out.
    #[error("the PIFO is full")]
    Full,
    /// Its rank is below the window.
    #[error("the rank is below the window")]
    Below,
    /// Its rank is above the window or the last band.
    #[error("the rank is above the window")]
    Beyond,
    /// Too many recent ranks are smaller.
    #[error("not admitted by rank")]
    Admission,
    /// No such item, or already queued; of moves and removals, not queued.
    #[error("the item does not exist, is queued already, or is not queued")]
    Item,
    /// No such PIFO, or not supported by it.
    #[error("the PIFO does not exist, or does not support this operation")]
    Pifo,
    /// Its rank is outside, which the configuration excludes.
    #[error("the rank is outside the window, which the configuration excludes")]
    Rank,
}

impl Refusal {
    /// The refusal in [`Op::answer`] of a push, removal or move; `None` if it succeeded.
    pub fn from_answer(code: u32) -> Option<Refusal> {
        Some(match code {
            0 => return None,
            1 => Refusal::Full,
            2 => Refusal::Below,
            3 => Refusal::Beyond,
            4 => Refusal::Admission,
            5 => Refusal::Item,
            6 => Refusal::Pifo,
            _ => Refusal::Rank,
        })
    }

    fn check(code: u32) -> Result<(), Refusal> {
        Refusal::from_answer(code).map_or(Ok(()), Err)
    }
}

/// Counters of one PIFO: `pushed = popped + removed + pushed_out + count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as in struct fp_pifo, where they are explained"
)]
pub struct PifoCounts {
    pub count: u32,
    pub base: u64,
    pub pushed: u64,
    pub popped: u64,
    pub removed: u64,
    pub moved: u64,
    pub pushed_out: u64,
    pub was_full: u64,
    pub was_below: u64,
    pub was_beyond: u64,
    pub not_admitted: u64,
    pub errors: u64,
    pub rotations: u64,
    pub rebases: u64,
    pub searched: u64,
}

/// Counters of a pool over all its PIFOs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Arrivals: pushes, including refused ones, and moves.
    pub arrivals: u64,
    /// [`Refusal::Item`].
    pub bad_items: u64,
    /// [`Refusal::Pifo`].
    pub bad_pifos: u64,
    /// Inconsistencies in the memory: another program wrote to it.
    pub broken: u64,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// From the last push or move.
    pub rank: u64,
    /// Its arrival among those of the pool.
    pub seq: u64,
    /// Its PIFO, 0 none.
    pub pifo: u32,
    /// Bucket, band, list, or position in the heap.
    pub place: u32,
}

/// The first contradiction that [`Pool::audit`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "audit a pool: PIFO {pifo}, item or bucket {item}: {what}; another program wrote to its memory"
)]
pub struct Flaw {
    /// The problem.
    pub what: &'static str,
    /// The PIFO, 0 unspecific.
    pub pifo: u32,
    /// The same.
    pub item: u32,
}

/// `enum fp_flaw`.
const FLAWS: [&str; 8] = [
    "the header does not match its format",
    "the descriptor matches no format",
    "its item count differs from the number of items in it",
    "an item's record names another position",
    "links contradict each other",
    "an item of a heap precedes its parent, or the item before it in a run",
    "bits or sums contradict the lists",
    "an item is marked as queued and is not",
];

/// A pool of items and PIFOs.
///
/// ```
/// use fairpath_core::pifo::{Kind, PifoConfig, Pool};
///
/// let mut pool = Pool::new(10, &[PifoConfig::new(Kind::Heap, 10)])?;
/// for (item, rank) in [(1, 70), (2, 50), (3, 50)] {
///     pool.push(1, item, rank).expect("there is room");
/// }
/// assert_eq!([pool.pop(1), pool.pop(1), pool.pop(1)], [Some(2), Some(3), Some(1)]);
/// # Ok::<(), fairpath_core::pifo::PifoConfigError>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    pool: NonNull<RawPool>,
    bytes: u64,
    sound: bool,
    owned: Option<(NonNull<u8>, Layout)>,
}

// SAFETY: the memory is plain bytes; a pool has one owner, and every access needs it.
unsafe impl Send for Pool {}

fn raw_config(items: u32, pifos: &[PifoConfig]) -> RawPoolConfig {
    RawPoolConfig {
        items,
        pifos: u32::try_from(pifos.len()).unwrap_or(u32::MAX),
        array_bytes: pifos.iter().map(array_bytes).sum(),
    }
}

fn array_bytes(config: &PifoConfig) -> u64 {
    let raw = config.raw();
    // SAFETY: takes numbers only.
    unsafe { ffi::fp_native_pifo_bytes(raw.kind, raw.capacity, raw.buckets) }
}

impl Pool {
    /// Bytes of a pool of `items` items and these PIFOs.
    pub fn bytes(items: u32, pifos: &[PifoConfig]) -> u64 {
        let config = raw_config(items, pifos);
        // SAFETY: reads the configuration only.
        unsafe { ffi::fp_native_pool_bytes(&raw const config) }
    }

    /// Allocates and formats a pool; PIFOs are numbered from 1 in order.
    ///
    /// # Errors
    /// [`PifoConfigError`]: an invalid configuration. Aborts like every allocation without memory.
    pub fn new(items: u32, pifos: &[PifoConfig]) -> Result<Pool, PifoConfigError> {
        let bytes =
            usize::try_from(Pool::bytes(items, pifos)).map_err(|_| PifoConfigError::Number)?;
        let layout = Layout::from_size_align(bytes + ALIGN, size_of::<usize>())
            .map_err(|_| PifoConfigError::Number)?;
        // SAFETY: the size is not zero: a header always exists.
        let Some(allocated) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: less than ALIGN further, where at least `bytes` bytes follow.
        let at = unsafe { allocated.add(allocated.align_offset(ALIGN)) };
        // SAFETY: freshly allocated, zeroed, aligned, and freed only by drop().
        match unsafe { Pool::format(at, items, pifos) } {
            Ok(pool) => Ok(Pool {
                owned: Some((allocated, layout)),
                ..pool
            }),
            Err(invalid_field) => {
                // SAFETY: allocated above with this layout, and nothing refers to it.
                unsafe { dealloc(allocated.as_ptr(), layout) };
                Err(invalid_field)
            }
        }
    }

    /// Formats zeroed memory of another owner.
    ///
    /// # Safety
    /// `at` points to [`Pool::bytes`] zeroed, writable bytes, aligned to 64, that outlive the
    /// value. Only the core's code writes to the first 128 of them.
    ///
    /// # Errors
    /// [`PifoConfigError`]; then the memory is not a pool.
    pub unsafe fn format(
        at: NonNull<u8>,
        items: u32,
        pifos: &[PifoConfig],
    ) -> Result<Pool, PifoConfigError> {
        let pool = at.cast::<RawPool>();
        let config = raw_config(items, pifos);
        // SAFETY: the caller ensures size, zeroes and alignment.
        PifoConfigError::check(unsafe {
            ffi::fp_native_pool_format(pool.as_ptr(), &raw const config)
        })?;
        // SAFETY: reads the configuration only.
        let mut arrays = unsafe { ffi::fp_native_pool_arrays(&raw const config) };
        for (q, config) in (1..).zip(pifos) {
            let raw = config.raw();
            // SAFETY: the pool was formatted above, and limits what this writes.
            PifoConfigError::check(unsafe {
                ffi::fp_native_pifo_format(pool.as_ptr(), q, &raw const raw, arrays)
            })?;
            arrays += array_bytes(config);
        }
        Ok(Pool {
            pool,
            bytes: Pool::bytes(items, pifos),
            sound: true,
            owned: None,
        })
    }

    /// Queues `item` in PIFO `q`. Returns the item that was pushed out, if any.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing changed (an AIFO stores the rank).
    pub fn push(&mut self, q: u32, item: u32, rank: u64) -> Result<Option<u32>, Refusal> {
        self.check()?;
        // SAFETY: the header is valid; the core limits everything else.
        let answer = unsafe { ffi::fp_native_pifo_push(self.pool.as_ptr(), q, item, rank) };
        pushed(answer)
    }

    /// Removes the item of the smallest rank, the earliest of those.
    pub fn pop(&mut self, q: u32) -> Option<u32> {
        self.pop_ranked(q).map(|(item, _)| item)
    }

    /// [`Pool::pop`], with the rank of the item.
    pub fn pop_ranked(&mut self, q: u32) -> Option<(u32, u64)> {
        self.check().ok()?;
        // SAFETY: as in push().
        let popped = unsafe { ffi::fp_native_pifo_pop(self.pool.as_ptr(), q) };
        found(popped.item as u32).map(|item| (item, popped.rank))
    }

    /// The item that [`Pool::pop`] would remove.
    pub fn peek(&self, q: u32) -> Option<u32> {
        self.check().ok()?;
        // SAFETY: as in push().
        found(unsafe { ffi::fp_native_pifo_peek(self.pool.as_ptr(), q) })
    }

    /// The item that would be served last. O(n) for a heap.
    pub fn last(&self, q: u32) -> Option<u32> {
        self.check().ok()?;
        // SAFETY: as in push().
        found(unsafe { ffi::fp_native_pifo_last(self.pool.as_ptr(), q) })
    }

    /// Pops until `into` is full, the PIFO is empty or [`POP_BATCH`] is reached. Returns the
    /// number.
    pub fn pop_batch(&mut self, q: u32, into: &mut [u32]) -> usize {
        if self.check().is_err() {
            return 0;
        }
        let n = into.len().min(POP_BATCH) as u32;
        // SAFETY: as in push(); `into` has at least `n` entries.
        let count =
            unsafe { ffi::fp_native_pifo_pop_batch(self.pool.as_ptr(), q, into.as_mut_ptr(), n) };
        count as usize
    }

    /// Removes an item from its PIFO.
    ///
    /// # Errors
    /// [`Refusal::Item`] if it is in none.
    pub fn remove(&mut self, item: u32) -> Result<(), Refusal> {
        self.check()?;
        // SAFETY: as in push().
        let refused = unsafe { ffi::fp_native_pifo_remove(self.pool.as_ptr(), item) };
        Refusal::check(refused as u32)
    }

    /// Changes the rank of a queued item, which counts as a new arrival.
    ///
    /// # Errors
    /// [`Refusal`]; then it stays where it was.
    pub fn move_to(&mut self, item: u32, rank: u64) -> Result<(), Refusal> {
        self.check()?;
        // SAFETY: as in push().
        let refused = unsafe { ffi::fp_native_pifo_move(self.pool.as_ptr(), item, rank) };
        Refusal::check(refused as u32)
    }

    /// Queues an item with an eligible time. Returns the item that was pushed out, if any.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing changed.
    pub fn pieo_push(
        &mut self,
        q: u32,
        item: u32,
        eligible: u64,
        rank: u64,
    ) -> Result<Option<u32>, Refusal> {
        self.check()?;
        let pool = self.pool.as_ptr();
        // SAFETY: as in push().
        pushed(unsafe { ffi::fp_native_pieo_push(pool, q, item, eligible, rank) })
    }

    /// Removes the smallest rank that is eligible, the earliest of those. An earlier `now` is
    /// replaced by the latest one.
    pub fn pieo_pop(&mut self, q: u32, now: u64) -> Option<u32> {
        self.check().ok()?;
        // SAFETY: as in push().
        found(unsafe { ffi::fp_native_pieo_pop(self.pool.as_ptr(), q, now) })
    }

    /// The time of the next event: the latest `now` if an item is eligible, else the earliest
    /// eligible time, or [`NEVER`].
    pub fn pieo_next_event(&self, q: u32) -> u64 {
        if self.check().is_err() {
            return NEVER;
        }
        // SAFETY: as in push().
        unsafe { ffi::fp_native_pieo_next_event(self.pool.as_ptr(), q) }
    }

    /// Runs `ops` one by one, and stores the result of each.
    pub fn run(&mut self, ops: &mut [Op]) {
        if self.check().is_ok() {
            let count = ops.len() as u64;
            // SAFETY: as in push(); `ops` is that long.
            unsafe { ffi::fp_native_pool_run(self.pool.as_ptr(), ops.as_mut_ptr(), count) };
        }
    }

    /// The rank of an item from the last push or move, also after it left; 0 if it does not exist.
    pub fn rank(&self, item: u32) -> u64 {
        if self.check().is_err() {
            return 0;
        }
        // SAFETY: as in push().
        unsafe { ffi::fp_native_pool_rank(self.pool.as_ptr(), item) }
    }

    /// The state of an item; item 0 if it does not exist.
    pub fn item(&self, item: u32) -> Item {
        let mut raw = RawItem::default();
        if self.check().is_ok() {
            // SAFETY: as in push(); `raw` is a `struct fp_item`.
            unsafe { ffi::fp_native_pool_item(self.pool.as_ptr(), item, &raw mut raw) };
        }
        Item {
            rank: raw.rank,
            seq: raw.seq,
            pifo: raw.pifo,
            place: raw.place,
        }
    }

    /// The counters of a PIFO; zeros if it does not exist.
    pub fn counts(&self, q: u32) -> PifoCounts {
        let mut raw = RawPifo::default();
        if self.check().is_ok() {
            // SAFETY: as in push(); `raw` is a `struct fp_pifo`.
            unsafe { ffi::fp_native_pool_pifo(self.pool.as_ptr(), q, &raw mut raw) };
        }
        PifoCounts {
            count: raw.count,
            base: raw.base,
            pushed: raw.pushes(),
            popped: raw.popped,
            removed: raw.removed,
            moved: raw.moved,
            pushed_out: raw.pushed_out,
            was_full: raw.was_full,
            was_below: raw.was_below,
            was_beyond: raw.was_beyond,
            not_admitted: raw.not_admitted,
            errors: raw.errors,
            rotations: raw.rotations,
            rebases: raw.rebases,
            searched: raw.searched,
        }
    }

    /// The counters of the pool.
    pub fn pool_counts(&self) -> PoolCounts {
        let mut counts = [0; 4];
        if self.check().is_ok() {
            // SAFETY: as in push(); four numbers are written.
            unsafe { ffi::fp_native_pool_counts(self.pool.as_ptr(), &raw mut counts) };
        }
        let [arrivals, bad_items, bad_pifos, broken] = counts;
        PoolCounts {
            arrivals,
            bad_items,
            bad_pifos,
            broken,
        }
    }

    /// Checks the invariants of the pool. Walks through everything: for tests and suspected
    /// corruption.
    ///
    /// # Errors
    /// The first [`Flaw`].
    pub fn audit(&self) -> Result<(), Flaw> {
        let mut audit = RawAudit::default();
        if self.check().is_ok() {
            // SAFETY: as in push().
            let flawed = unsafe { ffi::fp_native_pool_audit(self.pool.as_ptr(), &raw mut audit) };
            if flawed == 0 {
                return Ok(());
            }
        }
        Err(Flaw {
            what: FLAWS[audit.flaw as usize % FLAWS.len()],
            pifo: audit.pifo,
            item: audit.item,
        })
    }

    /// 64-bit words of the pool, for [`Pool::overwrite`].
    pub fn words(&self) -> usize {
        (self.bytes / 8) as usize
    }

    /// Corrupts the pool: writes one word. With any value, nothing outside the pool is accessed and
    /// every operation ends. An invalid header makes it refuse all operations.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn overwrite(&mut self, word: usize, value: u64) {
        assert!(word < self.words(), "word {word} of {}", self.words());
        // SAFETY: inside the pool.
        let at = unsafe { self.pool.as_ptr().cast::<u64>().add(word) };
        // SAFETY: inside the pool, aligned, and plain bytes.
        unsafe { at.write_volatile(value) };
        if word < HEADER_WORDS {
            // SAFETY: reads the header.
            self.sound = unsafe { ffi::fp_native_pool_sound(self.pool.as_ptr(), self.bytes) } != 0;
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.sound {
            Ok(())
        } else {
            Err(Refusal::Pifo)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some((allocated, layout)) = self.owned {
            // SAFETY: allocated by new() with this layout.
            unsafe { dealloc(allocated.as_ptr(), layout) };
        }
    }
}

fn found(item: u32) -> Option<u32> {
    (item != 0).then_some(item)
}

/// The refusal is in the lower half, the pushed-out item in the upper one.
fn pushed(answer: u64) -> Result<Option<u32>, Refusal> {
    Refusal::check(answer as u32)?;
    Ok(found((answer >> 32) as u32))
}
