//! The words that docs/glossary.md replaces: where they are, and what to write instead.
//!
//! The last section of the glossary is the list. words.toml has a row for each of its words: which forms
//! are searched, in which kinds of text, and where one is allowed. The table and the glossary must agree.
//!
//! A text is split into words at everything that is not a letter, and before capitals (`FlowFate`).
//! A phrase may span a line end, a hyphen or an underscore, but not other punctuation.

use super::source::{Keep, mask};
use super::{File, Finding, is_in, read_more, walk};
use anyhow::{Context, Result, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

pub const GLOSSARY: &str = "docs/glossary.md";
const SECTION: &str = "## Words that the project no longer uses";
const TABLE: &str = include_str!("words.toml");
/// Other files that people read, besides those of the other rules.
const MORE_EXTENSIONS: &[&str] = &["lua", "sh", "js", "css", "html", "yml", "service"];
const MORE_FILES: &[&str] = &[
    ".ci/run",
    "setup/needs",
    "setup/as-root",
    "setup/packages.txt",
    "packaging/install",
    "packaging/debian/control",
    "packaging/debian/postinst",
    "packaging/debian/postrm",
    "packaging/debian/prerm",
    "tests/vm/init",
    "tests/vm/debian",
];

/// List the words that docs/glossary.md replaces, with their replacements.
#[derive(clap::Args)]
pub struct Args {
    /// Print the number of findings for each directory and for each word
    #[arg(long)]
    count: bool,
    /// Files and directories to search, for example crates/model [default: all]
    #[arg(value_name = "PLACE")]
    places: Vec<String>,
}

/// The kinds of text.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Documents,
    Comments,
    Strings,
    Names,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    clean: Vec<String>,
    skip: Vec<Skip>,
    words: Vec<WordRow>,
    allow: Vec<Allowed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    place: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordRow {
    term: String,
    #[serde(default)]
    forms: Vec<String>,
    #[serde(default)]
    only: Vec<Kind>,
    #[serde(default)]
    except: Vec<String>,
    unchecked: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    term: String,
    place: String,
    #[serde(default)]
    only: Vec<Kind>,
    why: String,
}

/// One form of a replaced word, as a sequence of words.
struct Form {
    term: String,
    words: Vec<String>,
    only: Vec<Kind>,
    except: Vec<Vec<String>>,
    remedy: String,
}

/// The rule: the table joined with the replacements of the glossary.
pub struct Rule {
    clean: Vec<String>,
    skip: Vec<Skip>,
    allow: Vec<Allowed>,
    forms: Vec<Form>,
    /// Indices of forms by their first word, longest form first.
    by_first: HashMap<String, Vec<usize>>,
}

/// One replaced word in a file.
#[derive(Debug, PartialEq, Eq)]
struct Hit {
    path: String,
    line: usize,
    kind: Kind,
    term: String,
    remedy: String,
}

/// `cargo xtask words`: prints all findings and never fails because of them.
pub fn list(args: &Args) -> Result<()> {
    let files = files()?;
    let rule = Rule::read(&files)?;
    let is_chosen = |hit: &Hit| {
        args.places.is_empty() || args.places.iter().any(|place| is_in(&hit.path, place))
    };
    let hits: Vec<Hit> = rule.hits(&files).into_iter().filter(is_chosen).collect();
    if args.count {
        print_counts("directory", hits.iter().map(|hit| directory(&hit.path)));
        print_counts("word", hits.iter().map(|hit| hit.term.as_str()));
        println!("{}\ttotal", hits.len());
        return Ok(());
    }
    for Hit {
        path,
        line,
        kind,
        term,
        remedy,
    } in &hits
    {
        println!("{path}:{line}\t{kind:?}\t{term}\t{remedy}");
    }
    Ok(())
}

/// The findings in clean places.
pub fn check() -> Result<Vec<Finding>> {
    let files = files()?;
    let rule = Rule::read(&files)?;
    let is_clean = |hit: &Hit| rule.clean.iter().any(|place| is_in(&hit.path, place));
    let hits = rule.hits(&files).into_iter().filter(is_clean);
    Ok(hits.map(Finding::from).collect())
}

impl From<Hit> for Finding {
    fn from(hit: Hit) -> Finding {
        Finding {
            path: hit.path,
            line: hit.line,
            rule: "words of the glossary",
            message: format!("\"{}\" is replaced", hit.term),
            remedy: format!("write {}", hit.remedy).into(),
        }
    }
}

fn files() -> Result<Vec<File>> {
    let mut files = super::read_files()?;
    let more = walk(Path::new("."), MORE_EXTENSIONS)?;
    let named = MORE_FILES.iter().map(Into::into);
    let named = named.filter(|path: &std::path::PathBuf| path.exists());
    files.extend(read_more(more.into_iter().chain(named))?);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn print_counts<'a>(title: &str, keys: impl Iterator<Item = &'a str>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (key, count) in counts {
        println!("{count}\t{title}\t{key}");
    }
}

/// `crates/model/rtt` of a file of that crate, `docs/guide` of a guide page, `.` of a file in the root.
fn directory(path: &str) -> &str {
    let depth = match path.split('/').next() {
        Some("crates") => 3,
        Some("bpf" | "docs" | "tests") => 2,
        _ => 1,
    };
    let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
    let end = parent.match_indices('/').nth(depth - 1);
    end.map_or(parent, |(at, _)| &parent[..at])
}

impl Rule {
    fn read(files: &[File]) -> Result<Rule> {
        let glossary = files.iter().find(|file| file.path == GLOSSARY);
        let glossary = glossary.with_context(|| format!("no {GLOSSARY}"))?;
        Rule::new(TABLE, &glossary.text)
    }

    fn new(table: &str, glossary: &str) -> Result<Rule> {
        let table: Table = toml::from_str(table).context("read words.toml")?;
        let replaced = replaced(glossary);
        agree(&table, &replaced)?;
        let mut rule = Rule {
            clean: table.clean,
            skip: table.skip,
            allow: table.allow,
            forms: Vec::new(),
            by_first: HashMap::new(),
        };
        for row in table
            .words
            .into_iter()
            .filter(|row| row.unchecked.is_none())
        {
            let remedy = &replaced[&row.term];
            rule.add(row, remedy);
        }
        for indices in rule.by_first.values_mut() {
            indices.sort_by_key(|&i| std::cmp::Reverse(rule.forms[i].words.len()));
        }
        Ok(rule)
    }

    fn add(&mut self, row: WordRow, remedy: &str) {
        let forms = match row.forms.as_slice() {
            [] => std::slice::from_ref(&row.term),
            forms => forms,
        };
        for form in forms {
            let words = pattern(form);
            let indices = self.by_first.entry(words[0].clone()).or_default();
            indices.push(self.forms.len());
            self.forms.push(Form {
                term: row.term.clone(),
                words,
                only: row.only.clone(),
                except: row.except.iter().map(|phrase| pattern(phrase)).collect(),
                remedy: remedy.to_owned(),
            });
        }
    }

    fn hits(&self, files: &[File]) -> Vec<Hit> {
        let is_searched = |file: &&File| !self.skip.iter().any(|s| is_in(&file.path, &s.place));
        let searched = files.iter().filter(is_searched);
        searched.flat_map(|file| self.hits_of(file)).collect()
    }

    fn hits_of(&self, file: &File) -> Vec<Hit> {
        let ends: Vec<usize> = file.text.match_indices('\n').map(|(at, _)| at).collect();
        let mut hits = Vec::new();
        for (kind, text) in parts(file) {
            for (at, form) in self.search(&text, kind) {
                if !self.is_allowed(&form.term, &file.path, kind) {
                    hits.push(Hit {
                        path: file.path.clone(),
                        line: ends.partition_point(|&end| end < at) + 1,
                        kind,
                        term: form.term.clone(),
                        remedy: form.remedy.clone(),
                    });
                }
            }
        }
        hits.sort_by_key(|hit| hit.line);
        hits
    }

    fn is_allowed(&self, term: &str, path: &str, kind: Kind) -> bool {
        let fits = |allowed: &Allowed| {
            allowed.term == term
                && is_in(path, &allowed.place)
                && (allowed.only.is_empty() || allowed.only.contains(&kind))
        };
        self.allow.iter().any(fits)
    }

    /// Position and form of each replaced word in a text of one kind.
    fn search(&self, text: &str, kind: Kind) -> Vec<(usize, &Form)> {
        let text = Words::new(text, kind);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(range) = text.ranges.get(at) {
            let forms = self.by_first.get(text.word(at)).into_iter().flatten();
            let mut forms = forms.map(|&i| &self.forms[i]);
            if let Some(form) = forms.find(|form| text.has(at, form)) {
                found.push((range.start, form));
                at += form.words.len();
            } else {
                at += 1;
            }
        }
        found
    }
}

/// The words of one text.
struct Words {
    lower: String,
    ranges: Vec<Range<usize>>,
    kind: Kind,
}

impl Words {
    fn new(text: &str, kind: Kind) -> Words {
        Words {
            ranges: ranges(text),
            lower: text.to_ascii_lowercase(),
            kind,
        }
    }

    fn word(&self, at: usize) -> &str {
        &self.lower[self.ranges[at].clone()]
    }

    fn has(&self, at: usize, form: &Form) -> bool {
        let last = at + form.words.len() - 1;
        let applies = form.only.is_empty()
            || form.only.contains(&self.kind)
            || form.only.contains(&Kind::Names) && self.is_name(at, last);
        applies && self.matches(at, &form.words) && !self.is_excepted(at, form)
    }

    /// True if these words of a text are part of an identifier with underscores.
    fn is_name(&self, first: usize, last: usize) -> bool {
        let Some(end) = self.ranges.get(last) else {
            return false;
        };
        let before = self.lower[..self.ranges[first].start].ends_with('_');
        before || self.lower[end.end..].starts_with('_')
    }

    fn matches(&self, at: usize, words: &[String]) -> bool {
        let is_same = |(i, word): (usize, &String)| {
            let Some(range) = self.ranges.get(at + i) else {
                return false;
            };
            let found = &self.lower[range.clone()];
            let number = word == "#" && found.starts_with(|c: char| c.is_ascii_digit());
            (found == word || number) && (i == 0 || self.are_joined(at + i - 1))
        };
        words.iter().enumerate().all(is_same)
    }

    /// True if nothing ends a phrase between this word and the next one.
    fn are_joined(&self, at: usize) -> bool {
        let gap = &self.lower[self.ranges[at].end..self.ranges[at + 1].start];
        match self.kind {
            Kind::Names => gap.is_empty() || gap == "_",
            _ => {
                gap.chars()
                    .all(|c| c.is_whitespace() || "-_'’/!*#\\".contains(c))
                    && gap.matches('\n').count() <= 1
            }
        }
    }

    fn is_excepted(&self, at: usize, form: &Form) -> bool {
        form.except.iter().any(|phrase| {
            let starts = phrase.windows(form.words.len()).enumerate();
            let mut starts = starts.filter(|(_, part)| *part == form.words.as_slice());
            starts.any(|(start, _)| at >= start && self.matches(at - start, phrase))
        })
    }
}

/// The words of a form, as they are found in a text.
fn pattern(form: &str) -> Vec<String> {
    let pieces = form.split(|c: char| !c.is_ascii_alphanumeric() && c != '#');
    let pieces = pieces.filter(|piece| !piece.is_empty());
    pieces.map(str::to_ascii_lowercase).collect()
}

fn ranges(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = word_len(&bytes[at..]);
        if len > 0 {
            ranges.push(at..at + len);
        }
        at += len.max(1);
    }
    ranges
}

