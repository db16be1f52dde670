//! Counts of classes (`struct fp_class_counts` and related structures in `abi.h`).
//!
//! A class has a slot. Its counters only grow (and wrap), so readers compute differences. Slot
//! [`OTHER`] counts packets without a class. Round-trip times are counted in cells (class, leg,
//! bucket), and peers of a class in pairs. Each reading empties both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The slot of packets and samples without a class.
pub const OTHER: u32 = 0;
/// Maximum of slots of a monitor: a hundred thousand classes, interfaces and subnets.
pub const MAX_SLOTS: u32 = 1 << 17;

/// Index of packets from the class's hosts, in [`ClassCounts::dir`].
pub const UP: usize = 0;
/// Index of packets to them.
pub const DOWN: usize = 1;
/// Index of the leg between this router and the class's hosts, in [`ClassCounts::leg`].
pub const INSIDE: usize = 0;
/// Index of the leg between this router and the remote hosts.
pub const OUTSIDE: usize = 1;

/// One direction of a class. Packets are wire packets (a GSO packet counts its segments),
/// bytes are those of IP packets with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DirCounts {
    /// All IP packets.
    pub packets: u64,
    /// All IP bytes.
    pub bytes: u64,
    /// Bytes of packets whose flow gave no RTT so far: other protocols, one-sided flows.
    pub unmeasured_bytes: u64,
    /// TCP segments with data; reported with a sample, a hole or the end of the flow.
    pub data_packets: u32,
    /// Sent again although observed here: lost downstream (minus the spurious ones).
    pub retransmitted_packets: u32,
    /// Holes that a retransmission filled: lost upstream.
    pub upstream_lost_packets: u32,
    /// Retransmitted unnecessarily.
    pub spurious_packets: u32,
    /// Arrived late, but were not retransmitted.
    pub reordered_packets: u32,
    /// Always 0.
    pub zero: u32,
}

/// One leg of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LegCounts {
    /// Measured round-trip times.
    pub samples: u32,
    /// Those without a free cell: in `samples` and `sum_ns`, not in the histogram.
    pub unbinned: u32,
    /// Their sum.
    pub sum_ns: u64,
}

/// All counters of a class (`struct fp_class_counts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClassCounts {
    /// [`UP`] and [`DOWN`].
    pub dir: [DirCounts; 2],
    /// [`INSIDE`] and [`OUTSIDE`].
    pub leg: [LegCounts; 2],
    /// Flows of which both sides were seen.
    pub flows_opened: u32,
    /// Of those, how many ended.
    pub flows_closed: u32,
    /// Handshakes that were reset, or not completed.
    pub handshakes_failed: u32,
    /// Flows that ended with only one side seen.
    pub one_sided: u32,
}

/// The number of round-trip times in one bucket since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Of the class.
    pub slot: u32,
    /// [`INSIDE`] or [`OUTSIDE`].
    pub leg: u8,
    /// As in `fairpath_core::bucket_of`.
    pub bucket: u16,
    /// Samples.
    pub count: u32,
}

/// The kind of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PairKind {
    /// A class and a remote prefix.
    Remote,
    /// A class and a label of remote prefixes; the label's number is [`Pair::label`].
    Label,
    /// A class and one of its hosts.
    Talker,
    /// No class: the subnet of an unmatched endpoint ([`Pair::slot`] is [`OTHER`]).
    Unmatched,
}

/// Traffic between a class and a remote prefix, or of one of its hosts, since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Of the class.
    pub slot: u32,
    /// Its kind.
    pub kind: PairKind,
    /// The masked address; unspecified for a label.
    pub address: IpAddr,
    /// Of `address`.
    pub prefix_len: u8,
    /// For [`PairKind::Label`].
    pub label: u32,
    /// Sent by the class's hosts.
    pub bytes_up: u64,
    /// Sent to them.
    pub bytes_down: u64,
    /// Round-trip times: on the outside leg for remotes and labels, on the inside leg for talkers.
    pub samples: u32,
    /// The largest of them, microseconds.
    pub max_rtt_us: u32,
    /// Their sum.
    pub rtt_sum_ns: u64,
    /// Packets lost on that leg.
    pub lost_packets: u32,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair {
            slot: OTHER,
            kind: PairKind::Remote,
            address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            prefix_len: 0,
            label: 0,
            bytes_up: 0,
            bytes_down: 0,
            samples: 0,
            max_rtt_us: 0,
            rtt_sum_ns: 0,
            lost_packets: 0,
        }
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Bits after `len` are zero.
    pub address: IpAddr,
    /// At most 32 or 128.
    pub len: u8,
}

