//! Edits of loaded rules that cost what their chains cost: both places have the same content except for the
//! last edit.
//!
//! ```text
//!   active place ── parts of the last edit ──> other place <── new blobs, numbers, lines
//!                                                  '── active, by one store
//! ```
//!
//! [`HookRules::edit`] needs no grace period before the switch: since the last one, no program reads the
//! other place. The record here is valid only between edits, so a killed one is followed by a whole load.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use fairpath_core::rules::{Counter, Header as Image, Memory, check_chains, check_sets};

use super::{HOOK_FAMILIES, HookError, HookRules, NewRules, PLACE_BYTES};
use crate::rtt::wait_for_programs;

/// Bytes that a place has for lines of edits.
pub(super) const JOURNAL: usize = 16 << 20;
/// Bytes that it has for new blobs, for each family.
pub(super) const SPARE: usize = 32 << 20;
/// Parts of a place that an edit changes.
const PARTS: usize = 64;
/// Offsets of words of an image's header.
const BYTES: usize = 8;
const NUMBERS: Range<usize> = 8..28;
const CHAIN_HEADER: usize = 16;

/// Bytes of a place: offset, number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Part {
    at: u32,
    bytes: u32,
}

/// The record, which only the holder of the lock reads and writes.
#[repr(C)]
pub(super) struct Twin {
    /// 1: the record is valid, and no program reads the place that is not active.
    valid: AtomicU64,
    /// Number of the last edit, which others read.
    edits: AtomicU64,
    /// Numbers that no rule has: of counters, of slots.
    free: [u32; 2],
    /// Rules of each family.
    rules: [u64; HOOK_FAMILIES],
    /// Offsets in a place: the first free byte for blobs of a family, and the end.
    spare: [[u64; 2]; HOOK_FAMILIES],
    /// Offset of the end of the lines of edits.
    journal_end: u64,
    /// Parts in which the other place is older.
    differs: [Part; PARTS],
    differing: u64,
}

/// Bytes of the record.
pub(super) const TWIN_BYTES: usize = 4096;
const _: () = assert!(size_of::<Twin>() <= TWIN_BYTES);

/// Chains that an edit replaced, of one table of which a packet meets one base chain at most.
#[derive(Debug, Clone, Copy)]
pub struct RulesEdit<'a> {
    /// 0: IPv4, 1: IPv6, 2: ARP, 3: bridges.
    pub family: usize,
    /// Numbers and blobs of chains.
    pub chains: &'a [(u32, Vec<u8>)],
    /// Counters of new rules, with their first values.
    pub counters: &'a [(u32, Counter)],
    /// Slots of new rules, with their first values.
    pub slots: &'a [(u32, u64)],
    /// Numbers that are free after it: of counters, of slots.
    pub free: [u32; 2],
    /// Rules of the family after it.
    pub rules: u64,
    /// Lines to append to the text.
    pub lines: &'a [u8],
}

/// A set of an image that an edit changed.
#[derive(Debug, Clone)]
pub struct EditedSet {
    /// 0: IPv4, 1: IPv6, 2: ARP, 3: bridges.
    pub family: usize,
    /// Its number.
    pub set: u32,
    /// Parts of the image: their offsets and bytes.
    pub parts: Vec<(usize, Vec<u8>)>,
    /// Or the set, for another place.
    pub whole: Option<Vec<u8>>,
}

/// Numbers of loaded rules for an edit.
#[derive(Debug, Clone, Copy)]
pub struct Editable {
    /// Numbers that no rule has: of counters, of slots.
    pub free: [u32; 2],
    /// Rules of the family.
    pub rules: u64,
    /// Facts that rules of the family read.
    pub needs: u32,
}

/// Offsets in a place: of the sets by family, and of the ends of their space and of that of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceLayout {
    pub sets: [usize; HOOK_FAMILIES],
    pub ends: [usize; HOOK_FAMILIES],
    pub text_end: usize,
    pub end: usize,
}

impl PlaceLayout {
    /// With space for edits, if the place is large enough.
    pub fn of(new: &NewRules) -> PlaceLayout {
        let roomy = PlaceLayout::with(new, JOURNAL, SPARE);
        match roomy.end <= PLACE_BYTES {
            true => roomy,
            false => PlaceLayout::with(new, 0, 0),
        }
    }

