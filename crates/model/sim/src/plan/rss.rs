//! Receive-side scaling: the CPU of a packet, as a usual network card chooses it.
//!
//! The Toeplitz hash over addresses and ports, with the key of Microsoft's specification, selects an entry of a
//! table. TCP and UDP packets count with their ports, others with their addresses only.

use std::net::IpAddr;

use fairpath_core::sched::Meta;

/// Entries of the table. With more CPUs, some of them get no packet.
pub const RSS_ENTRIES: u32 = 128;

/// The key of "Verifying the RSS Hash Calculation" (Microsoft).
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
/// Addresses of IPv6 and two ports.
const MAX_INPUT: usize = 36;
/// Protocols whose ports count.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The choice among some CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    cpus: u32,
}

impl Rss {
    /// A table that leads to `cpus` CPUs in turn.
    pub fn new(cpus: u32) -> Rss {
        Rss { cpus: cpus.max(1) }
    }

    /// The CPU of a packet.
    pub fn cpu(self, meta: &Meta) -> u32 {
        hash(meta) % RSS_ENTRIES % self.cpus
    }
}

/// The hash of a packet.
fn hash(meta: &Meta) -> u32 {
    let mut input = Vec::with_capacity(MAX_INPUT);
    for ip in [meta.source_ip(), meta.destination_ip()] {
        match ip {
            IpAddr::V4(ip) => input.extend(ip.octets()),
            IpAddr::V6(ip) => input.extend(ip.octets()),
        }
    }
    if [TCP, UDP].contains(&meta.protocol) {
        input.extend(meta.source_port.to_be_bytes());
        input.extend(meta.destination_port.to_be_bytes());
    }
    toeplitz(&input)
}

/// The sum of the parts of the key at each bit that is set. `input` has at most [`MAX_INPUT`] bytes.
fn toeplitz(input: &[u8]) -> u32 {
    let (mut sum, mut rest) = (0, KEY.iter().skip(4));
    let mut window = u32::from_be_bytes([KEY[0], KEY[1], KEY[2], KEY[3]]);
    for byte in input {
        let next = rest.next().copied().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                sum ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(source: &str, destination: &str, ports: [u16; 2], protocol: u8) -> Meta {
        Meta {
            source_port: ports[0],
            destination_port: ports[1],
            protocol,
            ..Meta::default().between(source.parse().unwrap(), destination.parse().unwrap())
        }
    }

    /// The suite of "Verifying the RSS Hash Calculation".
    #[test]
    fn hashes_are_those_of_the_published_suite() {
        let v4 = |protocol| meta("66.9.149.187", "161.142.100.80", [2794, 1766], protocol);
        assert_eq!((hash(&v4(TCP)), hash(&v4(1))), (0x51cc_c178, 0x323e_8fc2));
        let (from, to) = ("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1");
        let v6 = |protocol| meta(from, to, [2794, 1766], protocol);
        assert_eq!((hash(&v6(TCP)), hash(&v6(58))), (0x4020_7d3d, 0x2cc1_8cd5));
    }

    #[test]
    fn flows_spread_over_all_cpus() {
        let rss = Rss::new(8);
        let mut flows = [0; 8];
        for port in 0..8000 {
            flows[rss.cpu(&meta("192.0.2.1", "198.51.100.7", [port, 443], TCP)) as usize] += 1;
        }
        assert!(flows.iter().all(|count| *count > 500), "{flows:?}");
    }
}
