//! The state file, which preserves the history across restarts and crashes.
//!
//! The history provides its content, with version and checksum. `fairpath-files` replaces the file at
//! once. A separate thread writes, so that a slow disk never delays the loop.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};

use anyhow::Context;

use crate::privileges;

/// Maximum size of a state file. 100,000 classes need a fraction of it.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of moved files. The oldest is removed.
const MAX_MOVED: usize = 4;

/// Reads the state, if there is any.
///
/// # Errors
/// The error of the kernel. See [`move_away`].
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

fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Renames an invalid file and returns its new path. A few are kept.
///
/// # Errors
/// The error of the kernel.
pub fn move_away(path: &Path, unix_ns: u64) -> io::Result<PathBuf> {
    let prefix = with_suffix(path, "refused-");
    let aside = with_suffix(path, &format!("refused-{unix_ns}"));
    fs::rename(path, &aside)?;
    let mut kept: Vec<PathBuf> = fs::read_dir(fairpath_files::directory_of(path))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|found| {
            let found = found.to_string_lossy();
            found.starts_with(&*prefix.to_string_lossy())
        })
        .collect();
    // Names of one length in order of time.
    kept.sort_unstable();
    for old in kept.iter().rev().skip(MAX_MOVED) {
        fs::remove_file(old)?;
    }
    Ok(aside)
}

/// Returns the bytes to write. Runs in the thread of the writer.
pub type Content = Box<dyn FnOnce() -> anyhow::Result<Vec<u8>> + Send>;

#[derive(Debug, Default)]
struct Outcome {
    written: AtomicU64,
    failed: AtomicU64,
    /// A failure was logged, and no write succeeded since.
    failing: AtomicBool,
}

/// The thread that writes. Drop waits for it.
pub struct Writer {
    jobs: Option<SyncSender<(PathBuf, Content)>>,
    outcome: Arc<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start() -> anyhow::Result<Writer> {
        // One save may wait while another is written.
        let (jobs, queue) = mpsc::sync_channel::<(PathBuf, Content)>(1);
        let outcome = Arc::<Outcome>::default();
        let counted = Arc::clone(&outcome);
        let run = move || {
            privileges::drop_all();
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

    /// Queues a save. If another one waits already, it is counted as failed.
    pub fn save(&self, path: &Path, content: Content) {
        let job = (path.to_owned(), content);
        let Some(jobs) = &self.jobs else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = jobs.try_send(job) {
            self.outcome.fail(path, "the previous save is not complete");
        }
    }

    /// Writes after all queued saves, at the end of the daemon.
    pub fn save_last(&self, path: &Path, content: Content) {
        if let Some(jobs) = &self.jobs
            && jobs.send((path.to_owned(), content)).is_err()
        {
            self.outcome.fail(path, "the thread that saves has ended");
        }
    }

    /// Successful and failed saves.
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
            fairpath_files::replace(path, &bytes)?;
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
                "write the state file {}: {why}; counting continues, but a restart loses all counts \
                 since the last successful save",
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
    fn a_written_state_is_read_back() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        assert!(load(&path).unwrap().is_none());
        for content in [&b"first"[..], b"", b"\nthird\n"] {
            fairpath_files::replace(&path, content).unwrap();
            assert_eq!(load(&path).unwrap().unwrap(), content);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn moved_files_are_kept_up_to_a_limit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        for time in 0..MAX_MOVED as u64 + 3 {
            fs::write(&path, time.to_string()).unwrap();
            let aside = move_away(&path, 1_000 + time).unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), time.to_string());
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), MAX_MOVED);
    }

    #[test]
    fn failed_save_leaves_old_state_and_is_counted() {
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
