//! Tables and chains are replaced while two CPUs forward packets as fast as one generator each can send.
//!
//! ```text
//!   outside                          router
//!   clients  ─── l0..l3 ───────────  raw ─ filter ─ chain c      four links of two senders
//!   servers  ─── w0..w3 ───────────  and back
//! ```
//!
//! Each sender has two pairs of links. All packets of the mixed one are dropped by each set of rules, but
//! by other rules of it: a packet that meets parts of two sets arrives. No packet of the whole one is
//! dropped by any set.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Attached, Hook, Injector, Side, Sink, Traffic};
use fairpath_testbed::{LinkEnd, Need, Netns, Testbed, Veth, requires, wait_for};
use fairpath_units::{IfIndex, Share};
use fairpath_wire::{Frame, ipv4};
use nix::net::if_::if_nametoindex;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::live::Router;

/// Replacements of tables, and as many of a chain.
const CHANGES: u64 = 500;
const SENDERS: usize = 2;
/// Replacements of tables under lists of packets.
const LISTED: u64 = 100;
/// Packets of a call of the generator: about 10 ms.
const CALL: u32 = 10_000;
/// Data packets without an answer.
const LAG: u32 = 1;
/// Rules between those that drop.
const OTHERS: usize = 100;
/// Time for a call, or for packets on their way.
const PATIENCE: Duration = Duration::from_secs(20);

/// The client that table raw drops, and the one that chain `c` leaves to it, of each set.
const COLOURS: [(u8, u8); 2] = [(1, 2), (2, 1)];

/// A rule of a table, for both directions of the flow of a client.
fn drops(chain: &str, client: u8) -> String {
    format!(
        "-A {chain} -i mix+ -s 10.64.0.{client} -j DROP\n-A {chain} -i mix+ -d 10.64.0.{client} -j DROP\n"
    )
}

/// Rules of chain `c`. Client 3 is dropped by the first rules or by the last ones, and the one that table
/// raw leaves by the others. A part of each accepts one of them.
fn chain(late: u8, third_first: bool) -> String {
    let others = (0..OTHERS).map(|at| format!("-A c -s 10.0.0.{at} -j DROP\n"));
    let [first, last] = match third_first {
        true => [3, late],
        false => [late, 3],
    };
    drops("c", first) + &others.collect::<String>() + &drops("c", last)
}

/// A set of one colour: table raw drops one client, and chain `c` of table filter the others.
fn colour(early: u8, late: u8) -> String {
    format!(
        "*raw\n{}COMMIT\n*filter\n:c - [0:0]\n-A FORWARD -j c\n{}COMMIT\n",
        drops("PREROUTING", early),
        chain(late, true)
    )
}

fn ifindex(netns: &Netns, name: &str) -> IfIndex {
    let index = netns.enter(|| if_nametoindex(name)).unwrap();
    IfIndex(index.unwrap())
}

/// Two links of the router, with routes between them only.
struct Links {
    clients: Side,
    servers: Side,
    outside: [String; 2],
    router: [String; 2],
}

impl Links {
    fn new(outside: &Netns, router: &Netns, number: usize, name: &str) -> Links {
        let table = (100 + number).to_string();
        let side = |at: usize, network: &str| {
            let address = |host| Ipv4Addr::new(10, 10, (2 * number + at) as u8, host);
            let names = [format!("out{number}{at}"), format!("{name}{number}{at}")];
            let outer = LinkEnd::new(outside, &names[0]).with_address(address(2), 24);
            let inner = LinkEnd::new(router, &names[1]).with_address(address(1), 24);
            let veth = Veth::between(outer, inner).build().unwrap();
            veth.fix_neighbours().unwrap();
            let gateway = IpAddr::from(address(2)).to_string();
            let route = ["ip", "route", "add", network, "via", &gateway];
            let words = [&route[..], &["table", &table]].concat();
            router.run(&words).unwrap();
            let rule = ["ip", "rule", "add", "iif", &names[1], "lookup", &table];
            router.run(&rule).unwrap();
            let ends = Side {
                ifindex: ifindex(outside, &names[0]),
                mac: veth.left().mac().0,
                router: veth.right().mac().0,
            };
            (ends, names)
        };
        let (clients, [outer, inner]) = side(0, "10.64.0.0/10");
        let (servers, [far_outer, far_inner]) = side(1, "10.128.0.0/10");
        Links {
            clients,
            servers,
            outside: [outer, far_outer],
            router: [inner, far_inner],
        }
    }

