//! Generates packets from a specification. A heap has one event per flow, ordered by time and then by
//! flow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::net::{IpAddr, Ipv4Addr};

use fairpath_core::sched::Meta;
use fairpath_statistics::Random;

use super::sender::Sender;
use super::spec::{Hint, Kind, Sizes, Source, Spec};
use super::{Arrival, Arrivals, Finished, MAX_ROWS, TrafficError, TrafficRow};

/// Maximum concurrent flows of [`Kind::Transfers`]. Further flows are excluded and counted.
pub const MAX_TRANSFERS: usize = 100_000;

/// Generates the packets of a [`Spec`].
pub struct Generator {
    sources: Vec<Source>,
    flows: Vec<Flow>,
    rows: Vec<TrafficRow>,
    /// The next event of each flow: time and flow.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    random: Random,
    /// Free entries in `flows` of completed transfers.
    free: Vec<u32>,
    transfers: u64,
    midflow: usize,
    excluded: u64,
    next: Option<Arrival>,
}

struct Flow {
    source: u32,
    row: u32,
    meta: Meta,
    state: State,
}

enum State {
    /// One packet after the other.
    Steady,
    /// Sends until this time.
    OnOff {
        until: u64,
    },
    Bulk(Box<Sender>),
    /// Starts transfers.
    Begins,
    Transfer(Transfer),
    /// Remaining bytes of this round, and the time of the next round.
    Incast {
        left: u64,
        next: u64,
    },
    /// The entry is free.
    Ended,
}

struct Transfer {
    bytes: u64,
    left: u64,
    began: u64,
    /// Packets that were neither sent nor dropped yet.
    waiting: u32,
    lost: bool,
}

impl Generator {
    /// Flows begin at a random time in their first interval, except for [`Kind::Incast`].
    ///
    /// `class_of` returns the number of a class.
    ///
    /// # Errors
    /// The name of an unknown class.
    pub fn new(
        spec: &Spec,
        seed: u64,
        class_of: impl Fn(&str) -> Option<u32>,
    ) -> Result<Generator, String> {
        let mut generator = Generator {
            sources: spec.sources.clone(),
            flows: Vec::new(),
            rows: Vec::new(),
            events: BinaryHeap::new(),
            random: Random::new(seed),
            free: Vec::new(),
            transfers: 0,
            midflow: 0,
            excluded: 0,
            next: None,
        };
        for (at, source) in spec.sources.iter().enumerate() {
            let class = class_of(&source.class).ok_or_else(|| source.class.clone())?;
            for flow in 0..source.flows {
                generator.begin(at as u32, source, flow, class);
            }
        }
        Ok(generator)
    }

    fn begin(&mut self, at: u32, source: &Source, number: u32, class: u32) {
        let meta = meta_of(source, at, number, class);
        let first = match source.kind {
            Kind::Incast { .. } => 0,
            Kind::Bulk { rtt_ns, .. } => self.random.below(rtt_ns),
            Kind::Transfers { .. } => self.random.exponential(source.between_ns()),
            _ => self.random.below(source.between_ns().max(1)),
        };
        let first = source.start_ns.saturating_add(first);
        let state = match source.kind {
            Kind::Cbr | Kind::Poisson => State::Steady,
            Kind::OnOff { on_ns, .. } => State::OnOff {
                until: first.saturating_add(self.random.exponential(on_ns)),
            },
            Kind::Bulk {
                rtt_ns,
                window,
                reacts,
            } => State::Bulk(Box::new(Sender::new(rtt_ns, window, reacts))),
            Kind::Transfers { .. } => State::Begins,
            Kind::Incast { bytes, every_ns } => State::Incast {
                left: bytes,
                next: first.saturating_add(every_ns),
            },
        };
        let row = self.row(source, number, &meta);
        self.events.push(Reverse((first, self.flows.len() as u32)));
        self.flows.push(Flow {
            source: at,
            row,
            meta,
            state,
        });
    }

    /// Adds a row for a flow. Flows above the limit share one row.
    fn row(&mut self, source: &Source, number: u32, meta: &Meta) -> u32 {
        if self.rows.len() == MAX_ROWS {
            return MAX_ROWS as u32 - 1;
        }
        let is_group = matches!(source.kind, Kind::Transfers { .. });
        let name = match source.flows {
            _ if self.rows.len() == MAX_ROWS - 1 => "others".to_owned(),
            1 => source.name.clone(),
            _ => format!("{}/{}", source.name, number + 1),
        };
        let sample = (!is_group).then_some(*meta);
        self.rows.push(TrafficRow {
            name,
            class: meta.class_id,
            weight: source.weight,
            sample,
        });
        self.rows.len() as u32 - 1
    }

    /// Starts a transfer, and schedules the next of flow `at`.
    fn start_transfer(&mut self, now: u64, at: u32) {
        let source = &self.sources[self.flows[at as usize].source as usize];
        let next = now + self.random.exponential(source.between_ns());
        self.events.push(Reverse((next, at)));
        self.transfer(now, at);
    }

