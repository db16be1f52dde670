//! A line as words: blanks separate them, double quotes join them, a backslash in quotes keeps the
//! next byte. Single quotes are ordinary bytes, as in the original tools.

use std::borrow::Cow;

use crate::place::LineError;

/// Most words of a line.
pub const MAX_WORDS: usize = 1024;

/// A word and its column, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<'a> {
    /// The word without its quotes.
    pub text: Cow<'a, [u8]>,
    /// The column of its first byte, from 1.
    pub column: u32,
}

/// Splits a line into `out`.
///
/// # Errors
///
/// A quote without end, or more than [`MAX_WORDS`].
pub fn split<'a>(line: &'a [u8], out: &mut Vec<Word<'a>>) -> Result<(), LineError> {
    out.clear();
    let mut at = 0;
    while at < line.len() {
        if matches!(line[at], b' ' | b'\t' | b'\n') {
            at += 1;
            continue;
        }
        if out.len() == MAX_WORDS {
            return Err(LineError::new(
                at as u32 + 1,
                format!("more than {MAX_WORDS} words in a line"),
            ));
        }
        let start = at;
        while at < line.len() && !matches!(line[at], b' ' | b'\t' | b'\n' | b'"') {
            at += 1;
        }
        let column = start as u32 + 1;
        if at == line.len() || line[at] != b'"' {
            out.push(Word {
                text: Cow::Borrowed(&line[start..at]),
                column,
            });
            continue;
        }
        let (text, end) = quoted(line, start, at)?;
        at = end;
        out.push(Word {
            text: Cow::Owned(text),
            column,
        });
    }
    Ok(())
}

/// A word with quotes: its bytes before the first quote at `at`, and the rest.
fn quoted(line: &[u8], start: usize, at: usize) -> Result<(Vec<u8>, usize), LineError> {
    let mut text = line[start..at].to_vec();
    let mut at = at;
    let mut open = None;
    while at < line.len() {
        let byte = line[at];
        match (open, byte) {
            (None, b' ' | b'\t' | b'\n') => break,
            (None, b'"') => open = Some(at),
            // The original tools end a word at the quote.
            (Some(_), b'"') => return Ok((text, at + 1)),
            (Some(_), b'\\') if at + 1 < line.len() => {
                at += 1;
                text.push(line[at]);
            }
            _ => text.push(byte),
        }
        at += 1;
    }
    match open {
        None => Ok((text, at)),
        Some(quote) => Err(LineError::new(
            quote as u32 + 1,
            "the quote has no end: add \" at the end of the text",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let mut out = Vec::new();
        split(line.as_bytes(), &mut out).unwrap();
        out.iter()
            .map(|word| String::from_utf8_lossy(&word.text).into_owned())
            .collect()
    }

    #[test]
    fn only_double_quotes_join_words() {
        assert_eq!(words(r#"-m comment --comment "a b""#)[3], "a b");
        assert_eq!(words("x 'a b'"), ["x", "'a", "b'"]);
        assert_eq!(words(r#"a"b \" c"d "" e"#), ["ab \" c", "d", "", "e"]);
        assert_eq!(words(r"a\b"), [r"a\b"]);
    }

    #[test]
    fn quote_without_end_names_its_column() {
        let error = split(br#"-A "x"#, &mut Vec::new()).unwrap_err();
        assert_eq!(error.column, 4);
    }
}
