//! One program from start to end, in a new session, with a deadline; its output is kept.
//!
//! It begins as if started from a terminal: signals do what they usually do, whatever they were set to
//! here (a script's background job ignores SIGINT). There is no terminal, neither to read from nor to
//! open as `/dev/tty`: it leads a new session, and with it a process group.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The interval between checks when it prints nothing.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// From the polite end to the other, when the run is interrupted.
const PATIENCE: Duration = Duration::from_secs(3);
/// For the last lines after the end; who holds the pipe longer is not waited for.
const LAST_LINES: Duration = Duration::from_secs(1);
/// For processes that are ending when the program has ended.
const GRACE: Duration = Duration::from_secs(2);
/// Set for the program and what it starts, to another value for each job: processes with it are the job's.
const JOB_ENV: &str = "FAIRPATH_TEST_JOB";
/// Of the kernel's clock for processes, everywhere Linux runs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The command.
#[derive(Clone, Debug, Default)]
pub struct Order {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
    pub env: Vec<(String, OsString)>,
    /// Variables that it does not get.
    pub without: Vec<String>,
    pub deadline: Duration,
}

/// The end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed(String),
}

/// A line it printed, and when.
pub type TimedLine = (Duration, String);

pub struct Ended {
    pub end: End,
    pub took: Duration,
    /// Processor seconds of it and of those it waited for.
    pub cpu_s: f64,
    pub lines: Vec<TimedLine>,
}

/// Runs it; raising `stop` ends it.
pub fn run(order: &Order, stop: &AtomicBool) -> Result<Ended> {
    let began = Instant::now();
    let (output, input) = pipe().context("make a pipe")?;
    static JOBS: AtomicU64 = AtomicU64::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let job = format!("{}.{number}", std::process::id());
    // `setsid` needs no child for this, as it leads no group here: the process stays the same.
    let mut command = Command::new("setsid");
    command
        .args(["env", "--default-signal", "--"])
        .arg(&order.program)
        .args(&order.args)
        .current_dir(&order.dir)
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .env(JOB_ENV, &job)
        .stdin(Stdio::null())
        .stdout(input.try_clone().context("share the pipe")?)
        .stderr(input);
    for name in &order.without {
        command.env_remove(name);
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("run {}", order.program.display()))?;
    // It holds the writing ends; the last one to close ends the output.
    drop(command);
    let group = Pid::from_raw(i32::try_from(child.id()).context("a process id")?);
    let lines = reader(output, began);
    let mut kept = Vec::new();
    let why = attend(group, &lines, &mut kept, began + order.deadline, stop)?;
    let cpu_s = cpu_seconds(group).unwrap_or(0.0);
    let took = began.elapsed();
    let left = match why {
        None => left_by(&job),
        Some(_) => Vec::new(),
    };
    // What it left behind must neither run on nor hold the pipe. The group's number is not free yet.
    let _ = killpg(group, Signal::SIGKILL);
    for (pid, _) in processes_of(&job) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    let mut end = end(&mut child, why, order.deadline)?;
    if end == End::Passed && !left.is_empty() {
        end = End::Failed(format!("left processes: {}", left.join(", ")));
    }
    let until = Instant::now() + LAST_LINES;
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        kept.push(line);
    }
    Ok(Ended {
        end,
        took,
        cpu_s,
        lines: kept,
    })
}

/// Why it was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Deadline,
    Interrupted,
}

/// Collects lines until it has ended, on its own or by us.
fn attend(
    group: Pid,
    lines: &Receiver<TimedLine>,
    kept: &mut Vec<TimedLine>,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<Option<Why>> {
    let mut why = None;
    let mut patience = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => kept.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK_EVERY),
        }
        if has_ended(group)? {
            return Ok(why);
        }
        let now = Instant::now();
        if why.is_none() && stop.load(Ordering::Relaxed) {
            why = Some(Why::Interrupted);
            patience = Some(now + PATIENCE);
            let _ = killpg(group, Signal::SIGTERM);
        }
        if why.is_none() && now >= deadline {
            why = Some(Why::Deadline);
            patience = Some(now);
        }
        if patience.is_some_and(|until| now >= until) {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// True if it ended; it stays a zombie, so that its accounts can be read.
fn has_ended(group: Pid) -> Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let status = waitid(Id::Pid(group), flags).context("wait for a test")?;
    Ok(status != WaitStatus::StillAlive)
}

/// Processes of a job, with their names. One that cleared its environment is not found.
fn processes_of(job: &str) -> Vec<(Pid, String)> {
    let ours = format!("{JOB_ENV}={job}");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        // Empty for a zombie; a process may end at any time.
        let variables = fs::read(entry.path().join("environ")).ok()?;
        let is_ours = variables.split(|&b| b == 0).any(|v| v == ours.as_bytes());
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        is_ours.then(|| (Pid::from_raw(pid), name.trim_end().to_owned()))
    })
    .collect()
}

