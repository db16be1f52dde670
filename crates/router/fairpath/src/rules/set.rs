//! `fairpath rules set`: the sets of the loaded rules.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use super::apply::read_text;
use super::live::{PinArgs, edit_sets, loaded_sets, look_for};

/// Change and print the sets of the loaded rules, as ipset does.
///
/// A packet meets a set before or after a command, never a part of it. A command about elements takes as
/// long as its elements need, whatever else is loaded; other commands take as long as a load.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set add blocked 203.0.113.7 198.51.100.0/24\n  \
    fairpath rules set test blocked 203.0.113.7")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Add(AddArgs),
    Del(DelArgs),
    Test(TestArgs),
    List(ListArgs),
    Restore(RestoreArgs),
}

/// Add elements to a set, all or none.
///
/// Options of ipset (timeout N, comment TEXT, nomatch and others) are for all elements of the command.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set add blocked 203.0.113.7 198.51.100.0/24\n  \
    fairpath rules set add --exist banned 203.0.113.7 timeout 600")]
struct AddArgs {
    /// The set
    name: String,
    /// Elements, and options of ipset
    #[arg(required = true, value_name = "ENTRY")]
    words: Vec<String>,
    /// Accept elements that are there: they get the new options
    #[arg(short = '!', long)]
    exist: bool,
    #[command(flatten)]
    place: PinArgs,
}

/// Remove elements from a set, all or none.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set del blocked 203.0.113.7\n  \
    fairpath rules set del --exist banned 203.0.113.7 203.0.113.8")]
struct DelArgs {
    /// The set
    name: String,
    /// Elements
    #[arg(required = true, value_name = "ENTRY")]
    words: Vec<String>,
    /// Accept elements that are not there
    #[arg(short = '!', long)]
    exist: bool,
    #[command(flatten)]
    place: PinArgs,
}

/// Look for an element. The exit status is 0 if it is in the set, else 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set test blocked 203.0.113.7\n  \
    fairpath rules set test web 192.0.2.1,tcp:80")]
struct TestArgs {
    /// The set
    name: String,
    /// The element, and nomatch for an exception
    #[arg(required = true, value_name = "ENTRY")]
    words: Vec<String>,
    #[command(flatten)]
    place: PinArgs,
}

/// Print sets as ipset save does, with the seconds that are left of timeouts.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set list\n  \
    fairpath rules set list banned")]
struct ListArgs {
    /// The set [default: all]
    name: Option<String>,
    #[command(flatten)]
    place: PinArgs,
}

/// Apply lines of ipset restore, all or none.
///
/// Lines create, flush, destroy, swap or rename a set, or add and delete elements. Each line has its own
/// -exist.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules set restore changes.ipset\n  \
    sed 's/^/add blocked /' list | fairpath rules set restore")]
struct RestoreArgs {
    /// The file; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    place: PinArgs,
}

