//! The kernel runtime of the RTT monitor: loaded, attached, read and ended.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use fairpath_core::{
    ClassReading, Config, Event, Filter, FlowView, Frame, HEAD_BYTES, Memory, Rules, Stats,
    TooManyRules, Usage,
};
use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::arena::{self, PAGE, START, STRIDE, touch};
use crate::attach::{self, AttachError, Attached, Hook};
use crate::cost::{self, RunTime};
use crate::skel::rtt::{OpenRttSkel, RttSkel, RttSkelBuilder};
use crate::stage::{self, Stage};

/// Interval of reads: the smallest ring of [`Options::live`] then holds 400,000 samples of a CPU per
/// second.
pub const READ_EVERY: Duration = Duration::from_millis(20);
/// Bytes of the rings of all CPUs, as long as each has [`RING_BYTES`] to eight times as many.
const RINGS_BYTES: u32 = 1 << 24;
const RING_BYTES: u32 = 1 << 20;
/// Frames of one test run. The kernel limits the time of its loops (a quarter of a second).
const REPLAY_FRAMES: usize = 2048;

/// The monitor could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused map or program.
    #[error(
        "load the RTT programs: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Tables larger than an arena can be.
    #[error(
        "load the RTT programs: tables of {bytes} bytes exceed the arena's 4 GiB; use fewer flows"
    )]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("load the RTT programs: the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
}

/// A loaded monitor could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no memory for frames of a test run.
    #[error("replay frames: this monitor was loaded for live use; load it with `Options::replay`")]
    NoSpace,
    /// A test run failed.
    #[error("run an RTT program without attaching it: {0}")]
    TestRun(#[source] libbpf_rs::Error),
}

/// Options of loading a monitor.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tables and methods. [`RttMonitor::load`] sets `cpus` where it is 0 or 1, and `ring_bytes`
    /// unless no event is wanted (`quiet`).
    pub config: Config,
    /// Memory for this number of frames of test runs; 0 for live use.
    pub replay_frames: usize,
    /// Also load the program that forwards through AF_XDP: [`RttMonitor::attach_forward`].
    pub forwarding: bool,
    /// Also load the program of [`Hook::Xdp`].
    pub xdp: bool,
}

/// Events that were read and not taken yet.
#[derive(Debug, Default)]
pub struct Batch {
    /// In the order of their times.
    pub events: Vec<Event>,
    /// Entries that were not an event.
    pub bad: u64,
}

/// A loaded RTT monitor.
pub struct RttMonitor {
    batch: Batch,
    memory: Memory,
    table_bytes: u64,
    replay_frames: usize,
    pub(crate) forwards: bool,
    /// XDP programs of interfaces with `rtt_xdp` as a stage, for the kernel's statistics.
    roots: BTreeMap<IfIndex, OwnedFd>,
    pub(crate) skel: RttSkel<'static>,
}

