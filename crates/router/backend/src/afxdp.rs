//! AF_XDP: an XDP program takes packets, a thread of this process schedules and sends them.

pub mod ends;
pub mod impairment;
pub mod instances;
pub mod paths;
pub mod shaper;
pub mod skipped;
pub mod watch;
mod worker;

use fairpath_core::sched::Policy;
use fairpath_impair::{Plan, Ready};
use fairpath_netlink::Link;

use crate::choose::impairment::{Needs, Wish};
use crate::description::{Description, Impairs, Shapes};
use crate::impair::Engine;
use crate::start::How;

/// The back end.
pub static DESCRIPTION: Description = Description {
    name: "afxdp",
    help: "Packets bypass the stack: an XDP program receives them, this process sends them",
    marks: true,
    stack: true,
    shapes: Some(Shapes {
        start: |job, monitor, _| Ok(Box::new(shaper::Afxdp::start(job, monitor)?)),
        is_ready: shaper::is_ready,
        stop: Some("the kernel forwards without this process"),
        one_side: Some("it forwards packets between two interfaces"),
        customs: Policy::CUSTOMS,
        record: None,
        framing: None,
        tins: None,
        ack_filter: None,
        impair: None,
        change: None,
        vlans: true,
        forwards: true,
        pins: false,
        grows: false,
        separate: false,
        keeps_gso: false,
    }),
    impairs: Some(Impairs {
        start,
        refuses,
        all: false,
        modes: true,
    }),
};

fn refuses(wish: Wish, _: Needs) -> Option<&'static str> {
    let text = "packets are forwarded between two interfaces: name the other one (--peer)";
    (!wish.peer).then_some(text)
}

fn start(
    how: &How,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    let peer = peer.unwrap_or_else(|| interface.clone());
    let plans: Vec<&Plan> = directions.iter().map(|ready| &ready.plan).collect();
    Ok(Box::new(impairment::Afxdp::start(
        interface, peer, how, &plans,
    )?))
}
