//! The loaded rules: a thread reads their counters, so that large sets never delay the loop.
//!
//! It takes at most 1 % of a processor for counters, and 5 % for the text of new rules: after a long reading,
//! it waits longer. It has no capability: the pinned arena belongs to root, as the daemon.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::snapshot::{Answer, Query};

use super::query::PendingRequest;
use crate::privileges;
use crate::rules::{Figures, Found, PinArgs};

/// Minimum time between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// Time without a reading of counters, in times of the last one.
const COUNTERS_SHARE: u32 = 100;
/// The same for the text of rules.
const TEXT_SHARE: u32 = 20;
/// Questions that wait. Further ones are refused.
const MAX_WAITING: usize = 4;

/// The last reading.
#[derive(Default)]
struct Latest {
    rules: Option<Arc<LoadedRules>>,
    /// The failure that lasts.
    problem: Option<String>,
}

/// The thread. Drop ends it.
pub struct LoadedRulesReader {
    latest: Arc<Mutex<Latest>>,
    questions: Option<SyncSender<PendingRequest>>,
    thread: Option<JoinHandle<()>>,
}

impl LoadedRulesReader {
    /// Starts the thread, which looks for loaded rules at `place`.
    ///
    /// # Errors
    /// The kernel provides no thread.
    pub fn start(place: PinArgs) -> anyhow::Result<LoadedRulesReader> {
        let latest = Arc::<Mutex<Latest>>::default();
        let (questions, requests) = mpsc::sync_channel(MAX_WAITING);
        let theirs = Arc::clone(&latest);
        let run = move || {
            privileges::drop_all();
            let mut keeper = Keeper {
                figures: Figures::new(place),
                latest: theirs,
                next_text: Instant::now(),
                rest: EVERY,
                next_answer: Instant::now(),
            };
            keeper.run(&requests);
        };
        let thread = thread::Builder::new().name("loaded rules".into());
        let thread = thread.spawn(run);
        Ok(LoadedRulesReader {
            latest,
            questions: Some(questions),
            thread: Some(thread.context("start the thread that reads loaded rules")?),
        })
    }

    /// The part of the rules that a query selects. `None`: nothing, or no rules are loaded.
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

    /// Queues a question for all rules. Never waits. The thread answers.
    pub fn question(&self, pending: PendingRequest) {
        let questions = self.questions.as_ref();
        let refused = questions.and_then(|questions| questions.try_send(pending).err());
        if let Some(TrySendError::Full(pending) | TrySendError::Disconnected(pending)) = refused {
            let text = "rules: too many questions wait: retry".to_owned();
            pending.answer(Answer::Error { text });
        }
    }

    fn latest(&self) -> std::sync::MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LoadedRulesReader {
    fn drop(&mut self) {
        self.questions = None;
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
    /// Earliest time at which all rules are listed.
    next_answer: Instant,
}

impl Keeper {
    fn run(&mut self, requests: &Receiver<PendingRequest>) {
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
            let next = Instant::now() + self.rest;
            loop {
                let rest = next.saturating_duration_since(Instant::now());
                // Requests that wait must not keep the counters from being read.
                if rest.is_zero() {
                    break;
                }
                match requests.recv_timeout(rest) {
                    Ok(pending) => {
                        let answer = self.answer();
                        pending.answer(answer.unwrap_or_else(|error| Answer::Error {
                            text: format!("{error:#}"),
                        }));
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    /// All rules with their counters.
    fn answer(&mut self) -> anyhow::Result<Answer> {
        let start = Instant::now();
        let left = self.next_answer.saturating_duration_since(start);
        if left > EVERY {
            let seconds = left.as_secs() + 1;
            bail!("rules: they are many, and were listed just now: retry in {seconds} s");
        }
        thread::sleep(left);
        let start = Instant::now();
        let text = self.figures.text();
        self.next_answer = Instant::now() + start.elapsed() * TEXT_SHARE;
        let bytes = text?;
        // The state is that of the last reading; of rules that were loaded since, there is none.
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let state = latest.rules.as_ref().map(|rules| rules.part(0, false));
        drop(latest);
        Ok(Answer::Rules {
            text: bytes.into_iter().map(char::from).collect(),
            state: Box::new(state.context("rules: they were just loaded: retry in 1 s")?),
        })
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
