//! The memory that the programs of a qdisc and user space share in the arena: `struct fp_qdisc` of
//! `bpf/prog/qdisc.bpf.c`, and all offsets.
//!
//! The programs may run at any time. So words that both sides write are atomic here, and only those
//! that the C file assigns to user space are written.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fairpath_core::sched::{Op, Policy, SchedMemory};

use crate::arena::{PAGE, START, STRIDE};

/// `FP_QDISC_MAGIC`.
const MAGIC: u64 = 0x74_726f_7066;
/// `FP_POSTS`.
const POSTS: u32 = 1024;
/// Bytes reserved for `struct fp_qdisc`, which begins with [`QdiscMemory`].
const PORT_BYTES: u64 = 2 * PAGE;
/// Attempts to read counts between two calls.
const READS: usize = 1000;
/// A half has at least this many times the size of the first plan.
const SPARE_BYTES: u64 = 64 << 20;

/// `struct fp_half`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Half {
    pub sched_at: AtomicU64,
    pub rtt_at: AtomicU64,
    pub changes_at: AtomicU64,
    /// Of user space: offset of its metadata, length in the highest 32 bits.
    pub note: AtomicU64,
}

/// The first part of `struct fp_qdisc`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct QdiscMemory {
    pub magic: AtomicU64,
    pub code: AtomicU64,
    pub bytes: AtomicU64,
    pub qdisc: AtomicU64,
    pub packets: AtomicU32,
    pub end: AtomicU32,
    pub op_at: AtomicU64,
    pub free_at: AtomicU64,
    pub posts_at: AtomicU64,
    pub log_at: AtomicU64,
    pub halves_at: AtomicU64,
    pub half_bytes: AtomicU64,
    pub halves: [Half; 2],
    pub half: AtomicU32,
    pub next: AtomicU32,
    pub post_head: AtomicU32,
    pub post_tail: AtomicU32,
    pub log_most: AtomicU32,
    pub log_count: AtomicU32,
    pub free: AtomicU32,
    pub sent: AtomicU32,
    pub again: AtomicU64,
    pub turns: AtomicU64,
    /// Of user space: see [`super::owner`].
    pub owner: AtomicU64,
    /// Of user space: the identity of the custom policy in each slot, 0 none.
    pub slots: [AtomicU64; Policy::CUSTOMS],
    pub counters: [AtomicU64; COUNTERS],
}

/// Counters, in the order of the structure.
const COUNTERS: usize = 16;

/// Counters of a qdisc outside its scheduler, since its registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscCounters {
    /// Packets that got a handle; a GSO packet is one.
    pub arrived: u64,
    /// Segments of these packets on the wire.
    pub arrived_segments: u64,
    /// Sent segments on the wire; `tc -s` calls them packets.
    pub sent_segments: u64,
    /// Sent packets.
    pub sent_packets: u64,
    /// Sent bytes on the wire, as in `tc -s`.
    pub sent_bytes: u64,
    /// Packets that the scheduler dropped.
    pub dropped: u64,
    /// Packets that arrived while all handles were in use, before the scheduler.
    pub no_handle: u64,
    /// Packets that resets freed: the link went down, or the qdisc was removed.
    pub lost: u64,
    /// Handles with no packet, or with one too many: another program wrote to the memory. Always 0.
    pub strangers: u64,
    /// Resets.
    pub resets: u64,
    /// Plans that were applied.
    pub flips: u64,
    /// Plans that were refused.
    pub flips_refused: u64,
    /// Duration of the last change in ns, without enqueue and dequeue in that time.
    pub flip_ns: u64,
    /// Packets that were handed over.
    pub moved: u64,
    /// Posted settings without a valid node or parameter.
    pub posts_refused: u64,
    /// GSO packets at an impairment: one outcome for all their segments.
    pub impaired_whole: u64,
    /// Handles in use: waiting packets.
    pub waiting: u64,
}

