//! Rules at the hooks of netfilter: programs that evaluate a table each, and the sets that they read.
//!
//! ```text
//!   images ─> place 0 or 1 of the arena ─ active ─> rules_hook.bpf.c at raw, mangle, filter, security
//! ```
//!
//! Rules that are pinned outlive their process. Another process finds them ([`HookRules::open`]), and
//! replaces them ([`HookRules::set`]) by writing the place that no packet meets and then one word. So
//! a process that is killed leaves the old rules or the new ones. With a time limit, the programs return to
//! the old place automatically unless [`HookRules::confirm`] comes first.
//!
//! Both places use the same counters, slots and tables. A rule that stays has its numbers in both.

mod early;
mod egress;
mod error;
mod events;
mod interfaces;
mod links;
mod lock;
mod replace;
mod shadow;
mod trace;
mod twin;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use fairpath_core::rules::{
    Counter, CounterMode, Memory, SLOT_BYTES, Shared, VERSION, Work, table,
};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, OpenObject};

use crate::arena::{self, PAGE, START, STRIDE};
use crate::netns::netns_cookie;
use crate::pin::Pins;
use crate::skel::rules_hook::{OpenRulesHookSkel, RulesHookSkel, RulesHookSkelBuilder};
pub use error::HookError;
pub use events::{Event, EventCursor, Occurrence, RejectedFacts, Traced};
pub use interfaces::FrameFamily;
pub use links::HookPlace;
pub use lock::{AnswerLock, HookLock};
pub use shadow::{
    Comparison, Disagreement, SHADOW_EXAMPLES, SHADOW_ROWS, ShadowKind, ShadowOutcomes,
    ShadowPacket,
};
pub use trace::{FILTER_WORDS, Trace, TraceFilter};
pub use twin::{Editable, EditedSet, RulesEdit};

/// Scratches of a CPU (`NESTED`).
const NESTED: usize = 4;
/// `struct rules_scratch`: a line, then the scratch, and the header of an evaluation without counters.
const SCRATCH_BYTES: usize = 64 + size_of::<Work>() + size_of::<fairpath_core::rules::Rules>();
/// Bytes of a place for text and images.
const PLACE_BYTES: usize = 512 << 20;
/// Slots of state: limits, quotas.
const SLOTS: u32 = 1 << 21;
/// Reads of the rules before they are called busy.
const LOOKS: u32 = 100;
/// Images of a set, by family: IPv4, IPv6, ARP, bridges (`IMAGES`).
pub const HOOK_FAMILIES: usize = 4;
/// Those at the hooks of netfilter: the first ones (`FAMILIES`).
pub const IP_FAMILIES: usize = 2;
/// The version of everything in the arena: that of the header here, of images, and of scratches.
const FORMAT: u32 = 11 | VERSION << 8 | (size_of::<Work>() as u32) << 16;

/// `struct rules_hook`.
#[repr(C)]
struct Header {
    active: AtomicU64,
    generations: [AtomicU64; 2],
    sets: [[AtomicU64; HOOK_FAMILIES]; 2],
    programs: [[AtomicU32; HOOK_FAMILIES]; 2],
    scratches: u64,
    passing: u64,
    parked: AtomicU64,
    events: u64,
    event: AtomicU64,
    unlogged: AtomicU64,
    pressed: AtomicU64,
    unknown: AtomicU64,
    changing: AtomicU32,
    tracing: AtomicU32,
    cpus: u32,
    format: u32,
    texts: [[AtomicU64; 2]; 2],
    answers: [AtomicU64; IP_FAMILIES],
    /// The network namespace of the programs.
    namespace: u64,
    local_offset: AtomicU32,
    pad: u32,
    filter: trace::Filter,
    /// 0: there were no rules in the shadow yet.
    shadow: AtomicU64,
    drops: [[AtomicU32; IP_FAMILIES]; 2],
    /// 1: rules read the MTU of the path.
    clamps: [[AtomicU32; IP_FAMILIES]; 2],
    /// 0: no rules limited the MSS in FORWARD yet.
    limits: AtomicU64,
    strays: AtomicU64,
    unsaved: AtomicU64,
    /// Answers on their way by `lo`.
    answered: [AtomicU64; ANSWERED],
}

