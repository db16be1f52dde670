//! Classification and counting in the core against a slow, obviously correct oracle.
//!
//! The oracle has each packet as a value (it parses nothing), finds rules by checking all of
//! them, and stores every round-trip time that the core reported as an event.

mod traffic;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_core::{
    ClassReading, Config, DOWN, Event, Filter, FlowView, Frame, FrameDirection, INSIDE, Link,
    Memory, Monitor, OTHER, OUTSIDE, PairKind, Prefix, Rules, UP, bucket_of,
};
use fairpath_units::{test_seed, test_seeds};
use fairpath_wire::tcp::{Flags, Header};
use fairpath_wire::{Frame as Packet, MacAddr, ipv4};
use traffic::{MS, Random, SECOND, generate};

/// A packet without a flow, as a value.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    ends: [IpAddr; 2],
    macs: [u8; 2],
    vlan: u16,
    dscp: u8,
    mark: u32,
    direction: FrameDirection,
    ifindex: u32,
    rx_ifindex: u32,
    out_vlan: u16,
    flags: u8,
    payload: usize,
}

impl Datagram {
    fn random(random: &mut Random) -> Datagram {
        let v6 = random.chance(400);
        let mut end = || {
            if v6 {
                let net = random.within(0, 3) as u16;
                let host = random.within(0, 40) as u16;
                IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host))
            } else {
                let [a, b] = [random.within(0, 4) as u8, random.within(0, 40) as u8];
                IpAddr::V4(Ipv4Addr::new(10, 0, a, b))
            }
        };
        let ends = [end(), end()];
        let (direction, flags) = random.pick(&[
            (FrameDirection::In, 0),
            (FrameDirection::In, Frame::THROUGH),
            (FrameDirection::Out, Frame::SEEN_BEFORE),
            (FrameDirection::Out, 0),
            (FrameDirection::Unknown, 0),
        ]);
        let through = flags == Frame::THROUGH;
        Datagram {
            ends,
            macs: [random.within(1, 5) as u8, random.within(1, 5) as u8],
            vlan: random.pick(&[0, 0, 7, 9]),
            dscp: random.pick(&[0, 0, 10, 46]),
            mark: random.pick(&[0, 0, 5, 6]),
            direction,
            ifindex: random.pick(&[2, 3]),
            rx_ifindex: match direction {
                FrameDirection::Out => random.pick(&[0, 2, 3]),
                _ if through => random.pick(&[2, 3]),
                _ => 0,
            },
            out_vlan: if through { random.pick(&[0, 7, 9]) } else { 0 },
            flags,
            payload: random.within(0, 200) as usize,
        }
    }

    fn frame(&self, now: u64) -> (Frame, Vec<u8>) {
        let mut packet =
            Packet::ethernet(MacAddr::local(self.macs[0]), MacAddr::local(self.macs[1]));
        if self.vlan != 0 {
            packet = packet.vlan(self.vlan);
        }
        let packet = match self.ends {
            [IpAddr::V4(src), IpAddr::V4(dst)] => packet.ipv4_header(ipv4::Header {
                dscp: self.dscp,
                ..ipv4::Header::new(src, dst)
            }),
            [IpAddr::V6(src), IpAddr::V6(dst)] => packet.ipv6_header(fairpath_wire::ipv6::Header {
                dscp: self.dscp,
                ..fairpath_wire::ipv6::Header::new(src, dst)
            }),
            _ => unreachable!("a packet has one family"),
        };
        let bytes = packet.udp(1000, 2000).zeros(self.payload).build();
        let frame = Frame {
            now,
            wire_len: bytes.len() as u32,
            link: Link::Ethernet as u16,
            direction: self.direction as u8,
            ifindex: self.ifindex,
            rx_ifindex: self.rx_ifindex,
            mark: self.mark,
            out_vlan: self.out_vlan,
            flags: self.flags,
            ..Frame::default()
        };
        (frame, bytes)
    }

    fn through(&self) -> bool {
        self.flags == Frame::THROUGH
    }

    fn ip_bytes(&self) -> u64 {
        let header = if self.ends[0].is_ipv4() { 20 } else { 40 };
        (header + 8 + self.payload) as u64
    }
}

