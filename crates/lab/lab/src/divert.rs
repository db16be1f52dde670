//! Packets on their way through a router, diverted to a program that accepts them all.
//!
//! ```text
//! client ── lan [router: -j NFQUEUE ─► program ─► verdict "accept"] wan ── server
//! ```
//!
//! Measures the cost of user space by the library of the program: the C library, a Go module, or our own
//! crate (this binary, `fairpath-lab accept`). Each with GSO packets or segments. One verdict per packet,
//! except ours, which batches them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use fairpath_nfqueue::{BindError, Config, QueueError, Verdict, Wait};
use fairpath_testbed::{
    Netns, Process, QueueLibrary, QueueProgram, QueueProgramError, QueueSettings, RunError,
};

/// Packets that may wait, for all programs.
const LENGTH: u32 = 4096;
/// Of the socket: capacity for `LENGTH` GSO packets.
const BUFFER_BYTES: usize = 64 << 20;
/// Headers, and no more.
const COPY_BYTES: u16 = 128;
/// A program says that it is ready within this time, on a busy machine too.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The line that a program prints to stderr when packets may come.
const READY: &str = "bound";

/// A program could not receive the packets.
#[derive(Debug, thiserror::Error)]
pub enum DivertError {
    /// No such program.
    #[error("divert through {0:?}: unknown program: write none, c, go or fairpath")]
    Unknown(String),
    /// It could not be compiled.
    #[error(transparent)]
    Build(#[from] QueueProgramError),
    /// It, or iptables, did not run.
    #[error("divert packets to a queue")]
    Run(#[from] RunError),
}

/// The program that accepts the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// None: packets are not diverted.
    None,
    /// A program over libnetfilter_queue, in C.
    C,
    /// A program over go-nfqueue, in Go.
    Go,
    /// Ours.
    Fairpath,
}

impl FromStr for Program {
    type Err = DivertError;

    fn from_str(text: &str) -> Result<Program, DivertError> {
        Ok(match text {
            "none" => Program::None,
            "c" => Program::C,
            "go" => Program::Go,
            "fairpath" => Program::Fairpath,
            _ => return Err(DivertError::Unknown(text.to_owned())),
        })
    }
}

/// The socket settings of a program; `gso`: GSO packets are not segmented.
pub fn settings(gso: bool) -> QueueSettings {
    QueueSettings {
        number: 0,
        copy_bytes: COPY_BYTES,
        length: LENGTH,
        buffer_bytes: BUFFER_BYTES,
        gso,
    }
}

/// Programs that were compiled, each once.
#[derive(Debug)]
pub struct Programs {
    ourselves: PathBuf,
    place: PathBuf,
    c: Option<QueueProgram>,
    go: Option<QueueProgram>,
}

impl Programs {
    /// `ourselves`: the binary whose subcommand `accept` is [`accept`]; others are compiled below `place`.
    pub fn new(ourselves: PathBuf, place: PathBuf) -> Programs {
        Programs {
            ourselves,
            place,
            c: None,
            go: None,
        }
    }

    /// Program and arguments; compiles the program at its first use (Go: up to a minute).
    fn argv(&mut self, program: Program, gso: bool) -> Result<Vec<String>, DivertError> {
        let settings = settings(gso);
        let built = match program {
            Program::C => kept(&mut self.c, QueueLibrary::C, &self.place)?,
            Program::Go => kept(&mut self.go, QueueLibrary::Go, &self.place)?,
            Program::Fairpath | Program::None => {
                let ourselves = self.ourselves.to_string_lossy().into_owned();
                let accept = [ourselves, "accept".into()];
                return Ok(accept.into_iter().chain(settings.arguments()).collect());
            }
        };
        let argv = built.argv(&settings).into_iter();
        Ok(argv
            .map(|word| word.to_string_lossy().into_owned())
            .collect())
    }

    /// Puts `program` into the way of what `router` forwards; `None` where there is to be none.
    ///
    /// Costs a second, and the compilation where the program is used for the first time.
    ///
    /// # Errors
    /// Where a compiler, iptables or the kernel's queue is missing.
    pub fn divert<'a>(
        &mut self,
        router: &'a Netns,
        program: Program,
        gso: bool,
    ) -> Result<Option<Diverted<'a>>, DivertError> {
        if program == Program::None {
            return Ok(None);
        }
        let argv = self.argv(program, gso)?;
        let mut command = router.command_without_sysfs(&argv[0]);
        command.args(&argv[1..]);
        let process = router.spawn(command)?;
        process.wait_stderr(READY, START_DEADLINE)?;
        let diverted = Diverted {
            router,
            process,
            argv,
        };
        router.run(&rule("-A"))?;
        Ok(Some(diverted))
    }
}

fn kept<'a>(
    slot: &'a mut Option<QueueProgram>,
    library: QueueLibrary,
    place: &Path,
) -> Result<&'a QueueProgram, QueueProgramError> {
    match slot {
        Some(program) => Ok(program),
        None => Ok(slot.insert(QueueProgram::build_in(library, place)?)),
    }
}

/// The rule that diverts, to be added ("-A") or taken away ("-D").
fn rule(action: &str) -> [&str; 8] {
    [
        "iptables",
        "-w",
        action,
        "FORWARD",
        "-j",
        "NFQUEUE",
        "--queue-num",
        "0",
    ]
}

/// A program that receives the packets. On drop the rule is removed first, so that no packet waits without a reader.
#[derive(Debug)]
pub struct Diverted<'a> {
    router: &'a Netns,
    process: Process,
    argv: Vec<String>,
}

impl Diverted<'_> {
    /// Its process, for its processor time.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The command line.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }
}

impl Drop for Diverted<'_> {
    fn drop(&mut self) {
        // It may be gone already with the namespace; the process ends in any case.
        let _ = self.router.run(&rule("-D"));
    }
}

/// Our queue failed.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// It could not be bound.
    #[error("accept packets of queue {0}: bind it")]
    Bind(u16, #[source] BindError),
    /// It ended.
    #[error("accept packets of queue {0}")]
    Queue(u16, #[source] QueueError),
}

/// `fairpath-lab accept`: accepts every packet of a queue until it is ended. Says "bound" first.
///
/// # Errors
/// Where the queue cannot be bound (its number is taken; needs CAP_NET_ADMIN), or fails.
pub fn accept(settings: &QueueSettings) -> Result<(), AcceptError> {
    let number = settings.number;
    let mut queue = Config::new(number)
        .copy_bytes(settings.copy_bytes.into())
        .length(settings.length)
        .receive_buffer_bytes(settings.buffer_bytes)
        .gso(settings.gso)
        .bind_in_order()
        .map_err(|error| AcceptError::Bind(number, error))?;
    fairpath_cli::print_stderr(format_args!("{READY}\n"));
    loop {
        queue
            .answer(Wait::Forever, |_| Verdict::ACCEPT)
            .map_err(|error| AcceptError::Queue(number, error))?;
    }
}
