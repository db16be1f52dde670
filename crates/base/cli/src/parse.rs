//! From the words of a command line to arguments, or to a refusal in the form of all errors.

use std::env;
use std::ffi::OsString;
use std::io::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, Command, CommandFactory, FromArgMatches};

use crate::failure::PREFIX;
use crate::output::colored;
use crate::{VERSION, replacement};

/// Exit status of wrong usage.
pub const WRONG_USAGE: u8 = 2;
/// Exit status of any other failure.
pub const FAILURE: u8 = 1;

/// Help, a version or an error that the parser printed in place of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// With escape sequences, which are removed where colors are unwanted.
    pub text: String,
    /// 0 for help and version.
    pub status: u8,
    /// Subcommands that the words name.
    pub path: Vec<String>,
}

impl Refusal {
    /// Prints the text and ends the process with `status`.
    pub fn exit_with(&self, status: u8) -> ! {
        // It quotes arguments.
        let text = colored(&self.text);
        // A closed stream is no reason for another status.
        let _ = match self.status {
            0 => anstream::stdout().write_all(text.as_bytes()),
            _ => anstream::stderr().write_all(text.as_bytes()),
        };
        std::process::exit(i32::from(status));
    }
}

/// The definition of a command line with version and colors as all binaries have them.
pub fn command<C: CommandFactory>() -> Command {
    C::command().version(VERSION).max_term_width(100)
}

/// Parses the command line of this process; prints help, version or an error and ends otherwise.
///
/// `program` names the subcommand that this binary is, for example `sched`; empty for `fairpath`.
pub fn parse<C: CommandFactory + FromArgMatches>(program: &str) -> C {
    let words: Vec<OsString> = env::args_os().collect();
    parse_from(program, &words).unwrap_or_else(|refusal| refusal.exit_with(refusal.status))
}

/// Parses `words`, of which the first is the program.
///
/// # Errors
/// Help and version, with status 0, and wrong usage.
pub fn parse_from<C: CommandFactory + FromArgMatches>(
    program: &str,
    words: &[OsString],
) -> Result<C, Refusal> {
    let choice = color(words);
    as_anstream(choice).write_global();
    let mut command = command::<C>().color(choice);
    let matched = command.try_get_matches_from_mut(words);
    let parsed = matched.and_then(|matches| C::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let path = path(&command, words);
        refusal(program, path, &error.format(&mut command))
    })
}

fn refusal(program: &str, path: Vec<String>, error: &clap::Error) -> Refusal {
    let whole: Vec<&str> = (!program.is_empty())
        .then_some(program)
        .into_iter()
        .chain(path.iter().map(String::as_str))
        .collect();
    let whole = whole.join(" ");
    let text = match replaced(&whole, error) {
        Some((old, new)) => {
            format!("{PREFIX}{old} is now {new}: see `fairpath {whole} --help`\n")
        }
        None => rendered(error),
    };
    let status = if error.use_stderr() { WRONG_USAGE } else { 0 };
    Refusal { text, status, path }
}

/// The old and the new name, where the error is about a replaced one.
fn replaced(command: &str, error: &clap::Error) -> Option<(String, &'static str)> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg)?;
    let option = argument.split([' ', '=']).next()?;
    let old = match error.kind() {
        ErrorKind::UnknownArgument => option.to_owned(),
        ErrorKind::InvalidValue => format!("{option} {}", context(ContextKind::InvalidValue)?),
        _ => return None,
    };
    let new = replacement(command, &old)?;
    Some((old, new))
}

/// clap's text with the prefix of all errors.
fn rendered(error: &clap::Error) -> String {
    let text = error.render().ansi().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => text,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("{PREFIX}a subcommand is missing\n\n{text}")
        }
        _ => text.replacen("error:", PREFIX.trim_end(), 1),
    }
}

/// The subcommands that `words` name, as far as the definition has them.
fn path(command: &Command, words: &[OsString]) -> Vec<String> {
    let mut path = Vec::new();
    let mut command = command;
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if word == "--" {
            break;
        }
        if let Some(found) = command.find_subcommand(word) {
            path.push(found.get_name().to_owned());
            command = found;
        }
    }
    path
}

/// `--color` must be read before the rest, since errors about the rest may be colored.
fn color(words: &[OsString]) -> ColorChoice {
    let words: Vec<&str> = words.iter().map_while(|word| word.to_str()).collect();
    let end = words.iter().position(|word| *word == "--");
    let words = &words[..end.unwrap_or(words.len())];
    let given = words.iter().enumerate().find_map(|(at, word)| {
        word.strip_prefix("--color=")
            .or_else(|| (*word == "--color").then(|| words.get(at + 1).copied())?)
    });
    match given {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

fn as_anstream(choice: ColorChoice) -> anstream::ColorChoice {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand, ValueEnum};

    use super::*;
    use crate::Global;

    #[derive(Debug, Parser)]
    #[command(name = "fairpath")]
    struct Cli {
        #[command(flatten)]
        global: Global,
        #[command(subcommand)]
        command: Verb,
    }

    #[derive(Debug, Subcommand)]
    enum Verb {
        /// Impair packets
        Impair {
            #[arg(long)]
            duration: Option<String>,
        },
        /// Simulate a link
        Run {
            #[arg(long, value_enum, default_value_t = Format::Text)]
            format: Format,
        },
    }

    #[derive(Clone, Copy, Debug, ValueEnum)]
    enum Format {
        Text,
        Json,
    }

    fn refused(program: &str, line: &str) -> Refusal {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut refusal = parse_from::<Cli>(program, &words).unwrap_err();
        refusal.text = anstream::adapter::strip_str(&refusal.text).to_string();
        refusal
    }

    #[test]
    fn replaced_options_are_refused_with_the_new_name() {
        for line in [
            "fairpath impair --for 5s",
            "fairpath impair --for=5s",
            "fairpath --quiet impair --for",
        ] {
            let refusal = refused("", line);
            let expected =
                "fairpath: error: --for is now --duration: see `fairpath impair --help`\n";
            assert_eq!((refusal.text.as_str(), refusal.status), (expected, 2));
        }
        let refusal = refused("sched", "fairpath-sched run --format table");
        assert!(refusal.text.contains("--format table is now --format text"));
    }

    #[test]
    fn clap_errors_have_the_prefix_and_a_suggestion() {
        let refusal = refused("", "fairpath impair --duratoin 5s");
        assert_eq!(refusal.status, WRONG_USAGE);
        assert!(refusal.text.starts_with("fairpath: error: unexpected"));
        assert!(refusal.text.contains("'--duration'"), "{}", refusal.text);
        assert_eq!(refusal.path, ["impair"]);
        let refusal = refused("", "fairpath");
        assert!(refusal.text.starts_with(PREFIX), "{}", refusal.text);
    }

    #[test]
    fn help_and_version_are_no_failures() {
        let refusal = refused("", "fairpath --version");
        assert_eq!(refusal.status, 0);
        assert_eq!(refusal.text, format!("fairpath {VERSION}\n"));
        assert_eq!(refused("", "fairpath impair --help").status, 0);
    }

    #[test]
    fn global_options_are_accepted_after_subcommands() {
        let words = ["fairpath", "impair", "-q", "--color", "never"].map(OsString::from);
        let cli = parse_from::<Cli>("", &words).unwrap();
        assert!(cli.global.quiet && cli.global.color == ColorChoice::Never);
        assert_eq!(color(&words), ColorChoice::Never);
        assert_eq!(
            color(&["x", "--", "--color=always"].map(OsString::from)),
            ColorChoice::Auto
        );
    }
}
