//! The tables for people: one for each rate and number of flows, one of ratios, and what to think of them.

use std::fmt::Write as _;

use super::report::{Against, Failed, Ratios, ShapeReport, ShapeRow};
use crate::measure::Measured;
use crate::table::{build, grouped};

/// CPUs that pings, an idle daemon and an idle machine take at most. More is others' work, which comes
/// and goes: what is left after taking it off says nothing.
pub const QUIET_CPUS: f64 = 0.2;
const HEADS: [&str; 17] = [
    "",
    "classes",
    "Mbit/s",
    "%",
    "CPU s/Gbit",
    "x HTB",
    "own",
    "own idle",
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
const AGAINST_HEADS: [&str; 6] = [
    "to HTB by hand",
    "goodput",
    "CPU s/Gbit",
    "ping p99, other class",
    "less CPU in",
    "not full in",
];

impl ShapeReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nShaping: TCP (cubic, GSO) {} through a router, turns of {} s; pings in ms, to the flows' subscriber\n  \
             (same) and to another (other); HTB by hand classifies by u32 in two hashes, leaves are FIFOs\n",
            if self.both_ways {
                "in both directions"
            } else {
                "down"
            },
            self.seconds
        );
        let table = |row: &ShapeRow| (row.case.line_bps, row.case.flows);
        for rows in self.rows.chunk_by(|a, b| table(a) == table(b)) {
            let Some(first) = rows.first() else { continue };
            let (line, flows) = (first.case.line_bps as f64 / 1e9, first.case.flows);
            let flows = if flows == 1 {
                "one flow".to_owned()
            } else {
                format!("{flows} flows")
            };
            let cells: Vec<_> = rows.iter().map(ShapeRow::cells).collect();
            let _ = write!(out, "\n  {line} Gbit/s, {flows}\n{}", build(&HEADS, &cells));
        }
        if !self.against_htb.is_empty() {
            let cells: Vec<_> = self.against_htb.iter().map(Against::cells).collect();
            let _ = write!(out, "\n{}", build(&AGAINST_HEADS, &cells));
            out.extend(self.against_htb.iter().filter_map(Against::verdict));
        }
        out.extend(self.disturbed());
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

    /// That others kept the machine busy, if they did.
    fn disturbed(&self) -> Option<String> {
        let idle = self.rows.iter().map(|row| row.idle_cpus.most);
        let most = idle.fold(0.0, f64::max);
        (most > QUIET_CPUS).then(|| {
            format!(
                "  unreliable: {most:.2} CPUs were busy without flows; a quiet machine has at most {QUIET_CPUS}\n"
            )
        })
    }
}

impl ShapeRow {
    fn cells(&self) -> Vec<String> {
        let ratio = |of: fn(&Ratios) -> &Measured| {
            let ratios = self.to_htb.as_ref();
            ratios.map_or(String::new(), |ratios| times(of(ratios).median))
        };
        let classes = match self.case.classes {
            0 => String::new(),
            classes => grouped(classes.into()),
        };
        let own = |own: &Option<Measured>| {
            let own = own.as_ref();
            own.map_or(String::new(), |own| format!("{:.3}", own.median))
        };
        let mut cells = vec![
            self.case.via.name().to_owned(),
            classes,
            grouped((self.goodput_bps.median / 1e6).round() as u64),
            format!("{:.0}", self.share),
            format!("{:.3}", self.cpu_s_per_gbit.median),
            ratio(|ratios| &ratios.cpu),
            own(&self.own_s_per_gbit),
            own(&self.own_idle_cpus),
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

impl Against {
    fn cells(&self) -> Vec<String> {
        let three = |m: &Measured| match m.each[..] {
            [] => "?".to_owned(),
            _ => format!("{:.2} ({:.2}..{:.2})", m.median, m.min, m.most),
        };
        vec![
            self.via.name().to_owned(),
            three(&self.goodput),
            three(&self.cpu),
            three(&self.other_class_p99),
            format!("{} of {}", self.less_cpu, self.cases),
            format!("{} of {}", self.not_full, self.cases),
        ]
    }

    /// Where the kernel's own does better, said in words.
    fn verdict(&self) -> Option<String> {
        let worse = self.cpu.each.iter().filter(|ratio| **ratio >= 1.0);
        let worse = Measured::of(worse.copied().collect());
        (!worse.each.is_empty()).then(|| {
            format!(
                "  {}: HTB with GSO wins on CPU in {} of {} cases, where this takes {:.1} times as much (median)\n",
                self.via.name(),
                worse.each.len(),
                self.cases,
                worse.median
            )
        })
    }
}

/// A ratio; "?" where there is none.
fn times(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{ratio:.2}")
    } else {
        "?".to_owned()
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
