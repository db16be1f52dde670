//! Signals as flags and as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Starts what must not end half-way because this process is asked to end: in a process group of its own,
/// and without the signals that a terminal or `systemctl stop` may send to all at once.
///
/// A group alone is not enough: until the child has it, Ctrl-C is the child's, too.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_spared(command: &mut Command) -> anyhow::Result<Child> {
    let mut spared = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        spared.add(signal);
    }
    let before = spared
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .context("hold signals back")?;
    // The child keeps what this thread holds back.
    let child = command.process_group(0).spawn();
    before.thread_set_mask().context("take signals again")?;
    child.context("cannot be started")
}

/// What was asked of this process by signals.
#[derive(Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    /// Takes SIGTERM and SIGINT as the wish to stop, SIGHUP as the wish to reload.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn take() -> anyhow::Result<Signals> {
        let (wake, woken) = UnixStream::pair().context("handle signals")?;
        wake.set_nonblocking(true).context("handle signals")?;
        let signals = Signals {
            stop: Arc::default(),
            reload: Arc::default(),
            wake,
        };
        let wanted = [
            (SIGTERM, &signals.stop),
            (SIGINT, &signals.stop),
            (SIGHUP, &signals.reload),
        ];
        for (signal, flag) in wanted {
            // In this order: who is woken finds the flag set.
            signal_hook::flag::register(signal, Arc::clone(flag)).context("handle signals")?;
            let end = woken.try_clone().context("handle signals")?;
            signal_hook::low_level::pipe::register(signal, end).context("handle signals")?;
        }
        Ok(signals)
    }

    /// Whether to stop.
    pub fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a reload was asked for since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Readable when a signal came; [`Signals::rest`] makes it wait for the next.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Forgets what woke us.
    pub fn rest(&self) {
        let mut bytes = [0; 64];
        while let Ok(1..) | Err(Errno::EINTR) = nix::unistd::read(&self.wake, &mut bytes) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_this_process_does_not_end_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $$; kill -TERM $$; kill -HUP $$; exit 7"]);
        let status = spawn_spared(&mut command).unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(7), "{status}");
        let mut command = Command::new("sh");
        command.args(["-c", "kill -TERM $$; exit 7"]);
        let status = command.status().unwrap();
        assert_eq!(status.code(), None, "this thread takes signals again");
    }
}
