//! Whole frames from layers, with lengths, next-protocol fields and checksums filled in.
//!
//! ```
//! use fairpath_wire::{Frame, MacAddr, tcp};
//! let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
//! let syn = tcp::Header { src_port: 40_000, dst_port: 443, flags: tcp::Flags::SYN, ..Default::default() };
//! let bytes = Frame::ethernet(MacAddr::local(1), MacAddr::local(2)).vlan(10).pppoe(7).ipv4(a, b).tcp(syn).build();
//! assert_eq!(bytes.len(), 14 + 4 + 8 + 20 + 20);
//! ```
//!
//! Layers stand in the order in which they are called, outermost first; any order builds, sensible or not. A layer's
//! field that names the next one is filled in from the layer behind it and kept as given if there is none. For frames
//! that are deliberately wrong, build a right one and change its bytes.

mod layer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::capture::LinkType;
use crate::checksum::Sum;
use crate::ethernet::{self, EtherType, MacAddr};
use crate::icmp::{self, Family};
use crate::ip::pseudo_header;
use crate::pppoe::{self, PppProto};
use crate::{ipv4, ipv6, sll, tcp, udp, vlan};
use layer::Layer;

/// A frame as a list of layers and a payload.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    layers: Vec<Layer>,
    payload: Vec<u8>,
    trailer: Vec<u8>,
    min_len: usize,
}

impl Frame {
    /// A frame on Ethernet.
    pub fn ethernet(src: impl Into<MacAddr>, dst: impl Into<MacAddr>) -> Frame {
        let ethertype = EtherType::EXPERIMENT;
        Frame::default().with(Layer::Ethernet(ethernet::Header {
            dst: dst.into(),
            src: src.into(),
            ethertype,
        }))
    }

    /// A frame with a cooked header, which names its version.
    pub fn sll(header: sll::Header) -> Frame {
        Frame::default().with(Layer::Sll(header))
    }

    /// A packet without a link layer.
    pub fn raw() -> Frame {
        Frame::default()
    }

    /// A frame with a BSD loopback header in little-endian order.
    pub fn null() -> Frame {
        Frame::default().with(Layer::Loopback {
            link: LinkType::NULL,
        })
    }

    /// A frame with an OpenBSD loopback header.
    pub fn loopback() -> Frame {
        Frame::default().with(Layer::Loopback {
            link: LinkType::LOOP,
        })
    }

    /// A PPP frame with its address and control bytes.
    pub fn ppp() -> Frame {
        Frame::default().with(Layer::Ppp)
    }

    /// A customer VLAN tag; the tag outside of another one is given type 0x8100 too, see [`Frame::vlan_tag`].
    pub fn vlan(self, id: u16) -> Frame {
        let tag = vlan::Header {
            priority: 0,
            drop_eligible: false,
            id,
            ethertype: EtherType::EXPERIMENT,
        };
        self.vlan_tag(EtherType::VLAN, tag)
    }

    /// A VLAN tag with the ethertype that announces it.
    pub fn vlan_tag(self, tpid: EtherType, tag: vlan::Header) -> Frame {
        self.with(Layer::Vlan { tpid, tag })
    }

    /// A PPPoE session header; LCP if no IP layer follows.
    pub fn pppoe(self, session: u16) -> Frame {
        self.with(Layer::Pppoe(pppoe::Header {
            session,
            protocol: PppProto::LCP,
        }))
    }

    /// An ordinary IPv4 header.
    pub fn ipv4(self, src: Ipv4Addr, dst: Ipv4Addr) -> Frame {
        self.ipv4_header(ipv4::Header::new(src, dst))
    }

    /// An IPv4 header with options, fragmentation, DSCP or ECN. Checksums behind a fragment cover what is in this frame.
    pub fn ipv4_header(self, header: ipv4::Header) -> Frame {
        self.with(Layer::Ipv4(header))
    }

    /// An ordinary IPv6 header.
    pub fn ipv6(self, src: Ipv6Addr, dst: Ipv6Addr) -> Frame {
        self.ipv6_header(ipv6::Header::new(src, dst))
    }

    /// An IPv6 header with extensions, flow label, DSCP or ECN. Checksums behind a fragment cover what is in this frame.
    pub fn ipv6_header(self, header: ipv6::Header) -> Frame {
        self.with(Layer::Ipv6(header))
    }

    /// A TCP header.
    pub fn tcp(self, header: tcp::Header) -> Frame {
        self.with(Layer::Tcp(header))
    }

    /// A UDP header with a checksum.
    pub fn udp(self, src_port: u16, dst_port: u16) -> Frame {
        self.udp_header(udp::Header {
            src_port,
            dst_port,
            no_checksum: false,
        })
    }

    /// A UDP header.
    pub fn udp_header(self, header: udp::Header) -> Frame {
        self.with(Layer::Udp(header))
    }

    /// An ICMP header of the family of the IP layer before it.
    pub fn icmp(self, message: icmp::Message) -> Frame {
        self.with(Layer::Icmp(message))
    }

    /// The bytes behind the last header.
    pub fn payload(mut self, bytes: &[u8]) -> Frame {
        self.payload = bytes.to_vec();
        self
    }

    /// This number of zero bytes after the last header.
    pub fn zeros(mut self, len: usize) -> Frame {
        self.payload = vec![0; len];
        self
    }

    /// The IP packet of another frame as the payload, as ICMP errors quote it.
    pub fn quote(self, other: &Frame) -> Frame {
        let link_layers = other
            .layers
            .iter()
            .take_while(|layer| !layer.is_ip())
            .count();
        let packet = Frame {
            layers: other.layers[link_layers..].to_vec(),
            payload: other.payload.clone(),
            ..Frame::raw()
        };
        self.payload(&packet.build())
    }

