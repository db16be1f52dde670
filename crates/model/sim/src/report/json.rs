//! The report as one JSON object. `schema` changes when a key changes its meaning or is removed.

use serde_json::{Map, Value, json};

use super::SimulationReport;
use crate::simulate::{Count, Histogram, Measured};

const SCHEMA: u32 = 1;

pub(super) fn write(report: &SimulationReport<'_>) -> String {
    let found = report.findings;
    let names = report.names;
    let rows = found.rows.iter().map(|(row, measured)| {
        let head =
            json!({ "name": row.name, "class": names.class(row.class), "weight": row.weight });
        joined(head, measured, report)
    });
    let classes = found.classes.iter().map(|(class, measured)| {
        let head =
            json!({ "name": names.class(*class), "jain_index": found.jain_of_class(*class) });
        joined(head, measured, report)
    });
    let nodes = (1..).zip(&found.nodes).map(|(id, node)| {
        json!({
            "name": names.node(id),
            "policy": names.policy(id).map(|policy| policy.name.as_str()),
            "sent_packets": node.sent,
            "sent_bytes": node.sent_bytes,
            "dropped_packets": node.dropped,
            "marked_packets": node.marked,
            "sent_by_floor_packets": node.by_floor,
            "backlog_packets": node.packets,
            "backlog_bytes": node.bytes,
        })
    });
    let object = json!({
        "schema": SCHEMA,
        "subject": report.subject,
        "traffic": report.traffic,
        "runtime": report.runtime,
        "seed": report.seed,
        "rate_bps": report.settings.rate_bps,
        "overhead_bytes": report.settings.overhead_bytes,
        "duration_ns": found.duration_ns,
        "interrupted": found.interrupted,
        "total": joined(json!({}), &found.total, report),
        "backlog_packets": found.backlog,
        "max_backlog_packets": found.max_backlog,
        "jain_index": found.jain(),
        "link": {
            "busy_ns": found.link.busy_ns,
            "idle_empty_ns": found.link.idle_empty_ns,
            "idle_throttled_ns": found.link.idle_throttled_ns,
            "idle_not_work_conserving_ns": found.link.idle_wrong_ns,
            "utilisation_ratio": found.utilisation(),
        },
        "inversions": {
            "checked_packets": found.inversions.checked,
            "inverted_packets": found.inversions.packets,
            "inverted_pairs": found.inversions.pairs,
        },
        "dropped_by_reason": counts(found.drops.iter().map(|(reason, count)| (reason.name(), *count))),
        "excluded": counts(found.excluded.iter().copied()),
        "weights_refused": found.weights_refused,
        "scheduler": {
            "put_off": found.stats.put_off,
            "shared_flow_packets": found.stats.shared,
            "flow_states_lost": found.stats.state_lost,
            "tries_spent": found.stats.tries_spent,
            "woken": found.stats.woken,
        },
        "classes": classes.collect::<Vec<Value>>(),
        "flows": rows.collect::<Vec<Value>>(),
        "nodes": nodes.collect::<Vec<Value>>(),
    });
    format!("{object}\n")
}

fn counts<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Value {
    let map: Map<String, Value> = counts
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    Value::Object(map)
}

/// `head` followed by the measurements.
fn joined(head: Value, measured: &Measured, report: &SimulationReport<'_>) -> Value {
    let count = |count: Count| json!({ "packets": count.packets, "bytes": count.bytes });
    let body = json!({
        "offered": count(measured.offered),
        "sent": count(measured.sent),
        "dropped": count(measured.dropped),
        "marked_packets": measured.marked,
        "duplicated_packets": measured.duplicated.packets,
        "corrupted_packets": measured.corrupted,
        "sent_bps": report.findings.rate_bps(measured.sent.bytes).round() as u64,
        "sojourn_ns": histogram(&measured.sojourn),
        "completion_ns": histogram(&measured.completion),
        "incomplete_flows": measured.incomplete,
        "sent_bytes_by_slot": { "slot_ns": measured.series.width_ns(), "bytes": measured.series.sums() },
    });
    match (head, body) {
        (Value::Object(mut head), Value::Object(body)) => {
            head.extend(body);
            Value::Object(head)
        }
        (_, body) => body,
    }
}

fn histogram(histogram: &Histogram) -> Value {
    if histogram.count() == 0 {
        return Value::Null;
    }
    json!({
        "count": histogram.count(),
        "mean": histogram.mean(),
        "p50": histogram.quantile(0.5),
        "p95": histogram.quantile(0.95),
        "p99": histogram.quantile(0.99),
        "max": histogram.largest(),
    })
}
