//! `fairpath rules import`: the rules that run now, as files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use fairpath_rules::{Family, Sets, WithCounters, read, to_bytes};
use fairpath_units::counted;

use super::Format;
use super::files::names;

/// Write the rules and sets that run now to files.
///
/// Runs the save tools of iptables-legacy, ip6tables-legacy, arptables, ebtables and ipset, reads
/// their output, and writes rules.v4, rules.v6, rules.arp, rules.bridge and sets.ipset. A rule that
/// cannot be read is refused with its line, and no file is written. Needs root.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    sudo fairpath rules import /tmp/rules\n  \
    sudo fairpath rules import --nft --format json /tmp/rules")]
pub struct Args {
    /// The directory for the files; it is created
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Read the rules of iptables-nft instead of iptables-legacy
    #[arg(long)]
    nft: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A file to be written.
struct Imported {
    file: &'static str,
    tool: String,
    text: Vec<u8>,
    rules: usize,
}

/// Runs `fairpath rules import`.
///
/// # Errors
/// A tool failed, or its output cannot be read.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let kind = if args.nft { "nft" } else { "legacy" };
    let mut imported = Vec::new();
    let mut absent = Vec::new();
    let sources = [
        (Family::Ipv4, "rules.v4"),
        (Family::Ipv6, "rules.v6"),
        (Family::Arp, "rules.arp"),
        (Family::Bridge, "rules.bridge"),
    ];
    for (family, file) in sources {
        let tool = format!("{}-{kind}-save", family.tool());
        if !args.nft && prints_nft(family) {
            match listed(family)? {
                Some(text) => refuse_unread(family, &tool, &text)?,
                None => absent.push(tool),
            }
            continue;
        }
        match save(&tool, &[])? {
            Some(text) => imported.extend(rules(family, file, &tool, &text)?),
            None => absent.push(tool),
        }
    }
    match save("ipset", &["save"])? {
        Some(text) if !text.is_empty() => {
            let sets = Sets::read("ipset save", &text[..]).context("read the sets that run")?;
            imported.push(Imported {
                file: "sets.ipset",
                tool: "ipset save".into(),
                text: sets.to_string().into_bytes(),
                rules: sets.len(),
            });
        }
        Some(_) => {}
        None => absent.push("ipset".into()),
    }
    write(&args.directory, &imported)?;
    note_of_others(args.nft);
    report(args, &imported, &absent)
}

/// Notes rules of the other variant of iptables, which run as well and are not imported.
fn note_of_others(nft: bool) {
    let (kind, hint) = match nft {
        false => ("nft", "`--nft` imports these instead"),
        true => ("legacy", "without --nft, these are imported instead"),
    };
    for family in Family::ALL {
        let mut tool = format!("{}-{kind}-save", family.tool());
        let text = match nft && prints_nft(family) {
            true => {
                tool = legacy(family);
                listed(family).ok().flatten().unwrap_or_default()
            }
            false => save(&tool, &[]).ok().flatten().unwrap_or_default(),
        };
        if let Some(what) = in_use(&text) {
            fairpath_cli::note(format!("{what} by {tool}, not imported: {hint}"));
        }
    }
}

/// True if the save tool of arptables-legacy or ebtables-legacy prints rules of nftables. It is a script that
/// runs `arptables` or `ebtables`, which Debian has in both variants.
fn prints_nft(family: Family) -> bool {
    let run = format!("/usr/sbin/{}", family.tool());
    let version = || save(&run, &["--version"]).ok().flatten();
    !family.is_ip() && contains(&version().unwrap_or_default(), b"nf_tables")
}

fn legacy(family: Family) -> String {
    format!("{}-legacy", family.tool())
}

/// The tables that the legacy variant has, as it lists them. A table that is not there stays so. `None`: the tool
/// is not installed.
///
/// # Errors
/// The message of the tool.
fn listed(family: Family) -> anyhow::Result<Option<Vec<u8>>> {
    let tool = format!("/usr/sbin/{}", legacy(family));
    if !Path::new(&tool).exists() {
        return Ok(None);
    }
    let mut text = Vec::new();
    if family == Family::Arp {
        let names = std::fs::read_to_string("/proc/thread-self/net/arp_tables_names");
        if names.is_ok_and(|names| names.lines().any(|name| name == "filter")) {
            text.extend(save(&tool, &["-n", "-L"])?.unwrap_or_default());
        }
        return Ok(Some(text));
    }
    for table in ["filter", "nat", "broute"] {
        if Path::new(&format!("/sys/module/ebtable_{table}")).exists() {
            text.extend(save(&tool, &["-t", table, "-L"])?.unwrap_or_default());
        }
    }
    Ok(Some(text))
}

/// # Errors
/// Rules run, by what the legacy variant lists, that the save tool does not print.
fn refuse_unread(family: Family, tool: &str, listed: &[u8]) -> anyhow::Result<()> {
    let Some(what) = in_use(listed) else {
        return Ok(());
    };
    let (legacy, name) = (legacy(family), family.tool());
    bail!(
        "{what} by {legacy}, but {tool} prints those of nftables, because {name} is that variant: select the other one by `update-alternatives --config {name}`, and import again"
    )
}

