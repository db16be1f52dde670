//! Days of subscribers with known lines, habits and faults, and the verdicts about them.
//!
//! The verdicts are those of the guide: a class *suffers from load* if its score is below 70. It suffers
//! *from the access* if its idle median is at least twice its lowest round-trip time, or if it has an
//! alert inside that load does not explain: of loss, or with a better score. It suffers *outside*
//! if it has an alert outside.

use fairpath_core::{DOWN, UP};
use fairpath_history::history::History;
use fairpath_history::snapshot::{AlertKind, Load};

use crate::lines::*;
use crate::world::*;

/// A day has six parts. The first minutes of each are simulated, and the rest is silence.
const PARTS: u64 = 6;
const PART_S: u64 = 86_400 / PARTS;
/// Without FAIRPATH_VERDICT_MINUTES.
const MINUTES: u64 = 12;
const INTERVAL_S: u64 = 5;
/// A score below this is marked in `fairpath top`.
const WARNING: u8 = 70;
/// Without FAIRPATH_VERDICT_DAYS.
const DAYS: u64 = 50;
/// Without FAIRPATH_VERDICT_SEED.
const SEED: u64 = 20_261;

/// A subscriber and its day.
#[derive(Clone, Copy, Debug)]
struct Subscriber {
    line: Access,
    /// If true, it is idle except in the last two parts of the day.
    evening_only: bool,
    fault: Fault,
    /// Parts of the day with the fault.
    faulty: (u64, u64),
    flows: u32,
}

/// From load, from the access, outside.
type Verdicts = [bool; 3];
/// Minimum precision and recall of each.
const LEAST: [(&str, [f64; 2]); 3] = [
    ("suffers from load", [0.97, 0.95]),
    ("suffers from the access", [0.9, 0.85]),
    ("suffers outside", [0.97, 0.75]),
];

impl Subscriber {
    fn new(dice: &mut Dice) -> Subscriber {
        let mut of = |choices: &[f64]| choices[dice.below(choices.len() as u64) as usize];
        let plan = of(&[0.0, 20e6, 50e6, 105e6, 300e6, 1e9]);
        let rate = of(&[0.02, 0.08, 0.3, 0.7, 1.0, 1.2]) * if plan > 0.0 { plan } else { 50e6 };
        let queue = of(&[2.0, 5.0, 80.0, 150.0, 300.0]);
        let share = of(&[0.1, 0.3, 0.6, 0.95]);
        let habit = match of(&[0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0]) as u8 {
            0 => Habit::Idle,
            1 => Habit::Pages,
            2 => Habit::Stream(rate * 0.4),
            3 => Habit::Greedy(share),
            _ => Habit::Upload(share),
        };
        let mut fault = Fault::default();
        match of(&[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]) as u8 {
            1 => fault.inside_ms = of(&[60.0, 120.0]),
            2 => fault.inside_loss = of(&[0.04, 0.08]),
            3 => fault.outside_ms = of(&[60.0, 120.0]),
            4 => fault.outside_loss = of(&[0.04, 0.08]),
            _ => {}
        }
        let begin = of(&[2.0, 3.0, 4.0]) as u64;
        Subscriber {
            line: Access {
                plan_bps: (plan > 0.0)
                    .then_some(plan as u64)
                    .map_or([None; 2], |plan| [Some(plan / 6), Some(plan)]),
                rate_bps: [rate / 6.0, rate],
                base_ms: of(&[3.0, 12.0, 25.0, 45.0]),
                sigma: of(&[0.1, 0.3, 0.6]),
                queue_ms: [queue; 2],
                habit,
            },
            evening_only: of(&[0.0, 1.0]) > 0.0,
            fault,
            faulty: (begin, begin + of(&[1.0, 2.0]) as u64),
            flows: of(&[20.0, 60.0, 200.0]) as u32,
        }
    }

    /// `None` for a fault while the line is idle: there is no use to disturb, and few packets show it.
    fn verdicts(&self) -> [Option<bool>; 3] {
        let slow = |dir: usize| Some(self.line.queue_ms[dir] >= 60.0);
        let load = match self.line.habit {
            Habit::Greedy(_) => slow(DOWN),
            Habit::Upload(_) => slow(UP),
            _ => Some(false),
        };
        let fault = &self.fault;
        let mut parts = self.faulty.0..self.faulty.1;
        let is_used = self.line.habit != Habit::Idle && parts.any(|part| self.is_active(part));
        let is = |kind: bool| (!kind || is_used).then_some(kind);
        [
            load,
            is(fault.inside_ms + fault.inside_loss > 0.0),
            is(fault.outside_ms + fault.outside_loss > 0.0),
        ]
    }

    fn is_active(&self, part: u64) -> bool {
        !self.evening_only || part >= PARTS - 2
    }

    fn fault_at(&self, part: u64) -> Fault {
        let is_faulty = (self.faulty.0..self.faulty.1).contains(&part);
        if is_faulty {
            self.fault
        } else {
            Fault::default()
        }
    }
}

/// The observations of a class over a day.
#[derive(Clone, Debug, Default)]
struct Seen {
    scores: Vec<u8>,
    /// Number of looks with an idle median far above the lowest round-trip time.
    slow_idle: usize,
    /// Number of shifts inside since the last look, and of alerts inside that load does not explain.
    shifts: usize,
    inside: usize,
    outside: usize,
}

