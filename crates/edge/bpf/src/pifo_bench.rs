//! The cost of PIFOs in the kernel, for benchmarks: programs that pop and push in test runs.

use std::mem::MaybeUninit;

use fairpath_core::pifo::{Kind, PifoConfig, PifoConfigError, Pool, Window};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::arena::{self, PAGE, START};
use crate::skel::pifo_bench::{PifoBenchSkel, PifoBenchSkelBuilder};

/// Maximum of objects in the queue of a run (`MAX_OBJECTS`, less slot 0).
const MAX_OBJECTS: u32 = 16_383;
/// Buckets of each half of the window; ranks are up to 4,000 ahead.
const BUCKETS: u32 = 4_096;
/// An Ethernet header: the minimum packet of the kernel.
const PACKET: [u8; 14] = [0; 14];

/// The variant of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// An empty program: the cost of a call.
    Empty,
    /// cFFS in an arena, without slots.
    Cffs,
    /// cFFS, and the object in an array of kptrs.
    CffsSlots,
    /// The same, through the functions that check the kind.
    CffsCalls,
    /// The heap, and the object in an array of kptrs.
    HeapSlots,
    /// `bpf_list`, an object allocated and freed each time.
    List,
    /// The same with `bpf_rbtree`.
    Rbtree,
    /// `bpf_list`, objects created once and kept as kptrs.
    ListKept,
    /// `bpf_rbtree`, objects created once and kept as kptrs.
    RbtreeKept,
}

impl Variant {
    /// All, the empty one first.
    pub const ALL: [Variant; 9] = [
        Variant::Empty,
        Variant::Cffs,
        Variant::CffsSlots,
        Variant::CffsCalls,
        Variant::HeapSlots,
        Variant::List,
        Variant::ListKept,
        Variant::Rbtree,
        Variant::RbtreeKept,
    ];

    fn program(self) -> &'static str {
        match self {
            Variant::Empty => "bench_empty",
            Variant::Cffs => "bench_cffs",
            Variant::CffsSlots => "bench_cffs_slots",
            Variant::CffsCalls => "bench_cffs_calls",
            Variant::HeapSlots => "bench_heap_slots",
            Variant::List => "bench_list",
            Variant::Rbtree => "bench_rbtree",
            Variant::ListKept => "bench_list_kept",
            Variant::RbtreeKept => "bench_rbtree_kept",
        }
    }

    /// The program that queues the first objects; none for the empty variant.
    fn fill(self) -> &'static str {
        match self {
            Variant::Empty => "none",
            Variant::Cffs | Variant::CffsSlots | Variant::CffsCalls => "fill_cffs",
            Variant::HeapSlots => "fill_heap",
            Variant::List | Variant::ListKept => "fill_list",
            Variant::Rbtree | Variant::RbtreeKept => "fill_tree",
        }
    }
}

/// The programs could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum QueueBenchError {
    /// The kernel refused map, kfunc or program.
    #[error(
        "load the PIFO benchmark: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.12 or newer"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// The arena's mapping is missing.
    #[error("load the PIFO benchmark: the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// Its pool.
    #[error(transparent)]
    PifoConfigError(#[from] PifoConfigError),
    /// A run failed.
    #[error("run the PIFO benchmark: {0}")]
    TestRun(#[source] libbpf_rs::Error),
    /// Operations failed.
    #[error("run the PIFO benchmark: {0} operations failed; no other program may use its queues")]
    Mishaps(u64),
}

/// One loaded benchmark, filled for one variant.
pub struct QueueBench {
    skel: PifoBenchSkel<'static>,
    variant: Variant,
    _pool: Pool,
}

impl QueueBench {
    /// Loads the programs and queues `occupancy` objects (1 to 16,383) for one variant.
    ///
    /// # Errors
    /// [`QueueBenchError`].
    pub fn load(variant: Variant, occupancy: u32) -> Result<QueueBench, QueueBenchError> {
        let occupancy = occupancy.clamp(1, MAX_OBJECTS);
        let window = Window {
            buckets: BUCKETS,
            ..Window::default()
        };
        let pifos = [Kind::Cffs(window), Kind::Heap].map(|k| PifoConfig::new(k, MAX_OBJECTS));
        let pages = (START + Pool::bytes(MAX_OBJECTS, &pifos)).div_ceil(PAGE);
        let skel = load(variant, pages).map_err(QueueBenchError::Refused)?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(QueueBenchError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
        unsafe { arena::touch(start, pages) };
        // SAFETY: inside that mapping.
        let at = unsafe { start.add(START as usize) };
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which is
        // stored with the pool, and the programs write to the header by the core's code only.
        let pool = unsafe { Pool::format(at, MAX_OBJECTS, &pifos) }?;
        let mut bench = QueueBench {
            skel,
            variant,
            _pool: pool,
        };
        bench.run_program(variant.fill(), occupancy)?;
        Ok(bench)
    }

    /// Pops and pushes `times` times, in one system call.
    ///
    /// # Errors
    /// [`QueueBenchError::TestRun`], [`QueueBenchError::Mishaps`].
    pub fn run(&mut self, times: u32) -> Result<(), QueueBenchError> {
        self.run_program(self.variant.program(), times)
    }

    fn run_program(&mut self, name: &str, times: u32) -> Result<(), QueueBenchError> {
        let mut programs = self.skel.object_mut().progs_mut();
        if let Some(program) = programs.find(|p| p.name() == name) {
            let input = ProgramInput {
                data_in: Some(&PACKET),
                repeat: times,
                ..ProgramInput::default()
            };
            program.test_run(input).map_err(QueueBenchError::TestRun)?;
        }
        drop(programs);
        self.check()
    }

    fn check(&self) -> Result<(), QueueBenchError> {
        let mishaps = self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: mapped memory that the programs add to; one aligned load.
            unsafe { (&raw const bss.mishaps).read_volatile() }
        });
        match mishaps {
            0 => Ok(()),
            mishaps => Err(QueueBenchError::Mishaps(mishaps)),
        }
    }
}

fn load(variant: Variant, pages: u64) -> Result<PifoBenchSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its memory permanently: a few bytes per benchmark, freed with the
    // process.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = PifoBenchSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    // The verifier takes time for each program, so unused ones are not loaded.
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = [variant.fill(), variant.program()].map(|name| program.name() == name);
        program.set_autoload(wanted.contains(&true));
    }
    open.load()
}

impl std::fmt::Debug for QueueBench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueBench")
            .field("variant", &self.variant)
            .finish_non_exhaustive()
    }
}
