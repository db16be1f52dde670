//! IPv6 headers and their extensions (RFC 8200 sections 3 and 4, RFC 4302 for AH).

use std::net::Ipv6Addr;

use crate::fields::{ParseError, array, be16, be32, split};
use crate::ip::{Ecn, IpProto};

/// Length without extensions.
pub const HEADER_BYTES: usize = 40;

/// The default of Linux (`net.ipv6.conf.*.hop_limit`).
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// The longest extension: its length field counts 255 units of 8 bytes after the first.
pub const MAX_EXTENSION_BYTES: usize = 2048;

/// The most extensions `parse` follows; RFC 8200 names seven.
const MAX_EXTENSIONS: usize = 16;

const FRAGMENT_BYTES: usize = 8;
/// Fixed part of the authentication header, before the check value.
const AUTH_BYTES: usize = 12;
/// The option that fills a length of one byte; longer gaps take the padding option with a length.
const PAD_1: u8 = 0;
const PAD_N: u8 = 1;

/// An extension header; lengths, padding and the chain of next headers are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Options for every hop, as type-length-value bytes; padded with padding options.
    HopByHop(Vec<u8>),
    /// Options for the destination, as type-length-value bytes; padded with padding options.
    DestinationOptions(Vec<u8>),
    /// A source route.
    Routing {
        /// Routing type; 2 is mobile IPv6, 4 segment routing.
        kind: u8,
        /// The number of addresses that are still to be visited.
        segments_left: u8,
        /// The data after the four fixed bytes; padded with zeros.
        data: Vec<u8>,
    },
    /// A piece of a packet.
    Fragment {
        /// Where it begins, in units of 8 bytes, 0 to 8,191.
        offset: u16,
        /// Not the last.
        more: bool,
        /// Which pieces belong together.
        id: u32,
    },
    /// Authentication header.
    Auth {
        /// Security association.
        spi: u32,
        /// Counts up.
        sequence: u32,
        /// Integrity check value; padded with zeros.
        check: Vec<u8>,
    },
}

impl Extension {
    /// Its number in the field before it.
    pub fn proto(&self) -> IpProto {
        match self {
            Extension::HopByHop(_) => IpProto::HOP_BY_HOP,
            Extension::DestinationOptions(_) => IpProto::DESTINATION_OPTIONS,
            Extension::Routing { .. } => IpProto::ROUTING,
            Extension::Fragment { .. } => IpProto::FRAGMENT,
            Extension::Auth { .. } => IpProto::AUTH,
        }
    }

    /// Length in bytes, a multiple of 8.
    pub fn len(&self) -> usize {
        let content = match self {
            Extension::HopByHop(options) | Extension::DestinationOptions(options) => {
                2 + options.len()
            }
            Extension::Routing { data, .. } => 4 + data.len(),
            Extension::Fragment { .. } => FRAGMENT_BYTES,
            Extension::Auth { check, .. } => (AUTH_BYTES + check.len()).min(1024),
        };
        content.next_multiple_of(8).min(MAX_EXTENSION_BYTES)
    }

    /// Never: the shortest has 8 bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends the extension; content past its longest is cut.
    pub fn emit(&self, next: IpProto, out: &mut Vec<u8>) {
        let (begin, len) = (out.len(), self.len());
        let units = (len / 8 - 1) as u8;
        match self {
            Extension::HopByHop(options) | Extension::DestinationOptions(options) => {
                out.extend([next.0, units]);
                out.extend(options);
                match (begin + len).saturating_sub(out.len()) {
                    0 => {}
                    1 => out.push(PAD_1),
                    gap => out.extend([PAD_N, gap as u8 - 2]),
                }
            }
            Extension::Routing {
                kind,
                segments_left,
                data,
            } => {
                out.extend([next.0, units, *kind, *segments_left]);
                out.extend(data);
            }
            Extension::Fragment { offset, more, id } => {
                out.extend([next.0, 0]);
                out.extend((offset << 3 | u16::from(*more)).to_be_bytes());
                out.extend(id.to_be_bytes());
            }
            Extension::Auth {
                spi,
                sequence,
                check,
            } => {
                // RFC 4302 section 2.2: in units of 4 bytes, less two.
                out.extend([next.0, (len / 4 - 2) as u8, 0, 0]);
                out.extend(spi.to_be_bytes());
                out.extend(sequence.to_be_bytes());
                out.extend(check);
            }
        }
        out.resize(begin + len, 0);
    }

    fn is_numbered(proto: IpProto) -> bool {
        matches!(
            proto,
            IpProto::HOP_BY_HOP
                | IpProto::DESTINATION_OPTIONS
                | IpProto::ROUTING
                | IpProto::FRAGMENT
                | IpProto::AUTH
        )
    }

