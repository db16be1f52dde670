//! The programs at their hooks: one for each table, at the priority of iptables less one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use fairpath_units::IfIndex;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{ErrorKind, Link};
use libbpf_sys::{bpf_link_create_opts, bpf_link_create_opts__bindgen_ty_1__bindgen_ty_5};

use super::{HookError, IP_FAMILIES, interfaces};
use crate::netfilter::netfilter_programs;
use crate::pin::{self, PinError, Pins, pin_object, pinned_object};
use crate::probe::create_link;
use crate::skel::rules_hook::RulesHookSkel;

/// Priorities that are tried for a table.
const TRIES: i32 = 8;
/// Hooks: those of netfilter.
pub(super) const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// The programs, their priorities, and the hooks of their tables. The last one is for rules in the shadow:
/// behind the tables of iptables, and before IPVS and the translation of sources.
pub(super) const PROGRAMS: [(&str, i32, &[i32]); 5] = [
    ("raw", -301, &[0, 3]),
    ("mangle", -151, &[0, 1, 2, 3, 4]),
    ("filter", -1, &[1, 2, 3]),
    ("security", 49, &[1, 2, 3]),
    ("after", 97, &[0, 1, 2, 3, 4]),
];
/// Their names.
pub(super) const NAMES: [&str; PROGRAMS.len()] = [
    "rules_raw",
    "rules_mangle",
    "rules_filter",
    "rules_security",
    "rules_after",
];
/// The number of the last one.
const AFTER: usize = PROGRAMS.len() - 1;

/// The places of the evaluation order that a program has at a hook, as bits. At INPUT, nat is last.
pub(super) fn tables(program: usize, hook: usize) -> u32 {
    match (program, hook) {
        (AFTER, _) => 0,
        (0 | 1, _) => 1 << program,
        (_, 1) => 1 << program,
        _ => 1 << (program + 1),
    }
}

/// A program at a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookPlace {
    /// The table.
    pub table: &'static str,
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
    pub family: i32,
    /// `NF_INET_PRE_ROUTING` (0) to `NF_INET_POST_ROUTING` (4).
    pub hook: i32,
    /// The one that was free.
    pub priority: i32,
}

impl HookPlace {
    /// IPv4, else IPv6.
    pub fn is_ipv4(&self) -> bool {
        self.family == libc::NFPROTO_IPV4
    }

    /// The program behind the tables of iptables, for rules in the shadow.
    pub fn is_after(&self) -> bool {
        self.table == PROGRAMS[AFTER].0
    }

    /// The name of the hook as a chain.
    pub fn chain(&self) -> &'static str {
        HOOKS[self.hook as usize]
    }
}

/// Programs at hooks, by family: bit PROGRAM * 5 + hook.
pub(super) type Used = [u32; IP_FAMILIES];
/// None of them.
pub(super) const NONE: Used = [0; IP_FAMILIES];
/// All of them.
const ALL: Used = [(1 << (PROGRAMS.len() * HOOKS.len())) - 1; IP_FAMILIES];
/// Those that evaluate tables.
pub(super) const EVALUATING: Used = [(1 << (AFTER * HOOKS.len())) - 1; IP_FAMILIES];

/// Table mangle in POSTROUTING, which may run at tcx.
pub(super) const MOVED: u32 = 1 << (HOOKS.len() + 4);

/// These programs, and the last one at their hooks.
pub(super) fn with_after(used: Used) -> Used {
    used.map(|used| {
        let hooks = (0..AFTER).fold(0, |hooks, program| hooks | used >> (program * HOOKS.len()));
        used | (hooks & ((1 << HOOKS.len()) - 1)) << (AFTER * HOOKS.len())
    })
}

/// The first programs of a packet, which record its rules while they change: of table raw.
pub(super) const FIRST: Used = [1 | 1 << 3; IP_FAMILIES];
/// One for each table, in the order of [`PROGRAMS`].
pub(super) type Programs = [OwnedFd; PROGRAMS.len()];

