//! Screens, compared character by character.

use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::snapshot::{Query, Snapshot, Sort};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::draw;
use crate::glyphs::Look;
use crate::keys::{self, Step};
use crate::sample;
use crate::state::State;

const LOOK: Look = Look {
    ascii: false,
    colour: true,
};
const PLAIN: Look = Look {
    ascii: true,
    colour: false,
};

fn state(snapshot: Snapshot, look: Look) -> State {
    let mut state = State::new(Query::default(), look);
    state.show(snapshot);
    state
}

fn press(state: &mut State, code: KeyCode) -> Step {
    keys::press(state, KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(state: &mut State, text: &str) {
    for c in text.chars() {
        press(state, KeyCode::Char(c));
    }
}

fn drawn(state: &mut State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen's lines without trailing spaces.
fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(state, width, height);
    let line = |y| {
        let (mut line, mut x) = (String::new(), 0);
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += crate::text::width(symbol).max(1) as u16;
        }
        line.trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Opens the details view with keys and an answer.
fn open_details(state: &mut State) {
    for _ in 0..3 {
        press(state, KeyCode::Down);
    }
    assert_eq!(press(state, KeyCode::Enter), Step::Query);
    state.show_detail("carla", sample::carla());
}

fn assert_screen(state: &mut State, width: u16, expected: &[&str]) {
    let lines = screen(state, width, expected.len() as u16);
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

/// Compares the beginnings of the visible rows.
#[track_caller]
fn names(state: &mut State, expected: &[&str]) {
    let lines = screen(state, 80, 24);
    let rows: Vec<&String> = lines[4..23].iter().filter(|l| !l.is_empty()).collect();
    assert_eq!(rows.len(), expected.len(), "{rows:#?}");
    for (row, begin) in rows.iter().zip(expected) {
        assert!(row.starts_with(begin), "{row:?} {begin:?}");
    }
}

#[test]
fn eighty_columns_and_sixteen_lines() {
    let mut state = state(sample::town(), LOOK);
    assert_screen(
        &mut state,
        80,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s                      sort: tree",
            "8 classes  alerts! 2  events lost~ 12  up 14.4M  down 208M  368 flows",
            "                         BIT/S      RTT IN ms  OUT ms  LOAD      LOSS %",
            "CLASS                    UP  DOWN   p50   p95    p95  score     in    out  FLOWS",
            "▾ North mast          4.80M 69.2M  22.2  59.9   48.1     70   1.20~  0.05    123",
            "    ann               1.20M 17.3M  4.20  6.30   26.7     97      0   0.05     30",
            "    bob               3.60M 51.9M  16.2  37.3   40.9     79   0.80   0.05     92",
            "    carla !RL         12.0M  173M  58.2   297!  90.8     16!  3.60!  0.05    309",
            "▾ West mast           2.40M 34.6M  10.2  19.4   33.8     88   0.40   0.05     61",
            "    café-日本語           0     0     -     -      -      -      -      -      0",
            "  Office of the very… 6.00M 86.5M  28.2  87.4   55.2     61~  1.60~  0.05    154",
            "  other               1.20M 17.3M  4.20  6.30   26.7      -      0   0.05     30",
            "",
            "",
            "",
            "? help  Enter details  s sort  / filter  space fold  p pause  q quit         1/8",
        ],
    );
}

#[test]
fn a_hundred_and_twenty_columns_in_ascii() {
    let mut state = state(sample::town(), PLAIN);
    assert_screen(
        &mut state,
        120,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s                                                              sort: tree",
            "8 classes  alerts! 2  events lost~ 12  up 14.4M  down 208M  368 flows  gap at restart 1.3s",
            "                                        BIT/S      RTT IN ms   RTT OUT ms       LOAD         LOSS %",
            "CLASS                                   UP  DOWN   p50   p95    p50   p95    +ms  score     in    out  FLOWS RATE",
            "- North mast                         4.80M 69.2M  22.2  59.9   17.8  48.1   46.0~    70   1.20~  0.05    123 :+_:+_-*_-*",
            "    ann                              1.20M 17.3M  4.20  6.30   17.8  26.7   1.00     97      0   0.05     30 +*_.:=+#_.-",
            "    bob                              3.60M 51.9M  16.2  37.3   17.8  40.9   31.0~    79   0.80   0.05     92 -+_:=#.-*_:",
            "    carla !RL                        12.0M  173M  58.2   297!  17.8  90.8    136!    16!  3.60!  0.05    309 =:_+-_*=.#+",
            "- West mast                          2.40M 34.6M  10.2  19.4   17.8  33.8   16.0     88   0.40   0.05     61 =*_.-+#.-+#",
            "    caf?-???                             0     0     -     -      -     -      -      -      -      -      0",
            "  Office of the very long name, sec> 6.00M 86.5M  28.2  87.4   17.8  55.2   61.0~    61~  1.60~  0.05    154 .=_-*.+_-#:",
            "  other                              1.20M 17.3M  4.20  6.30   17.8  26.7      -      -      0   0.05     30 +*_.:=+#_.-",
            "",
            "? help  Enter details  s sort  / filter  space fold  p pause  q quit                                                 1/8",
        ],
    );
}

#[test]
fn forty_columns_and_ten_lines() {
    let mut state = state(sample::town(), LOOK);
    assert_screen(
        &mut state,
        40,
        &[
            "fairpath gw-7  08:28:17 UTC   sort: tree",
            "8 classes  alerts! 2  events lost~ 12",
            "                  BIT/S     IN ms OUT ms",
            "CLASS             UP  DOWN   p95    p95",
            "▾ North mast   4.80M 69.2M  59.9   48.1",
            "    ann        1.20M 17.3M  6.30   26.7",
            "    bob        3.60M 51.9M  37.3   40.9",
            "    carla !RL  12.0M  173M   297!  90.8",
            "▾ West mast    2.40M 34.6M  19.4   33.8",
            "? help  Enter details  s sort  / f…  1/8",
        ],
    );
}

#[test]
fn details_view_in_eighty_columns() {
    let mut state = state(sample::town(), LOOK);
    open_details(&mut state);
    assert_screen(
        &mut state,
        80,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s",
            "8 classes  alerts! 2  events lost~ 12  up 14.4M  down 208M  368 flows",
            "carla",
            "class    child of North mast  RTT above its baseline!  loss above its threshold!",
            "rate     up 12.0 Mbit/s  down 173 Mbit/s (86% of 200M)  packets/s 1.50k/21.6k",
            "ms         min    p50    p95    p99  samples  loss% to   from  reordered",
            "inside    46.6   58.2    297!   483      103      3.60!  0.90          9",
            "outside   14.2   17.8   90.8    148      103      0.05   0.01          9",
            "load     p50 idle 4.00 ms  busy 140 ms  p95 busy 279 ms  growth 136 ms!",
            "         score 16 of 100!  lowest RTT 3.00 ms",
            "flows    309 open  1,279 opened  0 handshakes failed  0 one-sided  185 GB total",
            "",
            "RTT ms        INSIDE 199                       OUTSIDE 199",
            "    5 - 10                                      15.6 █████████▊",
            "   10 - 20                                      17.1 ██████████▊",
            "   20 - 50     39.7 █████████████████████████   18.1 ███████████▍",
            "   50 - 100    20.6 █████████████               15.1 █████████▌",
            "  100 - 200    21.1 █████████████▎              18.6 ███████████▊",
            "  200 - 500    18.6 ███████████▊                15.6 █████████▊",
            "",
            "LAST DAY, oldest first ─────────────────────────────────────────────────────────",
            "rate    ▁▂▃▃▄▅▅▁▂▃▃▄▅▅▂▂▃▄▄▅▁▂▃▃▄▅▅▁▂▃▃▄▅▅▂▂▃▄▄▅▁▂▃▃▄▅▅▁  max 39.0 Mbit/s",
            "p95 in  ▁▂▃▄▅▅▂▃▄▅▅▂▃▄▅▅▂▃▃▄▅▂▂▃▄▅▁▂▃▄▅▁▂▃▄▅▁▂▃▄▅▅▂▃▄▅▅▂  max 150 ms",
            "        23h55m in 288 steps",
            "",
            "WORST REMOTES ──────────────────────────────────────────────────────────────────",
            "remote          mean ms  max ms   up B  down B   lost",
            "198.51.100.0/24     117     279   630k   27.9M      9",
            "Video, far away    52.0     124   280k   12.4M      4",
            "",
            "BUSIEST REMOTES ────────────────────────────────────────────────────────────────",
            "remote             mean ms  max ms   up B  down B   lost",
            "2001:db8:1234::/48     390     930  2.10M   93.0M     30",
            "192.0.2.0/24             -       -  70.0k   3.10M      1",
            "",
            "BUSIEST HOSTS ──────────────────────────────────────────────────────────────────",
            "host     mean ms  max ms   up B  down B   lost",
            "10.0.7.3     156     372   840k   37.2M     12",
            "",
            "OPEN FLOWS ─────────────────────────────────────────────────────────────────────",
            "host                  remote              in p50  out p50   up B  down B   retr",
            "10.0.7.3:40008        198.51.100.17:443     32.0     11.0  96.0k   7.52M      8",
            "Esc back  up/down scroll  p pause  ? help  q quit",
        ],
    );
}

#[test]
fn details_view_in_forty_columns() {
    let mut state = state(sample::town(), LOOK);
    open_details(&mut state);
    assert_screen(
        &mut state,
        40,
        &[
            "fairpath gw-7  08:28:17 UTC",
            "8 classes  alerts! 2  events lost~ 12",
            "carla",
            "class    child of North mast",
            "         RTT above its baseline!",
            "         loss above its threshold!",
            "rate     up 12.0 Mbit/s",
            "         down 173 Mbit/s (86% of 200M)",
            "         packets/s 1.50k/21.6k",
            "ms         p50    p95  loss% to   from",
            "inside    58.2    297!     3.60!  0.90",
            "outside   17.8   90.8      0.05   0.01",
            "load     p50 idle 4.00 ms  busy 140 ms",
            "         p95 busy 279 ms  growth 136 ms!",
            "         score 16 of 100!",
            "         lowest RTT 3.00 ms",
            "flows    309 open  1,279 opened",
            "         0 handshakes failed",
            "         0 one-sided  185 GB total",
            "",
            "RTT ms        INSIDE 199   OUTSIDE 199",
            "    5 - 10                  15.6 ██",
            "   10 - 20                  17.1 ██▏",
            "   20 - 50     39.7 █████   18.1 ██▎",
            "   50 - 100    20.6 ██▋     15.1 █▉",
            "  100 - 200    21.1 ██▋     18.6 ██▍",
            "  200 - 500    18.6 ██▍     15.6 ██",
            "",
            "LAST DAY, oldest first ─────────────────",
            "rate    ▃▅▃▅▃▅▄▅▄▅▄▅▄▅  max 39.0 Mbit/s",
            "Esc back  up/down scroll  p pause  ? …",
        ],
    );
}

#[test]
fn an_empty_table_shows_the_reason() {
    let mut state = state(sample::snapshot(Vec::new()), LOOK);
    assert_screen(
        &mut state,
        60,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s  sort: tree",
            "0 classes  up 0  down 0  0 flows",
            "CLASS           UP  DOWN   p50   p95    p95  score     in",
            "",
            "no rows: no class is configured, or no traffic yet",
            "",
            "",
            "? help  Enter details  s sort  / filter  space fold  p pa…",
        ],
    );
    type_in(&mut state, "/x");
    press(&mut state, KeyCode::Enter);
    let lines = screen(&mut state, 60, 8);
    assert_eq!(
        lines[4],
        "no class name contains \"x\"; press Esc to clear the filter"
    );
}

