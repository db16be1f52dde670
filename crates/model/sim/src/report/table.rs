//! The report as tables of 80 columns and as CSV.

use std::fmt::Write as _;

use super::{SimulationReport, TABLE_ROWS, clean, grouped, rate, time};
use crate::simulate::Measured;
use fairpath_core::sched::ImpairStats;

/// Width of a name.
const NAME: usize = 22;

pub(super) fn write(report: &SimulationReport<'_>) -> String {
    let mut out = head(report);
    let (kind, groups) = report.groups();
    if kind == "class" {
        measured(&mut out, "class", groups, report);
    }
    let rows = report.findings.rows.iter();
    let rows = rows
        .map(|(row, measured)| (row.name.clone(), measured))
        .collect();
    measured(&mut out, "flow", rows, report);
    completions(&mut out, report);
    nodes(&mut out, report);
    out
}

/// A share in percent.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn head(report: &SimulationReport<'_>) -> String {
    let found = report.findings;
    let total = &found.total;
    let mut out = format!(
        "{} at {} for {}",
        clean(report.subject, 40),
        report.link(),
        time(found.duration_ns)
    );
    let interrupted = if found.interrupted {
        ", interrupted"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        ", {} runtime, seed {}{interrupted}",
        report.runtime, report.seed
    );
    let _ = writeln!(
        out,
        "packets  {} enqueued, {} sent, {} dropped, {} backlog",
        grouped(total.offered.packets),
        grouped(total.sent.packets),
        grouped(total.dropped.packets),
        grouped(found.backlog)
    );
    let link = found.link;
    let _ = writeln!(
        out,
        "link     {:.2} % busy, {:.2} % idle without backlog, {:.2} % throttled",
        share(link.busy_ns, found.duration_ns),
        share(link.idle_empty_ns, found.duration_ns),
        share(
            link.idle_throttled_ns + link.idle_wrong_ns,
            found.duration_ns
        )
    );
    let inversions = found.inversions;
    if inversions.checked > 0 {
        let _ = writeln!(
            out,
            "order    {} of {} sent before a lower rank ({} pairs)",
            grouped(inversions.packets),
            grouped(inversions.checked),
            grouped(inversions.pairs)
        );
    }
    let _ = writeln!(
        out,
        "shares   Jain's index {:.4} over {}",
        found.jain(),
        plural(found.rows.len(), "flow")
    );
    if total.marked > 0 {
        let _ = writeln!(out, "marked   {}", grouped(total.marked));
    }
    for stats in &found.impairments {
        impaired(&mut out, stats, total);
    }
    reasons(&mut out, report);
    out
}

/// The effects of an impairment on packets of the link.
fn impaired(out: &mut String, stats: &ImpairStats, total: &Measured) {
    let of_all = |count| share(count, stats.packets);
    let mean = stats.held_ns / stats.delayed.max(1);
    let _ = writeln!(
        out,
        "impaired {} packets: {:.3} % lost, mean delay {}, {:.3} % duplicated, {:.3} % corrupted, {:.3} % reordered",
        grouped(stats.packets),
        of_all(stats.lost),
        time(mean),
        share(total.duplicated.packets, total.sent.packets),
        share(total.corrupted, total.sent.packets),
        of_all(stats.reordered)
    );
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        format!("1 {word}")
    } else {
        format!("{} {word}s", grouped(count as u64))
    }
}

/// Drops, exclusions and scheduler events, by reason.
fn reasons(out: &mut String, report: &SimulationReport<'_>) {
    let found = report.findings;
    for (reason, count) in &found.drops {
        let _ = writeln!(out, "dropped  {} {}", grouped(*count), reason.name());
    }
    for (reason, count) in &found.excluded {
        let _ = writeln!(out, "excluded {} {reason}", grouped(*count));
    }
    let counted = [
        ("weights refused", found.weights_refused),
        (
            "packets in a queue shared with another flow",
            found.stats.shared,
        ),
        ("flows whose state was evicted", found.stats.state_lost),
        ("dequeues at the limit of attempts", found.stats.tries_spent),
    ];
    for (what, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(out, "note     {} {what}", grouped(count));
    }
    if found.link.idle_wrong_ns > 0 {
        let _ = writeln!(
            out,
            "note     {} idle with eligible packets: not work-conserving",
            time(found.link.idle_wrong_ns)
        );
    }
}

fn measured(
    out: &mut String,
    kind: &str,
    mut rows: Vec<(String, &Measured)>,
    report: &SimulationReport<'_>,
) {
    let all = rows.len();
    if all > TABLE_ROWS {
        rows.sort_by_key(|(_, measured)| std::cmp::Reverse(measured.sent.bytes));
        rows.truncate(TABLE_ROWS);
    }
    let _ = writeln!(
        out,
        "\n{kind:<NAME$} {:>11} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "rate", "dropped", "p50", "p95", "p99", "max"
    );
    for (name, measured) in rows {
        let sojourn = &measured.sojourn;
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| time(sojourn.quantile(share)));
        let _ = writeln!(
            out,
            "{:<NAME$} {:>11} {:>9} {p50:>8} {p95:>8} {p99:>8} {:>8}",
            clean(&name, NAME),
            rate(report.findings.rate_bps(measured.sent.bytes)),
            grouped(measured.dropped.packets),
            time(sojourn.largest())
        );
    }
    if all > TABLE_ROWS {
        let _ = writeln!(
            out,
            "... and {} more; --format csv has all",
            grouped((all - TABLE_ROWS) as u64)
        );
    }
}

