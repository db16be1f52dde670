//! The qdisc of a leaf: CAKE, FQ-CoDel, or a FIFO with a limit. HTB's own FIFO holds seconds.
//!
//! The first leaf without a qdisc shows by trying which kind works. A leaf with a qdisc keeps it: a
//! replacement would drop its packets.

use std::fmt;

use fairpath_units::IfIndex;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use super::place_of;
use super::wire::handle;
use crate::message::{Request, attr, u32_at};
use crate::tc::{QdiscPlace, RTM_DELQDISC, RTM_NEWQDISC, TCA_KIND, TCA_OPTIONS, tcmsg};

/// Maximum of leaves with CAKE: each has tables of 1 MiB, at any traffic (measured on 7.3, 200
/// leaves).
pub const CAKE_LEAVES: usize = 1024;
/// Maximum of leaves whose FQ-CoDel has the 1,024 queues of RFC 8290 section 5.2.4; above,
/// [`FEWER_FLOWS`].
const MANY_FLOWS_LEAVES: usize = 1024;
const MANY_FLOWS: u32 = 1024;
/// Flows of a subscriber rarely share one of these queues, which take 15 KiB instead of 64
/// (measured).
const FEWER_FLOWS: u32 = 256;
const TCA_CAKE_DIFFSERV_MODE: u16 = 3;
const CAKE_DIFFSERV_BESTEFFORT: u32 = 3;
const TCA_CAKE_FLOW_MODE: u16 = 5;
const CAKE_FLOW_TRIPLE: u32 = 7;
const TCA_CAKE_MEMORY: u16 = 10;
const TCA_FQ_CODEL_FLOWS: u16 = 5;
const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_LIMIT: u16 = 2;
const TCA_FQ_CODEL_MEMORY: u16 = 9;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
/// RFC 8289 section 4.3 and 4.4, in microseconds.
const TARGET_US: u64 = 5_000;
const INTERVAL_US: u64 = 100_000;
/// Maximum time that a packet waits in a FIFO at the ceiling of its class.
pub const FIFO_NS: u64 = 50_000_000;
/// The memory of a leaf with CoDel: what it holds in this time at its ceiling, twice, because the kernel counts more
/// than the packets. CoDel alone does not slow down a flood.
const CODEL_NS: u64 = 500_000_000;
/// Memory of any leaf with CoDel: a few GSO packets.
const CODEL_MEMORY: u64 = 256 << 10;
/// Frames that any FIFO holds.
const FIFO_FRAMES: u64 = 2;

/// The kind of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// `sch_cake`, best effort, fair among hosts and then flows, without its own rate.
    Cake,
    /// `sch_fq_codel`.
    FqCodel,
    /// `sch_fifo`, which holds [`FIFO_NS`] of the class's ceiling. It delays what waits behind others.
    Fifo,
}

impl LeafKind {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            LeafKind::Cake => "cake",
            LeafKind::FqCodel => "fq_codel",
            LeafKind::Fifo => "bfifo",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<LeafKind> {
        let all = [LeafKind::Cake, LeafKind::FqCodel, LeafKind::Fifo];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for LeafKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The requested kind of leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaves {
    /// The first that the kernel has: CAKE (up to [`CAKE_LEAVES`]), FQ-CoDel, the FIFO.
    #[default]
    Best,
    /// This one, or an error.
    Only(LeafKind),
}

impl Leaves {
    /// The kinds to try, in this order, for a tree of this many leaves; and the excluded ones with
    /// the reason.
    pub(super) fn candidates(self, leaves: usize) -> (Vec<LeafKind>, Vec<(LeafKind, String)>) {
        let plain = vec![LeafKind::FqCodel, LeafKind::Fifo];
        match self {
            Leaves::Only(kind) => (vec![kind], Vec::new()),
            Leaves::Best if leaves <= CAKE_LEAVES => {
                ([vec![LeafKind::Cake], plain].concat(), Vec::new())
            }
            Leaves::Best => {
                let reason = format!("{leaves} leaves; {CAKE_LEAVES} at most, for its memory");
                (plain, vec![(LeafKind::Cake, reason)])
            }
        }
    }
}

/// The kind of new leaves, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafChoice {
    /// The kind of a leaf that was created now.
    pub kind: LeafKind,
    /// The preferred kinds that do not work, with the kernel's reason.
    pub passed_over: Vec<(LeafKind, String)>,
}

impl fmt::Display for LeafChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        for (kind, reason) in &self.passed_over {
            write!(f, "; not {kind}: {reason}")?;
        }
        Ok(())
    }
}

