//! BPF programs of other owners at netfilter hooks. Kernels without `nfnetlink_hook` list them nowhere
//! else.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link};

use crate::names::text;
use crate::skel::netfilter::NetfilterSkelBuilder;
use crate::tcx::TcxProgram;

/// `struct hooked_program`: an id, the name with zeros at its end, the family, the hook.
const ENTRY_BYTES: usize = 28;
/// More than the kernel has places for at its hooks (`MAX_HOOK_COUNT` is 1,024 each).
const MAX_BYTES: u64 = 20_000 * ENTRY_BYTES as u64;

/// The iterator, loaded once.
static ITERATOR: Mutex<Option<Link>> = Mutex::new(None);

/// A BPF program at a netfilter hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedProgram {
    /// The program.
    pub program: TcxProgram,
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
    pub family: u32,
    /// `NF_INET_PRE_ROUTING` (0) to `NF_INET_POST_ROUTING` (4).
    pub hook: u32,
}

/// All BPF programs at the netfilter hooks of the calling thread's network namespace. None on a
/// kernel without such links. Needs `CAP_BPF` and `CAP_PERFMON`. O(BPF links of the host).
///
/// # Errors
/// The error of the kernel: then the programs are unknown.
pub fn netfilter_programs() -> io::Result<Vec<HookedProgram>> {
    let mut iterator = ITERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let link = match iterator.take() {
        Some(link) => link,
        None => load().map_err(io::Error::other)?,
    };
    let mut bytes = Vec::new();
    let list = Iter::new(iterator.insert(link)).map_err(io::Error::other)?;
    list.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let found = bytes.chunks_exact(ENTRY_BYTES).filter_map(entry);
    Ok(found.collect())
}

fn entry(entry: &[u8]) -> Option<HookedProgram> {
    let (id, rest) = entry.split_first_chunk()?;
    let (rest, hook) = rest.split_last_chunk()?;
    let (name, family) = rest.split_last_chunk()?;
    Some(HookedProgram {
        program: TcxProgram {
            id: u32::from_ne_bytes(*id),
            name: text(name),
        },
        family: u32::from_ne_bytes(*family),
        hook: u32::from_ne_bytes(*hook),
    })
}

fn load() -> Result<Link, libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let skel = NetfilterSkelBuilder::default().open(&mut place)?.load()?;
    skel.progs.netfilter_programs.attach()
}

#[cfg(test)]
mod tests {
    use caps::{CapSet, Capability};
    use fairpath_testbed::{Need, Testbed, requires};

    use super::*;
    use crate::probe;

    #[test]
    fn programs_at_netfilter_hooks_are_listed() {
        requires!(Need::Root);
        let testbed = Testbed::new();
        let here = testbed.netns("here").unwrap();
        let other = testbed.netns("other").unwrap();
        assert_eq!(here.enter(|| netfilter_programs().unwrap()).unwrap(), []);
        let Ok(link) = here.enter(|| probe::netfilter_link(1)).unwrap() else {
            fairpath_units::skip_test(
                "programs_at_netfilter_hooks_are_listed",
                "feature:netfilter_bpf",
                "the kernel has no such links",
            );
            return;
        };
        let listed = here.enter(|| {
            // As the daemon. Capabilities are of the thread.
            let kept = [Capability::CAP_BPF, Capability::CAP_PERFMON].into();
            let without = || {
                caps::set(None, CapSet::Effective, &kept).unwrap();
                netfilter_programs().unwrap()
            };
            std::thread::scope(|scope| scope.spawn(without).join().unwrap())
        });
        let listed = listed.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].family, listed[0].hook), (2, 2));
        assert_eq!(listed[0].program.name, "fairpath_probe");
        assert_eq!(other.enter(|| netfilter_programs().unwrap()).unwrap(), []);
        drop(link);
        assert_eq!(here.enter(|| netfilter_programs().unwrap()).unwrap(), []);
    }
}
