//! The whole screen: header, table or closeup, footer.
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

use crate::closeup;
use crate::columns::Layout;
use crate::glyphs::Look;
use crate::header;
use crate::judge::Level;
use crate::keys::HELP;
use crate::state::State;
use crate::table::Table;
use crate::text;

/// Below so many lines, header and group titles give way to rows.
const SMALL: u16 = 8;

/// Draws the state; bounds its scrolling to what fits.
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
    } else if state.closeup.is_some() {
        closely(buffer, body, state);
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
    let name = state.picture.as_ref().map_or(0, |p| p.name_width);
    let shaped = state.picture.as_ref().is_some_and(|p| p.is_shaped());
    state.has_trend = Layout::new(area.width, name, shaped).trend > 0;
    let Some(picture) = &state.picture else {
        return say(buffer, body, "waiting for the first picture", state.look);
    };
    let sort = state.query.sort;
    let table = Table::new(picture, area.width, state.look, state.trend, sort);
    if over.height == 2 {
        table.groups(buffer, line_of(over, 0));
    }
    if over.height > 0 {
        table.titles(buffer, line_of(over, over.height - 1));
    }
    if picture.entries.is_empty() {
        return say(buffer, body, &nothing(state), state.look);
    }
    let shown = picture.entries.iter().enumerate().skip(state.offset);
    for (line, (place, entry)) in (0..body.height).zip(shown) {
        let line = line_of(body, line);
        let row = &picture.snapshot.rows[entry.row];
        table.row(buffer, line, entry, row);
        if place == state.selected {
            buffer.set_style(line, state.look.selected());
        }
    }
}

/// Why no row is shown.
fn nothing(state: &State) -> String {
    match (&state.query.filter, &state.query.under) {
        (Some(part), _) => format!("no class whose name contains \"{part}\"; Esc drops the filter"),
        (_, Some(class)) => format!("nothing below {class}; Esc goes back"),
        _ => "no class yet: none is configured, or no traffic passed".to_owned(),
    }
}

fn say(buffer: &mut Buffer, area: Rect, what: &str, look: Look) {
    if area.height > 1 {
        let what = text::cut(what, area.width.into(), look);
        buffer.set_string(area.x, area.y + 1, what, look.quiet());
    }
}

fn closely(buffer: &mut Buffer, area: Rect, state: &mut State) {
    let look = state.look;
    let Some(closeup) = &mut state.closeup else {
        return;
    };
    let (title, body) = split(area, 1);
    state.page = usize::from(body.height).max(1);
    if title.height > 0 {
        let name = text::cut(&closeup.class, title.width.into(), look);
        buffer.set_string(title.x, title.y, name, look.title());
    }
    let Some(detail) = &closeup.detail else {
        return say(buffer, body, "waiting for its numbers", look);
    };
    let lines = closeup::lines(detail, area.width, look);
    closeup.scroll = closeup
        .scroll
        .min(lines.len().saturating_sub(body.height.into()));
    draw_lines(buffer, body, lines.into_iter().skip(closeup.scroll));
}

fn draw_lines(buffer: &mut Buffer, area: Rect, lines: impl Iterator<Item = Line<'static>>) {
    for (at, line) in (0..area.height).zip(lines) {
        let place = line_of(area, at);
        buffer.set_line(place.x, place.y, &line, place.width);
    }
}

fn help(buffer: &mut Buffer, area: Rect, look: Look) {
    let width = usize::from(area.width);
    let mut lines: Vec<String> = HELP
        .iter()
        .map(|(keys, what)| format!("{}  {what}", text::left(keys, 12, look)))
        .collect();
    lines.extend([
        String::new(),
        "IN: between this router and the class's hosts; OUT: and those they talk with".to_owned(),
        "value~ is worth a look, value! is bad, - was not measured".to_owned(),
        "name !R round-trip shift, !L loss, !S broken promise: alerts that hold".to_owned(),
    ]);
    let cut = |line: String| Line::raw(text::cut(&line, width, look));
    draw_lines(buffer, area, lines.into_iter().map(cut));
}

fn foot(buffer: &mut Buffer, line: Rect, state: &State) {
    let look = state.look;
    let width = usize::from(line.width);
    let (says, style) = if let Some(typed) = &state.typing {
        (format!("filter: {typed}_"), look.title())
    } else if let Some(failure) = &state.failure {
        let style = look.level(Level::Bad);
        (format!("! {failure}"), style)
    } else {
        (keys_for(state).to_owned(), look.quiet())
    };
    let place = place(state);
    let room = width.saturating_sub(place.len() + 2);
    if room < 8 {
        return write(buffer, line, &says, width, style, look);
    }
    write(buffer, line, &says, room, style, look);
    let x = line.x + line.width - place.len() as u16;
    buffer.set_string(x, line.y, &place, look.quiet());
}

fn write(buffer: &mut Buffer, line: Rect, what: &str, width: usize, style: Style, look: Look) {
    buffer.set_string(line.x, line.y, text::cut(what, width, look), style);
}

fn keys_for(state: &State) -> &'static str {
    if state.help {
        "any key goes back"
    } else if state.closeup.is_some() {
        "Esc back  up/down scroll  p pause  ? help  q quit"
    } else {
        "? help  Enter closely  s sort  / filter  space fold  p pause  q quit"
    }
}

/// Where we are in the list: `12/1234`, with `+` where there are rows that were not asked for.
fn place(state: &State) -> String {
    match &state.picture {
        Some(picture) if !picture.entries.is_empty() && state.closeup.is_none() => {
            let at = state.selected + 1;
            format!("{at}/{}", picture.entries.len())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
