//! The report as one HTML file without external resources.
//!
//! Style and script are inside and named by their hashes in the Content Security Policy, so that nothing
//! else runs even if a text slipped through. The page is whole without its script, which only shows
//! values near the pointer, counts the columns of wide tables that are out of view, and opens what is
//! folded before printing.

mod blocks;
mod figures;
mod tables;

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

use crate::catalog::{Catalog, slug};
use crate::figure::{CSS_DARK, CSS_LIGHT, CSS_MARKS};
use crate::markup::{escape, inline};
use crate::report::{Fact, Headline, Notice, NoticeKind, ReportDocument};

pub use figures::MAX_EMBEDDED_CSV_BYTES;
pub use tables::{FOLDED_ROWS, MAX_SHOWN_ROWS};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page of a report. O(what is shown).
pub fn html(report: &ReportDocument) -> String {
    let catalog = report.catalog();
    let style = style();
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"{}\">\n<title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n",
        escape(&report.made_by),
        escape(&report.title)
    );
    header(&mut page, report);
    page.push_str("<main>\n");
    summary(&mut page, report, &catalog);
    for (i, section) in report.sections.iter().enumerate() {
        let (id, title) = (section_id(i, &section.title), escape(&section.title));
        page.push_str(&format!(
            "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n"
        ));
        blocks::blocks(&mut page, &section.blocks, &catalog);
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n");
    footer(&mut page, report);
    page.push_str(&format!("<script>{SCRIPT}</script>\n</body>\n</html>\n"));
    page
}

/// Colours for both screens, print always light; then figures and page.
fn style() -> String {
    format!(
        ":root{{color-scheme:light dark;{CSS_LIGHT}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{{CSS_DARK}}}}}\n{CSS_MARKS}{STYLE}"
    )
}

fn hash(text: &str) -> String {
    BASE64.encode(&Sha256::digest(text.as_bytes()))
}

/// Headings may be equal; their numbers are not.
fn section_id(number: usize, title: &str) -> String {
    format!("s{}-{}", number + 1, slug(title))
}

fn header(page: &mut String, report: &ReportDocument) {
    page.push_str("<header>\n");
    if !report.kicker.is_empty() {
        page.push_str(&format!(
            "<p class=\"kicker\">{}</p>\n",
            escape(&report.kicker)
        ));
    }
    page.push_str(&format!("<h1>{}</h1>\n", escape(&report.title)));
    if !report.question.is_empty() {
        page.push_str(&format!(
            "<p class=\"lede\">{}</p>\n",
            inline(&report.question)
        ));
    }
    facts(page, &report.facts, "facts");
    if report.sections.len() > 1 {
        page.push_str("<nav aria-label=\"Contents\"><ol>");
        for (i, section) in report.sections.iter().enumerate() {
            let (id, title) = (section_id(i, &section.title), escape(&section.title));
            page.push_str(&format!("<li><a href=\"#{id}\">{title}</a></li>"));
        }
        page.push_str("</ol></nav>\n");
    }
    page.push_str("</header>\n");
}

/// Names and values.
fn facts(page: &mut String, facts: &[Fact], class: &str) {
    if facts.is_empty() {
        return;
    }
    page.push_str(&format!("<dl class=\"{class}\">"));
    for fact in facts {
        let (name, value) = (escape(&fact.name), inline(&fact.value));
        page.push_str(&format!("<div><dt>{name}</dt><dd>{value}</dd></div>"));
    }
    page.push_str("</dl>\n");
}

fn summary(page: &mut String, report: &ReportDocument, catalog: &Catalog) {
    if report.summary.is_empty() && report.notices.is_empty() {
        return;
    }
    page.push_str("<section class=\"summary\" aria-labelledby=\"summary\">\n<h2 id=\"summary\">Summary</h2>\n");
    if !report.summary.is_empty() {
        page.push_str("<ul class=\"headlines\">\n");
        report
            .summary
            .iter()
            .for_each(|headline| one(page, headline, catalog));
        page.push_str("</ul>\n");
    }
    report.notices.iter().for_each(|n| notice(page, n));
    page.push_str("</section>\n");
}

fn one(page: &mut String, headline: &Headline, catalog: &Catalog) {
    let entry = headline.figure.as_deref().and_then(|id| catalog.by_id(id));
    let link = entry.map_or(String::new(), |entry| {
        format!(
            " <a href=\"#{}\">{}</a>",
            entry.name,
            entry.label().replace(' ', "\u{a0}")
        )
    });
    let value = match headline.value.as_str() {
        "" => String::new(),
        value => format!("<strong>{}</strong>", escape(value)),
    };
    let text = inline(&headline.text);
    page.push_str(&format!("<li>{value}<span>{text}{link}</span></li>\n"));
}

fn notice(page: &mut String, notice: &Notice) {
    let (class, word) = match notice.kind {
        NoticeKind::Note => ("note", "Note."),
        NoticeKind::Warning => ("warning", "Warning."),
    };
    let text = inline(&notice.text);
    page.push_str(&format!(
        "<p class=\"notice {class}\" role=\"note\"><b>{word}</b> {text}</p>\n"
    ));
}

fn footer(page: &mut String, report: &ReportDocument) {
    page.push_str("<footer>\n");
    if !report.command.is_empty() {
        let command = escape(&report.command);
        page.push_str(&format!(
            "<p>This report is repeated by</p>\n<pre><code>{command}</code></pre>\n"
        ));
    }
    if !report.made_by.is_empty() {
        page.push_str(&format!(
            "<p>Made by {}. The same as ",
            escape(&report.made_by)
        ));
        page.push_str("<a href=\"report.md\">Markdown</a> and <a href=\"report.json\">JSON</a> are next to this page.</p>\n");
    }
    page.push_str("</footer>\n");
}
