//! What each key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::state::{Closeup, MAX_FILTER, State};
use crate::table::Trend;

/// Keys and what they do, as the help shows them.
pub const HELP: &[(&str, &str)] = &[
    ("up down j k", "select a class"),
    ("PgUp PgDn", "a page; Home and End: first and last"),
    (
        "Enter right",
        "the class closely: histogram, remotes, flows",
    ),
    ("Esc left", "back: from the class, the filter, the zoom"),
    ("space", "fold or unfold what lies below"),
    ("1 to 9, 0", "show so many levels of the tree; 0: all"),
    ("u", "zoom: only this class and what lies below it"),
    ("s S", "next or previous way of sorting"),
    ("/", "filter by name; Enter keeps it, Esc drops it"),
    ("t", "trend: rate, or p95 inside"),
    ("p", "pause and go on"),
    ("Ctrl-L", "draw the screen anew; Ctrl-Z: to the shell"),
    ("? h", "this help"),
    ("q Ctrl-C", "quit"),
];

/// What has to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Idle,
    /// Draw.
    Draw,
    /// Draw, and ask the source at once.
    Ask,
    /// Draw everything, whatever the terminal shows.
    Redraw,
    /// Stop until the shell lets us go on.
    Suspend,
    /// End.
    Quit,
}

fn asks(whether: bool) -> Step {
    if whether { Step::Ask } else { Step::Draw }
}

/// Does what the key says.
pub fn press(state: &mut State, key: KeyEvent) -> Step {
    if key.kind == KeyEventKind::Release {
        return Step::Idle;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return control(key.code);
    }
    if state.help {
        state.help = false;
        return if key.code == KeyCode::Char('q') {
            Step::Quit
        } else {
            Step::Draw
        };
    }
    if state.typing.is_some() {
        return type_filter(state, key.code);
    }
    match key.code {
        KeyCode::Char('q') => Step::Quit,
        KeyCode::Char('?' | 'h') => {
            state.help = true;
            Step::Draw
        }
        KeyCode::Char('p') => {
            state.paused = !state.paused;
            asks(!state.paused)
        }
        code if state.closeup.is_some() => closely(state, code),
        code => table(state, code),
    }
}

fn control(code: KeyCode) -> Step {
    match code {
        KeyCode::Char('c') => Step::Quit,
        KeyCode::Char('l') => Step::Redraw,
        KeyCode::Char('z') => Step::Suspend,
        _ => Step::Idle,
    }
}

fn type_filter(state: &mut State, code: KeyCode) -> Step {
    let Some(text) = &mut state.typing else {
        return Step::Idle;
    };
    match code {
        KeyCode::Enter => {
            state.typing = None;
            return Step::Draw;
        }
        KeyCode::Esc => {
            state.typing = None;
            state.filter("");
            return Step::Ask;
        }
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(c) if text.chars().count() < MAX_FILTER => text.push(c),
        _ => return Step::Idle,
    }
    let text = text.clone();
    state.filter(&text);
    Step::Ask
}

fn table(state: &mut State, code: KeyCode) -> Step {
    let page = state.page as isize;
    match code {
        KeyCode::Down | KeyCode::Char('j') => state.step(1),
        KeyCode::Up | KeyCode::Char('k') => state.step(-1),
        KeyCode::PageDown => state.step(page),
        KeyCode::PageUp => state.step(-page),
        KeyCode::Home | KeyCode::Char('g') => state.first(),
        KeyCode::End | KeyCode::Char('G') => state.last(),
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return look_closely(state),
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => return asks(state.back()),
        KeyCode::Char(' ') => return asks(state.fold()),
        KeyCode::Char('u') => return asks(state.zoom()),
        KeyCode::Char('0') => {
            state.levels(None);
            return Step::Ask;
        }
        KeyCode::Char(digit @ '1'..='9') => {
            state.levels(digit.to_digit(10));
            return Step::Ask;
        }
        KeyCode::Char(key @ ('s' | 'S')) => {
            state.sort(key == 's');
            return Step::Ask;
        }
        KeyCode::Char('/') => state.typing = Some(state.query.filter.clone().unwrap_or_default()),
        KeyCode::Char('t') => {
            state.trend = match state.trend {
                Trend::Rate => Trend::InsideP95,
                Trend::InsideP95 => Trend::Rate,
            }
        }
        _ => return Step::Idle,
    }
    Step::Draw
}

fn look_closely(state: &mut State) -> Step {
    let Some(class) = state.current().map(|row| row.name.clone()) else {
        return Step::Idle;
    };
    state.closeup = Some(Closeup {
        class,
        ..Closeup::default()
    });
    Step::Ask
}

/// The scroll is bound to what there is when it is drawn.
fn closely(state: &mut State, code: KeyCode) -> Step {
    let page = state.page;
    let Some(closeup) = &mut state.closeup else {
        return Step::Idle;
    };
    let scroll = &mut closeup.scroll;
    match code {
        KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => *scroll = scroll.saturating_add(page),
        KeyCode::PageUp => *scroll = scroll.saturating_sub(page),
        KeyCode::Home | KeyCode::Char('g') => *scroll = 0,
        KeyCode::End | KeyCode::Char('G') => *scroll = usize::MAX,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => {
            state.closeup = None;
            return Step::Ask;
        }
        _ => return Step::Idle,
    }
    Step::Draw
}
