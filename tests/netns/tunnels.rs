//! Packets behind VLAN tags and in PPPoE sessions.

use std::net::{IpAddr, Ipv6Addr};

use fairpath_testbed::{
    Encap, Feature, LinkEnd, Need, Ping, TcpPair, Testbed, Tpid, Tun, Veth, Wire, requires,
};
use fairpath_tests::Rtt;

const RIGHT_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2);

/// Traffic between two TUN devices, encapsulated on the veth between them, which is watched.
fn is_measured(encap: &Encap) {
    let testbed = Testbed::new();
    let [left, right] = ["left", "right"].map(|n| testbed.netns(n).unwrap());
    let carrier = Veth::between(LinkEnd::new(&left, "wire0"), LinkEnd::new(&right, "wire0"));
    let carrier = carrier.build().unwrap();
    let tun = |ns, last: u16| {
        Tun::new(ns, "ppp0")
            .with_mtu(1492)
            .with_address([10, 9, 0, last as u8], 24)
            .with_address(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, last), 64)
    };
    let _wires = Wire::tunnel_pair(
        [&tun(&left, 1), &tun(&right, 2)],
        &carrier,
        encap,
        Default::default(),
        Default::default(),
    )
    .unwrap();
    let outside = Rtt::watch(&left, &["wire0"], &[]);
    let inside = Rtt::watch(&left, &["ppp0"], &[]);
    for ip in [IpAddr::from([10, 9, 0, 2]), RIGHT_V6.into()] {
        // What crossed is what counts: ping itself has been seen to report 1 of 3 answers that came.
        let ping = Ping::to(ip).count(3).run(&left).unwrap();
        assert_eq!(ping.sent, 3);
        let mut pair = TcpPair::connect(&left, &right, ip).unwrap();
        for _ in 0..5 {
            pair.client_sends(&[1; 2000]).unwrap();
            pair.server_sends(&[1; 2000]).unwrap();
        }
    }
    let (outside, inside) = (outside.stop(), inside.stop());
    for records in [&outside, &inside] {
        assert_eq!(records.by("icmp").count(), 6, "{encap:?}");
        assert_eq!(records.by("handshake").count(), 4, "{encap:?}");
        assert!(records.by("seq").count() >= 4, "{encap:?}");
        assert_eq!(records.number("/counters/malformed"), 0);
    }
    let towards = |s: &fairpath_tests::Sample| s.towards.as_deref() == Some("wire0");
    assert!(outside.by("icmp").all(towards), "{encap:?}");
}

#[test]
fn vlan_tagged_packets_are_measured() {
    requires!(Need::Root, Need::Kernel(Feature::Tun), Need::Tool("ping"));
    let one = Encap::plain().vlan(Tpid::Dot1q, 7);
    let two = Encap::plain().vlan(Tpid::Dot1ad, 100).vlan(Tpid::Dot1q, 7);
    let four = two.clone().vlan(Tpid::Dot1q, 8).vlan(Tpid::Dot1q, 9);
    for encap in [one, two, four] {
        is_measured(&encap);
    }
}

#[test]
fn packets_in_pppoe_sessions_are_measured() {
    requires!(Need::Root, Need::Kernel(Feature::Tun), Need::Tool("ping"));
    is_measured(&Encap::plain().pppoe(0x1234));
    is_measured(&Encap::plain().vlan(Tpid::Dot1q, 7).pppoe(1));
}
