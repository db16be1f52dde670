//! Custom policies in the kernel: compilation and verification.
//!
//! The binary includes the headers and the scheduler's program. A [`Compiler`] writes them into a
//! temporary directory and runs clang there, once for each of three objects:
//!
//! | object | what | for |
//! |---|---|---|
//! | [`Compiler::policy`] | the policy file, BPF version 3 | the native runtime interprets it |
//! | [`Compiler::trial`] | the file, and a program that calls each function | the verifier ([`verify`]) |
//! | [`Compiler::scheduler`] | the whole scheduler, linked with the first | the kernel runtime |
//!
//! In the first object, clang calls a trap (by name) before each division and each shift that it
//! cannot prove safe at -O2. The reader of the object refuses it by that name, with the line. Uses
//! of div() and shl() are safe. Signed overflow wraps everywhere (-fwrapv), and an endless loop
//! remains (-fno-finite-loops), to be refused. Deliberately absent: running the policy, which the
//! runtimes of the scheduler do.

mod read;
mod sums;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use libbpf_rs::Linker;

pub use read::{ReadError, parse, read, read_object};
pub use verdict::{Refusal, Verdict, VerifyError, refusal, verify};

/// Path below bpf/ and text of all files that programs and policies include.
const SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// The C file of a built-in policy with the headers next to it, in one text. `None`: there is no such policy.
pub fn built_in(name: &str) -> Option<String> {
    let source = |file: &str| {
        let path = format!("policy/{file}");
        let found = SOURCES.iter().find(|(known, _)| *known == path);
        found.map(|(_, text)| *text)
    };
    let header = |line: &str| {
        let name = line.strip_prefix("#include \"")?.strip_suffix('"')?;
        // Its licence is that of the file.
        Some(source(name)?.split_once('\n')?.1)
    };
    let text = source(&format!("{name}.c"))?;
    let lines = text.lines().map(|line| match header(line) {
        Some(header) => header.to_owned(),
        None => format!("{line}\n"),
    });
    Some(lines.collect())
}

/// The oldest supported clang.
const CLANG: u32 = 19;

/// A policy file could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// Only custom policies need it.
    #[error(
        "run {0}: {1}; custom policies need clang {CLANG} or newer: \
         run `apt-get install clang-{CLANG}`, or set CLANG to another compiler"
    )]
    NoClang(String, io::Error),
    /// Too old, or not clang.
    #[error(
        "use {0}: found {1}, but custom policies need clang {CLANG} or newer: run `apt-get install clang-{CLANG}`, or set CLANG to another compiler"
    )]
    TooOld(String, String),
    /// The file has errors.
    #[error("compile {0}:\n{1}")]
    Errors(PathBuf, String),
    /// The file cannot be read.
    #[error("read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// Its name cannot be written into a line of C.
    #[error("compile {0}: its path has a quote, a backslash or a control character; rename it")]
    Path(PathBuf),
    /// Policy and scheduler cannot be linked.
    #[error("link the policy with the scheduler: {0}")]
    Link(libbpf_rs::Error),
    /// The directory of headers.
    #[error(
        "write the headers for clang: {0}; check the space of the temporary directory (TMPDIR)"
    )]
    Write(#[from] io::Error),
}

/// Compiles custom policies in a temporary directory, which is removed on drop.
#[derive(Debug)]
pub struct Compiler {
    clang: OsString,
    dir: tempfile::TempDir,
}

impl Compiler {
    /// Finds clang and writes the headers. `CLANG` names another one than clang-19.
    ///
    /// # Errors
    /// [`CompileError::NoClang`], [`CompileError::TooOld`], [`CompileError::Write`].
    pub fn new() -> Result<Compiler, CompileError> {
        let clang = std::env::var_os("CLANG").unwrap_or_else(|| format!("clang-{CLANG}").into());
        Compiler::with_clang(Path::new(&clang))
    }

    /// The same with the given clang.
    ///
    /// # Errors
    /// As [`Compiler::new`].
    pub fn with_clang(clang: &Path) -> Result<Compiler, CompileError> {
        check_version(clang.as_os_str())?;
        let dir = tempfile::Builder::new()
            .prefix("fairpath-policy-")
            .tempdir()?;
        for (path, text) in SOURCES {
            let file = dir.path().join("bpf").join(path);
            fs::create_dir_all(file.parent().unwrap_or(dir.path()))?;
            fs::write(file, text)?;
        }
        let include = dir.path().join("bpf/include/fairpath");
        std::os::unix::fs::symlink("../../core", include.join("core"))?;
        let clang = clang.into();
        Ok(Compiler { clang, dir })
    }

