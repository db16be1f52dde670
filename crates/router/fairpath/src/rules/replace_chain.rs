//! `fairpath rules replace-chain`: other rules for a chain of the loaded rules.

use std::path::PathBuf;

use anyhow::{Context, bail};

use super::Format;
use super::apply::{Edits, read_text, report};
use super::files::FamilyArg;
use super::live::{PinArgs, edit_loaded};

/// Replace the rules of a chain of the loaded rules.
///
/// Packets meet the old chain or the new one, whole. Rules that stay keep their counters. The file has
/// the rules of the chain as iptables-save writes them (-A CHAIN ...); other lines than those, comments
/// and the table's *NAME and COMMIT are refused. It takes as long as the chain needs, whatever else is
/// loaded.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules replace-chain blocked blocked.v4\n  \
    grep '^-A blocked ' rules.v6 | fairpath rules replace-chain --family ipv6 blocked -")]
pub struct Args {
    /// The chain
    #[arg(value_name = "CHAIN")]
    chain: String,
    /// A file with its rules; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The table of the chain
    #[arg(short, long, default_value = "filter")]
    table: String,
    /// The family of the rules
    #[arg(long, value_enum, value_name = "FAMILY", default_value = "ipv4")]
    family: FamilyArg,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs `fairpath rules replace-chain`.
///
/// # Errors
/// No rules are loaded, there is no such chain, or a rule is refused: nothing changes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let Args { table, chain, .. } = args;
    let name = args.file.display();
    let bytes = read_text(&args.file)?;
    let lines = String::from_utf8(bytes).with_context(|| format!("read {name}"))?;
    let mut text = format!("*{table}\n-F {chain}\n");
    for (at, line) in lines.lines().enumerate() {
        let rest = line
            .strip_prefix("-A ")
            .and_then(|rest| rest.strip_prefix(&chain[..]));
        match rest {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => {
                text += line;
                text.push('\n');
            }
            _ if line.is_empty() || line.starts_with('#') || line == "COMMIT" => {}
            _ if line.strip_prefix('*').is_some_and(|name| name == table) => {}
            _ => bail!(
                "{name}:{}: not a rule of chain {chain} of table {table}: write -A {chain} and the rule, nothing was changed",
                at + 1
            ),
        }
    }
    text += "COMMIT\n";
    let edits = Edits {
        name: "edit".to_owned(),
        text: text.into_bytes(),
        is_one: false,
    };
    let family = args.family.family();
    let apply = |ruleset| edits.apply(ruleset);
    let (before, now) = edit_loaded(&args.place, family, &edits.text, apply)?;
    report(args.format, before, now)
}
