//! `fairpath rules apply`: edits of a file, all or none.

use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, bail};
use fairpath_rules::{WithCounters, check_loops, restore, to_text};

use super::Format;
use super::files::{ReadArgs, load_one, names};

/// Apply edits to a file of rules, all of them or none.
///
/// An edit is one command of iptables (-A, -I, -D, -R, -N, -X, -P, -F, -Z, -E), after -- or in a
/// file of iptables-restore --noflush. The name of the tool, -t and -w may be before the command, as
/// fail2ban and Docker write it. The result goes to standard output, or with --in-place replaces the
/// file at once. Chains that lead back to themselves are refused.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules apply rules.v4 --in-place -- -I INPUT 1 -s 203.0.113.9 -j DROP\n  \
    fairpath rules apply rules.v4 --in-place -- iptables -w -t nat -F PREROUTING\n  \
    fairpath rules apply rules.v4 --edits changes.noflush")]
pub struct Args {
    /// The file of rules
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reading: ReadArgs,
    /// The table of the edit
    #[arg(short, long, default_value = "filter")]
    table: String,
    /// A file of edits, as iptables-restore --noflush reads it; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "edit")]
    edits: Option<PathBuf>,
    /// Replace the file instead of printing the result
    #[arg(long)]
    in_place: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The edit: one command of iptables
    #[arg(last = true, value_name = "EDIT")]
    edit: Vec<String>,
}

/// Runs `fairpath rules apply`.
///
/// # Errors
/// The file or an edit has a problem. The file is unchanged then.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (_, ruleset, _) = load_one(std::slice::from_ref(&args.file), &args.reading)?;
    let (name, text) = match &args.edits {
        Some(path) => (path.display().to_string(), read_text(path)?),
        None if args.edit.is_empty() => {
            bail!("no edit: write it after --, or name a file with --edits")
        }
        None => {
            let (table, edit) = command(&args.table, &args.edit)?;
            let text = format!("*{table}\n{}\nCOMMIT\n", quoted(&edit));
            ("edit".to_owned(), text.into_bytes())
        }
    };
    let (before, loops) = (ruleset.rules(), check_loops(&ruleset).len());
    let reading = restore(
        ruleset,
        &mut BufReader::new(&text[..]),
        &name,
        &names(),
        true,
    )?;
    let problems = reading.problems.len();
    let changed = match reading.complete() {
        Ok(changed) => changed,
        Err(problem) if args.edits.is_none() => bail!("edit: {}", problem.text),
        Err(problem) => bail!("{problem} ({problems} problems; nothing was changed)"),
    };
    let loops_now = check_loops(&changed);
    if let Some(found) = loops_now.first().filter(|_| loops_now.len() > loops) {
        bail!(
            "{name}:{}: chain {}: {}; nothing was changed",
            found.line,
            found.chain,
            found.text
        );
    }
    let out = to_text(&changed, WithCounters::AsRead);
    if args.in_place {
        fairpath_files::replace(&args.file, out.as_bytes())
            .with_context(|| format!("replace {}", args.file.display()))?;
        let summary = match args.format {
            Format::Text => format!("{before} rules before, {} now\n", changed.rules()),
            Format::Json => format!(
                "{}\n",
                serde_json::json!({"before": before, "now": changed.rules()})
            ),
        };
        fairpath_cli::print(summary)?;
    } else {
        match args.format {
            Format::Text => fairpath_cli::print(out)?,
            Format::Json => fairpath_cli::print(format!(
                "{}\n",
                serde_json::json!({"before": before, "now": changed.rules(), "rules": out})
            ))?,
        }
    }
    Ok(())
}

fn read_text(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("read standard input")?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// The table and the words of a command of iptables: its name, -w and -t may be before the rest, as
/// fail2ban and Docker write them.
fn command(table: &str, words: &[String]) -> anyhow::Result<(String, Vec<String>)> {
    let mut table = table.to_owned();
    let mut rest = Vec::new();
    let mut words = words.iter().peekable();
    let tools = ["iptables", "ip6tables", "arptables", "ebtables"];
    words.next_if(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        tools.contains(&name.split('-').next().unwrap_or_default())
    });
    while let Some(word) = words.next() {
        match word.as_str() {
            "-w" | "--wait" | "-W" | "--wait-interval" => {
                words.next_if(|seconds| seconds.parse::<u64>().is_ok());
            }
            "-t" | "--table" => {
                let name = words.next().context("-t needs the name of a table")?;
                table.clone_from(name);
            }
            _ => rest.push(word.clone()),
        }
    }
    Ok((table, rest))
}

/// Words of a command line as a line of a file: the shell has removed their quotes.
fn quoted(words: &[String]) -> String {
    let mut out = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\') {
            fairpath_rules::value::quote(word.as_bytes(), &mut out);
        } else {
            out.extend_from_slice(word.as_bytes());
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
