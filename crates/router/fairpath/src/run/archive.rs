//! Weeks of counts: the thread that owns the file of the history.
//!
//! ```text
//! loop --> intervals, questions, settings (bounded) --> thread --> file
//!                                                         '-> answers to the requesters
//! ```
//!
//! A slow or full disk never delays the loop. A corrupted file is moved, and another one begun.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_archive::{Archive, ArchiveError, Counters};
use fairpath_config::{Config, History};
use fairpath_history::history::IntervalCounts;
use fairpath_history::snapshot::{Answer, Request};
use fairpath_watch::unix_ns;

use super::query::PendingRequest;
use super::state;
use crate::privileges;

/// Maximum number of intervals and questions that wait. Further ones are dropped and counted, or
/// refused.
const MAX_WAITING: usize = 64;
/// Time after which a file that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(60);

enum Job {
    Interval(IntervalCounts),
    Question(PendingRequest),
    Set(History),
}

/// Facts about the thread, for others.
#[derive(Clone, Debug, Default)]
struct Status {
    counters: Counters,
    /// Intervals without a file.
    lost: u64,
    /// The failure that lasts.
    problem: Option<String>,
}

/// The thread. Drop waits for it, and writes what is in memory.
pub struct Archiver {
    jobs: Option<SyncSender<Job>>,
    wanted: History,
    status: Arc<Mutex<Status>>,
    dropped: u64,
    thread: Option<JoinHandle<()>>,
}

impl Archiver {
    /// Starts the thread, which opens the file. A file that cannot be opened is a problem that is
    /// reported, and no failure.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start(config: &Config) -> anyhow::Result<Archiver> {
        let (jobs, queue) = mpsc::sync_channel(MAX_WAITING);
        let status = Arc::<Mutex<Status>>::default();
        let mut keeper = Keeper {
            wanted: None,
            max_bytes: 0,
            archive: None,
            retry: Instant::now(),
            counted: Counters::default(),
            status: Arc::clone(&status),
        };
        let run = move || {
            privileges::drop_all();
            for job in queue {
                keeper.take(job);
            }
            keeper.end();
        };
        let thread = thread::Builder::new().name("history".into()).spawn(run);
        let mut archiver = Archiver {
            jobs: Some(jobs),
            wanted: History {
                file: None,
                max_bytes: 0,
            },
            status,
            dropped: 0,
            thread: Some(thread.context("start the thread that keeps the history")?),
        };
        archiver.set(config);
        Ok(archiver)
    }

    /// Applies a configuration.
    pub fn set(&mut self, config: &Config) {
        self.wanted = config.history.clone();
        if let Some(jobs) = &self.jobs {
            // The thread is gone only if it panicked, which was printed.
            let _ = jobs.send(Job::Set(self.wanted.clone()));
        }
    }

    /// True if intervals are kept.
    pub fn wants_intervals(&self) -> bool {
        self.wanted.file.is_some()
    }

    /// Queues an interval. Never waits.
    pub fn interval(&mut self, interval: IntervalCounts) {
        let jobs = self.jobs.as_ref();
        if jobs.is_none_or(|jobs| jobs.try_send(Job::Interval(interval)).is_err()) {
            self.dropped += 1;
        }
    }

    /// Queues a question. Never waits. The thread answers.
    pub fn question(&self, pending: PendingRequest) {
        let full = |error| match error {
            mpsc::TrySendError::Full(Job::Question(pending))
            | mpsc::TrySendError::Disconnected(Job::Question(pending)) => Some(pending),
            _ => None,
        };
        let jobs = self.jobs.as_ref();
        let refused = jobs.and_then(|jobs| jobs.try_send(Job::Question(pending)).err());
        if let Some(pending) = refused.and_then(full) {
            let text = "history: too many questions wait, or the disk is slow: retry".to_owned();
            pending.answer(Answer::Error { text });
        }
    }

    /// Counters by name.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = &status.counters;
        [
            ("history_slices", counters.slices),
            ("history_slices_dropped", counters.slices_dropped),
            ("history_intervals_dropped", self.dropped + status.lost),
            ("history_writes_failed", counters.writes_failed),
            ("history_segments_dropped", counters.segments_dropped),
            ("history_blocks_corrupted", counters.blocks_corrupted),
        ]
    }

    /// Size of the file, bytes.
    pub fn bytes(&self) -> u64 {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.counters.bytes
    }

    /// The failure that lasts.
    pub fn problem(&self) -> Option<String> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.problem.clone()
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// The side of the thread.
struct Keeper {
    wanted: Option<PathBuf>,
    max_bytes: u64,
    archive: Option<Archive>,
    retry: Instant,
    /// Counters of files that were closed.
    counted: Counters,
    status: Arc<Mutex<Status>>,
}

