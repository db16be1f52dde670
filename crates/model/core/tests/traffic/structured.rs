//! Addresses as networks assign them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_core::Frame;
use fairpath_wire::tcp::Flags;

use super::{Flow, Observed, Packet, SECOND, Wrap};

/// A rule that gives the n-th flow its addresses and ports.
pub struct Pattern {
    pub name: &'static str,
    ends: fn(u32) -> [(IpAddr, u16); 2],
}

fn v4(base: [u8; 4], n: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(base)).wrapping_add(n)).into()
}

/// Of 2001:db8::/32: 32 bits that select the /64, and the host.
fn v6(net: u32, host: u64) -> IpAddr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(net) << 64 | u128::from(host)).into()
}

/// The identifier that a network card with this number gives itself (RFC 4291, appendix A).
fn eui64(n: u32) -> u64 {
    0x0211_22ff_fe00_0000 | u64::from(n & 0x00ff_ffff)
}

const SERVER4: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);

fn server6() -> (IpAddr, u16) {
    (v6(0xffff_0000, 1), 443)
}

/// The last 48,000 ports, again and again.
fn port(n: u32) -> u16 {
    (1024 + n % 48_000) as u16
}

pub const PATTERNS: [Pattern; 14] = [
    Pattern {
        name: "sequential hosts",
        ends: |n| [(v4([10, 0, 0, 0], n), 40_000), SERVER4],
    },
    Pattern {
        name: "one busy NAT address with sequential ports",
        ends: |n| [(v4([203, 0, 113, 7], n / 48_000), port(n)), SERVER4],
    },
    Pattern {
        name: "address and port step together",
        ends: |n| [(v4([10, 0, 0, 0], n), port(n)), SERVER4],
    },
    Pattern {
        name: "address and port step together, from 10.0.1.1:1000 on",
        ends: |n| {
            let of = |n: u32| 1 + (n % 250) as u8;
            let host = Ipv4Addr::new(10, of(n / 62_500), of(n / 250), of(n));
            [(host.into(), (1000 + n) as u16), SERVER4]
        },
    },
    Pattern {
        name: "address and port step in opposite directions",
        ends: |n| [(v4([10, 0, 0, 0], n), u16::MAX - port(n)), SERVER4],
    },
    Pattern {
        name: "CGNAT hosts, 64 apart",
        ends: |n| [(v4([100, 64, 0, 0], n * 64), 40_000), SERVER4],
    },
    Pattern {
        name: "CGNAT with blocks of 64 ports for each host",
        ends: |n| {
            [
                (
                    v4([100, 64, 0, 0], n / 8),
                    (1024 + n % 8 + n / 8 % 1000 * 64) as u16,
                ),
                SERVER4,
            ]
        },
    },
    Pattern {
        name: "clients and servers step together",
        ends: |n| {
            [
                (v4([10, 0, 0, 0], n), 40_000),
                (v4([198, 18, 0, 0], n), 443),
            ]
        },
    },
    Pattern {
        name: "a scan of networks",
        ends: |n| {
            [
                (v4([192, 0, 2, 9], 0), 40_000),
                (v4([1, 0, 0, 1], n * 256), 80),
            ]
        },
    },
    Pattern {
        name: "sequential /64s",
        ends: |n| [(v6(n, 1), 40_000), server6()],
    },
    Pattern {
        name: "sequential IPv6 hosts",
        ends: |n| [(v6(7, u64::from(n)), 40_000), server6()],
    },
    Pattern {
        name: "/64 and port step together",
        ends: |n| [(v6(n, 1), port(n)), server6()],
    },
    Pattern {
        name: "EUI-64 hosts of one network",
        ends: |n| [(v6(7, eui64(n)), 40_000), server6()],
    },
    Pattern {
        name: "EUI-64 hosts, /64 and port step together",
        ends: |n| [(v6(n << 8, eui64(n)), port(n)), server6()],
    },
];

impl Pattern {
    /// The `n`-th flow; different for all below 2^18.
    pub fn flow(&self, n: u32) -> Flow {
        let [client, server] = (self.ends)(n);
        Flow {
            address: [client.0, server.0],
            port: [client.1, server.1],
            wrap: Wrap::Raw,
        }
    }

    /// Data of the client of the `n`-th flow, which starts an entry of the flow table.
    pub fn data(&self, n: u32) -> (Frame, Vec<u8>) {
        let packet = Packet {
            flow: 0,
            from: 0,
            seq: 1,
            ack: 1,
            flags: Flags::ACK,
            window: 1000,
            payload: 1,
            ts: None,
        };
        self.flow(n).frame(&Observed {
            at: SECOND + u64::from(n),
            number: u64::from(n) + 1,
            packet,
        })
    }
}
