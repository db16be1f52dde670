//! The memory of a monitor: formatted, read and ended from user space.
//!
//! The kernel may use the same bytes at the same time (an arena). A reading is then a snapshot of
//! counters, and only [`Memory::watch`] writes. [`Memory::finish`] and [`Memory::replay`] need
//! exclusive use.

use std::ptr::NonNull;

use crate::abi::{Config, Event, Frame, HEAD_BYTES, RawFlowEvent, Stats};
use crate::aggregate::Rules;
use crate::ffi::{self, Rtt, Sink};
use crate::sched::{End, Meta};

/// Maximum of events of one call.
const SINK_EVENTS: usize = 64;

/// Used entries in a monitor's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Flows.
    pub flows: u64,
    /// Half-open flows.
    pub half_open: u64,
    /// Chunks of outstanding segments.
    pub chunks: u64,
    /// Flows that found no entry since the start: an estimate, exact for few.
    pub refused: u64,
    /// The minimum of used entries when a flow was refused; 0 if none was.
    pub refused_at: u64,
}

/// `FP_REFUSED_MARKS`.
const REFUSED_MARKS: u64 = 16_384;

/// The number of flows that leave this number of marks, by linear counting.
fn flows_of_marks(marks: u64) -> u64 {
    let all = REFUSED_MARKS as f64;
    // With all marks set, there are at least as many flows as for all but one.
    let unset = REFUSED_MARKS.saturating_sub(marks).max(1) as f64;
    (all * (all / unset).ln()).round() as u64
}

/// A formatted monitor's memory; does not own it.
#[derive(Debug)]
pub struct Memory {
    pub(crate) rtt: NonNull<Rtt>,
    pub(crate) config: Config,
    /// Generation of the active rules; 0 before the first.
    pub(crate) generation: u32,
    /// The largest images so far, alternately: memory that was used stays used.
    pub(crate) image_bytes: [u64; 2],
}

// SAFETY: the memory is plain bytes; every access goes through the core, which locks what it shares.
unsafe impl Send for Memory {}

/// Offsets of `struct fp_rtt` fields for test runs; checked by the layout test.
#[cfg(test)]
pub(crate) const REPLAY_OFFSET: usize = 192;
pub(crate) const EXPIRE_CURSOR_OFFSET: usize = 204;

/// One frame of a test run in memory (`struct fp_replay`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    frame: Frame,
    data: u64,
    bytes: u32,
    result: u32,
}

impl Memory {
    /// Bytes that a monitor of this configuration needs.
    pub fn bytes(config: &Config) -> u64 {
        // SAFETY: reads the configuration only.
        unsafe { ffi::fp_native_bytes(config) }
    }

    /// Bytes for `frames` frames of a test run after the monitor.
    pub fn replay_bytes(frames: usize) -> u64 {
        (frames * (size_of::<Replay>() + HEAD_BYTES)) as u64
    }

    /// Formats zeroed memory.
    ///
    /// # Safety
    /// `at` points to [`Memory::bytes`] zeroed, writable bytes, aligned to 64, that outlive the
    /// value. Only the core uses them while it lives.
    pub unsafe fn format(at: NonNull<u8>, config: &Config) -> Memory {
        let rtt = at.cast::<Rtt>();
        // SAFETY: the caller ensures size, zeroes and alignment.
        unsafe { ffi::fp_native_format(rtt.as_ptr(), config) };
        let mut memory = Memory {
            rtt,
            config: *config,
            generation: 0,
            image_bytes: [0; 2],
        };
        if config.slots > 0 {
            memory
                .set_rules(&Rules::default(), &[])
                .expect("no rules fit everywhere");
        }
        memory
    }

    /// The seed of formatted memory, for example of an earlier process.
    ///
    /// # Safety
    /// `at` points to formatted memory of this version.
    pub unsafe fn seed_at(at: NonNull<u8>) -> u64 {
        // SAFETY: the caller ensures the memory.
        unsafe { ffi::fp_native_seed(at.cast::<Rtt>().as_ptr()) }
    }

