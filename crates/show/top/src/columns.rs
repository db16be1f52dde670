//! The columns of the table: their values, and the choice that fits into a width.
//!
//! ```text
//! CLASS ............ |BIT/S up down|RTT IN p50 p95m|RTT OUT p50 p95m|LOAD +ms m score m|LOSS % ...|FLOWS|TREND
//! ```
//!
//! Every column except the first begins with a gap. A column with levels ends with a mark.

use fairpath_history::snapshot::{Queue, SnapshotRow, Sort};

use crate::figures::{count, maybe, millis, percent, scaled};
use fairpath_history::judge::{self, Level};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Rate that the hosts send, bits per second.
    Up,
    /// Rate that they receive.
    Down,
    /// Median inside.
    InP50,
    /// 95th percentile inside.
    InP95,
    /// Median outside.
    OutP50,
    /// 95th percentile outside.
    OutP95,
    /// Growth of the inside median under load.
    Growth,
    /// Load score.
    Score,
    /// Loss inside, the larger of both directions.
    LossIn,
    /// The same outside.
    LossOut,
    /// Loss inside, towards the hosts.
    LossInTo,
    /// Loss inside, from the hosts.
    LossInFrom,
    /// Loss outside, towards the remote hosts.
    LossOutTo,
    /// Loss outside, from the remote hosts.
    LossOutFrom,
    /// 95th percentile of the sojourn time in the queues, the larger of both directions.
    Sojourn,
    /// Fraction of packets that the queues dropped, the larger of both directions.
    Dropped,
    /// Open flows.
    Flows,
    /// Fraction of the window's bytes in flows without RTT samples.
    Unmeasured,
}

/// A value of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The figure.
    pub text: String,
    /// Its level.
    pub level: Level,
}

impl Column {
    /// The title of its group.
    pub fn group(self) -> &'static str {
        match self {
            Column::Up | Column::Down => "BIT/S",
            Column::InP50 | Column::InP95 => "RTT IN ms",
            Column::OutP50 | Column::OutP95 => "RTT OUT ms",
            Column::Growth | Column::Score => "LOAD",
            Column::LossIn | Column::LossOut => "LOSS %",
            Column::LossInTo | Column::LossInFrom => "LOSS IN %",
            Column::LossOutTo | Column::LossOutFrom => "LOSS OUT %",
            Column::Sojourn | Column::Dropped => "QUEUE",
            Column::Flows => "",
            Column::Unmeasured => "UNMEAS",
        }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Column::Up => "UP",
            Column::Down => "DOWN",
            Column::InP50 | Column::OutP50 => "p50",
            Column::InP95 | Column::OutP95 => "p95",
            Column::Growth => "+ms",
            Column::Score => "score",
            Column::LossIn => "in",
            Column::LossOut => "out",
            Column::LossInTo | Column::LossOutTo => "to",
            Column::LossInFrom | Column::LossOutFrom => "from",
            Column::Sojourn => "p95",
            Column::Dropped => "drop%",
            Column::Flows => "FLOWS",
            Column::Unmeasured => "%",
        }
    }

    /// True if its values have levels, shown by a mark after the figure.
    pub fn has_level(self) -> bool {
        use Column::{Down, Dropped, Flows, InP50, OutP50, Sojourn, Up};
        !matches!(self, Up | Down | InP50 | OutP50 | Flows | Sojourn | Dropped)
    }

    /// Width of the figure.
    pub fn figure_width(self) -> u16 {
        5
    }

    /// Width of gap, figure and mark.
    pub fn width(self) -> u16 {
        1 + self.figure_width() + u16::from(self.has_level())
    }

    /// True if `sort` sorts by this column.
    pub fn is_sorted_by(self, sort: Sort) -> bool {
        use Column::{LossIn, LossInFrom, LossInTo, LossOut, LossOutFrom, LossOutTo};
        match sort {
            Sort::Tree | Sort::Name => false,
            Sort::Rate => matches!(self, Column::Up | Column::Down),
            Sort::InsideP95 => self == Column::InP95,
            Sort::OutsideP95 => self == Column::OutP95,
            Sort::Growth => self == Column::Growth,
            Sort::Loss => matches!(
                self,
                LossIn | LossInFrom | LossInTo | LossOut | LossOutFrom | LossOutTo
            ),
            Sort::Flows => self == Column::Flows,
        }
    }

    /// The value of a row.
    pub fn cell(self, row: &SnapshotRow) -> Cell {
        let rtt = |ns: Option<u64>| maybe(ns, millis);
        let lost = |share: Option<f64>| (maybe(share, percent), judge::loss(share));
        let plain = |text: String| (text, Level::Normal);
        let (text, level) = match self {
            Column::Up => plain(scaled(row.up.rate_bps)),
            Column::Down => plain(scaled(row.down.rate_bps)),
            Column::InP50 => plain(rtt(row.inside.p50_rtt_ns)),
            Column::InP95 => (rtt(row.inside.p95_rtt_ns), judge::inside_p95(&row.inside)),
            Column::OutP50 => plain(rtt(row.outside.p50_rtt_ns)),
            Column::OutP95 => (
                rtt(row.outside.p95_rtt_ns),
                judge::outside_p95(&row.outside),
            ),
            Column::Growth => (rtt(row.load.rtt_growth_ns), judge::growth(row)),
            Column::Score => (
                maybe(row.load.score, |score| score.to_string()),
                judge::score(row),
            ),
            Column::LossIn => lost(judge::larger_loss(&row.inside)),
            Column::LossOut => lost(judge::larger_loss(&row.outside)),
            Column::LossInTo => lost(row.inside.loss_to_ratio),
            Column::LossInFrom => lost(row.inside.loss_from_ratio),
            Column::LossOutTo => lost(row.outside.loss_to_ratio),
            Column::LossOutFrom => lost(row.outside.loss_from_ratio),
            Column::Sojourn => plain(rtt(queues(row)
                .filter_map(|queue| queue.p95_sojourn_ns)
                .max())),
            Column::Dropped => plain(maybe(
                queues(row).filter_map(dropped).max_by(f64::total_cmp),
                percent,
            )),
            Column::Flows => plain(count(row.flows.open())),
            Column::Unmeasured => {
                let share = unmeasured(row);
                (maybe(share, percent), judge::unmeasured(share))
            }
        };
        Cell { text, level }
    }
}

