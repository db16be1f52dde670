//! A policy author's file, compiled and read.

use std::path::{Path, PathBuf};

use fairpath_policy::{Author, Problem};

use super::{CompileError, Compiler};

/// A file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its object is no policy: everything that is wrong, a line each.
    #[error("read policy {0}: {1}")]
    Object(PathBuf, String),
}

/// Compiles and reads a file that runs in this process only.
///
/// # Errors
/// There is no clang; clang refuses the file; it is no policy.
pub fn read(file: &Path) -> Result<Author, ReadError> {
    parse(file, &Compiler::new()?.policy(file)?)
}

/// Reads an object of [`Compiler::policy`], which was made from `file`.
///
/// # Errors
/// It is no policy.
pub fn parse(file: &Path, object: &[u8]) -> Result<Author, ReadError> {
    Author::parse(object).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
        ReadError::Object(file.to_owned(), problems.join("\n"))
    })
}
