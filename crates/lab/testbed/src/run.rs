//! One testbed: its identity, and the namespaces made in its name.
//!
//! The identity marks every process (environment) and every namespace (alias of `lo`), so that
//! [`crate::leftovers`] can find them from outside.

use std::fmt;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::netns::{Netns, NetnsError};

/// Environment variable that carries the [`RunId`] into every process of a testbed.
pub const RUN_ENV: &str = "FAIRPATH_TESTBED_RUN";

/// Identity of one testbed; no two on a machine are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// A new identity from process id, clock and a counter.
    fn fresh() -> RunId {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        RunId(format!("{}-{:x}-{count}", process::id(), since_epoch.as_nanos()).into())
    }

    /// The identity another process printed, to look for what it left.
    pub fn from_text(text: &str) -> RunId {
        RunId(text.trim().into())
    }

    /// The identity as text, free of spaces.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Where namespaces come from.
///
/// It owns nothing itself: each value it makes cleans up alone, and may outlive it.
#[derive(Clone, Debug)]
pub struct Testbed {
    run: RunId,
}

impl Testbed {
    /// A testbed with a unique identity.
    #[expect(clippy::new_without_default, reason = "two testbeds are never equal")]
    pub fn new() -> Testbed {
        Testbed {
            run: RunId::fresh(),
        }
    }

    /// The identity that marks all processes and namespaces of this testbed.
    pub fn run_id(&self) -> &RunId {
        &self.run
    }

    /// Makes an empty namespace with `lo` up, quiet in IPv6 (no DAD, no router solicitations).
    ///
    /// `name` appears in messages only; it need not be unique. Takes about 10 ms.
    pub fn netns(&self, name: &str) -> Result<Netns, NetnsError> {
        Netns::create(name, &self.run)
    }

    /// A handle on the namespace of the calling thread, which is left as it is.
    pub fn current_netns(&self) -> Result<Netns, NetnsError> {
        Netns::current(&self.run)
    }
}
