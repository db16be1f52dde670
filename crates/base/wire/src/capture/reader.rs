//! The reader: one packet after the other, from either format.

use std::io::Read;
use std::ops::Range;

use super::window::{FillError, Window};
use super::{Direction, LinkType, Packet, ReadError, pcap, pcapng};

/// Which file format a capture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One interface, one resolution.
    Pcap,
    /// Sections, interfaces, options.
    Pcapng,
}

/// An interface of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the file has it (pcapng `if_name`).
    pub name: Option<String>,
    /// The link type of its packets.
    pub link: LinkType,
}

/// Reads packets from a stream: a file, standard input, a pipe that is still being written.
///
/// Memory is bounded (half a megabyte, and the interfaces' names), nothing is sought, and no packet is waited for longer
/// than its last byte takes to arrive. After an error or the end, there are no more packets.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use fairpath_wire::capture::{Packet, Reader, Writer, LinkType};
/// # let mut writer = Writer::pcap(Vec::new(), LinkType::ETHERNET)?;
/// # writer.write(&Packet::new(1, &[0; 60]))?;
/// # let file = writer.finish()?;
/// let mut reader = Reader::new(&file[..])?;
/// while let Some(packet) = reader.next()? {
///     println!("{} at {} ns: {} bytes", packet.number, packet.time_ns, packet.wire_len);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader<R> {
    window: Window<R>,
    parser: Parser,
    interfaces: Vec<Interface>,
    packets: u64,
    done: bool,
}

enum Parser {
    Pcap(pcap::Header),
    Pcapng(pcapng::Section),
}

impl<R: Read> Reader<R> {
    /// Begins a capture, gzipped or not; reads its first bytes to determine the format.
    ///
    /// Reads are large, so `stream` needs no separate buffer. Fails if the stream does, or if this is no capture.
    pub fn new(stream: R) -> Result<Reader<R>, ReadError> {
        let place = Place {
            offset: 0,
            packet: 1,
        };
        let mut window = Window::new(stream).map_err(|e| place.fill(e))?;
        window.need(4).map_err(|e| place.fill(e))?;
        let begins = window.visible();
        let Some(&magic) = begins.first_chunk::<4>() else {
            return Err(ReadError::NotACapture {
                begins: begins.to_vec(),
            });
        };
        let mut interfaces = Vec::new();
        let parser = if u32::from_be_bytes(magic) == pcapng::SECTION_HEADER {
            Parser::Pcapng(pcapng::Section::none())
        } else if pcap::is_magic(magic) {
            let header = pcap::begin(&mut window)?;
            interfaces.push(Interface {
                name: None,
                link: header.link,
            });
            Parser::Pcap(header)
        } else {
            return Err(ReadError::NotACapture {
                begins: magic.to_vec(),
            });
        };
        Ok(Reader {
            window,
            parser,
            interfaces,
            packets: 0,
            done: false,
        })
    }

    /// The next packet, or `None` at the end of the file; its bytes stay until the next call.
    ///
    /// O(1) per packet, no allocation. Corruption of the file or a failed read ends the capture: after an error, `None`.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend its packets"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, ReadError> {
        if self.done {
            return Ok(None);
        }
        let visible = match &self.parser {
            Parser::Pcap(header) => header.record(self.window.visible(), self.packets + 1),
            Parser::Pcapng(_) => None,
        };
        let record = match visible {
            Some(record) => record,
            None => match self.record()? {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        self.packets += 1;
        let bytes = self.window.take(record.record_len);
        Ok(Some(Packet {
            number: record.number,
            time_ns: record.time_ns,
            wire_len: record.wire_len,
            data: &bytes[record.data],
            link: record.link,
            interface: record.interface,
            direction: record.direction,
        }))
    }

    /// Reads the next record and makes it visible.
    fn record(&mut self) -> Result<Option<Record>, ReadError> {
        let (window, packets) = (&mut self.window, self.packets);
        let result = match &mut self.parser {
            Parser::Pcap(header) => pcap::next(header, window, packets),
            Parser::Pcapng(section) => pcapng::next(section, &mut self.interfaces, window, packets),
        };
        self.done = !matches!(result, Ok(Some(_)));
        result
    }

    /// The format, known from the first bytes.
    pub fn format(&self) -> Format {
        match self.parser {
            Parser::Pcap(_) => Format::Pcap,
            Parser::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The interfaces described so far, in the order of [`Packet::interface`].
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The name of an interface, if it is described so far and has one.
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        self.interfaces.get(interface as usize)?.name.as_deref()
    }

    /// The number of packets read.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The number of bytes read, of the decompressed file if it is gzipped.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }
}

/// A packet's place in the window, and what the file says of it.
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) wire_len: u32,
    /// Where its bytes are within the record.
    pub(super) data: Range<usize>,
    pub(super) record_len: usize,
    pub(super) link: LinkType,
    pub(super) interface: u32,
    pub(super) direction: Option<Direction>,
}

/// The place of an error: the record's offset and the packet's number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) packet: u64,
}

impl Place {
    #[cold]
    pub(super) fn fill(self, error: FillError) -> ReadError {
        let Place { offset, packet } = self;
        match error {
            FillError::Io(source) => ReadError::Io {
                offset,
                packet,
                source,
            },
            FillError::Gzip(source) => ReadError::Gzip {
                offset,
                packet,
                source,
            },
        }
    }

    #[cold]
    pub(super) fn truncated<R: Read>(self, window: &Window<R>) -> ReadError {
        ReadError::Truncated {
            offset: self.offset,
            end: window.end_offset(),
            packet: self.packet,
        }
    }
}

/// The byte order of a file or a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Four words, by one decision.
    #[inline]
    pub(super) fn words(self, bytes: &[u8; 16]) -> [u32; 4] {
        let (words, _) = bytes.as_chunks::<4>();
        let words = [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes);
        match self {
            Order::Little => words,
            Order::Big => words.map(u32::swap_bytes),
        }
    }

    /// The two bytes at `at`, which the caller knows are there.
    #[inline]
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The four bytes at `at`, which the caller knows are there.
    #[inline]
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        self.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The eight bytes at `at`, which the caller knows are there.
    pub(super) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (
            u64::from(self.u32_at(bytes, at)),
            u64::from(self.u32_at(bytes, at + 4)),
        );
        match self {
            Order::Little => second << 32 | first,
            Order::Big => first << 32 | second,
        }
    }
}
