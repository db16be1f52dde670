//! The ready-made topology, traffic over it, and captures of it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{
    Capture, CaptureOptions, Direction, EchoServer, Iperf3, Iperf3Server, LinkEnd, Need, Ping,
    Precision, Router, ShortConnections, TcpPair, Testbed, Veth, requires, sockets, wait_for,
};

const MILLION: u64 = 1_000_000;

#[test]
fn ping_crosses_the_router_in_both_families() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    for ip in Router::SERVER.both() {
        let report = Ping::to(ip).count(3).size(100).run(&router.client).unwrap();
        assert_eq!((report.sent, report.received), (3, 3), "{ip}");
        assert!(report.min > Duration::ZERO && report.min <= report.avg);
        assert_eq!(report.times.len(), 3);
    }
}

#[test]
fn ping_to_nobody_reports_no_answer() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    router.server_end.set_up(false).unwrap();
    let report = Ping::to(Router::SERVER.v4)
        .count(2)
        .run(&router.client)
        .unwrap();
    assert_eq!((report.sent, report.received), (2, 0));
}

#[test]
fn iperf3_reaches_the_requested_rate_in_both_families() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let router = Router::new(&Testbed::new()).unwrap();
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    for ip in Router::SERVER.both() {
        let transfer = Iperf3::to(ip, server.port())
            .bytes(20 * MILLION)
            .congestion("cubic");
        let report = transfer.parallel(2).run(&router.client).unwrap();
        assert!(report.bytes_sent >= 20 * MILLION, "{report:?}");
        assert!(
            report.bytes_received > 0 && report.goodput_bps > 0.0,
            "{report:?}"
        );
        assert_eq!(report.congestion.as_deref(), Some("cubic"));
    }
    let counted = router.wan_end.counters().unwrap();
    assert!(counted.tx_bytes > 10 * MILLION, "{counted:?}");
}

/// A server opens its port again for each test: an immediate client is not refused.
#[test]
fn transfers_follow_each_other_without_a_pause() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let router = Router::new(&Testbed::new()).unwrap();
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(1000);
    for number in 1..=5 {
        let report = transfer.run(&router.client);
        assert!(report.is_ok(), "transfer {number}: {report:?}");
    }
}

#[test]
fn iperf3_to_a_closed_port_is_an_error() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let router = Router::new(&Testbed::new()).unwrap();
    let error = Iperf3::to(Router::SERVER.v4, 9)
        .run(&router.client)
        .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// The CPUs that a process may use, as `/proc` lists them; `None` once it has gone.
fn cpus_of(process: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines();
    let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(cpus.trim().to_owned())
}

#[test]
fn iperf3_on_one_cpu_has_both_ends_there() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let router = Router::new(&Testbed::new()).unwrap();
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).one_cpu();
    let run = transfer.seconds(60).start(&router.client).unwrap();
    let settled = wait_for(Duration::from_secs(10), || {
        let [sender, receiver] = [run.id(), server.id()].map(cpus_of);
        let one = sender.as_ref()?.parse::<usize>().is_ok();
        (one && sender == receiver).then_some(())
    });
    let now = [run.id(), server.id()].map(cpus_of);
    assert!(settled.is_some(), "client and server may use {now:?}");
}

#[test]
fn short_connections_all_complete_and_leave_the_client() {
    requires!(Need::Root);
    let router = Router::new(&Testbed::new()).unwrap();
    let server = EchoServer::start(&router.server, 7000).unwrap();
    let short = ShortConnections {
        connections: 200,
        at_once: 8,
        request_bytes: 300,
        response_bytes: 5000,
    };
    for ip in Router::SERVER.both() {
        let report = short.run(&router.client, ip, server.port()).unwrap();
        assert_eq!((report.completed, report.failed), (200, 0));
    }
    let counted = router.wan_end.counters().unwrap();
    assert!(
        counted.tx_bytes > 2 * 200 * 300 && counted.rx_bytes > 2 * 200 * 5000,
        "{counted:?}"
    );
}

#[test]
fn servers_wait_for_a_port_in_use() {
    requires!(Need::Root);
    let router = Router::new(&Testbed::new()).unwrap();
    // As a child does between fork and exec.
    let copy = router.server.enter(|| TcpListener::bind("[::]:7000"));
    let copy = copy.unwrap().unwrap();
    let released = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(copy);
    });
    let begun = Instant::now();
    EchoServer::start(&router.server, 7000).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    released.join().unwrap();
}

#[test]
fn ss_reports_the_pair_with_rtt_and_bytes() {
    requires!(Need::Root, Need::Tool("ss"));
    let router = Router::new(&Testbed::new()).unwrap();
    let mut pair = TcpPair::connect(&router.client, &router.server, Router::SERVER.v6).unwrap();
    pair.client_sends(&[7; 50_000]).unwrap();
    pair.server_sends(b"answer").unwrap();
    let samples = sockets(&router.client, "state established").unwrap_or_default();
    let all = sockets(&router.client, "").unwrap();
    let [sample] = &all[..] else {
        panic!("{all:?}, {samples:?}")
    };
    assert_eq!(sample.local, pair.client_addr().unwrap());
    assert_eq!(sample.peer, pair.server_addr().unwrap());
    assert!(sample.rtt > Some(Duration::ZERO) && sample.min_rtt > Some(Duration::ZERO));
    assert_eq!(
        (sample.bytes_sent, sample.bytes_received),
        (Some(50_000), Some(6))
    );
}

