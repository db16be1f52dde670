//! Titles and rows of the table, drawn into a buffer line by line.

use fairpath_history::snapshot::{Point, Row, Sort};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::columns::{Column, Layout};
use crate::figures;
use crate::glyphs::Look;
use crate::judge::Level;
use crate::listing::{Entry, Fold};
use crate::picture::{self, Picture};
use crate::text;

/// What the sparkline shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trend {
    /// Bits a second, both directions.
    #[default]
    Rate,
    /// 95th percentile inside.
    InsideP95,
}

/// How rows are drawn.
#[derive(Clone, Debug)]
pub struct Table {
    /// Columns.
    pub layout: Layout,
    /// Characters and colours.
    pub look: Look,
    /// The sparkline.
    pub trend: Trend,
    /// Marked in the titles.
    pub sort: Sort,
    /// Room for the marks of folding.
    pub has_tree: bool,
}

impl Table {
    /// The table of a picture in `width` columns.
    pub fn new(picture: &Picture, width: u16, look: Look, trend: Trend, sort: Sort) -> Table {
        let title = text::width(Table::name_title(sort)) as u16;
        Table {
            layout: Layout::new(width, picture.name_width.max(title), picture.is_shaped()),
            look,
            trend,
            sort,
            has_tree: picture.has_tree,
        }
    }

    fn name_title(sort: Sort) -> &'static str {
        match sort {
            Sort::Name => "CLASS (a-z)",
            _ => "CLASS",
        }
    }

    /// What groups of columns are called.
    pub fn groups(&self, buffer: &mut Buffer, line: Rect) {
        let columns = &self.layout.columns;
        let (mut x, mut at) = (line.x + self.layout.name, 0);
        while at < columns.len() {
            let group = columns[at].group();
            let same = columns[at..].iter().take_while(|c| c.group() == group);
            let (number, width) = same.fold((0, 0), |(n, w), c| (n + 1, w + c.width()));
            // Neither the gap before nor the last mark belongs to what is named.
            let room = width - 1;
            let name = if text::width(group) > usize::from(room) {
                group.trim_start_matches("RTT ")
            } else {
                group
            };
            let indent = (room - (text::width(name) as u16).min(room)).div_ceil(2);
            let style = self.look.quiet();
            buffer.set_stringn(x + 1 + indent, line.y, name, room.into(), style);
            x += width;
            at += number;
        }
    }

    /// What columns are called.
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
            let what = match self.trend {
                Trend::Rate => "RATE",
                Trend::InsideP95 => "p95 IN",
            };
            buffer.set_stringn(x + 1, line.y, what, self.layout.trend.into(), title);
        }
    }

    /// One row.
    pub fn row(&self, buffer: &mut Buffer, line: Rect, entry: &Entry, row: &Row) {
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

    fn name(&self, buffer: &mut Buffer, line: Rect, entry: &Entry, row: &Row) {
        let alerts = picture::alert_letters(row);
        let mark = match entry.fold {
            _ if !self.has_tree => "",
            Fold::Leaf => "  ",
            Fold::Open => self.look.open(),
            Fold::Folded => self.look.folded(),
        };
        let width = usize::from(self.layout.name);
        // Where there is little room, the name is worth more than its place in the tree.
        let indent = picture::indent(entry).min(width / 3);
        let room = width.saturating_sub(indent + text::width(mark) + text::width(&alerts));
        let name = text::cut(&row.name, room, self.look);
        let start = format!("{}{mark}{name}", " ".repeat(indent));
        let style = Style::new();
        let (x, y) = buffer.set_stringn(line.x, line.y, start, width, style);
        let left = usize::from((line.x + self.layout.name).saturating_sub(x));
        buffer.set_stringn(x, y, alerts, left, self.look.level(Level::Bad));
    }

    fn cell(&self, buffer: &mut Buffer, x: u16, y: u16, column: Column, row: &Row) {
        let cell = column.cell(row);
        let style = if cell.text == figures::UNMEASURED {
            self.look.quiet()
        } else {
            self.look.level(cell.level)
        };
        let width = column.figure_width();
        let indent = width.saturating_sub(cell.text.len() as u16);
        buffer.set_stringn(x + indent, y, &cell.text, width.into(), style);
        if column.is_judged() && cell.level != Level::Fine {
            buffer.set_string(x + width, y, cell.level.mark(), style);
        }
    }
}

/// The last `points` steps of a history, the newest at the right; a gap where nothing was measured.
///
/// The scale is a power of two, so that a picture changes little from one time to the next.
pub fn sparkline(history: &[Point], points: usize, trend: Trend, look: Look) -> String {
    let value = |point: &Point| match trend {
        Trend::Rate => Some(point.rate_bps),
        Trend::InsideP95 => point.p95_rtt_ns.map(|ns| ns as f64),
    };
    let shown = &history[history.len().saturating_sub(points)..];
    let greatest = shown.iter().filter_map(value).fold(1.0, f64::max);
    let scale = greatest.log2().ceil().exp2();
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
    fn a_sparkline_ends_with_the_newest_and_leaves_gaps() {
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
