//! Parquet files: one for each hour or so, complete or not there.
//!
//! Parquet's index stands at the end, so a file is of use only when it is closed. It is written under
//! a name ending in `.part` and renamed when it is complete; what a crash left behind as `.part`
//! cannot be read by anybody and is removed at the next start. Names are the time of the first row,
//! so they sort by time. One directory has one writer.

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

/// The number of the files' schema: `fairpath.schema` of their metadata.
pub const PARQUET_SCHEMA: u32 = 1;
/// Rows held in memory before they are written as a group, about 10 MB.
const GROUP_ROWS: usize = 16_384;
const PREFIX: &str = "fairpath-";
const SUFFIX: &str = ".parquet";
const PART: &str = ".part";
/// Files that begin in the same second at most.
const MAX_TWINS: u32 = 1000;

/// When a file is closed and the next begun, and how many stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Which rows are written.
    pub wanted: RowsWanted,
    /// A file's rows span at most so much time.
    pub rotate_ns: u64,
    /// A file is closed once it holds so many bytes.
    pub rotate_bytes: u64,
    /// Closed files that stay, the newest; 0 keeps all.
    pub keep_files: usize,
}

impl Default for ParquetOptions {
    /// An hour or 256 MiB a file; a month of hours stays.
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
    /// Of its first row.
    unix_ns: u64,
    writer: SerializedFileWriter<File>,
    /// Rows that wait for their group.
    waiting: Vec<IntervalRow>,
    rows: u64,
}

impl ParquetWriter {
    /// A writer into `dir`, which is made if it is not there; removes what a crash left behind.
    pub fn open(dir: &Path, options: ParquetOptions) -> Result<ParquetWriter, RowsError> {
        let leftovers = fs::create_dir_all(dir).and_then(|()| remove_leftovers(dir));
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

    /// Takes the rows of an interval; gives the path of a file that was completed by that.
    ///
    /// If it fails, the rows of the file that failed are lost and counted, and the next call begins
    /// a new one.
    pub fn write(&mut self, rows: &[IntervalRow]) -> Result<Option<PathBuf>, RowsError> {
        let wanted = self.options.wanted;
        let rows: Vec<IntervalRow> = rows
            .iter()
            .filter(|row| wanted.takes(row))
            .cloned()
            .collect();
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

    /// Completes the open file, if any, and gives its path. To be called at the end.
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
            // Also when the clock was set back.
            open.unix_ns.abs_diff(unix_ns) >= self.options.rotate_ns
                || open.writer.bytes_written() as u64 >= self.options.rotate_bytes
        })
    }

    /// Begins a file whose first rows, `rows` of them, are lost if that fails.
    fn begin(&mut self, unix_ns: u64, rows: u64) -> Result<(), RowsError> {
        let part = self.free_name(unix_ns, PART);
        let begin = || -> Result<_, ParquetError> {
            let file = File::create_new(&part)?;
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

    /// Gives the open file up: nothing half done stays.
    fn failed(&mut self, rows: u64, part: &Path, source: ParquetError) -> RowsError {
        self.lost_rows += rows;
        // What cannot be removed now is removed at the next start.
        let _ = fs::remove_file(part);
        RowsError::Parquet {
            path: part.to_owned(),
            source,
        }
    }

    /// A name for a file that begins at `unix_ns`, which neither a complete file nor a part has.
    fn free_name(&self, unix_ns: u64, ending: &str) -> PathBuf {
        let time = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::MAX);
        let time = time.strftime("%Y%m%dT%H%M%SZ");
        let name = |twin: u32| {
            let twin = if twin == 0 {
                String::new()
            } else {
                format!("-{twin:03}")
            };
            self.dir
                .join(format!("{PREFIX}{time}{twin}{SUFFIX}{ending}"))
        };
        let free = (0..MAX_TWINS).map(name).find(|path| !path.exists());
        free.unwrap_or_else(|| name(MAX_TWINS))
    }

    /// What cannot be removed stays, and is tried again with the next file.
    fn remove_old(&self) {
        let Ok(mut files) = ours(&self.dir, SUFFIX) else {
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
        // Whoever wants to know calls finish.
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
    let leftovers = ours(dir, &format!("{SUFFIX}{PART}"))?;
    leftovers.iter().try_for_each(fs::remove_file)?;
    Ok(leftovers.len())
}

/// The files of `dir` that have our names.
fn ours(dir: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
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
