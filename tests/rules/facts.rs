//! Facts of packets that are not in their bytes: the link-layer source, the owner of the socket, the date, the
//! type of the destination.
//!
//! Rules of iptables-legacy are in the same namespace behind the loaded ones, so both see the same packets.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairpath_testbed::{Need, Netns, Testbed, requires};

use super::live::{Router, RouterLine, filter, tables};

/// Loads the rules in both; both must count the same afterwards. Returns the lines of the table.
fn agree(netns: &Netns, rules: &[String], traffic: impl FnOnce()) -> Vec<String> {
    let text: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    let text = format!("*mangle\n{text}COMMIT\n");
    let router = Router::new(netns.clone());
    let file = router.file("rules", &text);
    netns.run(&["iptables-legacy-restore", &file]).unwrap();
    router.load(&text);
    traffic();
    let of_kernel = netns.run(&["iptables-legacy-save", "-c"]).unwrap();
    let of_ours = tables(&router.done(&["counters"]));
    assert_eq!(tables(&of_kernel)["mangle"], of_ours["mangle"]);
    assert!(
        router
            .done(&["show"])
            .contains("packets: 0 dropped with an unknown answer")
    );
    of_ours["mangle"].clone()
}

/// The packets of the rule that ends so.
#[track_caller]
fn packets(lines: &[String], rule: &str) -> u64 {
    let line = lines.iter().find(|line| line.ends_with(rule));
    let line = line.unwrap_or_else(|| panic!("{rule}: {lines:?}"));
    line[1..].split(':').next().unwrap().parse().unwrap()
}

fn send(from: &str, to: &str) {
    UdpSocket::bind(from).unwrap().send_to(b"x", to).unwrap();
}

#[test]
fn link_layer_sources_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("nft"),
        Need::Tool("ping")
    );
    const CLIENT: &str = "02:00:00:00:0c:01";
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    let address = format!("link set eth1 address {CLIENT}");
    line.client.ip_batch(&[address]).unwrap();
    let mut rules = Vec::new();
    for chain in ["PREROUTING", "INPUT", "FORWARD"] {
        for part in ["", "-i lan ", "-i lo ", "-i tun0 "] {
            for not in ["", "! "] {
                rules.push(format!("{chain} {part}-m mac {not}--mac-source {CLIENT}"));
            }
        }
    }
    // A device without link-layer headers.
    let tun = [
        "ip tuntap add tun0 mode tun",
        "ip addr add 10.3.0.1/24 dev tun0",
        "ip link set tun0 up",
    ];
    for command in tun {
        let words: Vec<&str> = command.split(' ').collect();
        line.router.run(&words).unwrap();
    }
    let counted = agree(&line.router, &rules, || {
        line.traffic();
        line.router
            .enter(|| {
                send("127.0.0.1:0", "127.0.0.1:9");
                write_to_tun();
            })
            .unwrap();
    });
    let of = |rule: &str| packets(&counted, rule);
    let not = format!("! --mac-source {CLIENT}");
    assert!(of(&format!("PREROUTING -m mac --mac-source {CLIENT}")) > 0);
    assert!(of(&format!("FORWARD -i lan -m mac --mac-source {CLIENT}")) > 0);
    assert!(of(&format!("FORWARD -m mac {not}")) > 0);
    // Without a header, the negated match is false, too.
    assert_eq!(of(&format!("INPUT -i lo -m mac {not}")), 0);
    assert_eq!(of(&format!("PREROUTING -i tun0 -m mac {not}")), 0);
    assert_eq!(of(&format!("INPUT -i lan -m mac {not}")), 0);
}

/// A packet from the other end of tun0, which has no process otherwise.
fn write_to_tun() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let options = std::fs::File::options().read(true).write(true).clone();
    let mut tun = options.open("/dev/net/tun").unwrap();
    let mut request = [0u8; 40];
    request[..4].copy_from_slice(b"tun0");
    // IFF_TUN, IFF_NO_PI
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a struct ifreq of 40 bytes.
    let done = unsafe { nix::libc::ioctl(tun.as_raw_fd(), 0x4004_54ca, request.as_mut_ptr()) };
    assert_eq!(done, 0);
    let mut packet = [0u8; 29];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17]);
    packet[12..20].copy_from_slice(&[10, 3, 0, 2, 10, 3, 0, 1]);
    packet[20..28].copy_from_slice(&[0, 9, 0, 9, 0, 9, 0, 0]);
    let sum: u32 = packet[..20]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(tun.write(&packet).unwrap(), packet.len());
}

