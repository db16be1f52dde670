//! The keys and their effects.

use fairpath_history::snapshot::Sort;

use crate::daemon::{Daemon, row, snapshot, town};
use crate::{command, terminal::Terminal, top};

/// The line of the first row.
const FIRST: usize = 4;

const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";
const RIGHT: &str = "\x1b[C";
const LEFT: &str = "\x1b[D";
const ESCAPE: &str = "\x1b";

fn first_row_is(terminal: &Terminal, name: &str) {
    terminal.wait(&format!("{name} first"), |lines| {
        lines[FIRST]
            .trim_start_matches(['▾', '▸', ' '])
            .starts_with(name)
    });
}

#[test]
fn sorting_changes_the_order_and_the_query() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    first_row_is(&terminal, "North mast");
    terminal.press("s");
    terminal.shows("sort: rate");
    first_row_is(&terminal, "carla");
    terminal.press("S");
    terminal.shows("sort: tree");
    first_row_is(&terminal, "North mast");
    terminal.press("S");
    first_row_is(&terminal, "ann");
    terminal.press("S");
    terminal.shows("sort: flows");
    terminal.press("/x");
    terminal.shows("no class name contains");
    // A query of the order before may be the last for a moment.
    let sorts_by_flows = || {
        daemon
            .last_query()
            .is_some_and(|query| query.sort == Sort::Flows)
    };
    crate::failures::until(sorts_by_flows);
    assert_eq!(daemon.last_query().unwrap().limit, 1000);
}

#[test]
fn a_filter_applies_while_it_is_typed() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("North mast");
    terminal.press("/AN");
    terminal.shows("filter: AN_");
    terminal.hides("carla");
    terminal.shows("ann");
    terminal.press("\r");
    terminal.hides("filter: AN_");
    terminal.shows("filter: AN");
    terminal.press(ESCAPE);
    terminal.shows("carla");
    terminal.hides("filter:");
}

#[test]
fn space_folds_and_unfolds() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("▾ North mast");
    terminal.press(" ");
    terminal.shows("▸ North mast");
    terminal.hides("carla");
    terminal.shows("bob");
    terminal.press(" ");
    terminal.shows("carla");
}

#[test]
fn the_details_view_opens_and_closes() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 40);
    terminal.shows("carla");
    terminal.press(&[DOWN, DOWN].concat());
    terminal.shows("3/5");
    terminal.press(RIGHT);
    terminal.wait("details of carla", |lines| lines[2].starts_with("carla"));
    for text in [
        "INSIDE 199",
        "198.51.100.0/24",
        "2001:db8:1234::/48",
        "10.0.7.3:40000",
    ] {
        terminal.shows(text);
    }
    terminal.press(LEFT);
    terminal.shows("North mast");
    terminal.shows("3/5");
    terminal.press(UP);
    terminal.shows("2/5");
    terminal.press("\r");
    terminal.wait("details of ann", |lines| lines[2].starts_with("ann"));
    terminal.press(ESCAPE);
    terminal.shows("West mast");
}

#[test]
fn a_paused_table_stays_until_resumed() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("p");
    terminal.shows("PAUSED");
    daemon.show(snapshot(vec![row("new class", None, 0, 1)]));
    let before = daemon.queries();
    // After two more snapshots, at least one has arrived.
    crate::failures::until(|| daemon.queries() > before + 2);
    terminal.press("?");
    terminal.shows("press any key to return");
    terminal.press("x");
    terminal.shows("carla");
    terminal.press("p");
    terminal.shows("new class");
    terminal.hides("PAUSED");
}

#[test]
fn zooming_queries_the_subtree_and_returns() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("u");
    terminal.shows("under: North mast");
    terminal.hides("bob");
    let before = daemon.queries();
    crate::failures::until(|| daemon.queries() > before + 1);
    let query = daemon.last_query().unwrap();
    assert_eq!(query.under.as_deref(), Some("North mast"));
    terminal.press(LEFT);
    terminal.shows("bob");
}

#[test]
fn a_new_size_changes_columns_and_rows() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.resize(130, 30);
    let foot = |lines: &[String]| lines.last().is_some_and(|line| line.starts_with("? help"));
    terminal.wait("the foot of 30 lines", |lines| {
        lines.len() == 30 && foot(lines)
    });
    terminal.shows("RATE");
    crate::failures::until(|| daemon.last_query().is_some_and(|query| query.history));
    terminal.resize(40, 10);
    terminal.wait("the foot of 10 lines", |lines| {
        lines.len() == 10 && foot(lines)
    });
    terminal.hides("RATE");
    terminal.shows("carla");
    let before = daemon.queries();
    crate::failures::until(|| daemon.queries() > before + 1);
    assert!(
        !daemon.last_query().unwrap().history,
        "the trend is not visible"
    );
}

#[test]
fn control_l_redraws_the_screen() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.scribble("\x1b[5;1Hanother message");
    terminal.shows("another message");
    terminal.press("\x0c");
    terminal.hides("another message");
    first_row_is(&terminal, "North mast");
    terminal.shows("carla");
}

#[test]
fn options_set_the_first_query() {
    let daemon = Daemon::showing(town());
    let args = [
        "--sort",
        "in-p95",
        "--filter",
        "a",
        "--limit",
        "7",
        "--under",
        "North mast",
    ];
    let terminal = Terminal::run(command(&daemon, &args), 80, 24);
    terminal.shows("sort: p95 in");
    first_row_is(&terminal, "carla");
    let query = daemon.last_query().unwrap();
    assert_eq!(query.limit, 7);
    assert_eq!(query.filter.as_deref(), Some("a"));
    assert_eq!(query.under.as_deref(), Some("North mast"));
}

#[test]
fn the_environment_selects_ascii_without_colours() {
    let daemon = Daemon::showing(town());
    let mut command = command(&daemon, &[]);
    command.env("NO_COLOR", "1");
    command.env("LC_ALL", "C");
    let mut terminal = Terminal::run(command, 120, 24);
    terminal.shows("- North mast");
    terminal.shows("370!");
    terminal.press("q");
    terminal.ends();
    let bytes = terminal.bytes();
    assert!(bytes.is_ascii());
    let text = String::from_utf8(bytes).unwrap();
    for colour in ["\x1b[31m", "\x1b[33m", "\x1b[38;"] {
        assert!(!text.contains(colour), "{text:?}");
    }
}

#[test]
fn a_critical_value_is_red_in_colour() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("370!");
    terminal.press("q");
    terminal.ends();
    let text = String::from_utf8(terminal.bytes()).unwrap();
    assert!(text.contains("\x1b[38;5;1;49m370!"), "{text:?}");
}
