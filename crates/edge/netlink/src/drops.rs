//! Packets lost by links: the counters of drivers and of the kernel around them.
//!
//! A veth has no counter for packets that did not fit into its ring. The sender counts them, at the
//! other end, which may be in another namespace. The kernel also returns counters of a link there
//! if the request has the number of that namespace, and if the caller may administer it.

use fairpath_units::IfIndex;

use crate::connection::{NetlinkError, acked};
use crate::link::IFINFO_LEN;
use crate::links::{Links, RTM_GETLINK, ifinfo};
use crate::message::{Received, Request, attr, attr_u32, u64_at};

const IFLA_LINK: u16 = 5;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_TARGET_NETNSID: u16 = 46;
const OPERATION: &str = "read the counters of a link";
/// Indices in `struct rtnl_link_stats64`, in words of eight bytes.
const RX_DROPPED: usize = 6;
const TX_DROPPED: usize = 7;
const RX_MISSED: usize = 15;

/// Packets lost by a link since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkDrops {
    /// Received: no buffer in the driver, or no receiver in the kernel (`rx_dropped`,
    /// `rx_missed_errors`).
    pub arriving: u64,
    /// To be sent (`tx_dropped`).
    pub leaving: u64,
}

/// The content of one message.
#[derive(Clone, Copy, Default)]
struct LinkCounters {
    drops: Option<LinkDrops>,
    /// The other end: its index, and the number of its namespace if that is not this one.
    other: Option<(IfIndex, Option<u32>)>,
}

impl Links {
    /// The losses of the link.
    ///
    /// # Errors
    /// If there is no such link, or the kernel returns no counters of it.
    pub fn drops(&mut self, ifindex: IfIndex) -> Result<LinkDrops, NetlinkError> {
        let seen = self.look(ifindex, None)?;
        seen.drops.ok_or_else(|| lacking("its counters"))
    }

    /// The losses of the other end of a veth, in any namespace.
    ///
    /// # Errors
    /// If the link has no other end, if there are no counters, or if the caller may not administer
    /// the namespace of the other end.
    pub fn drops_of_other_end(&mut self, ifindex: IfIndex) -> Result<LinkDrops, NetlinkError> {
        let seen = self.look(ifindex, None)?;
        let other = seen.other.ok_or_else(|| lacking("its other end"));
        let (other, namespace) = other?;
        let seen = self.look(other, namespace)?;
        seen.drops.ok_or_else(|| lacking("its counters"))
    }

    fn look(
        &mut self,
        ifindex: IfIndex,
        namespace: Option<u32>,
    ) -> Result<LinkCounters, NetlinkError> {
        let mut request = Request::new(RTM_GETLINK, acked(0), &ifinfo(ifindex, 0, 0));
        if let Some(number) = namespace {
            request = request.attr_u32(IFLA_TARGET_NETNSID, number);
        }
        let mut seen = LinkCounters::default();
        let read = |message: &Received<'_>| seen = parse(message.payload);
        self.connection().query(OPERATION, request, read)?;
        Ok(seen)
    }
}

fn lacking(lacks: &'static str) -> NetlinkError {
    NetlinkError::Malformed {
        operation: OPERATION,
        lacks,
    }
}

fn parse(payload: &[u8]) -> LinkCounters {
    let attrs = payload.get(IFINFO_LEN..).unwrap_or_default();
    let counters = attr(attrs, IFLA_STATS64);
    let other = attr_u32(attrs, IFLA_LINK).filter(|index| *index != 0);
    LinkCounters {
        drops: counters.and_then(drops),
        other: other.map(|index| (IfIndex(index), attr_u32(attrs, IFLA_LINK_NETNSID))),
    }
}

fn drops(counters: &[u8]) -> Option<LinkDrops> {
    let word = |place: usize| u64_at(counters, place * 8);
    Some(LinkDrops {
        arriving: word(RX_DROPPED)? + word(RX_MISSED)?,
        leaving: word(TX_DROPPED)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewLink;
    use crate::testing::in_scratch_namespace;

    #[test]
    fn link_counters_match_the_kernel_layout() {
        let counters: Vec<u8> = (0..24u64).flat_map(|n| (1u64 << n).to_ne_bytes()).collect();
        let wanted = LinkDrops {
            arriving: (1 << 6) + (1 << 15),
            leaving: 1 << 7,
        };
        assert_eq!(drops(&counters), Some(wanted));
        assert_eq!(drops(&counters[..100]), None);
    }

    #[test]
    fn both_ends_of_a_veth_report_losses() {
        in_scratch_namespace("both_ends_of_a_veth_report_losses", || {
            let mut links = Links::open().unwrap();
            let veth = NewLink::Veth {
                name: "fp0",
                peer: "fp1",
            };
            links.create(veth).unwrap();
            let a = links.by_name("fp0").unwrap().unwrap();
            assert_eq!(links.drops(a.ifindex).unwrap(), LinkDrops::default());
            let other = links.drops_of_other_end(a.ifindex);
            assert_eq!(other.unwrap(), LinkDrops::default());
            let lo = links.by_name("lo").unwrap().unwrap();
            assert!(links.drops_of_other_end(lo.ifindex).is_err());
            assert!(links.drops(IfIndex(9999)).is_err());
        });
    }
}
