//! Tables on the page. Long ones are folded; what is longer still is in the CSV.

use super::figures::behind;
use crate::catalog::Catalog;
use crate::csv;
use crate::markup::{escape, inline};
use crate::table::{Shown, Table};

/// Rows from which a table is folded.
pub const FOLDED_ROWS: usize = 16;
/// Rows of a table on the page; the CSV has them all.
pub const MAX_SHOWN_ROWS: usize = 1_000;

/// Writes a table.
pub(super) fn table(page: &mut String, table: &Table, catalog: &Catalog) {
    let Some(entry) = catalog.of_table(table) else {
        return;
    };
    page.push_str(&format!("<div class=\"table\" id=\"{}\">\n", entry.name));
    let (label, title) = (entry.label(), inline(&table.title));
    page.push_str(&format!(
        "<h3><span class=\"number\">{label}</span> {title}</h3>\n"
    ));
    if !table.caption.is_empty() {
        page.push_str(&format!(
            "<p class=\"caption\">{}</p>\n",
            inline(&table.caption)
        ));
    }
    let folded = table.rows.len() >= FOLDED_ROWS;
    if folded {
        let rows = table.rows.len();
        page.push_str(&format!("<details>\n<summary>Show {rows} rows</summary>\n"));
    }
    rows(page, table, &label);
    if folded {
        page.push_str("</details>\n");
    }
    behind(page, entry, &csv::of_table(table), table.command.as_deref());
    page.push_str("</div>\n");
}

fn rows(page: &mut String, table: &Table, label: &str) {
    let shown = table.shown();
    // Wide tables scroll separately, also by keys.
    page.push_str(&format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><table>\n<thead><tr>"
    ));
    for column in &shown.columns {
        page.push_str(&format!(
            "<th scope=\"col\"{}>{}</th>",
            class(column.number),
            escape(&column.name)
        ));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (row, cells) in table
        .rows
        .iter()
        .zip(shown.rows(table))
        .take(MAX_SHOWN_ROWS)
    {
        page.push_str(if row.marked {
            "<tr class=\"marked\">"
        } else {
            "<tr>"
        });
        one(page, &shown, &cells);
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    if table.rows.len() > MAX_SHOWN_ROWS {
        let left = table.rows.len() - MAX_SHOWN_ROWS;
        page.push_str(&format!(
            "<p class=\"caption\">{left} more rows are in the CSV.</p>\n"
        ));
    }
}

fn one(page: &mut String, shown: &Shown, cells: &[(String, String)]) {
    for (column, (value, interval)) in shown.columns.iter().zip(cells) {
        page.push_str(&format!("<td{}>{}", class(column.number), inline(value)));
        if !interval.is_empty() {
            page.push_str(&format!(" <small>{}</small>", escape(interval)));
        }
        page.push_str("</td>");
    }
}

fn class(number: bool) -> &'static str {
    if number { " class=\"n\"" } else { "" }
}
