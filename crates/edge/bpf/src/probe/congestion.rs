//! The state of a congestion control, read from a socket that uses it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Size of the buffer; the largest structure today has 52 bytes.
const INFO_BYTES: usize = 256;

/// The bytes of `INET_DIAG_BBRINFO`, or the corresponding `TCP_CC_INFO` (tcp(7)) of the congestion
/// control `name`, from a socket that is not connected. Their length identifies the structure.
///
/// The kernel loads the module of the control if necessary and permitted.
///
/// # Errors
/// `NotFound`: no such control; `PermissionDenied`: this user may not choose it.
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
    // SAFETY: `into` has `len` bytes; the kernel returns the number that it wrote.
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
    fn unknown_congestion_controls_are_not_found() {
        assert_eq!(congestion_info("reno").unwrap(), [0u8; 0]);
        let error = congestion_info("no_such_control").unwrap_err();
        // Without permission to load modules, the error is the same.
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
