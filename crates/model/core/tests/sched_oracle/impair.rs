//! The oracle of the stages before the leaf, and of sending by a trace: written from the heads of
//! `loss.h`, `impair.h`, `delay_queue.h` and `service.h`, with wide numbers and linear searches.

use fairpath_core::sched::{ImpairConfig, ImpairStats, NEVER, Op, Outcome, OutcomeKind};

use super::framing::framed;
use super::{Oracle, reason};

/// The purpose of a draw (`enum fp_purpose`).
mod purpose {
    pub const LOSS: u64 = 1;
    pub const MOVE: u64 = 2;
    pub const START: u64 = 3;
    pub const DELAY: u64 = 4;
    pub const COPY: u64 = 5;
    pub const CORRUPTION: u64 = 6;
    pub const BIT: u64 = 7;
    pub const AHEAD: u64 = 8;
    pub const SLOT: u64 = 9;
}

/// The last moment that a packet may be released.
const LAST: u64 = NEVER - 1;
const OPPORTUNITY: i128 = 1504;
/// A number of 24 bits behind the point.
const ONE: i128 = 1 << 24;

#[derive(Clone, Debug)]
pub struct Impairment {
    config: ImpairConfig,
    stats: ImpairStats,
    number: u64,
    chain: Option<u32>,
    lost_last: bool,
    began: Option<u64>,
    last_leaves: u64,
    newest: u64,
    slot: Slot,
    since_ahead: u64,
    z: Option<i128>,
    service: Option<Service>,
    /// Bytes that were taken of the trace before.
    owed: i128,
}

