//! Weeks of counts by row, in steps, in one file.
//!
//! ```text
//! interval --> recent (memory, 1 s)
//!          '-> slice (10 s) --> segment of an hour (1 min) --> segment of a day (5 min)
//!              by time          by row                         by row
//! ```
//!
//! | kept | steps | for | in the file |
//! |---|---|---|---|
//! | [`Recent`](recent) | the monitor's intervals | the last [`RECENT_NS`] | no |
//! | slices | 10 s | one to two hours | blocks of 512 rows each |
//! | hours | 1 min | one to two days | a block for each active row |
//! | days | 5 min | [`KEPT_DAYS`] days of measurement | a block for each active row |
//!
//! Each level is made of the one before, in the transaction that completes it, so nothing is counted
//! twice or lost. Hours and days are lengths of measured time, not of the calendar: a clock that is
//! set, by whatever time, deletes nothing. Steps have the Unix times of their intervals. A row without
//! traffic takes no space.
//!
//! A kill or a power failure loses the open slice: at most 10 s, or one interval of the monitor if that
//! is longer. The engine is SQLite with a write-ahead log that is synchronised with each slice.

mod file;
mod levels;
mod query;
mod recent;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use fairpath_history::history::{BlockError, Counts, Effort, IntervalCounts, RowName, encode};
use fairpath_history::series::{QueryError, Series, SeriesQuery};
use rusqlite::Connection;

pub use levels::{DAY_NS, HOUR_NS, KEPT_DAYS};
use recent::Recent;
pub use recent::{MAX_RECENT_BYTES, RECENT_NS};

/// Length of the steps of a slice, nanoseconds.
pub const SLICE_NS: u64 = 10_000_000_000;
/// Rows in a block of a slice.
const PART_ROWS: u64 = 512;
/// Maximum number of slices that wait for a disk. The oldest are dropped and counted.
pub const MAX_WAITING_SLICES: usize = 30;
/// Rows without counts and configuration up to this number are kept.
pub const MAX_UNUSED_ROWS: usize = 10_000;
/// The default of [`Archive::set_max_bytes`].
pub const MAX_BYTES: u64 = 6 << 30;
/// The number of measured time, which is kept as the counts of a row.
const MEASURED: u64 = 0;

/// Counts could not be kept, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The engine.
    #[error("history: {0}")]
    Engine(#[from] rusqlite::Error),
    /// The file or its directory.
    #[error("history: {0}")]
    File(#[from] std::io::Error),
    /// The file has another content.
    #[error("history: it is the database of another program: name another file")]
    OtherProgram,
    /// The file is newer.
    #[error("history: its version is {0}, and this program reads version {current}: use a newer fairpath", current = file::VERSION)]
    Newer(i64),
    /// A block is corrupted.
    #[error("history: {0}")]
    Block(#[from] BlockError),
    /// The question cannot be answered.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// No such row.
    #[error("history: there are no counts of {name:?}{near}", near = near.as_ref().map_or(String::new(), |near| format!(": the nearest name is {near:?}")))]
    NoRow {
        /// The name.
        name: String,
        /// The most similar name.
        near: Option<String>,
    },
}

impl ArchiveError {
    /// True if the content of the file cannot be used, now and later.
    pub fn is_corrupt(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            ArchiveError::Engine(error) => {
                matches!(
                    error.sqlite_error_code(),
                    Some(DatabaseCorrupt | NotADatabase)
                )
            }
            ArchiveError::Block(_) | ArchiveError::OtherProgram | ArchiveError::Newer(_) => true,
            _ => false,
        }
    }
}

/// Counters of what was not kept, and of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slices written.
    pub slices: u64,
    /// Slices that waited too long for a disk.
    pub slices_dropped: u64,
    /// Writes that failed and were repeated.
    pub writes_failed: u64,
    /// Days, hours and slices that were removed for [`Archive::set_max_bytes`].
    pub segments_dropped: u64,
    /// Blocks that were corrupted in the file.
    pub blocks_corrupted: u64,
    /// Size of the used part of the file, bytes.
    pub bytes: u64,
}

/// A completed slice.
#[derive(Debug)]
struct Slice {
    id: i64,
    begin_ns: u64,
    end_ns: u64,
    measured_ns: u64,
    /// Part and block.
    blocks: Vec<(u64, Vec<u8>)>,
}

/// The slice that intervals are added to.
#[derive(Debug, Default)]
struct Open {
    begin_ns: u64,
    end_ns: u64,
    measured_ns: u64,
    /// By number of the row.
    rows: BTreeMap<u64, Counts>,
}

/// The writer of a file. One thread owns it.
#[derive(Debug)]
pub struct Archive {
    file: Connection,
    max_bytes: u64,
    numbers: HashMap<RowName, u64>,
    next_number: u64,
    /// Numbers below were given before the last day was completed.
    old_numbers: u64,
    /// Rows that are not in the file yet.
    unnamed: Vec<(u64, RowName)>,
    /// The rows of the last interval, and their numbers.
    names: Arc<[RowName]>,
    numbered: Vec<u64>,
    open: Open,
    /// The number of the open slice.
    next_slice: i64,
    waiting: VecDeque<Slice>,
    recent: Recent,
    counters: Counters,
}

impl Archive {
    /// Opens a file, and creates it if it is missing.
    ///
    /// # Errors
    /// [`ArchiveError`]: the directory is missing or can be written by others, or the file is corrupted.
    pub fn open(path: &Path) -> Result<Archive, ArchiveError> {
        let file = file::open(path)?;
        let (numbers, next_slice) = (file::rows(&file)?, file::next_slice(&file)?);
        let next_number = numbers.values().max().copied().unwrap_or(MEASURED) + 1;
        let bytes = file::used_bytes(&file)?;
        Ok(Archive {
            file,
            max_bytes: MAX_BYTES,
            numbers,
            next_number,
            old_numbers: 0,
            unnamed: Vec::new(),
            names: Arc::new([]),
            numbered: Vec::new(),
            open: Open::default(),
            next_slice,
            waiting: VecDeque::new(),
            recent: Recent::default(),
            counters: Counters {
                bytes,
                ..Counters::default()
            },
        })
    }

