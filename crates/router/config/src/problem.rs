//! Problems of a configuration, with their place and a suggestion.

use std::fmt;
use std::ops::Range;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Object, problem and remedy.
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

/// The problems of a refused configuration, each as `file:line:column: text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid configuration: {}", self.0.join("\n  "))
    }
}

impl std::error::Error for Refused {}

/// Keys whose option has another name than the key with dashes.
const OPTIONS: [(&str, &str); 9] = [
    ("[shape] packets", "--max-packets"),
    ("[shape] max_sojourn", "--max-sojourn"),
    ("[shape] queue", "--queue-num"),
    ("class_files", "--class-file"),
    ("[monitor] interfaces", "-i"),
    ("[monitor] uplinks", "--uplink"),
    ("[monitor] only", "--only"),
    ("[monitor] except", "--exclude"),
    ("[monitor] interval", "--interval"),
];

impl Refused {
    /// The problems of a configuration that was made from options, in terms of these options.
    pub fn of_options(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(|text| of_options(text)).collect();
        texts.join("; ")
    }
}

/// An error of a program whose configuration was made from options, in terms of these options.
pub fn error_of_options(error: anyhow::Error) -> anyhow::Error {
    match format!("{error:#}") {
        text if text.contains("[shape] ") => anyhow::anyhow!("{}", of_options(&text)),
        _ => error,
    }
}

/// Removes the place, which is in no file of the user, and replaces keys.
fn of_options(text: &str) -> String {
    let mut text = match text.splitn(4, ':').collect::<Vec<_>>()[..] {
        ["command line", _, _, rest] => rest.trim_start().to_owned(),
        _ => text.to_owned(),
    };
    for (key, option) in OPTIONS {
        text = text.replace(key, option);
    }
    while let Some(at) = text.find("[shape] ") {
        let key: String = text[at + "[shape] ".len()..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_')
            .collect();
        let option = format!("--{}", key.replace('_', "-"));
        text.replace_range(at..at + "[shape] ".len() + key.len(), &option);
        // `--key = "word"` is `--key word`.
        let value = at + option.len();
        if let Some(word) = text[value..].strip_prefix(" = \"") {
            let word = word.split('"').next().unwrap_or_default().to_owned();
            let quoted = " = \"\"".len() + word.len();
            text.replace_range(value..value + quoted, &format!(" {word}"));
        }
    }
    text
}

/// Problems of one file, as they are found.
#[derive(Debug)]
pub struct Problems<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    /// No problems yet, of `file` with content `text`.
    pub fn of(file: &'a str, text: &'a str) -> Problems<'a> {
        Problems {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Adds a problem of the bytes `span`.
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

    /// Adds an error of serde; for an unknown key, with the nearest valid one.
    pub fn note_syntax(&mut self, error: &toml::de::Error) {
        let message = error.message();
        let text = match suggestion(message) {
            Some(near) => format!("{message}; did you mean `{near}`?"),
            None => self.of_type(error).unwrap_or_else(|| message.to_owned()),
        };
        self.note(error.span().unwrap_or(0..0), text.replace('\n', "; "));
    }

    /// An error about the type of a value, with its key and how to write it.
    fn of_type(&self, error: &toml::de::Error) -> Option<String> {
        let message = error.message();
        let (_, expected) = message
            .strip_prefix("invalid type: ")?
            .rsplit_once(", expected ")?;
        let remedy = match expected {
            "a string" => "write it in quotes, with its unit if it has one",
            "a boolean" => "write true or false, without quotes",
            "i64" | "f64" => "write a number, without quotes",
            "a sequence" => "write a list: [\"...\", \"...\"]",
            _ => return None,
        };
        let before = self.text.get(..error.span()?.start)?;
        let line = before.rsplit('\n').next()?;
        let (key, _) = line.rsplit_once('=')?;
        let key = key.trim_end().rsplit([' ', '{', ',']).next()?;
        Some(format!("{key}: {message}: {remedy}"))
    }

    /// All problems.
    pub fn found(self) -> Vec<Problem> {
        self.found
    }
}

/// Serde names the key and all expected keys in backticks, in this order.
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
    fn values_of_another_type_name_key_and_remedy() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only its errors are read")]
        struct File {
            time: Option<String>,
            on: Option<bool>,
            count: Option<i64>,
            list: Option<Vec<String>>,
        }
        for (text, key, remedy) in [
            ("# x = y\ntime = 5", "f:2:8: time: ", "write it in quotes"),
            ("on = \"yes\"", "f:1:6: on: ", "write true or false"),
            ("count = \"5\"", "f:1:9: count: ", "write a number"),
            ("list = \"a\"", "f:1:8: list: ", "write a list"),
        ] {
            let mut problems = Problems::of("f", text);
            problems.note_syntax(&toml::from_str::<File>(text).unwrap_err());
            let shown = problems.found()[0].to_string();
            assert!(shown.starts_with(key) && shown.contains(remedy), "{shown}");
        }
    }

    #[test]
    fn problems_of_options_name_options() {
        let refused = Refused(vec![
            "command line:3:8: [shape] down: rate \"5\" has no unit".to_owned(),
            "command line:1:1: [shape] packets: 1 is too small".to_owned(),
            "command line:2:1: [shape] via: refused: remove [shape] on_failure = \"stop\", or more"
                .to_owned(),
            "a.csv:2:1: error: class \"x\"".to_owned(),
        ]);
        assert_eq!(
            refused.of_options(),
            "--down: rate \"5\" has no unit; --max-packets: 1 is too small; \
             --via: refused: remove --on-failure stop, or more; a.csv:2:1: error: class \"x\""
        );
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
