//! Writes Parquet files, by default one per hour.
//!
//! The index of a Parquet file is at its end, so only a complete file is readable. A file has the
//! suffix `.part` until it is complete. The next start removes `.part` files that a crash left. File
//! names contain the time of the first row, so they sort by time. One directory has one writer.

mod columns;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairpath_history::IntervalRow;
use jiff::Timestamp;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;

use super::{RowsError, RowsWanted};

/// The schema number of the files, `fairpath.schema` in their metadata.
pub const PARQUET_SCHEMA: u32 = 1;
/// Rows of a row group. They are in memory until it is written, about 10 MB.
const GROUP_ROWS: usize = 16_384;
const PREFIX: &str = "fairpath-";
const SUFFIX: &str = ".parquet";
const PART: &str = ".part";
/// Maximum number of files that begin in the same second.
const MAX_SAME_SECOND: u32 = 1000;

/// Rotation and retention of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Selects the rows.
    pub wanted: RowsWanted,
    /// Maximum time that the rows of a file span.
    pub rotate_ns: u64,
    /// Size at which a file is closed.
    pub rotate_bytes: u64,
    /// Number of closed files to keep, the newest. 0 keeps all.
    pub keep_files: usize,
}

impl Default for ParquetOptions {
    /// One hour or 256 MiB per file, and 744 files: 31 days.
    fn default() -> ParquetOptions {
        ParquetOptions {
            wanted: RowsWanted::Active,
            rotate_ns: 3_600_000_000_000,
            rotate_bytes: 256 << 20,
            keep_files: 744,
        }
    }
}

/// Writes rows into Parquet files of one directory.
pub struct ParquetWriter {
    dir: PathBuf,
    options: ParquetOptions,
    open: Option<Open>,
    lost_rows: u64,
    leftovers: usize,
}

/// The file that is being written.
struct Open {
    part: PathBuf,
    /// Unix time of its first row.
    unix_ns: u64,
    writer: SerializedFileWriter<File>,
    /// Rows of the next row group.
    waiting: Vec<IntervalRow>,
    rows: u64,
}

impl ParquetWriter {
    /// A writer into `dir`, which is created if necessary. Removes incomplete files of a crash.
    pub fn open(dir: &Path, options: ParquetOptions) -> Result<ParquetWriter, RowsError> {
        let leftovers = fairpath_files::create_directory(dir, fairpath_files::DIRECTORY_MODE)
            .and_then(|()| remove_leftovers(dir));
        let leftovers = leftovers.map_err(|source| RowsError::Open {
            path: dir.to_owned(),
            source,
        })?;
        Ok(ParquetWriter {
            dir: dir.to_owned(),
            options,
            open: None,
            lost_rows: 0,
            leftovers,
        })
    }

    /// Writes the rows of an interval. Returns the path of a file that this completed.
    ///
    /// After a failure, the rows of the failed file are lost and counted, and the next call begins a
    /// new file.
    pub fn write(&mut self, mut rows: Vec<IntervalRow>) -> Result<Option<PathBuf>, RowsError> {
        let wanted = self.options.wanted;
        rows.retain(|row| wanted.takes(row));
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let unix_ns = first.unix_ns;
        let closed = if self.is_due(unix_ns) {
            self.finish()
        } else {
            Ok(None)
        };
        if self.open.is_none() {
            self.begin(unix_ns, rows.len() as u64)?;
        }
        self.add(rows)?;
        closed
    }

    /// Completes the open file, if there is one, and returns its path.
    pub fn finish(&mut self) -> Result<Option<PathBuf>, RowsError> {
        let Some(open) = self.open.take() else {
            return Ok(None);
        };
        let (rows, part, unix_ns) = (open.rows, open.part.clone(), open.unix_ns);
        let completed = complete(open).map_err(|source| self.failed(rows, &part, source))?;
        let path = self.free_name(unix_ns, "");
        let renamed = completed.sync_all().and_then(|()| fs::rename(&part, &path));
        renamed.map_err(|error| self.failed(rows, &part, error.into()))?;
        self.remove_old();
        Ok(Some(path))
    }

