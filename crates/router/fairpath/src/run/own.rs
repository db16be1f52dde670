//! A monitor in this process, without daemon and configuration: `fairpath top -i`.
//!
//! The kernel's side may not change threads, so a thread owns it and answers as the daemon's loop
//! does. Subnets found in traffic are the classes.

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

use super::ask::{self, Asker, Questions};
use super::engine::{Engine, MAX_REST};

/// The monitor's thread; dropping this detaches everything.
pub struct Own {
    asker: Asker,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Own {
    /// Watches what is wished for.
    ///
    /// # Errors
    /// Where an interface cannot be, or the kernel refuses.
    pub fn watch(wish: &Wish<'_>) -> anyhow::Result<Own> {
        let config = config::of_wish(wish).map_err(|refused| wrong_usage(refused.of_options()))?;
        let (asker, questions) = ask::channel()?;
        let over = Arc::<AtomicBool>::default();
        let theirs = Arc::clone(&over);
        let (ready, begun) = mpsc::sync_channel(1);
        let run = move || own(config, &questions, &theirs, &ready);
        let thread = thread::Builder::new().name("monitor".into()).spawn(run);
        let mut own = Own {
            asker,
            over,
            thread: Some(thread.context("start the monitor's thread")?),
        };
        // Nothing to receive: it ended before it was ready, and its result says why.
        if begun.recv().is_err()
            && let Some(Ok(result)) = own.thread.take().map(JoinHandle::join)
        {
            result?;
        }
        Ok(own)
    }

    fn ask(&self, request: Request) -> Result<Answer, SourceError> {
        match self.asker.ask(request) {
            Ok(Answer::Error { text }) => Err(SourceError::Refused(text)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(SourceError::Other(Box::new(error))),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes it; whatever it answers is not waited for.
        self.asker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Source for Own {
    fn snapshot(&mut self, query: &Query) -> Result<Snapshot, SourceError> {
        let query = query.clone();
        match self.ask(Request::Snapshot { query })? {
            Answer::Snapshot { snapshot } => Ok(*snapshot),
            other => Err(SourceError::Refused(format!("not a picture: {other:?}"))),
        }
    }

    fn detail(&mut self, class: &str, limit: usize) -> Result<Detail, SourceError> {
        let class = class.to_owned();
        match self.ask(Request::Detail { class, limit })? {
            Answer::Detail { detail } => Ok(*detail),
            other => Err(SourceError::Refused(format!("not a detail: {other:?}"))),
        }
    }
}

/// The thread: what the daemon's loop does, less everything around it.
fn own(
    config: config::Config,
    questions: &Questions,
    over: &AtomicBool,
    ready: &SyncSender<()>,
) -> anyhow::Result<()> {
    let mut engine = Engine::load(config)?;
    let missing = engine.kernel.interfaces().missing();
    if let Some(name) = missing.first() {
        anyhow::bail!(
            "watch {name:?}: no interface has this name, or it cannot be watched; a pattern such as \
             'ppp*' waits for interfaces to come"
        );
    }
    engine.begin()?;
    // Who waits for it has gone only if the whole program ends.
    let _ = ready.send(());
    while !over.load(Ordering::Relaxed) {
        let waker = PollFd::new(questions.fd(), PollFlags::POLLIN);
        engine.rest(Instant::now() + MAX_REST, &[waker])?;
        engine.follow_links()?;
        let now = Instant::now();
        if now >= engine.next_reading && engine.read_interval(now) {
            engine.follow_traffic();
            engine.alerts.clear(); // rows show what holds
        }
        engine.expire(now);
        for question in questions.take() {
            let answer = engine.answer(&question.request, Default::default);
            question.answer(answer);
        }
    }
    Ok(())
}
