//! Generated TCP traffic past one point, in virtual time, with the actual values.
//!
//! ```text
//!   host 0 --near--> monitor --far--> host 1        each half: delay, jitter, loss, reordering
//!   host 0 <--near-- monitor <--far-- host 1
//! ```
//!
//! Hosts ([`tcp`]) follow RFC 9293 and RFC 7323 as far as it affects RTT measurement: delayed ACKs, TS.Recent by section
//! 4.3, PAWS, fast retransmit, timeouts with go-back-N, FIN, keep-alives. The simulator records for each packet the
//! transmissions that it answers first. Samples are compared with these.
//!
//! Deliberately absent: congestion control as such, SACK, GSO (edge tests make those packets by hand).

#![allow(dead_code)] // every test binary uses another part of it

pub mod occupancy;
pub mod script;
pub mod structured;
pub mod tcp;

pub use fairpath_statistics::Random;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_core::{Frame, Link};
use fairpath_wire::tcp::{Flags, Header, TcpOption};
use fairpath_wire::{EtherType, MacAddr, vlan};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A TCP packet as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub flow: usize,
    /// Host 0 or 1.
    pub from: usize,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub payload: u32,
    /// TSval and TSecr.
    pub ts: Option<(u32, u32)>,
}

/// A packet as the monitor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    pub at: u64,
    pub number: u64,
    pub packet: Packet,
}

/// The encapsulation of a flow's packets.
#[derive(Clone, Copy, Debug)]
pub enum Wrap {
    Ethernet,
    Vlan,
    QinQ,
    Pppoe,
    VlanPppoe,
    Raw,
    Ppp,
}

/// Where a flow's packets go, and how they are wrapped.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub address: [IpAddr; 2],
    pub port: [u16; 2],
    pub wrap: Wrap,
}

impl Flow {
    pub fn numbered(index: usize) -> Flow {
        let n = index as u8;
        Flow {
            address: [
                Ipv4Addr::new(10, 0, 0, n).into(),
                Ipv4Addr::new(192, 0, 2, 1).into(),
            ],
            port: [40_000 + index as u16, 443],
            wrap: Wrap::Ethernet,
        }
    }

    fn random(index: usize, random: &mut Random) -> Flow {
        let mut flow = Flow::numbered(index);
        if random.chance(400) {
            let v6 = |net, host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host));
            flow.address = [v6(1, index as u16), v6(2, 1)];
        }
        flow.wrap = random.pick(&[
            Wrap::Ethernet,
            Wrap::Ethernet,
            Wrap::Vlan,
            Wrap::QinQ,
            Wrap::Pppoe,
            Wrap::VlanPppoe,
            Wrap::Raw,
            Wrap::Ppp,
        ]);
        if random.chance(500) {
            flow.address.swap(0, 1);
            flow.port.swap(0, 1);
        }
        flow
    }

    /// The frame of a packet, and what the driver knows of it.
    pub fn frame(&self, seen: &Observed) -> (Frame, Vec<u8>) {
        let p = &seen.packet;
        let (from, to) = (p.from, 1 - p.from);
        let mut options = Vec::new();
        if let Some((tsval, tsecr)) = p.ts {
            if !p.flags.contains(Flags::SYN) {
                options.extend([TcpOption::Nop, TcpOption::Nop]);
            }
            options.push(TcpOption::Timestamps { tsval, tsecr });
        }
        let header = Header {
            src_port: self.port[from],
            dst_port: self.port[to],
            seq: p.seq,
            ack: p.ack,
            flags: p.flags,
            window: p.window,
            options,
            ..Header::default()
        };
        let (link, outer) = self.outer();
        let ip = match (self.address[from], self.address[to]) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => outer.ipv4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => outer.ipv6(src, dst),
            _ => panic!("a flow has one family"),
        };
        let bytes = ip.tcp(header).zeros(p.payload as usize).build();
        let meta = Frame {
            now: seen.at,
            number: seen.number,
            wire_len: bytes.len() as u32,
            link: link as u16,
            ..Frame::default()
        };
        (meta, bytes)
    }

    fn outer(&self) -> (Link, fairpath_wire::Frame) {
        let ethernet = || fairpath_wire::Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
        let service = vlan::Header {
            priority: 3,
            drop_eligible: false,
            id: 200,
            ethertype: EtherType::VLAN,
        };
        match self.wrap {
            Wrap::Ethernet => (Link::Ethernet, ethernet()),
            Wrap::Vlan => (Link::Ethernet, ethernet().vlan(7)),
            Wrap::QinQ => (
                Link::Ethernet,
                ethernet()
                    .vlan_tag(EtherType::SERVICE_VLAN, service)
                    .vlan(7),
            ),
            Wrap::Pppoe => (Link::Ethernet, ethernet().pppoe(1)),
            Wrap::VlanPppoe => (Link::Ethernet, ethernet().vlan(7).pppoe(1)),
            Wrap::Raw => (Link::Raw, fairpath_wire::Frame::raw()),
            Wrap::Ppp => (Link::Ppp, fairpath_wire::Frame::ppp()),
        }
    }
}

