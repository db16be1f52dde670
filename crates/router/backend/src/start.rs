//! From what is chosen to a port that runs.

use anyhow::bail;
use fairpath_impair::{Plan, Ready};
use fairpath_netlink::Link;

use crate::afxdp::impairment::Afxdp;
use crate::impair::Engine;
use crate::nfqueue::diversion::Diverted;
use crate::nfqueue::impairment::{Nfqueue, Way};
use crate::xdp::Xdp;
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
    match via {
        Via::Xdp => {
            let way = |ready: &Ready| {
                let link = match (ready.direction.name, &peer) {
                    ("from-peer", Some(peer)) => peer,
                    _ => &interface,
                };
                (link.clone(), ready.loss)
            };
            let ways: Vec<_> = directions.iter().map(way).collect();
            Ok(Box::new(Xdp::start(&ways, how.all)?))
        }
        Via::Afxdp => {
            let peer = peer.unwrap_or_else(|| interface.clone());
            let plans: Vec<&Plan> = directions.iter().map(|ready| &ready.plan).collect();
            Ok(Box::new(Afxdp::start(interface, peer, how.mode, &plans)?))
        }
        Via::Nfqueue => {
            let ways: Vec<_> = directions
                .iter()
                .map(|ready| {
                    (
                        way(ready.direction.name, &interface, peer.as_ref()),
                        &ready.plan,
                    )
                })
                .collect();
            Ok(Box::new(Nfqueue::start(how.queue, &ways)?))
        }
        Via::Qdisc | Via::Kernel => bail!("impair via {}: it cannot impair", via.name()),
    }
}

/// Where netfilter meets a direction's packets.
fn way(name: &str, interface: &Link, peer: Option<&Link>) -> Way {
    let (own, other) = (&interface.name, peer.map_or("", |peer| &peer.name));
    let (what, out) = match name {
        "to-peer" => (Diverted::Through(own.clone(), other.to_owned()), peer),
        "from-peer" => (Diverted::Through(other.to_owned(), own.clone()), None),
        "in" => (Diverted::Arriving(own.clone()), None),
        _ => (Diverted::Leaving(own.clone()), None),
    };
    Way {
        what,
        mtu_bytes: out.unwrap_or(interface).mtu_bytes,
    }
}
