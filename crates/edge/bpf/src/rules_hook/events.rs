//! Packets that the programs report: logged, rejected and traced ones, in a ring that each reader copies.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use fairpath_core::rules::known;

/// Events that are kept (`EVENTS`).
const EVENTS: u64 = 1024;
/// Bytes of a packet in an event, from its network header on (`EVENT_BYTES`).
const HEAD: usize = 256;
/// Of the ring.
pub(super) const BYTES: usize = EVENTS as usize * size_of::<Raw>();

/// `struct rules_event`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Raw {
    number: u64,
    time: u64,
    generation: u64,
    input: [u8; 16],
    output: [u8; 16],
    source: u64,
    destination: u64,
    kind: u32,
    place: u32,
    argument: u32,
    mark: u32,
    length: u32,
    captured: u32,
    family: u8,
    hook: u8,
    program: u8,
    has_link: u8,
    verdict: u8,
    packet_type: u8,
    pad: u16,
    head: [u8; HEAD],
    connection: u64,
    date: u64,
    connection_mark: u32,
    random: u32,
    user: u32,
    group: u32,
    known: u32,
    local_offset: u32,
    original: [u8; 16],
    port: u16,
    is_translated: u8,
    packet: u8,
    state: u32,
    route: u32,
    path: u32,
    types: u32,
    pad2: u32,
    spare: u64,
}

const _: () = assert!(size_of::<Raw>() == 448);

/// The reason for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence {
    /// A rule logged it.
    Logged {
        /// Offset of the test in the image.
        place: u32,
    },
    /// A rule rejected it.
    Rejected {
        /// The id of its counter.
        id: u32,
        /// The kind of the answer.
        kind: u32,
        /// Facts that the answer needs.
        facts: RejectedFacts,
    },
    /// A filter selects it ([`super::TraceFilter`]).
    Traced(Traced),
}

/// The evaluation of a traced packet, and the facts that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// `fairpath_core::rules::action`.
    pub verdict: u32,
    /// The reason of an unknown verdict, the kind of an answer.
    pub argument: u32,
    /// The id of the rule's counter that decided; `NONE`: a policy.
    pub id: u32,
    /// 0 raw, 1 mangle, 2 filter, 3 security.
    pub program: usize,
    /// State, status and direction of the connection, as `fairpath_core::rules::meta` places them.
    pub connection: u64,
    /// Its mark.
    pub connection_mark: u32,
    /// Of the packet: 0 to this host, 1 broadcast, 2 multicast, 3 to another host.
    pub packet_type: u8,
    /// User and group of the socket, if it has them.
    pub owner: Option<(u32, u32)>,
    /// Seconds since 1970, and the offset of local time.
    pub date: (u64, i32),
    /// Random bits.
    pub random: u32,
    /// The MTU of the path, if rules read it.
    pub path_mtu: Option<u32>,
    /// Type of the destination as a bit, of IPv4 packets in INPUT.
    pub destination_type: Option<u16>,
}

/// Facts about a rejected packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedFacts {
    /// The network device accepted it for this host only.
    pub is_for_host: bool,
    /// The route leads to a broadcast or multicast address.
    pub is_to_many: bool,
    /// The route leads to this host.
    pub is_local: bool,
    /// The kernel or a device has checked the checksum, or will complete it.
    pub is_checked: bool,
    /// Its connection was tracked.
    pub is_tracked: bool,
    /// Address and port of the destination before its translation.
    pub original: Option<([u8; 16], u16)>,
}

impl RejectedFacts {
    fn of(raw: &Raw) -> RejectedFacts {
        // RTCF_LOCAL is RTF_LOCAL.
        const LOCAL: u32 = 1 << 31;
        const TO_MANY: u32 = 3 << 28;
        // CHECKSUM_UNNECESSARY, CHECKSUM_PARTIAL.
        const CHECKED: [u8; 2] = [1, 3];
        // INVALID, UNTRACKED.
        const NO_CONNECTION: u32 = 1 | 16;
        RejectedFacts {
            is_for_host: raw.packet & 15 == 0,
            is_to_many: raw.family == 0 && raw.route & TO_MANY != 0,
            is_local: raw.route & LOCAL != 0,
            is_checked: CHECKED.contains(&(raw.packet >> 4)),
            is_tracked: raw.state != 0 && raw.state & NO_CONNECTION == 0,
            original: (raw.is_translated != 0).then_some((raw.original, u16::from_be(raw.port))),
        }
    }
}

