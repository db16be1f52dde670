//! Listing, creating, changing and deleting links.

use fairpath_units::IfIndex;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::{Connection, NetlinkError, acked, dumped};
use crate::link::{IFINFO_LEN, Link};
use crate::message::{Received, Request};

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const VETH_INFO_PEER: u16 = 1;

/// The links of one network namespace.
#[derive(Debug)]
pub struct Links {
    connection: Connection,
}

/// A new link.
#[derive(Clone, Copy, Debug)]
pub enum NewLink<'a> {
    /// Two ends; each receives what the other sends.
    Veth {
        /// One end.
        name: &'a str,
        /// The other end.
        peer: &'a str,
    },
    /// A VLAN on top of `lower`.
    Vlan {
        /// Its name.
        name: &'a str,
        /// The link beneath.
        lower: IfIndex,
        /// The VLAN identifier, 1 to 4094.
        id: u16,
    },
    /// A kind that needs only a name: `dummy`, `bridge`, `ifb`, `wireguard`.
    Plain {
        /// Its name.
        name: &'a str,
        /// The kernel's name of the kind.
        kind: &'a str,
    },
}

impl Links {
    /// Opens a socket in the calling thread's namespace; needs no privilege.
    pub fn open() -> Result<Links, NetlinkError> {
        Ok(Links {
            connection: Connection::open(NETLINK_ROUTE)?,
        })
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// All links of the calling thread's namespace, by index.
    ///
    /// The same as [`Links::open`] followed by [`Links::list`].
    pub fn dump() -> Result<Vec<Link>, NetlinkError> {
        Links::open()?.list()
    }

    /// All links, by index. A dump that a change interrupts is repeated.
    pub fn list(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request = Request::new(RTM_GETLINK, dumped(), &[0; IFINFO_LEN]);
        let mut links = self.connection.dump("list links", &request, |message| {
            (message.kind == RTM_NEWLINK)
                .then(|| Link::parse(message.payload))
                .flatten()
        })?;
        links.sort_by_key(|link| link.ifindex);
        Ok(links)
    }

    /// The link named `name`, if one exists.
    pub fn by_name(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let request =
            Request::new(RTM_GETLINK, acked(0), &[0; IFINFO_LEN]).attr_str(IFLA_IFNAME, name);
        let mut found = None;
        let answer = self
            .connection
            .query("look up link", request, |message: &Received<'_>| {
                found = Link::parse(message.payload)
            });
        match answer {
            Ok(()) => Ok(found),
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a link. `EOPNOTSUPP` means that the kernel has no such kind.
    pub fn create(&mut self, link: NewLink<'_>) -> Result<(), NetlinkError> {
        let flags = acked(NLM_F_CREATE | NLM_F_EXCL);
        let request = Request::new(RTM_NEWLINK, flags, &[0; IFINFO_LEN]);
        let request = match link {
            NewLink::Veth { name, peer } => {
                request
                    .attr_str(IFLA_IFNAME, name)
                    .nest(IFLA_LINKINFO, |r| {
                        r.attr_str(IFLA_INFO_KIND, "veth")
                            .nest(IFLA_INFO_DATA, |r| {
                                r.nest(VETH_INFO_PEER, |r| {
                                    r.raw(&[0; IFINFO_LEN]).attr_str(IFLA_IFNAME, peer)
                                })
                            })
                    })
            }
            NewLink::Vlan { name, lower, id } => request
                .attr_str(IFLA_IFNAME, name)
                .attr_u32(IFLA_LINK, lower.0)
                .nest(IFLA_LINKINFO, |r| {
                    r.attr_str(IFLA_INFO_KIND, "vlan")
                        .nest(IFLA_INFO_DATA, |r| r.attr(IFLA_VLAN_ID, &id.to_ne_bytes()))
                }),
            NewLink::Plain { name, kind } => request
                .attr_str(IFLA_IFNAME, name)
                .nest(IFLA_LINKINFO, |r| r.attr_str(IFLA_INFO_KIND, kind)),
        };
        self.connection.command("create link", request)
    }

    /// Sets a link up or down.
    pub fn set_up(&mut self, ifindex: IfIndex, up: bool) -> Result<(), NetlinkError> {
        let up_bit = libc::IFF_UP as u32;
        let header = ifinfo(ifindex, if up { up_bit } else { 0 }, up_bit);
        let request = Request::new(RTM_NEWLINK, acked(0), &header);
        self.connection.command("set link state", request)
    }

    /// Gives a link another name.
    pub fn rename(&mut self, ifindex: IfIndex, name: &str) -> Result<(), NetlinkError> {
        let request =
            Request::new(RTM_NEWLINK, acked(0), &ifinfo(ifindex, 0, 0)).attr_str(IFLA_IFNAME, name);
        self.connection.command("rename link", request)
    }

    /// Sets a link's MTU.
    pub fn set_mtu(&mut self, ifindex: IfIndex, mtu_bytes: u32) -> Result<(), NetlinkError> {
        let request = Request::new(RTM_NEWLINK, acked(0), &ifinfo(ifindex, 0, 0))
            .attr_u32(IFLA_MTU, mtu_bytes);
        self.connection.command("set link MTU", request)
    }

    /// Makes a link a port of a bridge, bond or VRF, or of none.
    pub fn set_master(
        &mut self,
        ifindex: IfIndex,
        master: Option<IfIndex>,
    ) -> Result<(), NetlinkError> {
        let request = Request::new(RTM_NEWLINK, acked(0), &ifinfo(ifindex, 0, 0))
            .attr_u32(IFLA_MASTER, master.unwrap_or_default().0);
        self.connection.command("set link master", request)
    }

    /// Deletes a virtual link (of a veth, both ends).
    pub fn delete(&mut self, ifindex: IfIndex) -> Result<(), NetlinkError> {
        let request = Request::new(RTM_DELLINK, acked(0), &ifinfo(ifindex, 0, 0));
        self.connection.command("delete link", request)
    }
}

/// `struct ifinfomsg` for a change of one link.
pub(crate) fn ifinfo(ifindex: IfIndex, flags: u32, mask: u32) -> [u8; IFINFO_LEN] {
    let mut bytes = [0; IFINFO_LEN];
    bytes[4..8].copy_from_slice(&ifindex.0.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::ArpType;
    use crate::testing::in_scratch_namespace;

    #[test]
    fn the_loopback_is_listed_and_found_without_privilege() {
        let all = Links::dump().unwrap();
        let lo = all.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(lo.arp_type, ArpType::Loopback);
        let mut links = Links::open().unwrap();
        assert_eq!(links.by_name("lo").unwrap().unwrap().ifindex, lo.ifindex);
        assert_eq!(links.by_name("no-such-link").unwrap(), None);
    }

    #[test]
    fn veth_ends_are_linked_and_deleted_together() {
        in_scratch_namespace("veth_ends_are_linked_and_deleted_together", || {
            let mut links = Links::open().unwrap();
            links
                .create(NewLink::Veth {
                    name: "fp0",
                    peer: "fp1",
                })
                .unwrap();
            let a = links.by_name("fp0").unwrap().unwrap();
            let b = links.by_name("fp1").unwrap().unwrap();
            assert!(a.is_kind("veth") && a.lower == Some(b.ifindex) && !a.up);
            links.set_up(a.ifindex, true).unwrap();
            links.set_mtu(a.ifindex, 1400).unwrap();
            let a = links.by_name("fp0").unwrap().unwrap();
            assert!(a.up && !a.running, "the other end is down");
            assert_eq!(a.mtu_bytes, 1400);
            links.delete(b.ifindex).unwrap();
            assert_eq!(links.by_name("fp0").unwrap(), None);
        });
    }

    #[test]
    fn an_unknown_kind_is_refused_as_not_supported() {
        in_scratch_namespace("an_unknown_kind_is_refused_as_not_supported", || {
            let error = Links::open()
                .unwrap()
                .create(NewLink::Plain {
                    name: "x0",
                    kind: "fairpath-none",
                })
                .unwrap_err();
            assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
        });
    }
}
