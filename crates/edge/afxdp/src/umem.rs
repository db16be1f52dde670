//! A UMEM: the memory of frames, shared by kernel and process.
//!
//! Invariant: only bytes of held frames are read or changed here. The others belong to the kernel.
//! [`Frames`](crate::frames::Frames) knows the state of each.
//!
//! Deliberately absent: huge pages and unaligned chunks, which zero copy may need later.

use std::io;
use std::ptr::NonNull;

use crate::open::OpenError;

/// Bytes at the start of a frame that the kernel reserves (`XDP_PACKET_HEADROOM`). Metadata of the
/// XDP program is at their end.
pub const HEADROOM_BYTES: u32 = 256;
/// Frame sizes that the kernel supports: half a page and a page.
pub const FRAME_BYTES: [u32; 2] = [2048, 4096];
/// Maximum of frames of a UMEM: 4 GiB of the larger size.
pub const MAX_FRAMES: u32 = 1 << 20;
/// `MPOL_PREFERRED` of `linux/mempolicy.h`: pages of another node rather than none.
const PREFERRED: libc::c_int = 1;
/// Nodes in a mask of one word.
const MAX_NODES: u32 = 64;

/// The mapping.
#[derive(Debug)]
pub(crate) struct Umem {
    start: NonNull<u8>,
    frames: u32,
    frame_bytes: u32,
}

// SAFETY: memory of this process that no thread owns.
unsafe impl Send for Umem {}

impl Umem {
    /// Maps `frames` of `frame_bytes`, on NUMA node `node` if possible.
    pub fn map(frames: u32, frame_bytes: u32, node: Option<u32>) -> Result<Umem, OpenError> {
        if !FRAME_BYTES.contains(&frame_bytes) || !(1..=MAX_FRAMES).contains(&frames) {
            return Err(OpenError::Frames {
                frames,
                frame_bytes,
            });
        }
        let bytes = frames as usize * frame_bytes as usize;
        let failed = |source| OpenError::Memory { bytes, source };
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let start =
            NonNull::new(start.cast()).ok_or_else(|| failed(io::ErrorKind::Other.into()))?;
        let umem = Umem {
            start,
            frames,
            frame_bytes,
        };
        if let Some(node) = node {
            umem.prefer(node);
        }
        Ok(umem)
    }

    /// A hint: pages that the kernel cannot place there are on another node, and work.
    fn prefer(&self, node: u32) {
        if node >= MAX_NODES {
            return;
        }
        let mask = 1u64 << node;
        // SAFETY: our own mapping, whose pages are untouched; the mask is one word.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes(),
                PREFERRED,
                &raw const mask,
                u64::from(MAX_NODES) + 1,
                0,
            )
        };
    }

    pub fn bytes(&self) -> usize {
        self.frames as usize * self.frame_bytes as usize
    }

    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    pub fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// `len` bytes from `address` of the UMEM; `None` if they are not all in it.
    ///
    /// # Safety
    /// They are of a held frame.
    pub unsafe fn get(&self, address: u64, len: u32) -> Option<&[u8]> {
        let start = self.at(address, len)?;
        // SAFETY: inside of the mapping; the caller ensures that the kernel does not write it.
        Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
    }

    /// Like [`Umem::get`], mutable.
    ///
    /// # Safety
    /// As [`Umem::get`].
    pub unsafe fn get_mut(&mut self, address: u64, len: u32) -> Option<&mut [u8]> {
        let start = self.at(address, len)?;
        // SAFETY: inside of the mapping; the caller ensures that the kernel does not use it.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len as usize) })
    }

    fn at(&self, address: u64, len: u32) -> Option<*mut u8> {
        let end = address.checked_add(u64::from(len))?;
        if end > self.bytes() as u64 {
            return None;
        }
        // SAFETY: just checked to be inside.
        Some(unsafe { self.start.as_ptr().add(address as usize) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping; the kernel holds its own reference to the pages
        // while a socket uses them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn umem_refuses_bytes_outside() {
        let mut umem = Umem::map(2, 2048, Some(0)).unwrap();
        // SAFETY: no kernel uses this memory.
        unsafe { umem.get_mut(4090, 6) }.unwrap().fill(7);
        // SAFETY: as above.
        assert_eq!(unsafe { umem.get(4090, 6) }, Some(&[7; 6][..]));
        // SAFETY: as above.
        assert!(unsafe { umem.get(4090, 7) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { umem.get(u64::MAX, 7) }.is_none());
    }

    #[test]
    fn only_sizes_that_the_kernel_takes_are_mapped() {
        for (frames, bytes) in [(0, 2048), (MAX_FRAMES + 1, 2048), (16, 1024), (16, 8192)] {
            assert!(Umem::map(frames, bytes, None).is_err(), "{frames} {bytes}");
        }
    }
}
