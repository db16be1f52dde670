//! A router whose interface towards the client is shaped, and traffic towards the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairpath_bpf::Pins;
use fairpath_core::sched::End;
use fairpath_core::{Prefix, Rules};
use fairpath_netlink::HtbTree;
use fairpath_testbed::{Offloads, Process, Router, Testbed, wait_for};
use fairpath_tests::htb::Shaped;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;

/// For what happens at once, and for transfers of some seconds.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Where datagrams go.
pub const PORT: u16 = 7777;

pub struct Site {
    pub net: Router,
    pub pins: Pins,
    _place: tempfile::TempDir,
}

impl Site {
    pub fn new(offloads: Offloads) -> Site {
        let net = Router::builder().offloads(offloads);
        let net = net.build(&Testbed::new()).unwrap();
        let place = tempfile::tempdir().unwrap();
        Site {
            net,
            pins: Pins::at(place.path().join("pins")).unwrap(),
            _place: place,
        }
    }

    pub fn pins_path(&self) -> std::path::PathBuf {
        self._place.path().join("pins")
    }

    /// Shapes `lan` by the class of who receives: `minors[N]` is that of class N.
    pub fn shape(&self, tree: &HtbTree, rules: &Rules, minors: &[u16]) -> Shaped {
        let shape = || {
            let classes = minors.len() as u32;
            let mut shaped = Shaped::open("lan", classes, End::Receiver).unwrap();
            shaped.apply(tree).unwrap();
            shaped.mark(rules, minors, &self.pins).unwrap();
            shaped
        };
        self.net.router.enter(shape).unwrap()
    }

    /// Sends datagrams from the server.
    pub fn send(&self, to: impl Into<IpAddr>, datagrams: u32, bytes: usize) {
        let to = SocketAddr::new(to.into(), PORT);
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let send = || {
            let socket = UdpSocket::bind(any).unwrap();
            for _ in 0..datagrams {
                socket.send_to(&vec![0; bytes], to).unwrap();
            }
        };
        self.net.server.enter(send).unwrap();
    }

    /// Datagrams of the same length from the server at this rate, until the result is dropped. With `segments`, as many leave
    /// in one GSO packet.
    pub fn stream(&self, to: IpAddr, bytes: u16, segments: Option<usize>, bps: u64) -> Stream {
        let open = || {
            let any: IpAddr = match to {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            UdpSocket::bind((any, 0)).unwrap()
        };
        let socket = self.net.server.enter(open).unwrap();
        if segments.is_some() {
            setsockopt(&socket, UdpGsoSegment, &i32::from(bytes)).unwrap();
        }
        socket.connect((to, PORT)).unwrap();
        let payload = vec![0; usize::from(bytes) * segments.unwrap_or(1)];
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, began) = (ended.clone(), Instant::now());
        let thread = thread::spawn(move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                let due = (began.elapsed().as_secs_f64() * bps as f64 / 8.0) as usize;
                while sent < due && !stop.load(Ordering::Relaxed) {
                    // No socket listens there: the refusal of an earlier one is reported.
                    let _ = socket.send(&payload);
                    sent += payload.len();
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Stream {
            ended,
            thread: Some(thread),
        }
    }

    /// Datagrams from the server, 1,448 bytes each, at this rate, until it is dropped.
    pub fn flood(&self, to: IpAddr, port: u16, bitrate: &str) -> Process {
        let (to, port) = (to.to_string(), port.to_string());
        let words = [
            "-c", &to, "-p", &port, "-u", "-l", "1448", "-t", "60", "-b", bitrate,
        ];
        let mut command = self.net.server.command_without_sysfs("iperf3");
        command.args(words);
        self.net.server.spawn(command).unwrap()
    }
}

/// See [`Site::stream`].
pub struct Stream {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // With the mount, its pins go; what is wrong shows in the temporary directory.
        let _ = self.pins.clone().unmount();
    }
}

/// Prefixes of class 1, 2, ...
pub fn by_prefix(prefixes: &[Prefix]) -> Rules {
    Rules {
        prefixes: prefixes.iter().copied().zip(1..).collect(),
        ..Rules::default()
    }
}

/// The rates of classes, bits a second, while together they send `bytes`, from when all have begun.
pub fn rates(shaped: &mut Shaped, minors: &[u16], bytes: u64) -> Vec<f64> {
    let mut sent = || -> Vec<u64> {
        let each = |minor: &u16| shaped.class(*minor).unwrap().bytes;
        minors.iter().map(each).collect()
    };
    let begun = wait_for(PATIENCE, || {
        Some(sent()).filter(|sent| sent.iter().all(|bytes| *bytes > 500_000))
    });
    let (before, began) = (begun.expect("traffic begins"), Instant::now());
    let enough = |sent: &Vec<u64>| sent.iter().sum::<u64>() - before.iter().sum::<u64>() >= bytes;
    let after = wait_for(PATIENCE, || Some(sent()).filter(enough)).expect("traffic continues");
    let seconds = began.elapsed().as_secs_f64();
    let rate = |(after, before): (&u64, &u64)| (after - before) as f64 * 8.0 / seconds;
    after.iter().zip(&before).map(rate).collect()
}