impl RttMonitor {
    /// Loads programs and tables into the kernel, and attaches nothing.
    ///
    /// Takes most of a second (the verifier) and commits the tables' memory.
    ///
    /// # Errors
    /// [`LoadError`] names the missing support.
    pub fn load(options: &Options) -> Result<RttMonitor, LoadError> {
        let mut config = options.config;
        if config.cpus <= 1 {
            config.cpus = libbpf_rs::num_possible_cpus().map_err(LoadError::Refused)? as u32;
        }
        if config.quiet == 0 {
            // Test runs use one CPU, and are read after each part.
            let cpus = if options.replay_frames > 0 {
                1
            } else {
                config.cpus
            };
            config.ring_bytes = ring_bytes(cpus);
        }
        let bytes = START + Memory::bytes(&config) + Memory::replay_bytes(options.replay_frames);
        let pages = bytes.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(LoadError::TooLarge { bytes });
        }
        // The skeleton borrows its memory permanently: a few bytes per monitor, freed with the
        // process.
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = open(place, pages, options).map_err(LoadError::Refused)?;
        let skel = open.load().map_err(LoadError::Refused)?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(LoadError::NotMapped)?;
        // The first page stays empty but must exist: the programs read a zero from it.
        // SAFETY: the arena is mapped from `start` on, `pages` pages long.
        unsafe { start.write_volatile(0) };
        // SAFETY: as above.
        let at = unsafe { start.add(START as usize) };
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which
        // lives while `memory`; the programs are not attached yet.
        let memory = unsafe { Memory::format(at, &config) };
        // SAFETY: the mapping has that many pages.
        unsafe { touch(start, used_pages(&config, pages)) };
        Ok(RttMonitor {
            batch: Batch::default(),
            memory,
            table_bytes: used_pages(&config, pages) * PAGE,
            replay_frames: options.replay_frames,
            forwards: options.forwarding,
            roots: BTreeMap::new(),
            skel,
        })
    }

    /// Attaches to one hook of an interface of the current network namespace.
    ///
    /// `raw`: its packets begin with an IP header (ppp, tun, wireguard). The monitor records a
    /// monitored ingress, so that samples are not taken twice.
    ///
    /// # Errors
    /// [`AttachError`] names interface, hook, cause and remedy.
    pub fn attach(
        &mut self,
        hook: Hook,
        ifindex: IfIndex,
        name: &str,
        raw: bool,
    ) -> Result<Attached, AttachError> {
        let programs = &mut self.skel.progs;
        let program = match (hook, raw) {
            (Hook::TcxIngress, false) => &mut programs.rtt_ingress,
            (Hook::TcxIngress, true) => &mut programs.rtt_ingress_raw,
            (Hook::TcxEgress, false) => &mut programs.rtt_egress,
            (Hook::TcxEgress, true) => &mut programs.rtt_egress_raw,
            (Hook::Xdp, _) => &mut programs.rtt_xdp,
        };
        let attached = match hook {
            Hook::Xdp => stage::attach(program, Stage::Measure, ifindex, name)?,
            _ => attach::attach(program, hook, ifindex, name)?,
        };
        if hook != Hook::TcxEgress {
            self.memory.watch(ifindex.0, true);
        }
        let root = attached.root().map(|root| root.try_clone_to_owned());
        let root = root.and_then(Result::ok);
        self.roots.extend(root.map(|root| (ifindex, root)));
        Ok(attached)
    }

    /// Records that the ingress of an interface is monitored, like [`RttMonitor::attach`], for test
    /// runs. False if there are too many.
    pub fn watch(&mut self, ifindex: IfIndex) -> bool {
        self.memory.watch(ifindex.0, true)
    }

    /// Removes an interface from the monitored ingresses.
    pub fn unwatch(&mut self, ifindex: IfIndex) {
        self.memory.watch(ifindex.0, false);
        self.roots.remove(&ifindex);
    }

    /// Reads all events up to `until`, the monotonic time before the call, or all with `u64::MAX`.
    /// The programs do not wake the reader: call it every [`READ_EVERY`].
    pub fn read(&mut self, until: u64) {
        self.batch.bad += self.memory.read_events(until, &mut self.batch.events);
    }

    /// Returns the events that were read.
    pub fn take(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Checks the next `sets` sets for idle flows.
    ///
    /// # Errors
    /// [`RunError::TestRun`].
    pub fn expire(&mut self, now: u64, sets: u32) -> Result<(), RunError> {
        self.memory.query_expire(now, sets);
        let packet = [0; 64];
        let input = ProgramInput {
            data_in: Some(&packet),
            ..ProgramInput::default()
        };
        self.skel
            .progs
            .rtt_expire
            .test_run(input)
            .map(drop)
            .map_err(RunError::TestRun)
    }

    /// Runs frames through the kernel runtime without attaching, in order.
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::NoSpace`] where the monitor was loaded for live use.
    pub fn replay(&mut self, frames: &[(Frame, &[u8])]) -> Result<(), RunError> {
        if self.replay_frames == 0 {
            return Err(RunError::NoSpace);
        }
        for part in frames.chunks(self.replay_frames.min(REPLAY_FRAMES)) {
            // SAFETY: load() reserved memory for `replay_frames` frames, which a part does not
            // exceed.
            unsafe { self.memory.replay(part.iter().copied()) };
            let input = ProgramInput::default();
            self.skel
                .progs
                .rtt_replay
                .test_run(input)
                .map_err(RunError::TestRun)?;
            self.read(u64::MAX);
        }
        Ok(())
    }

    /// Runs the program of one hook once over a packet without attaching: for tests of the hooks.
    ///
    /// # Errors
    /// [`RunError::TestRun`]; the program of the other runtime is not loaded.
    pub fn run_hook(&mut self, hook: Hook, packet: &[u8]) -> Result<(), RunError> {
        let programs = &self.skel.progs;
        let program = match hook {
            Hook::TcxIngress => &programs.rtt_ingress,
            Hook::TcxEgress => &programs.rtt_egress,
            Hook::Xdp => &programs.rtt_xdp,
        };
        let input = ProgramInput {
            data_in: Some(packet),
            ..ProgramInput::default()
        };
        program.test_run(input).map_err(RunError::TestRun)?;
        self.read(u64::MAX);
        Ok(())
    }

    /// Activates rules under traffic: every packet uses either the old or the new ones.
    ///
    /// `begun` are slots with a new owner: their counts start at zero. Waits until no packet uses
    /// the old rules any more (about 20 ms).
    ///
    /// # Errors
    /// [`TooManyRules`]; then the old rules stay active.
    ///
    /// # Panics
    /// If the monitor was loaded without classes ([`Config::with_classes`]).
    pub fn set_rules(&mut self, rules: &Rules, begun: &[u32]) -> Result<(), TooManyRules> {
        self.memory.set_rules(rules, begun)?;
        wait_for_programs();
        Ok(())
    }

    /// Reads the counts of all classes, and takes the cells and pairs since the last reading.
    ///
    /// Nothing is lost or counted twice: the programs fill the other half in the meantime, and the
    /// call waits for those that still fill this one (about 20 ms).
    pub fn read_classes(&mut self, into: &mut ClassReading) {
        let half = self.memory.turn_reading();
        wait_for_programs();
        self.memory.read_classes(half, into);
    }

    /// Sets the filters. False if there are more than [`fairpath_core::MAX_FILTERS`].
    pub fn set_filters(&mut self, filters: &[Filter]) -> bool {
        self.memory.set_filters(filters)
    }

    /// Measures only packets of some classes, see [`Memory::filter_classes`].
    pub fn filter_classes(&mut self, only: &[u32], except: &[u32]) {
        self.memory.filter_classes(only, except);
    }

    /// Counts packets of a monitored interface in a separate slot. False if it is not monitored.
    pub fn count_interface(&mut self, ifindex: IfIndex, slot: u32) -> bool {
        self.memory.count_interface(ifindex.0, slot)
    }

    /// Open flows of the class of a slot, see [`Memory::flows`].
    pub fn flows(&self, slot: u32, limit: usize) -> Vec<FlowView> {
        self.memory.flows(slot, limit)
    }

    /// Reports every flow that is still open. Everything must be detached.
    pub fn finish(&mut self, now: u64, report: impl FnMut(Event)) {
        self.memory.finish(now, report);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.memory.stats()
    }

    /// Used entries; walks through all tables.
    pub fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// The configuration active.
    pub fn config(&self) -> &Config {
        self.memory.config()
    }

    /// Bytes of kernel memory committed to tables and rules.
    pub fn bytes(&self) -> u64 {
        self.table_bytes + self.memory.image_bytes()
    }

    /// The kernel's statistics of each program, with its name; see [`crate::cost`].
    ///
    /// `rtt_xdp` runs as a stage of the XDP programs of the interfaces, whose time is reported: all
    /// stages that existed when it was attached, without stages of owners that joined later.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn run_times(&self) -> std::io::Result<Vec<(&'static str, RunTime)>> {
        let programs = &self.skel.progs;
        let mut times = vec![
            ("rtt_ingress", cost::run_time(programs.rtt_ingress.as_fd())?),
            ("rtt_egress", cost::run_time(programs.rtt_egress.as_fd())?),
            (
                "rtt_ingress_raw",
                cost::run_time(programs.rtt_ingress_raw.as_fd())?,
            ),
            (
                "rtt_egress_raw",
                cost::run_time(programs.rtt_egress_raw.as_fd())?,
            ),
        ];
        let mut xdp = RunTime::default();
        for root in self.roots.values() {
            let time = cost::run_time(root.as_fd())?;
            xdp.runs += time.runs;
            xdp.time_ns += time.time_ns;
        }
        times.push(("rtt_xdp", xdp));
        Ok(times)
    }
}

/// Maximum memory of one test run of [`RttMonitor::replay`].
impl Options {
    /// Options for test runs: differential tests.
    pub fn replay(config: Config) -> Options {
        Options {
            config,
            replay_frames: REPLAY_FRAMES,
            forwarding: false,
            xdp: false,
        }
    }

    /// Options for live use.
    pub fn live(config: Config) -> Options {
        Options {
            config,
            replay_frames: 0,
            forwarding: false,
            xdp: true,
        }
    }

    /// The same, to attach at tcx only.
    #[must_use]
    pub fn without_xdp(self) -> Options {
        Options { xdp: false, ..self }
    }

    /// The same, to forward through AF_XDP as well.
    #[must_use]
    pub fn with_forwarding(self) -> Options {
        Options {
            forwarding: true,
            ..self
        }
    }
}

fn open(
    place: &'static mut MaybeUninit<OpenObject>,
    pages: u64,
    options: &Options,
) -> Result<OpenRttSkel<'static>, libbpf_rs::Error> {
    let mut open = RttSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    // The verifier takes 0.1 s per program, so unused ones are not loaded.
    let replay = options.replay_frames > 0;
    let programs = &mut open.progs;
    programs.rtt_replay.set_autoload(replay);
    for hook in [
        &mut programs.rtt_ingress,
        &mut programs.rtt_ingress_raw,
        &mut programs.rtt_egress,
        &mut programs.rtt_egress_raw,
    ] {
        hook.set_autoload(!replay);
    }
    programs.rtt_xdp.set_autoload(options.xdp);
    // Kernels without AF_XDP have no such map.
    programs.rtt_forward.set_autoload(options.forwarding);
    open.maps.sockets.set_autocreate(options.forwarding)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.forwarding = options.forwarding.into();
        rodata.softirqs_nest = u32::from(softirqs_nest());
    }
    Ok(open)
}

/// PREEMPT_RT is shown here. There, softirqs of one CPU can interrupt each other.
pub(crate) fn softirqs_nest() -> bool {
    std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|t| t.trim() == "1")
}

/// Waits for the end of all program runs that are in progress.
///
/// Programs at tcx and XDP run in read-side sections of RCU, and `MEMBARRIER_CMD_GLOBAL` waits for
/// those (`synchronize_rcu()`, Linux 4.3). Kernels with `nohz_full` refuse it. There, a sleep of a
/// second is longer than any packet takes.
pub(crate) fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    // SAFETY: takes numbers only and accesses no memory.
    let failed = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if failed {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Pages that the programs may write to. User space writes the images of the rules behind them as
/// far as needed, and the input of test runs.
fn used_pages(config: &Config, pages: u64) -> u64 {
    let images = 2 * config.image_bytes * u64::from(config.slots > 0);
    let written = START + Memory::bytes(config) - images;
    written.div_ceil(PAGE).min(pages)
}

/// Bytes of the ring of each CPU.
fn ring_bytes(cpus: u32) -> u32 {
    let share = (RINGS_BYTES / cpus.max(1)).clamp(RING_BYTES, 8 * RING_BYTES);
    // A power of two, not larger.
    1 << share.ilog2()
}

impl std::fmt::Debug for RttMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RttMonitor")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

const _: () = assert!(HEAD_BYTES.is_multiple_of(8));
