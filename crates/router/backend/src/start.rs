//! From what is chosen to a port that runs.

use anyhow::bail;
use fairpath_impair::Ready;
use fairpath_netlink::Link;

use crate::impair::Engine;
use crate::{Mode, Via};

/// What back ends are told besides directions.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// XDP loses what is no IP, goes to groups, or discovers neighbours, too.
    pub all: bool,
    /// Of AF_XDP, if somebody decided.
    pub mode: Option<Mode>,
    /// The first packet queue of NFQUEUE.
    pub queue: u16,
}

/// Starts the port; directions are in the order of its counts.
///
/// # Errors
/// Where the kernel or an interface cannot do it.
pub fn start(
    via: Via,
    how: &How,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    match &via.description().impairs {
        Some(impairs) => (impairs.start)(how, interface, peer, directions),
        None => bail!("impair via {}: it cannot impair", via.name()),
    }
}