#[test]
fn owners_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("nft"),
        Need::Tool("ping"),
        Need::Tool("setpriv")
    );
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    let mut rules = Vec::new();
    for chain in ["OUTPUT", "POSTROUTING"] {
        for part in [
            "",
            "-p icmp ",
            "-p udp ",
            "-p tcp --tcp-flags SYN,ACK SYN,ACK ",
            "-p tcp --tcp-flags RST RST ",
            "-p tcp --tcp-flags FIN FIN ",
            "-p tcp --tcp-flags SYN,FIN,RST NONE ",
        ] {
            for owner in [
                "--uid-owner 0",
                "! --uid-owner 0",
                "--uid-owner 1200-1300",
                "! --uid-owner 1235-4294967294",
                "--gid-owner 2345",
                "! --gid-owner 2345",
                "--uid-owner 1234 --gid-owner 2345",
                "--socket-exists",
                "! --socket-exists",
                "--socket-exists ! --uid-owner 0",
                "--socket-exists --uid-owner 0",
                "! --socket-exists ! --uid-owner 0",
            ] {
                rules.push(format!("{chain} {part}-m owner {owner}"));
            }
        }
    }
    let counted = agree(&line.router, &rules, || {
        line.traffic();
        // Another user, and one of whom the range of numbers ends.
        for user in ["1234", "1235", "70000"] {
            let script = "echo x > /dev/udp/10.2.0.2/7";
            let ids = [format!("--reuid={user}"), "--regid=2345".to_owned()];
            let [user, group] = &ids;
            let words = [
                "setpriv",
                user,
                group,
                "--clear-groups",
                "bash",
                "-c",
                script,
            ];
            line.router.run(&words).unwrap();
        }
        closed_by_the_router(&line);
    });
    let of = |rule: &str| packets(&counted, rule);
    // The kernel's answers have a socket without an owner, forwarded packets have none.
    assert!(of("-A OUTPUT -p icmp -m owner --socket-exists ! --uid-owner 0") > 0);
    assert!(of("-A POSTROUTING -m owner ! --socket-exists") > 0);
    assert!(of("-A OUTPUT -p udp -m owner --uid-owner 1234 --gid-owner 2345") > 0);
    let parts = [
        "-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -m owner --uid-owner 0",
        "-p tcp -m tcp --tcp-flags RST RST -m owner --socket-exists",
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST NONE -m owner ! --socket-exists",
    ];
    for part in parts {
        assert!(of(&format!("-A OUTPUT {part}")) > 0, "{part}: {counted:#?}");
    }
}

/// A refused connection, and one that the router closes first: its last packet is of a time-wait socket.
fn closed_by_the_router(line: &RouterLine) {
    let connect = |port: u16| TcpStream::connect(("10.1.0.1", port));
    line.client.enter(|| assert!(connect(80).is_err())).unwrap();
    let bind = || TcpListener::bind("10.1.0.1:8080").unwrap();
    let listener = line.router.enter(bind).unwrap();
    let mut stream = line.client.enter(|| connect(8080).unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    drop(server);
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    // The client has confirmed the end: the router's socket is now a time-wait one.
    let closing = || wait_for_state(peer, "05");
    line.router.enter(closing).unwrap();
    drop(stream);
    let closed = || wait_for_state(peer, "06");
    line.router.enter(closed).unwrap();
    line.all_arrived("10.1.0.1");
}

/// Waits until the connection with a peer has a state, as the kernel's table numbers it.
fn wait_for_state(peer: SocketAddr, state: &str) {
    let port = format!(":{:04X} {state}", peer.port());
    let found = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        table.contains(&port).then_some(())
    };
    fairpath_testbed::wait_for(Duration::from_secs(5), found).expect("the state");
}

