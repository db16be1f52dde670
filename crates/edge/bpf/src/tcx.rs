//! Other programs at tcx that see, change or end an interface's packets.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use fairpath_units::IfIndex;
use libbpf_rs::ProgramMut;

use crate::attach::{Hook, info_of};
use crate::names::name_of;

/// Ids of the programs that this process attached.
static ATTACHED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// More than the kernel's maximum at one hook (`BPF_MPROG_MAX`, 64).
const MAX_PROGRAMS: usize = 64;
/// The program of rules that change packets.
pub(crate) const RULES: &str = "rules_egress";
/// The program of rules of bridges at ingress, where those of ARP come next.
pub(crate) const BRIDGE_IN: &str = "rules_br_in";
const ARP_IN: &str = "rules_arp_in";
/// Names of our programs at these hooks.
const OURS: [&str; 11] = [
    RULES,
    BRIDGE_IN,
    "rules_br_out",
    "rtt_ingress",
    "rtt_ingress_raw",
    "rtt_egress",
    "rtt_egress_raw",
    "mark_egress",
    "mark_egress_raw",
    ARP_IN,
    "rules_arp_out",
];

/// A program of another owner at a tcx hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcxProgram {
    /// Its id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, up to 15 characters; empty without a name or permission.
    pub name: String,
}

/// Records a program that this process attached.
pub(crate) fn is_ours(program: &ProgramMut<'_>) {
    let id = info_of(program.as_fd()).map(|info| info.id);
    let mut ids = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
    ids.extend(id);
}

/// Takes back [`is_ours`], for a program that plays another owner's.
pub(crate) fn is_not_ours(program: &ProgramMut<'_>) {
    let mut ids = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
    ids.retain(|id| info_of(program.as_fd()).is_none_or(|info| info.id != *id));
}

impl TcxProgram {
    fn is_own(&self) -> bool {
        let ids = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        ids.contains(&self.id) || OURS.contains(&self.name.as_str())
    }
}

impl std::fmt::Display for TcxProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the program with id {}", self.id),
            name => write!(f, "the program {name:?} (id {})", self.id),
        }
    }
}

/// Programs of other owners at a tcx hook of an interface of the current network namespace, in
/// order. Needs `CAP_NET_ADMIN`, `CAP_BPF` and `CAP_PERFMON`. `fairpath_netlink::stages` lists
/// programs of the older `clsact`.
///
/// # Errors
/// The error of the kernel. A kernel without tcx (before 6.6) returns `EINVAL`.
pub fn tcx_programs(ifindex: IfIndex, hook: Hook) -> std::io::Result<Vec<TcxProgram>> {
    let all = in_order(ifindex, hook)?.into_iter();
    Ok(all.filter(|found| !found.is_own()).collect())
}

/// The programs of other owners that run before the last one of Fairpath. Any of them can end a
/// packet (`TCX_PASS` and more), which Fairpath then does not see.
///
/// # Errors
/// As [`tcx_programs`].
pub fn tcx_ahead(ifindex: IfIndex, hook: Hook) -> std::io::Result<Vec<TcxProgram>> {
    let mut all = in_order(ifindex, hook)?;
    let ours = all.iter().rposition(TcxProgram::is_own).unwrap_or(0);
    all.truncate(ours);
    all.retain(|found| !found.is_own());
    Ok(all)
}

/// True if a program is at a tcx hook of an interface of the current network namespace.
pub(crate) fn has(ifindex: IfIndex, hook: Hook, program: u32) -> std::io::Result<bool> {
    let all = kind(hook).map(|kind| ids(ifindex, kind)).transpose()?;
    Ok(all.unwrap_or_default().contains(&program))
}

/// Programs of other owners before those of rules, which do not see the packets that these end.
///
/// # Errors
/// As [`tcx_programs`].
pub(crate) fn before_rules(ifindex: IfIndex, hook: Hook) -> std::io::Result<Vec<TcxProgram>> {
    let mut all = in_order(ifindex, hook)?;
    let is_of_rules = |found: &TcxProgram| found.name.starts_with("rules_") && found.is_own();
    let rules = all.iter().rposition(is_of_rules).unwrap_or(0);
    all.truncate(rules);
    all.retain(|found| !found.is_own());
    Ok(all)
}

/// The names of all programs at a tcx hook.
pub(crate) fn names(ifindex: IfIndex, hook: Hook) -> std::io::Result<Vec<String>> {
    let all = in_order(ifindex, hook)?.into_iter();
    Ok(all.map(|found| found.name).collect())
}

