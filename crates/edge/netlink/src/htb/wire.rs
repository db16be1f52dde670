//! HTB's messages: a class as the kernel stores it, requests, and the parser of dumps.
//!
//! The kernel stores rates in bytes per second and bursts as times, in ticks of 64 ns
//! (`/proc/net/psched`). Classes are compared in that form, so that rounding is not reported as a
//! change each time.

use std::os::fd::RawFd;

use fairpath_units::IfIndex;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};

use super::{HtbClass, HtbTree};
use crate::connection::acked;
use crate::message::{Request, attr, u16_at, u32_at, u64_at};
use crate::tc::{RTM_NEWQDISC, TCA_KIND, TCA_OPTIONS, TCMSG_LEN, tcmsg};

pub(super) const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
pub(super) const RTM_GETTCLASS: u16 = 42;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const RTM_NEWTFILTER: u16 = 44;
const TCA_BPF_CLASSID: u16 = 3;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program selects the class, and its verdict is that of the filter.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
const ETH_P_ALL: u16 = 3;
/// `PSCHED_SHIFT`: a tick is 64 ns.
const TICK_NS: u64 = 64;
/// `struct tc_htb_opt`: two rate specifications of 12 bytes, then words.
const WORDS_AT: usize = 24;

/// A class as the kernel stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Bytes a second.
    pub rate: u64,
    pub ceil: u64,
    /// Ticks.
    pub buffer: u32,
    pub cbuffer: u32,
    /// Of a leaf.
    pub quantum: u32,
    pub prio: u32,
}

impl Kept {
    pub fn of(class: &HtbClass) -> Kept {
        let (rate, ceil) = (class.rate_bps / 8, class.ceil_bps / 8);
        Kept {
            rate,
            ceil,
            buffer: ticks(class.burst_bytes, rate),
            cbuffer: ticks(class.cburst_bytes, ceil),
            quantum: class.quantum_bytes,
            prio: class.prio.into(),
        }
    }

    /// True if no message is needed: an inner class keeps the quantum that it had as a leaf.
    pub fn serves_as(&self, wanted: &Kept, leaf: bool) -> bool {
        let same = if leaf {
            *wanted
        } else {
            Kept {
                quantum: self.quantum,
                prio: self.prio,
                ..*wanted
            }
        };
        *self == same
    }

    pub fn read(options: &[u8]) -> Option<Kept> {
        let opt = attr(options, TCA_HTB_PARMS)?;
        let rate64 = |kind| attr(options, kind).and_then(|v| u64_at(v, 0));
        let word = |at: usize| u32_at(opt, WORDS_AT + 4 * at);
        Some(Kept {
            rate: rate64(TCA_HTB_RATE64).map_or(u32_at(opt, 8)?.into(), |rate| rate),
            ceil: rate64(TCA_HTB_CEIL64).map_or(u32_at(opt, 20)?.into(), |ceil| ceil),
            buffer: word(0)?,
            cbuffer: word(1)?,
            quantum: word(2)?,
            prio: word(4)?,
        })
    }
}

/// The time that `bytes` take at `rate` bytes a second, at least a tick.
fn ticks(bytes: u32, rate: u64) -> u32 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(ns / u128::from(TICK_NS))
        .unwrap_or(u32::MAX)
        .max(1)
}

pub(super) fn ticks_to_ns(ticks: i32) -> i64 {
    i64::from(ticks) * TICK_NS as i64
}

pub(super) fn handle(major: u16, minor: u16) -> u32 {
    u32::from(major) << 16 | u32::from(minor)
}

/// `struct tc_ratespec`, whose rate has 32 bits.
fn ratespec(rate: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = TC_LINKLAYER_ETHERNET;
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    bytes[8..].copy_from_slice(&rate.to_ne_bytes());
    bytes
}

