//! Echo requests during the flows, at exact times, answered by the other host's kernel.
//!
//! iputils' ping prints three digits, which is 0.1 ms of a round trip of 20 ms, and spins below 10 ms. Here a
//! thread sends at absolute times, and the arrival is the kernel's time stamp, so that a busy processor delays the
//! sending and not the result. Deliberately absent: IPv6 (the lab's networks are IPv4), floods.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairpath_analysis::record::PingRecord;
use fairpath_testbed::{Netns, NetnsError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt,
    socket, sockopt,
};

use super::clock::{Origin, Window};
use super::precise::{real_time_ns, receive_stamped, thread_cpu, wake_exactly};

/// Payload behind the ICMP header, as ping has it.
const PAYLOAD_BYTES: usize = 56;
/// ICMP header and payload.
const MESSAGE_BYTES: usize = 8 + PAYLOAD_BYTES;
/// Longest IPv4 header, and the message.
const BUFFER_BYTES: usize = 60 + MESSAGE_BYTES;
/// Time after the end in which answers still count: bufferbloat's queues are long.
const LINGER: Duration = Duration::from_secs(1);
/// A shorter interval would be a load.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Requests of one run at most; an hour at 20 ms.
const REQUEST_LIMIT: usize = 180_000;

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Pings cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The namespace.
    #[error("ping \"{name}\": enter its namespace")]
    Netns {
        /// Which.
        name: String,
        /// Why not.
        source: NetnsError,
    },
    /// The socket.
    #[error("ping \"{name}\": {operation}; needs CAP_NET_RAW")]
    Socket {
        /// Which.
        name: String,
        /// The operation.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// No thread.
    #[error("ping \"{name}\": start its thread")]
    Thread {
        /// Which.
        name: String,
        /// Why not.
        source: io::Error,
    },
}

/// Pings to be sent.
#[derive(Clone, Debug)]
pub struct PingPlan {
    /// As the experiment calls them.
    pub name: String,
    /// From where.
    pub from: Netns,
    /// To whom.
    pub to: Ipv4Addr,
    /// Time between two, at least 1 ms.
    pub interval: Duration,
}

/// Pings under way; they end when the value goes.
#[derive(Debug)]
pub struct Pinging {
    name: String,
    thread: Option<JoinHandle<Result<Echoes, PingError>>>,
    stop: Arc<AtomicBool>,
}

impl PingPlan {
    /// Begins at once: what is answered before `origin` is the idle phase.
    ///
    /// # Errors
    /// [`PingError`].
    pub fn start(&self, origin: Origin) -> Result<Pinging, PingError> {
        let opened = self.from.enter(open).map_err(|source| PingError::Netns {
            name: self.name.clone(),
            source,
        })?;
        let socket = opened.map_err(|error| self.failed("open a raw socket", error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work {
            plan: self.clone(),
            socket,
            origin,
            identifier: next_identifier(),
            sent: Vec::new(),
            answered: BTreeMap::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("lab-ping".to_owned())
            .spawn(move || work.run(&stopped))
            .map_err(|source| PingError::Thread {
                name: self.name.clone(),
                source,
            })?;
        Ok(Pinging {
            name: self.name.clone(),
            thread: Some(thread),
            stop,
        })
    }

    fn failed(&self, operation: &'static str, error: impl Into<io::Error>) -> PingError {
        PingError::Socket {
            name: self.name.clone(),
            operation,
            source: error.into(),
        }
    }
}

impl Pinging {
    /// Ends them; waits up to a second for answers under way.
    ///
    /// # Errors
    /// [`PingError`] of the first request that could not be sent.
    pub fn finish(mut self) -> Result<Echoes, PingError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("taken here and on drop only");
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// As the experiment calls them.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Pinging {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; nothing is left of it.
            let _ = thread.join();
        }
    }
}

/// Requests and answers of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Echoes {
    name: String,
    /// Of each request, in order: when, and its round trip in ns.
    requests: Vec<(f64, Option<u64>)>,
    /// Processor time of the thread.
    pub cpu: Duration,
}