/// Programs and links of another process.
pub(super) struct Found {
    pub programs: Programs,
    pub links: Vec<Held>,
}

/// A program at its hook, while its descriptor is open or it is pinned.
pub(super) type Held = (HookPlace, OwnedFd);

/// The places of programs, at their first priorities.
fn wanted(used: Used) -> impl Iterator<Item = HookPlace> {
    let families = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6].into_iter();
    let places = families.flat_map(|family| {
        PROGRAMS.iter().flat_map(move |(table, priority, hooks)| {
            hooks.iter().map(move |hook| HookPlace {
                table,
                family,
                hook: *hook,
                priority: *priority,
            })
        })
    });
    places.filter(move |place| place.is_in(used))
}

impl HookPlace {
    /// The number of its program.
    fn program(&self) -> usize {
        let mut tables = PROGRAMS.iter().map(|(table, ..)| *table);
        tables.position(|table| table == self.table).unwrap_or(0)
    }

    pub(super) fn is_in(&self, used: Used) -> bool {
        let bit = self.program() * HOOKS.len() + self.hook as usize;
        used[usize::from(!self.is_ipv4())] >> bit & 1 == 1
    }

    fn is_same(&self, other: &HookPlace) -> bool {
        (self.table, self.family, self.hook) == (other.table, other.family, other.hook)
    }
}

/// The programs of a loaded object, in the order of [`PROGRAMS`].
pub(super) fn programs(skel: &RulesHookSkel<'static>) -> Result<Programs, HookError> {
    let programs = &skel.progs;
    let [raw, mangle, filter, security, after] = [
        &programs.rules_raw,
        &programs.rules_mangle,
        &programs.rules_filter,
        &programs.rules_security,
        &programs.rules_after,
    ]
    .map(|program| program.as_fd().try_clone_to_owned());
    let all = (|| Ok([raw?, mangle?, filter?, security?, after?]))();
    all.map_err(|error: io::Error| HookError::Refused(error.into()))
}

/// Attaches programs where they are wanted and not attached yet, in the order of a packet.
pub(super) fn attach(
    programs: &Programs,
    used: Used,
    held: &mut Vec<Held>,
) -> Result<Vec<HookPlace>, HookError> {
    let mut new = Vec::new();
    for place in wanted(used) {
        if held.iter().any(|(other, _)| other.is_same(&place)) {
            continue;
        }
        let link = attach_at(programs, place)?;
        new.push(link.0);
        held.push(link);
    }
    Ok(new)
}

/// At the nearest free number before that of iptables.
fn attach_at(programs: &Programs, place: HookPlace) -> Result<Held, HookError> {
    let mut last = None;
    for step in 0..TRIES {
        let place = HookPlace {
            priority: place.priority - step,
            ..place
        };
        let mut options = bpf_link_create_opts::default();
        options.__bindgen_anon_1.netfilter = bpf_link_create_opts__bindgen_ty_1__bindgen_ty_5 {
            pf: place.family as u32,
            hooknum: place.hook as u32,
            priority: place.priority,
            flags: 0,
        };
        let program = &programs[place.program()];
        match create_link(program, 0, libbpf_sys::BPF_NETFILTER, options) {
            Ok(link) => return Ok((place, link)),
            Err(error) => last = Some(error),
        }
    }
    Err(HookError::Attach {
        table: place.table,
        hook: place.chain(),
        first: place.priority,
        last: place.priority - TRIES + 1,
        source: last.expect("at least one try"),
    })
}

/// The pin of the arena.
pub(super) fn arena_pin(pins: &Pins) -> Result<PathBuf, PinError> {
    pins.of("rules-arena", IfIndex(0))
}

fn link_pin(pins: &Pins, place: &HookPlace) -> Result<PathBuf, PinError> {
    let kind = format!("rules-{}-{}", place.table, place.family);
    pins.of(&kind, IfIndex(place.hook as u32))
}

fn program_pin(pins: &Pins, number: usize) -> Result<PathBuf, PinError> {
    pins.of("rules-program", IfIndex(number as u32))
}