#[test]
fn ten_thousand_rows_scroll_to_the_last() {
    let row = |i: u64| sample::busy(&format!("sub-{i:05}"), None, 0, i % 10);
    let mut state = state(sample::snapshot((0..10_000).map(row).collect()), LOOK);
    press(&mut state, KeyCode::End);
    let lines = screen(&mut state, 80, 24);
    assert!(lines[4].starts_with("sub-09981 "), "{}", lines[4]);
    assert!(lines[22].starts_with("sub-09999 "), "{}", lines[22]);
    assert!(lines[23].ends_with("10000/10000"), "{}", lines[23]);
    assert!(lines[1].starts_with("10,000 classes"), "{}", lines[1]);
    press(&mut state, KeyCode::PageUp);
    let lines = screen(&mut state, 80, 24);
    assert!(lines[4].starts_with("sub-09980 "), "{}", lines[4]);
}

#[test]
fn the_header_shows_the_number_of_excluded_rows() {
    let mut snapshot = sample::town();
    snapshot.rows_total = 12_345;
    let lines = screen(&mut state(snapshot, LOOK), 80, 12);
    assert!(lines[1].starts_with("8 of 12,345 classes:"), "{}", lines[1]);
}

#[test]
fn only_names_are_cut_at_any_width() {
    for width in 12..170 {
        let lines = screen(&mut state(sample::town(), LOOK), width, 24);
        let office = &lines[10];
        let whole = office.contains("floor, east wing");
        assert!(whole || office.contains('…'), "{width}: {office}");
        for line in &lines {
            assert!(crate::text::width(line) <= width.into(), "{width}: {line}");
        }
        if width >= 19 {
            assert!(lines[4].contains(" 69.2M"), "{width}: {}", lines[4]);
        }
    }
}