fn longest(prefixes: &[(Prefix, u32)], address: IpAddr) -> Option<u32> {
    let matching = prefixes.iter().filter(|(p, _)| p.contains(address));
    matching.max_by_key(|(p, _)| p.len).map(|(_, value)| *value)
}

fn find<T: PartialEq>(rules: &[(T, u32)], what: &T) -> Option<u32> {
    rules
        .iter()
        .find(|(known, _)| known == what)
        .map(|(_, slot)| *slot)
}

/// The oracle of classify.h, packet by packet.
struct Oracle<'a> {
    rules: &'a Rules,
    watched: usize,
}

impl Oracle<'_> {
    /// True if the end is counted at this hook.
    fn natural(&self, d: &Datagram, sender: bool) -> bool {
        let late = !self.rules.marks.is_empty() && self.watched > 1;
        match (d.direction, sender) {
            (FrameDirection::Unknown, _) => true,
            _ if d.through() => true,
            (FrameDirection::In, true) => !late,
            (FrameDirection::In, false) => self.watched <= 1,
            (FrameDirection::Out, true) => late || d.flags != Frame::SEEN_BEFORE,
            (FrameDirection::Out, false) => true,
        }
    }

    /// The class of an end; `all` says whether more than its address may be used.
    fn class(&self, d: &Datagram, sender: bool, all: bool) -> u32 {
        let end = usize::from(!sender);
        let uplink = self.rules.uplinks.contains(&d.ifindex);
        let inside = all
            && match d.direction {
                FrameDirection::Unknown => false,
                FrameDirection::In => sender != uplink,
                FrameDirection::Out => sender == uplink,
            };
        let linked = all
            && match d.direction {
                FrameDirection::Unknown => true,
                _ if d.through() => true,
                FrameDirection::In => sender,
                FrameDirection::Out => !sender,
            };
        let leaves = d.through() && !sender;
        let vlan = if leaves { d.out_vlan } else { d.vlan };
        let reached_by = match (linked, all && sender) {
            (true, _) if leaves => d.rx_ifindex,
            (true, _) => d.ifindex,
            (false, true) => d.rx_ifindex,
            _ => 0,
        };
        let mac = MacAddr::local(d.macs[end]).0;
        let rules = self.rules;
        None.or_else(|| find(&rules.marks, &d.mark).filter(|_| inside))
            .or_else(|| find(&rules.macs, &mac).filter(|_| linked))
            .or_else(|| longest(&rules.prefixes, d.ends[end]))
            .or_else(|| find(&rules.vlans, &vlan).filter(|_| linked && vlan != 0))
            .or_else(|| find(&rules.dscps, &d.dscp).filter(|_| inside))
            .or_else(|| find(&rules.interfaces, &reached_by).filter(|_| all))
            .unwrap_or(OTHER)
    }

    /// (slot, direction) of everything that the packet is counted in.
    fn counted(&self, d: &Datagram) -> Vec<(u32, usize)> {
        let mut places = Vec::new();
        for (sender, direction) in [(true, UP), (false, DOWN)] {
            if !self.natural(d, sender) {
                continue;
            }
            let class = self.class(d, sender, true);
            let other = self.class(d, !sender, self.natural(d, !sender));
            if class != OTHER || other == OTHER {
                places.push((class, direction));
            }
        }
        places
    }
}

