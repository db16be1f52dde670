//! Forwarding in both runtimes: the kernel's object, by test runs without attaching, and the core
//! natively, on the same frames. Decision, bytes and exit agree.
//!
//! ```text
//!   lan, wan (exits), third: three veth ends in one namespace, with routes of every kind
//! ```
//!
//! The kernel asks its own FIB; natively, the test answers from its list of those routes.

#[path = "../../../model/core/tests/forward_oracle/frames.rs"]
#[allow(dead_code)]
mod frames;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use fairpath_bpf::{Options, RttMonitor};
use fairpath_core::Config;
use fairpath_core::forward::{FibAnswer, FibQuestion, ForwardOutcome, Forwarder};
use fairpath_testbed::{LinkEnd, Need, Netns, Testbed, Veth, requires};
use fairpath_units::{IfIndex, Share, test_seed};
use frames::{Addresses, EXIT_MACS, Random};

const FRAMES: u64 = 60_000;
/// Frames per loaded plan.
const FRAMES_OF_A_PLAN: u64 = 500;
const PASSED: u32 = 2;
const REDIRECTED: u32 = 4;
const NAMES: [&str; 3] = ["lan", "wan", "third"];
const THIRD_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
/// Of the hosts behind each interface.
const HOST_MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 3, 2]];
/// Of a route that is narrower than its interface.
const NARROW: u16 = 580;

/// `BPF_FIB_LKUP_RET_*`.
mod code {
    pub const BLACKHOLE: i32 = 1;
    pub const UNREACHABLE: i32 = 2;
    pub const PROHIBIT: i32 = 3;
    pub const NOT_FORWARDED: i32 = 4;
    pub const NO_NEIGHBOUR: i32 = 7;
    pub const TOO_BIG: i32 = 8;
}

/// By the third byte of an IPv4 address (10.9.N.x), and the seventh of an IPv6 one, the network.
fn v4(network: u8, host: u8) -> [u8; 4] {
    [10, 9, network, host]
}

fn v6(network: u8, host: u8) -> [u8; 16] {
    let mut ip = [0; 16];
    (ip[0], ip[1], ip[2], ip[3]) = (0x20, 1, 0xd, 0xb8);
    (ip[7], ip[15]) = (network, host);
    ip
}

const UNKNOWN: u8 = 77;
const BLACK: u8 = 21;
const REFUSED: u8 = 22;
const PROHIBITED: u8 = 23;
const NARROWED: u8 = 24;
const FAR: u8 = 25;
const NOWHERE: u8 = 99;

fn addresses() -> Addresses {
    let networks = [1, 2, 3, BLACK, REFUSED, PROHIBITED, NARROWED, FAR, NOWHERE];
    let mut all = vec![(1, 1), (1, UNKNOWN), (2, UNKNOWN), (2, 1), (2, 2), (FAR, 2)];
    all.extend(networks.map(|network| (network, 2)));
    Addresses {
        v4: all.iter().map(|(n, h)| v4(*n, *h)).collect(),
        v6: all.iter().map(|(n, h)| v6(*n, *h)).collect(),
    }
}

/// `ip -batch` of the routes that [`fib`] knows.
fn routes() -> Vec<String> {
    let mut lines = Vec::new();
    for (name, (mac, network)) in NAMES.iter().zip(HOST_MACS.iter().zip(1..)) {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        for ip in [
            IpAddr::from(v4(network, 2)),
            IpAddr::from(Ipv6Addr::from(v6(network, 2))),
        ] {
            lines.push(format!("neighbour replace {ip} lladdr {mac} dev {name}"));
        }
    }
    for (network, what) in [
        (BLACK, "blackhole"),
        (REFUSED, "unreachable"),
        (PROHIBITED, "prohibit"),
    ] {
        lines.push(format!(
            "route add {what} {}/24",
            Ipv4Addr::from(v4(network, 0))
        ));
        lines.push(format!(
            "route add {what} {}/64",
            Ipv6Addr::from(v6(network, 0))
        ));
    }
    for (network, with) in [
        (NARROWED, format!("mtu lock {NARROW}")),
        (FAR, String::new()),
    ] {
        let gateways = [
            (IpAddr::from(v4(network, 0)), 24, IpAddr::from(v4(2, 2))),
            (IpAddr::from(v6(network, 0)), 64, IpAddr::from(v6(2, 2))),
        ];
        for (to, length, via) in gateways {
            // An IPv6 route cannot be narrower than 1,280 bytes.
            let with = if to.is_ipv4() { &with } else { "" };
            lines.push(format!("route add {to}/{length} via {via} dev wan {with}"));
        }
    }
    lines
}

