//! `fairpath-sched generate`: manual pages, and an outline of the command line.
//!
//! Hidden, since it is for packaging. `fairpath` writes the completions and reads the outline for
//! them: JSON with the options, values and help texts of each command.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, Command};
use serde_json::{Value, json};

/// Write the manual pages, or the outline for shell completions
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    artifact: Artifact,
}

#[derive(clap::Subcommand)]
enum Artifact {
    /// Write fairpath-sched(1) and a page for each visible command
    Man {
        /// Directory of the pages; created if it does not exist
        dir: PathBuf,
    },
    /// Print the command line as JSON
    Outline,
}

/// Writes the selected description of `command` and replaces existing files.
///
/// # Errors
/// The directory or standard output cannot be written.
pub fn run(mut command: Command, args: &Args) -> anyhow::Result<()> {
    match &args.artifact {
        Artifact::Man { dir } => {
            fairpath_files::fill(dir, |new| clap_mangen::generate_to(command, new))
                .with_context(|| format!("write into {}", dir.display()))
        }
        Artifact::Outline => {
            command.build();
            fairpath_cli::print(format!("{}\n", outline(&command)))
        }
    }
}

fn outline(command: &Command) -> Value {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    json!({
        "name": command.get_name(),
        "about": command.get_about().map(ToString::to_string),
        "args": command.get_arguments().filter(|arg| !is_help(arg)).map(|arg| argument(command, arg)).collect::<Vec<_>>(),
        "subcommands": command.get_subcommands().filter(shown).map(outline).collect::<Vec<_>>(),
    })
}

/// Every command has this option, so readers of the outline add it themselves.
fn is_help(arg: &Arg) -> bool {
    arg.get_id() == "help"
}

fn argument(command: &Command, arg: &Arg) -> Value {
    let conflicts = command.get_arg_conflicts_with(arg);
    let values = arg.get_possible_values();
    json!({
        "id": arg.get_id().as_str(),
        "long": arg.get_long(),
        "short": arg.get_short(),
        "help": arg.get_help().map(ToString::to_string),
        "takes_values": arg.get_action().takes_values(),
        "repeats": matches!(arg.get_action(), clap::ArgAction::Append | clap::ArgAction::Count),
        "required": arg.is_required_set(),
        "several": arg.get_num_args().is_some_and(|range| range.max_values() > 1),
        "value_names": arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "values": values.iter().map(|value| json!({
            "name": value.get_name(),
            "help": value.get_help().map(ToString::to_string),
        })).collect::<Vec<_>>(),
        "is_path": arg.get_value_hint() == clap::ValueHint::AnyPath,
        "conflicts": conflicts.iter().map(|other| other.get_id().as_str()).collect::<Vec<_>>(),
    })
}
