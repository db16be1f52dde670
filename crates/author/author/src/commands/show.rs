//! `fairpath sched show`: all details of one policy.

use std::fmt::Write as _;

use fairpath_core::sched::{Function, Over, Policy, policies};
use fairpath_units::quantity::written;

use super::output::{self, TextFormat};
use super::own::Own;
use super::subject;

/// Arguments of `fairpath sched show`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched show fq_codel\n  \
    fairpath sched show mine.c --format json\n\n\
    Exit status: 0 success, 1 unknown or invalid policy, 2 wrong usage.")]
pub struct Args {
    /// Name of a policy (`fairpath sched list`), or custom policy (NAME.c)
    policy: String,
    /// Select the output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// Runs the command.
///
/// # Errors
/// The policy does not exist, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let own = subject::own(&args.policy, None)?;
    let own = own.map(Own::open).transpose()?;
    let policy = match &own {
        Some(own) => &own.author.policy,
        None => subject::find(&args.policy, policies())?,
    };
    let text = match args.format {
        TextFormat::Text => text(policy),
        TextFormat::Json => {
            let mut object = output::policy(policy);
            object["schema"] = 1.into();
            format!("{object}\n")
        }
    };
    fairpath_cli::print(&text)
}

fn text(policy: &Policy) -> String {
    let mut out = format!("{}: {}\n", policy.name, policy.about);
    let _ = writeln!(out, "source     {}", policy.source);
    let usual = over(policy.usual);
    let others: Vec<&str> = policy
        .over
        .iter()
        .filter(|over| **over != policy.usual)
        .map(|o| over(*o))
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" (also {})", others.join(", "))
    };
    let _ = writeln!(out, "ranks      {usual}{others}");
    let functions: Vec<&str> = policy.functions.iter().map(|f| function(*f)).collect();
    let _ = writeln!(out, "functions  {}", functions.join(", "));
    let [flow, class, global] = policy.state_bytes;
    let _ = writeln!(
        out,
        "state      {flow} bytes per flow, {class} per node, {global} per policy"
    );
    if policy.params.is_empty() {
        let _ = writeln!(out, "parameters none");
        return out;
    }
    let _ = writeln!(out, "parameters (--set NAME=VALUE, or params in a tree)");
    let name = policy
        .params
        .iter()
        .map(|param| param.name.len())
        .max()
        .unwrap_or(0);
    for param in &policy.params {
        let [default, min, max] =
            [param.standard, param.min, param.most].map(|value| written(value, &param.unit));
        let _ = writeln!(
            out,
            "  {:<name$}  default {default}, range {min} to {max}\n  {:<name$}  {}",
            param.name, "", param.about
        );
    }
    out
}

/// The name of the elements of a queue.
pub fn over(over: Over) -> &'static str {
    match over {
        Over::Packets => "packets",
        Over::Flows => "flows",
        Over::Children => "children",
        Over::References => "references",
    }
}

/// The name of a function of a policy.
pub fn function(function: Function) -> &'static str {
    match function {
        Function::RankEnqueue => "rank_enqueue",
        Function::RankDequeue => "rank_dequeue",
        Function::SendTime => "send_time",
        Function::OnDrop => "on_drop",
    }
}
