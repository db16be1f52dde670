//! The kernel runtime and the native runtime say the same: every event, every counter, every place used.
//!
//! The same frames with the same times go through the BPF object, unattached (`BPF_PROG_TEST_RUN`), and through the
//! core as cc compiled it. Events are compared in their order, after each part of at most [`PART`] frames. Seeds are
//! fixed and named in every failure.

#[path = "../../../model/core/tests/traffic/mod.rs"]
mod traffic;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_bpf::{Options, RttMonitor};
use fairpath_core::{
    CELL_WAYS, ClassReading, Config, Event, Frame, FrameDirection, Link, Mode, Monitor, PAIR_WAYS,
    Prefix, Rules, Stats,
};
use fairpath_testbed::{Need, requires};
use fairpath_units::IfIndex;
use fairpath_units::{Share, test_seed};
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, Header, TcpOption};
use fairpath_wire::{EtherType, Frame as Packet, MacAddr, icmp, ipv4, ipv6, sll};
use traffic::occupancy::refusals;
use traffic::structured::PATTERNS;
use traffic::{MS, Random, SECOND, Traffic, generate};

/// Frames of one unattached run: the kernel bounds a run by time, and this machine may be slow.
const PART: usize = 512;
const MODES: [Mode; 4] = [Mode::Hybrid, Mode::Seq, Mode::Ts, Mode::Handshake];

/// Both runtimes, with the same input.
struct Runtimes {
    what: String,
    native: Monitor,
    kernel: RttMonitor,
    reported: Vec<Event>,
    waiting: Vec<(Frame, Vec<u8>)>,
    last: u64,
    fed: usize,
    events: usize,
    random: Random,
    settled: usize,
    /// Cells and pairs that classes had, all readings together.
    counted: [usize; 2],
}

/// Slots that rules lead to; the interfaces 2 and 3 have the two behind them.
const SLOTS: u32 = 60;

/// Classes by everything that a rule can say, of addresses that the traffic has.
fn random_rules(random: &mut Random) -> Rules {
    let mut rules = Rules::default();
    let slot = |random: &mut Random| random.within(1, u64::from(SLOTS)) as u32;
    for _ in 0..random.within(0, 40) {
        let address = IpAddr::V4(match random.within(0, 4) {
            0 => Ipv4Addr::new(192, 0, 2, 1),
            1 => v4(random),
            _ => Ipv4Addr::new(10, 0, 0, random.within(0, 48) as u8),
        });
        let prefix = Prefix::new(address, random.within(0, 33) as u8);
        rules.prefixes.push((prefix, slot(random)));
        let host = random.within(0, 48) as u16;
        let net = random.within(1, 3) as u16;
        let address = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host));
        let prefix = Prefix::new(address, random.within(0, 129) as u8);
        rules.prefixes.push((prefix, slot(random)));
        rules.labels.push((prefix, random.within(0, 9) as u32));
    }
    rules.prefixes.sort_unstable();
    rules.prefixes.dedup_by_key(|(prefix, _)| *prefix);
    rules.labels.sort_unstable();
    rules.labels.dedup_by_key(|(prefix, _)| *prefix);
    let some = |random: &mut Random| random.chance(400).then(|| slot(random));
    rules.marks.extend(some(random).map(|slot| (7, slot)));
    rules.vlans.extend(some(random).map(|slot| (7, slot)));
    rules.vlans.extend(some(random).map(|slot| (5, slot)));
    rules.dscps.extend(some(random).map(|slot| (0, slot)));
    rules.interfaces.extend(some(random).map(|slot| (2, slot)));
    let mac = MacAddr::local(1).0;
    rules.macs.extend(some(random).map(|slot| (mac, slot)));
    rules.uplinks.extend(some(random).map(|_| 3));
    rules
}

