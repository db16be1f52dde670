//! Programs that accept every packet of queue 0: ours in three ways, and three peers, tuned alike.
//!
//! Each is a separate process, so its CPU time is separate: ours and the Rust crate `nfq` are this
//! program (`fairpath-bench answer`), the peer over the C library is compiled for the run, and so is the Go module's.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_nfqueue::{Config, Verdict, Wait};
use fairpath_testbed::{Netns, Process, QueueLibrary, QueueProgram, QueueSettings};
use serde::Serialize;

/// Packets that may wait.
const LENGTH: u32 = 4096;
/// Of the socket.
const BUFFER_BYTES: usize = 64 << 20;
/// Headers, and no more, for all of them.
const COPY_BYTES: u16 = 128;
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The peers', as ours.
const SETTINGS: QueueSettings = QueueSettings {
    number: 0,
    copy_bytes: COPY_BYTES,
    length: LENGTH,
    buffer_bytes: BUFFER_BYTES,
    gso: true,
};

/// The program that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Answerer {
    /// Ours, each packet decided at once, one verdict for a run of packets
    InOrder,
    /// Ours, as a scheduler does: packets held, single verdicts packed
    Packed,
    /// Ours, each verdict sent separately
    Single,
    /// The C library
    C,
    /// The Rust crate nfq
    Nfq,
    /// The Go module go-nfqueue
    Go,
}

impl Answerer {
    /// All of them.
    pub const ALL: [Answerer; 6] = [
        Answerer::InOrder,
        Answerer::Packed,
        Answerer::Single,
        Answerer::C,
        Answerer::Nfq,
        Answerer::Go,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Answerer::InOrder => "ours, in order (runs)",
            Answerer::Packed => "ours, holding (packed)",
            Answerer::Single => "ours, single verdicts",
            Answerer::C => "C, libnetfilter_queue",
            Answerer::Nfq => "Rust crate nfq 0.2",
            Answerer::Go => "Go, go-nfqueue 1.3",
        }
    }
}

/// `fairpath-bench answer`: what the bench starts.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    who: Answerer,
}

/// Answers without a time limit.
///
/// # Errors
/// Where the queue fails.
pub fn answer(args: &Args) -> anyhow::Result<()> {
    let config = Config::new(0)
        .copy_bytes(COPY_BYTES.into())
        .length(LENGTH)
        .receive_buffer_bytes(BUFFER_BYTES);
    match args.who {
        Answerer::InOrder => {
            let mut queue = config.bind_in_order()?;
            eprintln!("bound");
            loop {
                queue.answer(Wait::Forever, |_| Verdict::ACCEPT)?;
            }
        }
        Answerer::Packed | Answerer::Single => hold(&config, args.who == Answerer::Single),
        Answerer::Nfq => nfq(),
        Answerer::C | Answerer::Go => bail!("this peer is a separate program"),
    }
}

fn hold(config: &Config, single: bool) -> anyhow::Result<()> {
    let mut queue = config.bind()?;
    eprintln!("bound");
    let mut held = Vec::new();
    loop {
        held.extend(queue.receive(Wait::Forever)?.packets.map(|(_, held)| held));
        let mut verdicts = queue.release();
        for held in held.drain(..) {
            verdicts.give(held, Verdict::ACCEPT)?;
            if single {
                verdicts.flush()?;
            }
        }
    }
}

fn nfq() -> anyhow::Result<()> {
    let mut queue = nfq::Queue::open()?;
    // The one thing that it cannot be tuned in: it does not lend its socket, so its buffer stays small.
    queue.bind(0)?;
    queue.set_copy_range(0, COPY_BYTES)?;
    queue.set_recv_gso(0, true)?;
    queue.set_queue_max_len(0, LENGTH)?;
    eprintln!("bound");
    loop {
        let mut message = queue.recv()?;
        message.set_verdict(nfq::Verdict::Accept);
        queue.verdict(message)?;
    }
}

/// The peers' programs.
pub struct Answerers {
    c: QueueProgram,
    go: QueueProgram,
}

/// One that runs; ends on drop.
pub struct Answering {
    process: Process,
}

impl Answerers {
    /// Compiles the peers in C and Go.
    ///
    /// # Errors
    /// Where a compiler or a library is missing (`make bench` installs them).
    pub fn prepare() -> anyhow::Result<Answerers> {
        Ok(Answerers {
            c: QueueProgram::build(QueueLibrary::C)?,
            go: QueueProgram::build(QueueLibrary::Go)?,
        })
    }

    /// Starts one in `ns`, before other processes, on `cpu`.
    ///
    /// # Errors
    /// Where it cannot bind the queue.
    pub fn start(&self, who: Answerer, ns: &Netns, cpu: usize) -> anyhow::Result<Answering> {
        let mut command = ns.command_without_sysfs("chrt");
        command.args(["--fifo", "1", "taskset", "-c", &cpu.to_string()]);
        if who == Answerer::C {
            command.args(self.c.argv(&SETTINGS));
        } else if who == Answerer::Go {
            command.args(self.go.argv(&SETTINGS));
        } else {
            let ourselves: PathBuf = env::current_exe().context("find this program")?;
            let value = who.to_possible_value().context("name the answerer")?;
            command.arg(ourselves).args(["answer", value.get_name()]);
        }
        let process = ns.spawn(command)?;
        process.wait_stderr("bound", START_DEADLINE)?;
        Ok(Answering { process })
    }
}

impl Answering {
    /// CPU time so far, nanoseconds, of its threads.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn cpu_ns(&self) -> anyhow::Result<u64> {
        let tasks = format!("/proc/{}/task", self.process.id());
        let exited = || format!("read {tasks}: {}", self.process.stderr());
        let mut sum = 0;
        for task in fs::read_dir(&tasks).with_context(exited)? {
            let path = task.with_context(exited)?.path().join("schedstat");
            // A thread may end during this time; Go's do not.
            let text = fs::read_to_string(path).with_context(exited)?;
            let first = text.split(' ').next().context("read the CPU time")?;
            sum += first.parse::<u64>().context("read the CPU time")?;
        }
        Ok(sum)
    }
}