impl QdiscMemory {
    /// The counters, each read separately while the qdisc runs.
    pub(super) fn counters(&self) -> QdiscCounters {
        let of = |i: usize| self.counters[i].load(Ordering::Relaxed);
        let packets = self.packets.load(Ordering::Relaxed);
        QdiscCounters {
            arrived: of(0),
            arrived_segments: of(1),
            sent_segments: of(2),
            sent_packets: of(3),
            sent_bytes: of(4),
            dropped: of(5),
            no_handle: of(6),
            lost: of(7),
            strangers: of(8),
            resets: of(9),
            flips: of(10),
            flips_refused: of(11),
            flip_ns: of(12),
            moved: of(13),
            posts_refused: of(14),
            impaired_whole: of(15),
            waiting: u64::from(packets.saturating_sub(self.free.load(Ordering::Relaxed))),
        }
    }

    /// Reads the counters between two calls, and returns whether that succeeded in [`READS`]
    /// attempts.
    pub(super) fn between_calls<T>(&self, read: impl Fn() -> T) -> (T, bool) {
        for _ in 0..READS {
            let before = self.turns.load(Ordering::Acquire);
            let value = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.turns.load(Ordering::Relaxed) == before {
                return (value, true);
            }
            std::hint::spin_loop();
        }
        (read(), false)
    }

    /// Plans that were applied or refused.
    pub(super) fn flips(&self) -> u64 {
        let counters = self.counters();
        counters.flips + counters.flips_refused
    }

    /// True if the memory belongs to this object, and has the size that it states.
    pub(super) fn is_ours(&self, code: u64, bytes: u64) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
            && self.code.load(Ordering::Relaxed) == code
            && self.bytes.load(Ordering::Relaxed) == bytes
    }

    /// Posts a setting. False if [`POSTS`] settings wait for a packet.
    ///
    /// # Safety
    /// `base` is the arena of the port, and no other thread posts.
    pub(super) unsafe fn post(&self, base: NonNull<u8>, op: &Op) -> bool {
        let head = self.post_head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.post_tail.load(Ordering::Acquire)) >= POSTS {
            return false;
        }
        let at = self.posts_at.load(Ordering::Relaxed) as usize;
        // SAFETY: the ring has POSTS entries from `posts_at`.
        let ring = unsafe { base.add(at) }.cast::<Op>();
        // SAFETY: as above.
        let place = unsafe { ring.add((head % POSTS) as usize) };
        // SAFETY: the qdisc does not read it before the head changes.
        unsafe { place.write_volatile(*op) };
        self.post_head
            .store(head.wrapping_add(1), Ordering::Release);
        true
    }
}

/// Offsets of everything in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArenaLayout {
    pub capacity: u64,
    free: u64,
    posts: u64,
    log: u64,
    pub halves: u64,
    pub half_bytes: u64,
    packets: u32,
    log_most: u32,
}

impl ArenaLayout {
    /// The port itself.
    pub(super) const PORT: u64 = START;
    /// An arena with a port is larger.
    pub(super) const MIN: u64 = ArenaLayout::PORT + PORT_BYTES;

    /// For the given number of packets, and halves of twice `content_bytes`, or less if the arena
    /// ends.
    pub(super) fn new(packets: u32, log_most: u32, content_bytes: u64) -> ArenaLayout {
        let after = |at: u64, bytes: u64| (at + bytes).next_multiple_of(64);
        let op = size_of::<Op>() as u64;
        let capacity = after(ArenaLayout::PORT, PORT_BYTES);
        let free = after(capacity, SchedMemory::capacity_bytes(1) as u64);
        let posts = after(free, (u64::from(packets) + 1) * 4);
        let log = after(posts, u64::from(POSTS) * op);
        let halves = (log + u64::from(log_most) * op).next_multiple_of(PAGE);
        let wanted = (2 * content_bytes).max(content_bytes + SPARE_BYTES);
        let most = STRIDE.saturating_sub(halves) / 2 / PAGE * PAGE;
        ArenaLayout {
            capacity,
            free,
            posts,
            log,
            halves,
            half_bytes: wanted.next_multiple_of(PAGE).min(most),
            packets,
            log_most,
        }
    }

    pub(super) fn pages(&self) -> u64 {
        (self.halves + 2 * self.half_bytes) / PAGE
    }