/// The length of the word or number that begins here, 0 if none does.
fn word_len(rest: &[u8]) -> usize {
    let run = |from: usize, fits: fn(&u8) -> bool| {
        rest[from..].iter().take_while(|byte| fits(byte)).count()
    };
    let digits = run(0, u8::is_ascii_digit);
    if digits > 0 {
        return digits;
    }
    let upper = run(0, u8::is_ascii_uppercase);
    let lower = run(upper, u8::is_ascii_lowercase);
    match (upper, lower) {
        // `XDPProgram`: the last capital begins the next word.
        (2.., 1..) => upper - 1,
        _ => upper + lower,
    }
}

/// The texts of a file by kind, each as long as the file with everything else blank.
fn parts(file: &File) -> Vec<(Kind, String)> {
    let extension = file
        .path
        .rsplit_once('.')
        .map_or("", |(_, extension)| extension);
    match extension {
        "md" if file.path == GLOSSARY => {
            let end = file.text.find(SECTION).unwrap_or(file.text.len());
            vec![(Kind::Documents, prose(&file.text[..end]))]
        }
        "md" => vec![(Kind::Documents, prose(&file.text))],
        "rs" | "c" | "h" => {
            let with_strings = mask(&file.text, Keep::CodeAndStrings);
            let code = mask(&file.text, Keep::Code);
            let comments = difference(&file.text, &with_strings);
            let strings = without_escapes(difference(&with_strings, &code));
            vec![
                (Kind::Comments, text_of(comments)),
                (Kind::Strings, text_of(strings)),
                (Kind::Names, code),
            ]
        }
        _ => vec![(Kind::Strings, file.text.clone())],
    }
}

