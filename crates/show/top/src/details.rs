//! The details view of a class, as lines: figures, histograms, last day, remotes, hosts, flows.

mod lists;

use fairpath_history::snapshot::{AlertKind, Detail, Leg, Point, Queue, SnapshotRow};
use ratatui::text::{Line, Span};

use crate::figures::{count, grouped, maybe, millis, percent, scaled, span};
use crate::glyphs::Look;
use crate::grid::{self, Field, Item};
use crate::histogram;
use crate::table::{Trend, sparkline};
use crate::text::{cut, left};
use fairpath_history::judge::{self, Level};

const fn field(title: &'static str, width: usize, rank: u8) -> Field {
    Field { title, width, rank }
}

/// The fields of a leg. Times are in milliseconds, losses in percent.
const LEG: [Field; 8] = [
    field("min", 5, 4),
    field("p50", 5, 1),
    field("p95", 5, 0),
    field("p99", 5, 5),
    field("samples", 7, 6),
    field("loss% to", 8, 2),
    field("from", 5, 3),
    field("reordered", 9, 7),
];

/// The details of a class, in lines of at most `width` columns.
pub fn lines(detail: &Detail, width: u16, look: Look) -> Vec<Line<'static>> {
    let page = Page {
        width: width.into(),
        look,
    };
    let mut lines = page.identity(&detail.row);
    lines.extend(page.figures(&detail.row));
    lines.push(Line::default());
    lines.extend(histogram::lines(&detail.row, page.width, look));
    lines.push(Line::default());
    lines.extend(page.day(detail));
    lines.extend(page.peers(detail));
    lines.extend(page.flows(&detail.flows));
    lines
}

struct Page {
    width: usize,
    look: Look,
}

