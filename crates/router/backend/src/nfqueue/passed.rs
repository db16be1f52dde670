//! Flows of UDP of which a packet has passed.
//!
//! Connection tracking confirms a connection when its first packet leaves. Until then it allows one packet of it, and
//! the kernel drops segments that it made of that packet without a counter: all of them, or in later versions those
//! that do not leave in order. So a GSO packet of UDP is split, or marked, only if another packet of its flow left
//! before. TCP opens with packets of one segment.

use fairpath_core::sched::Meta;
use fairpath_wire::IpProto;

/// Flows that are remembered: a power of two.
const FLOWS: usize = 4096;
/// After this time without a packet, a connection may be a new one. Connection tracking keeps it for 30 s.
const REMEMBERED_NS: u64 = 5_000_000_000;

/// By hash: the flow, and when its last packet passed. A collision forgets a flow, and a packet of it stays whole.
pub struct Passed(Vec<(u32, u64)>);

impl Default for Passed {
    fn default() -> Passed {
        Passed(vec![(0, 0); FLOWS])
    }
}

impl Passed {
    /// The flow of a UDP packet, otherwise 0.
    pub fn flow(meta: &Meta) -> u32 {
        match IpProto(meta.protocol) {
            IpProto::UDP => meta.flow_hash,
            _ => 0,
        }
    }

    /// A packet of this flow leaves.
    pub fn note(&mut self, flow: u32, now: u64) {
        if flow != 0 {
            self.0[flow as usize % FLOWS] = (flow, now);
        }
    }

    /// True if a packet of this flow passed recently, or nothing depends on it.
    pub fn has(&self, flow: u32, now: u64) -> bool {
        let (of, at) = self.0[flow as usize % FLOWS];
        flow == 0 || (of == flow && now.saturating_sub(at) < REMEMBERED_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flows_with_a_recent_packet_have_passed() {
        let mut passed = Passed::default();
        let second = 1_000_000_000;
        assert!(passed.has(0, 0), "TCP");
        assert!(!passed.has(7, 0));
        passed.note(7, second);
        assert!(passed.has(7, 2 * second));
        assert!(!passed.has(7, 6 * second), "it may be another connection");
        passed.note(7 + FLOWS as u32, 2 * second);
        assert!(!passed.has(7, 2 * second), "another one has its place");
    }
}
