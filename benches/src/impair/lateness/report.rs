//! The results of paces: medians of the rounds, what sparse flows gain, targets.

use serde::Serialize;

use super::{DELAY_US, One, Port};
use crate::impair::paced::Passed;
use crate::measure::{Measured, Target};
use crate::table::{build, grouped};

/// The promise: half of all packets, and 99 % of them.
const P50_US: f64 = 30.0;
const P99_US: f64 = 100.0;
/// The permitted addition to the delay of a sparse packet, in comparison with the same path without
/// delay: as much as it may be late.
const ADDED_US: f64 = 100.0;

/// All of it.
#[derive(Debug, Serialize)]
pub struct LatenessReport {
    rounds: u32,
    rows: Vec<LatenessRow>,
    sparse: Vec<Sparse>,
    targets: Vec<Target>,
}

/// One pace by one port; times in microseconds, of each round.
#[derive(Debug, Serialize)]
struct LatenessRow {
    port: Port,
    /// Configured packets per second.
    pace: u32,
    /// Sent a second.
    sent: Measured,
    p50_us: Measured,
    p99_us: Measured,
    p999_us: Measured,
    most_us: Measured,
    /// Of one core, by the command.
    cpu_percent: Measured,
    /// Against the plan, over all rounds: dropped by it or before it.
    own_drops: u64,
    /// Datagrams that did not come to the receiver, over all rounds.
    missing: u64,
    /// Rounds that were invalid, and why.
    invalid: Vec<String>,
}

/// The time of a sparse datagram in one direction, microseconds by the receiver's clock.
#[derive(Debug, Serialize)]
struct Sparse {
    port: Port,
    pace: u32,
    /// The median without the command.
    without_us: Measured,
    /// The median with it, less the delay.
    with_us: Measured,
    /// Of the same round: the difference.
    added_us: Measured,
    /// The fastest of all, less the delay: below 0, one left before its time.
    min_us: f64,
}

/// The measurements of a pace by a port, in each round.
pub struct Case {
    pub port: Port,
    pub pace: u32,
    sent: Vec<f64>,
    late_us: [Vec<f64>; 4],
    cpu_percent: Vec<f64>,
    own_drops: u64,
    missing: u64,
    invalid: Vec<String>,
    without_us: Vec<f64>,
    with_us: Vec<f64>,
    min_us: f64,
}

impl Case {
    /// Before its first round.
    pub fn new(port: Port, pace: u32) -> Case {
        Case {
            port,
            pace,
            sent: Vec::new(),
            late_us: Default::default(),
            cpu_percent: Vec::new(),
            own_drops: 0,
            missing: 0,
            invalid: Vec::new(),
            without_us: Vec::new(),
            with_us: Vec::new(),
            min_us: f64::INFINITY,
        }
    }

    /// A round, and the same pace without the command.
    pub fn push(&mut self, one: One, without: Option<&Passed>) {
        let late = one.direction.lateness_ns.unwrap_or_default();
        for (list, ns) in self.late_us.iter_mut().zip(late) {
            list.push(ns as f64 / 1e3);
        }
        self.sent.push(one.passed.pace);
        self.cpu_percent.push(one.cpu_percent);
        self.own_drops += one.direction.own_dropped + one.direction.queue_dropped;
        self.missing += one.passed.missing();
        if !one.reported.is_true {
            self.invalid.push(one.reported.why.join("; "));
        }
        if let Some(without) = without {
            self.without_us.push(without.median_us());
            self.with_us.push(one.passed.median_us() - DELAY_US);
            self.min_us = self.min_us.min(one.passed.min_us() - DELAY_US);
        }
    }

    fn sparse(&self) -> Option<Sparse> {
        if self.with_us.is_empty() {
            return None;
        }
        let without_us = Measured::of(self.without_us.clone());
        let with_us = Measured::of(self.with_us.clone());
        Some(Sparse {
            port: self.port,
            pace: self.pace,
            added_us: with_us.pairs(&without_us, |with, without| with - without),
            without_us,
            with_us,
            min_us: self.min_us,
        })
    }

