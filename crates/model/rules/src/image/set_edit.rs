//! Edits of a set of an image, which cost their elements and not the set.
//!
//! ```text
//!   elements ── places of the table that differ ── finish ──> bytes to write over the image
//!                  '── the table is half full: another one ──> a set to write elsewhere
//! ```
//!
//! A removed element leaves no mark: those behind it move up, so a search ends at the first free place.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairpath_core::rules::{
    ENDING, Header, MEMBER, SET_HEADER, SET_LEVELS, SET_PROBES, UNIT, set_kind,
};

use super::live::number;
use super::set::{Member, NOMATCH, SEED, header, write_members};
use crate::sets::Element;

/// Bytes between changed ones that are written with them.
const GAP: usize = 1024;
/// Most separate parts of a set that an edit writes.
const PARTS: usize = 6;

/// An element is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotEdited {
    /// It is there already.
    Exists,
    /// It is not there.
    Missing,
    /// The set has as many elements as it may have.
    Full,
    /// Its elements collide under each of four random seeds.
    Collides,
}

/// Bytes of an edited set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetBytes {
    /// Parts of the image: their offsets and bytes.
    Parts(Vec<(usize, Vec<u8>)>),
    /// The whole set, for another place.
    Whole(Vec<u8>),
}

/// A set of an image while it is edited, at one time.
pub struct SetEdit<'i> {
    /// The image, or a set.
    bytes: Cow<'i, [u8]>,
    /// Offset of the set in it.
    at: usize,
    kind: u32,
    seed: u64,
    /// Places of the table less one.
    mask: u32,
    /// Elements by prefix length.
    numbers: [u32; SET_LEVELS],
    /// Places that differ from the bytes.
    changed: BTreeMap<u32, Member>,
    now: u64,
}