impl Runtimes {
    fn new(what: &str, config: Config) -> Runtimes {
        let config = Config {
            seed: 0x0123_4567_89ab_cdef,
            ..config.with_classes(SLOTS + 2)
        };
        let mut config = config;
        if config.flow_sets == 1 {
            (config.cell_sets, config.pair_sets) = (1, 1);
        }
        let mut kernel = RttMonitor::load(&Options::replay(config)).unwrap();
        let mut native = Monitor::new(&config);
        native.expire_by_hand();
        for (ifindex, slot) in [(2, SLOTS), (3, SLOTS + 1)] {
            assert!(native.watch(ifindex, true, slot));
            assert!(
                kernel.watch(IfIndex(ifindex)) && kernel.count_interface(IfIndex(ifindex), slot)
            );
        }
        Runtimes {
            random: Random::new(what.len() as u64),
            settled: 0,
            counted: [0; 2],
            what: what.to_owned(),
            native,
            kernel,
            reported: Vec::new(),
            waiting: Vec::new(),
            last: 0,
            fed: 0,
            events: 0,
        }
    }

    fn feed(&mut self, frame: Frame, data: &[u8]) {
        self.fed += 1;
        self.last = self.last.max(frame.now);
        self.native
            .frame(&frame, data, |event| self.reported.push(event));
        self.waiting.push((frame, data.to_vec()));
        if self.waiting.len() == PART {
            self.settle();
        }
    }

    /// Lets the kernel catch up, and compares.
    fn settle(&mut self) {
        let frames: Vec<(Frame, &[u8])> = self.waiting.iter().map(|(f, d)| (*f, &d[..])).collect();
        self.kernel.replay(&frames).unwrap();
        self.waiting.clear();
        self.compare();
        self.settled += 1;
        if self.settled.is_multiple_of(4) {
            self.compare_classes();
            let rules = random_rules(&mut self.random);
            let begun = [self.random.within(1, u64::from(SLOTS)) as u32];
            self.native.set_rules(&rules, &begun).unwrap();
            self.kernel.set_rules(&rules, &begun).unwrap();
        }
    }

    fn compare_classes(&mut self) {
        let (mut native, mut kernel) = (ClassReading::default(), ClassReading::default());
        self.native.read_classes(&mut native);
        self.kernel.read_classes(&mut kernel);
        assert_eq!(native.counts, kernel.counts, "{}", self.what);
        assert_eq!(native.cells, kernel.cells, "{}", self.what);
        assert_eq!(native.pairs, kernel.pairs, "{}", self.what);
        let config = self.kernel.config();
        assert!(native.cells.len() <= (config.cell_sets * CELL_WAYS) as usize);
        assert!(native.pairs.len() <= (config.pair_sets * PAIR_WAYS) as usize);
        self.counted[0] += native.cells.len();
        self.counted[1] += native.pairs.len();
    }

    fn compare(&mut self) {
        let batch = self.kernel.take();
        assert_eq!(batch.bad, 0, "{}", self.what);
        self.assert_equal(&batch.events);
        self.events += self.reported.len();
        self.reported.clear();
    }

    fn assert_equal(&self, kernel: &[Event]) {
        let differs = self.reported.iter().zip(kernel).position(|(a, b)| a != b);
        if differs.is_some() || self.reported.len() != kernel.len() {
            let i = differs.unwrap_or(kernel.len().min(self.reported.len()));
            panic!(
                "{}: of {} and {} events, number {i} differs\n  native {:?}\n  kernel {:?}",
                self.what,
                self.reported.len(),
                kernel.len(),
                self.reported.get(i),
                kernel.get(i)
            );
        }
    }

    fn expire(&mut self, now: u64, sets: u32) {
        self.settle();
        self.native
            .expire(now, sets, |event| self.reported.push(event));
        self.kernel.expire(now, sets).unwrap();
        self.kernel.read(u64::MAX);
        self.compare();
    }

    /// Compares the final reports, the counters and the used entries.
    fn finish(mut self) -> Stats {
        self.settle();
        self.compare_classes();
        let [native, kernel] = [self.native.usage(), self.kernel.usage()];
        assert_eq!(native, kernel, "{}", self.what);
        self.native.finish(|event| self.reported.push(event));
        let mut kernel = Vec::new();
        self.kernel.finish(self.last, |event| kernel.push(event));
        self.assert_equal(&kernel);
        let [native, kernel] = [self.native.stats(), self.kernel.stats()];
        for ((name, ours), (_, theirs)) in native.by_name().zip(kernel.by_name()) {
            assert_eq!(ours, theirs, "{}: {name}", self.what);
        }
        assert_eq!(
            (native.events_lost, native.lock_failures),
            (0, 0),
            "{}",
            self.what
        );
        println!(
            "{}: {} frames, {} cells, {} pairs, {} events, {} samples",
            self.what,
            self.fed,
            self.counted[0],
            self.counted[1],
            self.events + self.reported.len(),
            native.samples_seq + native.samples_ts + native.samples_handshake + native.samples_icmp
        );
        native
    }
}

