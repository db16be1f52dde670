//! A bridge whose two interfaces are carried by AF_XDP: port, redirectors and their assembly.

use anyhow::{Context, Result};
use fairpath_afxdp::{LinkQueue, Plan, Port, QueueId};
use fairpath_bpf::{Outcomes, Redirect, RedirectOptions};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

/// An open port and the programs that lead to it; they go with it.
pub struct Carrier {
    /// The port, to be given to a forwarder.
    pub port: Port,
    /// The programs, by interface.
    pub redirects: Redirects,
}

/// One for each interface.
pub struct Redirects(Vec<Redirect>);

impl Redirects {
    /// The outcomes of frames, by interface.
    pub fn outcomes(&self) -> Vec<Outcomes> {
        self.0.iter().map(Redirect::outcomes).collect()
    }
}

/// The options of opening.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The interfaces' names.
    pub links: [String; 2],
    /// Receive queues of each.
    pub queues: u32,
    /// Entries of each ring.
    pub ring: u32,
    /// MTU of the largest packet.
    pub mtu: u32,
    /// The options of the programs.
    pub redirect: RedirectOptions,
}

impl Opening {
    /// One queue each, rings of 2,048.
    pub fn between(a: &str, b: &str) -> Opening {
        Opening {
            links: [a, b].map(str::to_owned),
            queues: 1,
            ring: 2048,
            mtu: 1500,
            redirect: RedirectOptions::default(),
        }
    }

    /// Opens sockets and attaches programs, in the thread's network namespace.
    ///
    /// # Errors
    /// Those of port and programs.
    pub fn open(&self) -> Result<Carrier> {
        let port = Port::open(&self.plan()?)?;
        let mut redirects = Vec::new();
        for name in &self.links {
            let mut redirect = Redirect::load(&self.redirect)?;
            for (link, socket) in port.sockets().filter(|(link, _)| &link.name == name) {
                redirect.set_socket(link.queue, socket)?;
            }
            redirect.attach(ifindex(name)?, name)?;
            redirects.push(redirect);
        }
        Ok(Carrier {
            port,
            redirects: Redirects(redirects),
        })
    }

    fn plan(&self) -> Result<Plan> {
        let mut queues = Vec::new();
        for name in &self.links {
            let ifindex = ifindex(name)?;
            queues.extend((0..self.queues).map(|queue| LinkQueue {
                ifindex,
                name: name.clone(),
                queue,
            }));
        }
        let held = 2 * self.ring * queues.len() as u32;
        Ok(Plan::new(queues).sized(self.ring, held).for_mtu(self.mtu))
    }

    /// Each queue of one interface with that of the other.
    pub fn pairs(&self) -> Vec<(QueueId, QueueId)> {
        let n = self.queues as usize;
        (0..n).map(|i| (QueueId(i), QueueId(n + i))).collect()
    }
}

fn ifindex(name: &str) -> Result<IfIndex> {
    Ok(IfIndex(
        if_nametoindex(name).with_context(|| format!("look up {name}"))?,
    ))
}
