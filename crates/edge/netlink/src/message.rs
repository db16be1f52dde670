//! A netlink message as bytes: written by appending, read attribute by attribute.
//!
//! Numbers are in host byte order unless the name of the method says otherwise. Attributes are
//! padded to four bytes.

use netlink_packet_core::{NLA_HEADER_SIZE, NLA_TYPE_MASK, NlasIterator};

const NLMSG_HEADER_LEN: usize = 16;
const NLA_F_NESTED: u16 = netlink_packet_core::NLA_F_NESTED;

/// A request under construction; the sequence number is filled in when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of type `kind` with `flags` and the family's fixed `header`.
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8]) -> Request {
        let mut bytes = vec![0; NLMSG_HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(header);
        let mut request = Request { bytes };
        request.pad();
        request
    }

    /// Requests an acknowledgement.
    pub(crate) fn acked(mut self) -> Request {
        let flags = u16_at(&self.bytes, 6).unwrap_or(0) | netlink_packet_core::NLM_F_ACK;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    pub(crate) fn attr(mut self, kind: u16, value: &[u8]) -> Request {
        let len = u16::try_from(NLA_HEADER_SIZE + value.len())
            .expect("requests are built here from small values");
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    pub(crate) fn attr_u32(self, kind: u16, value: u32) -> Request {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// A string with its terminating zero.
    pub(crate) fn attr_str(self, kind: u16, value: &str) -> Request {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// An attribute whose value is what `fill` appends.
    pub(crate) fn nest(mut self, kind: u16, fill: impl FnOnce(Request) -> Request) -> Request {
        let start = self.bytes.len();
        self = fill(self.attr(kind | NLA_F_NESTED, &[]));
        let len = u16::try_from(self.bytes.len() - start)
            .expect("requests are built here from small values");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    /// Bytes without an attribute header, as inside `VETH_INFO_PEER`.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Request {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// The finished message, carrying `sequence`.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("attributes are at most 64 KiB each");
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// One message as received: its type, flags, sequence number and what follows the netlink header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// The messages in one datagram; ends early at a length that does not fit.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(datagram, 0)? as usize;
        let payload = datagram.get(NLMSG_HEADER_LEN..len)?;
        let message = Received {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            payload,
        };
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// The attributes in `bytes` as (type without flag bits, value); ends early at a malformed one.
pub(crate) fn attrs(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|nla| {
        let value = &nla.into_inner()[NLA_HEADER_SIZE..];
        (nla.kind() & NLA_TYPE_MASK, &value[..nla.value_length()])
    })
}

/// The value of the first attribute of type `kind`.
pub(crate) fn attr(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attrs(bytes)
        .find(|(k, _)| *k == kind)
        .map(|(_, value)| value)
}

pub(crate) fn attr_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    u32_at(attr(bytes, kind)?, 0)
}

pub(crate) fn attr_str(bytes: &[u8], kind: u16) -> Option<String> {
    attr(bytes, kind).map(text)
}

/// Text up to its terminating zero, if one exists.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset + 2)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset + 8)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_messages_survive_a_round_trip() {
        let bytes = Request::new(16, 5, &[7; 6])
            .attr_str(3, "eth0")
            .nest(18, |r| r.attr_u32(1, 42).attr(2, &[9]))
            .finish(77);
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence), (16, 5, 77));
        let body = &all[0].payload[8..];
        assert_eq!(attr_str(body, 3).as_deref(), Some("eth0"));
        let nested = attr(body, 18).unwrap();
        assert_eq!(attr_u32(nested, 1), Some(42));
        assert_eq!(attr(nested, 2), Some(&[9u8][..]));
    }

    #[test]
    fn a_length_beyond_the_datagram_ends_the_walk() {
        let mut bytes = Request::new(16, 0, &[0; 4]).finish(1);
        bytes[0] = 200;
        assert_eq!(messages(&bytes).count(), 0);
        let short: Vec<_> = attrs(&[9, 0, 1, 0, 1]).collect();
        assert!(short.is_empty());
    }
}
