//! The summary at the end, as text and as JSON.

use std::fmt::Write;

use fairpath_core::{CHUNK_SEGMENTS, Config, Stats, Usage, WAYS};
use fairpath_rtt::SummaryLine;
use fairpath_units::Nanos;
use serde::Serialize;
use serde_json::{Value, json};

/// Facts of a measurement other than events and counters.
pub struct Run {
    /// From the first to the last packet, nanoseconds.
    pub duration_ns: u64,
    /// Sizes of the tables.
    pub config: Config,
    /// Their use at the end.
    pub usage: Usage,
    /// Their size in bytes.
    pub table_bytes: u64,
    /// Cost of the programs, with `--cost`.
    pub cost: Option<Vec<Cost>>,
    /// Remarks, for example on a truncated capture.
    pub notes: Vec<String>,
}

/// The cost of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The program.
    pub program: &'static str,
    /// Number of runs.
    pub runs: u64,
    /// Nanoseconds per run, as counted by the kernel.
    pub gross_ns: f64,
    /// The same of an empty program.
    pub empty_ns: f64,
    /// The difference.
    pub net_ns: f64,
}

impl Run {
    fn flows(&self) -> u64 {
        u64::from(self.config.flow_sets) * u64::from(WAYS)
    }

    fn half_open(&self) -> u64 {
        u64::from(self.config.half_sets) * u64::from(WAYS)
    }
}

/// The summary with tables, cost and notes.
pub fn json(line: &SummaryLine, run: &Run) -> Value {
    let mut value = serde_json::to_value(line).unwrap_or_default();
    value["tables"] = json!({
        "bytes": run.table_bytes,
        "flows": {
            "used": run.usage.flows,
            "size": run.flows(),
            "refused": run.usage.refused,
            "refused_at": (run.usage.refused > 0).then_some(run.usage.refused_at),
        },
        "half_open": { "used": run.usage.half_open, "size": run.half_open() },
        "segments": {
            "used": run.usage.chunks * u64::from(CHUNK_SEGMENTS),
            "size": u64::from(run.config.chunks) * u64::from(CHUNK_SEGMENTS),
        },
    });
    if let Some(cost) = &run.cost {
        value["cost"] = json!(cost);
    }
    value["notes"] = json!(run.notes);
    value
}

/// The summary as text of at most 100 columns.
pub fn text(line: &SummaryLine, run: &Run) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = (|| -> std::fmt::Result {
        headline(&mut out, line)?;
        legs(&mut out, line)?;
        flows(&mut out, line)?;
        tables(&mut out, line, run)?;
        cost(&mut out, run)?;
        for note in &run.notes {
            writeln!(out, "  note      {note}")?;
        }
        Ok(())
    })();
    out
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", 100.0 * part as f64 / whole as f64)
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// 1234567 as 1,234,567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn headline(out: &mut String, line: &SummaryLine) -> std::fmt::Result {
    writeln!(out, "\nSummary of {}", Nanos(line.duration_ns))?;
    writeln!(
        out,
        "  packets   {} ({} TCP)",
        grouped(line.packets),
        grouped(line.tcp_packets)
    )?;
    writeln!(
        out,
        "  flows     {} opened, {} closed, {} open; {} not measurable (one direction only, {} bytes)",
        grouped(line.flows_opened),
        grouped(line.flows_closed),
        grouped(line.flows_alive),
        grouped(line.flows_not_measurable),
        grouped(line.bytes_not_measurable)
    )?;
    let by_method = line.samples_by.0;
    let by_method =
        by_method.map(|(method, count)| format!("{} {}", grouped(count), method.name()));
    writeln!(
        out,
        "  samples   {}: {}{}",
        grouped(line.samples),
        by_method.join(", "),
        if line.samples_suppressed > 0 {
            format!(
                " ({} suppressed by --rate-limit)",
                grouped(line.samples_suppressed)
            )
        } else {
            String::new()
        }
    )?;
    writeln!(
        out,
        "  measured  {} of {} bytes of TCP payload",
        share(line.tcp_bytes_measured, line.tcp_bytes),
        grouped(line.tcp_bytes)
    )
}

fn legs(out: &mut String, line: &SummaryLine) -> std::fmt::Result {
    if line.towards.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n  {:<12} {:>9} {:>11} {:>11} {:>11} {:>11}  upstream, downstream loss",
        "towards", "samples", "min", "median", "p95", "max"
    )?;
    for leg in &line.towards {
        writeln!(
            out,
            "  {:<12} {:>9} {:>11} {:>11} {:>11} {:>11}  {}, {}",
            leg.towards.as_deref().unwrap_or("(unknown)"),
            grouped(leg.rtt.samples),
            Nanos(leg.rtt.min_rtt_ns),
            Nanos(leg.rtt.p50_rtt_ns),
            Nanos(leg.rtt.p95_rtt_ns),
            Nanos(leg.rtt.max_rtt_ns),
            percent(leg.loss.upstream_loss_ratio),
            percent(leg.loss.downstream_loss_ratio),
        )?;
    }
    if line.towards_samples_excluded > 0 {
        writeln!(
            out,
            "  {} samples towards other interfaces",
            grouped(line.towards_samples_excluded)
        )?;
    }
    Ok(())
}

