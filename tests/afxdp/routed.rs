//! A router whose packets go through AF_XDP: the kernel's FIB decides, and what it must think about
//! stays the stack's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fairpath_afxdp::Stop;
use fairpath_bpf::{ForwardOutcome, Forwarding, RttMonitor};
use fairpath_testbed::{
    Direction, Iperf3, Iperf3Server, LinkEnd, Need, Ping, Router, Testbed, Veth, requires,
};
use fairpath_tests::through::{Named, Setup, Through};
use fairpath_units::IfIndex;
use fairpath_wire::{Frame, ipv4, ipv6};
use nix::net::if_::if_nametoindex;

use crate::sums::{capture, frames};

const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
const LAN_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const WAN_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
const PASSED: u32 = 2;
const REDIRECTED: u32 = 4;

fn setup() -> Setup {
    let exits = [Named::new("lan", LAN_MAC), Named::new("wan", WAN_MAC)];
    Setup::new(Forwarding::Router, exits)
}

pub fn in_router(body: impl FnOnce(&Router) + Send) {
    let testbed = Testbed::new();
    let router = Router::new(&testbed).unwrap();
    router.router.enter(|| body(&router)).unwrap();
}

/// With the forwarder on a separate thread.
pub fn carried(router: &Router, body: impl FnOnce(&Router)) -> Through {
    let Through {
        mut forwarder,
        monitor,
        stack_sent,
        attached,
    } = setup().open().unwrap();
    let stop = Stop::new().unwrap();
    let requested = stop.clone();
    let carrying = std::thread::spawn(move || {
        forwarder.run(&requested, |_| ());
        forwarder
    });
    body(router);
    until_silent(&monitor);
    stop.request();
    Through {
        forwarder: carrying.join().unwrap(),
        monitor,
        stack_sent,
        attached,
    }
}

/// Waits until nothing has come for a while: the last packet of a connection may be in a ring yet.
fn until_silent(monitor: &RttMonitor) {
    let arrived = || {
        monitor
            .outcomes()
            .map(|outcomes| outcomes.of(ForwardOutcome::ToSocket))
    };
    let mut before = arrived();
    // How long it is silent is what is waited for.
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(200));
        let now = arrived();
        if now == before {
            return;
        }
        before = now;
    }
    panic!("packets still come: {before:?}");
}

fn ping(ip: impl Into<IpAddr>) -> Ping {
    Ping::to(ip).count(5).interval(Duration::from_millis(200))
}

#[test]
fn pings_and_tcp_are_routed_and_answered() {
    requires!(Need::Root, Need::Tool("ping"), Need::Tool("iperf3"));
    in_router(|router| {
        let through = carried(router, |router| {
            for ip in [Router::SERVER, Router::LAN, Router::WAN].map(|host| host.both()) {
                for ip in ip {
                    assert_eq!(ping(ip).run(&router.client).unwrap().received, 5, "{ip}");
                }
            }
            for ip in Router::SERVER.both() {
                let server = Iperf3Server::start(&router.server, 5201).unwrap();
                let transfer = Iperf3::to(ip, server.port()).bytes(10_000_000);
                let report = transfer.run(&router.client).unwrap();
                assert!(report.bytes_received > 5_000_000, "{report:?}");
            }
        });
        let [lan, wan] = through.monitor.outcomes();
        assert!(lan.of(ForwardOutcome::Local) >= 20, "{lan:?}");
        let all = lan.of(ForwardOutcome::ToSocket) + wan.of(ForwardOutcome::ToSocket);
        assert_eq!(through.forwarder.counts().sent, all, "{lan:?} {wan:?}");
        assert!(all > 10_000);
        assert!(through.monitor.stats().samples_icmp >= 20);
    });
}

/// As RFC 1812 section 5.3.1 and RFC 8200 section 3 have it, by the test's own arithmetic.
fn routed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&SERVER_MAC);
    frame[6..12].copy_from_slice(&WAN_MAC);
    if frame[12..14] == [0x86, 0xdd] {
        frame[21] -= 1;
        return frame;
    }
    frame[22] -= 1;
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2);
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[24..26].copy_from_slice(&(!sum as u16).to_be_bytes());
    frame
}

#[test]
fn forwarding_changes_only_addresses_ttl_and_checksum() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("iperf3"));
    in_router(|router| {
        let mut captures = None;
        carried(router, |router| {
            captures = Some([
                capture(&router.client, "eth0", Direction::Out),
                capture(&router.server, "eth0", Direction::In),
            ]);
            // Datagrams of every size, fragments of both families, TCP.
            let send = || {
                for to in Router::SERVER.both() {
                    let any: IpAddr = match to {
                        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                    };
                    let socket = std::net::UdpSocket::bind((any, 0)).unwrap();
                    for bytes in (0..120).map(|i| i * 12).chain([4000, 9000]) {
                        socket
                            .send_to(&vec![bytes as u8; bytes], (to, 7777))
                            .unwrap();
                    }
                }
            };
            router.client.enter(send).unwrap();
            for ip in Router::SERVER.both() {
                let server = Iperf3Server::start(&router.server, 5201).unwrap();
                Iperf3::to(ip, server.port())
                    .bytes(300_000)
                    .run(&router.client)
                    .unwrap();
            }
        });
        let [before, behind] = captures.unwrap().map(frames);
        let fragments = before
            .keys()
            .filter(|f| f[12] == 8 && f[20] & 0x3f | f[21] != 0);
        assert!(fragments.count() >= 8);
        let mut expected = std::collections::BTreeMap::new();
        for (frame, times) in &before {
            *expected.entry(routed(frame)).or_insert(0) += times;
        }
        assert!(before.len() > 400, "{}", before.len());
        assert_eq!(expected, behind);
    });
}