fn queues(row: &SnapshotRow) -> impl Iterator<Item = &Queue> {
    [&row.up_queue, &row.down_queue].into_iter().flatten()
}

/// Dropped packets as a fraction of enqueued packets, since shaping began.
fn dropped(queue: &Queue) -> Option<f64> {
    (queue.enqueued_packets > 0)
        .then(|| queue.dropped_packets as f64 / queue.enqueued_packets as f64)
}

/// Both directions, weighted by rate.
fn unmeasured(row: &SnapshotRow) -> Option<f64> {
    match (row.up.unmeasured_ratio, row.down.unmeasured_ratio) {
        (Some(up), Some(down)) => {
            let (a, b) = (row.up.rate_bps, row.down.rate_bps);
            Some(if a + b > 0.0 {
                (up * a + down * b) / (a + b)
            } else {
                up.max(down)
            })
        }
        (up, down) => up.or(down),
    }
}

/// Columns by importance. A narrow terminal omits the last ones first.
const PRIORITY: [Column; 13] = [
    Column::Down,
    Column::InP95,
    Column::Up,
    Column::OutP95,
    Column::LossIn,
    Column::Score,
    Column::InP50,
    Column::Sojourn,
    Column::Dropped,
    Column::Flows,
    Column::LossOut,
    Column::OutP50,
    Column::Growth,
];

/// Columns from left to right.
const ORDER: [Column; 18] = [
    Column::Up,
    Column::Down,
    Column::InP50,
    Column::InP95,
    Column::OutP50,
    Column::OutP95,
    Column::Growth,
    Column::Score,
    Column::LossIn,
    Column::LossOut,
    Column::LossInTo,
    Column::LossInFrom,
    Column::LossOutTo,
    Column::LossOutFrom,
    Column::Sojourn,
    Column::Dropped,
    Column::Unmeasured,
    Column::Flows,
];

/// Minimum width of a name.
const MIN_NAME: u16 = 12;
/// Names up to this width are not cut to fit another column.
const FAIR_NAME: u16 = 20;
/// Names up to this width are not cut to fit split losses or a longer trend.
const LONG_NAME: u16 = 36;
/// Maximum width of a name.
const MAX_NAME: u16 = 60;
/// Minimum number of points of the trend.
const MIN_TREND: u16 = 10;
/// Maximum number of points of the trend.
const MAX_TREND: u16 = 30;

/// The visible columns, and the widths of name and trend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Width of the class's name with its indentation.
    pub name: u16,
    /// The columns between name and trend.
    pub columns: Vec<Column>,
    /// Points of the trend, 0 if it is not visible.
    pub trend: u16,
}