/// A packet that a program reported.
#[derive(Debug, Clone)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Of the rules that it met (`HookRules::generation`).
    pub generation: u64,
    /// The reason.
    pub occurrence: Occurrence,
    /// Names of the interfaces; empty: none.
    pub input: Vec<u8>,
    /// Of the output.
    pub output: Vec<u8>,
    /// Link-layer addresses: source, destination.
    pub link: Option<[[u8; 6]; 2]>,
    /// They are of Ethernet, not of the loopback device.
    pub is_ethernet: bool,
    /// The mark of the packet.
    pub mark: u32,
    /// IPv4, else IPv6.
    pub is_ipv4: bool,
    /// `NF_INET_PRE_ROUTING` (0) to `NF_INET_POST_ROUTING` (4).
    pub hook: usize,
    /// Of the packet from its network header on.
    pub length: u32,
    /// The first of them.
    pub bytes: Vec<u8>,
}

impl Event {
    fn of(raw: &Raw) -> Option<Event> {
        let occurrence = match raw.kind {
            1 => Occurrence::Logged { place: raw.place },
            2 => Occurrence::Rejected {
                id: raw.place,
                kind: raw.argument,
                facts: RejectedFacts::of(raw),
            },
            3 => Occurrence::Traced(Traced {
                verdict: raw.verdict.into(),
                argument: raw.argument,
                id: raw.place,
                program: usize::from(raw.program),
                connection: raw.connection,
                connection_mark: raw.connection_mark,
                packet_type: raw.packet_type,
                owner: (raw.known & known::OWNED != 0).then_some((raw.user, raw.group)),
                date: (raw.date, raw.local_offset as i32),
                random: raw.random,
                path_mtu: Some(raw.path).filter(|mtu| *mtu > 0),
                destination_type: Some(raw.types as u16).filter(|types| *types > 0),
            }),
            _ => return None,
        };
        let name = |name: &[u8; 16]| {
            name.split(|byte| *byte == 0)
                .next()
                .unwrap_or(name)
                .to_vec()
        };
        let address = |word: u64| {
            let [a, b, c, d, e, f, ..] = word.to_le_bytes();
            [a, b, c, d, e, f]
        };
        let bytes = &raw.head[..HEAD.min(raw.captured as usize)];
        Some(Event {
            time: raw.time,
            generation: raw.generation,
            occurrence,
            input: name(&raw.input),
            output: name(&raw.output),
            link: (raw.has_link != 0).then(|| [raw.source, raw.destination].map(address)),
            is_ethernet: raw.has_link == 1,
            mark: raw.mark,
            is_ipv4: raw.family == 0,
            hook: usize::from(raw.hook).min(4),
            length: raw.length,
            bytes: bytes.to_vec(),
        })
    }
}

/// The place of a reader among the events. Any number of readers get all of them.
#[derive(Debug)]
pub struct EventCursor {
    next: u64,
    lost: u64,
}

impl EventCursor {
    /// Behind all events that were written.
    pub(super) fn behind(written: &AtomicU64) -> Self {
        Self {
            next: written.load(Ordering::Acquire),
            lost: 0,
        }
    }

    /// The next event; `None`: there is none yet.
    ///
    /// # Safety
    /// `ring` has [`BYTES`].
    pub(super) unsafe fn read(&mut self, written: &AtomicU64, ring: NonNull<u8>) -> Option<Event> {
        let ring = ring.cast::<Raw>();
        loop {
            let written = written.load(Ordering::Acquire);
            if written.saturating_sub(self.next) > EVENTS {
                self.lost += written - EVENTS - self.next;
                self.next = written - EVENTS;
            }
            if self.next >= written {
                return None;
            }
            let at = (self.next % EVENTS) as usize;
            // SAFETY: the ring has the events.
            let place = unsafe { ring.add(at) };
            // SAFETY: as above; the number is the first word, aligned to 8.
            let number = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
            let before = number.load(Ordering::Acquire);
            // SAFETY: as above; programs write it at the same time, so numbers are compared.
            let raw = unsafe { place.read_volatile() };
            fence(Ordering::Acquire);
            match before {
                whole if whole == self.next + 1 && number.load(Ordering::Relaxed) == whole => {
                    self.next += 1;
                    match Event::of(&raw) {
                        Some(event) => return Some(event),
                        None => self.lost += 1,
                    }
                }
                // A program writes it now, or has not begun.
                older if older <= self.next => return None,
                _ => {
                    self.lost += 1;
                    self.next += 1;
                }
            }
        }
    }

    /// Events that came faster than they were read, since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}
