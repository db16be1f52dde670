//! Writes Parquet files, by default one per hour, with a row per class and minute.
//!
//! ```text
//! rows of intervals --> steps --> journal (.journal) --> row groups (.part) --> file
//! ```
//!
//! The index of a Parquet file is at its end, so only a complete file is readable. Until then the rows
//! are in a journal. The next start completes the journals that a crash left: it loses the open step.
//! File names contain the time of the first row, so they sort by time. One directory has one writer.

mod columns;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairpath_history::IntervalRow;
use jiff::Timestamp;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;

use super::journal::{Frames, Journal};
use super::roll_up::RollUp;
use super::{RowsError, RowsWanted};

/// The schema number of the files, `fairpath.schema` in their metadata.
pub const PARQUET_SCHEMA: u32 = 2;
/// Rows of a row group. They are in memory until it is written, about 10 MB.
const GROUP_ROWS: usize = 16_384;
const PREFIX: &str = "fairpath-";
const SUFFIX: &str = ".parquet";
const PART: &str = ".part";
const JOURNAL: &str = ".journal";
/// Ending of a journal that cannot be read.
const REFUSED: &str = ".refused";
/// Maximum number of files that begin in the same second.
const MAX_SAME_SECOND: u32 = 1000;

/// Rotation and retention of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Selects the rows.
    pub wanted: RowsWanted,
    /// Length of the steps that rows are added up to. Longer intervals are written as they are.
    pub step_ns: u64,
    /// Maximum time that the rows of a file span.
    pub rotate_ns: u64,
    /// Size of the journal at which a file is completed.
    pub rotate_bytes: u64,
    /// Number of complete files to keep, the newest. 0 keeps all.
    pub keep_files: usize,
    /// Maximum size of all complete files. The oldest are removed, except the last one.
    pub max_bytes: u64,
}

impl Default for ParquetOptions {
    /// A minute per step, an hour or 256 MiB per file, and 744 files (31 days) of 10 GiB together.
    fn default() -> ParquetOptions {
        ParquetOptions {
            wanted: RowsWanted::Active,
            step_ns: 60_000_000_000,
            rotate_ns: 3_600_000_000_000,
            rotate_bytes: 256 << 20,
            keep_files: 744,
            max_bytes: 10 << 30,
        }
    }
}

/// Writes rows into Parquet files of one directory.
pub struct ParquetWriter {
    dir: PathBuf,
    options: ParquetOptions,
    steps: RollUp,
    open: Option<Open>,
    lost_rows: u64,
    removed: u64,
}

/// The file that is being written.
struct Open {
    path: PathBuf,
    /// Unix time of its first row.
    unix_ns: u64,
    rows: u64,
    journal: Journal,
}