/// The behaviour of the network between the hosts; chances in parts per thousand.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// One way, by half: host 0 to monitor, monitor to host 1.
    pub delay: [u64; 2],
    pub jitter: u64,
    /// Loss of packets with payload, before and behind the monitor.
    pub upstream_loss: u64,
    pub loss_behind: u64,
    /// Loss of pure ACKs also.
    pub upstream_ack_loss: u64,
    pub ack_loss_behind: u64,
    /// A packet is held up by up to one delay, on either half.
    pub reorder: u64,
}

impl Weather {
    pub const FAIR: Weather = Weather {
        delay: [5 * MS, 20 * MS],
        jitter: 0,
        upstream_loss: 0,
        loss_behind: 0,
        upstream_ack_loss: 0,
        ack_loss_behind: 0,
        reorder: 0,
    };

    fn random(random: &mut Random) -> Weather {
        let storm = random.pick(&[0, 2, 10, 40]);
        Weather {
            delay: [
                random.pick(&[20_000, MS, 10 * MS, 80 * MS]) + random.within(0, MS),
                random.pick(&[50_000, 3 * MS, 30 * MS, 200 * MS]) + random.within(0, MS),
            ],
            jitter: random.pick(&[0, 10_000, MS]),
            upstream_loss: random.within(0, storm + 1),
            loss_behind: random.within(0, storm + 1),
            upstream_ack_loss: 0,
            ack_loss_behind: random.within(0, 2 * storm + 1),
            reorder: random.pick(&[0, 0, 5, 30]),
        }
    }
}

/// All packets that passed the monitor, and the actual values.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    pub flows: Vec<Flow>,
    pub seen: Vec<Observed>,
    /// By packet number: the round trips that this packet is the first to complete.
    pub validation: HashMap<u64, Vec<u64>>,
    /// The same for those that a packet completed which never reached the monitor: the next ones say so too, too late.
    pub late: HashMap<u64, Vec<u64>>,
}

impl Traffic {
    /// Frames in the order of time, ready for a monitor.
    pub fn frames(&self) -> impl Iterator<Item = (Frame, Vec<u8>)> + '_ {
        let frame = |seen: &Observed| self.flows[seen.packet.flow].frame(seen);
        self.seen.iter().map(frame)
    }

    /// Without what passed before `start`.
    pub fn after(mut self, start: u64) -> Traffic {
        self.seen.retain(|seen| seen.at >= start);
        self
    }

    pub fn only_flow(&self, flow: usize) -> Traffic {
        let mut one = self.clone();
        one.seen.retain(|seen| seen.packet.flow == flow);
        one
    }
}

/// The options of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub flows: usize,
    pub bytes: u64,
    /// Packets that answer something are lost upstream of the monitor: then some actual values are not observable.
    pub upstream_ack_loss: bool,
    /// Added to every clock, sequence number and both initial numbers.
    pub shift: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            flows: 6,
            bytes: 60_000,
            upstream_ack_loss: false,
            shift: 0,
        }
    }
}

pub fn generate(seed: u64, options: &Options) -> Traffic {
    let mut random = Random::new(seed);
    let mut all = Traffic::default();
    let mut passed = Vec::new();
    for index in 0..options.flows {
        let flow = Flow::random(index, &mut random);
        let mut weather = Weather::random(&mut random);
        if options.upstream_ack_loss {
            weather.upstream_ack_loss = random.pick(&[5, 30, 100]);
        }
        let pair = tcp::Host::random_pair(&mut random, &weather, options);
        let start = random.within(0, 2 * SECOND);
        passed.extend(Simulation::new(random.draw(), weather, pair).run(start, index));
        all.flows.push(flow);
    }
    // Stable: two packets of the same nanosecond keep their order within the flow.
    passed.sort_by_key(|passed| passed.at);
    for (i, passed) in passed.into_iter().enumerate() {
        let number = i as u64 + 1;
        all.validation.insert(number, passed.validation);
        all.late.insert(number, passed.late);
        all.seen.push(Observed {
            at: passed.at,
            number,
            packet: passed.packet,
        });
    }
    all
}

/// A packet past the monitor, and the round trips it completes.
struct Passed {
    at: u64,
    packet: Packet,
    validation: Vec<u64>,
    late: Vec<u64>,
}

/// A packet on its way, and the transmissions it is the first to answer.
#[derive(Clone, Debug)]
pub struct Flight {
    pub id: u64,
    pub packet: Packet,
    pub answers: Vec<u64>,
}

enum Event {
    Pass(Flight),
    Arrive(Flight),
    Timer { host: usize, timer: tcp::Timer },
}

