//! Custom policies in the slots of a qdisc (`bpf/core/sched/slots.h`), loaded while it runs.
//!
//! A slot is an empty function in both programs that rank packets. A policy is attached to its entry
//! (`fentry`), works on the scratch of the CPU, and answers there. A slot of the active plan never
//! changes: another policy gets another slot, and then a new plan names it. So the verifier decides
//! before anything that runs is changed, and packets move to the new plan as to any other.
//!
//! ```text
//!   policy object -.
//!                  '- linked -- verifier --> entry of slot N in enqueue, and in dequeue
//!   slot.bpf.o ----'
//! ```
//!
//! With [`Pins`], programs, scratch and attachments outlive the process.

use std::cell::Cell;
use std::ffi::{CString, c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fairpath_core::sched::{Plan, Policy};
use libbpf_rs::{AsRawLibbpf, Linker, MapCore, MapHandle, Object, ObjectBuilder, Program};

use super::{OBJECT, QdiscError, pins};
use crate::author::{Refusal, refusal};
use crate::pin::{self, Pins};

/// The program that is linked with a policy, and calls it.
const CALLER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/slot.bpf.o"));
/// Maximum of custom policies of one plan: half of the slots, so that the next plan has as many others.
pub const QDISC_POLICIES: usize = Policy::CUSTOMS / 2;
/// The programs that have slots.
const PROGRAMS: [&str; 2] = ["qdisc_enqueue", "qdisc_dequeue"];
/// Their map.
const SCRATCH: &str = "scratches";

/// A custom policy for a qdisc.
#[derive(Clone, Copy, Debug)]
pub struct QdiscPolicy<'a> {
    /// Its description. The number is ignored: the place in the list counts.
    pub policy: &'a Policy,
    /// The same for the same code; not 0.
    pub identity: u64,
    /// Its object, as `fairpath_bpf::author::Compiler::policy` makes it.
    pub object: &'a [u8],
}