fn random_rules(random: &mut Random, slots: u32) -> Rules {
    let mut rules = Rules::default();
    let slot = |random: &mut Random| random.within(1, u64::from(slots)) as u32;
    for _ in 0..random.within(0, 60) {
        let d = Datagram::random(random);
        let bits = if d.ends[0].is_ipv4() { 33 } else { 129 };
        let prefix = Prefix::new(d.ends[0], random.within(0, bits) as u8);
        rules.prefixes.push((prefix, slot(random)));
    }
    rules.prefixes.sort_unstable();
    rules.prefixes.dedup_by_key(|(prefix, _)| *prefix);
    let some = |random: &mut Random| random.chance(300).then(|| slot(random));
    rules.marks.extend(some(random).map(|slot| (5, slot)));
    rules
        .macs
        .extend(some(random).map(|slot| (MacAddr::local(2).0, slot)));
    rules.vlans.extend(some(random).map(|slot| (7, slot)));
    rules.dscps.extend(some(random).map(|slot| (46, slot)));
    rules.interfaces.extend(some(random).map(|slot| (2, slot)));
    rules.uplinks.extend(some(random).map(|_| 3));
    rules
}

fn monitor(classes: u32, watched: &[u32]) -> Monitor {
    let config = Config::default().with_flows(256).with_classes(classes);
    let mut monitor = Monitor::new(&config);
    for ifindex in watched {
        assert!(monitor.watch(*ifindex, true, OTHER));
    }
    monitor
}

#[test]
fn every_packet_is_counted_in_classes_of_oracle() {
    for seed in test_seeds(60) {
        let mut random = Random::new(seed);
        let watched: &[u32] = random.pick(&[&[2], &[2, 3]]);
        let mut monitor = monitor(40, watched);
        let mut reading = ClassReading::default();
        let mut expected: HashMap<(u32, usize), [u64; 2]> = HashMap::new();
        for _ in 0..6 {
            let rules = random_rules(&mut random, 40);
            monitor.set_rules(&rules, &[]).unwrap();
            let oracle = Oracle {
                rules: &rules,
                watched: watched.len(),
            };
            for now in 1..300 {
                let d = Datagram::random(&mut random);
                let (frame, bytes) = d.frame(now);
                monitor.frame(&frame, &bytes, |_| {});
                for place in oracle.counted(&d) {
                    let counts = expected.entry(place).or_default();
                    counts[0] += 1;
                    counts[1] += d.ip_bytes();
                }
            }
        }
        monitor.read_classes(&mut reading);
        for (slot, counts) in reading.counts.iter().enumerate() {
            for direction in [UP, DOWN] {
                let reported = [counts.dir[direction].packets, counts.dir[direction].bytes];
                let validation = expected
                    .get(&(slot as u32, direction))
                    .copied()
                    .unwrap_or_default();
                assert_eq!(
                    reported, validation,
                    "seed {seed}, slot {slot}, way {direction}"
                );
                assert_eq!(counts.dir[direction].unmeasured_bytes, validation[1]);
            }
        }
    }
}

#[test]
fn forwarded_packets_count_at_both_interfaces() {
    let mut monitor = monitor(4, &[]);
    for (ifindex, slot) in [(2, 1), (3, 2)] {
        assert!(monitor.watch(ifindex, true, slot));
    }
    let ends = ["192.0.2.1", "198.51.100.1"].map(|ip| ip.parse().unwrap());
    let (frame, bytes) = datagram(ends[0], ends[1]);
    let through = Frame {
        direction: FrameDirection::In as u8,
        ifindex: 2,
        rx_ifindex: 3,
        flags: Frame::THROUGH,
        ..frame
    };
    monitor.frame(&through, &bytes, |_| {});
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    let counted = |slot: usize, direction: usize| reading.counts[slot].dir[direction].packets;
    let packets = [
        counted(1, UP),
        counted(1, DOWN),
        counted(2, UP),
        counted(2, DOWN),
    ];
    assert_eq!(packets, [1, 0, 0, 1]);
}

fn datagram(src: IpAddr, dst: IpAddr) -> (Frame, Vec<u8>) {
    Datagram {
        ends: [src, dst],
        macs: [1, 2],
        vlan: 0,
        dscp: 0,
        mark: 0,
        direction: FrameDirection::Unknown,
        ifindex: 0,
        rx_ifindex: 0,
        out_vlan: 0,
        flags: 0,
        payload: 0,
    }
    .frame(1)
}

