//! The rings that kernel and process share: one side writes entries, the other reads them.
//!
//! ```text
//!          consumer            producer
//!             v                   v
//!   [ free | not taken yet        | free ]     indices run on without limit; place = index & mask
//! ```
//!
//! Invariant: a producer writes only entries between its own index and the other's plus the size. A
//! consumer reads only entries between its own index and the producer's. An index is published by a
//! release store and read by an acquire load, so the entries before it are visible. Each side keeps
//! a copy of the other's index and reads it again only when needed, so a batch touches the other
//! side's cache line once.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst`. Deliberately absent: several threads
//! on one side, since a ring has one owner.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets of the parts of a ring in its mapping, from `XDP_MMAP_OFFSETS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub producer: usize,
    pub consumer: usize,
    pub flags: usize,
    pub entries: usize,
}

/// The memory of a ring, for both sides.
#[derive(Debug)]
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: the memory belongs to no thread; one value at each side works on it, by `&mut`.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// # Safety
    /// `start` is the start of memory with a ring of `size` entries of `T`, a power of two, with
    /// this layout and aligned. It outlives the value, and each side has one value.
    unsafe fn at(start: NonNull<u8>, layout: &Layout, size: u32) -> Shared<T> {
        debug_assert!(size.is_power_of_two());
        // SAFETY: the caller ensures that it is in the same memory.
        let producer = unsafe { start.add(layout.producer) }.cast();
        // SAFETY: as above.
        let consumer = unsafe { start.add(layout.consumer) }.cast();
        // SAFETY: as above.
        let flags = unsafe { start.add(layout.flags) }.cast();
        // SAFETY: as above.
        let entries = unsafe { start.add(layout.entries) }.cast();
        Shared {
            producer,
            consumer,
            flags,
            entries,
            size,
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `at`'s promise.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: `at`'s promise.
        unsafe { self.consumer.as_ref() }
    }

    fn wants_wakeup(&self) -> bool {
        // SAFETY: `at`'s promise.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it within the entries that the caller of `at` ensured.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// The writing side: this process for the fill and TX rings.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Shared<T>,
    /// Written so far, published up to the last [`Producer::submit`].
    written: u32,
    /// The last known index of the other side.
    read: u32,
}

impl<T: Copy> Producer<T> {
    /// # Safety
    /// As for the memory of the ring: `size` entries, a power of two, with the layout and
    /// alignment, alive while the value; no other producer.
    pub unsafe fn at(start: NonNull<u8>, layout: &Layout, size: u32) -> Producer<T> {
        // SAFETY: the same promise.
        let ring: Shared<T> = unsafe { Shared::at(start, layout, size) };
        let written = ring.producer().load(Ordering::Relaxed);
        let read = ring.consumer().load(Ordering::Acquire);
        Producer {
            ring,
            written,
            read,
        }
    }

    /// Entries that can be written now, at most `wanted`. Reads the other side's index only if
    /// needed.
    pub fn capacity(&mut self, wanted: u32) -> u32 {
        let mut capacity = self.ring.size - self.pending();
        if capacity < wanted {
            self.read = self.ring.consumer().load(Ordering::Acquire);
            capacity = self.ring.size - self.pending();
        }
        capacity.min(wanted)
    }

    /// Written and not read, as far as known; never more than the size, whatever the other side
    /// writes.
    fn pending(&self) -> u32 {
        self.written.wrapping_sub(self.read).min(self.ring.size)
    }

    /// Writes an entry that the other side sees after [`Producer::submit`]; false: the ring is full.
    pub fn push(&mut self, value: T) -> bool {
        if self.capacity(1) == 0 {
            return false;
        }
        // SAFETY: free by the protocol of the ring: no other thread reads or writes it.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes the written entries.
    pub fn submit(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the other side has not read yet.
    pub fn unread(&mut self) -> u32 {
        self.read = self.ring.consumer().load(Ordering::Acquire);
        self.pending()
    }

    /// True if the kernel sleeps until it is woken.
    pub fn wants_wakeup(&self) -> bool {
        self.ring.wants_wakeup()
    }
}

/// The reading side: this process for the RX and completion rings.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Shared<T>,
    /// Read so far, returned up to the last [`Consumer::release`].
    read: u32,
    /// The last known index of the other side.
    written: u32,
}

impl<T: Copy> Consumer<T> {
    /// # Safety
    /// As for [`Producer::at`]; no other consumer.
    pub unsafe fn at(start: NonNull<u8>, layout: &Layout, size: u32) -> Consumer<T> {
        // SAFETY: the same promise.
        let ring: Shared<T> = unsafe { Shared::at(start, layout, size) };
        let read = ring.consumer().load(Ordering::Relaxed);
        let written = ring.producer().load(Ordering::Acquire);
        Consumer {
            ring,
            read,
            written,
        }
    }

    /// The next entry. Reads the other side's index only if needed.
    pub fn pop(&mut self) -> Option<T> {
        if self.read == self.written {
            self.written = self.ring.producer().load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        // SAFETY: published by the other side, and not returned yet.
        let value = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(value)
    }

    /// Returns the entries that were read to the other side.
    pub fn release(&mut self) {
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 8;

    /// A ring in this process with given first indices.
    #[repr(C, align(64))]
    struct Memory {
        producer: AtomicU32,
        consumer: AtomicU32,
        flags: AtomicU32,
        entries: [u64; SIZE as usize],
    }

    const LAYOUT: Layout = Layout {
        producer: std::mem::offset_of!(Memory, producer),
        consumer: std::mem::offset_of!(Memory, consumer),
        flags: std::mem::offset_of!(Memory, flags),
        entries: std::mem::offset_of!(Memory, entries),
    };

    /// Leaked, so that both sides may use it.
    fn ring(first: u32) -> (Producer<u64>, Consumer<u64>, NonNull<u8>) {
        let memory = Box::leak(Box::new(Memory {
            producer: AtomicU32::new(first),
            consumer: AtomicU32::new(first),
            flags: AtomicU32::new(0),
            entries: [0; SIZE as usize],
        }));
        let start = NonNull::from(memory).cast();
        // SAFETY: a leaked ring of the layout.
        let producer = unsafe { Producer::at(start, &LAYOUT, SIZE) };
        // SAFETY: as above.
        let consumer = unsafe { Consumer::at(start, &LAYOUT, SIZE) };
        (producer, consumer, start)
    }

    #[test]
    fn unsubmitted_entries_are_not_visible() {
        let (mut producer, mut consumer, _) = ring(0);
        assert!(producer.push(7));
        assert_eq!(consumer.pop(), None);
        producer.submit();
        assert_eq!(consumer.pop(), Some(7));
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn full_ring_takes_nothing_until_places_are_released() {
        let (mut producer, mut consumer, _) = ring(0);
        for i in 0..u64::from(SIZE) {
            assert!(producer.push(i));
        }
        assert!(!producer.push(99));
        producer.submit();
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(producer.capacity(SIZE), 0, "read, but not released");
        consumer.release();
        assert_eq!(producer.capacity(SIZE), 1);
        assert_eq!(producer.unread(), SIZE - 1);
    }

    #[test]
    fn order_holds_when_32_bit_indices_wrap() {
        let (mut producer, mut consumer, _) = ring(u32::MAX - 20);
        let mut next = 0;
        for i in 0..1000 {
            assert!(producer.push(i));
            if i % 5 == 4 {
                producer.submit();
                while let Some(value) = consumer.pop() {
                    assert_eq!(value, next);
                    next += 1;
                }
                consumer.release();
            }
        }
        assert_eq!(next, 1000);
    }

    #[test]
    fn invalid_ring_indices_are_harmless() {
        let (mut producer, _, start) = ring(0);
        // SAFETY: the ring's memory, which is leaked.
        let memory = unsafe { start.cast::<Memory>().as_ref() };
        memory.consumer.store(77, Ordering::Relaxed);
        assert_eq!(producer.capacity(SIZE), SIZE, "not read yet");
        for i in 0..u64::from(SIZE) {
            assert!(producer.push(i));
        }
        assert!(!producer.push(1));
    }

    #[test]
    fn the_kernels_flag_requests_a_wakeup() {
        let (producer, _, start) = ring(0);
        assert!(!producer.wants_wakeup());
        // SAFETY: the ring's memory, which is leaked.
        let memory = unsafe { start.cast::<Memory>().as_ref() };
        memory.flags.store(1, Ordering::Relaxed);
        assert!(producer.wants_wakeup());
    }

    #[test]
    fn ring_entries_arrive_once_in_order() {
        let (mut producer, mut consumer, _) = ring(u32::MAX - 5);
        const ENTRIES: u64 = 100_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 0..ENTRIES {
                    while !producer.push(i) {
                        producer.submit();
                        std::thread::yield_now();
                    }
                    if i % 3 == 0 {
                        producer.submit();
                    }
                }
                producer.submit();
            });
            let mut next = 0;
            while next < ENTRIES {
                match consumer.pop() {
                    Some(value) => {
                        assert_eq!(value, next);
                        next += 1;
                    }
                    None => std::thread::yield_now(),
                }
                consumer.release();
            }
        });
    }
}