    /// The policy file only, as `fairpath_policy` reads it. The actual sizes of its state are in a
    /// separate section, to compare them with its POLICY block.
    ///
    /// # Errors
    /// The messages of clang.
    pub fn policy(&self, file: &Path) -> Result<Vec<u8>, CompileError> {
        const GUARDS: [&str; 4] = [
            "-Xclang",
            "-fsanitize=integer-divide-by-zero,shift-exponent",
            "-Xclang",
            "-fsanitize-minimal-runtime",
        ];
        const SIZES: &str = "__attribute__((section(\".fairpath.sizes\"), used))\n\
             const u32 fp_author_sizes[3] = {\n\
             \tsizeof(struct flow), sizeof(struct class), sizeof(struct global)};\n";
        self.compile(file, "policy", SIZES, &GUARDS)
    }

    /// The file and a program that calls each of its functions, which `has` lists.
    ///
    /// # Errors
    /// The messages of clang.
    pub fn trial(&self, file: &Path, has: u32) -> Result<Vec<u8>, CompileError> {
        self.compile(file, "trial", TRIAL, &[&format!("-DFP_HAS={has}")])
    }

    /// The whole scheduler with a policy in it, linked from an object of [`Compiler::policy`], so
    /// that the kernel gets the instructions that the native runtime interprets. `has` is as in
    /// [`Compiler::trial`].
    ///
    /// # Errors
    /// [`CompileError::Link`], or the messages of clang for the scheduler.
    pub fn scheduler(&self, policy: &[u8], has: u32) -> Result<Vec<u8>, CompileError> {
        let letters = ["E", "D", "T", "P"];
        let letter = |n: usize| if has >> n & 1 == 1 { letters[n] } else { "N" };
        let has = [0, 1, 2, 3].map(letter).join(", ");
        let machine = match std::env::consts::ARCH {
            "x86_64" => "x86",
            "aarch64" => "arm64",
            _ => "other",
        };
        fs::write(self.dir.path().join("declared.h"), DECLARED)?;
        let defines = [
            format!(
                "-DFP_CUSTOM_FILE=\"{}/declared.h\"",
                self.dir.path().display()
            ),
            format!("-DFP_CUSTOM_HAS={has}"),
            format!("-D__TARGET_ARCH_{machine}"),
            "-mcpu=v4".to_owned(),
        ];
        let defines: Vec<_> = defines.iter().map(String::as_str).collect();
        let source = self.dir.path().join("bpf/prog/sched.bpf.c");
        let scheduler = self.clang(&source, &source, &defines)?;
        let linked = self.dir.path().join("linked.o");
        link(&[policy, &scheduler], &linked).map_err(CompileError::Link)?;
        Ok(fs::read(linked)?)
    }

    /// Compiles a file that includes the policy, followed by `rest`.
    fn compile(
        &self,
        file: &Path,
        name: &str,
        rest: &str,
        arguments: &[&str],
    ) -> Result<Vec<u8>, CompileError> {
        let source = self.dir.path().join(format!("{name}.c"));
        let text = format!(
            "#include <fairpath/policy.h>\n#include \"{}\"\n{rest}",
            absolute(file)?.display()
        );
        fs::write(&source, text)?;
        self.clang(file, &source, &[&["-mcpu=v3"], arguments].concat())
    }

    fn clang(
        &self,
        file: &Path,
        source: &Path,
        arguments: &[&str],
    ) -> Result<Vec<u8>, CompileError> {
        let object = source.with_extension("o");
        let include = |dir: &str| format!("-I{}", self.dir.path().join(dir).display());
        let output = Command::new(&self.clang)
            .args([
                "-target",
                "bpf",
                "-O2",
                "-g",
                "-fwrapv",
                "-fno-strict-aliasing",
                "-fno-finite-loops",
                "-c",
            ])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args(["-fno-color-diagnostics", "-fno-caret-diagnostics"])
            .arg(include("bpf/include"))
            .arg(include("bpf"))
            .args(arguments)
            .arg(source)
            .arg("-o")
            .arg(&object)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| CompileError::NoClang(self.clang_name(), error))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr);
            return Err(CompileError::Errors(
                file.to_owned(),
                self.diagnostics(&output),
            ));
        }
        Ok(fs::read(object)?)
    }

    fn clang_name(&self) -> String {
        self.clang.to_string_lossy().into_owned()
    }

    /// The messages of clang without the path of the temporary directory.
    fn diagnostics(&self, output: &str) -> String {
        /// A policy with more errors than this is not worth a longer list.
        const LINES: usize = 40;
        let dir = format!("{}/", self.dir.path().display());
        let ours = |line: &&str| line.starts_with("In file included from") && line.contains(&dir);
        let of_macros = |line: &&str| {
            line.contains("note: expanded from") || line.contains("note: forward declaration")
        };
        let lines = output
            .lines()
            .filter(|line| !ours(line) && !of_macros(line));
        let lines = lines.take(LINES);
        let lines = lines.map(|line| {
            let line = line.replace(&dir, "");
            // clang for BPF has no floating point, and reports it in its own words.
            if line.contains("A call to built-in function '__") && is_float(&line) {
                return line + ": floating point; a policy counts in integers";
            }
            match missing_structure(&line) {
                Some(name) => format!(
                    "error: struct {name} is missing; define it, empty if it stores nothing (`fairpath sched new` shows how)"
                ),
                None => line,
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Source lines of the calls to clang's trap in its intermediate code: "call ... !dbg !7" names
/// "!7 = !DILocation(line: 12, ...".
fn trapped_lines(code: &str) -> BTreeSet<usize> {
    let places: BTreeMap<&str, usize> = code
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" = !DILocation(line: ")?;
            Some((name, rest.split(',').next()?.parse().ok()?))
        })
        .collect();
    let calls = code
        .lines()
        .filter(|line| line.contains("call void @__ubsan_handle_implicit_conversion"));
    let names = calls.filter_map(|line| line.split_once("!dbg ")?.1.split([',', ' ']).next());
    names.filter_map(|name| places.get(name).copied()).collect()
}

/// The missing structure of state, if that is the message of clang.
fn missing_structure(line: &str) -> Option<&'static str> {
    let names = ["flow", "class", "global"];
    let is_of = |name: &&str| line.contains(&format!("incomplete type 'struct custom_{name}'"));
    names.into_iter().find(is_of)
}