impl Echoes {
    /// Returns the replies of the idle phase and of `window`.
    pub fn record(&self, window: Window) -> PingRecord {
        let measured = self.requests.iter().filter(|(at, _)| window.contains(*at));
        let answered = |(at, rtt): &(f64, Option<u64>)| Some((*at, (*rtt)?));
        PingRecord {
            name: self.name.clone(),
            sent: measured.clone().count() as u32,
            rtts_ns: measured.filter_map(answered).collect(),
            idle_rtts_ns: (self.requests.iter().filter(|(at, _)| *at < 0.0))
                .filter_map(|(_, rtt)| *rtt)
                .collect(),
        }
    }
}

/// Each run of pings has a unique identifier: all share the host's raw sockets.
fn next_identifier() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0x4650);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(
        AddressFamily::Inet,
        SockType::Raw,
        flags,
        SockProtocol::Icmp,
    )?;
    setsockopt(&fd, sockopt::ReceiveTimestampns, &true)?;
    Ok(fd)
}

struct Work {
    plan: PingPlan,
    socket: OwnedFd,
    origin: Origin,
    identifier: u16,
    /// Of each request: when, and its real time.
    sent: Vec<(f64, u64)>,
    /// Request -> real time of its first answer.
    answered: BTreeMap<usize, u64>,
}