const HEADER_BYTES: usize = 2048;
const ANSWERED: usize = 32;
/// The first bit of `programs` for facts that rules read.
const NEEDS: u32 = 24;
/// The bit of `programs` for rules in the shadow.
const SHADOW: u32 = 1 << 23;
/// The bit for table mangle in POSTROUTING, which runs at tcx.
const EGRESS: u32 = 1 << 20;
/// The bit for limits of the MSS in FORWARD, which tcx carries out.
const LIMITS: u32 = 1 << 21;
/// `struct rules_limits`, `LIMITS_GROUPS` of `LIMITS_PLACES`.
const LIMITS_BYTES: usize = 4096 * 4 * 32;
/// `struct rules_passing`, and how many a CPU has.
const PASSING_BYTES: usize = 16 * 2048;
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// Offsets of the parts.
#[derive(Debug, Clone, Copy)]
struct Parts {
    scratches: usize,
    passing: usize,
    events: usize,
    twin: usize,
    /// Pages that rules in the shadow allocate.
    shadow: usize,
    /// Pages that rules with limits of the MSS in FORWARD allocate.
    limits: usize,
    places: [usize; 2],
    /// Slots, tables, counters.
    shared: Shared,
}

impl Parts {
    fn of(cpus: usize) -> Parts {
        let page = |at: usize| at.next_multiple_of(PAGE as usize);
        let passing = HEADER_BYTES + cpus * NESTED * SCRATCH_BYTES;
        let events = page(passing + cpus * PASSING_BYTES);
        let twin = page(events + events::BYTES);
        let shadow = page(twin + twin::TWIN_BYTES);
        let limits = page(shadow + shadow::bytes(cpus));
        let first = page(limits + LIMITS_BYTES);
        let slots = first + 2 * PLACE_BYTES;
        let tables = slots + SLOTS as usize * SLOT_BYTES;
        let counters = tables + table::BYTES as usize;
        // One for each CPU, one for evaluations inside of others, and one for user space.
        let rows = cpus + 2;
        let row = ((STRIDE - START) as usize - counters) / rows / PAGE as usize * PAGE as usize;
        Parts {
            scratches: HEADER_BYTES,
            passing,
            events,
            twin,
            shadow,
            limits,
            places: [first, first + PLACE_BYTES],
            shared: Shared {
                slots,
                tables,
                counters,
                most_slots: SLOTS,
                table_bytes: table::BYTES,
                most_ids: (row / size_of::<Counter>()) as u32,
                rows,
            },
        }
    }

    /// The regions of state, from the memory of a set on.
    fn shared(&self, at: usize) -> Shared {
        let Shared {
            slots,
            tables,
            counters,
            ..
        } = self.shared;
        Shared {
            slots: slots - at,
            tables: tables - at,
            counters: counters - at,
            ..self.shared
        }
    }
}

/// The set of one family. Its numbers of state are those of the set before for rules that stay.
#[derive(Debug, Clone, Copy)]
pub struct HookSet<'a> {
    /// The image.
    pub image: &'a [u8],
    /// Counters of new rules, with their first values.
    pub counters: &'a [(u32, Counter)],
    /// Slots of new rules, with their first values.
    pub slots: &'a [(u32, u64)],
    /// Parts of the memory of tables that begin empty.
    pub tables: &'a [Range<u64>],
    /// Facts that rules read (`fairpath_core::rules::needs`).
    pub needs: u32,
    /// Their number.
    pub rules: u64,
    /// Rules of table mangle change packets in POSTROUTING: they run at tcx egress.
    pub egress: bool,
    /// Rules of it limit the MSS in FORWARD: tcx egress carries that out.
    pub limits: bool,
}

/// Rules that take the place of others.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewRules<'a> {
    /// By family: IPv4, IPv6, ARP, bridges.
    pub sets: [Option<HookSet<'a>>; HOOK_FAMILIES],
    /// Packets that are counted.
    pub mode: CounterMode,
    /// Anything that other processes need to describe the rules.
    pub text: &'a [u8],
    /// The rules before come back after this time.
    pub until: Option<Duration>,
    /// They decide nothing, and are compared with other rules. By family: programs that may drop packets,
    /// as bits PROGRAM * 5 + hook.
    pub shadow: Option<[u32; IP_FAMILIES]>,
}

