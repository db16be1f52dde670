//! The report as Markdown, with its figures as SVG files next to it: for repositories and reviews.

use crate::catalog::{Catalog, Entry};
use crate::figure::Figure;
use crate::report::{Block, Fact, Notice, NoticeKind, ReportDocument};
use crate::table::Table;

/// Rows of a table in Markdown; the CSV has them all.
pub const MAX_ROWS: usize = 60;

/// The report's text. Links lead to the files that [`crate::files`] names.
pub fn markdown(report: &ReportDocument) -> String {
    let catalog = report.catalog();
    let mut text = format!("# {}\n", escape(&report.title));
    if !report.kicker.is_empty() {
        text.push_str(&format!("\n{}\n", escape(&report.kicker)));
    }
    if !report.question.is_empty() {
        text.push_str(&format!("\n*{}*\n", escape(&report.question)));
    }
    facts(&mut text, &report.facts);
    if !report.summary.is_empty() || !report.notices.is_empty() {
        text.push_str("\n## Summary\n");
        summary(&mut text, report, &catalog);
        report.notices.iter().for_each(|one| notice(&mut text, one));
    }
    for section in &report.sections {
        text.push_str(&format!("\n## {}\n", escape(&section.title)));
        blocks(&mut text, &section.blocks, &catalog);
    }
    if !report.command.is_empty() {
        text.push_str("\nThis report is repeated by:\n");
        code(&mut text, &report.command);
    }
    if !report.made_by.is_empty() {
        text.push_str(&format!("\nMade by {}.\n", escape(&report.made_by)));
    }
    text
}

fn facts(text: &mut String, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    text.push('\n');
    for fact in facts {
        text.push_str(&format!(
            "- {}: {}\n",
            escape(&fact.name),
            inline(&fact.value)
        ));
    }
}

fn summary(text: &mut String, report: &ReportDocument, catalog: &Catalog) {
    text.push('\n');
    for headline in &report.summary {
        let value = match headline.value.as_str() {
            "" => String::new(),
            value => format!("**{}** ", escape(value)),
        };
        let entry = headline.figure.as_deref().and_then(|id| catalog.by_id(id));
        let figure = entry.map_or(String::new(), |e| format!(" ({})", e.label()));
        text.push_str(&format!("- {value}{}{figure}\n", inline(&headline.text)));
    }
}

fn notice(text: &mut String, notice: &Notice) {
    let word = match notice.kind {
        NoticeKind::Note => "Note",
        NoticeKind::Warning => "Warning",
    };
    text.push_str(&format!("\n> **{word}.** {}\n", inline(&notice.text)));
}

fn blocks(text: &mut String, all: &[Block], catalog: &Catalog) {
    for block in all {
        match block {
            Block::Text(paragraph) => text.push_str(&format!("\n{}\n", inline(paragraph))),
            Block::List(items) => {
                text.push('\n');
                let item = |item: &String| format!("- {}\n", inline(item));
                text.extend(items.iter().map(item));
            }
            Block::Code(lines) => code(text, lines),
            Block::Facts(all) => facts(text, all),
            Block::Notice(one) => notice(text, one),
            Block::Figure(one) => figure(text, one, catalog.of_figure(one)),
            Block::Table(one) => table(text, one, catalog.of_table(one)),
            Block::Details(title, inner) => {
                text.push_str(&format!("\n### {}\n", escape(title)));
                blocks(text, inner, catalog);
            }
        }
    }
}

fn figure(text: &mut String, figure: &Figure, entry: Option<&Entry>) {
    let Some(entry) = entry else { return };
    let (label, title) = (entry.label(), escape(&figure.title));
    text.push_str(&format!(
        "\n**{label}.** {title}\n\n![{title}]({})\n",
        entry.svg_path()
    ));
    if !figure.caption.is_empty() {
        text.push_str(&format!("\n{}\n", inline(&figure.caption)));
    }
    behind(text, entry, figure.command.as_deref());
}