    fn traffic(&self, flows: u32) -> Traffic {
        Traffic {
            clients: self.clients,
            servers: self.servers,
            flows,
            ip_bytes: 64,
            lag: LAG,
            sink: Sink::Xdp,
            fan: None,
        }
    }

    /// Packets that the queues of the links had no place for, before and behind the router.
    fn refused(&self, outside: &Netns, router: &Netns) -> u64 {
        let ends = [(outside, &self.outside), (router, &self.router)];
        let all = ends.iter().flat_map(|(netns, names)| {
            let counters = |name| netns.link_counters(name).unwrap();
            names.iter().map(move |name| counters(name).tx_dropped)
        });
        all.sum()
    }
}

/// A sender at its end.
#[derive(Debug, Default)]
struct Sent {
    mixed: u64,
    mixed_arrived: u64,
    whole: u64,
    whole_arrived: u64,
    whole_refused: u64,
}

/// Sends on one CPU until `done`. Counts calls that are over.
fn send(
    cpu: usize,
    [mixed, whole]: &[Links; 2],
    [outside, router]: [&Netns; 2],
    done: &AtomicBool,
    calls: &AtomicU64,
) -> Sent {
    let one = || {
        let mut cpus = CpuSet::new();
        cpus.set(cpu).unwrap();
        sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
        let all_dropped = Injector::new(&mixed.traffic(3)).unwrap();
        let all_passed = Injector::new(&whole.traffic(1)).unwrap();
        while !done.load(Ordering::Relaxed) {
            all_dropped.send(CALL).unwrap();
            all_passed.send(CALL).unwrap();
            calls.fetch_add(1, Ordering::Relaxed);
        }
        // The first answers are not sent.
        let sent = all_passed.sent() - u64::from(LAG);
        let there = || all_passed.arrived().packets() + whole.refused(outside, router);
        wait_for(PATIENCE, || (there() == sent).then_some(()));
        Sent {
            mixed: all_dropped.sent() - u64::from(LAG),
            mixed_arrived: all_dropped.arrived().packets(),
            whole: sent,
            whole_arrived: all_passed.arrived().packets(),
            whole_refused: whole.refused(outside, router),
        }
    };
    outside.enter(one).unwrap()
}

/// A veth takes the generator's frames only with an XDP program.
fn take_frames<'a>(
    router: &Netns,
    links: impl IntoIterator<Item = &'a Links> + Send,
) -> (Empty, Vec<Attached>) {
    let attach = || {
        let mut empty = Empty::load().unwrap();
        let names = links.into_iter().flat_map(|one| &one.router);
        let attached = names.map(|name| {
            let index = IfIndex(if_nametoindex(&name[..]).unwrap());
            empty.attach(Hook::Xdp, index, name).unwrap()
        });
        let attached = attached.collect();
        (empty, attached)
    };
    router.enter(attach).unwrap()
}

