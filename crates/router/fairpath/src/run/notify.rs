//! Notifications to the service manager (`sd_notify(3)`): ready, reloading, stopping, watchdog.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. A failure is logged once.

use std::time::Duration;

use sd_notify::NotifyState;

/// The service manager.
#[derive(Debug)]
pub struct Manager {
    watchdog: Option<Duration>,
    has_failed: bool,
    status: String,
}

impl Manager {
    /// Reads the settings of the manager from the environment.
    pub fn from_environment() -> Manager {
        Manager {
            watchdog: sd_notify::watchdog_enabled(),
            has_failed: false,
            status: String::new(),
        }
    }

    /// Time between watchdog notifications: half of the timeout.
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// The programs are attached and count.
    pub fn ready(&mut self) {
        self.send(&[NotifyState::Ready]);
    }

    /// A reload begins.
    pub fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// The daemon stops.
    pub fn stopping(&mut self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// The kernel was read since the last call.
    pub fn alive(&mut self) {
        if self.watchdog.is_some() {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// One line for `systemctl status`, sent if it changed.
    pub fn status(&mut self, line: &str) {
        if self.status != line {
            line.clone_into(&mut self.status);
            self.send(&[NotifyState::Status(line)]);
        }
    }

    fn send(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states)
            && !self.has_failed
        {
            self.has_failed = true;
            tracing::warn!("notify the service manager: {error}; it may restart the daemon");
        }
    }
}
