//! A synthetic voice call, one direction: G.711 in packets of 20 ms, with number and time in each.
//!
//! 50 packets a second of 172 bytes (160 of sound, 12 of RTP's header) leave at absolute times. Both ends are on
//! one machine, so one clock serves both: the delay is the kernel's time stamp of the arrival less the time in the
//! packet. Deliberately absent: silence suppression, which would make the load depend on what is said.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairpath_analysis::record::CallRecord;
use fairpath_testbed::{Netns, NetnsError};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

use super::clock::{Origin, Window};
use super::precise::{real_time_ns, receive_stamped, sleep_until, thread_cpu, wake_exactly};

/// G.711's usual packet: 20 ms.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// 160 samples of a byte, and RTP's header.
pub const PAYLOAD_BYTES: usize = 172;
/// Time after the last packet in which packets still count; a playout buffer would have given them up long before.
const LINGER: Duration = Duration::from_secs(1);
/// The interval at which the receiver checks for the end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Packets of one call at most: an hour.
const PACKET_LIMIT: usize = 180_000;

/// A call cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A namespace.
    #[error("call \"{name}\": enter a namespace")]
    Netns {
        /// Which call.
        name: String,
        /// Why not.
        source: NetnsError,
    },
    /// A socket.
    #[error("call \"{name}\": {operation}")]
    Socket {
        /// Which call.
        name: String,
        /// The operation.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// A call to be made.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// As the experiment calls it.
    pub name: String,
    /// The speaker.
    pub from: Netns,
    /// The listener.
    pub to: Netns,
    /// The listener's address.
    pub to_ip: Ipv4Addr,
    /// The listener's port.
    pub port: u16,
    /// DSCP of the packets; 46 is Expedited Forwarding, 0 is best effort.
    pub dscp: u8,
}

/// A call under way; it ends when the value goes.
#[derive(Debug)]
pub struct Calling {
    name: String,
    speaker: Option<JoinHandle<io::Result<Spoken>>>,
    listener: Option<JoinHandle<io::Result<Received>>>,
    hush: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
    /// Packets that came, duplicates included.
    arrived: Arc<AtomicUsize>,
}

/// When each packet was sent, and what that took.
#[derive(Debug, Default)]
struct Spoken {
    /// Seconds since the origin.
    at: Vec<f64>,
    cpu: Duration,
}

/// Delay of each packet that came.
#[derive(Debug, Default)]
struct Received {
    /// (Number, ns).
    delays: Vec<(u32, u64)>,
    cpu: Duration,
}

impl CallPlan {
    /// Begins at second `start` after `origin`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn start(&self, origin: Origin, start: f64) -> Result<Calling, CallError> {
        let address = SocketAddrV4::new(self.to_ip, self.port);
        let listen = self.in_netns(&self.to, || listening(address))?;
        let listen = listen.map_err(|e| self.failed("listen", e))?;
        let speak = self.in_netns(&self.from, || speaking(address, self.dscp))?;
        let speak = speak.map_err(|e| self.failed("open the speaker's socket", e))?;
        let mut calling = Calling {
            name: self.name.clone(),
            speaker: None,
            listener: None,
            hush: Arc::new(AtomicBool::new(false)),
            leave: Arc::new(AtomicBool::new(false)),
            arrived: Arc::new(AtomicUsize::new(0)),
        };
        let (leave, arrived) = (Arc::clone(&calling.leave), Arc::clone(&calling.arrived));
        let thread = std::thread::Builder::new().name("lab-listener".to_owned());
        let listener = thread.spawn(move || run_listener(&listen, &leave, &arrived));
        calling.listener = Some(listener.map_err(|e| self.failed("start the listener", e))?);
        let hush = Arc::clone(&calling.hush);
        let thread = std::thread::Builder::new().name("lab-speaker".to_owned());
        let speaker = thread.spawn(move || send_packets(&speak, origin, start, &hush));
        calling.speaker = Some(speaker.map_err(|e| self.failed("start the speaker", e))?);
        Ok(calling)
    }

    fn in_netns<T: Send>(&self, ns: &Netns, f: impl FnOnce() -> T + Send) -> Result<T, CallError> {
        ns.enter(f).map_err(|source| CallError::Netns {
            name: self.name.clone(),
            source,
        })
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> CallError {
        CallError::Socket {
            name: self.name.clone(),
            operation,
            source,
        }
    }
}

