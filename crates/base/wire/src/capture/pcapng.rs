//! The pcapng format: sections of blocks (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! section header, interface description (one or more), packets ..., next section header ...
//! each block: type u32, length u32, body, options, length u32
//! ```
//!
//! Interfaces are numbered again in each section; here they get one numbering over the file. Blocks that are no packets are
//! passed over without being held, so their length has no limit. Sections' declared lengths are not used.

use std::io::Read;

use fairpath_units::text::line;

use super::reader::{Interface, Order, Place, Record};
use super::time::Clock;
use super::window::Window;
use super::{
    Direction, LinkType, MAX_BLOCK_BYTES, MAX_INTERFACE_NAME_BYTES, MAX_INTERFACES,
    MAX_PACKET_BYTES, ReadError,
};

/// A palindrome, so that it can be read before the byte order is known.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Blocks that are no packets and that tshark numbers like them: custom blocks, journal entries, system calls.
const NUMBERED: [u32; 9] = [
    0xbad,
    0x4000_0bad,
    0x9,
    0x204,
    0x208,
    0x216,
    0x217,
    0x221,
    0x222,
];

/// Type and length before the body, and the length again after it.
const BLOCK_START_BYTES: usize = 8;
const BLOCK_FRAME_BYTES: usize = 12;

const OPTION_END: u16 = 0;
pub(super) const OPTION_IF_NAME: u16 = 2;
pub(super) const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_TSOFFSET: u16 = 14;
/// `epb_flags`, and `pack_flags` of the obsolete block.
pub(super) const OPTION_PACKET_FLAGS: u16 = 2;

/// Where the reader is: byte order, and which interfaces belong to the section.
#[derive(Debug)]
pub(super) struct Section {
    order: Order,
    first_interface: usize,
    clocks: Vec<InterfaceClock>,
    /// The number of numbered blocks that are no packets, in all sections.
    numbered: u64,
}

/// The parameters for reading the packets of an interface.
#[derive(Clone, Copy, Debug)]
struct InterfaceClock {
    clock: Clock,
    link: LinkType,
    /// Only simple packets need it: 0 means no limit.
    snap_len: u32,
}

/// A block whose length is checked and whose bytes are visible.
struct Block {
    kind: u32,
    len: usize,
    place: Place,
}

impl Section {
    /// Before the first section header.
    pub(super) fn none() -> Section {
        Section {
            order: Order::Little,
            first_interface: 0,
            clocks: Vec::new(),
            numbered: 0,
        }
    }
}

/// Reads blocks up to the next packet and makes it visible; `None` at the end of the file. `packets` were read before.
pub(super) fn next<R: Read>(
    section: &mut Section,
    interfaces: &mut Vec<Interface>,
    window: &mut Window<R>,
    packets: u64,
) -> Result<Option<Record>, ReadError> {
    loop {
        let Some(block) = next_block(section, window, packets)? else {
            return Ok(None);
        };
        let body = &window.visible()[BLOCK_START_BYTES..block.len - 4];
        match block.kind {
            SECTION_HEADER => begin_section(section, interfaces.len(), &block, body)?,
            INTERFACE_DESCRIPTION => describe_interface(section, interfaces, &block, body)?,
            ENHANCED_PACKET => return enhanced_packet(section, &block, body).map(Some),
            OBSOLETE_PACKET => return obsolete_packet(section, &block, body).map(Some),
            _ => return simple_packet(section, &block, body).map(Some),
        }
        window.take(block.len);
    }
}

