//! The kernel runtime of limits: their memory in an arena, and requests without attaching.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use fairpath_core::limit::{LimitConfig, LimitError, LimitRequest, Limits};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::arena::{self, PAGE, START, STRIDE};
use crate::skel::limit::{LimitSkel, LimitSkelBuilder};

/// Requests of one run. The kernel limits the time of its loops (a quarter of a second), so a run may end early,
/// and the next one continues.
const REQUESTS: usize = 16_384;
/// Of `struct limit_run_input`.
const INPUT_BYTES: u64 = 64;

/// Limits could not be loaded into the kernel, or not be run.
#[derive(Debug, thiserror::Error)]
pub enum KernelLimitError {
    /// The kernel refused map or program.
    #[error(
        "load the programs of limits: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Larger than an arena.
    #[error("load limits: {bytes} bytes exceed the arena's 4 GiB: use fewer limits or CPUs")]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("load limits: the arena is not mapped: the kernel or libbpf is too old")]
    NotMapped,
    /// Invalid limits.
    #[error(transparent)]
    Config(#[from] LimitError),
    /// A run failed.
    #[error("run requests of limits in the kernel: {0}")]
    TestRun(#[source] libbpf_rs::Error),
    /// A run made no progress.
    #[error(
        "run requests of limits in the kernel: request {at} exceeded the kernel's limit for loops"
    )]
    Stuck {
        /// The request's number.
        at: usize,
    },
}

/// The input of a run (`struct limit_run_input`).
#[repr(C)]
struct RunInput {
    limits: u64,
    requests: u64,
    count: u32,
    done: u32,
}

/// Limits in the kernel.
pub struct KernelLimits {
    limits: Limits,
    input: NonNull<RunInput>,
    requests: NonNull<LimitRequest>,
    skel: LimitSkel<'static>,
}

impl KernelLimits {
    /// Loads the program, and formats limits in its arena.
    ///
    /// # Errors
    /// [`KernelLimitError`] names the missing support.
    pub fn load(cpus: u32, limits: &[LimitConfig]) -> Result<KernelLimits, KernelLimitError> {
        let limit_bytes = Limits::bytes(cpus, limits.len())? as u64;
        let bytes =
            START + INPUT_BYTES + limit_bytes + (REQUESTS * size_of::<LimitRequest>()) as u64;
        let pages = bytes.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(KernelLimitError::TooLarge { bytes });
        }
        let skel = load(pages).map_err(KernelLimitError::Refused)?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(KernelLimitError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
        unsafe { arena::touch(start, pages) };
        // SAFETY: inside that mapping.
        let input = unsafe { start.add(START as usize) };
        // SAFETY: as above.
        let at = unsafe { input.add(INPUT_BYTES as usize) };
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which lives while the limits, and
        // the program writes to them by the core's code only.
        let limits = unsafe { Limits::format(at, cpus, limits) }?;
        // SAFETY: inside the mapping: the requests follow the limits.
        let requests = unsafe { at.add(limit_bytes as usize) };
        let (input, requests) = (input.cast::<RunInput>(), requests.cast::<LimitRequest>());
        let first = RunInput {
            limits: INPUT_BYTES,
            requests: INPUT_BYTES + limit_bytes,
            count: 0,
            done: 0,
        };
        // SAFETY: inside the mapping, aligned to a page.
        unsafe { input.write(first) };
        Ok(KernelLimits {
            limits,
            input,
            requests,
            skel,
        })
    }

    /// Makes the requests in the kernel one by one, and stores the answer of each.
    ///
    /// # Errors
    /// [`KernelLimitError::TestRun`], [`KernelLimitError::Stuck`].
    pub fn run(&mut self, requests: &mut [LimitRequest]) -> Result<(), KernelLimitError> {
        let mut at = 0;
        while at < requests.len() {
            let end = requests.len().min(at + REQUESTS);
            let done = self.run_part(&mut requests[at..end])?;
            if done == 0 {
                return Err(KernelLimitError::Stuck { at });
            }
            at += done;
        }
        Ok(())
    }

    /// Makes at most [`REQUESTS`] requests, and returns how many were made.
    fn run_part(&mut self, requests: &mut [LimitRequest]) -> Result<usize, KernelLimitError> {
        let (from, to) = (requests.as_ptr(), self.requests.as_ptr());
        // SAFETY: load() reserved memory for REQUESTS requests.
        unsafe { std::ptr::copy_nonoverlapping(from, to, requests.len()) };
        // SAFETY: the input is mapped, and no program runs.
        let mut input = unsafe { self.input.read_volatile() };
        (input.count, input.done) = (requests.len() as u32, 0);
        // SAFETY: as above.
        unsafe { self.input.write_volatile(input) };
        let run = &self.skel.progs.limit_run;
        let run = run.test_run(ProgramInput::default());
        run.map_err(KernelLimitError::TestRun)?;
        // SAFETY: as above.
        let done = unsafe { self.input.read_volatile() }.done as usize;
        let done = done.min(requests.len());
        // SAFETY: memory of REQUESTS requests, of which `done` were made.
        unsafe {
            std::ptr::copy_nonoverlapping(self.requests.as_ptr(), requests.as_mut_ptr(), done)
        };
        Ok(done)
    }

    /// The limits, for user space while nothing runs.
    pub fn limits(&mut self) -> &mut Limits {
        &mut self.limits
    }
}

fn load(pages: u64) -> Result<LimitSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its memory permanently: a few bytes per load, freed with the process.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = LimitSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    open.load()
}

impl std::fmt::Debug for KernelLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelLimits")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
