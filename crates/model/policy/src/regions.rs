//! The memory that a custom policy can access.
//!
//! ```text
//!  63       35 32 31                 0
//! +----------+---+--------------------+
//! | 0        |   | offset             |   1 packet (read only)  2 flow  3 class  4 global  5 call
//! +----------+---+--------------------+   6 stack  7 constants (read only)
//!            region; 0 is nothing
//! ```
//!
//! An address is a number that every access takes apart and checks against its region's bytes, so
//! that no arithmetic of the policy can lead out of the six. Words are kept in the machine's order,
//! which is the only one that the core knows, so that bytes of a word are shifts of it.

use fairpath_core::sched::Meta;

/// The first argument, `struct fp_meta`; flow, class, global and call follow as 2 to 5.
pub(super) const PACKET: usize = 1;
pub(super) const STACK: usize = 6;
/// Constant tables.
pub(super) const ROM: usize = 7;
/// Of one function's stack.
pub(super) const STACK_WORDS: usize = 64;
/// Words of a packet.
pub(super) const PACKET_WORDS: usize = size_of::<Meta>() / 8;

/// The address of a byte of a region.
pub(super) const fn address(region: usize, offset: u64) -> u64 {
    ((region as u64) << 32).wrapping_add(offset)
}

/// A region's name in messages.
pub(super) fn name(address: u64) -> &'static str {
    let names = [
        "no memory",
        "packet p",
        "flow f",
        "class c",
        "global g",
        "call r",
        "stack",
        "constants",
    ];
    let region = usize::try_from(address >> 32).unwrap_or(0);
    names.get(region).unwrap_or(&names[0])
}

/// Slices by region, and how many of their bytes the policy may touch.
pub(super) struct Regions<'a> {
    pub words: [&'a mut [u64]; 8],
    pub bytes: [u32; 8],
}

impl Regions<'_> {
    /// Reads `SIZE` bytes, 1 to 8, of any alignment; `None` outside.
    #[inline(always)]
    pub fn load<const SIZE: u32>(&self, address: u64) -> Option<u64> {
        let (region, at) = self.place::<SIZE>(address)?;
        let words = &self.words[region];
        let shift = at % 8 * 8;
        let mut value = words.get((at / 8) as usize)? >> shift;
        if shift + 8 * SIZE > 64 {
            value |= words.get((at / 8) as usize + 1)? << (64 - shift);
        }
        Some(value & mask::<SIZE>())
    }

    /// Writes in the same way; `None` outside, and where writes are refused.
    #[inline(always)]
    pub fn store<const SIZE: u32>(&mut self, address: u64, value: u64) -> Option<()> {
        let (region, at) = self.place::<SIZE>(address)?;
        if region == PACKET || region == ROM {
            return None;
        }
        let words = &mut self.words[region];
        let (shift, value) = (at % 8 * 8, value & mask::<SIZE>());
        let word = words.get_mut((at / 8) as usize)?;
        *word = *word & !(mask::<SIZE>() << shift) | value << shift;
        if shift + 8 * SIZE > 64 {
            let (word, rest) = (words.get_mut((at / 8) as usize + 1)?, 64 - shift);
            *word = *word & !(mask::<SIZE>() >> rest) | value >> rest;
        }
        Some(())
    }

    #[inline(always)]
    fn place<const SIZE: u32>(&self, address: u64) -> Option<(usize, u32)> {
        let region = (address >> 32) as usize;
        let at = (address & 0xffff_ffff) as u32;
        let bytes = *self.bytes.get(region)?;
        (u64::from(at) + u64::from(SIZE) <= u64::from(bytes)).then_some((region, at))
    }
}

#[inline(always)]
const fn mask<const SIZE: u32>() -> u64 {
    u64::MAX >> (64 - 8 * SIZE)
}

/// A packet as the words of `struct fp_meta`.
pub(super) fn packet_words(packet: &Meta) -> [u64; PACKET_WORDS] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let half =
        |bytes: &[u8; 16], at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let ports = u32::from(packet.source_port) | u32::from(packet.destination_port) << 16;
    let tail = [packet.protocol, packet.dscp, packet.ecn, packet.segments];
    let [one, two, three, four] = packet.sack;
    [
        packet.arrival,
        packet.hint,
        pair(packet.bytes, packet.flow_hash),
        pair(packet.class_id, packet.mark),
        half(&packet.source, 0),
        half(&packet.source, 8),
        half(&packet.destination, 0),
        half(&packet.destination, 8),
        pair(ports, u32::from_le_bytes(tail)),
        pair(packet.ack_flags, packet.ack),
        one,
        two,
        three,
        four,
    ]
}
