//! VLANs: tags that stay, tags that are changed between two VLANs of one interface, and a router's.

use std::net::Ipv4Addr;

use fairpath_bpf::{ForwardOutcome, Forwarding};
use fairpath_testbed::{FrameSocket, LinkEnd, Need, Netns, Testbed, Veth, requires, wait_for};
use fairpath_tests::through::{Named, Setup, Through};
use fairpath_wire::Frame;

use crate::bridge::PATIENCE;

const HERE: [u8; 6] = [2, 0, 0, 0, 9, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 9, 2];
const OTHER: [u8; 6] = [2, 0, 0, 0, 9, 3];
const STAND_IN: [[u8; 6]; 2] = [[2, 0, 0, 0, 9, 10], [2, 0, 0, 0, 9, 20]];
const A: Ipv4Addr = Ipv4Addr::new(10, 10, 10, 2);
const B: Ipv4Addr = Ipv4Addr::new(10, 10, 20, 2);

/// A machine with one or two interfaces, and who is at their other ends.
struct Scene {
    here: Netns,
    there: Netns,
}

impl Scene {
    fn build() -> Scene {
        let testbed = Testbed::new();
        let [here, there] = ["here", "there"].map(|name| testbed.netns(name).unwrap());
        for (inner, outer) in [("trunk", "t0"), ("plain", "p0")] {
            let inner = LinkEnd::new(&here, inner).with_mac(HERE);
            Veth::between(inner, LinkEnd::new(&there, outer))
                .build()
                .unwrap();
        }
        Scene { here, there }
    }

    /// VLAN devices of `trunk`. Where the kernel has none, other interfaces stand in that have their
    /// addresses and routes: the program knows them by their numbers only.
    fn vlans(&self) {
        for (i, name) in ["vlan10", "vlan20"].into_iter().enumerate() {
            let net = 10 * (i as u8 + 1);
            let mac = STAND_IN[i].map(|byte| format!("{byte:02x}")).join(":");
            let add = format!("link add link trunk name {name} address {mac} type vlan id {net}");
            let up = format!("link set {name} up");
            let address = format!("address add 10.10.{net}.1/24 dev {name}");
            if self.here.ip_batch(&[add, up, address]).is_err() {
                let at = Ipv4Addr::new(10, 10, net, 1);
                let inner = LinkEnd::new(&self.here, name).with_mac(STAND_IN[i]);
                let outer = LinkEnd::new(&self.there, &format!("x{i}"));
                Veth::between(inner.with_address(at, 24), outer)
                    .build()
                    .unwrap();
            }
        }
        self.here.set_forwarding(true).unwrap();
        let lines = [
            "neighbour replace 10.10.10.2 lladdr 02:00:00:00:09:02 dev vlan10".to_owned(),
            "neighbour replace 10.10.20.2 lladdr 02:00:00:00:09:03 dev vlan20".to_owned(),
        ];
        self.here.ip_batch(&lines).unwrap();
    }

    fn socket(&self, name: &str) -> FrameSocket {
        FrameSocket::open(&self.there, name).unwrap()
    }
}

fn in_scene(body: impl FnOnce(&Scene) + Send) {
    let scene = Scene::build();
    scene.here.enter(|| body(&scene)).unwrap();
}

fn packet(from: [u8; 6], to: [u8; 6], tags: &[u16], ips: [Ipv4Addr; 2]) -> Vec<u8> {
    let tagged = tags
        .iter()
        .fold(Frame::ethernet(from, to), |frame, tag| frame.vlan(*tag));
    tagged
        .ipv4(ips[0], ips[1])
        .udp(1000, 2000)
        .payload(&[7; 60])
        .build()
}

/// The next frame that arrives of those that the tests send.
fn next(through: &mut Through, socket: &mut FrameSocket) -> Option<Vec<u8>> {
    wait_for(PATIENCE, || {
        through.forwarder.turn();
        socket
            .receive()
            .filter(|frame| frame.windows(60).any(|bytes| bytes == [7; 60]))
    })
}

fn trunk() -> Named {
    Named::new("trunk", HERE)
}

#[test]
fn a_bridge_of_two_interfaces_leaves_tags_alone() {
    requires!(Need::Root);
    in_scene(|scene| {
        let exits = [trunk(), Named::new("plain", HERE)];
        let mut through = Setup::new(Forwarding::Bridge, exits).open().unwrap();
        let (from, mut to) = (scene.socket("t0"), scene.socket("p0"));
        for tags in [&[][..], &[5], &[5, 6]] {
            let frame = packet(HOST, OTHER, tags, [A, B]);
            from.send(&frame).unwrap();
            assert_eq!(
                next(&mut through, &mut to).as_ref(),
                Some(&frame),
                "{tags:?}"
            );
        }
        // Three tags are more than the program looks behind: that is no IP to it.
        let frame = packet(HOST, OTHER, &[5, 6, 7], [A, B]);
        from.send(&frame).unwrap();
        let passed = || (through.monitor.outcomes()[0].of(ForwardOutcome::NotIp) > 0).then_some(());
        assert!(wait_for(PATIENCE, passed).is_some());
    });
}

