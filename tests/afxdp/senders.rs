//! Spoofed senders: AF_XDP lets through exactly what the kernel alone lets through.
//!
//! ```text
//!   a sender with many addresses ── router ── the other side, captured
//! ```
//!
//! Every address is used with each value of `rp_filter`, without AF_XDP and with it. The two sets of
//! datagrams that arrive must be equal.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};

use fairpath_bpf::ForwardOutcome;
use fairpath_testbed::{Direction, Host, Need, Netns, Router, requires};

use crate::routed::{carried, in_router};
use crate::sums::{capture, frames};

/// The router has routes of all kinds to the senders.
const ROUTES: [&str; 8] = [
    "link add third type veth peer name fourth",
    "address add 172.16.3.1/24 dev third",
    "link set third up",
    "link set fourth up",
    "route add 198.51.100.0/24 via 10.10.1.2 dev lan",
    "route add 192.0.2.0/24 dev third",
    "route add blackhole 198.18.1.0/24",
    "route add unreachable 198.18.2.0/24",
];

/// Addresses of a sender in network 10.10.`near`.0/24 or fd00:10:`near`::/64; the receiver is in the
/// other one. The first is genuine.
fn senders(near: u8, is_v4: bool) -> Vec<IpAddr> {
    let far = 3 - near;
    let v6 = |network, host| Ipv6Addr::new(0xfd00, 0x10, network, 0, 0, 0, 0, host);
    let (n, f) = (u16::from(near), u16::from(far));
    if !is_v4 {
        let nowhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
        // The router's own are the third and fourth, as below.
        let all = [
            v6(n, 2),
            v6(n, 0x77),
            v6(n, 1),
            v6(f, 1),
            v6(f, 0x77),
            nowhere,
        ];
        return all.map(IpAddr::from).to_vec();
    }
    let all = [
        [10, 10, near, 2],
        [10, 10, near, 77],
        [10, 10, near, 1],
        [10, 10, far, 1],
        [172, 16, 3, 1],
        // A host of the receiver's network, and the address of a network.
        [10, 10, far, 77],
        [10, 10, near, 0],
        [198, 51, 100, 7],
        [192, 0, 2, 7],
        [198, 18, 1, 7],
        [198, 18, 2, 7],
        // Without a route.
        [203, 0, 113, 7],
    ];
    all.map(IpAddr::from).to_vec()
}

/// Sends one datagram from each address. Its content is the address.
fn send(from: &Netns, near: u8, to: Host) {
    for to in to.both() {
        let senders = senders(near, to.is_ipv4());
        let each = |verb: &str, flag: &str| -> Vec<String> {
            let bits = if to.is_ipv4() { 32 } else { 128 };
            let others = senders[1..].iter();
            others
                .map(|ip| format!("address {verb} {ip}/{bits} dev lo {flag}"))
                .collect()
        };
        // With `nodad`, an IPv6 address can be bound at once.
        from.ip_batch(&each("add", "nodad")).unwrap();
        from.enter(|| {
            for ip in &senders {
                let socket = UdpSocket::bind((*ip, 0)).unwrap();
                socket
                    .send_to(ip.to_string().as_bytes(), (to, 7777))
                    .unwrap();
            }
        })
        .unwrap();
        from.ip_batch(&each("del", "")).unwrap();
    }
}

/// Addresses whose datagrams arrive at the client (1) or the server (2), after `run`.
fn arrivals(router: &Router, run: impl FnOnce()) -> BTreeSet<(usize, String)> {
    let ends = [&router.client, &router.server];
    let captures = ends.map(|end| capture(end, "eth0", Direction::In));
    run();
    let mut arrived = BTreeSet::new();
    for (end, capture) in (1..).zip(captures) {
        for frame in frames(capture).keys() {
            // Ethernet, IP and UDP.
            let content = if frame[12] == 8 { 42 } else { 62 };
            arrived.insert((end, String::from_utf8(frame[content..].to_vec()).unwrap()));
        }
    }
    arrived
}

fn send_both(router: &Router) {
    send(&router.client, 1, Router::SERVER);
    send(&router.server, 2, Router::CLIENT);
}

#[test]
fn spoofed_senders_pass_only_as_in_the_kernel() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_router(|router| {
        router.router.ip_batch(&ROUTES.map(str::to_owned)).unwrap();
        let mut sets = BTreeSet::new();
        for (all, lan, wan) in [
            (0, 0, 0),
            (1, 0, 0),
            (2, 2, 2),
            (0, 1, 2),
            (0, 2, 1),
            (1, 2, 0),
        ] {
            for (name, value) in [("all", all), ("lan", lan), ("wan", wan)] {
                let key = format!("net.ipv4.conf.{name}.rp_filter");
                router.router.set_sysctl(&key, &value.to_string()).unwrap();
            }
            let kernel = arrivals(router, || send_both(router));
            let mut through = None;
            let ours = arrivals(router, || through = Some(carried(router, send_both)));
            let setting = format!("rp_filter: all {all}, lan {lan}, wan {wan}");
            assert_eq!(ours, kernel, "{setting}");
            // The genuine ones bypass the stack. The router's own addresses never do.
            let outcomes = through.unwrap().monitor.outcomes();
            for (exit, outcomes) in outcomes.iter().enumerate() {
                let [to_socket, unproven] = [ForwardOutcome::ToSocket, ForwardOutcome::Sender]
                    .map(|outcome| outcomes.of(outcome));
                assert!(to_socket >= 6, "{setting}, {exit}: {outcomes:?}");
                assert!(unproven >= 6, "{setting}, {exit}: {outcomes:?}");
            }
            println!("{setting}: {} of 36 arrive", kernel.len());
            sets.insert(kernel);
        }
        // Otherwise the settings would test nothing.
        assert!(sets.len() >= 4, "{sets:?}");
    });
}