impl Calling {
    /// Ends the call; waits up to a second for packets under way.
    ///
    /// # Errors
    /// [`CallError`] of the first packet that could not be sent or received.
    pub fn finish(mut self) -> Result<Called, CallError> {
        self.hush.store(true, Ordering::Relaxed);
        let spoken = join(self.speaker.take());
        let sent = spoken.as_ref().map_or(0, |spoken| spoken.at.len());
        self.await_packets(sent);
        self.leave.store(true, Ordering::Relaxed);
        let received = join(self.listener.take());
        let failed = |operation| {
            let name = self.name.clone();
            move |source| CallError::Socket {
                name,
                operation,
                source,
            }
        };
        let spoken = spoken.map_err(failed("speak"))?;
        let received = received.map_err(failed("listen"))?;
        Ok(Called::new(&self.name, spoken, &received))
    }

    /// Until as many came as were sent, or those that did not are late beyond use.
    fn await_packets(&self, sent: usize) {
        let end = Instant::now() + LINGER;
        while self.arrived.load(Ordering::Relaxed) < sent && Instant::now() < end {
            std::thread::sleep(INTERVAL / 4);
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.hush.store(true, Ordering::Relaxed);
        self.leave.store(true, Ordering::Relaxed);
        // What they measured is not wanted any more.
        let _ = self.speaker.take().map(JoinHandle::join);
        let _ = self.listener.take().map(JoinHandle::join);
    }
}

fn join<T: Default>(thread: Option<JoinHandle<io::Result<T>>>) -> io::Result<T> {
    match thread.map(JoinHandle::join) {
        None => Ok(T::default()),
        Some(Ok(result)) => result,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
    }
}

/// A call that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Called {
    name: String,
    /// Of each packet, in order: when it left, and its delay in ns.
    packets: Vec<(f64, Option<u64>)>,
    /// Processor time of both threads.
    pub cpu: Duration,
}

impl Called {
    fn new(name: &str, spoken: Spoken, received: &Received) -> Called {
        let mut packets: Vec<_> = spoken.at.into_iter().map(|at| (at, None)).collect();
        for (number, delay) in &received.delays {
            if let Some((_, slot)) = packets.get_mut(*number as usize) {
                // Of duplicates the first counts: it is what a listener would play.
                slot.get_or_insert(*delay);
            }
        }
        Called {
            name: name.to_owned(),
            packets,
            cpu: spoken.cpu + received.cpu,
        }
    }

    /// The packets that left in `window`, and those before it.
    pub fn record(&self, window: Window) -> CallRecord {
        let delays = |is_wanted: &dyn Fn(f64) -> bool| {
            let wanted = self.packets.iter().filter(|(at, _)| is_wanted(*at));
            wanted.map(|(_, delay)| *delay).collect()
        };
        CallRecord {
            name: self.name.clone(),
            interval_ns: INTERVAL.as_nanos() as u64,
            delays_ns: delays(&|at| window.contains(at)),
            before_ns: delays(&|at| at < window.from),
        }
    }
}

fn listening(address: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(socket)
}

fn speaking(to: SocketAddrV4, dscp: u8) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    setsockopt(&socket, sockopt::Ipv4Tos, &(i32::from(dscp & 0x3f) << 2))?;
    socket.connect(to)?;
    Ok(socket)
}