    /// Starts a transfer in a free entry.
    fn transfer(&mut self, now: u64, begins: u32) {
        if self.midflow == MAX_TRANSFERS {
            self.excluded += 1;
            return;
        }
        let flow = &self.flows[begins as usize];
        let source = &self.sources[flow.source as usize];
        let bytes = source.transfer_bytes(&mut self.random);
        self.transfers += 1;
        self.midflow += 1;
        let mut meta = meta_of(
            source,
            flow.source,
            self.transfers as u32,
            flow.meta.class_id,
        );
        meta.source_port = self.transfers as u16;
        let transfer = Transfer {
            bytes,
            left: bytes,
            began: now,
            waiting: 0,
            lost: false,
        };
        let flow = Flow {
            source: flow.source,
            row: flow.row,
            meta: meta.with_flow_hash(),
            state: State::Transfer(transfer),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.flows[at as usize] = flow;
                at
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.events.push(Reverse((now, at)));
    }

    /// Notifies a reacting sender of its packet one round trip later.
    fn left(&mut self, at: u32, now: u64, bad: bool) {
        if let State::Bulk(sender) = &mut self.flows[at as usize].state {
            let wakes = sender.left(now, bad);
            self.events.extend(wakes.map(|wakes| Reverse((wakes, at))));
        }
    }

    /// Counts a sent or dropped packet of a transfer. The last one completes it.
    fn done(&mut self, at: u32, now: u64, lost: bool) -> Option<Finished> {
        let flow = &mut self.flows[at as usize];
        let State::Transfer(transfer) = &mut flow.state else {
            return None;
        };
        transfer.waiting -= 1;
        transfer.lost |= lost;
        if transfer.left > 0 || transfer.waiting > 0 {
            return None;
        }
        let (took_ns, bytes, lost) = (now - transfer.began, transfer.bytes, transfer.lost);
        flow.state = State::Ended;
        self.free.push(at);
        self.midflow -= 1;
        Some(Finished {
            row: flow.row,
            took_ns,
            bytes,
            lost,
        })
    }
}

/// Replaces the first event by the next of its flow, which costs less than to pop and push.
fn replace(mut first: PeekMut<'_, Reverse<(u64, u32)>>, next: Option<Reverse<(u64, u32)>>) {
    match next {
        Some(next) => *first = next,
        None => drop(PeekMut::pop(first)),
    }
}

impl State {
    /// The length of the packet to send now, or 0, and the time of the next event.
    #[inline]
    fn send(&mut self, now: u64, source: &Source, random: &mut Random) -> (u32, Option<u64>) {
        let bytes = source.sizes.one(random);
        match self {
            State::Steady if source.kind == Kind::Poisson => {
                (bytes, Some(now + random.exponential(source.between_ns())))
            }
            State::Steady => (bytes, Some(now + source.gap_ns(bytes))),
            State::OnOff { until } => {
                let mut next = now + source.gap_ns(bytes);
                if let Kind::OnOff { on_ns, off_ns } = source.kind
                    && next > *until
                {
                    next = until.saturating_add(random.exponential(off_ns)).max(next);
                    *until = next.saturating_add(random.exponential(on_ns));
                }
                (bytes, Some(next))
            }
            State::Bulk(sender) => {
                let next = sender.learn(now);
                let may = sender.capacity() > 0;
                if may {
                    sender.sends();
                }
                (if may { bytes } else { 0 }, next)
            }
            State::Transfer(transfer) => {
                // A packet has at least its headers.
                let bytes = transfer.left.min(bytes.into()) as u32;
                transfer.left -= u64::from(bytes);
                transfer.waiting += 1;
                (
                    bytes.max(64),
                    (transfer.left > 0).then(|| now + source.gap_ns(bytes)),
                )
            }
            State::Incast { left, next } => {
                let bytes = (*left).min(bytes.into()) as u32;
                *left -= u64::from(bytes);
                let again = now + source.gap_ns(bytes);
                if *left > 0 {
                    return (bytes.max(64), Some(again));
                }
                let Kind::Incast {
                    bytes: all,
                    every_ns,
                } = source.kind
                else {
                    return (0, None);
                };
                let begins = (*next).max(again);
                (*left, *next) = (all, begins.saturating_add(every_ns));
                (bytes.max(64), Some(begins))
            }
            State::Begins | State::Ended => (0, None),
        }
    }
}

impl Source {
    /// The time of `bytes` at the rate of the flow, at least 1 ns.
    fn gap_ns(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * 8_000_000_000 / self.rate_bps.max(1)).max(1)
    }