/// Packets that a program could not evaluate as wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Waited in queues or reassembly while rules were replaced: they meet the new ones at later hooks.
    pub parked: u64,
    /// Dropped, because too many evaluations were interrupted by others.
    pub pressed: u64,
    /// Not logged, because more rules logged the packet than an event has places for.
    pub unlogged: u64,
    /// Dropped, because the answer depends on something that the program does not know.
    pub unknown: u64,
    /// SYNs that left without the limits of the MSS that rules in FORWARD set, or perhaps set.
    pub strays: u64,
    /// Marks that rules gave to a connection which was not found.
    pub unsaved: u64,
}

/// Rules at the hooks of a network namespace.
pub struct HookRules {
    /// None if they were opened to be edited.
    programs: Option<links::Programs>,
    links: Vec<links::Held>,
    base: NonNull<u8>,
    mapping: Mapping,
    seen: Seen,
}

/// The rules that packets met when they were opened.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// `active` of the header.
    word: u64,
    place: usize,
    /// Of the place: another one shows that it was written again.
    generation: u64,
    text: Vec<u8>,
}

/// Why a value has programs.
const OPENED_TO_EDIT: &str = "rules that were opened to be edited are not loaded or attached";

/// The origin of the mapping.
enum Mapping {
    Loaded(Box<RulesHookSkel<'static>>),
    Found {
        arena: MapHandle,
        start: NonNull<u8>,
        bytes: usize,
    },
}

impl HookRules {
    /// Loads the programs, without rules and without hooks.
    ///
    /// # Errors
    /// [`HookError`].
    pub fn load() -> Result<HookRules, HookError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(HookError::Refused)?;
        let parts = Parts::of(cpus);
        let address = arena::kept_address(random());
        let skel = load(STRIDE / PAGE, address).map_err(HookError::Refused);
        let skel = skel.inspect_err(|_| arena::release_address(address))?;
        let start = arena::mapped_at(&skel.maps.arena).ok_or(HookError::NotMapped)?;
        // SAFETY: the arena is mapped from `start` on, and larger; no program runs.
        unsafe { arena::touch(start, (START + parts.shadow as u64) / PAGE) };
        // SAFETY: inside that mapping.
        let base = unsafe { start.add(START as usize) };
        let zero = || [AtomicU64::new(0), AtomicU64::new(0)];
        let header = Header {
            active: AtomicU64::new(0),
            generations: [AtomicU64::new(1), AtomicU64::new(0)],
            sets: Default::default(),
            programs: Default::default(),
            scratches: parts.scratches as u64,
            passing: parts.passing as u64,
            parked: AtomicU64::new(0),
            events: parts.events as u64,
            event: AtomicU64::new(0),
            unlogged: AtomicU64::new(0),
            pressed: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            changing: AtomicU32::new(0),
            tracing: AtomicU32::new(0),
            cpus: cpus as u32,
            format: FORMAT,
            texts: [zero(), zero()],
            answers: zero(),
            namespace: netns_cookie().map_err(HookError::Look)?,
            local_offset: AtomicU32::new(0),
            pad: 0,
            filter: trace::Filter::default(),
            shadow: AtomicU64::new(0),
            drops: Default::default(),
            clamps: Default::default(),
            limits: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            unsaved: AtomicU64::new(0),
            answered: Default::default(),
        };
        // SAFETY: inside the mapping, aligned to a page.
        unsafe { base.cast::<Header>().write(header) };
        for number in 0..cpus * NESTED {
            let at = parts.scratches + number * SCRATCH_BYTES + 64;
            // SAFETY: load() reserved the scratches there.
            let work = unsafe { base.add(at) }.cast::<Work>();
            // SAFETY: as above; no program runs.
            unsafe { (*work.as_ptr()).sampler = random() };
        }
        Ok(HookRules {
            programs: Some(links::programs(&skel)?),
            links: Vec::new(),
            base,
            mapping: Mapping::Loaded(Box::new(skel)),
            seen: Seen {
                generation: 1,
                ..Seen::default()
            },
        })
    }