impl Prefix {
    /// The prefix of `len` bits that contains `address`; a `len` that is too long is reduced.
    pub fn new(address: IpAddr, len: u8) -> Prefix {
        match address {
            IpAddr::V4(v4) => {
                let len = len.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Prefix {
                    address: IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask)),
                    len,
                }
            }
            IpAddr::V6(v6) => {
                let len = len.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Prefix {
                    address: IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask)),
                    len,
                }
            }
        }
    }

    /// True if the prefix contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Prefix::new(address, self.len).address == self.address
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

include!(concat!(env!("OUT_DIR"), "/matches.rs"));

macro_rules! rules {
    ($($number:literal $field:ident ($value:ty) $about:literal;)*) => {
        /// The rules that select a slot for an endpoint of a packet. If several match, the first in
        /// this order wins: mark, MAC, longest prefix, VLAN, DSCP, interface.
        ///
        /// No criterion appears twice in its list. All except prefixes, labels and uplinks are the
        /// lines of `bpf/core/class/matches.h`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Rules {
            $(#[doc = $about] pub $field: Vec<($value, u32)>,)*
            /// The endpoint's address.
            pub prefixes: Vec<(Prefix, u32)>,
            /// Numbers of labels by remote prefix.
            pub labels: Vec<(Prefix, u32)>,
            /// Interfaces whose hosts are remote: marks and DSCPs belong to the other endpoint.
            pub uplinks: Vec<u32>,
        }

        impl Rules {
            /// Calls `each` with the kind of rule, key and slot of every rule that is looked up as
            /// a number.
            pub(crate) fn each_number(&self, mut each: impl FnMut(u32, u64, u32)) {
                $(for (value, slot) in &self.$field {
                    each($number, value.key(), *slot);
                })*
            }
        }
    };
}

for_matches!(rules);

/// A value that the core looks up as a number.
trait Key {
    fn key(&self) -> u64;
}

impl Key for u8 {
    fn key(&self) -> u64 {
        u64::from(*self)
    }
}

impl Key for u16 {
    fn key(&self) -> u64 {
        u64::from(*self)
    }
}

impl Key for u32 {
    fn key(&self) -> u64 {
        u64::from(*self)
    }
}

impl Key for [u8; 6] {
    fn key(&self) -> u64 {
        self.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
    }
}

/// Buckets of a round-trip time histogram: 32 per octave of nanoseconds from 2^13 (8 us) to 2^36
/// (69 s). The middle of a bucket is at most 1.6 % off.
pub const BUCKETS: usize = 23 * 32;
const FIRST_OCTAVE: u32 = 13;
const LAST_OCTAVE: u32 = 35;

/// The bucket of a round-trip time. Times outside of the range use the first or last bucket.
pub fn bucket_of(rtt_ns: u64) -> u16 {
    let rtt = rtt_ns.clamp(1 << FIRST_OCTAVE, (1 << (LAST_OCTAVE + 1)) - 1);
    let octave = 63 - rtt.leading_zeros();
    let step = (rtt >> (octave - 5)) & 31;
    ((octave - FIRST_OCTAVE) * 32) as u16 + step as u16
}

/// The minimum round-trip time of a bucket, nanoseconds; of [`BUCKETS`], the end of the last one.
pub fn bucket_start(bucket: u16) -> u64 {
    let octave = u32::from(bucket) / 32 + FIRST_OCTAVE;
    (1 << octave) + (u64::from(bucket % 32) << (octave - 5))
}

/// The middle of a bucket, nanoseconds.
pub fn bucket_middle(bucket: u16) -> u64 {
    (bucket_start(bucket) + bucket_start(bucket + 1)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_with_bounded_relative_error() {
        for bucket in 0..BUCKETS as u16 {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert_eq!(bucket_of(start), bucket);
            assert_eq!(bucket_of(end - 1), bucket);
            let middle = bucket_middle(bucket) as f64;
            assert!((middle - start as f64) / start as f64 <= 0.016);
            assert!((end as f64 - middle) / middle <= 0.016);
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX) as usize, BUCKETS - 1);
    }

    #[test]
    fn a_prefix_masks_and_contains() {
        let all = Prefix::new("10.1.2.3".parse().unwrap(), 0);
        assert_eq!(all.to_string(), "0.0.0.0/0");
        assert!(all.contains("192.0.2.1".parse().unwrap()));
        assert!(!all.contains("2001:db8::1".parse().unwrap()));
        let net = Prefix::new("2001:db8:1:2::3".parse().unwrap(), 48);
        assert_eq!(net.to_string(), "2001:db8:1::/48");
        assert!(!net.contains("2001:db8:2::1".parse().unwrap()));
    }
}
