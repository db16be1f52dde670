//! An author's file that `[shape] policy` names.

use std::path::Path;

use anyhow::Context;
use fairpath_bpf::author::Compiler;
use fairpath_sched::author::Author;

/// Compiles and reads a file that runs in this process only.
///
/// # Errors
/// There is no clang; what clang says of the file, with its lines; it is no policy.
pub fn read(file: &Path) -> anyhow::Result<Author> {
    let object = Compiler::new()?.policy(file)?;
    let author = Author::parse(&object).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", problems.join("\n"))
    });
    author.with_context(|| format!("read policy {}", file.display()))
}