impl Seen {
    fn look(&mut self, load: &Load) {
        self.scores.extend(load.score);
        let above = load.idle_p50_rtt_ns.zip(load.base_rtt_ns);
        let above = above.is_some_and(|(idle, base)| idle > (2 * base).max(base + 10 * MS));
        self.slow_idle += usize::from(above);
        let shifts = std::mem::take(&mut self.shifts);
        if !load.score.is_some_and(is_bad) {
            self.inside += shifts;
        }
    }

    fn verdicts(&self) -> Verdicts {
        let bad = self.scores.iter().filter(|score| is_bad(**score)).count();
        [
            2 * bad > self.scores.len(),
            self.slow_idle + self.inside > 0,
            self.outside > 0,
        ]
    }
}

fn is_bad(score: u8) -> bool {
    score < WARNING
}

/// The number in a variable of the environment.
fn environment(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().unwrap())
}

struct Days {
    world: World,
    history: History,
    subscribers: Vec<(Subscriber, Live, Seen)>,
    dice: Dice,
}

impl Days {
    fn new(subscribers: Vec<Subscriber>) -> Days {
        let mut world = World::new(subscribers.len() + 1);
        let live =
            |subscriber: Subscriber| (subscriber, Live::new(subscriber.line), Seen::default());
        let subscribers: Vec<_> = subscribers.into_iter().map(live).collect();
        let slots = (1u32..).zip(&subscribers);
        let specs = slots.map(|(slot, (_, live, _))| live.spec(&slot.to_string(), slot));
        let history = world.history(specs.collect());
        for (counts, (subscriber, _, _)) in world.counts[1..].iter_mut().zip(&subscribers) {
            counts.flows_opened = subscriber.flows;
        }
        Days {
            history,
            world,
            subscribers,
            dice: Dice(7),
        }
    }

    fn day(&mut self) {
        let simulated_s = 60 * environment("FAIRPATH_VERDICT_MINUTES", MINUTES);
        for part in 0..PARTS {
            (0..simulated_s / INTERVAL_S).for_each(|_| self.interval(part));
            let rest = (PART_S - simulated_s) * SECOND;
            self.world.now.mono_ns += rest;
            self.world.now.unix_ns += rest;
            let rows = snapshot_of(&self.history).rows;
            for ((_, _, seen), row) in self.subscribers.iter_mut().zip(rows) {
                seen.look(&row.load);
            }
        }
    }

    fn interval(&mut self, part: u64) {
        for (slot, (subscriber, live, _)) in (1u32..).zip(&mut self.subscribers) {
            live.line.habit = match subscriber.is_active(part) {
                true => subscriber.line.habit,
                false => Habit::Idle,
            };
            let fault = subscriber.fault_at(part);
            let (world, dice) = (&mut self.world, &mut self.dice);
            live.interval_with(world, &[slot], INTERVAL_S as f64, &fault, dice);
        }
        self.world.now.mono_ns += INTERVAL_S * SECOND;
        self.world.now.unix_ns += INTERVAL_S * SECOND;
        for alert in self.world.read(&mut self.history) {
            let seen = &mut self.subscribers[alert.class.parse::<usize>().unwrap() - 1].2;
            match (alert.active, alert.leg.as_str(), alert.alert) {
                (true, "outside", _) => seen.outside += 1,
                (true, _, AlertKind::RttShift) => seen.shifts += 1,
                (true, _, _) => seen.inside += 1,
                _ => {}
            }
        }
    }
}

#[test]
fn verdicts_about_days_have_precision_and_recall() {
    // A fixed seed, because shares are compared with limits.
    let days = environment("FAIRPATH_VERDICT_DAYS", DAYS);
    let mut dice = Dice(environment("FAIRPATH_VERDICT_SEED", SEED));
    let mut subscribers: Vec<Subscriber> = (1..days).map(|_| Subscriber::new(&mut dice)).collect();
    let counter_example = Subscriber {
        line: COUNTER_EXAMPLE,
        evening_only: false,
        fault: Fault::default(),
        faulty: (0, 0),
        flows: 60,
    };
    subscribers.push(counter_example);
    let mut days = Days::new(subscribers);
    days.day();
    let mut counts = [[0.0f64; 3]; 3];
    for (subscriber, _, seen) in &days.subscribers {
        for (at, (is, verdict)) in subscriber
            .verdicts()
            .into_iter()
            .zip(seen.verdicts())
            .enumerate()
        {
            let [right, wrong, missed] = &mut counts[at];
            match (is, verdict) {
                (Some(true), true) => *right += 1.0,
                (Some(false), true) => *wrong += 1.0,
                (Some(true), false) => *missed += 1.0,
                _ => {}
            }
            if is.is_some_and(|is| is != verdict) {
                println!("{}, not {verdict}: {subscriber:?} {seen:?}", LEAST[at].0);
            }
        }
    }
    for ((name, least), [right, wrong, missed]) in LEAST.iter().zip(counts) {
        let shares = [right / (right + wrong), right / (right + missed)];
        let [precision, recall] = shares;
        println!(
            "{name}: {right} right, {wrong} wrong, {missed} missed: \
             precision {precision:.2}, recall {recall:.2}"
        );
        assert!(right >= 5.0, "{name}: {right}");
        let kept = shares
            .iter()
            .zip(least)
            .all(|(share, least)| share >= least);
        assert!(
            kept,
            "{name}: precision and recall {shares:?}, at least {least:?}"
        );
    }
    let (_, _, seen) = days.subscribers.last().unwrap();
    assert_eq!(seen.verdicts(), [true, false, false], "{seen:?}");
}
