//! All virtual CPUs, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use fairpath_core::sched::{End, Meta, NEVER, SchedReader};
use fairpath_shape::{Balance, INTERVAL_NS, ShapeInstance, SharedRates, packets_of};
use fairpath_statistics::Random;

use super::cpu::{Cpu, Waiting};
use super::demand::{Demand, Sender, Senders};
use super::rss::Rss;
use super::shaped::{Shaped, Wanted};
use super::{
    BATCH, LOOK_EVERY, MAX_MEMORY_BYTES, Offered, PlanError, PlanFindings, PlanSettings,
    PlanSubject,
};
use crate::simulate::Watch;
use crate::traffic::{Arrivals, Capture, TrafficError};

/// The time at which a plan begins. Limits begin at 0, so the pause before is as long as that of an idle router.
const START_NS: u64 = 1_000_000_000;
/// Packets of a sender on the way: what its CPU gets of the rate at once, twice, between these.
const MIN_WINDOW: f64 = 4.0;
const MAX_WINDOW: f64 = 64.0;
/// The time of the rate that all pools have together.
const POOLS_NS: f64 = 100_000.0;
/// Bytes of the largest packet in a capture: a GSO packet.
const LARGEST_CAPTURED: u32 = 65_550;

/// The packets of a capture, in the order of their times.
pub trait Packets {
    /// The time of the next one, the first at 0.
    ///
    /// # Errors
    /// [`TrafficError`].
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError>;

    /// The next one, and whose class it has.
    fn take(&mut self) -> Option<(Meta, End)>;

    /// Packets that were not read, by reason.
    fn excluded(&self) -> Vec<(&'static str, u64)>;
}

impl<R: Read> Packets for Capture<R> {
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError> {
        Arrivals::next_time(self)
    }

    fn take(&mut self) -> Option<(Meta, End)> {
        let end = self.end();
        Some((Arrivals::take(self)?.meta, end))
    }

    fn excluded(&self) -> Vec<(&'static str, u64)> {
        Arrivals::excluded(self)
    }
}

/// A capture as offered.
struct Feed<'a> {
    packets: &'a mut dyn Packets,
    speed: f64,
    rss: Rss,
    /// Packets of a direction that is not planned, and of no leaf.
    excluded: [u64; 2],
}

/// All CPUs.
pub(super) struct Fleet<'a> {
    settings: PlanSettings,
    shaped: Vec<Shaped>,
    cpus: Vec<Cpu>,
    turns: BinaryHeap<Reverse<(u64, u32)>>,
    feed: Option<Feed<'a>>,
    now: u64,
    /// By direction: shared rates as CPUs claim them.
    divided: Vec<Divided>,
    divided_at: u64,
}

/// The counters by which the rates of a direction are divided.
struct Divided {
    balance: Balance,
    workers: Vec<SchedReader>,
}

