//! Rates that the workers of a side share: threads, or members of a qdisc; and the thread that divides them.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_core::sched::SchedReader;
use fairpath_shape::{Balance, INTERVAL_NS, SharedRates, Side};

use crate::monotonic_ns;
use crate::privileges::keep_of_worker;

/// Rates that workers share, and the thread that divides them.
pub struct Sharing {
    state: Arc<Mutex<Balanced>>,
    /// Dropped, the thread ends.
    ends: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shared rates, and the counters by which they are divided.
pub struct Balanced {
    /// The rates.
    pub rates: SharedRates,
    /// Divides them.
    pub balance: Balance,
    /// Of each worker.
    pub workers: Vec<SchedReader>,
}

impl Sharing {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(side: Side, state: Balanced) -> anyhow::Result<Sharing> {
        let state = Arc::new(Mutex::new(state));
        let theirs = Arc::downgrade(&state);
        let (ends, until) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("rates {}", side.name()))
            .spawn(move || divide(&theirs, &until))
            .context("start the thread that divides shared rates")?;
        Ok(Sharing {
            state,
            ends: Some(ends),
            thread: Some(thread),
        })
    }

    /// Rates and balance; the thread waits until it is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Balanced> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.ends = None;
        // It uses the memory of the rates.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Divides rates until the other end of the channel is dropped. With very many classes it does so less often, so that it
/// takes at most a fiftieth of a CPU.
fn divide(state: &Weak<Mutex<Balanced>>, until: &Receiver<()>) {
    const PART_OF_CPU: u32 = 50;
    keep_of_worker();
    let mut took = Duration::ZERO;
    let every = Duration::from_nanos(INTERVAL_NS);
    while until.recv_timeout(every.max(took * PART_OF_CPU)) == Err(RecvTimeoutError::Timeout) {
        let begin = Instant::now();
        let (Some(state), Ok(now)) = (state.upgrade(), monotonic_ns()) else {
            return;
        };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let Balanced {
            rates,
            balance,
            workers,
        } = &mut *state;
        balance.look(rates, workers, now);
        took = begin.elapsed();
    }
}
