//! HTB, the kernel's own hierarchy of rates, as an intent: what shall run is said whole, and what differs is sent.
//!
//! ```text
//! HtbTree --check--> diff with the dump --> adds, changes (batches) --> Applied { stale } --later--> retire
//! ```
//!
//! Invariant: a class that is in the old tree and in the new one is never removed on the way, and neither is the
//! qdisc below it; what is no longer wanted goes by [`Htb::retire`], when it is empty. So a change under traffic loses
//! no packet, if packets are sent elsewhere before their class is retired (`fairpath_bpf::Mark` does so).
//!
//! A packet finds its class by `skb->priority` = major and minor of a leaf; nothing else is needed, and no filter is
//! made here. What names no class goes to the tree's default; what finds no class at all, as in the moment between the
//! root and its classes, passes unshaped and is counted ([`HtbStats::direct_packets`]).
//!
//! Sources: tc-htb(8), Linux `net/sched/sch_htb.c`. Absent: offload into the NIC, filters, `overhead` and link layers
//! other than Ethernet; weights between inner classes, which HTB does not have.

mod apply;
mod diff;
mod dump;
mod leaf;
#[cfg(test)]
mod tests;
mod wire;

use fairpath_units::IfIndex;

use crate::connection::NetlinkError;

pub use apply::{Applied, Htb};
pub use dump::{HtbClassStats, HtbRunning, HtbStats};
pub use leaf::{CAKE_LEAVES, LeafChoice, LeafKind, Leaves};

/// The major number of our own trees, by which they are known again: `fa1:`.
pub const HTB_MAJOR: u16 = 0x0fa1;
/// Greatest minor number: `ffff:` belongs to clsact, and a leaf's qdisc has its class's number.
pub const MAX_MINOR: u16 = 0xfffe;
/// From the root's child to a leaf (`TC_HTB_MAXDEPTH`).
pub const MAX_LEVELS: usize = 8;

/// A class. Rates are bits a second of Ethernet frames without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Its number, 1 to [`MAX_MINOR`].
    pub minor: u16,
    /// Its parent's, 0 for the root qdisc.
    pub parent: u16,
    /// What it is given whatever others want; not 0.
    pub rate_bps: u64,
    /// What it may have at most, at least the rate.
    pub ceil_bps: u64,
    /// How much it may send at once at its rate: what comes while its turn is late, or rate is lost.
    pub burst_bytes: u32,
    /// The same at its ceiling.
    pub cburst_bytes: u32,
    /// A leaf's share of what its siblings leave over; the kernel warns of less than 1,000 and more than 200,000.
    /// Inner classes have none.
    pub quantum_bytes: u32,
    /// 0 to 7; a lower number takes what is left over first.
    pub prio: u8,
}

/// All of an interface's classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbTree {
    /// Of the root qdisc and so of all classes; [`HTB_MAJOR`].
    pub major: u16,
    /// The leaf of what names no class. It cannot be changed while the tree runs.
    pub default: u16,
    /// In any order.
    pub classes: Vec<HtbClass>,
    /// What the leaves are.
    pub leaves: Leaves,
}

/// A tree that HTB could not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHtb {
    /// Minor 0, or more than [`MAX_MINOR`], or the root's own major, which a leaf's qdisc cannot have.
    #[error("class number {0:x}: reserved; use 1 to {MAX_MINOR:x}, but not the root's major")]
    Minor(u16),
    /// Two classes of one number.
    #[error("class number {0:x}: used twice")]
    Twice(u16),
    /// A parent that is not there.
    #[error("class {minor:x}: its parent {parent:x} does not exist")]
    Parent {
        /// The class.
        minor: u16,
        /// What it hangs on.
        parent: u16,
    },
    /// Classes that are each other's parents, or more than [`MAX_LEVELS`] levels.
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
    /// The default is no leaf of the tree.
    #[error("class {0:x} is the default class, but is not a leaf of the tree")]
    Default(u16),
}

/// HTB was not made, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum HtbError {
    /// The tree is not one.
    #[error("shape \"{name}\" by HTB: {bad}")]
    Tree {
        /// The interface.
        name: String,
        /// What is wrong.
        bad: BadHtb,
    },
    /// Somebody's own root qdisc is there.
    #[error(
        "shape \"{name}\" by HTB: its root qdisc is {kind} {major:x}:, created by another program, and is not replaced; remove it (`tc qdisc del dev {name} root`), or request its replacement by name"
    )]
    Foreign {
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
        /// Its parent in the tree that is wanted.
        wanted: u16,
    },
    /// The running tree has another default.
    #[error(
        "shape \"{name}\" by HTB: the default class is {running:x} and cannot change to {wanted:x} in a running tree; remove the tree first"
    )]
    Default {
        /// The interface.
        name: String,
        /// The running tree's.
        running: u16,
        /// The wanted tree's.
        wanted: u16,
    },
    /// The kernel refused a class or what hangs on it.
    #[error("{what} class {major:x}:{minor:x} of \"{name}\"")]
    Class {
        /// The interface.
        name: String,
        /// What was done to it.
        what: &'static str,
        /// Of the tree.
        major: u16,
        /// Of the class.
        minor: u16,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// The root could not be made, found or removed.
    #[error("{what} of \"{name}\"{}", no_htb(.source))]
    Root {
        /// The interface.
        name: String,
        /// What was done.
        what: &'static str,
        /// What the kernel said.
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
    /// Looks whether HTB can have it; the classes' places in an order in which parents come first. O(classes).
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
