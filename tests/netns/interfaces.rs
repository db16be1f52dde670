//! Which interfaces are watched as links come, change their names and go.

use std::net::IpAddr;
use std::time::Duration;

use fairpath_bpf::{Dropper, Hook, Passer};
use fairpath_testbed::{Encap, LinkEnd, Need, Netns, Ping, Testbed, Tun, Veth, Wire, requires};
use fairpath_tests::{PATIENCE, Rtt, rtt};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

fn ip(ns: &Netns, line: &str) {
    let words: Vec<&str> = ["ip"].into_iter().chain(line.split(' ')).collect();
    ns.run(&words).unwrap_or_else(|error| panic!("{error}"));
}

/// A pair from `ifname` in `here` to `eth0` in `there`, 10.9.N.1 to 10.9.N.2.
fn link(here: &Netns, ifname: &str, there: &Netns, net: u8) -> Veth {
    let address = |last| IpAddr::from([10, 9, net, last]);
    Veth::between(
        LinkEnd::new(here, ifname).with_address(address(1), 24),
        LinkEnd::new(there, &format!("eth{net}")).with_address(address(2), 24),
    )
    .build()
    .unwrap()
}

fn ping(ns: &Netns, net: u8) {
    let report = Ping::to([10, 9, net, 2]).count(3).run(ns).unwrap();
    assert_eq!(report.received, 3);
}

#[test]
fn a_pattern_follows_interfaces_through_their_changes() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [here, there] = ["here", "there"].map(|n| testbed.netns(n).unwrap());
    let rtt = Rtt::spawn(&here, &["-i", "ppp*"]);
    rtt.logs("no interface matches yet");
    let rename = |from: &str, to: &str| {
        ip(&here, &format!("link set dev {from} down"));
        ip(&here, &format!("link set dev {from} name {to}"));
        ip(&here, &format!("link set dev {to} up"));
    };

    link(&here, "ppp0", &there, 1);
    rtt.logs("watching ppp0\n");
    ping(&here, 1);
    rename("ppp0", "ppp7");
    rtt.logs("is now ppp7");
    ping(&here, 1);
    rename("ppp7", "eth7");
    rtt.logs("ppp7 renamed; no longer watched");
    ping(&here, 1); // which must not be reported
    rename("eth7", "ppp8");
    rtt.logs("watching ppp8\n");
    ping(&here, 1);
    ip(&here, "link delete dev ppp8");
    rtt.logs("ppp8 removed; no longer watched");
    link(&here, "other", &there, 2);
    link(&here, "ppp9", &there, 3);
    rtt.logs("watching ppp9\n");
    ping(&here, 2);
    ping(&here, 3);

    let records = rtt.stop();
    let towards: Vec<_> = records
        .by("icmp")
        .map(|s| s.towards.clone().unwrap())
        .collect();
    let expected = ["ppp0", "ppp7", "ppp8", "ppp9"]
        .map(|name| [name; 3])
        .concat();
    assert_eq!(towards, expected);
}

#[test]
fn removal_of_the_only_interface_ends_with_summary() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [here, there] = ["here", "there"].map(|n| testbed.netns(n).unwrap());
    link(&here, "gone", &there, 1);
    let mut rtt = Rtt::watch(&here, &["gone"], &[]);
    ping(&here, 1);
    ip(&here, "link delete dev gone");
    let status = rtt.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(1));
    rtt.logs("all watched interfaces were removed");
    rtt.process
        .wait_stdout("\"type\":\"summary\"", PATIENCE)
        .unwrap();
    assert!(rtt.process.stdout().contains("\"samples_icmp\":3"));
}

