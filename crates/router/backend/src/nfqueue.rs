//! NFQUEUE: netfilter hands packets to threads of this process, and takes them back.

mod beyond;
pub mod diversion;
pub mod impairment;
mod instance;
mod others;
mod packet;
mod passed;
mod path;
pub mod shaper;
mod waiting;
pub mod watch;
mod worker;

use fairpath_core::sched::Policy;

use crate::choose::impairment::{Needs, Wish};
use crate::description::{Description, Impairs, Refusal, Shapes, always_ready};

/// The back end. It marks packets when it shapes, not when it impairs.
pub static DESCRIPTION: Description = Description {
    name: "nfqueue",
    help: "Packets of netfilter queues, scheduled in this process",
    marks: true,
    stack: false,
    shapes: Some(Shapes {
        start: |job, _, _| Ok(Box::new(shaper::Nfqueue::start(job)?)),
        is_ready: always_ready,
        stop: None,
        one_side: None,
        customs: Policy::CUSTOMS,
        record: None,
        framing: None,
        tins: None,
        ack_filter: None,
        impair: None,
        change: Some(Refusal {
            what: "duplicate or corrupt packets",
            why: "it returns packets unchanged",
            remedy: "use \"afxdp\"",
        }),
        vlans: false,
        forwards: false,
        pins: false,
        grows: false,
        separate: true,
        keeps_gso: false,
    }),
    impairs: Some(Impairs {
        start: impairment::start_directions,
        refuses,
        all: false,
        modes: false,
    }),
};

fn refuses(_: Wish, needs: Needs) -> Option<&'static str> {
    let text = "packets cannot be duplicated at ingress: name --peer, or duplicate at --egress";
    needs.copies_in.then_some(text)
}
