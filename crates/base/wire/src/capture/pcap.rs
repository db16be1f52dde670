//! The pcap format: a 24-byte header, then records of 16 bytes and the packet (draft-ietf-opsawg-pcap).
//!
//! Five magics: micro- and nanoseconds in both byte orders, and the "modified" format of old Linux distributions, whose
//! record headers have eight bytes more (interface, protocol, packet type), also in both orders.

use std::io::Read;

use super::reader::{Order, Place, Record};
use super::window::Window;
use super::{LinkType, MAX_PACKET_BYTES, ReadError};

pub(super) const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
const MODIFIED_RECORD_BYTES: usize = 24;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The link type field carries the length of the frame check sequence in its high bits (libpcap, `pcap-common.c`).
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

/// The content of the file header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    order: Order,
    /// Nanoseconds in one unit of the time's second half.
    unit_ns: u64,
    record_bytes: usize,
    minor: u16,
    pub(super) link: LinkType,
}

/// The byte order, the unit and the record length a magic stands for.
fn variant(magic: [u8; 4]) -> Option<(Order, u64, usize)> {
    let known = |value| match value {
        MAGIC_MICROSECONDS => Some((1_000, RECORD_BYTES)),
        MAGIC_NANOSECONDS => Some((1, RECORD_BYTES)),
        MAGIC_MODIFIED => Some((1_000, MODIFIED_RECORD_BYTES)),
        _ => None,
    };
    [Order::Little, Order::Big]
        .into_iter()
        .find_map(|order| known(order.u32(magic)).map(|(unit_ns, bytes)| (order, unit_ns, bytes)))
}

/// True if a file that begins so is pcap.
pub(super) fn is_magic(magic: [u8; 4]) -> bool {
    variant(magic).is_some()
}

/// Reads the file header; the window is at its first byte, and the magic is visible.
pub(super) fn begin<R: Read>(window: &mut Window<R>) -> Result<Header, ReadError> {
    let place = Place {
        offset: window.offset(),
        packet: 1,
    };
    if !window.need(HEADER_BYTES).map_err(|e| place.fill(e))? {
        return Err(place.truncated(window));
    }
    let bytes = window.take(HEADER_BYTES);
    let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let Some((order, unit_ns, record_bytes)) = variant(magic) else {
        return Err(ReadError::NotACapture {
            begins: magic.to_vec(),
        });
    };
    let (major, minor) = (order.u16_at(bytes, 4), order.u16_at(bytes, 6));
    if major != 2 {
        return Err(ReadError::Version {
            offset: place.offset,
            major,
            minor,
        });
    }
    let link = LinkType(order.u32_at(bytes, 20) & LINK_TYPE_MASK);
    Ok(Header {
        order,
        unit_ns,
        record_bytes,
        minor,
        link,
    })
}

impl Header {
    /// The next record, packet `number`, if the whole of it is in `visible` and its length is valid.
    #[inline]
    pub(super) fn record(&self, visible: &[u8], number: u64) -> Option<Record> {
        let [seconds, fraction, len, wire_len] = self.order.words(visible.first_chunk()?);
        let (len, wire_len) = self.lengths(len, wire_len);
        let record_len = self.record_bytes + len as usize;
        if len > MAX_PACKET_BYTES || record_len > visible.len() {
            return None;
        }
        Some(Record {
            number,
            // At most 2^32 * 10^9 + 2^32 * 1000: fits.
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            wire_len,
            data: self.record_bytes..record_len,
            record_len,
            link: self.link,
            interface: 0,
            direction: None,
        })
    }

    /// Up to version 2.2 the two lengths were swapped, and in 2.3 some programs still wrote them so.
    #[inline]
    fn lengths(&self, len: u32, wire_len: u32) -> (u32, u32) {
        if self.minor <= 3 && (self.minor < 3 || len > wire_len) {
            (wire_len, len)
        } else {
            (len, wire_len)
        }
    }
}

/// Reads the next record and makes it visible; `None` at the end of the file. `packets` were read before.
#[cold]
pub(super) fn next<R: Read>(
    header: &Header,
    window: &mut Window<R>,
    packets: u64,
) -> Result<Option<Record>, ReadError> {
    let packet = packets + 1;
    let place = Place {
        offset: window.offset(),
        packet,
    };
    if !window
        .need(header.record_bytes)
        .map_err(|e| place.fill(e))?
    {
        return if window.visible().is_empty() {
            Ok(None)
        } else {
            Err(place.truncated(window))
        };
    }
    let field = |at| header.order.u32_at(window.visible(), at);
    let (len, _) = header.lengths(field(8), field(12));
    if len > MAX_PACKET_BYTES {
        return Err(ReadError::PacketTooLong {
            offset: place.offset,
            packet,
            len,
        });
    }
    let record_len = header.record_bytes + len as usize;
    if !window.need(record_len).map_err(|e| place.fill(e))? {
        return Err(place.truncated(window));
    }
    Ok(header.record(window.visible(), packet))
}
