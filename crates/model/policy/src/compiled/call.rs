//! A call of machine code: the memory that it may access, and the reason of its end.

use std::sync::Arc;

use fairpath_core::sched::{Function, Meta};

use super::{BUDGET, Code, FRAME_WORDS, READ, TOO_DEEP, WRITE};
use crate::machine::{DEPTH, Stop, Violation, outside};
use crate::regions;

/// One call, as the code reads it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Run {
    /// Regions by number.
    pub base: [*mut u8; 8],
    /// Bytes that may be read, and that may be written.
    pub bytes: [u64; 8],
    pub writable: [u64; 8],
    pub frames: [[u64; FRAME_WORDS]; DEPTH],
    /// 0: it returned.
    pub kind: u64,
    pub at: u64,
    pub address: u64,
    pub size: u64,
}

/// The regions of a call.
pub(crate) struct Memory<'a> {
    pub packet: &'a Meta,
    pub flow: &'a mut [u64; 8],
    pub class: &'a mut [u64; 16],
    pub global: &'a mut [u64; 8],
    pub call: &'a mut [u64; 16],
    pub stack: &'a mut [u64],
    pub rom: &'a mut [u64],
}

/// Machine code that is called by one machine.
pub(crate) struct Runner {
    code: Arc<Code>,
    run: Box<Run>,
    /// Words of stack and constants.
    stack_and_rom: [usize; 2],
}

// SAFETY: the pointers of `run` are set for each call, and not used after it.
unsafe impl Send for Runner {}

impl Runner {
    pub fn new(code: Arc<Code>) -> Runner {
        let bytes = code.bytes.map(u64::from);
        let mut writable = bytes;
        (writable[regions::PACKET], writable[regions::ROM]) = (0, 0);
        let run = Run {
            base: [std::ptr::null_mut(); 8],
            bytes,
            writable,
            frames: [[0; FRAME_WORDS]; DEPTH],
            kind: 0,
            at: 0,
            address: 0,
            size: 0,
        };
        let words = |region: usize| code.bytes[region] as usize / 8;
        Runner {
            stack_and_rom: [words(regions::STACK), words(regions::ROM)],
            code,
            run: Box::new(run),
        }
    }

    /// True if the code writes to `call` only what goes back.
    pub fn writes_answers_only(&self) -> bool {
        self.code.writes_answers_only
    }

    /// Runs a function of the policy.
    ///
    /// # Errors
    /// The instruction that stopped it, and the reason.
    ///
    /// # Panics
    /// Stack or constants are not those of the program.
    #[inline]
    pub fn call(&mut self, function: Function, memory: Memory<'_>) -> Result<u64, Stop> {
        let run = &mut *self.run;
        assert!(self.stack_and_rom == [memory.stack.len(), memory.rom.len()]);
        run.base = [
            std::ptr::null_mut(),
            std::ptr::from_ref(memory.packet).cast_mut().cast(),
            memory.flow.as_mut_ptr().cast(),
            memory.class.as_mut_ptr().cast(),
            memory.global.as_mut_ptr().cast(),
            memory.call.as_mut_ptr().cast(),
            memory.stack.as_mut_ptr().cast(),
            memory.rom.as_mut_ptr().cast(),
        ];
        run.kind = 0;
        let run: *mut Run = run;
        // SAFETY: the code accesses `run` and its regions only, whose bytes are at most those of the types here and
        // those compared above; it was translated from checked instructions (`Code::new`).
        let value = unsafe { self.code.memory.call(run.cast(), function as u64) };
        match self.run.kind {
            0 => Ok(value),
            _ => Err(self.stop()),
        }
    }

    #[cold]
    fn stop(&self) -> Stop {
        let (run, bytes) = (&*self.run, &self.code.bytes);
        let (at, size) = (run.at as usize, run.size as u32);
        match run.kind {
            BUDGET => (at, Violation::Budget),
            TOO_DEEP => (at, Violation::Depth),
            READ => outside(bytes, at, run.address, size, false),
            WRITE => outside(bytes, at, run.address, size, true),
            _ => (at, Violation::End),
        }
    }
}
