//! Standard output: colors, and a reader that closes the pipe.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;

/// Writes to standard output. A reader that closed the pipe, such as `head`, is no failure.
///
/// # Errors
/// Any other failure of the write, for example a full disk.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}

/// True if colors belong on standard output: by `--color`, `NO_COLOR` and the terminal.
pub fn color_stdout() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}