fn from_client() -> Frame {
    Frame::ethernet(CLIENT_MAC, LAN_MAC)
}

fn v4(to: Ipv4Addr, change: impl FnOnce(&mut ipv4::Header)) -> Vec<u8> {
    let mut header = ipv4::Header::new(Router::CLIENT.v4, to);
    change(&mut header);
    from_client()
        .ipv4_header(header)
        .udp(1000, 2000)
        .zeros(100)
        .build()
}

fn v6(to: Ipv6Addr, change: impl FnOnce(&mut ipv6::Header)) -> Vec<u8> {
    let mut header = ipv6::Header::new(Router::CLIENT.v6, to);
    change(&mut header);
    from_client()
        .ipv6_header(header)
        .udp(1000, 2000)
        .zeros(100)
        .build()
}

/// The packets that the stack keeps, and the reasons.
fn cases() -> Vec<(&'static str, ForwardOutcome, Vec<u8>)> {
    let server = Router::SERVER;
    let other = |a, b| {
        Frame::ethernet(a, b)
            .ipv4(Router::CLIENT.v4, server.v4)
            .udp(1, 2)
            .build()
    };
    let mut bad_sum = v4(server.v4, |_| ());
    bad_sum[24] ^= 1;
    let mut cut = v4(server.v4, |_| ());
    cut.truncate(100);
    let mut options = v4(server.v4, |_| ());
    options[14] = 0x46;
    let hop_by_hop = |ip: &mut ipv6::Header| {
        ip.extensions = vec![ipv6::Extension::HopByHop(vec![1, 4, 0, 0, 0, 0])];
    };
    let big = |n| {
        from_client()
            .ipv4(Router::CLIENT.v4, n)
            .udp(1, 2)
            .zeros(1460)
            .build()
    };
    vec![
        ("TTL 1", ForwardOutcome::Ttl, v4(server.v4, |ip| ip.ttl = 1)),
        ("TTL 0", ForwardOutcome::Ttl, v4(server.v4, |ip| ip.ttl = 0)),
        (
            "hop limit 1",
            ForwardOutcome::Ttl,
            v6(server.v6, |ip| ip.hop_limit = 1),
        ),
        ("options", ForwardOutcome::Options, options),
        (
            "hop-by-hop",
            ForwardOutcome::Options,
            v6(server.v6, hop_by_hop),
        ),
        (
            "to the router",
            ForwardOutcome::Local,
            v4(Router::LAN.v4, |_| ()),
        ),
        (
            "to its other address",
            ForwardOutcome::Local,
            v6(Router::WAN.v6, |_| ()),
        ),
        (
            "broadcast",
            ForwardOutcome::Local,
            v4(Ipv4Addr::new(10, 10, 2, 255), |_| ()),
        ),
        (
            "class E",
            ForwardOutcome::Strange,
            v4(Ipv4Addr::new(240, 0, 0, 1), |_| ()),
        ),
        (
            "loopback",
            ForwardOutcome::Strange,
            v4(Ipv4Addr::LOCALHOST, |_| ()),
        ),
        (
            "from loopback",
            ForwardOutcome::Strange,
            v4(server.v4, |ip| ip.src = Ipv4Addr::LOCALHOST),
        ),
        (
            "from nobody",
            ForwardOutcome::Strange,
            v6(server.v6, |ip| ip.src = Ipv6Addr::UNSPECIFIED),
        ),
        (
            "link-local",
            ForwardOutcome::Strange,
            v6("fe80::1".parse().unwrap(), |_| ()),
        ),
        (
            "multicast",
            ForwardOutcome::Strange,
            v6("ff0e::1".parse().unwrap(), |_| ()),
        ),
        ("wrong header checksum", ForwardOutcome::Strange, bad_sum),
        ("cut short", ForwardOutcome::Short, cut),
        (
            "no route",
            ForwardOutcome::Local,
            v4(Ipv4Addr::new(203, 0, 113, 9), |_| ()),
        ),
        (
            "no IPv6 route",
            ForwardOutcome::Local,
            v6("2001:db8::9".parse().unwrap(), |_| ()),
        ),
        (
            "blackhole",
            ForwardOutcome::Unreachable,
            v4(Ipv4Addr::new(198, 51, 100, 9), |_| ()),
        ),
        (
            "neighbour unknown",
            ForwardOutcome::NoNeighbour,
            v4(Ipv4Addr::new(10, 10, 2, 77), |_| ()),
        ),
        (
            "third interface",
            ForwardOutcome::OtherExit,
            v4(Ipv4Addr::new(10, 10, 3, 2), |_| ()),
        ),
        (
            "above the route's MTU",
            ForwardOutcome::TooBig,
            big(Ipv4Addr::new(192, 0, 2, 7)),
        ),
        (
            "other MAC",
            ForwardOutcome::OtherHost,
            other(CLIENT_MAC, [2, 9, 9, 9, 9, 9]),
        ),
        (
            "all MACs",
            ForwardOutcome::Group,
            other(CLIENT_MAC, [0xff; 6]),
        ),
        (
            "tagged",
            ForwardOutcome::OtherVlan,
            from_client()
                .vlan(5)
                .ipv4(Router::CLIENT.v4, server.v4)
                .build(),
        ),
        (
            "ARP",
            ForwardOutcome::NotIp,
            [&LAN_MAC[..], &CLIENT_MAC, &[8, 6], &[0; 46]].concat(),
        ),
    ]
}