    /// Start of half `half`.
    pub(super) fn half(&self, half: usize) -> u64 {
        self.halves + half as u64 * self.half_bytes
    }

    /// Formats the port and its stack of handles, the first on top. [`ArenaLayout::open`] writes the
    /// magic number last.
    ///
    /// # Safety
    /// `base` is a fresh arena of [`ArenaLayout::pages`] that no program uses yet.
    pub(super) unsafe fn format(&self, base: NonNull<u8>, code: u64, end: u32) {
        // SAFETY: touches everything before the halves, all within the arena.
        unsafe { crate::arena::touch(base, self.halves / PAGE) };
        // SAFETY: within the arena.
        let free: NonNull<u32> = unsafe { base.add(self.free as usize) }.cast();
        for (place, handle) in (1..=self.packets).rev().enumerate() {
            // SAFETY: the stack has an entry for each handle.
            let slot = unsafe { free.add(place) };
            // SAFETY: as above.
            unsafe { slot.write(handle) };
        }
        // SAFETY: reserved for it, zeroed.
        let port = unsafe { ArenaLayout::port(base) };
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        put(&port.code, code);
        put(&port.bytes, self.pages() * PAGE);
        put(&port.op_at, self.capacity);
        put(&port.free_at, self.free);
        put(&port.posts_at, self.posts);
        put(&port.log_at, self.log);
        put(&port.halves_at, self.halves);
        put(&port.half_bytes, self.half_bytes);
        port.packets.store(self.packets, Ordering::Relaxed);
        port.free.store(self.packets, Ordering::Relaxed);
        port.end.store(end, Ordering::Relaxed);
        port.log_most.store(self.log_most, Ordering::Relaxed);
    }

    /// Permits a device to use the qdisc.
    pub(super) fn open(port: &QdiscMemory) {
        port.magic.store(MAGIC, Ordering::Release);
    }

    /// The port of an arena.
    ///
    /// # Safety
    /// `base` is a mapped arena of this object, while the answer is used.
    pub(super) unsafe fn port<'a>(base: NonNull<u8>) -> &'a QdiscMemory {
        // SAFETY: within the arena.
        let port = unsafe { base.add(ArenaLayout::PORT as usize) }.cast::<QdiscMemory>();
        // SAFETY: the port is there, aligned, and all its words are atomics.
        unsafe { port.as_ref() }
    }

    /// The offsets of a port that another process formatted. `None` if they contradict the arena.
    pub(super) fn found(port: &QdiscMemory, bytes: u64) -> Option<ArenaLayout> {
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let packets = port.packets.load(Ordering::Relaxed);
        let layout = ArenaLayout {
            half_bytes: of(&port.half_bytes),
            ..ArenaLayout::new(packets, port.log_most.load(Ordering::Relaxed), 0)
        };
        let reported = [
            &port.op_at,
            &port.free_at,
            &port.posts_at,
            &port.log_at,
            &port.halves_at,
        ];
        let same = reported.map(of)
            == [
                layout.capacity,
                layout.free,
                layout.posts,
                layout.log,
                layout.halves,
            ];
        let fits = layout.half_bytes <= bytes && layout.pages() * PAGE == bytes;
        (same && fits).then_some(layout)
    }
}

const _: () = assert!(size_of::<QdiscMemory>() as u64 <= PORT_BYTES);
// bpf/prog/qdisc.bpf.c has the same numbers.
const _: () = assert!(offset_of!(QdiscMemory, halves) == 88);
const _: () = assert!(offset_of!(QdiscMemory, log_count) == 172);
const _: () = assert!(offset_of!(QdiscMemory, turns) == 192);
const _: () = assert!(offset_of!(QdiscMemory, counters) + 8 * (COUNTERS - 1) == 392);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_can_grow_within_the_arena() {
        let small = ArenaLayout::new(1000, 0, 100_000);
        assert!(small.half_bytes >= SPARE_BYTES);
        assert_eq!(small.half(1) + small.half_bytes, small.pages() * PAGE);
        let large = ArenaLayout::new(1 << 22, 0, 3 << 30);
        assert!(large.half_bytes < 3 << 30);
        assert!(large.pages() * PAGE <= STRIDE);
    }
}
