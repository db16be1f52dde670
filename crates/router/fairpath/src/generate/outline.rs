//! The command line of another binary, from the outline that it prints, for completions.
//!
//! The keys are those of `fairpath-sched generate outline`.

use clap::{Arg, ArgAction, Command, ValueHint, builder::PossibleValue};
use serde::Deserialize;

use crate::external;

/// A command.
#[derive(Deserialize)]
struct Outline {
    name: String,
    about: Option<String>,
    args: Vec<Argument>,
    subcommands: Vec<Outline>,
}

/// An option or a positional argument.
#[derive(Deserialize)]
struct Argument {
    id: String,
    long: Option<String>,
    short: Option<char>,
    help: Option<String>,
    takes_values: bool,
    repeats: bool,
    required: bool,
    several: bool,
    value_names: Vec<String>,
    values: Vec<Named>,
    is_path: bool,
    conflicts: Vec<String>,
}

/// A possible value of an option.
#[derive(Deserialize)]
struct Named {
    name: String,
    help: Option<String>,
}

/// The command line of `fairpath-NAME`; `None` if there is no such binary or it prints no outline.
pub fn of(name: &'static str) -> Option<Command> {
    let mut command = external::program(name.as_ref());
    let output = command.args(["generate", "outline"]).output().ok()?;
    let outline: Outline = serde_json::from_slice(&output.stdout).ok()?;
    Some(outline.command().name(name))
}

/// clap needs names of static lifetime. The process ends after the completions are written.
fn leaked(text: String) -> &'static str {
    text.leak()
}

impl Outline {
    fn command(self) -> Command {
        let command = Command::new(leaked(self.name))
            .args(self.args.into_iter().map(Argument::arg))
            .subcommands(self.subcommands.into_iter().map(Outline::command));
        match self.about {
            Some(about) => command.about(about),
            None => command,
        }
    }
}

impl Argument {
    fn arg(self) -> Arg {
        let action = match (self.takes_values, self.repeats) {
            (true, true) => ArgAction::Append,
            (true, false) => ArgAction::Set,
            (false, true) => ArgAction::Count,
            (false, false) => ArgAction::SetTrue,
        };
        let mut arg = Arg::new(leaked(self.id))
            .long(self.long.map(leaked))
            .short(self.short)
            .action(action)
            .required(self.required)
            .conflicts_with_all(self.conflicts.into_iter().map(leaked));
        if let Some(help) = self.help {
            arg = arg.help(help);
        }
        if !self.takes_values {
            return arg;
        }
        let names: Vec<_> = self.value_names.into_iter().map(leaked).collect();
        if !names.is_empty() {
            arg = arg.value_names(names);
        }
        if self.several {
            arg = arg.num_args(1..);
        }
        if self.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        let values: Vec<_> = self.values.into_iter().map(Named::value).collect();
        match values.is_empty() {
            true => arg,
            false => arg.value_parser(values),
        }
    }
}

impl Named {
    fn value(self) -> PossibleValue {
        let value = PossibleValue::new(leaked(self.name));
        match self.help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}
