//! The two lines at the top: host, time, window and sort order, then totals and problems.

use fairpath_history::snapshot::{Snapshot, Sort};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::figures::{grouped, scaled, span};
use crate::glyphs::Look;
use crate::state::State;
use crate::text;
use crate::view::View;
use fairpath_history::judge::Level;

/// Number of header lines.
pub const LINES: u16 = 2;
/// Age of a reading of rules that is shown, nanoseconds.
const OLD_NS: u64 = 3_000_000_000;

/// A number with its noun.
fn several(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { more })
}

/// A piece of a line. Pieces are two columns apart, and those that do not fit are omitted.
struct Piece {
    text: String,
    style: Style,
}

/// Draws as many lines as fit.
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
    let view = state.view.as_ref();
    if part > 0 {
        let pieces = match state.rules {
            Some(_) => rules(state),
            None => totals(view, state.look),
        };
        return from_left(buffer, line, line.right(), &pieces, state.look);
    }
    let end = from_right(buffer, line, &options(state), state.look);
    from_left(buffer, line, end, &origin(view, state.look), state.look);
}

fn from_left(buffer: &mut Buffer, line: Rect, end: u16, pieces: &[Piece], look: Look) {
    let mut x = line.x;
    for (at, piece) in pieces.iter().enumerate() {
        let left = usize::from(end.saturating_sub(x));
        let fits = text::width(&piece.text) <= left;
        // The first piece is always drawn, cut if necessary.
        if fits || at == 0 {
            let text = text::cut(&piece.text, left, look);
            x = write(buffer, x, line.y, &text, piece.style) + 2;
        }
    }
}

/// Draws as many pieces as fit into two thirds of the line, right-aligned. Returns their first column.
fn from_right(buffer: &mut Buffer, line: Rect, pieces: &[Piece], look: Look) -> u16 {
    let mut left = usize::from(line.width) * 2 / 3;
    let mut kept = Vec::new();
    for piece in pieces {
        let text = text::cut(&piece.text, 32, look);
        let width = text::width(&text) + 2;
        if width <= left {
            left -= width;
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

/// Writes a text that fits and returns the column after it.
fn write(buffer: &mut Buffer, x: u16, y: u16, text: &str, style: Style) -> u16 {
    buffer.set_stringn(x, y, text, usize::MAX, style).0
}

/// Program, host, time, window and interval.
fn origin(view: Option<&View>, look: Look) -> Vec<Piece> {
    let Some(View { snapshot, .. }) = view else {
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

/// Time of day, UTC.
fn clock(snapshot: &Snapshot) -> String {
    let time = snapshot.time.get(11..19).unwrap_or(&snapshot.time);
    format!("{time} UTC")
}

/// Pause, zoom, filter and sort order.
fn options(state: &State) -> Vec<Piece> {
    let plain = Style::new();
    let mut pieces = Vec::new();
    if state.paused {
        pieces.push(piece("PAUSED", state.look.selected()));
    }
    if state.details.is_some() {
        return pieces;
    }
    if let Some(rules) = &state.rules {
        if let Some(part) = &rules.filter {
            pieces.push(piece(format!("filter: {part}"), plain));
        }
        pieces.push(piece(format!("sort: {}", rules.sort.name()), plain));
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

/// The name of a sort order.
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

/// Totals, alerts and losses.
fn totals(view: Option<&View>, look: Look) -> Vec<Piece> {
    let Some(view) = view else {
        return Vec::new();
    };
    let snapshot = &view.snapshot;
    let sums = &view.totals;
    let plain = Style::new();
    let shown = snapshot.rows.len() as u64;
    let mut pieces = vec![if sums.partial {
        let of = grouped(snapshot.rows_total);
        piece(format!("{} of {of} classes:", grouped(shown)), plain)
    } else {
        piece(several(shown, "class", "classes"), plain)
    }];
    if sums.alerts > 0 {
        let text = format!("alerts! {}", grouped(sums.alerts));
        pieces.push(piece(text, look.level(Level::Critical)));
    }
    let lost = snapshot.counters.get("events_lost").copied().unwrap_or(0);
    if lost > 0 {
        let text = format!("events lost~ {}", grouped(lost));
        pieces.push(piece(text, look.level(Level::Warning)));
    }
    pieces.push(piece(format!("up {}", scaled(sums.up_bps)), plain));
    pieces.push(piece(format!("down {}", scaled(sums.down_bps)), plain));
    pieces.push(piece(several(sums.flows, "flow", "flows"), plain));
    if let Some(gap) = snapshot.gap_ns {
        let text = format!("gap at restart {}", span(gap));
        pieces.push(piece(text, look.quiet()));
    }
    pieces
}

/// Number and state of the loaded rules.
fn rules(state: &State) -> Vec<Piece> {
    let Some(rules) = state.loaded_rules() else {
        return Vec::new();
    };
    let look = state.look;
    let (plain, critical) = (Style::new(), look.level(Level::Critical));
    let total = several(rules.rules_total, "rule", "rules");
    let listed = rules.rules.len() as u64;
    let mut pieces = vec![if listed < rules.rules_total {
        piece(format!("{} of {total}", grouped(listed)), plain)
    } else {
        piece(total, plain)
    }];
    if let Some(left) = rules.confirm_ns {
        pieces.push(piece(format!("not confirmed! {}", span(left)), critical));
    }
    if rules.went_back {
        pieces.push(piece(
            "went back! the last load was not confirmed",
            critical,
        ));
    }
    let dropped = |name| rules.counters.get(name).copied().unwrap_or(0);
    for (name, about) in [
        ("packets_dropped_unknown", "dropped unknown!"),
        (
            "packets_dropped_without_scratch",
            "dropped without a scratch!",
        ),
        ("packets_dropped_table_full", "dropped: table full!"),
    ] {
        if dropped(name) > 0 {
            pieces.push(piece(
                format!("{about} {}", grouped(dropped(name))),
                critical,
            ));
        }
    }
    if rules.rejected_are_answered == Some(false) {
        let style = look.level(Level::Warning);
        pieces.push(piece("rejected packets get no answer~", style));
    }
    if !rules.deciding {
        pieces.push(piece("in the shadow", plain));
    }
    if rules.counter_mode == "sampled" {
        pieces.push(piece("sampled counters", plain));
    }
    let rates = rules.interval_ns.map_or_else(
        || "first reading".to_owned(),
        |interval| format!("rates of {}", span(interval)),
    );
    pieces.push(piece(rates, look.quiet()));
    let now = state.view.as_ref().map_or(0, |view| view.snapshot.unix_ns);
    let age = now.saturating_sub(rules.unix_ns);
    if age > OLD_NS {
        pieces.push(piece(format!("read {} ago", span(age)), look.quiet()));
    }
    pieces
}

fn piece(text: impl Into<String>, style: Style) -> Piece {
    Piece {
        text: text.into(),
        style,
    }
}
