//! The process that may change a qdisc: one at a time, recorded in the arena by its id and start
//! time, so that a dead process owns nothing.

use std::fs;

/// Position of the start time after the name in `/proc/PID/stat` (proc_pid_stat(5), field 22).
const START_FIELD: usize = 19;

/// The id in the lower half, the lower half of the start time above.
fn of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let start: u64 = behind_name
        .split_whitespace()
        .nth(START_FIELD)?
        .parse()
        .ok()?;
    Some(u64::from(pid) | start << 32)
}

/// This process; only its id if there is no /proc.
pub(super) fn me() -> u64 {
    let pid = std::process::id();
    of(pid).unwrap_or(pid.into())
}

/// The id of another process that is recorded and alive.
pub(super) fn another(recorded: u64) -> Option<u32> {
    let pid = recorded as u32;
    let lives = recorded != 0 && recorded != me() && of(pid) == Some(recorded);
    lives.then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_hold_a_qdisc_while_alive() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let recorded = of(child.id()).unwrap();
        assert_eq!(another(recorded), Some(child.id()));
        // The same id, of a process with another start time.
        assert_eq!(another(recorded ^ 1 << 32), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(another(recorded), None);
        assert_eq!(another(me()), None);
        assert_eq!(another(0), None);
    }
}
