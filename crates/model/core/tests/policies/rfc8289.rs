//! CoDel as RFC 8289 section 5 writes it: a loop over a queue, in plain integers. Slow, and shares
//! nothing with `bpf/policy/codel.h`.

use std::collections::VecDeque;

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub handle: u32,
    pub bytes: u32,
    pub ecn: u8,
    pub arrived: u64,
}

/// Its parameters; ns and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub target: u64,
    pub interval: u64,
    pub ecn: bool,
    pub ce_threshold: u64,
    pub mtu: u64,
}

/// Outcomes of packets: handle, sent (and marked) or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOutcome {
    Sent { handle: u32, marked: bool },
    Dropped { handle: u32 },
}

/// The variables of section 5.4, and the queue.
#[derive(Debug, Default)]
pub struct Codel {
    pub queue: VecDeque<Waiting>,
    pub bytes: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Codel {
    pub fn enqueue(&mut self, packet: Waiting) {
        self.bytes += u64::from(packet.bytes);
        self.queue.push_back(packet);
    }

    /// Section 5.6: interval / sqrt(count), rounded down.
    fn control_law(settings: &Settings, since: u64, count: u32) -> u64 {
        let square = u128::from(settings.interval).pow(2);
        let step = (square / u128::from(count)).isqrt();
        since + u64::try_from(step).unwrap()
    }

    fn dodequeue(&mut self, settings: &Settings, now: u64) -> (Option<Waiting>, bool) {
        let Some(packet) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        self.bytes -= u64::from(packet.bytes);
        if now - packet.arrived < settings.target || self.bytes <= settings.mtu {
            self.first_above_time = 0;
            return (Some(packet), false);
        }
        if self.first_above_time == 0 {
            self.first_above_time = now + settings.interval;
            return (Some(packet), false);
        }
        (Some(packet), now >= self.first_above_time)
    }

    /// A packet, and whether it is marked; what is dropped on the way goes to `results`.
    pub fn dequeue(
        &mut self,
        settings: &Settings,
        now: u64,
        results: &mut Vec<PacketOutcome>,
    ) -> Option<(Waiting, bool)> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(settings, now);
        let mut marked = false;
        let marks = |packet: &Option<Waiting>| settings.ecn && packet.is_some_and(|p| p.ecn != 0);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if marks(&packet) {
                    marked = true;
                    self.drop_next = Codel::control_law(settings, self.drop_next, self.count);
                    break;
                }
                let handle = packet.unwrap().handle;
                results.push(PacketOutcome::Dropped { handle });
                (packet, ok_to_drop) = self.dodequeue(settings, now);
                if ok_to_drop {
                    self.drop_next = Codel::control_law(settings, self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if marks(&packet) {
                marked = true;
            } else {
                let handle = packet.unwrap().handle;
                results.push(PacketOutcome::Dropped { handle });
                packet = self.dodequeue(settings, now).0;
            }
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now < self.drop_next + 16 * settings.interval {
                self.count = delta;
            }
            self.drop_next = Codel::control_law(settings, now, self.count);
            self.lastcount = self.count;
        }
        let packet = packet?;
        let waited = now - packet.arrived;
        if packet.ecn != 0 && settings.ce_threshold > 0 && waited > settings.ce_threshold {
            marked = true;
        }
        Some((packet, marked))
    }
}
