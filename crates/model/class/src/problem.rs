//! Problems of a configuration, with position and class.

use std::fmt;

use serde::Serialize;

use crate::source::{Location, Place, Sources};

/// Maximum number of stored errors, and of stored warnings. Further ones are only counted.
pub const MAX_PROBLEMS: usize = 1000;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is accepted.
    Warning,
}

/// The kind of a problem, with the words of JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file is not valid TOML, CSV or JSON, or cannot be read.
    Syntax,
    /// An unknown or missing key or column.
    Key,
    /// An invalid value.
    Value,
    /// A duplicate name or criterion.
    Duplicate,
    /// A parent that does not exist.
    Orphan,
    /// Classes that are their own ancestors.
    Cycle,
    /// Deeper than [`crate::MAX_DEPTH`].
    TooDeep,
    /// More than a limit allows.
    TooMany,
    /// Criteria that cannot be combined, or that need another setting.
    Conflict,
    /// A prefix inside the prefix of a class that is not an ancestor.
    Overlap,
    /// A prefix outside of all prefixes of an ancestor.
    Outside,
    /// A class without criteria and children.
    Empty,
    /// A ceiling above that of an ancestor.
    Ceiling,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its position.
    pub location: Location,
    /// Its severity.
    pub severity: Severity,
    /// Its kind.
    pub kind: ProblemKind,
    /// Its class, if it has one.
    pub class: Option<String>,
    /// Object, cause and remedy in one line.
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

struct Entry {
    place: Place,
    severity: Severity,
    kind: ProblemKind,
    class: Option<String>,
    text: String,
}

/// Collected problems.
#[derive(Default)]
pub(crate) struct Problems {
    entries: Vec<Entry>,
    errors: usize,
    warnings: usize,
}

impl Problems {
    /// Adds an error.
    pub fn error(&mut self, kind: ProblemKind, place: Place, class: &str, text: String) {
        self.errors += 1;
        if self.errors <= MAX_PROBLEMS {
            self.add(Severity::Error, kind, place, class, text);
        }
    }

    /// Adds a warning.
    pub fn warning(&mut self, kind: ProblemKind, place: Place, class: &str, text: String) {
        self.warnings += 1;
        if self.warnings <= MAX_PROBLEMS {
            self.add(Severity::Warning, kind, place, class, text);
        }
    }

    fn add(
        &mut self,
        severity: Severity,
        kind: ProblemKind,
        place: Place,
        class: &str,
        text: String,
    ) {
        self.entries.push(Entry {
            place,
            severity,
            kind,
            class: (!class.is_empty()).then(|| class.to_owned()),
            // A text from a file must not add lines or escape sequences.
            text: fairpath_units::text::line(&text).into_owned(),
        });
    }

    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// The stored problems, sorted by file and line.
    pub fn into_list(mut self, sources: &Sources) -> Vec<Problem> {
        self.entries.sort_by_key(|entry| entry.place);
        let located = |entry: Entry| Problem {
            location: sources.locate(entry.place),
            severity: entry.severity,
            kind: entry.kind,
            class: entry.class,
            text: entry.text,
        };
        self.entries.into_iter().map(located).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_above_the_limit_are_counted() {
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
