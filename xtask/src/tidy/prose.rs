//! Sentences are short: at most 20 words on average, and never more than 40.
//!
//! Documents are checked without code, tables, headings and link targets; an item of a list is a
//! sentence. Help texts are checked as `fairpath generate man` writes them. prose.toml lists the texts
//! that are checked.

use super::{File, Finding, is_in};
use anyhow::{Context, Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Deserialize;
use std::ops::Range;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("prose.toml");
/// The highest mean number of words in the sentences of a text.
const MEAN: usize = 20;
/// The highest number of words in a sentence.
const LONGEST: usize = 40;
/// Stands for inline code, which counts as one word.
const CODE: char = '\u{fffc}';
/// Abbreviations after which a sentence continues.
const ABBREVIATIONS: [&str; 9] = ["e.g", "i.e", "cf", "vs", "approx", "incl", "dr", "mr", "ca"];
/// Those after which it continues before a number.
const NUMBERED: [&str; 7] = ["fig", "no", "sec", "ch", "p", "pp", "vol"];
/// Those after which it continues before a small letter.
const FINAL: [&str; 3] = ["etc", "al", ".."];

/// List long sentences, and documents with a high mean length.
#[derive(clap::Args)]
pub struct Args {
    /// Print words per sentence of each document instead
    #[arg(long)]
    count: bool,
    /// Also check the help texts of this built binary, and of those next to it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Documents and directories to check, for example docs/guide [default: all]
    #[arg(value_name = "PLACE")]
    places: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    documents: Vec<String>,
    help: Vec<String>,
    skip: Vec<String>,
}

fn table() -> Result<Table> {
    toml::from_str(TABLE).context("read prose.toml")
}

/// A sentence: the line where it begins, its number of words, and its first words.
#[derive(Debug, PartialEq, Eq)]
struct Sentence {
    line: usize,
    words: usize,
    start: String,
}

/// `cargo xtask prose`: prints all findings and never fails because of them.
pub fn list(args: &Args) -> Result<()> {
    let table = table()?;
    let files = super::read_files()?;
    let documents = files.iter().filter(|file| is_document(file, &table));
    let documents = documents.map(|file| (file.path.clone(), of_markdown(&file.text)));
    let mut texts: Vec<_> = documents.collect();
    if let Some(binary) = &args.binary {
        texts.extend(help_texts(binary)?);
    }
    let is_chosen =
        |path: &str| args.places.is_empty() || args.places.iter().any(|p| is_in(path, p));
    for (path, sentences) in texts.iter().filter(|(path, _)| is_chosen(path)) {
        if args.count {
            let words: usize = sentences.iter().map(|sentence| sentence.words).sum();
            let longest = sentences.iter().map(|sentence| sentence.words).max();
            let mean = words as f64 / sentences.len().max(1) as f64;
            println!("{mean:.1}\t{}\t{path}", longest.unwrap_or(0));
            continue;
        }
        for finding in judge(path, sentences) {
            println!("{finding}");
        }
    }
    Ok(())
}

/// The findings in the documents that prose.toml lists.
pub fn check(files: &[File]) -> Result<Vec<Finding>> {
    let table = table()?;
    let is_held = |file: &&File| table.documents.iter().any(|place| is_in(&file.path, place));
    let documents = files.iter().filter(|file| is_document(file, &table));
    let held = documents.filter(is_held);
    Ok(held
        .flat_map(|file| judge(&file.path, &of_markdown(&file.text)))
        .collect())
}

/// Fails if a help text that prose.toml lists has long sentences; `fairpath` is a built binary.
pub fn check_help(fairpath: &Path) -> Result<()> {
    let held = table()?.help;
    if held.is_empty() {
        return Ok(());
    }
    let texts = help_texts(fairpath)?;
    let is_held = |name: &str| held.iter().any(|h| h == "." || h == name);
    let texts = texts.iter().filter(|(name, _)| is_held(name));
    let findings: Vec<Finding> = texts.flat_map(|(name, text)| judge(name, text)).collect();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} long sentences in help texts", findings.len());
    }
    Ok(())
}

fn is_document(file: &File, table: &Table) -> bool {
    file.path.ends_with(".md") && !table.skip.iter().any(|place| is_in(&file.path, place))
}

/// The help texts by the names of their manual pages.
fn help_texts(fairpath: &Path) -> Result<Vec<(String, Vec<Sentence>)>> {
    let dir = crate::run::target_dir().join("help");
    let pages = crate::pages::of_command_lines(&dir, Some(fairpath))?;
    let pages = pages.into_iter();
    Ok(pages.map(|(name, page)| (name, of_manual(&page))).collect())
}