impl Page {
    fn title(&self, title: &str) -> Line<'static> {
        let rule = self.width.saturating_sub(title.len() + 1);
        Line::from(vec![
            Span::styled(title.to_owned(), self.look.title()),
            Span::styled(
                format!(" {}", self.look.rule().repeat(rule)),
                self.look.quiet(),
            ),
        ])
    }

    fn quiet(&self, text: &str) -> Line<'static> {
        Line::styled(left(text, self.width, self.look), self.look.quiet())
    }

    /// Parent, number of children and alerts. No line for a row that has none of them.
    fn identity(&self, row: &SnapshotRow) -> Vec<Line<'static>> {
        let mut pieces = Vec::new();
        if let Some(parent) = &row.parent {
            pieces.push(Span::raw(format!(
                "child of {}",
                cut(parent, 40, self.look)
            )));
        }
        if row.children > 0 {
            pieces.push(Span::raw(format!(
                "{} children",
                grouped(row.children.into())
            )));
        }
        for alert in &row.alerts {
            let text = match alert {
                AlertKind::RttShift => "RTT above its baseline!",
                AlertKind::Loss => "loss above its threshold!",
                AlertKind::SlaBreach => "service level not met!",
            };
            pieces.push(Span::styled(text, self.look.level(Level::Critical)));
        }
        if pieces.is_empty() {
            return Vec::new();
        }
        self.wrap("class    ", pieces)
    }

    fn figures(&self, row: &SnapshotRow) -> Vec<Line<'static>> {
        let mut lines = self.rates(row);
        let legs = [
            leg("inside", &row.inside, judge::inside_p95(&row.inside)),
            leg("outside", &row.outside, judge::outside_p95(&row.outside)),
        ];
        lines.extend(grid::lines(("ms", 8), &LEG, &legs, self.width, self.look));
        lines.extend(self.load(row));
        lines.extend(self.queue("down", row.down_queue.as_ref()));
        lines.extend(self.queue("up", row.up_queue.as_ref()));
        lines.extend(self.counts(row));
        lines
    }

    fn wrap(&self, name: &str, pieces: Vec<Span<'static>>) -> Vec<Line<'static>> {
        grid::wrap(name, pieces, self.width, self.look)
    }

    fn rates(&self, row: &SnapshotRow) -> Vec<Line<'static>> {
        let plan = |plan: Option<u64>, rate: f64| {
            plan.filter(|plan| *plan > 0).map_or(String::new(), |plan| {
                let share = rate / plan as f64 * 100.0;
                format!(" ({share:.0}% of {})", scaled(plan as f64))
            })
        };
        let (up, down) = (&row.up, &row.down);
        let rate = |direction: &str, bps: f64, plan: String| {
            Span::raw(format!("{direction} {}bit/s{plan}", unit(bps)))
        };
        let packets = [up.rate_pps, down.rate_pps].map(scaled).join("/");
        let pieces = vec![
            rate("up", up.rate_bps, plan(row.ceil_up_bps, up.rate_bps)),
            rate(
                "down",
                down.rate_bps,
                plan(row.ceil_down_bps, down.rate_bps),
            ),
            Span::raw(format!("packets/s {packets}")),
        ];
        self.wrap("rate     ", pieces)
    }

    /// The queue of one direction, if that is shaped.
    fn queue(&self, direction: &str, queue: Option<&Queue>) -> Vec<Line<'static>> {
        let Some(queue) = queue else {
            return Vec::new();
        };
        let ms = |ns: Option<u64>| maybe(ns, millis);
        let sojourn = [
            queue.p50_sojourn_ns,
            queue.p95_sojourn_ns,
            queue.p99_sojourn_ns,
        ]
        .map(ms);
        let mut pieces = vec![
            Span::raw(format!("sojourn ms p50/p95/p99 {}", sojourn.join("/"))),
            Span::raw(format!("backlog {}", grouped(queue.backlog_packets))),
            Span::raw(format!("sent {}", grouped(queue.sent_packets))),
            Span::raw(format!("marked {}", grouped(queue.marked_packets))),
        ];
        for (reason, count) in &queue.dropped {
            pieces.push(Span::raw(format!("dropped {} {reason}", grouped(*count))));
        }
        if let Some(bound) = &queue.bound {
            let text = format!("bound by {bound}");
            pieces.push(Span::styled(text, self.look.level(Level::Critical)));
        }
        for part in &queue.workers {
            let rate = unit(part.rate_bps);
            pieces.push(Span::raw(format!("worker {} {rate}bit/s", part.worker)));
        }
        self.wrap(&format!("{:<9}", format!("{direction} q")), pieces)
    }

    fn load(&self, row: &SnapshotRow) -> Vec<Line<'static>> {
        let load = &row.load;
        let ms = |ns: Option<u64>| maybe(ns, |ns| format!("{} ms", millis(ns)));
        let judged = |text: String, level: Level| {
            Span::styled(
                format!("{text}{}", level.mark().trim()),
                self.look.level(level),
            )
        };
        let score = maybe(load.score, |score| format!("{score} of 100"));
        let mut pieces = vec![
            Span::raw(format!("p50 idle {}", ms(load.idle_p50_rtt_ns))),
            Span::raw(format!("busy {}", ms(load.loaded_p50_rtt_ns))),
            Span::raw(format!("p95 busy {}", ms(load.loaded_p95_rtt_ns))),
            judged(
                format!("growth {}", ms(load.rtt_growth_ns)),
                judge::growth(row),
            ),
            judged(format!("score {score}"), judge::score(row)),
        ];
        if load.grows_as_classes() {
            pieces.insert(4, Span::raw("(mean of its classes)"));
        }
        if load.base_rtt_ns.is_some() {
            pieces.push(Span::raw(format!("lowest RTT {}", ms(load.base_rtt_ns))));
        }
        self.wrap("load     ", pieces)
    }

    fn counts(&self, row: &SnapshotRow) -> Vec<Line<'static>> {
        let flows = &row.flows;
        let bytes = unit((row.up.bytes + row.down.bytes) as f64);
        let pieces = [
            format!("{} open", grouped(flows.open())),
            format!("{} opened", grouped(flows.opened)),
            format!("{} handshakes failed", grouped(flows.handshakes_failed)),
            format!("{} one-sided", grouped(flows.one_sided)),
            format!("{bytes}B total"),
        ];
        self.wrap("flows    ", pieces.map(Span::raw).to_vec())
    }

    fn day(&self, detail: &Detail) -> Vec<Line<'static>> {
        let mut lines = vec![self.title("LAST DAY, oldest first")];
        let Some(first) = detail.day.first() else {
            lines.push(self.quiet("no points yet"));
            lines.push(Line::default());
            return lines;
        };
        let points: Vec<Point> = detail
            .day
            .iter()
            .map(|point| Point {
                rate_bps: point.rate_up_bps + point.rate_down_bps,
                p95_rtt_ns: point.inside_p95_rtt_ns,
            })
            .collect();
        let last = detail
            .day
            .last()
            .map_or(first.unix_ns, |point| point.unix_ns);
        let capacity = self.width.saturating_sub(26);
        let points = thin(&points, capacity);
        let rate = points.iter().map(|p| p.rate_bps).fold(0.0, f64::max);
        let p95 = points.iter().filter_map(|p| p.p95_rtt_ns).max();
        for (name, trend, max) in [
            ("rate", Trend::Rate, format!("{}bit/s", unit(rate))),
            (
                "p95 in",
                Trend::InsideP95,
                maybe(p95, |ns| format!("{} ms", millis(ns))),
            ),
        ] {
            let spark = sparkline(&points, points.len(), trend, self.look);
            lines.push(Line::raw(format!("{name:<7} {spark}  max {max}")));
        }
        let covers = span(last.saturating_sub(first.unix_ns));
        lines.push(self.quiet(&format!("        {covers} in {} steps", detail.day.len())));
        lines.push(Line::default());
        lines
    }
}

