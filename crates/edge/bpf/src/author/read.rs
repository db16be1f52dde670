//! Compiles and reads a policy file.

use std::path::{Path, PathBuf};

use fairpath_policy::{Author, Problem};

use super::{CompileError, Compiler};

/// A file is not a valid policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its object is not a valid policy: one line for each problem.
    #[error("read policy {0}: {1}")]
    Object(PathBuf, String),
}

/// Compiles and reads a file that runs only in this process.
///
/// # Errors
/// clang is missing, clang refuses the file, or it is not a valid policy.
pub fn read(file: &Path) -> Result<Author, ReadError> {
    parse(file, &Compiler::new()?.policy(file)?)
}

/// Reads an object of [`Compiler::policy`], compiled from `file`.
///
/// # Errors
/// It is not a valid policy.
pub fn parse(file: &Path, object: &[u8]) -> Result<Author, ReadError> {
    Author::parse(object).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
        ReadError::Object(file.to_owned(), problems.join("\n"))
    })
}
