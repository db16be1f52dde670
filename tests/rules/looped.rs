//! Packets that the router sends to itself: they pass the hooks of both directions.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Netns, Testbed, requires};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::answers::Answering;
use super::live::{Router, tables};
use super::oracle::legacy::{allowed_cpus, stay_on};

const PORT: u16 = 7001;
/// Packets that are sent before the receiver looks: on another CPU, they wait for each other.
const BURST: u64 = 32;

/// Chains that drop all packets of the port: at OUTPUT, or at INPUT.
fn chains(at_output: bool) -> String {
    let [output, input] = match at_output {
        true => ["DROP", "ACCEPT"],
        false => ["ACCEPT", "DROP"],
    };
    format!(
        ":sent - [0:0]\n:received - [0:0]\n-A sent -p udp -m udp --dport {PORT} -j {output}\n\
         -A received -p udp -m udp --dport {PORT} -j {input}\n"
    )
}

/// Loads and edits while a sender on the first CPU sends to `to`. Packets arrive only if they meet one set at
/// OUTPUT, and the other one at INPUT.
fn no_mixture(router: &Router, to: Ipv4Addr, receiver: &UdpSocket, loads: usize, edits: usize) {
    let sets = [true, false].map(|at_output| {
        format!(
            "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{}\
             -A INPUT -j received\n-A OUTPUT -j sent\nCOMMIT\n",
            chains(at_output)
        )
    });
    let files = [true, false].map(|at_output| format!("*filter\n{}COMMIT\n", chains(at_output)));
    router.load(&sets[0]);
    let done = AtomicBool::new(false);
    receiver.set_nonblocking(true).unwrap();
    let (sent, received) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            stay_on(allowed_cpus()[0]);
            let sender = || UdpSocket::bind("0.0.0.0:0").unwrap();
            let sender = router.netns.enter(sender).unwrap();
            let (mut sent, mut received) = (0u64, 0u64);
            while !done.load(Ordering::Relaxed) {
                for _ in 0..BURST {
                    // OUTPUT refuses it.
                    let _ = sender.send_to(b"x", (to, PORT));
                }
                sent += BURST;
                while receiver.recv(&mut [0; 8]).is_ok() {
                    received += 1;
                }
            }
            (sent, received)
        });
        for number in 1..=loads {
            router.load(&sets[number % 2]);
        }
        for number in 1..=edits {
            let file = router.file("edits", &files[number % 2]);
            router.done(&["apply", "--loaded", "--edits", &file, "--family", "ipv4"]);
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    println!("{sent} packets, {loads} loads, {edits} edits");
    assert_eq!((shown["edits"].as_u64(), received), (Some(edits as u64), 0));
}

#[test]
fn packets_of_lo_meet_no_mixture() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("looped").unwrap());
    let receiver = || UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
    let receiver = router.netns.enter(receiver).unwrap();
    no_mixture(&router, Ipv4Addr::LOCALHOST, &receiver, 24, 60);
}

/// RPS gives packets of lo to another CPU, between OUTPUT and PREROUTING.
#[test]
fn packets_of_lo_may_change_their_cpu() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("looped").unwrap());
    router
        .netns
        .receive_on(allowed_cpus().pop().unwrap())
        .unwrap();
    let receiver = || UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
    let receiver = router.netns.enter(receiver).unwrap();
    no_mixture(&router, Ipv4Addr::LOCALHOST, &receiver, 8, 120);
}

/// A multicast to others passes OUTPUT, and its copy for this host INPUT, both at the interface.
#[test]
fn copies_of_multicasts_meet_no_mixture() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("looped").unwrap());
    let lines = [
        "link add wan type veth peer name eth0",
        "link set wan up",
        "link set eth0 up",
        "addr add 192.0.2.1/24 dev wan",
        "route add 224.0.0.0/4 dev wan",
    ];
    router.netns.ip_batch(&lines.map(str::to_owned)).unwrap();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let receiver = || {
        let receiver = UdpSocket::bind((group, PORT)).unwrap();
        let own = Ipv4Addr::new(192, 0, 2, 1);
        receiver.join_multicast_v4(&group, &own).unwrap();
        receiver
    };
    let receiver = router.netns.enter(receiver).unwrap();
    no_mixture(&router, group, &receiver, 8, 120);
}

