//! The closing summary, for people and as JSON.

use std::fmt::Write;

use fairpath_core::{CHUNK_SEGMENTS, Config, Usage, WAYS};
use fairpath_rtt::SummaryLine;
use fairpath_units::Nanos;
use serde::Serialize;
use serde_json::{Value, json};

/// What the drivers know of a run besides events and counters.
pub struct Run {
    /// From first to last, nanoseconds.
    pub duration_ns: u64,
    /// The tables' sizes.
    pub config: Config,
    /// What was used of them at the end.
    pub usage: Usage,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// What the programs cost, where asked.
    pub cost: Option<Vec<Cost>>,
    /// What the reader should know: a capture cut short, an interface that vanished.
    pub notes: Vec<String>,
}

/// One program's cost, net of an empty one.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The program.
    pub program: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// As the kernel counts it, nanoseconds a run.
    pub gross_ns: f64,
    /// An empty program in the same run.
    pub empty_ns: f64,
    /// What is left.
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

/// The summary with what the run adds.
pub fn json(line: &SummaryLine, run: &Run) -> Value {
    let mut value = serde_json::to_value(line).unwrap_or_default();
    value["tables"] = json!({
        "bytes": run.table_bytes,
        "flows": { "used": run.usage.flows, "size": run.flows() },
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

/// The summary for people; fits 100 columns.
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
        "  packets   {}, of TCP {}",
        grouped(line.packets),
        grouped(line.tcp_packets)
    )?;
    writeln!(
        out,
        "  flows     {} opened, {} closed, {} still open; {} not measurable (one direction only, {} bytes)",
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
        if line.samples_held_back > 0 {
            format!(
                " ({} held back by --rate-limit)",
                grouped(line.samples_held_back)
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
        "\n  {:<12} {:>9} {:>11} {:>11} {:>11} {:>11}  loss before, beyond",
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
            percent(leg.loss.lost_before),
            percent(leg.loss.lost_beyond),
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
    if line.flow_rows_left_out > 0 {
        writeln!(
            out,
            "  … and {} more; --limit N lists more",
            grouped(line.flow_rows_left_out)
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
    let lost: Vec<String> = DROPS
        .iter()
        .filter_map(|(name, said)| {
            let n = line
                .counters
                .get(*name)
                .and_then(Value::as_u64)
                .unwrap_or(0);
            (n > 0).then(|| format!("{} {said}", grouped(n)))
        })
        .collect();
    let lost = if lost.is_empty() {
        "nothing".to_owned()
    } else {
        lost.join(", ")
    };
    writeln!(out, "  dropped   {lost}")
}

/// Counters of what was given up, and how the summary says them.
const DROPS: &[(&str, &str)] = &[
    ("events_lost", "events (ring full)"),
    ("flows_refused", "packets without a place in the flow table"),
    ("flows_evicted", "flows evicted"),
    ("half_open_evicted", "half-open flows evicted"),
    ("segments_refused", "segments not remembered"),
    ("troubles_dropped", "holes forgotten"),
    ("lock_failures", "packets (lock taken)"),
    ("scratch_busy", "packets (work area taken)"),
    ("truncated", "packets captured too short"),
    ("malformed", "malformed packets"),
    ("refused_stale_ack", "matches with a later ACK"),
    ("refused_old_echo", "matches with an older echo"),
    ("refused_age", "matches older than a minute"),
    ("refused_clock", "matches with time going backwards"),
];

fn cost(out: &mut String, run: &Run) -> std::fmt::Result {
    let Some(cost) = &run.cost else { return Ok(()) };
    for program in cost.iter().filter(|c| c.runs > 0) {
        writeln!(
            out,
            "  cost      {}: {:.0} ns a packet ({:.0} less {:.0} of an empty program), {} packets",
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
