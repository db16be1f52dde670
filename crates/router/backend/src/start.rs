//! The start of an impairment.

use anyhow::bail;
use fairpath_impair::Ready;
use fairpath_netlink::Link;

use crate::impair::Engine;
use crate::{Mode, Via};

/// Options other than directions.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// XDP drops also packets that are not IP, multicast, and neighbour discovery.
    pub all: bool,
    /// Forwarding by AF_XDP, if configured.
    pub mode: Option<Mode>,
    /// First queue number of NFQUEUE.
    pub queue: u16,
    /// Threads stay awake for a millisecond before a packet is due.
    pub precise: bool,
}

/// Starts the back end. Its counts have the order of the directions.
///
/// # Errors
/// The kernel or an interface does not support it.
pub fn start(
    via: Via,
    how: &How,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    match &via.description().impairs {
        Some(impairs) => (impairs.start)(how, interface, peer, directions),
        None => bail!("impair via {}: this back end cannot impair", via.name()),
    }
}