impl<'a> Fleet<'a> {
    /// Builds the instances.
    pub fn new(
        subject: &PlanSubject<'_>,
        settings: &PlanSettings,
        offered: Offered<'a>,
    ) -> Result<Fleet<'a>, PlanError> {
        let mut shaped = Vec::new();
        for side in subject.sides {
            shaped.push(Shaped::new(
                subject.lines.trees.get(*side),
                *side,
                settings,
            )?);
        }
        let (feed, senders) = match offered {
            Offered::Demand(demand) => (None, senders(subject, settings, demand, &mut shaped)),
            Offered::Capture { packets, speed } => {
                let rss = Rss::new(settings.cpus);
                let excluded = [0; 2];
                let feed = Feed {
                    packets,
                    speed,
                    rss,
                    excluded,
                };
                (Some(feed), none(settings.cpus))
            }
        };
        let handles = handles(&shaped, settings, &senders);
        check_memory(&shaped, settings, handles, &senders)?;
        let largest = feed
            .as_ref()
            .map_or(settings.packet_bytes, |_| LARGEST_CAPTURED);
        for shaped in &mut shaped {
            shaped.share(settings, largest)?;
        }
        let numbered = (0..).zip(senders);
        let cpus: Result<Vec<Cpu>, _> = numbered
            .map(|(number, senders)| Cpu::new(number, senders, &shaped, handles))
            .collect();
        let cpus = cpus?;
        let balances = shaped.iter().enumerate().map(|(side, shaped)| Divided {
            balance: Balance::new(&shaped.tree),
            workers: cpus.iter().map(|cpu| cpu.reader(side)).collect(),
        });
        Ok(Fleet {
            divided: balances.collect(),
            divided_at: START_NS,
            turns: (0..)
                .zip(&cpus)
                .map(|(at, cpu)| Reverse((cpu.due, at)))
                .collect(),
            settings: *settings,
            shaped,
            cpus,
            feed,
            now: START_NS,
        })
    }

    fn end(&self) -> u64 {
        let duration = self.settings.duration_ns;
        duration.map_or(NEVER, |duration| START_NS.saturating_add(duration))
    }

    /// Returns whether it was interrupted.
    pub fn run(&mut self, watch: Watch<'_>) -> Result<bool, PlanError> {
        let mut events: u32 = 0;
        loop {
            events = events.wrapping_add(1);
            if events.is_multiple_of(LOOK_EVERY) && !watch(self.now - START_NS) {
                return Ok(true);
            }
            let (turn, cpu) = self.next_turn();
            let arrives = self.next_arrival()?;
            let next = turn.min(arrives.unwrap_or(NEVER));
            let is_over = self.feed.is_some() && arrives.is_none();
            if next >= self.end() || next == NEVER || is_over {
                self.now = if is_over { self.now } else { self.end() };
                return Ok(false);
            }
            self.divide(next);
            self.now = next;
            match arrives {
                Some(at) if at <= turn => self.arrive(),
                _ => self.step(cpu)?,
            }
        }
    }

    /// Divides shared rates among CPUs, at their times up to the next event.
    fn divide(&mut self, next: u64) {
        while self.divided_at + INTERVAL_NS <= next {
            self.divided_at += INTERVAL_NS;
            for (divided, shaped) in self.divided.iter_mut().zip(&mut self.shaped) {
                if let Some(rates) = &mut shaped.shared {
                    let Divided { balance, workers } = divided;
                    balance.look(rates, workers, self.divided_at);
                }
            }
        }
    }

    /// The next step of a CPU. Later entries of a CPU replace its earlier ones.
    fn next_turn(&mut self) -> (u64, u32) {
        while let Some(Reverse((at, cpu))) = self.turns.peek().copied() {
            if self.cpus[cpu as usize].due == at {
                return (at, cpu);
            }
            self.turns.pop();
        }
        (NEVER, 0)
    }

    fn step(&mut self, cpu: u32) -> Result<(), PlanError> {
        self.turns.pop();
        let from = START_NS + self.settings.warm_up_ns;
        let stepping = &mut self.cpus[cpu as usize];
        stepping.step(self.now, &mut self.shaped, &self.settings, from)?;
        self.turns.push(Reverse((stepping.due, cpu)));
        Ok(())
    }

    fn next_arrival(&mut self) -> Result<Option<u64>, PlanError> {
        let Some(feed) = &mut self.feed else {
            return Ok(None);
        };
        let at = feed.packets.next_time()?;
        Ok(at.map(|at| START_NS + (at as f64 / feed.speed) as u64))
    }

    /// A packet of the capture reaches its CPU.
    fn arrive(&mut self) {
        let Some(feed) = &mut self.feed else {
            return;
        };
        let Some((meta, end)) = feed.packets.take() else {
            return;
        };
        let Some(side) = self.shaped.iter().position(|of| of.side.end() == end) else {
            feed.excluded[0] += 1;
            return;
        };
        let shaped = &mut self.shaped[side];
        let Some(leaf) = shaped.tree.leaf(&meta) else {
            feed.excluded[1] += 1;
            return;
        };
        let (now, cpu) = (self.now, feed.rss.cpu(&meta));
        let bits = f64::from(shaped.link_bytes(&meta)) * 8.0;
        shaped.on_path(leaf, |meter| {
            meter.findings.offered_bps[cpu as usize] += bits;
            meter.arrive(now);
        });
        let meta = Meta {
            arrival: now,
            ..meta
        };
        let waiting = Waiting {
            at: now,
            side,
            leaf,
            meta,
        };
        let receiver = &mut self.cpus[cpu as usize];
        let due = receiver.due;
        if !receiver.arrive(waiting) {
            shaped.on_path(leaf, |meter| {
                meter.findings.dropped += 1;
                meter.leave(now);
            });
        }
        if receiver.due != due {
            self.turns.push(Reverse((receiver.due, cpu)));
        }
    }

    /// The findings until now.
    pub fn finish(self, interrupted: bool) -> PlanFindings {
        let from = START_NS + self.settings.warm_up_ns;
        let (now, measured_ns) = (self.now, self.now.saturating_sub(from));
        let mut excluded = Vec::new();
        if let Some(feed) = &self.feed {
            excluded = feed.packets.excluded();
            let reasons = ["packets_of_other_direction", "packets_without_leaf"];
            let counted = reasons.into_iter().zip(feed.excluded);
            excluded.extend(counted.filter(|(_, count)| *count > 0));
        }
        let mut rates = Vec::new();
        for shaped in self.shaped {
            let first = rates.len();
            for meter in shaped.meters {
                let mut of = meter.finish(now);
                of.above = of.above.map(|above| first + above);
                if self.feed.is_some() {
                    let seconds = measured_ns.max(1) as f64 / 1e9;
                    of.offered_bps.iter_mut().for_each(|bits| *bits /= seconds);
                }
                rates.push(of);
            }
        }
        let cpus = self.cpus.into_iter();
        PlanFindings {
            cpus: cpus.map(|cpu| cpu.finish(now, measured_ns)).collect(),
            rates,
            measured_ns,
            interrupted,
            excluded,
        }
    }
}

