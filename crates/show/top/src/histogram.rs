//! The RTT distributions of both legs as bars, with steps of 1, 2 and 5.

use fairpath_history::Histogram;
use fairpath_history::snapshot::SnapshotRow;
use ratatui::text::{Line, Span};

use crate::figures::grouped;
use crate::glyphs::Look;
use crate::text::{left, right};

/// Upper bounds of the steps: 1, 2 and 5 of each decade from 10 us to 100 s, nanoseconds.
const EDGES: [u64; 22] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    50_000_000_000,
    100_000_000_000,
];

/// Width of the range of a step, columns.
const RANGE: usize = 14;
/// Width of a share, columns.
const SHARE: usize = 6;

/// A title, then one line per step, from the first used step to the last.
pub fn lines(row: &SnapshotRow, width: usize, look: Look) -> Vec<Line<'static>> {
    let (inside, outside) = (&row.inside.total.histogram, &row.outside.total.histogram);
    let half = width.saturating_sub(RANGE) / 2;
    let side = |name: &str, histogram: &Histogram| {
        let text = format!("{name} {}", grouped(histogram.count()));
        left(&text, half, look)
    };
    let title = format!("{}{}", left("RTT ms", RANGE, look), side("INSIDE", inside))
        + &side("OUTSIDE", outside);
    let mut lines = vec![Line::styled(title, look.title())];
    let (inside, outside) = (steps(inside), steps(outside));
    let used = |at: &usize| inside[*at] > 0.0 || outside[*at] > 0.0;
    let (Some(first), Some(last)) = (
        (0..EDGES.len()).find(used),
        (0..EDGES.len()).rev().find(used),
    ) else {
        lines.push(Line::styled("no RTT samples yet", look.quiet()));
        return lines;
    };
    let maximum = inside
        .iter()
        .chain(&outside)
        .fold(0.0, |a: f64, b| a.max(*b));
    let bar = |share: f64| {
        let width = half.saturating_sub(SHARE + 2);
        let text = look.bar(share / maximum, width);
        format!("{}{text}", percent_of(share)) + &" ".repeat(2 + width - text.chars().count())
    };
    for at in first..=last {
        lines.push(Line::from(vec![
            Span::styled(range(at, look), look.quiet()),
            Span::raw(bar(inside[at])),
            Span::raw(bar(outside[at]).trim_end().to_owned()),
        ]));
    }
    lines
}

/// The share of each step.
fn steps(histogram: &Histogram) -> Vec<f64> {
    let all = histogram.count().max(1) as f64;
    let mut below = 0;
    let mut share = |edge: &u64| {
        let up_to = histogram.count_up_to(*edge);
        let here = up_to - below;
        below = up_to;
        here as f64 / all
    };
    EDGES.iter().map(&mut share).collect()
}

fn percent_of(share: f64) -> String {
    let percent = share * 100.0;
    if share == 0.0 {
        " ".repeat(SHARE)
    } else if percent < 0.1 {
        format!("{:>5} ", "<0.1")
    } else {
        format!("{percent:>5.1} ")
    }
}

/// `   5 - 10    `.
fn range(at: usize, look: Look) -> String {
    let edge = |ns: u64| (ns as f64 / 1e6).to_string();
    let from = at
        .checked_sub(1)
        .map_or("0".to_owned(), |at| edge(EDGES[at]));
    let text = format!("{} - {}", right(&from, 5, look), edge(EDGES[at]));
    left(&text, RANGE, look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_step() {
        let mut histogram = Histogram::default();
        for rtt in [1, 12_000, 7_300_000, 7_400_000, 60_000_000_000] {
            histogram.record(rtt);
        }
        let steps = steps(&histogram);
        assert!((steps.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(steps[9], 0.4, "5 to 10 ms");
    }
}
