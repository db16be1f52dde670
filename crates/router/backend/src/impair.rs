//! Common parts of the back ends of an impairment.

use std::os::fd::BorrowedFd;

use fairpath_afxdp::{Awake, Precedence};
use fairpath_impair::Counts;
use fairpath_units::Nanos;

/// The longest time that a thread stays awake before a deadline, ns. With real-time priority a sleep
/// ends within about 50 us of its time.
const AWAKE_FIRST_NS: u64 = 60_000;
/// The same without real-time priority.
const AWAKE_USUAL_NS: u64 = 300_000;

/// The same with `--precise`: longer than nearly every late wake-up of a busy or virtual machine.
const AWAKE_PRECISE_NS: u64 = 1_000_000;

/// Puts the calling thread before others; how long before its time it is to stay awake.
pub fn awake(precise: bool) -> Awake {
    let usual = match fairpath_afxdp::precede() {
        Ok(Precedence::RealTime) => AWAKE_FIRST_NS,
        Ok(Precedence::Usual) => {
            if precise {
                fairpath_cli::note(format_args!(
                    "--precise: the kernel refuses real-time priority (CAP_SYS_NICE): other programs may delay packets"
                ));
            }
            AWAKE_USUAL_NS
        }
        Err(error) => {
            fairpath_cli::note(format_args!(
                "set exact timers: {error}; packets may be late"
            ));
            AWAKE_USUAL_NS
        }
    };
    match precise {
        true => Awake::precise(Nanos(AWAKE_PRECISE_NS)),
        false => Awake::before(Nanos(usual)),
    }
}

/// A running back end with its directions. Drop detaches it.
pub trait Engine {
    /// One line about it.
    fn about(&self) -> String;

    /// The outcomes of packets so far, by direction.
    ///
    /// # Errors
    /// It does not run any more.
    fn read(&mut self) -> anyhow::Result<Vec<Counts>>;

    /// Readable when it has ended before it was stopped; [`Engine::read`] returns the reason.
    fn ended(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Stops, and returns the last counts. Queued packets are sent or dropped.
    ///
    /// # Errors
    /// Rules or programs remain.
    fn stop(self: Box<Self>) -> anyhow::Result<Vec<Counts>>;
}