/// Prefixes of every length, one class each, of both families.
fn many_prefixes(count: u32, random: &mut Random) -> Vec<(Prefix, u32)> {
    let mut known = HashMap::new();
    while known.len() < count as usize {
        let bits = random.draw();
        let prefix = if random.chance(500) {
            let near = Ipv4Addr::from(0x0a00_0000 | (bits as u32 & 0x00ff_ffff));
            Prefix::new(near.into(), random.within(9, 33) as u8)
        } else {
            let near = 0x2001_0db8_u128 << 96 | u128::from(bits) << 40;
            Prefix::new(Ipv6Addr::from(near).into(), random.within(33, 90) as u8)
        };
        let slot = known.len() as u32 + 1;
        known.entry(prefix).or_insert(slot);
    }
    known.into_iter().collect()
}

/// The longest prefix by hand: every length from the longest on.
fn by_length(rules: &HashMap<Prefix, u32>, address: IpAddr) -> u32 {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (0..=bits)
        .rev()
        .find_map(|len| rules.get(&Prefix::new(address, len)).copied())
        .unwrap_or(OTHER)
}

#[test]
fn of_100_000_prefixes_the_longest_wins() {
    let mut random = Random::new(test_seed());
    let prefixes = many_prefixes(100_000, &mut random);
    let rules = Rules {
        prefixes: prefixes.clone(),
        ..Rules::default()
    };
    let known: HashMap<Prefix, u32> = prefixes.iter().copied().collect();
    let mut monitor = monitor(100_000, &[]);
    monitor.set_rules(&rules, &[]).unwrap();
    let mut expected: HashMap<u32, u64> = HashMap::new();
    let mut matched = 0;
    for i in 0..20_000 {
        let inside = prefixes[random.draw() as usize % prefixes.len()].0.address;
        let src = match inside {
            IpAddr::V4(v4) => {
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) ^ random.pick(&[0, 1, 0x100])))
            }
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(
                u128::from(v6) ^ random.pick(&[0, 1, 1 << 64, 1 << 90]),
            )),
        };
        let dst = if src.is_ipv4() {
            IpAddr::V4(Ipv4Addr::new(203, 0, 113, i as u8))
        } else {
            IpAddr::V6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, i))
        };
        let (frame, bytes) = datagram(src, dst);
        monitor.frame(&frame, &bytes, |_| {});
        let class = by_length(&known, src);
        matched += u64::from(class != OTHER);
        *expected.entry(class).or_default() += 1;
    }
    assert!(matched > 15_000, "{matched}");
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    for (slot, counts) in reading.counts.iter().enumerate() {
        let validation = expected.get(&(slot as u32)).copied().unwrap_or(0);
        assert_eq!(counts.dir[UP].packets, validation, "slot {slot}");
    }
}

/// By address only: what the class counts of TCP must add up to.
fn class_of(rules: &Rules, address: IpAddr) -> u32 {
    longest(&rules.prefixes, address).unwrap_or(OTHER)
}

