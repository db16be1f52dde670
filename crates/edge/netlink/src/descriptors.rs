//! Descriptors that child processes must not inherit.

use std::io;

/// Descriptors from here on are not standard input, output or error.
const FIRST: libc::c_uint = 3;

/// Marks every descriptor of this process except the standard ones, so that no program that it starts later
/// inherits one. Also those that its parent left open.
///
/// # Errors
/// The kernel refuses.
pub fn close_on_exec() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
    // SAFETY: the call only sets a flag of descriptors. It closes none, and reads no memory.
    match unsafe { libc::close_range(FIRST, libc::c_uint::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
