//! Classes of packets at tcx egress of the shaped interface: marks that select HTB classes, or limits.
//!
//! ```text
//! rules + minors --set--> arena <-- mark.bpf.c: fp_parse_and_classify -> class number -> minor -> skb->priority
//! ```
//!
//! With limits, the table has their numbers, and packets above them are dropped, or wait in the qdisc fq
//! ([`Mark::pace`]). All CPUs share a limit.
//!
//! The program runs before other programs of the hook, so that none of them can end the chain
//! first. Rules of an operator (`skbedit priority`, run later) have priority. `egress-qos-map` of a
//! marked VLAN interface gets the mark instead of the packet's priority, and so does any root qdisc
//! other than HTB (`pfifo_fast` selects its band by it). So remove the marks before the tree.
//!
//! With [`Mark::attach_pinned`], program, rules and table outlive this process, and the next one
//! replaces them in one step: the old or the new program marks every packet. The counts restart
//! then.

use std::mem::MaybeUninit;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use fairpath_core::limit::{LimitConfig, LimitError, Limits};
use fairpath_core::sched::{End, Meta, Plan};
use fairpath_core::{Config, Memory, Rules, TooManyRules};
use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, OpenObject, ProgramInput, ProgramMut};

use crate::arena::{self, PAGE, START, STRIDE, touch};
use crate::attach::{self, AttachError, Attached, Hook};
use crate::pin::{self, PinError, Pins};
use crate::rtt::wait_for_programs;
use crate::skel::mark::{MarkSkel, MarkSkelBuilder, OpenMarkSkel};
use crate::tcx;

/// `FP_QUEUE_CLASSES`.
const QUEUE_CLASSES: u32 = 4096;
/// Capacity of the rules' memory in flows: none are tracked.
const FLOWS: u32 = 8;
/// Bytes of `struct __sk_buff` in a test run, and the offset of its priority (`linux/bpf.h`).
const SKB_CONTEXT_BYTES: usize = 192;
const SKB_PRIORITY_AT: usize = 32;

/// Packets could not be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The kernel refused map or program.
    #[error(
        "load the marking program: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[from] libbpf_rs::Error),
    /// Tables larger than an arena can be.
    #[error(
        "load the marking program: tables of {bytes} bytes exceed the arena's 4 GiB; use fewer classes"
    )]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("load the marking program: the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// More classes than the program was loaded for.
    #[error(
        "set the marks of {classes} classes: the program was loaded for {capacity}; load it again"
    )]
    Classes {
        /// Requested.
        classes: usize,
        /// Capacity.
        capacity: u32,
    },
    /// Invalid limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The rules do not fit.
    #[error("set the marking program's rules")]
    Rules(#[from] TooManyRules),
    /// It could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The directory for its pin is missing.
    #[error("pin the marking program")]
    Pin(#[from] PinError),
}

/// The options of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkOptions {
    /// Maximum class number.
    pub classes: u32,
    /// The end whose class counts: [`End::Receiver`] on an interface towards subscribers.
    pub end: End,
    /// The use of a class.
    pub to: MarkTo,
    /// Transmit queues with an HTB each, whose flows are counted ([`Mark::queue_flows`]).
    pub queues: u16,
}

/// The use of the class of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkTo {
    /// The packet gets the priority that selects a class of the HTB with this major number.
    Htb(u16),
    /// A packet above the limit of its class is dropped, or waits.
    Limits,
}

impl MarkTo {
    /// The upper half of marks.
    fn major(self) -> u32 {
        match self {
            MarkTo::Htb(major) => u32::from(major) << 16,
            MarkTo::Limits => 0,
        }
    }

    /// Of the pins of the program.
    fn kind(self) -> &'static str {
        match self {
            MarkTo::Htb(_) => "mark",
            MarkTo::Limits => "police",
        }
    }
}

/// Counts of a class as in HTB: Ethernet frames, one per segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MarkCount {
    /// On the wire.
    pub packets: u64,
    /// On the wire, without FCS.
    pub bytes: u64,
    /// Of these packets: above the limit.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Of those packets: they would have waited too long in fq.
    pub full: u64,
}

