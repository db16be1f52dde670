//! What shapers come to: medians of the rounds, ratios to HTB of the same round.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::scene::{Idle, Loaded, payload_bps};
use super::via::Via;
use crate::measure::Measured;
use crate::table::{grouped, lay_out};

/// Of what TCP can have of the line, in percent: below, the shaper does not keep up.
const FULL: f64 = 95.0;

/// One cell; its order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// The line's rate, Ethernet frames.
    pub line_bps: u64,
    /// TCP connections.
    pub flows: u32,
    /// Classes; 0 without a shaper.
    pub classes: u32,
    /// Who shapes.
    pub via: Via,
}

/// Measured in each round.
#[derive(Default)]
pub struct Lists {
    goodput_bps: Vec<f64>,
    cpu: Vec<f64>,
    own: Vec<f64>,
    busy: Vec<f64>,
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
pub struct Report {
    seconds: u32,
    rows: Vec<Row>,
    beside_htb: Vec<Beside>,
    failed: Vec<Failed>,
}

/// One cell, medians of the rounds.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    goodput_bps: Measured,
    /// Percent of what TCP can have of the line.
    share: f64,
    /// CPU seconds of all CPUs for a Gbit received, less those of an idle run.
    cpu_s_per_gbit: Measured,
    /// Of the shaper's process among them.
    own_s_per_gbit: Option<Measured>,
    /// CPUs that were busy.
    busy_cpus: Measured,
    idle_ms: Ping,
    same_class_ms: Ping,
    other_class_ms: Ping,
    /// Echo requests without an answer, beside flows.
    pings_lost: u32,
    /// Of HTB with as many classes.
    to_htb: Option<Ratios>,
}

#[derive(Debug, Serialize)]
struct Ping {
    p50: Measured,
    p99: Measured,
}

/// A row's figures divided by HTB's of the same rounds.
#[derive(Debug, Serialize)]
struct Ratios {
    goodput: Measured,
    cpu: Measured,
    other_class_p99: Measured,
}

/// One shaper beside HTB, over all rates, flows and classes.
#[derive(Debug, Serialize)]
struct Beside {
    via: Via,
    cases: usize,
    less_cpu: usize,
    not_full: usize,
    goodput: Measured,
    cpu: Measured,
    other_class_p99: Measured,
}

#[derive(Debug, Serialize)]
struct Failed {
    via: Via,
    classes: u32,
    why: String,
}

impl Report {
    /// Of what was measured, and what failed.
    pub fn of(
        seconds: u32,
        measured: BTreeMap<Case, Lists>,
        failed: BTreeMap<(Via, u32), String>,
    ) -> Report {
        let mut rows: Vec<Row> = measured.into_iter().map(Row::of).collect();
        let ratios: Vec<Option<Ratios>> = rows.iter().map(|row| row.to_htb(&rows)).collect();
        for (row, ratios) in rows.iter_mut().zip(ratios) {
            row.to_htb = ratios;
        }
        let failed = failed
            .into_iter()
            .map(|((via, classes), why)| Failed { via, classes, why });
        Report {
            seconds,
            beside_htb: Via::ALL
                .iter()
                .filter_map(|via| Beside::of(*via, &rows))
                .collect(),
            rows,
            failed: failed.collect(),
        }
    }
}

impl Row {
    fn of((case, lists): (Case, Lists)) -> Row {
        let [idle_ms, same_class_ms, other_class_ms] = lists.pings.map(|[p50, p99]| Ping {
            p50: Measured::of(p50),
            p99: Measured::of(p99),
        });
        let goodput_bps = Measured::of(lists.goodput_bps);
        Row {
            case,
            share: 100.0 * goodput_bps.median / payload_bps(case.line_bps) as f64,
            goodput_bps,
            cpu_s_per_gbit: Measured::of(lists.cpu),
            own_s_per_gbit: (!lists.own.is_empty()).then(|| Measured::of(lists.own)),
            busy_cpus: Measured::of(lists.busy),
            idle_ms,
            same_class_ms,
            other_class_ms,
            pings_lost: lists.lost,
            to_htb: None,
        }
    }

    fn to_htb(&self, rows: &[Row]) -> Option<Ratios> {
        let peer = Case {
            via: Via::Htb,
            ..self.case
        };
        let htb = rows.iter().find(|row| row.case == peer)?;
        let ratio = |a: &Measured, b: &Measured| a.pairs(b, |a, b| a / b);
        (self.case.via > Via::Htb).then(|| Ratios {
            goodput: ratio(&self.goodput_bps, &htb.goodput_bps),
            cpu: ratio(&self.cpu_s_per_gbit, &htb.cpu_s_per_gbit),
            other_class_p99: ratio(&self.other_class_ms.p99, &htb.other_class_ms.p99),
        })
    }