impl ParquetWriter {
    /// A writer into `dir`, which is created if necessary.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(dir: &Path, options: ParquetOptions) -> Result<ParquetWriter, RowsError> {
        let created = fairpath_files::create_directory(dir, fairpath_files::DIRECTORY_MODE);
        created.map_err(|source| RowsError::Open {
            path: dir.to_owned(),
            source,
        })?;
        Ok(ParquetWriter {
            dir: dir.to_owned(),
            steps: RollUp::new(options.step_ns),
            options,
            open: None,
            lost_rows: 0,
            removed: 0,
        })
    }

    /// Completes the files of a crash, and returns their number. Call it before the first
    /// [`ParquetWriter::write`], when no other writer has this directory.
    pub fn recover(&mut self) -> usize {
        // Of conversions that did not end: their journals are still there.
        let parts = own_files(&self.dir, &format!("{SUFFIX}{PART}")).unwrap_or_default();
        parts.iter().for_each(|part| drop(fs::remove_file(part)));
        let recovered = self.complete_journals();
        self.remove_old();
        recovered
    }

    /// Adds the rows of an interval. Returns the path of a file that this completed.
    ///
    /// # Errors
    /// Rows that could not be written are lost and counted. Rows in a journal stay there, until they
    /// can be completed.
    pub fn write(&mut self, mut rows: Vec<IntervalRow>) -> Result<Option<PathBuf>, RowsError> {
        let wanted = self.options.wanted;
        rows.retain(|row| wanted.takes(row));
        let step = self.steps.add(rows);
        self.write_step(&step)
    }

    /// Completes the open file, if there is one, with the open step. Returns its path.
    ///
    /// # Errors
    /// See [`ParquetWriter::write`].
    pub fn finish(&mut self) -> Result<Option<PathBuf>, RowsError> {
        let step = self.steps.take();
        let before = self.write_step(&step);
        let last = self.close();
        before.and_then(|before| Ok(last?.or(before)))
    }

    /// Rows that could not be written.
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows
    }

    /// Files that were removed since the last call, because of number or size.
    pub fn take_removed(&mut self) -> u64 {
        std::mem::take(&mut self.removed)
    }

    fn write_step(&mut self, rows: &[IntervalRow]) -> Result<Option<PathBuf>, RowsError> {
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let closed = match self.is_due(first.unix_ns) {
            true => self.close(),
            false => Ok(None),
        };
        let count = rows.len() as u64;
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => self.begin(first.unix_ns),
        };
        let mut open = open.inspect_err(|_| self.lost_rows += count)?;
        let appended = open.journal.append(rows);
        open.rows += if appended.is_ok() { count } else { 0 };
        self.lost_rows += if appended.is_ok() { 0 } else { count };
        let path = open.path.clone();
        self.open = Some(open);
        appended.map_err(|error| failed(&path, error))?;
        closed
    }

    fn is_due(&self, unix_ns: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            // Also if the clock was set back.
            open.unix_ns.abs_diff(unix_ns) >= self.options.rotate_ns
                || open.journal.bytes >= self.options.rotate_bytes
        })
    }

    fn begin(&self, unix_ns: u64) -> Result<Open, RowsError> {
        if !self.dir.exists() {
            // It was removed or unmounted. A failure is reported with the file.
            let _ = fairpath_files::create_directory(&self.dir, fairpath_files::DIRECTORY_MODE);
        }
        let path = self.free_name(unix_ns, JOURNAL);
        let journal = Journal::create(&path).map_err(|error| failed(&path, error))?;
        Ok(Open {
            path,
            unix_ns,
            rows: 0,
            journal,
        })
    }

    /// Completes the open file.
    fn close(&mut self) -> Result<Option<PathBuf>, RowsError> {
        let Some(open) = self.open.take() else {
            return Ok(None);
        };
        let completed = self.complete(&open.path);
        if completed.is_err() && !open.path.exists() {
            // With its directory.
            self.lost_rows += open.rows;
        }
        let path = completed?;
        // Also those that could not be completed on a full disk.
        self.complete_journals();
        self.remove_old();
        Ok(Some(path))
    }

    /// Makes a file of a journal, and removes the journal.
    fn complete(&mut self, journal: &Path) -> Result<PathBuf, RowsError> {
        // If a crash was between rename and removal, the same rows are written again.
        let path = journal.with_extension("");
        let mut part = path.clone().into_os_string();
        part.push(PART);
        let part = PathBuf::from(part);
        let convert = || -> Result<u64, ParquetError> {
            let mut frames = Frames::open(journal)?;
            // Left by a conversion that failed.
            let _ = fs::remove_file(&part);
            let file = fairpath_files::create(&part)?;
            let schema = Arc::new(columns::schema()?);
            let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties()))?;
            let mut group = Vec::new();
            while let Some(rows) = frames.next()? {
                group.extend(rows);
                if group.len() >= GROUP_ROWS {
                    columns::write_group(&mut writer, &group)?;
                    group.clear();
                }
            }
            if !group.is_empty() {
                columns::write_group(&mut writer, &group)?;
            }
            writer.into_inner()?.sync_all()?;
            fs::rename(&part, &path)?;
            Ok(frames.lost_rows)
        };
        match convert() {
            Ok(lost) => {
                self.lost_rows += lost;
                fs::remove_file(journal).map_err(|error| failed(journal, error))?;
                Ok(path)
            }
            Err(source) => {
                let _ = fs::remove_file(&part);
                Err(RowsError::Parquet {
                    path: journal.to_owned(),
                    source,
                })
            }
        }
    }

    /// Completes the journals without a writer. What cannot be completed now is tried again later; what
    /// is no journal is renamed. Returns the number of completed files.
    fn complete_journals(&mut self) -> usize {
        let mut completed = 0;
        let journals = own_files(&self.dir, &format!("{SUFFIX}{JOURNAL}")).unwrap_or_default();
        for journal in journals {
            if self.open.as_ref().is_some_and(|open| open.path == journal) {
                continue;
            }
            let is_none =
                Frames::open(&journal).is_err_and(|error| error.kind() == ErrorKind::InvalidData);
            if is_none {
                let mut refused = journal.clone().into_os_string();
                refused.push(REFUSED);
                let _ = fs::rename(&journal, refused);
                continue;
            }
            completed += usize::from(self.complete(&journal).is_ok());
        }
        completed
    }

    /// An unused name for a file that begins at `unix_ns`: neither it nor a complete file is there.
    fn free_name(&self, unix_ns: u64, ending: &str) -> PathBuf {
        let time = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::MAX);
        let time = time.strftime("%Y%m%dT%H%M%SZ");
        let name = |number: u32, ending: &str| {
            let number = if number == 0 {
                String::new()
            } else {
                format!("-{number:03}")
            };
            self.dir
                .join(format!("{PREFIX}{time}{number}{SUFFIX}{ending}"))
        };
        let is_free = |number: &u32| !name(*number, ending).exists() && !name(*number, "").exists();
        let free = (0..MAX_SAME_SECOND).find(is_free);
        name(free.unwrap_or(MAX_SAME_SECOND), ending)
    }

    /// Removes the oldest files above the limits. Files that remain are tried again with the next file.
    fn remove_old(&mut self) {
        let Ok(mut files) = own_files(&self.dir, SUFFIX) else {
            return;
        };
        files.sort();
        let (mut count, mut bytes) = (0, 0u64);
        let too_many =
            |count: usize| self.options.keep_files > 0 && count > self.options.keep_files;
        let mut old = Vec::new();
        for file in files.iter().rev() {
            count += 1;
            bytes += fs::metadata(file).map_or(0, |found| found.len());
            if count > 1 && (too_many(count) || bytes > self.options.max_bytes) {
                old.push(file);
            }
        }
        for file in old {
            self.removed += u64::from(fs::remove_file(file).is_ok());
        }
    }
}

impl Drop for ParquetWriter {
    fn drop(&mut self) {
        // A caller that needs the error calls `finish`.
        let _ = self.finish();
    }
}

fn properties() -> WriterProperties {
    let schema = KeyValue::new("fairpath.schema".to_owned(), PARQUET_SCHEMA.to_string());
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("fairpath version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![schema]))
        .build()
}

fn failed(path: &Path, source: io::Error) -> RowsError {
    RowsError::Write {
        path: path.to_owned(),
        source,
    }
}

/// The files of `dir` with this program's prefix and the given ending.
fn own_files(dir: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(ending) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
