//! The loaded rules: a thread reads their counters, so that large sets never delay the loop.
//!
//! It takes at most a hundredth of a processor for counters, and a twentieth for the text of new rules: after
//! a long reading, it waits longer. It has no capability: the pinned arena belongs to root, as the daemon.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::snapshot::Query;

use crate::privileges;
use crate::rules::{Figures, Found, PinArgs};

/// Minimum time between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// Time without a reading of counters, in times of the last one.
const COUNTERS_SHARE: u32 = 100;
/// The same for the text of rules.
const TEXT_SHARE: u32 = 20;

/// What the thread found last.
#[derive(Default)]
struct Latest {
    rules: Option<Arc<LoadedRules>>,
    /// The failure that lasts.
    problem: Option<String>,
}

/// The thread. Drop ends it.
pub struct LoadedRulesReader {
    latest: Arc<Mutex<Latest>>,
    over: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LoadedRulesReader {
    /// Starts the thread, which looks for loaded rules at `place`.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start(place: PinArgs) -> anyhow::Result<LoadedRulesReader> {
        let latest = Arc::<Mutex<Latest>>::default();
        let (over, wake) = mpsc::sync_channel(0);
        let theirs = Arc::clone(&latest);
        let run = move || {
            privileges::drop_all();
            let mut keeper = Keeper {
                figures: Figures::new(place),
                latest: theirs,
                next_text: Instant::now(),
                rest: EVERY,
            };
            keeper.run(&wake);
        };
        let thread = thread::Builder::new().name("loaded rules".into());
        let thread = thread.spawn(run);
        Ok(LoadedRulesReader {
            latest,
            over: Some(over),
            thread: Some(thread.context("start the thread that reads loaded rules")?),
        })
    }

    /// What a query wants of the rules. `None`: nothing, or no rules are loaded.
    pub fn show(&self, query: &Query) -> Option<Box<LoadedRules>> {
        if query.rules == 0 && !query.exported_rules {
            return None;
        }
        let rules = self.rules()?;
        Some(Box::new(rules.part(query.rules, query.exported_rules)))
    }

    /// All that was read last. `None`: no rules are loaded.
    pub fn rules(&self) -> Option<Arc<LoadedRules>> {
        self.latest().rules.clone()
    }

    /// Why rules cannot be read.
    pub fn problem(&self) -> Option<String> {
        self.latest().problem.clone()
    }

    fn latest(&self) -> std::sync::MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LoadedRulesReader {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// The side of the thread.
struct Keeper {
    figures: Figures,
    latest: Arc<Mutex<Latest>>,
    /// Earliest time at which a text is read.
    next_text: Instant,
    /// Time until the next reading.
    rest: Duration,
}

impl Keeper {
    fn run(&mut self, over: &Receiver<()>) {
        loop {
            self.rest = EVERY;
            match self.read() {
                Ok(Read::None) => self.publish(None, None),
                Ok(Read::Later) => {}
                Ok(Read::Counted(rules)) => self.publish(Some(*rules), None),
                Err(error) => {
                    let text = format!("loaded rules: {error:#}");
                    self.publish(None, Some(text));
                }
            }
            if over.recv_timeout(self.rest) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn publish(&self, rules: Option<LoadedRules>, problem: Option<String>) {
        let rules = rules.map(Arc::new);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Latest { rules, problem };
    }

    fn read(&mut self) -> anyhow::Result<Read> {
        match self.figures.look()? {
            Found::None => return Ok(Read::None),
            Found::Same => {}
            Found::New => {
                let start = Instant::now();
                if start < self.next_text {
                    return Ok(Read::Later);
                }
                let is_known = self.figures.learn();
                self.next_text = Instant::now() + start.elapsed() * TEXT_SHARE;
                if !is_known? {
                    return Ok(Read::Later);
                }
            }
        }
        let start = Instant::now();
        let counted = self.figures.count()?;
        self.rest = (start.elapsed() * COUNTERS_SHARE).max(EVERY);
        Ok(counted.map_or(Read::Later, |rules| Read::Counted(Box::new(rules))))
    }
}

enum Read {
    /// No rules are loaded.
    None,
    /// The figures before stay.
    Later,
    Counted(Box<LoadedRules>),
}
