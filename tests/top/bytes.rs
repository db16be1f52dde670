//! How much is written to the terminal: what a slow ssh has to carry.

use crate::command;
use crate::daemon::{Daemon, picture, row};
use crate::terminal::Terminal;

/// Pictures over which is counted.
const PICTURES: u64 = 10;

/// Waits for the picture whose first row has so many flows: they number the pictures.
fn numbered(terminal: &Terminal, number: u64) -> usize {
    terminal.wait(&format!("picture {number}"), |lines| {
        let flows = format!(" {}", 1_000 + number);
        lines[4].contains(&flows)
    });
    terminal.bytes().len()
}

/// Bytes a picture, of ten thousand classes with 24 of them visible.
fn bytes_a_picture(columns: u16, change: impl Fn(u64, u64) -> f64 + Send + 'static) -> usize {
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
        let mut snapshot = picture((0..query.limit as u64).map(class).collect());
        snapshot.rows_total = 10_000;
        snapshot
    });
    // Rows beyond the screen are not drawn, so they need not come either.
    let command = command(&daemon, &["--limit", "100"]);
    let mut terminal = Terminal::run(command, columns, 29);
    let first = numbered(&terminal, 5);
    let last = numbered(&terminal, 5 + PICTURES);
    terminal.press("q");
    terminal.ends();
    (last - first) / PICTURES as usize
}

/// Every row's rates and times change by up to a tenth, and every trend moves on.
fn lively(number: u64, i: u64) -> f64 {
    1.0 + ((number * 37 + i * 11) % 21) as f64 / 200.0
}

#[test]
fn a_picture_of_ten_thousand_lively_classes_fits_a_slow_line() {
    let narrow = bytes_a_picture(80, lively);
    let wide = bytes_a_picture(120, lively);
    println!("bytes a picture, 24 of 10,000 rows: {narrow} in 80 columns, {wide} in 120");
    // At a picture a second, a tenth of a line of 256 kbit/s, and less than a sixth.
    assert!(narrow < 3_200, "{narrow}");
    assert!(wide < 4_800, "{wide}");
}

#[test]
fn a_picture_in_which_one_figure_changed_is_a_few_bytes() {
    let quiet = bytes_a_picture(120, |_, _| 1.0);
    println!("bytes a picture, one figure changed: {quiet}");
    assert!(quiet < 64, "{quiet}");
}
