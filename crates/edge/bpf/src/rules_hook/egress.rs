//! Rules of table mangle that change packets in POSTROUTING, or limit the MSS in FORWARD: a program at tcx
//! egress of each interface.
//!
//! A program of netfilter cannot change a packet. At tcx egress, a packet still has its route, its connection
//! and its socket, and its qdisc comes next. The program reads the rules that packets meet in the arena, as
//! those at the hooks do.

use std::mem::MaybeUninit;

use fairpath_units::IfIndex;

use super::interfaces::{attach_pinned, is_attached};
use super::{EGRESS, HookError, HookRules, LIMITS, Ordering};
use crate::attach::Hook;
use crate::pin::Pins;
use crate::tcx::RULES;

/// The kind of its pins.
const KIND: &str = "rules-egress";

impl HookRules {
    /// Puts the program at interfaces of the calling thread's network namespace, before other programs, and
    /// pins it there. Those that have it keep it, and those that disappear at the same time are omitted. Only
    /// with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Interface`] names the interface that refuses the program.
    pub fn attach_egress(
        &self,
        pins: &Pins,
        interfaces: &[(IfIndex, &str)],
    ) -> Result<(), HookError> {
        let present = HookRules::egress_interfaces(pins)?;
        let is_new = |(interface, _): &&(IfIndex, &str)| !present.contains(interface);
        let new: Vec<_> = interfaces.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut place = MaybeUninit::uninit();
        let loaded = self.load_more(&mut place, &[RULES]);
        let mut skel = loaded.map_err(HookError::Refused)?;
        for (interface, name) in new {
            let program = &mut skel.progs.rules_egress;
            let path = pins.of(KIND, *interface)?;
            attach_pinned(program, Hook::TcxEgress, (*interface, name), &path)?;
        }
        Ok(())
    }

    /// True if the opened rules have a program at tcx egress.
    pub fn runs_at_egress(&self) -> bool {
        let programs = &self.header().programs[self.seen.place];
        let mut words = programs.iter().map(|word| word.load(Ordering::Acquire));
        words.any(|word| word & (EGRESS | LIMITS) != 0)
    }

    /// Removes the program from all interfaces except for these. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Pin`].
    pub fn keep_egress(pins: &Pins, interfaces: &[IfIndex]) -> Result<(), HookError> {
        Ok(pins.sweep(KIND, interfaces)?)
    }

    /// The interfaces that have the program.
    ///
    /// # Errors
    /// [`HookError::Pin`], [`HookError::Refused`].
    pub fn egress_interfaces(pins: &Pins) -> Result<Vec<IfIndex>, HookError> {
        let mut present = Vec::new();
        for interface in pins.interfaces(KIND)? {
            if is_attached(&pins.of(KIND, interface)?, interface, Hook::TcxEgress)? {
                present.push(interface);
            }
        }
        Ok(present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_loads() {
        let rules = HookRules::load().unwrap();
        let mut place = MaybeUninit::uninit();
        rules.load_more(&mut place, &[RULES]).unwrap();
    }
}
