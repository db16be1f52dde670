//! Fields out of received bytes, in network order, with an error that names the header.

/// Why bytes are no header of the requested kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end before the header does, or before the end it announces.
    #[error("{header}: needs {need} bytes, has {have}")]
    Short {
        /// Which header.
        header: &'static str,
        /// Bytes it takes.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A field has a value the header cannot have.
    #[error("{header}: {field} cannot be {value}")]
    Field {
        /// Which header.
        header: &'static str,
        /// Which field.
        field: &'static str,
        /// The value.
        value: u32,
    },
}

/// Splits off `len` bytes, or says that `header` is short.
pub(crate) fn split<'a>(
    header: &'static str,
    bytes: &'a [u8],
    len: usize,
) -> Result<(&'a [u8], &'a [u8]), ParseError> {
    bytes.split_at_checked(len).ok_or(ParseError::Short {
        header,
        need: len,
        have: bytes.len(),
    })
}

/// The first `N` bytes as an array, and the rest.
pub(crate) fn array<'a, const N: usize>(
    header: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a [u8; N], &'a [u8]), ParseError> {
    bytes.split_first_chunk::<N>().ok_or(ParseError::Short {
        header,
        need: N,
        have: bytes.len(),
    })
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
