//! What is wrong with a configuration, where it stands, and what was probably meant.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As the file was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Object, cause and remedy.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            file,
            line,
            column,
            text,
        } = self;
        write!(f, "{file}:{line}:{column}: {text}")
    }
}

/// A configuration that is not used, and all that is wrong with it, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration is refused: {}", self.0.join("\n  "))
    }
}

impl std::error::Error for Refused {}

/// Problems of one file, as they are found.
#[derive(Debug)]
pub struct Problems<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    /// None yet of `file`, whose content is `text`.
    pub fn of(file: &'a str, text: &'a str) -> Problems<'a> {
        Problems {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Notes a problem of the bytes `span`.
    pub fn note(&mut self, span: Range<usize>, text: impl fmt::Display) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        self.found.push(Problem {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            text: text.to_string(),
        });
    }

    /// Notes what serde refused: unknown keys with the nearest known one.
    pub fn note_syntax(&mut self, error: &toml::de::Error) {
        let message = error.message();
        let text = match suggestion(message) {
            Some(near) => format!("{message}; did you mean `{near}`?"),
            None => message.to_owned(),
        };
        self.note(error.span().unwrap_or(0..0), text.replace('\n', "; "));
    }

    /// All that was found.
    pub fn found(self) -> Vec<Problem> {
        self.found
    }
}

/// Serde names what it found and all that it expected, each in backticks, in this order.
fn suggestion(message: &str) -> Option<&str> {
    if !message.starts_with("unknown ") {
        return None;
    }
    let mut words = message.split('`').skip(1).step_by(2);
    fairpath_units::nearest(words.next()?, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_begin_at_1() {
        let mut problems = Problems::of("f", "a = 1\näö = 2\n");
        problems.note(0..1, "x");
        problems.note(11..12, "y");
        let shown: Vec<String> = problems.found().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["f:1:1: x", "f:2:4: y"]);
    }

    #[test]
    fn the_nearest_of_the_expected_words_is_suggested() {
        let message = "unknown field `intervl`, expected one of `interfaces`, `interval`, `hook`";
        assert_eq!(suggestion(message), Some("interval"));
        let far = "unknown field `zzzzzz`, expected `hook`";
        assert_eq!(suggestion(far), None);
        assert_eq!(suggestion("missing field `hook`"), None);
    }
}
