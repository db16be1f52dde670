//! The native runtime: a monitor in plain memory that processes frame by frame.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::abi::{Config, Event, Frame, Stats, WAYS};
use crate::aggregate::Rules;
use crate::classes::{ClassReading, Filter, FlowView};
use crate::image::TooManyRules;
use crate::memory::{Memory, Usage};
use crate::sched::{End, Meta};

/// The part of the tables that is checked for idle flows per second of capture time: 1 / this.
const EXPIRE_PARTS: u32 = 8;
/// Nanoseconds of capture time between two checks.
const EXPIRE_EVERY: u64 = 1_000_000_000;

/// Of `struct fp_rtt`.
const ALIGN: usize = 64;

/// A monitor for frames with their times.
///
/// ```
/// use fairpath_core::{Config, Frame, Link, Monitor};
///
/// let mut monitor = Monitor::new(&Config::default().with_flows(1024));
/// let frame = Frame { now: 1, wire_len: 60, link: Link::Ethernet as u16, ..Frame::default() };
/// monitor.frame(&frame, &[0; 60], |event| println!("{event:?}"));
/// assert_eq!(monitor.stats().not_ip, 1);
/// ```
#[derive(Debug)]
pub struct Monitor {
    memory: Memory,
    allocated: NonNull<u8>,
    layout: Layout,
    last: u64,
    next_expiry: u64,
    by_hand: bool,
}

// SAFETY: the monitor owns its memory, and nothing else refers to it.
unsafe impl Send for Monitor {}

impl Monitor {
    /// Allocates and formats a monitor with `config.cpus` of 1.
    ///
    /// Aborts like every allocation without memory. O(size of the tables).
    pub fn new(config: &Config) -> Monitor {
        let config = Config { cpus: 1, ..*config };
        let bytes = Memory::bytes(&config) as usize;
        // With the allocator's default alignment: only then it returns fresh zero pages, which cost
        // nothing until they are used.
        let layout = Layout::from_size_align(bytes + ALIGN, size_of::<usize>())
            .expect("tables are far below isize::MAX");
        // SAFETY: the size is not zero: a header always exists.
        let Some(allocated) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: less than ALIGN further, where at least `bytes` bytes follow.
        let at = unsafe { allocated.add(allocated.align_offset(ALIGN)) };
        // SAFETY: freshly allocated, zeroed, aligned, and freed only by drop().
        let memory = unsafe { Memory::format(at, &config) };
        Monitor {
            memory,
            allocated,
            layout,
            last: 0,
            next_expiry: 0,
            by_hand: false,
        }
    }

    /// Processes one frame; `data` are its captured bytes. Events are reported before it returns.
    pub fn frame(&mut self, frame: &Frame, data: &[u8], mut report: impl FnMut(Event)) {
        self.last = self.last.max(frame.now);
        // A time far before the next expiry: the time that set it was wrong.
        let jumped_back = frame.now < self.next_expiry.saturating_sub(2 * EXPIRE_EVERY);
        if !self.by_hand && (frame.now >= self.next_expiry || jumped_back) {
            self.expire_in_time(frame.now, &mut report);
        }
        self.memory.frame(frame, data, &mut report);
    }

    /// See [`Memory::look`].
    pub(crate) fn look(&mut self, frame: &Frame, data: &[u8], end: End, meta: &mut Meta) -> bool {
        self.memory.look(frame, data, end, meta)
    }

    /// See [`Memory::parse`].
    #[cfg(test)]
    pub(crate) fn parse(
        &mut self,
        frame: &Frame,
        data: &[u8],
        path: crate::memory::ParserPath,
    ) -> (i32, [u8; 256]) {
        self.memory.parse(frame, data, path)
    }

    /// Leaves idle flows to [`Monitor::expire`]. Otherwise each second of the frames' time checks a
    /// part of the tables. The kernel runtime, to which this one is compared, does not.
    pub fn expire_by_hand(&mut self) {
        self.by_hand = true;
    }

    /// Closes idle flows in the next `sets` sets of the tables.
    pub fn expire(&mut self, now: u64, sets: u32, mut report: impl FnMut(Event)) {
        self.memory.expire(now, sets, &mut report);
    }

    fn expire_in_time(&mut self, now: u64, report: &mut impl FnMut(Event)) {
        if self.next_expiry != 0 {
            let config = self.memory.config();
            let sets = (config.flow_sets + config.half_sets) / EXPIRE_PARTS;
            self.memory.expire(now, sets.max(WAYS), report);
        }
        self.next_expiry = now.saturating_add(EXPIRE_EVERY);
    }

    /// Activates rules, see [`Memory::set_rules`].
    ///
    /// # Errors
    /// [`TooManyRules`].
    ///
    /// # Panics
    /// If the configuration has no slots.
    pub fn set_rules(&mut self, rules: &Rules, begun: &[u32]) -> Result<(), TooManyRules> {
        self.memory.set_rules(rules, begun)
    }

    /// Reads the counts of all classes, and takes the cells and pairs since the last reading.
    pub fn read_classes(&mut self, into: &mut ClassReading) {
        let half = self.memory.turn_reading();
        self.memory.read_classes(half, into);
    }

    /// Sets the filters, see [`Memory::set_filters`].
    pub fn set_filters(&mut self, filters: &[Filter]) -> bool {
        self.memory.set_filters(filters)
    }

    /// Measures only packets of some classes, see [`Memory::filter_classes`].
    pub fn filter_classes(&mut self, only: &[u32], except: &[u32]) {
        self.memory.filter_classes(only, except);
    }

    /// Marks an interface as monitored or not, and sets the slot that counts its packets.
    pub fn watch(&mut self, ifindex: u32, watched: bool, slot: u32) -> bool {
        self.memory.watch(ifindex, watched)
            && (!watched || self.memory.count_interface(ifindex, slot))
    }

    /// Open flows of the class of a slot, see [`Memory::flows`].
    pub fn flows(&self, slot: u32, limit: usize) -> Vec<FlowView> {
        self.memory.flows(slot, limit)
    }

    /// Reports every flow that is still open at the time of the last frame.
    pub fn finish(&mut self, report: impl FnMut(Event)) {
        self.memory.finish(self.last, report);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.memory.stats()
    }

    /// Used entries; walks through all tables.
    pub fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Chunks in use by flows, see [`Memory::held`]; for tests and fuzzing.
    pub fn held(&self) -> Option<u64> {
        self.memory.held()
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.memory.config()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with this layout; `memory` is not used again.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests;
