//! The effect of a scheduler on a call during ten transfers: `fairpath sched run`, simulated.

use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::check::Check;
use crate::lab::binary;

/// Ten senders that always have something, one call.
const TRAFFIC: &str = "bulk flows=10; voice";
const RATE: &str = "100mbit";
/// Virtual seconds.
const SECONDS: u32 = 4;
/// CoDel's target is 5 ms; the call's own queue is to stay below twice that.
const CALL_MS: f64 = 10.0;
/// Of the link's rate, that the transfers are to get.
const GOODPUT: f64 = 0.9;

/// The results of the simulation.
#[derive(Default)]
pub struct Schedule {
    /// A row for each policy.
    pub rows: Vec<PolicyRow>,
    /// The checks that involve several policies.
    pub checks: Vec<Check>,
}

/// One policy's results.
pub struct PolicyRow {
    /// Its name.
    pub policy: &'static str,
    /// All transfers together, Mbit/s.
    pub transfers_mbps: f64,
    /// Waiting times of the call's packets, ms: median, 99th percentile, longest.
    pub call_ms: [f64; 3],
    /// The check of this policy.
    pub check: Option<Check>,
}

impl Schedule {
    /// Simulates the same traffic under FIFO and FQ-CoDel.
    pub fn run() -> anyhow::Result<Schedule> {
        let fifo = simulate("fifo", "native")?;
        let fair = simulate("fq_codel", "native")?;
        let in_kernel = simulate("fq_codel", "kernel")?;
        let mut rows = vec![
            PolicyRow::of("fifo", &fifo)?,
            PolicyRow::of("fq_codel", &fair)?,
        ];
        let call_ms = rows[1].call_ms[1];
        let claim = format!("p99 at most {CALL_MS:.0}");
        rows[1].check = Some(Check::new(call_ms <= CALL_MS, claim));
        let enough = rows[1].transfers_mbps >= 100.0 * GOODPUT;
        let claim = format!(
            "FQ-CoDel's transfers get at least {:.0} % of the link",
            GOODPUT * 100.0
        );
        let goodput = Check::new(enough, claim);
        let same = Check::new(
            without_runtime(&in_kernel)? == without_runtime(&fair)?,
            "FQ-CoDel in the kernel (test-run, without attaching) sends the same packets"
                .to_owned(),
        );
        Ok(Schedule {
            rows,
            checks: vec![goodput, same],
        })
    }
}

impl PolicyRow {
    fn of(policy: &'static str, result: &Value) -> anyhow::Result<PolicyRow> {
        let flows = result["flows"]
            .as_array()
            .context("the simulation reported no flows")?;
        let named = |name: &'static str| {
            flows
                .iter()
                .filter(move |flow| flow["name"].as_str().is_some_and(|n| n.starts_with(name)))
        };
        let bps: f64 = named("bulk")
            .filter_map(|flow| flow["sent_bps"].as_f64())
            .sum();
        let call = named("voice")
            .next()
            .context("the simulation reported no call")?;
        let ms = |key: &str| call["sojourn_ns"][key].as_f64().unwrap_or(f64::NAN) / 1e6;
        Ok(PolicyRow {
            policy,
            transfers_mbps: bps / 1e6,
            call_ms: [ms("p50"), ms("p99"), ms("max")],
            check: None,
        })
    }
}

/// The result of a simulation, without the runtime.
fn without_runtime(result: &Value) -> anyhow::Result<serde_json::Map<String, Value>> {
    let object = result
        .as_object()
        .context("the simulation reported no object")?;
    let mut object = object.clone();
    let runtime = object.remove("runtime");
    runtime.context("the simulation reported no runtime")?;
    Ok(object)
}

fn simulate(policy: &str, runtime: &str) -> anyhow::Result<Value> {
    let seconds = format!("{SECONDS}s");
    let arguments = ["--traffic", TRAFFIC, "--rate", RATE, "--duration", &seconds];
    let mut command = Command::new(binary());
    command
        .args(["sched", "run", policy])
        .args(arguments)
        .args(["--runtime", runtime, "--format", "json"]);
    let output = command
        .output()
        .with_context(|| format!("start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "simulate {policy}: {}",
        error.trim()
    );
    serde_json::from_slice(&output.stdout).context("read the simulation's result")
}