/// The answer of the kernel's FIB, from the routes above.
fn fib(interfaces: [IfIndex; 3], question: &FibQuestion) -> FibAnswer {
    let (network, host, known) = match question.destination {
        IpAddr::V4(ip) => {
            let [a, b, network, host] = ip.octets();
            (network, host, [a, b] == [10, 9])
        }
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            let network = octets[7];
            let host = match octets[8..15] == [0; 7] {
                true => octets[15],
                false => UNKNOWN,
            };
            (network, host, v6(network, 0)[..8] == octets[..8])
        }
    };
    let refused = |code| FibAnswer {
        code,
        ..FibAnswer::default()
    };
    let leaves = |to: usize| FibAnswer {
        code: 0,
        leaves_by: interfaces[to],
        source: [EXIT_MACS[0], EXIT_MACS[1], THIRD_MAC][to],
        destination: HOST_MACS[to],
    };
    match (known, network, host) {
        (false, ..) => refused(code::NOT_FORWARDED),
        (_, BLACK, _) => refused(code::BLACKHOLE),
        (_, REFUSED, _) => refused(code::UNREACHABLE),
        (_, PROHIBITED, _) => refused(code::PROHIBIT),
        (_, NARROWED, _) if question.source.is_ipv4() && question.bytes > NARROW => {
            refused(code::TOO_BIG)
        }
        (_, NARROWED | FAR, _) => leaves(1),
        (_, 1..=3, 1 | 0 | 255) => refused(code::NOT_FORWARDED),
        (_, 1..=3, 2..=254) if !question.needs_neighbour => leaves(usize::from(network) - 1),
        (_, 1..=3, 2) if u32::from(question.bytes) > LINK_MTU => refused(code::TOO_BIG),
        (_, 1..=3, 2) => leaves(usize::from(network) - 1),
        (_, 1..=3, _) => refused(code::NO_NEIGHBOUR),
        _ => refused(code::NOT_FORWARDED),
    }
}

const LINK_MTU: u32 = 1500;

/// An AF_XDP socket that nothing reads: with a ring it may stand in a map.
fn socket() -> OwnedFd {
    const XDP_RX_RING: i32 = 2;
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: no other code owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let entries = 64u32;
    // SAFETY: reads four bytes of `entries`.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            XDP_RX_RING,
            (&raw const entries).cast(),
            4,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    socket
}

struct Links {
    router: Netns,
    _far: Netns,
    _veths: Vec<Veth>,
}

fn links(testbed: &Testbed) -> Links {
    let (router, far) = (
        testbed.netns("router").unwrap(),
        testbed.netns("far").unwrap(),
    );
    let macs = [EXIT_MACS[0], EXIT_MACS[1], THIRD_MAC];
    let veths = NAMES
        .iter()
        .zip(macs)
        .zip(1..)
        .map(|((name, mac), network)| {
            let end = LinkEnd::new(&router, name).with_mac(mac);
            let end = end.with_address(Ipv4Addr::from(v4(network, 1)), 24);
            let end = end.with_address(Ipv6Addr::from(v6(network, 1)), 64);
            let built = Veth::between(end, LinkEnd::new(&far, name)).build();
            built.unwrap()
        });
    let veths = veths.collect();
    router.set_forwarding(true).unwrap();
    router.ip_batch(&routes()).unwrap();
    Links {
        router,
        _far: far,
        _veths: veths,
    }
}

