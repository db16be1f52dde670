//! The Internet checksum: in full (RFC 1071) and after a change (RFC 1624).

/// A ones' complement sum under way.
///
/// Pieces are added in order; only the last may have an odd length, because the sum is over 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing added yet.
    pub fn new() -> Sum {
        Sum(0)
    }

    /// With these bytes, an odd last one filled up with zero.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let (words, last) = bytes.as_chunks::<2>();
        let sum: u64 = words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum();
        Sum(self.0 + sum + last.first().map_or(0, |byte| u64::from(*byte) << 8))
    }

    /// With a number, as if its four bytes were added.
    #[must_use]
    pub fn u32(self, value: u32) -> Sum {
        Sum(self.0 + u64::from(value >> 16) + u64::from(value & 0xffff))
    }

    /// The checksum: the complement of the folded sum. Over data that contains its right checksum it is 0.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

/// The checksum of one piece of data.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::new().bytes(bytes).finish()
}

/// The checksum after one 16-bit word of the data changed, without the data (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(u64::from(!checksum) + u64::from(!old) + u64::from(new)).finish()
}

/// The checksum after a 32-bit field at an even offset changed, such as an IPv4 address.
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let high = update(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update(high, old as u16, new as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_holds() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&bytes[..7]), !0xdcfb);
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4_holds() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn an_update_is_what_a_full_sum_gives() {
        let mut data = [
            0x45, 0, 0, 60, 0x12, 0x34, 0x40, 0, 64, 6, 10, 0, 0, 1, 192, 168, 255, 254,
        ];
        let before = checksum(&data);
        data[10..14].copy_from_slice(&[203, 0, 113, 77]);
        let after = update_u32(
            before,
            u32::from_be_bytes([10, 0, 0, 1]),
            u32::from_be_bytes([203, 0, 113, 77]),
        );
        assert_eq!(after, checksum(&data));
    }
}