fn none(cpus: u32) -> Vec<Senders> {
    (0..cpus).map(|_| Senders::default()).collect()
}

/// The senders of each CPU. The seed chooses the busiest CPU of each class.
fn senders(
    subject: &PlanSubject<'_>,
    settings: &PlanSettings,
    demand: Demand,
    shaped: &mut [Shaped],
) -> Vec<Senders> {
    let mut random = Random::new(settings.seed);
    let mut all = none(settings.cpus);
    let shares = demand.shares(settings.cpus);
    for (side, shaped) in (0..).zip(shaped) {
        for wanted in shaped.wanted(subject) {
            let busiest = random.index(all.len());
            for (place, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let cpu = (busiest + place) % all.len();
                let sender = sender(settings, side, &wanted, *share, shaped, &mut random);
                all[cpu].add(sender);
                let bps = share * wanted.bps;
                shaped.on_path(wanted.leaf, |meter| meter.findings.offered_bps[cpu] += bps);
            }
        }
    }
    all
}

fn sender(
    settings: &PlanSettings,
    side: u32,
    wanted: &Wanted,
    share: f64,
    shaped: &Shaped,
    random: &mut Random,
) -> Sender {
    let bytes = f64::from(shaped.generated_bytes());
    let interval_ns = bytes * 8e9 / (wanted.bps * share);
    let of_cpu = wanted.bps * POOLS_NS / 8e9 / bytes / f64::from(settings.cpus);
    let window = (2.0 * of_cpu).clamp(MIN_WINDOW, MAX_WINDOW) as u32;
    let who = [side, wanted.class_id, wanted.leaf];
    Sender::new(who, interval_ns, window, START_NS, random)
}

/// Packets of an instance: those of its senders, or what a worker holds.
fn handles(shaped: &[Shaped], settings: &PlanSettings, senders: &[Senders]) -> u32 {
    let of_senders = senders.iter().map(Senders::most_packets).max();
    match of_senders.unwrap_or(0) {
        0 => {
            let limits = shaped.iter().map(|of| of.tree.plan.config.limit_packets);
            packets_of(limits.max().unwrap_or(0), settings.cpus)
        }
        packets => packets + BATCH,
    }
}

fn check_memory(
    shaped: &[Shaped],
    settings: &PlanSettings,
    handles: u32,
    senders: &[Senders],
) -> Result<(), PlanError> {
    let cpus = settings.cpus;
    let most_senders = senders.iter().map(Senders::len).max().unwrap_or(0);
    let mut bytes = 0;
    for shaped in shaped {
        let tree = shaped.tree_of(handles, most_senders);
        let instance = ShapeInstance::bytes(&tree, handles, false, cpus > 1)?;
        let own = Cpu::bytes(handles, most_senders, tree.plan.nodes.len());
        bytes += u64::from(cpus) * (instance + own);
        bytes += SharedRates::bytes(&tree, cpus)? + shaped.meter_bytes();
    }
    match bytes > MAX_MEMORY_BYTES {
        true => Err(PlanError::Memory { cpus, bytes }),
        false => Ok(()),
    }
}
