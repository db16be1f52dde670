//! Ten thousand classes, of which a thousand come, go or change while packets pass.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_core::{Prefix, Rules};
use fairpath_netlink::{HTB_MAJOR, HtbClass, HtbTree};
use fairpath_testbed::{Need, Offloads, Router, requires, wait_for};
use fairpath_tests::htb::{LINE, OTHER, class, tree};
use nix::sys::socket::{setsockopt, sockopt};

use super::site::{PATIENCE, PORT, Site};

const CLASSES: u16 = 10_000;
const CHANGED: u16 = 1_000;
/// Of the first subscriber; the others follow. Of its streets, a hundred subscribers each.
const FIRST: u16 = 10_000;
const STREETS: u16 = 100;
const BPS: u64 = 50_000_000;
/// This one goes, and its queue is long when it does: twenty seconds, since the kernel may need ten for the
/// others where memory is slow.
const SLOW: u16 = 7;
const SLOW_BPS: u64 = 1_000;
/// Its burst sends twelve at once, and its FIFO holds twelve.
const WAITING: u64 = 20;
/// Between two datagrams.
const GAP: Duration = Duration::from_micros(500);

/// Subscriber `n` has 10.20.x.y, in both configurations.
fn address(n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 20, high, low)
}

/// Subscribers `from` to `from + CLASSES`, with class numbers from 1 on, on streets and sites.
fn network(from: u16, changed_bps: u64) -> (HtbTree, Rules, Vec<u16>) {
    let mut classes: Vec<HtbClass> = Vec::new();
    for site in 0..10 {
        classes.push(class(STREETS + 200 + site, LINE, BPS, 10 * BPS));
    }
    for street in 0..120 {
        classes.push(class(
            STREETS + street,
            STREETS + 200 + street % 10,
            BPS,
            10 * BPS,
        ));
    }
    let subscribers = from..from + CLASSES;
    for n in subscribers.clone() {
        let (bps, ceil) = match n {
            SLOW => (SLOW_BPS, SLOW_BPS),
            n if n < 2 * CHANGED => (changed_bps, BPS * 2),
            _ => (BPS, BPS * 2),
        };
        classes.push(class(FIRST + n, STREETS + n / 100, bps, ceil));
    }
    let prefixes = subscribers
        .clone()
        .map(|n| Prefix::new(address(n).into(), 32));
    let rules = Rules {
        prefixes: prefixes.zip(1..).collect(),
        ..Rules::default()
    };
    let minors = [OTHER].into_iter().chain(subscribers.map(|n| FIRST + n));
    assert!(!classes.iter().any(|c| c.minor == HTB_MAJOR));
    (tree(1_000_000_000, &classes), rules, minors.collect())
}

#[test]
fn changing_1000_of_10000_classes_loses_no_packet() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let theirs = "address add 10.20.0.0/16 dev lo".to_owned();
    site.net.client.ip_batch(&[theirs]).unwrap();
    let via = format!("route add 10.20.0.0/16 via {}", Router::CLIENT.v4);
    site.net.router.ip_batch(&[via]).unwrap();
    let (tree, rules, minors) = network(0, BPS);
    let began = Instant::now();
    let mut shaped = site.shape(&tree, &rules, &minors);
    println!(
        "{} classes: ready in {:?}",
        tree.classes.len(),
        began.elapsed()
    );
    let (next, rules, minors) = network(CHANGED, BPS / 2);
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let sink = site.net.client.enter(receiver).unwrap();
    let source = site
        .net
        .server
        .enter(|| UdpSocket::bind("0.0.0.0:0").unwrap())
        .unwrap();
    let sent = thread::scope(|scope| {
        let _end = End(&stop);
        let counting = scope.spawn(|| receive(&sink, &stop, &received));
        let sending = scope.spawn(|| send(&source, &stop));
        let begun = wait_for(PATIENCE, || {
            (received.load(Ordering::Relaxed) > 200).then_some(())
        });
        begun.expect("traffic begins");
        for _ in 0..WAITING {
            source.send_to(&[0; 200], (address(SLOW), PORT)).unwrap();
        }
        let waiting = wait_for(PATIENCE, || {
            let waiting = shaped.class(FIRST + SLOW).unwrap().backlog_packets;
            (waiting > 5).then_some(waiting)
        });
        assert!(waiting.is_some(), "nothing waits in the class that goes");
        let began = Instant::now();
        let applied = shaped.apply(&next).unwrap();
        let changed = began.elapsed();
        shaped.mark.set(&rules, &minors).unwrap();
        let mut stale = shaped.retire(&applied.stale).unwrap();
        assert!(stale.contains(&(FIRST + SLOW)), "what is not empty stays");
        let removed = wait_for(PATIENCE, || {
            stale = shaped.retire(&stale).unwrap();
            stale.is_empty().then_some(())
        });
        println!(
            "changed in {changed:?}, old ones gone after {:?}",
            began.elapsed()
        );
        assert_eq!(removed, Some(()), "{} are left", stale.len());
        assert_eq!(applied.added, usize::from(CHANGED));
        assert_eq!(
            applied.changed,
            usize::from(CHANGED),
            "only those whose rate changed"
        );
        assert_eq!(applied.stale.len(), usize::from(CHANGED));
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap() + WAITING;
        wait_for(PATIENCE, || {
            (received.load(Ordering::Relaxed) == sent).then_some(())
        });
        drop(counting);
        sent
    });
    println!("{sent} datagrams during the change");
    assert_eq!(received.load(Ordering::Relaxed), sent);
}

/// Ends the threads when the test fails, too.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// To old, new, changed and unchanged subscribers in turn.
fn send(socket: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let n = (sent * 97 % u64::from(CLASSES + CHANGED)) as u16;
        socket.send_to(&[0; 200], (address(n), PORT)).unwrap();
        sent += 1;
        thread::sleep(GAP);
    }
    sent
}

fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    socket
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, received: &AtomicU64) {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => {
                received.fetch_add(1, Ordering::Relaxed);
            }
            // Silence after the end: all that will come has come.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(_) => {}
        }
    }
}
