//! An interface shaped by HTB: a tree, the program that marks packets for it, and both kept across processes.

use anyhow::{Context, Result};
pub use fairpath_backend::htb_tree as tree_of;
use fairpath_bpf::{Mark, MarkOptions, MarkTo, Pins, Took};
use fairpath_core::Rules;
use fairpath_core::sched::End;
use fairpath_netlink::{
    Applied, Device, HTB_MAJOR, Htb, HtbClass, HtbClassStats, HtbTree, Leaves, Links,
};
use fairpath_shape::htb::burst_bytes;
use fairpath_units::IfIndex;

/// The largest frame of these tests.
pub const FRAME: u32 = 1514;
/// Minor of the line itself.
pub const LINE: u16 = 1;
/// Minor of what has no class.
pub const OTHER: u16 = 2;
/// The rate of packets without a class.
const OTHER_BPS: u64 = 1_000_000;

/// A class with bursts as they should be.
pub fn class(minor: u16, parent: u16, rate_bps: u64, ceil_bps: u64) -> HtbClass {
    HtbClass {
        minor,
        parent,
        rate_bps,
        ceil_bps,
        burst_bytes: burst_bytes(rate_bps, FRAME),
        cburst_bytes: burst_bytes(ceil_bps, FRAME),
        quantum_bytes: FRAME,
        prio: 0,
        leaf_bps: ceil_bps,
    }
}

/// A line of this rate, with these classes and one for the rest.
pub fn tree(line_bps: u64, classes: &[HtbClass]) -> HtbTree {
    let line = class(LINE, 0, line_bps, line_bps);
    let other = class(OTHER, LINE, OTHER_BPS, line_bps);
    HtbTree {
        major: HTB_MAJOR,
        default: OTHER,
        classes: [&[line, other], classes].concat(),
        leaves: Leaves::Best,
        limit_packets: 10_240,
        frame_bytes: FRAME,
    }
}

/// A shaped interface of the calling thread's namespace.
#[derive(Debug)]
pub struct Shaped {
    /// The active tree.
    pub htb: Htb,
    /// The marking program.
    pub mark: Mark,
    name: String,
    ifindex: IfIndex,
}

impl Shaped {
    /// Loads the marking program; nothing is attached and nothing shaped yet.
    ///
    /// # Errors
    /// Where there is no such interface, or the kernel refuses.
    pub fn open(name: &str, classes: u32, end: End) -> Result<Shaped> {
        let link = Links::open()?.by_name(name)?.context("no such interface")?;
        let mark = Mark::load(&MarkOptions {
            classes,
            end,
            to: MarkTo::Htb(HTB_MAJOR),
            queues: 0,
        })?;
        Ok(Shaped {
            htb: Htb::open()?,
            mark,
            name: name.to_owned(),
            ifindex: link.ifindex,
        })
    }

    /// The interface.
    pub fn device(&self) -> Device<'_> {
        Device {
            ifindex: self.ifindex,
            name: &self.name,
        }
    }

    /// Makes the tree run.
    ///
    /// # Errors
    /// As [`Htb::apply`].
    pub fn apply(&mut self, tree: &HtbTree) -> Result<Applied> {
        let (name, ifindex) = (&self.name, self.ifindex);
        Ok(self.htb.apply(Device { ifindex, name }, tree, false)?)
    }

    /// Marks packets until this process ends, and after: class number N goes to minor `minors[N]`.
    ///
    /// # Errors
    /// As [`Mark::set`] and [`Mark::attach_pinned`].
    pub fn mark(&mut self, rules: &Rules, minors: &[u16], pins: &Pins) -> Result<Took> {
        self.mark.set(rules, minors)?;
        Ok(self
            .mark
            .attach_pinned(pins, self.ifindex, &self.name, false)?)
    }

    /// Removes those of `stale` that are empty; the others are returned.
    ///
    /// # Errors
    /// As [`Htb::retire`].
    pub fn retire(&mut self, stale: &[u16]) -> Result<Vec<u16>> {
        let (name, ifindex) = (&self.name, self.ifindex);
        let device = Device { ifindex, name };
        Ok(self.htb.retire(device, HTB_MAJOR, stale, false)?)
    }

    /// The counters of a class.
    ///
    /// # Errors
    /// Where the tree does not run or has no such class.
    pub fn class(&mut self, minor: u16) -> Result<HtbClassStats> {
        let (name, ifindex) = (&self.name, self.ifindex);
        let stats = self.htb.stats(Device { ifindex, name }, [HTB_MAJOR])?;
        let stats = stats.into_iter().flatten().next();
        let classes = stats.context("no tree of ours")?.classes;
        let found = classes.into_iter().find(|class| class.minor == minor);
        found.with_context(|| format!("no class {minor:x}"))
    }

    /// Removes marks and tree.
    ///
    /// # Errors
    /// As [`Mark::detach_pinned`] and [`Htb::remove`].
    pub fn remove(&mut self, pins: &Pins) -> Result<[bool; 2]> {
        let (name, ifindex) = (&self.name, self.ifindex);
        let marked = Mark::detach_pinned(pins, ifindex, MarkTo::Htb(HTB_MAJOR))?;
        let shaped = self.htb.remove(Device { ifindex, name }, HTB_MAJOR)?;
        Ok([marked, shaped])
    }
}
