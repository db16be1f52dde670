//! The memory of a monitor: formatted, read and ended from user space.
//!
//! The kernel may use the same bytes at the same time (an arena). A reading is then a snapshot of
//! counters, and only [`Memory::watch`] writes. [`Memory::finish`] and [`Memory::replay`] need
//! exclusive use.

use std::ptr::NonNull;

use crate::abi::{Config, Event, Frame, HEAD_BYTES, RawFlowEvent, Stats};
use crate::aggregate::Rules;
use crate::ffi::{self, Rtt};
use crate::sched::{End, Meta};

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
    /// The event that was read last.
    raw: Box<RawFlowEvent>,
}

// SAFETY: the memory is plain bytes; every access goes through the core, which locks what it shares.
unsafe impl Send for Memory {}

/// Offsets of `struct fp_rtt` fields for test runs; checked by the layout test.
#[cfg(test)]
pub(crate) const REPLAY_OFFSET: usize = 216;
pub(crate) const EXPIRE_CURSOR_OFFSET: usize = 228;

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
            raw: Box::default(),
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
        self.drain(&mut report);
        let mut set = 0;
        let mut over = 0;
        while over == 0 {
            // SAFETY: `rtt` is formatted, and `set` lives through the call.
            over = unsafe { ffi::fp_native_finish(self.rtt.as_ptr(), now, &raw mut set) };
            self.drain(&mut report);
        }
    }

    /// Runs one frame through the native runtime; `data` are its captured bytes.
    pub(crate) fn frame(&mut self, frame: &Frame, data: &[u8], report: &mut impl FnMut(Event)) {
        if self.frame_on(0, frame, data) {
            self.drain(report);
        }
    }

    /// Processes a frame as a CPU. True if its ring has events.
    fn frame_on(&mut self, cpu: u32, frame: &Frame, data: &[u8]) -> bool {
        let bytes = data.len().min(HEAD_BYTES) as u32;
        let (rtt, data) = (self.rtt.as_ptr(), data.as_ptr());
        // SAFETY: `data` has at least `bytes` bytes; all pointers live through the call.
        unsafe { ffi::fp_native_frame(rtt, cpu, frame, data, bytes) != 0 }
    }

    /// Takes the next event of a CPU that is not later than `until`. `Some(None)`: it is invalid.
    fn event(&mut self, cpu: u32, until: u64) -> Option<Option<Event>> {
        let raw = &raw mut *self.raw;
        // SAFETY: `rtt` is formatted, and `raw` lives through the call. Only this process reads.
        let bytes = unsafe { ffi::fp_native_event(self.rtt.as_ptr(), cpu, until, raw) };
        (bytes > 0).then(|| Event::from_raw(&self.raw))
    }

    /// Reports the events of the first CPU, which is that of the native runtime.
    fn drain(&mut self, report: &mut impl FnMut(Event)) {
        while let Some(event) = self.event(0, u64::MAX) {
            event.into_iter().for_each(&mut *report);
        }
    }

    /// Appends the events of all CPUs up to `until`, in the order of the writer, or of
    /// their times if there are several. Returns the number of invalid ones. O(CPUs) without events.
    ///
    /// An event of another CPU may have an earlier time than those already read, if it was published
    /// after this call began. If `until` is the time before the call, this is the time of a packet.
    pub fn read_events(&mut self, until: u64, into: &mut Vec<Event>) -> u64 {
        let begin = into.len();
        let (mut invalid, mut writers) = (0, 0);
        for cpu in 0..self.config.cpus {
            let before = into.len();
            while let Some(event) = self.event(cpu, until) {
                invalid += u64::from(event.is_none());
                into.extend(event);
            }
            writers += u32::from(into.len() > before);
        }
        if writers > 1 {
            into[begin..].sort_by_key(Event::time);
        }
        invalid
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

    /// The result of the parser, `struct fp_packet` and the length of the frame.
    #[cfg(test)]
    pub(crate) fn parse(
        &mut self,
        frame: &Frame,
        data: &[u8],
        path: ParserPath,
    ) -> (i32, [u8; 256]) {
        let mut result = [0; 256];
        let bytes = data.len().min(HEAD_BYTES) as u32;
        let rtt = self.rtt.as_ptr();
        // SAFETY: `data` has at least `bytes` bytes; all pointers live through the call.
        let parsed = unsafe {
            ffi::fp_native_parse(
                rtt,
                frame,
                data.as_ptr(),
                bytes,
                path as u32,
                &raw mut result,
            )
        };
        (parsed, result)
    }

    /// Closes idle flows in the next `sets` sets.
    pub(crate) fn expire(&mut self, now: u64, sets: u32, report: &mut impl FnMut(Event)) {
        // A set reports at most one event per way, which fit the smallest ring.
        for _ in 0..sets {
            // SAFETY: `rtt` is formatted.
            unsafe { ffi::fp_native_expire(self.rtt.as_ptr(), now, 1) };
            self.drain(report);
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

/// The paths of the parser.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) enum ParserPath {
    Both = 0,
    Long = 1,
    /// Returns 1 if it takes the packet.
    Usual = 2,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::abi::{Counts, Key, Link, MIN_RING_BYTES, RawEvent};
    use crate::aggregate::{ClassCounts, DirCounts, Rules};
    use crate::classes::ClassReading;
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
            64, // as computed by Config::class_bytes()
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

    /// A monitor with the smallest rings, on as many CPUs.
    struct Rings {
        memory: Memory,
        _bytes: Vec<[u64; 8]>,
    }

    impl Rings {
        fn new(cpus: u32) -> Rings {
            Rings::with(Config {
                cpus,
                ..Config::default()
            })
        }

        fn with(config: Config) -> Rings {
            let config = Config {
                ring_bytes: MIN_RING_BYTES,
                ..config.with_flows(64)
            };
            let mut bytes = vec![[0; 8]; Memory::bytes(&config) as usize / 64 + 2];
            let at = NonNull::new(bytes.as_mut_ptr().cast::<u8>()).unwrap();
            // SAFETY: less than 64 further, where enough zeroed bytes follow.
            let at = unsafe { at.add(at.align_offset(64)) };
            // SAFETY: as above; they live as long.
            let memory = unsafe { Memory::format(at, &config) };
            Rings {
                memory,
                _bytes: bytes,
            }
        }

        /// An echo and its answer, a sample at `now`, of as many bytes in the ring as two lines.
        fn echo(&mut self, cpu: u32, now: u64, number: u16) {
            for (kind, from, to) in [(8, 1, 2), (0, 2, 1)] {
                let mut data = [0; 42];
                data[12..14].copy_from_slice(&[0x08, 0x00]);
                data[14..18].copy_from_slice(&[0x45, 0, 0, 28]);
                data[23] = 1;
                data[29] = from;
                data[33] = to;
                data[34] = kind;
                data[40..42].copy_from_slice(&number.to_be_bytes());
                let frame = Frame {
                    now,
                    wire_len: 42,
                    link: Link::Ethernet as u16,
                    ..Frame::default()
                };
                self.memory.frame_on(cpu, &frame, &data);
            }
        }

        /// The numbers of the echoes whose samples are read.
        fn read(&mut self, until: u64) -> Vec<u32> {
            let mut events = Vec::new();
            assert_eq!(self.memory.read_events(until, &mut events), 0);
            let number = |event: &Event| match event {
                Event::Sample(sample) => Some(sample.seq),
                _ => None,
            };
            events.iter().filter_map(number).collect()
        }
    }

    #[test]
    fn events_keep_their_order_where_rings_wrap() {
        let mut rings = Rings::new(1);
        let (mut next, mut read) = (0, Vec::new());
        for round in 0..500 {
            for _ in 0..1 + round % 7 {
                rings.echo(0, 1 + u64::from(next), next);
                next += 1;
            }
            read.extend(rings.read(u64::MAX));
        }
        assert_eq!(read, (0..u32::from(next)).collect::<Vec<_>>());
        assert_eq!(rings.memory.stats().events_lost, 0);
    }

    #[test]
    fn class_counts_of_all_cpus_add_up() {
        let mut rings = Rings::with(Config {
            cpus: 3,
            ..Config::default().with_classes(10)
        });
        for number in 0..12 {
            rings.echo(u32::from(number % 3), 1 + u64::from(number), number);
        }
        let mut reading = ClassReading::default();
        let half = rings.memory.turn_reading();
        rings.memory.read_classes(half, &mut reading);
        // Neither end has a class.
        let other = &reading.counts[0];
        assert_eq!(other.dir.iter().map(|dir| dir.packets).sum::<u64>(), 24 * 2);
        assert_eq!(other.leg.iter().map(|leg| leg.samples).sum::<u32>(), 12);
        rings
            .memory
            .set_rules(&Rules::default(), &[0])
            .expect("there are none");
        rings.memory.read_classes(half, &mut reading);
        assert_eq!(reading.counts[0], ClassCounts::default());
    }

    #[test]
    fn full_rings_drop_events_and_count_them() {
        let mut rings = Rings::new(1);
        for number in 0..100 {
            rings.echo(0, 1, number);
        }
        let read = rings.read(u64::MAX);
        let lost = rings.memory.stats().events_lost;
        // The opening of the flow takes five lines, each sample two.
        assert_eq!(read, (0..(64 - 5) / 2).collect::<Vec<_>>());
        assert_eq!(read.len() as u64 + lost, 100);
        rings.echo(0, 2, 100);
        assert_eq!(rings.read(u64::MAX), [100]);
    }

    #[test]
    fn events_of_cpus_are_read_in_time_order() {
        let mut rings = Rings::new(3);
        for number in 0..12_u16 {
            rings.echo(u32::from(number * 7 % 3), 10 + u64::from(number), number);
        }
        assert_eq!(rings.read(15), [0, 1, 2, 3, 4, 5]);
        rings.echo(1, 40, 12);
        assert_eq!(rings.read(u64::MAX), [6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(rings.read(u64::MAX), []);
    }

    #[test]
    fn the_last_time_is_no_end_of_rings() {
        let mut rings = Rings::new(1);
        for number in 0..200 {
            // The second event of each reading has the time.
            rings.echo(0, u64::from(number), number);
            rings.echo(0, u64::MAX, number + 1_000);
            let read = rings.read(u64::MAX);
            assert_eq!(read, [u32::from(number), u32::from(number) + 1_000]);
        }
    }

    #[test]
    fn corrupted_rings_end_reading() {
        for word in [1, 63, 4_095, 4_096, 4_097, 1 << 40, u64::MAX] {
            let mut rings = Rings::new(1);
            rings.echo(0, 1, 1);
            // The head is the first word of the ring of the first scratch, which follows the header.
            // SAFETY: constants of the native library.
            let layout = unsafe { ffi::fp_native_layout };
            let at = (layout[7] as usize).next_multiple_of(64) + layout[30] as usize;
            // SAFETY: within the memory.
            let head = unsafe { rings.memory.rtt.as_ptr().cast::<u8>().add(at) };
            // SAFETY: as above; aligned to 64.
            let before = unsafe { head.cast::<u64>().replace(word) };
            assert!(before > 0 && before.is_multiple_of(64), "no head: {before}");
            let mut events = Vec::new();
            rings.memory.read_events(u64::MAX, &mut events);
            assert!(events.len() <= 64, "head {word}: {} events", events.len());
        }
    }
}
