//! The columns of the table: what each shows of a row, and which fit into a width.
//!
//! ```text
//! CLASS ............ |BIT/S up down|RTT IN p50 p95m|RTT OUT p50 p95m|LOAD +ms m score m|LOSS % ...|FLOWS|TREND
//! ```
//!
//! Every column but the first begins with a gap. One that is judged ends with its mark.

use fairpath_history::snapshot::{Queue, Row, Sort};

use crate::figures::{count, maybe, millis, percent, scaled};
use crate::judge::{self, Level};

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// What the hosts send, bits a second.
    Up,
    /// What they receive.
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
    /// Score of load.
    Score,
    /// Greater share lost inside, of both ways.
    LossIn,
    /// Likewise outside.
    LossOut,
    /// Lost inside on the way to the hosts.
    LossInTo,
    /// Lost inside on the way from them.
    LossInFrom,
    /// Lost outside on the way to the others.
    LossOutTo,
    /// Lost outside on the way from them.
    LossOutFrom,
    /// 95th percentile of the time in the class's queues, the longer of both ways.
    Waited,
    /// Share of packets that its queues dropped, the greater of both ways.
    Dropped,
    /// Open flows.
    Flows,
    /// Share of the window's bytes without round-trip times.
    Unmeasured,
}

/// A value to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The figure.
    pub text: String,
    /// What it is worth.
    pub level: Level,
}

