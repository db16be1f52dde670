//! Texts in HTML and SVG: nothing that a text holds is ever markup.

/// A text for element content and quoted attributes, in HTML as in XML.
///
/// Control characters, which XML does not allow, are shown as U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A paragraph's text: escaped, with words between backticks as code.
pub(crate) fn inline(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // A backtick without its partner is a backtick.
    if parts.len().is_multiple_of(2) {
        return escape(&bound(text));
    }
    let part = |(i, part): (usize, &&str)| match i % 2 {
        1 => format!("<code>{}</code>", escape(part)),
        _ => escape(&bound(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Symbols that stay on the line of their number.
const UNITS: [&str; 12] = [
    "%", "s", "ms", "µs", "ns", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B", "kB", "MB",
];

/// The text with a space in which no line ends between each number and its unit.
fn bound(text: &str) -> String {
    let mut words = text.split(' ');
    let mut bound = words.next().unwrap_or_default().to_owned();
    for word in words {
        let unit = word.trim_end_matches([',', '.', ';', ':', ')', '?']);
        let number = bound.ends_with(|letter: char| letter.is_ascii_digit());
        bound.push(if number && UNITS.contains(&unit) {
            '\u{a0}'
        } else {
            ' '
        });
        bound.push_str(word);
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_texts_is_text() {
        assert_eq!(
            escape("<script>\"&'\u{1b}[0m\n"),
            "&lt;script&gt;&quot;&amp;&#39;\u{fffd}[0m\n"
        );
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(
            inline("at 1 % loss, 20 ms, of 235 Mbit/s. 3 runs `1 %`"),
            "at 1\u{a0}% loss, 20\u{a0}ms, of 235\u{a0}Mbit/s. 3 runs <code>1 %</code>"
        );
    }

    #[test]
    fn pairs_of_backticks_enclose_code() {
        assert_eq!(inline("run `a < b` now"), "run <code>a &lt; b</code> now");
        assert_eq!(inline("a ` b"), "a ` b");
    }
}