/// The plan with policies that have the numbers of their slots, and these policies.
pub(super) fn placed(
    plan: &Plan,
    customs: &[QdiscPolicy<'_>],
    slots: &[usize],
) -> (Plan, Vec<Policy>) {
    let number = |slot: usize| Policy::CUSTOM + slot as u32;
    let mut plan = plan.clone();
    for node in &mut plan.nodes {
        let custom = node.policy.checked_sub(Policy::CUSTOM);
        if let Some(slot) = custom.and_then(|custom| slots.get(custom as usize)) {
            node.policy = number(*slot);
        }
    }
    let policies = customs.iter().zip(slots).map(|(custom, slot)| Policy {
        id: number(*slot),
        ..custom.policy.clone()
    });
    (plan, policies.collect())
}

/// A slot for each policy: the one that has it, or one that is neither `used` (bit N: slot N) nor taken by another
/// policy. `None`: too few are free.
pub(super) fn choose(
    customs: &[QdiscPolicy<'_>],
    slots: &[AtomicU64; Policy::CUSTOMS],
    used: u8,
) -> Option<Vec<usize>> {
    let has = |identity: u64| {
        let mut slots = slots.iter();
        slots.position(|slot| slot.load(Ordering::Acquire) == identity)
    };
    let mut chosen: Vec<Option<usize>> = customs.iter().map(|one| has(one.identity)).collect();
    for at in 0..chosen.len() {
        let is_free = |slot: &usize| used >> slot & 1 == 0 && !chosen.contains(&Some(*slot));
        if chosen[at].is_none() {
            chosen[at] = Some((0..Policy::CUSTOMS).find(is_free)?);
        }
    }
    chosen.into_iter().collect()
}

/// Slots as bits.
pub(super) fn bits(slots: &[usize]) -> u8 {
    slots.iter().fold(0, |bits, slot| bits | 1 << slot)
}

/// The programs of one qdisc, their scratch, and what is in their slots.
pub(super) struct Slots {
    programs: Vec<OwnedFd>,
    scratch: OwnedFd,
    /// Attachments by slot. Those of an earlier process are only pinned.
    links: [Vec<OwnedFd>; Policy::CUSTOMS],
    /// Where to pin, and the qdisc's name.
    pins: Option<(Pins, String)>,
}

impl Slots {
    /// Of a loaded object, all empty.
    pub(super) fn of(
        object: &Object,
        name: &str,
        pinned: Option<&Pins>,
    ) -> Result<Slots, QdiscError> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let program = |name: &str| {
            let mut programs = object.progs();
            let program = programs.find(|program| program.name() == name);
            program.ok_or_else(missing)?.as_fd().try_clone_to_owned()
        };
        let programs = PROGRAMS.into_iter().map(program).collect::<io::Result<_>>();
        let scratch = object.maps().find(|map| map.name() == SCRATCH);
        let scratch = scratch.ok_or_else(missing);
        let slots = Slots {
            programs: programs.map_err(QdiscError::Slots)?,
            scratch: scratch
                .and_then(|map| map.as_fd().try_clone_to_owned())
                .map_err(QdiscError::Slots)?,
            links: Default::default(),
            pins: pinned.map(|pins| (pins.clone(), name.to_owned())),
        };
        for (program, fd) in PROGRAMS.iter().zip(&slots.programs) {
            slots.pin(fd, program)?;
        }
        slots.pin(&slots.scratch, SCRATCH)?;
        Ok(slots)
    }

    /// Of a qdisc of another process; `None` if its parts are not pinned.
    pub(super) fn found(name: &str, pins: &Pins) -> Option<Slots> {
        let program = |part: &&str| Program::fd_from_pinned_path(pins::part(pins, part, name)).ok();
        let programs: Option<Vec<_>> = PROGRAMS.iter().map(program).collect();
        let scratch = MapHandle::from_pinned_path(pins::part(pins, SCRATCH, name)).ok()?;
        Some(Slots {
            programs: programs?,
            scratch: scratch.as_fd().try_clone_to_owned().ok()?,
            links: Default::default(),
            pins: Some((pins.clone(), name.to_owned())),
        })
    }

    fn pin(&self, fd: &OwnedFd, part: &str) -> Result<(), QdiscError> {
        let Some((pins, name)) = &self.pins else {
            return Ok(());
        };
        let place = pins::part(pins, part, name);
        // Of a process that ended before it used it.
        pin::remove(&place)?;
        let path = CString::new(place.as_os_str().as_encoded_bytes());
        let path = path.map_err(|error| QdiscError::Slots(error.into()))?;
        // SAFETY: a valid descriptor, and a path that ends.
        match unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) } {
            0.. => Ok(()),
            error => Err(QdiscError::Slots(io::Error::from_raw_os_error(-error))),
        }
    }

    /// Puts a policy into each chosen slot that has another one, or none.
    ///
    /// # Errors
    /// [`QdiscError::Policy`]: the verifier refuses one; then its slot is empty.
    pub(super) fn fill(
        &mut self,
        customs: &[QdiscPolicy<'_>],
        chosen: &[usize],
        there: &[AtomicU64; Policy::CUSTOMS],
    ) -> Result<(), QdiscError> {
        for (custom, slot) in customs.iter().zip(chosen) {
            let identity = &there[*slot];
            if identity.load(Ordering::Acquire) == custom.identity {
                continue;
            }
            identity.store(0, Ordering::Release);
            self.clear(*slot)?;
            if let Err(error) = self.load(custom, *slot) {
                self.clear(*slot)?;
                return Err(error);
            }
            identity.store(custom.identity, Ordering::Release);
        }
        Ok(())
    }

    /// Empties a slot that no plan uses.
    fn clear(&mut self, slot: usize) -> Result<(), QdiscError> {
        self.links[slot].clear();
        if let Some((pins, name)) = &self.pins {
            for program in PROGRAMS {
                pin::remove(&pins::part(pins, &part(slot, program), name))?;
            }
        }
        Ok(())
    }

    fn load(&mut self, custom: &QdiscPolicy<'_>, slot: usize) -> Result<(), QdiscError> {
        let refused = |text: String| QdiscError::Policy(custom.policy.name.clone(), text);
        let linked = link(custom.object).map_err(|error| refused(error.to_string()))?;
        let entry = entry_of(slot).map_err(|error| refused(error.to_string()))?;
        for (target, program) in self.programs.iter().zip(PROGRAMS) {
            let _wish = Wish::set(target.as_raw_fd(), entry);
            let object = load(&linked, self.scratch.as_fd());
            let object = object.map_err(|error| refused(reason(&error, refusal(&linked))))?;
            let calling = object.progs().find(|program| program.name() == "slot_call");
            let calling = calling.ok_or_else(|| refused("its object has no program".to_owned()))?;
            let link = attach(calling.as_fd()).map_err(|error| refused(error.to_string()))?;
            self.pin(&link, &part(slot, program))?;
            self.links[slot].push(link);
        }
        Ok(())
    }
}

