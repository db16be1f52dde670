//! Positions in files, and the errors that name them.

use std::fmt;

/// A position: line and column, both from 1; column 0 means the whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Byte offset in the line, from 1; 0 is the whole line.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.column {
            0 => write!(f, "{}", self.line),
            column => write!(f, "{}:{column}", self.line),
        }
    }
}

/// A problem of a file that prevents reading it: object, problem and remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{place}: {text}")]
pub struct ReadError {
    /// Name of the file, as the user wrote it.
    pub file: String,
    /// Position of the problem.
    pub place: Place,
    /// Object, problem and remedy.
    pub text: String,
}

/// A problem of a part of a line, without the file: `column` is a byte offset from 1, 0 unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Byte offset in the line, from 1; 0 is the whole line.
    pub column: u32,
    /// Object, problem and remedy.
    pub text: String,
}

impl LineError {
    /// A problem at `column`.
    pub fn new(column: u32, text: impl Into<String>) -> Self {
        Self {
            column,
            text: text.into(),
        }
    }
}