fn leg(name: &str, leg: &Leg, p95: Level) -> Item {
    let rtt = |ns: Option<u64>| maybe(ns, millis);
    let plain = |text: String| (text, Level::Normal);
    let lost = |share: Option<f64>| (maybe(share, percent), judge::loss(share));
    Item {
        name: format!("{name:<8}"),
        figures: vec![
            plain(rtt(leg.min_rtt_ns)),
            plain(rtt(leg.p50_rtt_ns)),
            (rtt(leg.p95_rtt_ns), p95),
            plain(rtt(leg.p99_rtt_ns)),
            plain(count(leg.samples)),
            lost(leg.loss_to_ratio),
            lost(leg.loss_from_ratio),
            plain(count(leg.reordered_packets)),
        ],
    }
}

/// A number and the prefix of its unit, separated by a space: `12.3 M`.
fn unit(value: f64) -> String {
    let text = scaled(value);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits} {}", &text[digits.len()..])
}

/// At most `limit` points. Neighbouring points are merged into one with their maximum values.
fn thin(points: &[Point], limit: usize) -> Vec<Point> {
    let size = points.len().div_ceil(limit.max(1)).max(1);
    let maximum = |chunk: &[Point]| Point {
        rate_bps: chunk.iter().map(|p| p.rate_bps).fold(0.0, f64::max),
        p95_rtt_ns: chunk.iter().filter_map(|p| p.p95_rtt_ns).max(),
    };
    points.chunks(size).map(maximum).collect()
}

#[cfg(test)]
mod tests {
    use fairpath_history::snapshot::Load;

    use super::*;

    #[test]
    fn the_growth_of_classes_is_named() {
        let look = Look::from_environment(true);
        let text = |load: Load| {
            let page = Page { width: 120, look };
            let row = SnapshotRow {
                load,
                ..SnapshotRow::default()
            };
            let lines = page.load(&row);
            lines.iter().map(ToString::to_string).collect::<String>()
        };
        let own = Load {
            idle_p50_rtt_ns: Some(4_000_000),
            loaded_p50_rtt_ns: Some(5_000_000),
            rtt_growth_ns: Some(1_000_000),
            ..Load::default()
        };
        assert!(!text(own).contains("mean") && !text(Load::default()).contains("mean"));
        let mean = Load {
            rtt_growth_ns: Some(90_000_000),
            ..own
        };
        let text = text(mean);
        assert!(
            text.contains("growth 90.0 ms~  (mean of its classes)"),
            "{text}"
        );
    }

    #[test]
    fn thinning_keeps_the_peaks() {
        let point = |rate_bps: f64| Point {
            rate_bps,
            p95_rtt_ns: None,
        };
        let many: Vec<Point> = (0..10).map(|i| point(f64::from(i % 4))).collect();
        let few = thin(&many, 4);
        let rates: Vec<f64> = few.iter().map(|p| p.rate_bps).collect();
        assert_eq!(rates, [2.0, 3.0, 3.0, 1.0]);
        assert_eq!(thin(&many, 10).len(), 10);
        assert!(thin(&[], 0).is_empty());
    }
}
