//! PPPoE session headers with the PPP protocol behind them (RFC 2516 section 4, RFC 1661 section 2).
//!
//! ```text
//! version 4 bits | type 4 | code 1 byte | session 2 | length 2 | PPP protocol 2
//! ```

use crate::fields::{ParseError, array, be16, split};

/// Length of the header with the PPP protocol.
pub const HEADER_BYTES: usize = 8;
const PROTOCOL_BYTES: usize = 2;

/// Version 1, type 1: the only ones.
const VERSION_AND_TYPE: u8 = 0x11;

/// The protocol of the payload of PPP (IANA, "PPP DLL Protocol Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PppProto(pub u16);

impl PppProto {
    /// IPv4.
    pub const IPV4: PppProto = PppProto(0x0021);
    /// IPv6.
    pub const IPV6: PppProto = PppProto(0x0057);
    /// The link control protocol: echo requests keep a session alive.
    pub const LCP: PppProto = PppProto(0xc021);
}

/// A PPPoE session header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The session, from the access concentrator.
    pub session: u16,
    /// The protocol of the payload.
    pub protocol: PppProto,
}

impl Header {
    /// Appends the 8 bytes; `payload_len` is what follows them, and past 65,533 the length field says 0.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        let len = u16::try_from(payload_len + PROTOCOL_BYTES).unwrap_or(0);
        out.extend([VERSION_AND_TYPE, 0]);
        out.extend(self.session.to_be_bytes());
        out.extend(len.to_be_bytes());
        out.extend(self.protocol.0.to_be_bytes());
    }

    /// The header, and the payload without Ethernet's padding.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (fields, rest) = array::<HEADER_BYTES>("pppoe", bytes)?;
        if fields[..2] != [VERSION_AND_TYPE, 0] {
            let value = be16(fields, 0).into();
            return Err(ParseError::Field {
                header: "pppoe",
                field: "version, type and code",
                value,
            });
        }
        let len = be16(fields, 4);
        let Some(payload_len) = usize::from(len).checked_sub(PROTOCOL_BYTES) else {
            return Err(ParseError::Field {
                header: "pppoe",
                field: "length",
                value: len.into(),
            });
        };
        let (payload, _) = split("pppoe", rest, payload_len)?;
        Ok((
            Header {
                session: be16(fields, 2),
                protocol: PppProto(be16(fields, 6)),
            },
            payload,
        ))
    }
}
