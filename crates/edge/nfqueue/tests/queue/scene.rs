//! A router with rules, and numbered datagrams through it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_nfqueue::{Config, Holding, InOrder, Mode, Queue, Verdict, Wait};
use fairpath_testbed::{Netns, Offloads, Router, Testbed};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

/// For what takes milliseconds, on a machine that is busy.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two checks of a flag.
pub const LOOK: Wait = Wait::For(Duration::from_millis(20));
const PORT: u16 = 4000;
const BUFFER_BYTES: usize = 64 << 20;

/// Skips unless the kernel and the tools for these tests are here.
#[macro_export]
macro_rules! needs_queues {
    ($($tool:expr),*) => {
        fairpath_testbed::requires!(
            fairpath_testbed::Need::Root,
            fairpath_testbed::Need::Tool("iptables"),
            $(fairpath_testbed::Need::Tool($tool)),*
        );
        if let Err(why) = fairpath_nfqueue::kernel_counts() {
            fn nested() {}
            let reason = format!("the kernel has no packet queues: {why}");
            fairpath_units::skip_test(fairpath_testbed::test_name(nested), "feature:nfqueue", &reason);
            return;
        }
    };
}

/// Client, router with rules, server.
pub struct Scene {
    pub net: Router,
}

impl Scene {
    /// Links without offloads: packets are what a wire carries.
    pub fn new() -> Scene {
        Scene::with(Offloads::Off)
    }

    pub fn with(offloads: Offloads) -> Scene {
        let net = Router::builder().offloads(offloads);
        Scene {
            net: net.build(&Testbed::new()).unwrap(),
        }
    }

    /// Sends all packets that cross the router, in both directions, to queue 0.
    pub fn queue_all(&self) {
        for tool in ["iptables", "ip6tables"] {
            self.rule(tool, "-A", "FORWARD -j NFQUEUE --queue-num 0");
        }
    }

    /// Sends packets from the client to queue 0; `-A` or `-D`.
    pub fn queue_clients(&self, operation: &str) {
        let rule = "FORWARD -i lan -p udp -j NFQUEUE --queue-num 0";
        self.rule("iptables", operation, rule);
    }

    pub fn rule(&self, tool: &str, operation: &str, rule: &str) {
        let mut argv = vec![tool, "-w", operation];
        argv.extend(rule.split(' '));
        self.net.router.run(&argv).unwrap();
    }

    /// Packets that met the rules of `chain` in `table` with this target (or any: empty).
    pub fn met(&self, table: &str, chain: &str, target: &str) -> u64 {
        let argv = ["iptables", "-w", "-t", table, "-nvxL", chain];
        let listing = self.net.router.run(&argv).unwrap();
        let rules = listing.lines().skip(2).filter(|line| line.contains(target));
        let packets = |line: &str| line.split_ascii_whitespace().next()?.parse::<u64>().ok();
        rules.filter_map(packets).sum()
    }

    pub fn bind(&self, config: &Config) -> Queue<Holding> {
        self.on_router(|| config.bind().unwrap())
    }

    pub fn bind_in_order(&self, config: &Config) -> Queue<InOrder> {
        self.on_router(|| config.bind_in_order().unwrap())
    }

    pub fn on_router<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.net.router.enter(f).unwrap()
    }

    /// A sender in the client's namespace and a receiver in the server's.
    pub fn datagrams(&self) -> Datagrams {
        self.datagrams_over(Router::CLIENT.v4, Router::SERVER.v4)
    }

    pub fn datagrams_over(&self, from: impl Into<IpAddr>, to: impl Into<IpAddr>) -> Datagrams {
        let bind = |ns: &Netns, ip: IpAddr| {
            let socket = ns.enter(|| UdpSocket::bind((ip, PORT))).unwrap().unwrap();
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket
        };
        let to = to.into();
        Datagrams {
            from: bind(&self.net.client, from.into()),
            at: bind(&self.net.server, to),
            to: (to, PORT).into(),
        }
    }
}

/// Datagrams that carry numbers.
pub struct Datagrams {
    from: UdpSocket,
    at: UdpSocket,
    to: SocketAddr,
}

