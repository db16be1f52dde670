//! A thread that repeats its work at an interval, until it is dropped.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;

use crate::orders::Ran;
use crate::privileges::keep_of_worker;

/// The thread takes at most a fiftieth of a CPU: with much work, the interval is longer.
const PARTS_OF_CPU: u32 = 50;

/// The running thread. Drop waits for its end.
pub struct Repeat {
    /// Dropped, the thread ends.
    ends: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repeat {
    /// Starts a thread with a name, which takes a turn every `interval_ns`, with the state locked.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start<T: Send + 'static>(
        name: String,
        interval_ns: u64,
        state: &Arc<Mutex<T>>,
        mut turn: impl FnMut(&mut T) + Send + 'static,
    ) -> anyhow::Result<Repeat> {
        let state = Arc::clone(state);
        let (ends, until) = mpsc::sync_channel::<()>(1);
        let repeat = move || {
            keep_of_worker();
            let every = Duration::from_nanos(interval_ns);
            let mut took = Duration::ZERO;
            while until.recv_timeout(every.max(took * PARTS_OF_CPU))
                == Err(RecvTimeoutError::Timeout)
            {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                // A busy machine delays the thread, which is no cost.
                let begin = Ran::now();
                turn(&mut state);
                took = Duration::from_nanos(Ran::now().ns.saturating_sub(begin.ns));
            }
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(repeat);
        let thread = thread.with_context(|| format!("start the thread {name:?}"))?;
        Ok(Repeat {
            ends: Some(ends),
            thread: Some(thread),
        })
    }
}

impl Drop for Repeat {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}
