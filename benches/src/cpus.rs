//! Which CPU, before whom, and how much of it.
//!
//! CPU time comes from the scheduler's own clock and from the time that CPUs were idle, which a kernel
//! with `NO_HZ` takes at every change. The ticks that it counts as busy are samples, and miss what a
//! timer wakes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Pins the calling thread to one CPU; another program uses the other.
///
/// # Errors
/// There is one CPU only, or the kernel refuses.
pub fn settle(cpu: usize) -> anyhow::Result<()> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("stay on CPU {cpu}: the ends of a connection and what is measured need a CPU each");
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus).with_context(|| format!("stay on CPU {cpu}"))
}

/// While it lives, this session goes before the others (`CONFIG_SCHED_AUTOGROUP`; without, nothing).
pub struct Ahead;

impl Ahead {
    const FILE: &str = "/proc/self/autogroup";

    /// From now on.
    pub fn of_others() -> Ahead {
        // A kernel without such groups has a larger spread.
        let _ = fs::write(Ahead::FILE, "-20");
        Ahead
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let _ = fs::write(Ahead::FILE, "0");
    }
}

/// The work of all CPUs since a moment.
pub struct Busy {
    since: Instant,
    unused: f64,
}

impl Busy {
    /// Begins.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn start() -> anyhow::Result<Busy> {
        Ok(Busy {
            unused: unused_seconds()?,
            since: Instant::now(),
        })
    }

    /// Seconds gone by, and CPU seconds of all CPUs in them: not idle, and not stolen by the host.
    ///
    /// # Errors
    /// As [`Busy::start`].
    pub fn so_far(&self) -> anyhow::Result<(f64, f64)> {
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.unwrap_or(1) as f64;
        let wall = self.since.elapsed().as_secs_f64();
        let unused = unused_seconds()? - self.unused;
        Ok((wall, (cpus * wall - unused).max(0.0)))
    }
}

/// Idle, waiting for a disk, and stolen: proc_stat(5), the line of all CPUs.
fn unused_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [_, _, _, idle, iowait, _, _, steal, ..] = fields[..] else {
        bail!("read /proc/stat: its first line has no eight numbers");
    };
    let ticks = sysconf(SysconfVar::CLK_TCK)?.context("read the ticks of the clock")?;
    Ok((idle + iowait + steal) / ticks as f64)
}

/// CPU time of a process's living threads so far.
///
/// # Errors
/// It has ended.
pub fn process_time(pid: u32) -> anyhow::Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut sum = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("read {tasks}; did it end early?"))? {
        // The thread may have ended since.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let first = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        sum += first.with_context(|| format!("read the CPU times in {tasks}"))?;
    }
    Ok(Duration::from_nanos(sum))
}
