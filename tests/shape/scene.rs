//! A router that shapes, and traffic through it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Impairment, Netns, Offloads, Ping, Router, RouterBuilder, Testbed};
use fairpath_tests::daemon::client;
use fairpath_tests::{Daemon, Place};
use serde_json::{Value, json};

/// Lets traffic, or its absence, last for so long: this time is what a test is about, not what it waits for.
pub fn for_a_time(time: Duration) {
    thread::sleep(time);
}

/// Short relative to any silence.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Where datagrams go.
pub const PORT: u16 = 7777;
/// More addresses of the client: separate subscribers.
pub const BERT: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 3);

/// Tests that hold rates and times to percents run alone, others at the same time.
static MACHINE: RwLock<()> = RwLock::new(());

/// Workers of all scenes: `FAIRPATH_TEST_WORKERS=2` runs tests of one worker with several.
fn workers() -> Option<u32> {
    let given = std::env::var("FAIRPATH_TEST_WORKERS").ok();
    given.map(|n| n.parse().expect("FAIRPATH_TEST_WORKERS is a number"))
}

/// Two queues at each interface. Those of the router only, for a back end of transmit queues: a veth passes its queue
/// number on, and only without one, the stack selects a queue by the hash of the flow.
fn give_queues(net: &Router, port: &str) {
    let ends = [(&net.client, "eth0"), (&net.server, "eth0")];
    let router = [(&net.router, "lan"), (&net.router, "wan")];
    let ends = ends.into_iter().filter(|_| port != "kernel");
    for (ns, interface) in router.into_iter().chain(ends) {
        let words = ["ethtool", "-L", interface, "rx", "2", "tx", "2"];
        ns.run(&words).unwrap();
    }
}

/// The machine, alone or with others.
enum Share {
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
    Against(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
}

pub struct Scene {
    pub net: Router,
    pub place: Place,
    pub port: &'static str,
    /// `workers` of `[shape]`.
    workers: Option<u32>,
    _share: Share,
}

impl Scene {
    /// A router for this port. Frames are what a wire would carry, unless `offloads` are on.
    pub fn new(port: &'static str, offloads: Offloads) -> Scene {
        // A test that failed has released it, too.
        let share = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Scene::build(
            port,
            Router::builder().offloads(offloads),
            Share::Against(share),
        )
    }

    /// The same, alone on this machine.
    pub fn alone(port: &'static str, offloads: Offloads) -> Scene {
        let share = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        let builder = Router::builder().offloads(offloads);
        Scene::build(port, builder, Share::Alone(share))
    }

    /// The same with an MTU of 9,000 everywhere.
    pub fn jumbo(port: &'static str) -> Scene {
        let share = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Scene::build(port, Router::builder().mtu(9000), Share::Against(share))
    }

    /// A router whose server is a round trip of `time` away, alone on this machine.
    pub fn far(port: &'static str, time: Duration) -> Scene {
        let share = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        let half = Impairment::delay(time / 2);
        let builder = Router::builder().wan_wire(half.clone(), half);
        Scene::build(port, builder, Share::Alone(share))
    }

    fn build(port: &'static str, builder: RouterBuilder, share: Share) -> Scene {
        let net = builder.build(&Testbed::new()).unwrap();
        let workers = match port {
            "nfqueue" | "afxdp" => workers(),
            _ => None,
        };
        if workers.is_some() {
            give_queues(&net, port);
        }
        let add = format!("{BERT}/24");
        let command = ["ip", "address", "add", &add, "dev", "eth0"];
        net.client.run(&command).unwrap();
        Scene {
            net,
            place: Place::new(),
            port,
            workers,
            _share: share,
        }
    }

    /// The same with two queues at each interface.
    pub fn with_queues(port: &'static str, offloads: Offloads) -> Scene {
        let scene = Scene::alone(port, offloads);
        give_queues(&scene.net, port);
        scene
    }

    /// The same with as many workers.
    pub fn with_workers(port: &'static str, offloads: Offloads) -> Scene {
        let mut scene = Scene::with_queues(port, offloads);
        scene.workers = Some(2);
        scene
    }

    /// Two workers at links with four queues, of which two are in use, at the router.
    pub fn with_spare_queues(port: &'static str) -> Scene {
        let share = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        let mut scene = Scene::build(port, Router::builder().queues(4), Share::Alone(share));
        give_queues(&scene.net, port);
        scene.workers = Some(2);
        scene
    }

    /// The same in a network without reordering: for tests of the order.
    pub fn in_order(port: &'static str) -> Scene {
        let scene = Scene::new(port, Offloads::Off);
        for ns in [&scene.net.client, &scene.net.router, &scene.net.server] {
            ns.receive_on(0).unwrap();
        }
        scene
    }

