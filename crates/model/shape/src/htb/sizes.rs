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

/// How long one turn of the lightest leaf takes at its parent's rate, at most, unless a frame takes longer: others wait
/// for it.
pub const TURN_NS: u64 = 2_800_000;
/// The largest GSO packet of most interfaces, with the headers of its segments, as HTB counts it.
pub const GSO_BYTES: u32 = 70_000;

/// The quantum of the lightest among sibling leaves.
///
/// A leaf sends a packet in each turn even if it is larger than the quantum. So sizes are fair only if the largest packet
/// is not: [`GSO_BYTES`], or with a slower parent what it sends in [`TURN_NS`], so that others need not wait longer, and a
/// frame at least. `heaviest` is the weight of the heaviest sibling: its quantum shall not exceed [`MAX_QUANTUM_BYTES`].
pub fn base_quantum_bytes(parent_bps: u64, heaviest: u64, lightest: u64, frame_bytes: u32) -> u32 {
    let frame = frame_bytes.max(MIN_QUANTUM_BYTES);
    let turn = u128::from(parent_bps) * u128::from(TURN_NS) / 8_000_000_000;
    let turn = turn.min(GSO_BYTES.into()) as u32;
    let most =
        u128::from(MAX_QUANTUM_BYTES) * u128::from(lightest.max(1)) / u128::from(heaviest.max(1));
    turn.min(most.min(MAX_QUANTUM_BYTES.into()) as u32)
        .max(frame)
}

/// True if leaves that share this rate are fair to GSO packets that they do not split: 200 Mbit/s or more.
pub fn is_fair_to_gso(parent_bps: u64) -> bool {
    base_quantum_bytes(parent_bps, 1, 1, 0) >= GSO_BYTES
}

/// The quantum of a leaf of this weight whose lightest sibling weighs `lightest` and has the quantum `base`; within what the
/// kernel does not warn of.
pub fn quantum_bytes(weight: u64, lightest: u64, base: u32) -> u32 {
    let quantum = u128::from(weight.max(1)) * u128::from(base) / u128::from(lightest.max(1));
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

    #[test]
    fn quanta_hold_gso_packets_where_a_turn_allows() {
        let base = |bps| base_quantum_bytes(bps, 1, 1, 1514);
        assert_eq!(base(2_000_000_000), GSO_BYTES);
        assert_eq!(base(200_000_000), GSO_BYTES);
        assert!(is_fair_to_gso(200_000_000) && !is_fair_to_gso(199_000_000));
        assert_eq!(base(20_000_000), 7_000);
        assert_eq!(base(1_000_000), 1514);
        assert_eq!(base_quantum_bytes(u64::MAX, 1, 1, 9014), GSO_BYTES);
        assert_eq!(base_quantum_bytes(0, 1, 1, 9014), 9014);
    }

    #[test]
    fn quanta_of_unequal_weights_stay_in_proportion() {
        let base = base_quantum_bytes(1_000_000_000, 100, 1, 1514);
        assert_eq!(quantum_bytes(100, 1, base), MAX_QUANTUM_BYTES);
        assert_eq!(quantum_bytes(1, 1, base), 2_000);
        // Beyond that, the lightest has a frame.
        assert_eq!(base_quantum_bytes(1_000_000_000, 1_000, 1, 1514), 1514);
    }
}
