//! Writes rows per class and interval into files.
//!
//! The keys are `time` and those of [`IntervalRow`]. A reader never finds a partial line or a partial
//! Parquet file. Rows that cannot be written are counted and discarded.

mod columns;
mod journal;
mod json_lines;
mod parquet;
mod roll_up;

use std::io;
use std::path::PathBuf;

use ::parquet::errors::ParquetError;
use fairpath_history::IntervalRow;

pub use json_lines::JsonLines;
pub use parquet::{PARQUET_SCHEMA, ParquetOptions, ParquetWriter};

/// Selects the rows to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsWanted {
    /// One row for every class and interval.
    All,
    /// Rows of classes that sent, received, or were measured in the interval.
    #[default]
    Active,
}

impl RowsWanted {
    /// True if this row is selected.
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
                "unknown selection of rows {word:?}: write all or active"
            )),
        }
    }
}

/// Why rows cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file or directory cannot be opened or created.
    #[error(
        "open {path:?} for rows: create its directory, and allow the daemon's user to write there"
    )]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written, for example because the disk is full. The rows are lost and counted.
    #[error("write rows to {path:?}: check that its directory exists, and free disk space")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The Parquet file cannot be written. Its rows are lost and counted.
    #[error("write rows to {path:?}: check that its directory exists, and free disk space")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ParquetError,
    },
}