impl MarkCount {
    /// Sums by node of counts by class number: of each class's leaf. O(classes + nodes).
    pub fn by_node(counts: &[MarkCount], plan: &Plan) -> Vec<MarkCount> {
        let mut by_node = vec![MarkCount::default(); plan.nodes.len() + 1];
        for (class, count) in counts.iter().enumerate() {
            let node = plan.class_table.get(class).copied().unwrap_or(0);
            by_node[node as usize] += *count;
        }
        by_node
    }
}

impl AddAssign for MarkCount {
    fn add_assign(&mut self, more: MarkCount) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.dropped += more.dropped;
        self.dropped_bytes += more.dropped_bytes;
        self.full += more.full;
    }
}

/// The previous state of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// There was none.
    Fresh,
    /// A program of an earlier process, which was replaced in one step.
    Over,
}

/// `struct fp_mark`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    classes: u32,
    major: u32,
    minors: [u64; 2],
    counts: u64,
    metas: u64,
    limits: u64,
    pace: u32,
    unpaced: u32,
}

/// Offsets in the arena.
#[derive(Clone, Copy, Debug)]
struct ArenaLayout {
    header: u64,
    minors: [u64; 2],
    counts: u64,
    metas: u64,
    limits: u64,
    end: u64,
}

impl ArenaLayout {
    /// `limits`: bytes of limits.
    fn new(config: &Config, rows: u32, limits: u64) -> ArenaLayout {
        let align = |at: u64| at.next_multiple_of(64);
        let (rows, cpus) = (u64::from(rows), u64::from(config.cpus));
        let header = align(START + Memory::bytes(config));
        let first = align(header + size_of::<Header>() as u64);
        let second = align(first + rows * 4);
        let counts = align(second + rows * 4);
        let metas = align(counts + cpus * rows * size_of::<MarkCount>() as u64);
        let limits_at = align(metas + cpus * size_of::<Meta>() as u64);
        ArenaLayout {
            header,
            minors: [first, second],
            counts,
            metas,
            limits: limits_at,
            end: align(limits_at + limits),
        }
    }
}

/// The loaded program, its rules, table and counts.
pub struct Mark {
    skel: MarkSkel<'static>,
    memory: Memory,
    start: NonNull<u8>,
    layout: ArenaLayout,
    /// Class numbers 0 to one less.
    rows: u32,
    cpus: u32,
    to: MarkTo,
    limits: Option<Limits>,
}

// SAFETY: the arena is plain bytes of this process; `&self` only reads counters, `&mut self` writes.
unsafe impl Send for Mark {}

impl Mark {
    /// Loads the program with its arena, and attaches nothing. Until [`Mark::set`], all packets are
    /// class 0 and minor 0, which HTB treats as unclassified.
    ///
    /// # Errors
    /// [`MarkError`] names the missing support.
    pub fn load(options: &MarkOptions) -> Result<Mark, MarkError> {
        Mark::load_with(options, &[])
    }