impl<'i> SetEdit<'i> {
    /// A set of an image that was checked. `None`: a list, or there is no such set.
    pub fn new(image: &'i [u8], set: u32, now: u64) -> Option<SetEdit<'i>> {
        let header = Header::of(image)?;
        if set >= header.sets {
            return None;
        }
        let at = number(image, header.set_at as usize + 4 * set as usize) as usize;
        SetEdit::of(Cow::Borrowed(image), at, now)
    }

    fn of(bytes: Cow<'i, [u8]>, at: usize, now: u64) -> Option<SetEdit<'i>> {
        let word = |offset: usize| number(&bytes, at + offset);
        let kind = word(12);
        let mut numbers = [0; SET_LEVELS];
        for level in 0..word(0) as usize {
            let level = word(16 + 4 * level);
            *numbers.get_mut((level & 255) as usize)? = level >> 8;
        }
        let edit = SetEdit {
            at,
            kind,
            seed: u64::from(word(SEED)) | u64::from(word(SEED + 4)) << 32,
            mask: word(4),
            numbers,
            changed: BTreeMap::new(),
            now,
            bytes,
        };
        (kind & set_kind::LIST == 0).then_some(edit)
    }

    fn has_ends(&self) -> bool {
        self.kind & set_kind::ENDS != 0
    }

    fn stride(&self) -> usize {
        match self.has_ends() {
            true => ENDING,
            false => MEMBER,
        }
    }

    /// The offset of a place.
    fn offset(&self, place: u32) -> usize {
        self.at + SET_HEADER + place as usize * self.stride()
    }

    /// The element at a place; level 0: none.
    fn get(&self, place: u32) -> Member {
        if let Some(member) = self.changed.get(&place) {
            return *member;
        }
        let at = self.offset(place);
        let long =
            |at| u64::from(number(&self.bytes, at)) | u64::from(number(&self.bytes, at + 4)) << 32;
        Member {
            key: [long(at), long(at + 8)],
            port: number(&self.bytes, at + 16),
            level: number(&self.bytes, at + 20),
            end: match self.has_ends() {
                true => long(at + 24),
                false => 0,
            },
        }
    }

    fn is_over(&self, member: &Member) -> bool {
        member.end != 0 && member.end < self.now
    }

    /// The place of an element, or the free one at which a search for it ends. `None`: neither.
    fn search(&self, wanted: &Member) -> Option<(u32, Option<Member>)> {
        let first = wanted.hash(self.seed);
        for step in 0..(SET_PROBES as u32).min(self.mask + 1) {
            let place = first.wrapping_add(step) & self.mask;
            let found = self.get(place);
            if found.level == 0 {
                return Some((place, None));
            }
            let key = |member: &Member| (member.key, member.port, member.level & 255);
            if key(&found) == key(wanted) {
                return Some((place, Some(found)));
            }
        }
        None
    }

    /// Looks for an element, or with `around` for the one with the longest prefix around it. `Some(true)`:
    /// it has `nomatch`.
    pub fn find(&self, element: &Element, around: bool) -> Option<bool> {
        if !around {
            return self.get_exactly(element);
        }
        let lengths = (0..=element.length).rev();
        let mut used = lengths.filter(|length| self.numbers[usize::from(*length)] > 0);
        used.find_map(|length| self.get_exactly(&element.network(length)))
    }

    fn get_exactly(&self, element: &Element) -> Option<bool> {
        let (_, found) = self.search(&Member::of(element))?;
        let found = found.filter(|member| !self.is_over(member))?;
        Some(found.level & NOMATCH != 0)
    }

    /// Elements, also those that have ended.
    fn len(&self) -> usize {
        self.numbers.iter().map(|number| *number as usize).sum()
    }

    /// Adds an element, of at most `most`.
    ///
    /// # Errors
    /// [`NotEdited`].
    pub fn add(&mut self, element: &Element, exist: bool, most: usize) -> Result<(), NotEdited> {
        let member = Member::of(element);
        if let Some((place, Some(found))) = self.search(&member) {
            // As ip_set_hash_gen.h: an element that has ended is as good as none.
            if !exist && !self.is_over(&found) {
                return Err(NotEdited::Exists);
            }
            self.changed.insert(place, member);
            return Ok(());
        }
        if self.len() >= most {
            self.rebuild(0)?;
            if self.len() >= most {
                return Err(NotEdited::Full);
            }
        }
        if 2 * self.len() > self.mask as usize {
            self.rebuild(0)?;
        }
        loop {
            if let Some((place, None)) = self.search(&member) {
                self.changed.insert(place, member);
                self.numbers[member.length() as usize] += 1;
                return Ok(());
            }
            self.rebuild(self.mask as usize + 1)?;
        }
    }

    /// Removes an element.
    ///
    /// # Errors
    /// [`NotEdited::Missing`].
    pub fn del(&mut self, element: &Element, exist: bool) -> Result<(), NotEdited> {
        let member = Member::of(element);
        let Some((mut free, Some(found))) = self.search(&member) else {
            return if exist {
                Ok(())
            } else {
                Err(NotEdited::Missing)
            };
        };
        let is_over = self.is_over(&found);
        self.numbers[found.length() as usize] -= 1;
        // Elements behind it move up, if that is not before the place of their hash. A table is never
        // full, so a free place follows.
        let mut place = free;
        for _ in 0..self.mask {
            place = place.wrapping_add(1) & self.mask;
            let next = self.get(place);
            if next.level == 0 {
                break;
            }
            let home = next.hash(self.seed) & self.mask;
            let distance = |from: u32, to: u32| to.wrapping_sub(from) & self.mask;
            if distance(home, place) >= distance(free, place) {
                self.changed.insert(free, next);
                free = place;
            }
        }
        self.changed.insert(free, Member::default());
        match is_over && !exist {
            true => Err(NotEdited::Missing),
            false => Ok(()),
        }
    }

    /// All elements that have not ended.
    fn members(&self) -> Vec<Member> {
        let all = (0..=self.mask).map(|place| self.get(place));
        let used = all.filter(|member| member.level != 0 && !self.is_over(member));
        used.collect()
    }

    /// Another table, without what has ended, with space for at least half as many again. O(places).
    fn rebuild(&mut self, least: usize) -> Result<(), NotEdited> {
        let members = self.members();
        let room = (members.len() + members.len() / 2 + 16).max(least);
        let mut bytes = Vec::new();
        write_members(&members, room, self.kind, &mut bytes).ok_or(NotEdited::Collides)?;
        let now = self.now;
        *self = SetEdit::of(Cow::Owned(bytes), 0, now).expect("a set that was just written");
        Ok(())
    }

    /// The bytes that differ.
    pub fn finish(self) -> SetBytes {
        let header = header(&self.numbers, self.kind, self.seed, self.mask as usize + 1);
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        let stride = self.stride();
        let has_ends = self.has_ends();
        let bytes_of = |member: &Member| {
            let mut out = Vec::with_capacity(stride);
            member.write(has_ends, &mut out);
            out
        };
        let places: Vec<(usize, Vec<u8>)> = self
            .changed
            .iter()
            .map(|(place, member)| (self.offset(*place), bytes_of(member)))
            .collect();
        let bytes = match self.bytes {
            Cow::Borrowed(image) => image,
            Cow::Owned(mut set) => {
                set[..header.len()].copy_from_slice(&header);
                for (at, bytes) in places {
                    set[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                set.resize(set.len().next_multiple_of(UNIT), 0);
                return SetBytes::Whole(set);
            }
        };
        let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
        for gap in [GAP, usize::MAX] {
            parts = vec![(self.at, header.clone())];
            for (at, bytes_of_place) in &places {
                let (start, part) = parts.last_mut().expect("the header");
                let end = *start + part.len();
                match *at - end <= gap {
                    true => {
                        part.extend_from_slice(&bytes[end..*at]);
                        part.extend_from_slice(bytes_of_place);
                    }
                    false => parts.push((*at, bytes_of_place.clone())),
                }
            }
            if parts.len() <= PARTS {
                break;
            }
        }
        SetBytes::Parts(parts)
    }
}