    fn with(new: &NewRules, journal: usize, spare: usize) -> PlaceLayout {
        let text_end = new.text.len() + journal;
        let mut layout = PlaceLayout {
            sets: [0; HOOK_FAMILIES],
            ends: [0; HOOK_FAMILIES],
            text_end,
            end: text_end,
        };
        for (family, set) in new.sets.iter().enumerate() {
            layout.sets[family] = layout.end.next_multiple_of(64);
            let bytes = set.map_or(0, |set| Memory::shared_bytes(set.image) + spare);
            layout.end = layout.sets[family] + bytes;
            layout.ends[family] = layout.end;
        }
        layout
    }
}

impl HookRules {
    fn twin(&self) -> NonNull<Twin> {
        // SAFETY: load() reserved a page for it.
        unsafe { self.base.add(self.parts().twin) }.cast()
    }

    fn valid(&self) -> &AtomicU64 {
        // SAFETY: as above; the field is first, and all processes access it atomically.
        unsafe { AtomicU64::from_ptr(self.twin().as_ptr().cast()) }
    }

    /// The record ends: a load begins.
    pub(super) fn end_twin(&self) {
        self.valid().store(0, Ordering::Release);
    }

    /// Writes a record that is not valid yet.
    pub(super) fn plan_twin(&mut self, layout: &PlaceLayout, rules: [u64; HOOK_FAMILIES]) {
        let empty = Part { at: 0, bytes: 0 };
        let twin = Twin {
            valid: AtomicU64::new(0),
            edits: AtomicU64::new(0),
            free: [0; 2],
            rules,
            spare: layout.ends.map(|end| [0, end as u64]),
            journal_end: layout.text_end as u64,
            differs: [empty; PARTS],
            differing: 0,
        };
        // SAFETY: load() reserved the page; the lock is held.
        unsafe { self.twin().write(twin) };
    }

