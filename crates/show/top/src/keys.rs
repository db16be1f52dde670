//! The keys and their actions.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::rules::RulesView;
use crate::state::{Details, MAX_FILTER, State};
use crate::table::Trend;

/// The keys and their actions, as the help shows them.
pub const HELP: &[(&str, &str)] = &[
    ("up down j k", "select a row"),
    ("PgUp PgDn", "move one page; Home, End: first, last row"),
    ("Enter right", "details view: histograms, remotes, flows"),
    ("Esc left", "back: close details, clear filter, leave zoom"),
    ("space", "collapse or expand the classes below"),
    ("1 to 9, 0", "show 1 to 9 levels of the tree; 0: all levels"),
    ("u", "zoom: show only this class and those below"),
    ("s S", "next or previous sort order"),
    ("/", "filter by name; Enter keeps it, Esc clears it"),
    ("t", "trend column: switch between rate and inside p95"),
    ("r", "loaded rules with their rates; again or Esc: classes"),
    ("p", "pause or resume"),
    ("Ctrl-L", "redraw the screen; Ctrl-Z: suspend"),
    ("? h", "show this help"),
    ("q Ctrl-C", "quit"),
];

/// The action after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Idle,
    /// Draw.
    Draw,
    /// Draw, and query the source at once.
    Query,
    /// Draw every cell again.
    Redraw,
    /// Stop until the shell continues this process.
    Suspend,
    /// End.
    Quit,
}

fn query_if(needed: bool) -> Step {
    if needed { Step::Query } else { Step::Draw }
}

/// Handles a key.
pub fn press(state: &mut State, key: KeyEvent) -> Step {
    if key.kind == KeyEventKind::Release {
        return Step::Idle;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return control_key(key.code);
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
            query_if(!state.paused)
        }
        code if state.details.is_some() => details_key(state, code),
        code if state.rules.is_some() => rules_key(state, code),
        code => table_key(state, code),
    }
}

fn control_key(code: KeyCode) -> Step {
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
            return Step::Query;
        }
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(c) if text.chars().count() < MAX_FILTER => text.push(c),
        _ => return Step::Idle,
    }
    let text = text.clone();
    state.filter(&text);
    Step::Query
}

/// Rules are sorted and filtered here, so only the switch needs a query.
fn rules_key(state: &mut State, code: KeyCode) -> Step {
    let page = state.page as isize;
    match code {
        KeyCode::Down | KeyCode::Char('j') => state.step_rules(1),
        KeyCode::Up | KeyCode::Char('k') => state.step_rules(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => state.step_rules(page),
        KeyCode::PageUp => state.step_rules(-page),
        KeyCode::Home | KeyCode::Char('g') => state.list_rules(RulesView::first),
        KeyCode::End | KeyCode::Char('G') => state.step_rules(isize::MAX),
        KeyCode::Char(key @ ('s' | 'S')) => state.list_rules(|view| view.next_sort(key == 's')),
        KeyCode::Char('/') => {
            state.typing = Some(state.active_filter().cloned().unwrap_or_default())
        }
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace if state.active_filter().is_some() => {
            state.filter("");
        }
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('r') => {
            state.switch_rules();
            return Step::Query;
        }
        _ => return Step::Idle,
    }
    Step::Draw
}

fn table_key(state: &mut State, code: KeyCode) -> Step {
    let page = state.page as isize;
    match code {
        KeyCode::Down | KeyCode::Char('j') => state.step(1),
        KeyCode::Up | KeyCode::Char('k') => state.step(-1),
        KeyCode::PageDown => state.step(page),
        KeyCode::PageUp => state.step(-page),
        KeyCode::Home | KeyCode::Char('g') => state.first(),
        KeyCode::End | KeyCode::Char('G') => state.last(),
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return open_details(state),
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => return query_if(state.back()),
        KeyCode::Char(' ') => return query_if(state.fold()),
        KeyCode::Char('u') => return query_if(state.zoom()),
        KeyCode::Char('0') => {
            state.levels(None);
            return Step::Query;
        }
        KeyCode::Char(digit @ '1'..='9') => {
            state.levels(digit.to_digit(10));
            return Step::Query;
        }
        KeyCode::Char(key @ ('s' | 'S')) => {
            state.sort(key == 's');
            return Step::Query;
        }
        KeyCode::Char('/') => {
            state.typing = Some(state.active_filter().cloned().unwrap_or_default())
        }
        KeyCode::Char('r') => {
            state.switch_rules();
            return Step::Query;
        }
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

fn open_details(state: &mut State) -> Step {
    let Some(class) = state.current().map(|row| row.name.clone()) else {
        return Step::Idle;
    };
    state.details = Some(Details {
        class,
        ..Details::default()
    });
    Step::Query
}

/// Drawing limits the scroll position to the number of lines.
fn details_key(state: &mut State, code: KeyCode) -> Step {
    let page = state.page;
    let Some(details) = &mut state.details else {
        return Step::Idle;
    };
    let scroll = &mut details.scroll;
    match code {
        KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => *scroll = scroll.saturating_add(page),
        KeyCode::PageUp => *scroll = scroll.saturating_sub(page),
        KeyCode::Home | KeyCode::Char('g') => *scroll = 0,
        KeyCode::End | KeyCode::Char('G') => *scroll = usize::MAX,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => {
            state.details = None;
            return Step::Query;
        }
        _ => return Step::Idle,
    }
    Step::Draw
}