/// One flow from its SYN to silence.
struct Simulation {
    random: Random,
    weather: Weather,
    hosts: [tcp::Host; 2],
    /// Time and a number that keeps the order of equal times.
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    next_id: u64,
    /// Arrival of the last packet, by direction and half: without configured reordering there is none.
    last: [[u64; 2]; 2],
    seen_at: HashMap<u64, u64>,
    /// Transmissions answered by packets in flight to the monitor, by packet; reordering is included.
    midflow: [BTreeMap<u64, Vec<u64>>; 2],
    /// Transmissions answered by packets that were lost upstream of the monitor.
    unheard: [Vec<u64>; 2],
    answers_get_lost: bool,
    passed: Vec<Passed>,
}

/// More events than any flow of these sizes needs.
const MAX_EVENTS: u64 = 200_000;

impl Simulation {
    fn new(seed: u64, weather: Weather, hosts: [tcp::Host; 2]) -> Simulation {
        Simulation {
            random: Random::new(seed),
            weather,
            hosts,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            next_id: 0,
            last: [[0; 2]; 2],
            seen_at: HashMap::new(),
            midflow: [BTreeMap::new(), BTreeMap::new()],
            unheard: [Vec::new(), Vec::new()],
            answers_get_lost: weather.upstream_ack_loss > 0,
            passed: Vec::new(),
        }
    }

    fn run(mut self, start: u64, flow: usize) -> Vec<Passed> {
        let actions = self.hosts[0].open(start);
        self.act(start, 0, actions);
        while let Some(std::cmp::Reverse((now, number))) = self.queue.pop() {
            if self.next_event > MAX_EVENTS {
                break;
            }
            match self.events.remove(&number).expect("queued with it") {
                Event::Pass(flight) => self.pass(now, flight, flow),
                Event::Arrive(flight) => {
                    let host = 1 - flight.packet.from;
                    let actions = self.hosts[host].receive(now, &flight);
                    self.act(now, host, actions);
                }
                Event::Timer { host, timer } => {
                    let actions = self.hosts[host].timer(now, timer);
                    self.act(now, host, actions);
                }
            }
        }
        self.passed
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.insert(self.next_event, event);
        self.queue.push(std::cmp::Reverse((time, self.next_event)));
        self.next_event += 1;
    }

    fn act(&mut self, now: u64, host: usize, actions: Vec<tcp::Action>) {
        for action in actions {
            match action {
                tcp::Action::Timer { at, timer } => self.at(at, Event::Timer { host, timer }),
                tcp::Action::Send { packet, answers } => {
                    let packet = Packet {
                        from: host,
                        ..packet
                    };
                    let id = self.next_id;
                    self.next_id += 1;
                    let flight = Flight {
                        id,
                        packet,
                        answers,
                    };
                    let weather = self.weather;
                    let lost = self.lost(&packet, weather.upstream_loss, weather.upstream_ack_loss);
                    if lost && (self.answers_get_lost || flight.answers.is_empty()) {
                        self.unheard[host].extend(flight.answers);
                        continue;
                    }
                    self.midflow[host].insert(id, flight.answers.clone());
                    let time = self.hop(now, host, 0);
                    self.at(time, Event::Pass(flight));
                }
            }
        }
    }

    fn lost(&mut self, packet: &Packet, data: u64, ack: u64) -> bool {
        let chance = if packet.payload > 0 { data } else { ack };
        self.random.chance(chance)
    }

    /// Arrival at the end of a half; `half` counts in the direction of the packet.
    fn hop(&mut self, now: u64, from: usize, half: usize) -> u64 {
        let delay = self.weather.delay[if from == 0 { half } else { 1 - half }];
        let time = now + delay + self.random.within(0, self.weather.jitter + 1);
        if self.random.chance(self.weather.reorder) {
            return time + self.random.within(0, delay.min(20 * MS));
        }
        let last = &mut self.last[from][half];
        *last = time.max(*last + 1);
        *last
    }

    fn pass(&mut self, now: u64, flight: Flight, flow: usize) {
        let from = flight.packet.from;
        let since = |ids: &[u64], at: &HashMap<u64, u64>| -> Vec<u64> {
            ids.iter()
                .filter_map(|id| at.get(id))
                .map(|t| now - t)
                .collect()
        };
        self.seen_at.insert(flight.id, now);
        let reordered = self.midflow[from]
            .range(..=flight.id)
            .flat_map(|(_, ids)| ids.clone());
        let answers: Vec<u64> = reordered.collect();
        self.midflow[from].remove(&flight.id);
        self.passed.push(Passed {
            at: now,
            packet: Packet {
                flow,
                ..flight.packet
            },
            validation: since(&answers, &self.seen_at),
            late: since(&self.unheard[from], &self.seen_at),
        });
        let weather = self.weather;
        if !self.lost(&flight.packet, weather.loss_behind, weather.ack_loss_behind) {
            let time = self.hop(now, from, 1);
            self.at(time, Event::Arrive(flight));
        }
    }
}