    /// The same with limits, which classes select.
    ///
    /// # Errors
    /// [`MarkError`].
    pub fn load_with(options: &MarkOptions, limits: &[LimitConfig]) -> Result<Mark, MarkError> {
        let mut config = Config::default()
            .with_flows(FLOWS)
            .with_classes(options.classes);
        config.cpus = libbpf_rs::num_possible_cpus()? as u32;
        // The counters of the rules are not used.
        (config.cell_sets, config.pair_sets, config.chunks) = (1, 1, 1);
        let rows = config.slots;
        let limit_bytes = match options.to {
            MarkTo::Htb(_) => 0,
            MarkTo::Limits => Limits::bytes(config.cpus, limits.len())? as u64,
        };
        let layout = ArenaLayout::new(&config, rows, limit_bytes);
        let pages = layout.end.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(MarkError::TooLarge { bytes: layout.end });
        }
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let major = options.to.major();
        let skel = open(place, pages, &layout, options)?.load()?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(MarkError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; nothing is attached yet.
        unsafe { touch_written(start, &config, &layout) };
        // SAFETY: within the arena.
        let at = unsafe { start.add(START as usize) };
        // SAFETY: fresh arena pages are zero and aligned, and live while the skeleton.
        let memory = unsafe { Memory::format(at, &config) };
        let header = Header {
            classes: rows,
            major,
            minors: layout.minors,
            counts: layout.counts,
            metas: layout.metas,
            limits: match options.to {
                MarkTo::Htb(_) => 0,
                MarkTo::Limits => layout.limits,
            },
            pace: 0,
            unpaced: 0,
        };
        // SAFETY: within the arena.
        let at = unsafe { start.add(layout.header as usize) }.cast::<Header>();
        // SAFETY: reserved for it, aligned to 64.
        unsafe { at.write(header) };
        let limits = match options.to {
            MarkTo::Htb(_) => None,
            MarkTo::Limits => {
                // SAFETY: within the arena.
                let at = unsafe { start.add(layout.limits as usize) };
                // SAFETY: fresh pages of the arena, zero and aligned, that live while the skeleton.
                Some(unsafe { Limits::format(at, config.cpus, limits) }?)
            }
        };
        Ok(Mark {
            to: options.to,
            limits,
            skel,
            memory,
            start,
            layout,
            rows,
            cpus: config.cpus,
        })
    }

    /// Activates rules and minors under traffic by one store: every packet uses either the old or
    /// the new ones. The slots of the rules are class numbers. `minors`, or numbers of limits from 1, are by class number, the
    /// first for packets without a class. 0 means: the same as those.
    ///
    /// Returns when no packet uses the old ones any more (about 20 ms). From then on, an HTB class
    /// that is not named gets no packets.
    ///
    /// # Errors
    /// [`MarkError`]; then the old ones stay active.
    pub fn set<N: Copy + Into<u32>>(
        &mut self,
        rules: &Rules,
        minors: &[N],
    ) -> Result<(), MarkError> {
        if minors.len() > self.rows as usize {
            return Err(MarkError::Classes {
                classes: minors.len() - 1,
                capacity: self.rows - 1,
            });
        }
        let free = self.layout.minors[1 - self.memory.rules_image()];
        for row in 0..self.rows as usize {
            let minor = minors.get(row).map_or(0, |minor| (*minor).into());
            // SAFETY: the table has `rows` words.
            let at = unsafe { self.start.add(free as usize + 4 * row) }.cast::<u32>();
            // SAFETY: as above; no packet goes by this table.
            unsafe { at.write_volatile(minor) };
        }
        self.memory.set_rules(rules, &[])?;
        wait_for_programs();
        Ok(())
    }

    /// Attaches to an interface of the current network namespace until the value is dropped. `raw`:
    /// its packets begin with an IP header.
    ///
    /// # Errors
    /// [`MarkError::Attach`].
    pub fn attach(
        &mut self,
        ifindex: IfIndex,
        name: &str,
        raw: bool,
    ) -> Result<Attached, MarkError> {
        Ok(attach::attach(
            self.program(raw),
            Hook::TcxEgress,
            ifindex,
            name,
        )?)
    }

    /// Like [`Mark::attach`], but the program remains after the end of this process in any case. It
    /// replaces one of an earlier process in one step. [`Mark::detach_pinned`] removes it.
    ///
    /// # Errors
    /// [`MarkError`].
    pub fn attach_pinned(
        &mut self,
        pins: &Pins,
        ifindex: IfIndex,
        name: &str,
        raw: bool,
    ) -> Result<Took, MarkError> {
        let path = pins.of(self.to.kind(), ifindex)?;
        let program = self.program(raw);
        if path.exists() {
            if Link::open(&path).is_ok_and(|mut link| link.update_prog(program).is_ok()) {
                tcx::is_ours(program);
                return Ok(Took::Over);
            }
            // The interface was removed, and another one has its index.
            pin::remove(&path)?;
        }
        let attached = attach::attach(program, Hook::TcxEgress, ifindex, name)?;
        attached.pin(&path).map_err(|error| PinError {
            what: "pin",
            path,
            source: std::io::Error::other(error),
        })?;
        Ok(Took::Fresh)
    }

