//! An object in an arena, and operations on it that a program runs one by one, without attaching.
//!
//! ```text
//!   page of libbpf | input | object (a pool, limits) | operations
//! ```

use std::ptr::NonNull;

use libbpf_rs::{Map, ProgramInput, ProgramMut};

use crate::arena::{self, PAGE, START, STRIDE};

/// Operations of one run. The kernel limits the time of its loops (a quarter of a second), so a run
/// may end early, and the next one continues.
const OPS: usize = 16_384;
/// Of the input, which has a cache line.
const INPUT_BYTES: u64 = 64;

/// The input of a run (`struct pool_run_input`, `struct limit_run_input`).
#[repr(C)]
struct RunInput {
    object: u64,
    ops: u64,
    count: u32,
    done: u32,
}

/// Operations of the type `O` on an object.
pub(crate) struct Replay<O> {
    input: NonNull<RunInput>,
    ops: NonNull<O>,
}

/// Operations could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The object is larger than an arena.
    #[error("{bytes} bytes exceed the arena's 4 GiB")]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// A run failed.
    #[error("the kernel refused to run them: {0}")]
    TestRun(#[source] libbpf_rs::Error),
    /// A run with a context failed.
    #[error("the kernel refused to run them: {0}")]
    Run(#[source] std::io::Error),
    /// A run made no progress.
    #[error("operation {at} exceeded the kernel's limit for loops")]
    Stuck {
        /// The operation's number.
        at: usize,
    },
}

impl<O: Copy> Replay<O> {
    /// Pages of an arena with an object of `bytes`.
    pub fn pages(bytes: u64) -> Result<u64, ReplayError> {
        let bytes = START + INPUT_BYTES + bytes + (OPS * size_of::<O>()) as u64;
        let pages = bytes.div_ceil(PAGE);
        match pages * PAGE > STRIDE {
            true => Err(ReplayError::TooLarge { bytes }),
            false => Ok(pages),
        }
    }

    /// Places the input and the operations around an object of `bytes`, whose place is returned with zeros.
    ///
    /// # Safety
    /// The arena was loaded with [`Replay::pages`] of `bytes`. No program runs.
    pub unsafe fn place(
        arena: &Map<'_>,
        bytes: u64,
    ) -> Result<(Replay<O>, NonNull<u8>), ReplayError> {
        let start = arena::mapped_at(arena).ok_or(ReplayError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, with these pages; no program runs.
        unsafe { arena::touch(start, Replay::<O>::pages(bytes)?) };
        // SAFETY: inside that mapping.
        let input = unsafe { start.add(START as usize) };
        // SAFETY: as above.
        let object = unsafe { input.add(INPUT_BYTES as usize) };
        // SAFETY: as above: the operations follow the object.
        let ops = unsafe { object.add(bytes as usize) }.cast::<O>();
        let input = input.cast::<RunInput>();
        let first = RunInput {
            object: INPUT_BYTES,
            ops: INPUT_BYTES + bytes,
            count: 0,
            done: 0,
        };
        // SAFETY: inside the mapping, aligned to a page.
        unsafe { input.write(first) };
        Ok((Replay { input, ops }, object))
    }

    /// Runs `ops` one by one by `program`, and stores the result of each.
    pub fn run(&mut self, ops: &mut [O], program: &ProgramMut<'_>) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < ops.len() {
            let end = ops.len().min(at + OPS);
            let done = self.run_part(&mut ops[at..end], program)?;
            if done == 0 {
                return Err(ReplayError::Stuck { at });
            }
            at += done;
        }
        Ok(())
    }

    /// Runs `program` until it has repeated `op` `count` times.
    pub fn repeat(
        &mut self,
        op: O,
        count: u32,
        program: &ProgramMut<'_>,
    ) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < count {
            // SAFETY: place() reserved memory for operations, and no program runs.
            unsafe { self.ops.write_volatile(op) };
            let done = self.start(count - at, program)?;
            if done == 0 {
                return Err(ReplayError::Stuck { at: at as usize });
            }
            at += done;
        }
        Ok(())
    }

    /// Reads or changes an operation while no program runs.
    ///
    /// # Panics
    /// There is no space for it.
    pub fn with_op<T>(&mut self, at: usize, f: impl FnOnce(&mut O) -> T) -> T {
        assert!(at < OPS, "operation {at}");
        // SAFETY: place() reserved memory for OPS operations.
        let mut op = unsafe { self.ops.add(at) };
        // SAFETY: as above; no program runs.
        f(unsafe { op.as_mut() })
    }

    /// Runs at most [`OPS`] operations, and returns how many were done.
    fn run_part(&mut self, ops: &mut [O], program: &ProgramMut<'_>) -> Result<usize, ReplayError> {
        // SAFETY: place() reserved memory for OPS operations.
        unsafe { std::ptr::copy_nonoverlapping(ops.as_ptr(), self.ops.as_ptr(), ops.len()) };
        let done = self.start(ops.len() as u32, program)? as usize;
        // SAFETY: memory for OPS operations, of which `done` were written to.
        unsafe { std::ptr::copy_nonoverlapping(self.ops.as_ptr(), ops.as_mut_ptr(), done) };
        Ok(done)
    }

    /// Starts `program` once for `count` operations, and returns how many were done.
    fn start(&mut self, count: u32, program: &ProgramMut<'_>) -> Result<u32, ReplayError> {
        // SAFETY: the input is mapped, and no program runs.
        let mut input = unsafe { self.input.read_volatile() };
        (input.count, input.done) = (count, 0);
        // SAFETY: as above.
        unsafe { self.input.write_volatile(input) };
        let run = program.test_run(ProgramInput::default());
        run.map_err(ReplayError::TestRun)?;
        // SAFETY: as above.
        let done = unsafe { self.input.read_volatile() }.done;
        Ok(done.min(count))
    }
}
