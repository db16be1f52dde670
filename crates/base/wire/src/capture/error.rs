//! Errors of captures, with the place, the cause and the remedy.

use std::io;

use super::{
    LinkType, MAX_BLOCK_BYTES, MAX_INTERFACE_NAME_BYTES, MAX_INTERFACES, MAX_PACKET_BYTES,
};

/// A capture that could not be read further.
///
/// `offset` is in bytes from the start of the file (of the decompressed one, if it is gzipped) and names the record or
/// block that failed; `packet` is the number of the packet that could not be read. All packets before it were good.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The underlying reader failed.
    #[error("read capture at byte {offset}, packet {packet}")]
    Io {
        /// Where the record or block began.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// Why.
        source: io::Error,
    },
    /// The compressed stream is corrupted, or has trailing data.
    #[error(
        "gzipped capture at byte {offset} of its content, packet {packet}: corrupted stream; check it with gzip -t"
    )]
    Gzip {
        /// Where the record or block began, in decompressed bytes.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// Why.
        source: io::Error,
    },
    /// The file ends inside a record: the capturing program was killed, or the disk was full. What was read is complete.
    #[error(
        "capture ends at byte {end}, inside the record at byte {offset}, packet {packet}: the file is truncated; the packets before it are complete"
    )]
    Truncated {
        /// Where the unfinished record or block begins.
        offset: u64,
        /// Length of the file.
        end: u64,
        /// The packet that could not be read.
        packet: u64,
    },
    /// Neither of the formats, or an empty file.
    #[error(
        "not a pcap or pcapng capture: begins with {}; convert it with editcap -F pcapng",
        Hex(.begins)
    )]
    NotACapture {
        /// The first bytes, at most four.
        begins: Vec<u8>,
    },
    /// A version of a known format that does not exist yet.
    #[error(
        "capture at byte {offset}: version {major}.{minor} is not supported; convert it with editcap -F pcapng"
    )]
    Version {
        /// Where the header begins.
        offset: u64,
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// A packet longer than any real one: the file is corrupted, or has another format.
    #[error(
        "capture at byte {offset}, packet {packet}: claims {len} captured bytes, the limit is {MAX_PACKET_BYTES}; the rest of the file is corrupted"
    )]
    PacketTooLong {
        /// Where the record or block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// The length it claims.
        len: u32,
    },
    /// A pcapng packet, interface or section block longer than what is held in memory.
    #[error(
        "capture at byte {offset}, packet {packet}: block of type {kind:#x} claims {len} bytes, the limit is {MAX_BLOCK_BYTES}; the rest of the file is corrupted"
    )]
    BlockTooLong {
        /// Where the block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// Block type.
        kind: u32,
        /// The length it claims.
        len: u32,
    },
    /// A pcapng block length that is no multiple of four, or too short for what the block must hold.
    #[error(
        "capture at byte {offset}, packet {packet}: block of type {kind:#x} cannot be {len} bytes long; the rest of the file is corrupted"
    )]
    BlockLength {
        /// Where the block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// Block type.
        kind: u32,
        /// The length it claims.
        len: u32,
    },
    /// The length at the end of a pcapng block differs from the one at its start.
    #[error(
        "capture at byte {offset}, packet {packet}: block begins with length {len} and ends with {trailer}; the rest of the file is corrupted"
    )]
    BlockTrailer {
        /// Where the block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// The length at its start.
        len: u32,
        /// The length at its end.
        trailer: u32,
    },
    /// A pcapng section whose byte-order magic is neither order.
    #[error(
        "capture at byte {offset}: section has byte-order magic {magic:#010x}; the rest of the file is corrupted"
    )]
    ByteOrder {
        /// Where the section begins.
        offset: u64,
        /// The value in place of the magic.
        magic: u32,
    },
    /// A pcapng packet that names an interface its section has not described.
    #[error(
        "capture at byte {offset}, packet {packet}: interface {interface} is not described, its section describes {known}; repair the file with pcapfix"
    )]
    UnknownInterface {
        /// Where the block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// The interface in its section.
        interface: u32,
        /// The number of interfaces described in the section so far.
        known: u32,
    },
    /// More interfaces than any real capture has.
    #[error("capture at byte {offset}: more than {MAX_INTERFACES} interfaces; split the file")]
    TooManyInterfaces {
        /// Where the description of one too many begins.
        offset: u64,
    },
    /// A time before 1970 or after 2554, which 64 bits of nanoseconds cannot represent.
    #[error(
        "capture at byte {offset}, packet {packet}: time of {ticks} ticks is before 1970 or after 2554; shift it with editcap -t"
    )]
    Time {
        /// Where the block begins.
        offset: u64,
        /// The packet that could not be read.
        packet: u64,
        /// The time as stored, in ticks of the interface.
        ticks: u64,
    },
}

/// A packet that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The underlying writer failed.
    #[error("write capture")]
    Io(#[from] io::Error),
    /// Longer than what a reader accepts.
    #[error(
        "write packet of {len} bytes: the limit is {MAX_PACKET_BYTES}; cut it to a snap length"
    )]
    PacketTooLong {
        /// Bytes given.
        len: usize,
    },
    /// The packet names an interface that the writer does not have.
    #[error(
        "write packet: interface {interface} is not described, {known} are; call Writer::interface first"
    )]
    UnknownInterface {
        /// Interface of the packet.
        interface: u32,
        /// The number of described interfaces.
        known: u32,
    },
    /// A packet of another link type than its interface has.
    #[error("write packet of {packet}: its interface has {interface}")]
    LinkMismatch {
        /// Link type of the packet.
        packet: LinkType,
        /// Link type of the interface.
        interface: LinkType,
    },
    /// A second interface in pcap, which has one; one too many; or a link type number or a name too long for pcapng.
    #[error(
        "describe interface {name:?} with {link}: this format cannot; use pcapng, at most {MAX_INTERFACES} interfaces, a link type below 65536 and a name up to {MAX_INTERFACE_NAME_BYTES} bytes"
    )]
    Interface {
        /// Name given.
        name: String,
        /// Link type given.
        link: LinkType,
    },
    /// A time after 2106, which pcap cannot hold.
    #[error("write packet at {time_ns} ns: pcap ends in 2106; use pcapng")]
    Time {
        /// Time of the packet.
        time_ns: u64,
    },
}

/// Bytes as people read them in a dump.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
