//! The output of a running program, collected by a thread, and readable while it runs.

use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time until the last output of an ended program arrives.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// The output of a program, collected by a thread.
#[derive(Debug)]
pub(crate) struct Tail {
    shared: Arc<(Mutex<Collected>, Condvar)>,
}

#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

impl Tail {
    pub(crate) fn follow(pipe: impl Read + Send + 'static) -> Tail {
        let shared = Arc::<(Mutex<Collected>, Condvar)>::default();
        let theirs = Arc::clone(&shared);
        thread::spawn(move || collect(pipe, &theirs));
        Tail { shared }
    }

    pub(crate) fn text(&self) -> String {
        let collected = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&collected.bytes).into_owned()
    }

    /// Waits until the text is there; `false` when time is up or the pipe has ended without it.
    pub(crate) fn wait_for(&self, text: &str, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        let mut collected = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if contains(&collected.bytes, text.as_bytes()) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if collected.ended || left.is_zero() {
                return false;
            }
            let waited = self.shared.1.wait_timeout(collected, left);
            collected = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until everything is read; a stray descendant that keeps the pipe open is not waited for.
    pub(crate) fn close(&self) {
        let end = Instant::now() + CLOSE_DEADLINE;
        let mut collected = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !collected.ended && Instant::now() < end {
            let waited = self.shared.1.wait_timeout(collected, CLOSE_DEADLINE);
            collected = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn collect(mut pipe: impl Read, shared: &(Mutex<Collected>, Condvar)) {
    let mut chunk = [0; 4096];
    loop {
        let count = match pipe.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.unwrap_or(0),
        };
        let mut collected = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        collected.bytes.extend_from_slice(&chunk[..count]);
        collected.ended = count == 0;
        shared.1.notify_all();
        if count == 0 {
            return;
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
