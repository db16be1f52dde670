//! Rows and alerts in files. A separate thread writes, so that a slow or full disk never delays the
//! loop.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use fairpath_config::duration::nanos;
use fairpath_config::{Config, Rows};
use fairpath_export::{JsonLines, ParquetOptions, ParquetWriter};
use fairpath_history::IntervalRow;
use fairpath_history::snapshot::Alert;
use fairpath_units::counted;

use crate::privileges;

/// Maximum number of intervals and alerts that wait for the disk. Further ones are dropped and counted.
const MAX_WAITING: usize = 64;

enum Job {
    Rows(Vec<IntervalRow>),
    Alert(Box<Alert>),
    Set(Box<Prepared>),
}

/// The open files of a configuration.
pub struct Prepared {
    rows: Rows,
    alerts: Option<PathBuf>,
    json: Option<JsonLines>,
    /// `None`: the present writer continues.
    parquet: Option<Option<ParquetWriter>>,
}

#[derive(Debug, Default)]
struct Counters {
    rows_dropped: AtomicU64,
    alerts_dropped: AtomicU64,
    writes_failed: AtomicU64,
    files_removed: AtomicU64,
}

/// The thread that writes. Drop waits for it, and completes the Parquet file.
pub struct Sinks {
    rows: Rows,
    jobs: Option<SyncSender<Job>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Sinks {
    /// Opens the files of a configuration, and starts the thread.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn start(config: &Config) -> anyhow::Result<Sinks> {
        let first = prepare(None, config)?;
        let (jobs, queue) = mpsc::sync_channel(MAX_WAITING);
        let counters = Arc::<Counters>::default();
        let counted = Arc::clone(&counters);
        let run = move || {
            privileges::drop_all();
            let mut files = Files::new(counted);
            for job in queue {
                files.take(job);
            }
            files.finish_parquet();
        };
        let thread = thread::Builder::new().name("rows".into()).spawn(run);
        let mut sinks = Sinks {
            rows: config.rows.clone(),
            jobs: Some(jobs),
            counters,
            thread: Some(thread.context("start the thread that writes rows")?),
        };
        sinks.set(first);
        Ok(sinks)
    }

    /// Opens the files of another configuration. Files of JSON lines are always opened again, for
    /// logrotate.
    ///
    /// # Errors
    /// A file cannot be opened; the present files continue.
    pub fn prepare(&self, config: &Config) -> anyhow::Result<Prepared> {
        prepare(Some(&self.rows), config)
    }

    /// Writes to these files from now on.
    pub fn set(&mut self, prepared: Prepared) {
        self.rows = prepared.rows.clone();
        if let Some(jobs) = &self.jobs {
            // The thread is gone only if it panicked, which was printed.
            let _ = jobs.send(Job::Set(Box::new(prepared)));
        }
    }

    /// True if rows are written.
    pub fn wants_rows(&self) -> bool {
        self.rows.json.is_some() || self.rows.parquet.is_some()
    }

    /// Queues the rows of an interval. Never waits.
    pub fn rows(&self, rows: Vec<IntervalRow>) {
        let count = rows.len() as u64;
        self.send(Job::Rows(rows), &self.counters.rows_dropped, count);
    }

    /// Queues an alert. Never waits.
    pub fn alert(&self, alert: &Alert) {
        let job = Job::Alert(Box::new(alert.clone()));
        self.send(job, &self.counters.alerts_dropped, 1);
    }