    /// Sets the maximum size of the file. The oldest days are removed above it, then hours that a day
    /// contains.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
    }

    /// Adds an interval. Writes a slice if it begins another one. O(active rows), and O(rows) after
    /// the rows changed.
    ///
    /// # Errors
    /// The slice could not be written. It waits for the next one.
    pub fn take(&mut self, interval: &IntervalCounts) -> Result<(), ArchiveError> {
        let step = |ns: u64| ns / SLICE_NS;
        let other = step(interval.unix_ns) != step(self.open.begin_ns);
        let result = match self.open.measured_ns > 0 && (other || self.open.measured_ns >= SLICE_NS)
        {
            true => self.flush(),
            false => Ok(()),
        };
        self.number(&interval.names);
        let open = &mut self.open;
        if open.measured_ns == 0 {
            open.begin_ns = interval.unix_ns;
        }
        open.end_ns = interval.unix_ns.saturating_add(interval.length_ns);
        open.measured_ns += interval.length_ns;
        let mut rows = Vec::with_capacity(interval.rows.len());
        for (row, counts) in &interval.rows {
            // An index beyond the names is a defect of the caller, and is not counted as another row.
            if let Some(number) = self.numbered.get(*row as usize) {
                rows.push((*number, counts.clone()));
            }
        }
        rows.sort_unstable_by_key(|(number, _)| *number);
        rows.dedup_by_key(|(number, _)| *number);
        for (number, counts) in &rows {
            open.rows.entry(*number).or_default().add(counts);
        }
        self.recent.push(self.next_slice, interval, &rows);
        result
    }

    /// Writes what is in memory, at the end of a process.
    ///
    /// # Errors
    /// It could not be written.
    pub fn flush(&mut self) -> Result<(), ArchiveError> {
        self.close_slice();
        self.write()
    }

    /// Counters since the file was opened, and its size.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The counts of a row in steps, to the last interval.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn series(&self, query: &SeriesQuery) -> Result<Series, ArchiveError> {
        query::series(&self.file, Some(self), query)
    }

    fn close_slice(&mut self) {
        let open = std::mem::take(&mut self.open);
        if open.measured_ns == 0 {
            return;
        }
        let mut blocks = Vec::new();
        let rows: Vec<(u64, Counts)> = open.rows.into_iter().collect();
        for part in rows.chunk_by(|(a, _), (b, _)| a / PART_ROWS == b / PART_ROWS) {
            blocks.push((part[0].0 / PART_ROWS, encode(part, Effort::Fast)));
        }
        self.waiting.push_back(Slice {
            id: self.next_slice,
            begin_ns: open.begin_ns,
            end_ns: open.end_ns,
            measured_ns: open.measured_ns,
            blocks,
        });
        self.next_slice += 1;
        if self.waiting.len() > MAX_WAITING_SLICES {
            self.waiting.pop_front();
            self.counters.slices_dropped += 1;
        }
    }

    fn write(&mut self) -> Result<(), ArchiveError> {
        let written = levels::write(&mut self.file, &self.unnamed, &self.waiting, self.max_bytes);
        match written {
            Ok(written) => {
                self.counters.slices += self.waiting.len() as u64;
                self.counters.segments_dropped += written.dropped;
                self.counters.blocks_corrupted += written.corrupted;
                self.waiting.clear();
                self.unnamed.clear();
                self.counters.bytes = file::used_bytes(&self.file)?;
                match written.day {
                    true => self.forget_rows(),
                    false => Ok(()),
                }
            }
            Err(error) => {
                self.counters.writes_failed += 1;
                Err(error)
            }
        }
    }

    /// Forgets rows that are neither configured nor have counts, if there are many. New ones may have
    /// counts in slices alone.
    fn forget_rows(&mut self) -> Result<(), ArchiveError> {
        let below = std::mem::replace(&mut self.old_numbers, self.next_number);
        if self.numbers.len() <= self.names.len() + MAX_UNUSED_ROWS {
            return Ok(());
        }
        let configured: HashSet<u64> = self.numbered.iter().copied().collect();
        let mut unused = levels::unused_rows(&self.file, below)?;
        unused.retain(|number| !configured.contains(number));
        levels::remove_rows(&mut self.file, &unused)?;
        let unused: HashSet<u64> = unused.into_iter().collect();
        self.numbers.retain(|_, number| !unused.contains(number));
        Ok(())
    }

    /// Numbers the rows of a configuration.
    fn number(&mut self, names: &Arc<[RowName]>) {
        if Arc::ptr_eq(names, &self.names) {
            return;
        }
        self.names = Arc::clone(names);
        self.numbered.clear();
        for name in names.iter() {
            let number = match self.numbers.get(name) {
                Some(number) => *number,
                None => {
                    let number = self.next_number;
                    self.next_number += 1;
                    self.numbers.insert(name.clone(), number);
                    self.unnamed.push((number, name.clone()));
                    number
                }
            };
            self.numbered.push(number);
        }
    }
}

/// The counts of a row from a file that no process, or another one, writes.
///
/// # Errors
/// [`ArchiveError`].
pub fn read_series(path: &Path, query: &SeriesQuery) -> Result<Series, ArchiveError> {
    query::series(&file::open_to_read(path)?, None, query)
}
