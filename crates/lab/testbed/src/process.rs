//! Processes that die with their parent and are killed and reaped on drop.
//!
//! All of them are started by one thread that lives as long as this process does, because the kernel
//! sends the signal of PR_SET_PDEATHSIG when the starting *thread* ends, and tests run on short-lived threads.
//! Each leads a separate process group: its descendants end with it on drop, and the
//! [`Guard`] ends them if this process is killed.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::tail::Tail;
use crate::wait::wait_for;

/// A tool could not be run to a good end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program could not be started.
    #[error("start {invocation}")]
    Start {
        /// The command and its place.
        invocation: Box<Invocation>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program said no.
    #[error("{invocation}: {status}: {stderr}")]
    Failed {
        /// The command and its place.
        invocation: Box<Invocation>,
        /// The exit status.
        status: ExitStatus,
        /// The output to stderr.
        stderr: String,
    },
    /// The program ended, and had not done what was waited for.
    #[error("{invocation}: ended without \"{awaited}\": {stderr}")]
    Ended {
        /// The command and its place.
        invocation: Box<Invocation>,
        /// The awaited condition.
        awaited: String,
        /// The output to stderr until then.
        stderr: String,
    },
    /// The program did not do what was waited for in time.
    #[error("{invocation}: no \"{awaited}\" within {deadline:?}: {stderr}")]
    Deadline {
        /// The command and its place.
        invocation: Box<Invocation>,
        /// The awaited condition.
        awaited: String,
        /// The deadline.
        deadline: Duration,
        /// The output to stderr until then.
        stderr: String,
    },
}

/// A command line and the namespace it was meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The command line.
    pub command: String,
    /// Name of the namespace.
    pub place: String,
}

