//! Draws titles and rows of the table into a buffer, line by line.

use fairpath_history::snapshot::{Point, SnapshotRow, Sort};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::columns::{Column, Layout};
use crate::figures;
use crate::glyphs::Look;
use crate::listing::{Entry, Fold};
use crate::text;
use crate::view::{self, View};
use fairpath_history::judge::Level;

/// The quantity of the sparkline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trend {
    /// Bits per second, both directions.
    #[default]
    Rate,
    /// 95th percentile inside.
    InsideP95,
}

/// Layout and style of the table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The columns.
    pub layout: Layout,
    /// Characters and colours.
    pub look: Look,
    /// The quantity of the sparkline.
    pub trend: Trend,
    /// The sort order, marked in the titles.
    pub sort: Sort,
    /// True if marks of collapsed and expanded classes precede names.
    pub has_tree: bool,
}

impl Table {
    /// The table of a snapshot, `width` columns wide.
    pub fn new(view: &View, width: u16, look: Look, trend: Trend, sort: Sort) -> Table {
        let title = text::width(Table::name_title(sort)) as u16;
        Table {
            layout: Layout::new(width, view.name_width.max(title), view.is_shaped()),
            look,
            trend,
            sort,
            has_tree: view.has_tree,
        }
    }

    fn name_title(sort: Sort) -> &'static str {
        match sort {
            Sort::Name => "CLASS (a-z)",
            _ => "CLASS",
        }
    }

    /// Draws the titles of groups of columns.
    pub fn groups(&self, buffer: &mut Buffer, line: Rect) {
        let columns = &self.layout.columns;
        let (mut x, mut at) = (line.x + self.layout.name, 0);
        while at < columns.len() {
            let group = columns[at].group();
            let same = columns[at..].iter().take_while(|c| c.group() == group);
            let (number, width) = same.fold((0, 0), |(n, w), c| (n + 1, w + c.width()));
            // The title is above figures, without the gap before them.
            let space = width - 1;
            let name = if text::width(group) > usize::from(space) {
                group.trim_start_matches("RTT ")
            } else {
                group
            };
            let indent = (space - (text::width(name) as u16).min(space)).div_ceil(2);
            let style = self.look.quiet();
            buffer.set_stringn(x + 1 + indent, line.y, name, space.into(), style);
            x += width;
            at += number;
        }
    }

    /// Draws the titles of columns.
    pub fn titles(&self, buffer: &mut Buffer, line: Rect) {
        let title = self.look.title();
        let sorted = title.add_modifier(Modifier::UNDERLINED);
        let by_name = self.sort == Sort::Name;
        let name = text::cut(
            Table::name_title(self.sort),
            self.layout.name.into(),
            self.look,
        );
        buffer.set_string(line.x, line.y, name, if by_name { sorted } else { title });
        let mut x = line.x + self.layout.name;
        for column in &self.layout.columns {
            let is_sorted = column.is_sorted_by(self.sort);
            let style = if is_sorted { sorted } else { title };
            let indent = column.figure_width() - column.title().len() as u16;
            buffer.set_string(x + 1 + indent, line.y, column.title(), style);
            x += column.width();
        }
        if self.layout.trend > 0 {
            let title_text = match self.trend {
                Trend::Rate => "RATE",
                Trend::InsideP95 => "p95 IN",
            };
            buffer.set_stringn(x + 1, line.y, title_text, self.layout.trend.into(), title);
        }
    }

    /// Draws a row.
    pub fn row(&self, buffer: &mut Buffer, line: Rect, entry: &Entry, row: &SnapshotRow) {
        self.name(buffer, line, entry, row);
        let mut x = line.x + self.layout.name;
        for column in &self.layout.columns {
            self.cell(buffer, x + 1, line.y, *column, row);
            x += column.width();
        }
        if self.layout.trend > 0 {
            let points = usize::from(self.layout.trend);
            let trend = sparkline(&row.history, points, self.trend, self.look);
            buffer.set_string(x + 1, line.y, trend, Style::new());
        }
    }

    fn name(&self, buffer: &mut Buffer, line: Rect, entry: &Entry, row: &SnapshotRow) {
        let alerts = view::alert_letters(row);
        let mark = match entry.fold {
            _ if !self.has_tree => "",
            Fold::Leaf => "  ",
            Fold::Open => self.look.open(),
            Fold::Folded => self.look.folded(),
        };
        let width = usize::from(self.layout.name);
        // In a narrow column the name is more important than its indentation.
        let indent = view::indent(entry).min(width / 3);
        let left = width.saturating_sub(indent + text::width(mark) + text::width(&alerts));
        let name = text::cut(&row.name, left, self.look);
        let start = format!("{}{mark}{name}", " ".repeat(indent));
        let style = Style::new();
        let (x, y) = buffer.set_stringn(line.x, line.y, start, width, style);
        let left = usize::from((line.x + self.layout.name).saturating_sub(x));
        buffer.set_stringn(x, y, alerts, left, self.look.level(Level::Critical));
    }

    fn cell(&self, buffer: &mut Buffer, x: u16, y: u16, column: Column, row: &SnapshotRow) {
        let cell = column.cell(row);
        let style = if cell.text == figures::UNMEASURED {
            self.look.quiet()
        } else {
            self.look.level(cell.level)
        };
        let width = column.figure_width();
        let indent = width.saturating_sub(cell.text.len() as u16);
        buffer.set_stringn(x + indent, y, &cell.text, width.into(), style);
        if column.has_level() && cell.level != Level::Normal {
            buffer.set_string(x + width, y, cell.level.mark(), style);
        }
    }
}

/// The last `points` points of a history, the newest at the right, with gaps for missing values.
///
/// The scale is a power of two, so that successive screens differ little.
pub fn sparkline(history: &[Point], points: usize, trend: Trend, look: Look) -> String {
    let value = |point: &Point| match trend {
        Trend::Rate => Some(point.rate_bps),
        Trend::InsideP95 => point.p95_rtt_ns.map(|ns| ns as f64),
    };
    let shown = &history[history.len().saturating_sub(points)..];
    let maximum = shown.iter().filter_map(value).fold(1.0, f64::max);
    let scale = maximum.log2().ceil().exp2();
    let steps = look.steps();
    let step = |point: &Point| match value(point) {
        Some(value) => steps[((value / scale * 8.0) as usize).min(7)],
        None => " ",
    };
    let gap = " ".repeat(points - shown.len());
    shown.iter().fold(gap, |text, point| text + step(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        ascii: false,
        colour: false,
    };

    #[test]
    fn a_sparkline_ends_with_the_newest_point() {
        let point = |rate_bps, p95_rtt_ns| Point {
            rate_bps,
            p95_rtt_ns,
        };
        let history = [
            point(0.0, Some(8)),
            point(50.0, None),
            point(127.0, Some(1)),
        ];
        assert_eq!(sparkline(&history, 5, Trend::Rate, LOOK), "  ▁▄█");
        assert_eq!(sparkline(&history, 2, Trend::Rate, LOOK), "▄█");
        assert_eq!(sparkline(&history, 3, Trend::InsideP95, LOOK), "█ ▂");
        assert_eq!(sparkline(&[], 3, Trend::Rate, LOOK), "   ");
    }
}
