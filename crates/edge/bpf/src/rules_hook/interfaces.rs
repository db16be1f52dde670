//! Programs of rules at tcx of interfaces, one pinned link for each: those of arptables and of ebtables.
//!
//! They read the rules that packets meet in the arena, as the programs at the hooks do, so a change of rules
//! needs no step for them. Without rules they find nothing to evaluate. An interface that appears later has
//! no program until [`HookRules::attach_frames`] is called again.

use std::mem::MaybeUninit;
use std::path::Path;

use fairpath_units::IfIndex;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, ProgramMut};

use super::{HookError, HookRules};
use crate::attach::{AttachError, Hook, attach};
use crate::pin::{self, PinError, Pins};
use crate::skel::rules_hook::RulesHookSkel;
use crate::tcx::{self, TcxProgram};

/// A family whose rules run at tcx of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFamily {
    /// arptables: INPUT and OUTPUT.
    Arp,
    /// ebtables: INPUT, FORWARD and OUTPUT of table filter.
    Bridge,
}

/// Its program for one direction.
struct Direction {
    /// The kind of its pins.
    kind: &'static str,
    program: &'static str,
    hook: Hook,
}

impl FrameFamily {
    /// In this order they are attached, each before the others: rules of bridges come before those of ARP.
    pub const ALL: [FrameFamily; 2] = [FrameFamily::Arp, FrameFamily::Bridge];

    fn directions(self) -> [Direction; 2] {
        let [ingress, egress] = match self {
            FrameFamily::Arp => [
                ("rules-arp-in", "rules_arp_in"),
                ("rules-arp-out", "rules_arp_out"),
            ],
            FrameFamily::Bridge => [
                ("rules-bridge-in", tcx::BRIDGE_IN),
                ("rules-bridge-out", "rules_br_out"),
            ],
        };
        let direction = |(kind, program), hook| Direction {
            kind,
            program,
            hook,
        };
        [
            direction(ingress, Hook::TcxIngress),
            direction(egress, Hook::TcxEgress),
        ]
    }

    fn program<'s, 'o>(
        self,
        skel: &'s mut RulesHookSkel<'o>,
        hook: Hook,
    ) -> &'s mut ProgramMut<'o> {
        match (self, hook) {
            (FrameFamily::Arp, Hook::TcxIngress) => &mut skel.progs.rules_arp_in,
            (FrameFamily::Arp, _) => &mut skel.progs.rules_arp_out,
            (FrameFamily::Bridge, Hook::TcxIngress) => &mut skel.progs.rules_br_in,
            (FrameFamily::Bridge, _) => &mut skel.progs.rules_br_out,
        }
    }
}

/// The loopback interface, which every namespace has.
const LO: IfIndex = IfIndex(1);

