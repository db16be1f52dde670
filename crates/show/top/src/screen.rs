//! The whole screen: header, table or details view, footer.
//!
//! ```text
//! fairpath HOST  TIME  window ...                    sort: ...   header, 2 lines
//! 1,234 classes  ...
//!                BIT/S      RTT IN ms                            titles, 2 lines
//! CLASS            UP  DOWN   p50   p95
//! ...                                                            rows
//! keys                                                    1/1234 footer: keys, filter or failure
//! ```

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::columns::Layout;
use crate::details;
use crate::glyphs::Look;
use crate::header;
use crate::keys::HELP;
use crate::rules::{self, RulesTable};
use crate::state::{State, scrolled};
use crate::table::Table;
use crate::text;
use fairpath_history::judge::Level;

/// On a screen with fewer lines, header and group titles are not drawn.
const SMALL: u16 = 8;

/// Draws the state, and limits its scroll positions to the screen.
pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    if area.height == 0 || area.width == 0 {
        return;
    }
    let (body, footer) = split(area, area.height - 1);
    let buffer = frame.buffer_mut();
    let header_lines = if area.height < SMALL {
        0
    } else {
        header::LINES
    };
    let (head, body) = split(body, header_lines);
    header::draw(buffer, head, state);
    if state.help {
        help(buffer, body, state.look);
    } else if state.details.is_some() {
        details_view(buffer, body, state);
    } else if state.rules.is_some() {
        rules_view(buffer, body, state);
    } else {
        table(buffer, body, state);
    }
    foot(buffer, footer, state);
}

fn split(area: Rect, lines: u16) -> (Rect, Rect) {
    let lines = lines.min(area.height);
    let above = Rect {
        height: lines,
        ..area
    };
    let below = Rect {
        y: area.y + lines,
        height: area.height - lines,
        ..area
    };
    (above, below)
}

fn line_of(area: Rect, at: u16) -> Rect {
    Rect {
        y: area.y + at,
        height: 1,
        ..area
    }
}

fn table(buffer: &mut Buffer, area: Rect, state: &mut State) {
    let titles = if area.height < SMALL - 2 { 1 } else { 2 };
    let (over, body) = split(area, titles);
    state.scroll(body.height.into());
    let name = state.view.as_ref().map_or(0, |p| p.name_width);
    let shaped = state.view.as_ref().is_some_and(|p| p.is_shaped());
    state.has_trend = Layout::new(area.width, name, shaped).trend > 0;
    let Some(view) = &state.view else {
        return message(buffer, body, "waiting for the first snapshot", state.look);
    };
    let sort = state.query.sort;
    let table = Table::new(view, area.width, state.look, state.trend, sort);
    if over.height == 2 {
        table.groups(buffer, line_of(over, 0));
    }
    if over.height > 0 {
        table.titles(buffer, line_of(over, over.height - 1));
    }
    if view.entries.is_empty() {
        return message(buffer, body, &no_rows(state), state.look);
    }
    let shown = view.entries.iter().enumerate().skip(state.offset);
    for (line, (index, entry)) in (0..body.height).zip(shown) {
        let line = line_of(body, line);
        let row = &view.snapshot.rows[entry.row];
        table.row(buffer, line, entry, row);
        if index == state.selected {
            buffer.set_style(line, state.look.selected());
        }
    }
}

/// Why no row is shown.
fn no_rows(state: &State) -> String {
    match (&state.query.filter, &state.query.under) {
        (Some(part), _) => {
            format!("no class name contains \"{part}\"; press Esc to clear the filter")
        }
        (_, Some(class)) => format!("no rows below {class}; press Esc to go back"),
        _ => "no rows: no class is configured, or no traffic yet".to_owned(),
    }
}

fn message(buffer: &mut Buffer, area: Rect, text: &str, look: Look) {
    if area.height > 1 {
        let text = text::cut(text, area.width.into(), look);
        buffer.set_string(area.x, area.y + 1, text, look.quiet());
    }
}

fn rules_view(buffer: &mut Buffer, area: Rect, state: &mut State) {
    let look = state.look;
    let (title, body) = split(area, 1);
    // On a low screen, the list is more important.
    let detail_lines = match body.height > 2 * rules::SELECTED_LINES {
        true => rules::SELECTED_LINES,
        false => 0,
    };
    let (body, below) = split(body, body.height - detail_lines);
    let text = no_rules(state);
    let (Some(shown), Some(loaded)) = (
        &mut state.rules,
        state
            .view
            .as_ref()
            .and_then(|view| view.snapshot.rules.as_deref()),
    ) else {
        return message(buffer, body, &text, look);
    };
    state.page = usize::from(body.height).max(1);
    let rows = shown.rows();
    shown.offset = scrolled(shown.offset, shown.selected, state.page, rows);
    let table = RulesTable::new(shown, loaded, area.width, look);
    if title.height > 0 {
        table.titles(buffer, title);
    }
    if rows == 0 {
        return message(buffer, body, &text, look);
    }
    let listed = shown.rules(loaded).enumerate().skip(shown.offset);
    for (line, (index, rule)) in (0..body.height).zip(listed) {
        let line = line_of(body, line);
        table.row(buffer, line, rule);
        if index == shown.selected {
            buffer.set_style(line, look.selected());
        }
    }
    if let Some(rule) = shown.current(Some(loaded)).filter(|_| below.height > 0) {
        let rule_line = look.rule().repeat(below.width.into());
        buffer.set_string(below.x, below.y, rule_line, look.quiet());
        let (_, below) = split(below, 1);
        let lines = rules::selected(rule, below.width, look).into_iter();
        draw_lines(buffer, below, lines.map(Line::raw));
    }
}

