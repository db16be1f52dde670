//! A page of the guide as a manual page (man(7) macros).
//!
//! The guide is plain: headings, paragraphs, lists, code, tables. The first heading gives the NAME
//! section (`# fairpath rtt: round-trip times` -> `fairpath-rtt \- round-trip times`); what follows
//! it is the DESCRIPTION. [`crate::pages`] adds the description of the command line. Tables
//! become aligned text, links their text and address, images nothing.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The manual page `name`(1) made from a page of the guide.
pub fn from_markdown(name: &str, version: &str, markdown: &str) -> String {
    let mut page = Page::new(name, version);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.event(event);
    }
    page.out
}

struct Page {
    name: String,
    out: String,
    /// The text of the block that is being read, already escaped.
    text: String,
    /// For each list we are in, the next number, or `None` for bullets.
    lists: Vec<Option<u64>>,
    table: Vec<Vec<String>>,
    link: String,
}

impl Page {
    fn new(name: &str, version: &str) -> Page {
        Page {
            name: name.to_owned(),
            out: format!(
                ".TH {} 1 \"\" \"fairpath {version}\" \"Fairpath\"\n",
                name.to_uppercase()
            ),
            text: String::new(),
            lists: Vec::new(),
            table: Vec::new(),
            link: String::new(),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text.push_str(&escape(&text)),
            Event::Code(code) => self.text.push_str(&format!("\\fB{}\\fR", escape(&code))),
            Event::SoftBreak => self.text.push('\n'),
            Event::HardBreak => self.text.push_str("\n.br\n"),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis => self.text.push_str("\\fI"),
            Tag::Strong => self.text.push_str("\\fB"),
            Tag::Link { dest_url, .. } => self.link = dest_url.into_string(),
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.out.push_str(".RS\n");
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => self.table.clear(),
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Paragraph if self.lists.is_empty() => self.out.push_str(".PP\n"),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::Emphasis | TagEnd::Strong => self.text.push_str("\\fR"),
            TagEnd::Link => self.end_link(),
            TagEnd::CodeBlock => self.code_block(),
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.out
                    .push_str(if self.lists.is_empty() { "" } else { ".RE\n" });
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                self.table
                    .last_mut()
                    .expect("a cell is in a row")
                    .push(cell);
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let title = std::mem::take(&mut self.text);
        match level {
            HeadingLevel::H1 => {
                let about = title
                    .split_once(": ")
                    .map_or(title.as_str(), |(_, about)| about);
                self.out.push_str(&format!(
                    ".SH NAME\n{} \\- {about}\n.SH DESCRIPTION\n",
                    escape(&self.name)
                ));
            }
            HeadingLevel::H2 => {
                let title = without_fonts(&title).to_uppercase();
                self.out.push_str(&format!(".SH {}\n", escape(&title)));
            }
            _ => self.out.push_str(&format!(".SS {title}\n")),
        }
    }

    fn item(&mut self) {
        self.flush();
        match self.lists.last_mut() {
            Some(Some(number)) => {
                self.out.push_str(&format!(".IP {number}. 4\n"));
                *number += 1;
            }
            _ => self.out.push_str(".IP \\(bu 2\n"),
        }
    }

    /// An address of the web is worth printing; one inside the guide is not.
    fn end_link(&mut self) {
        let link = std::mem::take(&mut self.link);
        if link.contains("://") && !self.text.ends_with(&escape(&link)) {
            self.text.push_str(&format!(" <{}>", escape(&link)));
        }
    }

    fn code_block(&mut self) {
        let code = std::mem::take(&mut self.text);
        self.verbatim(code.trim_end_matches('\n'));
    }

    fn end_table(&mut self) {
        let table = std::mem::take(&mut self.table);
        let columns = table.iter().map(Vec::len).max().unwrap_or(0);
        let shown = |cell: &str| without_fonts(cell).chars().count();
        let width = |c: usize| {
            table
                .iter()
                .filter_map(|r| r.get(c))
                .map(|x| shown(x))
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let padded =
            |(cell, width): (&String, &usize)| format!("{cell}{}", " ".repeat(width - shown(cell)));
        let line = |row: &Vec<String>| {
            row.iter()
                .zip(&widths)
                .map(padded)
                .collect::<Vec<_>>()
                .join("  ")
        };
        let lines: Vec<String> = table
            .iter()
            .map(|r| line(r).trim_end().to_owned())
            .collect();
        self.verbatim(&lines.join("\n"));
    }

    /// Lines that stay as they are.
    fn verbatim(&mut self, text: &str) {
        self.out.push_str(&format!(
            ".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n",
            guard_lines(text)
        ));
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.out.push_str(&guard_lines(&text));
            self.out.push('\n');
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Removes the fonts of a cell: `\-` and `\e` are one character, fonts none.
fn without_fonts(cell: &str) -> String {
    cell.replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "")
        .replace("\\-", "-")
        .replace("\\e", "\\")
}

/// A line that begins with a dot or an apostrophe would be a command.
fn guard_lines(text: &str) -> String {
    let guard = |line: &str| {
        if line.starts_with(['.', '\'']) && line != ".br" {
            format!("\\&{line}")
        } else {
            line.to_owned()
        }
    };
    text.lines().map(guard).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(markdown: &str) -> String {
        from_markdown("fairpath-rtt", "1", markdown)
            .split_once('\n')
            .unwrap()
            .1
            .to_owned()
    }

    #[test]
    fn the_first_heading_is_name_and_description() {
        assert_eq!(
            body("# fairpath rtt: round-trip times\n\nReports.\n"),
            ".SH NAME\nfairpath\\-rtt \\- round\\-trip times\n.SH DESCRIPTION\n.PP\nReports.\n"
        );
    }

    #[test]
    fn sections_paragraphs_and_fonts_become_macros() {
        let markdown = "## Usage\n\nRun `fairpath -x` on *eth0*, **now**.\n\n### More\n";
        assert_eq!(
            body(markdown),
            ".SH USAGE\n.PP\nRun \\fBfairpath \\-x\\fR on \\fIeth0\\fR, \\fBnow\\fR.\n.SS More\n"
        );
    }

    #[test]
    fn code_keeps_its_lines_and_cannot_be_command() {
        let page = body("```\n.so /etc/passwd\n  a\\n\n```\n");
        assert_eq!(
            page,
            ".PP\n.RS 4\n.nf\n\\&.so /etc/passwd\n  a\\en\n.fi\n.RE\n"
        );
    }

    #[test]
    fn lists_and_tables_stay_readable() {
        assert_eq!(body("- a\n- b\n"), ".IP \\(bu 2\na\n.IP \\(bu 2\nb\n");
        assert_eq!(body("1. a\n2. b\n"), ".IP 1. 4\na\n.IP 2. 4\nb\n");
        let table = body("| a | b |\n|---|---|\n| `-long` | x |\n");
        assert_eq!(
            table,
            ".PP\n.RS 4\n.nf\na      b\n\\fB\\-long\\fR  x\n.fi\n.RE\n"
        );
    }
}
