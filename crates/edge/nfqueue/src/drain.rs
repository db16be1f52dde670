//! Closing a queue without losing a packet.
//!
//! The kernel drops the packets of a queue that loses its owner. So close it in this order:
//!
//! 1. remove the rule that sends packets to the queue (the owner of the rules does that, not this
//!    crate);
//! 2. give held packets their verdicts, at their times or all at once ([`Queue::release_all`]);
//! 3. [`Queue::drain`]: it waits until no packet is between the old rules and the queue, decides
//!    about remaining packets, and returns when the kernel reports an empty queue;
//! 4. drop the queue.
//!
//! A rule that cannot be removed first needs `--queue-bypass`: packets then bypass the queue as
//! soon as it is unbound, but packets waiting at that moment are lost. `kill -9` always loses them.

use std::time::{Duration, Instant};

use crate::error::DrainError;
use crate::packet::Packet;
use crate::queue::{Answer, Mode, Queue, Wait};
use crate::socket::wait_for_rules;

/// A pause if the kernel has packets that are not in the socket yet.
const PAUSE: Duration = Duration::from_millis(1);

impl<M: Mode> Queue<M> {
    /// Decides about remaining packets until none is left, for at most `limit`. Returns their
    /// number.
    ///
    /// The rule that sends packets here must be removed. Takes some milliseconds, for the kernel's
    /// grace period.
    ///
    /// # Errors
    /// If packets are held, or still come after `limit`; the queue continues then.
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
            let arrived = self.decide_each(wait, &mut decide)?;
            drained += arrived as u64;
            if arrived == 0 && self.kernel_counts()?.waiting == 0 {
                return Ok(drained);
            }
            if Instant::now() >= end {
                return Err(DrainError::StillComing { queue, limit });
            }
            wait = if arrived == 0 {
                Wait::For(PAUSE)
            } else {
                Wait::Not
            };
        }
    }
}
