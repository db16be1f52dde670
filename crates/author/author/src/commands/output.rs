//! What several verbs print: formats, policies as JSON, a pipe that closes.

use std::io::{self, Write};

use fairpath_core::sched::Policy;
use serde_json::{Value, json};

use super::show;

/// Lines for people or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TextFormat {
    /// Lines for people
    Text,
    /// JSON with a schema number
    Json,
}

/// Writes to standard output; who closes it has seen enough.
///
/// # Errors
/// Any other failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A policy as `list` and `show` give it.
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
                "least": param.least,
                "most": param.most,
                "standard": param.standard,
            })
        })
        .collect();
    json!({
        "name": policy.name,
        "about": policy.about,
        "source": policy.source,
        "ranks": over,
        "ranks_usually": show::over(policy.usual),
        "functions": functions,
        "state_bytes": { "flow": policy.state_bytes[0], "node": policy.state_bytes[1], "policy": policy.state_bytes[2] },
        "params": params,
    })
}