#[test]
fn keys_fold_zoom_sort_and_filter() {
    let mut state = state(sample::town(), LOOK);
    let all = [
        "▾ North mast",
        "    ann",
        "    bob",
        "    carla !RL",
        "▾ West mast",
        "    café-日本語",
        "  Office of the very",
        "  other",
    ];
    names(&mut state, &all);
    press(&mut state, KeyCode::Char(' '));
    let folded = [
        "▸ North mast",
        "▾ West mast",
        "    café-日本語",
        "  Office of the very",
        "  other",
    ];
    names(&mut state, &folded);
    assert_eq!(press(&mut state, KeyCode::Char('1')), Step::Query);
    assert_eq!(state.query.depth, Some(0));
    names(
        &mut state,
        &[
            "▸ North mast",
            "▸ West mast",
            "  Office of the very",
            "  other",
        ],
    );
    press(&mut state, KeyCode::Char('0'));
    names(&mut state, &all);
    assert_eq!(press(&mut state, KeyCode::Char('u')), Step::Query);
    names(&mut state, &all[..4]);
    press(&mut state, KeyCode::Esc);
    assert_eq!(press(&mut state, KeyCode::Char('s')), Step::Query);
    assert_eq!(state.query.sort, Sort::Rate);
    let lines = screen(&mut state, 80, 24);
    assert!(lines[4].starts_with("carla !RL  "), "{}", lines[4]);
    assert!(lines[5].starts_with("Office"), "{}", lines[5]);
    press(&mut state, KeyCode::Char('S'));
    type_in(&mut state, "/CAR");
    names(&mut state, &["carla !RL"]);
    assert!(screen(&mut state, 80, 24)[23].starts_with("filter: CAR_"));
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.query.filter.as_deref(), Some("CA"));
    press(&mut state, KeyCode::Esc);
    names(&mut state, &all);
}