/// Pins links. A name that an earlier process left is replaced.
pub(super) fn pin_links(pins: &Pins, links: &[Held], new: &[HookPlace]) -> Result<(), HookError> {
    for (place, link) in links.iter().filter(|(place, _)| new.contains(place)) {
        let path = link_pin(pins, place)?;
        pin::remove(&path)?;
        pin_object(link.as_fd(), &path).map_err(HookError::Refused)?;
    }
    Ok(())
}

/// Pins arena and programs. Fails if another process has pinned some.
pub(super) fn pin_arena(
    pins: &Pins,
    skel: &mut RulesHookSkel<'static>,
    programs: &Programs,
) -> Result<(), HookError> {
    let path = arena_pin(pins)?;
    skel.maps.arena.pin(path).map_err(HookError::Refused)?;
    for (number, program) in programs.iter().enumerate() {
        let path = program_pin(pins, number)?;
        pin_object(program.as_fd(), &path).map_err(HookError::Refused)?;
    }
    Ok(())
}

/// The pinned programs, and the pinned links that are at hooks of this network namespace. A namespace of
/// the past may have had the same number. `None`: a program is missing.
pub(super) fn found(pins: &Pins) -> Result<Option<Found>, HookError> {
    let present = netfilter_programs().map_err(HookError::List)?;
    let mut programs = Vec::new();
    for number in 0..PROGRAMS.len() {
        match pinned_object(&program_pin(pins, number)?) {
            Ok(program) => programs.push(program),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HookError::Refused(error)),
        }
    }
    let mut links = Vec::new();
    for place in wanted(ALL) {
        // A load may remove a pin at any time.
        let link = match Link::open(link_pin(pins, &place)?) {
            Ok(link) => link,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(HookError::Refused(error)),
        };
        let info = link.info().map_err(HookError::Refused)?;
        let here = present.iter().any(|found| {
            found.program.id == info.prog_id
                && found.family == place.family as u32
                && found.hook == place.hook as u32
        });
        let LinkTypeInfo::Netfilter(at) = info.info else {
            continue;
        };
        if here {
            let priority = at.priority;
            let link = link.as_fd().try_clone_to_owned();
            let link = link.map_err(|error| HookError::Refused(error.into()))?;
            links.push((HookPlace { priority, ..place }, link));
        }
    }
    let programs = programs.try_into().expect("one for each table");
    Ok(Some(Found { programs, links }))
}

/// True if all of these programs are attached.
pub(super) fn are_there(used: Used, held: &[Held]) -> bool {
    wanted(used).all(|place| held.iter().any(|(other, _)| other.is_same(&place)))
}

/// Detaches programs that are not wanted any more.
pub(super) fn detach(pins: &Pins, used: Used, held: &mut Vec<Held>) -> Result<(), HookError> {
    for (place, _) in held.iter().filter(|(place, _)| !place.is_in(used)) {
        pin::remove(&link_pin(pins, place)?)?;
    }
    held.retain(|(place, _)| place.is_in(used));
    Ok(())
}

/// True if a program of rules is at a hook of this network namespace.
pub(super) fn are_present() -> Result<bool, HookError> {
    let present = netfilter_programs().map_err(HookError::List)?;
    let mut names = present.iter().map(|found| &found.program.name);
    let at_hooks = names.any(|name| NAMES.contains(&&name[..]));
    Ok(at_hooks || interfaces::are_present()?)
}

/// Removes the pins of all links, then those of programs and arena. False if there were none.
pub(super) fn remove(pins: &Pins) -> Result<bool, HookError> {
    super::HookRules::keep_early(pins, &[])?;
    super::HookRules::keep_egress(pins, &[])?;
    let mut found = interfaces::remove(pins)?;
    for place in wanted(ALL) {
        found |= pin::remove(&link_pin(pins, &place)?)?;
    }
    for number in 0..PROGRAMS.len() {
        found |= pin::remove(&program_pin(pins, number)?)?;
    }
    Ok(pin::remove(&arena_pin(pins)?)? || found)
}
