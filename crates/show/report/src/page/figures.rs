//! Figures on the page: title, legend, panels, caption, and how to get at what is behind them.

use data_encoding::BASE64;

use crate::catalog::{Catalog, Entry};
use crate::csv;
use crate::figure::{Figure, Palette, Panel, Size, legend_items, panel_svg, swatch};
use crate::markup::{escape, inline};

/// CSV files up to this size are also in the page, so that one mailed file suffices; larger ones are only
/// next to it.
pub const MAX_EMBEDDED_CSV_BYTES: usize = 48 * 1024;

/// Writes a figure.
pub(super) fn figure(page: &mut String, figure: &Figure, catalog: &Catalog) {
    let Some(entry) = catalog.of_figure(figure) else {
        return;
    };
    page.push_str(&format!("<figure id=\"{}\">\n", entry.name));
    let (label, title) = (entry.label(), inline(&figure.title));
    page.push_str(&format!(
        "<h3><span class=\"number\">{label}</span> {title}</h3>\n"
    ));
    legend(page, figure, &catalog.palette);
    let panels = figure.drawn();
    let many = panels.len() > 1;
    page.push_str(if many {
        "<div class=\"panels\">\n"
    } else {
        "<div>\n"
    });
    let titled = panels.iter().any(|panel| !panel.title.is_empty());
    for panel in &panels {
        page.push_str("<div class=\"panel\">");
        if titled {
            // An empty heading keeps panels side by side at one height.
            page.push_str(&format!("<h4>{}</h4>", escape(&panel.title)));
        }
        one(page, figure, panel, &catalog.palette, many);
    }
    page.push_str("</div>\n");
    if !figure.caption.is_empty() {
        page.push_str(&format!(
            "<figcaption>{}</figcaption>\n",
            inline(&figure.caption)
        ));
    }
    behind(
        page,
        entry,
        &csv::of_figure(figure),
        figure.command.as_deref(),
    );
    page.push_str("</figure>\n");
}

fn legend(page: &mut String, figure: &Figure, palette: &Palette) {
    let items = legend_items(figure);
    if items.is_empty() {
        return;
    }
    page.push_str("<ul class=\"legend\">");
    for item in &items {
        let sample = swatch(item, palette);
        let name = escape(&item.name);
        page.push_str(&format!(
            "<li><svg width=\"30\" height=\"14\" aria-hidden=\"true\">{sample}</svg>{name}</li>"
        ));
    }
    page.push_str("</ul>\n");
}

/// A panel; a single one is drawn for wide pages and for phones, and the style shows one of them.
fn one(page: &mut String, figure: &Figure, panel: &Panel, palette: &Palette, many: bool) {
    let name = match panel.title.as_str() {
        "" => escape(&figure.title),
        title => escape(&format!("{}: {title}", figure.title)),
    };
    let mut svg = |size: Size, class: &str| {
        let (width, height) = (size.width, size.height);
        let elements = panel_svg(panel, palette, size);
        page.push_str(&format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{name}\">{elements}</svg>"
        ));
    };
    if !many {
        svg(Size::WIDE, "plot on-wide");
    }
    svg(Size::NARROW, if many { "plot" } else { "plot on-narrow" });
    page.push_str("</div>\n");
}

/// The CSV and the command behind a figure or a table.
pub(super) fn behind(page: &mut String, entry: &Entry, csv: &str, command: Option<&str>) {
    let (name, path) = (&entry.name, entry.csv_path());
    page.push_str("<p class=\"behind\">");
    if csv.len() <= MAX_EMBEDDED_CSV_BYTES {
        let data = BASE64.encode(csv.as_bytes());
        page.push_str(&format!(
            "<a download=\"{name}.csv\" href=\"data:text/csv;charset=utf-8;base64,{data}\">CSV</a>"
        ));
    } else {
        page.push_str(&format!(
            "<a href=\"{path}\">CSV ({} KB, next to this page)</a>",
            csv.len() / 1000
        ));
    }
    if let Some(command) = command {
        page.push_str(&format!(
            " <span>Repeat with</span> <code>{}</code>",
            escape(command)
        ));
    }
    page.push_str("</p>\n");
}
