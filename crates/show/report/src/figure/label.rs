//! The space that a text needs, and the check for overlaps.
//!
//! Pages bring no font, so widths are those of a wide sans serif (DejaVu Sans, Verdana): where a label
//! fits by these, it fits in what readers have.

/// Size of all text in figures, in pixels of the page.
pub(crate) const FONT: f64 = 13.0;
/// Height of a line of text.
pub(crate) const LINE: f64 = 16.0;
/// Least room between two labels side by side.
pub(crate) const BETWEEN: f64 = 8.0;

/// A text's bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Bounds {
    pub fn touches(&self, other: &Bounds) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub fn holds(&self, place: (f64, f64)) -> bool {
        (self.left..=self.right).contains(&place.0) && (self.top..=self.bottom).contains(&place.1)
    }
}

/// Width of a text in pixels, rather too much than too little.
pub(crate) fn width(text: &str) -> f64 {
    text.chars().map(ems).sum::<f64>() * FONT
}

fn ems(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.33,
        ' ' | '\u{a0}' | '\u{202f}' | 'f' | 't' | 'r' | '(' | ')' | '/' | '-' | '[' | ']' => 0.41,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        'A'..='Z' => 0.72,
        '0'..='9' | 'a'..='z' => 0.63,
        other if other.is_ascii() => 0.7,
        'µ' | '–' | 'é' => 0.65,
        '−' | '×' | '≤' | '≥' => 0.84,
        // Beyond Latin and Greek letters may be as wide as they are high.
        other if other < '\u{600}' => 0.75,
        _ => 1.05,
    }
}

/// The text, cut with an ellipsis if it needs more than `capacity`.
pub(crate) fn cut(text: &str, capacity: f64) -> String {
    if width(text) <= capacity {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept) + width("…") > capacity {
            kept.pop();
            break;
        }
    }
    format!("{}…", kept.trim_end())
}

/// The text in lines of at most `capacity`, broken at spaces; a single word may be wider.
pub(crate) fn wrap(text: &str, capacity: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= capacity => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_text_fits_and_is_marked() {
        let text = "a very long name of a congestion control";
        let kept = cut(text, 100.0);
        assert!(width(&kept) <= 100.0 && kept.ends_with('…'), "{kept}");
        assert_eq!(cut("short", 100.0), "short");
    }

    #[test]
    fn lines_break_at_spaces_and_fit() {
        let lines = wrap("one two three four", width("three four"));
        assert_eq!(lines, ["one two", "three four"]);
    }
}
