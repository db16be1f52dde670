//! Rust and C text with comments, and strings if wanted, blanked out.
//!
//! Every byte that is removed becomes a space and newlines stay, so lines and columns still hold.
//! This is a scanner, not a parser: it finds comments (nested in Rust), strings, raw strings and
//! character literals, and distinguishes a lifetime from a character.

/// The text that stays in addition to the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Code,
    CodeAndStrings,
}

/// The text with everything but what `keep` names blanked.
pub fn mask(text: &str, keep: Keep) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (len, blank) = if let Some(len) = comment(rest) {
            (len, true)
        } else if let Some(len) = string(bytes, at) {
            (len, keep == Keep::Code)
        } else {
            (1, false)
        };
        if blank {
            blank_out(&mut out[at..at + len]);
        }
        at += len;
    }
    String::from_utf8(out)
        .expect("whole tokens, which begin and end in ASCII, were replaced by spaces")
}

/// The numbers (from 1) of the lines that contain `pattern` as a separate identifier.
pub fn lines_with(masked: &str, pattern: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let first_is_word = pattern.starts_with(is_word);
    let last_is_word = pattern.ends_with(is_word);
    let alone = |line: &str, at: usize| {
        let before = line[..at].chars().next_back().is_some_and(is_word);
        let after = line[at + pattern.len()..]
            .chars()
            .next()
            .is_some_and(is_word);
        !(first_is_word && before || last_is_word && after)
    };
    masked
        .lines()
        .enumerate()
        .filter(|(_, line)| line.match_indices(pattern).any(|(at, _)| alone(line, at)))
        .map(|(i, _)| i + 1)
        .collect()
}

fn blank_out(bytes: &mut [u8]) {
    bytes
        .iter_mut()
        .filter(|b| **b != b'\n')
        .for_each(|b| *b = b' ');
}

/// The length of the comment that begins here.
fn comment(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(b"/*") {
        return None;
    }
    let (mut depth, mut at) = (1, 2);
    while depth > 0 && at < rest.len() {
        match &rest[at..] {
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            _ => at += 1,
        }
    }
    Some(at)
}

/// The length of the string or character literal that begins at `at`.
fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let inside_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest[0] {
        b'r' if !inside_word => raw_string(rest, 1),
        b'b' if !inside_word && rest.get(1) == Some(&b'r') => raw_string(rest, 2),
        b'"' => Some(quoted(rest, b'"')),
        b'\'' => character(rest),
        _ => None,
    }
}

fn raw_string(rest: &[u8], prefix: usize) -> Option<usize> {
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|w| w == close);
    Some(end.map_or(rest.len(), |e| open + 1 + e + close.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `'x'` and `'\n'` are characters; `'a` in `&'a str` is a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]).unwrap_or_else(|e| {
        std::str::from_utf8(&rest[1..1 + e.valid_up_to()]).expect("valid up to there")
    });
    let len = text.chars().next()?.len_utf8();
    (rest.get(1 + len) == Some(&b'\'')).then_some(len + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_lines_stay() {
        let text = "a // unsafe\n/* x /* y */ unsafe\n */ b\n/// doc unsafe\nc";
        let masked = mask(text, Keep::Code);
        assert_eq!(
            masked.lines().map(str::trim).collect::<Vec<_>>(),
            ["a", "", "b", "", "c"]
        );
        assert_eq!(masked.len(), text.len());
    }

    #[test]
    fn strings_are_blanked_only_on_request() {
        let text = r####"f("todo!() \" //", r#"unsafe " "#, b"x", br"y") // z"####;
        assert!(!mask(text, Keep::Code).contains("unsafe"));
        assert_eq!(
            mask(text, Keep::CodeAndStrings).trim_end(),
            &text[..text.len() - 5]
        );
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        let masked = mask(
            "fn f<'a>(x: &'a str) { g('\"', '\\'', 'é'); unsafe {} } // '",
            Keep::Code,
        );
        assert!(masked.contains("unsafe {}"), "{masked}");
        assert!(!masked.contains('"'), "{masked}");
    }

    #[test]
    fn text_that_ends_inside_a_token_ends_there() {
        for text in ["\"abc", "r#\"abc\"", "/* a", "'", "'\\", "\"\\"] {
            assert_eq!(mask(text, Keep::CodeAndStrings).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn a_pattern_is_found_as_a_word() {
        let text =
            "unsafe_op\nunsafe {\nmy_unsafe\n  x.unsafe()\nInstant::now()\nTestInstant::now()";
        assert_eq!(lines_with(text, "unsafe"), [2, 4]);
        assert_eq!(lines_with(text, "Instant::now"), [5]);
    }
}