fn htb_opt(kept: &Kept) -> Vec<u8> {
    let mut bytes = [ratespec(kept.rate), ratespec(kept.ceil)].concat();
    let level = 0;
    for word in [kept.buffer, kept.cbuffer, kept.quantum, level, kept.prio] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Creates a class, or changes the existing one.
pub(super) fn set_class(ifindex: IfIndex, major: u16, class: &HtbClass, new: bool) -> Request {
    let parent = match class.parent {
        0 => handle(major, 0),
        minor => handle(major, minor),
    };
    let kept = Kept::of(class);
    let flags = NLM_F_REQUEST | if new { NLM_F_CREATE | NLM_F_EXCL } else { 0 };
    let header = tcmsg(ifindex, handle(major, class.minor), parent, 0);
    let wide = |r: Request, kind, rate: u64| match u32::try_from(rate) {
        Ok(_) => r,
        Err(_) => r.attr(kind, &rate.to_ne_bytes()),
    };
    Request::new(RTM_NEWTCLASS, flags, &header)
        .attr_str(TCA_KIND, "htb")
        .nest(TCA_OPTIONS, |r| {
            let r = wide(r, TCA_HTB_RATE64, kept.rate);
            wide(r, TCA_HTB_CEIL64, kept.ceil).attr(TCA_HTB_PARMS, &htb_opt(&kept))
        })
}

pub(super) fn delete_class(ifindex: IfIndex, major: u16, minor: u16) -> Request {
    let header = tcmsg(ifindex, handle(major, minor), 0, 0);
    Request::new(RTM_DELTCLASS, NLM_F_REQUEST, &header)
}

/// The qdisc of a tree at this parent, replacing the existing one.
pub(super) fn root(ifindex: IfIndex, parent: u32, tree: &HtbTree) -> Request {
    const VERSION: u32 = 3;
    // Without effect: every class has its quantum.
    const RATE_TO_QUANTUM: u32 = 10;
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE;
    let header = tcmsg(ifindex, handle(tree.major, 0), parent, 0);
    let globals = [VERSION, RATE_TO_QUANTUM, tree.default.into(), 0, 0];
    let globals: Vec<u8> = globals.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Request::new(RTM_NEWQDISC, flags, &header)
        .acked()
        .attr_str(TCA_KIND, "htb")
        .nest(TCA_OPTIONS, |r| r.attr(TCA_HTB_INIT, &globals))
}

/// The filter of a tree: a program that sets the minor number of the class (`tc_classid`). It replaces an earlier one.
pub(super) fn classifier(ifindex: IfIndex, major: u16, program: RawFd) -> Request {
    const PRIORITY: u32 = 1 << 16;
    const FILTER: u32 = 1;
    let info = PRIORITY | u32::from(ETH_P_ALL.to_be());
    let header = tcmsg(ifindex, FILTER, handle(major, 0), info);
    Request::new(RTM_NEWTFILTER, acked(NLM_F_CREATE), &header)
        .attr_str(TCA_KIND, "bpf")
        .nest(TCA_OPTIONS, |r| {
            r.attr_u32(TCA_BPF_FD, program as u32)
                .attr_str(TCA_BPF_NAME, "fairpath_class")
                .attr_u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
                .attr_u32(TCA_BPF_CLASSID, handle(major, 0))
        })
}

/// Default class and packets that passed unshaped, of a root's options (`struct tc_htb_glob`).
pub(super) fn read_root(options: &[u8]) -> Option<(u16, u32)> {
    let globals = attr(options, TCA_HTB_INIT)?;
    Some((u32_at(globals, 8)? as u16, u32_at(globals, 16)?))
}

/// The first part of every traffic control message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub ifindex: u32,
    pub handle: u32,
    pub parent: u32,
}

impl Header {
    pub fn read(payload: &[u8]) -> Option<(Header, &[u8])> {
        let header = Header {
            ifindex: u32_at(payload, 4)?,
            handle: u32_at(payload, 8)?,
            parent: u32_at(payload, 12)?,
        };
        Some((header, payload.get(TCMSG_LEN..)?))
    }

    pub fn minor(&self) -> u16 {
        u16_at(&self.handle.to_ne_bytes(), 0).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::messages;

    fn class(rate_bps: u64) -> HtbClass {
        HtbClass {
            minor: 5,
            parent: 1,
            rate_bps,
            ceil_bps: 2 * rate_bps,
            burst_bytes: 10_000,
            cburst_bytes: 20_000,
            quantum_bytes: 1514,
            prio: 3,
            leaf_bps: 2 * rate_bps,
        }
    }

    #[test]
    fn classes_survive_rates_above_32_bits() {
        for rate_bps in [8_000, 20_000_000, 40_000_000_000, 400_000_000_000] {
            let class = class(rate_bps);
            let bytes = set_class(IfIndex(3), 0x0fa1, &class, true).finish(1);
            let message = messages(&bytes).next().unwrap();
            let (header, attributes) = Header::read(message.payload).unwrap();
            assert_eq!((header.minor(), header.parent), (5, 0x0fa1_0001));
            let options = attr(attributes, TCA_OPTIONS).unwrap();
            assert_eq!(Kept::read(options), Some(Kept::of(&class)), "{rate_bps}");
        }
    }

    #[test]
    fn an_inner_class_does_not_depend_on_quantum() {
        let (kept, mut other) = (Kept::of(&class(1_000_000)), Kept::of(&class(1_000_000)));
        other.quantum += 1;
        assert!(kept.serves_as(&other, false) && !kept.serves_as(&other, true));
        other.buffer += 1;
        assert!(!kept.serves_as(&other, false));
    }
}
