//! Sets Congestion Experienced in the IP header of a packet (RFC 3168 section 5). Pure.
//!
//! Only for packets of ECN-capable senders (ECT); others stay unchanged.

use fairpath_wire::ip;

use crate::network::{self, Network};

/// Sets CE in the packet of an Ethernet frame. False if it is not IP, truncated, or not ECT.
///
/// A packet that already has CE stays unchanged, and counts as marked.
pub fn set_ce(frame: &mut [u8]) -> bool {
    let version = |at: usize, frame: &[u8]| frame.get(at).map(|byte| byte >> 4);
    match network::find(frame) {
        Some(Network::V4(at)) if version(at, frame) == Some(4) => ip::set_ce(&mut frame[at..]),
        Some(Network::V6(at)) if version(at, frame) == Some(6) => ip::set_ce(&mut frame[at..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use fairpath_wire::ip::Ecn;
    use fairpath_wire::{Frame, ipv4, ipv6};

    use super::*;

    const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

    /// Frames of both families with these two bits, behind that many tags; the field at full width.
    fn frames(ecn: u8, dscp: u8, tags: u16) -> [Vec<u8>; 2] {
        let base = || {
            (0..tags).fold(Frame::ethernet([2; 6], [4; 6]), |frame, id| {
                frame.vlan(id + 1)
            })
        };
        let mut v4 = ipv4::Header::new(A4, A4);
        (v4.dscp, v4.ecn) = (dscp, Ecn::from_bits(ecn));
        let mut v6 = ipv6::Header::new(A6, A6);
        (v6.dscp, v6.ecn) = (dscp, Ecn::from_bits(ecn));
        [
            base().ipv4_header(v4).udp(1, 2).payload(&[7; 9]).build(),
            base().ipv6_header(v6).udp(1, 2).payload(&[7; 9]).build(),
        ]
    }

    #[test]
    fn ect_packets_become_valid_ce_packets() {
        for tags in 0..=4 {
            for dscp in 0..64 {
                for ecn in 1..=3 {
                    let wanted = frames(3, dscp, tags);
                    for (mut frame, wanted) in frames(ecn, dscp, tags).into_iter().zip(wanted) {
                        assert!(set_ce(&mut frame));
                        assert_eq!(frame, wanted, "{ecn} {dscp} {tags}");
                    }
                }
            }
        }
    }

    #[test]
    fn non_ect_packets_stay_unchanged() {
        for frame in frames(0, 46, 1) {
            let mut after = frame.clone();
            assert!(!set_ce(&mut after));
            assert_eq!(after, frame);
        }
        assert!(!set_ce(&mut [0xff; 60]), "no IP");
    }

    #[test]
    fn a_wrong_checksum_stays_equally_wrong() {
        let [mut frame, _] = frames(2, 0, 0);
        frame[24] ^= 0x40;
        let [mut wanted, _] = frames(3, 0, 0);
        wanted[24] ^= 0x40;
        assert!(set_ce(&mut frame));
        let sum = |frame: &[u8]| {
            let words = frame[14..34].chunks(2);
            let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            (sum & 0xffff) + (sum >> 16)
        };
        assert_ne!(sum(&frame), 0xffff);
        assert_eq!(sum(&frame), sum(&wanted));
    }

    #[test]
    fn no_cut_of_a_frame_is_written_beyond() {
        for whole in frames(2, 1, 2) {
            for len in 0..whole.len() {
                set_ce(&mut whole[..len].to_vec());
            }
        }
    }
}
