//! Links that go down, lose their carrier or are removed: continued traffic, losses, and their reports.

use fairpath_afxdp::{Fifo, Forwarder, LinkState, QueueId};
use fairpath_testbed::{Need, Offloads, requires, wait_for};

use crate::bridge::{Bridge, PATIENCE, SERVER, assert_accounted, learn};

const LAN: QueueId = QueueId(0);
const WAN: QueueId = QueueId(1);

/// A forwarder that the test turns itself, on a bridge that has learned where its hosts are.
struct Turned {
    bridge: Bridge,
    forwarder: Forwarder<Fifo>,
    // The programs lead packets here as long as they are.
    _redirects: fairpath_tests::carrier::Redirects,
    all: u32,
}

impl Turned {
    fn build() -> Turned {
        let bridge = Bridge::build(Offloads::Off);
        learn(&bridge);
        let opening = bridge.opening();
        let carrier = bridge.open(&opening).unwrap();
        let all = carrier.port.frames().all();
        let fifo = Fifo::new(carrier.port.len(), 512);
        Turned {
            bridge,
            forwarder: Forwarder::new(carrier.port, &opening.pairs(), fifo).unwrap(),
            _redirects: carrier.redirects,
            all,
        }
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&Forwarder<Fifo>) -> bool) {
        let reached = wait_for(PATIENCE, || {
            self.forwarder.turn();
            done(&self.forwarder).then_some(())
        });
        let (counts, frames) = (self.forwarder.counts(), self.forwarder.port().frames());
        assert!(reached.is_some(), "{what}: {counts:?} {frames:?}");
        assert_accounted(&self.forwarder, self.all);
    }

    /// Sends this number of datagrams towards the server, and waits until each has left or was dropped.
    fn pass(&mut self, datagrams: u64) {
        let before = self.received();
        self.bridge.send(SERVER, datagrams as u32, 100);
        self.turn_until("pass", |forwarder| {
            let frames = forwarder.port().frames();
            let received = forwarder.port().counts(LAN).received;
            received - before == datagrams && frames.held == 0
        });
    }

    /// Of the client; the server's answers (no program listens) take the other direction.
    fn received(&self) -> u64 {
        self.forwarder.port().counts(LAN).received
    }

    fn sent(&self) -> u64 {
        self.forwarder.port().counts(WAN).sent
    }

    fn no_link(&self) -> u64 {
        self.forwarder.counts().no_link
    }

    fn state(&self, queue: QueueId) -> LinkState {
        self.forwarder.port().state(queue)
    }
}

#[test]
fn a_down_link_counts_losses_and_recovers() {
    requires!(Need::Root);
    let mut turned = Turned::build();
    turned.pass(10);
    assert_eq!(turned.sent(), 10);
    let wan = turned.bridge.links[1].right().clone();
    wan.set_up(false).unwrap();
    turned.pass(20);
    turned.turn_until("down", |forwarder| {
        forwarder.port().state(WAN) == LinkState::Down
    });
    turned.pass(20);
    let (sent, lost) = (turned.sent(), turned.no_link());
    assert!(lost >= 20 && sent + lost == 50, "{sent} {lost}");
    assert_eq!(turned.state(LAN), LinkState::Up);
    wan.set_up(true).unwrap();
    turned.turn_until("up", |forwarder| {
        forwarder.port().state(WAN) == LinkState::Up
    });
    turned.pass(10);
    assert_eq!((turned.sent() - sent, turned.no_link()), (10, lost));
}

#[test]
fn traffic_resumes_when_the_peer_has_carrier() {
    requires!(Need::Root);
    let mut turned = Turned::build();
    let server = turned.bridge.links[1].left().clone();
    for flap in 1..=3 {
        server.set_up(false).unwrap();
        let before = turned.received();
        turned.bridge.send(SERVER, 5, 100);
        turned.turn_until("lost", |forwarder| {
            forwarder.port().counts(LAN).received - before == 5
                && forwarder.port().state(WAN) == LinkState::Down
        });
        server.set_up(true).unwrap();
        turned.turn_until("up", |forwarder| {
            forwarder.port().state(WAN) == LinkState::Up && forwarder.port().frames().sending == 0
        });
        let counts = turned.forwarder.counts();
        turned.pass(5);
        assert_eq!(
            turned.forwarder.counts().sent - counts.sent,
            5,
            "flap {flap}"
        );
        turned.turn_until("done", |forwarder| forwarder.port().frames().sending == 0);
        let queue = turned.forwarder.port().counts(WAN);
        assert!(queue.refused >= flap, "{queue:?}");
        assert_eq!(queue.completed, queue.sent, "{queue:?}");
    }
}

#[test]
fn a_removed_interface_releases_its_frames() {
    requires!(Need::Root);
    let mut turned = Turned::build();
    turned.pass(10);
    turned
        .bridge
        .bridge
        .run(&["ip", "link", "del", "wan"])
        .unwrap();
    turned.turn_until("gone", |forwarder| {
        forwarder.port().state(WAN) == LinkState::Removed
    });
    let before = (turned.received(), turned.no_link());
    // The server no longer answers: the client's neighbour entry still exists.
    turned.pass(30);
    assert_eq!(turned.state(LAN), LinkState::Up);
    assert_eq!(
        (turned.received() - before.0, turned.no_link() - before.1),
        (30, 30)
    );
    let frames = turned.forwarder.port().frames();
    assert_eq!((frames.held, frames.sending, frames.filling), (0, 0, 2048));
    let sockets = turned.forwarder.port().sockets();
    assert_eq!(
        sockets
            .map(|(link, _)| link.name.as_str())
            .collect::<Vec<_>>(),
        ["lan"]
    );
}

#[test]
fn a_scheduler_larger_than_its_frames_is_refused() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let opening = bridge.opening();
    let port = bridge.open(&opening).unwrap().port;
    let fifo = Fifo::new(port.len(), 4097);
    let error = Forwarder::new(port, &opening.pairs(), fifo).unwrap_err();
    assert_eq!(
        error.to_string(),
        "forward with a scheduler of up to 8194 packets: only 8192 of the 16384 frames are outside \
         the rings; lower the scheduler's limit or add 2 frames"
    );
}
