//! Arenas: memory that programs and this process share, at a fixed address.
//!
//! The shared memory begins at [`START`]: libbpf may keep globals in the first page, and programs
//! read a zero from it (`FP_ZERO`). The kernel's side cannot fault in a page, so the owner of an
//! arena touches all pages that programs write to.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{AsRawLibbpf, Map, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Offset of the shared memory.
pub(crate) const START: u64 = 4096;
/// Arenas are 4 GiB apart from here on: 1 << 44 would collide with sanitizers.
const BASE: u64 = 2 << 44;
/// The size of the largest arena.
pub(crate) const STRIDE: u64 = 4 << 30;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Addresses of arenas that end with the process, up to those that outlive it.
const PLACES: u64 = (KEPT - BASE) / STRIDE;

/// A user-space address for an arena where this process has no mapping. Addresses are used in turn:
/// none is reused before all others.
pub(crate) fn next_address() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let turn = || BASE + NEXT.fetch_add(1, Ordering::Relaxed) % PLACES * STRIDE;
    (0..PLACES)
        .map(|_| turn())
        .find(|address| is_free(*address))
        .unwrap_or(BASE)
}

/// True if there is no mapping at the start of an arena.
fn is_free(address: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = address as *mut libc::c_void;
    let page = PAGE as usize;
    // SAFETY: maps a page only where there is none.
    let at = unsafe { libc::mmap(wanted, page, libc::PROT_NONE, flags, -1, 0) };
    if at != libc::MAP_FAILED {
        // SAFETY: the page mapped above.
        unsafe { libc::munmap(at, page) };
    }
    at == wanted
}

/// Base of arenas that outlive a process: another process must map one at the same address.
const KEPT: u64 = 3 << 44;
/// Addresses of such arenas.
const KEPT_PLACES: u64 = 4096;
/// Addresses that this process has mapped.
static KEPT_TAKEN: Mutex<BTreeMap<u64, Taken>> = Mutex::new(BTreeMap::new());

/// The use of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// By an object that this process loaded.
    Loaded,
    /// By a found arena. The kernel maps it only here, so users share the mapping if they name its id.
    Found { map: Option<u32>, users: usize },
}

/// An address for an arena that outlives the process: by `hash`, and not used by this process.
pub(crate) fn kept_address(hash: u64) -> u64 {
    let mut taken = KEPT_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let addresses = (0..KEPT_PLACES).map(|i| KEPT + (hash.wrapping_add(i) % KEPT_PLACES) * STRIDE);
    let mut free = addresses.filter(|address| !taken.contains_key(address));
    let address = free.next().unwrap_or(KEPT);
    taken.insert(address, Taken::Loaded);
    address
}

/// Releases the address of a loaded arena after its unmapping.
pub(crate) fn release_address(address: u64) {
    KEPT_TAKEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&address);
}

/// Maps a found arena at its only valid address. With the id of the map, it shares a mapping that this
/// process has of it.
pub(crate) fn map_kept(
    map: &MapHandle,
    id: Option<u32>,
    address: u64,
    bytes: u64,
) -> Option<NonNull<u8>> {
    let mut taken = KEPT_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let at = NonZeroUsize::new(address as usize).filter(|_| bytes <= STRIDE)?;
    if let Some(used) = taken.get_mut(&address) {
        return match used {
            Taken::Found { map, users } if id.is_some() && *map == id => {
                *users += 1;
                NonNull::new(address as *mut u8)
            }
            _ => None,
        };
    }
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED_NOREPLACE;
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let length = NonZeroUsize::new(bytes as usize)?;
    // SAFETY: replaces no mapping.
    let mapped = unsafe { mmap(Some(at), length, both, flags, map.as_fd(), 0) }.ok()?;
    taken.insert(address, Taken::Found { map: id, users: 1 });
    Some(mapped.cast())
}

/// Ends the use of a found arena. The last one unmaps it.
pub(crate) fn unmap_kept(start: NonNull<u8>, bytes: usize) {
    let mut taken = KEPT_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let address = start.addr().get() as u64;
    if let Some(Taken::Found { users, .. }) = taken.get_mut(&address) {
        *users -= 1;
        if *users > 0 {
            return;
        }
    }
    taken.remove(&address);
    // SAFETY: map_kept() mapped it, and no user is left.
    let _ = unsafe { munmap(start.cast(), bytes) };
}

/// The address at which libbpf mapped the arena of a loaded object: as requested.
pub(crate) fn mapped_at(map: &Map<'_>) -> Option<NonNull<u8>> {
    // SAFETY: a loaded map.
    let address = unsafe { libbpf_sys::bpf_map__map_extra(map.as_libbpf_object().as_ptr()) };
    NonNull::new(address as *mut u8)
}

/// Writes to every page once, without changing it.
///
/// # Safety
/// The mapping begins at `start`, has this number of pages, and is not used yet.
pub(crate) unsafe fn touch(start: NonNull<u8>, pages: u64) {
    // In one call, which takes a third less time than a fault for each page.
    // SAFETY: the caller ensures the mapping, whose content stays.
    let populated = unsafe {
        let bytes = (pages * PAGE) as usize;
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE)
    };
    if populated == 0 {
        return;
    }
    for page in 0..pages {
        // SAFETY: the caller ensures the mapping.
        let at = unsafe { start.add((page * PAGE) as usize) };
        // SAFETY: as above.
        let byte = unsafe { at.read_volatile() };
        // SAFETY: as above; the same byte is written back.
        unsafe { at.write_volatile(byte) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_not_used_for_arenas() {
        let first = next_address();
        let (wanted, page) = (first as *mut libc::c_void, PAGE as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a page without a mapping.
        let at = unsafe { libc::mmap(wanted, page, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(at, wanted);
        assert!(!is_free(first));
        // Addresses repeat, but never this one, and never one above the end.
        for _ in 0..2 * PLACES {
            let next = next_address();
            assert!(next != first && (BASE..KEPT).contains(&next));
        }
        // SAFETY: the page mapped above.
        unsafe { libc::munmap(at, page) };
        assert!(is_free(first));
    }
}