    /// The pinned rules of the calling thread's network namespace. `None`: there are none, or only
    /// programs without rules, as an interrupted load leaves them.
    ///
    /// # Errors
    /// [`HookError`].
    pub fn open(pins: &Pins) -> Result<Option<HookRules>, HookError> {
        if !HookRules::is_pinned(pins)? {
            return Ok(None);
        }
        // First the format: rules of another one have other programs.
        let mut rules = HookRules::map(pins)?;
        if !rules.is_here()? {
            return Ok(None);
        }
        for _ in 0..LOOKS {
            let before = rules.see().generation;
            let Some(links::Found { programs, links }) = links::found(pins)? else {
                return Ok(None);
            };
            (rules.programs, rules.links) = (Some(programs), links);
            rules.look()?;
            if rules.seen.text.is_empty() {
                return Ok(None);
            }
            if links::are_there(rules.used_at(rules.seen.place), &rules.links) {
                return Ok(Some(rules));
            }
            // Other rules, which may have other links, were loaded during this time.
            if rules.seen.generation == before {
                return Ok(None);
            }
        }
        Err(HookError::Changed)
    }

    /// The same without programs, and without a copy of the text: for [`HookRules::text_here`] and
    /// [`HookRules::edit`], which take less time.
    ///
    /// # Errors
    /// [`HookError`].
    pub fn open_to_edit(pins: &Pins) -> Result<Option<HookRules>, HookError> {
        if !HookRules::is_pinned(pins)? {
            return Ok(None);
        }
        let rules = HookRules::map(pins)?;
        // Its programs were attached before it had rules, and stay there with the namespace.
        Ok((rules.is_here()? && rules.is_loaded()).then_some(rules))
    }

    /// False for rules of a namespace of the past, whose number the calling thread's one has now.
    fn is_here(&self) -> Result<bool, HookError> {
        Ok(self.header().namespace == netns_cookie().map_err(HookError::Look)?)
    }

    /// True if the first rules of the calling thread's network namespace were not confirmed in time: their
    /// programs are there, and find nothing to evaluate.
    ///
    /// # Errors
    /// [`HookError`].
    pub fn ended_unconfirmed(pins: &Pins) -> Result<bool, HookError> {
        if !HookRules::is_pinned(pins)? {
            return Ok(false);
        }
        let rules = HookRules::map(pins)?;
        Ok(rules.is_here()? && rules.went_back() && !rules.is_loaded())
    }

    /// The pinned arena.
    fn map(pins: &Pins) -> Result<HookRules, HookError> {
        let path = links::arena_pin(pins)?;
        let map = MapHandle::from_pinned_path(path).map_err(HookError::Refused)?;
        let info = map.info().map_err(HookError::Refused)?.info;
        let bytes = u64::from(info.max_entries) * PAGE;
        let start = arena::map_kept(&map, Some(info.id), info.map_extra, bytes);
        let start = start.ok_or(HookError::NotMapped)?;
        let mut rules = HookRules {
            programs: None,
            links: Vec::new(),
            // SAFETY: the mapping is larger.
            base: unsafe { start.add(START as usize) },
            mapping: Mapping::Found {
                arena: map,
                start,
                bytes: bytes as usize,
            },
            seen: Seen::default(),
        };
        let found = rules.header().format;
        if found != FORMAT {
            return Err(HookError::Version { found });
        }
        rules.seen = rules.see();
        Ok(rules)
    }

    /// True if there is a pin of rules of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HookError::Look`].
    pub fn is_pinned(pins: &Pins) -> Result<bool, HookError> {
        links::arena_pin(pins)?
            .try_exists()
            .map_err(HookError::Look)
    }

