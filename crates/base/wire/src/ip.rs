//! Common parts of IPv4 and IPv6: protocol numbers, DSCP and ECN, the pseudo-header.

use std::net::IpAddr;

use crate::checksum::Sum;

/// The protocol of the payload of IP (IANA, "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProto(pub u8);

impl IpProto {
    /// Hop-by-hop options of IPv6.
    pub const HOP_BY_HOP: IpProto = IpProto(0);
    /// ICMP for IPv4.
    pub const ICMP: IpProto = IpProto(1);
    /// IPv4 in IP.
    pub const IPV4: IpProto = IpProto(4);
    /// TCP.
    pub const TCP: IpProto = IpProto(6);
    /// UDP.
    pub const UDP: IpProto = IpProto(17);
    /// IPv6 in IP.
    pub const IPV6: IpProto = IpProto(41);
    /// Routing header of IPv6.
    pub const ROUTING: IpProto = IpProto(43);
    /// Fragment header of IPv6.
    pub const FRAGMENT: IpProto = IpProto(44);
    /// Authentication header.
    pub const AUTH: IpProto = IpProto(51);
    /// ICMP for IPv6.
    pub const ICMPV6: IpProto = IpProto(58);
    /// Nothing follows (IPv6).
    pub const NO_NEXT: IpProto = IpProto(59);
    /// Destination options of IPv6.
    pub const DESTINATION_OPTIONS: IpProto = IpProto(60);
    /// Local experiments (RFC 3692).
    pub const EXPERIMENT: IpProto = IpProto(253);
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotCapable,
    /// Capable, code point ECT(1): low-latency traffic (RFC 9331).
    Capable1,
    /// Capable, code point ECT(0).
    Capable0,
    /// Congestion was met.
    Congested,
}

impl Ecn {
    /// From the low two bits of the traffic class.
    pub fn from_bits(bits: u8) -> Ecn {
        [
            Ecn::NotCapable,
            Ecn::Capable1,
            Ecn::Capable0,
            Ecn::Congested,
        ][usize::from(bits & 3)]
    }

    /// The low two bits of the traffic class.
    pub fn bits(self) -> u8 {
        self as u8
    }
}

/// The checksum's share of what IP says about a transport packet (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub fn pseudo_header(src: IpAddr, dst: IpAddr, proto: IpProto, len: usize) -> Sum {
    [src, dst]
        .into_iter()
        .fold(Sum::new(), |sum, addr| match addr {
            IpAddr::V4(addr) => sum.bytes(&addr.octets()),
            IpAddr::V6(addr) => sum.bytes(&addr.octets()),
        })
        .u32(u32::from(proto.0))
        .u32(u32::try_from(len).unwrap_or(u32::MAX))
}
