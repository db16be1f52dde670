//! Standard output: colors, and a reader that closes the pipe.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fairpath_units::text::lines;

/// Writes to standard output, without control characters except newline and tab. A reader that closed the pipe, such as `head`, is no failure.
///
/// # Errors
/// Any other failure of the write, for example a full disk.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    write(lines(&text.to_string()).as_bytes())
}

/// Writes a file's content to standard output: exactly these bytes, but as [`print`] on a terminal.
///
/// # Errors
/// As [`print`].
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match io::stdout().is_terminal() {
        true => print(String::from_utf8_lossy(bytes)),
        false => write(bytes),
    }
}

/// As [`print`], where the text has colors: their escape sequences (`ESC [ 1 m`) stay, all others do not.
///
/// # Errors
/// As [`print`].
pub fn print_colored(text: &str) -> anyhow::Result<()> {
    write(colored(text).as_bytes())
}

/// Replaces all unsafe characters except the escape sequences of colors.
pub(crate) fn colored(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut safe = lines(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let end = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        safe.push_str(if end.starts_with('m') {
            "\u{1b}["
        } else {
            "?["
        });
        safe.push_str(&lines(part));
    }
    safe
}

/// As [`print`], for commands that print until they are interrupted. False: the reader closed the pipe.
///
/// # Errors
/// As [`print`].
pub fn print_to_reader(text: impl Display) -> anyhow::Result<bool> {
    write_to_reader(lines(&text.to_string()).as_bytes())
}

/// Set when the reader has closed the pipe.
static READER_ENDED: AtomicBool = AtomicBool::new(false);

/// True after a print that no one reads: a command that repeats it ends, and nothing depends on it.
pub fn reader_has_ended() -> bool {
    READER_ENDED.load(Ordering::Relaxed)
}

fn write(bytes: &[u8]) -> anyhow::Result<()> {
    write_to_reader(bytes).map(drop)
}

fn write_to_reader(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            READER_ENDED.store(true, Ordering::Relaxed);
            Ok(false)
        }
        written => {
            written.context("write to standard output")?;
            Ok(true)
        }
    }
}

/// True if colors belong on standard output: by `--color`, `NO_COLOR` and the terminal.
pub fn color_stdout() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

#[cfg(test)]
mod tests {
    use super::colored;

    #[test]
    fn only_escape_sequences_of_colors_stay() {
        let text =
            "\u{1b}[1mhead\u{1b}[0m \u{1b}[38;5;1mx\n\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}2J\u{1b}[";
        let safe = "\u{1b}[1mhead\u{1b}[0m \u{1b}[38;5;1mx\n?[2J?]0;t??2J?[";
        assert_eq!(colored(text), safe);
    }
}
