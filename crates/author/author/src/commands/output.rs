//! Output that several commands share: formats, policies as JSON, and closed pipes.

use std::io::{self, Write};

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

/// Writes to standard output. A pipe that the reader closed is not an error.
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
