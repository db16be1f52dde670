//! The text of `fairpath shape status`.

use std::fmt::Write;

use fairpath_history::snapshot::{Queue, Row, Shape, Snapshot};

/// The shaper, and at most `limit` classes, those with the longest sojourn times first.
pub fn status(snapshot: &Snapshot, limit: usize) -> String {
    let Some(shape) = &snapshot.shape else {
        return "shaping is not configured: the configuration has no section [shape]\n".to_owned();
    };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = shaper(&mut out, shape);
    let mut rows: Vec<&Row> = (snapshot.rows.iter())
        .filter(|row| row.down_queue.is_some() || row.up_queue.is_some())
        .collect();
    let shown = rows.len().min(limit);
    if shown > 0 {
        rows.sort_by_key(|row| std::cmp::Reverse(longest(row)));
        let _ = classes(&mut out, &rows[..shown]);
        if shown < rows.len() {
            let _ = writeln!(
                out,
                "{} more classes; --limit N prints more",
                rows.len() - shown
            );
        }
    }
    out
}

fn longest(row: &Row) -> Option<u64> {
    let p95 = |queue: &Option<Queue>| queue.as_ref().and_then(|queue| queue.p95_sojourn_ns);
    p95(&row.down_queue).max(p95(&row.up_queue))
}

fn shaper(out: &mut String, shape: &Shape) -> std::fmt::Result {
    if let Some(failure) = &shape.failure {
        writeln!(out, "failed  {failure}")?;
    }
    if !shape.running {
        return writeln!(out, "shaping is stopped: `fairpath shape start` starts it");
    }
    writeln!(out, "backend {} ({})", shape.via, shape.reason)?;
    writeln!(out, "        {}", shape.about)?;
    for line in &shape.lines {
        let plan = line
            .plan_bps
            .map_or(String::new(), |bps| format!(" of {}", bits(bps as f64)));
        writeln!(
            out,
            "{:<8}{} of {}{plan}",
            line.side,
            bits(line.rate_bps),
            line.interface
        )?;
    }
    header(out)?;
    for line in &shape.lines {
        queue(out, &line.side, &line.side, &line.queue)?;
    }
    for line in &shape.lines {
        for (reason, count) in &line.queue.dropped {
            writeln!(out, "dropped {} {count} {reason}", line.side)?;
        }
    }
    Ok(())
}

fn header(out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<20}{:>10}{:>12}{:>13}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "class",
        "direction",
        "enqueued",
        "sent",
        "dropped",
        "marked",
        "backlog",
        "p50",
        "p95",
        "p99"
    )
}

fn classes(out: &mut String, rows: &[&Row]) -> std::fmt::Result {
    for row in rows {
        for (direction, of) in [("down", &row.down_queue), ("up", &row.up_queue)] {
            if let Some(of) = of {
                queue(out, &row.name, direction, of)?;
            }
        }
    }
    Ok(())
}

fn queue(out: &mut String, name: &str, direction: &str, queue: &Queue) -> std::fmt::Result {
    let name: String = name.chars().take(19).collect();
    writeln!(
        out,
        "{name:<20}{direction:>10}{:>12}{:>13}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}",
        queue.enqueued_packets,
        queue.sent_packets,
        queue.dropped_packets,
        queue.marked_packets,
        queue.backlog_packets,
        time(queue.p50_sojourn_ns),
        time(queue.p95_sojourn_ns),
        time(queue.p99_sojourn_ns),
    )
}

fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns @ 0..1_000_000) => format!("{} us", ns / 1_000),
        Some(ns @ 1_000_000..100_000_000) => format!("{:.1} ms", ns as f64 / 1e6),
        Some(ns) => format!("{} ms", ns / 1_000_000),
    }
}

fn bits(bps: f64) -> String {
    match bps {
        bps if bps >= 1e9 => format!("{:.2} Gbit/s", bps / 1e9),
        bps if bps >= 1e6 => format!("{:.1} Mbit/s", bps / 1e6),
        bps => format!("{:.0} kbit/s", bps / 1e3),
    }
}
