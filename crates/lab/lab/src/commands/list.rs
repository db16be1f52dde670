//! `fairpath lab list`: the experiments that come with the binary.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Context;
use fairpath_analysis::experiment::{Document, FormName, shipped};

use crate::progress::written;
use crate::words::cost;

/// A line for each: name, how long its quick form takes, the question.
///
/// # Errors
/// A shipped file that is refused, or stdout that is gone.
pub fn run() -> anyhow::Result<()> {
    io::stdout()
        .write_all(text()?.as_bytes())
        .context("write the list")
}

fn text() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in shipped::names() {
        let document = Document::open(&name)?;
        let (_, seconds) = cost(&document, FormName::Quick);
        let quick = written(Duration::from_secs_f64(seconds));
        let question = &document.base().question;
        let _ = writeln!(text, "{name:<14} {quick:>11}  {question}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    /// What the guide shows.
    const GUIDE: &str = include_str!("../../../../../docs/guide/lab.md");

    #[test]
    fn the_guide_shows_this_list() {
        let text = super::text().unwrap();
        assert!(
            GUIDE.contains(&text),
            "docs/guide/lab.md is to have:\n{text}"
        );
    }
}