    fn row(self) -> LatenessRow {
        let [p50_us, p99_us, p999_us, most_us] = self.late_us.map(Measured::of);
        LatenessRow {
            port: self.port,
            pace: self.pace,
            sent: Measured::of(self.sent),
            p50_us,
            p99_us,
            p999_us,
            most_us,
            cpu_percent: Measured::of(self.cpu_percent),
            own_drops: self.own_drops,
            missing: self.missing,
            invalid: self.invalid,
        }
    }
}

impl LatenessReport {
    /// Of all rounds.
    pub fn of(rounds: u32, cases: Vec<Case>) -> LatenessReport {
        let sparse: Vec<Sparse> = cases.iter().filter_map(Case::sparse).collect();
        let rows: Vec<LatenessRow> = cases.into_iter().map(Case::row).collect();
        let mut targets = Vec::new();
        for row in &rows {
            let what = |of: &str| {
                format!(
                    "lateness by {} at {} packets/s, {of}",
                    row.port.name(),
                    grouped(row.pace.into())
                )
            };
            let p50 = Target::at_most(what("p50"), row.p50_us.median, P50_US, "us");
            let p99 = Target::at_most(what("p99"), row.p99_us.median, P99_US, "us");
            targets.extend([p50, p99]);
        }
        for row in &sparse {
            let what = format!("added to a sparse flow by {}", row.port.name());
            let figure = row.added_us.median;
            targets.push(Target::at_most(what, figure, ADDED_US, "us"));
        }
        LatenessReport {
            rounds,
            rows,
            sparse,
            targets,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let late = [
            "us late", "sent/s", "p50", "p99", "p99.9", "most", "CPU %", "dropped", "missing",
            "true",
        ];
        let rows: Vec<_> = self.rows.iter().map(|row| row.cells(self.rounds)).collect();
        let mut text = format!(
            "\nA delay of 20 ms, 64-byte UDP; medians of {} rounds [least, most]\n\n{}",
            self.rounds,
            build(&late, &rows)
        );
        let invalid = self.rows.iter().flat_map(|row| {
            let of = format!("{} at {}/s", row.port.name(), row.pace);
            let lines = row.invalid.iter();
            lines.map(move |why| format!("  invalid: {of}: {why}\n"))
        });
        text.extend(invalid);
        if !self.sparse.is_empty() {
            let heads = [
                "us one way",
                "without",
                "with, less 20 ms",
                "added",
                "least",
            ];
            let rows: Vec<_> = self.sparse.iter().map(Sparse::cells).collect();
            text += "\nSparse flows, by the receiver's clock\n\n";
            text += &build(&heads, &rows);
        }
        text.push('\n');
        text.extend(self.targets.iter().map(Target::text));
        text
    }
}

/// "12 [9, 15]".
fn three(measured: &Measured) -> String {
    let [median, min, most] = [measured.median, measured.min, measured.most];
    format!("{median:.0} [{min:.0}, {most:.0}]")
}

impl LatenessRow {
    fn cells(&self, rounds: u32) -> Vec<String> {
        let mut cells = vec![format!("{} {}/s", self.port.name(), self.pace)];
        cells.push(format!("{:.0}", self.sent.median));
        let late = [&self.p50_us, &self.p99_us, &self.p999_us, &self.most_us];
        cells.extend(late.map(three));
        cells.push(three(&self.cpu_percent));
        cells.extend([self.own_drops, self.missing].map(|n| n.to_string()));
        let is_true = rounds as usize - self.invalid.len();
        cells.push(format!("{is_true} of {rounds}"));
        cells
    }
}

impl Sparse {
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![format!("{} {}/s", self.port.name(), self.pace)];
        cells.extend([&self.without_us, &self.with_us, &self.added_us].map(three));
        cells.push(format!("{:.0}", self.min_us));
        cells
    }
}
