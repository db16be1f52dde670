//! Each key does what the help says.

use fairpath_history::snapshot::Sort;

use crate::daemon::{Daemon, picture, row, town};
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
fn sorting_changes_the_order_and_what_the_daemon_is_asked() {
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
    let before = daemon.asked();
    terminal.press("S");
    terminal.shows("sort: flows");
    terminal.press("/x");
    terminal.shows("no class whose name");
    crate::failures::until(|| daemon.asked() > before + 1);
    let query = daemon.last_query().unwrap();
    assert_eq!(query.sort, Sort::Flows);
    assert_eq!(query.limit, 1000);
}

#[test]
fn a_filter_shows_what_contains_it_while_it_is_typed() {
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
fn a_class_is_looked_at_closely_and_left_again() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 40);
    terminal.shows("carla");
    terminal.press(&[DOWN, DOWN].concat());
    terminal.shows("3/5");
    terminal.press(RIGHT);
    terminal.wait("carla closely", |lines| lines[2].starts_with("carla"));
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
    terminal.wait("ann closely", |lines| lines[2].starts_with("ann"));
    terminal.press(ESCAPE);
    terminal.shows("West mast");
}

#[test]
fn a_paused_picture_stays_until_it_goes_on() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("p");
    terminal.shows("PAUSED");
    daemon.show(picture(vec![row("newcomer", None, 0, 1)]));
    let before = daemon.asked();
    // Two more pictures were made, so one was surely taken notice of.
    crate::failures::until(|| daemon.asked() > before + 2);
    terminal.press("?");
    terminal.shows("any key goes back");
    terminal.press("x");
    terminal.shows("carla");
    terminal.press("p");
    terminal.shows("newcomer");
    terminal.hides("PAUSED");
}

#[test]
fn zooming_asks_for_what_lies_below_and_comes_back() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("u");
    terminal.shows("under: North mast");
    terminal.hides("bob");
    let before = daemon.asked();
    crate::failures::until(|| daemon.asked() > before + 1);
    let query = daemon.last_query().unwrap();
    assert_eq!(query.under.as_deref(), Some("North mast"));
    terminal.press(LEFT);
    terminal.shows("bob");
}

#[test]
fn another_size_shows_other_columns_and_rows() {
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
    let before = daemon.asked();
    crate::failures::until(|| daemon.asked() > before + 1);
    assert!(!daemon.last_query().unwrap().history, "nobody sees it");
}

#[test]
fn control_l_draws_everything_anew() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.scribble("\x1b[5;1Hsomebody's message");
    terminal.shows("somebody's message");
    terminal.press("\x0c");
    terminal.hides("somebody");
    first_row_is(&terminal, "North mast");
    terminal.shows("carla");
}

#[test]
fn arguments_say_how_it_begins() {
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
fn without_colours_and_in_ascii_only_ascii_and_no_colour_is_written() {
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
fn a_bad_value_is_red_where_there_are_colours() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("370!");
    terminal.press("q");
    terminal.ends();
    let text = String::from_utf8(terminal.bytes()).unwrap();
    assert!(text.contains("\x1b[38;5;1;49m370!"), "{text:?}");
}
