//! Rules in place of others, their confirmation and their end.
//!
//! ```text
//!   attach what is new ─ wait ─ write the other place ─ one store ─ wait ─ detach what is not needed
//! ```

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fairpath_core::rules::{Header as Image, Memory, needs};

use super::twin::PlaceLayout;
use super::{
    EGRESS, HOOK_FAMILIES, HookError, HookRules, HookSet, IP_FAMILIES, LIMITS, LIMITS_BYTES, NEEDS,
    NewRules, PAGE, PLACE_BYTES, SHADOW, Seen, effective, has_other_clock, links, monotonic,
    random, shadow,
};
use crate::arena;
use crate::pin::Pins;
use crate::rtt::wait_for_programs;

impl HookRules {
    /// Writes rules to the place that no packet meets, then lets packets meet it: each meets the old or
    /// the new rules at all its hooks. Takes grace periods, and O(bytes). Only with [`HookLock`].
    ///
    /// # Errors
    /// [`HookError::TooLarge`], [`HookError::Image`], [`HookError::Waiting`], [`HookError::Changed`]:
    /// packets meet the old rules.
    pub fn set(&mut self, new: &NewRules) -> Result<(), HookError> {
        self.refuse(new)?;
        self.replace(new, None)
    }

    fn refuse(&self, new: &NewRules) -> Result<(), HookError> {
        if let Some(left) = self.waiting() {
            let seconds = left.as_secs() + 1;
            return Err(HookError::Waiting { seconds });
        }
        if new.until.is_some() && has_other_clock() {
            return Err(HookError::OtherClock);
        }
        Ok(())
    }

    /// The same for pinned rules, in their network namespace: programs are attached before packets meet
    /// rules that need them, and detached when no rules need them any more.
    ///
    /// # Errors
    /// As [`HookRules::set`], and [`HookError::Attach`].
    pub fn set_pinned(&mut self, new: &NewRules, pins: &Pins) -> Result<(), HookError> {
        self.refuse(new)?;
        self.replace(new, Some(pins))
    }

