//! Several workers of one side share its rates: a class may have packets at all of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairpath_testbed::{Capture, CaptureOptions, Need, Netns, Offloads, Router, requires};
use fairpath_tests::Daemon;
use fairpath_wire::capture::Reader;
use serde_json::{Value, json};

use crate::by;
use crate::scene::{PORT, Scene, for_a_time, number, queue, settled, upstream_lost};

pub const MBIT: f64 = 1e6;
/// Bytes of a datagram in its frame.
pub const FRAME: usize = 1514;
const HEADERS: usize = 42;
/// Addresses of subscribers: a hash of theirs and the server's selects the worker of NFQUEUE.
pub const SUBSCRIBERS: u8 = 8;

/// One class for all of them.
pub const SITE: &str =
    "[[class]]\nname = \"site\"\nprefix = \"10.10.1.0/24\"\ndown = \"90mbit\"\nup = \"40mbit\"\n";
pub const RATES: &str = "down = \"95mbit\"\nup = \"95mbit\"";

pub fn subscriber(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 10, 1, 100 + number)
}

/// A router with subscribers, two queues at each interface and two workers.
pub fn scene(port: &'static str) -> Scene {
    let scene = Scene::with_workers(port, Offloads::Off);
    give_subscribers(&scene);
    scene
}

/// The client has all addresses of subscribers.
pub fn give_subscribers(scene: &Scene) {
    for at in 0..SUBSCRIBERS {
        let address = format!("{}/24", subscriber(at));
        let command = ["ip", "address", "add", &address, "dev", "eth0"];
        scene.net.client.run(&command).unwrap();
    }
    let all: Vec<Ipv4Addr> = (0..SUBSCRIBERS).map(subscriber).collect();
    scene.meet(&all);
}

