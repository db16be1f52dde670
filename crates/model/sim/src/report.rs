//! The report of a simulation as tables, JSON, CSV and the lines of a chart.
//!
//! All formats derive from one [`SimulationReport`]. Names from files and captures are sanitized, so that they
//! cannot break a table or a line.

mod json;
mod table;

use std::cmp::Reverse;

use crate::simulate::{Findings, Measured, Settings};
use fairpath_sched::tree::Names;
use fairpath_units::quantity::written;
use fairpath_units::text::line;

/// Maximum rows of a table. CSV and JSON have all rows.
pub const TABLE_ROWS: usize = 20;
/// Maximum lines of a chart. Further groups are summed in the line "others".
pub const CHART_LINES: usize = 7;
/// Maximum characters of the name of a line.
const LINE_NAME: usize = 44;

/// The input and the results of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulationReport<'a> {
    /// The policy or the file of the tree.
    pub subject: &'a str,
    /// The specification of the traffic, or the file of the capture.
    pub traffic: &'a str,
    /// "native" or "kernel".
    pub runtime: &'a str,
    /// The seed.
    pub seed: u64,
    /// The settings of the link.
    pub settings: Settings,
    /// The names of the tree.
    pub names: &'a Names,
    /// The measurements.
    pub findings: &'a Findings,
}

impl SimulationReport<'_> {
    /// Tables of at most 80 columns.
    pub fn table(&self) -> String {
        table::write(self)
    }

    /// One JSON object with a schema number, and a newline.
    pub fn json(&self) -> String {
        json::write(self)
    }

    /// CSV with one line per flow, class and node. The first line has the columns.
    pub fn csv(&self) -> String {
        table::csv(self)
    }

    /// The input of the simulation in one line.
    pub fn caption(&self) -> String {
        let [subject, traffic] = [self.subject, self.traffic].map(|text| clean(text, 70));
        format!("{subject}: {traffic} over {}", self.link())
    }

    /// The lines of a chart, and their kind, class or flow.
    ///
    /// They are the groups with the most bytes sent, in their order, and the sum of all others. The
    /// name of a line includes its rate and its 99th percentile of sojourn times.
    pub fn lines(&self) -> (&'static str, Vec<(String, Measured)>) {
        let (kind, groups) = self.groups();
        let mut by_size: Vec<usize> = (0..groups.len()).collect();
        by_size.sort_by_key(|at| Reverse(groups[*at].1.sent.bytes));
        let (kept, rest) = by_size.split_at_mut(groups.len().min(CHART_LINES));
        kept.sort_unstable();
        let kept = kept.iter().map(|at| &groups[*at]);
        let mut lines: Vec<(String, Measured)> = kept
            .map(|(name, measured)| (clean(name, LINE_NAME), (*measured).clone()))
            .collect();
        if !rest.is_empty() {
            let mut others = Measured::default();
            for at in rest.iter() {
                others.merge(groups[*at].1);
            }
            lines.push((format!("others ({})", rest.len()), others));
        }
        for (name, measured) in &mut lines {
            let sent = rate(self.findings.rate_bps(measured.sent.bytes));
            let p99 = time(measured.sojourn.quantile(0.99));
            *name = format!("{name}: {sent}, p99 {p99}");
        }
        (kind, lines)
    }

    /// The groups of charts and tables: classes if there are several, or else flows.
    fn groups(&self) -> (&'static str, Vec<(String, &Measured)>) {
        let findings = self.findings;
        if findings.classes.len() > 1 {
            let classes = findings.classes.iter();
            let named = classes.map(|(class, measured)| (self.names.class(*class), measured));
            ("class", named.collect())
        } else {
            let rows = findings.rows.iter();
            (
                "flow",
                rows.map(|(row, measured)| (row.name.clone(), measured))
                    .collect(),
            )
        }
    }

    fn link(&self) -> String {
        written(self.settings.rate_bps, "bps")
    }
}

/// Replaces unsafe characters and truncates the text to `columns` characters.
pub fn clean(text: &str, columns: usize) -> String {
    let mut cleaned = line(text).into_owned();
    if let Some((end, _)) = cleaned.char_indices().nth(columns) {
        let last = cleaned[..end].char_indices().next_back();
        cleaned.truncate(last.map_or(0, |(at, _)| at));
        cleaned.push('~');
    }
    cleaned
}

/// A time with three digits and a unit: `20.1 ms`.
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0 => return "0".to_owned(),
        1..1_000 => (ns as f64, "ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// A rate with three digits and a unit: `33.3 Mbit/s`.
pub fn rate(bps: f64) -> String {
    let (value, unit) = match bps {
        bps if bps >= 1e9 => (bps / 1e9, "Gbit/s"),
        bps if bps >= 1e6 => (bps / 1e6, "Mbit/s"),
        bps if bps >= 1e3 => (bps / 1e3, "kbit/s"),
        _ => (bps, "bit/s"),
    };
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number with thousands separators: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_names_are_sanitized() {
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(20_130_000), "20.1 ms");
        assert_eq!(time(9_999_000), "10.0 ms");
        assert_eq!(rate(33_333_333.0), "33.3 Mbit/s");
        assert_eq!(rate(0.0), "0.00 bit/s");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(clean("a\n\u{1b}[0m\u{202e}b", 80), "a??[0m?b");
        assert_eq!(clean("ääääää", 4), "äää~");
    }
}
