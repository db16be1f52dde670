//! Metadata of a packet from the XDP program, before the frame. Pure.
//!
//! ```text
//!   magic u32 | exit u32 | struct fp_meta (112 bytes) | Ethernet header ...
//! ```
//!
//! Mirrors `struct fp_metadata` of `bpf/core/forward/abi.h`. Bytes without the magic are not valid:
//! metadata of another program, or of an earlier packet in the frame. User space can write this
//! memory, so a reader checks every index in it.

use fairpath_core::sched::Meta;

/// `FP_METADATA_MAGIC`: "fpnt".
const MAGIC: u32 = 0x746e_7066;
/// Bytes before the frame: `sizeof(struct fp_metadata)`.
pub const METADATA_BYTES: usize = 8 + size_of::<Meta>();

/// Valid metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMetadata {
    /// Number of the egress interface in the configuration of the program.
    pub exit: u32,
    /// Metadata for policies, with the class of the end that counts.
    pub meta: Meta,
}

impl FrameMetadata {
    /// Reads the bytes directly before a frame. `None` if they are not valid.
    pub fn read(bytes: &[u8; METADATA_BYTES]) -> Option<FrameMetadata> {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        if word(0) != MAGIC {
            return None;
        }
        let meta = bytes[8..].as_ptr().cast::<Meta>();
        Some(FrameMetadata {
            exit: word(4),
            // SAFETY: as many bytes as a `Meta` has, without alignment; it consists of integers,
            // for which any bytes are valid.
            meta: unsafe { meta.read_unaligned() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_needs_magic_and_matches_the_c_layout() {
        let mut bytes = [0; METADATA_BYTES];
        assert_eq!((METADATA_BYTES, FrameMetadata::read(&bytes)), (120, None));
        bytes[..4].copy_from_slice(b"fpnt");
        bytes[4] = 1;
        bytes[8 + 16] = 60;
        bytes[8 + 24] = 7;
        bytes[8 + 70] = 2;
        let metadata = FrameMetadata::read(&bytes).unwrap();
        let meta = metadata.meta;
        assert_eq!(
            (metadata.exit, meta.bytes, meta.class_id, meta.ecn),
            (1, 60, 7, 2)
        );
    }
}