fn behind(text: &mut String, entry: &Entry, command: Option<&str>) {
    text.push_str(&format!("\n[CSV]({})", entry.csv_path()));
    match command {
        Some(command) => {
            text.push_str("; repeat with:\n");
            code(text, command);
        }
        None => text.push('\n'),
    }
}

fn table(text: &mut String, table: &Table, entry: Option<&Entry>) {
    let Some(entry) = entry else { return };
    text.push_str(&format!(
        "\n**{}.** {}\n",
        entry.label(),
        escape(&table.title)
    ));
    if !table.caption.is_empty() {
        text.push_str(&format!("\n{}\n", inline(&table.caption)));
    }
    let shown = table.shown();
    let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push('\n');
    text.push_str(&cells(
        shown.columns.iter().map(|c| escape(&c.name)).collect(),
    ));
    let line = |number| if number { "--:" } else { ":--" }.to_owned();
    text.push_str(&cells(
        shown.columns.iter().map(|c| line(c.number)).collect(),
    ));
    for (row, values) in table.rows.iter().zip(shown.rows(table)).take(MAX_ROWS) {
        let one = |(value, interval): (String, String)| {
            let joined = format!("{} {}", inline(&value), escape(&interval));
            joined.trim_end().to_owned()
        };
        let mut values: Vec<String> = values.into_iter().map(one).collect();
        if let (true, Some(first)) = (row.marked, values.first_mut()) {
            *first = format!("✗ {first}");
        }
        text.push_str(&cells(values));
    }
    if table.rows.len() > MAX_ROWS {
        let left = table.rows.len() - MAX_ROWS;
        text.push_str(&format!("\n{left} more rows are in the CSV.\n"));
    }
    behind(text, entry, table.command.as_deref());
}

/// A fenced block; the fence is longer than any inside.
fn code(text: &mut String, lines: &str) {
    let mut fence = "```".to_owned();
    while lines.contains(&fence) {
        fence.push('`');
    }
    text.push_str(&format!("\n{fence}text\n{}\n{fence}\n", lines.trim_end()));
}

/// A text on one line in which nothing is markup (CommonMark 2.4), HTML included.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '$' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' | '\r' | '\t' => escaped.push(' '),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The same, with words between backticks as code.
fn inline(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let part = |(i, part): (usize, &&str)| match i % 2 {
        // A bar would end a table's cell even inside code.
        1 if !part.is_empty() => format!("`{}`", part.replace('\n', " ").replace('|', "\\|")),
        1 => String::new(),
        _ => escape(part),
    };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::report::Section;
    use crate::table::{Cell, Column};
    use crate::unit::Unit;

    #[test]
    fn markup_in_texts_is_text() {
        let text = escape("<script> | *a* [b](c) # `d`\nnext");
        assert_eq!(
            text,
            "&lt;script&gt; \\| \\*a\\* \\[b\\](c) \\# \\`d\\` next"
        );
        assert_eq!(inline("run `a|b` *now*"), "run `a\\|b` \\*now\\*");
    }

    #[test]
    fn a_table_has_units_alignment_and_marks() {
        let columns = vec![
            Column::text("cc"),
            Column::number("Goodput", Unit::bits_per_second()),
        ];
        let mut table = Table::new("runs", "Runs", columns);
        table.push(vec!["a|b".into(), Cell::Number(235.5e6)]);
        table.push_marked(vec!["bbr".into(), Cell::Missing]);
        let figure = Figure::new("one", "A figure", Vec::new()).command("run ```x```");
        let report = ReportDocument {
            title: "R".into(),
            sections: vec![Section::new(
                "Results",
                vec![Block::Figure(figure), Block::Table(table)],
            )],
            ..ReportDocument::default()
        };
        let text = markdown(&report);
        assert!(
            text.contains(
                "| cc | Goodput, Mbit/s |\n| :-- | --: |\n| a\\|b | 236 |\n| ✗ bbr | – |\n"
            ),
            "{text}"
        );
        assert!(text.contains("![A figure](figures/one.svg)"), "{text}");
        assert!(text.contains("````text\nrun ```x```\n````"), "{text}");
        assert!(text.contains("[CSV](data/runs.csv)"), "{text}");
    }
}