#[test]
fn bridging_between_vlans_changes_only_the_tag() {
    requires!(Need::Root);
    in_scene(|scene| {
        let exits = [trunk().tagged(10), trunk().tagged(20)];
        let mut through = Setup::new(Forwarding::Bridge, exits).open().unwrap();
        through.forwarder.order_mut().seen = Some(Vec::new());
        let mut socket = scene.socket("t0");
        for (arrived, leaves) in [(10, 20), (20, 10)] {
            // The priority (PCP 5, DEI) stays.
            let frame = packet(HOST, OTHER, &[0xb000 | arrived], [A, B]);
            let wanted = packet(HOST, OTHER, &[0xb000 | leaves], [A, B]);
            socket.send(&frame).unwrap();
            assert_eq!(next(&mut through, &mut socket), Some(wanted));
        }
        let seen = through.forwarder.order_mut().seen.take().unwrap();
        let exits: Vec<_> = seen.iter().map(|(arrival, _)| arrival.exit).collect();
        assert_eq!(
            exits,
            [1, 0],
            "the direction is reported although there is one interface"
        );
        for tags in [&[][..], &[30]] {
            socket.send(&packet(HOST, OTHER, tags, [A, B])).unwrap();
        }
        let passed =
            || (through.monitor.outcomes()[0].of(ForwardOutcome::OtherVlan) >= 2).then_some(());
        assert!(wait_for(PATIENCE, passed).is_some());
    });
}

#[test]
fn a_router_on_one_interface_routes_between_vlans() {
    requires!(Need::Root);
    in_scene(|scene| {
        scene.vlans();
        let exit = |i: usize, vlan: u16| Named {
            route: format!("vlan{vlan}"),
            mac: STAND_IN[i],
            ..trunk().tagged(vlan)
        };
        let setup = Setup::new(Forwarding::Router, [exit(0, 10), exit(1, 20)]);
        let mut through = setup.open().unwrap();
        let mut socket = scene.socket("t0");
        let outcomes = [
            (0, 10, HOST, [A, B], 1, 20, OTHER),
            (1, 20, OTHER, [B, A], 0, 10, HOST),
        ];
        for (i, arrived, host, ips, o, leaves, hop) in outcomes {
            socket
                .send(&packet(host, STAND_IN[i], &[arrived], ips))
                .unwrap();
            let mut wanted = packet(STAND_IN[o], hop, &[leaves], ips);
            less_a_hop(&mut wanted, 18);
            let got = next(&mut through, &mut socket);
            assert_eq!(got, Some(wanted), "{:?}", through.monitor.outcomes());
        }
    });
}

#[test]
fn router_adds_and_removes_tags_of_egress_interfaces() {
    requires!(Need::Root);
    in_scene(|scene| {
        scene.vlans();
        let tagged = Named {
            route: "vlan10".to_owned(),
            mac: STAND_IN[0],
            ..trunk().tagged(10)
        };
        let plain = Named {
            route: "vlan20".to_owned(),
            ..Named::new("plain", STAND_IN[1])
        };
        let setup = Setup::new(Forwarding::Router, [tagged, plain]);
        let mut through = setup.open().unwrap();
        through.forwarder.order_mut().seen = Some(Vec::new());
        let (mut trunk, mut plain) = (scene.socket("t0"), scene.socket("p0"));
        trunk
            .send(&packet(HOST, STAND_IN[0], &[10], [A, B]))
            .unwrap();
        let mut without = packet(STAND_IN[1], OTHER, &[], [A, B]);
        less_a_hop(&mut without, 14);
        assert_eq!(next(&mut through, &mut plain).as_ref(), Some(&without));
        plain
            .send(&packet(OTHER, STAND_IN[1], &[], [B, A]))
            .unwrap();
        let mut with = packet(STAND_IN[0], HOST, &[10], [B, A]);
        less_a_hop(&mut with, 18);
        assert_eq!(next(&mut through, &mut trunk).as_ref(), Some(&with));
        let seen = through.forwarder.order_mut().seen.take().unwrap();
        let bytes: Vec<_> = seen
            .iter()
            .map(|(a, _)| a.meta.unwrap().bytes as usize)
            .collect();
        assert_eq!(bytes, [without.len(), with.len()], "as they leave");
    });
}

/// TTL one less, and the checksum as a sender would have computed it.
fn less_a_hop(frame: &mut [u8], ip: usize) {
    frame[ip + 8] -= 1;
    frame[ip + 10..ip + 12].fill(0);
    let words = frame[ip..ip + 20].chunks(2);
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[ip + 10..ip + 12].copy_from_slice(&(!sum as u16).to_be_bytes());
}