/// The next block that means something to us, checked at both ends; others are skipped.
#[inline]
fn next_block<R: Read>(
    section: &mut Section,
    window: &mut Window<R>,
    packets: u64,
) -> Result<Option<Block>, ReadError> {
    loop {
        let packet = packets + section.numbered + 1;
        let place = Place {
            offset: window.offset(),
            packet,
        };
        if !window.need(BLOCK_FRAME_BYTES).map_err(|e| place.fill(e))? {
            return if window.visible().is_empty() {
                Ok(None)
            } else {
                Err(place.truncated(window))
            };
        }
        let start = window.visible();
        let kind = section.order.u32_at(start, 0);
        if kind == SECTION_HEADER {
            section.order = byte_order(start, place)?;
        }
        let len = section.order.u32_at(start, 4);
        let body_bytes = match kind {
            SECTION_HEADER => 16,
            INTERFACE_DESCRIPTION => 8,
            ENHANCED_PACKET | OBSOLETE_PACKET => 20,
            SIMPLE_PACKET => 4,
            _ => 0,
        };
        if !len.is_multiple_of(4) || len < BLOCK_FRAME_BYTES as u32 + body_bytes {
            return Err(ReadError::BlockLength {
                offset: place.offset,
                packet,
                kind,
                len,
            });
        }
        let known = body_bytes > 0;
        if known && len > MAX_BLOCK_BYTES {
            return Err(ReadError::BlockTooLong {
                offset: place.offset,
                packet,
                kind,
                len,
            });
        }
        let last = if known {
            window.need(len as usize).map_err(|e| place.fill(e))?
        } else {
            // All except the trailer, which is read afterwards.
            window.skip(u64::from(len) - 4).map_err(|e| place.fill(e))?
                && window.need(4).map_err(|e| place.fill(e))?
        };
        if !last {
            return Err(place.truncated(window));
        }
        let trailer_at = if known { len as usize - 4 } else { 0 };
        let trailer = section.order.u32_at(window.visible(), trailer_at);
        if trailer != len {
            return Err(ReadError::BlockTrailer {
                offset: place.offset,
                packet,
                len,
                trailer,
            });
        }
        if known {
            return Ok(Some(Block {
                kind,
                len: len as usize,
                place,
            }));
        }
        window.take(4);
        section.numbered += u64::from(NUMBERED.contains(&kind));
    }
}

/// The order in which a section header's magic reads right.
fn byte_order(start: &[u8], place: Place) -> Result<Order, ReadError> {
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| order.u32_at(start, 8) == BYTE_ORDER_MAGIC)
        .ok_or(ReadError::ByteOrder {
            offset: place.offset,
            magic: Order::Big.u32_at(start, 8),
        })
}

fn begin_section(
    section: &mut Section,
    first: usize,
    block: &Block,
    body: &[u8],
) -> Result<(), ReadError> {
    let (major, minor) = (section.order.u16_at(body, 4), section.order.u16_at(body, 6));
    // 1.2 was written by some programs and means the same as 1.0.
    if major != 1 || !matches!(minor, 0 | 2) {
        return Err(ReadError::Version {
            offset: block.place.offset,
            major,
            minor,
        });
    }
    section.first_interface = first;
    section.clocks.clear();
    Ok(())
}

fn describe_interface(
    section: &mut Section,
    interfaces: &mut Vec<Interface>,
    block: &Block,
    body: &[u8],
) -> Result<(), ReadError> {
    if interfaces.len() >= MAX_INTERFACES {
        return Err(ReadError::TooManyInterfaces {
            offset: block.place.offset,
        });
    }
    let order = section.order;
    let link = LinkType(u32::from(order.u16_at(body, 0)));
    let (mut name, mut tsresol, mut tsoffset) = (None, None, 0);
    for (code, value) in options(order, &body[8..]) {
        match (code, value.len()) {
            (OPTION_IF_NAME, _) if name.is_none() => {
                let cut = &value[..value.len().min(MAX_INTERFACE_NAME_BYTES)];
                name = Some(line(&String::from_utf8_lossy(cut)).into_owned());
            }
            (OPTION_IF_TSRESOL, 1) => tsresol = Some(value[0]),
            (OPTION_IF_TSOFFSET, 8) => tsoffset = order.u64_at(value, 0) as i64,
            _ => {}
        }
    }
    // Six is what the format means when the option is absent: microseconds.
    let clock = Clock::new(tsresol.unwrap_or(6), tsoffset);
    section.clocks.push(InterfaceClock {
        clock,
        link,
        snap_len: order.u32_at(body, 4),
    });
    interfaces.push(Interface { name, link });
    Ok(())
}

