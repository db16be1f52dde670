//! Text of a given width in terminal columns, without control characters.

use fairpath_units::text::is_unsafe;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::glyphs::Look;

/// Width of a text, columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Replaces unsafe characters, since names come from files and from the network. Also replaces what is not ASCII if `look` requires ASCII.
pub fn clean(text: &str, look: Look) -> String {
    let safe = |c: char| (c.is_ascii() || !look.ascii) && !is_unsafe(c);
    text.chars()
        .map(|c| if safe(c) { c } else { '?' })
        .collect()
}

/// Cuts a text to `columns`, with a mark at the cut.
pub fn cut(text: &str, columns: usize, look: Look) -> String {
    let text = clean(text, look);
    if width(&text) <= columns {
        return text;
    }
    let limit = columns.saturating_sub(1);
    let (mut kept, mut used) = (String::new(), 0);
    for grapheme in text.graphemes(true) {
        used += width(grapheme);
        if used > limit {
            break;
        }
        kept.push_str(grapheme);
    }
    if columns > 0 {
        kept.push_str(look.cut());
    }
    kept
}

/// Left-aligned in exactly `columns`.
pub fn left(text: &str, columns: usize, look: Look) -> String {
    let mut text = cut(text, columns, look);
    let gap = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', gap));
    text
}

/// Right-aligned in exactly `columns`.
pub fn right(text: &str, columns: usize, look: Look) -> String {
    let text = cut(text, columns, look);
    let gap = columns.saturating_sub(width(&text));
    format!("{}{text}", " ".repeat(gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        ascii: false,
        colour: false,
    };

    #[test]
    fn a_cut_text_has_a_mark() {
        assert_eq!(cut("abcdef", 6, LOOK), "abcdef");
        assert_eq!(cut("abcdefg", 6, LOOK), "abcde…");
        assert_eq!(cut("日本語テスト", 6, LOOK), "日本…");
        assert_eq!(left("日本語", 8, LOOK), "日本語  ");
        assert_eq!(right("é", 3, LOOK), "  é");
        assert_eq!(cut("abc", 0, LOOK), "");
        assert_eq!(width(&left("👩‍👩‍👧 family", 6, LOOK)), 6);
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(clean("a\u{1b}[2Jb\n\u{202e}c", LOOK), "a?[2Jb??c");
        let ascii = Look {
            ascii: true,
            ..LOOK
        };
        assert_eq!(clean("Café", ascii), "Caf?");
    }
}
