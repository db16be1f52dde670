//! Signals as flags and as a descriptor.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    /// Handles SIGTERM and SIGINT as stop, SIGHUP as reload.
    ///
    /// # Errors
    /// The kernel refuses.
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
            // In this order, so that the flag is set at the wake-up.
            signal_hook::flag::register(signal, Arc::clone(flag)).context("handle signals")?;
            let end = woken.try_clone().context("handle signals")?;
            signal_hook::low_level::pipe::register(signal, end).context("handle signals")?;
        }
        Ok(signals)
    }

    /// True if the process must stop.
    pub fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True if a reload was requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Readable after a signal, until [`Signals::rest`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Waits for the time, or for a signal. For commands without a configuration: SIGHUP stops them, too,
    /// as at the end of their terminal.
    ///
    /// # Errors
    /// The time is longer than the kernel can wait.
    pub fn wait(&self, time: Duration) -> anyhow::Result<()> {
        let mut wake = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(time).context("wait")?;
        let _ = poll(&mut wake, time); // interrupted: the caller looks again
        self.rest();
        if self.take_reload() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Clears the descriptor.
    pub fn rest(&self) {
        let mut bytes = [0; 64];
        while let Ok(1..) | Err(Errno::EINTR) = nix::unistd::read(&self.wake, &mut bytes) {}
    }
}
