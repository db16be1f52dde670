//! A link as a value, read from an `RTM_NEWLINK` message.
//!
//! Only messages that describe a whole link are read. Reports of a bridge about its port
//! (`AF_BRIDGE`) and wireless events (no MTU) look similar but do not describe the link.

use fairpath_units::IfIndex;

use crate::message::{attr, attr_str, attr_u32, u16_at, u32_at};

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
/// `struct ifinfomsg`.
pub(crate) const IFINFO_LEN: usize = 16;
/// `IF_OPER_UP` (RFC 2863).
const OPER_UP: u8 = 6;
const OPER_UNKNOWN: u8 = 0;

/// The link-layer header of frames: the kernel's `ARPHRD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpType {
    /// An Ethernet header.
    Ethernet,
    /// The loopback; an Ethernet header of zeros.
    Loopback,
    /// PPP: to a packet socket and to tcx, plain IP.
    Ppp,
    /// No header at all: tun, WireGuard and most tunnels (`ARPHRD_NONE`, `ARPHRD_RAWIP`).
    None,
    /// Any other number.
    Other(u16),
}

impl From<u16> for ArpType {
    fn from(number: u16) -> ArpType {
        match number {
            1 => ArpType::Ethernet,
            512 => ArpType::Ppp,
            772 => ArpType::Loopback,
            519 | 0xfffe => ArpType::None,
            other => ArpType::Other(other),
        }
    }
}

/// A link's driver-independent kind, the kernel's `IFLA_INFO_KIND`; physical devices have none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkKind(pub String);

/// A VLAN identifier, 0 to 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanId(pub u16);

/// The mode of an attached XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the stack, after the socket buffer is made.
    Generic,
    /// In the network card.
    Offloaded,
    /// In several modes.
    Several,
}

/// An XDP program on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XdpAttached {
    /// The program's id, as `bpftool prog show id` takes it.
    pub program_id: u32,
    /// Its mode.
    pub mode: XdpMode,
}

/// A network interface as in rtnetlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index; never 0.
    pub ifindex: IfIndex,
    /// The name, at most 15 bytes.
    pub name: String,
    /// The link-layer header of its frames.
    pub arp_type: ArpType,
    /// The virtual kind (`veth`, `vlan`, `ppp`, ...); `None` for loopback and physical devices.
    pub kind: Option<LinkKind>,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<IfIndex>,
    /// The link beneath (of a VLAN) or the other end (of a veth), if it is in this namespace.
    pub lower: Option<IfIndex>,
    /// True if the link beneath or the other end is in another namespace.
    pub lower_elsewhere: bool,
    /// The largest packet in bytes, without the link's header.
    pub mtu_bytes: u32,
    /// Set up by the administrator (`IFF_UP`).
    pub up: bool,
    /// Finds link-layer addresses by ARP (no `IFF_NOARP`).
    pub arp: bool,
    /// Able to pass packets: up, with a carrier or without carrier detection.
    pub running: bool,
    /// The VLAN identifier of a `vlan` link.
    pub vlan_id: Option<VlanId>,
    /// Transmit queues allocated (the driver may use fewer).
    pub tx_queues: u32,
    /// Receive queues allocated (the driver may use fewer).
    pub rx_queues: u32,
    /// Length of the device queue in packets, used by `pfifo_fast` and the leaves of HTB.
    pub txqueuelen_packets: u32,
    /// The root qdisc's kind.
    pub qdisc: Option<String>,
    /// The XDP program, if one is attached.
    pub xdp: Option<XdpAttached>,
}

impl Link {
    /// True if the kind is `kind`.
    pub fn is_kind(&self, kind: &str) -> bool {
        self.kind.as_ref().is_some_and(|k| k.0 == kind)
    }

    /// Reads the payload of an `RTM_NEWLINK`; `None` if it does not describe a whole link.
    pub(crate) fn parse(payload: &[u8]) -> Option<Link> {
        if *payload.first()? != libc::AF_UNSPEC as u8 {
            return None;
        }
        let flags = u32_at(payload, 8)?;
        let attrs = payload.get(IFINFO_LEN..)?;
        let info = attr(attrs, IFLA_LINKINFO).unwrap_or(&[]);
        let elsewhere = attr(attrs, IFLA_LINK_NETNSID).is_some();
        let up = flags & libc::IFF_UP as u32 != 0;
        Some(Link {
            ifindex: IfIndex(u32_at(payload, 4)?),
            name: attr_str(attrs, IFLA_IFNAME)?,
            arp_type: u16_at(payload, 2)?.into(),
            kind: attr_str(info, IFLA_INFO_KIND).map(LinkKind),
            master: attr_u32(attrs, IFLA_MASTER).map(IfIndex),
            lower: attr_u32(attrs, IFLA_LINK)
                .filter(|index| *index != 0 && !elsewhere)
                .map(IfIndex),
            lower_elsewhere: elsewhere,
            mtu_bytes: attr_u32(attrs, IFLA_MTU)?,
            up,
            arp: flags & libc::IFF_NOARP as u32 == 0,
            running: up && operational(attrs, flags),
            vlan_id: vlan_id(info),
            tx_queues: attr_u32(attrs, IFLA_NUM_TX_QUEUES).unwrap_or(1),
            rx_queues: attr_u32(attrs, IFLA_NUM_RX_QUEUES).unwrap_or(1),
            txqueuelen_packets: attr_u32(attrs, IFLA_TXQLEN).unwrap_or(0),
            qdisc: attr_str(attrs, IFLA_QDISC),
            xdp: attr(attrs, IFLA_XDP).and_then(xdp),
        })
    }
}

