//! IP packets to Ethernet frames with VLAN tags and a PPPoE session header, and back.
//!
//! ```text
//! dst src | TPID TCI … (0 to 4) | 0x8864 | 11 00 session length | PPP protocol | IP packet
//! ```
//!
//! PPPoE session: RFC 2516 section 4; PPP protocol numbers: RFC 1661, RFC 5072 section 3. There is no
//! discovery stage and no LCP: both ends agree by configuration.

use crate::link::Mac;

/// Most VLAN tags on a frame.
pub const MAX_VLAN_TAGS: usize = 4;

const MAC_LEN: usize = 12;
const TAG_LEN: usize = 4;
const PPPOE_LEN: usize = 8;
/// PPPoE version 1, type 1, code 0 (session data).
const PPPOE_START: [u8; 2] = [0x11, 0x00];

const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
const ETH_PPPOE_SESSION: u16 = 0x8864;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// Kind of a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tpid {
    /// 802.1Q, 0x8100.
    Dot1q,
    /// 802.1ad, 0x88a8.
    Dot1ad,
}

impl Tpid {
    fn number(self) -> u16 {
        match self {
            Tpid::Dot1q => 0x8100,
            Tpid::Dot1ad => 0x88a8,
        }
    }
}

/// A VLAN tag; priority is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Kind of the tag.
    pub tpid: Tpid,
    /// VLAN identifier, 1 to 4094.
    pub vid: u16,
}

/// The encapsulation of an IP packet; both ends of a tunnel use the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encap {
    tags: Vec<VlanTag>,
    pppoe_session: Option<u16>,
}

impl Encap {
    /// Plain Ethernet: no tag, no PPPoE.
    pub fn plain() -> Encap {
        Encap::default()
    }

    /// Adds an inner tag.
    ///
    /// # Panics
    ///
    /// If there are [`MAX_VLAN_TAGS`] already or `vid` is above 4095.
    #[must_use]
    pub fn vlan(mut self, tpid: Tpid, vid: u16) -> Encap {
        assert!(
            self.tags.len() < MAX_VLAN_TAGS,
            "at most {MAX_VLAN_TAGS} VLAN tags"
        );
        assert!(vid < 4096, "a VLAN identifier has 12 bits");
        self.tags.push(VlanTag { tpid, vid });
        self
    }

    /// Puts the packets in a PPPoE session.
    #[must_use]
    pub fn pppoe(mut self, session: u16) -> Encap {
        self.pppoe_session = Some(session);
        self
    }

    /// Bytes between the Ethernet addresses and type and the IP packet: what the MTU grows by.
    pub fn overhead(&self) -> u32 {
        let pppoe = if self.pppoe_session.is_some() {
            PPPOE_LEN
        } else {
            0
        };
        (self.tags.len() * TAG_LEN + pppoe) as u32
    }

    /// Writes the frame for `packet` into `frame`; `None` if the packet is neither IPv4 nor IPv6.
    pub(super) fn wrap(
        &self,
        (dst, src): (Mac, Mac),
        packet: &[u8],
        frame: &mut Vec<u8>,
    ) -> Option<()> {
        let (ethertype, ppp) = match packet.first()? >> 4 {
            4 => (ETH_IPV4, PPP_IPV4),
            6 => (ETH_IPV6, PPP_IPV6),
            _ => return None,
        };
        frame.clear();
        frame.extend_from_slice(&dst.0);
        frame.extend_from_slice(&src.0);
        for tag in &self.tags {
            frame.extend_from_slice(&tag.tpid.number().to_be_bytes());
            frame.extend_from_slice(&tag.vid.to_be_bytes());
        }
        match self.pppoe_session {
            None => frame.extend_from_slice(&ethertype.to_be_bytes()),
            Some(session) => {
                let length = u16::try_from(packet.len() + 2).ok()?;
                frame.extend_from_slice(&ETH_PPPOE_SESSION.to_be_bytes());
                frame.extend_from_slice(&PPPOE_START);
                for field in [session, length, ppp] {
                    frame.extend_from_slice(&field.to_be_bytes());
                }
            }
        }
        frame.extend_from_slice(packet);
        Some(())
    }