#[test]
fn class_counts_equal_the_events() {
    for seed in test_seeds(40) {
        let traffic = generate(seed, &traffic::Options::default());
        let mut random = Random::new(seed);
        let mut rules = Rules::default();
        for (flow, slot) in traffic.flows.iter().zip(1..) {
            for end in flow.address {
                if random.chance(600) {
                    let len = random.pick(&[24, 28, 32]) + if end.is_ipv6() { 96 } else { 0 };
                    rules.prefixes.push((Prefix::new(end, len), slot));
                }
            }
        }
        rules.prefixes.sort_unstable();
        rules.prefixes.dedup_by_key(|(prefix, _)| *prefix);
        let mut monitor = monitor(20, &[]);
        monitor.expire_by_hand();
        monitor.set_rules(&rules, &[]).unwrap();
        let mut reported = Vec::new();
        for (frame, bytes) in traffic.frames() {
            monitor.frame(&frame, &bytes, |event| reported.push(event));
        }
        let flows_seen = monitor.flows(Memory::ALL_SLOTS, 1000);
        monitor.expire(u64::MAX / 2, 1024, |event| reported.push(event));
        let mut reading = ClassReading::default();
        monitor.read_classes(&mut reading);
        let mut samples: HashMap<(u32, usize, u16), u64> = HashMap::new();
        let mut sums: HashMap<(u32, usize), u64> = HashMap::new();
        let mut sent: HashMap<(u32, usize), [u64; 3]> = HashMap::new();
        let mut flows: HashMap<u32, [u32; 2]> = HashMap::new();
        for event in &reported {
            match event {
                Event::Sample(s) => {
                    let near = class_of(&rules, s.key.endpoint(s.measured).ip());
                    let far = class_of(&rules, s.key.endpoint(1 - s.measured).ip());
                    let mut places = vec![(near, INSIDE), (far, OUTSIDE)];
                    places.retain(|(class, _)| *class != OTHER);
                    if places.is_empty() {
                        places.push((OTHER, INSIDE));
                    }
                    for (class, leg) in places {
                        *samples.entry((class, leg, bucket_of(s.rtt))).or_default() += 1;
                        *sums.entry((class, leg)).or_default() += s.rtt;
                    }
                }
                Event::Opened(flow) | Event::Closed(flow) => {
                    let classes = [0, 1].map(|side| class_of(&rules, flow.key.endpoint(side).ip()));
                    let which = usize::from(matches!(event, Event::Closed(_)));
                    let mut of: Vec<u32> = classes.into_iter().filter(|c| *c != OTHER).collect();
                    of.dedup();
                    if of.is_empty() {
                        of.push(OTHER);
                    }
                    for class in &of {
                        flows.entry(*class).or_default()[which] += 1;
                    }
                }
                Event::Alive(_) => unreachable!("all flows expired"),
            }
        }
        for flow in &flows_seen {
            let classes = [0, 1].map(|side| class_of(&rules, flow.key.endpoint(side).ip()));
            for (side, c) in flow.counts.iter().enumerate() {
                let mut places = vec![(classes[side], UP), (classes[1 - side], DOWN)];
                if classes != [OTHER, OTHER] {
                    places.retain(|(class, _)| *class != OTHER);
                }
                for place in places {
                    let add = [
                        c.data_packets,
                        c.retransmitted_packets,
                        c.upstream_lost_packets,
                    ];
                    let entry = sent.entry(place).or_default();
                    for (to, n) in entry.iter_mut().zip(add) {
                        *to += u64::from(n);
                    }
                }
            }
        }
        let cells: HashMap<(u32, usize, u16), u64> = reading
            .cells
            .iter()
            .map(|c| ((c.slot, usize::from(c.leg), c.bucket), u64::from(c.count)))
            .collect();
        assert_eq!(cells, samples, "seed {seed}");
        assert!(samples.len() > 20, "seed {seed}");
        for (slot, counts) in reading.counts.iter().enumerate() {
            let slot = slot as u32;
            for leg in [INSIDE, OUTSIDE] {
                let sum = sums.get(&(slot, leg)).copied().unwrap_or(0);
                assert_eq!(counts.leg[leg].sum_ns, sum, "seed {seed}, slot {slot}");
                assert_eq!(counts.leg[leg].unbinned, 0);
            }
            let [opened, closed] = flows.get(&slot).copied().unwrap_or_default();
            assert_eq!((counts.flows_opened, counts.flows_closed), (opened, closed));
            for direction in [UP, DOWN] {
                let d = &counts.dir[direction];
                let validation = sent.get(&(slot, direction)).copied().unwrap_or_default();
                let reported = [
                    d.data_packets,
                    d.retransmitted_packets,
                    d.upstream_lost_packets,
                ];
                assert_eq!(
                    reported.map(u64::from),
                    validation,
                    "seed {seed}, slot {slot}, way {direction}"
                );
            }
        }
    }
}

fn tcp(src: [u8; 4], dst: [u8; 4], flags: Flags, seq: u32, ack: u32) -> Vec<u8> {
    tcp_by(4000, src, dst, flags, seq, ack)
}

