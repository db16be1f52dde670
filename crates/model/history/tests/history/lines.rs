//! Lines with known rates, base round-trip time and queue, and the load verdict about them.
//!
//! A line has one queue in each direction. A greedy transfer fills it and keeps it between 70 % and
//! 100 % of its depth, as CUBIC does. Below its rate there is no queue.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};
use fairpath_history::history::{History, RowSpec, Settings, State};
use fairpath_history::snapshot::{Kind, Load};

use crate::world::*;

/// The use of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Habit {
    /// A few packets per second.
    Idle,
    /// A greedy download for this share of each five minutes, and a few packets per second between.
    Greedy(f64),
    /// The same as an upload.
    Upload(f64),
    /// Pages: transfers of two seconds, one in eight seconds.
    Pages,
    /// A stream of this rate, bits per second.
    Stream(f64),
}

/// A line and its use, as they are.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Configured by the provider, up and down.
    pub plan_bps: [Option<u64>; 2],
    /// Carried by the line, up and down.
    pub rate_bps: [f64; 2],
    pub base_ms: f64,
    /// The standard deviation of its logarithm: 0.1 for a cable, 1 for a bad Wi-Fi.
    pub sigma: f64,
    /// The time that a full queue takes.
    pub queue_ms: [f64; 2],
    pub habit: Habit,
}

/// 105/18 Mbit/s are planned, and 8 Mbit/s carried with a queue of 280 ms.
pub const COUNTER_EXAMPLE: Access = Access {
    plan_bps: [Some(18_000_000), Some(105_000_000)],
    rate_bps: [18e6, 8e6],
    base_ms: 15.0,
    sigma: 0.1,
    queue_ms: [20.0, 280.0],
    habit: Habit::Greedy(0.85),
};

/// The same line carries its plan with this queue.
pub fn sound(habit: Habit) -> Access {
    Access {
        rate_bps: [18e6, 105e6],
        queue_ms: [3.0, 3.0],
        habit,
        ..COUNTER_EXAMPLE
    }
}

/// Disturbances that do not depend on load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fault {
    /// Additional round-trip times.
    pub inside_ms: f64,
    pub outside_ms: f64,
    /// Shares of lost packets.
    pub inside_loss: f64,
    pub outside_loss: f64,
}

/// Offers more than any line can carry.
const GREEDY_BPS: f64 = f64::INFINITY;
/// Time for which a greedy transfer fills a queue.
const FILL_S: f64 = 4.0;
/// Maximum number of round-trip times of an interval, which bounds the time of a test.
const MAX_SAMPLES: f64 = 12.0;
/// Round-trip times to remote hosts.
const OUTSIDE_MS: f64 = 25.0;

/// A line in use.
pub struct Live {
    pub line: Access,
    /// Time since the start, seconds.
    at: f64,
    /// For how long a transfer has been greedy, by direction.
    greedy_s: [f64; 2],
}

impl Live {
    pub fn new(line: Access) -> Live {
        Live {
            line,
            at: 0.0,
            greedy_s: [0.0; 2],
        }
    }

    /// The offered rates at a time.
    fn offered(&self, dice: &mut Dice) -> [f64; 2] {
        let trickle = 20e3 + 20e3 * dice.share();
        let on = |share: f64| self.at % 300.0 < share * 300.0;
        match self.line.habit {
            Habit::Greedy(share) if on(share) => [trickle, GREEDY_BPS],
            Habit::Upload(share) if on(share) => [GREEDY_BPS, trickle],
            Habit::Pages if dice.below(8) == 0 => [trickle, 0.9 * self.line.rate_bps[DOWN]],
            Habit::Stream(rate) => [trickle, rate * (0.9 + 0.2 * dice.share())],
            _ => [trickle; 2],
        }
    }