fn flows(out: &mut String, line: &SummaryLine) -> std::fmt::Result {
    if line.flows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n  samples         min      median         p95         max  flow, measured host last"
    )?;
    for flow in &line.flows {
        let towards = flow
            .towards
            .as_ref()
            .map(|t| format!(" ({t})"))
            .unwrap_or_default();
        writeln!(
            out,
            "  {:>7} {:>11} {:>11} {:>11} {:>11}  {} -> {}{towards}",
            grouped(flow.rtt.samples),
            Nanos(flow.rtt.min_rtt_ns),
            Nanos(flow.rtt.p50_rtt_ns),
            Nanos(flow.rtt.p95_rtt_ns),
            Nanos(flow.rtt.max_rtt_ns),
            flow.src,
            flow.dst,
        )?;
    }
    if line.flow_rows_excluded > 0 {
        writeln!(
            out,
            "  {} more rows; --limit N prints more",
            grouped(line.flow_rows_excluded)
        )?;
    }
    Ok(())
}

fn tables(out: &mut String, line: &SummaryLine, run: &Run) -> std::fmt::Result {
    writeln!(
        out,
        "\n  tables    flows {} of {}, half-open {} of {}, segments {} of {}; {} MiB",
        grouped(run.usage.flows),
        grouped(run.flows()),
        grouped(run.usage.half_open),
        grouped(run.half_open()),
        grouped(run.usage.chunks * u64::from(CHUNK_SEGMENTS)),
        grouped(u64::from(run.config.chunks) * u64::from(CHUNK_SEGMENTS)),
        run.table_bytes.div_ceil(1 << 20),
    )?;
    if run.usage.refused > 0 {
        let at = run.usage.refused_at;
        writeln!(
            out,
            "  refused   {} flows, their sets of {WAYS} were full; the table had {} entries in use ({:.1} %)",
            grouped(run.usage.refused),
            grouped(at),
            100.0 * at as f64 / run.flows() as f64,
        )?;
    }
    let counter = |name: &str| line.counters.get(name).and_then(Value::as_u64);
    let lost = drops_of(|name| counter(name).unwrap_or(0));
    let lost = if lost.is_empty() {
        "nothing".to_owned()
    } else {
        lost.join(", ")
    };
    writeln!(out, "  dropped   {lost}")
}

/// The lost measurements of a run, as in the summary. Empty if nothing was lost. Matches that a rule
/// of the method refuses are not lost.
pub fn drops(stats: &Stats) -> Vec<String> {
    drops_of(|name| {
        let counted = |(known, _): &(&str, u64)| *known == name && !name.starts_with("refused_");
        stats.by_name().find(counted).map_or(0, |(_, n)| n)
    })
}

fn drops_of(counter: impl Fn(&str) -> u64) -> Vec<String> {
    let counted = DROPS.iter().map(|(name, text)| (counter(name), text));
    counted
        .filter(|(n, _)| *n > 0)
        .map(|(n, text)| format!("{} {text}", grouped(n)))
        .collect()
}

/// Counters of lost measurements, with their text in the summary.
const DROPS: &[(&str, &str)] = &[
    ("events_lost", "events (ring buffer full)"),
    (
        "flows_refused",
        "packets of flows without an entry in the flow table",
    ),
    ("flows_evicted", "flows evicted"),
    ("half_open_evicted", "half-open flows evicted"),
    ("segments_refused", "segments not stored"),
    ("holes_dropped", "holes not stored"),
    ("lock_failures", "packets (lock busy)"),
    ("scratch_busy", "packets (scratch busy)"),
    ("truncated", "truncated packets"),
    ("malformed", "malformed packets"),
    ("refused_stale_ack", "matches with a later ACK"),
    ("refused_old_echo", "matches with an older echo"),
    ("refused_age", "matches older than a minute"),
    ("refused_clock", "matches with a negative time"),
];

fn cost(out: &mut String, run: &Run) -> std::fmt::Result {
    let Some(cost) = &run.cost else { return Ok(()) };
    for program in cost.iter().filter(|c| c.runs > 0) {
        writeln!(
            out,
            "  cost      {}: {:.0} ns per packet ({:.0} less {:.0} of an empty program), {} packets",
            program.program,
            program.net_ns,
            program.gross_ns,
            program.empty_ns,
            grouped(program.runs)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(n), text);
        }
    }
}