/// The index of a link removed by `RTM_DELLINK`; `None` if only its bridge membership ended.
pub(crate) fn parse_removed(payload: &[u8]) -> Option<IfIndex> {
    (*payload.first()? == libc::AF_UNSPEC as u8)
        .then(|| u32_at(payload, 4).map(IfIndex))
        .flatten()
}

/// The operational state if the kernel has it, else the running flag.
fn operational(attrs: &[u8], flags: u32) -> bool {
    match attr(attrs, IFLA_OPERSTATE).and_then(|v| v.first()) {
        Some(&OPER_UP) => true,
        Some(&OPER_UNKNOWN) | None => flags & libc::IFF_RUNNING as u32 != 0,
        Some(_) => false,
    }
}

fn vlan_id(info: &[u8]) -> Option<VlanId> {
    if attr_str(info, IFLA_INFO_KIND)? != "vlan" {
        return None;
    }
    u16_at(attr(attr(info, IFLA_INFO_DATA)?, IFLA_VLAN_ID)?, 0).map(VlanId)
}

/// `IFLA_XDP_ATTACHED` is 0 none, 1 native, 2 generic, 3 hardware, 4 several.
fn xdp(nested: &[u8]) -> Option<XdpAttached> {
    let (mode, id) = match attr(nested, IFLA_XDP_ATTACHED)?.first()? {
        1 => (XdpMode::Native, IFLA_XDP_DRV_PROG_ID),
        2 => (XdpMode::Generic, IFLA_XDP_SKB_PROG_ID),
        3 => (XdpMode::Offloaded, IFLA_XDP_HW_PROG_ID),
        4 => (XdpMode::Several, IFLA_XDP_DRV_PROG_ID),
        _ => return None,
    };
    let program_id = attr_u32(nested, id).or_else(|| attr_u32(nested, IFLA_XDP_PROG_ID))?;
    Some(XdpAttached { program_id, mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Request, messages};

    fn header(family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = vec![family, 0];
        bytes.extend_from_slice(&1u16.to_ne_bytes());
        bytes.extend_from_slice(&index.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    fn parse(request: Request) -> Option<Link> {
        let bytes = request.finish(1);
        let message = messages(&bytes).next().unwrap();
        Link::parse(message.payload)
    }

    #[test]
    fn a_vlan_link_has_lower_link_and_id() {
        let link = parse(
            Request::new(16, 0, &header(0, 7, 1 | 0x40))
                .attr_str(IFLA_IFNAME, "eth0.5")
                .attr_u32(IFLA_MTU, 1500)
                .attr_u32(IFLA_LINK, 2)
                .attr(999, &[1, 2, 3])
                .nest(IFLA_LINKINFO, |r| {
                    r.attr_str(IFLA_INFO_KIND, "vlan")
                        .nest(IFLA_INFO_DATA, |r| {
                            r.attr(IFLA_VLAN_ID, &5u16.to_ne_bytes())
                        })
                }),
        )
        .unwrap();
        assert_eq!(link.ifindex, IfIndex(7));
        assert_eq!(link.lower, Some(IfIndex(2)));
        assert_eq!(link.vlan_id, Some(VlanId(5)));
        assert!(link.is_kind("vlan") && link.up && link.running);
    }

    #[test]
    fn bridge_ports_and_wireless_events_are_not_links() {
        let bridge = Request::new(16, 0, &header(libc::AF_BRIDGE as u8, 7, 1))
            .attr_str(IFLA_IFNAME, "eth0")
            .attr_u32(IFLA_MTU, 1500);
        assert_eq!(parse(bridge), None);
        let wireless = Request::new(16, 0, &header(0, 7, 1)).attr_str(IFLA_IFNAME, "wlan0");
        assert_eq!(parse(wireless), None);
        assert_eq!(
            parse_removed(&header(libc::AF_BRIDGE as u8, 7, 0)),
            None,
            "leaving a bridge is not a removal"
        );
        assert_eq!(parse_removed(&header(0, 7, 0)), Some(IfIndex(7)));
    }

    #[test]
    fn peers_in_other_namespaces_are_not_lower_links() {
        let link = parse(
            Request::new(16, 0, &header(0, 7, 1))
                .attr_str(IFLA_IFNAME, "veth0")
                .attr_u32(IFLA_MTU, 1500)
                .attr_u32(IFLA_LINK, 2)
                .attr_u32(IFLA_LINK_NETNSID, 0),
        )
        .unwrap();
        assert_eq!((link.lower, link.lower_elsewhere), (None, true));
    }
}