    /// Bytes behind the IP packet that belong to no length: a switch's trailer, a check sequence.
    pub fn trailer(mut self, bytes: &[u8]) -> Frame {
        self.trailer = bytes.to_vec();
        self
    }

    /// Zeros up to Ethernet's shortest frame of 60 bytes, behind the packet and before the trailer.
    pub fn padded(mut self) -> Frame {
        self.min_len = ethernet::MIN_FRAME_BYTES;
        self
    }

    /// The link type of a capture this frame can stand in.
    pub fn link(&self) -> LinkType {
        match self.layers.first() {
            Some(Layer::Ethernet(_)) => LinkType::ETHERNET,
            Some(Layer::Sll(sll::Header {
                version: sll::Version::V1,
                ..
            })) => LinkType::LINUX_SLL,
            Some(Layer::Sll(_)) => LinkType::LINUX_SLL2,
            Some(Layer::Loopback { link }) => *link,
            Some(Layer::Ppp) => LinkType::PPP,
            Some(Layer::Pppoe(_)) => LinkType::PPP_ETHER,
            _ => LinkType::RAW,
        }
    }

    /// The frame's bytes. O(length).
    pub fn build(&self) -> Vec<u8> {
        let lens: Vec<usize> = self.layers.iter().map(Layer::len).collect();
        let mut behind = lens.iter().sum::<usize>() + self.payload.len();
        let mut out = Vec::with_capacity(behind.max(self.min_len) + self.trailer.len());
        for (i, layer) in self.layers.iter().enumerate() {
            behind -= lens[i];
            layer.emit(
                self.enclosing_ip(i),
                self.layers.get(i + 1),
                behind,
                &mut out,
            );
        }
        let transport_at = out.len() - lens.last().copied().unwrap_or(0);
        out.extend_from_slice(&self.payload);
        self.fill_checksum(&mut out, transport_at);
        out.resize(out.len().max(self.min_len), 0);
        out.extend_from_slice(&self.trailer);
        out
    }

    /// The first `snap_len` bytes of the frame, and its length on the wire: what a capture keeps.
    pub fn cut(&self, snap_len: usize) -> (Vec<u8>, u32) {
        let mut bytes = self.build();
        let wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        bytes.truncate(snap_len);
        (bytes, wire_len)
    }

    /// The frame as fragments of its innermost IP packet, each with at most `max_bytes` behind the IP header.
    ///
    /// The transport's checksum is that of the whole packet. `id` identifies the fragments of a packet; `max_bytes` is
    /// rounded down to a multiple of 8, at least 8. A frame without IP stays whole.
    pub fn fragments(&self, max_bytes: usize, id: u32) -> Vec<Frame> {
        let Some(ip_at) = self.layers.iter().rposition(Layer::is_ip) else {
            return vec![self.clone()];
        };
        let header_len: usize = self.layers[..=ip_at].iter().map(Layer::len).sum();
        let whole = Frame {
            trailer: Vec::new(),
            min_len: 0,
            ..self.clone()
        }
        .build();
        let content = &whole[header_len..];
        let step = (max_bytes / 8).max(1) * 8;
        let protocol = self
            .layers
            .get(ip_at + 1)
            .and_then(|next| next.proto(self.layers[ip_at].family()));
        let pieces = content.chunks(step).enumerate().map(|(i, piece)| {
            let at = i * step;
            let more = at + piece.len() < content.len();
            let mut layers = self.layers[..=ip_at].to_vec();
            layers[ip_at].make_fragment(protocol, (at / 8) as u16, more, id);
            Frame {
                layers,
                payload: piece.to_vec(),
                ..self.clone()
            }
        });
        pieces.collect()
    }

    fn with(mut self, layer: Layer) -> Frame {
        self.layers.push(layer);
        self
    }

    fn enclosing_ip(&self, at: usize) -> Option<&Layer> {
        self.layers[..at].iter().rfind(|layer| layer.is_ip())
    }

    /// Fills in the checksum of the last layer, which begins at `at` and ends with the bytes there are.
    fn fill_checksum(&self, out: &mut [u8], at: usize) {
        let Some((last, outer)) = self.layers.split_last() else {
            return;
        };
        let ip = outer.iter().rfind(|layer| layer.is_ip());
        let family = ip.and_then(Layer::family);
        let (offset, covered) = match last {
            Layer::Tcp(_) => (tcp::CHECKSUM_AT, ip),
            Layer::Udp(header) if !header.no_checksum => (udp::CHECKSUM_AT, ip),
            Layer::Icmp(_) => (icmp::CHECKSUM_AT, ip.filter(|_| family == Some(Family::V6))),
            _ => return,
        };
        let proto = last.proto(family).unwrap_or_default();
        let len = out.len() - at;
        let sum = match covered {
            Some(Layer::Ipv4(h)) => pseudo_header(IpAddr::V4(h.src), IpAddr::V4(h.dst), proto, len),
            Some(Layer::Ipv6(h)) => {
                pseudo_header(IpAddr::V6(h.src), IpAddr::V6(h.final_dst()), proto, len)
            }
            _ => Sum::new(),
        };
        let sum = match sum.bytes(&out[at..]).finish() {
            // RFC 768: 0 means none, so a computed 0 is sent as its other form.
            0 if matches!(last, Layer::Udp(_)) => 0xffff,
            sum => sum,
        };
        out[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    }
}
