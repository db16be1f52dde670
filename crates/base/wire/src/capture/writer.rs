//! The writer: little-endian nanosecond pcap, and nanosecond pcapng with interface names and directions.

use std::io::Write;

use super::pcapng::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, OPTION_IF_NAME, OPTION_IF_TSRESOL,
    OPTION_PACKET_FLAGS, SECTION_HEADER,
};
use super::{
    Direction, Interface, LinkType, MAX_INTERFACE_NAME_BYTES, MAX_INTERFACES, MAX_PACKET_BYTES,
    Packet, WriteError,
};

const PCAP_MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_VERSION: [u16; 2] = [2, 4];
const PCAPNG_VERSION: [u16; 2] = [1, 0];
/// Ten to the minus nine.
const TSRESOL_NANOSECONDS: u8 = 9;

/// Writes packets as they come; one write to `W` per packet, so give it a buffer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use fairpath_wire::capture::{Direction, LinkType, Packet, Writer};
/// let mut writer = Writer::pcapng(Vec::new())?;
/// let wan = writer.interface("wan0", LinkType::ETHERNET)?;
/// let packet = Packet { interface: wan, direction: Some(Direction::Inbound), ..Packet::new(1_000, &[0; 60]) };
/// writer.write(&packet)?;
/// let file = writer.finish()?;
/// # Ok(())
/// # }
/// ```
pub struct Writer<W> {
    out: W,
    pcapng: bool,
    interfaces: Vec<Interface>,
    /// The record being made; kept for its capacity.
    record: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a pcap file; its one interface is there, with number 0. Directions are not kept.
    pub fn pcap(out: W, link: LinkType) -> Result<Writer<W>, WriteError> {
        let interfaces = vec![Interface { name: None, link }];
        let mut writer = Writer {
            out,
            pcapng: false,
            interfaces,
            record: Vec::new(),
        };
        writer.u32(PCAP_MAGIC_NANOSECONDS);
        PCAP_VERSION.into_iter().for_each(|half| writer.u16(half));
        for field in [0, 0, MAX_PACKET_BYTES, link.0] {
            writer.u32(field);
        }
        writer.put()?;
        Ok(writer)
    }

    /// Begins a pcapng file of one section; it has no interface yet.
    pub fn pcapng(out: W) -> Result<Writer<W>, WriteError> {
        let mut writer = Writer {
            out,
            pcapng: true,
            interfaces: Vec::new(),
            record: Vec::new(),
        };
        writer.begin_block(SECTION_HEADER);
        writer.u32(BYTE_ORDER_MAGIC);
        PCAPNG_VERSION.into_iter().for_each(|half| writer.u16(half));
        // The section's length is not known before its end.
        writer.record.extend((-1_i64).to_le_bytes());
        writer.end_block()?;
        Ok(writer)
    }

    /// Describes an interface and returns its number; an empty name is omitted. pcapng only.
    pub fn interface(&mut self, name: &str, link: LinkType) -> Result<u32, WriteError> {
        let Ok(short) = u16::try_from(link.0) else {
            return Err(cannot_describe(name, link));
        };
        let full = self.interfaces.len() >= MAX_INTERFACES;
        if !self.pcapng || full || name.len() > MAX_INTERFACE_NAME_BYTES {
            return Err(cannot_describe(name, link));
        }
        self.begin_block(INTERFACE_DESCRIPTION);
        self.u16(short);
        self.u16(0);
        self.u32(MAX_PACKET_BYTES);
        if !name.is_empty() {
            self.option(OPTION_IF_NAME, name.as_bytes());
        }
        self.option(OPTION_IF_TSRESOL, &[TSRESOL_NANOSECONDS]);
        self.option(0, &[]);
        self.end_block()?;
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.interfaces.push(Interface { name, link });
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Appends a packet; its number is ignored.
    pub fn write(&mut self, packet: &Packet<'_>) -> Result<(), WriteError> {
        let len = packet.data.len();
        if len > MAX_PACKET_BYTES as usize {
            return Err(WriteError::PacketTooLong { len });
        }
        let Some(interface) = self.interfaces.get(packet.interface as usize) else {
            let known = self.interfaces.len() as u32;
            return Err(WriteError::UnknownInterface {
                interface: packet.interface,
                known,
            });
        };
        if interface.link != packet.link {
            return Err(WriteError::LinkMismatch {
                packet: packet.link,
                interface: interface.link,
            });
        }
        if self.pcapng {
            self.write_pcapng(packet)
        } else {
            self.write_pcap(packet)
        }
    }

    /// Flushes, and gives the output back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_pcap(&mut self, packet: &Packet<'_>) -> Result<(), WriteError> {
        let time_ns = packet.time_ns;
        let seconds =
            u32::try_from(time_ns / 1_000_000_000).map_err(|_| WriteError::Time { time_ns })?;
        self.u32(seconds);
        self.u32((time_ns % 1_000_000_000) as u32);
        self.u32(packet.data.len() as u32);
        self.u32(packet.wire_len);
        self.record.extend_from_slice(packet.data);
        self.put()
    }

    fn write_pcapng(&mut self, packet: &Packet<'_>) -> Result<(), WriteError> {
        self.begin_block(ENHANCED_PACKET);
        self.u32(packet.interface);
        self.u32((packet.time_ns >> 32) as u32);
        self.u32(packet.time_ns as u32);
        self.u32(packet.data.len() as u32);
        self.u32(packet.wire_len);
        self.record.extend_from_slice(packet.data);
        self.pad();
        if let Some(direction) = packet.direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.option(OPTION_PACKET_FLAGS, &flags.to_le_bytes());
            self.option(0, &[]);
        }
        self.end_block()
    }

    fn begin_block(&mut self, kind: u32) {
        self.u32(kind);
        self.u32(0);
    }

    fn end_block(&mut self) -> Result<(), WriteError> {
        let len = self.record.len() as u32 + 4;
        self.record[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.put()
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.record.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.record.resize(self.record.len().next_multiple_of(4), 0);
    }

    fn u16(&mut self, value: u16) {
        self.record.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.record.extend(value.to_le_bytes());
    }

    /// Writes the record that was made.
    fn put(&mut self) -> Result<(), WriteError> {
        let written = self.out.write_all(&self.record);
        self.record.clear();
        Ok(written?)
    }
}

fn cannot_describe(name: &str, link: LinkType) -> WriteError {
    WriteError::Interface {
        name: name.to_owned(),
        link,
    }
}
