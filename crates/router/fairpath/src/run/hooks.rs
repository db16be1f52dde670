//! Alert hooks: commands in threads, with limits in number and time.
//!
//! The alert is JSON on standard input, and its main values are `FAIRPATH_*` variables. If the daemon is
//! root, the command has the user `fairpath-hook`, or 65534 where that user does not exist. It has no
//! capability, no other variable of the daemon, no descriptor except the standard ones, and a separate
//! process group, which is killed at the timeout. Its output goes to the log.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_config::AlertHook as Hook;
use fairpath_history::snapshot::Alert;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, User, geteuid};

use crate::privileges;

/// Maximum number of running hooks.
const MAX_RUNNING: usize = 4;
/// Maximum number of waiting alerts. Further ones are dropped and counted.
const MAX_WAITING: usize = 256;
/// Maximum bytes of logged output of a hook.
const MAX_OUTPUT: usize = 4096;
/// The user of hooks; the package creates it.
const USER: &str = "fairpath-hook";
/// User and group without that user: the kernel uses this number for unknown users, too.
const UNKNOWN: u32 = 65_534;
/// The search path of hooks.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The interval at which a running hook is checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Results of hooks.
#[derive(Debug, Default)]
pub struct Counters {
    /// Hooks that succeeded.
    pub done: AtomicU64,
    /// Hooks that failed, could not start, or were killed at the timeout.
    pub failed: AtomicU64,
    /// Alerts whose hook was not run because of the limit.
    pub dropped: AtomicU64,
}

#[derive(Debug)]
struct Job {
    hook: Arc<Hook>,
    alert: Alert,
}

#[derive(Debug, Default)]
struct Shared {
    counters: Counters,
    over: AtomicBool,
}

/// The threads of hooks. Drop kills running hooks.
#[derive(Debug)]
pub struct Hooks {
    jobs: Option<SyncSender<Job>>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Hooks {
    /// Starts the threads.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start() -> anyhow::Result<Hooks> {
        let (jobs, queue) = mpsc::sync_channel(MAX_WAITING);
        let queue = Arc::new(Mutex::new(queue));
        let shared = Arc::<Shared>::default();
        let start = |_| {
            let (queue, shared) = (Arc::clone(&queue), Arc::clone(&shared));
            let run = move || {
                privileges::keep_to_change_user();
                work(&queue, &shared);
            };
            let thread = thread::Builder::new().name("hook".into()).spawn(run);
            thread.context("start a thread for hooks")
        };
        let threads = (0..MAX_RUNNING).map(start).collect::<Result<_, _>>()?;
        Ok(Hooks {
            jobs: Some(jobs),
            shared,
            threads,
        })
    }

