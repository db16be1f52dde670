//! What the stack itself sends by the exits of a monitor that forwards (bpf/prog/stack_sent.h).
//!
//! The kernel's side adds, this side reads: a map's page, shared. A reader is a separate value, for
//! the thread that schedules; a look costs two loads.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::forward::EXITS;

/// What the stack itself sent by an exit since the monitor was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Segments of GSO packets counted one by one.
    pub packets: u64,
    /// Ethernet frames without FCS.
    pub bytes: u64,
}

/// Reads what the stack sends by the exits; a separate value that may outlive the monitor.
#[derive(Debug)]
pub struct StackSent {
    counts: NonNull<AtomicU64>,
}

/// Bytes of the map's pages.
const SENT_BYTES: usize = 4096;

// SAFETY: memory that no thread owns, read by atomic loads only.
unsafe impl Send for StackSent {}

impl StackSent {
    pub(crate) fn map(fd: BorrowedFd<'_>) -> io::Result<StackSent> {
        // SAFETY: a fresh read-only mapping of the map's one page, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SENT_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let counts = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(StackSent { counts })
    }

    /// Two loads. Packets and bytes may be of two moments. Zeros for an exit that there is not.
    pub fn read(&self, exit: usize) -> Sent {
        if exit >= EXITS {
            return Sent::default();
        }
        let load = |at: usize| {
            // SAFETY: both exits' two words lie in the mapped page.
            let count = unsafe { self.counts.add(2 * exit + at) };
            // SAFETY: mapped while the value lives, and changed by atomic additions only.
            unsafe { count.as_ref() }.load(Ordering::Relaxed)
        };
        Sent {
            packets: load(0),
            bytes: load(1),
        }
    }
}

impl Drop for StackSent {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping.
        unsafe { libc::munmap(self.counts.as_ptr().cast(), SENT_BYTES) };
    }
}
