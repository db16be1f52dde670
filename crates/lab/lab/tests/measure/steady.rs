//! Figures that hold by the clock, on a machine that others use, too.
//!
//! Such a figure, and nothing else, is measured again where it misses: [`timed!`] says which it is, the
//! runner counts it, and a third miss fails. What no busy machine can cause is asserted, once.

use fairpath_units::{Disturbed, repeat_disturbed};

/// Times that a test may be disturbed.
const TRIES: u32 = 3;

/// Measures until every figure by the clock holds, three times at most.
pub fn until_steady(test: &str, mut measure: impl FnMut() -> Result<(), Disturbed>) {
    repeat_disturbed(test, TRIES, |_| measure());
}

/// [`until_steady`] under the name of the test around it.
macro_rules! steady {
    ($measure:expr) => {{
        fn nested() {}
        $crate::steady::until_steady(fairpath_testbed::test_name(nested), $measure)
    }};
}

/// A figure by the clock: returns from the measurement with its words where it misses.
macro_rules! timed {
    ($held:expr, $($what:tt)+) => {
        fairpath_units::Disturbed::unless($held, format!($($what)+))?
    };
}
pub(crate) use {steady, timed};
