//! What the XDP program detected about a packet, carried before the frame. Pure.
//!
//! ```text
//!   magic u32 | exit u32 | struct fp_meta (80 bytes) | Ethernet header ...
//! ```
//!
//! Mirrors `struct fp_metadata` of `bpf/core/forward/abi.h`. Bytes without the magic are no note: another
//! program's metadata, or what an earlier packet left in the frame. What it says is a hint of the
//! kernel's side, whose memory user space can write: a reader checks what it indexes with it.

use fairpath_core::sched::Meta;

/// `FP_METADATA_MAGIC`: "fpnt".
const MAGIC: u32 = 0x746e_7066;
/// Bytes before the frame: `sizeof(struct fp_metadata)`.
pub const NOTE_BYTES: usize = 8 + size_of::<Meta>();

/// A note as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// By which exit the packet is to leave: a number that the program's configuration gave.
    pub exit: u32,
    /// What policies see of it, the class of the end that counts included.
    pub meta: Meta,
}

impl Note {
    /// Of the bytes right before a frame; `None` where they are no note.
    pub fn read(bytes: &[u8; NOTE_BYTES]) -> Option<Note> {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        if word(0) != MAGIC {
            return None;
        }
        let meta = bytes[8..].as_ptr().cast::<Meta>();
        Some(Note {
            exit: word(4),
            // SAFETY: as many bytes as a `Meta` has, read wherever they lie; it is made of integers,
            // for which any bytes will do.
            meta: unsafe { meta.read_unaligned() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_magic_makes_a_note_and_every_field_is_where_c_puts_it() {
        let mut bytes = [0; NOTE_BYTES];
        assert_eq!((NOTE_BYTES, Note::read(&bytes)), (88, None));
        bytes[..4].copy_from_slice(b"fpnt");
        bytes[4] = 1;
        bytes[8 + 16] = 60;
        bytes[8 + 24] = 7;
        bytes[8 + 70] = 2;
        let note = Note::read(&bytes).unwrap();
        let meta = note.meta;
        assert_eq!(
            (note.exit, meta.bytes, meta.class_id, meta.ecn),
            (1, 60, 7, 2)
        );
    }
}
