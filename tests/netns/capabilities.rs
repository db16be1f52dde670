//! Capabilities of commands that run in the foreground.

use std::fs;

use fairpath_testbed::{Need, Process, Router, Testbed, requires, wait_for};
use fairpath_tests::{PATIENCE, binary};

const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_NICE: u64 = 1 << 23;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;
const MEASURING: u64 = NET_ADMIN | PERFMON | BPF;
const SHAPING: u64 = MEASURING | NET_RAW | IPC_LOCK | SYS_NICE;

/// Permitted, bounding and `NoNewPrivs` of each thread; `None` if the process has ended.
fn threads(process: &Process) -> Option<Vec<[u64; 3]>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).ok()?;
    let one = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("status")).ok()?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Some([value("CapPrm:")?, value("CapBnd:")?, value("NoNewPrivs:")?])
    };
    // A thread that ended in between is missing.
    Some(tasks.filter_map(|task| one(task.ok()?.path())).collect())
}

#[test]
fn foreground_commands_keep_only_needed_capabilities() {
    requires!(Need::Root, Need::Tool("nft"));
    let router = Router::new(&Testbed::new()).unwrap();
    for (words, kept) in [
        ("rtt -i lan", MEASURING),
        ("top -i lan --once --interval 1s", MEASURING),
        ("impair lan --delay 1ms --via nfqueue", SHAPING),
        ("impair lan --peer wan --loss 1% --via xdp", SHAPING),
        ("impair lan --peer wan --delay 1ms --via afxdp", SHAPING),
    ] {
        let mut command = router.router.command_without_sysfs(binary::fairpath());
        command.args(words.split(' '));
        let mut process = router.router.spawn(command).unwrap();
        let fits = || {
            let threads = threads(&process).filter(|threads| !threads.is_empty());
            let threads = threads.unwrap_or_else(|| panic!("{words}: {}", process.stderr()));
            threads
                .iter()
                .all(|thread| *thread == [kept, kept, 1])
                .then_some(())
        };
        assert!(
            wait_for(PATIENCE, fits).is_some(),
            "{words}: {:x?}, expected {kept:x}; {}",
            threads(&process),
            process.stderr()
        );
        // It attaches and ends with what it kept.
        if words.starts_with("rtt") {
            process.wait_stderr("watching lan\n", PATIENCE).unwrap();
        } else if words.starts_with("impair") {
            process.wait_stderr("ready: ", PATIENCE).unwrap();
        }
        if !words.starts_with("top") {
            process.signal(nix::sys::signal::Signal::SIGTERM);
        }
        let status = process.wait(PATIENCE).unwrap();
        assert!(status.success(), "{words}: {status} {}", process.stderr());
    }
}