    fn replace(&mut self, new: &NewRules, pins: Option<&Pins>) -> Result<(), HookError> {
        let Seen { word, place, .. } = self.seen;
        let changed = |rules: &HookRules| {
            let now = rules.header().active.load(Ordering::Acquire);
            now != word || effective(now).0 != place
        };
        if changed(self) {
            return Err(HookError::Changed);
        }
        self.forget_trace();
        let other = 1 - place;
        let old = std::array::from_fn(|family| self.memory_at(place, family));
        let layout = self.layout(new)?;
        let mut used = links::NONE;
        for (family, set) in new.sets[..IP_FAMILIES].iter().enumerate() {
            used[family] =
                set.map_or(0, |set| programs_of(&set, family)) & links::EVALUATING[family];
        }
        if new.shadow.is_some() {
            used = links::with_after(used);
        }
        if let Some(pins) = pins {
            // They find nothing to evaluate in the old rules.
            let wanted = [0, 1].map(|family| used[family] | links::FIRST[family]);
            let attached = self.attach_these(wanted)?;
            links::pin_links(pins, &self.links, &attached)?;
        }
        self.end_twin();
        // Packets of the change before may still read it, and change the state of its rules.
        self.header().generations[other].store(0, Ordering::Release);
        // From now on, the first program of a packet records its rules for later ones.
        self.header().changing.store(1, Ordering::Release);
        wait_for_programs();
        self.write(other, new, &layout.sets, &old)?;
        if changed(self) {
            return Err(HookError::Changed);
        }
        let header = self.header();
        let generation = header.generations[place].load(Ordering::Relaxed) + 1;
        header.generations[other].store(generation, Ordering::Release);
        let until = new.until.map_or(0, |until| {
            let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX / 2);
            monotonic().saturating_add(until).max(2) & !1
        });
        let active = other as u64 | until;
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = header
            .active
            .compare_exchange(word, active, order.0, order.1);
        swapped.map_err(|_| HookError::Changed)?;
        header.parked.fetch_add(parked(), Ordering::Relaxed);
        wait_for_programs();
        // From now on, what the table of passing packets has of the old rules is out of date: the
        // address of a packet may be that of another one.
        let stale = &header.generations[place];
        stale.store(generation + 1, Ordering::Release);
        header
            .changing
            .store(u32::from(until > 0), Ordering::Release);
        self.seen = Seen {
            word: active,
            place: other,
            generation,
            text: new.text.to_vec(),
        };
        let rules = new.sets.map(|set| set.map_or(0, |set| set.rules));
        self.plan_twin(&layout, rules);
        // An edit of rules in the shadow is a whole load.
        if until == 0 && rules != [0; HOOK_FAMILIES] && new.shadow.is_none() {
            self.begin_twin();
        }
        match pins {
            Some(pins) if until == 0 => links::detach(pins, used, &mut self.links),
            _ => Ok(()),
        }
    }

    /// Offsets in a place of the sets by family, behind the text.
    fn layout(&self, new: &NewRules) -> Result<PlaceLayout, HookError> {
        let layout = PlaceLayout::of(new);
        let end = layout.end;
        let shared = self.parts().shared;
        let images = new.sets.iter().flatten();
        let headers = images.filter_map(|set| Image::of(set.image));
        let most = |number: fn(&Image) -> u32| headers.clone().map(|header| number(&header)).max();
        for (unit, needed, reserved) in [
            ("bytes", end, PLACE_BYTES),
            (
                "counters",
                most(|header| header.rules).unwrap_or(0) as usize,
                shared.most_ids as usize,
            ),
            (
                "limits and quotas",
                most(|header| header.slots).unwrap_or(0) as usize,
                shared.most_slots as usize,
            ),
        ] {
            if needed > reserved {
                return Err(HookError::TooLarge {
                    needed,
                    reserved,
                    unit,
                });
            }
        }
        Ok(layout)
    }

    /// Writes a place that no packet reads, and state that no other rule uses.
    fn write(
        &mut self,
        place: usize,
        new: &NewRules,
        offsets: &[usize; HOOK_FAMILIES],
        old: &[Option<Memory>; HOOK_FAMILIES],
    ) -> Result<(), HookError> {
        let (header, parts) = (self.header(), self.parts());
        header
            .local_offset
            .store(local_offset() as u32, Ordering::Relaxed);
        let start = parts.places[place];
        // SAFETY: load() reserved two places.
        let at = unsafe { self.base.add(start) };
        // SAFETY: layout() compared the bytes with the place.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(new.text).cast(), new.text.len()) };
        header.texts[place][0].store(start as u64, Ordering::Relaxed);
        header.texts[place][1].store(new.text.len() as u64, Ordering::Relaxed);
        if new.shadow.is_some() {
            self.begin_comparison(place);
        }
        if new.sets.iter().flatten().any(|set| set.limits) {
            self.begin_limits();
        }
        for family in 0..HOOK_FAMILIES {
            let (set, programs) = (&header.sets[place][family], &header.programs[place][family]);
            let Some(rules) = new.sets[family] else {
                programs.store(0, Ordering::Relaxed);
                set.store(0, Ordering::Relaxed);
                continue;
            };
            let offset = start + offsets[family];
            // SAFETY: layout() compared the bytes with the place.
            let at = unsafe { self.base.add(offset) };
            let shared = parts.shared(offset);
            // SAFETY: inside of the mapping, which the caller keeps as long as this; the state of new
            // rules is written below, that of others was before.
            let memory = unsafe { Memory::format_shared(at, rules.image, new.mode, &shared) };
            let mut memory = memory?;
            match &old[family] {
                Some(old) => memory.take_seed(old),
                None => memory.set_seed(random()),
            }
            for (id, first) in rules.counters {
                memory.begin_counter(*id, *first);
            }
            for (slot, state) in rules.slots {
                memory.set_state(*slot, *state);
            }
            for part in rules.tables {
                memory.zero_tables(part.clone());
            }
            set.store(offset as u64, Ordering::Relaxed);
            if let Some(clamps) = header.clamps[place].get(family) {
                let reads_path = u32::from(rules.needs & needs::PATH != 0);
                clamps.store(reads_path, Ordering::Relaxed);
            }
            let mut used = programs_of(&rules, family) | rules.needs << NEEDS;
            if let Some(drops) = new.shadow
                && let Some(drops) = drops.get(family)
            {
                used |= SHADOW | shadow::NEEDS << NEEDS;
                header.drops[place][family].store(*drops, Ordering::Relaxed);
            }
            programs.store(used, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Memory for limits of the MSS in FORWARD, which few rules need.
    fn begin_limits(&self) {
        let (limits, start) = (self.parts().limits, &self.header().limits);
        if start.load(Ordering::Acquire) != 0 {
            return;
        }
        // SAFETY: load() reserved the addresses.
        let at = unsafe { self.base.add(limits) };
        // SAFETY: inside of the mapping; no program uses them before the number is stored.
        unsafe { arena::touch(at, (LIMITS_BYTES as u64).div_ceil(PAGE)) };
        start.store(limits as u64, Ordering::Release);
    }

    /// Ends the time limit of the last load: its rules stay. Only with [`HookLock`].
    ///
    /// # Errors
    /// [`HookError::NotWaiting`], [`HookError::TooLate`].
    pub fn confirm(&mut self, pins: &Pins) -> Result<(), HookError> {
        let active = &self.header().active;
        let word = active.load(Ordering::Acquire);
        if word < 2 {
            return Err(HookError::NotWaiting);
        }
        if effective(word).1.is_none() {
            return Err(HookError::TooLate);
        }
        active.store(word & 1, Ordering::Release);
        self.header().changing.store(0, Ordering::Release);
        // Packets that were recorded may still meet the rules before.
        wait_for_programs();
        self.begin_twin();
        let used = self.used_at(self.seen.place);
        links::detach(pins, used, &mut self.links)
    }

    /// Removes rules and programs: first no packet meets rules, then the hooks are left. Only with
    /// [`HookLock`].
    ///
    /// # Errors
    /// [`HookError`].
    pub fn unload(mut self, pins: &Pins) -> Result<(), HookError> {
        self.replace(&NewRules::default(), None)?;
        links::remove(pins)?;
        Ok(())
    }
}

/// Bits of the programs that have something to evaluate: PROGRAM * 5 + hook, and the one at tcx. ARP and
/// bridges have one program.
fn programs_of(set: &HookSet, family: usize) -> u32 {
    let Some(header) = Image::of(set.image) else {
        return 0;
    };
    let mut bits = 0;
    if family >= IP_FAMILIES {
        for (hook, chains) in header.entry[family].iter().enumerate() {
            let is_empty = chains
                .iter()
                .all(|chain| *chain == fairpath_core::rules::NONE);
            bits |= u32::from(!is_empty) << hook;
        }
        return bits;
    }
    for (program, (_, _, hooks)) in links::PROGRAMS.iter().enumerate() {
        for hook in hooks.iter().map(|hook| *hook as usize) {
            let tables = links::tables(program, hook);
            let entries = header.entry[family][hook].iter().enumerate();
            let mut present = entries.filter(|(_, chain)| **chain != fairpath_core::rules::NONE);
            if present.any(|(table, _)| tables >> table & 1 == 1) {
                bits |= 1 << (program * links::HOOKS.len() + hook);
            }
        }
    }
    if set.egress {
        bits = bits & !links::MOVED | EGRESS;
    }
    if set.limits {
        bits |= LIMITS;
    }
    bits
}

/// Packets of the calling thread's network namespace that wait in queues of user space, and lists of
/// fragments that wait for the rest.
fn parked() -> u64 {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let mut sum = 0u64;
    for (file, name) in [("sockstat", "FRAG:"), ("sockstat6", "FRAG6:")] {
        let text = read(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        sum += number.unwrap_or(0u64);
    }
    sum + queued()
}

/// Packets of the calling thread's network namespace that wait in queues of user space.
pub(super) fn queued() -> u64 {
    let queues = std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue");
    let queues = queues.unwrap_or_default();
    let waiting = queues
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    waiting
        .filter_map(|number| number.parse::<u64>().ok())
        .sum::<u64>()
}

/// Seconds of local time in the kernel's time zone, for `-m time --kerneltz`.
fn local_offset() -> i32 {
    // Minutes to the west of Greenwich, and a number that is not used.
    let mut zone = [0i32; 2];
    let none = std::ptr::null_mut::<libc::timeval>();
    // SAFETY: the call writes a struct timezone, two numbers. The function of libc returns no time zone.
    unsafe { libc::syscall(libc::SYS_gettimeofday, none, zone.as_mut_ptr()) };
    zone[0].saturating_mul(-60)
}