    /// Removes the program of [`Mark::attach_pinned`] from an interface, of this or an earlier
    /// process. False if there is none.
    ///
    /// # Errors
    /// [`MarkError::Pin`].
    pub fn detach_pinned(pins: &Pins, ifindex: IfIndex, to: MarkTo) -> Result<bool, MarkError> {
        Ok(pin::remove(&pins.of(to.kind(), ifindex)?)?)
    }

    /// Removes the programs of [`Mark::attach_pinned`] from interfaces of this network namespace
    /// that are not in `present`.
    ///
    /// # Errors
    /// [`MarkError::Pin`].
    pub fn sweep_pins(pins: &Pins, present: &[IfIndex]) -> Result<(), MarkError> {
        for to in [MarkTo::Htb(0), MarkTo::Limits] {
            pins.sweep(to.kind(), present)?;
        }
        Ok(())
    }

    /// Counts since loading, by class number, the first for packets without a class. Counts of
    /// several CPUs are read one after another. O(classes x CPUs).
    pub fn counts(&self) -> Vec<MarkCount> {
        let mut sums = vec![MarkCount::default(); self.rows as usize];
        for row in 0..self.cpus as usize * sums.len() {
            let place = self.layout.counts as usize + row * size_of::<MarkCount>();
            // SAFETY: there is a row for each CPU and class number.
            let at = unsafe { self.start.add(place) }.cast::<MarkCount>();
            // SAFETY: as above; the kernel writes only counters during this time.
            let count = unsafe { at.read_volatile() };
            sums[row % self.rows as usize] += count;
        }
        sums
    }

    /// Runs the program once over a packet without attaching, and returns the priority: for tests.
    ///
    /// # Errors
    /// [`MarkError::Refused`].
    pub fn run_unattached(&mut self, packet: &[u8]) -> Result<u32, MarkError> {
        let mut context = [0; SKB_CONTEXT_BYTES];
        let input = ProgramInput {
            data_in: Some(packet),
            context_out: Some(&mut context),
            ..ProgramInput::default()
        };
        self.program(false).test_run(input)?;
        let priority = context[SKB_PRIORITY_AT..].first_chunk();
        Ok(priority.map_or(0, |bytes| u32::from_ne_bytes(*bytes)))
    }

    /// From now on, packets above their limit wait in the qdisc fq of the interface until their time, or are dropped
    /// without waiting. The program itself ends the former at the first packet of a queue with another qdisc.
    pub fn pace(&mut self, paces: bool) {
        // SAFETY: inside of the arena.
        let pace = unsafe { &raw mut (*self.header()).pace };
        // SAFETY: aligned; programs only write 0.
        unsafe { pace.write_volatile(paces.into()) };
    }

    /// True if packets wait in fq.
    pub fn paces(&self) -> bool {
        // SAFETY: inside of the arena.
        let pace = unsafe { &raw const (*self.header()).pace };
        // SAFETY: aligned.
        unsafe { pace.read_volatile() != 0 }
    }

    /// Times that the program found another qdisc than fq, and ended waiting.
    pub fn unpaced(&self) -> u32 {
        // SAFETY: inside of the arena.
        let unpaced = unsafe { &raw const (*self.header()).unpaced };
        // SAFETY: aligned.
        unsafe { unpaced.read_volatile() }
    }

    fn header(&self) -> *mut Header {
        // SAFETY: the header is inside of the arena.
        unsafe { self.start.add(self.layout.header as usize) }
            .cast::<Header>()
            .as_ptr()
    }

