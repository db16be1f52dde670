//! Reads a configuration file: its `[[class]]` tables, and its references to other files.
//!
//! Other sections are ignored. Classes are taken from the parser's tree one by one, so that 100,000
//! classes need memory once.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::draft::Drafts;
use crate::entry::{Table, Value, draft};
use crate::problem::{ProblemKind, Problems};
use crate::source::{At, Place};

/// References of a configuration file to other files.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// `class_files`: more files with classes, as written there.
    pub class_files: Vec<At<String>>,
    /// `file` of `[labels]`.
    pub labels: Option<At<String>>,
    /// True if `[monitor]` names `uplinks`.
    pub uplinks: bool,
}

impl Drafts {
    /// Reads the `[[class]]` tables of a configuration file, and returns its references. Other sections
    /// are ignored. O(bytes).
    pub fn read_toml(&mut self, file: &str, text: &str) -> References {
        let start = self.sources.add(file, text);
        let (parsed, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            note(error, start, &mut self.problems);
        }
        let mut references = References::default();
        for (key, value) in parsed.into_inner() {
            let place = start.at(value.span().start);
            match (key.get_ref().as_ref(), value.into_inner()) {
                ("class", DeValue::Array(entries)) => self.read_array(entries, start),
                ("class", _) => {
                    let text = "class is no list of tables; begin each class with [[class]]";
                    self.problems
                        .error(ProblemKind::Key, place, "", text.to_owned());
                }
                (key, value) => refer(&mut references, key, value, start),
            }
        }
        references
    }

    fn read_array(&mut self, entries: DeArray<'_>, start: Place) {
        for entry in entries {
            let place = start.at(entry.span().start);
            match entry.into_inner() {
                DeValue::Table(entries) => {
                    let draft = draft(table(entries), place, &mut self.problems);
                    self.push(draft);
                }
                _ => {
                    let text = "a class must be a table: begin it with [[class]]".to_owned();
                    self.problems.error(ProblemKind::Value, place, "", text);
                }
            }
        }
    }
}

fn note(error: &toml::de::Error, start: Place, problems: &mut Problems) {
    let at = error.span().map_or(0, |span| span.start);
    let text = format!("no TOML: {}", error.message());
    problems.error(ProblemKind::Syntax, start.at(at), "", text);
}

/// Reads references. The daemon refuses values of the wrong type.
fn refer(references: &mut References, key: &str, value: DeValue<'_>, start: Place) {
    match (key, value) {
        ("class_files", DeValue::Array(files)) => {
            let files = files.into_iter().filter_map(|file| as_text(file, start));
            references.class_files = files.collect();
        }
        ("labels", DeValue::Table(labels)) => {
            references.labels = find(labels, "file").and_then(|file| as_text(file, start));
        }
        ("monitor", DeValue::Table(monitor)) => {
            let uplinks = find(monitor, "uplinks").map(Spanned::into_inner);
            references.uplinks = matches!(uplinks, Some(DeValue::Array(list)) if !list.is_empty());
        }
        _ => {}
    }
}

fn find<'t>(table: DeTable<'t>, wanted: &str) -> Option<Spanned<DeValue<'t>>> {
    let found = table.into_iter().find(|(key, _)| key.get_ref() == wanted);
    found.map(|(_, value)| value)
}

fn as_text(value: Spanned<DeValue<'_>>, start: Place) -> Option<At<String>> {
    let place = start.at(value.span().start);
    match value.into_inner() {
        DeValue::String(text) => Some(At::new(text.into_owned(), place)),
        _ => None,
    }
}

impl From<DeValue<'_>> for Value {
    fn from(value: DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.into_owned()),
            // Converted to decimal.
            DeValue::Integer(number) => {
                let decimal = i128::from_str_radix(number.as_str(), number.radix());
                Value::Number(decimal.map_or_else(|_| number.to_string(), |n| n.to_string()))
            }
            DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
            DeValue::Array(items) => Value::List(items.into_iter().map(respanned).collect()),
            DeValue::Table(entries) => Value::Table(table(entries)),
            DeValue::Boolean(_) | DeValue::Datetime(_) => Value::Other,
        }
    }
}

/// A value of the parser in the form of serde.
fn table(entries: DeTable<'_>) -> Table {
    let entries = entries.into_iter().map(|(key, value)| {
        let key = Spanned::new(key.span(), key.into_inner().into_owned());
        (key, respanned(value))
    });
    entries.collect()
}

fn respanned(value: Spanned<DeValue<'_>>) -> Spanned<Value> {
    Spanned::new(value.span(), value.into_inner().into())
}