#[test]
fn forwarded_packets_meet_no_mixture() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let testbed = Testbed::new();
    let outside = testbed.netns("outside").unwrap();
    let router = Router::new(testbed.netns("colours").unwrap());
    router.netns.set_forwarding(true).unwrap();
    let links: [[Links; 2]; SENDERS] = std::array::from_fn(|sender| {
        let pair = |at: usize, name| Links::new(&outside, &router.netns, 2 * sender + at, name);
        [pair(0, "mix"), pair(1, "all")]
    });
    let _takes_frames = take_frames(&router.netns, links.iter().flatten());
    let tables = tables_of(&router);
    let chains = COLOURS.map(|(early, late)| {
        let name = format!("chain{early}");
        router.file(&name, &chain(late, false))
    });
    router.done(&["load", &tables[1]]);
    let changes = Share::reported().of(CHANGES);
    let done = AtomicBool::new(false);
    let calls: [AtomicU64; SENDERS] = Default::default();
    let netns = [&outside, &router.netns];
    let mut edits = 0;
    let sent = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (links, calls, done) = (&links[sender], &calls[sender], &done);
                scope.spawn(move || send(sender, links, netns, done, calls))
            })
            .collect();
        // Each sender has sent packets to the present rules: one call of each has begun since the last change.
        let met = || {
            let before = calls.each_ref().map(|one| one.load(Ordering::Relaxed));
            let ahead = |(one, before): (&AtomicU64, u64)| one.load(Ordering::Relaxed) > before + 1;
            let all = || calls.iter().zip(before).all(ahead).then_some(());
            wait_for(PATIENCE, all).is_some()
        };
        let mut whole = true;
        for change in 0..changes as usize {
            router.done(&["load", &tables[change % 2]]);
            whole &= met();
            router.done(&["replace-chain", "c", &chains[change % 2]]);
            whole &= met();
            edits += shown(&router, "edits");
            if !whole {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        let sent = senders.into_iter().map(|sender| sender.join().unwrap());
        let sent: Vec<Sent> = sent.collect();
        assert!(whole, "a sender stopped: {sent:?}");
        sent
    });
    println!("{changes} replacements of tables and of a chain: {sent:?}");
    let parked = shown(&router, "packets_parked");
    for one in &sent {
        assert_eq!(one.mixed_arrived, 0, "mixtures: {sent:?}");
        assert_eq!(one.whole_arrived + one.whole_refused, one.whole, "{sent:?}");
        // Two calls of each generator are over before the next change: two changes in a round.
        let minimum = 4 * changes * u64::from(CALL);
        assert!(
            one.mixed >= minimum && one.whole_arrived >= minimum / 2,
            "{sent:?}"
        );
    }
    // No packet waited anywhere, so none is excluded.
    assert_eq!((edits, parked), (changes, 0));
    for count in ["packets_dropped_without_scratch", "packets_dropped_unknown"] {
        assert_eq!(shown(&router, count), 0, "{count}");
    }
}

/// The files of both sets.
fn tables_of(router: &Router) -> [String; 2] {
    COLOURS.map(|(early, late)| {
        let name = format!("table{early}");
        router.file(&name, &colour(early, late))
    })
}

/// A driver gives the kernel lists of packets. All of a list pass one hook before the first comes to the next.
#[test]
fn lists_of_packets_meet_no_mixture() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let testbed = Testbed::new();
    let outside = testbed.netns("outside").unwrap();
    let router = Router::new(testbed.netns("lists").unwrap());
    router.netns.set_forwarding(true).unwrap();
    let links = Links::new(&outside, &router.netns, 0, "mix");
    let _takes_frames = take_frames(&router.netns, [&links]);
    let count = || Injector::new(&links.traffic(1)).unwrap();
    let sinks = outside.enter(count).unwrap();
    let at = ifindex(&router.netns, &links.router[0]);
    let header = ipv4::Header::new([10, 64, 0, 1].into(), [10, 128, 0, 1].into());
    let frame = Frame::ethernet(links.clients.mac, links.clients.router);
    let frame = frame.ipv4_header(header).udp(7000, 9).build();
    let tables = tables_of(&router);
    router.done(&["load", &tables[1]]);
    let changes = Share::reported().of(LISTED);
    let (done, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let receive = || {
        let empty = Empty::load().unwrap();
        while !done.load(Ordering::Relaxed) {
            empty.receive(&frame, at, CALL).unwrap();
            calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| router.netns.enter(receive).unwrap());
        let mut is_fed = true;
        for change in 0..changes as usize {
            router.done(&["load", &tables[change % 2]]);
            let before = calls.load(Ordering::Relaxed);
            let ahead = || (calls.load(Ordering::Relaxed) > before + 1).then_some(());
            is_fed &= wait_for(PATIENCE, ahead).is_some();
            if !is_fed {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        receiver.join().unwrap();
        assert!(is_fed, "no packets are received");
    });
    assert_eq!(sinks.arrived().packets(), 0, "mixtures");
    assert_eq!(shown(&router, "packets_parked"), 0);
    // Without rules, they arrive.
    router.done(&["unload"]);
    let once = || Empty::load().unwrap().receive(&frame, at, 64).unwrap();
    router.netns.enter(once).unwrap();
    let arrived = wait_for(PATIENCE, || (sinks.arrived().data == 64).then_some(()));
    assert!(arrived.is_some(), "{sinks:?}");
}

/// A number of `show`.
fn shown(router: &Router, name: &str) -> u64 {
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let number = shown[name].as_u64();
    number.unwrap_or_else(|| panic!("{name}: {shown}"))
}