fn enhanced_packet(section: &Section, block: &Block, body: &[u8]) -> Result<Record, ReadError> {
    packet_with_options(section, block, body, section.order.u32_at(body, 0))
}

/// As the enhanced one, but the interface has 16 bits and is followed by a drop count.
fn obsolete_packet(section: &Section, block: &Block, body: &[u8]) -> Result<Record, ReadError> {
    packet_with_options(
        section,
        block,
        body,
        u32::from(section.order.u16_at(body, 0)),
    )
}

fn packet_with_options(
    section: &Section,
    block: &Block,
    body: &[u8],
    interface: u32,
) -> Result<Record, ReadError> {
    let order = section.order;
    let (described, interface) = find_interface(section, block, interface)?;
    let ticks = u64::from(order.u32_at(body, 4)) << 32 | u64::from(order.u32_at(body, 8));
    let (len, wire_len) = (order.u32_at(body, 12), order.u32_at(body, 16));
    let rest = &body[20..];
    check_packet_len(block, len, rest.len())?;
    let place = block.place;
    let time_ns = described.clock.unix_ns(ticks).ok_or(ReadError::Time {
        offset: place.offset,
        packet: place.packet,
        ticks,
    })?;
    let padded = (len as usize).next_multiple_of(4);
    let direction = options(order, rest.get(padded..).unwrap_or_default())
        .find(|(code, value)| *code == OPTION_PACKET_FLAGS && value.len() == 4)
        .and_then(|(_, value)| direction(order.u32_at(value, 0)));
    let data = BLOCK_START_BYTES + 20;
    Ok(Record {
        number: block.place.packet,
        time_ns,
        wire_len,
        data: data..data + len as usize,
        record_len: block.len,
        link: described.link,
        interface,
        direction,
    })
}

/// No interface, no time, no captured length: all of it is from the section's first interface.
fn simple_packet(section: &Section, block: &Block, body: &[u8]) -> Result<Record, ReadError> {
    let (described, interface) = find_interface(section, block, 0)?;
    let wire_len = section.order.u32_at(body, 0);
    let snap_len = if described.snap_len == 0 {
        u32::MAX
    } else {
        described.snap_len
    };
    let len = wire_len.min(snap_len);
    check_packet_len(block, len, body.len() - 4)?;
    let data = BLOCK_START_BYTES + 4;
    Ok(Record {
        number: block.place.packet,
        time_ns: 0,
        wire_len,
        data: data..data + len as usize,
        record_len: block.len,
        link: described.link,
        interface,
        direction: None,
    })
}

#[inline]
fn find_interface(
    section: &Section,
    block: &Block,
    interface: u32,
) -> Result<(InterfaceClock, u32), ReadError> {
    let Some(described) = section.clocks.get(interface as usize) else {
        return Err(ReadError::UnknownInterface {
            offset: block.place.offset,
            packet: block.place.packet,
            interface,
            known: section.clocks.len() as u32,
        });
    };
    Ok((*described, section.first_interface as u32 + interface))
}

#[inline]
fn check_packet_len(block: &Block, len: u32, capacity: usize) -> Result<(), ReadError> {
    let Place { offset, packet } = block.place;
    if len > MAX_PACKET_BYTES {
        return Err(ReadError::PacketTooLong {
            offset,
            packet,
            len,
        });
    }
    if len as usize > capacity {
        return Err(ReadError::BlockLength {
            offset,
            packet,
            kind: block.kind,
            len: block.len as u32,
        });
    }
    Ok(())
}

fn direction(flags: u32) -> Option<Direction> {
    match flags & 3 {
        1 => Some(Direction::Inbound),
        2 => Some(Direction::Outbound),
        _ => None,
    }
}

/// Options up to the end mark; a corrupted one ends them too, because the packet before it is valid.
fn options(order: Order, mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if bytes.len() < 4 {
            return None;
        }
        let (code, len) = (order.u16_at(bytes, 0), usize::from(order.u16_at(bytes, 2)));
        let value = bytes.get(4..4 + len)?;
        bytes = bytes
            .get((4 + len).next_multiple_of(4)..)
            .unwrap_or_default();
        (code != OPTION_END).then_some((code, value))
    })
}
