//! Writes a log while the operations run. A block stays in memory until it is full.

use std::io::Write;

use fairpath_core::sched::{Op, Outcome};

use super::code::{self, Encoder};
use super::plan::Run;
use super::{BLOCK_OPS, END, FULL_BLOCK_BYTES, LogError, MAGIC, OPS, RUN, VERSION};

/// Records runs into any [`Write`]. Blocks are large enough that a file needs no `BufWriter`.
///
/// Readers report a log without [`Writer::finish`] as incomplete.
pub struct Writer<W: Write> {
    to: W,
    encoder: Encoder,
    /// The encoded operations of the block.
    block: Vec<u8>,
    block_ops: usize,
    outcomes: bool,
    now: u64,
    runs: u64,
    ops: u64,
    run_ops: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(mut to: W) -> Result<Writer<W>, LogError> {
        put(&mut to, &MAGIC)?;
        put(&mut to, &VERSION.to_le_bytes())?;
        Ok(Writer {
            to,
            encoder: Encoder::default(),
            block: Vec::new(),
            block_ops: 0,
            outcomes: false,
            now: 0,
            runs: 0,
            ops: 0,
            run_ops: 0,
        })
    }

    /// Begins a new scheduler. Later operations belong to it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&mut self, run: &Run) -> Result<(), LogError> {
        self.flush()?;
        (self.outcomes, self.now, self.run_ops) = (run.outcomes, 0, 0);
        self.runs += 1;
        put_block(&mut self.to, RUN, &run.encode())
    }

    /// Records operations, and their outcomes if the run has them. `Outcome::op` is an index into
    /// `ops`, as [`SchedRuntime::run`] returns it.
    ///
    /// [`SchedRuntime::run`]: fairpath_core::sched::SchedRuntime::run
    ///
    /// # Errors
    /// No run was [begun](Writer::begin), the time decreases, or the file cannot be written.
    pub fn record(&mut self, ops: &[Op], outcomes: &[Outcome]) -> Result<(), LogError> {
        let mut outcomes = outcomes;
        for (index, op) in ops.iter().enumerate() {
            let of_this = |outcome: &Outcome| outcome.op as usize == index;
            let count = outcomes
                .iter()
                .take_while(|outcome| of_this(outcome))
                .count();
            let (these, rest) = outcomes.split_at(count);
            outcomes = rest;
            self.record_one(op, these)?;
        }
        Ok(())
    }

    fn record_one(&mut self, op: &Op, outcomes: &[Outcome]) -> Result<(), LogError> {
        let refuse = |cause| {
            Err(LogError::Record {
                index: self.run_ops,
                cause,
            })
        };
        if self.runs == 0 {
            return refuse("no run has begun");
        }
        if op.now < self.now {
            return refuse("its time is before that of the previous operation");
        }
        self.encoder.op(&mut self.block, op);
        if self.outcomes {
            code::number(&mut self.block, outcomes.len() as u64);
            for outcome in outcomes {
                code::outcome(&mut self.block, outcome);
            }
        }
        self.now = op.now;
        self.run_ops += 1;
        self.ops += 1;
        self.block_ops += 1;
        if self.block_ops == BLOCK_OPS || self.block.len() >= FULL_BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the remaining block and the end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<W, LogError> {
        self.flush()?;
        let mut end = Vec::new();
        code::number(&mut end, self.runs);
        code::number(&mut end, self.ops);
        put_block(&mut self.to, END, &end)?;
        let flushed = self.to.flush();
        flushed.map_err(|source| LogError::Io {
            what: "write",
            source,
        })?;
        Ok(self.to)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.block_ops > 0 {
            put_block(&mut self.to, OPS, &self.block)?;
        }
        self.block.clear();
        self.block_ops = 0;
        self.encoder = Encoder::default();
        Ok(())
    }
}

fn put_block(to: &mut impl Write, kind: u32, payload: &[u8]) -> Result<(), LogError> {
    let length = u32::try_from(payload.len()).map_err(|_| LogError::Io {
        what: "write",
        source: std::io::Error::other("the description of a run exceeds 4 GiB"),
    })?;
    put(to, &kind.to_le_bytes())?;
    put(to, &length.to_le_bytes())?;
    put(to, &checksum(kind, length, payload).to_le_bytes())?;
    put(to, payload)
}

/// The CRC-32 of a block with its header. It detects any inverted bit.
pub(super) fn checksum(kind: u32, length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn put(to: &mut impl Write, bytes: &[u8]) -> Result<(), LogError> {
    let written = to.write_all(bytes);
    written.map_err(|source| LogError::Io {
        what: "write",
        source,
    })
}
