//! Words of a line, with their columns, as `ipset restore` splits it: white space separates, and a
//! pair of `"` protects white space. There is no escape character.

use crate::LineError;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// A piece of a line and its column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub column: u32,
    pub text: &'a str,
}

impl<'a> Part<'a> {
    pub fn error(self, text: impl Into<String>) -> LineError {
        LineError::new(self.column, text)
    }

    /// The parts before and after the first `separator`.
    pub fn split(self, separator: char) -> Option<(Part<'a>, Part<'a>)> {
        let at = self.text.find(separator)?;
        let after = at + separator.len_utf8();
        let first = Part {
            text: &self.text[..at],
            ..self
        };
        let second = Part {
            column: self.column + after as u32,
            text: &self.text[after..],
        };
        Some((first, second))
    }

    /// A number within `limits`: decimal, octal with the prefix `0`, or hexadecimal with `0x`.
    pub fn number(self, name: &str, limits: RangeInclusive<u64>) -> Result<u64, LineError> {
        let value = parse_number(self.text);
        value.filter(|value| limits.contains(value)).ok_or_else(|| {
            let (min, max) = limits.into_inner();
            let text = self.text;
            let problem = match value {
                Some(_) => "is out of range",
                None => "is not a number",
            };
            self.error(format!("{name} \"{text}\" {problem}: write {min} to {max}"))
        })
    }
}

/// The bases of `strtoull` with base 0, without its sign and its leading space.
fn parse_number(text: &str) -> Option<u64> {
    let (digits, base) = if let Some(digits) = text.strip_prefix("0x") {
        (digits, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    // `from_str_radix` takes a sign.
    digits
        .bytes()
        .all(|b| b.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, base).ok())?
}

/// A word of a line.
#[derive(Debug, Clone)]
pub(super) struct Word<'a> {
    column: u32,
    text: Cow<'a, str>,
    quoted: bool,
}

impl Word<'_> {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn part(&self) -> Part<'_> {
        Part {
            column: self.column,
            text: &self.text,
        }
    }

    pub fn error(&self, text: impl Into<String>) -> LineError {
        self.part().error(text)
    }

    /// True for the flag that ignores existing sets and elements.
    pub fn is_exist(&self) -> bool {
        matches!(self.text(), "-exist" | "--exist" | "-!" | "--!")
    }

    /// Appends the word as it was written.
    pub fn append_to(&self, out: &mut String) {
        if self.quoted {
            out.push('"');
        }
        out.push_str(&self.text);
        if self.quoted {
            out.push('"');
        }
    }
}

/// The words of a line that are not read yet.
#[derive(Clone)]
pub(super) struct Words<'a> {
    line: &'a str,
    at: usize,
    /// True after the flag `-exist` was read.
    pub exist: bool,
    /// The time in nanoseconds at which the line is applied, of sets whose elements end.
    pub now: Option<u64>,
    /// True for the text of loaded sets, which has the ends of elements.
    pub has_ends: bool,
}

impl<'a> Words<'a> {
    pub fn new(line: &'a str, now: Option<u64>) -> Self {
        Words {
            line,
            at: 0,
            exist: false,
            now,
            has_ends: false,
        }
    }

    /// The next word, which may be the flag `-exist`.
    pub fn next_any(&mut self) -> Result<Option<Word<'a>>, LineError> {
        loop {
            let rest = &self.line[self.at..];
            self.at += rest.len() - rest.trim_start_matches(is_space).len();
            if self.at == self.line.len() {
                return Ok(None);
            }
            let word = self.word()?;
            // As in ipset, `""` is no word.
            if !word.text.is_empty() {
                return Ok(Some(word));
            }
        }
    }

    /// The next word that is not the flag `-exist`.
    pub fn next(&mut self) -> Result<Option<Word<'a>>, LineError> {
        while let Some(word) = self.next_any()? {
            if !word.is_exist() {
                return Ok(Some(word));
            }
            self.exist = true;
        }
        Ok(None)
    }

    /// The next word, which `name` requires.
    pub fn require(&mut self, name: &str) -> Result<Word<'a>, LineError> {
        let column = self.end();
        self.next()?
            .ok_or_else(|| LineError::new(column, format!("the {name} is missing: add it")))
    }

    /// The value of the option `word`.
    pub fn value(&mut self, word: &Word) -> Result<Word<'a>, LineError> {
        self.next_any()?.ok_or_else(|| {
            let name = word.text();
            word.error(format!("option \"{name}\" has no value: write one"))
        })
    }

    /// An error for a word that remains.
    pub fn finish(&mut self) -> Result<(), LineError> {
        match self.next()? {
            None => Ok(()),
            Some(word) => Err(unknown(&word)),
        }
    }

    /// The remaining words as they were written, with a space before each.
    pub fn rest(&mut self) -> Result<String, LineError> {
        let mut text = String::new();
        while let Some(word) = self.next()? {
            text.push(' ');
            word.append_to(&mut text);
        }
        Ok(text)
    }

    fn end(&self) -> u32 {
        self.line.trim_end_matches(is_space).len() as u32 + 1
    }

    fn word(&mut self) -> Result<Word<'a>, LineError> {
        let start = self.at;
        let bytes = self.line.as_bytes();
        let (mut quoted, mut open) = (false, false);
        while self.at < bytes.len() && (open || !is_space(bytes[self.at] as char)) {
            let quote = bytes[self.at] == b'"';
            open ^= quote;
            quoted |= quote;
            self.at += 1;
        }
        let column = start as u32 + 1;
        if open {
            let text = "a quotation mark is not closed: add \" after the text";
            return Err(LineError::new(column, text));
        }
        let text = &self.line[start..self.at];
        let text = match quoted {
            true => Cow::Owned(text.replace('"', "")),
            false => Cow::Borrowed(text),
        };
        Ok(Word {
            column,
            text,
            quoted,
        })
    }
}

/// The error for a word that the command does not use.
pub(super) fn unknown(word: &Word) -> LineError {
    let text = word.text();
    word.error(format!(
        "option \"{text}\" is unknown to this command and set type: remove it"
    ))
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<(u32, String)> {
        let mut words = Words::new(line, None);
        let mut found = Vec::new();
        while let Some(word) = words.next_any().unwrap() {
            found.push((word.column, word.text().to_owned()));
        }
        found
    }

    #[test]
    fn quotation_marks_protect_white_space() {
        let expected = [(2, "add".to_owned()), (6, "ab  c".to_owned())];
        assert_eq!(texts("\tadd a\"b  c\" \"\"\r\n"), expected);
    }

    #[test]
    fn an_open_quotation_mark_is_refused() {
        let error = Words::new("add \"x", None).rest().unwrap_err();
        assert_eq!(error.column, 5);
    }

    #[test]
    fn numbers_have_the_bases_of_strtoull() {
        let cases = [
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("10", Some(10)),
            ("0", Some(0)),
            ("08", None),
            ("+1", None),
            ("0x+1", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_number(text), expected, "{text}");
        }
    }
}