    /// Writes the configuration: keys of `[shape]`, and classes.
    pub fn configure(&self, shape: &str, classes: &str) {
        self.configure_with("", shape, classes);
    }

    /// The same, with keys of the top level.
    pub fn configure_with(&self, top: &str, shape: &str, classes: &str) {
        let port = self.port;
        let workers = self.workers.filter(|_| !shape.contains("workers ="));
        let workers = workers.map_or(String::new(), |n| format!("workers = {n}\n"));
        let rest = format!(
            "uplinks = [\"wan\"]\n{classes}\n[shape]\ninside = \"lan\"\noutside = \"wan\"\nvia = \"{port}\"\n{workers}{shape}\n"
        );
        self.place.configure(&["lan", "wan"], &rest);
        let file = self.place.path("fairpath.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{top}{text}")).unwrap();
    }

    /// The daemon, shaping.
    pub fn shape(&self, shape: &str, classes: &str) -> Daemon<'_> {
        self.configure(shape, classes);
        self.start()
    }

    /// The daemon, shaping as was configured.
    pub fn start(&self) -> Daemon<'_> {
        let daemon = Daemon::start(&self.net.router, &self.place);
        daemon.logs("shaping via");
        daemon
    }

    /// Neighbours are known: packets that need a resolution are sent by the stack.
    pub fn meet(&self, subscribers: &[Ipv4Addr]) {
        for address in subscribers {
            let ping = Ping::to(*address).count(2);
            let report = ping
                .interval(Duration::from_millis(100))
                .run(&self.net.server)
                .unwrap();
            assert!(report.received > 0, "{report:?}");
        }
    }

    /// Runs `fairpath shape WORDS`.
    pub fn command(&self, words: &[&str]) -> Output {
        client(&self.place, &[&["shape"], words].concat())
    }

    pub fn to_client(&self) -> IpAddr {
        Router::CLIENT.v4.into()
    }
}

/// The shaper's snapshot, read after now.
pub fn snapshot(daemon: &Daemon<'_>) -> Value {
    let readings = |status: &Value| status["counters"]["readings"].as_u64().unwrap_or(0);
    let now = readings(&daemon.status());
    let status = daemon.status_when("read twice more", |status| readings(status) >= now + 2);
    status["shape"].clone()
}

/// A side's queue, of a class or (`None`) of the line.
pub fn queue(daemon: &Daemon<'_>, side: &str, class: Option<&str>) -> Value {
    let shape = snapshot(daemon);
    match class {
        Some(class) => daemon.row(class)[format!("{side}_queue")].clone(),
        None => {
            let lines = shape["links"].as_array().cloned().unwrap_or_default();
            let line = lines.into_iter().find(|line| line["direction"] == side);
            line.unwrap_or_else(|| panic!("no line {side}: {shape:#}"))["queue"].clone()
        }
    }
}

/// Packets towards a side that the kernel dropped before the scheduler, by its own columns.
pub fn upstream_lost(daemon: &Daemon<'_>, port: &str, side: &str) -> u64 {
    let counters = snapshot(daemon)["counters"].clone();
    let count = |name: String| counters[&name].as_u64().unwrap_or(0);
    match port {
        "nfqueue" => ["queue_dropped", "user_dropped", "no_handle", "stale"]
            .map(|column| count(format!("nfqueue_{side}_{column}")))
            .iter()
            .sum(),
        _ => {
            let rings = ["rx_dropped", "rx_ring_full"];
            let rings = rings.map(|column| count(format!("afxdp_{side}_{column}")));
            rings.iter().sum::<u64>() + count("afxdp_stale".to_owned())
        }
    }
}

