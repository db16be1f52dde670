//! A monitor in this process, without a daemon: `fairpath top -i`.
//!
//! The kernel runtime is bound to its thread, so a thread owns it and answers requests as the loop
//! of the daemon does. The subnets in the traffic are the rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::Context;
use fairpath_cli::wrong_usage;
use fairpath_config::{self as config, Wish};
use fairpath_history::snapshot::{Answer, Detail, Query, Request, Snapshot};
use fairpath_top::{Source, SourceError};
use nix::poll::{PollFd, PollFlags};

use super::engine::{Engine, MAX_REST};
use super::query::{self, RequestQueue, Requester};

/// The thread of the monitor. Drop detaches the programs.
pub struct Own {
    requester: Requester,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Own {
    /// Measures on the interfaces of `wish`.
    ///
    /// # Errors
    /// An interface name is invalid, or the kernel refuses.
    pub fn watch(wish: &Wish<'_>) -> anyhow::Result<Own> {
        let config = config::of_wish(wish).map_err(|refused| wrong_usage(refused.of_options()))?;
        let (requester, requests) = query::channel()?;
        let over = Arc::<AtomicBool>::default();
        let theirs = Arc::clone(&over);
        let (ready, begun) = mpsc::sync_channel(1);
        let run = move || own(config, &requests, &theirs, &ready);
        let thread = thread::Builder::new().name("monitor".into()).spawn(run);
        let mut own = Own {
            requester,
            over,
            thread: Some(thread.context("start the monitor's thread")?),
        };
        // The thread ended before it was ready; its result has the error.
        if begun.recv().is_err()
            && let Some(Ok(result)) = own.thread.take().map(JoinHandle::join)
        {
            result?;
        }
        Ok(own)
    }

    fn query(&self, request: Request) -> Result<Answer, SourceError> {
        match self.requester.query(request) {
            Ok(Answer::Error { text }) => Err(SourceError::Refused(text)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(SourceError::Other(Box::new(error))),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread.
        self.requester.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Source for Own {
    fn snapshot(&mut self, query: &Query) -> Result<Snapshot, SourceError> {
        let query = query.clone();
        match self.query(Request::Snapshot { query })? {
            Answer::Snapshot { snapshot } => Ok(*snapshot),
            other => Err(SourceError::Refused(format!(
                "unexpected answer: {other:?}"
            ))),
        }
    }

    fn detail(&mut self, class: &str, limit: usize) -> Result<Detail, SourceError> {
        let class = class.to_owned();
        match self.query(Request::Detail { class, limit })? {
            Answer::Detail { detail } => Ok(*detail),
            other => Err(SourceError::Refused(format!(
                "unexpected answer: {other:?}"
            ))),
        }
    }
}

/// The loop of the thread.
fn own(
    config: config::Config,
    requests: &RequestQueue,
    over: &AtomicBool,
    ready: &SyncSender<()>,
) -> anyhow::Result<()> {
    let mut engine = Engine::load(config)?;
    let missing = engine.kernel.interfaces().missing();
    if let Some(name) = missing.first() {
        let waiting = engine
            .waiting_for
            .iter()
            .find(|waiting| waiting.name == *name);
        let near = waiting.and_then(|waiting| waiting.nearest.as_ref());
        let near = near.map_or(String::new(), |near| format!("did you mean {near:?}? "));
        anyhow::bail!(
            "watch {name:?}: no interface has this name, or it is not supported: {near}a pattern such \
             as 'ppp*' waits for interfaces"
        );
    }
    engine.begin()?;
    // The receiver is gone only if the program ends.
    let _ = ready.send(());
    while !over.load(Ordering::Relaxed) {
        let waker = PollFd::new(requests.fd(), PollFlags::POLLIN);
        engine.rest(Instant::now() + MAX_REST, &[waker])?;
        engine.follow_links()?;
        let now = Instant::now();
        if now >= engine.next_reading && engine.read_interval(now) {
            engine.follow_traffic();
            engine.alerts.clear(); // rows have the active alerts
        }
        engine.expire(now);
        for pending in requests.take() {
            let answer = engine.answer(&pending.request, Default::default);
            pending.answer(answer);
        }
    }
    Ok(())
}