#[test]
fn dates_are_those_of_iptables() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    const DAY: u64 = 86_400;
    /// Until the traffic has ended, also where the load waits for others.
    const SECONDS: u64 = 40;
    let testbed = Testbed::new();
    let netns = testbed.netns("dates").unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = now().as_secs();
    let date = |seconds: u64| {
        let time = jiff::Timestamp::from_second(seconds as i64).unwrap();
        time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
    };
    let clock = |seconds: u64| date(seconds)[11..].to_owned();
    let mut rules = Vec::new();
    // Each second, as date and as time of the day; these also over midnight.
    for second in start..start + SECONDS {
        let (at, next) = (date(second), clock(second + 1));
        rules.push(format!("OUTPUT -m time --datestart {at} --datestop {at}"));
        let at = clock(second);
        rules.push(format!("OUTPUT -m time --timestart {at} --timestop {next}"));
        let zone = "--contiguous --kerneltz";
        rules.push(format!(
            "OUTPUT -m time --timestart {next} --timestop {at} {zone}"
        ));
    }
    for day in 0..7 {
        let time = jiff::Timestamp::from_second((start + day * DAY) as i64).unwrap();
        let (weekday, monthday) = (time.strftime("%a"), time.strftime("%-d"));
        for not in ["", "! "] {
            rules.push(format!("OUTPUT -m time {not}--weekdays {weekday}"));
            rules.push(format!("OUTPUT -m time {not}--monthdays {monthday}"));
        }
    }
    let counted = agree(&netns, &rules, || {
        for _ in 0..3 {
            // The kernel's second begins with a tick.
            while !(100..900).contains(&now().subsec_millis()) {
                std::thread::sleep(Duration::from_millis(20));
            }
            netns.enter(|| send("127.0.0.1:0", "127.0.0.1:9")).unwrap();
            std::thread::sleep(Duration::from_millis(900));
        }
    });
    let matched = counted.iter().filter(|line| line.contains("--datestart"));
    let all = matched
        .map(|line| packets(std::slice::from_ref(line), line))
        .sum::<u64>();
    // Each of them and its answer is in one second.
    assert_eq!(all, 6, "{counted:#?}");
}

/// A datagram, also to all.
fn send_to_all(from: &str, to: &str) {
    let socket = UdpSocket::bind(from).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"x", to).unwrap();
}

#[test]
fn types_of_destinations_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("nft"),
        Need::Tool("ping")
    );
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    // All addresses of a prefix; a route of another table than local, which is not for this host.
    line.router
        .ip_batch(&[
            "route add local 10.9.0.0/24 dev lo".to_owned(),
            "route add 10.1.0.0/24 via 10.2.0.2 table 100".to_owned(),
            "rule add fwmark 1 lookup 100".to_owned(),
        ])
        .unwrap();
    line.router
        .run(&[
            "iptables-legacy",
            "-t",
            "nat",
            "-A",
            "PREROUTING",
            "-d",
            "10.2.0.2",
            "-p",
            "udp",
            "--dport",
            "99",
            "-j",
            "REDIRECT",
        ])
        .unwrap();
    let mut rules = Vec::new();
    for part in [
        "",
        "-i lan ",
        "-i lo ",
        "-p udp --dport 99 ",
        "-d 10.9.0.0/24 ",
    ] {
        for types in [
            "LOCAL",
            "UNICAST",
            "BROADCAST",
            "MULTICAST",
            "ANYCAST",
            "UNSPEC",
            "LOCAL,BROADCAST",
            "BLACKHOLE,PROHIBIT",
        ] {
            for not in ["", "! "] {
                rules.push(format!("INPUT {part}-m addrtype {not}--dst-type {types}"));
            }
        }
    }
    let to_many = ["10.1.0.255:9", "255.255.255.255:9", "224.0.0.1:9"];
    let counted = agree(&line.router, &rules, || {
        line.traffic();
        let from_client = || {
            for to in to_many
                .into_iter()
                .chain(["10.2.0.1:9", "10.9.0.7:9", "10.2.0.2:99"])
            {
                send_to_all("10.1.0.2:0", to);
            }
        };
        line.client.enter(from_client).unwrap();
        let from_router = || {
            send("127.0.0.1:0", "127.0.0.1:9");
            send("127.0.0.1:0", "127.255.255.254:9");
            send("10.1.0.1:0", "10.2.0.1:9");
            // The host gets a copy of what it sends to all.
            for to in ["10.1.0.255:9", "127.255.255.255:9", "224.0.0.1:9"] {
                send_to_all("10.1.0.1:0", to);
            }
        };
        line.router.enter(from_router).unwrap();
        line.all_arrived("10.1.0.1");
    });
    let of = |rule: &str| packets(&counted, &format!("-A INPUT {rule}"));
    assert_eq!(of("-i lan -m addrtype --dst-type BROADCAST"), 3);
    assert_eq!(of("-i lan -m addrtype --dst-type MULTICAST"), 2);
    assert_eq!(of("-i lo -m addrtype --dst-type BROADCAST"), 1);
    assert_eq!(
        of("-p udp -m udp --dport 99 -m addrtype --dst-type LOCAL"),
        1
    );
    assert_eq!(of("-d 10.9.0.0/24 -m addrtype --dst-type LOCAL"), 1);
    assert!(of("-m addrtype --dst-type LOCAL") > 3);
    assert_eq!(of("-m addrtype --dst-type UNICAST"), 0);
    assert!(of("-m addrtype ! --dst-type UNICAST") > 9);
}