    /// The program that selects the class of a packet, by its mark, in the HTB of a transmit queue.
    pub fn queue_class(&self) -> BorrowedFd<'_> {
        self.skel.progs.queue_class.as_fd()
    }

    /// The flows of classes at transmit queues, as long as the value lives.
    ///
    /// # Errors
    /// The descriptor of the map cannot be copied.
    pub fn queue_flows(&self) -> Result<QueueFlows, MarkError> {
        let map = MapHandle::try_from(&self.skel.maps.flows)?;
        Ok(QueueFlows { map })
    }

    /// The limits, if classes select them.
    pub fn limits(&mut self) -> Option<&mut Limits> {
        self.limits.as_mut()
    }

    /// Bytes of kernel memory committed to tables and rules.
    pub fn bytes(&self) -> u64 {
        let images = 2 * self.memory.config().image_bytes;
        self.layout.end - images + self.memory.image_bytes()
    }

    fn program(&mut self, raw: bool) -> &mut ProgramMut<'static> {
        let progs = &mut self.skel.progs;
        match (self.to, raw) {
            (MarkTo::Htb(_), false) => &mut progs.mark_egress,
            (MarkTo::Htb(_), true) => &mut progs.mark_egress_raw,
            (MarkTo::Limits, false) => &mut progs.police_egress,
            (MarkTo::Limits, true) => &mut progs.police_egress_raw,
        }
    }
}

/// Estimates of the flows of classes at transmit queues.
#[derive(Debug)]
pub struct QueueFlows {
    map: MapHandle,
}

impl QueueFlows {
    /// Flows of a class (its minor number) with packets at a queue since the last call, by linear counting of 64 bits
    /// (Whang et al., ACM TODS 1990): 266 at most. Classes whose numbers have equal lower 12 bits count together. Two
    /// system calls.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn take(&self, queue: u16, minor: u16) -> Result<f64, MarkError> {
        let key = u32::from(queue) * QUEUE_CLASSES + u32::from(minor) % QUEUE_CLASSES;
        let key = key.to_ne_bytes();
        let seen = self.map.lookup(&key, MapFlags::ANY)?;
        let seen = seen.as_deref().and_then(|bytes| bytes.first_chunk());
        let seen = seen.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        if seen != 0 {
            self.map.update(&key, &[0; 8], MapFlags::ANY)?;
        }
        let unseen = f64::from(seen.count_zeros()).max(1.0);
        Ok(64.0 * (64.0 / unseen).ln())
    }
}

fn open(
    place: &'static mut MaybeUninit<OpenObject>,
    pages: u64,
    layout: &ArenaLayout,
    options: &MarkOptions,
) -> Result<OpenMarkSkel<'static>, libbpf_rs::Error> {
    let mut open = MarkSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    let flows = u32::from(options.queues) * QUEUE_CLASSES;
    open.maps.flows.set_max_entries(flows.max(1))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.mark_at = layout.header;
        rodata.mark_end = options.end as u32;
        rodata.mark_major = options.to.major();
        rodata.mark_softirqs_nest = u32::from(crate::rtt::softirqs_nest());
    }
    // The verifier takes 10 ms and more for each.
    let marks = matches!(options.to, MarkTo::Htb(_));
    let progs = &mut open.progs;
    progs.mark_egress.set_autoload(marks);
    progs.mark_egress_raw.set_autoload(marks);
    progs.queue_class.set_autoload(options.queues > 0);
    progs.police_egress.set_autoload(!marks);
    progs.police_egress_raw.set_autoload(!marks);
    Ok(open)
}

/// Touches the pages that the program writes, and the first page. The images of the rules are
/// between.
///
/// # Safety
/// The arena is mapped from `start` to the end of the offsets, and not used yet.
unsafe fn touch_written(start: NonNull<u8>, config: &Config, layout: &ArenaLayout) {
    let images = 2 * config.image_bytes;
    let before = (START + Memory::bytes(config) - images).div_ceil(PAGE);
    let from = layout.header / PAGE;
    // SAFETY: the caller promises the mapping.
    unsafe { touch(start, before) };
    // SAFETY: as above.
    let behind = unsafe { start.add((from * PAGE) as usize) };
    // SAFETY: as above.
    unsafe { touch(behind, layout.end.div_ceil(PAGE) - from) };
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mark")
            .field("rows", &self.rows)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