/// From or to this port of the host, which has a 10 in front.
fn tcp_by(port: u16, src: [u8; 4], dst: [u8; 4], flags: Flags, seq: u32, ack: u32) -> Vec<u8> {
    Packet::raw()
        .ipv4(src.into(), dst.into())
        .tcp(Header {
            src_port: if src[0] == 10 { port } else { 443 },
            dst_port: if src[0] == 10 { 443 } else { port },
            seq,
            ack,
            flags,
            window: 1000,
            ..Header::default()
        })
        .build()
}

fn feed(monitor: &mut Monitor, now: u64, bytes: &[u8], segs: u32) {
    let frame = Frame {
        now,
        wire_len: bytes.len() as u32,
        link: Link::Raw as u16,
        segs,
        ..Frame::default()
    };
    monitor.frame(&frame, bytes, |_| {});
}

const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];

fn handshake(monitor: &mut Monitor, at: u64) {
    handshake_by(4000, monitor, at);
}

fn handshake_by(port: u16, monitor: &mut Monitor, at: u64) {
    let both = Flags::SYN | Flags::ACK;
    let steps = [
        (0, tcp_by(port, HOST, SERVER, Flags::SYN, 1, 0)),
        (30, tcp_by(port, SERVER, HOST, both, 9, 2)),
        (31, tcp_by(port, HOST, SERVER, Flags::ACK, 2, 10)),
    ];
    for (ms, bytes) in steps {
        feed(monitor, at + ms * MS, &bytes, 1);
    }
}

fn host_rules(slot: u32) -> Rules {
    Rules {
        prefixes: vec![(Prefix::new(Ipv4Addr::from(HOST).into(), 32), slot)],
        labels: vec![(Prefix::new(Ipv4Addr::from(SERVER).into(), 24), 4)],
        ..Rules::default()
    }
}

#[test]
fn peers_have_bytes_and_legs() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[]).unwrap();
    handshake(&mut monitor, SECOND);
    monitor.expire(SECOND << 20, 1024, |_| {});
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    reading.pairs.sort_by_key(|p| p.kind);
    let [label, talker] = &reading.pairs[..] else {
        panic!("{:?}", reading.pairs)
    };
    assert_eq!(
        (label.kind, label.label, label.slot),
        (PairKind::Label, 4, 3)
    );
    assert_eq!((label.bytes_up, label.bytes_down), (80, 40));
    assert_eq!((label.samples, label.rtt_sum_ns), (1, 30 * MS));
    assert_eq!(talker.kind, PairKind::Talker);
    assert_eq!(talker.address, IpAddr::V4(HOST.into()));
    assert_eq!((talker.prefix_len, talker.samples), (32, 1));
    assert_eq!((talker.rtt_sum_ns, talker.max_rtt_us), (MS, 1000));
    monitor.read_classes(&mut reading);
    assert!(reading.pairs.is_empty() && reading.cells.is_empty());
}

#[test]
fn reused_slots_start_at_zero() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[3]).unwrap();
    handshake(&mut monitor, SECOND);
    monitor.set_rules(&Rules::default(), &[]).unwrap();
    let elsewhere = Rules {
        prefixes: vec![(Prefix::new([192, 0, 2, 0].into(), 24), 3)],
        ..Rules::default()
    };
    monitor.set_rules(&elsewhere, &[3]).unwrap();
    monitor.expire(SECOND << 20, 1024, |_| {});
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    assert_eq!(reading.counts[3], Default::default());
    assert_eq!(reading.counts[OTHER as usize].flows_closed, 1);
}

#[test]
fn moved_flows_count_as_open_once() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[3]).unwrap();
    handshake(&mut monitor, SECOND);
    monitor.set_rules(&host_rules(5), &[5]).unwrap();
    feed(
        &mut monitor,
        2 * SECOND,
        &tcp(HOST, SERVER, Flags::ACK, 2, 10),
        1,
    );
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    let flows = |slot: usize| {
        let c = &reading.counts[slot];
        (c.flows_opened, c.flows_closed)
    };
    assert_eq!((flows(3), flows(5)), ((1, 1), (1, 0)));
    assert_eq!(monitor.flows(5, 10).len(), 1);
    assert_eq!(monitor.flows(3, 10).len(), 0);
}

