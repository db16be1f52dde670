//! Names in Rust code: a type says which report, row or line it is, and a test has a short name.
//!
//! The text is read without comments and strings. Words of the glossary are a separate rule (`words`).

use super::source::{Keep, mask};
use super::{File, Finding};

/// Type names that do not say which thing they are.
const BARE_TYPES: &[&str] = &["Report", "Row", "Line", "Way", "Told"];
/// The maximum number of words in the name of a test.
const TEST_WORDS: usize = 8;
const DEFINITIONS: &[&str] = &["struct", "enum", "union", "trait", "type"];

pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let findings = rust.flat_map(|file| {
        let code = mask(&file.text, Keep::Code);
        let mut findings = bare_types(file, &code);
        findings.extend(long_tests(file, &code));
        findings
    });
    findings.collect()
}

fn bare_types(file: &File, code: &str) -> Vec<Finding> {
    let is_bare = |words: &&[(usize, &str)]| {
        DEFINITIONS.contains(&words[0].1) && BARE_TYPES.contains(&words[1].1)
    };
    let words = words(code);
    let bare = words.windows(2).filter(is_bare);
    bare.map(|words| Finding {
        path: file.path.clone(),
        line: words[1].0,
        rule: "specific names of types",
        message: format!("the type `{}` could be any", words[1].1),
        remedy: format!("say which it is, for example `Latency{}`", words[1].1).into(),
    })
    .collect()
}

fn long_tests(file: &File, code: &str) -> Vec<Finding> {
    let name_after = |(at, attribute): (usize, &str)| {
        let rest = &code[at + attribute.len()..];
        let words = words(rest);
        let name = words.windows(2).find(|pair| pair[0].1 == "fn")?[1];
        Some((code[..at].matches('\n').count() + name.0, name.1))
    };
    let names = code.match_indices("#[test]").filter_map(name_after);
    let long = names.filter(|(_, name)| name.split('_').count() > TEST_WORDS);
    long.map(|(line, name)| Finding {
        path: file.path.clone(),
        line,
        rule: "short names of tests",
        message: format!("`{name}` has {} words", name.split('_').count()),
        remedy: format!("state the property in at most {TEST_WORDS} words").into(),
    })
    .collect()
}

/// The identifiers of code, each with its line.
fn words(code: &str) -> Vec<(usize, &str)> {
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
    let numbered = code.lines().zip(1..);
    let words = numbered.flat_map(|(line, number)| {
        let words = line.split(is_separator).filter(|word| !word.is_empty());
        words.map(move |word| (number, word))
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let findings = check(&[file("a.rs", text)]).into_iter();
        findings.map(|finding| finding.line).collect()
    }

    #[test]
    fn bare_type_names_are_refused() {
        for name in BARE_TYPES {
            for text in [
                format!("\npub struct {name} {{"),
                format!("\nenum {name}<'a> {{"),
                format!("struct\n{name};"),
                format!("\n    pub(crate) type {name} = u32;"),
            ] {
                assert_eq!(lines(&text), [2], "{text}");
            }
        }
    }

    #[test]
    fn qualified_type_names_and_uses_are_permitted() {
        for text in [
            "struct LatencyRow;",
            "enum Shape { Line, Row }",
            "use ratatui::text::Line;",
            "// a struct Row\n",
            "let text = \"struct Row\";",
        ] {
            assert!(lines(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn test_names_have_at_most_eight_words() {
        for (name, is_found) in [
            ("drr_honours_weights_above_64_in_both_families", false),
            ("drr_honours_weights_above_64_in_all_four_families", true),
        ] {
            for text in [
                format!("#[test]\nfn {name}() {{}}"),
                format!("#[test] // why\npub fn {name}(one in any()) {{}}"),
            ] {
                let expected: &[usize] = if is_found { &[2] } else { &[] };
                assert_eq!(lines(&text), expected, "{text}");
            }
        }
        let helper = "fn a_helper_whose_name_is_longer_than_eight_words() {}";
        assert!(lines(helper).is_empty());
    }
}
