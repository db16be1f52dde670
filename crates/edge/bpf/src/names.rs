//! BPF programs and maps by their ids.

use std::collections::BTreeMap;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::Iter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::info_of;
use crate::skel::programs::ProgramsSkelBuilder;

/// `struct named_program`: an id, then the name with zeros at its end.
const ENTRY_BYTES: usize = 20;
/// More than the programs of any host. The kernel's iterator ends earlier.
const MAX_BYTES: u64 = 100_000 * ENTRY_BYTES as u64;

/// The last list. The kernel counts ids upwards: a program does not get the id of an earlier one.
static LISTED: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());

/// The name of a loaded program, up to 15 characters. `None`: there is none, or no permission:
/// `CAP_SYS_ADMIN`, or `CAP_BPF` and `CAP_PERFMON`.
///
/// Without `CAP_SYS_ADMIN`, an id that was not met before costs a list of all programs.
pub(crate) fn name_of(id: u32) -> Option<String> {
    // SAFETY: takes a number.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM) => by_list(id),
            _ => None,
        };
    }
    // SAFETY: the call gave a descriptor that no other code owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let info = info_of(fd.as_fd())?;
    Some(text(&info.name.map(|c| c as u8)))
}

/// True if the kernel still has a map. It takes no reference to the map, as `BPF_MAP_GET_FD_BY_ID` does:
/// when user space releases a map of programs again before the kernel has emptied it, that map is never
/// freed (Linux 6.18). Needs `CAP_SYS_ADMIN`.
pub fn has_map(id: u32) -> bool {
    let mut next = 0;
    // SAFETY: takes a number, and writes the next one.
    let found = unsafe { libbpf_sys::bpf_map_get_next_id(id.saturating_sub(1), &mut next) };
    found == 0 && next == id
}

fn by_list(id: u32) -> Option<String> {
    let mut known = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains_key(&id) {
        *known = listed().ok()?;
    }
    known.get(&id).cloned()
}

/// All programs of this kernel, by its own list.
fn listed() -> Result<BTreeMap<u32, String>, libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let skel = ProgramsSkelBuilder::default().open(&mut place)?.load()?;
    let link = skel.progs.program_names.attach()?;
    let mut bytes = Vec::new();
    Iter::new(&link)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let entry = |entry: &[u8]| {
        let (id, name) = entry.split_first_chunk()?;
        Some((u32::from_ne_bytes(*id), text(name)))
    };
    Ok(bytes.chunks_exact(ENTRY_BYTES).filter_map(entry).collect())
}

pub(crate) fn text(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use caps::{CapSet, Capability};
    use fairpath_testbed::{Need, requires};

    use super::*;
    use crate::skel::empty::EmptySkelBuilder;

    #[test]
    fn names_are_found_with_the_daemons_capabilities() {
        requires!(Need::Root);
        let mut place = MaybeUninit::uninit();
        let open = EmptySkelBuilder::default().open(&mut place).unwrap();
        let skel = open.load().unwrap();
        let id = info_of(skel.progs.empty_egress.as_fd()).unwrap().id;
        let by_id = name_of(id);
        // Capabilities are of the thread.
        let listed = std::thread::scope(|scope| {
            let without = || {
                let kept = [Capability::CAP_BPF, Capability::CAP_PERFMON].into();
                caps::set(None, CapSet::Effective, &kept).unwrap();
                (name_of(id), name_of(u32::MAX))
            };
            scope.spawn(without).join().unwrap()
        });
        assert_eq!(by_id.as_deref(), Some("empty_egress"));
        assert_eq!(listed, (by_id, None));
    }
}
