//! The text of `fairpath shape status`.

use std::fmt::Write;

use fairpath_history::snapshot::{Queue, Shape, Snapshot, SnapshotRow, Worker};

/// The shaper, and at most `limit` classes, those with the highest achieved rates first. With `cpus`, its threads and
/// what each did.
pub fn status(snapshot: &Snapshot, limit: usize, cpus: bool) -> String {
    let Some(shape) = &snapshot.shape else {
        return "shaping is not configured: the configuration has no section [shape]\n".to_owned();
    };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = shaper(&mut out, shape, snapshot.interval_ns, cpus);
    let (rows, excluded) = classes(snapshot, limit);
    for row in rows {
        for (direction, of) in queues(row) {
            let _ = line(&mut out, &row.name, direction, of, cpus);
        }
    }
    if excluded > 0 && limit > 0 {
        let _ = writeln!(out, "{excluded} more classes; --limit N prints more");
    }
    out
}

/// The same as a table with a header, for other programs: one line per class and direction.
///
/// # Errors
/// None in practice: the table is in memory.
pub fn csv(snapshot: &Snapshot, limit: usize) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "class",
        "direction",
        "ceil_bps",
        "floor_bps",
        "rate_bps",
        "enqueued_packets",
        "sent_packets",
        "sent_bytes",
        "dropped_packets",
        "marked_packets",
        "backlog_packets",
        "p50_sojourn_ns",
        "p95_sojourn_ns",
        "p99_sojourn_ns",
    ])?;
    for row in classes(snapshot, limit).0 {
        for (direction, queue) in queues(row) {
            let optional = |value: Option<u64>| value.map_or(String::new(), |n| n.to_string());
            writer.write_record([
                row.name.clone(),
                direction.to_owned(),
                optional(queue.ceil_bps),
                optional(queue.floor_bps),
                format!("{:.0}", queue.rate_bps),
                queue.enqueued_packets.to_string(),
                queue.sent_packets.to_string(),
                queue.sent_bytes.to_string(),
                queue.dropped_packets.to_string(),
                queue.marked_packets.to_string(),
                queue.backlog_packets.to_string(),
                optional(queue.p50_sojourn_ns),
                optional(queue.p95_sojourn_ns),
                optional(queue.p99_sojourn_ns),
            ])?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The first `limit` classes by achieved rate, and the number of the others.
fn classes(snapshot: &Snapshot, limit: usize) -> (Vec<&SnapshotRow>, usize) {
    let mut rows: Vec<&SnapshotRow> = (snapshot.rows.iter())
        .filter(|row| queues(row).next().is_some())
        .collect();
    let rate = |row: &SnapshotRow| -> f64 { queues(row).map(|(_, queue)| queue.rate_bps).sum() };
    // The sort is stable: classes of the same rate stay in the order of the tree.
    rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let excluded = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    (rows, excluded)
}

fn queues(row: &SnapshotRow) -> impl Iterator<Item = (&'static str, &Queue)> {
    let of = [("down", &row.down_queue), ("up", &row.up_queue)];
    of.into_iter()
        .filter_map(|(direction, queue)| Some((direction, queue.as_ref()?)))
}

fn shaper(out: &mut String, shape: &Shape, interval_ns: u64, cpus: bool) -> std::fmt::Result {
    if let Some(failure) = &shape.failure {
        writeln!(out, "failed  {failure}")?;
    }
    if !shape.running {
        return writeln!(out, "shaping is stopped: `fairpath shape start` starts it");
    }
    writeln!(out, "backend {} ({})", shape.via, shape.reason)?;
    writeln!(out, "        {}", shape.about)?;
    for link in &shape.lines {
        writeln!(out, "{:<8}leaves by {}", link.side, link.interface)?;
    }
    if cpus {
        threads(out, &shape.workers)?;
    }
    writeln!(
        out,
        "\nrates of the last {}; p50 to p99: time in the queue",
        time(Some(interval_ns))
    )?;
    writeln!(
        out,
        "{:<20}{:<5}{:>8}{:>9}{:>9}{:>12}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "class",
        "",
        "ceil",
        "floor",
        "rate",
        "sent",
        "dropped",
        "marked",
        "backlog",
        "p50",
        "p95",
        "p99"
    )?;
    for link in &shape.lines {
        line(out, "line", &link.side, &link.queue, cpus)?;
    }
    for link in &shape.lines {
        if let Some(stack) = &link.stack {
            writeln!(
                out,
                "router  {} {} bytes sent by the stack, {} not charged, debt {}",
                link.side,
                stack.sent_bytes,
                stack.not_charged_bytes,
                time(Some(stack.debt_ns))
            )?;
        }
    }
    for link in &shape.lines {
        for (reason, count) in &link.queue.dropped {
            writeln!(out, "dropped {} {count} {reason}", link.side)?;
        }
    }
    for (name, count) in &shape.counters {
        if let Some((side, what)) = lost(name).filter(|_| *count > 0) {
            writeln!(out, "lost    {side}{count} {what}")?;
        }
    }
    Ok(())
}

/// Counters of packets that were lost ahead of the scheduler, or that could not be sent.
const LOST: [&str; 11] = [
    "stale",
    "queue_dropped",
    "user_dropped",
    "no_handle",
    "verdicts_refused",
    "verdicts_failed",
    "rx_dropped",
    "rx_ring_full",
    "ring_full",
    "no_link",
    "lost",
];

/// The side with a space, if there is one, and the rest of a counter of lost packets: `nfqueue_down_queue_dropped`.
fn lost(name: &str) -> Option<(&'static str, &str)> {
    let (_, name) = name.split_once('_')?;
    let sides = [("down_", "down "), ("up_", "up ")];
    let of = sides
        .iter()
        .find_map(|(prefix, side)| Some((*side, name.strip_prefix(prefix)?)));
    of.or(Some(("", name)))
        .filter(|(_, what)| LOST.contains(what))
}

/// The threads that shape, and their CPUs.
fn threads(out: &mut String, workers: &[Worker]) -> std::fmt::Result {
    if workers.is_empty() {
        return writeln!(out, "\nthe kernel shapes: no thread of this process does");
    }
    writeln!(
        out,
        "\n{:<8}{:<11}{:>4}{:>8}{:>10}",
        "worker", "direction", "CPU", "busy", "CPU busy"
    )?;
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    for worker in workers {
        writeln!(
            out,
            "{:<8}{:<11}{:>4}{:>8}{:>10}",
            worker.worker,
            worker.direction.as_deref().unwrap_or("both"),
            worker.cpu,
            percent(worker.busy_ratio),
            worker.cpu_busy_ratio.map_or("-".to_owned(), percent),
        )?;
    }
    Ok(())
}

/// The part of each worker in a queue.
fn parts(out: &mut String, queue: &Queue) -> std::fmt::Result {
    let all: f64 = queue.workers.iter().map(|part| part.rate_bps).sum();
    for part in &queue.workers {
        let share = match all {
            all if all > 0.0 => format!("{:.0} %", part.rate_bps / all * 100.0),
            _ => "-".to_owned(),
        };
        let each = part.grants as f64 / part.sent_packets.max(1) as f64;
        let (what, grants) = match part.ceil_bps {
            Some(_) => ("queue", String::new()),
            None => (
                "worker",
                format!(
                    ", {} grants ({each:.3} a packet), waited {} times",
                    part.grants, part.waits
                ),
            ),
        };
        writeln!(
            out,
            "  {what:<6} {:<11}{share:>5}{:>8}{:>9}{:>9}{:>12}   backlog {}{grants}",
            part.worker,
            part.ceil_bps.map_or(String::new(), |bps| bits(bps as f64)),
            "",
            bits(part.rate_bps),
            part.sent_packets,
            part.backlog_packets,
        )?;
    }
    Ok(())
}

fn line(
    out: &mut String,
    name: &str,
    direction: &str,
    queue: &Queue,
    cpus: bool,
) -> std::fmt::Result {
    let name: String = name.chars().take(19).collect();
    let limit = |bps: Option<u64>| bps.map_or_else(|| "-".to_owned(), |bps| bits(bps as f64));
    writeln!(
        out,
        "{name:<20}{direction:<5}{:>8}{:>9}{:>9}{:>12}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}",
        limit(queue.ceil_bps),
        limit(queue.floor_bps),
        bits(queue.rate_bps),
        queue.sent_packets,
        queue.dropped_packets,
        queue.marked_packets,
        queue.backlog_packets,
        time(queue.p50_sojourn_ns),
        time(queue.p95_sojourn_ns),
        time(queue.p99_sojourn_ns),
    )?;
    if let Some(bound) = &queue.bound {
        writeln!(out, "  bound: {bound}")?;
    }
    if cpus {
        parts(out, queue)?;
    }
    Ok(())
}

fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns @ 0..1_000_000) => format!("{} us", ns / 1_000),
        Some(ns @ 1_000_000..100_000_000) => format!("{:.1} ms", ns as f64 / 1e6),
        Some(ns @ 100_000_000..1_000_000_000) => format!("{} ms", ns / 1_000_000),
        Some(ns) => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// For example `9.62M`, in bits per second; at most five columns.
fn bits(bps: f64) -> String {
    let (scaled, unit) = match bps {
        bps if bps >= 999.5e6 => (bps / 1e9, "G"),
        bps if bps >= 999.5e3 => (bps / 1e6, "M"),
        bps if bps >= 999.5 => (bps / 1e3, "k"),
        bps => return format!("{bps:.0}"),
    };
    let digits = match scaled {
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use fairpath_history::snapshot::{ShapedLink, StackTraffic};

    use super::*;

    fn queue(ceil_bps: Option<u64>, rate_bps: f64) -> Option<Queue> {
        Some(Queue {
            ceil_bps,
            rate_bps,
            sent_packets: 812,
            p95_sojourn_ns: Some(4_900_000),
            ..Queue::default()
        })
    }

    fn row(name: &str, ceil_bps: Option<u64>, rate_bps: f64) -> SnapshotRow {
        SnapshotRow {
            name: name.to_owned(),
            down_queue: queue(ceil_bps, rate_bps),
            ..SnapshotRow::default()
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            shape: Some(Shape {
                running: true,
                via: "nfqueue".to_owned(),
                reason: "configured".to_owned(),
                about: "fq_codel".to_owned(),
                lines: vec![ShapedLink {
                    side: "down".to_owned(),
                    interface: "lan0".to_owned(),
                    queue: queue(Some(95_000_000), 14.6e6).unwrap(),
                    stack: Some(StackTraffic {
                        sent_bytes: 1_200_000,
                        not_charged_bytes: 400_000,
                        debt_ns: 9_900_000,
                    }),
                    ..ShapedLink::default()
                }],
                counters: [
                    ("nfqueue_down_queue_dropped", 12),
                    ("nfqueue_down_received", 900),
                    ("nfqueue_up_no_handle", 0),
                    ("afxdp_no_link", 3),
                ]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
                ..Shape::default()
            }),
            interval_ns: 1_000_000_000,
            rows: vec![
                row("anna", Some(10_000_000), 9.62e6),
                row("bert, \"b\"", None, 12e6),
                row("carl", Some(5_000_000), 4.98e6),
                SnapshotRow::default(),
            ],
            ..Snapshot::default()
        }
    }

    #[test]
    fn classes_have_configured_and_achieved_rates() {
        let text = status(&snapshot(), 2, false);
        let lines: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(
            lines,
            [
                "rates of the last 1.0 s; p50 to p99: time in the queue",
                "class                        ceil    floor     rate        sent  dropped  marked backlog     p50     p95     p99",
                "line                down    95.0M        -    14.6M         812        0       0       0       -  4.9 ms       -",
                "router  down 1200000 bytes sent by the stack, 400000 not charged, debt 9.9 ms",
                "lost    3 no_link",
                "lost    down 12 queue_dropped",
                "bert, \"b\"           down        -        -    12.0M         812        0       0       0       -  4.9 ms       -",
                "anna                down    10.0M        -    9.62M         812        0       0       0       -  4.9 ms       -",
                "1 more classes; --limit N prints more",
            ]
        );
        assert!(!status(&snapshot(), 0, false).contains("more classes"));
    }

    #[test]
    fn csv_has_line_for_each_class_and_direction() {
        let text = csv(&snapshot(), 20).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("class,direction,ceil_bps,floor_bps,rate_bps,"));
        assert!(lines[1].starts_with("\"bert, \"\"b\"\"\",down,,,12000000,"));
        assert!(lines[2].starts_with("anna,down,10000000,,9620000,0,812,"));
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn rates_have_at_most_five_columns() {
        for (bps, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_995.0, "10.0k"),
            (99_950.0, "100k"),
            (999_600.0, "1.00M"),
            (1e11, "100G"),
        ] {
            assert_eq!(bits(bps), text, "{bps}");
        }
    }
}
