//! Which rates hold, and why others do not.

use super::{CpuFindings, PlanFindings, PlanSettings, RateFindings};

/// A rate holds from this part of it on.
pub const HOLDS_FROM: f64 = 0.99;
/// A CPU is full from this use on.
pub const FULL_FROM: f64 = 0.99;
/// The use of a CPU that a plan recommends at most.
const MOST_USE: f64 = 0.95;
/// A CPU concerns a rate if it has this part of what is offered.
const CONCERNS_FROM: f64 = 0.01;

/// A rate in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Bits per second that it can have at most: its ceiling, or what is offered below it.
    pub target_bps: f64,
    /// Bits per second that it had.
    pub achieved_bps: f64,
    /// The reason of the difference.
    pub cause: Cause,
}

/// Why a rate is as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The rate holds.
    Holds,
    /// The rate around it, at this place, is used fully, and its floor holds.
    Full {
        /// The place.
        above: usize,
    },
    /// The shared word of the rate at this place is always in use.
    Word {
        /// The place: of this rate, or of one around it.
        at: usize,
    },
    /// CPUs are full.
    Cpus {
        /// Their numbers.
        cpus: Vec<u32>,
        /// CPUs that its packets need, if they are spread. If all CPUs are full: those that all packets need.
        needed: u32,
    },
    /// The floor does not hold, and no CPU is full.
    Floor,
    /// Anything else, such as packets that were dropped.
    Other,
}

impl Verdict {
    /// The achieved part of the target.
    pub fn ratio(&self) -> f64 {
        match self.target_bps {
            target if target > 0.0 => self.achieved_bps / target,
            _ => 1.0,
        }
    }

    /// True if the configuration is kept: the rate holds, or others around it use theirs fully.
    pub fn holds(&self) -> bool {
        matches!(self.cause, Cause::Holds | Cause::Full { .. })
    }
}

/// A verdict for each rate of the findings, in their order. O(rates x CPUs).
pub fn judge(findings: &PlanFindings, settings: &PlanSettings) -> Vec<Verdict> {
    let seconds = findings.measured_ns.max(1) as f64 / 1e9;
    let targets = targets(&findings.rates);
    let mut verdicts: Vec<Verdict> = Vec::new();
    let outer = findings.rates.iter().zip(&targets);
    let outer = outer.filter(|(rate, _)| rate.above.is_none());
    let all_bps = outer.map(|(_, target)| target).sum();
    for (rate, target_bps) in findings.rates.iter().zip(targets) {
        let verdict = Verdict {
            target_bps,
            achieved_bps: rate.sent.bytes as f64 * 8.0 / seconds,
            cause: Cause::Holds,
        };
        let mut cause = cause(&verdict, rate, findings, &verdicts);
        if let Cause::Cpus { cpus, needed } = &mut cause {
            let are_all = cpus.len() == findings.cpus.len();
            let bps = if are_all { all_bps } else { target_bps };
            *needed = needed_cpus(bps, rate, &findings.cpus, settings);
        }
        verdicts.push(Verdict { cause, ..verdict });
    }
    verdicts
}

/// The most that each rate can have: the lower one of its ceiling and of its packets from below.
fn targets(rates: &[RateFindings]) -> Vec<f64> {
    let mut reaches: Vec<f64> = rates.iter().map(offered).collect();
    // Parents come before their children.
    for at in (0..rates.len()).rev() {
        let own = offered(&rates[at]);
        let ceiling = rates[at].ceil_bps.map_or(f64::INFINITY, |bps| bps as f64);
        reaches[at] = reaches[at].min(ceiling);
        if let Some(above) = rates[at].above {
            reaches[above] -= own - reaches[at];
        }
    }
    reaches
}

fn offered(rate: &RateFindings) -> f64 {
    rate.offered_bps.iter().sum()
}

