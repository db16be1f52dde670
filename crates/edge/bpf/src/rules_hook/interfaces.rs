//! Programs of rules at tcx of interfaces, one pinned link for each: those of arptables.
//!
//! They read the rules that packets meet in the arena, as the programs at the hooks do, so a change of rules
//! needs no step for them. Without rules they find nothing to evaluate. An interface that appears later has
//! no program until [`HookRules::attach_arp`] is called again.

use std::mem::MaybeUninit;
use std::path::Path;

use fairpath_units::IfIndex;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, ProgramMut};

use super::{HookError, HookRules};
use crate::attach::{AttachError, Hook, attach};
use crate::pin::{self, PinError, Pins};
use crate::tcx;

/// Kinds of pins, and the hooks of their programs: INPUT and OUTPUT of arptables.
const ARP: [(&str, Hook); 2] = [
    ("rules-arp-in", Hook::TcxIngress),
    ("rules-arp-out", Hook::TcxEgress),
];
/// The names of the programs.
const PROGRAMS: [&str; 2] = ["rules_arp_in", "rules_arp_out"];
/// The loopback interface, which every namespace has.
const LO: IfIndex = IfIndex(1);

impl HookRules {
    /// Puts the programs of arptables at tcx of interfaces of the calling thread's network namespace, before
    /// other programs, and pins them there. Those that have them keep them, and those that disappear at the
    /// same time are omitted. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Interface`] names the interface that refuses a program.
    pub fn attach_arp(
        &mut self,
        pins: &Pins,
        interfaces: &[(IfIndex, &str)],
    ) -> Result<(), HookError> {
        let present = HookRules::arp_interfaces(pins)?;
        let is_new = |(interface, _): &&(IfIndex, &str)| !present.contains(interface);
        let new: Vec<_> = interfaces.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut place = MaybeUninit::uninit();
        let mut skel = self
            .load_more(&mut place, &PROGRAMS)
            .map_err(HookError::Refused)?;
        for (interface, name) in new {
            for (kind, hook) in ARP {
                let program = match hook {
                    Hook::TcxIngress => &mut skel.progs.rules_arp_in,
                    _ => &mut skel.progs.rules_arp_out,
                };
                let path = pins.of(kind, *interface)?;
                if !attach_pinned(program, hook, (*interface, name), &path)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes the programs of arptables from all interfaces except for these. Only with
    /// [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Pin`].
    pub fn keep_arp(pins: &Pins, interfaces: &[IfIndex]) -> Result<(), HookError> {
        ARP.iter()
            .try_for_each(|(kind, _)| pins.sweep(kind, interfaces))
            .map_err(HookError::Pin)
    }

    /// The interfaces that have the programs of arptables.
    ///
    /// # Errors
    /// [`HookError::Pin`], [`HookError::Refused`].
    pub fn arp_interfaces(pins: &Pins) -> Result<Vec<IfIndex>, HookError> {
        let mut with = Vec::new();
        for interface in pins.interfaces(ARP[0].0)? {
            let paths = ARP.map(|(kind, _)| pins.of(kind, interface));
            let mut all = true;
            for path in paths {
                all = all && is_attached(&path?)?;
            }
            with.extend(all.then_some(interface));
        }
        Ok(with)
    }
}

/// Attaches a program to an interface, and pins the link, unless that is done. False: the interface has
/// disappeared.
pub(super) fn attach_pinned(
    program: &mut ProgramMut<'_>,
    hook: Hook,
    (interface, name): (IfIndex, &str),
    path: &Path,
) -> Result<bool, HookError> {
    if is_attached(path)? {
        return Ok(true);
    }
    pin::remove(path)?;
    match attach(program, hook, interface, name) {
        Ok(attached) => attached
            .pin(path)
            .map(|()| true)
            .map_err(HookError::Refused),
        Err(AttachError { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(HookError::Interface(error)),
    }
}

/// True if there is a pin, and its link is attached: that of a removed interface is not.
pub(super) fn is_attached(path: &Path) -> Result<bool, HookError> {
    if !path.exists() {
        return Ok(false);
    }
    let link = Link::open(path).map_err(HookError::Refused)?;
    let info = link.info().map_err(HookError::Refused)?;
    Ok(matches!(info.info, LinkTypeInfo::Tcx(at) if at.ifindex != 0))
}

/// True if a program of arptables is at an interface of this network namespace.
pub(super) fn are_present() -> Result<bool, HookError> {
    let names = tcx::names(LO, Hook::TcxIngress).map_err(HookError::List)?;
    Ok(names.iter().any(|name| PROGRAMS.contains(&&name[..])))
}

/// Removes the pins of all links. False if there were none.
pub(super) fn remove(pins: &Pins) -> Result<bool, PinError> {
    let mut found = false;
    for (kind, _) in ARP {
        for interface in pins.interfaces(kind)? {
            found |= pin::remove(&pins.of(kind, interface)?)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_load() {
        let rules = HookRules::load().unwrap();
        rules
            .load_more(&mut MaybeUninit::uninit(), &PROGRAMS)
            .unwrap();
    }
}
