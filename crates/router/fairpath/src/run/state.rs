//! The state file: what survives a restart, written so that no crash leaves half of it.
//!
//! Its content is the ledger's, which knows version and checksum. It is written to a file beside it,
//! synchronised, renamed, and the directory synchronised: a reader sees the old one or the new one.
//! A thread of its own writes; a slow disk delays the file, not the loop.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};

use anyhow::Context;

use super::privileges;

/// A state file is never larger: a hundred thousand classes take a fraction of it.
const MAX_BYTES: u64 = 1 << 30;
/// Files set aside that are kept; the oldest goes for a new one.
const MAX_ASIDE: usize = 4;

/// Reads the state, if there is any.
///
/// # Errors
/// What the kernel says; see [`set_aside`].
pub fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let read = || -> io::Result<Vec<u8>> {
        if fs::metadata(path)?.len() > MAX_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        fs::read(path)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the state in place of what was there.
///
/// # Errors
/// What the kernel says; the old file is then untouched.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    let result = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // On a full disk, half of it may be there and takes the place that others need.
        let _ = fs::remove_file(&temporary);
        return result;
    }
    let place = path.parent().filter(|p| !p.as_os_str().is_empty());
    File::open(place.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o640);
    let mut file = options.open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Moves a file that cannot be used out of the way and says where it is; a few are kept.
///
/// # Errors
/// What the kernel says.
pub fn set_aside(path: &Path, unix_ns: u64) -> io::Result<PathBuf> {
    let prefix = beside(path, "refused-");
    let aside = beside(path, &format!("refused-{unix_ns}"));
    fs::rename(path, &aside)?;
    let place = path.parent().filter(|p| !p.as_os_str().is_empty());
    let mut kept: Vec<PathBuf> = fs::read_dir(place.unwrap_or(Path::new(".")))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|found| {
            let found = found.to_string_lossy();
            found.starts_with(&*prefix.to_string_lossy())
        })
        .collect();
    // Names of one length in order of time.
    kept.sort_unstable();
    for old in kept.iter().rev().skip(MAX_ASIDE) {
        fs::remove_file(old)?;
    }
    Ok(aside)
}

/// Makes the bytes to be written; runs in the writer's thread.
pub type Content = Box<dyn FnOnce() -> anyhow::Result<Vec<u8>> + Send>;

#[derive(Debug, Default)]
struct Outcome {
    written: AtomicU64,
    failed: AtomicU64,
    /// The last one failed: said once, until one succeeds.
    failing: AtomicBool,
}

/// The thread that writes; dropping it waits for what it has taken.
pub struct Writer {
    jobs: Option<SyncSender<(PathBuf, Content)>>,
    outcome: Arc<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the kernel gives no thread.
    pub fn start() -> anyhow::Result<Writer> {
        // One waits while one is written: a slow disk makes saves rarer, not longer.
        let (jobs, queue) = mpsc::sync_channel::<(PathBuf, Content)>(1);
        let outcome = Arc::<Outcome>::default();
        let counted = Arc::clone(&outcome);
        let run = move || {
            privileges::keep_nothing();
            for (path, content) in queue {
                counted.save(&path, content);
            }
        };
        let thread = thread::Builder::new().name("state".into()).spawn(run);
        Ok(Writer {
            jobs: Some(jobs),
            outcome,
            thread: Some(thread.context("start the thread that saves state")?),
        })
    }

    /// Writes soon; a save that finds one waiting already is left out, and told as failed.
    pub fn save(&self, path: &Path, content: Content) {
        let job = (path.to_owned(), content);
        let Some(jobs) = &self.jobs else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = jobs.try_send(job) {
            self.outcome
                .fail(path, "the save before it is not done yet");
        }
    }

    /// Writes, after what waits already; for the end.
    pub fn save_last(&self, path: &Path, content: Content) {
        if let Some(jobs) = &self.jobs
            && jobs.send((path.to_owned(), content)).is_err()
        {
            self.outcome.fail(path, "the thread that saves is gone");
        }
    }

    /// Saves done and saves failed.
    pub fn counts(&self) -> [u64; 2] {
        let Outcome {
            written, failed, ..
        } = &*self.outcome;
        [written, failed].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl Outcome {
    fn save(&self, path: &Path, content: Content) {
        let done = content().and_then(|bytes| {
            write(path, &bytes)?;
            Ok(())
        });
        match done {
            Ok(()) => {
                self.written.fetch_add(1, Ordering::Relaxed);
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the state file {} can be written again", path.display());
                }
            }
            Err(error) => self.fail(path, &format!("{error:#}")),
        }
    }

    fn fail(&self, path: &Path, why: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "write the state file {}: {why}; counting goes on, a restart would lose what is \
                 newer than the last good save",
                path.display()
            );
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_left() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        assert!(load(&path).unwrap().is_none());
        for content in [&b"first"[..], b"", b"\nthird\n"] {
            write(&path, content).unwrap();
            assert_eq!(load(&path).unwrap().unwrap(), content);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_set_aside_is_kept_up_to_a_limit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        for time in 0..MAX_ASIDE as u64 + 3 {
            fs::write(&path, time.to_string()).unwrap();
            let aside = set_aside(&path, 1_000 + time).unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), time.to_string());
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), MAX_ASIDE);
    }

    #[test]
    fn a_failed_save_leaves_the_old_state_and_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let writer = Writer::start().unwrap();
        writer.save_last(&path, Box::new(|| Ok(b"good".to_vec())));
        writer.save_last(&path, Box::new(|| anyhow::bail!("no")));
        let nowhere = place.path().join("missing/state");
        writer.save_last(&nowhere, Box::new(|| Ok(Vec::new())));
        let outcome = Arc::clone(&writer.outcome);
        drop(writer);
        assert_eq!(outcome.written.load(Ordering::Relaxed), 1);
        assert_eq!(outcome.failed.load(Ordering::Relaxed), 2);
        assert_eq!(load(&path).unwrap().unwrap(), b"good");
    }
}
