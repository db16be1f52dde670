//! GSO packets: up to 64 KiB that would hold up a slow class if they left whole.

use std::io::Cursor;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fairpath_testbed::{
    Capture, CaptureOptions, Iperf3, Iperf3Server, Need, Netns, Offloads, Ping, Router, requires,
};
use fairpath_tests::Daemon;
use fairpath_units::{Disturbed, Share, repeat_disturbed};
use fairpath_wire::IpProto;
use fairpath_wire::capture::Reader;
use fairpath_wire::checksum::checksum;
use fairpath_wire::ip::pseudo_header;
use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass, UdpGsoSegment};

use crate::by;
use crate::scene::{
    Arrived, BERT, Counted, Numbered, PORT, Scene, for_a_time, number, settled, snapshot,
};

/// The number of repetitions of a disturbed measurement.
const TIMES: u32 = 4;

/// p50 and p99 of a ping, and the daemon's processor time per Gbit, under one greedy download.
#[derive(Clone, Copy, Debug)]
struct Measured {
    p50: Duration,
    p99: Duration,
    cpu_s_per_gbit: f64,
}

/// User and system time of the daemon, in seconds.
fn cpu_s(daemon: &Daemon<'_>) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.process.id())).unwrap();
    // The name is in parentheses; the times are the 12th and 13th field behind it.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|n| n.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

fn under_a_download(scene: &Scene, daemon: &Daemon<'_>, rate_mbit: u32) -> Measured {
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    let bulk = Iperf3::to(Router::CLIENT.v4, server.port()).seconds(12);
    let bulk = bulk.congestion("cubic").start(&scene.net.server).unwrap();
    // Slow start is over, and CoDel has found its pace.
    for_a_time(Duration::from_secs(2));
    let read = || scene.net.client.link_counters("eth0").unwrap().rx_bytes;
    let (cpu, bytes) = (cpu_s(daemon), read());
    let ping = Ping::to(Router::SERVER.v4).count(500);
    let ping = ping.interval(Duration::from_millis(15));
    let mut times = ping.run(&scene.net.client).unwrap().times;
    let gbits = (read() - bytes) as f64 * 8.0 / 1e9;
    let cpu_s_per_gbit = (cpu_s(daemon) - cpu) / gbits;
    drop(bulk);
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100];
    let measured = Measured {
        p50: at(50),
        p99: at(99),
        cpu_s_per_gbit,
    };
    println!(
        "{} at {rate_mbit} Mbit/s: ping {:?} and {:?} (p50, p99), {cpu_s_per_gbit:.2} CPU s per Gbit",
        scene.port, measured.p50, measured.p99
    );
    measured
}

by!(gso_packets_of_a_download_delay_no_ping: nfqueue, afxdp);

/// A GSO packet of 64 KiB takes 27 ms at 19 Mbit/s.
fn gso_packets_of_a_download_delay_no_ping(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::alone(port, Offloads::On);
    let daemon = scene.shape("down = \"19mbit\"\nup = \"19mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    let test = format!("shape::gso::gso_packets_of_a_download_delay_no_ping::{port}");
    repeat_disturbed(&test, TIMES, |_| {
        let Measured { p50, p99, .. } = under_a_download(&scene, &daemon, 19);
        let well = p50 < Duration::from_millis(1) && p99 < Duration::from_millis(8);
        Disturbed::unless(well, format!("ping: p50 {p50:?}, p99 {p99:?}"))
    });
}

/// The figures of docs/promises.md. The full form has more rates, and packets without GSO.
#[test]
fn nfqueue_delays_pings_like_afxdp() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let (rates, offloads) = Share::reported().choose(
        (&[19, 95, 200, 500][..], &[Offloads::On, Offloads::Off][..]),
        (&[200][..], &[Offloads::On][..]),
    );
    for (offloads, rate) in offloads
        .iter()
        .flat_map(|offloads| rates.iter().map(move |rate| (*offloads, *rate)))
    {
        repeat_disturbed("shape::gso::nfqueue_delays_pings_like_afxdp", TIMES, |_| {
            println!("offloads {offloads:?}:");
            let [nfqueue, afxdp] = ["nfqueue", "afxdp"].map(|port| {
                let scene = Scene::alone(port, offloads);
                let shape = format!("down = \"{rate}mbit\"\nup = \"{rate}mbit\"");
                let daemon = scene.shape(&shape, "");
                scene.meet(&[Router::CLIENT.v4]);
                under_a_download(&scene, &daemon, rate)
            });
            let ratio = nfqueue.cpu_s_per_gbit / afxdp.cpu_s_per_gbit;
            println!("CPU of NFQUEUE relative to AF_XDP: {ratio:.2}");
            let well = nfqueue.p50 < afxdp.p50 + Duration::from_millis(1)
                && nfqueue.p99 < afxdp.p99 + Duration::from_millis(8);
            Disturbed::unless(well, format!("{rate} Mbit/s: {nfqueue:?}, {afxdp:?}"))
        });
    }
}

