//! Programs over others' libraries that accept every packet of a netfilter queue, compiled here.
//!
//! Peers, for a comparison with our crate: one over the C library (libnetfilter_queue, libmnl),
//! one over the Go module go-nfqueue. Their sources are ours and travel in the binary; compilers and
//! libraries are the machine's, so a build can fail, and the error says what to install.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const C: &str = include_str!("queue_program/accept.c");
/// A module, whose dependencies are fetched as every Go module's are.
const GO: [(&str, &str); 3] = [
    ("main.go", include_str!("queue_program/go/main.go")),
    ("go.mod", include_str!("queue_program/go/go.mod")),
    ("go.sum", include_str!("queue_program/go/go.sum")),
];

/// The library that a program stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLibrary {
    /// libnetfilter_queue, in C.
    C,
    /// github.com/florianl/go-nfqueue.
    Go,
}

/// A program could not be built.
#[derive(Debug, thiserror::Error)]
pub enum QueueProgramError {
    /// Its directory or sources.
    #[error("write the queue program's sources")]
    Sources(#[source] io::Error),
    /// The compiler is not there.
    #[error(
        "build the queue program in {language}: start {compiler}; remedy: apt install {package}"
    )]
    Compiler {
        /// C or Go.
        language: &'static str,
        /// The compiler that could not be started.
        compiler: &'static str,
        /// The package that contains it.
        package: &'static str,
        /// Why it did not start.
        #[source]
        source: io::Error,
    },
    /// The compiler refused.
    #[error("build the queue program in {language}: {output}; remedy: {remedy}")]
    Refused {
        /// C or Go.
        language: &'static str,
        /// The compiler's own words.
        output: String,
        /// The probable remedy.
        remedy: &'static str,
    },
}

/// The socket settings of a program, the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The queue.
    pub number: u16,
    /// Of each packet.
    pub copy_bytes: u16,
    /// Packets that may wait.
    pub length: u32,
    /// Receive buffer of the socket.
    pub buffer_bytes: usize,
    /// True if GSO packets are not segmented (`NFQA_CFG_F_GSO`).
    pub gso: bool,
}

impl QueueSettings {
    /// As the programs take them on their command line.
    pub fn arguments(&self) -> [String; 5] {
        [
            self.number.to_string(),
            self.copy_bytes.to_string(),
            self.length.to_string(),
            self.buffer_bytes.to_string(),
            u8::from(self.gso).to_string(),
        ]
    }
}

/// A compiled program; its directory goes with the value.
#[derive(Debug)]
pub struct QueueProgram {
    directory: TempDir,
}

impl QueueProgram {
    /// Compiles the program over `library`: a second for C, up to a minute for Go the first time.
    ///
    /// # Errors
    /// Where a compiler or a library is missing, or a module cannot be fetched.
    pub fn build(library: QueueLibrary) -> Result<QueueProgram, QueueProgramError> {
        QueueProgram::build_in(library, &std::env::temp_dir())
    }

    /// The same, in a directory below `place`, where leftovers of a killed caller do not conflict.
    ///
    /// # Errors
    /// As [`QueueProgram::build`].
    pub fn build_in(
        library: QueueLibrary,
        place: &Path,
    ) -> Result<QueueProgram, QueueProgramError> {
        let directory = tempfile::tempdir_in(place).map_err(QueueProgramError::Sources)?;
        match library {
            QueueLibrary::C => build_c(directory.path())?,
            QueueLibrary::Go => build_go(directory.path())?,
        }
        Ok(QueueProgram { directory })
    }

    /// The program.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("accept")
    }

    /// Program and arguments; it says "bound" on stderr when it answers.
    pub fn argv(&self, settings: &QueueSettings) -> Vec<OsString> {
        let arguments = settings.arguments().into_iter().map(OsString::from);
        std::iter::once(self.path().into_os_string())
            .chain(arguments)
            .collect()
    }
}

fn build_c(directory: &Path) -> Result<(), QueueProgramError> {
    let source = directory.join("accept.c");
    fs::write(&source, C).map_err(QueueProgramError::Sources)?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-o"]).arg(directory.join("accept"));
    command.arg(&source).args(["-lnetfilter_queue", "-lmnl"]);
    compile(
        command,
        directory,
        "C",
        ["cc", "gcc"],
        "apt install libnetfilter-queue-dev libmnl-dev",
    )
}

fn build_go(directory: &Path) -> Result<(), QueueProgramError> {
    for (name, text) in GO {
        fs::write(directory.join(name), text).map_err(QueueProgramError::Sources)?;
    }
    let mut command = Command::new("go");
    command
        .args(["build", "-o", "accept", "."])
        .current_dir(directory);
    compile(
        command,
        directory,
        "Go",
        ["go", "golang-go"],
        "allow go to reach a module proxy (GOPROXY)",
    )
}

/// Runs a compiler, whose own files are below `directory`: its name and the package that has it; `remedy` where
/// it refuses.
fn compile(
    mut command: Command,
    directory: &Path,
    language: &'static str,
    [compiler, package]: [&'static str; 2],
    remedy: &'static str,
) -> Result<(), QueueProgramError> {
    // Not `directory` itself: Go takes no module from the root of temporary files.
    let temporary = directory.join("tmp");
    fs::create_dir(&temporary).map_err(QueueProgramError::Sources)?;
    let output = command
        .env("TMPDIR", &temporary)
        .output()
        .map_err(|source| QueueProgramError::Compiler {
            language,
            compiler,
            package,
            source,
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(QueueProgramError::Refused {
        language,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        remedy,
    })
}
