//! `[rules]`: loaded rules. `fairpath rules boot` reads this section before the daemon runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::file::{File, Rules as Given};
use super::problem::{Problems, Refused};
use super::values::Check;

/// Default and maximum number of answers to rejected packets, a second.
const ANSWERS: i64 = 1000;
const MAX_ANSWERS: i64 = 100_000;

/// State of the machine if the kept rules cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fail {
    /// Without rules
    Open,
    /// With rules that drop all but loopback, known connections and neighbour discovery
    Closed,
}

/// `[rules]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// State of the machine without the kept rules.
    pub fail: Fail,
    /// Maximum number of answers to rejected packets a second. `None`: the daemon does not answer.
    pub answer: Option<u32>,
}

impl Check<'_, '_> {
    pub(super) fn rules(&mut self, given: Given) -> Rules {
        let limit = self.number(
            "[rules] answer_limit",
            given.answer_limit,
            ANSWERS,
            1..=MAX_ANSWERS,
        );
        let is_wanted = given.answer.is_none_or(toml::Spanned::into_inner);
        Rules {
            fail: self.fail(given.fail),
            answer: is_wanted.then_some(limit as u32),
        }
    }

    fn fail(&mut self, given: super::file::Given<String>) -> Fail {
        self.choice("[rules] fail", given, Fail::Open)
    }
}

/// `fail` of a configuration, if there is one. Errors in other sections have no effect.
///
/// # Errors
/// The file or the section cannot be read, or the value is invalid.
pub fn fail_of_rules(path: &Path) -> anyhow::Result<Fail> {
    let text = match super::read(path) {
        Ok(text) => text,
        Err(error) if is_missing(&error, path) => return Ok(Fail::Open),
        Err(error) => return Err(error),
    };
    let shown = path.display().to_string();
    let (text, file) = match toml::from_str::<File>(&text) {
        Ok(file) => (text, Ok(file)),
        Err(_) => {
            let section = section(&text);
            let file = toml::from_str(&section);
            (section, file)
        }
    };
    let mut problems = Problems::of(&shown, &text);
    let mut fail = Fail::Open;
    match file {
        Ok(file) => {
            let mut check = Check {
                problems: &mut problems,
                directory: PathBuf::new(),
                filtered: Vec::new(),
            };
            fail = check.fail(file.rules.fail);
        }
        Err(error) => problems.note_syntax(&error),
    }
    let found = problems.found();
    match found.is_empty() {
        true => Ok(fail),
        false => Err(Refused(found.iter().map(ToString::to_string).collect()).into()),
    }
}

/// True if there is no such file: a link may lead to a file system that is not mounted yet.
fn is_missing(error: &anyhow::Error, path: &Path) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
        && path.symlink_metadata().is_err()
}

/// The lines of `[rules]`, and those before all sections that begin with its name. All others are empty, so
/// that lines keep their numbers.
fn section(text: &str) -> String {
    let (mut is_here, mut is_begin) = (false, true);
    let lines = text.lines().map(|line| {
        if is_begin && line.trim_start().starts_with("rules") {
            return line;
        }
        if line.trim_start().starts_with('[') {
            is_begin = false;
        }
        if line.trim_start().starts_with('[') {
            let name = line.trim_start().trim_start_matches('[');
            is_here = name.split(']').next().map(str::trim) == Some("rules");
        }
        if is_here { line } else { "" }
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(text: &str) -> Result<Fail, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        fail_of_rules(file.path()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn fail_survives_errors_of_other_sections() {
        let closed = "[monitor\nflows = 3\n[rules] # loaded\nfail = \"closed\"\n[[class]\nx";
        assert_eq!(fail(closed), Ok(Fail::Closed));
        assert_eq!(fail("[monitor]\nfail = \"closed\"\n"), Ok(Fail::Open));
        assert_eq!(fail("x\n[rules]\nanswer_limit = 0\n"), Ok(Fail::Open));
        assert_eq!(fail("rules.fail = \"closed\"\n"), Ok(Fail::Closed));
        let dotted = "rules.fail = \"closed\"\n[monitor\nrules = 1\n";
        assert_eq!(fail(dotted), Ok(Fail::Closed));
        let missing = fail_of_rules(Path::new("/nowhere/fairpath.toml"));
        assert_eq!(missing.unwrap(), Fail::Open);
        // Its file system may be mounted later.
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("fairpath.toml");
        std::os::unix::fs::symlink("/nowhere/fairpath.toml", &link).unwrap();
        assert!(fail_of_rules(&link).is_err());
    }

    #[test]
    fn problems_of_the_section_have_their_place() {
        for (text, expected) in [
            (
                "[rules]\nfail = \"close\"\n",
                ":2:8: [rules] fail: \"close\" is invalid",
            ),
            (
                "\n[rules]\nfial = \"closed\"\n",
                ":3:1: unknown field `fial`",
            ),
            ("[rules]\nfail = closed\n", ":2:8:"),
        ] {
            let error = fail(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
