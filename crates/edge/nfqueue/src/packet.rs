//! A packet as described by the kernel, borrowed from the receive buffer.
//!
//! Invariant: only a missing header with the id makes reading fail. Other missing attributes are
//! `None`, zero or empty. Attributes: `linux/netfilter/nfnetlink_queue.h`, numbers in network
//! order. Deliberately absent: the meaning of the payload (see parsers) and of a conntrack entry.

use std::fmt;
use std::time::Duration;

use fairpath_units::IfIndex;
use fairpath_wire::{EtherType, MacAddr};

use crate::message::{Attributes, FAMILY_BYTES, Message, be16, be32, be64};

const PACKET_HDR: u16 = 1;
const MARK: u16 = 3;
const TIMESTAMP: u16 = 4;
const IFINDEX_INDEV: u16 = 5;
const IFINDEX_OUTDEV: u16 = 6;
const IFINDEX_PHYSINDEV: u16 = 7;
const IFINDEX_PHYSOUTDEV: u16 = 8;
const HWADDR: u16 = 9;
const PAYLOAD: u16 = 10;
const CT: u16 = 11;
const CT_INFO: u16 = 12;
const CAP_LEN: u16 = 13;
const SKB_INFO: u16 = 14;
const UID: u16 = 16;
const GID: u16 = 17;
const SECCTX: u16 = 18;
const VLAN: u16 = 19;
const VLAN_PROTO: u16 = 1;
const VLAN_TCI: u16 = 2;
const L2HDR: u16 = 20;
const PRIORITY: u16 = 21;

const INFO_CSUM_NOT_READY: u32 = 1;
const INFO_GSO: u32 = 2;
const INFO_CSUM_NOT_VERIFIED: u32 = 4;

/// The hook that queued the packet (`NF_INET_*`; the bridge's hooks have the same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Before routing.
    PreRouting,
    /// To a local socket.
    LocalIn,
    /// Forwarded.
    Forward,
    /// From a local socket.
    LocalOut,
    /// After routing.
    PostRouting,
    /// Another hook.
    Other(u8),
}

impl From<u8> for Hook {
    fn from(number: u8) -> Hook {
        match number {
            0 => Hook::PreRouting,
            1 => Hook::LocalIn,
            2 => Hook::Forward,
            3 => Hook::LocalOut,
            4 => Hook::PostRouting,
            other => Hook::Other(other),
        }
    }
}

/// The interfaces of a packet; `None` if this hook has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Ingress interface.
    pub input: Option<IfIndex>,
    /// Egress interface.
    pub output: Option<IfIndex>,
    /// Bridge port at ingress; `input` is then the bridge.
    pub bridge_input: Option<IfIndex>,
    /// Bridge port at egress.
    pub bridge_output: Option<IfIndex>,
}

/// Checksums and size of the packet in the kernel (`NFQA_SKB_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkbInfo(u32);

impl SkbInfo {
    /// The transport checksum is partial: device or kernel completes it at egress.
    pub fn checksum_not_ready(self) -> bool {
        self.0 & INFO_CSUM_NOT_READY != 0
    }

    /// A GSO packet: up to 64 KiB that leave as several packets of unknown size.
    pub fn gso(self) -> bool {
        self.0 & INFO_GSO != 0
    }

    /// The checksum is not verified: verify it before using the content.
    pub fn checksum_not_verified(self) -> bool {
        self.0 & INFO_CSUM_NOT_VERIFIED != 0
    }
}

/// The user and group of the sending socket; only with [`Config::uid_gid`](crate::Config::uid_gid).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A VLAN tag that the kernel stores outside the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// 0x8100 or 0x88a8.
    pub tpid: EtherType,
    /// Priority, eligibility and VLAN id.
    pub tci: u16,
}

