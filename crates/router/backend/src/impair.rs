//! What the ports of an impairment have in common.

use fairpath_afxdp::Precedence;
use fairpath_impair::Counts;

/// Longest before its time that a thread stays awake, ns: where it runs before all others, a sleep
/// ends within some 50 us of its time.
const AWAKE_FIRST_NS: u64 = 60_000;
/// Likewise where it runs as others do.
const AWAKE_USUAL_NS: u64 = 300_000;

/// Puts the calling thread before others; how long before its time it is to stay awake.
pub fn awake_ns() -> u64 {
    match fairpath_afxdp::precede() {
        Ok(Precedence::RealTime) => AWAKE_FIRST_NS,
        Ok(Precedence::Usual) => AWAKE_USUAL_NS,
        Err(error) => {
            eprintln!("fairpath impair: ask for exact timers: {error}; packets may leave late");
            AWAKE_USUAL_NS
        }
    }
}

/// A port with its directions, running. Dropping it takes away what is attached.
pub trait Engine {
    /// What it does in a line.
    fn about(&self) -> String;

    /// What became of packets so far, by direction.
    ///
    /// # Errors
    /// Where it does not run any more: why.
    fn read(&mut self) -> anyhow::Result<Vec<Counts>>;

    /// Ends: nothing is impaired any more, and what waits goes on or is dropped. The last counts.
    ///
    /// # Errors
    /// What was left behind.
    fn stop(self: Box<Self>) -> anyhow::Result<Vec<Counts>>;
}