    /// Rows that could not be written.
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows
    }

    /// Incomplete files of an earlier run that were removed.
    pub fn leftovers(&self) -> usize {
        self.leftovers
    }

    fn is_due(&self, unix_ns: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            // Also if the clock was set back.
            open.unix_ns.abs_diff(unix_ns) >= self.options.rotate_ns
                || open.writer.bytes_written() as u64 >= self.options.rotate_bytes
        })
    }

    /// Begins a file. A failure loses its first `rows` rows.
    fn begin(&mut self, unix_ns: u64, rows: u64) -> Result<(), RowsError> {
        let part = self.free_name(unix_ns, PART);
        if !self.dir.exists() {
            // It was removed or unmounted. A failure is reported with the file.
            let _ = fairpath_files::create_directory(&self.dir, fairpath_files::DIRECTORY_MODE);
        }
        let begin = || -> Result<_, ParquetError> {
            let file = fairpath_files::create(&part)?;
            SerializedFileWriter::new(file, Arc::new(columns::schema()?), Arc::new(properties()))
        };
        let writer = begin().map_err(|source| self.failed(rows, &part, source))?;
        self.open = Some(Open {
            part,
            unix_ns,
            writer,
            waiting: Vec::new(),
            rows: 0,
        });
        Ok(())
    }

    fn add(&mut self, rows: Vec<IntervalRow>) -> Result<(), RowsError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.rows += rows.len() as u64;
        open.waiting.extend(rows);
        if open.waiting.len() < GROUP_ROWS {
            return Ok(());
        }
        let (rows, part) = (open.rows, open.part.clone());
        flush(open).map_err(|source| {
            self.open = None;
            self.failed(rows, &part, source)
        })
    }

    /// Removes a failed file and counts its rows as lost.
    fn failed(&mut self, rows: u64, part: &Path, source: ParquetError) -> RowsError {
        self.lost_rows += rows;
        // The next start tries to remove it again.
        let _ = fs::remove_file(part);
        RowsError::Parquet {
            path: part.to_owned(),
            source,
        }
    }

    /// An unused name for a file that begins at `unix_ns`.
    fn free_name(&self, unix_ns: u64, ending: &str) -> PathBuf {
        let time = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::MAX);
        let time = time.strftime("%Y%m%dT%H%M%SZ");
        let name = |number: u32| {
            let number = if number == 0 {
                String::new()
            } else {
                format!("-{number:03}")
            };
            self.dir
                .join(format!("{PREFIX}{time}{number}{SUFFIX}{ending}"))
        };
        let free = (0..MAX_SAME_SECOND).map(name).find(|path| !path.exists());
        free.unwrap_or_else(|| name(MAX_SAME_SECOND))
    }

    /// Removes the oldest files above the limit. Files that remain are tried again with the next file.
    fn remove_old(&self) {
        let Ok(mut files) = own_files(&self.dir, SUFFIX) else {
            return;
        };
        files.sort();
        if self.options.keep_files > 0 {
            files.truncate(files.len().saturating_sub(self.options.keep_files));
            files.iter().for_each(|old| drop(fs::remove_file(old)));
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

fn flush(open: &mut Open) -> Result<(), ParquetError> {
    if open.waiting.is_empty() {
        return Ok(());
    }
    columns::write_group(&mut open.writer, &open.waiting)?;
    open.waiting.clear();
    Ok(())
}

fn complete(mut open: Open) -> Result<File, ParquetError> {
    flush(&mut open)?;
    open.writer.into_inner()
}

fn remove_leftovers(dir: &Path) -> io::Result<usize> {
    let leftovers = own_files(dir, &format!("{SUFFIX}{PART}"))?;
    leftovers.iter().try_for_each(fs::remove_file)?;
    Ok(leftovers.len())
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