/// A flow whose host acknowledges each byte of the server after one of `rtts`; its view at the end.
fn acknowledged_after(rtts: &[u64]) -> FlowView {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[]).unwrap();
    // Samples begin once both directions passed.
    feed(
        &mut monitor,
        SECOND,
        &tcp(HOST, SERVER, Flags::ACK, 2, 100),
        1,
    );
    feed(
        &mut monitor,
        SECOND,
        &tcp(SERVER, HOST, Flags::ACK, 100, 2),
        1,
    );
    let mut now = 2 * SECOND;
    for (at, rtt) in rtts.iter().enumerate() {
        let seq = 100 + at as u32;
        let mut data = tcp(SERVER, HOST, Flags::ACK, seq, 2);
        data.push(0);
        let total = (data.len() as u16).to_be_bytes();
        data[2..4].copy_from_slice(&total);
        feed(&mut monitor, now, &data, 1);
        now += rtt;
        let ack = tcp(HOST, SERVER, Flags::ACK, 2, seq + 1);
        feed(&mut monitor, now, &ack, 1);
        now += MS;
    }
    let views = monitor.flows(3, 10);
    let samples = views[0].counts[1].samples.max(views[0].counts[0].samples);
    assert_eq!(samples as usize, rtts.len());
    views[0]
}

/// The estimate of the host's side, relative to the exact median of `rtts`.
fn median_error(view: &FlowView, rtts: &[u64]) -> f64 {
    let host = usize::from(view.slots[0] != 3);
    let mut sorted = rtts.to_vec();
    sorted.sort_unstable();
    let exact = sorted[sorted.len() / 2] as f64;
    view.p50[host] as f64 / exact - 1.0
}

/// Of 20,000 such flows, one estimate was 0.26 off, the next ones 0.22; the root of the mean square was 0.0196.
#[test]
fn flow_medians_are_near_exact_ones() {
    let mut squares = Vec::new();
    for seed in test_seeds(200) {
        let mut random = Random::new(seed);
        let base = random.within(100, 400_000) * 1000;
        // Two thirds of the flows have a queue: an exponential delay of that mean in addition.
        let queue = random.pick(&[0.0, 0.3, 1.0]);
        let mut rtts = Vec::new();
        // The handshake may take far longer than the rest.
        rtts.push(base * random.pick(&[1, 4, 8]));
        for _ in 0..300 {
            let uniform = random.within(1, 1_000_000) as f64 / 1e6;
            rtts.push((base as f64 * (1.0 - queue * uniform.ln())) as u64);
        }
        let error = median_error(&acknowledged_after(&rtts), &rtts);
        let limit = if queue == 0.0 { 0.035 } else { 0.4 };
        assert!(
            error.abs() < limit,
            "seed {seed}: base {base}, queue {queue}: {error}"
        );
        squares.push(error * error);
    }
    let deviation = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    println!("{} flows: {deviation:.4}", squares.len());
    assert!(deviation < 0.033, "of all: {deviation}");
}

#[test]
fn outliers_move_flow_medians_little() {
    let one = [37 * MS];
    assert!(median_error(&acknowledged_after(&one), &one).abs() < 0.016);
    // The first one, of a handshake, is far away: the next ones make long steps.
    let rtts = [&[80 * MS][..], &[20 * MS; 40]].concat();
    let error = median_error(&acknowledged_after(&rtts), &rtts);
    assert!(error.abs() < 0.035, "{error}");
    let mut rtts = vec![20 * MS; 100];
    for at in (5..100).step_by(10) {
        rtts[at] = 900 * MS;
    }
    let error = median_error(&acknowledged_after(&rtts), &rtts);
    assert!(error.abs() < 0.07, "{error}");
}

#[test]
fn flow_medians_follow_a_change() {
    let (before, after) = ([10 * MS; 1000], [40 * MS; 80]);
    let error = median_error(&acknowledged_after(&[&before[..], &after].concat()), &after);
    assert!(error.abs() < 0.035, "{error}");
}