impl HookRules {
    /// Puts the programs of a family at tcx of interfaces of the calling thread's network namespace, before
    /// other programs, and pins them there. Those that have them keep them, and those that disappear at the
    /// same time are omitted. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Interface`] names the interface that refuses a program.
    pub fn attach_frames(
        &mut self,
        pins: &Pins,
        family: FrameFamily,
        interfaces: &[(IfIndex, &str)],
    ) -> Result<(), HookError> {
        let present = HookRules::frame_interfaces(pins, family)?;
        let is_new = |(interface, _): &&(IfIndex, &str)| !present.contains(interface);
        let new: Vec<_> = interfaces.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let directions = family.directions();
        let mut place = MaybeUninit::uninit();
        let mut skel = self
            .load_more(&mut place, &directions.each_ref().map(|of| of.program))
            .map_err(HookError::Refused)?;
        for (interface, name) in new {
            for Direction { kind, hook, .. } in &directions {
                let program = family.program(&mut skel, *hook);
                let path = pins.of(kind, *interface)?;
                if !attach_pinned(program, *hook, (*interface, name), &path)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes the programs of a family from all interfaces except for these. Only with
    /// [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Pin`].
    pub fn keep_frames(
        pins: &Pins,
        family: FrameFamily,
        interfaces: &[IfIndex],
    ) -> Result<(), HookError> {
        let directions = family.directions();
        let mut all = directions.iter();
        all.try_for_each(|direction| pins.sweep(direction.kind, interfaces))
            .map_err(HookError::Pin)
    }

    /// The interfaces that have the programs of a family.
    ///
    /// # Errors
    /// [`HookError::Pin`], [`HookError::Refused`].
    pub fn frame_interfaces(pins: &Pins, family: FrameFamily) -> Result<Vec<IfIndex>, HookError> {
        let directions = family.directions();
        let mut with = Vec::new();
        for interface in pins.interfaces(directions[0].kind)? {
            let mut all = true;
            for direction in &directions {
                let path = pins.of(direction.kind, interface)?;
                all = all && is_attached(&path, interface, direction.hook)?;
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
    if is_attached(path, interface, hook)? {
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

/// True if there is a pin, and its link is attached to the interface. That of a removed interface is not, and that
/// of one that moved to another namespace is not here: another one may have its index.
pub(super) fn is_attached(path: &Path, interface: IfIndex, hook: Hook) -> Result<bool, HookError> {
    if !path.exists() {
        return Ok(false);
    }
    let link = Link::open(path).map_err(HookError::Refused)?;
    let info = link.info().map_err(HookError::Refused)?;
    let is_there = matches!(info.info, LinkTypeInfo::Tcx(at) if at.ifindex == interface.0);
    // An interface that disappears at the same time has none.
    Ok(is_there && tcx::has(interface, hook, info.prog_id).unwrap_or(false))
}

/// True if a program of these families is at an interface of this network namespace.
pub(super) fn are_present() -> Result<bool, HookError> {
    let names = tcx::names(LO, Hook::TcxIngress).map_err(HookError::List)?;
    let ours = FrameFamily::ALL.map(|family| family.directions()[0].program);
    Ok(names.iter().any(|name| ours.contains(&&name[..])))
}

impl HookRules {
    /// Programs of other owners before those of rules at tcx of these interfaces. What they end, rules do not
    /// see. Interfaces that disappear at the same time have none.
    pub fn programs_before(interfaces: &[IfIndex]) -> Vec<(IfIndex, TcxProgram)> {
        let mut found = Vec::new();
        for interface in interfaces {
            for hook in [Hook::TcxIngress, Hook::TcxEgress] {
                let before = tcx::before_rules(*interface, hook).unwrap_or_default();
                found.extend(before.into_iter().map(|program| (*interface, program)));
            }
        }
        found
    }
}

/// Removes the pins of all links. False if there were none.
pub(super) fn remove(pins: &Pins) -> Result<bool, PinError> {
    let mut found = false;
    for direction in FrameFamily::ALL
        .iter()
        .flat_map(|family| family.directions())
    {
        for interface in pins.interfaces(direction.kind)? {
            found |= pin::remove(&pins.of(direction.kind, interface)?)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use fairpath_testbed::{Need, Testbed, requires};
    use libbpf_rs::skel::{OpenSkel, SkelBuilder};

    use super::*;
    use crate::pass::attach_as_other;
    use crate::skel::empty::EmptySkelBuilder;

    #[test]
    fn programs_before_rules_are_named() {
        requires!(Need::Root);
        let place = format!("fairpath-before-{}", std::process::id());
        let pins = Pins::at(std::env::temp_dir().join(place)).unwrap();
        let netns = Testbed::new().netns("before").unwrap();
        let found = netns.enter(|| {
            let before = || HookRules::programs_before(&[LO]);
            let mut rules = HookRules::load().unwrap();
            let lo = [(LO, "lo")];
            rules.attach_frames(&pins, FrameFamily::Arp, &lo).unwrap();
            assert_eq!(before(), vec![]);
            let mut place = MaybeUninit::uninit();
            let open = EmptySkelBuilder::default().open(&mut place).unwrap();
            let mut other = open.load().unwrap();
            let program = &mut other.progs.empty_egress;
            let _theirs = attach_as_other(program, Hook::TcxEgress, LO, "lo").unwrap();
            let found = before();
            HookRules::keep_frames(&pins, FrameFamily::Arp, &[]).unwrap();
            found
        });
        pins.unmount().unwrap();
        let found = found.unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|(at, program)| (*at, &program.name[..]))
            .collect();
        assert_eq!(names, [(LO, "empty_egress")]);
    }

    #[test]
    fn programs_load() {
        let rules = HookRules::load().unwrap();
        for family in FrameFamily::ALL {
            let names = family.directions().map(|direction| direction.program);
            rules.load_more(&mut MaybeUninit::uninit(), &names).unwrap();
        }
    }
}
