//! The kernel runtime of rules: an image in an arena, and packets without attaching.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use fairpath_core::rules::{CounterMode, ImageError, Memory, Work};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::arena::{self, PAGE, START, STRIDE};
use crate::skel::rules::{RulesSkel, RulesSkelBuilder};

/// Packets of one run.
pub const RUN_PACKETS: usize = 64;
/// Packets of a stream, and bytes of each.
pub const STREAM_PACKETS: usize = 1 << 15;
/// Bytes of a packet in a stream.
pub const STREAM_BYTES: usize = 64;
/// Of `struct rules_run_input`.
const INPUT_BYTES: usize = 64;

/// Rules could not be loaded into the kernel, or not be run.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The kernel refused map or program.
    #[error(
        "load the program of rules: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Larger than an arena.
    #[error("load the program of rules: {bytes} bytes exceed the arena's 4 GiB; use fewer rules")]
    TooLarge {
        /// Requested.
        bytes: u64,
    },
    /// The arena's mapping is missing.
    #[error("load the program of rules: the arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// Corrupt image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A run failed.
    #[error("evaluate packets in the kernel: {0}")]
    TestRun(#[source] libbpf_rs::Error),
    /// A run ended before its last packet.
    #[error("evaluate packets in the kernel: the kernel's limit for loops ended at packet {at}")]
    Stuck {
        /// Packets that were evaluated.
        at: usize,
    },
}

/// The input of a run (`struct rules_run_input`).
#[derive(Clone, Copy)]
#[repr(C)]
struct RunInput {
    rules: u64,
    works: u64,
    count: u32,
    done: u32,
    hook: u32,
    repeat: u32,
    turn: u32,
    pad: u32,
    heads: u64,
    zero: u64,
}

/// Rules in the kernel.
pub struct KernelRules {
    memory: Memory,
    input: NonNull<RunInput>,
    works: NonNull<Work>,
    skel: RulesSkel<'static>,
}

impl KernelRules {
    /// Loads the program, and writes the image to its arena.
    ///
    /// # Errors
    /// [`RulesError`] names the missing support, or the corrupt image.
    pub fn load(
        image: &[u8],
        states: &[u64],
        mode: CounterMode,
    ) -> Result<KernelRules, RulesError> {
        let rules_bytes = Memory::bytes(image)?.next_multiple_of(64);
        let heads =
            INPUT_BYTES + rules_bytes + (RUN_PACKETS * size_of::<Work>()).next_multiple_of(64);
        let bytes = START as usize + heads + STREAM_PACKETS * STREAM_BYTES;
        let pages = (bytes as u64).div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(RulesError::TooLarge {
                bytes: bytes as u64,
            });
        }
        let skel = load(pages).map_err(RulesError::Refused)?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(RulesError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
        unsafe { arena::touch(start, pages) };
        // SAFETY: inside that mapping.
        let input = unsafe { start.add(START as usize) };
        // SAFETY: as above.
        let at = unsafe { input.add(INPUT_BYTES) };
        // SAFETY: fresh arena pages are zero, the mapping lives while the skeleton, which lives
        // while the memory, and the programs write to it by the core's code only.
        let memory = unsafe { Memory::format(at, image, states, mode) }?;
        // SAFETY: inside the mapping: the packets follow.
        let works = unsafe { at.add(rules_bytes) }.cast();
        let input = input.cast::<RunInput>();
        let first = RunInput {
            rules: INPUT_BYTES as u64,
            works: (INPUT_BYTES + rules_bytes) as u64,
            count: 0,
            done: 0,
            hook: 0,
            repeat: 1,
            turn: 0,
            pad: 0,
            heads: heads as u64,
            zero: 0,
        };
        // SAFETY: inside the mapping, aligned to a page.
        unsafe { input.write(first) };
        Ok(KernelRules {
            memory,
            input,
            works,
            skel,
        })
    }

    /// Evaluates packets at a hook, each `repeat` times. A packet that rules do not see has verdict 0
    /// afterwards.
    ///
    /// # Panics
    /// More than [`RUN_PACKETS`].
    ///
    /// # Errors
    /// [`RulesError::TestRun`], [`RulesError::Stuck`].
    pub fn run(&mut self, hook: u32, repeat: u32, works: &mut [Work]) -> Result<(), RulesError> {
        assert!(
            works.len() <= RUN_PACKETS,
            "a run has {RUN_PACKETS} packets"
        );
        // SAFETY: load() reserved memory for RUN_PACKETS packets.
        unsafe {
            std::ptr::copy_nonoverlapping(works.as_ptr(), self.works.as_ptr(), works.len());
        }
        // SAFETY: the input is mapped, and no program runs.
        let mut input = unsafe { self.input.read_volatile() };
        (input.count, input.done) = (works.len() as u32, 0);
        (input.hook, input.repeat) = (hook, repeat);
        // SAFETY: as above.
        unsafe { self.input.write_volatile(input) };
        let run = self.skel.progs.rules_run.test_run(ProgramInput::default());
        run.map_err(RulesError::TestRun)?;
        // SAFETY: as above.
        let done = unsafe { self.input.read_volatile() }.done as usize;
        if done != works.len() {
            return Err(RulesError::Stuck { at: done });
        }
        // SAFETY: memory for these packets.
        unsafe {
            std::ptr::copy_nonoverlapping(self.works.as_ptr(), works.as_mut_ptr(), works.len());
        }
        Ok(())
    }

    /// Evaluates packets of at most [`STREAM_BYTES`] with one scratch, whose facts are those of
    /// `work`, and all of `length` bytes. For benches: nothing is returned.
    ///
    /// # Panics
    /// More than [`STREAM_PACKETS`].
    ///
    /// # Errors
    /// [`RulesError::TestRun`], [`RulesError::Stuck`].
    pub fn stream(
        &mut self,
        hook: u32,
        work: &Work,
        length: u32,
        packets: &[[u8; STREAM_BYTES]],
    ) -> Result<(), RulesError> {
        assert!(
            packets.len() <= STREAM_PACKETS,
            "a stream has {STREAM_PACKETS} packets"
        );
        // SAFETY: the input is mapped, and no program runs.
        let mut input = unsafe { self.input.read_volatile() };
        (input.count, input.done) = (packets.len() as u32, 0);
        (input.hook, input.repeat) = (hook, length);
        input.turn = work.word[fairpath_core::rules::word::META] as u32;
        // SAFETY: as above.
        unsafe { self.input.write_volatile(input) };
        // SAFETY: load() reserved memory for the first packet.
        unsafe { std::ptr::copy_nonoverlapping(work, self.works.as_ptr(), 1) };
        // SAFETY: the packets of a stream begin there.
        let heads = unsafe { self.input.cast::<u8>().add(input.heads as usize) };
        // SAFETY: load() reserved memory for STREAM_PACKETS packets.
        unsafe {
            std::ptr::copy_nonoverlapping(packets.as_ptr(), heads.as_ptr().cast(), packets.len());
        }
        let run = self
            .skel
            .progs
            .rules_stream
            .test_run(ProgramInput::default());
        run.map_err(RulesError::TestRun)?;
        // SAFETY: as above.
        let done = unsafe { self.input.read_volatile() }.done as usize;
        if done != packets.len() {
            return Err(RulesError::Stuck { at: done });
        }
        Ok(())
    }

    /// Counters, while nothing runs.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The same, to change them.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

fn load(pages: u64) -> Result<RulesSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its memory permanently: a few bytes per load, freed with the process.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = RulesSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(arena::next_address())?;
    open.load()
}

impl std::fmt::Debug for KernelRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelRules").finish_non_exhaustive()
    }
}
