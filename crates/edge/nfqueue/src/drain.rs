//! Leaving without losing a packet.
//!
//! The kernel drops whatever waits in a queue that loses its owner. So, in this order:
//!
//! 1. take the rule away that sends packets to the queue (what manages rules does that; this crate does not);
//! 2. give held packets their verdicts, at their times, or all at once ([`Queue::release_all`]);
//! 3. [`Queue::drain`], which waits until no packet is between the old rules and the queue, decides what
//!    still comes, and returns when the kernel says that nothing waits;
//! 4. drop the queue.
//!
//! A rule that cannot go away first needs `--queue-bypass`: packets then pass by the queue as soon as it
//! is unbound, but those that wait at that moment are lost. `kill -9` loses them always.

use std::time::{Duration, Instant};

use crate::error::DrainError;
use crate::packet::Packet;
use crate::queue::{Answer, Mode, Queue, Wait};
use crate::socket::wait_for_rules;

/// A pause where the kernel has packets but the socket none: they are on their way to it.
const PAUSE: Duration = Duration::from_millis(1);

impl<M: Mode> Queue<M> {
    /// Decides what still comes until nothing is left, for at most `limit`; returns how many packets that were.
    ///
    /// The rule that sends packets here must be gone. Takes some milliseconds, for the kernel's grace period.
    ///
    /// # Errors
    /// Where packets are held, or still come after `limit`; the queue works on then.
    pub fn drain<A: Into<Answer>>(
        &mut self,
        limit: Duration,
        mut decide: impl FnMut(&Packet<'_>) -> A,
    ) -> Result<u64, DrainError> {
        let (queue, held) = (self.number(), self.held());
        if held > 0 {
            return Err(DrainError::Held { queue, held });
        }
        wait_for_rules();
        let end = Instant::now() + limit;
        let mut wait = Wait::Not;
        let mut drained = 0;
        loop {
            let came = self.decide_each(wait, &mut decide)?;
            drained += came as u64;
            if came == 0 && self.kernel_counts()?.waiting == 0 {
                return Ok(drained);
            }
            if Instant::now() >= end {
                return Err(DrainError::StillComing { queue, limit });
            }
            wait = if came == 0 {
                Wait::For(PAUSE)
            } else {
                Wait::Not
            };
        }
    }
}
