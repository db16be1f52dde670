//! The monitor's own XDP program carries a bridge: what it notes, counts and leaves to the stack.

use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use fairpath_afxdp::QueueId;
use fairpath_bpf::{ForwardOutcome, Forwarding};
use fairpath_core::sched::{Classifier, End};
use fairpath_core::{ClassReading, Filter, Frame, Link, Prefix, Rules};
use fairpath_testbed::{Direction, Iperf3, Iperf3Server, Need, Offloads, Ping, requires, wait_for};
use fairpath_tests::through::{Named, Setup, Through};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Ipv4Tos;

use crate::bridge::{BRIDGE, Bridge, CLIENT, PATIENCE, SERVER, SERVER6, learn};
use crate::sums::{capture, frames};

const LAN: QueueId = QueueId(0);
const OF_CLIENT: u32 = 3;
const OF_SERVER: u32 = 5;
const OF_SERVER6: u32 = 6;

fn rules() -> Rules {
    let rule = |ip: IpAddr, slot| (Prefix::new(ip, 128), slot);
    Rules {
        prefixes: vec![
            rule(CLIENT.into(), OF_CLIENT),
            rule(SERVER.into(), OF_SERVER),
            rule(SERVER6.into(), OF_SERVER6),
        ],
        ..Rules::default()
    }
}

fn setup(bridge: &Bridge, tcx: bool) -> Setup {
    let exits = ["lan", "wan"].map(|name| Named::new(name, bridge.mac(name)));
    Setup {
        own: vec![bridge.mac("br0")],
        rules: rules(),
        tcx,
        ..Setup::new(Forwarding::Bridge, exits)
    }
}

/// Runs in the bridge's namespace, on a bridge that knows its hosts.
fn in_bridge(body: impl FnOnce(&Bridge) + Send) {
    let bridge = Bridge::build(Offloads::Off);
    learn(&bridge);
    bridge.bridge.enter(|| body(&bridge)).unwrap();
}

/// Turns until this number of packets arrived by the LAN's queue, and all have left.
fn turn_until(through: &mut Through, received: u64) {
    let forwarder = &mut through.forwarder;
    let done = wait_for(PATIENCE, || {
        let worked = forwarder.turn();
        let frames = forwarder.port().frames();
        let all = forwarder.port().counts(LAN).received >= received;
        (all && !worked && frames.held + frames.sending == 0).then_some(())
    });
    let (counts, outcomes) = (forwarder.counts(), through.monitor.outcomes());
    assert!(done.is_some(), "{counts:?} {outcomes:?}");
}

#[test]
fn packets_decided_before_a_pause_are_dropped() {
    requires!(Need::Root);
    in_bridge(|bridge| {
        let mut through = setup(bridge, false).open().unwrap();
        bridge.send(SERVER, 3, 100);
        turn_until(&mut through, 3);
        let before = through.forwarder.counts();
        assert!(before.sent >= 3 && before.stale == 0, "{before:?}");
        through.forwarder.order_mut().pause = Some(Duration::from_secs(1));
        bridge.send(SERVER, 3, 100);
        turn_until(&mut through, 6);
        let paused = through.forwarder.counts().since(&before);
        assert_eq!((paused.sent, paused.stale), (0, 3), "{paused:?}");
        // What comes afterwards passes.
        through.forwarder.order_mut().pause = None;
        bridge.send(SERVER, 3, 100);
        turn_until(&mut through, 9);
        let after = through.forwarder.counts().since(&before);
        assert!(after.sent >= 3 && after.stale == 3, "{after:?}");
    });
}

