//! Tables of a series.

use std::fmt::Write;

use anyhow::Context;
use fairpath_history::series::{Series, SeriesPoint};
use fairpath_top::figures;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_NS: u64 = 86_400_000_000_000;

/// A line per step with counts, the times without, and the sum.
pub fn table(series: &Series, zone: &TimeZone) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, series, zone);
    out
}

fn write_table(out: &mut String, series: &Series, zone: &TimeZone) -> std::fmt::Result {
    let name = fairpath_units::text::line(&series.name);
    let step = fairpath_units::span(series.step_ns / 1_000_000_000);
    let [since, until] = [series.since_unix_ns, series.until_unix_ns].map(|ns| clock(ns, zone));
    writeln!(out, "{name}: {since} to {until}, steps of {step}")?;
    if let Some(oldest) = series
        .oldest_unix_ns
        .filter(|oldest| *oldest > series.since_unix_ns)
    {
        writeln!(out, "The first counts are of {}.", clock(oldest, zone))?;
    }
    if series.corrupted > 0 {
        writeln!(
            out,
            "{} corrupted blocks of the file are excluded.",
            series.corrupted
        )?;
    }
    let Some(total) = &series.total else {
        return writeln!(out, "no traffic");
    };
    writeln!(out)?;
    let head = "                      rate, bit/s  peak       inside, ms        outside, ms\n\
                time                 down    up  down   p50   p95   p99 loss%   p50   p95 busy%";
    writeln!(out, "{head}")?;
    let mut gaps = series.unmeasured.iter().peekable();
    for point in &series.points {
        while let Some(gap) = gaps.next_if(|gap| gap.since_unix_ns < point.unix_ns) {
            write_gap(out, gap.since_unix_ns, gap.until_unix_ns, zone)?;
        }
        write_line(out, &clock(point.unix_ns, zone), point)?;
    }
    for gap in gaps {
        write_gap(out, gap.since_unix_ns, gap.until_unix_ns, zone)?;
    }
    write_line(out, "all", total)?;
    let [down, up] = [total.bytes_down, total.bytes_up].map(|bytes| figures::scaled(bytes as f64));
    writeln!(out, "\n{down} bytes down, {up} up.")
}

fn write_gap(out: &mut String, since: u64, until: u64, zone: &TimeZone) -> std::fmt::Result {
    let length = fairpath_units::span((until - since) / 1_000_000_000);
    writeln!(out, "{}  no measurement for {length}", clock(since, zone))
}

fn write_line(out: &mut String, at: &str, point: &SeriesPoint) -> std::fmt::Result {
    let rtt = |ns: Option<u64>| figures::maybe(ns, figures::millis);
    let loss = figures::maybe(point.inside_loss, |share| format!("{:.2}", share * 100.0));
    let busy = match point.measured_ns {
        0 => "-".to_owned(),
        ns => format!("{:.0}", point.busy_ns as f64 / ns as f64 * 100.0),
    };
    writeln!(
        out,
        "{at:<19}{:>6}{:>6}{:>6}{:>6}{:>6}{:>6}{loss:>6}{:>6}{:>6}{busy:>6}",
        figures::scaled(point.rate_down_bps),
        figures::scaled(point.rate_up_bps),
        figures::scaled(point.peak_down_bps as f64),
        rtt(point.inside_p50_rtt_ns),
        rtt(point.inside_p95_rtt_ns),
        rtt(point.inside_p99_rtt_ns),
        rtt(point.outside_p50_rtt_ns),
        rtt(point.outside_p95_rtt_ns),
    )
}

/// Local date and time.
fn clock(unix_ns: u64, zone: &TimeZone) -> String {
    match Timestamp::from_nanosecond(unix_ns.into()) {
        Ok(time) => time
            .to_zoned(zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string(),
        Err(_) => format!("{} d", unix_ns / DAY_NS),
    }
}

/// A line per step, with the keys of JSON as header.
///
/// # Errors
/// None in practice: the table is in memory.
pub fn csv(series: &Series) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for point in &series.points {
        writer
            .serialize(point)
            .context("write the history as CSV")?;
    }
    if series.points.is_empty() {
        // Only a line gives a header.
        writer.serialize(SeriesPoint::default())?;
        let text = String::from_utf8(writer.into_inner()?)?;
        return Ok(text.lines().next().unwrap_or_default().to_owned() + "\n");
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use fairpath_history::series::Span;

    use super::*;

    const MINUTE: u64 = 60_000_000_000;
    const THEN: u64 = 1_794_000_000_000_000_000;

    fn point(minute: u64) -> SeriesPoint {
        SeriesPoint {
            unix_ns: THEN + minute * MINUTE,
            length_ns: MINUTE,
            measured_ns: MINUTE,
            rate_down_bps: 93_210_000.0,
            rate_up_bps: 1_500.0,
            peak_down_bps: 105_000_000,
            peak_up_bps: 900_000,
            busy_ns: MINUTE / 3,
            inside_p50_rtt_ns: Some(4_200_000),
            inside_p95_rtt_ns: Some(298_000_000),
            inside_p99_rtt_ns: Some(1_250_000_000),
            inside_loss: Some(0.0123),
            ..SeriesPoint::default()
        }
    }

    fn series() -> Series {
        Series {
            name: "anna\u{1b}[2J".to_owned(),
            since_unix_ns: THEN,
            until_unix_ns: THEN + 60 * MINUTE,
            step_ns: MINUTE,
            oldest_unix_ns: Some(THEN + MINUTE),
            points: vec![point(1), point(40)],
            unmeasured: vec![Span {
                since_unix_ns: THEN + 9 * MINUTE,
                until_unix_ns: THEN + 19 * MINUTE,
            }],
            total: Some(SeriesPoint {
                bytes_down: 1_400_000_000,
                ..point(0)
            }),
            ..Series::default()
        }
    }

    #[test]
    fn the_table_has_steps_gaps_and_the_sum() {
        let text = table(&series(), &TimeZone::UTC);
        assert!(
            text.starts_with("anna?[2J: 2026-11-06 21:20:00 to "),
            "{text}"
        );
        assert!(
            text.contains("no measurement for 10 min 0 s") && text.contains("\nall "),
            "{text}"
        );
        let widths: Vec<usize> = text.lines().skip(3).take(6).map(str::len).collect();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert_eq!(widths[1], widths[2], "{text}");
        let empty = Series {
            total: None,
            points: Vec::new(),
            ..series()
        };
        assert!(table(&empty, &TimeZone::UTC).ends_with("no traffic\n"));
    }

    #[test]
    fn csv_has_a_header_also_without_steps() {
        let text = csv(&series()).unwrap();
        let empty = csv(&Series::default()).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.lines().next(), empty.lines().next());
        assert_eq!(empty.lines().count(), 1);
        assert!(
            empty.starts_with("unix_ns,length_ns,measured_ns,bytes_up"),
            "{empty}"
        );
    }
}
