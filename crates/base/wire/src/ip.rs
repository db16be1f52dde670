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

/// Sets Congestion Experienced in an IP packet (RFC 3168 section 5). False if it is not IP, truncated, or not
/// of an ECN-capable sender (ECT); it stays unchanged then.
///
/// A packet that already has CE stays unchanged too, and counts as marked. IPv4's header checksum is adjusted by
/// the difference (RFC 1624), so a wrong one stays wrong.
pub fn set_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => set_ce_v4(packet).is_some(),
        Some(6) => set_ce_v6(packet).is_some(),
        _ => false,
    }
}

/// Both bits: CE.
const CE: u8 = 3;
/// Offset of the field in the second byte of an IPv6 header.
const CE_V6_SHIFT: u32 = 4;
/// IPv4's header checksum.
const CHECKSUM_V4: usize = 10;

fn set_ce_v4(packet: &mut [u8]) -> Option<()> {
    let word = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let (before, sum) = (word(0)?, word(CHECKSUM_V4)?);
    if before & u16::from(CE) == 0 {
        return None;
    }
    let after = before | u16::from(CE);
    if after != before {
        let sum = crate::checksum::update(sum, before, after);
        packet[..2].copy_from_slice(&after.to_be_bytes());
        packet[CHECKSUM_V4..CHECKSUM_V4 + 2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}

fn set_ce_v6(packet: &mut [u8]) -> Option<()> {
    let field = packet.get_mut(1)?;
    if *field & (CE << CE_V6_SHIFT) == 0 {
        return None;
    }
    *field |= CE << CE_V6_SHIFT;
    Some(())
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Frame, ipv4};

    #[test]
    fn ce_is_set_with_a_right_checksum() {
        for (ecn, is_set) in [(0, false), (1, true), (2, true), (3, true)] {
            let packet = |ecn| {
                let mut header = ipv4::Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
                header.ecn = Ecn::from_bits(ecn);
                Frame::raw().ipv4_header(header).udp(1, 2).build()
            };
            let mut marked = packet(ecn);
            assert_eq!(set_ce(&mut marked), is_set);
            assert_eq!(marked, packet(if is_set { 3 } else { 0 }));
            let short = &mut packet(ecn)[..11];
            assert!(!set_ce(short));
        }
        assert!(!set_ce(&mut []));
        assert!(!set_ce(&mut [0x60]));
        assert!(!set_ce(&mut [0xff; 40]), "no IP");
    }
}
