//! A rule set from text, for all suites of this crate.

use fairpath_rules::{Family, Names, Ruleset, read};

/// Reads a valid save file.
pub fn ruleset(family: Family, text: &str) -> Ruleset {
    read(&mut text.as_bytes(), "test", family, &Names::default())
        .expect("memory")
        .complete()
        .unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}
