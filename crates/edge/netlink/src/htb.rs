//! HTB, the kernel's hierarchy of rates, as a desired state: the caller passes the whole tree, and
//! only differences are sent.
//!
//! ```text
//! HtbTree --check--> diff with the dump --> adds, changes (batches) --> Applied { stale } --later--> retire
//! ```
//!
//! Invariant: a class in both the old and the new tree is never removed in between, nor its qdisc.
//! [`Htb::retire`] removes classes that are no longer wanted when they are empty. So a change under
//! traffic loses no packet, if packets are sent elsewhere before their class is retired (as with
//! `fairpath_bpf::Mark`).
//!
//! `skb->priority` selects the class of a packet, by the major and minor number of a leaf. At the root, no
//! filter is needed or created. Packets without a class go to the default of the tree. Packets that
//! find no class at all, for example between the creation of the root and of its classes, pass
//! unshaped and are counted ([`HtbStats::direct_packets`]).
//!
//! A tree is at the root of an interface, or at one of its transmit queues below `mq` ([`htb_major`]). Each
//! tree has its major number. So with queues a filter selects the class ([`Htb::classify`]).
//!
//! Sources: tc-htb(8), Linux `net/sched/sch_htb.c`. Deliberately absent: offload into the NIC,
//! filters, `overhead` and link layers other than Ethernet, and weights between inner classes,
//! which HTB does not have.

mod apply;
mod diff;
mod dump;
mod leaf;
#[cfg(test)]
mod tests;
mod wire;

use fairpath_units::IfIndex;

use crate::connection::NetlinkError;
use crate::tc::QdiscPlace;

pub use apply::{Applied, Htb};
pub use dump::{HtbClassStats, HtbRunning, HtbStats};
pub use leaf::{CAKE_LEAVES, FIFO_NS, LeafChoice, LeafKind, Leaves};

/// The major number that identifies our trees: `fa1:`.
pub const HTB_MAJOR: u16 = 0x0fa1;
/// Transmit queues with a tree each. Their majors follow that of the root.
pub const MAX_HTB_QUEUES: u16 = 64;
/// Maximum minor number: `ffff:` belongs to clsact, and the qdisc of a leaf has the number of its
/// class.
pub const MAX_MINOR: u16 = 0xfffe;
/// From the root's child to a leaf (`TC_HTB_MAXDEPTH`).
pub const MAX_LEVELS: usize = 8;

/// The major number of the tree at a place: that of the root is [`HTB_MAJOR`].
pub fn htb_major(place: QdiscPlace) -> u16 {
    match place {
        QdiscPlace::Root => HTB_MAJOR,
        QdiscPlace::Queue(queue) => HTB_MAJOR + 1 + queue.min(MAX_HTB_QUEUES),
    }
}

/// The place of the tree with this major number.
fn place_of(major: u16) -> QdiscPlace {
    match major.checked_sub(HTB_MAJOR + 1) {
        Some(queue) if queue < MAX_HTB_QUEUES => QdiscPlace::Queue(queue),
        _ => QdiscPlace::Root,
    }
}

/// A class. Rates are bits per second of Ethernet frames without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Its number, 1 to [`MAX_MINOR`].
    pub minor: u16,
    /// Its parent's, 0 for the root qdisc.
    pub parent: u16,
    /// Guaranteed rate; not 0.
    pub rate_bps: u64,
    /// Maximum rate, not below the rate.
    pub ceil_bps: u64,
    /// Burst at its rate: too small a burst loses rate when a turn is late.
    pub burst_bytes: u32,
    /// Burst at its ceiling.
    pub cburst_bytes: u32,
    /// Share of a leaf in the rate that its siblings leave. The kernel warns below 1,000 and above
    /// 200,000. Inner classes have none.
    pub quantum_bytes: u32,
    /// 0 to 7; lower numbers borrow first.
    pub prio: u8,
    /// The rate for which the qdisc of a leaf is made. Another ceiling need not change the qdisc.
    pub leaf_bps: u64,
}

/// All of an interface's classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbTree {
    /// Major number of the qdisc and of all classes: [`htb_major`] of its place.
    pub major: u16,
    /// The leaf for packets without a class. It cannot change while the tree runs.
    pub default: u16,
    /// In any order.
    pub classes: Vec<HtbClass>,
    /// Kind of the leaves.
    pub leaves: Leaves,
    /// Packets that one leaf holds at most; a FIFO, which counts bytes, holds as many frames at most.
    pub limit_packets: u32,
    /// The largest frame of the interface without FCS.
    pub frame_bytes: u32,
}