    /// The configuration it was formatted with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters, summed over CPUs. Reads one work area for each CPU.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        // SAFETY: `rtt` is formatted, `sum` is a `struct fp_stats`.
        unsafe { ffi::fp_native_stats(self.rtt.as_ptr(), &raw mut sum) };
        sum
    }

    /// Used entries. Walks through all tables: for summaries, not for loops.
    pub fn usage(&self) -> Usage {
        let mut used = [0; 5];
        // SAFETY: `rtt` is formatted, `used` has the five numbers that are written.
        unsafe { ffi::fp_native_usage(self.rtt.as_ptr(), &raw mut used) };
        Usage {
            flows: used[0],
            half_open: used[1],
            chunks: used[2],
            refused: flows_of_marks(used[3]),
            refused_at: used[4],
        }
    }

    /// Chunks in use by flows, `None` if a list contradicts itself: always equal to
    /// [`Usage::chunks`] without defects. Walks through everything: for tests and fuzzing.
    pub fn held(&self) -> Option<u64> {
        // SAFETY: `rtt` is formatted.
        let held = unsafe { ffi::fp_native_held(self.rtt.as_ptr()) };
        (held != u64::MAX).then_some(held)
    }

    /// Marks the ingress of an interface as monitored or not. False if there are too many.
    pub fn watch(&mut self, ifindex: u32, watched: bool) -> bool {
        // SAFETY: `rtt` is formatted; only this process writes the table of monitored interfaces.
        unsafe { ffi::fp_native_watch(self.rtt.as_ptr(), ifindex, u32::from(watched)) == 0 }
    }

    /// Sets the input of the next run of the expiry program: `sets` sets at time `now`.
    pub fn query_expire(&mut self, now: u64, sets: u32) {
        self.put(EXPIRE_CURSOR_OFFSET + 4, now);
        self.put(EXPIRE_CURSOR_OFFSET + 12, sets);
    }

    /// Reports every flow that is still open. Needs exclusive use of the memory.
    pub fn finish(&mut self, now: u64, mut report: impl FnMut(Event)) {
        let mut set = 0;
        let mut over = 0;
        while over == 0 {
            with_sink(
                |sink| {
                    // SAFETY: `rtt` is formatted, `set` and `sink` live through the call.
                    over = unsafe {
                        ffi::fp_native_finish(self.rtt.as_ptr(), now, &raw mut set, sink)
                    };
                },
                &mut report,
            );
        }
    }

    /// Runs one frame through the native runtime; `data` are its captured bytes.
    pub(crate) fn frame(&mut self, frame: &Frame, data: &[u8], report: &mut impl FnMut(Event)) {
        let bytes = data.len().min(HEAD_BYTES) as u32;
        with_sink(
            |sink| {
                // SAFETY: `data` has at least `bytes` bytes; all pointers live through the call.
                unsafe {
                    ffi::fp_native_frame(self.rtt.as_ptr(), frame, data.as_ptr(), bytes, sink);
                }
            },
            report,
        );
    }

    /// The metadata of a frame for policies, with the class of one of its ends. False if it is not
    /// a whole IP packet.
    pub(crate) fn look(&mut self, frame: &Frame, data: &[u8], end: End, meta: &mut Meta) -> bool {
        const NOT_IP: i32 = 1;
        const MALFORMED: i32 = 3;
        let bytes = data.len().min(HEAD_BYTES) as u32;
        let rtt = self.rtt.as_ptr();
        // SAFETY: `data` has at least `bytes` bytes; all pointers live through the call.
        let parsed =
            unsafe { ffi::fp_native_look(rtt, frame, data.as_ptr(), bytes, end as u32, meta) };
        !(NOT_IP..=MALFORMED).contains(&parsed)
    }

    /// Closes idle flows in the next `sets` sets.
    pub(crate) fn expire(&mut self, now: u64, sets: u32, report: &mut impl FnMut(Event)) {
        // A set reports at most one event per way, so the sink limits the number of sets per call.
        let step = SINK_EVENTS as u32 / crate::abi::WAYS;
        let mut left = sets;
        while left > 0 {
            let now_sets = left.min(step);
            // SAFETY: `rtt` is formatted, the sink lives through the call.
            with_sink(
                |sink| unsafe {
                    ffi::fp_native_expire(self.rtt.as_ptr(), now, now_sets, sink);
                },
                report,
            );
            left -= now_sets;
        }
    }

    /// Writes frames for the test run program; they replace earlier ones.
    ///
    /// # Safety
    /// [`Memory::replay_bytes`] writable bytes for this number of frames follow the monitor.
    pub unsafe fn replay<'a>(&mut self, frames: impl ExactSizeIterator<Item = (Frame, &'a [u8])>) {
        let count = frames.len();
        let start = Self::bytes(&self.config);
        let base = self.rtt.as_ptr().cast::<u8>();
        for (i, (frame, data)) in frames.enumerate() {
            let bytes = data.len().min(HEAD_BYTES);
            let at = start + (count * size_of::<Replay>() + i * HEAD_BYTES) as u64;
            let replay = Replay {
                frame,
                data: at,
                bytes: bytes as u32,
                result: 0,
            };
            let place = start as usize + i * size_of::<Replay>();
            // SAFETY: the caller ensures the memory.
            let slot = unsafe { base.add(place) }.cast::<Replay>();
            // SAFETY: as above; `place` is aligned to 8 as `start` is to 64.
            unsafe { slot.write(replay) };
            // SAFETY: the caller ensures the memory.
            let copy = unsafe { base.add(at as usize) };
            // SAFETY: as above; `data` has `bytes` bytes.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), copy, bytes) };
        }
        self.put(EXPIRE_CURSOR_OFFSET + 16, count as u32);
    }

    fn put<T>(&mut self, offset: usize, value: T) {
        // SAFETY: the offsets used are those of fields of `struct fp_rtt`.
        let place = unsafe { self.rtt.as_ptr().cast::<u8>().add(offset) }.cast::<T>();
        // SAFETY: they are aligned fields of T.
        unsafe { place.write_volatile(value) };
    }
}