/// The names of all parts that may be pinned.
pub(super) fn parts() -> impl Iterator<Item = String> {
    let filled = (0..Policy::CUSTOMS).flat_map(|slot| PROGRAMS.map(|program| part(slot, program)));
    let always = PROGRAMS.into_iter().chain([SCRATCH]).map(str::to_owned);
    always.chain(filled)
}

fn part(slot: usize, program: &str) -> String {
    format!("slot{slot}-{program}")
}

/// The refusal of the kernel, in words for the author of the policy where they are known.
fn reason(error: &libbpf_rs::Error, refusal: Option<Refusal>) -> String {
    let Some(refusal) = refusal else {
        return error.to_string();
    };
    let place = refusal
        .line
        .as_deref()
        .map_or(String::new(), |line| format!(" at {line}"));
    match refusal.explained() {
        Some((why, remedy)) => format!("the verifier refuses it{place}: {why}; {remedy}"),
        None => format!("the verifier refuses it{place}: {}", refusal.reason),
    }
}

/// The policy's object with the program that calls it.
fn link(object: &[u8]) -> Result<Vec<u8>, libbpf_rs::Error> {
    let place = tempfile::NamedTempFile::new()?;
    let mut linker = Linker::new(place.path())?;
    for part in [object, CALLER] {
        linker.add_buf(part)?;
    }
    linker.link()?;
    Ok(std::fs::read(place.path())?)
}

fn load(linked: &[u8], scratch: BorrowedFd<'_>) -> Result<Object, libbpf_rs::Error> {
    register_section();
    let mut open = ObjectBuilder::default().open_memory(linked)?;
    for mut map in open.maps_mut() {
        if map.name() == SCRATCH {
            map.reuse_fd(scratch)?;
        }
    }
    open.load()
}

/// The type of a slot's function in the programs of a qdisc. It is that of its object, whose types the kernel takes
/// as they are: reading them back needs CAP_SYS_ADMIN, which a daemon has not.
fn entry_of(slot: usize) -> Result<u32, libbpf_rs::Error> {
    let invalid = || libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
    let name = CString::new(format!("slot{slot}")).map_err(|_| invalid())?;
    let object = ObjectBuilder::default().open_memory(OBJECT)?;
    // SAFETY: an open object, which outlives the pointer.
    let types = unsafe { libbpf_sys::bpf_object__btf(object.as_libbpf_object().as_ptr()) };
    // SAFETY: types of the open object, and a name that ends.
    let found = unsafe {
        libbpf_sys::btf__find_by_name_kind(types, name.as_ptr(), libbpf_sys::BTF_KIND_FUNC)
    };
    u32::try_from(found).map_err(|_| invalid())
}

fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (target, options) = (0, std::ptr::null());
    // SAFETY: a loaded program; it has its target, and there are no options.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            target,
            libbpf_sys::BPF_TRACE_FENTRY,
            options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

thread_local! {
    /// The program and the function in it to which the loading thread attaches.
    static WISH: Cell<Option<(c_int, u32)>> = const { Cell::new(None) };
}

/// While it lives, this thread loads callers for one slot.
struct Wish;

impl Wish {
    fn set(program: c_int, entry: u32) -> Wish {
        WISH.set(Some((program, entry)));
        Wish
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        WISH.set(None);
    }
}

