//! A small table of names and figures of limited width. Figures are omitted before names become
//! unreadable, and figures are close to their names.

use ratatui::text::{Line, Span};

use crate::glyphs::Look;
use crate::text::{left, right, width};
use fairpath_history::judge::Level;

/// A column of figures.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its title.
    pub title: &'static str,
    /// Columns of the widest figure.
    pub width: usize,
    /// Fields of the largest rank are omitted first.
    pub rank: u8,
}

/// A name and its figures, one for each field.
#[derive(Clone, Debug)]
pub struct Item {
    /// The name, at the left.
    pub name: String,
    /// Figures and their levels.
    pub figures: Vec<(String, Level)>,
}

/// A line of titles, then one line per item, each at most `columns` wide.
///
/// Figures are omitted where names would have less than `min_name` columns.
pub fn lines(
    (title, min_name): (&str, usize),
    fields: &[Field],
    items: &[Item],
    columns: usize,
    look: Look,
) -> Vec<Line<'static>> {
    let longest = items.iter().map(|item| width(&item.name));
    let longest = longest.max().unwrap_or(0).max(width(title));
    let min_name = min_name.min(columns / 2);
    let shown = fit(fields, columns.saturating_sub(longest.min(min_name)));
    let used: usize = shown.iter().map(|at| total_width(&fields[*at])).sum();
    let name = longest.min(columns.saturating_sub(used));
    let mut titles = left(title, name, look);
    for at in &shown {
        let field = &fields[*at];
        titles += &format!(" {} ", right(field.title, field.width, look));
    }
    let mut lines = vec![Line::styled(titles.trim_end().to_owned(), look.quiet())];
    for item in items {
        let mut spans = vec![Span::raw(left(&item.name, name, look))];
        for at in &shown {
            let (text, level) = &item.figures[*at];
            let figure = right(text, fields[*at].width, look);
            spans.push(Span::raw(" "));
            spans.push(Span::styled(figure + level.mark(), look.level(*level)));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// Width of gap, figure and mark.
fn total_width(field: &Field) -> usize {
    field.width + 2
}

/// The indices of the fields that fit into `left` columns, in order.
fn fit(fields: &[Field], mut left: usize) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..fields.len()).collect();
    by_rank.sort_by_key(|at| fields[*at].rank);
    let fits = |at: &usize| {
        let width = total_width(&fields[*at]);
        let fits = width <= left;
        left = if fits { left - width } else { 0 };
        fits
    };
    let mut shown: Vec<usize> = by_rank.into_iter().filter(fits).collect();
    shown.sort_unstable();
    shown
}

/// Joins pieces, two columns apart, into lines of at most `columns`.
///
/// The first line begins with `name`, the others are indented by its width.
pub fn wrap(
    name: &str,
    pieces: Vec<Span<'static>>,
    columns: usize,
    look: Look,
) -> Vec<Line<'static>> {
    let indent = width(name);
    let mut lines = Vec::new();
    let mut line = vec![Span::raw(name.to_owned())];
    let mut used = indent;
    for piece in pieces {
        let style = piece.style;
        let text = crate::text::cut(&piece.content, columns.saturating_sub(indent), look);
        let gap = if used > indent { 2 } else { 0 };
        if used > indent && used + gap + width(&text) > columns {
            lines.push(Line::from(std::mem::take(&mut line)));
            line.push(Span::raw(" ".repeat(indent)));
            used = indent;
        } else {
            line.push(Span::raw(" ".repeat(gap)));
            used += gap;
        }
        used += width(&text);
        line.push(Span::styled(text, style));
    }
    lines.push(Line::from(line));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        ascii: true,
        colour: false,
    };
    const FIELDS: [Field; 3] = [
        Field {
            title: "mean",
            width: 5,
            rank: 0,
        },
        Field {
            title: "max",
            width: 5,
            rank: 2,
        },
        Field {
            title: "lost",
            width: 5,
            rank: 1,
        },
    ];

    fn drawn(columns: usize) -> Vec<String> {
        let figures = ["1.00", "2.00", "3"].map(|f| (f.to_owned(), Level::Normal));
        let item = Item {
            name: "198.51.100.0/24 far".to_owned(),
            figures: figures.to_vec(),
        };
        let lines = lines(("remote", 14), &FIELDS, &[item], columns, LOOK);
        let text = |line: &Line<'_>| line.to_string().trim_end().to_owned();
        lines.iter().map(text).collect()
    }

    #[test]
    fn figures_of_the_largest_rank_are_omitted_first() {
        assert_eq!(
            drawn(60),
            [
                "remote               mean    max   lost",
                "198.51.100.0/24 far  1.00   2.00      3",
            ]
        );
        assert_eq!(
            drawn(29),
            [
                "remote           mean   lost",
                "198.51.100.0/2>  1.00      3",
            ]
        );
        assert_eq!(drawn(18), ["remote       mean", "198.51.100>  1.00"]);
    }

    #[test]
    fn wrapped_lines_are_indented() {
        let pieces = ["one", "two", "three"].map(Span::raw).to_vec();
        let lines = wrap("load  ", pieces, 15, LOOK);
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["load  one  two", "      three"]);
    }
}
