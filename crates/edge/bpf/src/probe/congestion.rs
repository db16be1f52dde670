//! What a congestion control tells of itself, asked of a socket that uses it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Room for what the kernel tells; today's largest is 52 bytes.
const INFO_BYTES: usize = 256;

/// The bytes of `INET_DIAG_BBRINFO`, or of what else the congestion control `name` has for
/// `TCP_CC_INFO` (tcp(7)), of a socket that is not connected: its length tells the structure.
///
/// Where the control is a module that is not loaded, the kernel loads it, if the caller may.
///
/// # Errors
/// `NotFound`: there is none of this name; `PermissionDenied`: this user may not choose it.
pub fn congestion_info(name: &str) -> io::Result<Vec<u8>> {
    let socket = open()?;
    let name = CString::new(name)?;
    let len = name.as_bytes().len() as libc::socklen_t;
    let value = name.as_ptr().cast();
    let (fd, level) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
    // SAFETY: `value` points to `len` readable bytes for the call's duration.
    checked(unsafe { libc::setsockopt(fd, level, libc::TCP_CONGESTION, value, len) })?;
    let mut info = vec![0u8; INFO_BYTES];
    let mut len = INFO_BYTES as libc::socklen_t;
    let into = info.as_mut_ptr().cast();
    // SAFETY: `into` has room for `len` bytes, of which the kernel tells how many it wrote.
    checked(unsafe { libc::getsockopt(fd, level, libc::TCP_CC_INFO, into, &raw mut len) })?;
    info.truncate(len as usize);
    Ok(info)
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    checked(fd)?;
    // SAFETY: the call gave a descriptor no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reno_tells_nothing_and_what_there_is_not_is_not_found() {
        assert_eq!(congestion_info("reno").unwrap(), [0u8; 0]);
        let error = congestion_info("no_such_control").unwrap_err();
        // Who may not load modules is told the same.
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
