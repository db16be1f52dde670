//! Texts, and positions in them.
//!
//! A [`Place`] is a file and a byte offset in eight bytes, so that every value can store its position.
//! Line and column are computed only for messages.

use std::sync::Arc;

/// A position: a byte of one of the [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub(crate) file: u32,
    pub(crate) offset: u32,
}

impl Place {
    /// The byte `offset` of the same file, at most 4 GiB.
    pub(crate) fn at(self, offset: usize) -> Place {
        Place {
            file: self.file,
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
        }
    }
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its position.
    pub place: Place,
}

impl<T> At<T> {
    /// `value` at `place`.
    pub fn new(value: T, place: Place) -> At<T> {
        At { value, place }
    }
}

/// A position for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name of the file.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

struct Source {
    name: Arc<str>,
    text: String,
    /// Offset of the first byte of each line, computed for the first message.
    lines: std::cell::OnceCell<Vec<usize>>,
}

/// The texts that were read.
#[derive(Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Stores a copy of `text`, named `name` in messages. Returns the position of its first byte.
    pub fn add(&mut self, name: &str, text: &str) -> Place {
        self.files.push(Source {
            name: name.into(),
            text: text.to_owned(),
            lines: std::cell::OnceCell::new(),
        });
        Place {
            file: (self.files.len() - 1) as u32,
            offset: 0,
        }
    }

    /// File, line and column of `place`. O(log lines), after O(bytes) for the first of a file.
    pub fn locate(&self, place: Place) -> Location {
        let Some(source) = self.files.get(place.file as usize) else {
            return Location {
                file: "".into(),
                line: 1,
                column: 1,
            };
        };
        let starts = source.lines.get_or_init(|| line_starts(&source.text));
        let offset = (place.offset as usize).min(source.text.len());
        let line = starts.partition_point(|start| *start <= offset);
        let start = starts[line - 1];
        // An offset inside a character counts as that character.
        let before = &source.text.as_bytes()[start..offset];
        let characters = before.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        Location {
            file: source.name.clone(),
            line: line as u32,
            column: characters as u32 + 1,
        }
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0)
        .chain(after_newlines.map(|(at, _)| at + 1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let mut sources = Sources::default();
        sources.add("one", "x");
        let start = sources.add("two", "ä = 1\nbö = 2\n");
        let located = |offset| sources.locate(start.at(offset)).to_string();
        assert_eq!(located(0), "two:1:1");
        assert_eq!(located(3), "two:1:3");
        assert_eq!(located(7), "two:2:1");
        assert_eq!(located(11), "two:2:4");
        assert_eq!(located(1000), "two:3:1");
    }
}
