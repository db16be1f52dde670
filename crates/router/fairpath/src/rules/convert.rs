//! `fairpath rules convert`: to the other family, or to classes.

use std::fmt::Write as _;

use anyhow::bail;
use fairpath_rules::{Refusal, WithCounters, to_bytes, to_classes, to_family};

use super::Format;
use super::files::{FamilyArg, FileArgs, load_one};

/// Convert rules between IPv4 and IPv6, or to a list of classes.
///
/// Rules whose meaning would change are refused with their lines, and nothing is printed. Only rules
/// that classify by prefix (CLASSIFY or MARK) become classes: CSV with name and prefix, for
/// fairpath class check. All of them are in one base chain and compare one side, -s or -d: the class is
/// that of the sender or the receiver. The last rule that matches decides, but of classes the longest
/// prefix: rules in another order are refused. JSON is one array.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules convert --to ipv6 rules.v4\n  \
    fairpath rules convert --to classes mangle.v4 > classes.csv")]
pub struct Args {
    #[command(flatten)]
    files: FileArgs,
    /// Result
    #[arg(long, value_enum)]
    to: To,
    /// Output format of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// A file of iptables
    Ipv4,
    /// A file of ip6tables
    Ipv6,
    /// Classes as CSV
    Classes,
}

/// Runs `fairpath rules convert`.
///
/// # Errors
/// The file has a problem, or rules that cannot be converted.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (name, ruleset, _) = load_one(&args.files.files, &args.files.reading)?;
    let text = match args.to {
        To::Classes => {
            let lines = to_classes(&ruleset).map_err(|list| refuse(&name, &list))?;
            if args.format == Format::Json {
                let list: Vec<serde_json::Value> = lines
                    .iter()
                    .map(|line| {
                        serde_json::json!({"name": line.name, "prefix": line.prefixes,
                            "line": line.line})
                    })
                    .collect();
                format!("{}\n", serde_json::Value::from(list))
            } else {
                let mut out = String::from("name,prefix\n");
                for line in lines {
                    let _ = writeln!(out, "{},{}", line.name, line.prefixes.join(";"));
                }
                out
            }
        }
        To::Ipv4 | To::Ipv6 => {
            let family = match args.to {
                To::Ipv4 => FamilyArg::Ipv4.family(),
                _ => FamilyArg::Ipv6.family(),
            };
            if ruleset.family == family || !ruleset.family.is_ip() {
                bail!(
                    "{name} has rules of {}: only IPv4 and IPv6 are converted to each other",
                    ruleset.family
                );
            }
            let converted = to_family(&ruleset, family).map_err(|list| refuse(&name, &list))?;
            let bytes = to_bytes(&converted, WithCounters::Never);
            if args.format == Format::Text {
                return fairpath_cli::print_bytes(&bytes);
            }
            let text = String::from_utf8_lossy(&bytes);
            format!("{}\n", serde_json::json!({ "rules": text }))
        }
    };
    fairpath_cli::print(text)?;
    Ok(())
}

/// Refused rules, one per line.
fn refuse(name: &str, list: &[Refusal]) -> anyhow::Error {
    let mut text = format!("{} rules cannot be converted:", list.len());
    for refusal in list.iter().take(20) {
        let _ = write!(
            text,
            "\n  {name}:{}: {} {}: {}",
            refusal.line, refusal.table, refusal.chain, refusal.text
        );
    }
    if list.len() > 20 {
        let _ = write!(text, "\n  and {} more", list.len() - 20);
    }
    anyhow::anyhow!(text)
}
