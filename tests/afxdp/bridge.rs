//! A bridge between a client and a server, and a forwarder on a thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_afxdp::{Fifo, ForwardCounts, Forwarder, FrameCounts, Stop};
use fairpath_testbed::{LinkEnd, Netns, Offloads, Ping, Testbed, Veth, wait_for};
use fairpath_tests::carrier::{Carrier, Opening, Redirects};

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
/// Of the bridge itself.
pub const BRIDGE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
/// For what happens at once.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Bridge {
    pub client: Netns,
    pub bridge: Netns,
    pub server: Netns,
    pub links: [Veth; 2],
}

impl Bridge {
    pub fn build(offloads: Offloads) -> Bridge {
        let testbed = Testbed::new();
        let [client, bridge, server] =
            ["client", "bridge", "server"].map(|name| testbed.netns(name).unwrap());
        let ends = [
            LinkEnd::new(&client, "c0")
                .with_address(CLIENT, 24)
                .with_address(CLIENT6, 64),
            LinkEnd::new(&server, "s0")
                .with_address(SERVER, 24)
                .with_address(SERVER6, 64),
        ];
        let mut inner = ["lan", "wan"].into_iter();
        let links = ends.map(|end| {
            let inner = LinkEnd::new(&bridge, inner.next().unwrap());
            Veth::between(end, inner)
                .offloads(offloads)
                .build()
                .unwrap()
        });
        let made = Bridge {
            client,
            bridge,
            server,
            links,
        };
        made.join();
        made
    }

    fn join(&self) {
        let lines = [
            "link add br0 type bridge mcast_snooping 0 forward_delay 0".to_owned(),
            "link set lan master br0".to_owned(),
            "link set wan master br0".to_owned(),
            format!("address add {BRIDGE}/24 dev br0"),
            "link set br0 up".to_owned(),
        ];
        self.bridge.ip_batch(&lines).unwrap();
    }

    pub fn opening(&self) -> Opening {
        let mut opening = Opening::between("lan", "wan");
        opening.redirect.own = vec![self.mac("br0")];
        opening
    }

    pub fn mac(&self, name: &str) -> [u8; 6] {
        let shown = self
            .bridge
            .run(&["ip", "-br", "link", "show", name])
            .unwrap();
        let text = shown.split_whitespace().nth(2).unwrap().to_owned();
        let bytes: Vec<u8> = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        bytes.try_into().unwrap()
    }

    pub fn open(&self, opening: &Opening) -> anyhow::Result<Carrier> {
        self.bridge.enter(|| opening.open()).unwrap()
    }

    /// A forwarder on a separate thread.
    pub fn carry(&self, opening: &Opening) -> Carrying {
        let Carrier { port, redirects } = self.open(opening).unwrap();
        let all = port.frames().all();
        let fifo = Fifo::new(port.len(), 512);
        let forwarder = Forwarder::new(port, &opening.pairs(), fifo).unwrap();
        let stop = Stop::new().unwrap();
        let requested = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut forwarder = forwarder;
            forwarder.run(&requested, |_| ());
            forwarder
        });
        Carrying {
            stop,
            thread,
            redirects,
            all,
        }
    }

    /// Sends datagrams from any port of the client, without waiting for anything.
    pub fn send(&self, to: impl Into<IpAddr>, datagrams: u32, bytes: usize) {
        let to = SocketAddr::new(to.into(), 7777);
        let from: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let send = || {
            let socket = UdpSocket::bind(from).unwrap();
            for i in 0..datagrams {
                socket.send_to(&vec![i as u8; bytes], to).unwrap();
            }
        };
        self.client.enter(send).unwrap();
    }
}

/// A running forwarder.
pub struct Carrying {
    stop: Stop,
    thread: JoinHandle<Forwarder<Fifo>>,
    pub redirects: Redirects,
    all: u32,
}

impl Carrying {
    /// Ends it, and looks whether every frame and packet is accounted for.
    pub fn end(self) -> (ForwardCounts, FrameCounts) {
        self.stop.request();
        let forwarder = self.thread.join().unwrap();
        assert_accounted(&forwarder, self.all);
        let counts = forwarder.counts();
        let frames = forwarder.port().frames();
        (counts, frames)
    }
}

pub fn assert_accounted(forwarder: &Forwarder<Fifo>, all: u32) {
    let (counts, frames) = (forwarder.counts(), forwarder.port().frames());
    assert_eq!(frames.all(), all, "{frames:?}");
    assert_eq!(forwarder.port().strays(), 0);
    assert_eq!(
        u64::from(frames.held),
        counts.held(),
        "{counts:?} {frames:?}"
    );
    assert_eq!(forwarder.order().waiting() as u64, counts.held());
    assert_eq!(
        (forwarder.order().full(), counts.no_capacity),
        (counts.dropped, 0)
    );
}

/// Pings once, so that the bridge and both hosts know each other.
pub fn learn(bridge: &Bridge) {
    let ping = Ping::to(SERVER)
        .count(5)
        .interval(Duration::from_millis(200));
    assert!(ping.run(&bridge.client).unwrap().received > 0, "learn");
}

/// Turns a forwarder until it has nothing to do and nothing under way.
pub fn run_dry(forwarder: &mut Forwarder<Fifo>) {
    let dry = wait_for(PATIENCE, || {
        let worked = forwarder.turn();
        let frames = forwarder.port().frames();
        (!worked && frames.sending == 0 && frames.held == 0).then_some(())
    });
    assert!(dry.is_some(), "{:?}", forwarder.port().frames());
}