impl Column {
    /// What stands over it and its neighbours of the same group.
    pub fn group(self) -> &'static str {
        match self {
            Column::Up | Column::Down => "BIT/S",
            Column::InP50 | Column::InP95 => "RTT IN ms",
            Column::OutP50 | Column::OutP95 => "RTT OUT ms",
            Column::Growth | Column::Score => "LOAD",
            Column::LossIn | Column::LossOut => "LOSS %",
            Column::LossInTo | Column::LossInFrom => "LOSS IN %",
            Column::LossOutTo | Column::LossOutFrom => "LOSS OUT %",
            Column::Waited | Column::Dropped => "QUEUE",
            Column::Flows => "",
            Column::Unmeasured => "UNMEAS",
        }
    }

    /// What stands right over it.
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
            Column::Waited => "p95",
            Column::Dropped => "drop%",
            Column::Flows => "FLOWS",
            Column::Unmeasured => "%",
        }
    }

    /// Whether a mark stands behind the figure.
    pub fn is_judged(self) -> bool {
        use Column::{Down, Dropped, Flows, InP50, OutP50, Up, Waited};
        !matches!(self, Up | Down | InP50 | OutP50 | Flows | Waited | Dropped)
    }

    /// Columns of the figure alone.
    pub fn figure_width(self) -> u16 {
        5
    }

    /// Gap, figure and mark.
    pub fn width(self) -> u16 {
        1 + self.figure_width() + u16::from(self.is_judged())
    }

    /// Whether rows are sorted by it.
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

    /// The row's value.
    pub fn cell(self, row: &Row) -> Cell {
        let rtt = |ns: Option<u64>| maybe(ns, millis);
        let lost = |share: Option<f64>| (maybe(share, percent), judge::loss(share));
        let plain = |text: String| (text, Level::Fine);
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
            Column::Growth => (rtt(row.load.growth_ns), judge::growth(row)),
            Column::Score => (
                maybe(row.load.score, |score| score.to_string()),
                judge::score(row),
            ),
            Column::LossIn => lost(judge::greater_loss(&row.inside)),
            Column::LossOut => lost(judge::greater_loss(&row.outside)),
            Column::LossInTo => lost(row.inside.loss_to),
            Column::LossInFrom => lost(row.inside.loss_from),
            Column::LossOutTo => lost(row.outside.loss_to),
            Column::LossOutFrom => lost(row.outside.loss_from),
            Column::Waited => plain(rtt(queues(row)
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

fn queues(row: &Row) -> impl Iterator<Item = &Queue> {
    [&row.up_queue, &row.down_queue].into_iter().flatten()
}

/// Of all packets that came, since shaping began.
fn dropped(queue: &Queue) -> Option<f64> {
    (queue.came_packets > 0).then(|| queue.dropped_packets as f64 / queue.came_packets as f64)
}

/// Of both directions: by rate, since that is what shares of the window are weighed with.
fn unmeasured(row: &Row) -> Option<f64> {
    match (row.up.unmeasured, row.down.unmeasured) {
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

/// In what order columns are given up as the width shrinks: the last first.
const PRIORITY: [Column; 13] = [
    Column::Down,
    Column::InP95,
    Column::Up,
    Column::OutP95,
    Column::LossIn,
    Column::InP50,
    Column::Waited,
    Column::Dropped,
    Column::Flows,
    Column::LossOut,
    Column::OutP50,
    Column::Score,
    Column::Growth,
];

/// In what order columns stand.
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
    Column::Waited,
    Column::Dropped,
    Column::Unmeasured,
    Column::Flows,
];

/// Least width of a class's name.
const MIN_NAME: u16 = 12;
/// Names up to here are not cut for the sake of a column.
const FAIR_NAME: u16 = 20;
/// Names up to here are not cut for the sake of a luxury: split losses, a longer trend.
const LONG_NAME: u16 = 36;
/// Longest name that is given room for.
const MAX_NAME: u16 = 60;
/// A trend of fewer points tells nothing.
const MIN_TREND: u16 = 10;
/// More points than this tell no more.
const MAX_TREND: u16 = 30;

/// Which columns are shown, and how wide the two are that stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Width of the class's name with its indentation.
    pub name: u16,
    /// Columns between name and trend.
    pub columns: Vec<Column>,
    /// Points of the trend; 0 if it is not shown.
    pub trend: u16,
}

impl Layout {
    /// The layout for `width` columns of terminal, where the longest name takes `name` columns, with
    /// columns of queues where something is `shaped`.
    pub fn new(width: u16, name: u16, shaped: bool) -> Layout {
        // A third of a narrow terminal is enough for names.
        let most = FAIR_NAME.min(width / 3).max(MIN_NAME);
        let fair = name.clamp(MIN_NAME, most).min(width);
        let mut left = width.saturating_sub(fair);
        let mut chosen = Vec::new();
        let of_queues = |column: &Column| matches!(column, Column::Waited | Column::Dropped);
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
        let place = |column: &Column| ORDER.iter().position(|other| other == column);
        self.columns.sort_by_key(place);
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
    fn no_layout_is_wider_than_the_terminal_and_none_loses_a_column_by_widening() {
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
    fn eighty_columns_show_rates_both_legs_losses_and_flows() {
        let layout = Layout::new(80, 30, false);
        use Column::{Down, Flows, InP50, InP95, LossIn, LossOut, OutP50, OutP95, Up};
        assert_eq!(
            layout.columns,
            [
                Up, Down, InP50, InP95, OutP50, OutP95, LossIn, LossOut, Flows
            ]
        );
        assert!(layout.name >= 20, "{layout:?}");
        let shaped = Layout::new(80, 30, true).columns;
        assert!(shaped.contains(&Column::Waited) && shaped.contains(&Column::Dropped));
        assert!(Layout::new(80, 14, false).columns.contains(&Column::Score));
        assert!(Layout::new(120, 30, false).trend >= 10);
        assert!(
            Layout::new(160, 30, false)
                .columns
                .contains(&Column::LossOutFrom)
        );
    }

    #[test]
    fn what_is_not_measured_is_a_dash_and_never_a_zero() {
        let row = Row::default();
        for column in [
            Column::InP50,
            Column::OutP95,
            Column::Growth,
            Column::Score,
            Column::LossIn,
            Column::LossOutTo,
            Column::Unmeasured,
            Column::Waited,
            Column::Dropped,
        ] {
            assert_eq!(column.cell(&row).text, "-", "{column:?}");
        }
    }
}
