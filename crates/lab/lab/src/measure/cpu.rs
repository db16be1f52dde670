//! Processor time by part, what the host took, and which parts may run where the traffic does.
//!
//! Processes are read thread by thread (`/proc/PID/task/*/schedstat`, ns), because `/proc/PID/stat` counts ticks of
//! 10 ms. A process must exist at both readings. iperf3, which ends earlier, reports its share
//! ([`super::traffic::Transfer::cpu`]), and our threads report theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use fairpath_analysis::record::CpuRecord;

/// Ticks of /proc/stat a second, a constant of the kernel's interface (USER_HZ).
const TICKS_A_SECOND: f64 = 100.0;

/// The role of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends or receives the traffic under test.
    Traffic,
    /// Everything else: emulation, measurement.
    OtherLoad,
}

/// A process whose time is read.
#[derive(Debug)]
struct Part {
    name: String,
    pid: u32,
    role: Role,
    before: Option<Spent>,
    cpus: BTreeSet<usize>,
}

/// Readings between a beginning and an end.
#[derive(Debug)]
pub struct CpuMeter {
    began: Instant,
    before: Total,
    parts: Vec<Part>,
}

impl CpuMeter {
    /// Begins now.
    pub fn start() -> CpuMeter {
        CpuMeter {
            began: Instant::now(),
            before: total(),
            parts: Vec::new(),
        }
    }

    /// Counts this process from now on. One that is not there has no share.
    pub fn watch(&mut self, name: &str, pid: u32, role: Role) {
        self.parts.push(Part {
            name: name.to_owned(),
            pid,
            role,
            before: spent(pid),
            cpus: allowed(pid),
        });
    }

    /// True if it counts this process.
    pub fn watches(&self, pid: u32) -> bool {
        self.parts.iter().any(|part| part.pid == pid)
    }

    /// Ends now, while the processes are still there.
    ///
    /// `reported` are parts with a known share, in cores. A part that can no longer be read is excluded.
    pub fn finish(&self, reported: impl IntoIterator<Item = (String, f64)>) -> CpuRecord {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let now = total();
        let cores = |ticks: u64| ticks as f64 / TICKS_A_SECOND / seconds;
        let mut parts: BTreeMap<String, f64> = BTreeMap::new();
        let mut waited: BTreeMap<String, f64> = BTreeMap::new();
        for part in &self.parts {
            if let (Some(before), Some(after)) = (part.before, spent(part.pid)) {
                let share =
                    |after: Duration, before| after.saturating_sub(before).as_secs_f64() / seconds;
                *parts.entry(part.name.clone()).or_default() += share(after.ran, before.ran);
                // Of several processes of one part, such as the kernel's threads, the one that waited most.
                let most = waited.entry(part.name.clone()).or_default();
                *most = share(after.waited, before.waited).max(*most);
            }
        }
        for (name, share) in reported {
            *parts.entry(name).or_default() += share;
        }
        CpuRecord {
            cpus: now.cpus,
            busy: cores(now.busy.saturating_sub(self.before.busy)),
            interrupts: cores(now.interrupts.saturating_sub(self.before.interrupts)),
            stolen: cores(now.stolen.saturating_sub(self.before.stolen)),
            parts,
            waited,
            shared: self.shared(),
        }
    }

    /// Other parts that may run on a CPU of the traffic.
    fn shared(&self) -> Vec<String> {
        let traffic = self.parts.iter().filter(|part| part.role == Role::Traffic);
        let traffic: BTreeSet<usize> = traffic.flat_map(|part| part.cpus.clone()).collect();
        let other_load = self
            .parts
            .iter()
            .filter(|part| part.role == Role::OtherLoad);
        other_load
            .filter(|part| !part.cpus.is_disjoint(&traffic))
            .map(|part| part.name.clone())
            .collect()
    }
}

/// Ticks of all CPUs since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    cpus: u32,
    busy: u64,
    /// Of the busy ones, in interrupts and behind them.
    interrupts: u64,
    stolen: u64,
}

fn total() -> Total {
    read_total(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user and nice already.
fn read_total(stat: &str) -> Total {
    let mut total = Total::default();
    for line in stat.lines().filter(|line| line.starts_with("cpu")) {
        let mut words = line.split_whitespace();
        let all = words.next() == Some("cpu");
        if !all {
            total.cpus += 1;
            continue;
        }
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let at = |n: usize| ticks.get(n).copied().unwrap_or(0);
        total.busy = at(0) + at(1) + at(2) + at(5) + at(6);
        total.interrupts = at(5) + at(6);
        total.stolen = at(7);
    }
    total
}

/// The CPU time and waiting time of all existing threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// On a processor.
    ran: Duration,
    /// Ready to run, while others did.
    waited: Duration,
}

fn spent(pid: u32) -> Option<Spent> {
    let mut sum = Spent::default();
    for task in tasks(pid)? {
        // A thread that has ended takes its time with it.
        let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace();
        let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        sum.ran += Duration::from_nanos(next());
        sum.waited += Duration::from_nanos(next());
    }
    Some(sum)
}

/// The kernel's threads that carry packets when there are more than interrupts may.
pub fn softirq_threads() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("ksoftirqd/")
    };
    pids.filter(is_one).collect()
}

/// CPUs on which some thread of a process may run.
fn allowed(pid: u32) -> BTreeSet<usize> {
    let tasks = tasks(pid).unwrap_or_default();
    let lists = tasks.iter().filter_map(|task| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let list = status
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
        Some(cpu_list(list))
    });
    lists.flatten().collect()
}

fn tasks(pid: u32) -> Option<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(entries.filter_map(Result::ok).map(|e| e.path()).collect())
}

/// "0-3,6" as numbers; invalid parts are ignored.
fn cpu_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_totals_are_read() {
        let stat = "cpu  100 10 50 1000 5 1 4 30 7 0\ncpu0 50 5 25 500 2 1 2 15 7 0\n\
            cpu1 50 5 25 500 3 0 2 15 0 0\nintr 5\n";
        let expected = Total {
            cpus: 2,
            busy: 165,
            interrupts: 5,
            stolen: 30,
        };
        assert_eq!(read_total(stat), expected);
        assert_eq!(read_total(""), Total::default());
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("\t0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("1"), [1]);
        assert!(cpu_list("").is_empty());
    }

    #[test]
    fn ended_processes_have_no_cpu_share() {
        let mut meter = CpuMeter::start();
        meter.watch("ourselves", std::process::id(), Role::Traffic);
        meter.watch("nobody", u32::MAX, Role::OtherLoad);
        meter.watch("the first", std::process::id(), Role::OtherLoad);
        let before = spent(std::process::id()).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        // Busy until the kernel has accounted for 50 ms of it.
        while spent(std::process::id())
            .unwrap()
            .ran
            .saturating_sub(before.ran)
            < Duration::from_millis(50)
        {
            assert!(Instant::now() < end, "no time is accounted for");
        }
        let record = meter.finish([("rtt".to_owned(), 0.25)]);
        assert!(record.parts["ourselves"] > 0.0, "{record:?}");
        assert_eq!(record.parts["rtt"], 0.25);
        assert!(!record.parts.contains_key("nobody"));
        assert_eq!(record.shared, ["the first"]);
        assert!(record.cpus > 0);
    }
}
