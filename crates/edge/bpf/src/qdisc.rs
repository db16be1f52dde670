//! The scheduler as a qdisc: registered under its own name, then put on a device like any other
//! (`tc qdisc add dev IF root NAME`, or `fairpath_netlink::Tc`).
//!
//! One value is one object, one name and one qdisc. Devices and children of mq never share state, a
//! second use of a name is refused, and a fault in one does not affect the others. The kernel part
//! classifies without user space. With [`Pins`], name and memory outlive the process. The next
//! process finds them ([`BpfQdisc::find`]) and replaces the plan while packets flow
//! ([`BpfQdisc::replace`]). Needs Linux 6.16 with `CONFIG_NET_SCH_BPF`.
//!
//! Custom policies are loaded while it runs ([`slots`]).
//!
//! Deliberately absent: putting it on a device (see netlink).

mod content;
mod owner;
mod pins;
mod port;
mod slots;

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fairpath_core::sched::{
    Account, Changes, NodeStats, Op, OpKind, SchedMemory, SchedRuntimeError, SchedStats,
};
use fairpath_core::{Memory, Rules, TooManyRules};
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, OpenObject};

use crate::arena::{self, PAGE};
use crate::pin::{self, PinError, Pins};
use crate::rtt::wait_for_programs;
use content::ContentLayout;
pub use content::{QdiscContent, without_marks};
use pins::NAME_BYTES;
pub use pins::qdisc_names;
pub use port::QdiscCounters;
use port::{ArenaLayout, QdiscMemory};
use slots::Slots;
pub use slots::{QDISC_POLICIES, QdiscPolicy};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qdisc.bpf.o"));
/// The map that registers it.
const OPS_MAP: &str = "fairpath";

/// A qdisc could not be registered, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum QdiscError {
    /// The kernel truncates long names, and tools parse them as words.
    #[error("register the qdisc {0:?}: a name has 1 to 15 bytes, letters, digits, `-` and `_`")]
    Name(String),
    /// Names are global to the machine.
    #[error(
        "register the qdisc {0}: the name is in use; another Fairpath runs, or was killed: stop it, or start this one with its pins"
    )]
    Taken(String),
    /// The plan cannot be built.
    #[error(transparent)]
    Plan(#[from] SchedRuntimeError),
    /// The rules cannot be built.
    #[error(transparent)]
    Rules(#[from] TooManyRules),
    /// The kernel refused object or registration.
    #[error(
        "register a BPF qdisc: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.16 or newer with CONFIG_NET_SCH_BPF (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// The arena's mapping is missing.
    #[error("register a BPF qdisc: its arena is not mapped; the kernel or libbpf is too old")]
    NotMapped,
    /// The plan exceeds the memory reserved at registration.
    #[error(
        "change the plan of a qdisc: {needed} bytes exceed the {capacity} bytes that were reserved at registration; register the qdisc again"
    )]
    TooLarge {
        /// Needed by the new plan.
        needed: u64,
        /// Reserved.
        capacity: u64,
    },
    /// Packets delayed by the new plan need more handles.
    #[error(
        "change the plan of a qdisc: it delays packets and needs {needed} handles, but was registered with {capacity}; register the qdisc again"
    )]
    TooFew {
        /// Needed by the new plan.
        needed: u32,
        /// Available.
        capacity: u32,
    },
    /// No packet comes to apply the settings.
    #[error(
        "change settings of a qdisc: too many changes wait for the next packet; change the whole plan instead"
    )]
    Idle,
    /// A custom policy cannot be loaded.
    #[error("load policy {0} for a qdisc: {1}")]
    Policy(String, String),
    /// More than [`QDISC_POLICIES`].
    #[error(
        "build a qdisc with {0} custom policies: it has slots for {QDISC_POLICIES}; use fewer, or AF_XDP or NFQUEUE"
    )]
    Policies(usize),
    /// The programs of a qdisc cannot be pinned or found.
    #[error("prepare a qdisc for custom policies: {0}")]
    Slots(#[source] std::io::Error),
    /// Found, but not built by this process.
    #[error(
        "change the rules of a qdisc: another process owns its content; replace the content first"
    )]
    Existing,
    /// Two processes would change one ring and one memory.
    #[error("replace the owner of qdisc {name}: process {pid} owns it; stop that process first")]
    Held {
        /// The qdisc.
        name: String,
        /// Its owner.
        pid: u32,
    },
    /// Pins.
    #[error(transparent)]
    Pins(#[from] PinError),
}