/// Small tables that still hold what comes.
fn small(mode: Mode) -> Config {
    Config {
        mode: mode as u32,
        ..Config::default().with_flows(256)
    }
}

/// So small that every limit is met.
fn tiny(mode: Mode) -> Config {
    Config {
        mode: mode as u32,
        flow_sets: 1,
        half_sets: 1,
        chunks: 40,
        max_segments: 12,
        evict_guard: 50 * MS,
        half_open_timeout: SECOND,
        ..Config::default()
    }
}

/// Feeds a packet where it comes in, and sometimes where it goes out again, as a router has it.
fn feed_at_hooks(runtimes: &mut Runtimes, random: &mut Random, frame: Frame, data: &[u8]) {
    let (comes, goes) = if random.chance(500) { (2, 3) } else { (3, 2) };
    let coming = Frame {
        ifindex: comes,
        direction: FrameDirection::In as u8,
        segs: random.pick(&[0, 0, 1, 2, 44]),
        vlan: random.pick(&[0, 0, 0, 7]),
        ..frame
    };
    if random.chance(200) {
        let through = Frame {
            rx_ifindex: goes,
            flags: Frame::THROUGH,
            out_vlan: random.pick(&[0, 7, 9]),
            ..coming
        };
        return runtimes.feed(through, data);
    }
    runtimes.feed(coming, data);
    if random.chance(400) {
        let going = Frame {
            now: frame.now + 2_000,
            ifindex: goes,
            rx_ifindex: comes,
            direction: FrameDirection::Out as u8,
            flags: random.pick(&[0, Frame::SEEN_BEFORE, Frame::AFTER_QUEUE]),
            ..frame
        };
        runtimes.feed(going, data);
    }
}

fn run(what: &str, traffic: &Traffic, config: Config, hooks: bool) -> Stats {
    let mut runtimes = Runtimes::new(what, config);
    let mut random = Random::new(traffic.seen.len() as u64);
    let mut next_expiry = 0;
    for (frame, data) in traffic.frames() {
        if frame.now >= next_expiry {
            let sets = (config.flow_sets + config.half_sets).div_ceil(4);
            runtimes.expire(frame.now, sets);
            next_expiry = frame.now + SECOND / 2;
        }
        if hooks {
            feed_at_hooks(&mut runtimes, &mut random, frame, &data);
        } else {
            runtimes.feed(frame, &data);
        }
    }
    runtimes.finish()
}

fn options(flows: usize) -> traffic::Options {
    traffic::Options {
        flows,
        bytes: 40_000,
        upstream_ack_loss: true,
        ..traffic::Options::default()
    }
}

#[test]
fn runtimes_agree_on_generated_traffic_in_every_mode() {
    requires!(Need::Root);
    let first = test_seed();
    for (n, mode) in (0..).zip(MODES) {
        let seed = first.wrapping_add(n);
        let traffic = generate(seed, &options(12));
        let stats = run(
            &format!("seed {seed}, {mode:?}"),
            &traffic,
            small(mode),
            false,
        );
        assert!(stats.samples_handshake > 0 && stats.tcp_packets > 500);
    }
}

#[test]
fn runtimes_agree_where_packets_pass_several_hooks() {
    requires!(Need::Root);
    let first = test_seed();
    for (n, mode) in (20..).zip([Mode::Hybrid, Mode::Ts]) {
        let seed = first.wrapping_add(n);
        let traffic = generate(seed, &options(12));
        let config = Config {
            rate_limit: 5 * MS,
            rate_limit_rtts: 128,
            ..small(mode)
        };
        let stats = run(
            &format!("hooks, seed {seed}, {mode:?}"),
            &traffic,
            config,
            true,
        );
        assert!(stats.second_hook_packets > 0 && stats.samples_suppressed > 0);
    }
}

