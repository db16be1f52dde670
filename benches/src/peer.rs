//! The program that watches the router: Fairpath's release binary, or ePPing where `EPPING` names it.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, bail};
use fairpath_bpf::cost;
use fairpath_testbed::{Netns, Process};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::Value;

use crate::machine::field;

/// Names ePPing's binary.
const EPPING_ENV: &str = "EPPING";
const START_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// The program that watches the router.
#[derive(Clone, Debug)]
pub enum Watcher {
    /// `fairpath rtt` on these interfaces, with a table for the given number of flows.
    Fairpath {
        /// The binary.
        path: PathBuf,
        /// The watched interfaces.
        interfaces: &'static [&'static str],
        /// `--max-flows`.
        flows: u32,
    },
    /// ePPing on one interface, individual output that no program reads.
    Epping {
        /// The binary; its object file is next to it.
        path: PathBuf,
        /// The watched interface.
        interface: &'static str,
        /// Minimum time between two samples of a flow; 0: every TSval.
        every_ms: u32,
    },
}

/// ePPing, if `EPPING` names it.
///
/// # Errors
/// Where it names something that is no file.
pub fn epping() -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = env::var_os(EPPING_ENV).map(PathBuf::from) else {
        return Ok(None);
    };
    if !path.is_file() {
        bail!(
            "{EPPING_ENV}={}: no such file; give the path of ePPing's binary (pping), or unset it",
            path.display()
        );
    }
    Ok(Some(path.canonicalize()?))
}

/// A running watcher.
pub struct Watching {
    process: Process,
    fairpath: bool,
    /// Programs that were loaded before it.
    before: Vec<u32>,
}

/// The final report of a watcher; empty for ePPing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reported {
    /// Samples taken.
    pub samples: u64,
    /// Events that the ring had no place for.
    pub events_lost: u64,
    /// Other refusals: flows without a place, segments not remembered, locks.
    pub refused: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Of them, flow places in use.
    pub flows_used: u64,
    /// Resident memory of the process, tables it maps included.
    pub resident_bytes: u64,
}

impl Watcher {
    /// Starts it in the router's namespace on CPU `cpu`, and waits until it is attached.
    pub fn start(&self, router: &Netns, cpu: usize) -> anyhow::Result<Watching> {
        let before = cost::loaded().into_iter().map(|p| p.id).collect();
        // As the generator: what else runs here shall not make it late.
        let mut command = router.command_without_sysfs("chrt");
        command
            .args(["--fifo", "1", "taskset", "-c"])
            .arg(cpu.to_string());
        match self {
            Watcher::Fairpath {
                path,
                interfaces,
                flows,
            } => {
                command.arg(path).arg("rtt");
                for interface in *interfaces {
                    command.args(["-i", interface]);
                }
                command.args(["--quiet", "--format", "json", "--limit", "0", "--max-flows"]);
                command.arg(flows.to_string());
            }
            Watcher::Epping {
                path,
                interface,
                every_ms,
            } => {
                // It opens its object file in the current directory.
                let start = "cd \"$(dirname \"$0\")\" && exec \"$0\" \"$@\" > /dev/null";
                command.args(["sh", "-c", start]).arg(path);
                command.args(["-i", interface, "-I", "tc", "-r"]);
                command.arg(every_ms.to_string());
            }
        }
        let mut watching = Watching {
            process: router.spawn(command)?,
            fairpath: matches!(self, Watcher::Fairpath { .. }),
            before,
        };
        match self {
            Watcher::Fairpath { interfaces, .. } => {
                let last = format!("watching {}", interfaces[interfaces.len() - 1]);
                watching.process.wait_stderr(&last, START_DEADLINE)?;
            }
            Watcher::Epping { .. } => watching.wait_attached()?,
        }
        Ok(watching)
    }

    /// The number of its hooks that a packet passes.
    pub fn hooks(&self) -> u32 {
        match self {
            Watcher::Fairpath { interfaces, .. } => interfaces.len() as u32,
            Watcher::Epping { .. } => 1,
        }
    }
}

impl Watching {
    /// ePPing does not say when it is ready: a second after its programs are there.
    fn wait_attached(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_DEADLINE {
            if let Ok(status) = self.process.wait(Duration::ZERO) {
                bail!("ePPing ended at once ({status}): {}", self.process.stderr());
            }
            if self.programs().len() >= 2 {
                std::thread::sleep(Duration::from_secs(1));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("ePPing attached nothing: {}", self.process.stderr())
    }

    /// Programs that were loaded since it was started.
    pub fn programs(&self) -> Vec<cost::Loaded> {
        let mut all = cost::loaded();
        all.retain(|p| !self.before.contains(&p.id));
        all
    }

    /// Stops it and returns its report.
    pub fn stop(mut self) -> anyhow::Result<Reported> {
        let resident_bytes = resident(self.process.id())?;
        self.process.signal(Signal::SIGINT);
        if !self.fairpath {
            self.process.wait(STOP_DEADLINE)?;
            return Ok(Reported {
                resident_bytes,
                ..Reported::default()
            });
        }
        let output = self.process.finish(STOP_DEADLINE)?;
        let last = output.lines().last().unwrap_or_default();
        let summary: Value =
            serde_json::from_str(last).with_context(|| format!("read the summary {last:?}"))?;
        let number = |path: &str| summary.pointer(path).and_then(Value::as_u64);
        let reported =
            |path: &str| number(path).with_context(|| format!("no {path} in the summary"));
        let counter = |name: &str| number(&format!("/counters/{name}")).unwrap_or(0);
        Ok(Reported {
            samples: reported("/samples")?,
            events_lost: counter("events_lost"),
            refused: counter("flows_refused")
                + counter("segments_refused")
                + counter("lock_failures")
                + counter("scratch_busy"),
            table_bytes: reported("/tables/bytes")?,
            flows_used: reported("/tables/flows/used")?,
            resident_bytes,
        })
    }
}

/// Resident memory of a process, bytes.
pub fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .context("read the watcher's memory; did it end early?")?;
    let kib: u64 = field(&status, "VmRSS")
        .trim_end_matches(" kB")
        .parse()
        .context("read VmRSS")?;
    Ok(kib * 1024)
}
