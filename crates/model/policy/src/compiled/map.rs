//! Memory that is written as a file, and executed through a mapping of it.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::libc::{MFD_CLOEXEC, MFD_NOEXEC_SEAL};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::write;

/// Code that can be called.
#[derive(Debug)]
pub(super) struct Executable {
    at: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: nothing writes to the mapping.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    /// Maps a copy of machine code for this processor.
    ///
    /// # Errors
    /// The kernel refuses file or mapping.
    pub fn new(code: &[u8]) -> io::Result<Executable> {
        let bytes = NonZeroUsize::new(code.len()).ok_or(io::ErrorKind::InvalidInput)?;
        // Mapped only, never started: permitted under every value of vm.memfd_noexec.
        let flags = MFdFlags::from_bits_retain(MFD_CLOEXEC | MFD_NOEXEC_SEAL);
        let file = memfd_create(c"fairpath-policy", flags)?;
        let mut rest = code;
        while !rest.is_empty() {
            let written = write(&file, rest)?;
            rest = &rest[written..];
        }
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        // SAFETY: a new mapping of the file, at any address.
        let at = unsafe { mmap(None, bytes, protection, MapFlags::MAP_PRIVATE, &file, 0) }?;
        Ok(Executable { at, bytes })
    }

    /// Calls the code with two arguments.
    ///
    /// # Safety
    /// The bytes are a function of these arguments that is safe to call with them.
    pub unsafe fn call(&self, run: *mut c_void, number: u64) -> u64 {
        type Call = unsafe extern "C" fn(*mut c_void, u64) -> u64;
        // SAFETY: a function begins with the first byte.
        let call: Call = unsafe { std::mem::transmute(self.at.as_ptr()) };
        // SAFETY: the caller ensures it.
        unsafe { call(run, number) }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        let _ = unsafe { munmap(self.at, self.bytes.get()) };
    }
}
