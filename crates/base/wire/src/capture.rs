//! Captures: pcap and pcapng, in and out.
//!
//! ```text
//! io::Read -> Window (gunzip, 512 KiB) -> pcap records | pcapng blocks -> Packet
//! Packet -> Writer -> pcap (ns) | pcapng (ns, interface names, directions)
//! ```
//!
//! The reader never seeks, never holds more than its window, and never panics, whatever the bytes. Formats:
//! draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Deliberately absent: name resolution, decryption secrets,
//! interface statistics and comments, which are skipped, and captures that are not packets (systemd journal, system calls).

mod error;
mod link;
mod pcap;
mod pcapng;
mod reader;
mod time;
mod window;
mod writer;

pub use error::{ReadError, WriteError};
pub use link::LinkType;
pub use reader::{Format, Interface, Reader};
pub use writer::Writer;

/// The longest packet a capture may hold: what Wireshark and libpcap accept for network links.
pub const MAX_PACKET_BYTES: u32 = 256 * 1024;

/// The longest pcapng block that is held in memory: a packet and as many bytes of options as one option can have.
pub const MAX_BLOCK_BYTES: u32 = MAX_PACKET_BYTES + 64 * 1024;

/// The most interfaces a capture may describe, over all its sections; a merge of a week of hourly files stays far below.
pub const MAX_INTERFACES: usize = 65_536;

/// The longest interface name kept; longer ones are cut. The kernel's limit is 15.
pub const MAX_INTERFACE_NAME_BYTES: usize = 256;

/// Which way a packet went through the interface it was captured on (pcapng `epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The interface received it.
    Inbound,
    /// The interface sent it.
    Outbound,
}

/// One packet of a capture; its bytes are borrowed from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Position in the file, from 1: `frame.number` in tshark, which also numbers custom blocks and journal entries, so
    /// that numbers may have gaps. The writer ignores it.
    pub number: u64,
    /// Unix time in nanoseconds, exact. 0 for a simple packet block, which has no time.
    pub time_ns: u64,
    /// Length on the wire in bytes; more than `data.len()` if the capture was cut to a snap length.
    pub wire_len: u32,
    /// The captured bytes, from the first byte of the link layer.
    pub data: &'a [u8],
    /// The link layer.
    pub link: LinkType,
    /// Index of the interface in the file, counted over all sections; 0 in pcap.
    pub interface: u32,
    /// Which way it went, if the file says so.
    pub direction: Option<Direction>,
}

impl<'a> Packet<'a> {
    /// An uncut Ethernet packet on interface 0, to be written.
    pub fn new(time_ns: u64, data: &'a [u8]) -> Packet<'a> {
        Packet {
            number: 0,
            time_ns,
            wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            data,
            link: LinkType::ETHERNET,
            interface: 0,
            direction: None,
        }
    }
}