/// The one count that a run moved: exit, and way.
fn moved(
    monitor: &RttMonitor,
    before: &mut BTreeMap<(usize, usize), u64>,
) -> (usize, ForwardOutcome) {
    let outcomes = monitor.outcomes();
    let mut found = Vec::new();
    for (exit, outcomes) in outcomes.iter().enumerate() {
        for (outcome, _) in ForwardOutcome::ALL {
            let was = before
                .insert((exit, outcome as usize), outcomes.of(outcome))
                .unwrap_or(0);
            if outcomes.of(outcome) != was {
                assert_eq!(outcomes.of(outcome), was + 1);
                found.push((exit, outcome));
            }
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn compare() {
    let interfaces = NAMES.map(|name| IfIndex(nix::net::if_::if_nametoindex(name).unwrap()));
    let [lan, wan, _] = interfaces;
    let mut random = Random::new(test_seed());
    let options = Options::live(Config::default().with_flows(1024)).with_forwarding();
    let monitor = RttMonitor::load(&options).unwrap();
    let sockets = [socket(), socket()];
    for (exit, socket) in sockets.iter().enumerate() {
        monitor.set_socket(exit, 0, socket.as_fd()).unwrap();
    }
    let (mut before, mut met) = (BTreeMap::new(), BTreeMap::new());
    let addresses = addresses();
    for number in 0..Share::reported().of(FRAMES).div_ceil(FRAMES_OF_A_PLAN) {
        let plan = frames::plan(&mut random, [lan, wan]);
        monitor.set_forwarding(&plan).unwrap();
        let native = Forwarder::new(&plan);
        for turn in 0..FRAMES_OF_A_PLAN {
            let mut frame = frames::frame(&mut random, &plan, &addresses);
            // A test run takes no less than an Ethernet header.
            frame.resize(frame.len().max(14), 0);
            let arrived = random.pick(&[lan, wan]);
            let ran = monitor.run_forward(arrived, &frame).unwrap();
            let (exit, outcome) = moved(&monitor, &mut before);
            let bytes = frame.len() as u32;
            let decision = native.decide(
                arrived,
                &frame,
                bytes,
                |_| true,
                |question| fib(interfaces, question),
            );
            let about =
                format!("plan {number} {plan:?}\nframe {turn} by {arrived:?}: {frame:02x?}");
            assert_eq!(
                (outcome, exit),
                (decision.outcome(), decision.arrived()),
                "{about}"
            );
            let mut after = frame.clone();
            if outcome == ForwardOutcome::ToSocket {
                native.change(&decision, &mut after).unwrap();
                assert_eq!(ran.verdict, REDIRECTED, "{about}");
                let leaves = u32::from_ne_bytes(ran.note[4..8].try_into().unwrap());
                assert_eq!(leaves as usize, decision.leaves(), "{about}");
            } else {
                assert_eq!((ran.verdict, ran.note.len()), (PASSED, 0), "{about}");
            }
            assert_eq!(ran.frame, after, "{about}");
            *met.entry(outcome as usize).or_insert(0u64) += 1;
        }
    }
    // What this namespace has no case of.
    let absent = [
        ForwardOutcome::NoSocket,
        ForwardOutcome::NoHeadroom,
        ForwardOutcome::NoScratch,
        ForwardOutcome::NotForwarding,
        ForwardOutcome::Tunnel,
        ForwardOutcome::Lost,
    ];
    for (outcome, name) in ForwardOutcome::ALL {
        let times = met.get(&(outcome as usize)).copied().unwrap_or(0);
        println!("{name}: {times}");
        assert!(absent.contains(&outcome) || times > 0, "{name}");
    }
}

#[test]
fn kernel_and_native_forward_frames_equally() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let links = links(&testbed);
    links.router.enter(compare).unwrap();
}
