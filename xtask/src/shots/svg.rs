//! The screen of a terminal as an SVG image.
//!
//! Each run of cells with one style is one text element of a fixed length, so columns stay aligned with
//! any font.

use std::fmt::Write;
use vt100::{Cell, Color, Screen};

const CELL_WIDTH: f32 = 8.4;
const CELL_HEIGHT: f32 = 18.0;
const FONT_SIZE: f32 = 14.0;
/// The baseline below the top of a cell.
const BASELINE: f32 = 13.5;
/// Around the cells, and above them for the title.
const MARGIN: f32 = 14.0;
const TITLE: f32 = 30.0;
const FOREGROUND: &str = "#d8dbe2";
const BACKGROUND: &str = "#16181d";
const TITLE_COLOUR: &str = "#8b909c";
/// The sixteen named colours of a terminal.
const NAMED: [&str; 16] = [
    "#1d1f24", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
    "#7f848e", "#ff7b86", "#b5e08f", "#ffd68a", "#7cc0ff", "#dd92f2", "#73d0db", "#ffffff",
];
/// Levels of the colour cube of 216 colours.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The style of a cell.
#[derive(Clone, PartialEq, Eq)]
struct Style {
    foreground: String,
    background: Option<String>,
    bold: bool,
    dim: bool,
    underline: bool,
}

impl Style {
    fn of(cell: &Cell) -> Style {
        let (mut foreground, mut background) = (colour(cell.fgcolor()), colour(cell.bgcolor()));
        if cell.inverse() {
            (foreground, background) = (
                background.or(Some(BACKGROUND.to_owned())),
                foreground.or(Some(FOREGROUND.to_owned())),
            );
        }
        Style {
            foreground: foreground.unwrap_or_else(|| FOREGROUND.to_owned()),
            background,
            bold: cell.bold(),
            dim: cell.dim(),
            underline: cell.underline(),
        }
    }
}

pub fn of_screen(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let width = 2.0 * MARGIN + f32::from(columns) * CELL_WIDTH;
    let height = TITLE + MARGIN + f32::from(rows) * CELL_HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"{FONT_SIZE}\">\n\
         <title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <text x=\"{:.1}\" y=\"20\" text-anchor=\"middle\" fill=\"{TITLE_COLOUR}\">{title}</text>\n",
        width / 2.0
    );
    for row in 0..rows {
        for (column, text, cells, style) in runs(screen, row) {
            draw(&mut out, row, column, &text, cells, &style);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// First column, text, number of cells and style of each run of a row that is not blank.
fn runs(screen: &Screen, row: u16) -> Vec<(u16, String, u16, Style)> {
    let mut runs: Vec<(u16, String, u16, Style)> = Vec::new();
    for column in 0..screen.size().1 {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let style = Style::of(cell);
        let text = match cell.contents() {
            "" if cell.is_wide_continuation() => "",
            "" => " ",
            text => text,
        };
        match runs.last_mut() {
            Some((_, run, cells, last)) if *last == style => {
                run.push_str(text);
                *cells += 1;
            }
            _ => runs.push((column, text.to_owned(), 1, style)),
        }
    }
    runs.retain(|(_, text, _, style)| style.background.is_some() || !text.trim().is_empty());
    runs
}

fn draw(out: &mut String, row: u16, column: u16, text: &str, cells: u16, style: &Style) {
    let x = MARGIN + f32::from(column) * CELL_WIDTH;
    let y = TITLE + f32::from(row) * CELL_HEIGHT;
    let width = f32::from(cells) * CELL_WIDTH;
    if let Some(background) = &style.background {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT:.1}\" fill=\"{background}\"/>"
        );
    }
    // Blanks at the ends are not drawn; the rest keeps its columns.
    let start = text.chars().take_while(|c| *c == ' ').count();
    let shown = text.trim_matches(' ');
    if shown.is_empty() {
        return;
    }
    let blanks = text.chars().rev().take_while(|c| *c == ' ').count();
    let x = x + start as f32 * CELL_WIDTH;
    let length = width - (start + blanks) as f32 * CELL_WIDTH;
    let weight = if style.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let opacity = if style.dim { " opacity=\"0.6\"" } else { "" };
    let line = if style.underline {
        " text-decoration=\"underline\""
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         xml:space=\"preserve\" fill=\"{}\"{weight}{opacity}{line}>{}</text>",
        y + BASELINE,
        style.foreground,
        escaped(shown)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// `None` for the default colour.
fn colour(colour: Color) -> Option<String> {
    match colour {
        Color::Default => None,
        Color::Rgb(red, green, blue) => Some(hex([red, green, blue])),
        Color::Idx(index @ 0..16) => Some(NAMED[usize::from(index)].to_owned()),
        Color::Idx(index @ 16..232) => {
            let level = |step: u8| CUBE[usize::from((index - 16) / step % 6)];
            Some(hex([level(36), level(6), level(1)]))
        }
        Color::Idx(index) => Some(hex([8 + 10 * (index - 232); 3])),
    }
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> String {
        let mut parser = vt100::Parser::new(2, 20, 0);
        parser.process(text.as_bytes());
        of_screen(parser.screen(), "a title")
    }

    #[test]
    fn runs_of_one_style_are_one_element() {
        let svg = image("ab \x1b[31mred\x1b[0m  c<d");
        assert_eq!(svg.matches("<text").count(), 4, "{svg}");
        assert!(
            svg.contains(">ab</text>") && svg.contains(">c&lt;d</text>"),
            "{svg}"
        );
        assert!(svg.contains("fill=\"#e06c75\">red</text>"), "{svg}");
        // `c<d` begins in column 8.
        assert!(svg.contains("<text x=\"81.2\""), "{svg}");
    }

    #[test]
    fn inverse_cells_swap_their_colours() {
        let svg = image("\x1b[7mkey\x1b[0m");
        assert!(
            svg.contains(&format!("height=\"18.0\" fill=\"{FOREGROUND}\"/>")),
            "{svg}"
        );
        assert!(
            svg.contains(&format!("fill=\"{BACKGROUND}\">key</text>")),
            "{svg}"
        );
    }

    #[test]
    fn indexed_colours_are_those_of_xterm() {
        assert_eq!(colour(Color::Idx(16)), Some("#000000".into()));
        assert_eq!(colour(Color::Idx(196)), Some("#ff0000".into()));
        assert_eq!(colour(Color::Idx(231)), Some("#ffffff".into()));
        assert_eq!(colour(Color::Idx(244)), Some("#808080".into()));
        assert_eq!(colour(Color::Rgb(1, 2, 3)), Some("#010203".into()));
    }
}
