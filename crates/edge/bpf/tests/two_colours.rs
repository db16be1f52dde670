//! Reloads under traffic: every packet is counted in a class that the old or the new rules give it.
//!
//! ```text
//!   client ── UDP and TCP ── router: monitor on `lan`, rules change a thousand times
//! ```
//!
//! Colours are slots 1, 2, 3; each configuration maps all addresses to the next one, in addition to
//! a thousand unused prefixes. While one follows another, the third colour must not move.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fairpath_bpf::{Attached, Hook, Options, RttMonitor};
use fairpath_core::{ClassReading, Config, DOWN, Prefix, Rules, UP};
use fairpath_testbed::{LinkEnd, Need, Netns, Testbed, Veth, requires};
use fairpath_units::IfIndex;

const RELOADS: u64 = 1000;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
/// Traffic that a thousand reloads must have met at least.
const MIN_PACKETS: u64 = 100_000;

/// All addresses lead to `colour`; a thousand others to separate slots.
fn rules(colour: u32) -> Rules {
    let everything = ["0.0.0.0", "::"].map(|a| (Prefix::new(a.parse().unwrap(), 0), colour));
    let decoys = (0..1000u32).map(|i| {
        let address = Ipv4Addr::from(0xc612_0000 + (i + colour) * 32);
        (Prefix::new(address.into(), 24 + (i % 9) as u8), 10 + i)
    });
    let mut prefixes: Vec<(Prefix, u32)> = everything.into_iter().chain(decoys).collect();
    prefixes.sort_unstable();
    prefixes.dedup_by_key(|(prefix, _)| *prefix);
    Rules {
        prefixes,
        ..Rules::default()
    }
}

/// Sends until it is stopped; joined when dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Takes datagrams until its buffer is full; without it, each would be answered.
    _sink: UdpSocket,
}

impl Traffic {
    fn start(client: &Netns, router: &Netns) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let (sink, listener) = router
            .enter(|| {
                let sink = UdpSocket::bind((ROUTER, 9)).unwrap();
                let listener = TcpListener::bind((ROUTER, 7)).unwrap();
                (sink, listener)
            })
            .unwrap();
        let (datagrams, stream) = client
            .enter(|| {
                let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
                let to: SocketAddr = (ROUTER, 7).into();
                (socket, TcpStream::connect(to).unwrap())
            })
            .unwrap();
        let (served, _) = listener.accept().unwrap();
        let threads = vec![
            spawn(&stop, move || {
                let _ = datagrams.send_to(&[0; 64], (ROUTER, 9));
            }),
            echo(&stop, stream, true),
            echo(&stop, served, false),
        ];
        Traffic {
            stop,
            threads,
            _sink: sink,
        }
    }
}

fn spawn(stop: &Arc<AtomicBool>, mut step: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            step();
        }
    })
}

/// One byte to and fro, so that there is a flow with samples.
fn echo(stop: &Arc<AtomicBool>, mut stream: TcpStream, first: bool) -> JoinHandle<()> {
    stream.set_nodelay(true).unwrap();
    let patience = std::time::Duration::from_millis(200);
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut ours = first;
    spawn(stop, move || {
        let mut byte = [0];
        if ours {
            let _ = stream.write_all(&byte);
        }
        ours = stream.read(&mut byte).is_ok_and(|n| n == 1);
    })
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn attach(monitor: &mut RttMonitor, router: &Netns) -> Vec<Attached> {
    let index = router.enter(|| nix::net::if_::if_nametoindex("lan").unwrap());
    let index = IfIndex(index.unwrap());
    // A monitor stays on its thread, which therefore visits the namespace.
    let ns = std::fs::File::open(router.path()).unwrap();
    let runtime = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    nix::sched::setns(&ns, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let hooks = [Hook::TcxIngress, Hook::TcxEgress];
    let attached = hooks.map(|hook| monitor.attach(hook, index, "lan", false));
    nix::sched::setns(&runtime, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    attached.into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_thousand_reloads_under_traffic_miscount_no_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let (client, router) = (
        testbed.netns("client").unwrap(),
        testbed.netns("router").unwrap(),
    );
    let _link = Veth::between(
        LinkEnd::new(&client, "eth0").with_address(CLIENT, 24),
        LinkEnd::new(&router, "lan").with_address(ROUTER, 24),
    )
    .build()
    .unwrap();
    let mut config = Config::default().with_flows(1024).with_classes(1100);
    config.quiet = 1;
    let mut monitor = RttMonitor::load(&Options::live(config)).unwrap();
    monitor.set_rules(&rules(1), &[]).unwrap();
    let attached = attach(&mut monitor, &router);
    let traffic = Traffic::start(&client, &router);
    let images = [1, 2, 3].map(rules);
    let mut reading = ClassReading::default();
    let packets = |reading: &ClassReading, slot: usize| {
        reading.counts[slot].dir[UP].packets + reading.counts[slot].dir[DOWN].packets
    };
    monitor.read_classes(&mut reading);
    for turn in 0..RELOADS {
        let (old, new) = (turn % 3, (turn + 1) % 3);
        let third = (turn as usize + 2) % 3 + 1;
        let before = packets(&reading, third);
        monitor.set_rules(&images[new as usize], &[]).unwrap();
        monitor.read_classes(&mut reading);
        let after = packets(&reading, third);
        assert_eq!(before, after, "reload {turn}: from colour {old} to {new}");
    }
    drop(traffic);
    drop(attached);
    monitor.read_classes(&mut reading);
    let stats = monitor.stats();
    let coloured: u64 = (1..=3).map(|slot| packets(&reading, slot)).sum();
    // Both ends of each packet are counted at the one watched interface.
    assert_eq!(coloured, 2 * (stats.frames - stats.not_ip));
    assert!(coloured >= MIN_PACKETS, "{coloured} packets only");
    let elsewhere: u64 = (4..1100)
        .chain([0])
        .map(|slot| packets(&reading, slot))
        .sum();
    assert_eq!(elsewhere, 0);
    println!("{coloured} packets, {} round trips", stats.samples_seq);
}