#[test]
fn unusual_frames_pass_to_the_stack_unchanged() {
    requires!(Need::Root);
    in_router(|router| {
        let lines = [
            "route add blackhole 198.51.100.0/24".to_owned(),
            "route add 192.0.2.0/24 via 10.10.2.2 mtu lock 1280".to_owned(),
            "neighbour replace 10.10.3.2 lladdr 02:00:00:00:03:02 dev third".to_owned(),
        ];
        let testbed = Testbed::new();
        let far = testbed.netns("far").unwrap();
        let third =
            LinkEnd::new(&router.router, "third").with_address(Ipv4Addr::new(10, 10, 3, 1), 24);
        let _link = Veth::between(third, LinkEnd::new(&far, "far"))
            .build()
            .unwrap();
        router.router.ip_batch(&lines).unwrap();
        let through = setup().open().unwrap();
        let lan = IfIndex(if_nametoindex("lan").unwrap());
        let ran = |frame: &[u8]| through.monitor.run_forward(lan, frame).unwrap();
        for (what, outcome, frame) in cases() {
            let before = through.monitor.outcomes()[0].of(outcome);
            let after = ran(&frame);
            let outcomes = through.monitor.outcomes();
            assert_eq!(after.verdict, PASSED, "{what} {outcomes:?}");
            assert!(after.frame == frame, "{what} {outcomes:?}");
            assert!(after.note.is_empty(), "{what}");
            assert_eq!(outcomes[0].of(outcome) - before, 1, "{what} {outcomes:?}");
        }
        for frame in [v4(Router::SERVER.v4, |_| ()), v6(Router::SERVER.v6, |_| ())] {
            let after = ran(&frame);
            assert_eq!((after.verdict, after.frame), (REDIRECTED, routed(&frame)));
            assert_eq!(after.note.len(), fairpath_afxdp::METADATA_BYTES);
        }
        // The checksum that a hop takes from 0xfeff to 0, over the end of the circle (RFC 1624).
        let of = |id| v4(Router::SERVER.v4, |ip| ip.id = id);
        let turning = (0..=u16::MAX)
            .map(of)
            .find(|frame| frame[24..26] == [0xfe, 0xff]);
        let turning = turning.expect("one of 65,536 identifiers gives any checksum");
        assert_eq!(ran(&turning).frame, routed(&turning));
        router.router.set_forwarding(false).unwrap();
        let frame = v4(Router::SERVER.v4, |_| ());
        assert_eq!(ran(&frame).frame, frame);
        assert_eq!(
            through.monitor.outcomes()[0].of(ForwardOutcome::NotForwarding),
            1
        );
    });
}

#[test]
fn packets_for_the_stack_are_answered() {
    requires!(Need::Root, Need::Tool("ping"));
    in_router(|router| {
        let server_away = ["neighbour del 10.10.2.2 dev wan".to_owned()];
        let through = carried(router, |router| {
            // The neighbour is looked for by the stack, with the first packet, which it then sends.
            router.router.ip_batch(&server_away).unwrap();
            assert_eq!(
                ping(Router::SERVER.v4)
                    .run(&router.client)
                    .unwrap()
                    .received,
                5
            );
            let short = "ping -c 1 -W 2 -t 1 10.10.2.2 || true";
            let output = router.client.run(&["sh", "-c", short]).unwrap();
            assert!(output.contains("Time to live exceeded"), "{output}");
            router
                .router
                .run(&["ip", "link", "set", "wan", "mtu", "1280"])
                .unwrap();
            let long = "ping -c 1 -W 2 -M do -s 1400 10.10.2.2 || true";
            let output = router.client.run(&["sh", "-c", long]).unwrap();
            assert!(
                output.contains("mtu = 1280") || output.contains("mtu=1280"),
                "{output}"
            );
        });
        let [lan, _] = through.monitor.outcomes();
        let outcomes = [
            ForwardOutcome::NoNeighbour,
            ForwardOutcome::Ttl,
            ForwardOutcome::TooBig,
        ]
        .map(|outcome| lan.of(outcome));
        assert_eq!(outcomes, [1, 1, 1], "{lan:?}");
    });
}