/// The id of the program of rules that stays ahead of this one at a hook: rules that change packets, if they are
/// first at egress; and at ingress, those of bridges, of the ones of ARP.
pub(crate) fn ahead_of(program: &ProgramMut<'_>, ifindex: IfIndex, hook: Hook) -> Option<u32> {
    let name = program.name();
    let all = || in_order(ifindex, hook).unwrap_or_default();
    let found = match hook {
        Hook::TcxEgress if name != RULES => {
            let first = all().into_iter().next();
            first.filter(|program| program.name == RULES)
        }
        Hook::TcxIngress if name == ARP_IN => {
            all().into_iter().find(|program| program.name == BRIDGE_IN)
        }
        _ => None,
    };
    found.map(|program| program.id)
}

fn kind(hook: Hook) -> Option<u32> {
    match hook {
        Hook::TcxIngress => Some(libbpf_sys::BPF_TCX_INGRESS),
        Hook::TcxEgress => Some(libbpf_sys::BPF_TCX_EGRESS),
        Hook::Xdp => None,
    }
}

fn in_order(ifindex: IfIndex, hook: Hook) -> std::io::Result<Vec<TcxProgram>> {
    let Some(kind) = kind(hook) else {
        return Ok(Vec::new());
    };
    let named = ids(ifindex, kind)?.into_iter().map(|id| (id, name_of(id)));
    let named: Vec<_> = named.collect();
    // A program without a name was detached after the first list, or cannot be read.
    let still = match named.iter().all(|(_, name)| name.is_some()) {
        true => Vec::new(),
        false => ids(ifindex, kind)?,
    };
    let attached = named
        .into_iter()
        .filter(|(id, name)| name.is_some() || still.contains(id));
    let program = |(id, name): (u32, Option<String>)| TcxProgram {
        id,
        name: name.unwrap_or_default(),
    };
    Ok(attached.map(program).collect())
}

/// The ids of the programs at a hook, in order.
fn ids(ifindex: IfIndex, kind: u32) -> std::io::Result<Vec<u32>> {
    let mut ids = [0; MAX_PROGRAMS];
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..libbpf_sys::bpf_prog_query_opts::default()
    };
    query.__bindgen_anon_1.count = MAX_PROGRAMS as u32;
    // SAFETY: `query` points to memory for this number of ids; both live through the call.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(ifindex.0 as i32, kind, &raw mut query) };
    if result < 0 {
        return match std::io::Error::from_raw_os_error(-result) {
            // No program was ever attached there.
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            error => Err(error),
        };
    }
    // SAFETY: a plain number, which the kernel wrote.
    let count = unsafe { query.__bindgen_anon_1.count } as usize;
    Ok(ids[..count.min(MAX_PROGRAMS)].to_vec())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use fairpath_core::Rules;
    use fairpath_core::sched::End;
    use fairpath_testbed::{Need, Testbed, requires};
    use libbpf_rs::skel::{OpenSkel, SkelBuilder};

    use super::*;
    use crate::pass::attach_as_other;
    use crate::skel::empty::EmptySkelBuilder;
    use crate::{Mark, MarkOptions, MarkTo};

    const LO: IfIndex = IfIndex(1);

    #[test]
    fn only_other_programs_at_tcx_are_listed() {
        requires!(Need::Root);
        let ns = Testbed::new().netns("here").unwrap();
        let reported = ns.enter(|| {
            let mut place = MaybeUninit::uninit();
            let open = EmptySkelBuilder::default().open(&mut place).unwrap();
            let mut other = open.load().unwrap();
            let options = MarkOptions {
                classes: 1,
                end: End::Sender,
                to: MarkTo::Htb(1),
                queues: 0,
            };
            let mut mark = Mark::load(&options).unwrap();
            mark.set(&Rules::default(), &[2u16]).unwrap();
            assert_eq!(tcx_programs(LO, Hook::TcxEgress).unwrap(), vec![]);
            let _ours = mark.attach(LO, "lo", false).unwrap();
            assert_eq!(tcx_programs(LO, Hook::TcxEgress).unwrap(), vec![]);
            let program = &mut other.progs.empty_egress;
            let _theirs = attach_as_other(program, Hook::TcxEgress, LO, "lo").unwrap();
            assert_eq!(tcx_programs(LO, Hook::TcxIngress).unwrap(), vec![]);
            let others = tcx_programs(LO, Hook::TcxEgress).unwrap();
            assert_eq!(tcx_ahead(LO, Hook::TcxEgress).unwrap(), others);
            drop(_ours);
            let _ours = mark.attach(LO, "lo", false).unwrap();
            assert_eq!(tcx_ahead(LO, Hook::TcxEgress).unwrap(), vec![]);
            others
        });
        let reported = reported.unwrap();
        assert_eq!(
            (reported.len(), reported[0].name.as_str()),
            (1, "empty_egress")
        );
        assert!(reported[0].id > 0);
    }
}