/// Runs `fairpath rules set`.
///
/// # Errors
/// No rules are loaded, or the command is refused: nothing changes.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add(args) => {
            let lines = lines("add", &args.name, &args.words, args.exist)?;
            edit_sets(&args.place, "", &lines)?;
        }
        Command::Del(args) => {
            let lines = lines("del", &args.name, &args.words, args.exist)?;
            edit_sets(&args.place, "", &lines)?;
        }
        Command::Test(args) => {
            let line = lines("test", &args.name, &args.words, false)?;
            let (element, is_in) = look_for(&args.place, line.trim_end())?;
            let element = fairpath_units::text::line(&element).into_owned();
            let name = fairpath_units::text::line(&args.name);
            if !is_in {
                fairpath_cli::print(format!("{element} is NOT in set {name}.\n"))?;
                return Ok(ExitCode::FAILURE);
            }
            fairpath_cli::print(format!("{element} is in set {name}.\n"))?;
        }
        Command::List(args) => print_sets(args)?,
        Command::Restore(args) => {
            let name = args.file.display().to_string();
            let text = read_text(&args.file)?;
            match String::from_utf8(text) {
                Ok(text) => edit_sets(&args.place, &name, &text)?,
                Err(_) => bail!("{name}: the text is not UTF-8; nothing was changed"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Options of elements: names, and whether a value follows.
const OPTIONS: [(&str, bool); 10] = [
    ("timeout", true),
    ("nomatch", false),
    ("packets", true),
    ("bytes", true),
    ("comment", true),
    ("skbmark", true),
    ("skbprio", true),
    ("skbqueue", true),
    ("before", true),
    ("after", true),
];

/// A line for each element.
fn lines(verb: &str, name: &str, words: &[String], exist: bool) -> anyhow::Result<String> {
    let mut elements = Vec::new();
    let mut options = String::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match OPTIONS.iter().find(|(option, _)| option == word) {
            None => elements.push(plain(word)?),
            Some((option, has_value)) => {
                options.push(' ');
                options += option;
                if *has_value {
                    let Some(value) = words.next() else {
                        bail!("option \"{option}\" has no value: write one");
                    };
                    options.push(' ');
                    options += &quoted(value)?;
                }
            }
        }
    }
    if elements.is_empty() {
        bail!("name an element of set \"{name}\"");
    }
    let name = plain(name)?;
    let exist = if exist { " -exist" } else { "" };
    let lines = elements
        .iter()
        .map(|element| format!("{verb} {name} {element}{options}{exist}\n"));
    Ok(lines.collect())
}

/// A word that is one word of a line as well.
fn plain(word: &str) -> anyhow::Result<&str> {
    if word.is_empty()
        || word.starts_with('-')
        || word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"')
    {
        let word = fairpath_units::text::line(word);
        bail!("\"{word}\" is neither a set nor an element: nothing was changed");
    }
    Ok(word)
}

/// A value of an option.
fn quoted(word: &str) -> anyhow::Result<String> {
    if word.contains(|c: char| c.is_control() || c == '"') {
        let word = fairpath_units::text::line(word);
        bail!("value \"{word}\" has a quotation mark or a control character: remove it");
    }
    Ok(format!("\"{word}\""))
}

fn print_sets(args: &ListArgs) -> anyhow::Result<()> {
    let (sets, now) = loaded_sets(&args.place)?;
    let mut out = String::new();
    match &args.name {
        None => sets.write_left(&mut out, now)?,
        Some(name) => match sets.get(name) {
            Some(set) => set.write_left(name, &mut out, now)?,
            None => bail!(
                "set \"{}\" is not loaded: `fairpath rules set list` prints those that are",
                fairpath_units::text::line(name)
            ),
        },
    }
    fairpath_cli::print(fairpath_units::text::lines(&out).into_owned())?;
    Ok(())
}

/// Short names of commands of ipset.
const COMMANDS: [(&str, [&str; 3]); 10] = [
    ("add", ["-A", "--add", "a"]),
    ("del", ["-D", "--del", "d"]),
    ("test", ["-T", "--test", "t"]),
    ("create", ["-N", "--create", "n"]),
    ("flush", ["-F", "--flush", "f"]),
    ("destroy", ["-X", "--destroy", "x"]),
    ("rename", ["-E", "--rename", "e"]),
    ("swap", ["-W", "--swap", "w"]),
    ("save", ["-S", "--save", "s"]),
    ("list", ["-L", "--list", "l"]),
];

/// Runs a command of ipset on the loaded sets: without output, as ipset.
///
/// # Errors
/// No rules are loaded, or the command is refused: nothing changes.
pub fn ipset(place: &PinArgs, words: &[String]) -> anyhow::Result<ExitCode> {
    let (mut rest, mut exist, mut quiet) = (Vec::new(), false, false);
    for word in words {
        match &word[..] {
            "-exist" | "--exist" | "-!" | "--!" => exist = true,
            "-q" | "-quiet" | "--quiet" => quiet = true,
            word => rest.push(word),
        }
    }
    let Some((command, rest)) = rest.split_first() else {
        bail!("give a command of ipset, such as add: nothing was changed");
    };
    let of = |(name, short): &&(&str, [&str; 3])| name == command || short.contains(command);
    let command = COMMANDS.iter().find(of).map_or(*command, |(name, _)| *name);
    match command {
        "save" => {
            print_sets(&ListArgs {
                name: rest.first().map(|name| (*name).to_owned()),
                place: place.clone(),
            })?;
        }
        "list" => bail!("the output of ipset list has facts of the kernel: use ipset save"),
        "test" => {
            let words: Vec<String> = rest.iter().skip(1).map(|word| (*word).to_owned()).collect();
            let Some(name) = rest.first() else {
                bail!("name a set and an element");
            };
            let line = lines("test", name, &words, false)?;
            let (element, is_in) = look_for(place, line.trim_end())?;
            let element = fairpath_units::text::line(&element).into_owned();
            let name = fairpath_units::text::line(name);
            if !quiet {
                // As ipset prints it.
                let not = if is_in { "" } else { "NOT " };
                fairpath_cli::print_stderr(format!("{element} is {not}in set {name}.\n"));
            }
            return Ok(if is_in {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        _ => {
            let mut line = command.to_owned();
            for word in rest {
                line.push(' ');
                line += &match word.contains(char::is_whitespace) {
                    true => quoted(word)?,
                    false => plain_word(word)?.to_owned(),
                };
            }
            let exist = if exist { " -exist" } else { "" };
            edit_sets(place, "", &format!("{line}{exist}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A word of a line of ipset.
fn plain_word(word: &str) -> anyhow::Result<&str> {
    if word.is_empty() || word.contains(|c: char| c.is_control() || c == '"') {
        let word = fairpath_units::text::line(word);
        bail!("\"{word}\" is no word of a command of ipset: nothing was changed");
    }
    Ok(word)
}