/// Chains that packets meet without a jump.
const BASE_CHAINS: [&[u8]; 6] = [
    b"INPUT",
    b"FORWARD",
    b"OUTPUT",
    b"PREROUTING",
    b"POSTROUTING",
    b"BROUTING",
];

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// Rules, and policies of base chains that drop packets, in the output of a save tool or in a list of
/// [`listed`]. `None`: there are neither.
fn in_use(text: &[u8]) -> Option<String> {
    let lines = text.split(|byte| *byte == b'\n');
    // `:INPUT DROP [0:0]`, `Chain INPUT (policy DROP)`, `Bridge chain: INPUT, entries: 0, policy: DROP`.
    let is_drop = |line: &&[u8]| {
        let words = |byte: &u8| b" :,()".contains(byte);
        let mut words = line.split(words).filter(|word| !word.is_empty());
        let is_base = words.any(|word| BASE_CHAINS.contains(&word));
        is_base && !line.starts_with(b"-") && words.any(|word| word == b"DROP")
    };
    let rules = lines.clone().filter(|line| line.starts_with(b"-")).count();
    let policies = lines.filter(is_drop).count();
    let counts = [
        (rules, counted(rules, "rule", "rules")),
        (policies, counted(policies, "policy DROP", "policies DROP")),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(_, text)| text).collect();
    let verb = match rules + policies {
        0 => return None,
        1 => "runs",
        _ => "run",
    };
    Some(format!("{} {verb}", counts.join(" and ")))
}

/// The output of a save tool; `None` if it is not installed.
fn save(tool: &str, words: &[&str]) -> anyhow::Result<Option<Vec<u8>>> {
    let output = match Command::new(tool).args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("run {tool}")),
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line: String = stderr
            .lines()
            .next()
            .unwrap_or("no message")
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        bail!("{tool} failed ({}): {line}; needs root", output.status);
    }
    Ok(Some(output.stdout))
}

fn rules(
    family: Family,
    file: &'static str,
    tool: &str,
    text: &[u8],
) -> anyhow::Result<Option<Imported>> {
    let reading = read(&mut &text[..], tool, family, &names())?;
    let more = reading.problems.len() as u64 + reading.more_problems;
    let ruleset = match reading.complete() {
        Ok(ruleset) => ruleset,
        Err(problem) => bail!("{problem} ({more} problems; no file was written)"),
    };
    if ruleset.tables.is_empty() {
        return Ok(None);
    }
    Ok(Some(Imported {
        file,
        tool: tool.to_owned(),
        text: [
            format!("# Generated by {}-save by fairpath\n", family.tool()).into_bytes(),
            to_bytes(&ruleset, WithCounters::AsRead),
        ]
        .concat(),
        rules: ruleset.rules(),
    }))
}

fn write(directory: &Path, imported: &[Imported]) -> anyhow::Result<()> {
    if !directory.exists() {
        fairpath_files::create_directory(directory, 0o700)
            .with_context(|| format!("create {}", directory.display()))?;
    }
    for import in imported {
        let path = directory.join(import.file);
        fairpath_files::replace(&path, &import.text)
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn report(args: &Args, imported: &[Imported], absent: &[String]) -> anyhow::Result<()> {
    if args.format == Format::Json {
        let files: Vec<_> = imported
            .iter()
            .map(|import| {
                serde_json::json!({"file": args.directory.join(import.file), "tool": import.tool,
                    "rules": import.rules})
            })
            .collect();
        let object = serde_json::json!({"files": files, "not_installed": absent});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let mut out = String::new();
    for import in imported {
        let what = if import.file == "sets.ipset" {
            "sets"
        } else {
            "rules"
        };
        out.push_str(&format!(
            "{}: {} {what} of {}\n",
            args.directory.join(import.file).display(),
            import.rules,
            import.tool
        ));
    }
    for tool in absent {
        out.push_str(&format!("not installed: {tool}\n"));
    }
    if imported.is_empty() {
        out.push_str("no tables are in use\n");
    }
    fairpath_cli::print(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_bridge_rules_are_in_use() {
        for (text, expected) in [
            ("", None),
            (
                "*filter\n:INPUT ACCEPT [0:0]\n:DROP - [0:0]\nCOMMIT\n",
                None,
            ),
            (
                "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n",
                Some("1 policy DROP runs"),
            ),
            (
                "*filter\n:INPUT ACCEPT\n:FORWARD DROP\n-A FORWARD -j DROP\n",
                Some("1 rule and 1 policy DROP run"),
            ),
            (
                "*filter\n:INPUT ACCEPT\n-A INPUT -j DROP\n",
                Some("1 rule runs"),
            ),
        ] {
            assert_eq!(in_use(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
