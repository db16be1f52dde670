//! Preparations that need privileges which are given up before shaping begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use fairpath_bpf::Pins;

use crate::ShapeConfig;

/// A place where what is attached outlives this process.
#[derive(Debug, Default)]
pub struct Prepared {
    pins: Option<Pins>,
    why_not: Option<String>,
}

/// The reason if a pin would end with this process, as under `ip netns exec`.
const ENDS: &str = "the mounts of this process end with it, as under `ip netns exec`";

/// The bpffs that systemd mounts.
const SYSTEM: &str = "/sys/fs/bpf";

impl Prepared {
    /// Prepares for this configuration: a private bpffs next to the control socket, which needs CAP_SYS_ADMIN
    /// and stays mounted, or the system's bpffs. The latter suffices if no configured back end pins
    /// objects, but a reload may select one.
    pub fn new(config: Option<&ShapeConfig>, socket: &Path) -> Prepared {
        let Some(config) = config else {
            return Prepared::default();
        };
        let against = socket.parent().unwrap_or(Path::new("/run/fairpath"));
        let shared = || Pins::shared(SYSTEM, "fairpath-");
        let shapes = config.via.and_then(|via| via.description().shapes.as_ref());
        let pins = match shapes {
            Some(shapes) if !shapes.pins => shared().map_err(|why| why.to_string()),
            _ => lasting(against.join("pins"))
                .or_else(|why| shared().map_err(|system| format!("{why}, and {system}"))),
        };
        let (pins, why_not) = match pins {
            Ok(pins) => (Some(pins), None),
            Err(why) => (None, Some(why)),
        };
        Prepared { pins, why_not }
    }

    /// Removes the bpffs that was mounted here if the start fails.
    ///
    /// # Errors
    /// There is no thread.
    pub fn undo(&self) -> anyhow::Result<Undo> {
        let (started, outcome) = channel();
        let mounted = self.pins.clone().filter(Pins::is_new);
        let wait = |pins| {
            thread::Builder::new()
                .name("failed start".into())
                .spawn(move || unmount_after_failure(pins, &outcome))
                .context("start the thread that undoes a failed start")
        };
        Ok(Undo {
            started: Some(started),
            thread: mounted.map(wait).transpose()?,
        })
    }

    /// That place, if it could be had.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// The reason if a bpffs could be mounted, but would end with this process.
    pub fn mounts_end(&self) -> Option<&'static str> {
        let why = self.why_not.as_deref()?;
        why.starts_with(ENDS).then_some(ENDS)
    }

    /// Why there is no such place, where one was wanted.
    pub fn why_not_pinned(&self) -> Option<&str> {
        self.why_not.as_deref()
    }
}

/// The bpffs at `path`, unless it ends with this process. One that was there before does not.
///
/// # Errors
/// The reason, in words.
pub fn lasting(path: PathBuf) -> Result<Pins, String> {
    let pins = Pins::at(path).map_err(|why| why.to_string())?;
    if !pins.is_new() || !mounts_end() {
        return Ok(pins);
    }
    pins.unmount().map_err(|why| why.to_string())?;
    Err(ENDS.to_owned())
}

/// True if the mount namespace may end with this process or its session, as that of `ip netns exec`: the
/// parent, or the first process, has another one.
fn mounts_end() -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    let parent = nix::unistd::getppid().to_string();
    let other =
        |process| matches!((of("self"), of(process)), (Ok(own), Ok(others)) if own != others);
    other(&parent) || other("1")
}

/// Undoes a failed start when dropped. Its thread keeps the capability to unmount, which the process drops, until the
/// start is complete.
#[must_use]
pub struct Undo {
    started: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Undo {
    /// The start succeeded: nothing is undone, and the thread ends.
    pub fn started(self) {
        if let Some(started) = &self.started {
            // Without a thread there is no receiver.
            let _ = started.send(());
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.started.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// Waits for the outcome. A sender that is gone is a failure. A bpffs with pins stays.
fn unmount_after_failure(pins: Pins, outcome: &Receiver<()>) {
    if outcome.recv().is_ok() || !pins.names().is_ok_and(|names| names.is_empty()) {
        return;
    }
    if let Err(error) = pins.unmount() {
        tracing::warn!("undo the start: {error}");
    }
}