#[test]
fn a_critical_value_always_has_a_mark() {
    for look in [
        LOOK,
        Look {
            colour: false,
            ..LOOK
        },
    ] {
        let mut state = state(sample::town(), look);
        let buffer = drawn(&mut state, 80, 24);
        let carla = 7;
        let x = (0..80).find(|x| buffer[(*x, carla)].symbol() == "!" && *x > 20);
        let mark = &buffer[(x.expect("a mark"), carla)];
        let red = mark.fg == Color::Red;
        assert_eq!(red, look.colour);
        assert!(mark.modifier.contains(Modifier::BOLD));
    }
}

#[test]
fn only_the_selected_row_is_reversed() {
    let mut state = state(sample::town(), PLAIN);
    press(&mut state, KeyCode::Down);
    let buffer = drawn(&mut state, 80, 24);
    let reversed = |y: &u16| buffer[(79, *y)].modifier.contains(Modifier::REVERSED);
    let lines: Vec<u16> = (0..24).filter(reversed).collect();
    assert_eq!(lines, [5]);
}

#[test]
fn a_failure_is_shown_below_the_last_snapshot() {
    let mut state = state(sample::town(), LOOK);
    state.failure = Some("connect to /run/x: no daemon".to_owned());
    let lines = screen(&mut state, 80, 24);
    assert!(lines[4].contains("North mast"));
    assert!(lines[23].starts_with("! connect to /run/x: no daemon"));
}