/// Properties of the tree that qdiscs of leaves depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Leaves of the tree.
    pub leaves: usize,
    /// Packets that one leaf holds.
    pub packets: u32,
    /// The largest frame.
    pub frame_bytes: u32,
}

/// Parameters that change in a running qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// In the qdisc's unit.
    limit: u32,
    /// Of FQ-CoDel.
    target_us: u64,
    memory_bytes: u32,
}

impl Limits {
    fn wanted(&self, kind: LeafKind, ceil_bps: u64) -> Wanted {
        let bytes = u64::from(self.packets) * u64::from(self.frame_bytes);
        let in_time = |ns: u64| {
            let in_time = u128::from(ceil_bps) * u128::from(ns) / 8_000_000_000;
            u64::try_from(in_time).unwrap_or(u64::MAX)
        };
        let memory = (2 * in_time(CODEL_NS).min(bytes)).max(CODEL_MEMORY);
        let limit = match kind {
            LeafKind::Cake => memory,
            LeafKind::FqCodel => self.packets.into(),
            LeafKind::Fifo => {
                let minimum = FIFO_FRAMES * u64::from(self.frame_bytes);
                in_time(FIFO_NS).min(bytes).max(minimum)
            }
        };
        let number = |bytes: u64| bytes.try_into().unwrap_or(u32::MAX);
        Wanted {
            limit: number(limit),
            target_us: target_us(ceil_bps),
            memory_bytes: number(memory),
        }
    }
}

/// The handle of the qdisc of a leaf: the number of its class. With a tree at each queue, the kernel chooses one.
fn qdisc_handle(major: u16, minor: u16) -> u32 {
    match place_of(major) {
        QdiscPlace::Root => u32::from(minor) << 16,
        QdiscPlace::Queue(_) => 0,
    }
}

/// The qdisc of a leaf.
///
/// `ceil_bps` is the leaf's. Below 2.4 Mbit/s, 5 ms are less than one and a half packets, and
/// CoDel's target is increased to them (RFC 8289 section 4.3).
pub(super) fn request(
    ifindex: IfIndex,
    (major, minor): (u16, u16),
    kind: LeafKind,
    limits: &Limits,
    ceil_bps: u64,
) -> Request {
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
    let header = tcmsg(ifindex, qdisc_handle(major, minor), handle(major, minor), 0);
    let request = Request::new(RTM_NEWQDISC, flags, &header).attr_str(TCA_KIND, kind.name());
    let wanted = limits.wanted(kind, ceil_bps);
    match kind {
        LeafKind::Cake => request.nest(TCA_OPTIONS, |r| {
            r.attr_u32(TCA_CAKE_DIFFSERV_MODE, CAKE_DIFFSERV_BESTEFFORT)
                .attr_u32(TCA_CAKE_FLOW_MODE, CAKE_FLOW_TRIPLE)
                .attr_u32(TCA_CAKE_MEMORY, wanted.limit)
        }),
        LeafKind::FqCodel => request.nest(TCA_OPTIONS, |r| {
            let flows = if limits.leaves <= MANY_FLOWS_LEAVES {
                MANY_FLOWS
            } else {
                FEWER_FLOWS
            };
            codel(r.attr_u32(TCA_FQ_CODEL_FLOWS, flows), wanted)
        }),
        LeafKind::Fifo => request.attr_u32(TCA_OPTIONS, wanted.limit),
    }
}

