//! What the service manager is told (`sd_notify(3)`): when this is ready, reloads, stops, lives.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. A manager that does not listen is none of our trouble:
//! a failure is logged once.

use std::time::Duration;

use sd_notify::NotifyState;

/// The service manager.
#[derive(Debug)]
pub struct Manager {
    watchdog: Option<Duration>,
    complained: bool,
    status: String,
}

impl Manager {
    /// Reads what the manager expects from the environment.
    pub fn from_environment() -> Manager {
        Manager {
            watchdog: sd_notify::watchdog_enabled(),
            complained: false,
            status: String::new(),
        }
    }

    /// How often it wants to hear of us; it acts on twice this silence.
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Attached and counting.
    pub fn ready(&mut self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// The configuration is read again.
    pub fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// About to end.
    pub fn stopping(&mut self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// The kernel was read since the last call.
    pub fn alive(&mut self) {
        if self.watchdog.is_some() {
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// One line for `systemctl status`; the same line is not sent twice.
    pub fn status(&mut self, line: &str) {
        if self.status != line {
            line.clone_into(&mut self.status);
            self.tell(&[NotifyState::Status(line)]);
        }
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states)
            && !self.complained
        {
            self.complained = true;
            tracing::warn!("tell the service manager: {error}; it may take this for a failure");
        }
    }
}
