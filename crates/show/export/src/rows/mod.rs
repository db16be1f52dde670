//! Rows per class and interval, into files that other tools read.
//!
//! Keys are those of [`IntervalRow`], which carry their units, and `time`. Both writers keep what is
//! there readable whatever happens: a reader never sees half a line or half a Parquet file, and rows
//! that could not be written are counted, not kept.

mod json_lines;
mod parquet;

use std::io;
use std::path::PathBuf;

use ::parquet::errors::ParquetError;
use fairpath_history::IntervalRow;

pub use json_lines::JsonLines;
pub use parquet::{PARQUET_SCHEMA, ParquetOptions, ParquetWriter};

/// Which rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsWanted {
    /// One for every class and interval.
    All,
    /// Those of classes that sent, received, or were measured in the interval.
    #[default]
    Active,
}

impl RowsWanted {
    /// Whether this row is wanted.
    pub fn takes(self, row: &IntervalRow) -> bool {
        self == RowsWanted::All
            || row.packets_up + row.packets_down > 0
            || row.inside_samples + row.outside_samples > 0
            || row.flows_opened + row.flows_closed + row.flows_one_sided + row.handshakes_failed > 0
    }
}

impl std::str::FromStr for RowsWanted {
    type Err = String;

    /// "all" or "active".
    fn from_str(word: &str) -> Result<RowsWanted, String> {
        match word {
            "all" => Ok(RowsWanted::All),
            "active" => Ok(RowsWanted::Active),
            _ => Err(format!(
                "rows {word:?} are not known; remedy: say all or active"
            )),
        }
    }
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file or directory cannot be opened or made.
    #[error(
        "open {path:?} for rows; remedy: make its directory, and let the daemon's user write there"
    )]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file cannot be written: often a full disk. The rows are lost and counted.
    #[error("write rows to {path:?}; remedy: make room, or let less be kept")]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The Parquet file cannot be written. Its rows are lost and counted.
    #[error("write rows to {path:?}; remedy: make room, or let less be kept")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: ParquetError,
    },
}
