//! ICMP messages of both families (RFC 792, RFC 1191, RFC 4443): echo, and the errors that quote a packet.
//!
//! ```text
//! type 1 | code 1 | checksum 2 | identifier and sequence, MTU, or unused 4 | data, or the quoted packet
//! ```

use crate::fields::{ParseError, array, be16, be32};

/// Length of the header.
pub const HEADER_BYTES: usize = 8;

/// Offset of the checksum in the header.
pub(crate) const CHECKSUM_AT: usize = 2;

/// "Fragmentation needed" among the unreachable codes of IPv4 (RFC 1191 section 4).
const CODE_FRAGMENTATION_NEEDED: u8 = 4;

/// Whose numbers a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// ICMP over IPv4.
    V4,
    /// ICMPv6.
    V6,
}

/// The header of a message, of the family that carries it; its checksum is computed by [`Frame`](crate::Frame).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Ping.
    EchoRequest {
        /// Which ping.
        id: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// The answer to a ping.
    EchoReply {
        /// As in the request.
        id: u16,
        /// As in the request.
        seq: u16,
    },
    /// The quoted packet did not arrive; codes differ between the families.
    Unreachable {
        /// Why.
        code: u8,
    },
    /// The quoted packet was too long for a link.
    TooBig {
        /// The MTU of the link, in bytes; IPv4 has 16 bits of it.
        mtu: u32,
    },
    /// The quoted packet ran out of hops (code 0), or its fragments out of time (1).
    TimeExceeded {
        /// Which of the two.
        code: u8,
    },
    /// Any other message.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The four bytes behind the checksum.
        rest: u32,
    },
}

impl Message {
    /// Type, code, and the four bytes behind the checksum.
    fn fields(&self, family: Family) -> (u8, u8, u32) {
        let v4 = family == Family::V4;
        let pick = |if_v4, if_v6| if v4 { if_v4 } else { if_v6 };
        match *self {
            Message::EchoRequest { id, seq } => {
                (pick(8, 128), 0, u32::from(id) << 16 | u32::from(seq))
            }
            Message::EchoReply { id, seq } => {
                (pick(0, 129), 0, u32::from(id) << 16 | u32::from(seq))
            }
            Message::Unreachable { code } => (pick(3, 1), code, 0),
            Message::TooBig { mtu } if v4 => (3, CODE_FRAGMENTATION_NEEDED, mtu & 0xffff),
            Message::TooBig { mtu } => (2, 0, mtu),
            Message::TimeExceeded { code } => (pick(11, 3), code, 0),
            Message::Other { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Appends the header, its checksum 0.
    pub fn emit(&self, family: Family, out: &mut Vec<u8>) {
        let (kind, code, rest) = self.fields(family);
        out.extend([kind, code, 0, 0]);
        out.extend(rest.to_be_bytes());
    }

    /// The message, and its data or the packet it quotes. The checksum is not checked.
    pub fn parse(family: Family, bytes: &[u8]) -> Result<(Message, &[u8]), ParseError> {
        let (fields, data) = array::<HEADER_BYTES>("icmp", bytes)?;
        let (kind, code, rest) = (fields[0], fields[1], be32(fields, 4));
        let (id, seq) = (be16(fields, 4), be16(fields, 6));
        let message = match (family, kind, code) {
            (Family::V4, 8, 0) | (Family::V6, 128, 0) => Message::EchoRequest { id, seq },
            (Family::V4, 0, 0) | (Family::V6, 129, 0) => Message::EchoReply { id, seq },
            (Family::V4, 3, CODE_FRAGMENTATION_NEEDED) | (Family::V6, 2, 0) => {
                Message::TooBig { mtu: rest }
            }
            (Family::V4, 3, _) | (Family::V6, 1, _) if rest == 0 => Message::Unreachable { code },
            (Family::V4, 11, _) | (Family::V6, 3, _) if rest == 0 => Message::TimeExceeded { code },
            _ => Message::Other { kind, code, rest },
        };
        Ok((message, data))
    }
}