#[test]
fn xdp_metadata_equals_the_native_parse() {
    requires!(Need::Root);
    in_bridge(|bridge| {
        let mut through = setup(bridge, false).open().unwrap();
        through.forwarder.order_mut().seen = Some(Vec::new());
        for bytes in [0, 1, 18, 100, 700, 1400] {
            bridge.send(SERVER, 2, bytes);
            bridge.send(SERVER6, 2, bytes);
        }
        turn_until(&mut through, 24);
        let mut native = Classifier::new(16);
        native.set_rules(&rules()).unwrap();
        let order = through.forwarder.order_mut();
        let mut classes = Vec::new();
        for (arrival, bytes) in order.seen.take().unwrap() {
            let meta = arrival.meta.expect("every packet has a note");
            assert_eq!(arrival.exit, 1 - arrival.from.0);
            let end = [End::Receiver, End::Sender][arrival.exit];
            let frame = Frame {
                now: meta.arrival,
                wire_len: bytes.len() as u32,
                segs: 1,
                link: Link::Ethernet as u16,
                ..Frame::default()
            };
            assert_eq!(native.look(&frame, &bytes, end).0, meta);
            assert!(meta.arrival > 0 && meta.arrival <= arrival.now.0);
            classes.push((arrival.exit, meta.class_id));
        }
        // Upwards the client's class counts, and downwards, too: it belongs to no other class.
        assert!(classes.iter().filter(|c| **c == (1, OF_CLIENT)).count() >= 12);
        assert!(
            classes.contains(&(1, 0)),
            "the client's IPv6 address has none"
        );
        assert!(
            classes
                .iter()
                .all(|(exit, class)| *exit == 1 || *class != OF_SERVER)
        );
        assert_eq!(through.forwarder.counts().strange_exits, 0);
    });
}

#[test]
fn later_packets_are_not_matched_earlier() {
    requires!(Need::Root);
    in_bridge(|bridge| {
        let mut through = setup(bridge, false).open().unwrap();
        through.forwarder.order_mut().seen = Some(Vec::new());
        thread::scope(|scope| {
            // Faster than they are received: some are dropped, which does not matter here.
            let sending = scope.spawn(|| bridge.send(SERVER, 4000, 100));
            while !sending.is_finished() {
                through.forwarder.turn();
            }
        });
        let seen = through.forwarder.order_mut().seen.take().unwrap();
        let early = seen.iter().filter(|(arrival, _)| {
            let meta = arrival.meta.expect("every packet has a note");
            arrival.now.0 < meta.arrival
        });
        assert_eq!(early.count(), 0, "of {}", seen.len());
        assert!(seen.len() > 100, "{}", seen.len());
    });
}

#[test]
fn a_packet_is_counted_once_for_both_ends() {
    requires!(Need::Root);
    for tcx in [false, true] {
        in_bridge(|bridge| {
            let mut through = setup(bridge, tcx).open().unwrap();
            let mut reading = ClassReading::default();
            bridge.send(SERVER6, 40, 100);
            turn_until(&mut through, 40);
            through.monitor.read_classes(&mut reading);
            let down = |reading: &ClassReading| reading.counts[OF_SERVER6 as usize].dir[1];
            assert_eq!(
                (down(&reading).packets, down(&reading).bytes),
                (40, 40 * 148)
            );
            let [outcomes, _] = through.monitor.outcomes();
            assert_eq!(outcomes.of(ForwardOutcome::ToSocket), 40, "{outcomes:?}");
            let monitored = through.monitor.stats().frames;

            // Without sockets, the stack carries on; seen at tcx, or by XDP and tcx egress.
            let Through {
                forwarder,
                mut monitor,
                attached,
                ..
            } = through;
            drop(forwarder);
            bridge.send(SERVER6, 7, 100);
            let passed = wait_for(PATIENCE, || {
                monitor.read_classes(&mut reading);
                (down(&reading).packets >= 47).then_some(())
            });
            assert!(passed.is_some(), "{reading:?}");
            assert_eq!(down(&reading).packets, 47);
            assert!(monitor.stats().frames > monitored);
            drop(attached);
        });
    }
}

#[test]
fn a_monitor_filter_does_not_change_forwarding() {
    requires!(Need::Root);
    in_bridge(|bridge| {
        let mut through = setup(bridge, true).open().unwrap();
        through.forwarder.order_mut().seen = Some(Vec::new());
        let nothing = Filter {
            except: false,
            prefix: Some(Prefix::new("203.0.113.7".parse().unwrap(), 32)),
            port: None,
        };
        assert!(through.monitor.set_filters(&[nothing]));
        bridge.send(SERVER, 20, 100);
        turn_until(&mut through, 20);
        let stats = through.monitor.stats();
        assert!(stats.filtered >= 20, "{stats:?}");
        let seen = through.forwarder.order_mut().seen.take().unwrap();
        let up: Vec<_> = seen.iter().filter(|(a, _)| a.exit == 1).collect();
        let classes = up.iter().map(|(a, _)| a.meta.unwrap().class_id);
        assert_eq!(classes.collect::<Vec<_>>(), vec![OF_CLIENT; 20]);
    });
}

