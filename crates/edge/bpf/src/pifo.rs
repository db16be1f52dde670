//! The kernel runtime of PIFOs: a pool in an arena, and operations without attaching.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use fairpath_core::pifo::{Op, PifoConfig, PifoConfigError, Pool};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::arena::{self, PAGE, START, STRIDE};
use crate::skel::pifo::{PifoSkel, PifoSkelBuilder};

/// Operations of one run. The kernel limits the time of its loops (a quarter of a second), so a run
/// may end early, and the next one continues.
const OPS: usize = 16_384;
/// Of `struct pool_run_input`.
const INPUT_BYTES: u64 = 64;

/// A pool could not be loaded into the kernel, or not be run.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The kernel refused map or program.
    #[error(
        "load the PIFO programs: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Larger than an arena.
    #[error(
        "load the PIFO programs: a pool of {bytes} bytes exceeds the arena's 4 GiB; use fewer items or buckets"
    )]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("load the PIFO programs: the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// Invalid pool.
    #[error(transparent)]
    PifoConfigError(#[from] PifoConfigError),
    /// A run failed.
    #[error("run operations on a pool in the kernel: {0}")]
    TestRun(#[source] libbpf_rs::Error),
    /// A run made no progress.
    #[error(
        "run operations on a pool in the kernel: operation {at} exceeded the kernel's limit for loops"
    )]
    Stuck {
        /// The operation's number.
        at: usize,
    },
}

/// The input of a run (`struct pool_run_input`).
#[repr(C)]
struct RunInput {
    pool: u64,
    ops: u64,
    count: u32,
    done: u32,
}

/// A pool in the kernel.
pub struct KernelPool {
    pool: Pool,
    input: NonNull<RunInput>,
    ops: NonNull<Op>,
    skel: PifoSkel<'static>,
}

impl KernelPool {
    /// Loads the programs and formats the pool in their arena; PIFOs are numbered from 1.
    ///
    /// # Errors
    /// [`PoolError`] names the missing support.
    pub fn load(items: u32, pifos: &[PifoConfig]) -> Result<KernelPool, PoolError> {
        let pool_bytes = Pool::bytes(items, pifos);
        let bytes = START + INPUT_BYTES + pool_bytes + (OPS * size_of::<Op>()) as u64;
        let pages = bytes.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(PoolError::TooLarge { bytes });
        }
        let skel = load(pages).map_err(PoolError::Refused)?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(PoolError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
        unsafe { arena::touch(start, pages) };
        // SAFETY: inside that mapping.
        let input = unsafe { start.add(START as usize) };
        // SAFETY: as above.
        let at = unsafe { input.add(INPUT_BYTES as usize) };
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which
        // lives while the pool, and the programs write to the header by the core's code only.
        let pool = unsafe { Pool::format(at, items, pifos) }?;
        // SAFETY: inside the mapping: OPS operations follow the pool.
        let ops = unsafe { at.add(pool_bytes as usize) };
        let (input, ops) = (input.cast::<RunInput>(), ops.cast::<Op>());
        let first = RunInput {
            pool: INPUT_BYTES,
            ops: INPUT_BYTES + pool_bytes,
            count: 0,
            done: 0,
        };
        // SAFETY: inside the mapping, aligned to a page.
        unsafe { input.write(first) };
        Ok(KernelPool {
            pool,
            input,
            ops,
            skel,
        })
    }

    /// Runs `ops` in the kernel one by one, and stores the result of each.
    ///
    /// # Errors
    /// [`PoolError::TestRun`], [`PoolError::Stuck`].
    pub fn run(&mut self, ops: &mut [Op]) -> Result<(), PoolError> {
        let mut at = 0;
        while at < ops.len() {
            let end = ops.len().min(at + OPS);
            let done = self.run_part(&mut ops[at..end])?;
            if done == 0 {
                return Err(PoolError::Stuck { at });
            }
            at += done;
        }
        Ok(())
    }

    /// Runs at most [`OPS`] operations, and returns how many were done.
    fn run_part(&mut self, ops: &mut [Op]) -> Result<usize, PoolError> {
        // SAFETY: load() reserved memory for OPS operations.
        unsafe { std::ptr::copy_nonoverlapping(ops.as_ptr(), self.ops.as_ptr(), ops.len()) };
        // SAFETY: the scratch is mapped, and no program runs.
        let mut input = unsafe { self.input.read_volatile() };
        (input.count, input.done) = (ops.len() as u32, 0);
        // SAFETY: as above.
        unsafe { self.input.write_volatile(input) };
        let replay = &self.skel.progs.pool_replay;
        let run = replay.test_run(ProgramInput::default());
        run.map_err(PoolError::TestRun)?;
        // SAFETY: as above.
        let done = unsafe { self.input.read_volatile() }.done as usize;
        let done = done.min(ops.len());
        // SAFETY: memory for OPS operations, of which `done` were written to.
        unsafe { std::ptr::copy_nonoverlapping(self.ops.as_ptr(), ops.as_mut_ptr(), done) };
        Ok(done)
    }

    /// The pool, for user space while nothing runs: counts, items, audit, corruption.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

fn load(pages: u64) -> Result<PifoSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its memory permanently: a few bytes per pool, freed with the process.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = PifoSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    open.load()
}

impl std::fmt::Debug for KernelPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelPool")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
