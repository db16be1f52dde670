//! Which class a packet falls into: by prefix, VLAN and DSCP, in both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fairpath_core::sched::End;
use fairpath_core::{Prefix, Rules};
use fairpath_testbed::{
    Encap, Feature, LinkEnd, Need, Netns, Offloads, Router, Testbed, Tpid, Tun, Veth, Wire,
    requires, wait_for,
};
use fairpath_tests::htb::{LINE, OTHER, Shaped, class, tree};

use super::site::{PATIENCE, PORT, Site, by_prefix};

const BPS: u64 = 100_000_000;

/// Waits until the class has sent this number of packets.
fn sends(shaped: &mut Shaped, minor: u16, packets: u64) {
    let sent = wait_for(PATIENCE, || {
        Some(shaped.class(minor).unwrap().packets).filter(|sent| *sent >= packets)
    });
    assert_eq!(sent, Some(packets), "class {minor:x}");
}

#[test]
fn packets_match_the_receivers_class_in_both_families() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let classes = [5, 6].map(|minor| class(minor, LINE, BPS, BPS));
    let [v4, v6] = Router::CLIENT.both();
    let rules = by_prefix(&[Prefix::new(v4, 24), Prefix::new(v6, 64)]);
    let mut shaped = site.shape(&tree(BPS, &classes), &rules, &[OTHER, 5, 6]);
    let before = shaped.mark.counts();
    site.send(v4, 3, 100);
    site.send(v6, 4, 100);
    sends(&mut shaped, 5, 3);
    sends(&mut shaped, 6, 4);
    let counts = shaped.mark.counts();
    let marked = |at: usize| counts[at].packets - before[at].packets;
    assert_eq!((marked(1), marked(2)), (3, 4));
    let htb = shaped.class(6).unwrap();
    assert_eq!(htb.bytes, 4 * (14 + 40 + 8 + 100));
    assert_eq!(
        counts[2].bytes - before[2].bytes,
        htb.bytes,
        "as HTB charges"
    );
    // A class that has no minor, and a class number beyond the table, go where no class goes.
    let other = shaped.class(OTHER).unwrap().packets;
    let lost = Rules {
        prefixes: vec![(Prefix::new(v4, 32), 2), (Prefix::new(v6, 128), 900)],
        ..Rules::default()
    };
    shaped.mark.set(&lost, &[OTHER, 5]).unwrap();
    site.send(v4, 2, 100);
    site.send(v6, 2, 100);
    sends(&mut shaped, OTHER, other + 4);
}

#[test]
fn packets_match_the_dscp_class_in_both_families() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let classes = [5, 6].map(|minor| class(minor, LINE, BPS, BPS));
    let rules = Rules {
        dscps: vec![(46, 1), (8, 2)],
        ..Rules::default()
    };
    let mut shaped = site.shape(&tree(BPS, &classes), &rules, &[OTHER, 5, 6]);
    for ip in Router::CLIENT.both() {
        for (dscp, count) in [(46, 3), (8, 2)] {
            send_with_dscp(&site.net.server, ip, dscp, count);
        }
    }
    sends(&mut shaped, 5, 6);
    sends(&mut shaped, 6, 4);
}

fn send_with_dscp(from: &Netns, to: IpAddr, dscp: i32, count: u32) {
    use nix::sys::socket::{setsockopt, sockopt};
    let any: SocketAddr = match to {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let send = || {
        let socket = UdpSocket::bind(any).unwrap();
        match to {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Tos, &(dscp << 2)).unwrap(),
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6TClass, &(dscp << 2)).unwrap(),
        }
        for _ in 0..count {
            socket.send_to(&[0; 100], (to, PORT)).unwrap();
        }
    };
    from.enter(send).unwrap();
}

#[test]
fn packets_match_the_vlan_class_in_both_families() {
    requires!(
        Need::Root,
        Need::Kernel(Feature::Tun),
        Need::Tool("ethtool")
    );
    let testbed = Testbed::new();
    let [left, right] = ["left", "right"].map(|n| testbed.netns(n).unwrap());
    let carrier = Veth::between(LinkEnd::new(&left, "wire0"), LinkEnd::new(&right, "wire0"));
    let carrier = carrier.build().unwrap();
    let last = |n: u16| Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, n);
    let tun = |ns, n: u16| {
        let tun = Tun::new(ns, "tun0").with_mtu(1400);
        let tun = tun.with_address([10, 9, 0, n as u8], 24);
        tun.with_address(last(n), 64)
    };
    let tagged = Encap::plain().vlan(Tpid::Dot1q, 7);
    let (tuns, none) = ([tun(&left, 1), tun(&right, 2)], Default::default);
    let wires = Wire::tunnel_pair([&tuns[0], &tuns[1]], &carrier, &tagged, none(), none());
    let _wires = wires.unwrap();
    let place = tempfile::tempdir().unwrap();
    let pins = fairpath_bpf::Pins::at(place.path().join("pins")).unwrap();
    let classes = [5, 6].map(|minor| class(minor, LINE, BPS, BPS));
    let rules = Rules {
        vlans: vec![(8, 1), (7, 2)],
        ..Rules::default()
    };
    let shape = || {
        let mut shaped = Shaped::open("wire0", 2, End::Receiver).unwrap();
        shaped.apply(&tree(BPS, &classes)).unwrap();
        shaped.mark(&rules, &[OTHER, 5, 6], &pins).unwrap();
        shaped
    };
    let mut shaped = left.enter(shape).unwrap();
    for (ip, count) in [(IpAddr::from([10, 9, 0, 2]), 3), (last(2).into(), 2)] {
        send_with_dscp(&left, ip, 0, count);
    }
    sends(&mut shaped, 6, 5);
    assert_eq!(shaped.class(5).unwrap().packets, 0);
    assert_eq!(
        left.enter(|| shaped.remove(&pins).unwrap()).unwrap(),
        [true, true]
    );
    pins.unmount().unwrap();
}
