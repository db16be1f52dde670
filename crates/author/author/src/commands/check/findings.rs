//! The findings of `fairpath sched check`, as text or as one JSON object.
//!
//! `schema` changes when a key changes its meaning or is removed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fairpath_core::sched::{PARAMS, Policy};
use fairpath_policy::Author;
use fairpath_policy::trial::Trial;
use serde::Serialize;

const SCHEMA: u32 = 1;

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines of text
    Text,
    /// One JSON object
    Json,
}

/// The result of the verifier.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verifier {
    NotRun,
    Skipped,
    Accepted,
    Refused,
}

/// A function of the file.
#[derive(Serialize)]
pub struct Function {
    pub name: String,
    pub instructions: usize,
    /// Instructions that the verifier processed, if it ran.
    #[serde(rename = "verified_instructions")]
    pub verified: Option<u64>,
}

/// The result of a trial.
#[derive(Serialize)]
pub struct TrialResult {
    place: String,
    operations: usize,
    seed: u64,
    runtimes: Vec<&'static str>,
    queued_packets: u64,
    sent_packets: u64,
    dropped_packets: u64,
}

impl TrialResult {
    pub fn new(
        place: &str,
        operations: usize,
        seed: u64,
        trial: &Trial,
        runtimes: Vec<&'static str>,
    ) -> TrialResult {
        TrialResult {
            place: place.to_owned(),
            operations,
            seed,
            runtimes,
            queued_packets: trial.queued,
            sent_packets: trial.sent,
            dropped_packets: trial.dropped,
        }
    }
}

/// All findings, in the order of the stages.
pub struct Findings {
    file: PathBuf,
    policy: Option<Policy>,
    pub functions: Vec<Function>,
    pub verifier: Verifier,
    /// The file of the tree and its number of nodes.
    pub tree: Option<(PathBuf, usize)>,
    pub trials: Vec<TrialResult>,
    pub warnings: Vec<String>,
    /// Why the policy cannot be used.
    pub problems: Vec<String>,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    file: String,
    ok: bool,
    policy: Option<PolicyJson<'a>>,
    functions: &'a [Function],
    verifier: Verifier,
    tree: Option<TreeJson>,
    trials: &'a [TrialResult],
    warnings: &'a [String],
    problems: &'a [String],
}

#[derive(Serialize)]
struct PolicyJson<'a> {
    name: &'a str,
    about: &'a str,
    source: &'a str,
    over: Vec<&'static str>,
    flow_bytes: u32,
    node_bytes: u32,
    policy_bytes: u32,
    params: Vec<ParamJson<'a>>,
}

#[derive(Serialize)]
struct ParamJson<'a> {
    name: &'a str,
    unit: &'a str,
    about: &'a str,
    min: u64,
    max: u64,
    default: u64,
}

#[derive(Serialize)]
struct TreeJson {
    file: String,
    nodes: usize,
}

/// Bytes of the state of a node without its parameters.
fn node_bytes(policy: &Policy) -> u32 {
    policy.state_bytes[1].saturating_sub(8 * PARAMS as u32)
}