impl Datagrams {
    pub fn send(&self, number: u32) {
        self.from.send_to(&number.to_be_bytes(), self.to).unwrap();
    }

    pub fn send_all(&self, numbers: impl IntoIterator<Item = u32>) {
        numbers.into_iter().for_each(|number| self.send(number));
    }

    /// The next number that arrives.
    pub fn next(&self) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!(self.at.recv(&mut bytes).expect("a datagram in time"), 4);
        u32::from_be_bytes(bytes)
    }

    /// All of the next datagram.
    pub fn next_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 2_000];
        let len = self.at.recv(&mut bytes).expect("a datagram in time");
        bytes.truncate(len);
        bytes
    }

    pub fn take(&self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Returns the packets that have already arrived.
    pub fn arrived(&self) -> Vec<u32> {
        self.at.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4];
        let all = std::iter::from_fn(|| {
            self.at
                .recv(&mut bytes)
                .ok()
                .map(|_| u32::from_be_bytes(bytes))
        });
        let all = all.collect();
        self.at.set_nonblocking(false).unwrap();
        all
    }

    /// Sends 0 to `count`, at most `window` more than have arrived, and calls `midway` when half have.
    ///
    /// Returns the numbers that never arrived, in the time that a datagram may take, and the repeated ones.
    pub fn stream(&self, count: u32, window: u64, midway: impl FnOnce() + Send) -> (Vec<u32>, u32) {
        let arrived = AtomicU64::new(0);
        let given_up = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    while u64::from(number) >= arrived.load(Ordering::Relaxed) + window
                        && !given_up.load(Ordering::Relaxed)
                    {
                        thread::yield_now();
                    }
                    self.send(number);
                }
            });
            let mut seen = BTreeSet::new();
            let (mut repeated, mut midway) = (0, Some(midway));
            // Loss is detected by silence, which is far longer than any wait here.
            self.at
                .set_read_timeout(Some(Duration::from_secs(3)))
                .unwrap();
            let mut bytes = [0; 4];
            while seen.len() < count as usize && self.at.recv(&mut bytes).is_ok() {
                repeated += u32::from(!seen.insert(u32::from_be_bytes(bytes)));
                arrived.fetch_add(1, Ordering::Relaxed);
                if seen.len() == count as usize / 2 {
                    midway.take().map(|midway| scope.spawn(midway));
                }
            }
            given_up.store(true, Ordering::Relaxed);
            ((0..count).filter(|n| !seen.contains(n)).collect(), repeated)
        })
    }
}

/// Accepts all that comes to `queue` while `traffic` lasts.
pub fn accepting<T>(queue: &mut Queue<InOrder>, traffic: impl FnOnce() -> T) -> T {
    while_answering(
        || {
            queue.answer(LOOK, |_| Verdict::ACCEPT).unwrap();
        },
        traffic,
    )
}

/// Calls `answer` again and again while `traffic` lasts.
pub fn while_answering<T>(mut answer: impl FnMut() + Send, traffic: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                answer();
            }
        });
        let _end = End(&done);
        traffic()
    })
}

/// Ends the thread that answers, also where the traffic's assertions fail.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until the kernel has `count` packets for the queue.
pub fn wait_waiting<M: Mode>(queue: &Queue<M>, count: u32) {
    let look = || (queue.kernel_counts().unwrap().waiting == count).then_some(());
    let counts = || queue.kernel_counts();
    fairpath_testbed::wait_for(DEADLINE, look).unwrap_or_else(|| panic!("{:?}", counts()));
}

/// Reads until nothing waits in the kernel, accepting all.
pub fn accept_waiting(queue: &mut Queue<InOrder>) -> usize {
    let end = Instant::now() + DEADLINE;
    let mut count = 0;
    while queue.kernel_counts().unwrap().waiting > 0 {
        count += queue.answer(LOOK, |_| Verdict::ACCEPT).unwrap();
        assert!(Instant::now() < end, "{:?}", queue.kernel_counts());
    }
    count
}

/// Keeps this thread on its CPU, so that its packets over a veth keep their order.
pub fn stay_on_one_cpu() {
    let mut cpus = CpuSet::new();
    cpus.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}
