//! Stages of the one XDP program of an interface: they compose, exist as long as their owners, and
//! never replace the program of another owner.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_bpf::{
    Attached, Dropper, Hook, Loss, LossOptions, Options, Pins, Redirect, RedirectOptions,
    RttMonitor,
};
use fairpath_core::Config;
use fairpath_core::sched::{LossConfig, LossModel};
use fairpath_testbed::{LinkEnd, Need, Netns, Testbed, Veth, requires};
use fairpath_units::IfIndex;
use nix::time::{ClockId, clock_gettime};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const PORT: u16 = 9;
const LAN: &str = "lan";
/// Of processor time, for a stage to be verified, loaded and attached.
const LOAD: Duration = Duration::from_secs(2);

struct Net {
    client: Netns,
    router: Netns,
    _link: Veth,
}

fn net() -> Net {
    let testbed = Testbed::new();
    let (client, router) = (
        testbed.netns("client").unwrap(),
        testbed.netns("router").unwrap(),
    );
    let link = Veth::between(
        LinkEnd::new(&client, "eth0").with_address(CLIENT, 24),
        LinkEnd::new(&router, LAN).with_address(ROUTER, 24),
    );
    let _link = link.build().unwrap();
    Net {
        client,
        router,
        _link,
    }
}

fn lan() -> IfIndex {
    IfIndex(nix::net::if_::if_nametoindex(LAN).unwrap())
}

fn monitor() -> RttMonitor {
    RttMonitor::load(&Options::live(Config::default().with_flows(1024))).unwrap()
}

fn measure(monitor: &mut RttMonitor) -> Attached {
    monitor.attach(Hook::Xdp, lan(), LAN, false).unwrap()
}

/// Loses IP packets to one host, by a pattern of as many bits.
fn loss(pattern: u64, bits: u32) -> Loss {
    let mut loss = LossConfig {
        model: LossModel::Pattern as u32,
        bits,
        ..LossConfig::default()
    };
    loss.pattern[0] = pattern;
    let options = LossOptions {
        loss,
        all: false,
        mtu_bytes: 1500,
    };
    Loss::load(&options).unwrap()
}

fn impair(loss: &mut Loss) {
    loss.attach(lan(), LAN).unwrap();
}

/// The XDP program of the interface, by `ip`.
fn program() -> Option<String> {
    let reported = std::process::Command::new("ip")
        .args(["-details", "link", "show", LAN])
        .output();
    let reported = String::from_utf8(reported.unwrap().stdout).unwrap();
    let at = reported.find("prog/xdp")?;
    Some(reported[at..].lines().next().unwrap().to_owned())
}