/// Where a packet's route may have another type, or another hook reaches the chain, rules are refused.
#[test]
fn unknown_types_of_destinations_are_refused() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("types").unwrap());
    let not_local = |more: &str| {
        format!(
            "*filter\n:not-local -\n-A INPUT -j not-local\n{more}\
             -A not-local -m addrtype --dst-type LOCAL -j RETURN\n-A not-local -j DROP\nCOMMIT\n"
        )
    };
    router.load(&not_local(""));
    let before = router.done(&["counters"]);
    const IN_INPUT: &str = "know the type of the destination in INPUT of IPv4 only";
    for text in [
        not_local("-A FORWARD -j not-local\n"),
        filter(&["FORWARD -m addrtype --dst-type LOCAL"]),
        filter(&["INPUT -m addrtype --src-type LOCAL"]),
        filter(&["INPUT -m addrtype --dst-type LOCAL --limit-iface-in"]),
        filter(&["INPUT -s 2001:db8::1 -m addrtype --dst-type LOCAL"]),
    ] {
        let file = router.file("bad", &text);
        let refused = router.fails(&["load", &file]);
        assert!(refused.contains(IN_INPUT), "{refused}");
    }
    let edit = |words: &[&str]| {
        let mut command = router.command(&["apply", "--loaded"]);
        command.arg("--").args(words);
        command.output().unwrap()
    };
    for edits in [
        &["-A", "FORWARD", "-j", "not-local"][..],
        &["-A", "FORWARD", "-m", "addrtype", "--dst-type", "LOCAL"],
    ] {
        let refused = String::from_utf8(edit(edits).stderr).unwrap();
        assert!(refused.contains(IN_INPUT), "{refused}");
    }
    assert_eq!(router.done(&["counters"]), before);
    let to_all = [
        "-I",
        "not-local",
        "-m",
        "addrtype",
        "--dst-type",
        "BROADCAST",
        "-j",
        "RETURN",
    ];
    let done = edit(&to_all);
    assert!(done.status.success(), "{done:?}");
    // As with TPROXY, and with VRFs.
    let route = "route add local 10.8.0.0/16 dev lo table 100".to_owned();
    router.netns.ip_batch(&[route]).unwrap();
    let file = router.file("rules.v4", &not_local(""));
    let refused = router.fails(&["load", &file]);
    let why = "the route 10.8.0.0/16 table 100 leads to this host, and iptables looks in table local only";
    assert!(refused.contains(why), "{refused}");
    // Edits of other rules are not refused for rules that are loaded already.
    let done = edit(&["-N", "f2b"]);
    assert!(done.status.success(), "{done:?}");
    let to_some = to_all.map(|word| match word {
        "BROADCAST" => "MULTICAST",
        word => word,
    });
    let refused = String::from_utf8(edit(&to_some).stderr).unwrap();
    assert!(refused.contains("1 rule is refused"), "{refused}");
    assert!(refused.contains(why), "{refused}");
    assert!(!refused.contains("--defer"), "{refused}");
    // Those that the edit brings to another hook are named by their text.
    let refused = String::from_utf8(edit(&["-A", "FORWARD", "-j", "not-local"]).stderr).unwrap();
    let rule = "filter -A not-local -m addrtype --dst-type LOCAL -j RETURN: ";
    assert!(refused.contains(rule), "{refused}");
    assert!(refused.contains(IN_INPUT), "{refused}");
}