/// Markdown without code, link targets and marks.
fn prose(text: &str) -> String {
    let blank = |byte: u8| if byte == b'\n' { byte } else { b' ' };
    let mut kept: Vec<u8> = text.bytes().map(blank).collect();
    let mut in_code = false;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(_) if !in_code => {
                kept[range.clone()].copy_from_slice(&text.as_bytes()[range]);
            }
            // Ends a phrase.
            Event::Code(_) => kept[range.start] = b'.',
            _ => {}
        }
    }
    text_of(kept)
}

/// The bytes of `whole` that `less` lacks; both have the same length.
fn difference(whole: &str, less: &str) -> Vec<u8> {
    let pairs = whole.bytes().zip(less.bytes());
    pairs
        .map(|(byte, other)| match byte {
            b'\n' => byte,
            _ if byte == other => b' ',
            _ => byte,
        })
        .collect()
}

/// String literals with spaces instead of `\n`, `\"` and other escapes.
fn without_escapes(mut text: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at + 1 < text.len() {
        if text[at] == b'\\' && text[at + 1].is_ascii() && text[at + 1] != b'\n' {
            text[at..at + 2].fill(b' ');
            at += 1;
        }
        at += 1;
    }
    text
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("whole characters were replaced by spaces")
}

/// The words of the glossary's last section, each with its replacement.
fn replaced(glossary: &str) -> BTreeMap<String, String> {
    let mut replaced: BTreeMap<String, String> = BTreeMap::new();
    let section = glossary
        .split_once(SECTION)
        .map_or("", |(_, section)| section);
    let rows = section.lines().filter_map(|line| {
        let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let (left, right) = line.split_once('|')?;
        Some((left.trim(), right.trim()))
    });
    let is_row = |(left, _): &(&str, &str)| !left.starts_with("---") && *left != "no longer";
    for (left, right) in rows.filter(is_row) {
        let (terms, context) = left.split_once('(').unwrap_or((left, ""));
        let context = context.trim_end_matches(')');
        let remedy = match context {
            "" => right.to_owned(),
            context => format!("{right} ({context})"),
        };
        for term in terms.split(',') {
            let known = replaced.entry(term.trim().to_owned()).or_default();
            let separator = if known.is_empty() { "" } else { "; " };
            known.push_str(&format!("{separator}{remedy}"));
        }
    }
    replaced
}