/// A call of clang's floating-point routines: types sf and df in their names.
fn is_float(line: &str) -> bool {
    line.contains("df") || line.contains("sf")
}

/// Major number and version in "Debian clang version 19.1.7 (3~deb12u1)".
fn version(text: &str) -> Option<(u32, &str)> {
    let (_, rest) = text.split_once("clang version ")?;
    let version = rest.split_whitespace().next()?;
    Some((version.split('.').next()?.parse().ok()?, version))
}

fn check_version(clang: &OsStr) -> Result<(), CompileError> {
    let name = clang.to_string_lossy().into_owned();
    let output = Command::new(clang)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| CompileError::NoClang(name.clone(), error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match version(&text) {
        Some((major, _)) if major >= CLANG => Ok(()),
        Some((_, version)) => Err(CompileError::TooOld(name, format!("clang {version}"))),
        None => Err(CompileError::TooOld(
            name,
            "another program than clang".to_owned(),
        )),
    }
}

fn link(objects: &[&[u8]], into: &Path) -> Result<(), libbpf_rs::Error> {
    let mut linker = Linker::new(into)?;
    for object in objects {
        linker.add_buf(object)?;
    }
    linker.link()
}

/// The file's path from the root, if it can stand in an #include.
fn absolute(file: &Path) -> Result<PathBuf, CompileError> {
    let read = |error| CompileError::Read(file.to_owned(), error);
    let path = fs::canonicalize(file).map_err(read)?;
    if path.is_dir() {
        return Err(read(io::ErrorKind::IsADirectory.into()));
    }
    let text = path.to_str().unwrap_or("\"");
    if text.contains(|c: char| c == '"' || c == '\\' || c.is_control()) {
        return Err(CompileError::Path(file.to_owned()));
    }
    Ok(path)
}

/// The scheduler's declaration of the policy's functions, which are linked to it.
const DECLARED: &str = "struct flow;\nstruct class;\nstruct global;\n\
     u64 FP_OWN(rank_enqueue)(FP_POLICY_ARGS);\nu64 FP_OWN(rank_dequeue)(FP_POLICY_ARGS);\n\
     u64 FP_OWN(send_time)(FP_POLICY_ARGS);\nu64 FP_OWN(on_drop)(FP_POLICY_ARGS);\n";

/// Calls each function of the policy, with scratch as in the scheduler.
const TRIAL: &str = r#"
char LICENSE[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
static struct {
	struct fp_meta packet;
	u64 flow[FP_STATE_WORDS];
	u64 class[FP_PARAMS + FP_STATE_WORDS];
	u64 global[FP_STATE_WORDS];
	struct fp_call call;
} scratch __attribute__((unused));
#define SCRATCH &scratch.packet, (void *)scratch.flow, (void *)scratch.class, (void *)scratch.global, &scratch.call
__attribute__((section("syscall"), used)) int fairpath_check(void *context)
{
	u64 sum = 0;

#if FP_HAS & 1
	sum += FP_OWN(rank_enqueue)(SCRATCH);
#endif
#if FP_HAS & 2
	sum += FP_OWN(rank_dequeue)(SCRATCH);
#endif
#if FP_HAS & 4
	sum += FP_OWN(send_time)(SCRATCH);
#endif
#if FP_HAS & 8
	sum += FP_OWN(on_drop)(SCRATCH);
#endif
	return sum & 1;
}
"#;
