//! What a check of an author's policy found: lines for people, or one JSON object.
//!
//! `schema` changes when a key changes its meaning or goes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fairpath_core::sched::{PARAMS, Policy};
use fairpath_policy::Author;
use fairpath_policy::trial::Trial;
use serde::Serialize;

const SCHEMA: u32 = 1;

/// How results are written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// The verifier's opinion.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verifier {
    NotAsked,
    Skipped,
    Accepted,
    Refused,
}

/// A function of the file.
#[derive(Serialize)]
pub struct Function {
    pub name: String,
    pub instructions: usize,
    /// How many instructions the verifier looked at, if it did.
    #[serde(rename = "verified_instructions")]
    pub verified: Option<u64>,
}

/// What came of a trial.
#[derive(Serialize)]
pub struct Trialled {
    place: String,
    operations: usize,
    seed: u64,
    homes: Vec<&'static str>,
    queued_packets: u64,
    sent_packets: u64,
    dropped_packets: u64,
}

impl Trialled {
    pub fn new(
        place: &str,
        operations: usize,
        seed: u64,
        trial: &Trial,
        in_kernel: bool,
    ) -> Trialled {
        let homes: &[_] = if in_kernel {
            &["native", "kernel"]
        } else {
            &["native"]
        };
        Trialled {
            place: place.to_owned(),
            operations,
            seed,
            homes: homes.to_vec(),
            queued_packets: trial.queued,
            sent_packets: trial.sent,
            dropped_packets: trial.dropped,
        }
    }
}

/// All that was found, in the order of the stages.
pub struct Findings {
    file: PathBuf,
    policy: Option<Policy>,
    pub functions: Vec<Function>,
    pub verifier: Verifier,
    /// The tree's file and nodes.
    pub tree: Option<(PathBuf, usize)>,
    pub trials: Vec<Trialled>,
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
    trials: &'a [Trialled],
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
    least: u64,
    most: u64,
    standard: u64,
}

#[derive(Serialize)]
struct TreeJson {
    file: String,
    nodes: usize,
}

/// Bytes of a node's state besides its parameters.
fn node_bytes(policy: &Policy) -> u32 {
    policy.state_bytes[1].saturating_sub(8 * PARAMS as u32)
}

impl Findings {
    pub fn new(file: &Path) -> Findings {
        Findings {
            file: file.to_owned(),
            policy: None,
            functions: Vec::new(),
            verifier: Verifier::NotAsked,
            tree: None,
            trials: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// The file was compiled and read.
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
            // A String takes everything.
            let _ = writeln!(text, "{what:<10}{rest}");
        };
        if !self.functions.is_empty() {
            line("compiled", self.functions_text());
        }
        match self.verifier {
            Verifier::NotAsked | Verifier::Refused => {}
            Verifier::Skipped => {
                line(
                    "verifier",
                    "skipped, and the kernel home too: needs root".to_owned(),
                );
            }
            Verifier::Accepted => line("verifier", "accepts it".to_owned()),
        }
        if let Some((file, nodes)) = &self.tree {
            line(
                "tree",
                format!("{}: well-formed, {nodes} nodes", file.display()),
            );
        }
        for trial in &self.trials {
            line("tried", trial_text(trial));
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
            let looked = |looked| format!(" ({looked} verified)");
            let verified = function.verified.map_or_else(String::new, looked);
            format!("{name} {} instructions{verified}", function.instructions)
        });
        functions.collect::<Vec<_>>().join(", ")
    }
}

fn trial_text(trial: &Trialled) -> String {
    format!(
        "{}: {} operations, seed {}, {}: {} queued, {} sent, {} dropped",
        trial.place,
        trial.operations,
        trial.seed,
        match trial.homes.len() {
            1 => "natively",
            _ => "natively and in the kernel, which agree",
        },
        trial.queued_packets,
        trial.sent_packets,
        trial.dropped_packets
    )
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
        least: param.least,
        most: param.most,
        standard: param.standard,
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
        "{:<10}flow {flow}, node {node}, policy {global} bytes; 64 each at most",
        "state"
    );
    for param in &policy.params {
        let unit = if param.unit.is_empty() { "" } else { " " };
        let _ = writeln!(
            text,
            "{:<10}{} = {}{unit}{}, {} to {}: {}",
            "parameter",
            param.name,
            param.standard,
            param.unit,
            param.least,
            param.most,
            param.about
        );
    }
    text
}