/// The records of packets that met unconfirmed rules stay, under addresses that later packets have.
#[test]
fn unconfirmed_rules_leave_no_record_on_lo() {
    requires!(Need::Root);
    const PACKETS: usize = 400;
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("looped").unwrap());
    let rules = |target: &str| {
        format!(
            "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
             -A INPUT -p udp -m udp --dport {PORT} -j {target}\nCOMMIT\n"
        )
    };
    let sockets = || {
        [PORT, PORT + 1, 0].map(|port| {
            let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
    };
    let [receiver, other, sender] = router.netns.enter(sockets).unwrap();
    let arrived = || {
        let send = |_: &usize| {
            sender.send_to(b"x", ("127.0.0.1", PORT)).unwrap();
            receiver.recv(&mut [0; 8]).is_ok()
        };
        (0..PACKETS).filter(send).count()
    };
    router.load(&rules("ACCEPT"));
    assert_eq!(arrived(), PACKETS);
    let file = router.file("dropping", &rules("DROP"));
    router.done(&["load", &file, "--confirm", "1s"]);
    let begin = Instant::now();
    // They wait for their receiver, so each has another address.
    for _ in 0..PACKETS / 2 {
        sender.send_to(b"x", ("127.0.0.1", PORT + 1)).unwrap();
    }
    while other.recv(&mut [0; 8]).is_ok() {}
    std::thread::sleep(Duration::from_millis(1100).saturating_sub(begin.elapsed()));
    // IP gets a copy of each received packet then, at addresses of earlier packets.
    let seen = || {
        let flags = SockFlag::empty();
        socket(
            AddressFamily::Packet,
            SockType::Raw,
            flags,
            SockProtocol::EthIp,
        )
    };
    let _seen = router.netns.enter(seen).unwrap().unwrap();
    assert_eq!(arrived(), PACKETS);
}

/// Local programs get the answers of OUTPUT, which INPUT meets as related: with iptables, and with ours.
#[test]
fn answers_of_output_are_related() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let [kernel, ours] = ["kernel", "ours"].map(|name| testbed.netns(name).unwrap());
    for netns in [&kernel, &ours] {
        let lines = [
            "link set lo up",
            "link add wan type veth peer name eth0",
            "link set wan up",
            "link set eth0 up",
            "addr add 192.0.2.1/24 dev wan",
            "addr add fd00:2::1/64 dev wan nodad",
        ];
        netns.ip_batch(&lines.map(str::to_owned)).unwrap();
    }
    let router = Router::new(ours.clone());
    let rules = "*filter\n:INPUT DROP [0:0]\n\
        -A INPUT -m conntrack --ctstate INVALID -j DROP\n\
        -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
        -A OUTPUT -o wan -p tcp -m tcp --dport 25 -j REJECT\n\
        -A OUTPUT -o wan -p tcp -m tcp --dport 26 -j REJECT --reject-with tcp-reset\n\
        COMMIT\n\
        *mangle\n-A POSTROUTING -j DSCP --set-dscp 0x0a\nCOMMIT\n";
    let files = ["rules.v4", "rules.v6"].map(|name| router.file(name, rules));
    for (tool, file) in ["iptables-legacy-restore", "ip6tables-legacy-restore"]
        .iter()
        .zip(&files)
    {
        kernel.run(&[tool, file]).unwrap();
    }
    router.done(&["load", &files[0], &files[1]]);
    let answering = Answering::new(&router);
    let attempts = |netns: &Netns| {
        let connect = |to: &str| {
            let to: SocketAddr = to.parse().unwrap();
            TcpStream::connect_timeout(&to, Duration::from_secs(3)).map(drop)
        };
        let all = || {
            [
                "192.0.2.77:25",
                "192.0.2.77:26",
                "[fd00:2::77]:25",
                "[fd00:2::77]:26",
            ]
            .map(|to| connect(to).map_err(|error| error.kind()))
        };
        netns.enter(all).unwrap()
    };
    assert_eq!(attempts(&kernel), [Err(ErrorKind::ConnectionRefused); 4]);
    assert_eq!(attempts(&ours), [Err(ErrorKind::ConnectionRefused); 4]);
    for (family, tool) in [
        ("ipv4", "iptables-legacy-save"),
        ("ipv6", "ip6tables-legacy-save"),
    ] {
        let related = |save: &str| {
            let lines = tables(save)["filter"].clone();
            let states = lines.into_iter().filter(|line| line.contains("--ctstate"));
            states.collect::<Vec<_>>()
        };
        let of_kernel = related(&kernel.run(&[tool, "-c"]).unwrap());
        let of_ours = related(&router.done(&["counters", "--family", family]));
        assert!(of_kernel[0].starts_with("[0:0]"), "{of_kernel:?}");
        assert!(of_ours[0].starts_with("[0:0]"), "{of_ours:?}");
        if family == "ipv4" {
            assert_eq!(of_ours[1], of_kernel[1]);
        }
        assert!(!of_ours[1].starts_with("[0:0]"), "{of_ours:?}");
    }
    answering.stop();
}
