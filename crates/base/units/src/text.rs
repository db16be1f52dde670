//! Text from outside, made safe for a terminal, a log and a shell: the only place that decides which
//! characters these may receive.
//!
//! Names of interfaces, classes and programs, the output of hooks and compilers, and lines of files come
//! from elsewhere. They could move the cursor, hide or reorder text, or add lines.

use std::borrow::Cow;

/// Replaces an unsafe character.
const REPLACEMENT: &str = "?";

/// True for characters that a terminal may execute, that reorder text, or that end a line.
///
/// C0 and C1 control characters with ESC, tab and newline; the bidirectional controls (UAX 9); line and
/// paragraph separators.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line: every unsafe character becomes a question mark.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, is_unsafe)
}

/// Several lines, for output that consists of them: newlines and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_unsafe(c) && c != '\n' && c != '\t')
}

/// A word as a shell reads it: in quotes if a character has a meaning there.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', "'\\''"))),
    }
}

fn replaced(text: &str, replace: impl Fn(char) -> bool) -> Cow<'_, str> {
    match text.contains(&replace) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace(replace, REPLACEMENT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_become_question_marks() {
        assert_eq!(line("a\u{1b}[2Jb\n\u{202e}c\td"), "a?[2Jb??c?d");
        assert_eq!(lines("a\u{1b}[2Jb\n\u{202e}c\td"), "a?[2Jb\n?c\td");
        // CSI as one C1 character, backspace, delete, line separator, isolates.
        for c in "\u{9b}\u{8}\u{7f}\u{0}\r\u{2028}\u{2029}\u{61c}\u{200f}\u{2066}\u{2069}".chars() {
            assert_eq!(line(&c.to_string()), "?", "{c:?}");
            assert_eq!(lines(&c.to_string()), "?", "{c:?}");
        }
    }

    #[test]
    fn words_with_meaning_to_shells_are_quoted() {
        for word in ["eth0.5", "a@b", "/x/y-z"] {
            assert_eq!(shell_word(word), word);
        }
        assert_eq!(shell_word("a;reboot"), "'a;reboot'");
        assert_eq!(shell_word("it's $x"), "'it'\\''s $x'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn text_of_every_language_stays() {
        for text in [
            "Zoë 10 %",
            "שלום",
            "日本語",
            "مرحبا",
            "👩\u{200d}🔬",
            "a|b",
            "",
        ] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }
}