/// The names of processes that still run a while after their job has ended.
fn left_by(job: &str) -> Vec<String> {
    let until = Instant::now() + GRACE;
    loop {
        let left = processes_of(job);
        if left.is_empty() || Instant::now() >= until {
            return left.into_iter().map(|(_, name)| name).collect();
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn end(child: &mut Child, why: Option<Why>, deadline: Duration) -> Result<End> {
    let status = child.wait().context("wait for a test")?;
    Ok(match why {
        Some(Why::Deadline) => End::Failed(format!(
            "killed at its deadline of {} s",
            deadline.as_secs()
        )),
        Some(Why::Interrupted) => End::Failed("interrupted".to_owned()),
        None if status.success() => End::Passed,
        None => End::Failed(match status.signal() {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("exit status {}", status.code().unwrap_or(-1)),
        }),
    })
}

/// Its lines with the time of each, until all who can write have ended.
fn reader(output: PipeReader, began: Instant) -> Receiver<TimedLine> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send((began.elapsed(), line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// From `/proc/PID/stat`, proc(5): user and system time of it and of its children that were waited for.
fn cpu_seconds(pid: Pid) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: Option<f64> = ticks.map(|field| field.parse::<f64>().ok()).sum();
    Some(ticks? / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Ended {
        let order = Order {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            dir: "/".into(),
            env: vec![("ANSWER".to_owned(), "42".into())],
            without: vec!["HOME".to_owned()],
            deadline,
        };
        run(&order, &AtomicBool::new(false)).unwrap()
    }

    fn text(ended: &Ended) -> Vec<&str> {
        ended.lines.iter().map(|(_, line)| line.as_str()).collect()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn outputs_and_status_are_kept_without_input() {
        let ended = shell(
            "echo $ANSWER ${HOME-none}; read line || echo none >&2; exit 3",
            LONG,
        );
        assert_eq!(text(&ended), ["42 none", "none"]);
        assert_eq!(ended.end, End::Failed("exit status 3".to_owned()));
        assert_eq!(shell("true", LONG).end, End::Passed);
    }

    #[test]
    fn at_the_deadline_the_whole_group_is_killed() {
        let ended = shell(
            "sleep 1000 & echo $!; sleep 1000",
            Duration::from_millis(300),
        );
        assert_eq!(
            ended.end,
            End::Failed("killed at its deadline of 0 s".to_owned())
        );
        let pid = text(&ended)[0].to_owned();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let until = Instant::now() + LONG;
        while !(state().is_empty() || state().contains(") Z")) {
            assert!(Instant::now() < until, "{}", state());
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn a_process_left_behind_fails_the_job() {
        let ended = shell("setsid sleep 1000 & echo $!; exit 0", LONG);
        assert_eq!(ended.end, End::Failed("left processes: sleep".to_owned()));
        let pid = text(&ended)[0];
        let until = Instant::now() + LONG;
        let command = || fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        while command().contains("sleep") {
            assert!(Instant::now() < until, "it still runs");
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn an_interrupted_run_ends_it_politely() {
        let ready = std::env::temp_dir().join(format!("fairpath-ready.{}", std::process::id()));
        let script = "trap 'echo bye; exit 0' TERM; : >\"$0\"; while :; do sleep 0.01; done";
        let order = Order {
            program: "sh".into(),
            args: vec!["-c".into(), script.into(), ready.clone().into()],
            dir: "/".into(),
            deadline: LONG,
            ..Order::default()
        };
        let stop = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            let running = scope.spawn(|| run(&order, &stop).unwrap());
            let until = Instant::now() + LONG;
            while !ready.exists() && Instant::now() < until {
                thread::sleep(LOOK_EVERY);
            }
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        fs::remove_file(&ready).unwrap();
        assert_eq!(ended.end, End::Failed("interrupted".to_owned()));
        // The shell may say before that its sleep was terminated.
        assert_eq!(text(&ended).last(), Some(&"bye"));
    }

    #[test]
    fn ignored_signals_are_not_inherited() {
        const INNER: &str = "FAIRPATH_TEST_SIGNALS_INNER";
        if std::env::var_os(INNER).is_some() {
            let ended = shell("kill -INT $$; echo survived", LONG);
            assert_eq!(ended.end, End::Failed("ended by signal 2".to_owned()));
            return;
        }
        // As in a script's background job: this test again, with SIGINT ignored.
        let me = std::env::current_exe().unwrap();
        let name = "test::process::tests::ignored_signals_are_not_inherited";
        let again = Command::new("sh")
            .args(["-c", "trap '' INT; exec \"$0\" --exact \"$1\""])
            .arg(me)
            .arg(name)
            .env(INNER, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let ended = shell(
            "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; :",
            LONG,
        );
        assert!(ended.cpu_s > 0.02, "{}", ended.cpu_s);
        assert!(
            ended.cpu_s <= ended.took.as_secs_f64() + 0.1,
            "{}",
            ended.cpu_s
        );
    }
}