    /// The extension numbered `proto`, what it names as next, and what follows.
    fn parse(proto: IpProto, bytes: &[u8]) -> Result<(Extension, IpProto, &[u8]), ParseError> {
        let header = "ipv6 extension";
        let (fixed, _) = array::<8>(header, bytes)?;
        let len = match proto {
            IpProto::FRAGMENT => FRAGMENT_BYTES,
            IpProto::AUTH => (usize::from(fixed[1]) + 2) * 4,
            _ => (usize::from(fixed[1]) + 1) * 8,
        };
        let (whole, rest) = split(header, bytes, len)?;
        let extension = match proto {
            IpProto::HOP_BY_HOP => Extension::HopByHop(whole[2..].to_vec()),
            IpProto::DESTINATION_OPTIONS => Extension::DestinationOptions(whole[2..].to_vec()),
            IpProto::ROUTING => Extension::Routing {
                kind: whole[2],
                segments_left: whole[3],
                data: whole[4..].to_vec(),
            },
            IpProto::FRAGMENT => Extension::Fragment {
                offset: be16(whole, 2) >> 3,
                more: whole[3] & 1 != 0,
                id: be32(whole, 4),
            },
            _ => {
                let (fields, check) = split(header, whole, AUTH_BYTES)?;
                Extension::Auth {
                    spi: be32(fields, 4),
                    sequence: be32(fields, 8),
                    check: check.to_vec(),
                }
            }
        };
        Ok((extension, IpProto(fixed[0]), rest))
    }
}

/// An IPv6 header with its extensions; lengths are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sender.
    pub src: Ipv6Addr,
    /// Receiver, or the next stop of a source route.
    pub dst: Ipv6Addr,
    /// The protocol after the last extension.
    pub protocol: IpProto,
    /// Hops left.
    pub hop_limit: u8,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// In the order in which they stand.
    pub extensions: Vec<Extension>,
}

impl Header {
    /// The header of an ordinary host: hop limit 64, no extensions.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Header {
        Header {
            src,
            dst,
            protocol: IpProto::EXPERIMENT,
            hop_limit: DEFAULT_HOP_LIMIT,
            dscp: 0,
            ecn: Ecn::NotCapable,
            flow_label: 0,
            extensions: Vec::new(),
        }
    }

    /// Length in bytes, extensions included.
    pub fn header_len(&self) -> usize {
        HEADER_BYTES + self.extensions.iter().map(Extension::len).sum::<usize>()
    }

    /// The receiver that checksums are made for: the end of a source route, if one exists (RFC 8200 section 8.1).
    ///
    /// That is the last address of routing types 0 and 2 and the first of the segment list of type 4 (RFC 8754 section 2).
    pub fn final_dst(&self) -> Ipv6Addr {
        let route = self
            .extensions
            .iter()
            .find_map(|extension| match extension {
                Extension::Routing {
                    kind,
                    segments_left,
                    data,
                } if *segments_left > 0 => Some((*kind, data.get(4..)?)),
                _ => None,
            });
        let address = match route {
            Some((0 | 2, addresses)) => addresses.last_chunk::<16>(),
            Some((4, segments)) => segments.first_chunk::<16>(),
            _ => None,
        };
        address.map_or(self.dst, |bytes| Ipv6Addr::from(*bytes))
    }

    /// Appends the header and its extensions for a payload of `payload_len` bytes.
    ///
    /// A payload past 65,535 bytes has length 0, as Linux writes its GSO packets (TSO, BIG TCP).
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        let class = u32::from(self.dscp << 2 | self.ecn.bits());
        let first_word = 6 << 28 | class << 20 | self.flow_label & 0x000f_ffff;
        let len = self.header_len() - HEADER_BYTES + payload_len;
        let next = |i: usize| {
            self.extensions
                .get(i)
                .map_or(self.protocol, Extension::proto)
        };
        out.extend(first_word.to_be_bytes());
        out.extend(u16::try_from(len).unwrap_or(0).to_be_bytes());
        out.extend([next(0).0, self.hop_limit]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
        for (i, extension) in self.extensions.iter().enumerate() {
            extension.emit(next(i + 1), out);
        }
    }

    /// The header with its extensions, and the payload without what is behind the packet.
    ///
    /// Options come back with their padding. Behind a fragment that is not the first, nothing is followed.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (fields, rest) = array::<HEADER_BYTES>("ipv6", bytes)?;
        let first_word = be32(fields, 0);
        if first_word >> 28 != 6 {
            return Err(ParseError::Field {
                header: "ipv6",
                field: "version",
                value: first_word >> 28,
            });
        }
        let mut payload = match usize::from(be16(fields, 4)) {
            0 => rest,
            len => split("ipv6", rest, len)?.0,
        };
        let addr = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| fields[at + i]));
        let mut header = Header {
            src: addr(8),
            dst: addr(24),
            protocol: IpProto(fields[6]),
            hop_limit: fields[7],
            dscp: (first_word >> 22) as u8 & 0x3f,
            ecn: Ecn::from_bits((first_word >> 20) as u8),
            flow_label: first_word & 0x000f_ffff,
            extensions: Vec::new(),
        };
        while header.extensions.len() < MAX_EXTENSIONS && Extension::is_numbered(header.protocol) {
            let (extension, next, rest) = Extension::parse(header.protocol, payload)?;
            let inside = matches!(extension, Extension::Fragment { offset: 1.., .. });
            (header.protocol, payload) = (next, rest);
            header.extensions.push(extension);
            if inside {
                break;
            }
        }
        Ok((header, payload))
    }
}