    /// The mean interval between packets, or between flows of [`Kind::Transfers`].
    fn between_ns(&self) -> u64 {
        let (bytes, bps) = match self.kind {
            Kind::Transfers {
                mean_bytes,
                load_bps,
                ..
            } => (mean_bytes, load_bps),
            _ => (self.sizes.mean(), self.rate_bps),
        };
        ((u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1))) as u64).max(1)
    }

    /// A size from a Pareto distribution with the configured mean, bounded by the maximum size.
    fn transfer_bytes(&self, random: &mut Random) -> u64 {
        let Kind::Transfers {
            mean_bytes,
            max_bytes,
            shape,
            ..
        } = self.kind
        else {
            return 0;
        };
        let min = pareto_min(mean_bytes as f64, max_bytes as f64, shape);
        random.pareto(shape, (min as u64).max(1), max_bytes)
    }
}

/// The minimum size L for which sizes bounded by `max` have this mean, by bisection. For
/// X = min(Pareto, max), E[X] = L (a - (L/max)^(a-1)) / (a - 1).
fn pareto_min(mean: f64, max: f64, shape: f64) -> f64 {
    let mean_of = |min: f64| min * (shape - (min / max).powf(shape - 1.0)) / (shape - 1.0);
    let (mut low, mut high) = (0.0, mean);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if mean_of(middle) < mean {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

impl Sizes {
    #[inline]
    fn one(&self, random: &mut Random) -> u32 {
        match self {
            Sizes::Between(min, max) if min == max => *min,
            Sizes::Between(min, max) => min + random.below(u64::from(max - min) + 1) as u32,
            Sizes::Imix => match random.below(12) {
                0..7 => 64,
                7..11 => 576,
                _ => 1514,
            },
        }
    }
}

fn meta_of(source: &Source, at: u32, flow: u32, class: u32) -> Meta {
    let host = flow % source.hosts;
    let from = Ipv4Addr::from(10 << 24 | (at & 63) << 18 | host & 0x3_ffff);
    let to = Ipv4Addr::from(172 << 24 | 16 << 16 | (at & 63) << 8 | 1);
    let meta = Meta {
        class_id: class,
        dscp: source.dscp,
        ecn: if source.ecn { 2 } else { 0 },
        protocol: source.protocol,
        source_port: 10_000 + (flow % 50_000) as u16,
        destination_port: source.port,
        segments: 1,
        ..Meta::default()
    };
    meta.between(IpAddr::V4(from), IpAddr::V4(to))
        .with_flow_hash()
}

#[inline]
fn packet(flow: &Flow, source: &Source, at: u32, now: u64, bytes: u32) -> Arrival {
    let hint = match (source.hint, &flow.state) {
        (Hint::Fixed(hint), _) => hint,
        (Hint::Deadline(ns), _) => now.saturating_add(ns),
        (Hint::Usual, State::Transfer(transfer)) => transfer.left + u64::from(bytes),
        (Hint::Usual, State::Bulk(_)) => Hint::ENDLESS,
        (Hint::Usual, _) => 0,
    };
    Arrival {
        meta: Meta {
            arrival: now,
            bytes,
            hint,
            ..flow.meta
        },
        row: flow.row,
        sender: at,
    }
}

impl Arrivals for Generator {
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError> {
        while self.next.is_none() {
            let Some(first) = self.events.peek_mut() else {
                break;
            };
            let Reverse((now, at)) = *first;
            let flow = &mut self.flows[at as usize];
            let source = &self.sources[flow.source as usize];
            let stops = now >= source.stop_ns && !matches!(flow.state, State::Transfer(_));
            if stops || matches!(flow.state, State::Begins) {
                PeekMut::pop(first);
                if !stops {
                    self.start_transfer(now, at);
                }
                continue;
            }
            let (bytes, next) = flow.state.send(now, source, &mut self.random);
            replace(first, next.map(|next| Reverse((next, at))));
            self.next = (bytes > 0).then(|| packet(flow, source, at, now, bytes));
        }
        Ok(self.next.map(|next| next.meta.arrival))
    }

    fn take(&mut self) -> Option<Arrival> {
        self.next.take()
    }

    fn sent(&mut self, sender: u32, now: u64, marked: bool) -> Option<Finished> {
        self.left(sender, now, marked);
        self.done(sender, now, false)
    }

    fn dropped(&mut self, sender: u32, now: u64) -> Option<Finished> {
        self.left(sender, now, true);
        self.done(sender, now, true)
    }

    fn patience_ns(&self) -> u64 {
        let rtts = self.sources.iter().filter_map(|source| match source.kind {
            Kind::Bulk { rtt_ns, .. } => Some(rtt_ns),
            _ => None,
        });
        rtts.min().unwrap_or(u64::MAX)
    }

    fn rows(&self) -> &[TrafficRow] {
        &self.rows
    }

    fn excluded(&self) -> Vec<(&'static str, u64)> {
        let reason = "transfers_beyond_limit";
        Vec::from_iter((self.excluded > 0).then_some((reason, self.excluded)))
    }
}
