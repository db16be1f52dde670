//! Writes a log as the operations happen; a block at a time, in memory until then.

use std::io::Write;

use fairpath_core::sched::{Op, Outcome};

use super::code::{self, Encoder};
use super::plan::Run;
use super::{BLOCK_OPS, END, FULL_BLOCK_BYTES, LogError, MAGIC, OPS, RUN, VERSION};

/// Records runs into any [`Write`]; a file wants a `BufWriter` no more than 1 MB blocks need one.
///
/// A log that was not [finished](Writer::finish) is recognised as cut by its readers.
pub struct Writer<W: Write> {
    to: W,
    encoder: Encoder,
    /// Operations of the block, encoded.
    block: Vec<u8>,
    block_ops: usize,
    outcomes: bool,
    now: u64,
    runs: u64,
    ops: u64,
    run_ops: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the head of the file.
    ///
    /// # Errors
    /// The file system said no.
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

    /// A fresh scheduler: what is recorded from here on are its operations.
    ///
    /// # Errors
    /// The file system said no.
    pub fn begin(&mut self, run: &Run) -> Result<(), LogError> {
        self.flush()?;
        (self.outcomes, self.now, self.run_ops) = (run.outcomes, 0, 0);
        self.runs += 1;
        put_block(&mut self.to, RUN, &run.encode())
    }

    /// Records operations and, if the run has them, their outcomes, as [`Home::run`] gave them:
    /// `Outcome::op` is an index into `ops`.
    ///
    /// [`Home::run`]: fairpath_core::sched::Home::run
    ///
    /// # Errors
    /// Nothing was [begun](Writer::begin), a time goes back, or the file system said no.
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
            return refuse("its time lies before that of the one before");
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

    /// Writes what is left and the end.
    ///
    /// # Errors
    /// The file system said no.
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
        source: std::io::Error::other("a run's description has more than 4 GiB"),
    })?;
    put(to, &kind.to_le_bytes())?;
    put(to, &length.to_le_bytes())?;
    put(to, &checksum(kind, length, payload).to_le_bytes())?;
    put(to, payload)
}

/// CRC-32 of a block, its head included: a flipped bit anywhere is found.
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