/// Sends datagrams from the client; those that arrive are counted. Each waits for its answer, so
/// that a buffer never loses one.
struct Traffic {
    /// Of who asks, and of who answers.
    stop: [Arc<AtomicBool>; 2],
    sent: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// For packets that were sent to be seen: milliseconds, on a machine that is not busy.
const SEEN: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_millis(500);

impl Traffic {
    fn start(net: &Net) -> Traffic {
        let stop = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (sent, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let server = net
            .router
            .enter(|| UdpSocket::bind((ROUTER, PORT)).unwrap());
        let client = net.client.enter(|| {
            let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
            socket.connect((ROUTER, PORT)).unwrap();
            socket
        });
        let (server, client) = (server.unwrap(), client.unwrap());
        server.set_read_timeout(Some(ANSWER)).unwrap();
        client.set_read_timeout(Some(ANSWER)).unwrap();
        let ends = Arc::clone(&stop[1]);
        let answers = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = server.recv_from(&mut buffer) {
                    server.send_to(&buffer[..bytes], from).unwrap();
                }
            }
        });
        let (ends, counted, missed) = (Arc::clone(&stop[0]), Arc::clone(&sent), Arc::clone(&lost));
        let queries = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !ends.load(Ordering::Relaxed) {
                client.send(&[1; 32]).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                if client.recv(&mut buffer).is_err() {
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Traffic {
            stop,
            sent,
            lost,
            threads: vec![queries, answers],
        }
    }

    /// Sent, and not answered.
    fn end(mut self) -> (u64, u64) {
        // Who answers ends after the last question.
        for (stop, thread) in self.stop.iter().zip(self.threads.drain(..)) {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
        (
            self.sent.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed),
        )
    }
}

/// `count` datagrams to the router, as fast as one sends.
fn send(net: &Net, count: usize) {
    let send = || {
        let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
        for _ in 0..count {
            socket.send_to(&[0; 32], (ROUTER, PORT)).unwrap();
        }
    };
    net.client.enter(send).unwrap();
}

/// Waits until `read` returns at least `min`, without result for [`SEEN`] at most; returns what it read last.
fn until(min: u64, mut read: impl FnMut() -> u64) -> u64 {
    let mut last = 0;
    fairpath_testbed::wait_for(SEEN, || {
        last = read();
        (last >= min).then_some(())
    });
    last
}

#[test]
fn impaired_drops_are_not_measured() {
    requires!(Need::Root);
    let net = net();
    let compose = |impair_first: bool| {
        let (mut loss, mut monitor) = (loss(0b0110, 4), monitor());
        let _attached = if impair_first {
            impair(&mut loss);
            measure(&mut monitor)
        } else {
            let attached = measure(&mut monitor);
            impair(&mut loss);
            attached
        };
        send(&net, 1);
        assert!(until(1, || loss.counts().unwrap().arrived) >= 1);
        let (before, seen) = (loss.counts().unwrap(), monitor.stats().frames);
        send(&net, 1000);
        until(before.arrived + 1000, || loss.counts().unwrap().arrived);
        // The two are read one after the other: they agree once nothing is under way.
        let agreed = fairpath_testbed::wait_for(SEEN, || {
            let (after, now) = (loss.counts().unwrap(), monitor.stats().frames);
            let arrived = after.arrived - before.arrived;
            let lost = after.lost - before.lost;
            let exempt = after.exempt - before.exempt;
            assert!((1000..1010).contains(&arrived), "{arrived}");
            assert!(lost.abs_diff(arrived / 2) <= 2, "{lost} of {arrived}");
            (now - seen == arrived - lost + exempt).then_some(())
        });
        let counts = (before, loss.counts().unwrap());
        let measured = monitor.stats().frames - seen;
        assert!(agreed.is_some(), "{measured} measured, {counts:?}");
    };
    for impair_first in [true, false] {
        net.router.enter(|| compose(impair_first)).unwrap();
    }
}

/// Each is removed at once with its owner, the other continues, and the root is removed with the last.
#[test]
fn stages_end_with_owners_and_root_with_last() {
    requires!(Need::Root, Need::Tool("ip"));
    let net = net();
    let come_and_go = || {
        assert_eq!(program(), None);
        let (mut all, mut monitor) = (loss(1, 1), monitor());
        let attached = measure(&mut monitor);
        impair(&mut all);
        assert!(program().unwrap().contains("fairpath_xdp"));
        send(&net, 100);
        assert_eq!(until(100, || all.counts().unwrap().lost), 100);
        all.detach();
        let before = monitor.stats().frames;
        send(&net, 100);
        assert!(until(before + 100, || monitor.stats().frames) >= before + 100);
        assert_eq!(all.counts().unwrap().lost, 100);
        impair(&mut all);
        drop(attached);
        let (before, lost) = (monitor.stats().frames, all.counts().unwrap().lost);
        send(&net, 100);
        let lost_now = until(lost + 100, || all.counts().unwrap().lost);
        assert_eq!(lost_now, lost + 100);
        assert_eq!(monitor.stats().frames, before);
        assert!(program().is_some());
        all.detach();
        assert_eq!(program(), None);
    };
    net.router.enter(come_and_go).unwrap();
}

#[test]
fn stage_changes_lose_no_packet() {
    requires!(Need::Root);
    let net = net();
    let come_and_go = || {
        let (mut none, mut monitor) = (loss(0, 1), monitor());
        let attached = measure(&mut monitor);
        // A veth changes how it receives with the first XDP program, and with the last.
        let traffic = Traffic::start(&net);
        for _ in 0..50 {
            impair(&mut none);
            std::thread::sleep(Duration::from_millis(5));
            none.detach();
        }
        assert!(none.counts().unwrap().arrived > 0);
        impair(&mut none);
        drop(attached);
        for _ in 0..50 {
            let attached = measure(&mut monitor);
            std::thread::sleep(Duration::from_millis(5));
            drop(attached);
        }
        let (sent, lost) = traffic.end();
        assert_eq!(lost, 0, "of {sent}");
        assert!(sent > 1000, "{sent}");
    };
    net.router.enter(come_and_go).unwrap();
}

/// Pairs that were refused when each stage had a separate program, with the earlier message.
#[test]
fn stages_that_do_not_compose_are_refused() {
    requires!(Need::Root);
    let net = net();
    let refuse = || {
        let mut redirect = Redirect::load(&RedirectOptions::default()).unwrap();
        let (mut first, mut second) = (loss(0, 1), loss(0, 1));
        let (mut monitor, mut other) = (monitor(), monitor());
        let holds = |error: &dyn std::error::Error, name: &str| {
            let text = error.to_string();
            let held = format!("the XDP program \"{name}\" (id ");
            assert!(text.contains("attach XDP to \"lan\""), "{text}");
            assert!(
                text.contains(&held) && text.contains("holds this hook"),
                "{text}"
            );
        };
        impair(&mut first);
        holds(&second.attach(lan(), LAN).unwrap_err(), "impair");
        holds(&redirect.attach(lan(), LAN).unwrap_err(), "impair");
        first.detach();
        let attached = measure(&mut monitor);
        holds(
            &other.attach(Hook::Xdp, lan(), LAN, false).unwrap_err(),
            "rtt_xdp",
        );
        holds(&redirect.attach(lan(), LAN).unwrap_err(), "rtt_xdp");
        drop(attached);
        redirect.attach(lan(), LAN).unwrap();
        holds(&second.attach(lan(), LAN).unwrap_err(), "redirect");
        holds(
            &other.attach(Hook::Xdp, lan(), LAN, false).unwrap_err(),
            "redirect",
        );
        drop(redirect);
        second.attach(lan(), LAN).unwrap();
    };
    net.router.enter(refuse).unwrap();
}

#[test]
fn other_xdp_programs_are_named_and_kept() {
    requires!(Need::Root, Need::Tool("ip"));
    let net = net();
    let existing = || {
        let dropper = Dropper::attach(lan(), LAN, 0.0, 0).unwrap();
        let mut none = loss(0, 1);
        let error = none.attach(lan(), LAN).unwrap_err().to_string();
        assert!(error.contains("the XDP program \"drop\""), "{error}");
        assert!(program().unwrap().contains("name drop"), "{:?}", program());
        drop(dropper);
        impair(&mut none);
        let error = Dropper::attach(lan(), LAN, 0.0, 0).unwrap_err().to_string();
        assert!(
            error.contains("the XDP program \"fairpath_xdp\""),
            "{error}"
        );
        assert!(program().unwrap().contains("fairpath_xdp"));
        none.detach();
        assert_eq!(program(), None);
    };
    net.router.enter(existing).unwrap();
}

#[test]
fn a_pinned_stage_outlives_its_owner() {
    requires!(Need::Root, Need::Tool("ip"));
    let net = net();
    let folder = tempfile::tempdir().unwrap();
    let outlive = |at: &Path| {
        let pins = Pins::at(at).unwrap();
        let mut monitor = monitor();
        // Half a pin does not stay in the way of the next one.
        std::fs::create_dir(at.join("measure-link")).unwrap();
        assert!(measure(&mut monitor).pin(&at.join("measure")).is_err());
        std::fs::remove_dir(at.join("measure-link")).unwrap();
        measure(&mut monitor).pin(&at.join("measure")).unwrap();
        assert!(program().unwrap().contains("fairpath_xdp"));
        let mut all = loss(1, 1);
        impair(&mut all);
        all.detach();
        let before = monitor.stats().frames;
        send(&net, 100);
        assert!(until(before + 100, || monitor.stats().frames) >= before + 100);
        for name in ["measure", "measure-link"] {
            assert!(pins.remove(name).unwrap(), "{name}");
        }
        let removed = fairpath_testbed::wait_for(Duration::from_secs(1), || {
            program().is_none().then_some(())
        });
        assert!(removed.is_some(), "{:?}", program());
        pins.unmount().unwrap();
    };
    net.router
        .enter(|| outlive(&folder.path().join("pins")))
        .unwrap();
}

/// Processor time of this thread: what others do on the machine does not count.
fn timed<T>(what: &str, body: impl FnOnce() -> T) -> T {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begin = now();
    let result = body();
    let took = now() - begin;
    println!("{what}: {} ms", took.as_millis());
    assert!(took < LOAD, "{what}: {took:?}");
    result
}

#[test]
fn every_stage_attaches_within_two_seconds() {
    requires!(Need::Root);
    let net = net();
    let load = || {
        let mut none = timed("impair, load", || loss(0, 1));
        timed("impair, attach (root)", || impair(&mut none));
        let mut monitor = timed("measure, load", monitor);
        let attached = timed("measure, attach (join)", || measure(&mut monitor));
        drop((none, monitor, attached));
        let options = Options::live(Config::default().with_flows(1024)).with_forwarding();
        let mut monitor = timed("forward, load", || RttMonitor::load(&options).unwrap());
        let attached = timed("forward, attach (root)", || {
            monitor.attach_forward(lan(), LAN).unwrap()
        });
        drop(attached);
        let options = RedirectOptions::default();
        let mut redirect = timed("redirect, load", || Redirect::load(&options).unwrap());
        timed("redirect, attach (root)", || {
            redirect.attach(lan(), LAN).unwrap()
        });
    };
    net.router.enter(load).unwrap();
}

/// Anybody may lock the namespace's file, without any right: that makes joining slow, and no longer.
#[test]
fn a_held_lock_does_not_prevent_joining() {
    requires!(Need::Root);
    let net = net();
    let join = || {
        let space = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        space.lock().unwrap();
        let (mut none, mut monitor) = (loss(0, 1), monitor());
        impair(&mut none);
        let _attached = measure(&mut monitor);
        send(&net, 100);
        assert!(until(100, || none.counts().unwrap().arrived) >= 100);
        assert!(until(100, || monitor.stats().frames) >= 100);
    };
    net.router.enter(join).unwrap();
}
