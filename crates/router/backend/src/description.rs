//! The description of a back end. Common code uses only this.

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
    /// Name in the configuration and on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Packets can be marked (CE).
    pub marks: bool,
    /// Packets that the stack sends by the same interfaces can only be counted.
    pub stack: bool,
    /// The shaping by this back end; `None` if it does not queue packets.
    pub shapes: Option<Shapes>,
    /// The use by `fairpath impair`; `None` if it cannot impair.
    pub impairs: Option<Impairs>,
}

/// Starts shaping, with the monitor and the directory of pins.
pub type StartShaping =
    fn(&Job<'_>, &mut RttMonitor, &Prepared) -> anyhow::Result<Box<dyn Backend>>;

/// Starts to impair, at an interface and its peer.
pub type StartImpairing = fn(&How, Link, Option<Link>, &[Ready]) -> anyhow::Result<Box<dyn Engine>>;

/// A request that a back end refuses: `via NAME cannot WHAT: WHY: REMEDY`.
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
    /// Stop traffic when this process ends.
    pub stop: Option<&'static str>,
    /// Shape one side only.
    pub one_side: Option<&'static str>,
    /// Maximum of custom policies.
    pub customs: usize,
    /// Record operations.
    pub record: Option<&'static str>,
    /// Count the overhead and the cells of the link.
    pub framing: Option<Refusal>,
    /// Split classes by DSCP.
    pub tins: Option<Refusal>,
    /// Filter ACKs.
    pub ack_filter: Option<Refusal>,
    /// Impair packets in any way.
    pub impair: Option<Refusal>,
    /// Duplicate or corrupt packets.
    pub change: Option<Refusal>,
    /// It distinguishes the sides of a one-armed bridge by VLAN.
    pub vlans: bool,
    /// It uses the XDP program of the monitor to forward.
    pub forwards: bool,
    /// Its attachments outlive this process.
    pub pins: bool,
    /// It accepts a tree of more packets without a restart.
    pub grows: bool,
    /// GSO packets stay whole also on an impaired link.
    pub keeps_gso: bool,
    /// One side continues while the interface of the other is absent.
    pub separate: bool,
}

/// A back end that `fairpath impair` can use.
pub struct Impairs {
    /// Starts it; directions are in the order of its counts.
    pub start: StartImpairing,
    /// The reason and remedy if it does not support the request.
    pub refuses: fn(Wish, Needs) -> Option<&'static str>,
    /// It impairs packets that are not IP (`--all`).
    pub all: bool,
    /// It is a bridge or a router (`--mode`).
    pub modes: bool,
}

/// For a back end that does not use the monitor.
pub fn always_ready(_: &RttMonitor) -> anyhow::Result<()> {
    Ok(())
}