#[test]
fn packets_of_the_stack_are_counted_by_byte() {
    requires!(Need::Root);
    in_bridge(|bridge| {
        let mut through = setup(bridge, true).open().unwrap();
        bridge.send(SERVER, 10, 100);
        turn_until(&mut through, 10);
        let socket = UdpSocket::bind((BRIDGE, 0)).unwrap();
        let reader = through.stack_sent;
        let ping = Ping::to(SERVER).count(1).run(&bridge.bridge).unwrap();
        assert_eq!(ping.received, 1, "ARP is done");
        let before = reader.read(1);
        for _ in 0..25 {
            socket.send_to(&[7; 500], (SERVER, 7777)).unwrap();
        }
        let read = std::thread::spawn(move || reader.read(1)).join().unwrap();
        let sent = (read.packets - before.packets, read.bytes - before.bytes);
        assert_eq!(sent, (25, 25 * (14 + 20 + 8 + 500)));
    });
}

#[test]
fn gso_packets_count_the_headers_of_all_segments() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let bridge = Bridge::build(Offloads::On);
    learn(&bridge);
    let body = || {
        let through = setup(&bridge, true).open().unwrap();
        let server = Iperf3Server::start(&bridge.server, 5201).unwrap();
        let transfer = Iperf3::to(SERVER, server.port()).bytes(10_000_000);
        let report = transfer.run(&bridge.bridge).unwrap();
        let sent = through.stack_sent.read(1);
        // Ethernet, IPv4 and TCP with timestamps are 66 bytes; the control connection is small.
        let payload = sent.bytes - 66 * sent.packets;
        let few = 100_000;
        assert!(sent.packets >= report.bytes_received / 1448, "{sent:?}");
        assert!(
            payload + few >= report.bytes_received && payload < 10_500_000,
            "{sent:?}"
        );
    };
    bridge.bridge.enter(body).unwrap();
}

#[test]
fn ce_marks_reach_only_ecn_capable_senders() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    in_bridge(|bridge| {
        let mut through = setup(bridge, false).open().unwrap();
        let order = through.forwarder.order_mut();
        (order.mark, order.seen) = (true, Some(Vec::new()));
        let server = bridge
            .server
            .enter(|| UdpSocket::bind((SERVER, 7777)).unwrap());
        let capture = capture(&bridge.server, "s0", Direction::In);
        let marked = |tos: i32| {
            let send = || {
                let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
                setsockopt(&socket, Ipv4Tos, &tos).unwrap();
                socket.send_to(&[1; 20], (SERVER, 7777)).unwrap();
            };
            bridge.client.enter(send).unwrap();
        };
        for tos in [0, 1, 2, 3] {
            marked(tos);
        }
        turn_until(&mut through, 4);
        let arrived = frames(capture);
        let ecn = arrived.keys().map(|frame| frame[15] & 3);
        let mut ecn: Vec<_> = ecn.collect();
        ecn.sort_unstable();
        assert_eq!(ecn, [0, 3, 3, 3]);
        let seen = through.forwarder.order_mut().seen.take().unwrap();
        let up = seen.iter().filter(|(arrival, _)| arrival.exit == 1);
        let ecn = up.map(|(arrival, _)| arrival.meta.unwrap().ecn);
        assert_eq!(ecn.collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(through.forwarder.counts().marked, 3);
        drop(server);
    });
}

#[test]
fn pings_through_the_bridge_give_samples() {
    requires!(Need::Root, Need::Tool("ping"));
    in_bridge(|bridge| {
        let Through {
            mut forwarder,
            monitor,
            attached,
            ..
        } = setup(bridge, true).open().unwrap();
        let stop = fairpath_afxdp::Stop::new().unwrap();
        let requested = stop.clone();
        let carrying = std::thread::spawn(move || {
            forwarder.run(&requested, |_| ());
            forwarder
        });
        for ip in [IpAddr::from(SERVER), SERVER6.into(), BRIDGE.into()] {
            let ping = Ping::to(ip)
                .count(5)
                .interval(std::time::Duration::from_millis(200));
            assert_eq!(ping.run(&bridge.client).unwrap().received, 5, "{ip}");
        }
        stop.request();
        let forwarder = carrying.join().unwrap();
        let stats = monitor.stats();
        assert_eq!(forwarder.counts().sent, 20, "{:?}", monitor.outcomes());
        // Request and answer of ten pings are seen here; the bridge's own five are tcx's.
        assert_eq!(stats.samples_icmp, 15, "{stats:?}");
        drop(attached);
    });
}
