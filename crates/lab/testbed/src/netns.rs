//! An anonymous network namespace, held by a file descriptor.
//!
//! A short-lived thread unshares the namespace and opens `/proc/thread-self/ns/net`; from then on the
//! descriptor is the only thing that keeps it. Nothing appears under `/run/netns`. When the last clone
//! of a [`Netns`] and the last process inside are gone, the kernel destroys the namespace and its links.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::panic;
use std::process::{self, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use crate::process::{Process, RunError};
use crate::run::{RUN_ENV, RunId};
use crate::signals;
use crate::sysctl::SysctlError;

/// Time after which [`Netns::run`] gives a tool up; configuration takes milliseconds.
const RUN_DEADLINE: Duration = Duration::from_secs(30);

/// A namespace could not be made or entered.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// `unshare(CLONE_NEWNET)` failed.
    #[error("create namespace \"{name}\"; needs root")]
    Create {
        /// Name given by the caller.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `setns` failed.
    #[error("enter namespace \"{name}\"")]
    Enter {
        /// Name given by the caller.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `lo` could not be marked and set up.
    #[error("set up \"lo\" in a new namespace")]
    Loopback(#[source] RunError),
    /// The IPv6 noise could not be turned off.
    #[error("quieten a new namespace")]
    Sysctl(#[from] SysctlError),
}

/// A network namespace; clones share it.
#[derive(Clone, Debug)]
pub struct Netns {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    run: RunId,
    fd: OwnedFd,
    inode: u64,
}

impl Netns {
    pub(crate) fn create(name: &str, run: &RunId) -> Result<Netns, NetnsError> {
        let made = on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            open_current()
        });
        let failed = |source| NetnsError::Create {
            name: name.to_owned(),
            source,
        };
        let ns = Netns::hold(name, run, made.map_err(failed)?).map_err(failed)?;
        let alias = format!("{RUN_ENV}={run}");
        ns.run(&["ip", "link", "set", "dev", "lo", "up", "alias", &alias])
            .map_err(NetnsError::Loopback)?;
        ns.quieten()?;
        Ok(ns)
    }

    pub(crate) fn current(run: &RunId) -> Result<Netns, NetnsError> {
        let failed = |source| NetnsError::Enter {
            name: "current".to_owned(),
            source,
        };
        Netns::hold("current", run, open_current().map_err(failed)?).map_err(failed)
    }

    pub(crate) fn hold(name: &str, run: &RunId, file: File) -> io::Result<Netns> {
        let inode = file.metadata()?.ino();
        let inner = Inner {
            name: name.to_owned(),
            run: run.clone(),
            fd: file.into(),
            inode,
        };
        Ok(Netns {
            inner: Arc::new(inner),
        })
    }

    /// The name for messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The run this namespace belongs to.
    pub fn run_id(&self) -> &RunId {
        &self.inner.run
    }

    /// Inode of the namespace, as in `net:[inode]`.
    pub fn inode(&self) -> u64 {
        self.inner.inode
    }

    /// A path that `ip … netns PATH` accepts while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.inner.fd.as_raw_fd())
    }

    /// Runs `f` on a separate thread inside the namespace and returns its value.
    ///
    /// Sockets opened inside always belong to the namespace, in any thread. `/proc/sys/net` is
    /// that of the namespace; `/sys` is not (use [`Netns::command`]). A panic in `f` continues here.
    /// Processes started inside `f` die with its thread: start them with [`Netns::spawn`].
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        on_a_thread(|| {
            setns(self, CloneFlags::CLONE_NEWNET)?;
            Ok(f())
        })
        .map_err(|source| NetnsError::Enter {
            name: self.name().to_owned(),
            source,
        })
    }

    /// A command that will run inside the namespace, with its own `/sys`, and die with its parent.
    ///
    /// "Parent" is the thread that spawns it (`PR_SET_PDEATHSIG` counts threads): spawn from a thread
    /// that lives on, or pass the command to [`Netns::spawn`], which does. Like under `ip netns exec`,
    /// mounts below `/sys` (`/sys/fs/bpf`, cgroups) are not visible inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command_without_sysfs(program);
        // SAFETY: `mount_sysfs` makes system calls only, on static strings; no lock, no allocation.
        unsafe { command.pre_exec(mount_sysfs) };
        command
    }

    /// As [`Netns::command`], but seeing the caller's `/sys`: 1 ms cheaper, for tools that use netlink.
    pub fn command_without_sysfs(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env(RUN_ENV, self.run_id().as_str())
            .env("LC_ALL", "C");
        let inner = Arc::clone(&self.inner);
        let parent = Pid::this();
        let prepare = move || {
            die_with(parent)?;
            signals::reset()?;
            setns(&inner.fd, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
        };
        // SAFETY: the closure makes system calls only and touches no lock and no allocator.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Starts `command` (from [`Netns::command`]) as a guarded process: killed and reaped on drop.
    pub fn spawn(&self, command: Command) -> Result<Process, RunError> {
        Process::spawn(command, self.name())
    }

    /// Runs a tool to its end and returns what it printed; anything but success is an error.
    pub fn run(&self, argv: &[&str]) -> Result<String, RunError> {
        let mut command = self.command_without_sysfs(argv[0]);
        command.args(&argv[1..]);
        self.spawn(command)?.finish(RUN_DEADLINE)
    }

    /// Hands what comes by this namespace's present interfaces to one CPU (`rps_cpus`), whichever sent it.
    ///
    /// A packet over veth waits in the queue of the CPU that sent it. Where a sender moves to another
    /// CPU, or a qdisc is emptied by another one, packets are reordered: real reordering without a
    /// configured one. With one queue there is none. `cpu` is below 32.
    pub fn receive_on(&self, cpu: usize) -> Result<(), RunError> {
        let set = format!(
            "for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do echo {:x} >$queue || exit; done",
            1u32 << cpu
        );
        let mut command = self.command("sh");
        command.args(["-c", &set]);
        self.spawn(command)?.finish(RUN_DEADLINE).map(drop)
    }

    /// Runs many `ip` commands in one process; `lines` are without the leading `ip`.
    pub fn ip_batch(&self, lines: &[String]) -> Result<(), RunError> {
        let mut command = self.command_without_sysfs("ip");
        command.args(["-batch", "-"]);
        let mut process = Process::spawn_with_input(command, self.name())?;
        process.describe(lines.join("; "));
        process.write_input(&(lines.join("\n") + "\n"))?;
        process.finish(RUN_DEADLINE).map(drop)
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

fn open_current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Runs `f` on a separate thread, so that changes of its namespaces end with it.
fn on_a_thread<T: Send>(f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match scope.spawn(f).join() {
        Ok(result) => result,
        Err(payload) => panic::resume_unwind(payload),
    })
}

/// In the child: request SIGKILL at the end of the parent, and fail if it has already ended.
fn die_with(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// In the child, already inside its network namespace: a private mount namespace with a fresh sysfs.
fn mount_sysfs() -> io::Result<()> {
    const NONE: Option<&CStr> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, c"/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    mount(
        Some(c"fairpath"),
        c"/sys",
        Some(c"sysfs"),
        MsFlags::empty(),
        NONE,
    )?;
    Ok(())
}