    /// Runs the hook of an alert when a thread is free. Never waits.
    pub fn run(&self, hook: &Arc<Hook>, alert: &Alert) {
        let job = Job {
            hook: Arc::clone(hook),
            alert: alert.clone(),
        };
        if self
            .jobs
            .as_ref()
            .is_none_or(|jobs| jobs.try_send(job).is_err())
        {
            self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "hook for {}: not run, because {MAX_WAITING} alerts wait already",
                alert.class
            );
        }
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>, shared: &Shared) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let name = &job.hook.command[0];
        let result = run(&job, &shared.over);
        let counter = match &result {
            Ok(text) if text.is_empty() => &shared.counters.done,
            Ok(text) => {
                tracing::info!("hook {name:?} for {}: {text}", job.alert.class);
                &shared.counters.done
            }
            Err(error) => {
                tracing::warn!("hook {name:?} for {}: {error:#}", job.alert.class);
                &shared.counters.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs one hook to its end, and returns its output.
fn run(job: &Job, over: &AtomicBool) -> anyhow::Result<String> {
    let mut child = start(&job.hook.command, &job.alert)?;
    let mut text = serde_json::to_vec(&job.alert).context("write the alert")?;
    text.push(b'\n');
    if let Some(mut input) = child.stdin.take() {
        // The text fits the pipe, so this never waits. The hook may ignore its input.
        let _ = input.write_all(&text);
    }
    let (output, status) = watch(&mut child, job.hook.timeout, over);
    let status = status.context("end the hook: the daemon needs CAP_KILL to kill it")?;
    match status {
        Some(status) if status.success() => Ok(output),
        Some(status) => anyhow::bail!("{status}: {output}"),
        None => anyhow::bail!(
            "killed after {:?} ([alerts] hook_timeout): {output}",
            job.hook.timeout
        ),
    }
}

fn start(words: &[String], alert: &Alert) -> anyhow::Result<Child> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    fairpath_netlink::close_on_exec().context("close the descriptors of the daemon")?;
    let mut command = Command::new(program);
    let mut user = String::new();
    if geteuid().is_root() {
        let (uid, gid) = hook_user()?;
        // Other groups of root are dropped with the user.
        command.uid(uid).gid(gid);
        user = format!(
            " as user {uid}: the file must be executable for this user, and the daemon needs CAP_SETUID, \
             CAP_SETGID and CAP_KILL"
        );
    }
    command.env_clear();
    for (name, value) in variables(alert) {
        command.envs(value.map(|value| (name, value)));
    }
    command
        .args(arguments)
        .current_dir("/")
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("start the command{user}"))
}

/// The variables of a hook. A value that was not compared has none.
fn variables(alert: &Alert) -> [(&'static str, Option<String>); 11] {
    // Kinds are strings in JSON.
    let kind = serde_json::to_value(alert.alert).unwrap_or_default();
    let state = if alert.active { "begin" } else { "end" };
    let ns = |value: Option<u64>| value.map(|ns| ns.to_string());
    let ratio = |value: Option<f64>| value.map(|ratio| ratio.to_string());
    [
        ("FAIRPATH_CLASS", Some(alert.class.clone())),
        ("FAIRPATH_ALERT", kind.as_str().map(str::to_owned)),
        ("FAIRPATH_STATE", Some(state.to_owned())),
        ("FAIRPATH_LEG", Some(alert.leg.clone())),
        ("FAIRPATH_RTT_NS", ns(alert.rtt_ns)),
        ("FAIRPATH_LIMIT_RTT_NS", ns(alert.limit_rtt_ns)),
        ("FAIRPATH_BASELINE_RTT_NS", ns(alert.baseline_rtt_ns)),
        ("FAIRPATH_LOSS_RATIO", ratio(alert.loss_ratio)),
        ("FAIRPATH_LIMIT_LOSS_RATIO", ratio(alert.limit_loss_ratio)),
        ("FAIRPATH_BELOW", Some(alert.below.to_string())),
        ("FAIRPATH_TEXT", Some(alert.text.clone())),
    ]
}

/// User and group of hooks. The group decides whether a hook may use the control socket.
fn hook_user() -> anyhow::Result<(u32, u32)> {
    let found = User::from_name(USER).with_context(|| format!("look up the user {USER}"))?;
    Ok(found.map_or((UNKNOWN, UNKNOWN), |user| {
        (user.uid.as_raw(), user.gid.as_raw())
    }))
}

/// Collects output until the hook ends. The status is `None` if it was killed.
fn watch(
    child: &mut Child,
    timeout: Duration,
    over: &AtomicBool,
) -> (String, std::io::Result<Option<ExitStatus>>) {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut output = Vec::new();
    let deadline = Instant::now() + timeout;
    let status = loop {
        collect(&mut stdout, &mut output);
        collect(&mut stderr, &mut output);
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline && !over.load(Ordering::Relaxed) => {
                if stdout.is_none() && stderr.is_none() {
                    thread::sleep(CHECK_EVERY); // no more output, but it still runs
                }
            }
            Ok(None) => {
                // The number of the group is valid until the process is reaped.
                let group = Pid::from_raw(child.id().cast_signed());
                break match killpg(group, Signal::SIGKILL) {
                    // It may ignore other signals: waiting could last forever.
                    Err(Errno::EPERM) => Err(Errno::EPERM.into()),
                    _ => child.wait().map(|_| None),
                };
            }
            ended => break ended,
        }
    };
    collect(&mut stdout, &mut output);
    collect(&mut stderr, &mut output);
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    (text, status)
}

