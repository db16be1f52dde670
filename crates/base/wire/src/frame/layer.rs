//! One layer of a frame: its length, its bytes, and the numbers by which other layers announce it.

use crate::capture::LinkType;
use crate::ethernet::{self, EtherType};
use crate::icmp::{self, Family};
use crate::ip::IpProto;
use crate::ipv6::Extension;
use crate::pppoe::{self, PppProto};
use crate::{ipv4, ipv6, sll, tcp, udp, vlan};

/// Address families of BSD loopback headers. Every system has IPv4 as 2; IPv6 is 30 on macOS, which writes NULL, and 24 on
/// OpenBSD, which writes LOOP.
const AF_INET: u32 = 2;
const AF_INET6_MACOS: u32 = 30;
const AF_INET6_OPENBSD: u32 = 24;

/// A header as a value.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    Ethernet(ethernet::Header),
    Sll(sll::Header),
    /// A 4-byte address family: little-endian for NULL, big-endian for LOOP.
    Loopback {
        link: LinkType,
    },
    /// PPP in HDLC-like framing: address, control, protocol (RFC 1662 section 3.1).
    Ppp,
    Vlan {
        tpid: EtherType,
        tag: vlan::Header,
    },
    Pppoe(pppoe::Header),
    Ipv4(ipv4::Header),
    Ipv6(ipv6::Header),
    Tcp(tcp::Header),
    Udp(udp::Header),
    Icmp(icmp::Message),
}

impl Layer {
    pub(super) fn is_ip(&self) -> bool {
        matches!(self, Layer::Ipv4(_) | Layer::Ipv6(_))
    }

    pub(super) fn family(&self) -> Option<Family> {
        match self {
            Layer::Ipv4(_) => Some(Family::V4),
            Layer::Ipv6(_) => Some(Family::V6),
            _ => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Layer::Ethernet(_) => ethernet::HEADER_BYTES,
            Layer::Sll(header) => header.header_len(),
            Layer::Loopback { .. } | Layer::Ppp => 4,
            Layer::Vlan { .. } => vlan::HEADER_BYTES,
            Layer::Pppoe(_) => pppoe::HEADER_BYTES,
            Layer::Ipv4(header) => header.header_len(),
            Layer::Ipv6(header) => header.header_len(),
            Layer::Tcp(header) => header.header_len(),
            Layer::Udp(_) => udp::HEADER_BYTES,
            Layer::Icmp(_) => icmp::HEADER_BYTES,
        }
    }

    /// The number by which Ethernet, VLAN and cooked headers announce this layer.
    pub(super) fn ethertype(&self) -> Option<EtherType> {
        match self {
            Layer::Vlan { tpid, .. } => Some(*tpid),
            Layer::Pppoe(_) => Some(EtherType::PPPOE_SESSION),
            Layer::Ipv4(_) => Some(EtherType::IPV4),
            Layer::Ipv6(_) => Some(EtherType::IPV6),
            _ => None,
        }
    }

    pub(super) fn ppp_proto(&self) -> Option<PppProto> {
        self.family().map(|family| {
            if family == Family::V4 {
                PppProto::IPV4
            } else {
                PppProto::IPV6
            }
        })
    }

    /// The number by which IP of a family announces this layer.
    pub(super) fn proto(&self, outer: Option<Family>) -> Option<IpProto> {
        match self {
            Layer::Ipv4(_) => Some(IpProto::IPV4),
            Layer::Ipv6(_) => Some(IpProto::IPV6),
            Layer::Tcp(_) => Some(IpProto::TCP),
            Layer::Udp(_) => Some(IpProto::UDP),
            Layer::Icmp(_) => Some(if outer == Some(Family::V6) {
                IpProto::ICMPV6
            } else {
                IpProto::ICMP
            }),
            _ => None,
        }
    }

    /// Appends this layer's header; `behind` bytes follow it, beginning with layer `next`.
    pub(super) fn emit(
        &self,
        ip: Option<&Layer>,
        next: Option<&Layer>,
        behind: usize,
        out: &mut Vec<u8>,
    ) {
        let ethertype = |given| next.and_then(Layer::ethertype).unwrap_or(given);
        let proto = |given| {
            next.and_then(|layer| layer.proto(self.family()))
                .unwrap_or(given)
        };
        let ppp = |given| next.and_then(Layer::ppp_proto).unwrap_or(given);
        match self {
            Layer::Ethernet(h) => ethernet::Header {
                ethertype: ethertype(h.ethertype),
                ..*h
            }
            .emit(out),
            Layer::Sll(h) => sll::Header {
                ethertype: ethertype(h.ethertype),
                ..*h
            }
            .emit(out),
            Layer::Loopback { link } => {
                let v6 = matches!(next, Some(Layer::Ipv6(_)));
                out.extend(match *link {
                    LinkType::NULL if v6 => AF_INET6_MACOS.to_le_bytes(),
                    LinkType::NULL => AF_INET.to_le_bytes(),
                    _ if v6 => AF_INET6_OPENBSD.to_be_bytes(),
                    _ => AF_INET.to_be_bytes(),
                });
            }
            Layer::Ppp => {
                out.extend([0xff, 0x03]);
                out.extend(ppp(PppProto::LCP).0.to_be_bytes());
            }
            Layer::Vlan { tag, .. } => vlan::Header {
                ethertype: ethertype(tag.ethertype),
                ..*tag
            }
            .emit(out),
            Layer::Pppoe(h) => pppoe::Header {
                protocol: ppp(h.protocol),
                ..*h
            }
            .emit(behind, out),
            Layer::Ipv4(h) => ipv4::Header {
                protocol: proto(h.protocol),
                ..h.clone()
            }
            .emit(behind, out),
            Layer::Ipv6(h) => ipv6::Header {
                protocol: proto(h.protocol),
                ..h.clone()
            }
            .emit(behind, out),
            Layer::Tcp(h) => h.emit(out),
            Layer::Udp(h) => h.emit(behind, out),
            Layer::Icmp(message) => {
                message.emit(ip.and_then(Layer::family).unwrap_or(Family::V4), out)
            }
        }
    }

    /// Makes an IP header one of a fragment.
    pub(super) fn make_fragment(
        &mut self,
        protocol: Option<IpProto>,
        offset: u16,
        more: bool,
        id: u32,
    ) {
        match self {
            Layer::Ipv4(header) => {
                header.protocol = protocol.unwrap_or(header.protocol);
                (header.fragment_offset, header.more_fragments) = (offset, more);
                (header.id, header.dont_fragment) = (id as u16, false);
            }
            Layer::Ipv6(header) => {
                header.protocol = protocol.unwrap_or(header.protocol);
                header
                    .extensions
                    .push(Extension::Fragment { offset, more, id });
            }
            _ => {}
        }
    }
}