impl Layout {
    /// The layout for a terminal of `width` columns and a longest name of `name` columns. Columns of
    /// queues are included if `shaped`.
    pub fn new(width: u16, name: u16, shaped: bool) -> Layout {
        // In a narrow terminal, names get at most a third.
        let max = FAIR_NAME.min(width / 3).max(MIN_NAME);
        let fair = name.clamp(MIN_NAME, max).min(width);
        let mut left = width.saturating_sub(fair);
        let mut chosen = Vec::new();
        let of_queues = |column: &Column| matches!(column, Column::Sojourn | Column::Dropped);
        let wanted: Vec<Column> = PRIORITY
            .into_iter()
            .filter(|column| shaped || !of_queues(column))
            .collect();
        for column in wanted.iter().copied() {
            if column.width() > left {
                break;
            }
            left -= column.width();
            chosen.push(column);
        }
        let mut trend = 0;
        if chosen.len() == wanted.len() && left > MIN_TREND {
            trend = MIN_TREND;
            left -= 1 + MIN_TREND;
        }
        let mut layout = Layout {
            name: fair,
            columns: chosen,
            trend,
        };
        layout.widen(left, name);
        layout
    }

    fn widen(&mut self, mut left: u16, name: u16) {
        let mut take = |wanted: u16| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        self.name += take(name.clamp(self.name, LONG_NAME) - self.name);
        if self.trend > 0 {
            self.trend += take(MAX_TREND / 2 - self.trend.min(MAX_TREND / 2));
            let both = 2 * Column::LossIn.width();
            match take(both) {
                taken if taken == both => self.split_losses(),
                taken => self.trend += taken,
            }
            let unmeasured = Column::Unmeasured.width();
            match take(unmeasured) {
                taken if taken == unmeasured => self.columns.push(Column::Unmeasured),
                taken => self.trend += taken,
            }
            self.trend += take(MAX_TREND.saturating_sub(self.trend));
        }
        self.name += take(name.clamp(self.name, MAX_NAME) - self.name);
        let position = |column: &Column| ORDER.iter().position(|other| other == column);
        self.columns.sort_by_key(position);
    }

    fn split_losses(&mut self) {
        self.columns
            .retain(|column| !matches!(column, Column::LossIn | Column::LossOut));
        self.columns.extend([
            Column::LossInTo,
            Column::LossInFrom,
            Column::LossOutTo,
            Column::LossOutFrom,
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(layout: &Layout) -> u16 {
        let columns: u16 = layout.columns.iter().map(|c| c.width()).sum();
        let trend = if layout.trend > 0 {
            1 + layout.trend
        } else {
            0
        };
        layout.name + columns + trend
    }

    #[test]
    fn a_wider_terminal_never_has_fewer_columns() {
        for name in [4, 12, 17, 24, 80] {
            let mut before = 0;
            for width in 12..300 {
                let layout = Layout::new(width, name, name % 2 == 0);
                assert!(total(&layout) <= width, "{width}: {layout:?}");
                let shown = layout.columns.len() + usize::from(layout.trend > 0);
                assert!(shown >= before, "{width}: {layout:?}");
                before = shown;
            }
        }
    }

    #[test]
    fn eighty_columns_show_names_and_the_score() {
        let layout = Layout::new(80, 30, false);
        use Column::{
            Down, Dropped, Flows, InP50, InP95, LossIn, LossOut, OutP95, Score, Sojourn, Up,
        };
        assert_eq!(
            layout.columns,
            [
                Up, Down, InP50, InP95, OutP95, Score, LossIn, LossOut, Flows
            ]
        );
        let shaped = Layout::new(80, 30, true);
        assert_eq!(
            shaped.columns,
            [
                Up, Down, InP50, InP95, OutP95, Score, LossIn, Sojourn, Dropped
            ]
        );
        for layout in [layout, shaped] {
            assert!(layout.name >= 20, "{layout:?}");
        }
        assert!(Layout::new(120, 30, false).trend >= 10);
        assert!(
            Layout::new(160, 30, false)
                .columns
                .contains(&Column::LossOutFrom)
        );
    }

    #[test]
    fn a_missing_value_is_a_dash() {
        let row = SnapshotRow::default();
        for column in [
            Column::InP50,
            Column::OutP95,
            Column::Growth,
            Column::Score,
            Column::LossIn,
            Column::LossOutTo,
            Column::Unmeasured,
            Column::Sojourn,
            Column::Dropped,
        ] {
            assert_eq!(column.cell(&row).text, "-", "{column:?}");
        }
    }
}