/// Makes libbpf load programs of section `slot` as [`prepare`] says.
fn register_section() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let options = libbpf_sys::libbpf_prog_handler_opts {
            sz: size_of::<libbpf_sys::libbpf_prog_handler_opts>() as libbpf_sys::size_t,
            prog_prepare_load_fn: Some(prepare),
            ..Default::default()
        };
        // SAFETY: the name ends; the options are copied, and the function lives as long as the process.
        let id = unsafe {
            libbpf_sys::libbpf_register_prog_handler(
                c"slot".as_ptr(),
                libbpf_sys::BPF_PROG_TYPE_TRACING,
                libbpf_sys::BPF_TRACE_FENTRY,
                &raw const options,
            )
        };
        debug_assert!(id >= 0, "the only handler of this section");
    });
}

/// Called by libbpf before it loads a program of section `slot`.
unsafe extern "C" fn prepare(
    _: *mut libbpf_sys::bpf_program,
    options: *mut libbpf_sys::bpf_prog_load_opts,
    _: c_long,
) -> c_int {
    // SAFETY: options that libbpf is about to use.
    let options = unsafe { &mut *options };
    let Some((program, entry)) = WISH.get() else {
        return -libc::EINVAL;
    };
    options.attach_prog_fd = program.cast_unsigned();
    options.attach_btf_id = entry;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_policies_get_slots_that_no_plan_uses() {
        let policy = fairpath_core::sched::policies()[0].clone();
        let custom = |identity| QdiscPolicy {
            policy: &policy,
            identity,
            object: &[],
        };
        let slots: [AtomicU64; Policy::CUSTOMS] = Default::default();
        let fill = |chosen: &[usize], customs: &[QdiscPolicy<'_>]| {
            for (slot, custom) in chosen.iter().zip(customs) {
                slots[*slot].store(custom.identity, Ordering::Relaxed);
            }
            bits(chosen)
        };
        let first = [5, 6, 7, 8].map(custom);
        let chosen = choose(&first, &slots, 0).unwrap();
        assert_eq!(chosen, [0, 1, 2, 3]);
        let used = fill(&chosen, &first);
        // One changes, and the order, too.
        let second = [8, 5, 9].map(custom);
        let chosen = choose(&second, &slots, used).unwrap();
        assert_eq!(chosen, [3, 0, 4]);
        let both = used | fill(&chosen, &second);
        // All change: three slots are free of either plan, and six of the second one.
        let third = [1, 2, 3, 4].map(custom);
        assert_eq!(choose(&third, &slots, both), None);
        assert_eq!(
            choose(&third, &slots, bits(&chosen)),
            Some(vec![1, 2, 5, 6])
        );
    }

    #[test]
    fn plans_name_the_slots_of_their_policies() {
        let mut policy = fairpath_core::sched::policies()[0].clone();
        policy.id = 77;
        let custom = QdiscPolicy {
            policy: &policy,
            identity: 1,
            object: &[],
        };
        let node = |policy| fairpath_core::sched::NodeConfig {
            policy,
            ..Default::default()
        };
        let plan = Plan {
            nodes: vec![node(2), node(Policy::CUSTOM + 1), node(Policy::CUSTOM)],
            ..Plan::default()
        };
        let (plan, policies) = placed(&plan, &[custom, custom], &[6, 1]);
        let numbers: Vec<u32> = plan.nodes.iter().map(|node| node.policy).collect();
        assert_eq!(numbers, [2, Policy::CUSTOM + 1, Policy::CUSTOM + 6]);
        let numbers: Vec<u32> = policies.iter().map(|policy| policy.id).collect();
        assert_eq!(numbers, [Policy::CUSTOM + 6, Policy::CUSTOM + 1]);
    }

    #[test]
    fn every_slot_is_a_function_of_the_object() {
        let ids = (0..Policy::CUSTOMS).map(|slot| entry_of(slot).unwrap());
        let mut ids: Vec<u32> = ids.collect();
        ids.dedup();
        assert_eq!(ids.len(), Policy::CUSTOMS);
        assert!(entry_of(Policy::CUSTOMS).is_err());
    }
}
