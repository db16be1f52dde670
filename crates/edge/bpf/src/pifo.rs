//! The kernel runtime of PIFOs: a pool in an arena, and operations without attaching.

use std::mem::MaybeUninit;

use fairpath_core::pifo::{Op, PifoConfig, PifoConfigError, Pool};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::arena;
use crate::replay::{Replay, ReplayError};
use crate::skel::pifo::{PifoSkel, PifoSkelBuilder};

/// A pool could not be loaded into the kernel, or not be run.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The kernel refused map or program.
    #[error(
        "load the PIFO programs: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Invalid pool.
    #[error(transparent)]
    PifoConfigError(#[from] PifoConfigError),
    /// The pool is too large (use fewer items or buckets), or a run failed.
    #[error("run operations on a pool in the kernel: {0}")]
    Replay(#[from] ReplayError),
}

/// A pool in the kernel.
pub struct KernelPool {
    pool: Pool,
    replay: Replay<Op>,
    skel: PifoSkel<'static>,
}

impl KernelPool {
    /// Loads the programs and formats the pool in their arena; PIFOs are numbered from 1.
    ///
    /// # Errors
    /// [`PoolError`] names the missing support.
    pub fn load(items: u32, pifos: &[PifoConfig]) -> Result<KernelPool, PoolError> {
        let bytes = Pool::bytes(items, pifos);
        let skel = load(Replay::<Op>::pages(bytes)?).map_err(PoolError::Refused)?;
        // SAFETY: the arena has these pages, and no program runs.
        let (replay, at) = unsafe { Replay::place(&skel.maps.arena, bytes) }?;
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which
        // lives while the pool, and the programs write to the header by the core's code only.
        let pool = unsafe { Pool::format(at, items, pifos) }?;
        Ok(KernelPool { pool, replay, skel })
    }

    /// Runs `ops` in the kernel one by one, and stores the result of each.
    ///
    /// # Errors
    /// [`PoolError::Replay`].
    pub fn run(&mut self, ops: &mut [Op]) -> Result<(), PoolError> {
        Ok(self.replay.run(ops, &self.skel.progs.pool_replay)?)
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
