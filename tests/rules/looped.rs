//! Packets that the router sends to itself: they pass the hooks of both directions.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairpath_testbed::{Need, Netns, Testbed, requires};

use super::answers::Answering;
use super::live::{Router, tables};

const PORT: u16 = 7001;

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

/// Packets arrive only if they meet one set at OUTPUT, and the other one at INPUT.
#[test]
fn packets_of_lo_meet_no_mixture() {
    requires!(Need::Root);
    const LOADS: usize = 24;
    const EDITS: usize = 60;
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("looped").unwrap());
    let sets = [true, false].map(|at_output| {
        format!(
            "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{}\
             -A INPUT -j received\n-A OUTPUT -j sent\nCOMMIT\n",
            chains(at_output)
        )
    });
    let edits = [true, false].map(|at_output| format!("*filter\n{}COMMIT\n", chains(at_output)));
    router.load(&sets[0]);
    let done = AtomicBool::new(false);
    let receiver = || UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
    let receiver = router.netns.enter(receiver).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let (sent, received) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let sender = || UdpSocket::bind("127.0.0.1:0").unwrap();
            let sender = router.netns.enter(sender).unwrap();
            let (mut sent, mut received) = (0u64, 0u64);
            while !done.load(Ordering::Relaxed) {
                // OUTPUT refuses it.
                let _ = sender.send_to(b"x", ("127.0.0.1", PORT));
                sent += 1;
                received += u64::from(receiver.recv(&mut [0; 8]).is_ok());
            }
            (sent, received)
        });
        for number in 1..=LOADS {
            router.load(&sets[number % 2]);
        }
        for number in 1..=EDITS {
            let file = router.file("edits", &edits[number % 2]);
            router.done(&["apply", "--loaded", "--edits", &file, "--family", "ipv4"]);
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    println!("{sent} packets, {LOADS} loads, {EDITS} edits");
    assert_eq!((shown["edits"].as_u64(), received), (Some(EDITS as u64), 0));
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
        COMMIT\n";
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
