//! Rates that the workers of a side share: threads, or members of a qdisc; and the thread that divides them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairpath_core::sched::SchedReader;
use fairpath_shape::{Balance, INTERVAL_NS, SharedRates, Side};

use crate::monotonic_ns;
use crate::repeat::Repeat;

/// Rates that workers share, and the thread that divides them.
pub struct Sharing {
    /// Before the state: it uses the memory of the rates until it ends.
    #[expect(dead_code, reason = "held")]
    thread: Repeat,
    state: Arc<Mutex<Balanced>>,
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
        let name = format!("rates {}", side.name());
        let thread = Repeat::start(name, INTERVAL_NS, &state, Balanced::divide)?;
        Ok(Sharing { thread, state })
    }

    /// Rates and balance; the thread waits until it is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Balanced> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Balanced {
    fn divide(&mut self) {
        if let Ok(now) = monotonic_ns() {
            self.balance.look(&mut self.rates, &self.workers, now);
        }
    }
}
