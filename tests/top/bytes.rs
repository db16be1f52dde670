//! The number of bytes written to the terminal, which matters over a slow connection.

use crate::command;
use crate::daemon::{Daemon, row, snapshot};
use crate::terminal::Terminal;

/// Number of measured screens.
const SCREENS: u64 = 10;

/// Waits for the screen whose first row has `1000 + number` flows.
fn numbered(terminal: &Terminal, number: u64) -> usize {
    terminal.wait(&format!("screen {number}"), |lines| {
        let flows = format!(" {}", 1_000 + number);
        lines[4].contains(&flows)
    });
    terminal.bytes().len()
}

/// Bytes per screen, for ten thousand classes of which 24 are visible.
fn bytes_per_screen(columns: u16, change: impl Fn(u64, u64) -> f64 + Send + 'static) -> usize {
    let mut number = 0;
    let daemon = Daemon::start(move |query| {
        number += 1;
        let class = |i: u64| {
            let mut row = row(&format!("subscriber-{i:05}"), None, 0, i % 10);
            let factor = change(number, i);
            row.up.rate_bps *= factor;
            row.down.rate_bps *= factor;
            let scale = |ns: &mut Option<u64>| *ns = ns.map(|ns| (ns as f64 * factor) as u64);
            for leg in [&mut row.inside, &mut row.outside] {
                scale(&mut leg.p50_rtt_ns);
                scale(&mut leg.p95_rtt_ns);
            }
            let steps = if factor == 1.0 { 0 } else { number as usize };
            row.history.rotate_left(steps % 60);
            if i == 0 {
                row.flows.opened = 1_000 + number;
            }
            row
        };
        let mut snapshot = snapshot((0..query.limit as u64).map(class).collect());
        snapshot.rows_total = 10_000;
        snapshot
    });
    // Rows outside the screen are not drawn, so the query does not request them.
    let command = command(&daemon, &["--limit", "100"]);
    let mut terminal = Terminal::run(command, columns, 29);
    let first = numbered(&terminal, 5);
    let last = numbered(&terminal, 5 + SCREENS);
    terminal.press("q");
    terminal.ends();
    (last - first) / SCREENS as usize
}

/// The rates and times of every row change by up to 10 %, and every trend advances.
fn active(number: u64, i: u64) -> f64 {
    1.0 + ((number * 37 + i * 11) % 21) as f64 / 200.0
}

#[test]
fn a_screen_of_changing_rows_needs_few_bytes() {
    let narrow = bytes_per_screen(80, active);
    let wide = bytes_per_screen(120, active);
    println!("bytes per screen, 24 of 10,000 rows: {narrow} in 80 columns, {wide} in 120");
    // At one screen per second: 10 % of a link of 256 kbit/s, and less than 17 %.
    assert!(narrow < 3_200, "{narrow}");
    assert!(wide < 4_800, "{wide}");
}

#[test]
fn one_changed_figure_needs_few_bytes() {
    let quiet = bytes_per_screen(120, |_, _| 1.0);
    println!("bytes per screen, one figure changed: {quiet}");
    assert!(quiet < 64, "{quiet}");
}
