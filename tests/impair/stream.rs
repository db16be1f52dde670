//! Numbered datagrams through a network: when each was sent, and when it came.
//!
//! Times are of `CLOCK_MONOTONIC`, ns, read before a datagram is handed to the kernel and after it came:
//! so what lies between is never less than what the network took. A busy machine makes it more.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Netns, Router};
use fairpath_tests::PATIENCE;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::scene::{Ended, Impaired, router};

/// Where datagrams go.
const PORT: u16 = 7777;
/// Between two datagrams: slow enough for a busy machine.
const EVERY: Duration = Duration::from_micros(200);
/// The maximum silence before packets in flight count as lost.
const SILENCE: Duration = Duration::from_millis(1500);
/// Where packets are handed on, and where they are sent: order is kept on one processor only.
pub const CPU: usize = 0;
/// Bytes of a datagram, and of its frame by IPv4.
const PAYLOAD: usize = 64;
pub const FRAME: u64 = 14 + 28 + PAYLOAD as u64;

/// The packets to send, with source and destination.
pub struct Course<'n> {
    from: &'n Netns,
    to: &'n Netns,
    address: SocketAddr,
    count: u32,
    first: u32,
    flows: usize,
    together: u32,
    every: Duration,
}

/// A stream that was sent, with its outcome.
#[derive(Debug)]
pub struct Stream {
    /// By number, from that of the first.
    pub sent: Vec<u64>,
    /// In the order of coming: number and time.
    pub arrived: Vec<(u32, u64)>,
    /// Whom they came from.
    pub sources: BTreeSet<SocketAddr>,
    first: u32,
}

/// `CLOCK_MONOTONIC`, as ports and BPF programs read it, ns.
fn now() -> u64 {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    u64::try_from(time.as_nanos()).unwrap()
}

impl<'n> Course<'n> {
    /// Datagrams 0 to `count` from one namespace to an address of another.
    pub fn new(
        from: &'n Netns,
        to: &'n Netns,
        address: impl Into<IpAddr>,
        count: u32,
    ) -> Course<'n> {
        Course {
            from,
            to,
            address: SocketAddr::new(address.into(), PORT),
            count,
            first: 0,
            flows: 1,
            together: 1,
            every: EVERY,
        }
    }

    /// Their numbers begin with this one.
    #[must_use]
    pub fn first(mut self, number: u32) -> Course<'n> {
        self.first = number;
        self
    }

    /// By this number of flows in turn.
    #[must_use]
    pub fn flows(mut self, flows: usize) -> Course<'n> {
        self.flows = flows;
        self
    }

    /// This number of a flow at once, as one GSO packet if the interface accepts it.
    #[must_use]
    pub fn together(mut self, datagrams: u32) -> Course<'n> {
        self.together = datagrams;
        self
    }

    /// So far apart, at least.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Course<'n> {
        self.every = every;
        self
    }

    /// Sends them, and waits until `wanted` have come; no longer than nothing comes for a while.
    pub fn run(self, wanted: usize) -> Stream {
        let receiver = self.to.enter(|| UdpSocket::bind(self.address).unwrap());
        let receiver = receiver.unwrap();
        setsockopt(&receiver, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        receiver.set_read_timeout(Some(SILENCE)).unwrap();
        let arrived = thread::spawn(move || receive(&receiver, wanted));
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let mut one = CpuSet::new();
        one.set(CPU).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        let sent = self.send();
        sched_setaffinity(Pid::from_raw(0), &before).unwrap();
        let (arrived, sources) = arrived.join().unwrap();
        Stream {
            sent,
            arrived,
            sources,
            first: self.first,
        }
    }

    fn send(&self) -> Vec<u64> {
        let any = match self.address {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        };
        let sender = || {
            let sender = UdpSocket::bind(any).unwrap();
            setsockopt(&sender, sockopt::UdpGsoSegment, &(PAYLOAD as i32)).unwrap();
            sender
        };
        let senders: Vec<UdpSocket> = (0..self.flows)
            .map(|_| self.from.enter(sender).unwrap())
            .collect();
        let (begin, mut sent) = (Instant::now(), Vec::new());
        let numbers: Vec<u32> = (self.first..self.first + self.count).collect();
        let trains = numbers.chunks(self.together as usize);
        for (numbers, sender) in trains.zip(senders.iter().cycle()) {
            let datagrams: Vec<u8> = numbers.iter().flat_map(|number| payload(*number)).collect();
            sent.extend(numbers.iter().map(|_| now()));
            // The first may come before the kernel has its route; numbers are the impairment's, so all
            // count.
            while let Err(error) = sender.send_to(&datagrams, self.address) {
                assert!(begin.elapsed() < PATIENCE, "send: {error}");
                thread::sleep(EVERY);
            }
            // Time that others took is not made up for: a burst would overflow the kernel's queues.
            thread::sleep(self.every);
        }
        sent
    }
}

/// A number and nothing else.
fn payload(number: u32) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// Two at a time, each until this number has arrived.
pub fn both(courses: [(Course<'_>, usize); 2]) -> [Stream; 2] {
    thread::scope(|scope| {
        let running = courses.map(|(course, wanted)| scope.spawn(move || course.run(wanted)));
        running.map(|stream| stream.join().unwrap())
    })
}

/// The same number there and back through a router with the impairment `words`, in each direction until this number
/// has arrived. Returns the end of the run.
pub fn there_and_back(
    port: &'static str,
    words: &[&str],
    count: u32,
    wanted: [usize; 2],
) -> ([Stream; 2], Ended) {
    let net = router();
    let impaired = Impaired::between(&net, port, words);
    let there = Course::new(&net.client, &net.server, Router::SERVER.v4, count);
    let back = Course::new(&net.server, &net.client, Router::CLIENT.v4, count);
    let streams = both([(there, wanted[0]), (back, wanted[1])]);
    (streams, impaired.end())
}

type Arrivals = (Vec<(u32, u64)>, BTreeSet<SocketAddr>);

fn receive(receiver: &UdpSocket, wanted: usize) -> Arrivals {
    let (mut arrived, mut sources, mut bytes) = (Vec::new(), BTreeSet::new(), [0; 256]);
    while arrived.len() < wanted {
        let Ok((length, source)) = receiver.recv_from(&mut bytes) else {
            break;
        };
        let at = now();
        assert_eq!(length, PAYLOAD);
        arrived.push((u32::from_be_bytes(*bytes.first_chunk().unwrap()), at));
        sources.insert(source);
    }
    (arrived, sources)
}

impl Stream {
    /// Numbers that came, each once, in their order.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.arrived.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// When a datagram was sent.
    pub fn sent_at(&self, number: u32) -> u64 {
        self.sent[(number - self.first) as usize]
    }

    /// The mean time of sending datagrams after the first one, ns.
    pub fn mean_sent_ns(&self) -> f64 {
        let since = self.sent.iter().map(|at| at - self.sent[0]);
        since.sum::<u64>() as f64 / self.sent.len() as f64
    }

    /// Datagrams that came after one of a greater number.
    pub fn inversions(&self) -> usize {
        let mut max = 0;
        let arrived = self.arrived.iter().map(|(number, _)| *number);
        arrived
            .filter(|number| {
                let is_late = *number < max;
                max = max.max(*number);
                is_late
            })
            .count()
    }

    /// None came before the time that is its own.
    pub fn assert_not_before(&self, time: impl Fn(u32) -> u64) {
        for (number, at) in &self.arrived {
            let min = time(*number);
            assert!(
                *at >= min,
                "{number}: {} ns too early",
                min.saturating_sub(*at)
            );
        }
    }
}
