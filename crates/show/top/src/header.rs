//! The two lines at the top: whose picture this is and how it was made; sums and trouble.

use fairpath_history::snapshot::{Snapshot, Sort};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::figures::{grouped, scaled, span};
use crate::glyphs::Look;
use crate::judge::Level;
use crate::picture::Picture;
use crate::state::State;
use crate::text;

/// Lines that the header has.
pub const LINES: u16 = 2;

/// A piece of a line; pieces stand two columns apart, and those that do not fit are left out.
struct Piece {
    text: String,
    style: Style,
}

/// Draws as many of the lines as there is room for.
pub fn draw(buffer: &mut Buffer, area: Rect, state: &State) {
    for (part, y) in (0..LINES).zip(area.y..area.bottom()) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        self::line(buffer, line, state, part);
    }
}

/// Draws one of the lines.
pub fn line(buffer: &mut Buffer, line: Rect, state: &State, part: u16) {
    let pictured = state.picture.as_ref();
    if part > 0 {
        return from_left(
            buffer,
            line,
            line.right(),
            &sums(pictured, state.look),
            state.look,
        );
    }
    let end = from_right(buffer, line, &how(state), state.look);
    from_left(buffer, line, end, &whose(pictured, state.look), state.look);
}

fn from_left(buffer: &mut Buffer, line: Rect, end: u16, pieces: &[Piece], look: Look) {
    let mut x = line.x;
    for (at, piece) in pieces.iter().enumerate() {
        let room = usize::from(end.saturating_sub(x));
        let fits = text::width(&piece.text) <= room;
        // The first piece is always there, cut if it must be.
        if fits || at == 0 {
            let text = text::cut(&piece.text, room, look);
            x = write(buffer, x, line.y, &text, piece.style) + 2;
        }
    }
}

/// Draws from the right end as many pieces as fit into two thirds; returns where they begin.
fn from_right(buffer: &mut Buffer, line: Rect, pieces: &[Piece], look: Look) -> u16 {
    let mut room = usize::from(line.width) * 2 / 3;
    let mut kept = Vec::new();
    for piece in pieces {
        let text = text::cut(&piece.text, 32, look);
        let width = text::width(&text) + 2;
        if width <= room {
            room -= width;
            kept.push((text, piece.style));
        }
    }
    let width: usize = kept.iter().map(|(text, _)| text::width(text) + 2).sum();
    let start = line.right().saturating_sub(width as u16);
    let mut x = start + 2;
    for (text, style) in kept {
        x = write(buffer, x, line.y, &text, style) + 2;
    }
    start
}

/// Writes a text that fits and returns the column behind it.
fn write(buffer: &mut Buffer, x: u16, y: u16, text: &str, style: Style) -> u16 {
    buffer.set_stringn(x, y, text, usize::MAX, style).0
}

/// Program, host, time, how often and over how long.
fn whose(pictured: Option<&Picture>, look: Look) -> Vec<Piece> {
    let Some(Picture { snapshot, .. }) = pictured else {
        return vec![piece("fairpath top", look.title())];
    };
    let host = format!("fairpath {}", text::clean(&snapshot.host, look));
    let window = format!(
        "window {} every {}",
        span(snapshot.window_ns),
        span(snapshot.interval_ns)
    );
    vec![
        piece(host, look.title()),
        piece(clock(snapshot), Style::new()),
        piece(window, look.quiet()),
    ]
}

/// The time of the day, UTC.
fn clock(snapshot: &Snapshot) -> String {
    let time = snapshot.time.get(11..19).unwrap_or(&snapshot.time);
    format!("{time} UTC")
}

/// How the table is looked at.
fn how(state: &State) -> Vec<Piece> {
    let plain = Style::new();
    let mut pieces = Vec::new();
    if state.paused {
        pieces.push(piece("PAUSED", state.look.selected()));
    }
    if state.closeup.is_some() {
        return pieces;
    }
    if let Some(class) = &state.query.under {
        pieces.push(piece(format!("under: {class}"), plain));
    }
    if let Some(part) = &state.query.filter {
        pieces.push(piece(format!("filter: {part}"), plain));
    }
    pieces.push(piece(
        format!("sort: {}", sort_name(state.query.sort)),
        plain,
    ));
    pieces
}

/// What a way of sorting is called.
pub fn sort_name(sort: Sort) -> &'static str {
    match sort {
        Sort::Tree => "tree",
        Sort::Name => "name",
        Sort::Rate => "rate",
        Sort::InsideP95 => "p95 in",
        Sort::OutsideP95 => "p95 out",
        Sort::Growth => "growth",
        Sort::Loss => "loss",
        Sort::Flows => "flows",
    }
}

/// How much there is, and what is wrong.
fn sums(pictured: Option<&Picture>, look: Look) -> Vec<Piece> {
    let Some(picture) = pictured else {
        return Vec::new();
    };
    let snapshot = &picture.snapshot;
    let sums = &picture.totals;
    let plain = Style::new();
    let shown = snapshot.rows.len() as u64;
    let mut pieces = vec![if sums.partial {
        let of = grouped(snapshot.rows_total);
        piece(format!("{} of {of} classes:", grouped(shown)), plain)
    } else {
        piece(format!("{} classes", grouped(shown)), plain)
    }];
    if sums.alerts > 0 {
        let text = format!("alerts! {}", grouped(sums.alerts));
        pieces.push(piece(text, look.level(Level::Bad)));
    }
    let lost = snapshot.counters.get("events_lost").copied().unwrap_or(0);
    if lost > 0 {
        let text = format!("events lost~ {}", grouped(lost));
        pieces.push(piece(text, look.level(Level::Watch)));
    }
    pieces.push(piece(format!("up {}", scaled(sums.up_bps)), plain));
    pieces.push(piece(format!("down {}", scaled(sums.down_bps)), plain));
    pieces.push(piece(format!("{} flows", grouped(sums.flows)), plain));
    if let Some(gap) = snapshot.gap_ns {
        let text = format!("gap at restart {}", span(gap));
        pieces.push(piece(text, look.quiet()));
    }
    pieces
}

fn piece(text: impl Into<String>, style: Style) -> Piece {
    Piece {
        text: text.into(),
        style,
    }
}