    /// Refuses to load programs next to those that have pins elsewhere.
    ///
    /// # Errors
    /// [`HookError::Elsewhere`].
    pub fn refuse_others() -> Result<(), HookError> {
        // Those whose pins were just removed leave soon.
        for _ in 0..LOOKS {
            if !links::are_present()? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(HookError::Elsewhere)
    }

    /// Reads the text of the rules that packets meet now. It is empty after they were unloaded.
    ///
    /// # Errors
    /// [`HookError::Changed`]: they change all the time.
    pub fn look(&mut self) -> Result<(), HookError> {
        for _ in 0..LOOKS {
            let seen = self.see();
            let generation = seen.generation;
            self.seen = Seen {
                text: self.copy_text(seen.place),
                ..seen
            };
            if generation != 0 && self.is_current() {
                return Ok(());
            }
        }
        Err(HookError::Changed)
    }

    /// The active rules, without their text.
    fn see(&self) -> Seen {
        let word = self.header().active.load(Ordering::Acquire);
        let (place, _) = effective(word);
        Seen {
            word,
            place,
            generation: self.header().generations[place].load(Ordering::Acquire),
            text: Vec::new(),
        }
    }

    /// False after the rules were unloaded, also those that have replaced the opened ones.
    pub fn is_loaded(&self) -> bool {
        let (place, _) = effective(self.header().active.load(Ordering::Acquire));
        self.header().texts[place][1].load(Ordering::Acquire) > 0
    }

    /// The text of the opened rules where it is. Only with [`HookLock`].
    pub fn text_here(&self) -> &[u8] {
        let start = self.parts().places[self.seen.place];
        let bytes = self.header().texts[self.seen.place][1].load(Ordering::Acquire) as usize;
        // SAFETY: load() reserved the place.
        let at = unsafe { self.base.add(start) };
        // SAFETY: as above; only the holder of the lock writes it.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes.min(PLACE_BYTES)) }
    }

    /// True if the rules that were opened have not been written again. What was read before is theirs.
    pub fn is_current(&self) -> bool {
        fence(Ordering::Acquire);
        let generation = &self.header().generations[self.seen.place];
        generation.load(Ordering::Acquire) == self.seen.generation
    }

    /// True if packets meet the rules that were opened: no others took their place, and they did not end
    /// without a confirmation.
    pub fn is_active(&self) -> bool {
        let word = self.header().active.load(Ordering::Acquire);
        effective(word).0 == self.seen.place && self.is_current()
    }

    /// Attaches all programs to the hooks of the calling thread's network namespace. They stay there
    /// with the value.
    ///
    /// # Errors
    /// [`HookError::Attach`].
    pub fn attach(&mut self) -> Result<(), HookError> {
        self.attach_these(links::EVALUATING).map(drop)
    }

    /// The same for the programs that the rules need.
    ///
    /// # Errors
    /// [`HookError::Attach`].
    pub fn attach_used(&mut self) -> Result<(), HookError> {
        let used = self.used_at(self.seen.place);
        self.attach_these(used).map(drop)
    }

    /// Loads other programs, which read the arena of these rules.
    fn load_more<'o>(
        &self,
        place: &'o mut MaybeUninit<OpenObject>,
        names: &[&str],
    ) -> Result<RulesHookSkel<'o>, libbpf_rs::Error> {
        let mut open = RulesHookSkelBuilder::default().open(place)?;
        let arena = match &self.mapping {
            Mapping::Loaded(skel) => skel.maps.arena.as_fd(),
            Mapping::Found { arena, .. } => arena.as_fd(),
        };
        open.maps.arena.reuse_fd(arena)?;
        only(&mut open, names);
        open.load()
    }

    fn attach_these(&mut self, used: links::Used) -> Result<Vec<HookPlace>, HookError> {
        let programs = self.programs.as_ref().expect(OPENED_TO_EDIT);
        links::attach(programs, used, &mut self.links)
    }

    /// Programs that have something to evaluate in a place.
    fn used_at(&self, place: usize) -> links::Used {
        let programs = &self.header().programs[place];
        let words = [0, 1].map(|family| programs[family].load(Ordering::Acquire));
        let used = [0, 1].map(|family| words[family] & links::EVALUATING[family]);
        match words.iter().any(|word| word & SHADOW != 0) {
            true => links::with_after(used),
            false => used,
        }
    }

    /// Pins arena and programs. What an interrupted load left is removed before.
    ///
    /// # Errors
    /// [`HookError`]: another process pins rules at the same time; nothing is pinned.
    ///
    /// # Panics
    /// The rules were found.
    pub fn pin(&mut self, pins: &Pins) -> Result<(), HookError> {
        let Mapping::Loaded(skel) = &mut self.mapping else {
            panic!("found rules are pinned");
        };
        links::remove(pins)?;
        links::pin_arena(pins, skel, self.programs.as_ref().expect(OPENED_TO_EDIT))
    }

    fn header(&self) -> &Header {
        // SAFETY: load() wrote it; it lives as long as the mapping, and others change atomics only.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The time until the rules before come back, if the last load is not confirmed.
    pub fn waiting(&self) -> Option<Duration> {
        effective(self.header().active.load(Ordering::Acquire)).1
    }

    /// True if the last load was not confirmed in time, so that the rules before it are active.
    pub fn went_back(&self) -> bool {
        self.header().active.load(Ordering::Acquire) > 1 && self.waiting().is_none()
    }

    fn parts(&self) -> Parts {
        Parts::of(self.header().cpus as usize)
    }

    /// The memory of a place, if it has rules of the family.
    fn memory_at(&self, place: usize, family: usize) -> Option<Memory> {
        let (at, bytes, shared) = self.set_at(place, family)?;
        // SAFETY: the mapping has the place and the regions, and outlives the result, which no one
        // returns beyond this value.
        unsafe { Memory::open_shared(at, bytes, &shared) }.ok()
    }

    /// The set of a place, if it has rules of the family: its memory, bytes up to the end of the place, and
    /// the regions.
    fn set_at(&self, place: usize, family: usize) -> Option<(NonNull<u8>, usize, Shared)> {
        let (header, parts) = (self.header(), self.parts());
        let offset = header.sets[place][family].load(Ordering::Acquire) as usize;
        let start = parts.places[place];
        let inside = (start..start + PLACE_BYTES).contains(&offset) && offset.is_multiple_of(64);
        if !inside {
            return None;
        }
        // SAFETY: inside of the mapping.
        let at = unsafe { self.base.add(offset) };
        let bytes = start + PLACE_BYTES - offset;
        Some((at, bytes, parts.shared(offset)))
    }

    /// The memory of the opened rules, while packets are evaluated: counters. Another process may write
    /// it again: [`HookRules::is_current`] shows that it has not.
    pub fn memory(&self, family: usize) -> Option<Memory> {
        self.memory_at(self.seen.place, family)
            .filter(|_| self.is_current())
    }

    /// A copy of the opened rules' image. `None`: another process has written it again.
    pub fn image(&self, family: usize) -> Option<Vec<u8>> {
        let image = self.memory(family)?.image().to_vec();
        self.is_current().then_some(image)
    }

    fn copy_text(&self, place: usize) -> Vec<u8> {
        let start = self.parts().places[place];
        let [at, bytes] = &self.header().texts[place];
        let [at, bytes] = [at, bytes].map(|word| word.load(Ordering::Acquire) as usize);
        if at != start || bytes > PLACE_BYTES {
            return Vec::new();
        }
        let mut text = vec![0; bytes];
        // SAFETY: inside of the mapping.
        let at = unsafe { self.base.add(at) };
        // SAFETY: as above; the caller compares generations, as another process may write it.
        unsafe { at.copy_to_nonoverlapping(NonNull::from(&mut text[..]).cast(), bytes) };
        text
    }

    /// The text of the opened rules.
    pub fn text(&self) -> &[u8] {
        &self.seen.text
    }

    /// Releases the copy of the text: [`HookRules::text`] is empty then.
    pub fn forget_text(&mut self) {
        self.seen.text = Vec::new();
    }

    /// The programs at their hooks.
    pub fn places(&self) -> impl Iterator<Item = HookPlace> {
        self.links.iter().map(|(place, _)| *place)
    }

    /// Packets that were not evaluated as wanted.
    pub fn counts(&self) -> HookCounts {
        let header = self.header();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HookCounts {
            parked: count(&header.parked),
            pressed: count(&header.pressed),
            unlogged: count(&header.unlogged),
            unknown: count(&header.unknown),
            strays: count(&header.strays),
            unsaved: count(&header.unsaved),
        }
    }

    /// The sockets that send answers to rejected packets, by their cookies: rules meet their packets as
    /// related to what was rejected. Only with [`AnswerLock`].
    pub fn set_answers(&self, cookies: [u64; IP_FAMILIES]) {
        for (place, cookie) in self.header().answers.iter().zip(cookies) {
            place.store(cookie, Ordering::Relaxed);
        }
    }

    /// A place among the events, behind all that happened.
    pub fn events(&self) -> EventCursor {
        EventCursor::behind(&self.header().event)
    }

    /// The next event of a reader; `None`: there is none yet.
    pub fn next_event(&self, cursor: &mut EventCursor) -> Option<Event> {
        // SAFETY: load() reserved the events there.
        let ring = unsafe { self.base.add(self.parts().events) };
        // SAFETY: as above.
        unsafe { cursor.read(&self.header().event, ring) }
    }

    /// The generation of the opened rules, which events name.
    pub fn generation(&self) -> u64 {
        self.seen.generation
    }

    /// Removes what an interrupted load left, and pins of a namespace of the past. False if there is
    /// nothing. Only with [`HookLock`].
    ///
    /// # Errors
    /// [`HookError`].
    pub fn sweep(pins: &Pins) -> Result<bool, HookError> {
        links::remove(pins)
    }
}

