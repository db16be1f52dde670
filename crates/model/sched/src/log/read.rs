//! Reads a log block by block and validates all of it.

use std::io::Read;

use fairpath_core::sched::{OUTCOMES_PER_OP, Op, Outcome};

use super::code::{self, Bad, Bytes, Decoder};
use super::plan::Run;
use super::write::checksum;
use super::{BLOCK_OPS, END, LogError, MAGIC, MAX_OPS_BYTES, MAX_RUN_BYTES, OPS, RUN, VERSION};

/// Consecutive operations of a run and their outcomes, in the form of the arguments of
/// [`SchedRuntime::run`](fairpath_core::sched::SchedRuntime::run).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// At most [`BLOCK_OPS`].
    pub ops: Vec<Op>,
    /// The outcomes, whose `op` is an index into `ops`. Empty if the run has none.
    pub outcomes: Vec<Outcome>,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A new scheduler.
    Run(Box<Run>),
    /// The next operations of the scheduler.
    Ops(Batch),
}

/// The contents of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of schedulers.
    pub runs: u64,
    /// The operations of all schedulers.
    pub ops: u64,
}

/// Reads the parts of a log. It returns no parts after an error or the end.
pub struct Reader<R: Read> {
    from: R,
    offset: u64,
    summary: Summary,
    outcomes: bool,
    now: u64,
    done: bool,
}

/// Checks whether a log can be replayed to its end.
///
/// # Errors
/// The first problem of the log.
pub fn check(from: impl Read) -> Result<Summary, LogError> {
    let mut reader = Reader::new(from)?;
    while reader.next_part()?.is_some() {}
    Ok(reader.summary)
}

impl<R: Read> Reader<R> {
    /// Reads the header of the file. The reader should be buffered.
    ///
    /// # Errors
    /// The file cannot be read, or is not a log of a supported version.
    pub fn new(from: R) -> Result<Reader<R>, LogError> {
        let (outcomes, now, done) = (false, 0, false);
        let summary = Summary::default();
        let mut reader = Reader {
            from,
            offset: 0,
            summary,
            outcomes,
            now,
            done,
        };
        let mut head = [0; 12];
        reader.fill(&mut head, "it is too short to be a log")?;
        if head[..8] != MAGIC {
            return Err(corrupt(
                0,
                "the file is not an operation log: it has another signature",
            ));
        }
        match little(&head[8..]) {
            VERSION => Ok(reader),
            other => Err(corrupt(
                8,
                format!(
                    "the log has version {other}, but this program reads {VERSION}: record it again"
                ),
            )),
        }
    }

    /// The contents read so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// The next part, or `None` at the end of a complete log.
    ///
    /// # Errors
    /// The problem and the offset of its block.
    pub fn next_part(&mut self) -> Result<Option<Part>, LogError> {
        if self.done {
            return Ok(None);
        }
        let at = self.offset;
        let part = self.part();
        self.done |= part.is_err();
        part.map_err(|error| match error {
            Wrong::Log(error) => error,
            Wrong::Bad(cause) => corrupt(at, cause),
        })
    }

    fn part(&mut self) -> Result<Option<Part>, Wrong> {
        let (kind, payload) = self.block()?;
        match kind {
            RUN => {
                let run = Run::decode(&payload)?;
                self.summary.runs += 1;
                (self.outcomes, self.now) = (run.outcomes, 0);
                Ok(Some(Part::Run(Box::new(run))))
            }
            OPS if self.summary.runs == 0 => Err("operations precede the first run".into()),
            OPS => Ok(Some(Part::Ops(self.batch(&payload)?))),
            _ => self.end(&payload).map(|()| None),
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<(), Wrong> {
        let from = &mut Bytes(payload);
        let declared = Summary {
            runs: from.number()?,
            ops: from.number()?,
        };
        if declared != self.summary || !from.0.is_empty() {
            return Err("the numbers at the end of the log do not match its contents".into());
        }
        self.done = true;
        let mut more = [0];
        match self.from.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err("data follows the end of the log".into()),
            Err(source) => Err(LogError::Io {
                what: "read",
                source,
            }
            .into()),
        }
    }

    /// Reads a block with a valid checksum.
    fn block(&mut self) -> Result<(u32, Vec<u8>), Wrong> {
        let cut = "the log is incomplete and ends here, for example because its writer was killed: \
                   the data before is intact";
        let mut head = [0; 12];
        self.fill(&mut head, cut)?;
        let [kind, length, sum] = [&head[..4], &head[4..8], &head[8..]].map(little);
        let limit = match kind {
            RUN => MAX_RUN_BYTES,
            OPS => MAX_OPS_BYTES,
            END => 32,
            _ => return Err("the block has no valid header: the file is corrupt".into()),
        };
        if length > limit {
            return Err("a block exceeds its limit: the file is corrupt".into());
        }
        let mut payload = Vec::new();
        let taken = self
            .from
            .by_ref()
            .take(length.into())
            .read_to_end(&mut payload);
        let taken = taken.map_err(|source| LogError::Io {
            what: "read",
            source,
        })?;
        self.offset += taken as u64;
        if payload.len() < length as usize {
            return Err(
                "the log is incomplete and ends in this block: copy all of it, or record it again"
                    .into(),
            );
        }
        if checksum(kind, length, &payload) != sum {
            return Err("the checksum of the block is wrong: the file is corrupt".into());
        }
        Ok((kind, payload))
    }

    fn batch(&mut self, payload: &[u8]) -> Result<Batch, Bad> {
        let (mut batch, mut decoder) = (Batch::default(), Decoder::default());
        let from = &mut Bytes(payload);
        while !from.0.is_empty() {
            let op = decoder.op(from)?;
            if op.now < self.now {
                return Err("the time of an operation is before that of the previous one");
            }
            if batch.ops.len() == BLOCK_OPS {
                return Err("a block exceeds its limit of operations");
            }
            self.now = op.now;
            self.summary.ops += 1;
            let index = u32::try_from(batch.ops.len()).map_err(|_| "too many operations")?;
            batch.ops.push(op);
            if !self.outcomes {
                continue;
            }
            let count = from.small()? as usize;
            if count > OUTCOMES_PER_OP {
                return Err("an operation exceeds its limit of outcomes");
            }
            for _ in 0..count {
                batch.outcomes.push(code::read_outcome(from, index)?);
            }
        }
        Ok(batch)
    }

    fn fill(&mut self, to: &mut [u8], short: &'static str) -> Result<(), LogError> {
        let at = self.offset;
        match self.from.read_exact(to) {
            Ok(()) => self.offset += to.len() as u64,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(corrupt(at, short));
            }
            Err(source) => {
                return Err(LogError::Io {
                    what: "read",
                    source,
                });
            }
        }
        Ok(())
    }
}

/// Errors of the contents get the offset of their block later.
enum Wrong {
    Log(LogError),
    Bad(Bad),
}

impl From<LogError> for Wrong {
    fn from(error: LogError) -> Wrong {
        Wrong::Log(error)
    }
}

impl From<Bad> for Wrong {
    fn from(bad: Bad) -> Wrong {
        Wrong::Bad(bad)
    }
}

fn little(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn corrupt(offset: u64, cause: impl Into<String>) -> LogError {
    LogError::Corrupt {
        offset,
        cause: cause.into(),
    }
}
