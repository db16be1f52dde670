//! Text of a given width in terminal columns, safe to print.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::glyphs::Look;

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Without what would move the cursor, change the terminal or turn the line around; in ASCII where
/// asked for. Names come from files and from the network.
pub fn clean(text: &str, look: Look) -> String {
    let safe = |c: char| (c.is_ascii() || !look.ascii) && !turns(c) && !c.is_control();
    text.chars()
        .map(|c| if safe(c) { c } else { '?' })
        .collect()
}

/// Controls of writing direction, and separators of lines.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// At most `columns` wide, with a mark where it was cut.
pub fn cut(text: &str, columns: usize, look: Look) -> String {
    let text = clean(text, look);
    if width(&text) <= columns {
        return text;
    }
    let room = columns.saturating_sub(1);
    let (mut kept, mut used) = (String::new(), 0);
    for grapheme in text.graphemes(true) {
        used += width(grapheme);
        if used > room {
            break;
        }
        kept.push_str(grapheme);
    }
    if columns > 0 {
        kept.push_str(look.cut());
    }
    kept
}

/// Exactly `columns` wide, on the left.
pub fn left(text: &str, columns: usize, look: Look) -> String {
    let mut text = cut(text, columns, look);
    let gap = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', gap));
    text
}

/// Exactly `columns` wide, on the right.
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
    fn a_cut_text_has_a_mark_and_never_half_a_character() {
        assert_eq!(cut("abcdef", 6, LOOK), "abcdef");
        assert_eq!(cut("abcdefg", 6, LOOK), "abcde…");
        assert_eq!(cut("日本語テスト", 6, LOOK), "日本…");
        assert_eq!(left("日本語", 8, LOOK), "日本語  ");
        assert_eq!(right("é", 3, LOOK), "  é");
        assert_eq!(cut("abc", 0, LOOK), "");
        assert_eq!(width(&left("👩‍👩‍👧 family", 6, LOOK)), 6);
    }

    #[test]
    fn nothing_that_drives_a_terminal_gets_through() {
        assert_eq!(clean("a\u{1b}[2Jb\n\u{202e}c", LOOK), "a?[2Jb??c");
        let ascii = Look {
            ascii: true,
            ..LOOK
        };
        assert_eq!(clean("Café", ascii), "Caf?");
    }
}