/// An invalid tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHtb {
    /// Minor 0, or more than [`MAX_MINOR`], or the major of the root, which the qdisc of a leaf
    /// cannot have.
    #[error("class number {0:x}: reserved; use 1 to {MAX_MINOR:x}, but not the root's major")]
    Minor(u16),
    /// Two classes with the same number.
    #[error("class number {0:x}: used twice")]
    Twice(u16),
    /// A parent that does not exist.
    #[error("class {minor:x}: its parent {parent:x} does not exist")]
    Parent {
        /// The class.
        minor: u16,
        /// Its parent.
        parent: u16,
    },
    /// Classes that are ancestors of each other, or more than [`MAX_LEVELS`] levels.
    #[error(
        "class {0:x}: deeper than {MAX_LEVELS} levels, or its own ancestor; make the tree flatter"
    )]
    Depth(u16),
    /// A rate below 8 bit/s, or a ceiling below the rate.
    #[error(
        "class {minor:x}: rate {rate_bps} and ceiling {ceil_bps} bit/s; the rate is at least 8, the ceiling at least the rate"
    )]
    Rate {
        /// The class.
        minor: u16,
        /// Its rate.
        rate_bps: u64,
        /// Its ceiling.
        ceil_bps: u64,
    },
    /// The default is not a leaf of the tree.
    #[error("class {0:x} is the default class, but is not a leaf of the tree")]
    Default(u16),
}

/// HTB was not created, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum HtbError {
    /// The tree is invalid.
    #[error("shape \"{name}\" by HTB: {bad}")]
    Tree {
        /// The interface.
        name: String,
        /// The problem.
        bad: BadHtb,
    },
    /// The root qdisc was created by another program.
    #[error(
        "shape \"{name}\" by HTB: its root qdisc is {kind} {major:x}:, created by another program, and is not replaced; remove it (`tc qdisc del dev {name} root`), or request its replacement by name"
    )]
    Existing {
        /// The interface.
        name: String,
        /// The qdisc's kind.
        kind: String,
        /// Its handle's upper half.
        major: u16,
    },
    /// A running class has another parent.
    #[error(
        "shape \"{name}\" by HTB: class {minor:x} has the parent {running:x} and cannot move to {wanted:x}; use another class number"
    )]
    Moves {
        /// The interface.
        name: String,
        /// The class.
        minor: u16,
        /// Its parent.
        running: u16,
        /// Its parent in the desired tree.
        wanted: u16,
    },
    /// The running tree has another default.
    #[error(
        "shape \"{name}\" by HTB: the default class is {running:x} and cannot change to {wanted:x} in a running tree; remove the tree first"
    )]
    Default {
        /// The interface.
        name: String,
        /// In the running tree.
        running: u16,
        /// In the desired tree.
        wanted: u16,
    },
    /// The kernel refused a class or its qdisc.
    #[error("{what} class {major:x}:{minor:x} of \"{name}\"")]
    Class {
        /// The interface.
        name: String,
        /// The operation.
        what: &'static str,
        /// Of the tree.
        major: u16,
        /// Of the class.
        minor: u16,
        /// The error of the kernel.
        source: NetlinkError,
    },
    /// There is no `mq` with queues.
    #[error(
        "shape \"{name}\" by HTB at each queue: its root qdisc is no mq: split the interface first"
    )]
    Queues {
        /// The interface.
        name: String,
    },
    /// The root could not be created, found or removed.
    #[error("{what} of \"{name}\"{}", no_htb(.source))]
    Root {
        /// The interface.
        name: String,
        /// The operation.
        what: &'static str,
        /// The error of the kernel.
        source: NetlinkError,
    },
}

fn no_htb(error: &NetlinkError) -> &'static str {
    match error.errno() {
        Some(libc::ENOENT) => ": the kernel has no HTB (CONFIG_NET_SCH_HTB)",
        Some(libc::EPERM) => ": needs CAP_NET_ADMIN",
        _ => "",
    }
}

/// The interface that is shaped.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// Its index.
    pub ifindex: IfIndex,
    /// Its name, for messages.
    pub name: &'a str,
}

impl HtbTree {
    /// Checks the tree for HTB, and returns indices of classes with parents first. O(classes).
    pub(crate) fn check(&self) -> Result<Vec<usize>, BadHtb> {
        let mut places = std::collections::HashMap::with_capacity(self.classes.len());
        for (at, class) in self.classes.iter().enumerate() {
            if class.minor == 0 || class.minor > MAX_MINOR || class.minor == self.major {
                return Err(BadHtb::Minor(class.minor));
            }
            if class.rate_bps < 8 || class.ceil_bps < class.rate_bps {
                return Err(BadHtb::Rate {
                    minor: class.minor,
                    rate_bps: class.rate_bps,
                    ceil_bps: class.ceil_bps,
                });
            }
            if places.insert(class.minor, at).is_some() {
                return Err(BadHtb::Twice(class.minor));
            }
        }
        let mut levels = Vec::with_capacity(self.classes.len());
        for (at, class) in self.classes.iter().enumerate() {
            levels.push((self.level(class, &places)?, at));
        }
        let inner = self.classes.iter().any(|c| c.parent == self.default);
        if inner || !places.contains_key(&self.default) {
            return Err(BadHtb::Default(self.default));
        }
        levels.sort_unstable();
        Ok(levels.into_iter().map(|(_, at)| at).collect())
    }

    fn level(
        &self,
        class: &HtbClass,
        places: &std::collections::HashMap<u16, usize>,
    ) -> Result<usize, BadHtb> {
        let mut above = class;
        for level in 0..MAX_LEVELS {
            if above.parent == 0 {
                return Ok(level);
            }
            let parent = places.get(&above.parent).ok_or(BadHtb::Parent {
                minor: above.minor,
                parent: above.parent,
            })?;
            above = &self.classes[*parent];
        }
        Err(BadHtb::Depth(class.minor))
    }
}
