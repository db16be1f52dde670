//! How large bursts and quanta are for a rate.
//!
//! HTB asks a high-resolution timer for the moment at which a class may send again, and forgets what a class could have
//! sent beyond its burst. So the burst has to cover how late the packet path may come, or rate is lost; more only makes
//! the queue behind this one longer.

/// How late a class's turn may come without losing rate: a tick of a kernel with 250 Hz, in which a busy CPU may keep a
/// softirq waiting, and more than the timer's own slack.
pub const LATENESS_NS: u64 = 4_000_000;
/// Frames that fit into any burst: one under way, one that waits.
const BURST_FRAMES: u32 = 2;
/// Below this, the kernel warns (`sch_htb.c`), and sharing costs more turns than packets.
pub const MIN_QUANTUM_BYTES: u32 = 1000;
/// Above this, the kernel warns, and one class keeps the others waiting.
pub const MAX_QUANTUM_BYTES: u32 = 200_000;

/// The burst of a class with this rate: the bytes that arrive in [`LATENESS_NS`], and two frames.
///
/// `frame_bytes` is the largest frame without FCS. A GSO packet can be larger: HTB sends it, and the
/// class then waits for the same time.
pub fn burst_bytes(rate_bps: u64, frame_bytes: u32) -> u32 {
    let late = u128::from(rate_bps) * u128::from(LATENESS_NS) / 8_000_000_000;
    let late = u32::try_from(late).unwrap_or(u32::MAX);
    late.saturating_add(frame_bytes.saturating_mul(BURST_FRAMES))
}

/// The quantum of a leaf of this weight whose lightest sibling weighs `lightest`: a frame each turn for the lightest,
/// so that all send in every round, within what the kernel does not warn of.
pub fn quantum_bytes(weight: u64, lightest: u64, frame_bytes: u32) -> u32 {
    let frame = u64::from(frame_bytes.max(MIN_QUANTUM_BYTES));
    let quantum = u128::from(weight.max(1)) * u128::from(frame) / u128::from(lightest.max(1));
    u32::try_from(quantum)
        .unwrap_or(u32::MAX)
        .clamp(MIN_QUANTUM_BYTES, MAX_QUANTUM_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_covers_lateness_and_two_frames() {
        assert_eq!(burst_bytes(0, 1514), 3028);
        assert_eq!(burst_bytes(20_000_000, 1514), 10_000 + 3028);
        assert_eq!(burst_bytes(u64::MAX, 1514), u32::MAX);
    }

    #[test]
    fn quanta_follow_weights_without_kernel_warnings() {
        assert_eq!(quantum_bytes(1, 1, 1514), 1514);
        assert_eq!(quantum_bytes(3, 1, 1514), 3 * 1514);
        assert_eq!(quantum_bytes(1, 1, 100), MIN_QUANTUM_BYTES);
        assert_eq!(quantum_bytes(u64::MAX, 1, 1514), MAX_QUANTUM_BYTES);
    }
}
