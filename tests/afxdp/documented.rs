//! The rows of the forwarding path (docs/kernel-support.md) whose decision is "documented": the kernel
//! alone, and AF_XDP, side by side. Each test holds a difference to what the table says.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use fairpath_testbed::{Capture, CaptureOptions, Direction, Need, Netns, Router, requires};

use crate::routed::{carried, in_router};
use crate::sums::{capture, frames};

const DATAGRAMS: u32 = 20;

fn any(is_v4: bool) -> IpAddr {
    match is_v4 {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// From the client to the server, both families.
fn datagrams(router: &Router) {
    let send = || {
        for to in Router::SERVER.both() {
            let socket = UdpSocket::bind((any(to.is_ipv4()), 0)).unwrap();
            for _ in 0..DATAGRAMS {
                socket.send_to(&[0; 100], (to, 7777)).unwrap();
            }
        }
    };
    router.client.enter(send).unwrap();
}

/// Runs `body` with the kernel alone, then with AF_XDP.
fn kernel_and_afxdp<T>(router: &Router, mut body: impl FnMut() -> T) -> [T; 2] {
    let kernel = body();
    let mut afxdp = None;
    carried(router, |_| afxdp = Some(body()));
    [kernel, afxdp.unwrap()]
}

fn count(capture: Capture) -> u32 {
    frames(capture).values().sum()
}

#[test]
fn captures_on_the_router_miss_carried_packets() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_router(|router| {
        let [kernel, afxdp] = kernel_and_afxdp(router, || {
            let captures = [
                capture(&router.router, "lan", Direction::In),
                capture(&router.router, "wan", Direction::Out),
                capture(&router.server, "eth0", Direction::In),
            ];
            datagrams(router);
            captures.map(count)
        });
        assert_eq!(kernel, [2 * DATAGRAMS; 3]);
        assert_eq!(afxdp, [0, 0, 2 * DATAGRAMS], "lan, wan, server");
    });
}

/// `Ip: ForwDatagrams` and `Ip6OutForwDatagrams` of the router.
fn forwarded(router: &Netns) -> u64 {
    let read = || ["snmp", "snmp6"].map(|name| fs_text(&format!("/proc/thread-self/net/{name}")));
    let [v4, v6] = router.enter(read).unwrap();
    let mut ip = v4.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (ip.next().unwrap(), ip.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let v4 = pairs.find(|(name, _)| *name == "ForwDatagrams").unwrap().1;
    let mut v6 = v6
        .lines()
        .filter_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    number(v4) + number(v6.next().unwrap())
}

fn fs_text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn nstat_counts_packets_of_the_stack_only() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_router(|router| {
        let [kernel, afxdp] = kernel_and_afxdp(router, || {
            let before = forwarded(&router.router);
            let arrived = capture(&router.server, "eth0", Direction::In);
            datagrams(router);
            assert_eq!(count(arrived), 2 * DATAGRAMS);
            forwarded(&router.router) - before
        });
        // And the answers: no process receives there.
        assert!(kernel >= u64::from(2 * DATAGRAMS), "{kernel}");
        assert_eq!(afxdp, 0);
    });
}

/// The route back to the client's network leads by the router's ingress interface.
#[test]
fn afxdp_sends_no_icmp_redirects() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_router(|router| {
        let lines = [
            "route add 198.51.100.0/24 via 10.10.1.9 dev lan",
            "neighbour add 10.10.1.9 lladdr 02:00:00:00:01:09 dev lan",
        ];
        router.router.ip_batch(&lines.map(str::to_owned)).unwrap();
        let [kernel, afxdp] = kernel_and_afxdp(router, || {
            let options = CaptureOptions {
                filter: "icmp[icmptype] == icmp-redirect or udp".to_owned(),
                direction: Direction::In,
                ..CaptureOptions::default()
            };
            let capture = Capture::start_anonymous(&router.client, "eth0", &options).unwrap();
            let send = || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.send_to(&[0; 100], "198.51.100.7:7777").unwrap();
            };
            router.client.enter(send).unwrap();
            let is_redirect = |frame: &[u8]| frame[23] == 1;
            let arrived = frames(capture);
            let [mut redirects, mut returned] = [0, 0];
            for (frame, times) in arrived {
                match is_redirect(&frame) {
                    true => redirects += times,
                    false => returned += times,
                }
            }
            (redirects, returned)
        });
        assert_eq!(kernel, (1, 1), "redirects, and the datagram");
        assert_eq!(afxdp, (0, 1), "redirects, and the datagram");
    });
}