impl Drop for HookRules {
    fn drop(&mut self) {
        match &self.mapping {
            // libbpf unmaps it with its object.
            Mapping::Loaded(_) => arena::release_address(self.base.addr().get() as u64 - START),
            Mapping::Found { start, bytes, .. } => arena::unmap_kept(*start, *bytes),
        }
    }
}

// SAFETY: the value owns the mapping and the programs, and no part is bound to a thread.
unsafe impl Send for HookRules {}

impl std::fmt::Debug for HookRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookRules").finish_non_exhaustive()
    }
}

/// The place that packets meet with this word of the header, and the time until they meet the other.
fn effective(word: u64) -> (usize, Option<Duration>) {
    let (place, until) = ((word & 1) as usize, word & !1);
    if until == 0 {
        return (place, None);
    }
    match until.checked_sub(monotonic()).filter(|left| *left > 0) {
        Some(left) => (place, Some(Duration::from_nanos(left))),
        None => (1 - place, None),
    }
}

/// The time in nanoseconds that programs read, at which entries of sets end.
///
/// # Errors
/// [`HookError::OtherClock`]: this process reads another one.
pub fn hook_time() -> Result<u64, HookError> {
    match has_other_clock() {
        true => Err(HookError::OtherClock),
        false => Ok(monotonic()),
    }
}