    /// The IP packet in `frame`; `None` if tags, session or type are not this encapsulation's.
    ///
    /// The priority of a tag is not compared. Padding after a PPPoE payload is removed; padding after
    /// a bare IP packet is left to the IP length, as usual.
    pub(super) fn unwrap<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = frame.get(MAC_LEN..)?;
        for tag in &self.tags {
            let (tpid, tci) = (take_u16(&mut rest)?, take_u16(&mut rest)?);
            if tpid != tag.tpid.number() || tci & 0x0fff != tag.vid {
                return None;
            }
        }
        let ethertype = take_u16(&mut rest)?;
        let Some(session) = self.pppoe_session else {
            return matches!(ethertype, ETH_IPV4 | ETH_IPV6).then_some(rest);
        };
        let rest_of_session = rest.strip_prefix(&PPPOE_START)?;
        rest = rest_of_session;
        if ethertype != ETH_PPPOE_SESSION || take_u16(&mut rest)? != session {
            return None;
        }
        let length = usize::from(take_u16(&mut rest)?);
        let known = matches!(take_u16(&mut rest)?, PPP_IPV4 | PPP_IPV6);
        known.then(|| rest.get(..length.checked_sub(2)?)).flatten()
    }
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (head, tail) = rest.split_first_chunk::<2>()?;
    *rest = tail;
    Some(u16::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: (Mac, Mac) = (Mac([1; 6]), Mac([2; 6]));

    fn wrapped(encap: &Encap, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        encap.wrap(MACS, packet, &mut frame).unwrap();
        frame
    }

    #[test]
    fn qinq_pppoe_has_the_bytes_of_the_standards() {
        let encap = Encap::plain()
            .vlan(Tpid::Dot1ad, 100)
            .vlan(Tpid::Dot1q, 7)
            .pppoe(0x1234);
        let frame = wrapped(&encap, &[0x45, 0xaa]);
        let expected = [
            0x88, 0xa8, 0, 100, 0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0x12, 0x34, 0, 4, 0, 0x21,
            0x45, 0xaa,
        ];
        assert_eq!(frame[MAC_LEN..], expected);
        assert_eq!(encap.overhead() as usize + MAC_LEN + 2 + 2, frame.len());
    }

    #[test]
    fn unwrap_undoes_wrap_for_any_number_of_tags() {
        let mut encap = Encap::plain();
        for tags in 0..=MAX_VLAN_TAGS {
            for encap in [encap.clone(), encap.clone().pppoe(9)] {
                for packet in [[0x45, 1, 2], [0x60, 1, 2]] {
                    assert_eq!(encap.unwrap(&wrapped(&encap, &packet)), Some(&packet[..]));
                }
            }
            if tags < MAX_VLAN_TAGS {
                encap = encap.vlan(Tpid::Dot1q, tags as u16 + 1);
            }
        }
    }

    #[test]
    fn padding_after_a_pppoe_payload_is_removed() {
        let encap = Encap::plain().pppoe(1);
        let mut frame = wrapped(&encap, &[0x45, 1]);
        frame.extend_from_slice(&[0; 20]);
        assert_eq!(encap.unwrap(&frame), Some(&[0x45, 1][..]));
    }

    #[test]
    fn unknown_and_truncated_frames_are_refused() {
        let encap = Encap::plain().vlan(Tpid::Dot1q, 5).pppoe(1);
        let frame = wrapped(&encap, &[0x45, 1]);
        for other in [
            Encap::plain(),
            Encap::plain().vlan(Tpid::Dot1q, 5),
            Encap::plain().vlan(Tpid::Dot1q, 6).pppoe(1),
            Encap::plain().vlan(Tpid::Dot1ad, 5).pppoe(1),
            Encap::plain().vlan(Tpid::Dot1q, 5).pppoe(2),
        ] {
            assert_eq!(other.unwrap(&frame), None);
        }
        for len in 0..frame.len() {
            assert_eq!(encap.unwrap(&frame[..len]), None);
        }
    }

    #[test]
    fn packet_that_is_not_ip_is_not_wrapped() {
        assert_eq!(Encap::plain().wrap(MACS, &[0x15], &mut Vec::new()), None);
        assert_eq!(Encap::plain().wrap(MACS, &[], &mut Vec::new()), None);
    }
}