/// Fails if words.toml and the glossary differ, or if a row is incomplete.
fn agree(table: &Table, replaced: &BTreeMap<String, String>) -> Result<()> {
    let rows: BTreeSet<&String> = table.words.iter().map(|row| &row.term).collect();
    ensure!(
        rows.len() == table.words.len(),
        "words.toml has two rows of one term"
    );
    let terms: BTreeSet<&String> = replaced.keys().collect();
    let missing: Vec<_> = terms.difference(&rows).collect();
    ensure!(
        missing.is_empty(),
        "{GLOSSARY} replaces {missing:?}, and xtask/src/tidy/words.toml has no such rows; remedy: add them"
    );
    let unknown: Vec<_> = rows.difference(&terms).collect();
    ensure!(
        unknown.is_empty(),
        "xtask/src/tidy/words.toml has rows of {unknown:?}, which {GLOSSARY} does not replace; remedy: remove them"
    );
    let reasons = table.words.iter().filter_map(|row| row.unchecked.as_ref());
    let reasons = reasons.chain(table.allow.iter().map(|allowed| &allowed.why));
    let mut reasons = reasons.chain(table.skip.iter().map(|skip| &skip.why));
    ensure!(
        reasons.all(|why| !why.is_empty()),
        "words.toml has an empty reason"
    );
    let unknown = table
        .allow
        .iter()
        .find(|allowed| !rows.contains(&allowed.term));
    ensure!(
        unknown.is_none(),
        "words.toml allows {:?}, which it does not refuse",
        unknown.map(|allowed| &allowed.term)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const SMALL: &str = "# G\n\n## Words that the project no longer uses\n\n| no longer | instead |\n|---|---|\n\
        | fate | outcome |\n| way (up, down) | direction |\n| by itself, of its own | separate |\n\
        | gone (of links) | removed |\n| gone (of files) | deleted |\n| some (before a number) | about |\n\
        | stands | is |\n| see | receive |\n";
    const ROWS: &str = r##"
        clean = ["clean"]
        skip = [{ place = "skipped", why = "x" }]
        words = [
            { term = "fate", forms = ["fate", "fates"] },
            { term = "way", only = ["names"] },
            { term = "by itself" },
            { term = "of its own" },
            { term = "gone", only = ["documents", "names"] },
            { term = "some", forms = ["some #"] },
            { term = "stands", except = ["stands for"] },
            { term = "see", unchecked = "x" },
        ]
        allow = [{ term = "fate", place = "old", only = ["names"], why = "x" }]
    "##;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let rule = Rule::new(ROWS, SMALL).unwrap();
        let hits = rule.hits(&[file(path, text)]);
        hits.into_iter().map(|hit| (hit.line, hit.term)).collect()
    }

    fn count(path: &str, text: &str) -> usize {
        found(path, text).len()
    }

    #[test]
    fn table_and_glossary_agree() {
        let glossary = std::fs::read_to_string(crate::run::root().join(GLOSSARY)).unwrap();
        Rule::new(TABLE, &glossary).unwrap();
    }

    #[test]
    fn a_difference_between_table_and_glossary_fails() {
        let more = format!("{SMALL}| lane | instance |\n");
        assert!(Rule::new(ROWS, &more).is_err());
        let less = SMALL.replace("| fate | outcome |\n", "");
        assert!(Rule::new(ROWS, &less).is_err());
    }

    #[test]
    fn the_remedy_comes_from_the_glossary() {
        let replaced = replaced(SMALL);
        assert_eq!(replaced["fate"], "outcome");
        assert_eq!(replaced["gone"], "removed (of links); deleted (of files)");
        assert_eq!(replaced["of its own"], "separate");
    }

    #[test]
    fn identifiers_are_split_at_underscores_and_capitals() {
        for code in [
            "fn fp_meet_fate();",
            "struct Fate;",
            "enum PacketFate {}",
            "let fates = 1;",
            "const FATE: u8;",
        ] {
            assert_eq!(count("a.rs", code), 1, "{code}");
        }
        for code in ["let fatal = 1;", "struct Fated;", "let away = 1;"] {
            assert_eq!(count("a.rs", code), 0, "{code}");
        }
    }

    #[test]
    fn comments_strings_and_documents_are_searched() {
        assert_eq!(found("a.rs", "x\n// the fate\n"), [(2, "fate".to_owned())]);
        assert_eq!(found("a.c", "f(\"\\nfate\");\n"), [(1, "fate".to_owned())]);
        assert_eq!(count("a.md", "# Fate\n\n| fate |\n|---|\n| a |\n"), 2);
        assert_eq!(
            count("a.md", "`fate`\n\n```\nfate\n```\n\n[a](fate.md)\n"),
            0
        );
        assert_eq!(count("setup/a", "# fate\n"), 1);
    }

    #[test]
    fn a_phrase_may_span_lines_but_no_sentences() {
        assert_eq!(count("a.rs", "// it runs by\n// itself\n"), 1);
        assert_eq!(count("a.rs", "\"it runs by \\\n   itself\""), 1);
        assert_eq!(count("a.md", "a file of\nits own"), 1);
        assert_eq!(count("a.md", "it passes by. Itself"), 0);
        assert_eq!(count("a.md", "by `x` itself"), 0);
        assert_eq!(count("a.md", "by\n\nitself"), 0);
        assert_eq!(count("a.rs", "by(itself); by[itself]"), 0);
    }

    #[test]
    fn word_of_names_is_found_in_names_only() {
        assert_eq!(
            count("a.rs", "// the way\nlet way_up = \"way_up a way\";"),
            2
        );
        assert_eq!(count("a.md", "the way"), 0);
    }

    #[test]
    fn exceptions_and_numbers_count() {
        assert_eq!(count("a.md", "GSO stands for it. It stands."), 1);
        assert_eq!(count("a.md", "some packets, some 20 packets"), 1);
    }

    #[test]
    fn places_are_skipped_and_allowed() {
        assert_eq!(count("skipped/a.md", "fate"), 0);
        assert_eq!(count("old/a.rs", "let fate = 1; // fate"), 1);
        assert_eq!(count("older/a.rs", "let fate = 1; // fate"), 2);
        assert_eq!(
            count(
                GLOSSARY,
                "fate\n\n## Words that the project no longer uses\n\nfate\n"
            ),
            1
        );
    }

    #[test]
    fn directories_are_those_of_owners() {
        assert_eq!(directory("crates/model/rtt/src/a/b.rs"), "crates/model/rtt");
        assert_eq!(directory("docs/guide/lab/voice.md"), "docs/guide");
        assert_eq!(directory("docs/faq.md"), "docs");
        assert_eq!(directory("xtask/src/a.rs"), "xtask");
        assert_eq!(directory("README.md"), ".");
    }
}