#[test]
fn failed_handshakes_and_one_sided_flows_are_counted() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[]).unwrap();
    feed(
        &mut monitor,
        SECOND,
        &tcp(HOST, SERVER, Flags::SYN, 1, 0),
        1,
    );
    let reset = tcp(SERVER, HOST, Flags::RST | Flags::ACK, 0, 2);
    feed(&mut monitor, 2 * SECOND, &reset, 1);
    feed(
        &mut monitor,
        3 * SECOND,
        &tcp(HOST, SERVER, Flags::SYN, 5, 0),
        1,
    );
    let one_sided = tcp(HOST, [203, 0, 113, 1], Flags::ACK, 5, 5);
    feed(&mut monitor, 3 * SECOND, &one_sided, 1);
    monitor.expire(SECOND << 20, 1024, |_| {});
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    let counts = &reading.counts[3];
    assert_eq!((counts.handshakes_failed, counts.one_sided), (2, 1));
    assert_eq!((counts.flows_opened, counts.flows_closed), (0, 0));
}

#[test]
fn gso_packets_count_all_segments_and_headers() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[]).unwrap();
    let bytes = tcp(HOST, SERVER, Flags::ACK, 2, 10);
    feed(&mut monitor, SECOND, &bytes, 3);
    let mut reading = ClassReading::default();
    monitor.read_classes(&mut reading);
    let up = &reading.counts[3].dir[UP];
    assert_eq!((up.packets, up.bytes), (3, 40 + 2 * 40));
}

#[test]
fn filters_choose_by_prefix_and_port_with_exceptions() {
    let mut monitor = monitor(10, &[]);
    monitor.set_rules(&host_rules(3), &[]).unwrap();
    let filter = |except, prefix: Option<&str>, port| Filter {
        except,
        prefix: prefix.map(|p| Prefix::new(p.parse().unwrap(), 24)),
        port,
    };
    let mut counted = |filters: &[Filter]| {
        assert!(monitor.set_filters(filters));
        let before = monitor.stats().filtered;
        feed(
            &mut monitor,
            SECOND,
            &tcp(HOST, SERVER, Flags::ACK, 2, 10),
            1,
        );
        monitor.stats().filtered == before
    };
    assert!(counted(&[]));
    assert!(counted(&[filter(false, Some("10.0.0.0"), None)]));
    assert!(!counted(&[filter(false, Some("10.0.1.0"), None)]));
    assert!(!counted(&[filter(false, Some("10.0.0.0"), Some(80))]));
    assert!(counted(&[
        filter(false, Some("10.0.1.0"), None),
        filter(false, None, Some(443))
    ]));
    assert!(!counted(&[
        filter(false, None, Some(443)),
        filter(true, Some("198.51.100.0"), None)
    ]));
    assert!(counted(&[filter(true, None, Some(80))]));
}

#[test]
fn class_filters_exclude_whole_packets() {
    let mut monitor = monitor(10, &[]);
    let mut rules = host_rules(3);
    let server = Prefix::new(Ipv4Addr::from(SERVER).into(), 32);
    rules.prefixes.push((server, 4));
    monitor.set_rules(&rules, &[]).unwrap();
    let mut port = 5000;
    let mut counted = |only: &[u32], except: &[u32]| {
        port += 1;
        monitor.filter_classes(only, except);
        let mut reading = ClassReading::default();
        monitor.read_classes(&mut reading);
        let before = reading.counts[3].dir[UP].packets;
        handshake_by(port, &mut monitor, SECOND);
        monitor.read_classes(&mut reading);
        (
            reading.counts[3].dir[UP].packets - before,
            reading.cells.len(),
        )
    };
    assert_eq!(counted(&[], &[]), (2, 4));
    assert_eq!(counted(&[5], &[]), (0, 0));
    assert_eq!(counted(&[4], &[]), (2, 4));
    assert_eq!(counted(&[4], &[3]), (0, 0));
    assert_eq!(counted(&[], &[4]), (0, 0));
    assert_eq!(counted(&[], &[5]), (2, 4));
}