    fn cells(&self) -> Vec<String> {
        let ratio = |of: fn(&Ratios) -> &Measured| {
            let ratios = self.to_htb.as_ref();
            ratios.map_or(String::new(), |ratios| format!("{:.2}", of(ratios).median))
        };
        let classes = match self.case.classes {
            0 => String::new(),
            classes => grouped(classes.into()),
        };
        let own = self.own_s_per_gbit.as_ref();
        let mut cells = vec![
            self.case.via.name().to_owned(),
            classes,
            grouped((self.goodput_bps.median / 1e6).round() as u64),
            format!("{:.0}", self.share),
            format!("{:.3}", self.cpu_s_per_gbit.median),
            ratio(|ratios| &ratios.cpu),
            own.map_or(String::new(), |own| format!("{:.3}", own.median)),
            format!("{:.2}", self.busy_cpus.median),
        ];
        for ping in [&self.idle_ms, &self.same_class_ms, &self.other_class_ms] {
            cells.extend([&ping.p50, &ping.p99].map(|ms| digits(ms.median)));
        }
        cells.push(ratio(|ratios| &ratios.other_class_p99));
        cells.push(self.pings_lost.to_string());
        cells
    }
}

impl Beside {
    fn of(via: Via, rows: &[Row]) -> Option<Beside> {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.case.via == via).collect();
        let ratios: Vec<&Ratios> = rows.iter().filter_map(|row| row.to_htb.as_ref()).collect();
        let all = |of: fn(&Ratios) -> &Measured| {
            Measured::of(ratios.iter().map(|ratios| of(ratios).median).collect())
        };
        let cpu = all(|ratios| &ratios.cpu);
        (!ratios.is_empty()).then(|| Beside {
            via,
            cases: ratios.len(),
            less_cpu: cpu.each.iter().filter(|ratio| **ratio < 1.0).count(),
            not_full: rows.iter().filter(|row| row.share < FULL).count(),
            goodput: all(|ratios| &ratios.goodput),
            cpu,
            other_class_p99: all(|ratios| &ratios.other_class_p99),
        })
    }

    fn cells(&self) -> Vec<String> {
        let three = |m: &Measured| format!("{:.2} ({:.2}..{:.2})", m.median, m.least, m.most);
        vec![
            self.via.name().to_owned(),
            three(&self.goodput),
            three(&self.cpu),
            three(&self.other_class_p99),
            format!("{} of {}", self.less_cpu, self.cases),
            format!("{} of {}", self.not_full, self.cases),
        ]
    }
}

/// Milliseconds with three digits that count.
fn digits(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

const HEADS: [&str; 16] = [
    "",
    "classes",
    "Mbit/s",
    "%",
    "CPU s/Gbit",
    "x HTB",
    "own",
    "CPUs",
    "idle p50",
    "p99",
    "same p50",
    "p99",
    "other p50",
    "p99",
    "x HTB",
    "lost",
];
const BESIDE_HEADS: [&str; 6] = [
    "to HTB by hand",
    "goodput",
    "CPU s/Gbit",
    "ping p99, other class",
    "less CPU in",
    "not full in",
];

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nShaping: TCP (cubic, GSO) through a router, turns of {} s; pings in ms, to the flows' subscriber\n  \
             (same) and to another (other); HTB by hand classifies by u32 in two hashes, leaves are FIFOs\n",
            self.seconds
        );
        let table = |row: &Row| (row.case.line_bps, row.case.flows);
        for rows in self.rows.chunk_by(|a, b| table(a) == table(b)) {
            let Some(first) = rows.first() else { continue };
            let (line, flows) = (first.case.line_bps as f64 / 1e9, first.case.flows);
            let flows = if flows == 1 {
                "one flow".to_owned()
            } else {
                format!("{flows} flows")
            };
            let cells: Vec<_> = rows.iter().map(Row::cells).collect();
            let _ = write!(
                out,
                "\n  {line} Gbit/s, {flows}\n{}",
                lay_out(&HEADS, &cells)
            );
        }
        if !self.beside_htb.is_empty() {
            let cells: Vec<_> = self.beside_htb.iter().map(Beside::cells).collect();
            let _ = write!(out, "\n{}", lay_out(&BESIDE_HEADS, &cells));
            out.extend(self.beside_htb.iter().filter_map(Beside::verdict));
        }
        for failed in &self.failed {
            let Failed { via, classes, why } = failed;
            let _ = writeln!(
                out,
                "  failed {}, {} classes: {why}",
                via.name(),
                grouped((*classes).into())
            );
        }
        out
    }
}

impl Beside {
    /// Where the kernel's own does better, said in words.
    fn verdict(&self) -> Option<String> {
        let wins = self.cases - self.less_cpu;
        (wins > 0).then(|| {
            format!(
                "  {}: HTB with GSO takes less CPU in {wins} of {} cases, at the median {:.1} times less\n",
                self.via.name(),
                self.cases,
                self.cpu.median
            )
        })
    }
}
