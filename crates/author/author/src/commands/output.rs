//! Output that several commands share: formats, and policies as JSON.

use fairpath_core::sched::Policy;
use serde_json::{Value, json};

use super::show;

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TextFormat {
    /// Lines of text
    Text,
    /// One JSON object
    Json,
}

/// A policy as JSON, for `list` and `show`.
pub fn policy(policy: &Policy) -> Value {
    let over: Vec<&str> = policy.over.iter().map(|over| show::over(*over)).collect();
    let functions: Vec<&str> = policy
        .functions
        .iter()
        .map(|f| show::function(*f))
        .collect();
    let params: Vec<Value> = policy
        .params
        .iter()
        .map(|param| {
            json!({
                "name": param.name,
                "unit": param.unit,
                "about": param.about,
                "min": param.min,
                "max": param.most,
                "default": param.standard,
            })
        })
        .collect();
    json!({
        "name": policy.name,
        "about": policy.about,
        "source": policy.source,
        "ranks": over,
        "ranks_by_default": show::over(policy.usual),
        "functions": functions,
        "state_bytes": { "flow": policy.state_bytes[0], "node": policy.state_bytes[1], "policy": policy.state_bytes[2] },
        "params": params,
    })
}
