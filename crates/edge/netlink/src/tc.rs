//! Qdiscs and filters: listing them, and creating a minimal one of a kind.
//!
//! The options are the minimum that each kind accepts, for probes and not for shaping. See
//! `place.rs` for permanent qdiscs and their counters.

mod fq;
mod place;

use fairpath_units::IfIndex;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::{Connection, NetlinkError, acked, dumped};
use crate::message::{Request, attr_str, u32_at};
pub use fq::{Egress, Fq};
pub(crate) use place::{MQ_HANDLE, queue_parent};
pub use place::{PlaceError, QdiscPlace, QdiscStats};

pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_BURST: u16 = 6;
const TCA_HTB_INIT: u16 = 2;
const TCA_FLOWER_KEY_ETH_TYPE: u16 = 8;
/// `struct tcmsg`.
pub(crate) const TCMSG_LEN: usize = 20;
pub(crate) const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const ROOT_HANDLE: u32 = 0x0001_0000;
const ETH_P_IP: u16 = 0x0800;
/// In every namespace.
const LOOPBACK: IfIndex = IfIndex(1);

/// A qdisc and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its link.
    pub ifindex: IfIndex,
    /// The kernel's name of the kind.
    pub kind: String,
    /// Major number in the upper 16 bits; 0 for defaults.
    pub handle: u32,
    /// The handle of its parent class.
    pub parent: u32,
}

impl Qdisc {
    /// True if it is the root qdisc of its link's egress.
    pub fn is_root(&self) -> bool {
        self.parent == TC_H_ROOT
    }
}

/// Traffic control of one network namespace.
#[derive(Debug)]
pub struct Tc {
    connection: Connection,
}

impl Tc {
    /// Opens a socket in the calling thread's namespace; listing needs no privilege, changing `CAP_NET_ADMIN`.
    pub fn open() -> Result<Tc, NetlinkError> {
        Ok(Tc {
            connection: Connection::open(NETLINK_ROUTE)?,
        })
    }

    /// The qdiscs of all links, in the kernel's order.
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>, NetlinkError> {
        let request = Request::new(RTM_GETQDISC, dumped(), &[0; TCMSG_LEN]);
        self.connection.dump("list qdiscs", &request, |message| {
            let tcmsg = message.payload;
            Some(Qdisc {
                ifindex: IfIndex(u32_at(tcmsg, 4)?),
                handle: u32_at(tcmsg, 8)?,
                parent: u32_at(tcmsg, 12)?,
                kind: attr_str(tcmsg.get(TCMSG_LEN..)?, TCA_KIND)?,
            })
        })
    }

    /// Makes a qdisc of `kind` the root qdisc of the link. `ENOENT` means that the kernel has no
    /// such kind.
    ///
    /// The kernel may load the module for it.
    pub fn add_root(&mut self, ifindex: IfIndex, kind: &str) -> Result<(), NetlinkError> {
        let request = new_qdisc(ifindex, ROOT_HANDLE, TC_H_ROOT, kind);
        let request = match kind {
            "netem" => request.attr(TCA_OPTIONS, &netem_options()),
            "tbf" => request.nest(TCA_OPTIONS, |r| {
                r.attr(TCA_TBF_PARMS, &tbf_parameters())
                    .attr_u32(TCA_TBF_BURST, 10_000)
            }),
            "htb" => request.nest(TCA_OPTIONS, |r| r.attr(TCA_HTB_INIT, &htb_globals())),
            _ => request,
        };
        self.connection.command("add qdisc", request)
    }

    /// Removes the link's root qdisc; the kernel's default returns.
    pub fn delete_root(&mut self, ifindex: IfIndex) -> Result<(), NetlinkError> {
        let request = Request::new(RTM_DELQDISC, acked(0), &tcmsg(ifindex, 0, TC_H_ROOT, 0));
        self.connection.command("delete qdisc", request)
    }