#[test]
fn a_capture_holds_every_packet_that_was_sent() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    let options = CaptureOptions {
        snaplen: Some(96),
        precision: Precision::Nano,
        direction: Direction::Out,
        link_type: None,
        filter: "icmp".to_owned(),
    };
    let capture = Capture::start_anonymous(&router.router, "wan", &options).unwrap();
    Ping::to(Router::SERVER.v4)
        .count(40)
        .interval(Duration::from_millis(2))
        .run(&router.client)
        .unwrap();
    let mut captured = capture.stop().unwrap();
    assert_eq!((captured.captured, captured.dropped), (40, 0));
    let bytes = captured.bytes().unwrap();
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    // File header 24 bytes; each record 16 and at most 96.
    assert_eq!(bytes.len(), 24 + 40 * (16 + 96));
}

#[test]
fn a_stopped_capture_of_bulk_traffic_is_complete() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("capinfos"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lan.pcap");
    let router = Router::new(&Testbed::new()).unwrap();
    let options = CaptureOptions {
        snaplen: Some(64),
        ..CaptureOptions::default()
    };
    let capture = Capture::start(&router.router, "lan", &path, &options).unwrap();
    let before = router.lan_end.counters().unwrap();
    let mut pair = TcpPair::connect(&router.client, &router.server, Router::SERVER.v4).unwrap();
    pair.client_sends(&vec![1; 3_000_000]).unwrap();
    let after = router.lan_end.counters().unwrap();
    let captured = capture.stop().unwrap();
    assert_eq!(captured.dropped, 0);
    let min = after.rx_packets + after.tx_packets - before.rx_packets - before.tx_packets;
    assert!(captured.captured >= min, "{captured:?}, {min}");
    assert_eq!(frames_in(&path), captured.captured);
}

#[test]
fn capture_of_everything_contains_only_the_tests_packets() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    // The first exchange comes after the last multicast report that making the links caused.
    Ping::to(Router::SERVER.v6).run(&router.client).unwrap();
    let capture = Capture::start_anonymous(&router.router, "wan", &CaptureOptions::default());
    let ping = Ping::to(Router::SERVER.v6)
        .count(150)
        .interval(Duration::from_millis(10));
    ping.run(&router.client).unwrap();
    assert_eq!(capture.unwrap().stop().unwrap().captured, 300);
}

fn frames_in(path: &Path) -> u64 {
    let output = Command::new("capinfos")
        .args(["-M", "-c", "-T", "-r"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().rsplit('\t').next().unwrap().parse().unwrap()
}

#[test]
fn sysfs_shows_the_links_of_the_namespace() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let ns = testbed.netns("one").unwrap();
    Veth::between(LinkEnd::new(&ns, "here"), LinkEnd::new(&ns, "there"))
        .build()
        .unwrap();
    let mut command = ns.command("ls");
    command.arg("/sys/class/net");
    let listed = ns
        .spawn(command)
        .unwrap()
        .finish(Duration::from_secs(10))
        .unwrap();
    assert_eq!(
        listed.split_whitespace().collect::<Vec<_>>(),
        ["here", "lo", "there"]
    );
}

#[test]
fn namespace_packets_are_received_on_one_cpu() {
    requires!(Need::Root);
    const STEERING: &str = "cat /sys/class/net/*/queues/rx-*/rps_cpus";
    let shell = |mut command: std::process::Command, ns: &fairpath_testbed::Netns| {
        command.args(["-c", STEERING]);
        ns.spawn(command)
            .unwrap()
            .finish(Duration::from_secs(10))
            .unwrap()
    };
    let router = Router::new(&Testbed::new()).unwrap();
    let ns = &router.router;
    let outside = shell(ns.command_without_sysfs("sh"), ns);
    ns.receive_on(0).unwrap();
    let masks = shell(ns.command("sh"), ns);
    let masks: Vec<&str> = masks.split_whitespace().collect();
    // lan, lo, wan; a mask is hexadecimal with leading zeros.
    assert!(masks.len() >= 3, "{masks:?}");
    for mask in masks {
        assert_eq!(u64::from_str_radix(mask, 16), Ok(1), "{mask}");
    }
    assert_eq!(
        shell(ns.command_without_sysfs("sh"), ns),
        outside,
        "the machine's own interfaces were changed"
    );
}

#[test]
fn errors_name_namespace_command_and_reason() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("one").unwrap();
    let error = ns
        .run(&["ip", "link", "set", "dev", "nothing", "up"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"one\"") && error.contains("ip link set"),
        "{error}"
    );
    assert!(error.contains("Cannot find device"), "{error}");
    let error = ns
        .set_sysctl("net.ipv4.nothing", "1")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "sysctl net.ipv4.nothing in namespace \"one\"");
}

#[test]
fn testbeds_with_equal_names_are_isolated() {
    requires!(Need::Root, Need::Tool("ping"));
    let (one, two) = (
        Router::new(&Testbed::new()).unwrap(),
        Router::new(&Testbed::new()).unwrap(),
    );
    two.wan_end.set_up(false).unwrap();
    let report = Ping::to(Router::SERVER.v4)
        .count(2)
        .run(&one.client)
        .unwrap();
    assert_eq!(report.received, 2);
}
