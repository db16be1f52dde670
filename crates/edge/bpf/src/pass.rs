//! A program of another owner: it ends every packet at tcx with `TCX_PASS`, so that programs after it
//! see none. For tests of the order; never attached by the monitor.

use std::mem::MaybeUninit;

use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramMut};

use crate::attach::{AttachError, Attached, Hook, attach};
use crate::skel::empty::{EmptySkel, EmptySkelBuilder};
use crate::tcx;

/// `TCX_PASS` for every packet of one hook, ahead of the programs that are there, until dropped.
pub struct Passer {
    _attached: Attached,
    _skel: EmptySkel<'static>,
}

impl Passer {
    /// Attaches to tcx ingress or egress of an interface of the current network namespace.
    ///
    /// # Errors
    /// The kernel refuses the program or its place.
    pub fn attach(ifindex: IfIndex, hook: Hook) -> Result<Passer, Box<dyn std::error::Error>> {
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skel = EmptySkelBuilder::default().open(place)?.load()?;
        let program = match hook {
            Hook::TcxEgress => &mut skel.progs.pass_egress,
            _ => &mut skel.progs.pass_ingress,
        };
        let attached = attach_as_other(program, hook, ifindex, "")?;
        Ok(Passer {
            _attached: attached,
            _skel: skel,
        })
    }
}

impl std::fmt::Debug for Passer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passer")
    }
}

/// As another process would: not recorded as ours.
pub(crate) fn attach_as_other(
    program: &mut ProgramMut<'_>,
    hook: Hook,
    ifindex: IfIndex,
    name: &str,
) -> Result<Attached, AttachError> {
    let attached = attach(program, hook, ifindex, name)?;
    tcx::is_not_ours(program);
    Ok(attached)
}