    /// Counts an interval of the rows of `slots`.
    pub fn interval(&mut self, world: &mut World, slots: &[u32], seconds: f64, dice: &mut Dice) {
        self.interval_with(world, slots, seconds, &Fault::default(), dice);
    }

    pub fn interval_with(
        &mut self,
        world: &mut World,
        slots: &[u32],
        seconds: f64,
        fault: &Fault,
        dice: &mut Dice,
    ) {
        let offered = self.offered(dice);
        self.at += seconds;
        let mut carried = [0.0; 2];
        let mut queue_ms = 0.0;
        for dir in [UP, DOWN] {
            let rate = self.line.rate_bps[dir];
            if offered[dir] < rate {
                (carried[dir], self.greedy_s[dir]) = (offered[dir], 0.0);
                continue;
            }
            self.greedy_s[dir] += seconds;
            let full = (self.greedy_s[dir] / FILL_S).min(1.0);
            let depth = full * self.line.queue_ms[dir] * (0.7 + 0.3 * dice.share());
            (carried[dir], queue_ms) = (rate, queue_ms + depth);
        }
        // Acknowledgements.
        let [up, down] = carried;
        let carried = [up + 0.025 * down, down + 0.025 * up];
        for dir in [UP, DOWN] {
            let bytes = (carried[dir] * seconds / 8.0) as u64;
            for slot in slots {
                world.bytes(*slot, dir, bytes / 1_000 + 1, bytes);
                let packets = bytes as f64 / 1_400.0;
                let [inside, outside] = [fault.inside_loss, fault.outside_loss];
                let (again, before) = if dir == DOWN {
                    (inside, outside)
                } else {
                    (outside, inside)
                };
                let mut lost = |share: f64| (packets * share + dice.share()) as u32;
                world.data(*slot, dir, packets as u32, lost(again), lost(before));
            }
        }
        let wanted = seconds * (1.0 + (carried[UP] + carried[DOWN]) / 1e6);
        for _ in 0..wanted.min(MAX_SAMPLES) as u64 {
            let base = dice.rtt(self.line.base_ms, self.line.sigma);
            let rtt = base + ((fault.inside_ms + queue_ms) * 1e6) as u64;
            let outside = dice.rtt(OUTSIDE_MS, 0.3) + (fault.outside_ms * 1e6) as u64;
            for slot in slots {
                world.rtt(*slot, INSIDE, rtt);
                world.rtt(*slot, OUTSIDE, outside);
            }
        }
    }

    pub fn spec(&self, name: &str, slot: u32) -> RowSpec {
        RowSpec {
            ceil_up_bps: self.line.plan_bps[UP],
            ceil_down_bps: self.line.plan_bps[DOWN],
            ..class(name, slot)
        }
    }
}

/// One class behind a line.
struct One {
    world: World,
    history: History,
    live: Live,
    dice: Dice,
}

impl One {
    fn new(line: Access) -> One {
        let world = World::new(2);
        let live = Live::new(line);
        One {
            history: world.history(vec![live.spec("a", 1)]),
            world,
            live,
            dice: Dice(fairpath_units::test_seed()),
        }
    }

    fn run(&mut self, seconds: u64) -> Load {
        for _ in 0..seconds {
            self.live
                .interval(&mut self.world, &[1], 1.0, &mut self.dice);
            self.world.second(&mut self.history);
        }
        row(&self.history, "a").load
    }
}

fn after_an_hour(line: Access) -> Load {
    One::new(line).run(3600)
}

#[test]
fn a_line_below_its_plan_is_judged() {
    let load = after_an_hour(COUNTER_EXAMPLE);
    let growth = load.rtt_growth_ns.expect("a growth");
    assert!((200_000_000..260_000_000).contains(&growth), "{load:?}");
    assert!(load.score.is_some_and(|score| score < 20), "{load:?}");
}

