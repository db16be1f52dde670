//! Values that packets and rules share, so that rules match often.

#![expect(
    missing_docs,
    reason = "names of protocols and fields describe themselves"
)]

/// The interface inside.
pub const IN: &str = "in0";

/// Addresses of Ethernet: `in0`, the other end, and hosts that no frame comes from.
pub const IN_MAC: [u8; 6] = [0x02, 0xfa, 0x10, 0, 0, 1];
pub const OUT_MAC: [u8; 6] = [0x02, 0xfa, 0x20, 0, 0, 2];
pub const MACS: [[u8; 6]; 6] = [
    IN_MAC,
    OUT_MAC,
    [0x02, 0xfa, 0x20, 0, 0, 3],
    [0x00, 0x11, 0x22, 0x33, 0x44, 0x55],
    [0x00, 0x11, 0x33, 0x33, 0x44, 0x66],
    [0xff; 6],
];

/// The address of `in0`, and the last byte of its network's broadcast address.
pub const OWN4: [u8; 4] = [192, 0, 2, 1];
pub const OWN4_PREFIX: u8 = 24;
/// Sources that are accepted for `in0`.
pub const HOSTS4: [[u8; 4]; 7] = [
    [192, 0, 2, 2],
    [192, 0, 2, 9],
    [192, 0, 2, 200],
    [198, 51, 100, 1],
    [198, 51, 100, 77],
    [10, 1, 2, 3],
    [10, 1, 3, 3],
];
/// Other addresses, also of kinds that no host sends from.
pub const ODD4: [[u8; 4]; 7] = [
    OWN4,
    [192, 0, 2, 255],
    [203, 0, 113, 255],
    [224, 0, 0, 1],
    [255, 255, 255, 255],
    [0, 0, 0, 0],
    [127, 0, 0, 1],
];
/// Destinations in front of the INPUT chains: the own address and broadcasts.
pub const LOCAL4: [[u8; 4]; 4] = [OWN4, OWN4, [192, 0, 2, 255], [255, 255, 255, 255]];

pub const OWN6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
pub const OWN6_PREFIX: u8 = 64;
pub const HOSTS6: [[u16; 8]; 6] = [
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2],
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x102],
    [0x2001, 0xdb8, 0, 1, 0, 0, 0, 2],
    [0x2001, 0xdb9, 0, 0, 0, 0, 0, 1],
    [0xfe80, 0, 0, 0, 0, 0, 0, 2],
    [0xfd00, 0, 0, 7, 0, 0, 0, 9],
];
/// Destinations that are no host's.
pub const ODD6: [[u16; 8]; 4] = [
    OWN6,
    [0xff02, 0, 0, 0, 0, 0, 0, 1],
    [0xff05, 0, 0, 0, 0, 0, 0, 2],
    [0, 0, 0, 0, 0, 0xffff, 0xc000, 0x201],
];
/// Destinations in front of the INPUT chains: the own address and the link's nodes.
pub const LOCAL6: [[u16; 8]; 2] = [OWN6, [0xff02, 0, 0, 0, 0, 0, 0, 1]];

pub const PORTS: [u16; 10] = [0, 1, 22, 53, 80, 81, 443, 1024, 5000, 65535];

pub const TTLS: [u8; 6] = [0, 1, 63, 64, 128, 255];

/// Type of service and traffic class, with each value of the congestion bits.
pub const TOS: [u8; 9] = [0x00, 0x01, 0x02, 0x03, 0x10, 0x28, 0x2a, 0xb8, 0xfc];

/// Security parameter indices, and identifications of IPv6 fragments.
pub const NUMBERS: [u32; 6] = [0, 1, 256, 500, 0x1234_5678, u32::MAX];

pub const ICMP: [(u8, u8); 9] = [
    (0, 0),
    (3, 1),
    (3, 3),
    (3, 4),
    (5, 1),
    (8, 0),
    (8, 7),
    (11, 0),
    (255, 255),
];
pub const ICMP6: [(u8, u8); 9] = [
    (1, 0),
    (1, 4),
    (2, 0),
    (3, 1),
    (128, 0),
    (129, 0),
    (135, 0),
    (136, 0),
    (255, 255),
];

/// Options of TCP and DCCP.
pub const OPTIONS: [u8; 7] = [1, 2, 3, 4, 5, 8, 30];

/// Options of the hop-by-hop and destination headers which the kernel skips if it does not know them.
pub const OPTIONS6: [u8; 4] = [1, 5, 0x1e, 0x3e];

/// A kind of packet that half of a seed's packets and rules have, so that rare ones meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    Tcp,
    Udp,
    Icmp,
    Sctp,
    Dccp,
    Ah,
    Esp,
    /// Extension headers of IPv6; nothing else has a focus of this kind.
    Extensions,
}

impl Focus {
    pub fn of(seed: u64) -> Focus {
        use Focus::{Ah, Dccp, Esp, Extensions, Icmp, Sctp, Tcp, Udp};
        let all = [
            Tcp, Extensions, Sctp, Udp, Dccp, Icmp, Extensions, Ah, Tcp, Esp,
        ];
        all[(seed % all.len() as u64) as usize]
    }
}
