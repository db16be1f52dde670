//! Accepts every packet of one queue, and leaves without losing one.
//!
//! ```sh
//! iptables -I FORWARD -j NFQUEUE --queue-num 0
//! accept_all 0 &
//! iptables -D FORWARD -j NFQUEUE --queue-num 0   # first the rule,
//! kill %1                                        # then the program: it drains and prints its counts
//! ```
//!
//! The second argument `hold` keeps a hundred packets back and releases them newest first.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairpath_nfqueue::{BindError, Config, Held, Holding, InOrder, Queue, Verdict, Wait};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A signal between the check of the flag and the wait is noticed after it.
const LOOK_EVERY: Wait = Wait::For(Duration::from_millis(100));
/// The time to continue while the rule still exists.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Packets kept back.
const KEPT: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    run(env::args().skip(1))
}

/// With the arguments of the command line.
pub fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let number = arguments.next().unwrap_or_default();
    let number: u16 = number
        .parse()
        .map_err(|_| format!("queue number {number:?}: give 0 to 65535"))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let config = Config::new(number).copy_bytes(128);
    if arguments.next().as_deref() == Some("hold") {
        hold(ready(config.bind())?, &stop)
    } else {
        accept(ready(config.bind_in_order())?, &stop)
    }
}

fn ready<M: fairpath_nfqueue::Mode>(
    bound: Result<Queue<M>, BindError>,
) -> Result<Queue<M>, BindError> {
    let queue = bound?;
    eprintln!(
        "queue {} is bound, {:?}",
        queue.number(),
        queue.receive_buffer()
    );
    Ok(queue)
}

fn accept(mut queue: Queue<InOrder>, stop: &AtomicBool) -> Result<(), Box<dyn Error>> {
    while !stop.load(Ordering::Relaxed) {
        queue.answer(LOOK_EVERY, |_| Verdict::ACCEPT)?;
    }
    leave(queue)
}

fn hold(mut queue: Queue<Holding>, stop: &AtomicBool) -> Result<(), Box<dyn Error>> {
    let mut kept: Vec<Held> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        kept.extend(queue.receive(LOOK_EVERY)?.packets.map(|(_, held)| held));
        while kept.len() > KEPT
            && let Some(held) = kept.pop()
        {
            queue.release().give(held, Verdict::ACCEPT)?;
        }
    }
    queue.release_all(Verdict::ACCEPT)?;
    leave(queue)
}

fn leave<M: fairpath_nfqueue::Mode>(mut queue: Queue<M>) -> Result<(), Box<dyn Error>> {
    let drained = queue.drain(DRAIN_LIMIT, |_| Verdict::ACCEPT)?;
    println!("drained {drained}, {:?}", queue.counters());
    println!("{:?}", queue.kernel_counts()?);
    Ok(())
}
