//! Netlink messages and their attributes, read from any bytes and written for the kernel.
//!
//! Invariant of reading: nothing outside the given bytes is accessed, with any lengths in them. An
//! invalid length ends the walk and is reported. Layout: `linux/netlink.h`, `nfnetlink.h`.
//! Deliberately absent: multi-part answers, which this part of the kernel never sends.

/// `nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;
/// `nfgenmsg`: family, version, and the queue's number in network order.
pub(crate) const FAMILY_BYTES: usize = 4;
const ATTRIBUTE_BYTES: usize = 4;
/// Attributes and messages begin at multiples of it.
const ALIGN: usize = 4;
/// Without the flags "nested" and "network order".
const TYPE_MASK: u16 = 0x3fff;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
const SUBSYSTEM: u16 = 3 << 8;
pub(crate) const PACKET: u16 = SUBSYSTEM;
pub(crate) const VERDICT: u16 = SUBSYSTEM | 1;
pub(crate) const CONFIG: u16 = SUBSYSTEM | 2;
pub(crate) const VERDICT_BATCH: u16 = SUBSYSTEM | 3;

/// One message; `body` follows its header, truncated at the end of the datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub sequence: u32,
    pub body: &'a [u8],
    /// The header states more bytes than there are.
    pub cut: bool,
}

/// The messages of one datagram.
pub(crate) struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let bytes = self.0;
        let claimed = usize::try_from(native_u32(bytes, 0)?).ok()?;
        if bytes.len() < HEADER_BYTES || claimed < HEADER_BYTES {
            self.0 = &[];
            return None;
        }
        let end = claimed.min(bytes.len());
        self.0 = bytes.get(claimed.next_multiple_of(ALIGN)..).unwrap_or(&[]);
        Some(Message {
            kind: native_u16(bytes, 4)?,
            sequence: native_u32(bytes, 8)?,
            body: &bytes[HEADER_BYTES..end],
            cut: claimed > bytes.len(),
        })
    }
}

/// The attributes of a message or of an attribute; [`Attributes::corrupted`] reports an invalid
/// length.
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
    corrupted: bool,
}

impl<'a> Attributes<'a> {
    pub fn of(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes {
            rest: bytes,
            corrupted: false,
        }
    }

    /// True if the walk ended before the bytes did.
    pub fn corrupted(&self) -> bool {
        self.corrupted
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        if self.rest.is_empty() {
            return None;
        }
        let head = native_u16(self.rest, 0).zip(native_u16(self.rest, 2));
        let (len, kind) = head.unwrap_or((0, 0));
        let len = usize::from(len);
        let Some(value) = self.rest.get(ATTRIBUTE_BYTES..len) else {
            self.corrupted = true;
            self.rest = &[];
            return None;
        };
        self.rest = self.rest.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
        Some((kind & TYPE_MASK, value))
    }
}

fn native_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn native_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Appends one message for `queue` to `out`; `attributes` appends its content with [`put`].
pub(crate) fn write(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    queue: u16,
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([libc::AF_UNSPEC as u8, 0]);
    out.extend(queue.to_be_bytes());
    attributes(out);
    let len = (out.len() - begin) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_ne_bytes());
}

/// The maximum length of an attribute's value.
pub(crate) const VALUE_LIMIT_BYTES: usize = u16::MAX as usize - ATTRIBUTE_BYTES;

/// Appends an attribute with padding. The caller respects [`VALUE_LIMIT_BYTES`].
pub(crate) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    debug_assert!(value.len() <= VALUE_LIMIT_BYTES, "checked by the caller");
    out.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nfqueue_messages_survive_a_round_trip() {
        let mut bytes = Vec::new();
        write(&mut bytes, VERDICT, REQUEST, 7, 0x1234, |out| {
            put(out, 3, &[1, 2, 3]);
            put(out, 2, &[9; 8]);
        });
        write(&mut bytes, CONFIG, REQUEST | ACK, 8, 1, |_| {});
        let messages: Vec<_> = Messages(&bytes).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].sequence), (VERDICT, 7));
        assert_eq!(messages[0].body[..4], [0, 0, 0x12, 0x34]);
        let read: Vec<_> = Attributes::of(&messages[0].body[4..]).collect();
        assert_eq!(read, [(3, &[1, 2, 3][..]), (2, &[9; 8][..])]);
        assert_eq!((messages[1].kind, messages[1].body.len()), (CONFIG, 4));
    }

    #[test]
    fn overlong_messages_are_truncated_and_reported() {
        let mut bytes = Vec::new();
        write(&mut bytes, PACKET, 0, 0, 0, |out| put(out, 1, &[0; 7]));
        let len = bytes.len();
        let message = Messages(&bytes[..len - 4]).next().unwrap();
        assert!(message.cut);
        let mut attributes = Attributes::of(&message.body[FAMILY_BYTES..]);
        assert_eq!(attributes.by_ref().count(), 0);
        assert!(attributes.corrupted());
    }

    #[test]
    fn a_length_below_a_header_ends_the_walk() {
        assert_eq!(
            Messages(&[15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).count(),
            0
        );
        let mut attributes = Attributes::of(&[3, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(attributes.next(), None);
        assert!(attributes.corrupted());
    }
}