#[test]
fn the_same_snapshot_changes_no_cell() {
    let mut state = state(sample::town(), LOOK);
    let before = drawn(&mut state, 120, 30);
    state.show(sample::town());
    let after = drawn(&mut state, 120, 30);
    assert!(before.diff(&after).is_empty());
}

#[test]
fn every_size_is_drawn_in_every_view() {
    let mut details = state(sample::town(), LOOK);
    open_details(&mut details);
    let mut help = state(sample::town(), LOOK);
    press(&mut help, KeyCode::Char('?'));
    let mut typing = state(sample::town(), LOOK);
    type_in(&mut typing, "/a");
    let mut failed = state(sample::town(), LOOK);
    failed.failure = Some("connect: refused".to_owned());
    failed.paused = true;
    let waiting = State::new(Query::default(), LOOK);
    let mut empty = state(sample::town(), LOOK);
    type_in(&mut empty, "/nothing");
    let town = state(sample::town(), PLAIN);
    for mut state in [details, help, typing, failed, waiting, empty, town] {
        for width in (1..50).chain([79, 80, 81, 109, 110, 111, 400]) {
            for height in 1..14 {
                screen(&mut state, width, height);
            }
        }
    }
}

fn with_rules(look: Look) -> State {
    let mut state = state(sample::town(), look);
    assert_eq!(press(&mut state, KeyCode::Char('r')), Step::Query);
    state.has_requested_rules = true;
    state.show(Snapshot {
        rules: Some(Box::new(sample::rules())),
        ..sample::town()
    });
    state
}

#[test]
fn rules_in_eighty_columns() {
    let mut state = with_rules(LOOK);
    press(&mut state, KeyCode::Down);
    assert_screen(
        &mut state,
        80,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s               sort: packet rate",
            "5 of 1,305 rules  rates of 1s",
            "PKT/S BIT/S  PKTS BYTES  CHAIN              LINE         RULE",
            "4.10k 4.10M  812M  812G  4 filter INPUT     rules.v4:13  -m conntrack --ctstate…",
            "  900 9.00M  4100 4.10M  4 filter FORWARD   rules.v4:14  -s 198.51.100.0/24 -m …",
            "   12 12.0k    70 70.0k  6 raw PREROUTING   rules.v6:3   -s 2001:db8:bad::/48 -…",
            "  0.4   400     9 9.00k  4 filter f2b-sshd  -            -s 203.0.113.9/32 -j R…",
            "    0     0  5000 5.00M  4 filter INPUT     rules.v4:40  -j LOG",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "────────────────────────────────────────────────────────────────────────────────",
            "/etc/iptables/rules.v4:14  4,100 packets  4,100,000 bytes",
            "-A FORWARD -s 198.51.100.0/24 -m comment --comment \"a?[2J Löwen\" -j DROP",
            "",
            "? help  r classes  s sort  / filter  p pause  q quit                         2/5",
        ],
    );
}

