//! Traffic of the stack on the egress interfaces of a monitor that forwards
//! (bpf/prog/stack_sent.h).
//!
//! The kernel adds and this process reads, in a shared page of a map. A reader is a separate value
//! for the scheduler's thread. A read costs two loads.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::forward::EXITS;

/// Traffic of the stack on an egress interface since the monitor was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Segments of GSO packets counted one by one.
    pub packets: u64,
    /// Ethernet frames without FCS.
    pub bytes: u64,
}

/// Reads the traffic of the stack on the egress interfaces. A separate value that may outlive the
/// monitor.
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

    /// Two loads, so packets and bytes may be from two moments. Zeros for an unknown interface.
    pub fn read(&self, exit: usize) -> Sent {
        if exit >= EXITS {
            return Sent::default();
        }
        let load = |at: usize| {
            // SAFETY: the two words of both interfaces are in the mapped page.
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
