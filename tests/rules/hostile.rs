//! Packets that must not change the answers to others: an evaluation leaves nothing in the memory of its CPU. And
//! names that could become other rules.

use std::time::Duration;

use fairpath_testbed::{FrameSocket, Need, Testbed, requires, wait_for};
use fairpath_wire::ip::IpProto;
use fairpath_wire::{Frame, ipv6};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::commands::fairpath;
use super::live::{Router, filter, tables};
use super::trace::Trace;

/// More bytes than programs read of a packet.
const LONG: usize = 1500;
const PATIENCE: Duration = Duration::from_secs(10);

/// The protocol of a packet whose extension headers are long is not known. That of a short one after it, on the
/// same CPU, is.
#[test]
fn unknown_facts_are_those_of_one_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("long").unwrap());
    let rules = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n";
    let file = router.file("rules.v6", rules);
    router.done(&["load", &file, "--family", "ipv6"]);
    let link = || Frame::ethernet([0; 6], [0; 6]);
    let options = |bytes| ipv6::Extension::DestinationOptions(vec![0; bytes]);
    let here = ipv6::Header::new("::1".parse().unwrap(), "::1".parse().unwrap());
    let header = ipv6::Header {
        extensions: vec![options(LONG), options(6)],
        ..here.clone()
    };
    let long = link().ipv6_header(header).udp(5000, 7001).build();
    // Too short for ports, which the rule does not read.
    let header = ipv6::Header {
        protocol: IpProto::UDP,
        ..here
    };
    let short = link().ipv6_header(header).payload(&[1; 4]).build();
    let socket = FrameSocket::open(&router.netns, "lo").unwrap();
    let send = |frame: &[u8]| {
        let mut cpus = CpuSet::new();
        cpus.set(0).unwrap();
        sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
        socket.send(frame).unwrap();
    };
    let shown = || -> serde_json::Value {
        serde_json::from_str(&router.done(&["show", "--format", "json"])).unwrap()
    };
    let unknown = |packets: u64| {
        let found = wait_for(PATIENCE, || {
            (shown()["packets_dropped_unknown"] == packets).then_some(())
        });
        found.unwrap_or_else(|| panic!("{:#}", shown()));
    };
    let accepted = |packets: u64| {
        let found = wait_for(PATIENCE, || {
            (router.packets("-A INPUT -p udp -j ACCEPT") == packets).then_some(())
        });
        found.unwrap_or_else(|| panic!("{packets}: {:#}", shown()));
    };
    let on_one_cpu = |frame: &Vec<u8>| router.netns.enter(|| send(frame)).unwrap();
    on_one_cpu(&short);
    accepted(1);
    on_one_cpu(&long);
    unknown(1);
    on_one_cpu(&short);
    accepted(2);
    unknown(1);
}

/// Sends a packet with its header, in which the length of the payload has the given number of bytes more.
fn send_raw_ipv6(more: i32) -> nix::Result<usize> {
    use nix::sys::socket::*;
    let [here, there]: [std::net::Ipv6Addr; 2] = ["fd00::1", "fd00::2"].map(|a| a.parse().unwrap());
    let header = ipv6::Header::new(here, there);
    let frame = Frame::ethernet([0; 6], [0; 6]).ipv6_header(header);
    let mut packet = frame.udp(5000, 53).payload(b"secret").build()[14..].to_vec();
    let payload = i32::try_from(packet.len() - 40).unwrap() + more;
    packet[4..6].copy_from_slice(
        &u16::try_from(payload.clamp(0, 0xffff))
            .unwrap()
            .to_be_bytes(),
    );
    let raw = SockProtocol::Raw;
    let socket = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::empty(), raw)?;
    let to = SockaddrIn6::from(std::net::SocketAddrV6::new(there, 0, 0, 0));
    let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
    sendto(socket, &packet, &to, MsgFlags::empty())
}

/// The kernel does not read the length of the payload that a raw socket of IPv6 sends, and rules do not either.
#[test]
fn no_length_in_a_header_hides_a_packet() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("raw").unwrap());
    for command in [
        "ip link add eth1 type veth peer name eth2",
        "ip addr add fd00::1/64 dev eth1 nodad",
        "ip link set eth1 up",
        "ip link set eth2 up",
        "ip neigh add fd00::2 lladdr 02:00:00:00:00:02 dev eth1",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        router.netns.run(&words).unwrap();
    }
    let rules: String = [
        "",
        "-p udp",
        "-p udp -m udp --dport 53",
        "-o eth1 -p udp",
        "-p udp -m length --length 54",
        "-p udp -m length --length 0:53",
        "-m conntrack --ctstate NEW -p udp",
    ]
    .map(|rule| format!("-A OUTPUT {rule}\n-A POSTROUTING {rule}\n"))
    .concat();
    let load = |name: &str, text: &str| {
        let file = router.file(name, text);
        router.done(&["load", &file, "--family", "ipv6"]);
        file
    };
    let file = load("counting", &format!("*mangle\n{rules}COMMIT\n"));
    router
        .netns
        .run(&["ip6tables-legacy-restore", &file])
        .unwrap();
    let lengths = [0, 1, 100, 0xffff, -1, -6, -13, -0xffff];
    for more in lengths {
        router.netns.enter(|| send_raw_ipv6(more)).unwrap().unwrap();
    }
    let of_kernel = router.netns.run(&["ip6tables-legacy-save", "-c"]).unwrap();
    let of_ours = tables(&router.done(&["counters", "--family", "ipv6"]));
    assert_eq!(tables(&of_kernel)["mangle"], of_ours["mangle"]);
    let counted = format!(
        "[{}:{}] -A OUTPUT -p udp",
        lengths.len(),
        lengths.len() * 54
    );
    assert!(of_ours["mangle"].contains(&counted), "{of_ours:?}");
    let drops = [
        "*filter\n:OUTPUT DROP\nCOMMIT\n",
        "*filter\n-A OUTPUT -o eth1 -j DROP\nCOMMIT\n",
        "*filter\n-A OUTPUT -p udp -m udp --dport 53 -j DROP\nCOMMIT\n",
    ];
    for text in drops {
        load("dropping", text);
        for more in lengths {
            let sent = router.netns.enter(|| send_raw_ipv6(more)).unwrap();
            assert_eq!(sent, Err(nix::errno::Errno::EPERM), "{text} {more}");
        }
    }
    // A trace finds the path of the kernel.
    let count = lengths.len().to_string();
    let trace = Trace::new(&router, &["--dport", "53", "--count", &count]);
    for more in lengths {
        let sent = router.netns.enter(|| send_raw_ipv6(more)).unwrap();
        assert!(sent.is_err());
    }
    for path in trace.rest() {
        assert_eq!(path["verdict"], "DROP", "{path:#}");
        assert_eq!(path["difference"], serde_json::Value::Null, "{path:#}");
    }
}

