//! What a back end is and can do, as its file says it; the code that is common asks only this.

use fairpath_bpf::RttMonitor;
use fairpath_impair::Ready;
use fairpath_netlink::Link;

use crate::Prepared;
use crate::choose::impairment::{Needs, Wish};
use crate::impair::Engine;
use crate::shape::{Backend, Job};
use crate::start::How;

/// A back end. Its file has one as `DESCRIPTION`; a line of `back_ends!` in `via.rs` registers it.
pub struct Description {
    /// As in the configuration and on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Packets can be marked (CE).
    pub marks: bool,
    /// The packets that the stack sends by the same interfaces can only be charged.
    pub stack: bool,
    /// How it shapes; `None`: it holds no packets.
    pub shapes: Option<Shapes>,
    /// How `fairpath impair` uses it; `None`: it cannot impair.
    pub impairs: Option<Impairs>,
}

/// Starts shaping: with the monitor, and the place where attachments outlive the process.
pub type StartShaping =
    fn(&Job<'_>, &mut RttMonitor, &Prepared) -> anyhow::Result<Box<dyn Backend>>;

/// Starts impairing: at an interface and its peer, the directions.
pub type StartImpairing = fn(&How, Link, Option<Link>, &[Ready]) -> anyhow::Result<Box<dyn Engine>>;

/// A request that a back end refuses: `via NAME cannot WHAT: WHY; REMEDY`.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The request.
    pub what: &'static str,
    /// The reason.
    pub why: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

/// A back end that shapes. An `Option` of a text is the reason why it cannot; `None`: it can.
pub struct Shapes {
    /// Starts it.
    pub start: StartShaping,
    /// Fails if it cannot start with this monitor; checked before another back end ends.
    pub is_ready: fn(&RttMonitor) -> anyhow::Result<()>,
    /// Stop traffic when this process is gone.
    pub stop: Option<&'static str>,
    /// Shape one side only.
    pub one_side: Option<&'static str>,
    /// Run a custom policy.
    pub own_policy: Option<&'static str>,
    /// Record operations.
    pub record: Option<&'static str>,
    /// Impair packets in any way.
    pub impair: Option<Refusal>,
    /// Duplicate or corrupt packets.
    pub change: Option<Refusal>,
    /// It tells the sides of a one-armed bridge apart by VLANs.
    pub vlans: bool,
    /// The monitor's XDP program forwards for it.
    pub forwards: bool,
    /// Its attachments outlive this process.
    pub pins: bool,
    /// It takes a tree that holds more packets without a restart.
    pub grows: bool,
    /// GSO packets stay whole also where a line is impaired.
    pub keeps_gso: bool,
}

/// A back end that `fairpath impair` can use.
pub struct Impairs {
    /// Starts it; directions are in the order of its counts.
    pub start: StartImpairing,
    /// The reason and remedy if it cannot do what is asked for.
    pub refuses: fn(Wish, Needs) -> Option<&'static str>,
    /// It impairs packets that are no IP (`--all`).
    pub all: bool,
    /// It is a bridge or a router (`--mode`).
    pub modes: bool,
}

/// For a back end that needs nothing of the monitor.
pub fn always_ready(_: &RttMonitor) -> anyhow::Result<()> {
    Ok(())
}
