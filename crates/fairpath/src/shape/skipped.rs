//! Stages of the stack that packets pass by where AF_XDP carries them.

use fairpath_units::IfIndex;

use super::Mode;

/// What this router has of them, in words.
///
/// # Errors
/// Where the kernel does not tell.
pub fn stages(_: &[IfIndex; 2], _: Mode) -> anyhow::Result<Vec<String>> {
    Ok(Vec::new())
}
