//! TCP headers and options (RFC 9293 section 3.1, RFC 7323, RFC 2018).

use std::ops::BitOr;

use crate::fields::{ParseError, array, be16, be32, split};

/// Length without options.
pub const HEADER_BYTES: usize = 20;

/// The most bytes of options: the header's length field ends at 60.
pub const MAX_OPTION_BYTES: usize = 40;

/// Offset of the checksum in the header.
pub(crate) const CHECKSUM_AT: usize = 16;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MSS: u8 = 2;
const KIND_WINDOW_SCALE: u8 = 3;
const KIND_SACK_PERMITTED: u8 = 4;
const KIND_SACK: u8 = 5;
const KIND_TIMESTAMPS: u8 = 8;

/// The control bits, joined with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x001);
    /// Begins a connection.
    pub const SYN: Flags = Flags(0x002);
    /// Ends a connection at once.
    pub const RST: Flags = Flags(0x004);
    /// Push what is buffered.
    pub const PSH: Flags = Flags(0x008);
    /// The acknowledgement number holds.
    pub const ACK: Flags = Flags(0x010);
    /// The urgent pointer holds.
    pub const URG: Flags = Flags(0x020);
    /// Echoes congestion (RFC 3168).
    pub const ECE: Flags = Flags(0x040);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x080);
    /// Accurate ECN (RFC 9768).
    pub const AE: Flags = Flags(0x100);
    /// The bits of the header that are flags or reserved for them.
    const ALL: u16 = 0x0fff;

    /// True if all bits of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// Fills a byte, to align what follows.
    Nop,
    /// Largest segment the sender takes, without headers.
    Mss(u16),
    /// The window is to be shifted left by this.
    WindowScale(u8),
    /// Selective acknowledgements are understood.
    SackPermitted,
    /// Received blocks: first sequence number, and the one behind the last.
    Sack(Vec<(u32, u32)>),
    /// TSval and TSecr.
    Timestamps {
        /// The sender's clock.
        tsval: u32,
        /// The peer's clock, echoed.
        tsecr: u32,
    },
    /// These bytes as they are, kind and length included: unknown options, and corrupted ones.
    Raw(Vec<u8>),
}

impl TcpOption {
    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            TcpOption::Nop => out.push(KIND_NOP),
            TcpOption::Mss(mss) => {
                out.extend([KIND_MSS, 4]);
                out.extend(mss.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => out.extend([KIND_WINDOW_SCALE, 3, *shift]),
            TcpOption::SackPermitted => out.extend([KIND_SACK_PERMITTED, 2]),
            TcpOption::Sack(blocks) => {
                out.extend([KIND_SACK, (2 + 8 * blocks.len()) as u8]);
                out.extend(
                    blocks
                        .iter()
                        .flat_map(|(left, right)| [left.to_be_bytes(), right.to_be_bytes()])
                        .flatten(),
                );
            }
            TcpOption::Timestamps { tsval, tsecr } => {
                out.extend([KIND_TIMESTAMPS, 10]);
                out.extend(tsval.to_be_bytes());
                out.extend(tsecr.to_be_bytes());
            }
            TcpOption::Raw(bytes) => out.extend(bytes),
        }
    }

    /// The option at the start of `bytes`, and what follows; `None` at the end of the options.
    fn parse(bytes: &[u8]) -> Result<Option<(TcpOption, &[u8])>, ParseError> {
        let (kind, len) = match *bytes {
            [] | [KIND_END, ..] => return Ok(None),
            [KIND_NOP, ..] => return Ok(Some((TcpOption::Nop, &bytes[1..]))),
            [_] => {
                return Err(ParseError::Short {
                    header: "tcp option",
                    need: 2,
                    have: 1,
                });
            }
            [kind, len, ..] => (kind, len),
        };
        if len < 2 {
            return Err(ParseError::Field {
                header: "tcp option",
                field: "length",
                value: len.into(),
            });
        }
        let (whole, rest) = split("tcp option", bytes, len.into())?;
        let option = match (kind, len) {
            (KIND_MSS, 4) => TcpOption::Mss(be16(whole, 2)),
            (KIND_WINDOW_SCALE, 3) => TcpOption::WindowScale(whole[2]),
            (KIND_SACK_PERMITTED, 2) => TcpOption::SackPermitted,
            (KIND_SACK, _) if len % 8 == 2 => {
                let (blocks, _) = whole[2..].as_chunks::<8>();
                TcpOption::Sack(
                    blocks
                        .iter()
                        .map(|block| (be32(block, 0), be32(block, 4)))
                        .collect(),
                )
            }
            (KIND_TIMESTAMPS, 10) => TcpOption::Timestamps {
                tsval: be32(whole, 2),
                tsecr: be32(whole, 6),
            },
            _ => TcpOption::Raw(whole.to_vec()),
        };
        Ok(Some((option, rest)))
    }
}

/// A TCP header; its length is computed, its checksum by [`Frame`](crate::Frame).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sender's port.
    pub src_port: u16,
    /// Receiver's port.
    pub dst_port: u16,
    /// Sequence number of the first byte of payload, or of SYN.
    pub seq: u32,
    /// The next sequence number expected.
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// In the order in which they stand; padded to 4 bytes, cut after [`MAX_OPTION_BYTES`].
    pub options: Vec<TcpOption>,
}

impl Header {
    /// Length in bytes, options included.
    pub fn header_len(&self) -> usize {
        let mut options = Vec::new();
        self.options
            .iter()
            .for_each(|option| option.emit(&mut options));
        HEADER_BYTES + options.len().min(MAX_OPTION_BYTES).next_multiple_of(4)
    }

    /// Appends the header, its checksum 0.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend(self.src_port.to_be_bytes());
        out.extend(self.dst_port.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([0; 2]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 2]);
        out.extend(self.urgent.to_be_bytes());
        self.options.iter().for_each(|option| option.emit(out));
        out.truncate(begin + HEADER_BYTES + MAX_OPTION_BYTES);
        let header_len = (out.len() - begin).next_multiple_of(4);
        out.resize(begin + header_len, KIND_END);
        let len_and_flags = (header_len as u16 / 4) << 12 | self.flags.0 & Flags::ALL;
        out[begin + 12..begin + 14].copy_from_slice(&len_and_flags.to_be_bytes());
    }

    /// The header, and the payload. The checksum is not checked.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (fields, _) = array::<HEADER_BYTES>("tcp", bytes)?;
        let len_and_flags = be16(fields, 12);
        let header_len = usize::from(len_and_flags >> 12) * 4;
        if header_len < HEADER_BYTES {
            return Err(ParseError::Field {
                header: "tcp",
                field: "data offset",
                value: header_len as u32 / 4,
            });
        }
        let (header, payload) = split("tcp", bytes, header_len)?;
        let mut options = Vec::new();
        let mut rest = &header[HEADER_BYTES..];
        while let Some((option, behind)) = TcpOption::parse(rest)? {
            options.push(option);
            rest = behind;
        }
        let header = Header {
            src_port: be16(fields, 0),
            dst_port: be16(fields, 2),
            seq: be32(fields, 4),
            ack: be32(fields, 8),
            flags: Flags(len_and_flags & Flags::ALL),
            window: be16(fields, 14),
            urgent: be16(fields, 18),
            options,
        };
        Ok((header, payload))
    }
}