#[test]
fn lines_at_any_plan_share_are_judged() {
    for share in [0.01, 0.1, 0.5, 1.0] {
        for habit in [Habit::Greedy(0.3), Habit::Greedy(0.95), Habit::Upload(0.5)] {
            let [up, down] = COUNTER_EXAMPLE.plan_bps.map(|plan| plan.unwrap() as f64);
            let slow = Access {
                rate_bps: [up * share, down * share],
                queue_ms: [200.0, 280.0],
                habit,
                ..COUNTER_EXAMPLE
            };
            let load = after_an_hour(slow);
            assert!(
                load.score.is_some_and(|score| score < 25),
                "{share} {habit:?}: {load:?}"
            );
            let managed = Access {
                queue_ms: [4.0; 2],
                ..slow
            };
            let load = after_an_hour(managed);
            assert!(
                load.score.is_none_or(|score| score > 85),
                "{share} {habit:?}: {load:?}"
            );
        }
    }
}

#[test]
fn lines_without_load_have_no_bad_score() {
    for habit in [Habit::Idle, Habit::Pages, Habit::Stream(5e6)] {
        for sigma in [0.1, 0.5, 1.0] {
            let load = after_an_hour(Access {
                sigma,
                ..sound(habit)
            });
            assert!(
                load.score.is_none_or(|score| score > 70),
                "{habit:?} {sigma}: {load:?}"
            );
        }
    }
}

#[test]
fn a_plan_that_is_corrected_begins_again() {
    let mut one = One::new(COUNTER_EXAMPLE);
    one.run(3600);
    let corrected = Access {
        plan_bps: [Some(18_000_000), Some(8_000_000)],
        ..COUNTER_EXAMPLE
    };
    one.live.line = corrected;
    let specs = vec![one.live.spec("a", 1)];
    one.history.configure(specs, &one.world.counts).unwrap();
    assert!(one.run(1).score.is_none(), "begins again");
    let fresh = after_an_hour(corrected).score.unwrap();
    let load = one.run(3600);
    assert!(load.score.unwrap().abs_diff(fresh) <= 2, "{fresh} {load:?}");
}

/// The plan was changed while the daemon did not run.
#[test]
fn a_line_is_known_after_a_restart() {
    let mut one = One::new(COUNTER_EXAMPLE);
    let before = one.run(3600);
    let state = State::from_bytes(&one.history.save().to_bytes().unwrap()).unwrap();
    for plan in [
        COUNTER_EXAMPLE.plan_bps,
        [Some(18_000_000), Some(8_000_000)],
    ] {
        let start = one.world.now;
        let mut history = History::restore(Settings::default(), start, state.clone());
        one.live.line.plan_bps = plan;
        history
            .configure(vec![one.live.spec("a", 1)], &one.world.counts)
            .unwrap();
        one.history = history;
        let score = one.run(1).score;
        let expected = before.score.filter(|_| plan == COUNTER_EXAMPLE.plan_bps);
        assert_eq!(score, expected, "{plan:?}");
    }
}

#[test]
fn intervals_of_any_length_are_judged() {
    for seconds in [10, 60] {
        let mut one = One::new(Access {
            habit: Habit::Greedy(0.6),
            ..COUNTER_EXAMPLE
        });
        for _ in 0..4 * 3600 / seconds {
            let (world, dice) = (&mut one.world, &mut one.dice);
            one.live.interval(world, &[1], seconds as f64, dice);
            one.world.now.mono_ns += seconds * SECOND;
            one.world.read(&mut one.history);
        }
        let load = row(&one.history, "a").load;
        assert!(
            load.score.is_some_and(|score| score < 25),
            "{seconds}: {load:?}"
        );
    }
}