/// Segments of a GSO packet of UDP, and their bytes.
const SEGMENTS: u64 = 40;
const SEGMENT: usize = 1000;

/// 13 Mbit/s of blocks.
const BLOCK_EVERY: Duration = Duration::from_millis(25);

/// GSO packets of UDP: datagrams as of [`Numbered`](crate::scene::Numbered), which this host does not split.
struct Blocks {
    socket: UdpSocket,
    to: SocketAddr,
    next: u64,
}

impl Blocks {
    fn open(ns: &Netns, to: IpAddr) -> Blocks {
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = ns.enter(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
        setsockopt(&socket, UdpGsoSegment, &(SEGMENT as i32)).unwrap();
        let to = SocketAddr::new(to, PORT);
        Blocks {
            socket,
            to,
            next: 0,
        }
    }

    /// Sends as many, one every `every`.
    fn send(&mut self, blocks: u64, every: Duration) {
        for _ in 0..blocks {
            let mut payload = vec![0; SEGMENTS as usize * SEGMENT];
            for segment in payload.chunks_mut(SEGMENT) {
                segment[..8].copy_from_slice(&self.next.to_be_bytes());
                self.next += 1;
            }
            self.socket.send_to(&payload, self.to).unwrap();
            thread::sleep(every);
        }
    }
}

/// A counter of the back end.
fn counter(daemon: &Daemon<'_>, name: &str) -> u64 {
    number(&snapshot(daemon)["counters"], name)
}

const ANNA: &str =
    "[[class]]\nname = \"anna\"\nprefix = [\"10.10.1.2\", \"fd00:10:1::2\"]\ndown = \"19mbit\"\n";

by!(every_segment_of_a_gso_packet_leaves_once: nfqueue);

/// With connection tracking, which allows one packet of a connection until that has left.
fn every_segment_of_a_gso_packet_leaves_once(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("iptables-legacy")
    );
    let scene = Scene::new(port, Offloads::On);
    for ns in [&scene.net.client, &scene.net.router, &scene.net.server] {
        ns.receive_on(0).unwrap();
    }
    for tool in ["iptables-legacy", "ip6tables-legacy"] {
        let rule = "-A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT";
        let words: Vec<&str> = [tool].into_iter().chain(rule.split(' ')).collect();
        scene.net.router.run(&words).unwrap();
    }
    // The class is slow, and the link is not.
    let daemon = scene.shape("down = \"900mbit\"\nup = \"900mbit\"\npackets = 500", ANNA);
    scene.meet(&[Router::CLIENT.v4]);
    for to in Router::CLIENT.both() {
        let split = counter(&daemon, "nfqueue_down_split");
        let sink = Counted::bind(&scene.net.client, to);
        let mut blocks = Blocks::open(&scene.net.server, to);
        // 13 Mbit/s of 19.
        blocks.send(20, Duration::from_millis(25));
        let calm = sink.drain(Duration::from_millis(500));
        println!("{port} {to}: {calm:?}");
        assert_eq!((calm.count, calm.reordered), (20 * SEGMENTS, 0));
        // The first packet of a flow stays whole.
        let split = counter(&daemon, "nfqueue_down_split") - split;
        assert_eq!(split, 19);

        // 64 Mbit/s of 19: dropped segments have a reason.
        let before = settled(&daemon, "down", Some("anna"));
        blocks.send(60, Duration::from_millis(5));
        let all = sink.drain(Duration::from_secs(1));
        let after = settled(&daemon, "down", Some("anna"));
        let since = |key| number(&after, key) - number(&before, key);
        println!("{port} {to}: {all:?}, {after}");
        assert_eq!(since("sent_packets"), all.count - calm.count);
        assert_eq!(all.reordered, 0);
        assert!(since("dropped_packets") > 100, "{after:#}");
        let enqueued = since("sent_packets") + since("dropped_packets");
        assert_eq!(since("enqueued_packets"), enqueued);
    }
}

