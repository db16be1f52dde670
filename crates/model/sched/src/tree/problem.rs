//! The problems of a tree, each with its position and on one line.

use fairpath_units::nearest;
use fairpath_units::text::line;
use std::fmt;
use std::ops::Range;

/// Maximum problems in the list. Further ones are only counted.
pub const MAX_PROBLEMS: usize = 100;

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: String,
    /// The line, counted from 1, or 0 for a problem without a position.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// True if this is a warning. The tree is usable with warnings.
    pub warning: bool,
    /// Object, cause and remedy.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        let word = if self.warning { "warning" } else { "error" };
        write!(f, " {word}: {}", self.text)
    }
}

/// A tree that cannot be built, with its problems in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTree {
    /// At most [`MAX_PROBLEMS`] errors and warnings. At least one is an error.
    pub problems: Vec<Problem>,
    /// The number of problems that are not in the list.
    pub omitted: usize,
}

impl fmt::Display for BadTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            write!(f, "{newline}{problem}")?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\n... and {omitted} more"),
        }
    }
}

impl std::error::Error for BadTree {}

/// Problems by byte offset, in the order of detection.
#[derive(Default)]
pub(super) struct Problems {
    recorded: Vec<(usize, bool, String)>,
    errors: usize,
    omitted: usize,
}

/// The offset of problems without a position.
pub(super) const NOWHERE: usize = usize::MAX;

impl Problems {
    pub fn error(&mut self, span: Range<usize>, text: String) {
        self.errors += 1;
        self.note(span.start, false, text);
    }

    pub fn warning(&mut self, span: Range<usize>, text: String) {
        self.note(span.start, true, text);
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    fn note(&mut self, at: usize, warning: bool, text: String) {
        if self.recorded.len() == MAX_PROBLEMS {
            // In a full list an error replaces a warning.
            match self.recorded.iter().position(|(_, warning, _)| *warning) {
                Some(place) if !warning => drop(self.recorded.remove(place)),
                _ => {
                    self.omitted += 1;
                    return;
                }
            }
            self.omitted += 1;
        }
        // Control characters of the file could break lines or contain escape sequences.
        self.recorded.push((at, warning, line(&text).into_owned()));
    }

    /// The problems with line and column in `text`. O(bytes + problems).
    pub fn located(mut self, file: &str, text: &str) -> (Vec<Problem>, usize) {
        self.recorded.sort_by_key(|(at, ..)| *at);
        let (mut line, mut start, mut seen) = (1, 0, 0);
        let mut located = |at: usize| {
            if at == NOWHERE {
                return (0, 0);
            }
            let at = at.min(text.len());
            for (offset, byte) in text.bytes().enumerate().take(at).skip(seen) {
                if byte == b'\n' {
                    (line, start) = (line + 1, offset + 1);
                }
            }
            seen = at;
            let before = &text.as_bytes()[start..at];
            let characters = before.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
            (line, characters as u32 + 1)
        };
        let problem = |(at, warning, text)| {
            let (line, column) = located(at);
            let file = file.to_owned();
            Problem {
                file,
                line,
                column,
                warning,
                text,
            }
        };
        (
            self.recorded.into_iter().map(problem).collect(),
            self.omitted,
        )
    }
}

/// The known word nearest to `word` as a question, or an empty text.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_lines_and_columns_in_characters() {
        let mut problems = Problems::default();
        problems.error(7..8, "second".into());
        problems.error(NOWHERE..NOWHERE, "nowhere\n".into());
        problems.warning(0..1, "first".into());
        let (list, omitted) = problems.located("f", "ä = 1\nb = 2\n");
        let reported: Vec<String> = list.iter().map(Problem::to_string).collect();
        assert_eq!(
            reported,
            [
                "f:1:1: warning: first",
                "f:2:1: error: second",
                "f: error: nowhere?"
            ]
        );
        assert_eq!(omitted, 0);
    }

    #[test]
    fn errors_replace_warnings_in_a_full_list() {
        let mut problems = Problems::default();
        for _ in 0..MAX_PROBLEMS + 3 {
            problems.warning(0..1, "w".into());
        }
        problems.error(1..2, "e".into());
        let (list, omitted) = problems.located("f", "xyz");
        assert_eq!((list.len(), omitted), (MAX_PROBLEMS, 4));
        assert_eq!(list.iter().filter(|p| !p.warning).count(), 1);
    }
}
