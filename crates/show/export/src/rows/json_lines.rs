//! JSON lines, appended to one file that others rotate.
//!
//! An interval's lines are written at once; what a failed write left behind is cut off, and a line
//! that a crash cut short is ended before the next one begins.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fairpath_history::IntervalRow;
use jiff::Timestamp;
use serde::Serialize;

use super::{RowsError, RowsWanted};

/// Appends rows to a file, one JSON object a line.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    wanted: RowsWanted,
    file: File,
    lost_rows: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    /// When the interval began, RFC 3339, UTC.
    time: String,
    #[serde(flatten)]
    row: &'a IntervalRow,
}

impl JsonLines {
    /// Opens the file, made if it is not there; what it holds stays.
    pub fn open(path: &Path, wanted: RowsWanted) -> Result<JsonLines, RowsError> {
        Ok(JsonLines {
            file: open(path)?,
            path: path.to_owned(),
            wanted,
            lost_rows: 0,
        })
    }

    /// Opens the path again, after something else renamed the file: for rotation by logrotate.
    /// If it fails, rows still go to the old file.
    pub fn reopen(&mut self) -> Result<(), RowsError> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Appends those rows of an interval that are wanted, all or none; tells how many.
    pub fn write(&mut self, rows: &[IntervalRow]) -> Result<usize, RowsError> {
        let mut text = Vec::new();
        let mut count = 0;
        let wanted = self.wanted;
        for row in rows.iter().filter(|row| wanted.takes(row)) {
            let time =
                Timestamp::from_nanosecond(i128::from(row.unix_ns)).unwrap_or(Timestamp::MAX);
            let line = Line {
                time: time.to_string(),
                row,
            };
            let written = serde_json::to_writer(&mut text, &line).map_err(io::Error::from);
            written.map_err(|source| self.failed(count + 1, source))?;
            text.push(b'\n');
            count += 1;
        }
        append(&mut self.file, &text).map_err(|source| self.failed(count, source))?;
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

fn open(path: &Path) -> Result<File, RowsError> {
    let open = || -> io::Result<File> {
        let mut file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        end_last_line(&mut file)?;
        Ok(file)
    };
    open().map_err(|source| RowsError::Open {
        path: path.to_owned(),
        source,
    })
}

/// A file that is no regular one (a pipe, /dev/full) has no lines to end.
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

/// Appends all of `text`, or leaves the file as it was.
fn append(file: &mut File, text: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < text.len() {
        match file.write(&text[written..]) {
            Ok(0) => return Err(cut(file, written, io::ErrorKind::WriteZero.into())),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cut(file, written, error)),
        }
    }
    Ok(())
}

/// Takes the last `written` bytes away again, as far as the file lets us.
fn cut(file: &mut File, written: usize, error: io::Error) -> io::Error {
    if let Ok(about) = file.metadata()
        && about.is_file()
        && written > 0
    {
        // If this fails too, the next opening ends the line.
        let _ = file.set_len(about.len().saturating_sub(written as u64));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_write_left_behind_is_cut_off() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"whole line\nhalf a").unwrap();
        let error = cut(&mut file, 6, io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.rewind().unwrap();
        let mut left = String::new();
        file.read_to_string(&mut left).unwrap();
        assert_eq!(left, "whole line\n");
    }
}