#[test]
fn runtimes_agree_when_tables_are_too_small() {
    requires!(Need::Root);
    let first = test_seed();
    for (n, mode) in (40..).zip([Mode::Hybrid, Mode::Seq]) {
        let seed = first.wrapping_add(n);
        let traffic = generate(seed, &options(40));
        let stats = run(
            &format!("tiny, seed {seed}, {mode:?}"),
            &traffic,
            tiny(mode),
            false,
        );
        assert!(
            stats.flows_refused > 0 && stats.segments_refused > 0,
            "{stats:?}"
        );
    }
}

/// In the kernel, too, structured addresses find entries like random ones.
#[test]
fn runtimes_agree_on_structured_addresses() {
    requires!(Need::Root);
    for pattern in &PATTERNS {
        let mut runtimes = Runtimes::new(pattern.name, Config::default().with_flows(1024));
        for n in 0..1000 {
            let (frame, data) = pattern.data(n);
            runtimes.feed(frame, &data);
        }
        let refused = runtimes.finish().flows_refused;
        let limit = refusals(1000, 128, 8);
        let name = pattern.name;
        assert!(refused <= limit, "{name}: {refused} refused, not {limit}");
    }
}

fn v4(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, random.draw() as u8, random.draw() as u8)
}

/// SYNs from everywhere, some of them answered, reset, completed or repeated.
#[test]
fn runtimes_agree_in_a_syn_flood() {
    requires!(Need::Root);
    let mut random = Random::new(test_seed().wrapping_add(60));
    let mut runtimes = Runtimes::new("SYN flood", tiny(Mode::Hybrid));
    let server = Ipv4Addr::new(192, 0, 2, 1);
    let mut now = SECOND;
    for number in 1..=20_000 {
        now += random.within(1_000, 30_000);
        let (client, port, seq) = (v4(&mut random), random.draw() as u16, random.draw() as u32);
        let mut send = |to_server: bool, seq: u32, ack: u32, flags: Flags| {
            let (src, dst) = if to_server {
                (client, server)
            } else {
                (server, client)
            };
            let (src_port, dst_port) = if to_server { (port, 443) } else { (443, port) };
            let header = Header {
                src_port,
                dst_port,
                seq,
                ack,
                flags,
                window: 1,
                ..Header::default()
            };
            let data = Packet::raw().ipv4(src, dst).tcp(header).build();
            now += 500;
            let wire_len = data.len() as u32;
            let link = Link::Raw as u16;
            runtimes.feed(
                Frame {
                    now,
                    number,
                    wire_len,
                    link,
                    ..Frame::default()
                },
                &data,
            );
        };
        send(true, seq, 0, Flags::SYN);
        match random.within(0, 12) {
            0 => send(true, seq, 0, Flags::SYN),
            1 => send(true, seq.wrapping_add(99), 0, Flags::SYN),
            2 => send(false, 0, seq.wrapping_add(1), Flags::RST | Flags::ACK),
            3 | 4 => send(false, 7, seq.wrapping_add(1), Flags::SYN | Flags::ACK),
            5 => {
                send(false, 7, seq.wrapping_add(1), Flags::SYN | Flags::ACK);
                send(true, seq.wrapping_add(1), 8, Flags::ACK);
            }
            6 => {
                send(false, 7, seq.wrapping_add(1), Flags::SYN | Flags::ACK);
                send(true, seq.wrapping_add(1), 8, Flags::FIN | Flags::ACK);
                send(false, 8, seq.wrapping_add(2), Flags::FIN | Flags::ACK);
            }
            _ => {}
        }
        if number % 1_000 == 0 {
            runtimes.expire(now, 2);
        }
    }
    let stats = runtimes.finish();
    assert!(stats.half_open_evicted > 10_000 && stats.half_open_failed > 100);
}

/// One frame of each kind of link and of what is in it, in both directions.
fn kinds() -> Vec<(Link, Vec<u8>)> {
    [true, false].into_iter().flat_map(kinds_one_way).collect()
}