#[test]
fn an_unknown_name_is_refused_with_existing_ones() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    link(&ns, "uplink", &ns, 1);
    let output = rtt::run(&ns, &["rtt", "-i", "uplnk"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in [
        "\"uplnk\"",
        "no interface has this name",
        "eth1, lo, uplink",
        "'ppp*'",
    ] {
        assert!(stderr.contains(part), "{part:?} is not in {stderr:?}");
    }
}

#[test]
fn an_interface_without_link_header_is_watched() {
    requires!(
        Need::Root,
        Need::Tool("ping"),
        Need::Kernel(fairpath_testbed::Feature::Tun)
    );
    let testbed = Testbed::new();
    let [here, there] = ["here", "there"].map(|n| testbed.netns(n).unwrap());
    let rtt = Rtt::spawn(&here, &["-i", "tun[0-9]"]);
    rtt.logs("no interface matches yet");
    let ends = [&here, &there].map(|ns| LinkEnd::new(ns, "carrier"));
    let [left, right] = ends;
    let carrier = Veth::between(left, right).build().unwrap();
    let tun = |ns, last: u8| Tun::new(ns, "tun0").with_address([10, 9, 1, last], 24);
    let _wires = Wire::tunnel_pair(
        [&tun(&here, 1), &tun(&there, 2)],
        &carrier,
        &Encap::plain(),
        Default::default(),
        Default::default(),
    )
    .unwrap();
    rtt.logs("watching tun0\n");
    // All three answers must be seen; ping itself has been seen to report fewer on TUN devices.
    Ping::to([10, 9, 1, 2]).count(3).run(&here).unwrap();
    let records = rtt.stop();
    assert_eq!(records.by("icmp").count(), 3);
    assert!(
        records
            .by("icmp")
            .all(|s| s.towards.as_deref() == Some("tun0"))
    );
}

/// A program of another owner ahead of ours at tcx that returns `TCX_PASS` hides every packet. What
/// is there before the start does not come first; what goes ahead later is named.
#[test]
fn a_program_ahead_at_tcx_hides_nothing_unnoticed() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [here, there] = ["here", "there"].map(|n| testbed.netns(n).unwrap());
    link(&here, "lan", &there, 1);
    let pass = |hook| {
        let attach = || Passer::attach(IfIndex(if_nametoindex("lan").unwrap()), hook).unwrap();
        here.enter(attach).unwrap()
    };
    let _before = [Hook::TcxIngress, Hook::TcxEgress].map(pass);
    let rtt = Rtt::watch(&here, &["lan"], &[]);
    ping(&here, 1);
    for (hook, name) in [
        (Hook::TcxIngress, "pass_ingress"),
        (Hook::TcxEgress, "pass_egress"),
    ] {
        let later = pass(hook);
        rtt.logs(&format!("lan: the program \"{name}\" (id "));
        rtt.logs(&format!("runs ahead of Fairpath at {hook}"));
        ping(&here, 1); // which is not seen at this hook
        drop(later);
        rtt.logs(&format!("lan: Fairpath is first at {hook} again"));
    }
    let records = rtt.stop();
    assert_eq!(records.samples.len(), 3, "those before");
}

/// With XDP, which a change of the interface could detach.
#[test]
fn changes_by_others_leave_xdp_measuring() {
    requires!(
        Need::Root,
        Need::Tool("ping"),
        Need::Tool("nft"),
        Need::Tool("ethtool")
    );
    let testbed = Testbed::new();
    let [here, there] = ["here", "there"].map(|n| testbed.netns(n).unwrap());
    let _link = link(&here, "wan", &there, 1);
    let rtt = Rtt::watch(&here, &["wan"], &["--hook", "xdp"]);
    let ping = |ns: &Netns| {
        let ping = Ping::to([10, 9, 1, 2]).count(3);
        let report = ping.interval(Duration::from_millis(100)).run(ns).unwrap();
        assert_eq!(report.received, 3);
    };
    ping(&here);
    let changes = [
        "nft flush ruleset",
        "tc qdisc replace dev wan root pfifo",
        "tc qdisc del dev wan root",
        "tc qdisc add dev wan clsact",
        "ip link set wan mtu 1400",
        "ip address add 10.77.0.1/24 dev wan",
        "ip route add 10.9.1.2/32 dev wan",
        "ip neigh flush dev wan",
        "ethtool -K wan gro off",
        "ip link set wan down",
        "ip link set wan up",
    ];
    for change in changes {
        let words: Vec<&str> = change.split(' ').collect();
        here.run(&words).unwrap_or_else(|error| panic!("{error}"));
        if !change.ends_with("down") {
            ping(&here);
        }
    }
    // The kernel refuses another XDP program.
    let attach = || {
        let index = IfIndex(if_nametoindex("wan").unwrap());
        Dropper::attach(index, "wan", 1.0, 0).map(drop).is_err()
    };
    assert!(here.enter(attach).unwrap());
    ping(&here);
    let samples = rtt.stop().by("icmp").count();
    assert_eq!(samples, 3 * (changes.len() + 1));
}
