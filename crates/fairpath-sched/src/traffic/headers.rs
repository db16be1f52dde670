//! What a scheduler sees of a captured packet: addresses, ports, protocol, DSCP, ECN.
//!
//! Works on packets that were cut short: what is not there is 0. Never panics, whatever the bytes.
//! Link types, tags and PPPoE as the rest of Fairpath knows them; extension headers of IPv6 are
//! stepped over, fragments but the first have no ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_core::sched::Meta;
use fairpath_wire::capture::LinkType;

/// VLAN tags that are stepped over at most, as in the packet path.
const MAX_TAGS: usize = 4;
/// Extension headers likewise.
const MAX_EXTENSIONS: usize = 8;

/// Headers of a packet, and the VLAN it came with.
pub(super) struct Headers {
    /// All but time, length, class and hint.
    pub meta: Meta,
    pub vlan: Option<u16>,
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}

/// The headers of a packet that is IP; `None` for others and for link types that are unknown.
pub(super) fn read(link: LinkType, data: &[u8]) -> Option<Headers> {
    let (offset, ether_type) = match link.canonical() {
        LinkType::ETHERNET => (14, word(data, 12)?),
        LinkType::LINUX_SLL => (16, word(data, 14)?),
        LinkType::LINUX_SLL2 => (20, word(data, 0)?),
        LinkType::PPP_ETHER => (0, PPPOE_SESSION),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => (0, 0),
        LinkType::NULL | LinkType::LOOP => (4, 0),
        _ => return None,
    };
    let (at, vlan) = to_ip(data, offset, ether_type)?;
    let meta = match data.get(at)? >> 4 {
        4 => ipv4(data.get(at..)?),
        6 => ipv6(data.get(at..)?),
        _ => None,
    }?;
    Some(Headers {
        meta: meta.with_flow_hash(),
        vlan,
    })
}

const PPPOE_SESSION: u16 = 0x8864;

/// Where IP begins, and the outermost VLAN. An ethertype of 0 stands for IP by its first nibble.
fn to_ip(data: &[u8], mut at: usize, mut ether_type: u16) -> Option<(usize, Option<u16>)> {
    let mut vlan = None;
    for _ in 0..MAX_TAGS {
        if !matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        vlan = vlan.or(Some(word(data, at)? & 0xfff));
        ether_type = word(data, at + 2)?;
        at += 4;
    }
    match ether_type {
        0 | 0x0800 | 0x86dd => Some((at, vlan)),
        PPPOE_SESSION => matches!(word(data, at + 6)?, 0x0021 | 0x0057).then_some((at + 8, vlan)),
        _ => None,
    }
}

fn ipv4(ip: &[u8]) -> Option<Meta> {
    let header = usize::from(*ip.first()? & 15) * 4;
    let address = |at: usize| {
        Some(Ipv4Addr::from(
            <[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?,
        ))
    };
    let protocol = *ip.get(9)?;
    let meta = Meta {
        protocol,
        dscp: ip[1] >> 2,
        ecn: ip[1] & 3,
        ..Meta::default()
    };
    let meta = meta.between(IpAddr::V4(address(12)?), IpAddr::V4(address(16)?));
    let first = word(ip, 6)? & 0x1fff == 0;
    Some(with_ports(meta, ip.get(header.max(20)..).filter(|_| first)))
}

fn ipv6(ip: &[u8]) -> Option<Meta> {
    let address = |at: usize| {
        Some(Ipv6Addr::from(
            <[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?,
        ))
    };
    let class = (word(ip, 0)? >> 4) as u8;
    let meta = Meta {
        dscp: class >> 2,
        ecn: class & 3,
        ..Meta::default()
    };
    let meta = meta.between(IpAddr::V6(address(8)?), IpAddr::V6(address(24)?));
    let (mut protocol, mut at) = (*ip.get(6)?, 40);
    for _ in 0..MAX_EXTENSIONS {
        let length = match protocol {
            0 | 43 | 60 | 135 => ip.get(at + 1).map(|words| (usize::from(*words) + 1) * 8),
            44 => Some(8),
            _ => break,
        };
        let later = protocol == 44 && word(ip, at + 2).is_some_and(|word| word & 0xfff8 != 0);
        let (Some(length), Some(next)) = (length, ip.get(at)) else {
            break;
        };
        (protocol, at) = (*next, at + length);
        if later {
            return Some(Meta { protocol, ..meta });
        }
    }
    Some(with_ports(Meta { protocol, ..meta }, ip.get(at..)))
}

fn with_ports(mut meta: Meta, payload: Option<&[u8]>) -> Meta {
    const TCP_UDP_DCCP_SCTP_UDPLITE: [u8; 5] = [6, 17, 33, 132, 136];
    if let Some(payload) = payload.filter(|_| TCP_UDP_DCCP_SCTP_UDPLITE.contains(&meta.protocol)) {
        meta.source_port = word(payload, 0).unwrap_or(0);
        meta.destination_port = word(payload, 2).unwrap_or(0);
    }
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Random;

    const UDP4: [u8; 46] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 7, 0x08, 0, // VLAN 7
        0x45, 0xb9, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100,
        2, // EF, ECT(1)
        0x30, 0x39, 0, 53, 0, 8, 0, 0,
    ];

    #[test]
    fn a_tagged_udp_packet_gives_all_its_headers() {
        let headers = read(LinkType::ETHERNET, &UDP4).unwrap();
        let meta = headers.meta;
        assert_eq!(headers.vlan, Some(7));
        assert_eq!((meta.dscp, meta.ecn, meta.protocol), (46, 1, 17));
        assert_eq!((meta.source_port, meta.destination_port), (12345, 53));
        assert_eq!(meta.source_ip().to_string(), "192.0.2.1");
        assert_eq!(meta.destination_ip().to_string(), "198.51.100.2");
        assert_ne!(meta.flow_hash, 0);
        let raw = read(LinkType::RAW, &UDP4[18..]).unwrap().meta;
        assert_eq!(raw, meta);
    }

    #[test]
    fn ipv6_extensions_are_stepped_over_and_later_fragments_have_no_ports() {
        let mut packet = vec![0x6b, 0x90, 0, 0, 0, 24, 44, 64];
        packet.extend([0; 15].into_iter().chain([1]).chain([0; 15]).chain([2]));
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0]); // fragment, the first; hop-by-hop follows
        packet.extend([6, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0, 80, 1, 187, 0, 0, 0, 0]);
        let meta = read(LinkType::IPV6, &packet).unwrap().meta;
        assert_eq!(
            (meta.protocol, meta.source_port, meta.destination_port),
            (6, 80, 443)
        );
        assert_eq!((meta.dscp, meta.ecn), (46, 1));
        packet[43] = 8;
        let meta = read(LinkType::IPV6, &packet).unwrap().meta;
        assert_eq!((meta.source_port, meta.destination_port), (0, 0));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut random = Random::new(7);
        let links = [0, 1, 9, 51, 101, 108, 113, 228, 229, 276, 999];
        for _ in 0..100_000 {
            let mut bytes = UDP4.to_vec();
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.draw() as u8;
            }
            bytes.truncate(random.below(47) as usize);
            let link = links[random.below(links.len() as u64) as usize];
            let _ = read(LinkType(link), &bytes);
        }
    }
}