/// Sends a block every `every`, while `body` runs. The datagrams so far are in `blocks`.
fn while_sending<T>(blocks: &mut Blocks, every: Duration, body: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                blocks.send(1, every);
            }
        });
        let result = body();
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        result
    })
}

by!(gso_packets_of_udp_delay_no_ping: nfqueue);

/// Each block takes 17 ms of the link.
fn gso_packets_of_udp_delay_no_ping(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::alone(port, Offloads::On);
    let _daemon = scene.shape("down = \"19mbit\"\nup = \"19mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    let _sink = Counted::bind(&scene.net.client, scene.to_client());
    let mut blocks = Blocks::open(&scene.net.server, scene.to_client());
    let test = format!("shape::gso::gso_packets_of_udp_delay_no_ping::{port}");
    repeat_disturbed(&test, TIMES, |_| {
        let ping = Ping::to(Router::SERVER.v4).count(300);
        let ping = ping.interval(Duration::from_millis(11));
        let report = while_sending(&mut blocks, BLOCK_EVERY, || {
            ping.run(&scene.net.client).unwrap()
        });
        let mut times = report.times;
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100];
        println!(
            "{port}: ping {:?}, {:?} and {:?} (p50, p75, p99)",
            at(50),
            at(75),
            at(99)
        );
        let well = at(75) < Duration::from_millis(2) && at(99) < Duration::from_millis(8);
        Disturbed::unless(well, format!("ping: p75 {:?}, p99 {:?}", at(75), at(99)))
    });
}

const PAUSES: u64 = 5;

by!(pauses_while_splitting_leave_no_old_packets: nfqueue);

/// Each pause begins at another step of the worker, which splits most of the time.
fn pauses_while_splitting_leave_no_old_packets(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::On);
    let daemon = scene.shape("down = \"100mbit\"\nup = \"20mbit\"", "");
    scene.meet(&[Router::CLIENT.v4, BERT]);
    let sink = Counted::bind(&scene.net.client, BERT.into());
    let every = Duration::from_millis(5);
    let source = Numbered::start(&scene.net.server, BERT.into(), every, 100);
    let mut blocks = Blocks::open(&scene.net.server, scene.to_client());
    // Three times the rate.
    while_sending(&mut blocks, Duration::from_millis(1), || {
        for _ in 0..PAUSES {
            for_a_time(Duration::from_millis(700));
            daemon.process.signal(Signal::SIGSTOP);
            for_a_time(Duration::from_millis(1300));
            daemon.process.signal(Signal::SIGCONT);
        }
    });
    source.finish();
    let Arrived { oldest, old, .. } = sink.drain(Duration::from_secs(1));
    let stale = counter(&daemon, "nfqueue_down_stale");
    println!("{port}: {old} old packets, the oldest {oldest:?}, {stale} dropped");
    // With each pause, one may have been about to leave.
    assert!(old <= PAUSES, "{old} old packets, {oldest:?}");
    assert!(daemon.stop().success());
}

by!(stopped_and_started_no_segment_is_lost: nfqueue);

fn stopped_and_started_no_segment_is_lost(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::On);
    for ns in [&scene.net.client, &scene.net.router, &scene.net.server] {
        ns.receive_on(0).unwrap();
    }
    let daemon = scene.shape("down = \"19mbit\"\nup = \"19mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let mut blocks = Blocks::open(&scene.net.server, scene.to_client());
    while_sending(&mut blocks, BLOCK_EVERY, || {
        for _ in 0..5 {
            for words in [["stop"], ["start"]] {
                for_a_time(Duration::from_millis(200));
                assert!(scene.command(&words).status.success());
            }
        }
        for_a_time(Duration::from_millis(300));
    });
    let arrived = sink.drain(Duration::from_millis(500));
    assert!(counter(&daemon, "nfqueue_down_split") > 5);
    assert_eq!((arrived.count, arrived.reordered), (blocks.next, 0));
}

