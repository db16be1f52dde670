//! The router that packets go through, and the two links on which they come and go.
//!
//! ```text
//!   outside                         router
//!   clients  ────────────────────── lan      inject -> lan -> tcx ingress -> ip_forward
//!   10.64.0.0/10 behind 10.10.1.2              -> tcx egress -> wan -> sink
//!   servers  ────────────────────── wan      and back, for the ACKs
//!   10.128.0.0/10 behind 10.10.2.2
//! ```
//!
//! Both ends are in one namespace, so that one generator can send from either in turn. Offloads are
//! off. The router's interfaces carry an empty XDP program: without one (or GRO) a veth takes no
//! injected frames; it is there in every row.

use std::net::Ipv4Addr;

use anyhow::Context;
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Attached, Hook, Side, Sink, Traffic};
use fairpath_testbed::{LinkEnd, Netns, Testbed, Veth};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

/// The router's interfaces.
pub const LAN: &str = "lan";
/// See [`LAN`].
pub const WAN: &str = "wan";

/// Two namespaces with two links between them.
pub struct Scene {
    /// Holds the generator's and the sinks' ends.
    pub outside: Netns,
    /// Forwards.
    pub router: Netns,
    clients: Side,
    servers: Side,
}

struct Link {
    outer: &'static str,
    inner: &'static str,
    net: u8,
    behind: &'static str,
}

impl Link {
    fn near(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, self.net, 1)
    }

    fn far(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, self.net, 2)
    }
}

const LINKS: [Link; 2] = [
    Link {
        outer: "clients",
        inner: LAN,
        net: 1,
        behind: "10.64.0.0/10",
    },
    Link {
        outer: "servers",
        inner: WAN,
        net: 2,
        behind: "10.128.0.0/10",
    },
];

impl Scene {
    /// Builds it.
    ///
    /// # Errors
    /// Where the testbed cannot: it needs root, `ip` and `ethtool`.
    pub fn build() -> anyhow::Result<Scene> {
        let testbed = Testbed::new();
        let outside = testbed.netns("outside")?;
        let router = testbed.netns("router")?;
        router.set_forwarding(true)?;
        let [clients, servers] = LINKS.map(|link| join(&outside, &router, &link));
        Ok(Scene {
            clients: clients?,
            servers: servers?,
            outside,
            router,
        })
    }

    /// Traffic from here.
    pub fn traffic(&self, flows: u32, ip_bytes: u32) -> Traffic {
        Traffic {
            clients: self.clients,
            servers: self.servers,
            flows,
            ip_bytes,
            lag: (OUTSTANDING * flows).max(MIN_LAG),
            sink: Sink::Xdp,
            fan: None,
        }
    }

    /// Gives each end of each link this number of queues.
    ///
    /// # Errors
    /// The kernel has fewer CPUs.
    pub fn set_queues(&self, queues: u32) -> anyhow::Result<()> {
        let count = queues.to_string();
        for link in LINKS {
            for (ns, name) in [(&self.outside, link.outer), (&self.router, link.inner)] {
                ns.run(&["ethtool", "-L", name, "rx", &count, "tx", &count])?;
            }
        }
        Ok(())
    }

    /// Routes of the router to other destinations behind the servers.
    ///
    /// # Errors
    /// The router has one of them.
    pub fn route_to_servers(&self, networks: &[&str]) -> anyhow::Result<()> {
        let [_, servers] = LINKS;
        for network in networks {
            self.router.add_route(network, servers.far().into())?;
        }
        Ok(())
    }
}

/// Segments of a flow that wait for their ACK.
const OUTSTANDING: u32 = 4;
/// The generator's batch has 32 data packets: their ACKs come in a later one.
const MIN_LAG: u32 = 32;

fn join(outside: &Netns, router: &Netns, link: &Link) -> anyhow::Result<Side> {
    let (near, far) = (link.near(), link.far());
    let outer = LinkEnd::new(outside, link.outer).with_address(far, 24);
    let inner = LinkEnd::new(router, link.inner).with_address(near, 24);
    let veth = Veth::between(outer, inner).build()?;
    veth.fix_neighbours()?;
    router.add_route(link.behind, far.into())?;
    Ok(Side {
        ifindex: ifindex(outside, link.outer)?,
        mac: veth.left().mac().0,
        router: veth.right().mac().0,
    })
}

fn ifindex(ns: &Netns, name: &str) -> anyhow::Result<IfIndex> {
    let index = ns.enter(|| if_nametoindex(name))?;
    Ok(IfIndex(index.with_context(|| format!("look up {name}"))?))
}

/// Attaches empty programs to `hooks` of both of the router's interfaces; called in its namespace.
pub fn attach_empty(empty: &mut Empty, hooks: &[Hook]) -> anyhow::Result<Vec<Attached>> {
    let mut attached = Vec::new();
    for name in [LAN, WAN] {
        let index = IfIndex(if_nametoindex(name).with_context(|| format!("look up {name}"))?);
        for &hook in hooks {
            attached.push(empty.attach(hook, index, name)?);
        }
    }
    Ok(attached)
}
