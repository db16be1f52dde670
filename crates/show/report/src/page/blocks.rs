//! The blocks of sections, as HTML.

use super::{facts, figures, notice, tables};
use crate::catalog::Catalog;
use crate::markup::{escape, inline};
use crate::report::Block;

/// Writes blocks in order.
pub(super) fn blocks(page: &mut String, blocks: &[Block], catalog: &Catalog) {
    for block in blocks {
        match block {
            Block::Text(text) => page.push_str(&format!("<p>{}</p>\n", inline(text))),
            Block::List(items) => list(page, items),
            Block::Code(code) => {
                page.push_str(&format!("<pre><code>{}</code></pre>\n", escape(code)))
            }
            Block::Facts(all) => facts(page, all, "facts wide"),
            Block::Notice(one) => notice(page, one),
            Block::Figure(figure) => figures::figure(page, figure, catalog),
            Block::Table(table) => tables::table(page, table, catalog),
            Block::Details(title, inner) => details(page, title, inner, catalog),
        }
    }
}

fn list(page: &mut String, items: &[String]) {
    page.push_str("<ul>\n");
    for item in items {
        page.push_str(&format!("<li>{}</li>\n", inline(item)));
    }
    page.push_str("</ul>\n");
}

fn details(page: &mut String, title: &str, inner: &[Block], catalog: &Catalog) {
    page.push_str(&format!(
        "<details>\n<summary>{}</summary>\n",
        escape(title)
    ));
    blocks(page, inner, catalog);
    page.push_str("</details>\n");
}