impl Work {
    fn run(mut self, stop: &AtomicBool) -> Result<Echoes, PingError> {
        wake_exactly();
        let interval = self.plan.interval.max(MIN_INTERVAL);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) && self.sent.len() < REQUEST_LIMIT {
            self.send()?;
            next = (next + interval).max(Instant::now());
            self.receive_until(next, stop)?;
        }
        let end = Instant::now() + LINGER;
        while self.awaits_answers() && Instant::now() < end {
            let look = Instant::now() + MIN_INTERVAL * 10;
            self.receive_until(look.min(end), &AtomicBool::new(false))?;
        }
        Ok(self.echoes())
    }

    /// True if a request may still be answered; one that is older than the time for it is lost.
    fn awaits_answers(&self) -> bool {
        let oldest = self.origin.now() - LINGER.as_secs_f64();
        may_come(&self.sent, &self.answered, oldest)
    }

    fn echoes(&self) -> Echoes {
        let rtt = |n: usize, sent: u64| {
            let answered = *self.answered.get(&n)?;
            Some(answered.saturating_sub(sent))
        };
        let requests = self.sent.iter().enumerate();
        Echoes {
            name: self.plan.name.clone(),
            requests: requests
                .map(|(n, (at, sent))| (*at, rtt(n, *sent)))
                .collect(),
            cpu: thread_cpu(),
        }
    }

    fn send(&mut self) -> Result<(), PingError> {
        let message = request(self.identifier, self.sent.len() as u32);
        let to = SockaddrIn::from(SocketAddrV4::new(self.plan.to, 0));
        let at = self.origin.now();
        let real = real_time_ns().map_err(|e| self.plan.failed("read the clock", e))?;
        match sendto(self.socket.as_raw_fd(), &message, &to, MsgFlags::empty()) {
            // A full queue loses the request, as the network may: it counts as sent.
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN) => {}
            Err(error) => return Err(self.plan.failed("send an echo request", error)),
        }
        self.sent.push((at, real));
        Ok(())
    }

    /// Takes answers until `moment`.
    fn receive_until(&mut self, moment: Instant, stop: &AtomicBool) -> Result<(), PingError> {
        loop {
            self.take_answers()?;
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // poll counts milliseconds; the last one is slept.
            let Ok(timeout) = PollTimeout::try_from(left.as_millis()) else {
                return Ok(());
            };
            if left < Duration::from_millis(1) {
                std::thread::sleep(left);
                continue;
            }
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(self.plan.failed("wait for answers", error)),
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), PingError> {
        loop {
            match receive(&self.socket, self.identifier) {
                Ok(Some((sequence, at))) if (sequence as usize) < self.sent.len() => {
                    self.answered.entry(sequence as usize).or_insert(at);
                }
                Ok(_) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                // A router reports an unreachable host; the request stays without an answer.
                Err(Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(self.plan.failed("take an answer", error)),
            }
        }
    }
}

/// True if a request that was sent after second `oldest` has no answer.
fn may_come(sent: &[(f64, u64)], answered: &BTreeMap<usize, u64>, oldest: f64) -> bool {
    let young = sent.iter().enumerate().rev();
    let mut young = young.take_while(|(_, (at, _))| *at > oldest);
    young.any(|(number, _)| !answered.contains_key(&number))
}

/// One packet; its request and arrival if it is an answer to one of ours.
fn receive(socket: &OwnedFd, identifier: u16) -> nix::Result<Option<(u32, u64)>> {
    let mut buffer = [0; BUFFER_BYTES];
    let (bytes, stamp) = receive_stamped(socket, &mut buffer)?;
    let sequence = answer(&buffer[..bytes], identifier);
    Ok(sequence.zip(stamp))
}

/// An echo request. The sequence number has 32 bits in the payload; ICMP's own has 16.
fn request(identifier: u16, sequence: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[0] = ECHO_REQUEST;
    bytes[4..6].copy_from_slice(&identifier.to_be_bytes());
    bytes[6..8].copy_from_slice(&(sequence as u16).to_be_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The sequence number of the request that an IPv4 packet answers.
fn answer(packet: &[u8], identifier: u16) -> Option<u32> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let message = packet.get(header..header + 12)?;
    if message[0] != ECHO_REPLY || message[4..6] != identifier.to_be_bytes() {
        return None;
    }
    Some(u32::from_be_bytes(message[8..12].try_into().ok()?))
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_checksum_that_adds_up() {
        assert_eq!(checksum(&request(0x4650, 70_000)), 0);
        // RFC 1071's own example.
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
    }

    #[test]
    fn only_answers_to_ours_are_taken() {
        let mut packet = vec![0x45; 20];
        packet.extend_from_slice(&request(7, 70_000));
        assert_eq!(answer(&packet, 7), None, "a request is no answer");
        packet[20] = ECHO_REPLY;
        assert_eq!(answer(&packet, 7), Some(70_000));
        assert_eq!(answer(&packet, 8), None);
        assert_eq!(answer(&packet[..31], 7), None);
        assert_eq!(answer(&[], 7), None);
    }

    #[test]
    fn only_requests_with_possible_answers_are_awaited() {
        let sent = [(0.0, 0), (1.0, 1), (2.0, 2)];
        let answered = |numbers: &[usize]| numbers.iter().map(|number| (*number, 9)).collect();
        assert!(
            !may_come(&sent, &answered(&[1, 2]), 0.5),
            "the first is lost"
        );
        assert!(may_come(&sent, &answered(&[0, 2]), 0.5));
        assert!(may_come(&sent, &answered(&[0, 1]), 0.5));
        assert!(!may_come(&sent, &answered(&[]), 2.0));
    }

    #[test]
    fn idle_and_measured_are_distinguished() {
        let echoes = Echoes {
            name: "ping".to_owned(),
            requests: vec![
                (-0.5, Some(100)),
                (-0.1, None),
                (0.5, Some(150)),
                (1.0, Some(200)),
                (1.5, None),
            ],
            cpu: Duration::ZERO,
        };
        let record = echoes.record(Window { from: 1.0, to: 2.0 });
        assert_eq!(record.sent, 2);
        assert_eq!(record.rtts_ns, [(1.0, 200)]);
        assert_eq!(record.idle_rtts_ns, [100]);
    }
}
