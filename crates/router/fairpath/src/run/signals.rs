//! Signals as flags and as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use nix::errno::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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
