//! The results of shapers: medians of the rounds, ratios to HTB of the same round.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Args;
use super::scene::{Idle, Loaded, payload_bps};
use super::via::Via;
use crate::measure::Measured;

/// Of what TCP can have of the line, in percent: below, the shaper does not keep up.
const FULL: f64 = 95.0;
/// One cell; its order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// The link rate, in Ethernet frames.
    pub line_bps: u64,
    /// TCP connections.
    pub flows: u32,
    /// Classes; 0 without a shaper.
    pub classes: u32,
    /// The shaper.
    pub via: Via,
}

/// Measured in each round.
#[derive(Default)]
pub struct Lists {
    goodput_bps: Vec<f64>,
    cpu: Vec<f64>,
    own: Vec<f64>,
    busy: Vec<f64>,
    idle_busy: Vec<f64>,
    idle_own: Vec<f64>,
    pings: [[Vec<f64>; 2]; 3],
    lost: u32,
}

impl Lists {
    /// Takes one round's figures in.
    pub fn push(&mut self, idle: &Idle, loaded: &Loaded) {
        let gbit = loaded.bits / 1e9;
        self.goodput_bps.push(loaded.goodput_bps);
        self.cpu
            .push((loaded.busy - idle.busy * loaded.seconds) / gbit);
        self.own.extend(loaded.own.map(|own| own / gbit));
        self.busy.push(loaded.busy / loaded.seconds);
        self.idle_busy.push(idle.busy);
        self.idle_own.extend(idle.own);
        let [same, other] = &loaded.pings;
        for (lists, times) in self.pings.iter_mut().zip([&idle.pings[1], same, other]) {
            lists[0].push(times.p50 * 1e3);
            lists[1].push(times.p99 * 1e3);
        }
        self.lost += same.lost + other.lost;
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct ShapeReport {
    pub seconds: u32,
    pub both_ways: bool,
    pub rows: Vec<ShapeRow>,
    pub against_htb: Vec<Against>,
    pub failed: Vec<Failed>,
}

/// One cell, medians of the rounds.
#[derive(Debug, Serialize)]
pub struct ShapeRow {
    #[serde(flatten)]
    pub case: Case,
    pub goodput_bps: Measured,
    /// Percent of what TCP can have of the line.
    pub share: f64,
    /// CPU seconds of all CPUs for a Gbit received, less those of an idle run.
    pub cpu_s_per_gbit: Measured,
    /// Of the shaper's process; nothing is taken off.
    pub own_s_per_gbit: Option<Measured>,
    /// CPUs that the shaper's process keeps busy with pings only.
    pub own_idle_cpus: Option<Measured>,
    /// CPUs that were busy.
    pub busy_cpus: Measured,
    /// The same with pings only.
    pub idle_cpus: Measured,
    pub idle_ms: Ping,
    pub same_class_ms: Ping,
    pub other_class_ms: Ping,
    /// Echo requests without an answer, while flows run.
    pub pings_lost: u32,
    /// Of HTB with as many classes.
    pub to_htb: Option<Ratios>,
}

#[derive(Debug, Serialize)]
pub struct Ping {
    pub p50: Measured,
    pub p99: Measured,
}

/// A row's figures divided by HTB's of the same rounds.
#[derive(Debug, Serialize)]
pub struct Ratios {
    pub goodput: Measured,
    pub cpu: Measured,
    pub other_class_p99: Measured,
}

/// One shaper compared with HTB, over all rates, flows and classes.
#[derive(Debug, Serialize)]
pub struct Against {
    pub via: Via,
    pub cases: usize,
    pub less_cpu: usize,
    pub not_full: usize,
    pub goodput: Measured,
    pub cpu: Measured,
    pub other_class_p99: Measured,
}

#[derive(Debug, Serialize)]
pub struct Failed {
    pub via: Via,
    pub classes: u32,
    pub why: String,
}

impl ShapeReport {
    /// Of what was measured, and what failed.
    pub fn of(
        args: &Args,
        measured: BTreeMap<Case, Lists>,
        failed: BTreeMap<(Via, u32), String>,
    ) -> ShapeReport {
        let mut rows: Vec<ShapeRow> = measured.into_iter().map(ShapeRow::of).collect();
        let ratios: Vec<Option<Ratios>> = rows.iter().map(|row| row.to_htb(&rows)).collect();
        for (row, ratios) in rows.iter_mut().zip(ratios) {
            row.to_htb = ratios;
        }
        let failed = failed
            .into_iter()
            .map(|((via, classes), why)| Failed { via, classes, why });
        ShapeReport {
            seconds: args.seconds,
            both_ways: args.both_ways,
            against_htb: Via::ALL
                .iter()
                .filter_map(|via| Against::of(*via, &rows))
                .collect(),
            rows,
            failed: failed.collect(),
        }
    }
}

impl ShapeRow {
    fn of((case, lists): (Case, Lists)) -> ShapeRow {
        let [idle_ms, same_class_ms, other_class_ms] = lists.pings.map(|[p50, p99]| Ping {
            p50: Measured::of(p50),
            p99: Measured::of(p99),
        });
        let goodput_bps = Measured::of(lists.goodput_bps);
        ShapeRow {
            case,
            share: 100.0 * goodput_bps.median / payload_bps(case.line_bps) as f64,
            goodput_bps,
            cpu_s_per_gbit: Measured::of(lists.cpu),
            own_s_per_gbit: some(lists.own),
            own_idle_cpus: some(lists.idle_own),
            busy_cpus: Measured::of(lists.busy),
            idle_cpus: Measured::of(lists.idle_busy),
            idle_ms,
            same_class_ms,
            other_class_ms,
            pings_lost: lists.lost,
            to_htb: None,
        }
    }

    fn to_htb(&self, rows: &[ShapeRow]) -> Option<Ratios> {
        let peer = Case {
            via: Via::Htb,
            ..self.case
        };
        let htb = rows.iter().find(|row| row.case == peer)?;
        let ratio = |a: &Measured, b: &Measured| a.pairs(b, ratio);
        (self.case.via > Via::Htb).then(|| Ratios {
            goodput: ratio(&self.goodput_bps, &htb.goodput_bps),
            cpu: ratio(&self.cpu_s_per_gbit, &htb.cpu_s_per_gbit),
            other_class_p99: ratio(&self.other_class_ms.p99, &htb.other_class_ms.p99),
        })
    }
}

impl Against {
    fn of(via: Via, rows: &[ShapeRow]) -> Option<Against> {
        let rows: Vec<&ShapeRow> = rows.iter().filter(|row| row.case.via == via).collect();
        let ratios: Vec<&Ratios> = rows.iter().filter_map(|row| row.to_htb.as_ref()).collect();
        let all = |of: fn(&Ratios) -> &Measured| {
            let medians = ratios.iter().map(|ratios| of(ratios).median);
            Measured::of(medians.filter(|ratio| ratio.is_finite()).collect())
        };
        let cpu = all(|ratios| &ratios.cpu);
        (!ratios.is_empty()).then(|| Against {
            via,
            cases: ratios.len(),
            less_cpu: cpu.each.iter().filter(|ratio| **ratio < 1.0).count(),
            not_full: rows.iter().filter(|row| row.share < FULL).count(),
            goodput: all(|ratios| &ratios.goodput),
            cpu,
            other_class_p99: all(|ratios| &ratios.other_class_p99),
        })
    }
}

fn some(each: Vec<f64>) -> Option<Measured> {
    (!each.is_empty()).then(|| Measured::of(each))
}

/// NaN where others' noise has left nothing to divide.
fn ratio(a: f64, b: f64) -> f64 {
    if a > 0.0 && b > 0.0 { a / b } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::scene::Times;

    fn pings(ms: f64) -> [Times; 2] {
        [0, 1].map(|_| Times {
            p50: ms / 1e3,
            p99: ms / 1e3,
            lost: 1,
        })
    }

    /// A round of one second with this many CPU seconds, 10 % of a CPU of which are those of pings.
    fn round(lists: &mut Lists, busy: f64, idle_busy: f64) {
        let idle = Idle {
            pings: pings(0.1),
            busy: idle_busy,
            own: Some(0.01),
        };
        let loaded = Loaded {
            pings: pings(2.0),
            bits: 5e8,
            goodput_bps: 5e8,
            seconds: 1.0,
            busy,
            own: Some(0.05),
        };
        lists.push(&idle, &loaded);
    }

    fn report(idle_busy: f64) -> ShapeReport {
        let mut measured = BTreeMap::new();
        for (via, classes, busy) in [
            (Via::Htb, 10, [0.2, 0.6]),
            (Via::Htb, 99, [0.9, 0.9]),
            (Via::Kernel, 10, [0.3, 0.6]),
            (Via::Kernel, 99, [0.5, 0.5]),
        ] {
            let case = Case {
                line_bps: 1_000_000_000,
                flows: 1,
                classes,
                via,
            };
            let lists: &mut Lists = measured.entry(case).or_default();
            for busy in busy {
                round(lists, busy, idle_busy);
            }
        }
        ShapeReport::of(&Args::usual(), measured, BTreeMap::new())
    }

    #[test]
    fn cpu_excludes_pings_and_ratios_compare_one_round() {
        let report = report(0.1);
        let row = report.rows.iter().find(|row| row.case.via == Via::Kernel);
        let row = row.unwrap();
        assert_eq!(row.case.classes, 10);
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near(&row.cpu_s_per_gbit.each, &[0.4, 1.0]), "{row:?}");
        let ratios = row.to_htb.as_ref().unwrap();
        assert!(near(&ratios.cpu.each, &[2.0, 1.0]), "{row:?}");
        assert_eq!(row.pings_lost, 4);
        let [against] = &report.against_htb[..] else {
            panic!("{:?}", report.against_htb);
        };
        assert_eq!((against.cases, against.less_cpu), (2, 1));
        assert!(report.text().contains("HTB with GSO wins on CPU in 1 of 2"));
    }

    #[test]
    fn other_load_is_reported_with_the_figures() {
        assert!(report(0.3).text().contains("unreliable: 0.30 CPUs"));
        assert!(!report(0.1).text().contains("unreliable"));
        // All of HTB's time was others': no ratio, rather than a wild one.
        let text = report(0.6).text();
        assert!(text.contains('?') && !text.contains("inf"), "{text}");
    }
}