/// Changes the limits of a running qdisc of this kind, which holds `running` now and whose class had the
/// ceiling `before_bps`; `None` if they are the same.
pub(super) fn retarget(
    ifindex: IfIndex,
    (major, minor): (u16, u16),
    (kind, running): (LeafKind, u32),
    limits: &Limits,
    [before_bps, ceil_bps]: [u64; 2],
) -> Option<Request> {
    let wanted = limits.wanted(kind, ceil_bps);
    let before = limits.wanted(kind, before_bps);
    if wanted.limit == running && (kind != LeafKind::FqCodel || wanted == before) {
        return None;
    }
    let header = tcmsg(ifindex, qdisc_handle(major, minor), handle(major, minor), 0);
    let request = Request::new(RTM_NEWQDISC, NLM_F_REQUEST, &header);
    let request = request.attr_str(TCA_KIND, kind.name());
    Some(match kind {
        LeafKind::Cake => request.nest(TCA_OPTIONS, |r| r.attr_u32(TCA_CAKE_MEMORY, wanted.limit)),
        LeafKind::FqCodel => request.nest(TCA_OPTIONS, |r| codel(r, wanted)),
        LeafKind::Fifo => request.attr_u32(TCA_OPTIONS, wanted.limit),
    })
}

/// The limit in the dump of a qdisc of this kind, in its unit.
pub(super) fn limit_of(kind: LeafKind, options: &[u8]) -> Option<u32> {
    match kind {
        LeafKind::Cake => u32_at(attr(options, TCA_CAKE_MEMORY)?, 0),
        LeafKind::FqCodel => u32_at(attr(options, TCA_FQ_CODEL_LIMIT)?, 0),
        LeafKind::Fifo => u32_at(options, 0),
    }
}

fn codel(request: Request, wanted: Wanted) -> Request {
    request
        .attr_u32(TCA_FQ_CODEL_LIMIT, wanted.limit)
        .attr_u32(TCA_FQ_CODEL_MEMORY, wanted.memory_bytes)
        .attr_u32(TCA_FQ_CODEL_TARGET, wanted.target_us as u32)
        .attr_u32(
            TCA_FQ_CODEL_INTERVAL,
            (INTERVAL_US + wanted.target_us - TARGET_US) as u32,
        )
}

fn target_us(ceil_bps: u64) -> u64 {
    const PACKET_AND_A_HALF_BITS: u64 = 1514 * 12;
    (PACKET_AND_A_HALF_BITS * 1_000_000 / ceil_bps.max(8)).clamp(TARGET_US, 60_000_000)
}

/// Removes the qdisc of a leaf: HTB restores its own FIFO.
pub(super) fn removal(ifindex: IfIndex, major: u16, minor: u16) -> Request {
    let header = tcmsg(ifindex, 0, handle(major, minor), 0);
    Request::new(RTM_DELQDISC, NLM_F_REQUEST, &header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cake_is_excluded_for_many_leaves() {
        let (kinds, passed) = Leaves::Best.candidates(CAKE_LEAVES);
        assert_eq!((kinds[0], passed.len()), (LeafKind::Cake, 0));
        let (kinds, passed) = Leaves::Best.candidates(CAKE_LEAVES + 1);
        assert_eq!((kinds[0], passed[0].0), (LeafKind::FqCodel, LeafKind::Cake));
        assert!(passed[0].1.starts_with("1025 leaves"), "{}", passed[0].1);
    }

    #[test]
    fn codel_target_is_at_least_a_large_packet() {
        assert_eq!(target_us(100_000_000), 5_000);
        assert_eq!(target_us(1_000_000), 18_168);
    }

    #[test]
    fn a_fifo_holds_50_ms_of_its_ceiling() {
        let limits = Limits {
            leaves: 1,
            packets: 10_240,
            frame_bytes: 1514,
        };
        let bytes = |bps| limits.wanted(LeafKind::Fifo, bps).limit;
        assert_eq!(bytes(20_000_000), 125_000);
        assert_eq!(bytes(100_000), 2 * 1514);
        assert_eq!(bytes(u64::MAX), 10_240 * 1514);
        let few = Limits {
            packets: 10,
            ..limits
        };
        assert_eq!(few.wanted(LeafKind::Fifo, 20_000_000).limit, 15_140);
        assert_eq!(few.wanted(LeafKind::FqCodel, 20_000_000).limit, 10);
        let memory = |bps| limits.wanted(LeafKind::FqCodel, bps).memory_bytes;
        assert_eq!(memory(1_000_000), 256 << 10);
        assert_eq!(memory(20_000_000), 2_500_000);
        assert_eq!(memory(u64::MAX), 2 * 10_240 * 1514);
        assert_eq!(limits.wanted(LeafKind::Cake, 20_000_000).limit, 2_500_000);
    }
}