fn kinds_one_way(forth: bool) -> Vec<(Link, Vec<u8>)> {
    let turn = |n: u8| if forth { n } else { 3 - n };
    let [a, b] = [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, turn(n)));
    let [c, d] = [1, 2].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, turn(n).into()));
    let (src_port, dst_port, seq, ack) = if forth {
        (40_000, 443, 1000, 2000)
    } else {
        (443, 40_000, 2000, 1100)
    };
    let ethernet = || Packet::ethernet(MacAddr::local(1), MacAddr::local(2));
    let cooked = |version| {
        Packet::sll(sll::Header {
            version,
            packet_type: sll::PacketType::Outgoing,
            addr: MacAddr::local(1),
            ethertype: EtherType::EXPERIMENT,
        })
    };
    let links = [
        (Link::Ethernet, ethernet()),
        (Link::Ethernet, ethernet().vlan(1)),
        (Link::Ethernet, ethernet().vlan(1).vlan(2).vlan(3).vlan(4)),
        (
            Link::Ethernet,
            ethernet().vlan(1).vlan(2).vlan(3).vlan(4).vlan(5),
        ),
        (Link::Ethernet, ethernet().pppoe(9)),
        (Link::Ethernet, ethernet().vlan(7).pppoe(9)),
        (Link::Raw, Packet::raw()),
        (Link::Ppp, Packet::ppp()),
        (Link::Null, Packet::null()),
        (Link::Null, Packet::loopback()),
        (Link::Sll, cooked(sll::Version::V1)),
        (Link::Sll2, cooked(sll::Version::V2(IfIndex(3)))),
    ];
    let header = |flags, options| Header {
        src_port,
        dst_port,
        seq,
        ack,
        flags,
        window: 500,
        options,
        ..Header::default()
    };
    let stamps = TcpOption::Timestamps { tsval: 5, tsecr: 6 };
    let segments = [
        header(
            Flags::SYN,
            vec![
                TcpOption::Mss(1460),
                TcpOption::SackPermitted,
                stamps.clone(),
            ],
        ),
        header(
            Flags::SYN | Flags::ACK,
            vec![TcpOption::WindowScale(7), TcpOption::Nop],
        ),
        header(
            Flags::ACK,
            vec![TcpOption::Sack(vec![(900, 950), (2000, 3000)]), stamps],
        ),
        header(Flags::FIN | Flags::ACK, vec![]),
        header(Flags::RST, vec![]),
    ];
    let echoes = [
        icmp::Message::EchoRequest { id: 1, seq: 2 },
        icmp::Message::EchoReply { id: 1, seq: 2 },
        icmp::Message::EchoRequest { id: 1, seq: 3 },
        icmp::Message::TimeExceeded { code: 0 },
    ];
    let mut kinds = Vec::new();
    for (link, outer) in links {
        let four = || outer.clone().ipv4(a, b);
        let six = || outer.clone().ipv6(c, d);
        let mut extended = ipv6::Header::new(c, d);
        extended.extensions = vec![Extension::HopByHop(vec![])];
        let mut cut = ipv4::Header::new(a, b);
        cut.more_fragments = true;
        for segment in &segments {
            kinds.push((link, four().tcp(segment.clone()).zeros(100)));
            kinds.push((link, six().tcp(segment.clone())));
            kinds.push((
                link,
                outer
                    .clone()
                    .ipv6_header(extended.clone())
                    .tcp(segment.clone()),
            ));
            kinds.push((
                link,
                outer.clone().ipv4_header(cut.clone()).tcp(segment.clone()),
            ));
        }
        for echo in echoes {
            kinds.push((link, four().icmp(echo).zeros(56)));
            kinds.push((link, six().icmp(echo)));
        }
        kinds.push((link, four().udp(53, 53).zeros(20)));
    }
    kinds
        .into_iter()
        .map(|(link, packet)| (link, packet.build()))
        .collect()
}