    /// Copies the active place to the other one, which no program reads, and makes the planned record
    /// valid.
    pub(super) fn begin_twin(&mut self) {
        let (place, parts) = (self.seen.place, self.parts());
        let (from, to) = (parts.places[place], parts.places[1 - place]);
        // SAFETY: load() reserved the page; the lock is held.
        let mut twin = unsafe { self.twin().read() };
        let header = self.header();
        header.generations[1 - place].store(0, Ordering::Release);
        let text = header.texts[place][1].load(Ordering::Relaxed);
        self.copy(from, to, text as usize);
        header.texts[1 - place][0].store(to as u64, Ordering::Relaxed);
        header.texts[1 - place][1].store(text, Ordering::Relaxed);
        for family in 0..HOOK_FAMILIES {
            let sets = &header.sets;
            let programs = header.programs[place][family].load(Ordering::Relaxed);
            header.programs[1 - place][family].store(programs, Ordering::Relaxed);
            if let [Some(from), Some(to)] =
                [place, 1 - place].map(|place| header.clamps[place].get(family))
            {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let Some(memory) = self.trusted(place, family) else {
                sets[1 - place][family].store(0, Ordering::Relaxed);
                continue;
            };
            let image = memory.image();
            let Some(numbers) = Image::of(image) else {
                continue;
            };
            twin.free = [
                twin.free[0].max(numbers.rules),
                twin.free[1].max(numbers.slots),
            ];
            let at = sets[place][family].load(Ordering::Relaxed) as usize - from;
            let bytes = Memory::shared_bytes(image);
            self.copy(from + at, to + at, bytes);
            sets[1 - place][family].store((to + at) as u64, Ordering::Relaxed);
            if let Some(mut copy) = self.trusted(1 - place, family) {
                copy.relocate(&parts.shared(to + at));
            }
            twin.spare[family][0] = (at + bytes).next_multiple_of(16) as u64;
        }
        // SAFETY: load() reserved the page; the lock is held.
        unsafe { self.twin().write(twin) };
        self.valid().store(1, Ordering::Release);
    }

    /// Copies bytes between offsets that do not overlap.
    fn copy(&self, from: usize, to: usize, bytes: usize) {
        // SAFETY: callers name parts of places, which the mapping has.
        let from = unsafe { self.base.add(from) };
        // SAFETY: as above.
        let to = unsafe { self.base.add(to) };
        // SAFETY: as above; they are of different places.
        unsafe { from.copy_to_nonoverlapping(to, bytes) };
    }

    /// Writes bytes to an offset of a place.
    fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: callers name parts of places, which the mapping has.
        let at = unsafe { self.base.add(at) };
        // SAFETY: as above; no program reads them yet.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// The memory of a place that was accepted before.
    fn trusted(&self, place: usize, family: usize) -> Option<Memory> {
        let (at, bytes, shared) = self.set_at(place, family)?;
        // SAFETY: the mapping has the place and the regions, and outlives the result, which no one
        // returns beyond this value.
        unsafe { Memory::trust_shared(at, bytes, &shared) }.ok()
    }

    /// Edits since the last whole load.
    pub fn edits(&self) -> u64 {
        // SAFETY: load() reserved the page, and the number is atomic.
        let edits = unsafe { self.twin().as_ref() }
            .edits
            .load(Ordering::Relaxed);
        edits * u64::from(self.valid().load(Ordering::Acquire) == 1)
    }

    /// The memory of the opened rules of a family, for an edit. `None`: they need a whole load. Only with
    /// [`super::HookLock`].
    pub fn editable(&self, family: usize) -> Option<(Memory, Editable)> {
        if self.valid().load(Ordering::Acquire) != 1 || !self.is_current() {
            return None;
        }
        let memory = self.trusted(self.seen.place, family)?;
        // SAFETY: load() reserved the page; the lock is held.
        let twin = unsafe { self.twin().as_ref() };
        let programs = self.header().programs[self.seen.place][family].load(Ordering::Relaxed);
        let editable = Editable {
            free: twin.free,
            rules: twin.rules[family],
            needs: programs >> super::NEEDS,
        };
        Some((memory, editable))
    }

    /// Replaces chains: packets meet all of them or none. False: there is no space, and nothing changed.
    /// O(bytes of the chains), and a grace period after the switch. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Changed`], [`HookError::Image`]: packets meet the old rules.
    pub fn edit(&mut self, edit: &RulesEdit) -> Result<bool, HookError> {
        let (mut twin, place) = self.begin_edit()?;
        let parts = self.parts();
        let from = parts.places[place];
        let Some(old) = self.trusted(place, edit.family) else {
            return Ok(false);
        };
        let image_at = self.image_at(place, edit.family) - from;
        let image = old.image();
        let Some(numbers) = Image::of(image) else {
            return Ok(false);
        };
        if edit.free[0] > parts.shared.most_ids || edit.free[1] > parts.shared.most_slots {
            return Ok(false);
        }
        // Parts of this edit: blobs, words of the chain table, numbers of the image, lines.
        let mut changes: Changes = Vec::new();
        let mut starts = Vec::new();
        for (number, blob) in edit.chains {
            let Some(at) = twin.allocate(edit.family, blob.len()) else {
                return Ok(false);
            };
            changes.push((at, blob.clone()));
            let word = numbers.chain_at as usize + 4 * *number as usize;
            let start = at - image_at + CHAIN_HEADER;
            changes.push((image_at + word, (start as u32).to_le_bytes().to_vec()));
            starts.push(start);
        }
        let mut words = image[NUMBERS].to_vec();
        let numbers_at = |at: usize| at - BYTES..at - BYTES + 4;
        let end = twin.image_end(edit.family, image_at);
        words[..4].copy_from_slice(&end.to_le_bytes());
        words[numbers_at(20)].copy_from_slice(&edit.free[0].max(numbers.rules).to_le_bytes());
        words[numbers_at(24)].copy_from_slice(&edit.free[1].max(numbers.slots).to_le_bytes());
        changes.push((image_at + NUMBERS.start, words));
        twin.free = edit.free;
        twin.rules[edit.family] = edit.rules;
        self.switch(twin, changes, edit.lines, |rules, other| {
            let Some(mut memory) = rules.trusted(other, edit.family) else {
                return Err(HookError::Changed);
            };
            check_chains(memory.image(), &starts)?;
            for (id, first) in edit.counters {
                memory.begin_counter(*id, *first);
            }
            for (slot, state) in edit.slots {
                memory.set_state(*slot, *state);
            }
            Ok(())
        })
    }

    /// Changes sets: an evaluation of a packet meets them before or after. As [`HookRules::edit`].
    ///
    /// # Errors
    /// [`HookError::Changed`], [`HookError::Image`]: packets meet the old sets.
    pub fn edit_sets(&mut self, sets: &[EditedSet], lines: &[u8]) -> Result<bool, HookError> {
        let (mut twin, place) = self.begin_edit()?;
        let from = self.parts().places[place];
        let mut changes: Changes = Vec::new();
        for set in sets {
            let old = self.trusted(place, set.family);
            let Some(numbers) = old.as_ref().and_then(|old| Image::of(old.image())) else {
                return Ok(false);
            };
            let image_at = self.image_at(place, set.family) - from;
            let parts = set.parts.iter();
            changes.extend(parts.map(|(at, bytes)| (image_at + at, bytes.clone())));
            let Some(whole) = &set.whole else { continue };
            let Some(at) = twin.allocate(set.family, whole.len()) else {
                return Ok(false);
            };
            changes.push((at, whole.clone()));
            let word = numbers.set_at as usize + 4 * set.set as usize;
            let place = (at - image_at) as u32;
            changes.push((image_at + word, place.to_le_bytes().to_vec()));
            let end = twin.image_end(set.family, image_at);
            changes.push((image_at + BYTES, end.to_le_bytes().to_vec()));
        }
        self.switch(twin, changes, lines, |rules, other| {
            for family in 0..HOOK_FAMILIES {
                let of_family = sets.iter().filter(|set| set.family == family);
                let numbers: Vec<u32> = of_family.map(|set| set.set).collect();
                if numbers.is_empty() {
                    continue;
                }
                let memory = rules.trusted(other, family).ok_or(HookError::Changed)?;
                check_sets(memory.image(), &numbers)?;
            }
            Ok(())
        })
    }

    /// The record and the active place.
    fn begin_edit(&self) -> Result<(Twin, usize), HookError> {
        let (word, place) = (self.seen.word, self.seen.place);
        let now = self.header().active.load(Ordering::Acquire);
        if self.valid().load(Ordering::Acquire) != 1 || now != word || word > 1 {
            return Err(HookError::Changed);
        }
        // SAFETY: load() reserved the page; the lock is held, and no one else has a reference.
        let twin = unsafe { self.twin().read() };
        Ok((twin, place))
    }

    /// Writes parts to the other place, and lets packets meet it, after `check` accepted it.
    fn switch(
        &mut self,
        mut twin: Twin,
        mut changes: Changes,
        lines: &[u8],
        check: impl Fn(&HookRules, usize) -> Result<(), HookError>,
    ) -> Result<bool, HookError> {
        let (word, place) = (self.seen.word, self.seen.place);
        let (parts, other) = (self.parts(), 1 - place);
        let (from, to) = (parts.places[place], parts.places[other]);
        let text = self.header().texts[place][1].load(Ordering::Relaxed) as usize;
        changes.push((text, lines.to_vec()));
        if text + lines.len() > twin.journal_end as usize || changes.len() > PARTS {
            return Ok(false);
        }
        *twin.edits.get_mut() += 1;
        // From here on, a killed edit leaves no valid record.
        self.end_twin();
        let header = self.header();
        header.generations[other].store(0, Ordering::Release);
        for part in &twin.differs[..twin.differing as usize] {
            let (at, bytes) = (part.at as usize, part.bytes as usize);
            self.copy(from + at, to + at, bytes);
        }
        for (at, bytes) in &changes {
            self.put(to + at, bytes);
        }
        let after = (text + lines.len()) as u64;
        header.texts[other][1].store(after, Ordering::Relaxed);
        check(self, other)?;
        let generation = header.generations[place].load(Ordering::Relaxed) + 1;
        header.generations[other].store(generation, Ordering::Release);
        let active = other as u64;
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = header
            .active
            .compare_exchange(word, active, order.0, order.1);
        swapped.map_err(|_| HookError::Changed)?;
        self.seen = super::Seen {
            word: active,
            place: other,
            generation,
            text: Vec::new(),
        };
        // Programs leave the old place, and edits that follow need not wait.
        wait_for_programs();
        self.header().generations[place].store(0, Ordering::Release);
        twin.differing = changes.len() as u64;
        for (part, (at, bytes)) in twin.differs.iter_mut().zip(&changes) {
            *part = Part {
                at: *at as u32,
                bytes: bytes.len() as u32,
            };
        }
        twin.valid = AtomicU64::new(0);
        // SAFETY: load() reserved the page; the lock is held.
        unsafe { self.twin().write(twin) };
        fence(Ordering::Release);
        self.valid().store(1, Ordering::Release);
        Ok(true)
    }

    /// The offset of an image.
    fn image_at(&self, place: usize, family: usize) -> usize {
        let set = self.header().sets[place][family].load(Ordering::Relaxed) as usize;
        set + Memory::shared_bytes(&[])
    }
}

/// Offsets in a place, and bytes to write there.
type Changes = Vec<(usize, Vec<u8>)>;

impl Twin {
    /// The bytes of an image up to the space that is free.
    fn image_end(&self, family: usize, image_at: usize) -> u32 {
        (self.spare[family][0] as usize - image_at) as u32
    }

    /// Bytes for a blob, as an offset in a place. Those of replaced blobs are free after a whole load.
    fn allocate(&mut self, family: usize, bytes: usize) -> Option<usize> {
        let [next, end] = self.spare[family];
        let behind = next + bytes.next_multiple_of(16) as u64;
        (behind <= end).then(|| {
            self.spare[family][0] = behind;
            next as usize
        })
    }
}
