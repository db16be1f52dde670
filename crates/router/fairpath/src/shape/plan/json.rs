//! A plan as one JSON object.

use fairpath_sim::plan::{Cause, CpuFindings, RateFindings, Verdict};
use serde_json::{Map, Value, json};

use super::{PlanResult, text};

/// Version of the format.
const SCHEMA: u32 = 1;

/// The object, and a newline.
pub fn json(result: &PlanResult<'_>) -> String {
    let (settings, findings) = (&result.settings, &result.findings);
    let rates = findings.rates.iter().zip(&result.verdicts);
    let object = json!({
        "schema": SCHEMA,
        "cpus": settings.cpus,
        "offered": result.offered(),
        "seed": settings.seed,
        "cost_local_ns": settings.cost.local_ns,
        "cost_shared_ns": settings.cost.shared_ns,
        "cost": result.cost_origin,
        "warm_up_ns": settings.warm_up_ns,
        "measured_ns": findings.measured_ns,
        "interrupted": findings.interrupted,
        "holds": result.missed() == 0 && !findings.interrupted,
        "enough_cpus": result.enough.flatten(),
        "shared_operations_per_packet": text::operations(&findings.cpus),
        "rates": rates.map(|(of, verdict)| rate(result, of, verdict)).collect::<Vec<_>>(),
        "cpu": findings.cpus.iter().map(cpu).collect::<Vec<_>>(),
        "excluded": excluded(&findings.excluded),
    });
    format!("{object}\n")
}

fn excluded(excluded: &[(&str, u64)]) -> Map<String, Value> {
    let excluded = excluded.iter();
    excluded
        .map(|(reason, count)| ((*reason).to_owned(), json!(count)))
        .collect()
}

fn rate(result: &PlanResult<'_>, of: &RateFindings, verdict: &Verdict) -> Value {
    let seconds = result.findings.measured_ns.max(1) as f64 / 1e9;
    let has_packets = of.sojourn.count() > 0;
    let quantile = |share| has_packets.then(|| of.sojourn.quantile(share));
    let (cause, cpus, needed) = cause(&verdict.cause);
    json!({
        "name": of.name,
        "direction": of.side.name(),
        "ceil_bps": of.ceil_bps,
        "floor_bps": of.floor_bps,
        "offered_bps": of.offered_bps.iter().sum::<f64>(),
        "target_bps": verdict.target_bps,
        "achieved_bps": verdict.achieved_bps,
        "achieved_ratio": verdict.ratio(),
        "holds": verdict.holds(),
        "cause": cause,
        "bound_by_cpus": cpus,
        "needed_cpus": needed,
        "sent_pps": of.sent.packets as f64 / seconds,
        "dropped_packets": of.dropped,
        "p50_sojourn_ns": quantile(0.5),
        "p99_sojourn_ns": quantile(0.99),
        "burst_bytes": of.ceil_bps.map(|_| of.burst_bytes),
        "bound_bytes": of.bound_bytes,
        "shared_word_use_ratio": of.word_ns as f64 / result.findings.measured_ns.max(1) as f64,
    })
}

fn cause(cause: &Cause) -> (&'static str, &[u32], Option<u32>) {
    match cause {
        Cause::Holds => ("holds", &[], None),
        Cause::Full { .. } => ("rate_around_is_full", &[], None),
        Cause::Word { .. } => ("shared_word", &[], None),
        Cause::Cpus { cpus, needed } => ("cpu", cpus, Some(*needed)),
        Cause::Floor => ("floor", &[], None),
        Cause::Other => ("other", &[], None),
    }
}

fn cpu(cpu: &CpuFindings) -> Value {
    json!({
        "use_ratio": cpu.use_ratio,
        "received_packets": cpu.packets,
        "shared_operations": cpu.operations,
        "lost_packets": cpu.lost,
    })
}