#[test]
fn rules_in_wide_and_narrow_screens() {
    let mut state = with_rules(PLAIN);
    assert_screen(
        &mut state,
        110,
        &[
            "fairpath gw-7  08:28:17 UTC  window 10s every 1s                                             sort: packet rate",
            "5 of 1,305 rules  rates of 1s",
            "PKT/S BIT/S  PKTS BYTES  CHAIN              LINE         RULE",
            "4.10k 4.10M  812M  812G  4 filter INPUT     rules.v4:13  -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "  900 9.00M  4100 4.10M  4 filter FORWARD   rules.v4:14  -s 198.51.100.0/24 -m comment --comment \"a?[2J L?wen>",
            "   12 12.0k    70 70.0k  6 raw PREROUTING   rules.v6:3   -s 2001:db8:bad::/48 -j DROP",
            "  0.4   400     9 9.00k  4 filter f2b-sshd  -            -s 203.0.113.9/32 -j REJECT --reject-with icmp-port->",
            "    0     0  5000 5.00M  4 filter INPUT     rules.v4:40  -j LOG",
            "",
            "? help  r classes  s sort  / filter  p pause  q quit                                                       1/5",
        ],
    );
    assert_screen(
        &mut state,
        40,
        &[
            "fairpath gw-7          sort: packet rate",
            "5 of 1,305 rules  rates of 1s",
            "PKT/S  CHAIN       RULE",
            "4.10k  4 filter >  -m conntrack --ctsta>",
            "  900  4 filter >  -s 198.51.100.0/24 ->",
            "   12  6 raw PRE>  -s 2001:db8:bad::/48>",
            "  0.4  4 filter >  -s 203.0.113.9/32 -j>",
            "    0  4 filter >  -j LOG",
            "",
            "? help  r classes  s sort  / filte>  1/5",
        ],
    );
}

#[test]
fn the_state_of_rules_is_above_them() {
    let mut state = with_rules(PLAIN);
    let mut second_line = |change: fn(&mut LoadedRules)| {
        let mut rules = sample::rules();
        change(&mut rules);
        state.show(Snapshot {
            rules: Some(Box::new(rules)),
            ..sample::town()
        });
        screen(&mut state, 120, 24).swap_remove(1)
    };
    let line = second_line(|rules| {
        rules.confirm_ns = Some(42_000_000_000);
        rules.rejected_are_answered = Some(false);
        rules.counters.insert("packets_dropped_unknown".into(), 7);
        rules.unix_ns -= 35_000_000_000;
        rules.interval_ns = None;
    });
    assert_eq!(
        line,
        "5 of 1,305 rules  not confirmed! 42s  dropped unknown! 7  rejected packets get no answer~  first reading  read 35s ago"
    );
    let line = second_line(|rules| {
        rules.went_back = true;
        rules.deciding = false;
        rules.counter_mode = "sampled".into();
    });
    assert_eq!(
        line,
        "5 of 1,305 rules  went back! the last load was not confirmed  in the shadow  sampled counters  rates of 1s"
    );
}

#[test]
fn a_screen_without_rules_names_the_reason() {
    let mut state = state(sample::town(), PLAIN);
    assert_eq!(press(&mut state, KeyCode::Char('r')), Step::Query);
    let expect = |state: &mut State, text: &str| {
        let lines = screen(state, 80, 24);
        assert!(lines[4].contains(text), "{lines:#?}");
    };
    expect(&mut state, "waiting for the loaded rules");
    state.has_requested_rules = true;
    state.show(sample::town());
    expect(&mut state, "no rules are loaded: `fairpath rules load`");
    let with = |rules| Snapshot {
        rules: Some(Box::new(rules)),
        ..sample::town()
    };
    let mut uncounted = sample::rules();
    uncounted.rules.clear();
    uncounted.counter_mode = "none".to_owned();
    state.show(with(uncounted));
    expect(&mut state, "--counters none");
    state.show(with(sample::rules()));
    type_in(&mut state, "/sshd");
    press(&mut state, KeyCode::Enter);
    let lines = screen(&mut state, 80, 24);
    assert!(
        lines[3].contains("f2b-sshd") && lines[4].is_empty(),
        "{lines:#?}"
    );
    assert!(
        lines[0].ends_with("filter: sshd  sort: packet rate"),
        "{lines:#?}"
    );
    type_in(&mut state, "/x");
    press(&mut state, KeyCode::Enter);
    expect(&mut state, "no rule contains \"sshdx\"; press Esc");
    // Back to all rules, then to the classes, whose filter was never set.
    press(&mut state, KeyCode::Esc);
    assert_eq!(
        screen(&mut state, 80, 24)[3..8]
            .iter()
            .filter(|l| !l.is_empty())
            .count(),
        5
    );
    assert_eq!(press(&mut state, KeyCode::Esc), Step::Query);
    names(
        &mut state,
        &[
            "- North mast",
            "    ann",
            "    bob",
            "    carla",
            "- West mast",
            "    caf",
            "  Office",
            "  other",
        ],
    );
}
