//! Answers to packets that loaded rules reject: the thread that sends them.
//!
//! Its sockets are opened before the daemon drops CAP_NET_RAW. The thread has no capability. While another
//! process answers, it waits: `fairpath rules answer` may run next to the daemon.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use fairpath_bpf::AnswerLock;
use fairpath_config::Config;

use crate::privileges;
use crate::rules::{ANSWERING, AnswerCounts, Answers, PinArgs};

/// Time after which a failure is tried again, and the lock of another process.
const RETRY: Duration = Duration::from_secs(1);

/// Sockets for the thread.
pub struct Prepared {
    answers: Answers,
    place: PinArgs,
}

impl Prepared {
    /// Opens the sockets. `None`: the configuration wants no answers.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing.
    pub fn new(config: &Config) -> anyhow::Result<Option<Prepared>> {
        let Some(limit) = config.rules.answer else {
            return Ok(None);
        };
        Ok(Some(Prepared {
            answers: Answers::new(limit)?,
            place: PinArgs::of_daemon(&config.control.socket),
        }))
    }
}

/// The thread. Drop ends it.
pub struct Rejects {
    counts: Arc<AnswerCounts>,
    over: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Rejects {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start(prepared: Prepared) -> anyhow::Result<Rejects> {
        let Prepared { mut answers, place } = prepared;
        let counts = answers.counts();
        let (over, wake) = mpsc::sync_channel(0);
        let run = move || {
            privileges::drop_all();
            run(&mut answers, &place, &wake);
        };
        let thread = thread::Builder::new().name("rejects".into()).spawn(run);
        Ok(Rejects {
            counts,
            over: Some(over),
            thread: Some(thread.context("start the thread that answers rejected packets")?),
        })
    }

    /// Counters by name.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        let counts = &self.counts;
        [
            ("rejects_answered", &counts.answered),
            ("rejects_over_limit", &counts.limited),
            ("rejects_without_answer", &counts.silent),
            ("rejects_not_sent", &counts.failed),
            ("rejects_too_fast", &counts.lost),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

impl Drop for Rejects {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// Answers until the sender is gone. A failure is logged once, and tried again.
fn run(answers: &mut Answers, place: &PinArgs, wake: &Receiver<()>) {
    let wait = |time| wake.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    let mut failed = None;
    loop {
        let done = match AnswerLock::try_new() {
            Ok(Some(_lock)) => {
                let note = |rules| {
                    if rules {
                        tracing::info!("{ANSWERING}");
                    }
                };
                answers.run(place, |time| Ok(wait(time)), note)
            }
            // Another process answers.
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = done {
            let text = format!("answer rejected packets: {error:#}");
            if failed.as_ref() != Some(&text) {
                tracing::warn!("{text}");
            }
            failed = Some(text);
        }
        if !wait(RETRY) {
            return;
        }
    }
}