impl Keeper {
    fn take(&mut self, job: Job) {
        match job {
            Job::Set(history) => self.set(history),
            Job::Interval(interval) => self.interval(&interval),
            Job::Question(pending) => {
                let answer = self.answer(&pending.request);
                pending.answer(answer);
            }
        }
    }

    fn set(&mut self, history: History) {
        self.max_bytes = history.max_bytes;
        if let Some(archive) = &mut self.archive {
            archive.set_max_bytes(self.max_bytes);
        }
        if history.file == self.wanted {
            return;
        }
        self.end();
        self.wanted = history.file;
        self.open();
    }

    fn interval(&mut self, interval: &IntervalCounts) {
        if self.archive.is_none() && Instant::now() >= self.retry {
            self.open();
        }
        let Some(archive) = &mut self.archive else {
            self.status().lost += 1;
            return;
        };
        let taken = archive.take(interval);
        self.note(taken);
    }

    fn answer(&self, request: &Request) -> Answer {
        let Request::History { query } = request else {
            let text = "history: not a question about it".to_owned();
            return Answer::Error { text };
        };
        let Some(archive) = &self.archive else {
            let text = match &self.status().problem {
                Some(problem) => problem.clone(),
                None => "history: the daemon keeps none: set [history] file".to_owned(),
            };
            return Answer::Error { text };
        };
        match archive.series(query) {
            Ok(series) => Answer::History {
                series: Box::new(series),
            },
            Err(error) => Answer::Error {
                text: error.to_string(),
            },
        }
    }

    /// Opens the file. If it is corrupted, it is moved and another one begun.
    fn open(&mut self) {
        let Some(path) = self.wanted.clone() else {
            self.note(Ok(()));
            return;
        };
        let opened = Archive::open(&path).or_else(|error| match error.is_corrupt() {
            true => {
                move_away(&path, &error);
                Archive::open(&path)
            }
            false => Err(error),
        });
        self.retry = Instant::now() + RETRY;
        let result = opened.map(|mut archive| {
            archive.set_max_bytes(self.max_bytes);
            self.archive = Some(archive);
        });
        self.note(result);
    }

    /// Writes what is in memory, and closes the file.
    fn end(&mut self) {
        let Some(mut archive) = self.archive.take() else {
            return;
        };
        let flushed = archive.flush();
        self.close(archive);
        self.note(flushed);
    }

    /// Closes the file, and keeps its counters.
    fn close(&mut self, archive: Archive) {
        self.count(&archive.counters());
        let counted = self.status().counters;
        self.counted = counted;
    }

    /// Reports a failure once, and its end.
    fn note(&mut self, result: Result<(), ArchiveError>) {
        let corruption = result.as_ref().err().is_some_and(ArchiveError::is_corrupt);
        if let (true, Some(archive), Some(path)) = (
            corruption,
            self.archive.take_if(|_| corruption),
            &self.wanted,
        ) {
            let path = path.clone();
            self.close(archive);
            if let Err(error) = &result {
                move_away(&path, error);
            }
            self.retry = Instant::now();
        }
        if let Some(archive) = &self.archive {
            let now = archive.counters();
            self.count(&now);
        }
        let path = self.wanted.as_deref().unwrap_or(Path::new("")).display();
        let problem = result.err().map(|error| format!("{path}: {error}"));
        let before = std::mem::replace(&mut self.status().problem, problem.clone());
        match (&before, &problem) {
            (before, Some(text)) if before.as_ref() != Some(text) => tracing::warn!("{text}"),
            (Some(_), None) => tracing::info!("{path}: history: written again"),
            _ => {}
        }
    }

    /// Adds the counters of an archive to those of earlier files.
    fn count(&self, now: &Counters) {
        let before = &self.counted;
        self.status().counters = Counters {
            slices: before.slices + now.slices,
            slices_dropped: before.slices_dropped + now.slices_dropped,
            writes_failed: before.writes_failed + now.writes_failed,
            segments_dropped: before.segments_dropped + now.segments_dropped,
            blocks_corrupted: before.blocks_corrupted + now.blocks_corrupted,
            bytes: now.bytes,
        };
    }

    fn status(&self) -> std::sync::MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves a file that cannot be used, with its log.
fn move_away(path: &Path, why: &ArchiveError) {
    let shown = path.display();
    let aside = state::move_away(path, unix_ns().unwrap_or(0));
    // A log of the old file must not be applied to the next one.
    for ending in ["-wal", "-shm"] {
        let mut log = path.as_os_str().to_owned();
        log.push(ending);
        let _ = std::fs::remove_file(log);
    }
    match aside {
        Ok(aside) => tracing::warn!("{shown}: {why}: the file was moved to {}", aside.display()),
        Err(error) => tracing::warn!("{shown}: {why}: move the file away: {error}"),
    }
}