#[test]
fn runtimes_agree_on_every_link_and_packet() {
    requires!(Need::Root);
    let mut runtimes = Runtimes::new("kinds", small(Mode::Hybrid));
    let mut now = SECOND;
    // Each has an answer of the same kind, so that there are samples.
    let pairs = kinds_one_way(true).into_iter().zip(kinds_one_way(false));
    let frames: Vec<_> = pairs.flat_map(|(forth, back)| [forth, back]).collect();
    for len in [usize::MAX, 100, 60, 40, 14, 1, 0] {
        for (link, data) in &frames {
            now += 1000;
            let frame = Frame {
                now,
                number: 1,
                wire_len: data.len() as u32,
                link: *link as u16,
                ..Frame::default()
            };
            runtimes.feed(frame, &data[..len.min(data.len())]);
        }
    }
    let stats = runtimes.finish();
    assert!(stats.samples_icmp > 0 && stats.truncated > 100, "{stats:?}");
}

/// A frame with a few of its bytes or its length changed, and with anything for its surroundings.
fn mutated(random: &mut Random, now: u64, from: &[(Link, Vec<u8>)]) -> (Frame, Vec<u8>) {
    let (link, mut data) = from[random.draw() as usize % from.len()].clone();
    for _ in 0..random.within(0, 4) {
        // Most relevant fields are in the first bytes.
        let reach = random.pick(&[20, 60, 100, 2000]).min(data.len() as u64);
        if let Some(byte) = data.get_mut(random.within(0, reach) as usize) {
            *byte = random.pick(&[
                0,
                1,
                0xff,
                *byte ^ 1,
                *byte ^ 0x80,
                random.clone().draw() as u8,
            ]);
        }
    }
    let wire_len = data.len() as u32;
    if random.chance(200) {
        data.truncate(random.within(0, data.len() as u64 + 1) as usize);
    }
    let any_link = random.within(0, 8) as u16;
    let frame = Frame {
        now: now - random.pick(&[0, 0, 0, 10 * MS]),
        number: now,
        wire_len: random.pick(&[wire_len, wire_len, wire_len, 0, 40, u32::MAX]),
        segs: random.pick(&[0, 1, 3]),
        ifindex: random.pick(&[0, 2, 3]),
        rx_ifindex: random.pick(&[0, 2, 3]),
        link: if random.chance(950) {
            link as u16
        } else {
            any_link
        },
        vlan: random.pick(&[0, 0, 5]),
        direction: random.pick(&[0, 1, 2]),
        flags: random.pick(&[0, 0, 1, 2, 3, 4, 5]),
        out_vlan: random.pick(&[0, 0, 5, 7]),
        mark: random.pick(&[0, 0, 7]),
        zero2: 0,
    };
    (frame, data)
}

#[test]
fn runtimes_agree_on_200_000_mutated_packets() {
    requires!(Need::Root);
    let kinds = kinds();
    let (first, share) = (test_seed(), Share::reported());
    // Of each half, and what of it is seen at least.
    let packets = share.of(100_000);
    for (n, config) in [(80, small(Mode::Hybrid)), (81, tiny(Mode::Hybrid))] {
        let seed = first.wrapping_add(n);
        let mut runtimes = Runtimes::new(&format!("mutated, seed {seed}"), config);
        let mut random = Random::new(seed);
        let traffic = generate(seed, &options(60));
        let sane: Vec<(Frame, Vec<u8>)> = traffic.frames().collect();
        let mut sane = sane.iter().cycle();
        let mut now = SECOND;
        for number in 1..=packets {
            now += random.pick(&[100, 10_000, MS]);
            // Among sane traffic, that does not go wrong by it.
            let (frame, data) = sane.next().expect("there is some");
            runtimes.feed(Frame { now, ..*frame }, data);
            let (frame, data) = mutated(&mut random, now, &kinds);
            runtimes.feed(frame, &data);
            if number % 10_000 == 0 {
                runtimes.expire(now, 64);
            }
        }
        let stats = runtimes.finish();
        for (name, count) in stats.by_name() {
            let parsing = [
                "not_ip",
                "truncated",
                "malformed",
                "fragments",
                "other_protocol",
            ];
            assert!(
                !parsing.contains(&name) || count > share.of(20),
                "{name}: {count}"
            );
        }
        // By these the test sees something; how much varies tenfold with the seed.
        assert!(stats.tcp_packets > packets / 4, "{stats:?}");
        assert!(stats.samples_seq > packets / 100, "{stats:?}");
        assert!(stats.samples_icmp > 0, "{stats:?}");
    }
}