/// The completion times of flows of finite size.
fn completions(out: &mut String, report: &SimulationReport<'_>) {
    let rows = report.findings.rows.iter();
    let mut rows = rows
        .filter(|(_, m)| m.completion.count() + m.incomplete > 0)
        .peekable();
    if rows.peek().is_some() {
        let _ = writeln!(
            out,
            "\n{:<NAME$} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}",
            "completed flows", "complete", "with loss", "mean", "p50", "p99", "max"
        );
    }
    for (row, measured) in rows.take(TABLE_ROWS) {
        let took = &measured.completion;
        let [mean, p50, p99, max] = [
            took.mean(),
            took.quantile(0.5),
            took.quantile(0.99),
            took.largest(),
        ]
        .map(time);
        let _ = writeln!(
            out,
            "{:<NAME$} {:>9} {:>9} {mean:>8} {p50:>8} {p99:>8} {max:>8}",
            clean(&row.name, NAME),
            grouped(took.count()),
            grouped(measured.incomplete)
        );
    }
}

/// The nodes of the tree, if there are several.
fn nodes(out: &mut String, report: &SimulationReport<'_>) {
    let (names, nodes) = (report.names, &report.findings.nodes);
    if nodes.len() < 2 {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<NAME$} {:>11} {:>12} {:>9} {:>9} {:>9}",
        "node", "policy", "rate", "dropped", "by floor", "backlog"
    );
    for (id, node) in (1..).zip(nodes).take(TABLE_ROWS) {
        let policy = names.policy(id).map_or("?", |policy| policy.name.as_str());
        let _ = writeln!(
            out,
            "{:<NAME$} {:>11} {:>12} {:>9} {:>9} {:>9}",
            clean(names.node(id), NAME),
            clean(policy, 11),
            rate(report.findings.rate_bps(node.sent_bytes)),
            grouped(node.dropped),
            grouped(node.by_floor),
            grouped(node.packets.into())
        );
    }
    if nodes.len() > TABLE_ROWS {
        let _ = writeln!(
            out,
            "... and {} more; --format csv has all",
            grouped((nodes.len() - TABLE_ROWS) as u64)
        );
    }
}

/// Columns of CSV. Nodes have no sojourn times.
const COLUMNS: &str = "kind,name,class,weight,offered_packets,offered_bytes,sent_packets,sent_bytes,sent_bps,dropped_packets,marked_packets,sojourn_p50_ns,sojourn_p95_ns,sojourn_p99_ns,sojourn_max_ns,completed_flows,completion_mean_ns,completion_p99_ns";

pub(super) fn csv(report: &SimulationReport<'_>) -> String {
    let mut out = format!("{COLUMNS}\n");
    let found = report.findings;
    csv_line(
        &mut out,
        report,
        "total",
        report.subject,
        ["", ""],
        &found.total,
    );
    for (class, measured) in &found.classes {
        let name = report.names.class(*class);
        csv_line(&mut out, report, "class", &name, [&name, ""], measured);
    }
    for (row, measured) in &found.rows {
        let columns = [report.names.class(row.class), row.weight.to_string()];
        let [class, weight] = &columns;
        csv_line(
            &mut out,
            report,
            "flow",
            &row.name,
            [class, weight],
            measured,
        );
    }
    for (id, node) in (1..).zip(&found.nodes) {
        let _ = writeln!(
            out,
            "node,{},,,,,{},{},{:.0},{},{},,,,,,,",
            quoted(report.names.node(id)),
            node.sent,
            node.sent_bytes,
            found.rate_bps(node.sent_bytes),
            node.dropped,
            node.marked
        );
    }
    out
}

fn csv_line(
    out: &mut String,
    report: &SimulationReport<'_>,
    kind: &str,
    name: &str,
    [class, weight]: [&str; 2],
    m: &Measured,
) {
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| m.sojourn.quantile(share));
    let _ = writeln!(
        out,
        "{kind},{},{},{weight},{},{},{},{},{:.0},{},{},{p50},{p95},{p99},{},{},{},{}",
        quoted(name),
        quoted(class),
        m.offered.packets,
        m.offered.bytes,
        m.sent.packets,
        m.sent.bytes,
        report.findings.rate_bps(m.sent.bytes),
        m.dropped.packets,
        m.marked,
        m.sojourn.largest(),
        m.completion.count(),
        m.completion.mean(),
        m.completion.quantile(0.99)
    );
}

/// Quotes a field (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
