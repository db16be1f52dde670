//! Packets that were read and not passed to the caller yet.
//!
//! Invariant: a packet leaves here once. If a caller stops early, or its decision panics, the
//! remaining packets come first in the next round. Answers to verdicts come on the same socket and
//! are counted here. Packets between binding and its acknowledgement are kept.

use std::num::NonZeroU32;

use crate::counters::PacketCounters;
use crate::message::{Message, Messages, NLMSG_ERROR, PACKET, native_u32};
use crate::packet::Packet;
use crate::socket::Slots;
use crate::verdict::Held;

/// Datagrams of the last read; each holds one message, as this kernel subsystem sends them.
#[derive(Debug)]
pub(crate) struct Intake {
    slots: Slots,
    /// Packets from before the queue was ready, which go first.
    early: Vec<Vec<u8>>,
    cursor: Cursor,
}

/// The position of the next packet, and the state so far.
#[derive(Debug, Default)]
struct Cursor {
    at: usize,
    /// The last packet's id.
    newest: u32,
    counters: PacketCounters,
}

impl Intake {
    pub fn new(slots: Slots) -> Intake {
        Intake {
            slots,
            early: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    /// True if all packets were passed on.
    pub fn is_empty(&self) -> bool {
        self.cursor.at >= self.len()
    }

    fn len(&self) -> usize {
        if self.early.is_empty() {
            self.slots.filled()
        } else {
            self.early.len()
        }
    }

    /// The buffers for the next read; only when [`Intake::is_empty`].
    pub fn refill(&mut self) -> &mut Slots {
        self.early.clear();
        self.cursor.at = 0;
        self.cursor.counters.reads += 1;
        &mut self.slots
    }

    /// The buffers after the last read.
    pub fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// The kernel reported lost packets.
    pub fn overrun(&mut self) {
        self.cursor.counters.overruns += 1;
    }

    pub fn counters(&self) -> PacketCounters {
        self.cursor.counters
    }

    /// The last packet's id.
    pub fn newest(&self) -> u32 {
        self.cursor.newest
    }

    /// Finds the answer to request `sequence` in the slots, and keeps the packets among them.
    pub fn answer_to(&mut self, sequence: u32) -> Option<i32> {
        let mut answer = None;
        for at in 0..self.slots.filled() {
            let bytes = self.slots.datagram(at);
            match Messages(bytes).next() {
                Some(m) if m.kind == NLMSG_ERROR && m.sequence == sequence => answer = code(&m),
                _ => self.early.push(bytes.to_vec()),
            }
        }
        answer
    }

    /// The packets that were not passed on.
    pub fn packets(&mut self, of: NonZeroU32) -> Packets<'_> {
        Packets {
            slots: &self.slots,
            early: &self.early,
            cursor: &mut self.cursor,
            of,
        }
    }
}

/// The error of an acknowledgement as a positive number, 0 for success.
fn code(message: &Message<'_>) -> Option<i32> {
    native_u32(message.body, 0).map(|code| code.cast_signed().wrapping_neg())
}

/// The packets of one round, each with the right to give its verdict.
#[derive(Debug)]
pub struct Packets<'a> {
    slots: &'a Slots,
    early: &'a [Vec<u8>],
    cursor: &'a mut Cursor,
    of: NonZeroU32,
}