/// The slot that is filled: its time, and its remaining capacity.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    opens: u64,
    packets: u64,
    bytes: i128,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Service {
    began: u64,
    seen: u64,
    credit: i128,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Impairment {
    pub fn new(config: &ImpairConfig) -> Impairment {
        Impairment {
            config: *config,
            stats: ImpairStats::default(),
            number: 0,
            chain: None,
            lost_last: false,
            began: None,
            last_leaves: 0,
            newest: 0,
            slot: Slot::default(),
            since_ahead: 0,
            z: None,
            service: None,
            owed: 0,
        }
    }

    fn draw(&self, n: u64, purpose: u64) -> u64 {
        let stream = mix(self
            .config
            .loss
            .seed
            .wrapping_add(purpose.wrapping_mul(0xda94_2042_e4dd_58b5)));
        mix(stream.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn happens(&self, n: u64, purpose: u64, chance: u64) -> bool {
        chance == u64::MAX || self.draw(n, purpose) < chance
    }

    fn is_lost(&mut self, n: u64) -> bool {
        let c = self.config.loss.chances;
        match self.config.loss.model {
            1 => self.happens(n, purpose::LOSS, c[0]),
            2 => {
                let bad = match self.chain {
                    Some(2) => !self.happens(n, purpose::MOVE, c[1]),
                    Some(1) => self.happens(n, purpose::MOVE, c[0]),
                    _ => self.happens(n, purpose::START, c[4]),
                };
                self.chain = Some(if bad { 2 } else { 1 });
                self.happens(n, purpose::LOSS, if bad { c[3] } else { c[2] })
            }
            3 => {
                let first = |tries: &[(u64, u32)], purpose, otherwise| {
                    let found = tries
                        .iter()
                        .find(|(chance, _)| self.happens(n, purpose, *chance));
                    found.map_or(otherwise, |(_, state)| *state)
                };
                let state = match self.chain {
                    Some(1) => first(&[(c[0], 3), (c[1], 4)], purpose::MOVE, 1),
                    Some(2) => first(&[(c[2], 3)], purpose::MOVE, 2),
                    Some(3) => first(&[(c[3], 1), (c[4], 2)], purpose::MOVE, 3),
                    Some(4) => 1,
                    _ => first(&[(c[5], 1), (c[6], 2), (c[7], 3)], purpose::START, 4),
                };
                self.chain = Some(state);
                state > 2
            }
            4 => {
                let bits = u64::from(self.config.loss.bits);
                if bits == 0 || bits > 1024 {
                    return false;
                }
                let bit = n % bits;
                self.config.loss.pattern[bit as usize / 64] & (1 << (bit % 64)) != 0
            }
            _ => false,
        }
    }

    /// Takes as many numbers as there are segments: the first, and whether that one is lost.
    fn take_numbers(&mut self, segments: u64, now: u64) -> (u64, bool) {
        let n = self.number;
        let lost = self.is_lost(n);
        for other in 1..segments {
            self.is_lost(n + other);
        }
        self.number += segments;
        self.stats.packets += segments;
        self.stats.gso_packets += u64::from(segments > 1);
        self.stats.lost += if lost { segments } else { 0 };
        self.stats.bursts += u64::from(lost && !self.lost_last);
        self.lost_last = lost;
        self.began.get_or_insert(now);
        (n, lost)
    }

    /// Bytes on the line.
    fn on_line(&self, bytes: u32, segments: u64) -> u64 {
        let own = i64::from(bytes);
        framed(&self.config.framing, own, segments as i64) as u64
    }

    fn standing(&self, now: u64, words: &[u64]) -> u64 {
        let (at, pairs) = (self.config.delays_at, self.config.delays);
        let Some(into) = (now - self.began.unwrap_or(now)).checked_rem(self.config.delays_period)
        else {
            return self.config.delay;
        };
        let known = (0..pairs).map(|pair| (word(words, at, 2 * pair), pair));
        let last = known.take_while(|(time, _)| *time <= into).last();
        match last {
            Some((_, pair)) if pairs > 0 => word(words, at, 2 * pair + 1),
            _ => self.config.delay,
        }
    }

    /// A normal number by the tables, and what the one before left in it.
    fn next_z(&mut self, n: u64, words: &[u64]) -> i128 {
        let draw = self.draw(n, purpose::DELAY);
        // The part of the upper half, 63 bits behind the point; in the last of 1024 once more.
        let mut of_one = u128::from(draw & (u64::MAX >> 1));
        let mut table = 0;
        if of_one >> 53 == 1023 {
            (of_one, table) = ((of_one << 10) & ((1 << 63) - 1), 1025);
        }
        let entry = (of_one >> 53) as u32;
        let part = (of_one >> 37) & 0xffff;
        let mut z = between(words, self.config.normal_at, table + entry, part);
        if draw >> 63 == 1 {
            z = -z;
        }
        if self.config.rho != 0
            && let Some(last) = self.z
        {
            let (rho, fresh) = (i128::from(self.config.rho), i128::from(self.config.fresh));
            z = (rho * last + fresh * z).div_euclid(ONE);
        }
        self.z = Some(z);
        z
    }

    fn delay(&mut self, n: u64, now: u64, words: &[u64]) -> u64 {
        let standing = self.standing(now, words);
        if self.config.jitter_at == 0 {
            return standing;
        }
        let z = self.next_z(n, words).clamp(-8 * ONE, 8 * ONE - 1) + 8 * ONE;
        let (entry, part) = (z / (ONE / 64), z % (ONE / 64) * 65536 / (ONE / 64));
        let deviation = between(words, self.config.jitter_at, entry as u32, part as u128);
        (i128::from(standing) + deviation).max(0) as u64
    }

    fn new_slot(&mut self, from: u64) {
        let draw = self.draw(self.slot.count, purpose::SLOT) >> 32;
        let more = draw * u64::from(self.config.slot_spread) / (1 << 32);
        let unless_zero = |limit: u32, any: u64| match limit {
            0 => any,
            limit => limit.into(),
        };
        self.slot = Slot {
            opens: later(from, self.config.slot_min + more),
            packets: unless_zero(self.config.slot_packets, u32::MAX.into()),
            bytes: unless_zero(self.config.slot_bytes, i64::MAX as u64).into(),
            count: self.slot.count + 1,
        };
    }

    fn fill_slot(&mut self, at: u64, bytes: u32) -> u64 {
        if self.config.slot_min == 0 && self.config.slot_spread == 0 {
            return at;
        }
        if self.slot.opens < at || self.slot.count == 0 {
            self.new_slot(at);
        }
        let opens = self.slot.opens;
        self.slot.packets -= 1;
        self.slot.bytes -= i128::from(bytes);
        if self.slot.packets == 0 || self.slot.bytes <= 0 {
            self.new_slot(opens);
        }
        opens
    }

    /// When packet `n` is released.
    fn time(&mut self, n: u64, bytes: u32, now: u64, words: &[u64]) -> u64 {
        let delay = self.delay(n, now, words);
        if self.config.ahead > 0 {
            let may = self.since_ahead + 1 >= u64::from(self.config.gap);
            if may && self.happens(n, purpose::AHEAD, self.config.ahead) {
                self.since_ahead = 0;
                self.stats.ahead += 1;
                return now;
            }
            self.since_ahead += 1;
        }
        let is_kept = self.config.free_order == 0;
        let mut at = later(now, delay);
        if is_kept {
            at = at.max(self.last_leaves);
        }
        at = self.fill_slot(at, bytes);
        if let Some(over) = at.checked_rem(self.config.release)
            && over > 0
        {
            at = later(at, self.config.release - over);
        }
        if is_kept {
            self.last_leaves = at;
        }
        self.stats.delayed += 1;
        self.stats.requested_ns = self.stats.requested_ns.wrapping_add(delay);
        self.stats.held_ns = self.stats.held_ns.wrapping_add(at.wrapping_sub(now));
        at
    }

    fn admit_due(&mut self, order: u64, due: u64, now: u64) {
        if order < self.newest {
            self.stats.reordered += 1;
        }
        self.newest = self.newest.max(order);
        let late = now.saturating_sub(due);
        self.stats.late_ns += late;
        self.stats.late_most_ns = self.stats.late_most_ns.max(late);
    }

    /// Opportunities from the beginning of the trace to now.
    fn opportunities(&self, since: u64, words: &[u64]) -> u64 {
        let (at, count) = (self.config.chances_at, self.config.chances);
        let Some(laps) = since.checked_div(self.config.chances_period) else {
            return 0;
        };
        let into = since % self.config.chances_period;
        let here = (0..count).take_while(|index| word(words, at, *index) <= into);
        laps * u64::from(count) + here.count() as u64
    }
}

fn later(at: u64, by: u64) -> u64 {
    at.saturating_add(by).min(LAST)
}

fn word(words: &[u64], at: u32, index: u32) -> u64 {
    let place = (at as usize).checked_sub(1).map(|at| at + index as usize);
    place
        .and_then(|place| words.get(place))
        .copied()
        .unwrap_or(0)
}

/// `part` of 65536 of the way from an entry to the next, rounded down.
fn between(words: &[u64], at: u32, entry: u32, part: u128) -> i128 {
    let [a, b] = [entry, entry + 1].map(|entry| i128::from(word(words, at, entry) as i64));
    a + ((b - a) * part as i128).div_euclid(65536)
}

impl Oracle {
    pub fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.impairments[impairment as usize - 1].stats
    }

    pub(super) fn set_impairment(&mut self, op: &Op) -> bool {
        let at = (op.node as usize).checked_sub(1);
        let Some(impairment) = at.and_then(|at| self.impairments.get_mut(at)) else {
            return false;
        };
        let mut words = impairment.config.to_words();
        let Some(word) = words.get_mut(op.count as usize) else {
            return false;
        };
        *word = op.value;
        let trace = |of: &ImpairConfig| (of.chances_at, of.chances, of.chances_period);
        let before = trace(&impairment.config);
        impairment.config = ImpairConfig::from_words(&words);
        if trace(&impairment.config) != before
            && let Some(service) = impairment.service.take()
        {
            impairment.owed = (-service.credit).max(0);
        }
        true
    }

    /// True if the packet goes to its leaf now; else it is lost or waits in the delay queue, and was reported.
    pub(super) fn impair(&mut self, index: usize, handle: u32) -> bool {
        let packet = self.world.packets[&handle];
        let segments = u64::from(packet.meta.segments.max(1));
        let (now, own) = (self.now, packet.meta.bytes);
        let impairment = &mut self.impairments[index];
        let (n, lost) = impairment.take_numbers(segments, now);
        if lost {
            self.drop_packet(handle, reason::IMPAIRED);
            return false;
        }
        let (copy, corrupt) = (impairment.config.copy, impairment.config.corrupt);
        let copied = copy > 0 && impairment.happens(n, purpose::COPY, copy);
        let corrupted = corrupt > 0 && impairment.happens(n, purpose::CORRUPTION, corrupt);
        let line = impairment.on_line(own, segments) * if copied { 2 } else { 1 };
        let more = line
            .checked_sub(own.into())
            .filter(|more| *more < 1 << 24)
            .unwrap_or(0);
        impairment.stats.copied += u64::from(copied);
        impairment.stats.corrupted += u64::from(corrupted);
        let bits = u64::from(own) * 8;
        let part = u128::from(impairment.draw(n, purpose::BIT) >> 32);
        let bit = (part * u128::from(bits)) >> 32;
        let bytes = own + more as u32;
        let at = impairment.time(n, bytes, now, &self.plan.words);
        let packet = self.world.packets.get_mut(&handle).unwrap();
        packet.meta.bytes = bytes;
        packet.more = more as u32;
        packet.flags = if copied { Outcome::COPY } else { 0 };
        if corrupted {
            packet.flags |= Outcome::CORRUPT;
            packet.bit = bit as u32;
        }
        let order = packet.order;
        if at <= now {
            impairment.admit_due(order, now, now);
            return true;
        }
        packet.enqueued = at;
        self.delay_queue.insert((at, order), handle);
        self.stats.queued += 1;
        self.report(OutcomeKind::Queued, handle, 0, at);
        false
    }

    /// Every due packet goes to its leaf.
    pub(super) fn admit_due(&mut self) {
        while let Some(first) = self.delay_queue.first_entry()
            && first.key().0 <= self.now
        {
            let handle = first.remove();
            let packet = self.world.packets[&handle];
            let index = self.config(packet.leaf).impair as usize - 1;
            self.impairments[index].admit_due(packet.order, packet.enqueued, self.now);
            self.place(handle);
        }
    }

    /// True if the packet was at the delay queue; it is there no longer.
    pub(super) fn leave_delay_queue(&mut self, handle: u32) -> bool {
        let before = self.delay_queue.len();
        self.delay_queue.retain(|_, held| *held != handle);
        self.delay_queue.len() < before
    }

    fn service(&mut self) -> Option<(&mut Impairment, &[u64])> {
        let index = (self.plan.config.service as usize).checked_sub(1)?;
        Some((&mut self.impairments[index], &self.plan.words))
    }

    /// Accumulated opportunities are for waiting packets only.
    pub(super) fn serve(&mut self) {
        let (now, someone_waits) = (self.now, self.waiting(1) > 0);
        let Some((impairment, words)) = self.service() else {
            return;
        };
        let mut service = impairment.service.unwrap_or(Service {
            began: now,
            seen: 0,
            credit: -impairment.owed,
        });
        let seen = impairment.opportunities(now - service.began, words);
        service.credit += i128::from(seen.wrapping_sub(service.seen) as i64) * OPPORTUNITY;
        service.seen = seen;
        if !someone_waits {
            service.credit = service.credit.min(0);
        }
        impairment.service = Some(service);
    }

    pub(super) fn is_served(&mut self) -> bool {
        self.service().is_none_or(|(impairment, _)| {
            let none = impairment.config.chances == 0 || impairment.config.chances_period == 0;
            none || impairment.service.is_some_and(|service| service.credit > 0)
        })
    }

    pub(super) fn charge_service(&mut self, bytes: u32) {
        if let Some((impairment, _)) = self.service()
            && let Some(service) = &mut impairment.service
        {
            service.credit -= i128::from(bytes);
        }
    }

    /// When the credit is more than nothing again.
    pub(super) fn next_opportunity(&mut self) -> u64 {
        let Some((impairment, words)) = self.service() else {
            unreachable!("called by an unserved node")
        };
        let service = impairment.service.unwrap();
        let number = service.seen + (-service.credit / OPPORTUNITY) as u64;
        let count = u64::from(impairment.config.chances);
        let lap = (number / count).wrapping_mul(impairment.config.chances_period);
        let into = word(words, impairment.config.chances_at, (number % count) as u32);
        service.began.wrapping_add(lap).wrapping_add(into)
    }
}
