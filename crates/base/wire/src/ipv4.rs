//! IPv4 headers (RFC 791 section 3.1).

use std::net::Ipv4Addr;

use crate::checksum::checksum;
use crate::fields::{ParseError, array, be16, split};
use crate::ip::{Ecn, IpProto};

/// Length without options.
pub const HEADER_BYTES: usize = 20;

/// The most bytes of options: the header's length field ends at 60.
pub const MAX_OPTION_BYTES: usize = 40;

/// The default of Linux (`net.ipv4.ip_default_ttl`).
pub const DEFAULT_TTL: u8 = 64;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const CHECKSUM_AT: usize = 10;

/// An IPv4 header; lengths and the checksum are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sender.
    pub src: Ipv4Addr,
    /// Receiver.
    pub dst: Ipv4Addr,
    /// The protocol of the payload.
    pub protocol: IpProto,
    /// Hops left.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// Which fragments belong together.
    pub id: u16,
    /// No router may fragment it.
    pub dont_fragment: bool,
    /// Not the last fragment.
    pub more_fragments: bool,
    /// Where this fragment begins, in units of 8 bytes, 0 to 8,191.
    pub fragment_offset: u16,
    /// Options as bytes; padded to 4, cut after [`MAX_OPTION_BYTES`].
    pub options: Vec<u8>,
}

impl Header {
    /// The header of an ordinary host: TTL 64, no fragmentation, no options.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Header {
        Header {
            src,
            dst,
            protocol: IpProto::EXPERIMENT,
            ttl: DEFAULT_TTL,
            dscp: 0,
            ecn: Ecn::NotCapable,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: Vec::new(),
        }
    }

    /// Length in bytes, options included.
    pub fn header_len(&self) -> usize {
        HEADER_BYTES + self.options.len().min(MAX_OPTION_BYTES).next_multiple_of(4)
    }

    /// Appends the header for a payload of `payload_len` bytes, with its checksum.
    ///
    /// A packet past 65,535 bytes has total length 0, as Linux writes its GSO packets (TSO, BIG TCP).
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        let header_len = self.header_len();
        let flag = |set, bit| if set { bit } else { 0 };
        let fragment = flag(self.dont_fragment, DONT_FRAGMENT)
            | flag(self.more_fragments, MORE_FRAGMENTS)
            | self.fragment_offset & FRAGMENT_OFFSET;
        out.extend([
            0x40 | (header_len / 4) as u8,
            self.dscp << 2 | self.ecn.bits(),
        ]);
        out.extend(
            u16::try_from(header_len + payload_len)
                .unwrap_or(0)
                .to_be_bytes(),
        );
        out.extend(self.id.to_be_bytes());
        out.extend(fragment.to_be_bytes());
        out.extend([self.ttl, self.protocol.0, 0, 0]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
        out.extend(self.options.iter().take(MAX_OPTION_BYTES));
        out.resize(begin + header_len, 0);
        let sum = checksum(&out[begin..]);
        out[begin + CHECKSUM_AT..begin + CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The header, and the payload without what is behind the packet. A wrong checksum is an error.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let wrong = |field, value| ParseError::Field {
            header: "ipv4",
            field,
            value,
        };
        let (fields, _) = array::<HEADER_BYTES>("ipv4", bytes)?;
        let header_len = usize::from(fields[0] & 0x0f) * 4;
        if fields[0] >> 4 != 4 || header_len < HEADER_BYTES {
            return Err(wrong("version and header length", fields[0].into()));
        }
        let total_len = match usize::from(be16(fields, 2)) {
            0 => bytes.len(),
            len if len < header_len => return Err(wrong("total length", len as u32)),
            len => len,
        };
        let (packet, _) = split("ipv4", bytes, total_len)?;
        let (header, payload) = split("ipv4", packet, header_len)?;
        if checksum(header) != 0 {
            return Err(wrong("checksum", be16(fields, CHECKSUM_AT).into()));
        }
        let fragment = be16(fields, 6);
        let addr =
            |at: usize| Ipv4Addr::new(fields[at], fields[at + 1], fields[at + 2], fields[at + 3]);
        let header = Header {
            src: addr(12),
            dst: addr(16),
            protocol: IpProto(fields[9]),
            ttl: fields[8],
            dscp: fields[1] >> 2,
            ecn: Ecn::from_bits(fields[1]),
            id: be16(fields, 4),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: fragment & FRAGMENT_OFFSET,
            options: header[HEADER_BYTES..].to_vec(),
        };
        Ok((header, payload))
    }
}