/// One queued packet, borrowed from the receive buffer.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    pub(crate) id: u32,
    family: u8,
    hook: u8,
    ether_type: u16,
    payload: &'a [u8],
    cap_len: Option<u32>,
    info: SkbInfo,
    mark: u32,
    priority: u32,
    devices: Devices,
    hwaddr: Option<[u8; 6]>,
    timestamp: Option<Duration>,
    vlan_proto: Option<u16>,
    vlan_tci: Option<u16>,
    link_header: &'a [u8],
    uid: Option<u32>,
    gid: Option<u32>,
    security: Option<&'a [u8]>,
    conntrack: Option<&'a [u8]>,
    conntrack_info: Option<u32>,
    whole: bool,
}

impl<'a> Packet<'a> {
    /// From one message; `None` without a valid packet header, and so without an id.
    pub(crate) fn read(message: &Message<'a>) -> Option<Packet<'a>> {
        let family = *message.body.first()?;
        let mut attributes = Attributes::of(message.body.get(FAMILY_BYTES..)?);
        let mut packet = Packet::unread(family);
        let mut known = false;
        for (kind, value) in attributes.by_ref() {
            known |= kind == PACKET_HDR && value.len() >= 7;
            // An attribute that is too short for its type is ignored.
            let _ = packet.take(kind, value);
        }
        packet.whole = !(attributes.corrupted() || message.cut);
        known.then_some(packet)
    }

    fn unread(family: u8) -> Packet<'a> {
        Packet {
            id: 0,
            family,
            hook: 0,
            ether_type: 0,
            payload: &[],
            cap_len: None,
            info: SkbInfo(0),
            mark: 0,
            priority: 0,
            devices: Devices::default(),
            hwaddr: None,
            timestamp: None,
            vlan_proto: None,
            vlan_tci: None,
            link_header: &[],
            uid: None,
            gid: None,
            security: None,
            conntrack: None,
            conntrack_info: None,
            whole: true,
        }
    }

    fn take(&mut self, kind: u16, value: &'a [u8]) -> Option<()> {
        let index = || be32(value, 0).map(IfIndex);
        match kind {
            PACKET_HDR => {
                (self.id, self.ether_type) = (be32(value, 0)?, be16(value, 4)?);
                self.hook = *value.get(6)?;
            }
            PAYLOAD => self.payload = value,
            CAP_LEN => self.cap_len = be32(value, 0),
            SKB_INFO => self.info = SkbInfo(be32(value, 0)?),
            MARK => self.mark = be32(value, 0)?,
            PRIORITY => self.priority = be32(value, 0)?,
            IFINDEX_INDEV => self.devices.input = index(),
            IFINDEX_OUTDEV => self.devices.output = index(),
            IFINDEX_PHYSINDEV => self.devices.bridge_input = index(),
            IFINDEX_PHYSOUTDEV => self.devices.bridge_output = index(),
            HWADDR => self.hwaddr = hwaddr(value),
            TIMESTAMP => self.timestamp = timestamp(value),
            VLAN => self.take_vlan(value),
            L2HDR => self.link_header = value,
            UID => self.uid = be32(value, 0),
            GID => self.gid = be32(value, 0),
            SECCTX => self.security = Some(value),
            CT => self.conntrack = Some(value),
            CT_INFO => self.conntrack_info = be32(value, 0),
            _ => {}
        }
        Some(())
    }

    fn take_vlan(&mut self, value: &[u8]) {
        for (kind, value) in Attributes::of(value) {
            match kind {
                VLAN_PROTO => self.vlan_proto = be16(value, 0),
                VLAN_TCI => self.vlan_tci = be16(value, 0),
                _ => {}
            }
        }
    }

    /// The kernel's number of the packet in its queue: starts at 1, increments by 1, wraps.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The bytes from the network header; at most the copy range of [`Config`](crate::Config).
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Length of the packet from the network header, even if less of it was copied.
    ///
    /// 0 with metadata only ([`Config::metadata_only`](crate::Config::metadata_only)), where the
    /// kernel does not provide it.
    pub fn len(&self) -> u32 {
        self.cap_len.unwrap_or(self.payload.len() as u32)
    }