/// `CLOCK_MONOTONIC`, which programs read as well.
fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}

/// True in a time namespace whose clock is not that of programs.
fn has_other_clock() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let monotonic = offsets.lines().find(|line| line.starts_with("monotonic"));
    monotonic.is_some_and(|line| line.split_whitespace().skip(1).any(|number| number != "0"))
}

/// A random number of the process.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn load(pages: u64, address: u64) -> Result<RulesHookSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its memory permanently: a few bytes per load, freed with the process.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = RulesHookSkelBuilder::default().open(place)?;
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.arena.set_map_extra(address)?;
    // Others are loaded when they are wanted: see early.rs, egress.rs and interfaces.rs.
    only(&mut open, &links::NAMES);
    open.load()
}

/// Leaves all programs but these out.
fn only(open: &mut OpenRulesHookSkel<'_>, names: &[&str]) {
    for mut program in open.open_object_mut().progs_mut() {
        let is_wanted = names.iter().any(|name| program.name() == *name);
        program.set_autoload(is_wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_load() {
        drop(HookRules::load().unwrap());
    }

    /// Another version has other programs, so a pin of one may be missing.
    #[test]
    fn rules_of_another_format_are_refused() {
        let place = format!("fairpath-format-{}", std::process::id());
        let pins = Pins::at(std::env::temp_dir().join(place)).unwrap();
        let mut rules = HookRules::load().unwrap();
        rules.pin(&pins).unwrap();
        // SAFETY: no program runs, and no one else has a reference.
        unsafe { rules.base.cast::<Header>().as_mut() }.format -= 1;
        drop(rules);
        let mut programs = pins.names().unwrap();
        programs.retain(|name| name.starts_with("rules-program-"));
        assert!(pins.remove(programs.iter().max().unwrap()).unwrap());
        let found = HookRules::open(&pins).map(|rules| rules.is_some());
        pins.unmount().unwrap();
        assert!(matches!(found, Err(HookError::Version { .. })), "{found:?}");
    }
}
