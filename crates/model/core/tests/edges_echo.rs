//! Edge cases of ICMP and ICMPv6 echo (docs/design/0003, notes 2.30).

mod traffic;

use std::net::{IpAddr, Ipv4Addr};

use fairpath_core::{Config, Frame as Meta, Link, Method};
use fairpath_wire::{Frame, MacAddr, icmp};
use traffic::MS;
use traffic::script::Talk;

/// A pinger, its targets, and what the monitor said.
struct Ping {
    talk: Talk,
    v6: bool,
    id: u16,
}

fn ping() -> Ping {
    Ping {
        talk: Talk::default(),
        v6: false,
        id: 1,
    }
}

impl Ping {
    fn send(&mut self, ms: u64, target: u8, seq: u16, reply: bool) {
        let (id, pinger) = (self.id, 100);
        let message = if reply {
            icmp::Message::EchoReply { id, seq }
        } else {
            icmp::Message::EchoRequest { id, seq }
        };
        let (src, dst) = if reply {
            (target, pinger)
        } else {
            (pinger, target)
        };
        let ethernet = Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
        let ip = if self.v6 {
            ethernet.ipv6(v6(src), v6(dst))
        } else {
            ethernet.ipv4(Ipv4Addr::new(10, 0, 0, src), Ipv4Addr::new(10, 0, 0, dst))
        };
        let data = ip.icmp(message).zeros(56).build();
        let meta = Meta {
            now: ms * MS,
            wire_len: data.len() as u32,
            link: Link::Ethernet as u16,
            ..Meta::default()
        };
        self.talk.frame(meta, &data);
    }

    fn query(&mut self, ms: u64, target: u8, seq: u16) {
        self.send(ms, target, seq, false);
    }

    fn answer(&mut self, ms: u64, target: u8, seq: u16) {
        self.send(ms, target, seq, true);
    }
}

fn v6(host: u8) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())
}

#[test]
fn a_reply_is_matched_with_its_request() {
    for is_v6 in [false, true] {
        for target in [1, 200] {
            let mut ping = ping();
            ping.v6 = is_v6;
            ping.query(100, target, 7);
            ping.answer(120, target, 7);
            let sample = ping.talk.samples[0];
            let address = if is_v6 {
                v6(target).into()
            } else {
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, target))
            };
            assert_eq!(sample.key.endpoint(sample.measured).ip(), address);
            assert_eq!(
                (sample.rtt, sample.method, sample.seq),
                (20 * MS, Method::Icmp, 7)
            );
        }
    }
}

/// Windows uses the same identifier for all requests; NATs rewrite it.
#[test]
fn constant_echo_identifiers_are_distinguished() {
    let mut ping = ping();
    for target in 1..=5 {
        for seq in 0..5 {
            ping.query(100 + u64::from(seq), target, seq);
        }
    }
    for target in (1..=5).rev() {
        for seq in 0..5 {
            ping.answer(200 + u64::from(seq) + 10 * u64::from(target), target, seq);
        }
    }
    let mut rtts = ping.talk.rtts();
    rtts.sort_unstable();
    let expected: Vec<u64> = [110, 120, 130, 140, 150]
        .iter()
        .flat_map(|&ms| [ms; 5])
        .collect();
    assert_eq!(rtts, expected);
}

#[test]
fn echo_numbers_wrap() {
    let mut ping = ping();
    for i in 0..6u16 {
        ping.query(100 * u64::from(i), 1, 65_533u16.wrapping_add(i));
        ping.answer(100 * u64::from(i) + 20, 1, 65_533u16.wrapping_add(i));
    }
    assert_eq!(ping.talk.rtts(), [20; 6]);
}

/// `DUP!`: the first reply is the answer.
#[test]
fn duplicate_replies_are_not_measured() {
    let mut ping = ping();
    ping.query(100, 1, 1);
    ping.answer(120, 1, 1);
    ping.answer(121, 1, 1);
    ping.answer(900, 1, 1);
    assert_eq!(ping.talk.rtts(), [20]);
}

/// A number that is requested twice before its answer: the match is ambiguous.
#[test]
fn a_request_sent_twice_is_ambiguous() {
    let mut ping = ping();
    ping.query(100, 1, 1);
    ping.query(110, 1, 1);
    ping.answer(120, 1, 1);
    ping.answer(130, 1, 1);
    assert_eq!(ping.talk.rtts(), []);
    ping.query(200, 1, 2);
    ping.answer(220, 1, 2);
    assert_eq!(ping.talk.rtts(), [20]);
}

/// Replies to a broadcast come from others than who was asked.
#[test]
fn replies_to_a_broadcast_ping_are_not_measured() {
    let mut ping = ping();
    ping.query(100, 255, 1);
    for host in 1..20 {
        ping.answer(120 + u64::from(host), host, 1);
    }
    assert_eq!(ping.talk.rtts(), []);
    assert_eq!(ping.talk.monitor.usage().flows, 1, "and open no flows");
}

/// An identifier used again a long time after an unanswered request.
#[test]
fn an_old_request_is_not_matched() {
    let mut ping = ping();
    ping.query(0, 1, 1);
    ping.answer(61_000, 1, 1);
    assert_eq!(ping.talk.rtts(), []);
    ping.query(62_000, 1, 1);
    ping.answer(62_020, 1, 1);
    assert_eq!(ping.talk.rtts(), [20]);
}

#[test]
fn a_reply_without_request_opens_nothing() {
    let mut ping = ping();
    ping.answer(10, 1, 1);
    assert_eq!(ping.talk.monitor.usage().flows, 0);
}

#[test]
fn more_waiting_requests_than_fit_drop_the_oldest() {
    let mut ping = ping();
    for seq in 0..1000u16 {
        ping.query(u64::from(seq), 1, seq);
    }
    for seq in [999, 900, 800, 0] {
        ping.answer(2000, 1, seq);
    }
    assert_eq!(ping.talk.rtts(), [1001, 1100, 1200]);
    assert!(ping.talk.monitor.usage().chunks < 60);
}

#[test]
fn disabled_echo_gives_no_samples() {
    let config = Config {
        icmp: 0,
        ..Config::default().with_flows(64)
    };
    let mut ping = Ping {
        talk: Talk::new(config),
        ..ping()
    };
    ping.query(100, 1, 1);
    ping.answer(120, 1, 1);
    assert_eq!(ping.talk.rtts(), []);
    assert_eq!(ping.talk.monitor.stats().echo_packets, 2);
}

/// The same request at several points is one.
#[test]
fn an_echo_seen_at_several_points_counts_once() {
    let mut ping = ping();
    for reply in [false, true] {
        for vlan in [0, 5, 6] {
            let (id, seq) = (1, 1);
            let message = if reply {
                icmp::Message::EchoReply { id, seq }
            } else {
                icmp::Message::EchoRequest { id, seq }
            };
            let mut ends = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
            if reply {
                ends.reverse();
            }
            let ethernet = Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
            let data = ethernet.ipv4(ends[0], ends[1]).icmp(message).build();
            let meta = Meta {
                now: (100 + 20 * u64::from(reply)) * MS + u64::from(vlan),
                wire_len: data.len() as u32,
                link: Link::Ethernet as u16,
                vlan,
                ..Meta::default()
            };
            ping.talk.frame(meta, &data);
        }
    }
    assert_eq!(ping.talk.rtts(), [20]);
    assert_eq!(ping.talk.monitor.stats().echo_packets, 2);
    assert_eq!(ping.talk.monitor.stats().second_hook_packets, 4);
}
