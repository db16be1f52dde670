//! Datagrams at a pace, each with the time at which it was sent.
//!
//! ```text
//!   sender, in one namespace     number, CLOCK_MONOTONIC ──> receiver, in another: CLOCK_MONOTONIC
//! ```
//!
//! One machine, one clock: the difference is the time one way, from before the sending system call to
//! behind the receiving one, the waking of the receiver included. The sender sleeps until each
//! datagram's own time, by exact timers; a pause that others forced upon it is not made up for, for a
//! burst would measure something else.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fairpath_testbed::Router;
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Where datagrams go.
const PORT: u16 = 7777;
/// Payload that makes 64 bytes with the headers of UDP and IPv4.
const PAYLOAD: usize = 36;
/// Number and time.
const STAMP: usize = 16;
/// Datagrams that are sent at once at most where the sender is behind its times.
const CATCH_UP: u64 = 4;
/// Of the receiver's buffer: one second at the maximum pace.
const BUFFER_BYTES: usize = 16 << 20;
/// The interval at which the receiver checks whether the sender has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Packets in flight arrive within this number of polls, or not at all.
const SILENT_LOOKS: u32 = 5;
/// A sleep ends at its time, and not within 50 us behind it.
const SLACK_NS: u64 = 1;

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Datagrams sent.
    pub sent: u64,
    /// A second.
    pub pace: f64,
    /// Times one way of those that came, ns, in order of length.
    pub one_way_ns: Vec<u64>,
}

impl Passed {
    /// Datagrams that did not come.
    pub fn missing(&self) -> u64 {
        self.sent.saturating_sub(self.one_way_ns.len() as u64)
    }

    /// The time that half of them took at most, us; 0 where none came.
    pub fn median_us(&self) -> f64 {
        let middle = self.one_way_ns.get(self.one_way_ns.len() / 2);
        middle.map_or(0.0, |ns| *ns as f64 / 1e3)
    }

    /// The shortest, us; 0 where none came.
    pub fn min_us(&self) -> f64 {
        self.one_way_ns.first().map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

/// Sends from the client to the server of `net`, at this rate, for this time.
///
/// # Errors
/// Where the kernel refuses a socket, a timer or a datagram.
pub fn run(net: &Router, per_second: u32, time: Duration) -> anyhow::Result<Passed> {
    let to = SocketAddr::from((Router::SERVER.v4, PORT));
    let receiver = net.server.enter(|| UdpSocket::bind(to))?;
    let receiver = receiver.context("make a receiver")?;
    setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    receiver.set_read_timeout(Some(LOOK))?;
    let sender = net
        .client
        .enter(|| UdpSocket::bind((Router::CLIENT.v4, 0)))?;
    let sender = sender.context("make a sender")?;
    sender.connect(to).context("aim the sender")?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, &is_over));
        let sent = send(&sender, per_second, time);
        is_over.store(true, Ordering::Release);
        let received = receiving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (sent, pace) = sent?;
        let mut one_way_ns = received?;
        one_way_ns.sort_unstable();
        Ok(Passed {
            sent,
            pace,
            one_way_ns,
        })
    })
}

fn now_ns() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("read the clock")?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

fn sleep_until(at_ns: u64) -> anyhow::Result<()> {
    let at = TimeSpec::from_duration(Duration::from_nanos(at_ns));
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    match clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("sleep until a datagram's time"),
    }
}

/// Returns the number of sent packets, and their rate per second.
fn send(socket: &UdpSocket, per_second: u32, time: Duration) -> anyhow::Result<(u64, f64)> {
    set_timerslack(SLACK_NS).context("set exact timers")?;
    let apart = 1_000_000_000 / u64::from(per_second.max(1));
    let begin = now_ns()?;
    let end = begin + time.as_nanos() as u64;
    let (mut next, mut number) = (begin, 0u64);
    while next < end {
        sleep_until(next)?;
        let now = now_ns()?;
        let mut payload = [0; PAYLOAD];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        payload[8..STAMP].copy_from_slice(&now.to_be_bytes());
        socket.send(&payload).context("send a datagram")?;
        number += 1;
        next = (next + apart).max(now.saturating_sub(CATCH_UP * apart));
    }
    let seconds = now_ns()?.saturating_sub(begin) as f64 / 1e9;
    Ok((number, number as f64 / seconds.max(f64::MIN_POSITIVE)))
}

/// Times one way, ns, in order of arrival.
fn receive(socket: &UdpSocket, is_over: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let (mut times, mut silent, mut payload) = (Vec::new(), 0, [0; 2 * PAYLOAD]);
    while silent < SILENT_LOOKS {
        match socket.recv(&mut payload) {
            Ok(PAYLOAD) => {
                let now = now_ns()?;
                let mut stamp = [0; 8];
                stamp.copy_from_slice(&payload[8..STAMP]);
                times.push(now.saturating_sub(u64::from_be_bytes(stamp)));
                silent = 0;
            }
            // A packet of another program.
            Ok(_) => {}
            Err(error) if is_nothing(&error) => {
                silent += u32::from(is_over.load(Ordering::Acquire));
            }
            Err(error) => return Err(error).context("receive a datagram"),
        }
    }
    Ok(times)
}

fn is_nothing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_use_received_samples_only() {
        let passed = Passed {
            sent: 5,
            pace: 1.0,
            one_way_ns: vec![10_000, 20_000, 90_000],
        };
        assert_eq!(passed.missing(), 2);
        assert_eq!((passed.median_us(), passed.min_us()), (20.0, 10.0));
        assert_eq!(Passed::default().median_us(), 0.0);
    }
}
