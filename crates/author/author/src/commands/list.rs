//! `fairpath sched list`: the built-in policies.

use fairpath_core::sched::policies;
use serde_json::json;

use super::output::{self, TextFormat};

/// Arguments of `fairpath sched list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched list\n  \
    fairpath sched list --format json | jq -r '.policies[].name'")]
pub struct Args {
    /// Select the output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// Runs the command.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = match args.format {
        TextFormat::Text => text(),
        TextFormat::Json => {
            let all: Vec<_> = policies().iter().map(output::policy).collect();
            format!("{}\n", json!({ "schema": 1, "policies": all }))
        }
    };
    fairpath_cli::print(&text)
}

fn text() -> String {
    let width = policies()
        .iter()
        .map(|policy| policy.name.len())
        .max()
        .unwrap_or(0);
    let line = |policy: &fairpath_core::sched::Policy| {
        format!(
            "{:<width$}  {}\n{:width$}  {}\n",
            policy.name, policy.about, "", policy.source
        )
    };
    policies().iter().map(line).collect()
}