    fn send(&self, job: Job, dropped: &AtomicU64, count: u64) {
        if self
            .jobs
            .as_ref()
            .is_none_or(|jobs| jobs.try_send(job).is_err())
        {
            dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counters of lost rows and alerts, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("rows_dropped", count(&self.counters.rows_dropped)),
            ("alert_lines_dropped", count(&self.counters.alerts_dropped)),
            ("row_writes_failed", count(&self.counters.writes_failed)),
            ("row_files_removed", count(&self.counters.files_removed)),
        ]
        .into_iter()
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn prepare(before: Option<&Rows>, config: &Config) -> anyhow::Result<Prepared> {
    let rows = &config.rows;
    let json = rows
        .json
        .as_deref()
        .map(|path| JsonLines::open(path, rows.which));
    // Without those of JSON lines.
    let of_parquet = |rows: &Rows| Rows {
        json: None,
        ..rows.clone()
    };
    let same = before.is_some_and(|before| of_parquet(before) == of_parquet(rows));
    let parquet = || {
        let options = ParquetOptions {
            wanted: rows.which,
            step_ns: nanos(rows.parquet_step),
            max_bytes: rows.parquet_max_bytes,
            ..ParquetOptions::default()
        };
        let open = |path: &PathBuf| ParquetWriter::open(path, options);
        rows.parquet.as_ref().map(open).transpose()
    };
    if let Some(path) = &config.alerts.json {
        append(path, b"").with_context(|| format!("open {} for alerts", path.display()))?;
    }
    Ok(Prepared {
        rows: rows.clone(),
        alerts: config.alerts.json.clone(),
        json: json.transpose().context("[rows] json")?,
        parquet: if same {
            None
        } else {
            Some(parquet().context("[rows] parquet")?)
        },
    })
}

/// Opens the file for each alert, since it may have been rotated.
fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fairpath_files::append(path)?.write_all(bytes)
}

/// The side of the thread.
struct Files {
    alerts: Option<PathBuf>,
    json: Option<JsonLines>,
    parquet: Option<ParquetWriter>,
    counters: Arc<Counters>,
    /// A failure was logged, and no write succeeded since.
    failing: bool,
}

impl Files {
    fn new(counters: Arc<Counters>) -> Files {
        Files {
            alerts: None,
            json: None,
            parquet: None,
            counters,
            failing: false,
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Rows(rows) => self.write(rows),
            Job::Alert(alert) => self.write_alert(&alert),
            Job::Set(prepared) => {
                self.alerts = prepared.alerts;
                self.json = prepared.json;
                if let Some(parquet) = prepared.parquet {
                    self.finish_parquet();
                    self.parquet = parquet;
                    // The present writer had the directory until now.
                    let recovered = self.parquet.as_mut().map_or(0, ParquetWriter::recover);
                    if recovered > 0 {
                        let files = counted(recovered, "file", "files");
                        tracing::info!("rows: completed {files} of an earlier run");
                    }
                }
            }
        }
    }

    fn write(&mut self, rows: Vec<IntervalRow>) {
        let json = self.json.as_mut().map(|json| json.write(&rows).map(drop));
        let parquet = self
            .parquet
            .as_mut()
            .map(|parquet| parquet.write(rows).map(drop));
        let removed = self.parquet.as_mut().map_or(0, ParquetWriter::take_removed);
        if removed > 0 {
            self.counters
                .files_removed
                .fetch_add(removed, Ordering::Relaxed);
            let files = counted(removed as usize, "file", "files");
            tracing::info!(
                "rows: removed {files} above [rows] parquet_max_bytes or the number of files"
            );
        }
        for result in [json, parquet].into_iter().flatten() {
            self.note(result.map_err(anyhow::Error::from));
        }
    }

    fn write_alert(&mut self, alert: &Alert) {
        let Some(path) = self.alerts.clone() else {
            return;
        };
        let result = serde_json::to_vec(alert)
            .map_err(anyhow::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                append(&path, &line)
                    .with_context(|| format!("write an alert to {}", path.display()))
            });
        self.note(result);
    }

    fn finish_parquet(&mut self) {
        if let Some(mut parquet) = self.parquet.take() {
            self.note(parquet.finish().map(drop).map_err(anyhow::Error::from));
        }
    }

    fn note(&mut self, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.counters.writes_failed.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!("{error:#}; failed writes are counted (row_writes_failed)");
                }
            }
        }
    }
}