    /// True if the length is unknown.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if [`Packet::payload`] is the whole packet.
    pub fn is_complete(&self) -> bool {
        self.whole && !self.payload.is_empty() && self.cap_len.is_none()
    }

    /// True if the whole message was parsed; the kernel sends no other.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Checksums and size.
    pub fn info(&self) -> SkbInfo {
        self.info
    }

    /// The protocol of the payload: IPv4, IPv6, ARP.
    pub fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type)
    }

    /// Address family of the rule's table (`AF_INET`, `AF_INET6`, `AF_BRIDGE`).
    pub fn family(&self) -> u8 {
        self.family
    }

    /// The hook that queued it.
    pub fn hook(&self) -> Hook {
        Hook::from(self.hook)
    }

    /// Its mark; 0 if not set.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// `skb->priority`; 0 if not set, and on kernels before 5.18, which do not provide it.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// Its interfaces.
    pub fn devices(&self) -> Devices {
        self.devices
    }

    /// The link address of the sender, if the interface has addresses of six bytes.
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.hwaddr.map(MacAddr)
    }

    /// Time of arrival since the Unix epoch in microseconds; only if timestamps are enabled in the
    /// kernel.
    pub fn timestamp(&self) -> Option<Duration> {
        self.timestamp
    }

    /// The VLAN tag outside the bytes, in the bridge family.
    pub fn vlan(&self) -> Option<Vlan> {
        let (tpid, tci) = self.vlan_proto.zip(self.vlan_tci)?;
        Some(Vlan {
            tpid: EtherType(tpid),
            tci,
        })
    }

    /// The link header, in the bridge family; empty elsewhere.
    pub fn link_header(&self) -> &'a [u8] {
        self.link_header
    }

    /// The sender, if it was a local socket and this was requested.
    pub fn owner(&self) -> Option<Owner> {
        let (uid, gid) = self.uid.zip(self.gid)?;
        Some(Owner { uid, gid })
    }

    /// The security label, if requested.
    pub fn security_context(&self) -> Option<&'a [u8]> {
        self.security
    }

    /// The connection's attributes, nested as in ctnetlink, if requested.
    pub fn conntrack(&self) -> Option<&'a [u8]> {
        self.conntrack
    }

    /// The packet's state in its connection (`enum ip_conntrack_info`), if requested.
    pub fn conntrack_info(&self) -> Option<u32> {
        self.conntrack_info
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("id", &self.id)
            .field("hook", &self.hook())
            .field("len", &self.len())
            .field("copied", &self.payload.len())
            .field("mark", &self.mark)
            .field("devices", &self.devices)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// Length, padding, eight bytes of address, of which six are used.
fn hwaddr(value: &[u8]) -> Option<[u8; 6]> {
    (be16(value, 0)? == 6).then_some(())?;
    value.get(4..)?.first_chunk().copied()
}

fn timestamp(value: &[u8]) -> Option<Duration> {
    let (seconds, micros) = (be64(value, 0)?, be64(value, 8)?);
    Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Messages, PACKET as MESSAGE, put, write};

    fn header(id: u32, hook: u8) -> Vec<u8> {
        [&id.to_be_bytes()[..], &[0x08, 0x00, hook]].concat()
    }

    fn made(attributes: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, MESSAGE, 0, 0, 5, attributes);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Packet<'_>> {
        Messages(bytes).next().and_then(|m| Packet::read(&m))
    }

    #[test]
    fn every_attribute_lands_in_its_place() {
        let vlan = |out: &mut Vec<u8>| {
            let mut nested = Vec::new();
            put(&mut nested, VLAN_PROTO, &[0x81, 0]);
            put(&mut nested, VLAN_TCI, &[0x20, 5]);
            put(out, VLAN | 0x8000, &nested);
        };
        let bytes = made(|out| {
            put(out, PACKET_HDR, &header(77, 2));
            put(out, MARK, &9u32.to_be_bytes());
            put(out, PRIORITY, &6u32.to_be_bytes());
            put(
                out,
                TIMESTAMP,
                &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
            );
            put(out, IFINDEX_INDEV, &2u32.to_be_bytes());
            put(out, IFINDEX_OUTDEV, &3u32.to_be_bytes());
            put(out, IFINDEX_PHYSINDEV, &4u32.to_be_bytes());
            put(out, IFINDEX_PHYSOUTDEV, &5u32.to_be_bytes());
            put(out, HWADDR, &[0, 6, 0, 0, 2, 0, 0, 0, 1, 2, 0, 0]);
            put(out, CAP_LEN, &1500u32.to_be_bytes());
            put(out, SKB_INFO, &7u32.to_be_bytes());
            put(out, UID, &1000u32.to_be_bytes());
            put(out, GID, &100u32.to_be_bytes());
            put(out, SECCTX, b"label");
            put(out, CT_INFO, &2u32.to_be_bytes());
            put(out, CT, &[1, 2, 3, 4]);
            put(out, L2HDR, &[8; 14]);
            vlan(out);
            put(out, PAYLOAD, &[0x45, 1, 2]);
        });
        let packet = read(&bytes).unwrap();
        assert_eq!((packet.id(), packet.hook()), (77, Hook::Forward));
        assert_eq!(packet.ether_type(), EtherType(0x0800));
        assert_eq!((packet.mark(), packet.priority()), (9, 6));
        assert_eq!(packet.timestamp(), Some(Duration::from_micros(3_000_004)));
        let devices = Devices {
            input: Some(IfIndex(2)),
            output: Some(IfIndex(3)),
            bridge_input: Some(IfIndex(4)),
            bridge_output: Some(IfIndex(5)),
        };
        assert_eq!(packet.devices(), devices);
        assert_eq!(packet.source_mac(), Some(MacAddr([2, 0, 0, 0, 1, 2])));
        assert_eq!((packet.len(), packet.payload()), (1500, &[0x45, 1, 2][..]));
        assert!(!packet.is_complete() && packet.is_whole());
        let info = packet.info();
        assert!(info.checksum_not_ready() && info.gso() && info.checksum_not_verified());
        assert_eq!(
            packet.owner(),
            Some(Owner {
                uid: 1000,
                gid: 100
            })
        );
        assert_eq!(packet.security_context(), Some(&b"label"[..]));
        assert_eq!(
            (packet.conntrack(), packet.conntrack_info()),
            (Some(&[1, 2, 3, 4][..]), Some(2))
        );
        assert_eq!(packet.link_header(), [8; 14]);
        let tag = Vlan {
            tpid: EtherType(0x8100),
            tci: 0x2005,
        };
        assert_eq!(packet.vlan(), Some(tag));
    }

    #[test]
    fn a_packet_needs_its_header_and_nothing_else() {
        let bytes = made(|out| put(out, PACKET_HDR, &header(1, 9)));
        let packet = read(&bytes).unwrap();
        assert_eq!(
            (packet.id(), packet.hook(), packet.len()),
            (1, Hook::Other(9), 0)
        );
        assert!(packet.is_empty() && !packet.is_complete());
        assert!(read(&made(|out| put(out, MARK, &[0; 4]))).is_none());
        assert!(read(&made(|out| put(out, PACKET_HDR, &[0; 6]))).is_none());
    }

    #[test]
    fn truncated_packets_keep_their_id() {
        let bytes = made(|out| {
            put(out, PACKET_HDR, &header(3, 2));
            put(out, PAYLOAD, &[0; 100]);
        });
        let packet = read(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((packet.id(), packet.payload().len()), (3, 0));
        assert!(!packet.is_whole());
    }
}
