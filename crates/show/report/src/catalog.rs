//! Figures and tables of a report with their numbers and the names of their files.

use std::collections::BTreeSet;

use crate::figure::{Figure, Palette};
use crate::report::{Block, ReportDocument};
use crate::table::Table;

/// Figures and tables of a report in order, each with its number and a name that no other has.
#[derive(Debug)]
pub struct Catalog<'a> {
    entries: Vec<Entry<'a>>,
    /// One colour and mark for each name, the same in all figures.
    pub palette: Palette,
}

/// A figure or table with its number and its name.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Which one.
    pub item: Item<'a>,
    /// From 1, figures and tables counted apart.
    pub number: usize,
    /// Its name in files and links: lower case letters, digits and hyphens.
    pub name: String,
}

/// A figure or a table.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A figure.
    Figure(&'a Figure),
    /// A table.
    Table(&'a Table),
}

impl ReportDocument {
    /// Its figures and tables, numbered and named.
    pub fn catalog(&self) -> Catalog<'_> {
        let mut items = Vec::new();
        for section in &self.sections {
            collect(&section.blocks, &mut items);
        }
        let figures = items.iter().filter_map(|item| match item {
            Item::Figure(figure) => Some(*figure),
            Item::Table(_) => None,
        });
        Catalog {
            palette: Palette::beginning_with(&self.first_colours, figures),
            entries: named(&items),
        }
    }
}

fn collect<'a>(blocks: &'a [Block], items: &mut Vec<Item<'a>>) {
    for block in blocks {
        match block {
            Block::Figure(figure) => items.push(Item::Figure(figure)),
            Block::Table(table) => items.push(Item::Table(table)),
            Block::Details(_, inner) => collect(inner, items),
            _ => {}
        }
    }
}

fn named<'a>(items: &[Item<'a>]) -> Vec<Entry<'a>> {
    let mut taken = BTreeSet::new();
    let (mut figures, mut tables) = (0, 0);
    let mut entry = |item: &Item<'a>| {
        let (number, id, kind) = match item {
            Item::Figure(figure) => (&mut figures, &figure.id, "figure"),
            Item::Table(table) => (&mut tables, &table.id, "table"),
        };
        *number += 1;
        let wanted = match slug(id) {
            empty if empty.is_empty() => format!("{kind}-{number}"),
            slug => slug,
        };
        let free = (2..).map(|i| format!("{wanted}-{i}"));
        let name = std::iter::once(wanted.clone())
            .chain(free)
            .find(|name| !taken.contains(name))
            .unwrap_or(wanted);
        taken.insert(name.clone());
        Entry {
            item: *item,
            number: *number,
            name,
        }
    };
    items.iter().map(&mut entry).collect()
}

impl<'a> Catalog<'a> {
    /// All of them, in order.
    pub fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    /// The entry of this very figure.
    pub(crate) fn of_figure(&self, figure: &Figure) -> Option<&Entry<'a>> {
        let same = |item: &Item| matches!(item, Item::Figure(f) if std::ptr::eq(*f, figure));
        self.entries.iter().find(|entry| same(&entry.item))
    }

    /// The entry of this very table.
    pub(crate) fn of_table(&self, table: &Table) -> Option<&Entry<'a>> {
        let same = |item: &Item| matches!(item, Item::Table(t) if std::ptr::eq(*t, table));
        self.entries.iter().find(|entry| same(&entry.item))
    }

    /// The figure with this id, for links from the summary.
    pub(crate) fn by_id(&self, id: &str) -> Option<&Entry<'a>> {
        self.entries
            .iter()
            .find(|entry| matches!(entry.item, Item::Figure(figure) if figure.id == id))
    }
}

impl Entry<'_> {
    /// "Figure 2", "Table 1".
    pub fn label(&self) -> String {
        match self.item {
            Item::Figure(_) => format!("Figure {}", self.number),
            Item::Table(_) => format!("Table {}", self.number),
        }
    }

    /// The path of its CSV file in the report's directory.
    pub fn csv_path(&self) -> String {
        format!("data/{}.csv", self.name)
    }

    /// The path of its SVG file (figures only).
    pub fn svg_path(&self) -> String {
        format!("figures/{}.svg", self.name)
    }
}

/// Lower case letters and digits, with single hyphens for everything between them.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Section;

    fn report_with(ids: &[&str]) -> ReportDocument {
        let figure = |id: &&str| Block::Figure(Figure::new(id, "t", Vec::new()));
        let inner = ids.iter().map(figure).collect();
        let table = Block::Table(Table::new("runs", "t", Vec::new()));
        ReportDocument {
            sections: vec![Section::new(
                "Results",
                vec![Block::Details("more".into(), inner), table],
            )],
            ..ReportDocument::default()
        }
    }

    #[test]
    fn file_names_are_plain_and_unique() {
        let report = report_with(&["../../etc/passwd", "Etc passwd", "runs", "", "loss & RTT"]);
        let catalog = report.catalog();
        let names: Vec<&str> = catalog.entries().iter().map(|e| e.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "etc-passwd",
                "etc-passwd-2",
                "runs",
                "figure-4",
                "loss-rtt",
                "runs-2"
            ]
        );
    }

    #[test]
    fn figures_and_tables_are_counted_apart() {
        let report = report_with(&["a", "b"]);
        let catalog = report.catalog();
        let labels: Vec<String> = catalog.entries().iter().map(Entry::label).collect();
        assert_eq!(labels, ["Figure 1", "Figure 2", "Table 1"]);
        assert_eq!(catalog.by_id("b").map(|e| e.number), Some(2));
    }
}