/// Runs `call` with an empty sink and returns the events.
fn with_sink(call: impl FnOnce(*mut Sink), report: &mut impl FnMut(Event)) {
    let mut events = [const { std::mem::MaybeUninit::<RawFlowEvent>::uninit() }; SINK_EVENTS];
    let mut sink = Sink {
        events: events.as_mut_ptr().cast(),
        capacity: SINK_EVENTS as u32,
        used: 0,
    };
    call(&raw mut sink);
    for event in events.iter_mut().take(sink.used as usize) {
        // SAFETY: the core wrote at least the head; samples use nothing behind it, and every bit
        // pattern of the integers behind it is valid once they are zeroed below.
        let raw = unsafe { event_of(event) };
        if let Some(reported) = Event::from_raw(&raw, size_of::<RawFlowEvent>()) {
            report(reported);
        }
    }
}

/// Reads one event of the core; the unused tail of a sample is zero.
///
/// # Safety
/// At least the head of the event is written, and all of it unless it is a sample.
unsafe fn event_of(event: &std::mem::MaybeUninit<RawFlowEvent>) -> RawFlowEvent {
    let at = event.as_ptr();
    // SAFETY: the head is written.
    let head = unsafe { (*at).head };
    if head.kind == 1 {
        return RawFlowEvent {
            head,
            ..RawFlowEvent::default()
        };
    }
    // SAFETY: flow events are written completely.
    unsafe { at.read() }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::abi::{Counts, Key, RawEvent};
    use crate::aggregate::{ClassCounts, DirCounts};
    use crate::hash::HashKeys;
    use crate::image;

    #[test]
    fn layout_matches_the_c_compiler() {
        // SAFETY: constants of the native library.
        let c = unsafe { ffi::fp_native_layout };
        // SAFETY: as above.
        assert_eq!(unsafe { ffi::fp_native_layout_len } as usize, c.len());
        let rust = [
            size_of::<Frame>(),
            size_of::<Key>(),
            size_of::<Config>(),
            size_of::<Counts>(),
            size_of::<RawEvent>(),
            size_of::<RawFlowEvent>(),
            size_of::<Stats>(),
            c[7] as usize,
            c[8] as usize,
            offset_of!(Frame, segs),
            offset_of!(Frame, direction),
            Key::PORT_OFFSET,
            offset_of!(Config, mode),
            offset_of!(Config, cpus),
            offset_of!(RawEvent, key),
            offset_of!(RawEvent, seq),
            offset_of!(RawEvent, kind),
            offset_of!(RawEvent, opened),
            offset_of!(RawFlowEvent, counts),
            offset_of!(RawFlowEvent, towards),
            offset_of!(Counts, samples),
            offset_of!(Stats, samples_seq),
            offset_of!(Stats, tcp_bytes_sampled),
            REPLAY_OFFSET,
            EXPIRE_CURSOR_OFFSET,
            EXPIRE_CURSOR_OFFSET + 16,
            size_of::<ClassCounts>(),
            size_of::<DirCounts>(),
            192, // as computed by Config::class_bytes()
            size_of::<ffi::RawPair>(),
            c[30] as usize,
            size_of::<ffi::RawFlow>(),
            size_of::<ffi::RawFilter>(),
            image::HEADER_BYTES,
            image::RULE_BYTES,
            offset_of!(ClassCounts, leg),
            offset_of!(ClassCounts, flows_opened),
            offset_of!(ffi::RawFlow, counts),
            offset_of!(ffi::RawPair, samples),
            size_of::<HashKeys>(),
        ];
        assert_eq!(c.map(|n| n as usize), rust);
    }
}
