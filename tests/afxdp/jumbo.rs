//! Packets of several frames: counted as one, copied and changed as one.

use fairpath_afxdp::{Arrival, Fifo, Forwarder, Order, Outcome, QueueId};
use fairpath_core::sched::Change;
use fairpath_testbed::{Direction, Need, Offloads, requires};
use fairpath_units::Nanos;

use crate::bridge::{Bridge, SERVER, assert_accounted, learn, run_dry};
use crate::sums::{capture_long, frames};

/// Three frames of 4,096 bytes carry such a packet.
pub const JUMBO: u32 = 9000;
/// Of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

fn bridge() -> Bridge {
    let bridge = Bridge::build(Offloads::Off);
    for link in &bridge.links {
        link.set_mtu(JUMBO).unwrap();
    }
    learn(&bridge);
    bridge
}

#[test]
fn every_jumbo_frame_is_counted_at_overload() {
    requires!(Need::Root);
    let bridge = bridge();
    let mut opening = bridge.opening();
    (opening.ring, opening.mtu) = (64, JUMBO);
    let carrier = bridge.open(&opening).unwrap();
    let all = carrier.port.frames();
    assert_eq!(all.filling, 2 * 64, "full fill rings");
    let fifo = Fifo::new(carrier.port.len(), 8);
    let mut forwarder = Forwarder::new(carrier.port, &opening.pairs(), fifo).unwrap();
    for round in 1..=20 {
        // 64 frames are 21 long packets, or fewer with short ones.
        for _ in 0..30 {
            bridge.send(SERVER, 1, 8_800);
            bridge.send(SERVER, 1, 100);
        }
        run_dry(&mut forwarder);
        let counts = forwarder.counts();
        let lost = forwarder.port().statistics(QueueId(0)).unwrap();
        let own = forwarder.port().counts(QueueId(0));
        let redirected = carrier.redirects.outcomes()[0].to_socket;
        assert_eq!(own.received + lost.lost(), redirected, "round {round}");
        assert!(lost.lost() > 0 && counts.dropped > 0 && counts.sent > 0);
        assert_eq!(own.too_long, 0);
        assert_accounted(&forwarder, all.all());
        assert_eq!(forwarder.port().frames(), all, "round {round}");
    }
}

/// Duplicates each packet, and inverts a bit.
struct Changed {
    fifo: Fifo,
    bit: u32,
}

impl Order for Changed {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        self.fifo.arrive(arrival, packet, out);
    }

    fn leave(&mut self, to: QueueId, now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        self.fifo.leave(to, now, capacity / 2, out);
        for outcome in out {
            if let Outcome::Send(_, change) = outcome {
                *change = Change {
                    twice: true,
                    flip: Some(self.bit),
                    ..Change::default()
                };
            }
        }
    }

    fn limit(&self) -> u32 {
        self.fifo.limit()
    }
}

#[test]
fn changes_reach_every_frame_of_a_packet() {
    requires!(Need::Root, Need::Tool("tcpdump"));
    let bridge = bridge();
    let mut opening = bridge.opening();
    opening.mtu = JUMBO;
    let carrier = bridge.open(&opening).unwrap();
    let all = carrier.port.frames();
    // A byte of the third frame, from the IP header on.
    let byte = 8_500;
    let order = Changed {
        fifo: Fifo::new(2, 64),
        bit: 8 * byte,
    };
    let mut forwarder = Forwarder::new(carrier.port, &opening.pairs(), order).unwrap();
    let capture = capture_long(&bridge.server, "s0", Direction::In, JUMBO + 100);
    let payload = 8_800;
    bridge.send(SERVER, 1, payload);
    let sent = fairpath_testbed::wait_for(crate::bridge::PATIENCE, || {
        forwarder.turn();
        let frames = forwarder.port().frames();
        (forwarder.counts().sent >= 2 && frames == all).then_some(())
    });
    assert!(sent.is_some(), "{:?}", forwarder.counts());
    let counts = forwarder.counts();
    assert_eq!((counts.copies, counts.corrupted), (1, 1), "{counts:?}");
    let udp = |(frame, times): (Vec<u8>, u32)| (frame[23] == 17).then_some((frame, times));
    let arrived: Vec<_> = frames(capture).into_iter().filter_map(udp).collect();
    // The duplicate was made before the bit was inverted, or after it.
    let (long, times): (Vec<_>, Vec<_>) = arrived.into_iter().unzip();
    assert_eq!(times.iter().sum::<u32>(), 2, "{times:?}");
    for frame in &long {
        assert_eq!(frame.len(), payload + HEADERS);
        let different: Vec<_> = (HEADERS..frame.len())
            .filter(|at| frame[*at] != 0)
            .collect();
        assert!(different.is_empty() || different == [14 + byte as usize]);
    }
    assert!(long.iter().any(|frame| frame[14 + byte as usize] == 0x80));
}
