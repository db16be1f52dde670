//! `fairpath rules apply`: edits of a file or of the loaded rules, all or none.

use std::io::{BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fairpath_files::Locked;
use fairpath_rules::{Family, Ruleset, WithCounters, check_loops, restore, to_bytes};

use super::Format;
use super::files::{ReadArgs, RuleFile, load, names};
use super::live::{
    PinArgs, check_loaded, edit_loaded, is_left, listed_by_daemon, loaded_rules, needs_daemon,
};

/// Apply edits to a file of rules or to the loaded rules, all of them or none.
///
/// An edit is one command of iptables (-A, -I, -D, -R, -N, -X, -P, -F, -Z, -E), after -- or in a
/// file of iptables-restore --noflush. The name of the tool may be before the command, and -t, -w and
/// -W anywhere, as fail2ban and Docker write it. The result is in canonical form: of comment lines
/// (#), only that of the save tool stays. It goes to standard output, or with --in-place replaces the
/// file at once: mode and owner stay, and other commands that edit the file wait. A result with chains
/// that lead back to themselves is refused.
///
/// With --loaded, the rules that `fairpath rules load` loaded are edited: packets meet the old or the
/// new rules, and rules that stay keep their counters. The family is that of the tool, else IPv4.
/// -C succeeds if the rule is there, and -S and -n -L print rules as iptables does. If the tool is named, a
/// command that succeeds prints nothing, as the tool. Commands on tables that iptables keeps, as nat, go to
/// the tool unchanged: if a wrapper calls this command, give the path of the tool. Commands of ipset change
/// the loaded sets.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules apply rules.v4 --in-place -- -I INPUT 1 -s 203.0.113.9 -j DROP\n  \
    fairpath rules apply rules.v4 --in-place -- iptables -w -t nat -F PREROUTING\n  \
    fairpath rules apply rules.v4 --edits changes.noflush\n  \
    fairpath rules apply --loaded -- ip6tables -w -I INPUT -s 2001:db8::9 -j DROP\n  \
    fairpath rules apply --loaded -- ipset -exist add banned 203.0.113.9 timeout 600\n  \
    fairpath rules apply --loaded -- /usr/sbin/iptables -t nat -C POSTROUTING -j MASQUERADE")]
pub struct Args {
    /// The file of rules
    #[arg(value_name = "FILE", required_unless_present = "loaded")]
    file: Option<PathBuf>,
    /// Edit the loaded rules
    #[arg(long, conflicts_with_all = ["file", "in_place"])]
    loaded: bool,
    #[command(flatten)]
    place: PinArgs,
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
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.loaded
        && let Some((tool, words)) = args.edit.split_first()
        && tool.rsplit('/').next() == Some("ipset")
    {
        return super::set::ipset(&args.place, words);
    }
    apply(args).map(|()| ExitCode::SUCCESS)
}

fn apply(args: &Args) -> anyhow::Result<()> {
    let is_input = |path: &Path| path.as_os_str() == "-";
    let file = args.file.as_deref();
    if file.is_some_and(is_input) && args.in_place {
        bail!("standard input cannot be replaced: name a file, or omit --in-place");
    }
    if file.is_some_and(is_input) && args.edits.as_deref().is_some_and(is_input) {
        bail!("standard input cannot be both the rules and the edits: name a file for one");
    }
    let command = command(&args.table, &args.edit)?;
    if args.loaded && command.is_ip() && !args.edit.is_empty() {
        let family = command.family(args);
        if command.is_about_tool() {
            return Err(command.pass(family, &args.edit));
        }
        let reads = command.is('L', "--list") || command.is('S', "--list-rules");
        if reads && needs_daemon() {
            return match listed_by_daemon(&args.place, family, &command.table)? {
                Some(ruleset) => super::listing::print(&command.table, &command.words, &ruleset),
                None => Err(command.pass(family, &args.edit)),
            };
        }
        let is_change = !reads && !command.is('C', "--check");
        if is_left(&args.place, family, &command.table, is_change)? {
            return Err(command.pass(family, &args.edit));
        }
        if reads {
            let ruleset = loaded_rules(&args.place, family)?;
            return super::listing::print(&command.table, &command.words, &ruleset);
        }
    }
    // Before the lock: edits that come slowly keep no other command waiting.
    let (name, text) = match &args.edits {
        Some(path) => (path.display().to_string(), read_text(path)?),
        None if args.edit.is_empty() => {
            bail!("no edit: write it after --, or name a file with --edits")
        }
        None => {
            // Other lines of a file, such as COMMIT, are no commands.
            if !command
                .words
                .first()
                .is_some_and(|word| word.starts_with('-'))
            {
                bail!("an edit begins with a command such as -A: nothing was changed");
            }
            let (table, edit) = (&command.table, quoted(&command.words));
            let text = format!("*{table}\n{edit}\nCOMMIT\n");
            ("edit".to_owned(), text.into_bytes())
        }
    };
    let edits = Edits {
        name,
        text,
        is_one: args.edits.is_none(),
    };
    let Some(file) = &args.file else {
        let family = command.family(args);
        let apply = |ruleset| {
            let changed = edits.apply(ruleset);
            changed.map_err(|error| command.with_text_of_tool(error))
        };
        if command.is('C', "--check") {
            return check_loaded(&args.place, family, apply);
        }
        let (before, now) = edit_loaded(&args.place, family, &edits.text, apply)?;
        // Docker takes any output for an error.
        return match (&command.tool, args.format) {
            (Some(_), Format::Text) => Ok(()),
            _ => report(args.format, before, now),
        };
    };
    let replace = || format!("replace {}", file.display());
    let locked = match args.in_place {
        true => Some(Locked::open(file).with_context(replace)?),
        false => None,
    };
    let files = load(std::slice::from_ref(file), &args.reading)?;
    // Without it, the next reader may take the file for one of another family.
    let heading = files.rules.first().and_then(RuleFile::heading);
    let heading = heading.map(|line| format!("{}\n", String::from_utf8_lossy(line)));
    let (file, ruleset, _) = files.only()?;
    if let Some((word, family)) = &command.family
        && *family != ruleset.family
    {
        bail!(
            "{word} edits rules of {family}, and {file} has rules of {}: nothing was changed",
            ruleset.family
        );
    }
    let before = ruleset.rules();
    let changed = edits.apply(ruleset)?;
    let mut out = heading.unwrap_or_default().into_bytes();
    out.extend(to_bytes(&changed, WithCounters::AsRead));
    if let Some(locked) = locked {
        locked.replace(&out).with_context(replace)?;
        report(args.format, before, changed.rules())?;
    } else {
        match args.format {
            Format::Text => fairpath_cli::print_bytes(&out)?,
            Format::Json => fairpath_cli::print(format!(
                "{}\n",
                serde_json::json!({"before": before, "now": changed.rules(),
                    "rules": String::from_utf8_lossy(&out)})
            ))?,
        }
    }
    Ok(())
}

/// Prints the number of rules before and after.
pub fn report(format: Format, before: usize, now: usize) -> anyhow::Result<()> {
    fairpath_cli::print(match format {
        Format::Text => format!("{before} rules before, {now} now\n"),
        Format::Json => format!("{}\n", serde_json::json!({"before": before, "now": now})),
    })
}

/// Lines of iptables-restore --noflush.
pub struct Edits {
    pub name: String,
    pub text: Vec<u8>,
    /// One command, which needs no line number.
    pub is_one: bool,
}

impl Edits {
    /// The set after them.
    pub fn apply(&self, ruleset: Ruleset) -> anyhow::Result<Ruleset> {
        let reading = restore(
            ruleset,
            &mut BufReader::new(&self.text[..]),
            &self.name,
            &names(),
            true,
        )?;
        let (problems, skipped) = (reading.problems.len(), reading.other_family);
        let changed = match reading.complete() {
            Ok(changed) => changed,
            Err(problem) if self.is_one => bail!("edit: {}", problem.text),
            Err(problem) => bail!("{problem} ({problems} problems; nothing was changed)"),
        };
        if let Some(found) = check_loops(&changed).first() {
            bail!(
                "{} {}: {}; nothing was changed",
                found.table,
                found.chain,
                found.text
            );
        }
        if skipped > 0 {
            fairpath_cli::note(format_args!(
                "{}: {skipped} lines were skipped: -4 and -6 select them for another family than {}",
                self.name, changed.family
            ));
        }
        Ok(changed)
    }
}

pub fn read_text(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("read standard input")?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// A command of iptables, as fail2ban and Docker write it.
struct Command {
    /// The program, if it is named.
    tool: Option<String>,
    table: String,
    /// True if the words name the table.
    names_table: bool,
    /// The family that its tool, -4 or -6 selects, and that word.
    family: Option<(String, Family)>,
    /// The command and the rule.
    words: Vec<String>,
}

/// Options that may be before a command and do not change its meaning.
const SWITCHES: [&str; 7] = [
    "-n",
    "-v",
    "-x",
    "--numeric",
    "--verbose",
    "--exact",
    "--line-numbers",
];

/// Parts of our errors, and the text that iptables prints then.
const TEXTS_OF_TOOL: [(&str, &str); 8] = [
    ("does not exist", "No chain/target/match by that name."),
    (
        "has no such rule",
        "Bad rule (does a matching rule exist in that chain?).",
    ),
    ("to insert before", "Index of insertion too big."),
    ("has no rule", "Index of deletion too big."),
    ("already exists", "Chain already exists."),
    ("has rules or is the target", "Too many links."),
    ("has no policy", "Bad built-in chain name."),
    ("the new name must be free", "File exists."),
];

/// Set for a program that gets a command: if it is a wrapper that calls this command, it ends.
const PASSED: &str = "FAIRPATH_RULES_PASSED";

impl Command {
    fn is_ip(&self) -> bool {
        let family = self.family.as_ref();
        family.is_none_or(|(_, family)| family.is_ip())
    }

    /// True for a question about the tool, such as --version.
    fn is_about_tool(&self) -> bool {
        let about = ["-V", "--version", "-h", "--help"];
        self.tool.is_some()
            && self
                .words
                .first()
                .is_some_and(|word| about.contains(&&word[..]))
    }

    /// The family of the loaded rules.
    fn family(&self, args: &Args) -> Family {
        let given = args.reading.family.map(super::files::FamilyArg::family);
        let of_tool = self.family.as_ref().map(|(_, family)| *family);
        of_tool.or(given).unwrap_or(Family::Ipv4)
    }

    /// An error with the text of iptables, for programs that look for it.
    fn with_text_of_tool(&self, error: anyhow::Error) -> anyhow::Error {
        let text = error.to_string();
        let found = TEXTS_OF_TOOL.iter().find(|(ours, _)| text.contains(ours));
        match found.filter(|_| self.tool.is_some()) {
            Some((_, theirs)) => anyhow::anyhow!("{text} (iptables: {theirs})"),
            None => error,
        }
    }

    /// True for the command with this letter, which switches may accompany (-nL), or this name.
    fn is(&self, letter: char, name: &str) -> bool {
        let is_switch = |word: &&String| SWITCHES.contains(&&word[..]);
        let Some(word) = self.words.iter().find(|word| !is_switch(word)) else {
            return false;
        };
        match word.strip_prefix('-') {
            Some(long) if long.starts_with('-') => word.split('=').next() == Some(name),
            Some(short) => short
                .trim_start_matches(['n', 'v', 'x'])
                .starts_with(letter),
            None => false,
        }
    }

    /// Replaces this process by the program, with all words; returns only on failure.
    fn pass(&self, family: Family, words: &[String]) -> anyhow::Error {
        let tool = self.tool.as_deref();
        let program = tool.unwrap_or(family.tool());
        if std::env::var_os(PASSED).is_some() {
            return anyhow::anyhow!(
                "run {program} for table {}: it calls Fairpath again: give the path of the tool itself",
                self.table
            );
        }
        let mut command = std::process::Command::new(program);
        command.env(PASSED, "1");
        if !self.names_table {
            command.args(["-t", &self.table]);
        }
        command.args(&words[usize::from(tool.is_some())..]);
        let error = anyhow::Error::from(command.exec());
        error.context(format!("run {program} for table {}", self.table))
    }
}

/// Options with a text that may look like an option.
const TEXTS: [&str; 5] = [
    "--comment",
    "--log-prefix",
    "--nflog-prefix",
    "--string",
    "--hex-string",
];

/// Separates the name of the tool, the table, -w and -W from the command and the rule.
fn command(table: &str, words: &[String]) -> anyhow::Result<Command> {
    let mut out = Command {
        tool: None,
        table: table.to_owned(),
        names_table: false,
        family: None,
        words: Vec::new(),
    };
    let mut words = words.iter().peekable();
    let tool = |word: &String| {
        let name = word.rsplit('/').next()?.split('-').next()?;
        Family::ALL.into_iter().find(|family| family.tool() == name)
    };
    if let Some((word, family)) = words.peek().and_then(|word| Some((*word, tool(word)?))) {
        out.family = Some((word.clone(), family));
        out.tool = Some(word.clone());
        words.next();
    }
    while let Some(word) = words.next() {
        // A value may follow a long option after =, and a short one directly.
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if word.starts_with("--") => (option, Some(value)),
            _ if word.starts_with("--") => (&word[..], None),
            _ => match word.get(..2) {
                Some(option @ ("-t" | "-w" | "-W")) => {
                    (option, word.get(2..).filter(|value| !value.is_empty()))
                }
                _ => (&word[..], None),
            },
        };
        match option {
            "-w" | "--wait" | "-W" | "--wait-interval" => {
                if let Some(value) = value {
                    value
                        .parse::<u64>()
                        .with_context(|| format!("{option} takes a number, not {value}"))?;
                } else {
                    words.next_if(|seconds| seconds.parse::<u64>().is_ok());
                }
            }
            "-t" | "--table" => {
                let value = value.or_else(|| words.next().map(String::as_str));
                value
                    .context("-t needs the name of a table")?
                    .clone_into(&mut out.table);
                out.names_table = true;
            }
            "-4" | "--ipv4" => out.family = Some((word.clone(), Family::Ipv4)),
            "-6" | "--ipv6" => out.family = Some((word.clone(), Family::Ipv6)),
            _ => {
                out.words.push(word.clone());
                if TEXTS.contains(&option) && value.is_none() {
                    out.words.extend(words.next().cloned());
                }
            }
        }
    }
    Ok(out)
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