fn judge(path: &str, sentences: &[Sentence]) -> Vec<Finding> {
    let finding = |line, message, remedy: &'static str| Finding {
        path: path.to_owned(),
        line,
        rule: "short sentences",
        message,
        remedy: remedy.into(),
    };
    let long = sentences.iter().filter(|sentence| sentence.words > LONGEST);
    let mut findings: Vec<Finding> = long
        .map(|Sentence { line, words, start }| {
            let message = format!("{words} words: \"{start} ...\"");
            finding(*line, message, "make sentences of at most 25 words")
        })
        .collect();
    let words: usize = sentences.iter().map(|sentence| sentence.words).sum();
    if words > MEAN * sentences.len() {
        let mean = words as f64 / sentences.len() as f64;
        let message = format!("{mean:.1} words in a sentence on average, more than {MEAN}");
        findings.push(finding(1, message, "split the longest sentences"));
    }
    findings
}

/// Text without marks, and from which position of the source each piece of it comes.
#[derive(Default)]
struct Block {
    text: String,
    pieces: Vec<(usize, usize)>,
}

impl Block {
    fn push(&mut self, text: &str, source: usize) {
        self.pieces.push((self.text.len(), source));
        self.text.push_str(text);
    }

    /// Empties the block; its sentences, by positions in the source.
    fn take(&mut self) -> Vec<(usize, String)> {
        let Block { text, pieces } = std::mem::take(self);
        let source = |at: usize| {
            let after = pieces.partition_point(|(start, _)| *start <= at);
            let (start, source) = pieces[after - 1];
            source + (at - start)
        };
        let sentences = split(&text).into_iter();
        sentences
            .map(|range| (source(range.start), text[range].to_owned()))
            .collect()
    }
}

/// The sentences of a Markdown page.
fn of_markdown(text: &str) -> Vec<Sentence> {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut block = Block::default();
    let mut found = Vec::new();
    let mut skipped = 0;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match &event {
            Event::Start(tag) if is_block(&tag.to_end()) => found.extend(block.take()),
            Event::End(tag) if is_block(tag) => found.extend(block.take()),
            Event::Text(text) if skipped == 0 => block.push(text, range.start),
            Event::Code(_) if skipped == 0 => block.push(&CODE.to_string(), range.start),
            Event::SoftBreak | Event::HardBreak if skipped == 0 => block.push(" ", range.start),
            _ => {}
        }
        match event {
            Event::Start(tag) if is_skipped(&tag) => skipped += 1,
            Event::End(TagEnd::Heading(_) | TagEnd::Table | TagEnd::CodeBlock | TagEnd::Image) => {
                skipped -= 1;
            }
            _ => {}
        }
    }
    let line = |at: usize| ends.partition_point(|&end| end < at) + 1;
    let sentences = found.into_iter();
    sentences
        .filter_map(|(at, text)| Sentence::new(line(at), &text))
        .collect()
}

fn is_block(tag: &TagEnd) -> bool {
    !matches!(
        tag,
        TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link | TagEnd::Image
    )
}

fn is_skipped(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Heading { .. } | Tag::Table(_) | Tag::CodeBlock(_) | Tag::Image { .. }
    )
}

impl Sentence {
    /// `None` if there are no words.
    fn new(line: usize, text: &str) -> Option<Sentence> {
        let is_word = |word: &&str| word.contains(|c: char| c.is_alphanumeric() || c == CODE);
        let words: Vec<&str> = text.split_whitespace().filter(is_word).collect();
        let start = words.iter().take(6).copied().collect::<Vec<_>>().join(" ");
        (!words.is_empty()).then(|| Sentence {
            line,
            words: words.len(),
            start: start.replace(CODE, "`...`"),
        })
    }
}

/// The sentences of a manual page that clap wrote, without names, usage and examples.
fn of_manual(page: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut block = Block::default();
    let (mut section, mut is_header) = ("", false);
    let numbered = page.lines().enumerate();
    for (number, line) in numbered {
        let ends_block = line.starts_with('.') || line.trim().is_empty() || is_example(line);
        if ends_block {
            found.extend(block.take());
        }
        if let Some(title) = line.strip_prefix(".SH ") {
            section = title.trim_matches('"');
        }
        let is_text =
            !ends_block && !is_header && !["NAME", "SYNOPSIS", "VERSION"].contains(&section);
        if is_text {
            block.push(&plain(line), number);
            block.push(" ", number);
        }
        // The line after `.TP` is the option.
        is_header = line.starts_with(".TP");
    }
    found.extend(block.take());
    let sentences = found.into_iter();
    // Positions are line numbers, not exact: a piece is a line.
    sentences
        .filter_map(|(_, text)| Sentence::new(1, &text))
        .collect()
}

/// A line that is typed or printed, not read as a sentence.
fn is_example(line: &str) -> bool {
    let line = plain(line);
    line.starts_with(' ') || line.starts_with("fairpath ") || line.starts_with("sudo ")
}