/// Datagrams of several sockets in turn, at a rate, until this is dropped.
pub struct Senders {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Senders {
    /// From each of these addresses, by `sockets` of its ports, at `bps` of frames together.
    pub fn start(ns: &Netns, from: &[Ipv4Addr], sockets: usize, to: IpAddr, bps: f64) -> Senders {
        let bind = || -> Vec<UdpSocket> {
            let each = from
                .iter()
                .flat_map(|address| std::iter::repeat_n(address, sockets));
            each.map(|address| UdpSocket::bind((*address, 0)).unwrap())
                .collect()
        };
        let sockets = ns.enter(bind).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let every = Duration::from_secs_f64(FRAME as f64 * 8.0 / bps);
        let send = move || {
            let payload = [0u8; FRAME - HEADERS];
            let (begin, mut sent) = (Instant::now(), 0u64);
            while !theirs.load(Ordering::Relaxed) {
                let socket = &sockets[sent as usize % sockets.len()];
                let _ = socket.send_to(&payload, SocketAddr::new(to, PORT));
                sent += 1;
                let due = begin + every.mul_f64(sent as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            sent
        };
        Senders {
            over,
            thread: Some(std::thread::spawn(send)),
        }
    }

    pub fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Times (seconds) and bytes of datagrams in a capture.
fn arrivals(bytes: &[u8]) -> Vec<(f64, f64)> {
    let mut reader = Reader::new(std::io::Cursor::new(bytes)).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        // UDP over IPv4 without options.
        if record.data.get(23) == Some(&17) {
            all.push((record.time_ns as f64 / 1e9, f64::from(record.wire_len)));
        }
    }
    all
}

/// The most bytes above a rate, in any time between two packets.
pub fn excess(arrivals: &[(f64, f64)], bps: f64) -> f64 {
    let (mut most, mut lowest, mut sum) = (0.0f64, f64::MAX, 0.0);
    for (at, bytes) in arrivals {
        let line = at * bps / 8.0;
        lowest = lowest.min(sum - line);
        sum += bytes;
        most = most.max(sum - line - lowest);
    }
    most
}

/// Bit/s from the first to the last packet.
pub fn rate(arrivals: &[(f64, f64)]) -> f64 {
    let (Some((first, _)), Some((last, bytes))) = (arrivals.first(), arrivals.last()) else {
        return 0.0;
    };
    let sum: f64 = arrivals.iter().map(|(_, bytes)| bytes).sum();
    (sum - bytes) * 8.0 / (last - first)
}

/// Datagrams that the server receives for some time: when (seconds), and their bytes.
pub fn captured(scene: &Scene, time: Duration) -> Vec<(f64, f64)> {
    let options = CaptureOptions::default();
    let capture = Capture::start_anonymous(&scene.net.server, "eth0", &options).unwrap();
    for_a_time(time);
    arrivals(&capture.stop_now().unwrap().bytes().unwrap())
}

/// Packets of the class that each worker sent in a direction.
pub fn by_worker(daemon: &Daemon<'_>, side: &str, class: &str) -> Vec<u64> {
    let sent = |worker: &Value| worker["sent_packets"].as_u64().unwrap();
    workers_of(daemon, side, class).iter().map(sent).collect()
}

/// The parts of workers in the queue of a class.
pub fn workers_of(daemon: &Daemon<'_>, side: &str, class: &str) -> Vec<Value> {
    let query = json!({"verb": "snapshot", "query": {"kind": "class", "workers": true}});
    let answer = daemon.query(&query);
    let rows = answer["snapshot"]["rows"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let row = rows.iter().find(|row| row["name"] == class);
    let row = row.unwrap_or_else(|| panic!("no class {class}: {answer:#}"));
    let workers = row[format!("{side}_queue")]["workers"].as_array().cloned();
    workers.unwrap_or_default()
}

by!(one_rate_holds_for_both_workers: nfqueue, afxdp, kernel);

fn one_rate_holds_for_both_workers(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene(port);
    let daemon = scene.shape(RATES, SITE);
    let all: Vec<Ipv4Addr> = (0..SUBSCRIBERS).map(subscriber).collect();
    let server: IpAddr = Router::SERVER.v4.into();
    let senders = Senders::start(&scene.net.client, &all, 2, server, 80.0 * MBIT);
    for_a_time(Duration::from_millis(500));
    let both = captured(&scene, Duration::from_secs(4));
    // The burst of a class is 5 ms of its rate. Each worker may have sent a packet more than its grant, and its thread
    // may have been late: 2 ms. With HTB, a queue whose rate was raised has a burst of 4 ms again.
    let (bps, above) = (rate(&both), excess(&both, 40.0 * MBIT));
    let burst = if port == "kernel" { 0.01 } else { 0.007 };
    let most = 40.0 * MBIT / 8.0 * burst + 4.0 * FRAME as f64;
    let workers = by_worker(&daemon, "up", "site");
    println!(
        "{port}: {:.2} Mbit/s, {above:.0} of {most:.0} bytes above; {workers:?} packets",
        bps / MBIT
    );
    assert!((39.0..=40.4).contains(&(bps / MBIT)), "{bps}");
    assert!(above <= most, "{above} bytes above 40 Mbit/s");
    let fewest = workers.iter().min().copied().unwrap_or(0);
    assert!(
        workers.len() == 2 && fewest * 5 > workers.iter().sum(),
        "{workers:?}"
    );
    // A step down, and up.
    for (to, mbit) in [("20mbit", 20.0), ("60mbit", 60.0)] {
        let output = scene.command(&["set", "site", "--up", to]);
        assert!(output.status.success(), "{output:?}");
        // What waits at the old rate is sent.
        for_a_time(Duration::from_millis(800));
        let bps = rate(&captured(&scene, Duration::from_secs(2)));
        println!("{port}: {:.2} Mbit/s at {mbit}", bps / MBIT);
        let held = 0.97 * mbit..=1.01 * mbit;
        assert!(held.contains(&(bps / MBIT)), "{bps} at {mbit}");
    }
    let sent = senders.finish();
    let at_rest = settled(&daemon, "up", Some("site"));
    let lost = upstream_lost(&daemon, port, "up");
    let count = |key: &str| number(&at_rest, key);
    assert_eq!(
        count("enqueued_packets"),
        count("sent_packets") + count("dropped_packets")
    );
    println!("{port}: {sent} offered, {lost} lost upstream: {at_rest:#}");
    assert!(
        count("enqueued_packets") + lost <= sent + 20,
        "{sent} were sent"
    );
}

by!(a_busy_worker_gets_what_a_quiet_one_leaves: nfqueue, afxdp, kernel);

fn a_busy_worker_gets_what_a_quiet_one_leaves(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene(port);
    let daemon = scene.shape(RATES, SITE);
    let server: IpAddr = Router::SERVER.v4.into();
    // One connection has one worker. Others send 0.4 % of the rate, by both.
    let busy = Senders::start(&scene.net.client, &[subscriber(0)], 1, server, 80.0 * MBIT);
    let others: Vec<Ipv4Addr> = (1..SUBSCRIBERS).map(subscriber).collect();
    let quiet = Senders::start(&scene.net.client, &others, 1, server, 0.16 * MBIT);
    for_a_time(Duration::from_millis(500));
    let bps = rate(&captured(&scene, Duration::from_secs(3)));
    let workers = by_worker(&daemon, "up", "site");
    println!("{port}: {:.2} Mbit/s; {workers:?} packets", bps / MBIT);
    // A busy machine delays threads.
    assert!((39.0..=40.4).contains(&(bps / MBIT)), "{bps}");
    let (fewest, most) = (workers.iter().min().unwrap(), workers.iter().max().unwrap());
    assert!(workers.len() == 2 && fewest * 20 < *most, "{workers:?}");
    assert!(quiet.finish() > 0 && busy.finish() > 0);
    let queue = queue(&daemon, "up", Some("site"));
    assert!(number(&queue, "dropped_packets") > 100, "{queue:#}");
}

by!(floors_and_shares_hold_across_workers: nfqueue, afxdp, kernel);

/// One class has a flow at one worker, the other has many at both.
fn floors_and_shares_hold_across_workers(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene(port);
    let classes = |rest: &str| {
        format!(
            "[[class]]\nname = \"site\"\nup = \"40mbit\"\n\
             [[class]]\nname = \"anna\"\nparent = \"site\"\nprefix = \"10.10.1.100/32\"\n{rest}\n\
             [[class]]\nname = \"others\"\nparent = \"site\"\nprefix = \"10.10.1.0/24\"\n"
        )
    };
    let daemon = scene.shape(RATES, &classes("up_floor = \"30mbit\""));
    let (client, server): (_, IpAddr) = (&scene.net.client, Router::SERVER.v4.into());
    let anna = Senders::start(client, &[subscriber(0)], 1, server, 50.0 * MBIT);
    let others: Vec<Ipv4Addr> = (1..SUBSCRIBERS).map(subscriber).collect();
    let others = Senders::start(client, &others, 2, server, 50.0 * MBIT);
    let part = |what: &str| {
        // For the first turns of the rates.
        for_a_time(Duration::from_millis(700));
        let sent = |class: &str| number(&queue(&daemon, "up", Some(class)), "sent_bytes") as f64;
        let before = ["anna", "others"].map(sent);
        for_a_time(Duration::from_secs(3));
        let now = ["anna", "others"].map(sent);
        let [anna, others] = [0, 1].map(|at| now[at] - before[at]);
        println!(
            "{port}, {what}: {:.3} of the rate; {:?}",
            anna / (anna + others),
            by_worker(&daemon, "up", "site")
        );
        anna / (anna + others)
    };
    let floor = part("with a floor of three quarters");
    assert!((0.72..=0.80).contains(&floor), "{floor}");
    scene.configure(RATES, &classes(""));
    assert_eq!(daemon.reload()["answer"], "done");
    let equal = part("equal");
    assert!((0.45..=0.55).contains(&equal), "{equal}");
    assert!(anna.finish() > 0 && others.finish() > 0);
}