/// Why no rule is shown.
fn no_rules(state: &State) -> String {
    match (state.loaded_rules(), state.active_filter()) {
        (None, _) if !state.has_requested_rules => "waiting for the loaded rules".to_owned(),
        (None, _) => "no rules are loaded: `fairpath rules load` loads them".to_owned(),
        (Some(rules), _) if rules.counter_mode == "none" => {
            "the rules have no counters: they were loaded with --counters none".to_owned()
        }
        (Some(_), Some(part)) => {
            format!("no rule contains \"{part}\"; press Esc to clear the filter")
        }
        (Some(_), None) => "the loaded files have no rules".to_owned(),
    }
}

fn details_view(buffer: &mut Buffer, area: Rect, state: &mut State) {
    let look = state.look;
    let Some(details) = &mut state.details else {
        return;
    };
    let (title, body) = split(area, 1);
    state.page = usize::from(body.height).max(1);
    if title.height > 0 {
        let name = text::cut(&details.class, title.width.into(), look);
        buffer.set_string(title.x, title.y, name, look.title());
    }
    let Some(detail) = &details.detail else {
        return message(buffer, body, "waiting for the details", look);
    };
    let lines = details::lines(detail, area.width, look);
    details.scroll = details
        .scroll
        .min(lines.len().saturating_sub(body.height.into()));
    draw_lines(buffer, body, lines.into_iter().skip(details.scroll));
}

fn draw_lines(buffer: &mut Buffer, area: Rect, lines: impl Iterator<Item = Line<'static>>) {
    for (at, line) in (0..area.height).zip(lines) {
        let target = line_of(area, at);
        buffer.set_line(target.x, target.y, &line, target.width);
    }
}

fn help(buffer: &mut Buffer, area: Rect, look: Look) {
    let width = usize::from(area.width);
    let mut lines: Vec<String> = HELP
        .iter()
        .map(|(keys, action)| format!("{}  {action}", text::left(keys, 12, look)))
        .collect();
    lines.extend([
        String::new(),
        "IN: the leg to the hosts of the class; OUT: the leg to their remote hosts".to_owned(),
        "value~: warning; value!: critical; -: not measured".to_owned(),
        "alerts after the name: !R RTT shift, !L loss, !S service level not met".to_owned(),
    ]);
    let cut = |line: String| Line::raw(text::cut(&line, width, look));
    draw_lines(buffer, area, lines.into_iter().map(cut));
}

fn foot(buffer: &mut Buffer, line: Rect, state: &State) {
    let look = state.look;
    let width = usize::from(line.width);
    let (text, style) = if let Some(typed) = &state.typing {
        (format!("filter: {typed}_"), look.title())
    } else if let Some(failure) = &state.failure {
        let style = look.level(Level::Critical);
        (format!("! {failure}"), style)
    } else {
        (keys_for(state).to_owned(), look.quiet())
    };
    let position = position(state);
    let left = width.saturating_sub(position.len() + 2);
    if left < 8 {
        return write(buffer, line, &text, width, style, look);
    }
    write(buffer, line, &text, left, style, look);
    let x = line.x + line.width - position.len() as u16;
    buffer.set_string(x, line.y, &position, look.quiet());
}

fn write(buffer: &mut Buffer, line: Rect, text: &str, width: usize, style: Style, look: Look) {
    buffer.set_string(line.x, line.y, text::cut(text, width, look), style);
}

fn keys_for(state: &State) -> &'static str {
    if state.help {
        "press any key to return"
    } else if state.rules.is_some() && state.details.is_none() {
        "? help  r classes  s sort  / filter  p pause  q quit"
    } else if state.details.is_some() {
        "Esc back  up/down scroll  p pause  ? help  q quit"
    } else {
        "? help  Enter details  s sort  / filter  space fold  p pause  q quit"
    }
}

/// The position of the selected row in the list: `12/1234`.
fn position(state: &State) -> String {
    if let Some(rules) = &state.rules {
        return match rules.rows() {
            0 => String::new(),
            rows => format!("{}/{rows}", rules.selected + 1),
        };
    }
    match &state.view {
        Some(view) if !view.entries.is_empty() && state.details.is_none() => {
            let at = state.selected + 1;
            format!("{at}/{}", view.entries.len())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