impl Findings {
    pub fn new(file: &Path) -> Findings {
        Findings {
            file: file.to_owned(),
            policy: None,
            functions: Vec::new(),
            verifier: Verifier::NotRun,
            tree: None,
            trials: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Adds a compiled policy.
    pub fn read(&mut self, author: &Author) {
        self.policy = Some(author.policy.clone());
        let function = |(name, instructions): (&str, usize)| Function {
            name: name.to_owned(),
            instructions,
            verified: None,
        };
        self.functions = author.functions().map(function).collect();
    }

    pub fn output(&self, format: Format) -> serde_json::Result<String> {
        match format {
            Format::Text => Ok(self.text()),
            Format::Json => serde_json::to_string(&self.json()).map(|line| line + "\n"),
        }
    }

    fn json(&self) -> Json<'_> {
        Json {
            schema: SCHEMA,
            file: self.file.display().to_string(),
            ok: self.problems.is_empty(),
            policy: self.policy.as_ref().map(policy_json),
            functions: &self.functions,
            verifier: self.verifier,
            tree: self.tree.as_ref().map(|(file, nodes)| TreeJson {
                file: file.display().to_string(),
                nodes: *nodes,
            }),
            trials: &self.trials,
            warnings: &self.warnings,
            problems: &self.problems,
        }
    }

    fn text(&self) -> String {
        let mut text = self.policy.as_ref().map_or_else(String::new, policy_text);
        let mut line = |what: &str, rest: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{what:<10}{rest}");
        };
        if !self.functions.is_empty() {
            line("compiled", self.functions_text());
        }
        match self.verifier {
            Verifier::NotRun | Verifier::Refused => {}
            Verifier::Skipped => {
                line(
                    "verifier",
                    "skipped, as is the kernel runtime: both need root".to_owned(),
                );
            }
            Verifier::Accepted => line("verifier", "accepted".to_owned()),
        }
        if let Some((file, nodes)) = &self.tree {
            line("tree", format!("{}: valid, {nodes} nodes", file.display()));
        }
        for trial in &self.trials {
            line("trial", trial_text(trial));
        }
        for warning in &self.warnings {
            line("warning", warning.clone());
        }
        for problem in &self.problems {
            line("problem", problem.clone());
        }
        if self.problems.is_empty() {
            text += "ok\n";
        }
        text
    }

    fn functions_text(&self) -> String {
        let functions = self.functions.iter().map(|function| {
            let name = function.name.trim_start_matches("custom_");
            let verified = |instructions| format!(" ({instructions} verified)");
            let verified = function.verified.map_or_else(String::new, verified);
            format!("{name} {} instructions{verified}", function.instructions)
        });
        functions.collect::<Vec<_>>().join(", ")
    }
}

fn trial_text(trial: &TrialResult) -> String {
    format!(
        "{}: {} operations, seed {}, {}: {} packets queued, {} sent, {} dropped",
        trial.place,
        trial.operations,
        trial.seed,
        agreement(&trial.runtimes),
        trial.queued_packets,
        trial.sent_packets,
        trial.dropped_packets
    )
}

/// "interpreted, compiled and kernel agree".
fn agreement(runtimes: &[&str]) -> String {
    match runtimes.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last} agree", rest.join(", ")),
        _ => runtimes.concat(),
    }
}

fn over_names(policy: &Policy) -> Vec<&'static str> {
    let names = ["packets", "flows", "children", "references"];
    policy
        .over
        .iter()
        .map(|over| names[*over as usize - 1])
        .collect()
}

fn policy_json(policy: &Policy) -> PolicyJson<'_> {
    let params = policy.params.iter().map(|param| ParamJson {
        name: &param.name,
        unit: &param.unit,
        about: &param.about,
        min: param.min,
        max: param.most,
        default: param.standard,
    });
    PolicyJson {
        name: &policy.name,
        about: &policy.about,
        source: &policy.source,
        over: over_names(policy),
        flow_bytes: policy.state_bytes[0],
        node_bytes: node_bytes(policy),
        policy_bytes: policy.state_bytes[2],
        params: params.collect(),
    }
}

fn policy_text(policy: &Policy) -> String {
    let Policy {
        name,
        about,
        source,
        ..
    } = policy;
    let [flow, _, global] = policy.state_bytes;
    let mut text = format!("{name}: {about} ({source})\n");
    let _ = writeln!(text, "{:<10}{}", "ranks", over_names(policy).join(", "));
    let node = node_bytes(policy);
    let _ = writeln!(
        text,
        "{:<10}{flow} bytes per flow, {node} per node, {global} per policy (at most 64 each)",
        "state"
    );
    for param in &policy.params {
        let unit = if param.unit.is_empty() { "" } else { " " };
        let _ = writeln!(
            text,
            "{:<10}{} = {}{unit}{} (range {} to {}): {}",
            "parameter", param.name, param.standard, param.unit, param.min, param.most, param.about
        );
    }
    text
}
