//! Reads the object of a policy, and compiles and reads a policy file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fairpath_policy::{Author, OBJECT_BYTES, Problem};

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
    /// The object cannot be read, or another user can change it.
    #[error("read policy {0}")]
    File(PathBuf, #[source] io::Error),
}

/// Compiles and reads a file that runs only in this process.
///
/// # Errors
/// clang is missing, clang refuses the file, or it is not a valid policy.
pub fn read(file: &Path) -> Result<Author, ReadError> {
    parse(file, &Compiler::new()?.policy(file)?)
}

/// Reads an object that `fairpath sched build` wrote, and that no user but root and this user can change.
///
/// # Errors
/// [`ReadError::File`], [`ReadError::Object`].
pub fn read_object(file: &Path) -> Result<Author, ReadError> {
    let mut object = Vec::new();
    let limit = OBJECT_BYTES as u64 + 1;
    fairpath_files::trusted(file)
        .and_then(|open| open.take(limit).read_to_end(&mut object))
        .map_err(|error| ReadError::File(file.to_owned(), error))?;
    parse(file, &object)
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