/// Destinations, each by one of two next hops.
const DESTINATIONS: u8 = 64;
const PORTS: u16 = 4;

/// The first source port of a family. They differ, because a socket of IPv6 takes the port of IPv4 too.
/// Each port has one socket: a process that another test starts can hold a closed one for a moment.
const fn first_port(is_ipv4: bool) -> u16 {
    if is_ipv4 { 20_000 } else { 20_100 }
}

/// The last byte of the next hop's MAC address, by the datagram's destination and source port.
type NextHops = BTreeMap<(Vec<u8>, u16), u8>;

fn next_hops(router: &Router) -> NextHops {
    let arrived = capture(&router.server, "eth0", Direction::In);
    let send = || {
        let sockets = [true, false].map(|is_ipv4| {
            let bind = |port| UdpSocket::bind((any(is_ipv4), first_port(is_ipv4) + port)).unwrap();
            (0..PORTS).map(bind).collect::<Vec<_>>()
        });
        for number in 0..DESTINATIONS {
            let to: [IpAddr; 2] = [
                Ipv4Addr::new(198, 51, 100, number).into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into(),
            ];
            for (to, sockets) in to.iter().zip(&sockets) {
                for socket in sockets {
                    socket.send_to(&[0; 10], (*to, 7777)).unwrap();
                }
            }
        }
    };
    router.client.enter(send).unwrap();
    let frames = frames(arrived);
    let read = |frame: &Vec<u8>| {
        let (destination, udp) = match frame[12] == 8 {
            true => (&frame[30..34], 34),
            false => (&frame[38..54], 54),
        };
        let port = u16::from_be_bytes([frame[udp], frame[udp + 1]]);
        ((destination.to_vec(), port), frame[5])
    };
    frames.keys().map(read).collect()
}

#[test]
fn several_next_hops_are_chosen_without_ports() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_router(|router| {
        let mut lines = Vec::new();
        for (network, first, second) in [
            ("198.51.100.0/24", "10.10.2.2", "10.10.2.3"),
            ("2001:db8::/64", "fd00:10:2::2", "fd00:10:2::3"),
        ] {
            lines.push(format!(
                "route add {network} nexthop via {first} dev wan nexthop via {second} dev wan"
            ));
            for (number, address) in [(2, first), (3, second)] {
                lines.push(format!(
                    "neighbour replace {address} lladdr 02:00:00:00:02:0{number} dev wan"
                ));
            }
        }
        router.router.ip_batch(&lines).unwrap();
        for policy in ["0", "1"] {
            for family in ["ipv4", "ipv6"] {
                let key = format!("net.{family}.fib_multipath_hash_policy");
                router.router.set_sysctl(&key, policy).unwrap();
            }
            let [kernel, afxdp] = kernel_and_afxdp(router, || next_hops(router));
            let expected = 2 * usize::from(DESTINATIONS) * usize::from(PORTS);
            assert_eq!((kernel.len(), afxdp.len()), (expected, expected));
            if policy == "0" {
                assert_eq!(afxdp, kernel, "addresses only");
                continue;
            }
            // Every next hop is used, and a destination has one.
            let by_port = |hops: &NextHops| {
                let first = |to: &Vec<u8>| hops[&(to.clone(), first_port(to.len() == 4))];
                let differ = hops.iter().filter(|((to, _), hop)| **hop != first(to));
                differ.count()
            };
            assert!(by_port(&kernel) > expected / 8, "the kernel reads ports");
            assert_eq!(by_port(&afxdp), 0, "AF_XDP does not");
            for hop in [2, 3] {
                let used = afxdp.values().filter(|used| **used == hop).count();
                assert!(used > expected / 8, "next hop {hop}: {used} of {expected}");
            }
        }
    });
}