/// Tracking connections of IPv4 reassembles no fragments of IPv6, which have no ports.
#[test]
fn connections_of_one_family_leave_the_other() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("one").unwrap());
    let state = |not: &str| filter(&[&format!("INPUT -m conntrack {not}--ctstate INVALID -p tcp")]);
    let v4 = router.file("rules.v4", &state(""));
    let v6 = router.file(
        "rules.v6",
        &filter(&["INPUT -p udp -m udp --dport 53", "INPUT -p udp"]),
    );
    router.done(&["load", &v4, &v6]);
    let here = || "::1".parse().unwrap();
    let fragment = |offset: u16, more: bool| {
        let extension = ipv6::Extension::Fragment {
            offset,
            more,
            id: 7,
        };
        let header = ipv6::Header {
            extensions: vec![extension],
            protocol: IpProto::UDP,
            ..ipv6::Header::new(here(), here())
        };
        Frame::ethernet([0; 6], [0; 6]).ipv6_header(header)
    };
    let frames = [
        fragment(0, true).udp(5000, 53).payload(&[1; 16]).build(),
        fragment(3, false).payload(&[1; 16]).build(),
    ];
    let socket = FrameSocket::open(&router.netns, "lo").unwrap();
    let count = |packets: &str| {
        for frame in &frames {
            socket.send(frame).unwrap();
        }
        let found = wait_for(PATIENCE, || {
            let counters = router.done(&["counters", "--family", "ipv6"]);
            let lines: Vec<&str> = counters
                .lines()
                .filter(|line| line.contains("-A"))
                .collect();
            let counts = lines.iter().map(|line| &line[..2]).collect::<String>();
            (counts == packets).then_some(())
        });
        assert!(found.is_some(), "{}", router.done(&["counters"]));
    };
    count("[1[2");
    let nft = || router.netns.run(&["nft", "list", "tables"]).unwrap();
    assert_eq!(nft(), "table ip fairpath_rules\n");
    // Then of the other family, and of none.
    std::fs::write(&v6, state("! ")).unwrap();
    std::fs::write(&v4, filter(&["INPUT -p udp"])).unwrap();
    router.done(&["load", &v4, &v6]);
    assert_eq!(nft(), "table ip6 fairpath_rules\n");
    router.done(&["load", &v4]);
    assert_eq!(nft(), "");
    // Of rules that are not confirmed: the next command sees it.
    router.done(&["load", &v4, &v6, "--confirm", "1s"]);
    assert!(!router.done(&["show"]).contains("no rule needs"));
    std::thread::sleep(Duration::from_millis(1100));
    assert!(
        router
            .done(&["show"])
            .contains("ip6 fairpath_rules, which no rule needs")
    );
    router.done(&["load", &v4]);
    assert_eq!(nft(), "");
    // Rules that read no connection are shown where nft fails.
    let place = router.place.path("failing");
    std::fs::create_dir(&place).unwrap();
    let failing = place.join("nft");
    std::fs::write(&failing, "#!/bin/sh\nexit 1\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&failing, executable).unwrap();
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap());
    let shown = router
        .command(&["show"])
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    // Of a load that is refused.
    let refused = router.file("refused", &filter(&["INPUT -m addrtype --src-type LOCAL"]));
    router.fails(&["load", &refused, &v6]);
    assert_eq!(nft(), "");
}

/// Rules are kept as text, so a name that reads as something else would make them another set, or none.
#[test]
fn names_with_blanks_and_quotes_are_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("names").unwrap());
    let text = filter(&["INPUT -i lo -j ACCEPT"]).replace("*filter\n", "*filter\n:web - [0:0]\n");
    router.load(&text);
    let before = router.done(&["counters"]);
    let file = router.file("file.v4", &text);
    for name in [
        "eth 0",
        "a\"b",
        "\"",
        "a\tb",
        " a",
        "lo -s 10.9.9.9",
        "a\\b",
        "a'b",
    ] {
        for option in ["-i", "-o"] {
            let rule = ["-A", "web", option, name, "-j", "DROP"];
            let mut loaded = router.command(&["apply", "--loaded"]);
            let mut of_file = std::process::Command::new(fairpath());
            of_file.args(["rules", "apply", &file, "--in-place"]);
            for command in [&mut loaded, &mut of_file] {
                let output = command.arg("--").args(rule).output().unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{name:?}: {output:?}");
                assert!(
                    error.contains("the format of the save tools cannot have such a name"),
                    "{name:?}: {error}"
                );
            }
        }
    }
    assert_eq!(router.done(&["counters"]), before);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}
