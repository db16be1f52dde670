//! UDP headers (RFC 768).

use crate::fields::{ParseError, array, be16, split};

/// Length of the header.
pub const HEADER_BYTES: usize = 8;

/// Offset of the checksum in the header.
pub(crate) const CHECKSUM_AT: usize = 6;

/// A UDP header; its length is computed, its checksum by [`Frame`](crate::Frame).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sender's port.
    pub src_port: u16,
    /// Receiver's port.
    pub dst_port: u16,
    /// Leave the checksum 0, which means none: allowed over IPv4, and over IPv6 for tunnels (RFC 6936).
    pub no_checksum: bool,
}

impl Header {
    /// Appends the header for a payload of `payload_len` bytes, its checksum 0; past 65,535 its length is 0.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        out.extend(self.src_port.to_be_bytes());
        out.extend(self.dst_port.to_be_bytes());
        out.extend(
            u16::try_from(HEADER_BYTES + payload_len)
                .unwrap_or(0)
                .to_be_bytes(),
        );
        out.extend([0; 2]);
    }

    /// The header, and the payload. Only the presence of the checksum is checked.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (fields, rest) = array::<HEADER_BYTES>("udp", bytes)?;
        let payload = match usize::from(be16(fields, 4)) {
            0 => rest,
            len @ 1..HEADER_BYTES => {
                return Err(ParseError::Field {
                    header: "udp",
                    field: "length",
                    value: len as u32,
                });
            }
            len => split("udp", rest, len - HEADER_BYTES)?.0,
        };
        let header = Header {
            src_port: be16(fields, 0),
            dst_port: be16(fields, 2),
            no_checksum: be16(fields, CHECKSUM_AT) == 0,
        };
        Ok((header, payload))
    }
}