impl fmt::Display for Invocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` in namespace \"{}\"", self.command, self.place)
    }
}

/// A running program; dropping it kills and reaps it and its process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
    invocation: Invocation,
    stdout: Option<Tail>,
    stderr: Tail,
}

impl Process {
    pub(crate) fn spawn(command: Command, place: &str) -> Result<Process, RunError> {
        Process::start(command, place, Stdio::null(), Stdio::piped())
    }

    pub(crate) fn spawn_with_input(command: Command, place: &str) -> Result<Process, RunError> {
        Process::start(command, place, Stdio::piped(), Stdio::piped())
    }

    /// Starts with stdout going elsewhere (a file) instead of being collected.
    pub(crate) fn spawn_to(
        command: Command,
        place: &str,
        stdout: Stdio,
    ) -> Result<Process, RunError> {
        Process::start(command, place, Stdio::null(), stdout)
    }

    fn start(
        mut command: Command,
        place: &str,
        stdin: Stdio,
        stdout: Stdio,
    ) -> Result<Process, RunError> {
        let invocation = Invocation {
            command: describe(&command),
            place: place.to_owned(),
        };
        command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = start_on_lasting_thread(command).map_err(|source| RunError::Start {
            invocation: Box::new(invocation.clone()),
            source,
        })?;
        let stdout = child.stdout.take().map(Tail::follow);
        let stderr = Tail::follow(child.stderr.take().expect("stderr is always piped"));
        Ok(Process {
            child,
            status: None,
            invocation,
            stdout,
            stderr,
        })
    }

    /// Adds what goes to the program's input to error messages.
    pub(crate) fn describe(&mut self, line: String) {
        self.invocation.command += &format!(" ({line})");
    }

    /// Writes all of `text` to the program's input and closes it.
    pub(crate) fn write_input(&mut self, text: &str) -> Result<(), RunError> {
        let Some(mut input) = self.child.stdin.take() else {
            return Ok(());
        };
        match input.write_all(text.as_bytes()) {
            // The program ended early; its exit status has the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|source| RunError::Start {
                invocation: Box::new(self.invocation.clone()),
                source,
            }),
        }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.as_ref().map(Tail::text).unwrap_or_default()
    }

    /// Returns the output to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends a signal to the program; one that has ended is left alone.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_some() {
            return;
        }
        // ESRCH is the only answer possible, and it means that the program has ended.
        let _ = kill(self.pid(), signal);
    }

    /// Sends a signal to the program and its descendants, as a terminal does; false once it has ended.
    pub fn signal_group(&self, signal: Signal) -> bool {
        !self.has_ended() && killpg(self.pid(), signal).is_ok()
    }

    /// Waits until stdout contains `text`.
    pub fn wait_stdout(&self, text: &str, deadline: Duration) -> Result<(), RunError> {
        self.wait_tail(self.stdout.as_ref(), text, deadline)
    }

    /// Waits until stderr contains `text`.
    pub fn wait_stderr(&self, text: &str, deadline: Duration) -> Result<(), RunError> {
        self.wait_tail(Some(&self.stderr), text, deadline)
    }

    fn wait_tail(
        &self,
        tail: Option<&Tail>,
        text: &str,
        deadline: Duration,
    ) -> Result<(), RunError> {
        match tail.is_some_and(|tail| tail.wait_for(text, deadline)) {
            true => Ok(()),
            false => Err(self.late(text, deadline)),
        }
    }

    /// Waits until the program has ended and returns how.
    ///
    /// Kills the rest of its process group.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, RunError> {
        wait_for(deadline, || self.has_ended().then_some(()))
            .ok_or_else(|| self.late("end", deadline))?;
        Ok(self.kill_and_reap())
    }

    /// Waits for success and returns stdout.
    pub fn finish(mut self, deadline: Duration) -> Result<String, RunError> {
        let status = self.wait(deadline)?;
        self.close_tails();
        if status.success() {
            return Ok(self.stdout());
        }
        Err(RunError::Failed {
            invocation: Box::new(self.invocation.clone()),
            status,
            stderr: self.stderr().trim().to_owned(),
        })
    }

    /// Waits until all output of an ended program has been read: after [`Process::wait`], before its output is judged.
    pub fn close_tails(&self) {
        self.stderr.close();
        if let Some(stdout) = &self.stdout {
            stdout.close();
        }
    }

    fn late(&self, awaited: &str, deadline: Duration) -> RunError {
        let invocation = Box::new(self.invocation.clone());
        let (awaited, stderr) = (awaited.to_owned(), self.stderr().trim().to_owned());
        match self.has_ended() {
            true => RunError::Ended {
                invocation,
                awaited,
                stderr,
            },
            false => RunError::Deadline {
                invocation,
                awaited,
                deadline,
                stderr,
            },
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// True if the program has ended; it stays a zombie, so its group's number stays ours.
    fn has_ended(&self) -> bool {
        if self.status.is_some() {
            return true;
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(
            waitid(Id::Pid(self.pid()), flags),
            Ok(WaitStatus::StillAlive)
        )
    }

    /// Kills the group before reaping its leader: afterwards the number may belong to others.
    fn kill_and_reap(&mut self) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        // ESRCH: nothing is left of the group.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        release(self.id());
        let status = self
            .child
            .wait()
            .unwrap_or_else(|_| ExitStatus::from_raw(0));
        *self.status.insert(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

fn start_on_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (command, answer) in taken {
                // The asking thread always waits for the answer.
                let _ = answer.send(start_guarded(command));
            }
        });
        orders
    });
    let (answer, answered) = mpsc::channel();
    let stopped = || io::Error::other("the starting thread is gone");
    starter.send((command, answer)).map_err(|_| stopped())?;
    answered.recv().map_err(|_| stopped())?
}

static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

fn start_guarded(mut command: Command) -> io::Result<Child> {
    let mut slot = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = match &mut *slot {
        Some(guard) => guard,
        none => none.insert(Guard::start()?),
    };
    let child = command.spawn()?;
    // After the guard was killed, PR_SET_PDEATHSIG remains.
    let _ = guard.add(child.id());
    Ok(child)
}

fn release(group: u32) {
    let mut slot = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(guard) = &mut *slot {
        // After the guard was killed, PR_SET_PDEATHSIG remains.
        let _ = guard.remove(group);
    }
}
