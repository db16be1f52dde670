//! The path of a custom policy: compiled by clang, read, checked by the verifier, and run natively as in
//! the kernel and in C.

mod instructions;
mod policies;
mod refusals;

#[allow(dead_code)] // made for more than these tests
#[path = "../../../../model/policy/tests/author/object.rs"]
mod object;

use std::fs;
use std::path::{Path, PathBuf};

use fairpath_bpf::author::{CompileError, Compiler};
use fairpath_policy::Author;

/// The shipped policies' files.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bpf/policy");
    let files = fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|name| name == "c"));
    files.sort();
    files
}

/// The first line of all files of these tests.
const BEGIN: &str = "#include <fairpath/policy.h>\n";
/// State and a block that nothing is wrong with.
const PLAIN: &str = "struct flow { u64 value; };\n\
    struct class { PARAMS; u64 value; };\n\
    struct global { u64 value; };\n\
    POLICY{ STATE, .name = \"mine\", .about = \"a test\", .source = \"a test\",\n\
    .over = PACKETS, .usual = FP_OVER_PACKETS };\n";

/// A file in a separate directory.
struct Written {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

fn write(text: &str) -> Written {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("mine.c");
    fs::write(&file, text).expect("written");
    Written { _dir: dir, file }
}

/// Compiles a policy of this body; what is wrong with it, if anything.
fn compile(body: &str) -> Result<Author, String> {
    let written = write(&format!("{BEGIN}{PLAIN}{body}"));
    read(&written.file)
}

fn read(file: &Path) -> Result<Author, String> {
    let compiler = Compiler::new().expect("this crate was built with clang");
    let object = compiler.policy(file).map_err(|error| match error {
        CompileError::Errors(_, output) => output,
        other => panic!("{other}"),
    })?;
    Author::parse(&object).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })
}