fn cause(
    verdict: &Verdict,
    rate: &RateFindings,
    findings: &PlanFindings,
    before: &[Verdict],
) -> Cause {
    // Without a ceiling, the floor is all that is promised.
    let floor = rate.floor_bps.map_or(0.0, |bps| bps as f64);
    let floor = floor.min(verdict.target_bps);
    let promised = match rate.ceil_bps {
        Some(_) => verdict.target_bps,
        None => floor,
    };
    // A packet more or less in a short time proves nothing.
    let packet = mean_bytes(rate) * 8e9 / findings.measured_ns.max(1) as f64;
    let has = |bps: f64| verdict.achieved_bps + packet >= HOLDS_FROM * bps;
    if has(promised) || is_used(rate) {
        return Cause::Holds;
    }
    let has_floor = has(floor);
    if has_floor && let Some(above) = full_above(rate, findings, before) {
        return Cause::Full { above };
    }
    if let Some(at) = full_word(before.len(), findings) {
        return Cause::Word { at };
    }
    let cpus = full_cpus(rate, &findings.cpus);
    match (cpus.is_empty(), has_floor) {
        (false, _) => Cause::Cpus { cpus, needed: 0 },
        (true, false) => Cause::Floor,
        (true, true) => Cause::Other,
    }
}

/// Packets of a capture left at the ceiling whenever some waited.
fn is_used(rate: &RateFindings) -> bool {
    let Some(ceiling) = rate.ceil_bps else {
        return false;
    };
    let could = ceiling as f64 / 8e9 * rate.backlogged_ns as f64;
    rate.backlogged_ns > 0 && rate.sent.bytes as f64 >= HOLDS_FROM * could
}

/// The nearest rate around this one that is used fully.
fn full_above(rate: &RateFindings, findings: &PlanFindings, before: &[Verdict]) -> Option<usize> {
    let mut above = rate.above;
    while let Some(at) = above {
        let around = &findings.rates[at];
        let ceiling = around.ceil_bps.map_or(f64::INFINITY, |bps| bps as f64);
        if before[at].achieved_bps >= HOLDS_FROM * ceiling || is_used(around) {
            return Some(at);
        }
        above = around.above;
    }
    None
}

/// The place of the nearest rate whose shared word is always in use: of this one, or one around it.
fn full_word(place: usize, findings: &PlanFindings) -> Option<usize> {
    let mut at = Some(place);
    while let Some(place) = at {
        let rate = &findings.rates[place];
        if rate.word_ns as f64 >= FULL_FROM * findings.measured_ns.max(1) as f64 {
            return Some(place);
        }
        at = rate.above;
    }
    None
}

/// The full CPUs that have packets of a rate.
fn full_cpus(rate: &RateFindings, cpus: &[CpuFindings]) -> Vec<u32> {
    let all = offered(rate);
    let concerned = (0..).zip(cpus.iter().zip(&rate.offered_bps));
    let full = concerned.filter(|(_, (cpu, offered))| {
        let is_full = cpu.use_ratio >= FULL_FROM || cpu.lost > 0;
        is_full && **offered >= CONCERNS_FROM * all
    });
    full.map(|(number, _)| number).collect()
}

/// Bytes of a packet of a rate that left.
fn mean_bytes(rate: &RateFindings) -> f64 {
    rate.sent.bytes as f64 / rate.sent.packets.max(1) as f64
}

