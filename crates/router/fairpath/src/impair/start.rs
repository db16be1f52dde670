//! From what is chosen to a port that runs.

use fairpath_netlink::Link;

use super::afxdp::Afxdp;
use super::args::{Args, Via};
use super::choose::Chosen;
use super::directions::Ready;
use super::engine::{Engine, Plan};
use super::nfqueue::{Nfqueue, Way};
use super::xdp::Xdp;
use crate::shape::diversion::Diverted;

/// Starts the port; directions are in the order of its counts.
///
/// # Errors
/// Where the kernel or an interface cannot do it.
pub fn start(
    args: &Args,
    chosen: &Chosen,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    match chosen.via {
        Via::Xdp => {
            let way = |ready: &Ready| {
                let link = match (ready.direction.name, &peer) {
                    ("from-peer", Some(peer)) => peer,
                    _ => &interface,
                };
                (link.clone(), ready.loss)
            };
            let ways: Vec<_> = directions.iter().map(way).collect();
            Ok(Box::new(Xdp::start(&ways, args.all)?))
        }
        Via::Afxdp => {
            let peer = peer.unwrap_or_else(|| interface.clone());
            let plans: Vec<&Plan> = directions.iter().map(|ready| &ready.plan).collect();
            Ok(Box::new(Afxdp::start(interface, peer, args.mode, &plans)?))
        }
        Via::Nfqueue | Via::Auto => {
            let ways: Vec<_> = directions
                .iter()
                .map(|ready| {
                    (
                        way(ready.direction.name, &interface, peer.as_ref()),
                        &ready.plan,
                    )
                })
                .collect();
            Ok(Box::new(Nfqueue::start(args.queue, &ways)?))
        }
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