by!(masqueraded_gso_packets_lose_no_segment: nfqueue);

fn masqueraded_gso_packets_lose_no_segment(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("iptables-legacy")
    );
    let scene = Scene::new(port, Offloads::On);
    for ns in [&scene.net.client, &scene.net.router, &scene.net.server] {
        ns.receive_on(0).unwrap();
    }
    let rule = "iptables-legacy -t nat -A POSTROUTING -o wan -j MASQUERADE";
    let words: Vec<&str> = rule.split(' ').collect();
    scene.net.router.run(&words).unwrap();
    let daemon = scene.shape("down = \"19mbit\"\nup = \"19mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    let to = IpAddr::from(Router::SERVER.v4);
    let sink = Counted::bind(&scene.net.server, to);
    // Each flow is a new connection.
    for flow in 1..=10 {
        let mut blocks = Blocks::open(&scene.net.client, to);
        blocks.send(5, Duration::from_millis(25));
        let arrived = sink.drain(Duration::from_millis(300));
        assert_eq!(arrived.count, flow * 5 * SEGMENTS);
    }
    assert_eq!(counter(&daemon, "nfqueue_up_split"), 10 * 4);
}

/// IP packets with more than 500 bytes of TCP or UDP in a capture: their ECN bits. All checksums are right.
fn ecn_of(bytes: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(Cursor::new(bytes)).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let Some(ip) = record.data.get(14..) else {
            continue;
        };
        let (ecn, proto, at, total, ends): (u8, u8, usize, usize, [IpAddr; 2]) = match ip[0] >> 4 {
            4 => {
                assert_eq!(checksum(&ip[..20]), 0, "{ip:x?}");
                let end = |at: usize| IpAddr::from(*ip[at..].first_chunk::<4>().unwrap());
                let total = u16::from_be_bytes([ip[2], ip[3]]);
                (ip[1] & 3, ip[9], 20, total.into(), [end(12), end(16)])
            }
            _ => {
                let end = |at: usize| IpAddr::from(*ip[at..].first_chunk::<16>().unwrap());
                let total = 40 + u16::from_be_bytes([ip[4], ip[5]]);
                (ip[1] >> 4 & 3, ip[6], 40, total.into(), [end(8), end(24)])
            }
        };
        let transport = &ip[at..total];
        let [from, to] = ends;
        let sum = pseudo_header(from, to, IpProto(proto), transport.len()).bytes(transport);
        assert_eq!(sum.finish(), 0, "{ip:x?}");
        if transport.len() > 500 {
            all.push(ecn);
        }
    }
    all
}

/// A download of four seconds: data packets as they came, by their ECN bits, and packets that were marked and dropped.
fn download(scene: &Scene, daemon: &Daemon<'_>, to: IpAddr, bytes: u64) -> ([usize; 4], u64, u64) {
    let options = CaptureOptions {
        filter: "tcp and src port 5201".to_owned(),
        ..CaptureOptions::default()
    };
    let before = settled(daemon, "down", None);
    let wire = Capture::start_anonymous(&scene.net.client, "eth0", &options).unwrap();
    let server = Iperf3Server::start(&scene.net.server, 5201).unwrap();
    let from = match to {
        IpAddr::V4(_) => IpAddr::from(Router::SERVER.v4),
        IpAddr::V6(_) => Router::SERVER.v6.into(),
    };
    let transfer = Iperf3::to(from, server.port()).reverse().bytes(bytes);
    let report = transfer.congestion("cubic").run(&scene.net.client).unwrap();
    assert!(report.bytes_received >= bytes, "{report:?}");
    let after = settled(daemon, "down", None);
    let wire = ecn_of(&wire.stop().unwrap().bytes().unwrap());
    let by_ecn = [0, 1, 2, 3].map(|bits| wire.iter().filter(|ecn| **ecn == bits).count());
    let since = |key| number(&after, key) - number(&before, key);
    let (marked, dropped) = (since("marked_packets"), since("dropped_packets"));
    println!(
        "{} {to}: {by_ecn:?} by ECN, {marked} marked, {dropped} dropped",
        scene.port
    );
    (by_ecn, marked, dropped)
}