    /// True if the kernel has a kind of classful or classless qdisc. It requests one on the
    /// loopback link at a position that only `ingress` and `clsact` may have, so nothing changes.
    /// May load the module; needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The probe failed: no privilege, or the loopback link has an ingress qdisc.
    pub fn supports(&mut self, kind: &str) -> Result<bool, NetlinkError> {
        let request = new_qdisc(LOOPBACK, 0, TC_H_CLSACT, kind);
        match self.connection.command("look up qdisc", request) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(false),
            Err(error) if error.errno() == Some(libc::EINVAL) => Ok(true),
            done => done.map(|()| true),
        }
    }

    /// Adds `clsact`, the parent of filters at ingress and egress.
    pub fn add_clsact(&mut self, ifindex: IfIndex) -> Result<(), NetlinkError> {
        let request = new_qdisc(ifindex, CLSACT_HANDLE, TC_H_CLSACT, "clsact");
        self.connection.command("add clsact", request)
    }

    /// Adds a flower filter for IPv4 without an action at ingress; needs `clsact`.
    pub fn add_flower(&mut self, ifindex: IfIndex) -> Result<(), NetlinkError> {
        let protocol = u32::from(ETH_P_IP.to_be());
        let priority = 1 << 16;
        let header = tcmsg(ifindex, 0, CLSACT_INGRESS, priority | protocol);
        let request = Request::new(RTM_NEWTFILTER, acked(NLM_F_CREATE | NLM_F_EXCL), &header)
            .attr_str(TCA_KIND, "flower")
            .nest(TCA_OPTIONS, |r| {
                r.attr(TCA_FLOWER_KEY_ETH_TYPE, &ETH_P_IP.to_be_bytes())
            });
        self.connection.command("add flower filter", request)
    }
}

fn new_qdisc(ifindex: IfIndex, handle: u32, parent: u32, kind: &str) -> Request {
    let header = tcmsg(ifindex, handle, parent, 0);
    Request::new(RTM_NEWQDISC, acked(NLM_F_CREATE | NLM_F_EXCL), &header).attr_str(TCA_KIND, kind)
}

pub(crate) fn tcmsg(ifindex: IfIndex, handle: u32, parent: u32, info: u32) -> [u8; TCMSG_LEN] {
    let mut bytes = [0; TCMSG_LEN];
    bytes[4..8].copy_from_slice(&ifindex.0.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes[16..20].copy_from_slice(&info.to_ne_bytes());
    bytes
}

/// `struct tc_netem_qopt`: no delay, a limit of 1000 packets.
fn netem_options() -> Vec<u8> {
    words(&[0, 1000, 0, 0, 0, 0])
}

/// `struct tc_htb_glob`: version 3, rate2quantum 10.
fn htb_globals() -> Vec<u8> {
    words(&[3, 10, 0, 0, 0])
}

/// `struct tc_tbf_qopt`: 1 Mbit/s in Ethernet framing, no peak rate, a limit of 10,000 bytes.
fn tbf_parameters() -> Vec<u8> {
    const TC_LINKLAYER_ETHERNET: u8 = 1;
    const RATE_BYTES_PER_S: u32 = 125_000;
    let mut bytes = vec![0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&RATE_BYTES_PER_S.to_ne_bytes());
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(&words(&[10_000, 0, 0]));
    bytes
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Links, NewLink};
    use crate::testing::in_scratch_namespace;

    #[test]
    fn probing_qdisc_kinds_creates_nothing() {
        let name = "probing_qdisc_kinds_creates_nothing";
        in_scratch_namespace(name, || {
            let mut tc = Tc::open().unwrap();
            let before = tc.qdiscs().unwrap();
            for (kind, known) in [("htb", true), ("pfifo", true), ("fairpath-none", false)] {
                assert_eq!(tc.supports(kind).unwrap(), known, "{kind}");
            }
            assert_eq!(tc.qdiscs().unwrap(), before);
        });
    }

    #[test]
    fn created_qdiscs_are_listed() {
        let name = "created_qdiscs_are_listed";
        in_scratch_namespace(name, || {
            let mut links = Links::open().unwrap();
            let veth = NewLink::Veth {
                name: "q0",
                peer: "q1",
            };
            links.create(veth).unwrap();
            let ifindex = links.by_name("q0").unwrap().unwrap().ifindex;
            let mut tc = Tc::open().unwrap();
            let error = tc.add_root(ifindex, "fairpath-none").unwrap_err();
            assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
            for kind in ["pfifo", "tbf", "htb"] {
                tc.add_root(ifindex, kind).unwrap();
                let all = tc.qdiscs().unwrap();
                assert!(all.iter().any(|q| q.kind == kind && q.is_root()));
                tc.delete_root(ifindex).unwrap();
            }
        });
    }
}
