//! Appends rows as JSON lines to one file, which logrotate or another program rotates.
//!
//! The lines of an interval are written at once. After a failed write the file is truncated to its
//! last complete line. A partial line of a crash is ended before the next line.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fairpath_history::IntervalRow;
use jiff::Timestamp;

use super::columns::{Values, columns};
use super::{RowsError, RowsWanted};

/// Appends rows to a file, one JSON object per line.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    wanted: RowsWanted,
    file: File,
    /// The lines of an interval. Its memory is used again.
    text: Vec<u8>,
    lost_rows: u64,
}

impl JsonLines {
    /// Opens the file, or creates it. Existing content stays.
    pub fn open(path: &Path, wanted: RowsWanted) -> Result<JsonLines, RowsError> {
        Ok(JsonLines {
            file: open(path)?,
            path: path.to_owned(),
            wanted,
            text: Vec::new(),
            lost_rows: 0,
        })
    }

    /// Opens the path again after a rotation. After a failure, rows still go to the old file.
    pub fn reopen(&mut self) -> Result<(), RowsError> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Appends the selected rows of an interval, all or none. Returns their number.
    pub fn write(&mut self, rows: &[IntervalRow]) -> Result<usize, RowsError> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let (mut count, wanted) = (0, self.wanted);
        let (mut unix_ns, mut time) = (None, String::new());
        for row in rows.iter().filter(|row| wanted.takes(row)) {
            // The rows of an interval have one time.
            if unix_ns.replace(row.unix_ns) != Some(row.unix_ns) {
                let at = Timestamp::from_nanosecond(i128::from(row.unix_ns));
                time = at.unwrap_or(Timestamp::MAX).to_string();
            }
            count += 1;
            let written = write_line(&mut text, &time, row).map_err(io::Error::from);
            written.map_err(|source| self.failed(count, source))?;
        }
        let appended = append(&mut self.file, &text);
        self.text = text;
        appended.map_err(|source| self.failed(count, source))?;
        Ok(count)
    }

    /// Rows that could not be written.
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows
    }

    fn failed(&mut self, rows: usize, source: io::Error) -> RowsError {
        self.lost_rows += rows as u64;
        RowsError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// Writes a row as a line, the time of its begin as RFC 3339, UTC.
fn write_line(text: &mut Vec<u8>, time: &str, row: &IntervalRow) -> serde_json::Result<()> {
    let mut before = b'{';
    for column in columns() {
        text.push(before);
        before = b',';
        text.extend_from_slice(column.key.as_bytes());
        match column.values {
            Values::Time => serde_json::to_writer(&mut *text, time)?,
            Values::Count(value) => serde_json::to_writer(&mut *text, &value(row))?,
            Values::Maybe(value) => serde_json::to_writer(&mut *text, &value(row))?,
            Values::Text(value) => serde_json::to_writer(&mut *text, value(row))?,
            Values::MaybeText(value) => serde_json::to_writer(&mut *text, &value(row))?,
        }
    }
    text.extend_from_slice(b"}\n");
    Ok(())
}

fn open(path: &Path) -> Result<File, RowsError> {
    let open = || -> io::Result<File> {
        let mut file = fairpath_files::append(path)?;
        end_last_line(&mut file)?;
        Ok(file)
    };
    open().map_err(|source| RowsError::Open {
        path: path.to_owned(),
        source,
    })
}

/// Ends a partial last line. Does nothing to a file that is not regular (a pipe, /dev/full).
fn end_last_line(file: &mut File) -> io::Result<()> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Appends all of `text`, or leaves the file unchanged.
fn append(file: &mut File, text: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < text.len() {
        match file.write(&text[written..]) {
            Ok(0) => return Err(truncate(file, written, io::ErrorKind::WriteZero.into())),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(truncate(file, written, error)),
        }
    }
    Ok(())
}

/// Removes the last `written` bytes, if the file is regular. Returns `error`.
fn truncate(file: &mut File, written: usize, error: io::Error) -> io::Error {
    if let Ok(about) = file.metadata()
        && about.is_file()
        && written > 0
    {
        // After a failure here, the next `open` ends the line.
        let _ = file.set_len(about.len().saturating_sub(written as u64));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_truncated() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"whole line\nhalf a").unwrap();
        let error = truncate(&mut file, 6, io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.rewind().unwrap();
        let mut left = String::new();
        file.read_to_string(&mut left).unwrap();
        assert_eq!(left, "whole line\n");
    }
}