/// A line of a manual page without fonts and escapes.
fn plain(line: &str) -> String {
    let mut line = line.to_owned();
    for (escape, text) in [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\-", "-"),
        ("\\*(Aq", "'"),
        ("\\&", ""),
        ("\\e", "\\"),
    ] {
        line = line.replace(escape, text);
    }
    line
}

/// The sentences of a paragraph.
fn split(text: &str) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, mark) in text.char_indices() {
        if !".!?".contains(mark) {
            continue;
        }
        let after = &text[at + mark.len_utf8()..];
        let rest = after.trim_start_matches(['"', '\'', ')', ']', '”', '’', '*']);
        let next = rest.trim_start();
        let is_end = next.is_empty() || rest.starts_with(char::is_whitespace);
        if !is_end || mark == '.' && continues(&text[start..at], next) {
            continue;
        }
        let end = text.len() - rest.len();
        sentences.push(start..end);
        start = text.len() - next.len();
    }
    if start < text.len() {
        sentences.push(start..text.len());
    }
    sentences
}

/// True if a full stop between these texts is that of an abbreviation or of an ellipsis.
fn continues(before: &str, next: &str) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let word = word.trim_start_matches(['(', '[', '"', '“']);
    let is_initial = word.len() == 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
    let lower = word.to_lowercase();
    let has = |list: &[&str]| list.contains(&lower.as_str());
    let is_ellipsis = word.ends_with("..");
    is_initial
        || has(&ABBREVIATIONS)
        || has(&NUMBERED) && next.starts_with(|c: char| c.is_ascii_digit())
        || (has(&FINAL) || is_ellipsis) && next.starts_with(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        split(text).into_iter().map(|range| &text[range]).collect()
    }

    fn words(markdown: &str) -> Vec<(usize, usize)> {
        let sentences = of_markdown(markdown).into_iter();
        sentences.map(|s| (s.line, s.words)).collect()
    }

    #[test]
    fn sentences_end_at_marks_before_a_space() {
        assert_eq!(
            parts("It runs. Does it? Yes!"),
            ["It runs.", "Does it?", "Yes!"]
        );
        assert_eq!(
            parts("It is \"so.\" (Really.) End"),
            ["It is \"so.\"", "(Really.)", "End"]
        );
    }

    #[test]
    fn file_names_and_numbers_end_no_sentence() {
        assert_eq!(
            parts("See docs/README.md and 3.5 ms."),
            ["See docs/README.md and 3.5 ms."]
        );
        assert_eq!(parts("In 6.12. fq is new."), ["In 6.12.", "fq is new."]);
    }

    #[test]
    fn abbreviations_end_no_sentence() {
        for text in [
            "Set it, e.g. Debian does.",
            "A. Smith wrote it.",
            "See Fig. 3 there.",
            "Rates, delays etc. are set.",
            "It waits ... and ends.",
        ] {
            assert_eq!(parts(text), [text]);
        }
        assert_eq!(
            parts("Rates etc. Then no. It ends."),
            ["Rates etc.", "Then no.", "It ends."]
        );
    }

    #[test]
    fn an_item_is_a_sentence() {
        let text = "Two items:\n\n- one of them\n- another\n  line of it. More\n";
        assert_eq!(words(text), [(1, 2), (3, 3), (4, 4), (5, 1)]);
    }

    #[test]
    fn code_tables_and_headings_do_not_count() {
        let text = "# A heading\n\nRun `a b c` [here](x.md).\n\n```\nsome code\n```\n\n| a b |\n|---|\n| c d |\n";
        assert_eq!(words(text), [(3, 3)]);
    }

    #[test]
    fn long_sentences_and_a_high_mean_are_findings() {
        let long = "word ".repeat(41);
        let sentences = of_markdown(&format!("Short one.\n\n{long}."));
        let findings = judge("a.md", &sentences);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!((findings[0].line, findings[1].line), (3, 1));
        assert_eq!(judge("a.md", &of_markdown(&"word ".repeat(20))), []);
    }

    #[test]
    fn help_is_read_without_options_and_examples() {
        let page = ".TH a 1\n.SH NAME\na \\- b\n.SH DESCRIPTION\nMeasure it. Print\nit.\n.SH OPTIONS\n.TP\n\\fB\\-\\-x\\fR\nOne option\n.SH EXTRA\nExamples:\n  fairpath a b c\n";
        let found: Vec<usize> = of_manual(page).iter().map(|s| s.words).collect();
        assert_eq!(found, [2, 2, 2, 1]);
    }

    #[test]
    fn documents_outside_the_table_pass() {
        let long = "word ".repeat(99);
        assert_eq!(check(&[file("docs/results/report.md", &long)]).unwrap(), []);
    }
}