/// A number of a queue.
pub fn number(queue: &Value, key: &str) -> u64 {
    queue[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {queue:#}"))
}

/// Waits until nothing moves in a side's queue, and returns it.
pub fn settled(daemon: &Daemon<'_>, side: &str, class: Option<&str>) -> Value {
    let mut before = queue(daemon, side, class);
    for _ in 0..100 {
        let now = queue(daemon, side, class);
        if now["enqueued_packets"] == before["enqueued_packets"]
            && now["backlog_packets"] == json!(0)
        {
            return now;
        }
        before = now;
    }
    panic!("{side}: packets still come or wait: {before:#}");
}

/// Datagrams carry the time since then.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Numbered datagrams, sent from a namespace at a rate until this is dropped or finished.
pub struct Numbered {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Numbered {
    /// One every `every` to `to`.
    pub fn start(ns: &Netns, to: IpAddr, every: Duration, bytes: usize) -> Numbered {
        Numbered::start_from(ns, 0, to, every, bytes)
    }

    /// The same, from this port.
    pub fn start_from(
        ns: &Netns,
        port: u16,
        to: IpAddr,
        every: Duration,
        bytes: usize,
    ) -> Numbered {
        Numbered::start_marked(ns, (port, 0), to, every, bytes)
    }

    /// The same, from this port and with this DSCP.
    pub fn start_marked(
        ns: &Netns,
        (port, dscp): (u16, u8),
        to: IpAddr,
        every: Duration,
        bytes: usize,
    ) -> Numbered {
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let bind = || UdpSocket::bind(("0.0.0.0", port)).unwrap();
        let socket = ns.enter(bind).unwrap();
        let tos = i32::from(dscp) << 2;
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
        let send = move || {
            let to = SocketAddr::new(to, PORT);
            let (begin, mut number) = (Instant::now(), 0u64);
            let mut payload = vec![0; bytes.max(16)];
            while !theirs.load(Ordering::Relaxed) {
                payload[..8].copy_from_slice(&number.to_be_bytes());
                let time = EPOCH.elapsed().as_nanos() as u64;
                payload[8..16].copy_from_slice(&time.to_be_bytes());
                // A full queue of the sender's own is no loss of the router's: sent again.
                if socket.send_to(&payload, to).is_ok() {
                    number += 1;
                }
                let due = begin + every * number as u32;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            number
        };
        Numbered {
            over,
            thread: Some(thread::spawn(send)),
        }
    }

    /// Ends; how many were sent.
    pub fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Receives numbered datagrams in a namespace, as they come: no socket buffer holds a test's worth.
pub struct Counted {
    over: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The maximum age of a packet after a pause of the daemon, with a margin for the schedule of this machine.
const OLD: Duration = Duration::from_millis(1050);

/// The arrivals.
#[derive(Debug, Default, Clone, Copy)]
pub struct Arrived {
    /// The number of packets.
    pub count: u64,
    /// Numbers that came after a greater one.
    pub reordered: u64,
    /// The maximum age of a datagram of [`Numbered`].
    pub oldest: Duration,
    /// Datagrams of [`Numbered`] that were older than [`OLD`].
    pub old: u64,
    /// The longest time between two.
    pub longest_gap: Duration,
    /// The time of the last one.
    pub last: Option<Instant>,
}

#[derive(Default)]
struct Seen {
    arrived: Arrived,
    max: Option<u64>,
}

impl Seen {
    fn take(&mut self, number: u64, sent_ns: u64) {
        let now = Instant::now();
        let arrived = &mut self.arrived;
        if sent_ns > 0 {
            let age = EPOCH
                .elapsed()
                .saturating_sub(Duration::from_nanos(sent_ns));
            arrived.oldest = arrived.oldest.max(age);
            arrived.old += u64::from(age > OLD);
        }
        arrived.count += 1;
        arrived.reordered += u64::from(self.max.is_some_and(|max| number < max));
        self.max = self.max.max(Some(number));
        if let Some(last) = arrived.last.replace(now) {
            arrived.longest_gap = arrived.longest_gap.max(now.duration_since(last));
        }
    }
}

impl Counted {
    pub fn bind(ns: &Netns, at: IpAddr) -> Counted {
        let bind = || UdpSocket::bind(SocketAddr::new(at, PORT)).unwrap();
        let socket = ns.enter(bind).unwrap();
        // What a socket cannot hold would look like a loss of the router's.
        let bytes = 32 << 20;
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &bytes)
            .unwrap();
        let wake = Duration::from_millis(100);
        socket.set_read_timeout(Some(wake)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (ends, recorder) = (Arc::clone(&over), Arc::clone(&seen));
        let receive = move || {
            let mut bytes = [0; 9000];
            while !ends.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut bytes) {
                    assert!(length >= 8);
                    let word =
                        |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
                    let sent_ns = if length >= 16 { word(8) } else { 0 };
                    recorder.lock().unwrap().take(word(0), sent_ns);
                }
            }
        };
        Counted {
            over,
            seen,
            thread: Some(thread::spawn(receive)),
        }
    }

    /// The number of packets so far.
    pub fn count(&self) -> u64 {
        self.seen.lock().unwrap().arrived.count
    }

    /// The maximum age of a datagram so far.
    pub fn oldest(&self) -> Duration {
        self.seen.lock().unwrap().arrived.oldest
    }

    /// Receives until nothing has come for `silence`.
    pub fn drain(&self, silence: Duration) -> Arrived {
        let mut before = self.seen.lock().unwrap().arrived.count;
        let mut since = Instant::now();
        loop {
            thread::sleep(LOOK_EVERY);
            let arrived = self.seen.lock().unwrap().arrived;
            if arrived.count != before {
                (before, since) = (arrived.count, Instant::now());
            } else if since.elapsed() >= silence {
                return arrived;
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