/// Reads from a pipe, waiting briefly. Closes a pipe that has ended.
fn collect(pipe: &mut Option<impl Read + AsFd>, output: &mut Vec<u8>) {
    let Some(open) = pipe else { return };
    let mut fds = [PollFd::new(open.as_fd(), PollFlags::POLLIN)];
    let moment = PollTimeout::try_from(CHECK_EVERY / 2).unwrap_or(PollTimeout::ZERO);
    if !matches!(poll(&mut fds, moment), Ok(count) if count > 0) {
        return;
    }
    let mut bytes = [0; MAX_OUTPUT];
    match open.read(&mut bytes) {
        Ok(0) | Err(_) => *pipe = None,
        Ok(count) => {
            let place = MAX_OUTPUT.saturating_sub(output.len());
            output.extend_from_slice(&bytes[..count.min(place)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;
    use fairpath_history::snapshot::AlertKind;

    fn alert(class: &str) -> Alert {
        Alert {
            unix_ns: 1,
            active: true,
            class: class.into(),
            alert: AlertKind::RttShift,
            leg: "inside".into(),
            rtt_ns: Some(20_000_000),
            limit_rtt_ns: Some(15_000_000),
            baseline_rtt_ns: Some(10_000_000),
            since_unix_ns: 1,
            text: "twice as slow".into(),
            ..Alert::default()
        }
    }

    fn shell(script: &str, timeout: Duration) -> Arc<Hook> {
        Arc::new(Hook {
            command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            timeout,
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_hook_gets_alerts_by_input_and_environment() {
        let script = "echo $FAIRPATH_CLASS $FAIRPATH_ALERT $FAIRPATH_STATE $FAIRPATH_LEG; cat";
        let hook = shell(script, LONG);
        let job = Job {
            hook,
            alert: alert("anna"),
        };
        let seen = run(&job, &AtomicBool::new(false)).unwrap();
        let (words, json) = seen.split_once('\n').unwrap();
        assert_eq!(words, "anna rtt_shift begin inside");
        assert_eq!(serde_json::from_str::<Alert>(json).unwrap(), job.alert);
    }

    fn output(script: &str) -> String {
        let hook = shell(script, LONG);
        let alert = alert("a");
        run(&Job { hook, alert }, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_hook_has_another_user_without_privileges() {
        if !geteuid().is_root() {
            return;
        }
        let text = output("id -u; id -g; id -G; grep -E '^(Cap|NoNew)' /proc/self/status; pwd");
        let (uid, gid) = hook_user().unwrap();
        assert!(uid > 0 && gid > 0);
        assert!(
            text.starts_with(&format!("{uid}\n{gid}\n{gid}\n")),
            "{text}"
        );
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(
                text.contains(&format!("{set}:\t0000000000000000")),
                "{text}"
            );
        }
        assert!(text.ends_with("\n/"), "{text}");
    }

    #[test]
    fn a_hook_inherits_no_variable_and_no_descriptor() {
        let names = output("env | cut -d= -f1 | sort | tr '\\n' ' '");
        let ours = "FAIRPATH_ALERT FAIRPATH_BASELINE_RTT_NS FAIRPATH_BELOW FAIRPATH_CLASS \
                    FAIRPATH_LEG FAIRPATH_LIMIT_RTT_NS FAIRPATH_RTT_NS FAIRPATH_STATE \
                    FAIRPATH_TEXT LANG PATH";
        let by_shell = ["PWD", "_", "SHLVL"];
        let names: Vec<&str> = names.split(' ').filter(|n| !by_shell.contains(n)).collect();
        assert_eq!(names.join(" "), ours);
        // One that its parent left open, without the flag.
        let place = tempfile::tempfile().unwrap();
        nix::fcntl::fcntl(
            &place,
            nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
        )
        .unwrap();
        let open =
            "n=0; while [ $n -lt 1000 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done";
        assert_eq!(output(open), "0\n1\n2");
        drop(place);
    }

    /// The files of a directory of the sources and of those below it, with their texts.
    fn texts_below(directory: &Path) -> Vec<(PathBuf, String)> {
        let entries = std::fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let texts = paths.flat_map(|path| match path.is_dir() {
            true => texts_below(&path),
            // An image or the like names no variable.
            false => match std::fs::read_to_string(&path) {
                Ok(text) => vec![(path, text)],
                Err(_) => Vec::new(),
            },
        });
        texts.collect()
    }

    /// The variables `FAIRPATH_...` in a text. `FAIRPATH_*` means all of them.
    fn named(text: &str) -> impl Iterator<Item = String> {
        let isolated = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let variables = isolated.filter(|word| word.starts_with("FAIRPATH_"));
        variables
            .filter(|word| *word != "FAIRPATH_")
            .map(str::to_owned)
    }

    /// Documents for developers name variables of tests, too.
    #[test]
    fn documents_name_the_variables_that_hooks_get() {
        let ours: BTreeSet<String> = variables(&Alert::default())
            .map(|(name, _)| name.to_owned())
            .into();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let for_developers = |path: &Path| {
            ["docs/design", "docs/promises.md"]
                .iter()
                .any(|place| path.starts_with(root.join(place)))
        };
        let texts = ["packaging", "docs"].map(|place| texts_below(&root.join(place)));
        let mut documents = 0;
        for (path, text) in texts.into_iter().flatten() {
            if for_developers(&path) {
                continue;
            }
            let found: BTreeSet<String> = named(&text).collect();
            let unknown: Vec<&String> = found.difference(&ours).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
            documents += usize::from(!found.is_empty());
        }
        assert!(documents >= 2, "only {documents} documents name variables");
        let guide = std::fs::read_to_string(root.join("docs/guide/run.md")).unwrap();
        assert_eq!(named(&guide).collect::<BTreeSet<_>>(), ours);
    }

    #[test]
    fn output_and_failure_are_returned() {
        let run = |script| {
            let job = Job {
                hook: shell(script, LONG),
                alert: alert("a"),
            };
            run(&job, &AtomicBool::new(false))
        };
        assert_eq!(run("echo done; exit 0").unwrap(), "done");
        let text = run("echo oh no >&2; exit 3").unwrap_err().to_string();
        assert!(text.contains("3: oh no"), "{text}");
    }

    #[test]
    fn hook_that_hangs_is_killed_with_its_children() {
        let job = Job {
            hook: shell("sleep 1000 & echo $!; wait", Duration::from_millis(200)),
            alert: alert("a"),
        };
        let text = run(&job, &AtomicBool::new(false)).unwrap_err().to_string();
        let child = text.rsplit(' ').next().unwrap();
        assert!(text.contains("killed after 200ms"), "{text}");
        let removed = || !is_alive(child);
        let deadline = Instant::now() + LONG;
        while !removed() {
            assert!(Instant::now() < deadline, "{child} is alive");
            thread::yield_now();
        }
    }

    /// A zombie counts as dead.
    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    #[test]
    fn too_many_alerts_are_dropped_and_counted() {
        let hooks = Hooks::start().unwrap();
        let hook = shell("sleep 1000", LONG);
        let all = (MAX_WAITING + MAX_RUNNING + 10) as u64;
        for _ in 0..all {
            hooks.run(&hook, &alert("a"));
        }
        let dropped = hooks.counters().dropped.load(Ordering::Relaxed);
        assert!(
            (10..=10 + MAX_RUNNING as u64).contains(&dropped),
            "{dropped}"
        );
        let begin = Instant::now();
        drop(hooks);
        assert!(begin.elapsed() < LONG, "running hooks were waited for");
    }
}
