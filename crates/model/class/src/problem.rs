//! What is wrong with a configuration: every problem, where it stands and whom it concerns.

use std::fmt;

use serde::Serialize;

use crate::source::{Location, Place, Sources};

/// Most errors, and most warnings, that are kept; further ones are only counted.
pub const MAX_PROBLEMS: usize = 1000;

/// Whether a configuration may be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It may not.
    Error,
    /// It may.
    Warning,
}

/// What kind of thing is wrong; the words of JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file is no TOML, CSV or JSON, or could not be read.
    Syntax,
    /// A key or a column that nobody knows, or one that is missing.
    Key,
    /// A value that cannot be.
    Value,
    /// A name, or what leads to a class, is there twice.
    Duplicate,
    /// A parent that does not exist.
    Orphan,
    /// Classes that are their own ancestors.
    Cycle,
    /// Deeper than [`crate::MAX_DEPTH`].
    TooDeep,
    /// More than a limit allows.
    TooMany,
    /// Criteria that cannot be used together, or not without something else.
    Conflict,
    /// A prefix inside the prefix of a class that is no ancestor.
    Overlap,
    /// A prefix outside of every prefix of its parent.
    Outside,
    /// Nothing leads to the class.
    Empty,
    /// A ceiling above that of the class it is in.
    Ceiling,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub location: Location,
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub kind: ProblemKind,
    /// The class it is about, if it is about one.
    pub class: Option<String>,
    /// Object, cause and remedy, one line.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}: {severity}: {}", self.location, self.text)
    }
}

struct Noted {
    place: Place,
    severity: Severity,
    kind: ProblemKind,
    class: Option<String>,
    text: String,
}

/// Problems as they are found.
#[derive(Default)]
pub(crate) struct Problems {
    noted: Vec<Noted>,
    errors: usize,
    warnings: usize,
}

impl Problems {
    /// The configuration may not be used.
    pub fn error(&mut self, kind: ProblemKind, place: Place, class: &str, text: String) {
        self.errors += 1;
        if self.errors <= MAX_PROBLEMS {
            self.note(Severity::Error, kind, place, class, text);
        }
    }

    /// The configuration may be used, but does it say what is meant?
    pub fn warning(&mut self, kind: ProblemKind, place: Place, class: &str, text: String) {
        self.warnings += 1;
        if self.warnings <= MAX_PROBLEMS {
            self.note(Severity::Warning, kind, place, class, text);
        }
    }

    fn note(
        &mut self,
        severity: Severity,
        kind: ProblemKind,
        place: Place,
        class: &str,
        text: String,
    ) {
        self.noted.push(Noted {
            place,
            severity,
            kind,
            class: (!class.is_empty()).then(|| class.to_owned()),
            // Whatever a file holds, a problem is one line and no escape sequence.
            text: text.replace(char::is_control, "?"),
        });
    }

    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// Those that were kept, in the order of files and lines.
    pub fn into_list(mut self, sources: &Sources) -> Vec<Problem> {
        self.noted.sort_by_key(|noted| noted.place);
        let located = |noted: Noted| Problem {
            location: sources.locate(noted.place),
            severity: noted.severity,
            kind: noted.kind,
            class: noted.class,
            text: noted.text,
        };
        self.noted.into_iter().map(located).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_limit_are_counted_and_errors_keep_their_places() {
        let mut problems = Problems::default();
        for _ in 0..MAX_PROBLEMS + 5 {
            problems.warning(ProblemKind::Empty, Place::default(), "a", "w".into());
        }
        problems.error(
            ProblemKind::Value,
            Place::default(),
            "",
            "e\n\u{1b}[0m".into(),
        );
        assert_eq!(
            (problems.errors(), problems.warnings()),
            (1, MAX_PROBLEMS + 5)
        );
        let list = problems.into_list(&Sources::default());
        assert_eq!(list.len(), MAX_PROBLEMS + 1);
        let error = list.iter().find(|p| p.severity == Severity::Error).unwrap();
        assert_eq!((error.text.as_str(), &error.class), ("e??[0m", &None));
    }
}
