//! The header of every table: machine, kernel, commit, date, load.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::Context;
use serde::Serialize;

/// Where and when the numbers were made.
#[derive(Debug, Serialize)]
pub struct Machine {
    cpu: String,
    cpus: usize,
    memory_mib: u64,
    kernel: String,
    commit: String,
    date: String,
    load_at_start: String,
    command: String,
}

impl Machine {
    /// Looks around.
    ///
    /// # Errors
    /// Where `/proc` cannot be read.
    pub fn look() -> anyhow::Result<Machine> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
        let meminfo = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
        let load = fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read osrelease")?;
        Ok(Machine {
            cpu: field(&cpuinfo, "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field(&meminfo, "MemTotal")
                .trim_end_matches(" kB")
                .parse()
                .map_or(0, |kib: u64| kib / 1024),
            kernel: kernel.trim().to_owned(),
            commit: commit(),
            date: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
            load_at_start: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "fairpath-bench {}\n  {}, {} CPUs, {} MiB; Linux {}\n  commit {}, {}, load {}",
            self.command,
            self.cpu,
            self.cpus,
            self.memory_mib,
            self.kernel,
            self.commit,
            self.date,
            self.load_at_start
        );
        out
    }
}

/// The value behind `name ... :` in a file of /proc.
pub fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or("?", |(_, value)| value.trim()).to_owned()
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
        Some("") | None => commit,
        Some(_) => commit + " and changes",
    }
}
