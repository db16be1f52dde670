//! Loss by XDP alone: no packet comes to this process.
//!
//! A direction is the interface that its packets arrive by.

use fairpath_bpf::{Loss, LossOptions};
use fairpath_core::sched::LossConfig;
use fairpath_impair::{Counts, Ready};
use fairpath_netlink::Link;

use crate::choose::impairment::{Needs, Wish};
use crate::description::{Description, Impairs};
use crate::impair::Engine;
use crate::interfaces::{Dropped, Interfaces};
use crate::start::How;

/// The back end.
pub static DESCRIPTION: Description = Description {
    name: "xdp",
    help: "Loss only, at ingress, in the kernel",
    marks: false,
    stack: false,
    shapes: None,
    impairs: Some(Impairs {
        start,
        refuses,
        all: true,
        modes: false,
    }),
};

fn refuses(_: Wish, needs: Needs) -> Option<&'static str> {
    if !needs.only_loss {
        return Some(
            "XDP supports loss only: remove delay, rate and the other impairments, or use --via afxdp or nfqueue",
        );
    }
    let unseen = "it does not receive packets at egress: name their ingress interface as --peer, or impair --ingress only";
    needs.leaves.then_some(unseen)
}

fn start(
    how: &How,
    interface: Link,
    peer: Option<Link>,
    directions: &[Ready],
) -> anyhow::Result<Box<dyn Engine>> {
    let direction = |ready: &Ready| {
        let link = match (ready.direction.name, &peer) {
            ("from-peer", Some(peer)) => peer,
            _ => &interface,
        };
        (link.clone(), ready.loss)
    };
    let directions: Vec<_> = directions.iter().map(direction).collect();
    Ok(Box::new(Xdp::start(&directions, how.all)?))
}

/// The port: programs by direction.
pub struct Xdp {
    programs: Vec<Loss>,
    interfaces: Interfaces,
    about: String,
}

impl Xdp {
    /// Attaches to each interface; with `all`, frames that are no IP, to groups and of neighbour
    /// discovery are lost, too.
    ///
    /// # Errors
    /// Where the kernel refuses, or another program is there.
    pub fn start(directions: &[(Link, LossConfig)], all: bool) -> anyhow::Result<Xdp> {
        let load = |(link, loss): &(Link, LossConfig)| {
            Loss::load(&LossOptions {
                loss: *loss,
                all,
                mtu_bytes: link.mtu_bytes,
            })
        };
        let mut programs = directions.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        for (program, (link, _)) in programs.iter_mut().zip(directions) {
            program.attach(link.ifindex, &link.name)?;
        }
        let names: Vec<&str> = directions
            .iter()
            .map(|(link, _)| link.name.as_str())
            .collect();
        // Attaching can restart a driver. Its drops then are not packets of the run.
        let interfaces = Interfaces::watch(directions.iter().map(|(link, _)| link))?;
        Ok(Xdp {
            programs,
            interfaces,
            about: format!("at ingress of {}", names.join(", ")),
        })
    }
}

impl Engine for Xdp {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn read(&mut self) -> anyhow::Result<Vec<Counts>> {
        let dropped = self.interfaces.since();
        let read = |(program, dropped): (&Loss, Result<Dropped, String>)| {
            let of = program.counts()?;
            let mut counts = Counts {
                arrived: of.arrived,
                passed: of.exempt,
                lost: of.lost,
                // Processors count on while theirs are read.
                sent: of.arrived.saturating_sub(of.lost),
                gso_packets: of.gso_packets,
                ..Counts::default()
            };
            match dropped {
                // Frames without a receiver are among those that the program passed.
                Ok(dropped) => counts.queue_dropped = dropped.before.saturating_sub(of.exempt),
                Err(error) => counts.unread.push(error),
            }
            anyhow::Ok(counts)
        };
        self.programs.iter().zip(dropped).map(read).collect()
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<Vec<Counts>> {
        self.programs.iter_mut().for_each(Loss::detach);
        self.read()
    }
}
