//! The kernel runtime of limits: their memory in an arena, and requests without attaching.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Barrier;
use std::time::Instant;

use fairpath_core::limit::{LimitConfig, LimitError, LimitRequest, Limits};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::arena;
use crate::replay::{Replay, ReplayError};
use crate::skel::limit::{LimitSkel, LimitSkelBuilder};

/// Limits could not be loaded into the kernel, or not be run.
#[derive(Debug, thiserror::Error)]
pub enum KernelLimitError {
    /// The kernel refused map or program.
    #[error(
        "load the programs of limits: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Invalid limits.
    #[error(transparent)]
    Config(#[from] LimitError),
    /// Too many limits or CPUs, or a run failed.
    #[error("run requests of limits in the kernel: {0}")]
    Replay(#[from] ReplayError),
}

/// The operation that [`KernelLimits::spin`] repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSpin {
    /// Nothing: the cost of the loop.
    Empty,
    /// A decision from a pool.
    Pool,
    /// A token bucket with a spin lock.
    Lock,
}

impl LimitSpin {
    /// All, the empty one first.
    pub const ALL: [LimitSpin; 3] = [LimitSpin::Empty, LimitSpin::Pool, LimitSpin::Lock];
}

/// `struct spin_context`.
#[repr(C)]
struct SpinContext {
    cpu: u32,
    count: u32,
    bytes: u32,
    pad: u32,
    now: u64,
}

/// Requests between those of two CPUs: `SPIN_APART`.
const SPIN_APART: usize = 8;

/// Runs a program once with a context.
fn run_with(program: BorrowedFd<'_>, context: &SpinContext) -> std::io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: (&raw const *context).cast(),
        ctx_size_in: size_of::<SpinContext>() as u32,
        ..libbpf_sys::bpf_test_run_opts::default()
    };
    // SAFETY: a valid program, and options that live during the call.
    let failed =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) } != 0;
    match failed {
        true => Err(std::io::Error::last_os_error()),
        false => Ok(()),
    }
}

/// Limits in the kernel.
pub struct KernelLimits {
    limits: Limits,
    replay: Replay<LimitRequest>,
    skel: LimitSkel<'static>,
}

impl KernelLimits {
    /// Loads the program, and formats limits in its arena.
    ///
    /// # Errors
    /// [`KernelLimitError`] names the missing support.
    pub fn load(cpus: u32, limits: &[LimitConfig]) -> Result<KernelLimits, KernelLimitError> {
        let bytes = Limits::bytes(cpus, limits.len())? as u64;
        let pages = Replay::<LimitRequest>::pages(bytes)?;
        let skel = load(pages).map_err(KernelLimitError::Refused)?;
        // SAFETY: the arena has these pages, and no program runs.
        let (replay, at) = unsafe { Replay::place(&skel.maps.arena, bytes) }?;
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which lives while the limits, and
        // the program writes to them by the core's code only.
        let limits = unsafe { Limits::format(at, cpus, limits) }?;
        Ok(KernelLimits {
            limits,
            replay,
            skel,
        })
    }

    /// Makes the requests in the kernel one by one, and stores the answer of each.
    ///
    /// # Errors
    /// [`KernelLimitError::Replay`].
    pub fn run(&mut self, requests: &mut [LimitRequest]) -> Result<(), KernelLimitError> {
        Ok(self.replay.run(requests, &self.skel.progs.limit_run)?)
    }

    /// Charges `bytes` to the first limit `count` times, for benches.
    ///
    /// # Errors
    /// [`KernelLimitError::Replay`].
    pub fn spin(
        &mut self,
        spin: LimitSpin,
        count: u32,
        bytes: u32,
        now: u64,
    ) -> Result<(), KernelLimitError> {
        let progs = &self.skel.progs;
        let program = match spin {
            LimitSpin::Empty => &progs.limit_spin_empty,
            LimitSpin::Pool => &progs.limit_spin_pool,
            LimitSpin::Lock => &progs.limit_spin_lock,
        };
        let request = LimitRequest {
            bytes,
            now,
            ..LimitRequest::default()
        };
        Ok(self.replay.repeat(request, count, program)?)
    }

    /// Charges `bytes` to the first limit `count` times on each of the first CPUs, all at once on one thread each.
    /// Returns the seconds of the slowest.
    ///
    /// # Errors
    /// [`KernelLimitError::Replay`]. A run takes at most a quarter of a second.
    ///
    /// # Panics
    /// There are fewer CPUs.
    pub fn spin_at_once(
        &mut self,
        cpus: u32,
        count: u32,
        bytes: u32,
        now: u64,
    ) -> Result<f64, KernelLimitError> {
        assert!(cpus <= self.limits.cpus(), "{cpus} CPUs");
        let program = self.skel.progs.limit_spin_cpu.as_fd();
        let barrier = Barrier::new(cpus as usize);
        let run = |cpu: u32| {
            let context = SpinContext {
                cpu,
                count,
                bytes,
                pad: 0,
                now,
            };
            barrier.wait();
            let begin = Instant::now();
            run_with(program, &context).map(|()| begin.elapsed().as_secs_f64())
        };
        let run = &run;
        let seconds: Vec<std::io::Result<f64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || run(cpu))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut longest = 0.0f64;
        for (cpu, seconds) in (0..).zip(seconds) {
            longest = longest.max(seconds.map_err(ReplayError::Run)?);
            let answer = |op: &mut LimitRequest| std::mem::take(&mut op.answer);
            let done = self.replay.with_op(cpu * SPIN_APART, answer);
            if done < u64::from(count) {
                return Err(ReplayError::Stuck { at: done as usize }.into());
            }
        }
        Ok(longest)
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