/// Sets ECN of TCP connections made later.
fn use_ecn(scene: &Scene, on: &str) {
    for ns in [&scene.net.client, &scene.net.server] {
        ns.set_sysctl("net.ipv4.tcp_ecn", on).unwrap();
    }
}

by!(codel_marks_packets_of_ecn_senders_only: nfqueue, afxdp);

fn codel_marks_packets_of_ecn_senders_only(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Tool("ethtool")
    );
    let scene = Scene::new(port, Offloads::On);
    // The capture shows packets as they are on a wire.
    scene.net.lan_end.set_offloads(Offloads::Off).unwrap();
    scene.net.client_end.set_offloads(Offloads::Off).unwrap();
    let daemon = scene.shape("down = \"19mbit\"\nup = \"19mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    for to in Router::CLIENT.both() {
        use_ecn(&scene, "1");
        let (by_ecn, marked, dropped) = download(&scene, &daemon, to, 8_000_000);
        assert!(marked > 5, "{marked}");
        assert_eq!(by_ecn[3] as u64, marked);
        assert!(by_ecn[2] > 4000 && by_ecn[0] == 0, "{by_ecn:?}");
        assert_eq!(dropped, 0);
        use_ecn(&scene, "0");
        let (by_ecn, marked, dropped) = download(&scene, &daemon, to, 8_000_000);
        assert!(by_ecn[0] > 4000 && by_ecn[1..] == [0; 3], "{by_ecn:?}");
        assert!(
            marked == 0 && dropped > 5,
            "{marked} marked, {dropped} dropped"
        );
    }
}

by!(whole_gso_packets_are_marked_in_every_segment: nfqueue);

/// At a rate at which they are not split, with a threshold that marks all.
fn whole_gso_packets_are_marked_in_every_segment(port: &'static str) {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::On);
    scene.net.lan_end.set_offloads(Offloads::Off).unwrap();
    scene.net.client_end.set_offloads(Offloads::Off).unwrap();
    let daemon = scene.shape(
        "down = \"900mbit\"\nup = \"900mbit\"\nset = [\"ce_threshold=1ns\"]",
        "",
    );
    scene.meet(&[Router::CLIENT.v4]);
    for to in Router::CLIENT.both() {
        let options = CaptureOptions {
            filter: format!("udp and dst port {PORT}"),
            ..CaptureOptions::default()
        };
        let wire = Capture::start_anonymous(&scene.net.client, "eth0", &options).unwrap();
        let sink = Counted::bind(&scene.net.client, to);
        let before = settled(&daemon, "down", None);
        let mut blocks = Blocks::open(&scene.net.server, to);
        match to {
            IpAddr::V4(_) => setsockopt(&blocks.socket, Ipv4Tos, &2).unwrap(),
            IpAddr::V6(_) => setsockopt(&blocks.socket, Ipv6TClass, &2).unwrap(),
        }
        blocks.send(20, Duration::from_millis(5));
        let arrived = sink.drain(Duration::from_millis(500));
        assert_eq!((arrived.count, arrived.reordered), (20 * SEGMENTS, 0));
        let after = settled(&daemon, "down", None);
        let since = |key| number(&after, key) - number(&before, key);
        // The first packet of a flow stays whole, and so without a mark.
        assert_eq!((since("marked_packets"), since("dropped_packets")), (19, 0));
        let wire = ecn_of(&wire.stop().unwrap().bytes().unwrap());
        assert_eq!(wire[..SEGMENTS as usize], [2; SEGMENTS as usize]);
        assert_eq!(wire[SEGMENTS as usize..], [3; 19 * SEGMENTS as usize]);
        assert_eq!(counter(&daemon, "nfqueue_down_split"), 0);
    }
}