/// CPUs that `bps` need at the cost of the plan, with packets as long as those of a rate.
fn needed_cpus(
    bps: f64,
    rate: &RateFindings,
    cpus: &[CpuFindings],
    settings: &PlanSettings,
) -> u32 {
    let sum = |of: fn(&CpuFindings) -> u64| cpus.iter().map(of).sum::<u64>().max(1) as f64;
    let operations = sum(|cpu| cpu.operations) / sum(|cpu| cpu.packets);
    let cost = settings.cost;
    let packet_ns = cost.local_ns as f64 + operations * cost.shared_ns as f64;
    let bytes = match rate.sent.packets {
        0 => f64::from(settings.packet_bytes),
        _ => mean_bytes(rate),
    };
    let packets = bps / 8.0 / bytes.max(1.0);
    (packets * packet_ns / 1e9 / MOST_USE).ceil().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use fairpath_shape::Side;

    use super::*;
    use crate::plan::Cost;
    use crate::simulate::{Count, Histogram};

    fn rate(
        above: Option<usize>,
        ceil: u64,
        floor: u64,
        offered: &[f64],
        sent: u64,
    ) -> RateFindings {
        let some = |bps: u64| (bps > 0).then_some(bps * 1_000_000);
        RateFindings {
            side: Side::Down,
            name: String::new(),
            ceil_bps: some(ceil),
            floor_bps: some(floor),
            above,
            offered_bps: offered.iter().map(|mbit| mbit * 1e6).collect(),
            sent: Count {
                packets: sent * 100,
                bytes: sent * 125_000,
            },
            dropped: 0,
            sojourn: Histogram::default(),
            burst_bytes: 0,
            bound_bytes: None,
            backlogged_ns: 0,
            word_ns: 0,
        }
    }

    fn causes(rates: Vec<RateFindings>, uses: [f64; 2]) -> Vec<Cause> {
        let findings = PlanFindings {
            cpus: uses
                .map(|use_ratio| CpuFindings {
                    use_ratio,
                    packets: 1,
                    ..CpuFindings::default()
                })
                .to_vec(),
            rates,
            measured_ns: 1_000_000_000,
            interrupted: false,
            excluded: Vec::new(),
        };
        let settings = PlanSettings {
            cpus: 2,
            cost: Cost {
                local_ns: 190_000,
                shared_ns: 0,
            },
            duration_ns: None,
            warm_up_ns: 0,
            packet_bytes: 1250,
            seed: 1,
        };
        let verdicts = judge(&findings, &settings).into_iter();
        verdicts.map(|verdict| verdict.cause).collect()
    }

    #[test]
    fn children_of_a_full_line_need_floors_only() {
        let rates = vec![
            rate(None, 100, 0, &[400.0, 0.0], 100),
            rate(Some(0), 80, 0, &[200.0, 0.0], 50),
            rate(Some(0), 80, 60, &[200.0, 0.0], 50),
        ];
        let found = causes(rates, [0.5, 0.5]);
        assert_eq!(
            found,
            [Cause::Holds, Cause::Full { above: 0 }, Cause::Floor]
        );
    }

    #[test]
    fn a_line_can_have_what_its_classes_can() {
        let rates = vec![
            rate(None, 1000, 0, &[400.0, 0.0], 80),
            rate(Some(0), 80, 0, &[400.0, 0.0], 80),
        ];
        assert_eq!(causes(rates, [0.5, 0.5]), [Cause::Holds, Cause::Holds]);
    }

    #[test]
    fn a_full_word_comes_before_its_cpus() {
        let mut line = rate(None, 100, 0, &[200.0, 0.1], 50);
        line.word_ns = 995_000_000;
        let class = rate(Some(0), 80, 0, &[200.0, 0.1], 50);
        let word = Cause::Word { at: 0 };
        assert_eq!(causes(vec![line, class], [1.0, 1.0]), [word.clone(), word]);
    }

    #[test]
    fn a_class_without_packets_needs_no_more_cpus() {
        let rates = vec![
            rate(None, 100, 0, &[200.0, 200.0], 50),
            rate(Some(0), 80, 0, &[200.0, 200.0], 0),
        ];
        let full = Cause::Cpus {
            cpus: vec![0, 1],
            needed: 2,
        };
        assert_eq!(causes(rates, [1.0, 1.0]), [full.clone(), full]);
    }

    #[test]
    fn full_cpus_of_a_class_are_named() {
        let line = || rate(None, 100, 0, &[200.0, 0.1], 50);
        let full = Cause::Cpus {
            cpus: vec![0],
            // 10,000 packets of 190 us in 0.95 s of each CPU.
            needed: 2,
        };
        assert_eq!(causes(vec![line()], [1.0, 1.0]), [full]);
        assert_eq!(causes(vec![line()], [0.5, 1.0]), [Cause::Other]);
    }
}
