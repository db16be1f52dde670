//! Classes in TOML: `[[class]]` tables of a separate file or of the daemon's configuration.
//!
//! serde reads any keys and values with their spans. So one wrong key does not hide the next, and every
//! problem has line and column.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use crate::draft::{Draft, Drafts};
use crate::key::{self, Key};
use crate::problem::{ProblemKind, Problems};
use crate::source::Place;

/// Any value of TOML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// An integer or a float, as written in decimal.
    Number(String),
    List(Vec<Spanned<Value>>),
    Table(Table),
    /// A boolean or a date.
    Other,
}

/// Keys and values in the order of the file.
pub(crate) type Table = Vec<(Spanned<String>, Spanned<Value>)>;

/// One unchecked `[[class]]` table. [`Drafts::read_entries`] reports unknown keys and invalid values.
/// serde refuses only values that are not tables.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassEntry(pub(crate) Table);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

impl<'de> Deserialize<'de> for ClassEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClassEntry, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Table(table) => Ok(ClassEntry(table)),
            _ => Err(D::Error::custom(
                "a class must be a table: begin it with [[class]]",
            )),
        }
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Table::new();
        while let Some(entry) = entries.next_entry()? {
            table.push(entry);
        }
        Ok(Value::Table(table))
    }
}

impl Drafts {
    /// Reads the `[[class]]` tables that serde parsed from `text`, the content of `file`. O(classes).
    pub fn read_entries(&mut self, file: &str, text: &str, entries: Vec<Spanned<ClassEntry>>) {
        let start = self.sources.add(file, text);
        for entry in entries {
            let place = start.at(entry.span().start);
            let draft = draft(entry.into_inner().0, place, &mut self.problems);
            self.push(draft);
        }
    }
}

/// The draft of a table.
pub(crate) fn draft(mut table: Table, place: Place, problems: &mut Problems) -> Draft {
    let mut draft = Draft {
        place,
        ..Draft::default()
    };
    // The name first, because every message contains it.
    table.sort_by_key(|(key, _)| (key.get_ref() != Key::Name.word(), key.span().start));
    let before = problems.errors();
    let mut named = false;
    for (key, value) in table {
        let at = place.at(value.span().start);
        let key_place = place.at(key.span().start);
        match Key::find(key.get_ref()) {
            Some(known) => {
                named |= known == Key::Name;
                take(&mut draft, known, value.into_inner(), at, problems);
            }
            None if key.get_ref() == "attributes" => {
                attributes(&mut draft, value.into_inner(), at, problems);
            }
            None => {
                let suggestion = key::suggestion(key.get_ref());
                let text = format!(
                    "{}: unknown key \"{}\": {suggestion}",
                    draft.subject(),
                    key.get_ref()
                );
                problems.error(ProblemKind::Key, key_place, &draft.name, text);
            }
        }
    }
    draft.require_name(problems, named && problems.errors() > before);
    draft
}

fn take(draft: &mut Draft, key: Key, value: Value, place: Place, problems: &mut Problems) {
    match value {
        Value::Text(text) => draft.set(key, &text, place, problems),
        Value::Number(text) if key.may_be_number() => draft.set(key, &text, place, problems),
        Value::List(items) if key.is_list() => {
            for item in items {
                let at = place.at(item.span().start);
                match item.into_inner() {
                    Value::List(_) => refuse(draft, key, at, problems),
                    other => take(draft, key, other, at, problems),
                }
            }
        }
        _ => refuse(draft, key, place, problems),
    }
}

fn refuse(draft: &Draft, key: Key, place: Place, problems: &mut Problems) {
    let expected = match (key.is_list(), key.may_be_number()) {
        (true, true) => "a number, a string or a list of them",
        (true, false) => "a string or a list of strings",
        (false, true) => "a string or a number",
        (false, false) => "a string",
    };
    let text = format!("{}: {} must be {expected}", draft.subject(), key.word());
    problems.error(ProblemKind::Value, place, &draft.name, text);
}

fn attributes(draft: &mut Draft, value: Value, place: Place, problems: &mut Problems) {
    let Value::Table(table) = value else {
        let text = format!(
            "{}: attributes must be a table such as {{ plan = \"gold\" }}",
            draft.subject()
        );
        problems.error(ProblemKind::Value, place, &draft.name, text);
        return;
    };
    for (name, value) in table {
        let at = place.at(value.span().start);
        match value.into_inner() {
            Value::Text(text) | Value::Number(text) => draft.attribute(name.get_ref(), &text),
            _ => {
                let text = format!(
                    "{}: attribute \"{}\" must be a string",
                    draft.subject(),
                    name.get_ref()
                );
                problems.error(ProblemKind::Value, at, &draft.name, text);
            }
        }
    }
}