impl<'a> Packets<'a> {
    /// The next packet, which stays the next one until [`Packets::hand_out`].
    pub(crate) fn peek(&mut self) -> Option<Packet<'a>> {
        loop {
            let message = Messages(self.datagram(self.cursor.at)?).next();
            match message.map(|m| (m, Packet::read(&m))) {
                Some((m, Some(packet))) if m.kind == PACKET => return Some(packet),
                Some((m, _)) if m.kind == NLMSG_ERROR => {
                    self.cursor.counters.refused += u64::from(code(&m).is_some_and(|c| c != 0));
                }
                _ => self.cursor.counters.malformed += 1,
            }
            self.cursor.at += 1;
        }
    }

    /// Passes on the packet that was peeked at.
    pub(crate) fn hand_out(&mut self, packet: &Packet<'_>) {
        let cursor = &mut *self.cursor;
        cursor.at += 1;
        cursor.counters.received += 1;
        cursor.counters.malformed += u64::from(!packet.is_whole());
        let missing = packet.id.wrapping_sub(cursor.newest).wrapping_sub(1);
        cursor.counters.missing += u64::from(missing);
        cursor.newest = packet.id;
    }

    fn datagram(&self, at: usize) -> Option<&'a [u8]> {
        match self.early.get(at) {
            Some(bytes) => Some(bytes),
            None if self.early.is_empty() && at < self.slots.filled() => {
                Some(self.slots.datagram(at))
            }
            None => None,
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = (Packet<'a>, Held);

    fn next(&mut self) -> Option<(Packet<'a>, Held)> {
        let packet = self.peek()?;
        self.hand_out(&packet);
        let (id, len, of) = (packet.id, packet.len(), self.of);
        Some((packet, Held { id, len, of }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{put, write};

    const PACKET_HDR: u16 = 1;
    const PAYLOAD: u16 = 10;

    fn packet(id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, PACKET, 0, 0, 0, |out| {
            put(
                out,
                PACKET_HDR,
                &[&id.to_be_bytes()[..], &[8, 0, 2]].concat(),
            );
            put(out, PAYLOAD, &[0x45; 30]);
        });
        bytes
    }

    fn refusal(code: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, NLMSG_ERROR, 0, 1, 0, |_| {});
        bytes[16..20].copy_from_slice(&(-code).to_ne_bytes());
        bytes
    }

    fn intake(datagrams: Vec<Vec<u8>>) -> Intake {
        Intake {
            early: datagrams,
            ..Intake::new(Slots::new(1, 64))
        }
    }

    fn ids(intake: &mut Intake) -> Vec<u32> {
        intake
            .packets(NonZeroU32::MIN)
            .map(|(p, _)| p.id())
            .collect()
    }

    #[test]
    fn unread_packets_come_first_next_time() {
        let mut intake = intake([1, 2, 3].map(packet).to_vec());
        let mut packets = intake.packets(NonZeroU32::MIN);
        assert_eq!(packets.next().unwrap().0.id(), 1);
        assert_eq!(packets.peek().unwrap().id(), 2);
        assert!(!intake.is_empty());
        assert_eq!(ids(&mut intake), [2, 3]);
        assert!(intake.is_empty());
        assert_eq!(intake.counters().received, 3);
    }

    #[test]
    fn refusals_are_counted_and_no_packets() {
        let mut intake = intake(vec![refusal(2), packet(1), refusal(0), refusal(2)]);
        assert_eq!(ids(&mut intake), [1]);
        let counted = intake.counters();
        assert_eq!(
            (counted.received, counted.refused, counted.malformed),
            (1, 2, 0)
        );
    }

    #[test]
    fn missing_ids_are_counted_also_where_they_wrap() {
        let mut intake = intake([3, 4, 7].map(packet).to_vec());
        assert_eq!(ids(&mut intake), [3, 4, 7]);
        assert_eq!(intake.counters().missing, 4);
        intake.cursor.newest = u32::MAX - 1;
        intake.cursor.at = 0;
        intake.early = [u32::MAX, 0, 2].map(packet).to_vec();
        assert_eq!(ids(&mut intake), [u32::MAX, 0, 2]);
        assert_eq!(intake.counters().missing, 5);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(2_000))]

        #[test]
        fn no_bytes_panic_or_reach_outside(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4)) {
            let mut intake = intake(datagrams);
            check_all(&mut intake);
        }

        #[test]
        fn corrupted_packets_cause_no_panic_or_overrun(
            corruption in prop::collection::vec((0usize..68, any::<u8>()), 0..6),
            cut in 0usize..=68,
        ) {
            let mut bytes = packet(5);
            for (at, value) in corruption {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(cut);
            let mut intake = intake(vec![bytes]);
            check_all(&mut intake);
        }
    }

    /// Reads all fields; fields outside the datagram would fail.
    fn check_all(intake: &mut Intake) {
        let datagrams = intake.early.clone();
        let total: usize = datagrams.iter().map(Vec::len).sum();
        for (packet, _) in intake.packets(NonZeroU32::MIN) {
            let seen = [packet.payload(), packet.link_header()];
            let seen = seen.map(<[u8]>::len).iter().sum::<usize>();
            assert!(seen <= total);
            let _ = (packet.vlan(), packet.source_mac(), packet.timestamp());
            let _ = (
                packet.owner(),
                packet.conntrack(),
                packet.security_context(),
            );
            let _ = packet.rewrite(packet.payload().to_vec());
        }
        let counted = intake.counters();
        let handled = counted.received + counted.malformed + counted.refused;
        assert!(handled <= 2 * datagrams.len() as u64);
    }
}
