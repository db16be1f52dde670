//! The topology most tests need: client – router – server.
//!
//! ```text
//! client                router                 server
//!  eth0 ───[wire]─── lan       wan ───[wire]─── eth0
//!  10.10.1.2         .1        .1          10.10.2.2
//!  fd00:10:1::2      ::1       ::1      fd00:10:2::2
//! ```
//!
//! Neighbours are permanent and DAD is off, so captures hold the test's own packets. Emulated links
//! exist on request, each in a separate namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::{LinkEnd, LinkError, Offloads, Veth, fix_neighbours};
use crate::netns::{Netns, NetnsError};
use crate::process::RunError;
use crate::run::Testbed;
use crate::sysctl::SysctlError;
use crate::wire::{Impairment, Wire, WireError};

/// The topology could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A namespace.
    #[error("build the router's namespaces")]
    Netns(#[from] NetnsError),
    /// A link.
    #[error("build the router's links")]
    Link(#[from] LinkError),
    /// A tool.
    #[error("configure the router")]
    Tool(#[from] RunError),
    /// A sysctl.
    #[error("configure the router")]
    Sysctl(#[from] SysctlError),
    /// A wire.
    #[error("build the router's wires")]
    Wire(#[from] WireError),
}

/// Addresses of one end of a link, both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// IPv4 address, in a /24.
    pub v4: Ipv4Addr,
    /// IPv6 address, in a /64.
    pub v6: Ipv6Addr,
}

impl Host {
    const fn new(net: u16, host: u16) -> Host {
        Host {
            v4: Ipv4Addr::new(10, 10, net as u8, host as u8),
            v6: Ipv6Addr::new(0xfd00, 0x10, net, 0, 0, 0, 0, host),
        }
    }

    /// Both addresses, IPv4 first.
    pub fn both(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    fn end(&self, ns: &Netns, ifname: &str) -> LinkEnd {
        LinkEnd::new(ns, ifname)
            .with_address(self.v4, 24)
            .with_address(self.v6, 64)
    }
}

/// A client and a server with a router between them.
#[derive(Debug)]
pub struct Router {
    /// Namespace of the client; its interface is `eth0`.
    pub client: Netns,
    /// Namespace of the router; its interfaces are `lan` and `wan`.
    pub router: Netns,
    /// Namespace of the server; its interface is `eth0`.
    pub server: Netns,
    /// `eth0` of the client.
    pub client_end: LinkEnd,
    /// `lan` of the router.
    pub lan_end: LinkEnd,
    /// `wan` of the router.
    pub wan_end: LinkEnd,
    /// `eth0` of the server.
    pub server_end: LinkEnd,
    /// The emulated link between client and router, if requested; left is the client.
    pub lan_wire: Option<Wire>,
    /// The emulated link between router and server, if requested; left is the router.
    pub wan_wire: Option<Wire>,
}

impl Router {
    /// Addresses of the client.
    pub const CLIENT: Host = Host::new(1, 2);
    /// Addresses of the router's `lan`.
    pub const LAN: Host = Host::new(1, 1);
    /// Addresses of the router's `wan`.
    pub const WAN: Host = Host::new(2, 1);
    /// Addresses of the server.
    pub const SERVER: Host = Host::new(2, 2);

    /// The plain topology: no wires, MTU 1500, offloads off.
    pub fn new(testbed: &Testbed) -> Result<Router, RouterError> {
        Router::builder().build(testbed)
    }

    /// A topology to be adjusted.
    pub fn builder() -> RouterBuilder {
        RouterBuilder {
            mtu: 1500,
            offloads: Offloads::Off,
            queues: None,
            lan_wire: None,
            wan_wire: None,
        }
    }
}

/// The properties of a [`Router`].
#[derive(Clone, Debug)]
pub struct RouterBuilder {
    mtu: u32,
    offloads: Offloads,
    queues: Option<u32>,
    lan_wire: Option<[Impairment; 2]>,
    wan_wire: Option<[Impairment; 2]>,
}

impl RouterBuilder {
    /// MTU of all links.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> RouterBuilder {
        self.mtu = mtu;
        self
    }

    /// Offloads of all links without a wire; a wire needs them off.
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> RouterBuilder {
        self.offloads = offloads;
        self
    }

    /// Maximum number of queues of all links without a wire, see [`crate::link::VethBuilder::queues`].
    #[must_use]
    pub fn queues(mut self, most: u32) -> RouterBuilder {
        self.queues = Some(most);
        self
    }

    /// Puts a wire between client and router.
    #[must_use]
    pub fn lan_wire(mut self, to_router: Impairment, to_client: Impairment) -> RouterBuilder {
        self.lan_wire = Some([to_router, to_client]);
        self
    }

    /// Puts a wire between router and server.
    #[must_use]
    pub fn wan_wire(mut self, to_server: Impairment, to_router: Impairment) -> RouterBuilder {
        self.wan_wire = Some([to_server, to_router]);
        self
    }

    /// Builds it; returns when packets can flow. About 0.1 s.
    pub fn build(self, testbed: &Testbed) -> Result<Router, RouterError> {
        let client = testbed.netns("client")?;
        let router = testbed.netns("router")?;
        let server = testbed.netns("server")?;
        router.set_forwarding(true)?;

        let client_end = Router::CLIENT
            .end(&client, "eth0")
            .with_mac([2, 0, 0, 0, 1, 2]);
        let lan_end = Router::LAN.end(&router, "lan").with_mac([2, 0, 0, 0, 1, 1]);
        let wan_end = Router::WAN.end(&router, "wan").with_mac([2, 0, 0, 0, 2, 1]);
        let server_end = Router::SERVER
            .end(&server, "eth0")
            .with_mac([2, 0, 0, 0, 2, 2]);
        let lan_wire = self.join(testbed, &client_end, &lan_end, self.lan_wire.clone())?;
        let wan_wire = self.join(testbed, &wan_end, &server_end, self.wan_wire.clone())?;

        for gateway in Router::LAN.both() {
            client.add_route("default", gateway)?;
        }
        for gateway in Router::WAN.both() {
            server.add_route("default", gateway)?;
        }
        Ok(Router {
            client,
            router,
            server,
            client_end,
            lan_end,
            wan_end,
            server_end,
            lan_wire,
            wan_wire,
        })
    }

    /// Connects two ends, directly or by a wire.
    fn join(
        &self,
        testbed: &Testbed,
        left: &LinkEnd,
        right: &LinkEnd,
        impairments: Option<[Impairment; 2]>,
    ) -> Result<Option<Wire>, RouterError> {
        let wire = match impairments {
            None => {
                let veth = Veth::between(left.clone(), right.clone());
                let mut veth = veth.mtu(self.mtu).offloads(self.offloads);
                if let Some(most) = self.queues {
                    veth = veth.queues(most);
                }
                veth.build()?;
                None
            }
            Some([there, back]) => {
                let middle = testbed.netns("wire")?;
                let near = Veth::between(left.clone(), LinkEnd::new(&middle, "left"));
                let far = Veth::between(LinkEnd::new(&middle, "right"), right.clone());
                let (near, far) = (near.mtu(self.mtu).build()?, far.mtu(self.mtu).build()?);
                Some(Wire::between(&near, &far, there, back)?)
            }
        };
        fix_neighbours(left, right)?;
        fix_neighbours(right, left)?;
        Ok(wire)
    }
}