fn send_packets(
    socket: &UdpSocket,
    origin: Origin,
    start: f64,
    hush: &AtomicBool,
) -> io::Result<Spoken> {
    wake_exactly();
    let mut spoken = Spoken::default();
    let mut packet = [0xd5; PAYLOAD_BYTES];
    while !hush.load(Ordering::Relaxed) && spoken.at.len() < PACKET_LIMIT {
        let number = spoken.at.len() as u32;
        let due = origin.moment(start + f64::from(number) * INTERVAL.as_secs_f64());
        if !sleep_receiving(due, hush) {
            break;
        }
        let at = origin.now();
        packet[..4].copy_from_slice(&number.to_be_bytes());
        packet[4..12].copy_from_slice(&real_time_ns()?.to_be_bytes());
        match socket.send(&packet) {
            Ok(_) => {}
            // Lost at once; the call continues.
            Err(error) if lost_here(&error) => {}
            Err(error) => return Err(error),
        }
        spoken.at.push(at);
    }
    spoken.cpu = thread_cpu();
    Ok(spoken)
}

/// Sleeps until `due`; false if the call is to end before.
fn sleep_receiving(due: Instant, hush: &AtomicBool) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left <= LOOK_EVERY {
            sleep_until(due);
            return !hush.load(Ordering::Relaxed);
        }
        std::thread::sleep(LOOK_EVERY);
        if hush.load(Ordering::Relaxed) {
            return false;
        }
    }
}

fn lost_here(error: &io::Error) -> bool {
    let errors = [
        libc::ENOBUFS,
        libc::EAGAIN,
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| errors.contains(&code))
}

fn run_listener(
    socket: &UdpSocket,
    leave: &AtomicBool,
    arrived: &AtomicUsize,
) -> io::Result<Received> {
    let mut received = Received::default();
    while !leave.load(Ordering::Relaxed) {
        match receive(socket) {
            Ok(Some(packet)) if received.delays.len() < 2 * PACKET_LIMIT => {
                received.delays.push(packet);
                arrived.store(received.delays.len(), Ordering::Relaxed);
            }
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    received.cpu = thread_cpu();
    Ok(received)
}

/// One packet: its number and its delay.
fn receive(socket: &UdpSocket) -> nix::Result<Option<(u32, u64)>> {
    let mut buffer = [0; PAYLOAD_BYTES];
    let (bytes, stamp) = receive_stamped(socket, &mut buffer)?;
    Ok(stamp
        .filter(|_| bytes == PAYLOAD_BYTES)
        .map(|at| read(&buffer, at)))
}

fn read(packet: &[u8; PAYLOAD_BYTES], arrived: u64) -> (u32, u64) {
    let mut number = [0; 4];
    number.copy_from_slice(&packet[..4]);
    let mut sent = [0; 8];
    sent.copy_from_slice(&packet[4..12]);
    let sent = u64::from_be_bytes(sent);
    (u32::from_be_bytes(number), arrived.saturating_sub(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_lack_delay_and_duplicates_count_once() {
        let spoken = Spoken {
            at: vec![0.0, 0.02, 0.04, 0.06],
            cpu: Duration::ZERO,
        };
        let received = Received {
            delays: vec![(0, 5), (3, 9), (3, 12), (1, 7), (99, 1)],
            cpu: Duration::ZERO,
        };
        let called = Called::new("call", spoken, &received);
        let record = called.record(Window {
            from: 0.01,
            to: 1.0,
        });
        assert_eq!(record.delays_ns, [Some(7), None, Some(9)]);
        assert_eq!(record.before_ns, [Some(5)]);
        assert_eq!(record.interval_ns, 20_000_000);
    }

    #[test]
    fn packets_carry_number_and_send_time() {
        let mut packet = [0; PAYLOAD_BYTES];
        packet[3] = 9;
        packet[4..12].copy_from_slice(&1000u64.to_be_bytes());
        assert_eq!(read(&packet, 1750), (9, 750));
    }
}
