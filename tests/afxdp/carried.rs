//! Packets that pass, their cost in frames, and the state after the end of the process.

use std::time::Duration;

use fairpath_afxdp::{Fifo, Forwarder, QueueId};
use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Ping, requires, wait_for};
use nix::time::{ClockId, clock_gettime};

use crate::bridge::{BRIDGE, Bridge, PATIENCE, SERVER, SERVER6, assert_accounted, run_dry};

/// ping waits for its last answer as long as its interval is, which must outlast a busy machine.
fn ping(ip: impl Into<std::net::IpAddr>) -> Ping {
    Ping::to(ip).count(5).interval(Duration::from_millis(200))
}

#[test]
fn pings_with_neighbour_discovery_pass_the_bridge() {
    requires!(Need::Root, Need::Tool("ping"));
    let bridge = Bridge::build(Offloads::Off);
    let carrying = bridge.carry(&bridge.opening());
    for report in [
        ping(SERVER).run(&bridge.client).unwrap(),
        ping(SERVER6).run(&bridge.client).unwrap(),
        ping(BRIDGE).run(&bridge.client).unwrap(),
    ] {
        assert_eq!(report.received, 5, "{report:?}");
    }
    let outcomes = carrying.redirects.outcomes();
    assert!(
        outcomes[0].not_ip + outcomes[0].group > 0 && outcomes[1].neighbour + outcomes[1].group > 0
    );
    assert!(outcomes[0].own >= 5, "{outcomes:?}");
    let (counts, frames) = carrying.end();
    assert_eq!(counts.sent, 20, "{counts:?} {outcomes:?} {frames:?}");
}

#[test]
fn tcp_passes_both_ways_with_and_without_offloads() {
    requires!(Need::Root, Need::Tool("iperf3"));
    for offloads in [Offloads::Off, Offloads::On] {
        let bridge = Bridge::build(offloads);
        let carrying = bridge.carry(&bridge.opening());
        let server = Iperf3Server::start(&bridge.server, 5201).unwrap();
        let transfer = Iperf3::to(SERVER, server.port()).bytes(20_000_000);
        for transfer in [transfer.clone(), transfer.reverse()] {
            let report = transfer.run(&bridge.client).unwrap();
            // What was under way at the end is not reported as received.
            assert!(
                report.bytes_received > 10_000_000,
                "{offloads:?} {report:?}"
            );
        }
        let (counts, _) = carrying.end();
        assert!(counts.sent > 20_000_000 / 1500, "{counts:?}");
        assert_eq!(counts.completed > 0, offloads == Offloads::On, "{counts:?}");
    }
}

#[test]
fn every_packet_is_counted_at_overload() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let mut opening = bridge.opening();
    opening.ring = 64;
    assert!(
        ping(SERVER).run(&bridge.client).unwrap().received > 0,
        "learn"
    );
    let carrier = bridge.open(&opening).unwrap();
    let all = carrier.port.frames();
    let fifo = Fifo::new(carrier.port.len(), 8);
    let mut forwarder = Forwarder::new(carrier.port, &opening.pairs(), fifo).unwrap();
    for round in 1..=20 {
        bridge.send(SERVER, 300, 100);
        run_dry(&mut forwarder);
        let counts = forwarder.counts();
        let lost = forwarder.port().statistics(QueueId(0)).unwrap();
        let received = forwarder.port().counts(QueueId(0)).received;
        let redirected = carrier.redirects.outcomes()[0].to_socket;
        assert_eq!(received + lost.lost(), redirected, "round {round}");
        assert!(lost.lost() > 0 && counts.dropped > 0 && counts.sent > 0);
        assert_accounted(&forwarder, all.all());
        assert_eq!(forwarder.port().frames(), all, "round {round}");
    }
}

#[test]
fn datagrams_of_any_size_arrive_unchanged() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let carrying = bridge.carry(&bridge.opening());
    let receive = || {
        let socket = std::net::UdpSocket::bind((SERVER, 7777)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let socket = bridge.server.enter(receive).unwrap();
    let mut buffer = [0; 2000];
    for bytes in [0, 1, 18, 19, 512, 1471, 1472] {
        bridge.send(SERVER, 1, bytes);
        let (got, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..got], vec![0; bytes]);
    }
    carrying.end();
}

#[test]
fn the_time_of_arrival_travels_with_the_packet() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let mut opening = bridge.opening();
    opening.redirect.stamp = true;
    assert!(
        ping(SERVER).run(&bridge.client).unwrap().received > 0,
        "learn"
    );
    let mut carrier = bridge.open(&opening).unwrap();
    let now = || {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    };
    let before = now();
    bridge.send(SERVER, 1, 10);
    let mut frames = Vec::new();
    let arrived = wait_for(PATIENCE, || {
        (carrier.port.receive(QueueId(0), 8, &mut frames) > 0).then_some(())
    });
    assert!(arrived.is_some());
    let stamp = carrier.port.stamp(frames[0]).unwrap().0;
    assert!((before..=now()).contains(&stamp), "{before} {stamp}");
}

#[test]
fn every_queue_shares_the_frames() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let bridge = Bridge::build(Offloads::Off);
    for end in bridge.links.iter().flat_map(|link| link.ends()) {
        let set = ["ethtool", "-L", end.ifname(), "rx", "2", "tx", "2"];
        end.ns().run(&set).unwrap();
    }
    let mut opening = bridge.opening();
    opening.queues = 2;
    assert!(
        ping(SERVER).run(&bridge.client).unwrap().received > 0,
        "learn"
    );
    let carrier = bridge.open(&opening).unwrap();
    let all = carrier.port.frames();
    let fifo = Fifo::new(carrier.port.len(), 512);
    let mut forwarder = Forwarder::new(carrier.port, &opening.pairs(), fifo).unwrap();
    for _ in 0..64 {
        bridge.send(SERVER, 1, 100);
    }
    run_dry(&mut forwarder);
    let counts = [0, 1, 2, 3].map(|i| forwarder.port().counts(QueueId(i)));
    assert!(
        counts[0].received > 0 && counts[1].received > 0,
        "{counts:?}"
    );
    assert_eq!(counts[0].received + counts[1].received, 64, "{counts:?}");
    assert_eq!(counts[2].sent, counts[0].received, "{counts:?}");
    assert_eq!(forwarder.port().frames(), all);
}