/// The options of a qdisc.
#[derive(Clone, Copy, Debug, Default)]
pub struct QdiscOptions<'a> {
    /// Directory of pins, where name and memory outlive the process.
    pub pins: Option<&'a Pins>,
    /// Maximum of logged operations, for tests; 128 bytes each.
    pub log: u32,
}

/// The owner of the mapping of the arena.
enum Held {
    /// libbpf, for an object of this process.
    Loaded { link: Link, _object: Object },
    /// This process, for an object that was found.
    Found {
        _link: Link,
        _arena: MapHandle,
        bytes: usize,
    },
}

/// A scheduler that a device can use as its qdisc.
pub struct BpfQdisc {
    name: String,
    base: NonNull<u8>,
    layout: ArenaLayout,
    /// By half; rules only if this process built them.
    halves: [Option<(SchedMemory, Option<Memory>)>; 2],
    slots: Slots,
    /// Slots that the plan of each half names, as bits.
    used: [u8; 2],
    /// The number of plans, applied or refused, after the last request.
    awaited: u64,
    held: Held,
}

// SAFETY: words that programs share are atomics or counters read as plain numbers.
unsafe impl Send for BpfQdisc {}

impl fmt::Debug for BpfQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfQdisc")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A hash of the object: 64-bit FNV-1a over its bytes.
fn code() -> u64 {
    OBJECT.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn check_policies(content: &QdiscContent<'_>) -> Result<(), QdiscError> {
    match content.customs.len() {
        0..=QDISC_POLICIES => Ok(()),
        more => Err(QdiscError::Policies(more)),
    }
}

fn check_name(name: &str) -> Result<(), QdiscError> {
    let fits = (1..NAME_BYTES).contains(&name.len());
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if fits && name.bytes().all(word) {
        return Ok(());
    }
    Err(QdiscError::Name(name.to_owned()))
}

impl BpfQdisc {
    /// Builds a plan and its rules and registers them as the qdisc `name` of 1 to 15 bytes
    /// ([`qdisc_names`]). Takes most of a second in the verifier.
    ///
    /// # Errors
    /// [`QdiscError`]: the plan cannot be built, the name is in use, or the kernel lacks support.
    pub fn register(
        content: &QdiscContent<'_>,
        name: &str,
        options: QdiscOptions<'_>,
    ) -> Result<BpfQdisc, QdiscError> {
        check_name(name)?;
        check_policies(content)?;
        let packets = content.plan.config.packets.max(1);
        let chosen: Vec<usize> = (0..content.customs.len()).collect();
        let built = ContentLayout::new(
            content,
            &chosen,
            packets,
            &Changes::default(),
            content.plan.config.seed.into(),
        )?;
        let layout = ArenaLayout::new(packets, options.log, built.bytes());
        if built.bytes() > layout.half_bytes {
            let (needed, capacity) = (built.bytes(), layout.half_bytes);
            return Err(QdiscError::TooLarge { needed, capacity });
        }
        let address = arena::kept_address(code() ^ u64::from(std::process::id()));
        let object = load(name, packets, layout.pages(), address);
        let mut object = object.inspect_err(|_| arena::release_address(address))?;
        let base = mapped(&object).ok_or(QdiscError::NotMapped)?;
        // SAFETY: a fresh arena of as many pages.
        unsafe { layout.format(base, code(), content.end as u32) };
        // SAFETY: formatted above.
        let port = unsafe { ArenaLayout::port(base) };
        // SAFETY: the first half of a fresh arena; nothing runs before the port is opened.
        let formatted = unsafe {
            built.format(
                content,
                &port.halves[0],
                base,
                layout.half(0),
                layout.capacity,
            )
        }?;
        ArenaLayout::open(port);
        let link = register(&mut object, name)?;
        // Behind it: the pins of another qdisc of this name stay.
        let slots = Slots::of(&object, name, options.pins).and_then(|mut slots| {
            slots.fill(content.customs, &chosen, &port.slots)?;
            Ok(slots)
        });
        let slots = slots.inspect_err(|_| {
            // What is left behind is removed with the next qdisc of this name.
            let _ = options.pins.map(|pins| pins.remove_qdisc(name));
        })?;
        let mut qdisc = BpfQdisc {
            name: name.to_owned(),
            base,
            layout,
            halves: [Some((formatted.0, Some(formatted.1))), None],
            slots,
            used: [slots::bits(&chosen), 0],
            awaited: 0,
            held: Held::Loaded {
                link,
                _object: object,
            },
        };
        qdisc.take_hold()?;
        if let Some(pins) = options.pins {
            qdisc.pin(pins)?;
        }
        Ok(qdisc)
    }

    /// The qdisc that another process registered under `name` and left. `None` if there is none, or
    /// if it has another version and can only be removed and registered again. Its content
    /// continues, and can be read and replaced.
    ///
    /// # Errors
    /// [`QdiscError::Refused`]: the pins cannot be opened; [`QdiscError::Held`].
    pub fn find(pins: &Pins, name: &str) -> Result<Option<BpfQdisc>, QdiscError> {
        if !pins::link(pins, name).exists() || !pins::arena(pins, name).exists() {
            return Ok(None);
        }
        let Some(slots) = Slots::found(name, pins) else {
            return Ok(None);
        };
        let link = Link::open(pins::link(pins, name)).map_err(QdiscError::Refused)?;
        let map =
            MapHandle::from_pinned_path(pins::arena(pins, name)).map_err(QdiscError::Refused)?;
        let info = map.info().map_err(QdiscError::Refused)?;
        let bytes = u64::from(info.info.max_entries) * PAGE;
        let base = Some(bytes).filter(|bytes| *bytes >= ArenaLayout::MIN);
        let Some(base) = base.and_then(|_| arena::map_kept(&map, None, info.info.map_extra, bytes))
        else {
            return Ok(None);
        };
        let mut qdisc = BpfQdisc {
            name: name.to_owned(),
            base,
            layout: ArenaLayout::new(1, 0, 0),
            halves: [None, None],
            slots,
            used: [0, 0],
            awaited: 0,
            held: Held::Found {
                _link: link,
                _arena: map,
                bytes: bytes as usize,
            },
        };
        if !qdisc.recognise(bytes) {
            return Ok(None);
        }
        qdisc.take_hold()?;
        Ok(Some(qdisc))
    }

    /// Makes this process its owner, if no other process is.
    fn take_hold(&self) -> Result<(), QdiscError> {
        let owner = &self.port().owner;
        let recorded = owner.load(Ordering::Acquire);
        let pid = match owner::another(recorded) {
            Some(pid) => pid,
            None => match owner.compare_exchange(
                recorded,
                owner::me(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => other as u32,
            },
        };
        let name = self.name.clone();
        Err(QdiscError::Held { name, pid })
    }

    /// True if the found object equals this one.
    fn recognise(&mut self, bytes: u64) -> bool {
        let port = self.port();
        let layout = ArenaLayout::found(port, bytes);
        let half = self.active_half();
        let at = port.halves[half].sched_at.load(Ordering::Relaxed);
        let flips = port.flips();
        let Some(layout) = layout.filter(|_| port.is_ours(code(), bytes)) else {
            return false;
        };
        if at != layout.half(half) {
            return false;
        }
        // SAFETY: a half of the mapped arena.
        let at = unsafe { self.base.add(at as usize) };
        // SAFETY: as above; page-aligned, and mapped while this value lives.
        let found = unsafe { SchedMemory::found(at) };
        // Any of them may be of the active plan.
        let filled = |slot: &usize| port.slots[*slot].load(Ordering::Acquire) != 0;
        let filled: Vec<usize> = (0..port.slots.len()).filter(filled).collect();
        self.used[half] = slots::bits(&filled);
        (self.layout, self.awaited) = (layout, flips);
        self.halves[half] = found.map(|sched| (sched, None));
        self.halves[half].is_some()
    }

    fn pin(&mut self, pins: &Pins) -> Result<(), QdiscError> {
        let Held::Loaded {
            link,
            _object: object,
        } = &mut self.held
        else {
            return Ok(());
        };
        let arena = object.maps_mut().find(|map| map.name() == "arena");
        if let Some(mut arena) = arena {
            let place = pins::arena(pins, &self.name);
            if !pins::link(pins, &self.name).exists() {
                // Of a process that ended between the two calls.
                pin::remove(&place)?;
            }
            arena.pin(place).map_err(QdiscError::Refused)?;
        }
        link.pin(pins::link(pins, &self.name))
            .map_err(QdiscError::Refused)
    }

    fn port(&self) -> &QdiscMemory {
        // SAFETY: the arena is mapped while this value lives.
        unsafe { ArenaLayout::port(self.base) }
    }

    /// The seed of the flow hash. A successor keeps it, also in another process: flows with queued
    /// packets keep their hashes.
    fn seed(&self) -> u64 {
        let offset = self.port().halves[self.active_half()]
            .rtt_at
            .load(Ordering::Acquire);
        // SAFETY: the offset of the active half's monitor, in the mapped arena.
        let at = unsafe { self.base.add(offset as usize) };
        // SAFETY: it is formatted, by this version of the code.
        unsafe { Memory::seed_at(at) }
    }

    fn active_half(&self) -> usize {
        (self.port().half.load(Ordering::Acquire) & 1) as usize
    }

    /// The name for a device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if a device uses it.
    pub fn is_used(&self) -> bool {
        self.port().qdisc.load(Ordering::Relaxed) != 0
    }

    /// The [`QdiscContent::note`] of the active content.
    pub fn note(&self) -> Vec<u8> {
        let note = self.port().halves[self.active_half()]
            .note
            .load(Ordering::Acquire);
        let (at, bytes) = (note & u64::from(u32::MAX), note >> 32);
        let within = at + bytes <= self.layout.pages() * PAGE;
        if !within {
            return Vec::new();
        }
        // SAFETY: within the arena.
        let from = unsafe { self.base.add(at as usize) };
        // SAFETY: `bytes` bytes follow, which are not written while their half is active.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes as usize) }.to_vec()
    }

    /// Replaces plan and rules, both between two packets. Waiting packets move over in order of
    /// arrival, at the next enqueue or dequeue ([`BpfQdisc::is_settled`]). A plan that is not
    /// applied yet is dropped.
    ///
    /// # Errors
    /// [`QdiscError`]; then the old plan stays active.
    pub fn replace(
        &mut self,
        content: &QdiscContent<'_>,
        changes: &Changes,
    ) -> Result<(), QdiscError> {
        let packets = self.port().packets.load(Ordering::Relaxed);
        content.check_handles(packets)?;
        check_policies(content)?;
        let chosen = self.slots_for(content)?;
        let built = ContentLayout::new(content, &chosen, packets, changes, self.seed())?;
        let (needed, capacity) = (built.bytes(), self.layout.half_bytes);
        if needed > capacity {
            return Err(QdiscError::TooLarge { needed, capacity });
        }
        // SAFETY: the arena is mapped while this value lives.
        let port = unsafe { ArenaLayout::port(self.base) };
        self.slots.fill(content.customs, &chosen, &port.slots)?;
        self.drop_next();
        let half = 1 - self.active_half();
        self.used[half] = slots::bits(&chosen);
        let (at, op) = (self.layout.half(half), self.layout.capacity);
        self.halves[half] = None;
        // SAFETY: the inactive half, which is not announced yet.
        let built = unsafe { built.format(content, &self.port().halves[half], self.base, at, op) }?;
        self.halves[half] = Some((built.0, Some(built.1)));
        self.awaited = self.port().flips() + 1;
        self.port().next.store(half as u32 + 1, Ordering::Release);
        Ok(())
    }

    /// Drops a plan that is not active yet: then the other half is free.
    fn drop_next(&mut self) {
        self.port().next.swap(0, Ordering::AcqRel);
        wait_for_programs();
    }

    /// A slot for each custom policy. A plan that is not active yet keeps its slots if there are enough.
    fn slots_for(&mut self, content: &QdiscContent<'_>) -> Result<Vec<usize>, QdiscError> {
        let of_both = self.used[0] | self.used[1];
        if let Some(chosen) = slots::choose(content.customs, &self.port().slots, of_both) {
            return Ok(chosen);
        }
        self.drop_next();
        let used = self.used[self.active_half()];
        let chosen = slots::choose(content.customs, &self.port().slots, used);
        chosen.ok_or(QdiscError::Policies(content.customs.len()))
    }

    /// True if the last requested plan is active, or was refused.
    pub fn is_settled(&self) -> bool {
        self.port().flips() >= self.awaited
    }

    /// True if all posted settings are applied.
    pub fn is_posted(&self) -> bool {
        let port = self.port();
        port.post_head.load(Ordering::Relaxed) == port.post_tail.load(Ordering::Acquire)
    }

    /// Changes a setting of the active plan from the next packet: [`Op::node`], [`Op::param`],
    /// [`Op::weight`]. Others are counted as refused.
    ///
    /// # Errors
    /// [`QdiscError::Idle`].
    pub fn post(&mut self, op: &Op) -> Result<(), QdiscError> {
        // SAFETY: the arena of this back end; `&mut self` is the only one that posts.
        let posted = unsafe { self.port().post(self.base, op) };
        posted.then_some(()).ok_or(QdiscError::Idle)
    }

    /// Replaces the rules for the same classes. Every packet uses either the old or the new rules.
    ///
    /// # Errors
    /// [`QdiscError`]; then the old rules stay active.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), QdiscError> {
        let half = self.active_half();
        let Some((_, Some(memory))) = &mut self.halves[half] else {
            return Err(QdiscError::Existing);
        };
        memory.set_rules(rules, &[])?;
        wait_for_programs();
        Ok(())
    }

    /// Counters of the qdisc and of its scheduler, read between two packets, so that they are
    /// consistent: every packet was sent, dropped, lost, or waits. False if packets come too fast
    /// for that.
    pub fn reading(&self) -> (QdiscCounters, SchedStats, bool) {
        let port = self.port();
        let read = || (port.counters(), self.stats());
        let ((counters, stats), agree) = port.between_calls(read);
        (counters, stats, agree)
    }

    /// Sums over all plans since registration.
    pub fn stats(&self) -> SchedStats {
        let half = self.halves[self.active_half()].as_ref();
        half.map(|(sched, _)| sched.stats()).unwrap_or_default()
    }

    /// Counters and backlog of node `node` of the active plan.
    pub fn node_stats(&self, node: u32) -> NodeStats {
        let half = self.halves[self.active_half()].as_ref();
        half.map(|(sched, _)| sched.node_stats(node))
            .unwrap_or_default()
    }

    /// Counts of all packets of leaf `node` over all plans, if the plan requests accounts. Node 0
    /// counts packets without a leaf.
    pub fn account(&self, node: u32) -> Account {
        let half = self.halves[self.active_half()].as_ref();
        half.map(|(sched, _)| sched.account(node))
            .unwrap_or_default()
    }

    /// Counters of the qdisc itself.
    pub fn counters(&self) -> QdiscCounters {
        self.port().counters()
    }

    /// Checks its memory for contradictions. Only while no packet passes.
    ///
    /// # Errors
    /// A description of the contradiction.
    pub fn audit(&self) -> Result<(), String> {
        let half = self.halves[self.active_half()].as_ref();
        half.map_or(Ok(()), |(sched, _)| sched.audit())?;
        let waiting = half.map_or(0, |(sched, _)| {
            let stats = sched.stats();
            stats.enqueued - stats.sent - stats.dropped.iter().sum::<u64>()
        });
        let counters = self.counters();
        if waiting != counters.waiting || counters.strangers != 0 {
            return Err(format!(
                "{waiting} packets wait in the scheduler: {counters:?}"
            ));
        }
        Ok(())
    }

    /// The operations so far, up to [`QdiscOptions::log`], in the form of a native scheduler.
    /// `node` of an enqueue is the leaf of the packet (0: dropped at once), `node` of a dequeue the
    /// handle that left (0: none).
    pub fn log(&self) -> Vec<Op> {
        let port = self.port();
        let most = port.log_most.load(Ordering::Relaxed);
        let count = port.log_count.load(Ordering::Acquire).min(most) as usize;
        let at = port.log_at.load(Ordering::Relaxed) as usize;
        // SAFETY: the log is in the arena.
        let log = unsafe { self.base.add(at) }.cast::<Op>();
        let read = |index| {
            // SAFETY: the log has `most` entries.
            let op = unsafe { log.add(index) };
            // SAFETY: a field of the entry.
            let kind = unsafe { op.cast::<u8>().add(std::mem::offset_of!(Op, kind)) }.cast::<u32>();
            // SAFETY: aligned, as the operation is.
            let known = (OpKind::Enqueue as u32..=OpKind::Impair as u32)
                .contains(&unsafe { kind.read_volatile() });
            // SAFETY: a valid kind; all else are integers.
            known.then(|| unsafe { op.read_volatile() })
        };
        (0..count).map_while(read).collect()
    }

    /// Removes the name permanently: the pins are removed, and the next device cannot use it.
    /// Remove it from its device first.
    ///
    /// # Errors
    /// [`QdiscError::Pins`].
    pub fn remove(self, pins: Option<&Pins>) -> Result<(), QdiscError> {
        if let Some(pins) = pins {
            pins.remove_qdisc(&self.name)?;
        }
        Ok(())
    }
}

impl Drop for BpfQdisc {
    fn drop(&mut self) {
        let me = owner::me();
        let ours = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.port().owner.compare_exchange(me, 0, ours.0, ours.1);
        match self.held {
            Held::Found { bytes, .. } => arena::unmap_kept(self.base, bytes),
            _ => arena::release_address(self.base.addr().get() as u64),
        }
    }
}

fn mapped(object: &Object) -> Option<NonNull<u8>> {
    let arena = object.maps().find(|map| map.name() == "arena");
    arena.and_then(|map| arena::mapped_at(&map))
}

/// The object with its sizes and its name.
fn open(
    name: &str,
    packets: u32,
    pages: u64,
    address: u64,
) -> Result<OpenObject, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in open.maps_mut() {
        match map.name().to_string_lossy().as_ref() {
            "arena" => {
                map.set_max_entries(pages as u32)?;
                map.set_map_extra(address)?;
            }
            "packets" => map.set_max_entries(packets + 1)?,
            OPS_MAP => {
                if let Some(value) = map.initial_value_mut() {
                    value[..NAME_BYTES].fill(0);
                    value[..name.len()].copy_from_slice(name.as_bytes());
                }
            }
            _ => {}
        }
    }
    Ok(open)
}

fn load(name: &str, packets: u32, pages: u64, address: u64) -> Result<Object, QdiscError> {
    let open = open(name, packets, pages, address).map_err(QdiscError::Refused)?;
    open.load().map_err(QdiscError::Refused)
}

/// Loads the programs only, to test whether this kernel accepts them.
pub(crate) fn load_object() -> Result<(), libbpf_rs::Error> {
    let address = arena::next_address();
    open("fairpath-trial", 16, 16, address)?.load().map(drop)
}

fn register(object: &mut Object, name: &str) -> Result<Link, QdiscError> {
    let mut maps = object.maps_mut();
    let mut ops = maps
        .find(|map| map.name() == OPS_MAP)
        .ok_or(QdiscError::NotMapped)?;
    ops.attach_struct_ops().map_err(|error| match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => QdiscError::Taken(name.to_owned()),
        _ => QdiscError::Refused(error),
    })
}