#[test]
fn a_line_that_changes_is_judged_again() {
    let mut one = One::new(sound(Habit::Greedy(0.6)));
    assert!(one.run(3600).score.unwrap() > 85);
    // Rain: 3 of 105 Mbit/s, then a night, then the old rate.
    one.live.line.rate_bps[DOWN] = 3e6;
    one.live.line.queue_ms[DOWN] = 250.0;
    let load = one.run(2400);
    assert!(load.score.unwrap() < 25, "{load:?}");
    one.world.now.mono_ns += 9 * 3600 * SECOND;
    one.live.line = sound(Habit::Greedy(0.6));
    let load = one.run(1200);
    assert!(load.score.unwrap() > 85, "{load:?}");
}

#[test]
fn a_fault_is_no_load() {
    for habit in [
        Habit::Greedy(0.5),
        Habit::Pages,
        Habit::Stream(5e6),
        Habit::Idle,
    ] {
        let mut one = One::new(sound(habit));
        one.run(3600);
        // An hour with 80 ms more, whatever the load.
        let fault = Fault {
            inside_ms: 80.0,
            ..Fault::default()
        };
        for _ in 0..3600 {
            let (world, dice) = (&mut one.world, &mut one.dice);
            one.live.interval_with(world, &[1], 1.0, &fault, dice);
            one.world.second(&mut one.history);
        }
        let load = row(&one.history, "a").load;
        assert!(
            load.score.is_none_or(|score| score > 85),
            "{habit:?}: {load:?}"
        );
    }
}

/// A site of classes behind an interface, which has the last slot and the last row.
struct Site {
    world: World,
    history: History,
    lives: Vec<Live>,
    dice: Dice,
}

impl Site {
    fn new(lines: Vec<Access>) -> Site {
        let lives: Vec<Live> = lines.into_iter().map(Live::new).collect();
        let lan = lives.len() as u32 + 1;
        let mut specs = vec![RowSpec {
            interface: Some(lan as usize),
            ..group("site")
        }];
        for (at, live) in lives.iter().enumerate() {
            let slot = at as u32 + 1;
            specs.push(below(0, live.spec(&format!("c{slot}"), slot)));
        }
        specs.push(RowSpec {
            kind: Kind::Interface,
            ..class("lan0", lan)
        });
        let world = World::new(lan as usize + 1);
        Site {
            history: world.history(specs),
            world,
            lives,
            dice: Dice(fairpath_units::test_seed()),
        }
    }

    /// The loads of the interface and of the class above the others.
    fn run(&mut self, seconds: u64) -> [Load; 2] {
        let lan = self.lives.len() as u32 + 1;
        for _ in 0..seconds {
            for (at, live) in self.lives.iter_mut().enumerate() {
                live.interval(&mut self.world, &[at as u32 + 1, lan], 1.0, &mut self.dice);
            }
            self.world.second(&mut self.history);
        }
        ["lan0", "site"].map(|name| row(&self.history, name).load)
    }
}

#[test]
fn interfaces_are_weighed_by_their_suffering_classes() {
    // One class with a queue among nine that use their line little.
    let mut lines = vec![sound(Habit::Pages); 9];
    lines.push(COUNTER_EXAMPLE);
    let mut site = Site::new(lines);
    let loads = site.run(1800);
    let worst = row(&site.history, "c10").load.score.unwrap();
    for load in loads {
        assert!(load.score.unwrap() < 70, "{worst} {load:?}");
    }
    // One hour of load in each of five classes, one of which has a queue.
    let mut lines = vec![sound(Habit::Greedy(0.5)); 4];
    lines.push(Access {
        habit: Habit::Greedy(0.5),
        ..COUNTER_EXAMPLE
    });
    let loads = Site::new(lines).run(1800);
    for load in loads {
        let expected = (4.0 * 100.0 + f64::from(worst)) / 5.0;
        let score = f64::from(load.score.unwrap());
        assert!((score - expected).abs() < 6.0, "{expected} {load:?}");
    }
    let loads = Site::new(vec![sound(Habit::Greedy(0.5)); 3]).run(900);
    assert!(
        loads.iter().all(|load| load.score.unwrap() > 90),
        "{loads:?}"
    );
}
