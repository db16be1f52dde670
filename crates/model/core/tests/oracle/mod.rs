//! The oracle of the RTT core, computed slowly: every packet of every direction is kept, nothing is
//! ever evicted, and each ACK searches all of it again. Written from the definitions at the top of
//! `bpf/core/rtt/tcp.h`, RFC 7323 and Karn's rule as tcptrace states it; shares no structure with the
//! C.
//!
//! Sequence numbers and TSvals are unwrapped into 64 bits on arrival.
//!
//! Deliberately absent: flow life (reuse, timeouts, eviction), several points of sight, GSO. Edge tests hold those.

#![allow(dead_code)] // every test binary uses another part of it

use std::collections::HashMap;

use fairpath_core::{Counts, Method, Mode};
use fairpath_wire::tcp::Flags;

use crate::traffic::{Observed, Packet};

/// A sample, by what identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OracleSample {
    pub number: u64,
    pub rtt: u64,
    pub method: Method,
    /// The host that answered.
    pub measured: usize,
    pub flow: usize,
    pub seq: u32,
    pub ack: u32,
    pub acked_bytes: u32,
}

/// Why a packet was sent, as far as one can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All of it is seen for the first time: may be matched.
    New,
    /// All of it is new, but the answer says nothing about the path: a byte into a closed window, the first data of a
    /// direction that began before us.
    NewUnmatched,
    /// At least its beginning was (or should have been) sent before.
    Again,
    /// Sent again though acknowledged already, keep-alives, pure ACKs: nothing outstanding depends on it.
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: u64,
    seq: i64,
    end: i64,
    ts: Option<i64>,
    syn: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    seq: i64,
    end: i64,
    at: u64,
    ts: Option<i64>,
}

/// One direction: all that one host sent.
#[derive(Debug, Default)]
struct Dir {
    sent: Vec<Sent>,
    next: Option<i64>,
    acked: Option<i64>,
    holes: Vec<Hole>,
    window_closed: bool,
    newest_ts: Option<i64>,
    min: Option<u64>,
    counts: Counts,
}

#[derive(Debug)]
pub struct Oracle {
    mode: Mode,
    flows: HashMap<usize, [Dir; 2]>,
    pub reported: Vec<OracleSample>,
    /// ACKs that Karn's rule lets through, whatever the timestamps say: what hybrid is measured against.
    pub karn: Vec<(u64, u64)>,
}

/// The 64-bit number nearest to `near` that ends in these 32 bits.
fn unwrap(number: u32, near: i64) -> i64 {
    near + i64::from(number.wrapping_sub(near as u32) as i32)
}

/// Far enough from zero that nothing gets negative.
const ORIGIN: i64 = 1 << 40;

impl Oracle {
    pub fn new(mode: Mode) -> Oracle {
        Oracle {
            mode,
            flows: HashMap::new(),
            reported: Vec::new(),
            karn: Vec::new(),
        }
    }

    pub fn packet(&mut self, seen: &Observed) {
        let p = &seen.packet;
        let opens = !(p.flags.contains(Flags::RST) || p.flags.contains(Flags::FIN));
        if !self.flows.contains_key(&p.flow) && !opens {
            return; // nothing begins with an end
        }
        let flow = self.flows.entry(p.flow).or_default();
        flow[p.from].counts.packets += 1;
        flow[p.from].counts.bytes += u64::from(p.payload);
        if p.flags.contains(Flags::ACK) {
            self.take_ack(seen);
        }
        let flow = self.flows.get_mut(&p.flow).expect("just made");
        if !p.flags.contains(Flags::RST) {
            let round_trip = flow[0].min.zip(flow[1].min).map(|(a, b)| a + b);
            flow[p.from].take_data(seen, round_trip);
        }
        flow[p.from].note_ts(p);
    }

    pub fn counts(&self, flow: usize, host: usize) -> Counts {
        self.flows[&flow][host].counts
    }

    fn take_ack(&mut self, seen: &Observed) {
        let p = &seen.packet;
        let measured = p.from;
        let dir = &mut self.flows.get_mut(&p.flow).expect("made by packet()")[1 - p.from];
        let Some(next) = dir.next else { return };
        dir.window_closed = p.window == 0 && !p.flags.contains(Flags::RST);
        let ack = unwrap(p.ack, dir.acked.unwrap_or(next));
        let unseen = ack > next;
        if unseen {
            dir.counts.unobserved_bytes += (ack - next) as u32;
            dir.next = Some(ack);
        }
        if dir.acked.is_some_and(|acked| ack <= acked) {
            return;
        }
        let echo = p.ts.map(|(_, tsecr)| dir.unwrap_ts(tsecr));
        let (found, karn) = dir.find(self.mode, ack, echo, unseen);
        self.karn
            .extend(karn.map(|sent| (seen.number, seen.at - sent.at)));
        if let Some((sent, method)) = found {
            let rtt = seen.at - sent.at;
            let acked_bytes = if sent.syn {
                0
            } else {
                (ack - dir.acked.unwrap_or(sent.seq)) as u32
            };
            dir.counts.samples += 1;
            dir.counts.sampled_bytes += u64::from(acked_bytes);
            dir.min = Some(dir.min.map_or(rtt, |min| min.min(rtt)));
            self.reported.push(OracleSample {
                number: seen.number,
                rtt,
                method,
                measured,
                flow: p.flow,
                seq: sent.end as u32,
                ack: p.ack,
                acked_bytes,
            });
        }
        dir.acked = Some(ack);
        let counts = &mut dir.counts;
        dir.holes.retain(|hole| {
            if hole.end <= ack {
                counts.unobserved_bytes += (hole.end - hole.seq) as u32;
            }
            hole.end > ack
        });
    }
}

impl Dir {
    fn unwrap_ts(&self, ts: u32) -> i64 {
        unwrap(ts, self.newest_ts.unwrap_or(ORIGIN + i64::from(ts)))
    }

    /// Returns the match of an ACK that advances to `ack` in this mode; and what it matches by Karn's
    /// rule alone.
    fn find(
        &self,
        mode: Mode,
        ack: i64,
        echo: Option<i64>,
        unseen: bool,
    ) -> (Option<(Sent, Method)>, Option<Sent>) {
        let covered = self.covered(ack);
        let newest = covered.iter().max_by_key(|sent| sent.seq).copied();
        let karn = newest.filter(|sent| ack <= sent.end && !unseen);
        let named = |sent: Sent, method| {
            let method = if sent.syn { Method::Handshake } else { method };
            (sent, method)
        };
        let mut found = match mode {
            Mode::Seq => karn.map(|sent| named(sent, Method::Seq)),
            Mode::Ts => {
                let echoed = covered.iter().filter(|s| s.ts.is_some() && s.ts == echo);
                echoed.max_by_key(|s| s.seq).map(|s| named(*s, Method::Ts))
            }
            _ => karn
                .filter(|sent| !self.echo_contradicts(sent, &covered, echo))
                .map(|sent| named(sent, Method::Seq)),
        };
        if found.is_none() && mode != Mode::Seq {
            found = self.own_ts(ack, echo).map(|sent| named(sent, Method::Ts));
        }
        if mode == Mode::Handshake {
            found = found.filter(|(_, method)| *method == Method::Handshake);
        }
        (found, karn)
    }

    /// Returns the data that `ack` covers for the first time, of those that were sent once and have
    /// nothing earlier sent after them.
    fn covered(&self, ack: i64) -> Vec<Sent> {
        let newly = |s: &Sent| s.seq < ack && self.acked.is_none_or(|acked| s.end > acked);
        let undisturbed = |i: usize, s: &Sent| {
            self.sent[i + 1..]
                .iter()
                .all(|later| later.kind == Kind::Idle || later.seq >= s.end)
        };
        let candidates = self.sent.iter().enumerate();
        candidates
            .filter(|(i, s)| s.kind == Kind::New && newly(s) && undisturbed(*i, s))
            .map(|(_, s)| *s)
            .collect()
    }

    /// An echo newer than the match means that an earlier ACK answered it. One older than all that this ACK covers
    /// means an answer to an earlier copy, but only if no unmatched data precede the oldest.
    fn echo_contradicts(&self, matched: &Sent, covered: &[Sent], echo: Option<i64>) -> bool {
        let (Some(echo), Some(ts)) = (echo, matched.ts) else {
            return false;
        };
        if echo > ts {
            return true;
        }
        let oldest = covered
            .iter()
            .min_by_key(|sent| sent.seq)
            .expect("matched is one");
        let begins_at_ack = self.acked.is_none_or(|acked| oldest.seq <= acked);
        begins_at_ack && oldest.ts.is_some_and(|ts| echo < ts)
    }

    /// The retransmission that the echo distinguishes from every other packet of this direction.
    fn own_ts(&self, ack: i64, echo: Option<i64>) -> Option<Sent> {
        let echo = echo?;
        let first = self.sent.iter().position(|sent| sent.ts >= Some(echo))?;
        let sent = self.sent[first];
        let newly = sent.end <= ack && self.acked.is_none_or(|acked| sent.end > acked);
        // Another retransmission with the same TSval may be what is answered.
        let alone = self.sent[first + 1..].iter().all(|other| {
            let answered = other.seq < ack && self.acked.is_none_or(|acked| other.end > acked);
            other.kind != Kind::Again || other.ts != Some(echo) || !answered
        });
        (sent.ts == Some(echo) && sent.kind == Kind::Again && newly && alone).then_some(sent)
    }

    fn take_data(&mut self, seen: &Observed, round_trip: Option<u64>) {
        let p = &seen.packet;
        let (syn, fin) = (p.flags.contains(Flags::SYN), p.flags.contains(Flags::FIN));
        let bytes = i64::from(p.payload) + i64::from(syn) + i64::from(fin);
        let origin = || ORIGIN + i64::from(p.seq);
        let seq = self.next.map_or_else(origin, |next| unwrap(p.seq, next));
        let mut sent = Sent {
            at: seen.at,
            seq,
            end: seq + bytes,
            ts: p.ts.map(|(tsval, _)| self.unwrap_ts(tsval)),
            syn,
            kind: Kind::Idle,
        };
        let Some(next) = self.next else {
            self.next = Some(sent.end);
            if syn {
                self.counts.data_packets += 1;
            }
            sent.kind = if syn { Kind::New } else { Kind::NewUnmatched };
            self.sent.push(sent);
            return;
        };
        if bytes > 0 {
            self.counts.data_packets += 1;
            sent.kind = if seq < next {
                self.take_old(&sent, next, bytes, syn || fin, round_trip)
            } else {
                self.take_new(&sent, next)
            };
            self.next = Some(next.max(sent.end));
        }
        self.sent.push(sent);
    }

    fn take_new(&mut self, sent: &Sent, next: i64) -> Kind {
        if sent.seq > next {
            self.holes.push(Hole {
                seq: next,
                end: sent.seq,
                at: sent.at,
                ts: sent.ts,
            });
        }
        if self.window_closed && sent.end - sent.seq == 1 {
            return Kind::NewUnmatched;
        }
        Kind::New
    }

    /// A packet that begins with what was seen, or should have been seen, before.
    fn take_old(
        &mut self,
        sent: &Sent,
        next: i64,
        bytes: i64,
        control: bool,
        round_trip: Option<u64>,
    ) -> Kind {
        let acked = self.acked;
        if bytes <= 1 && sent.seq + 1 == next && acked == Some(next) && !control {
            return Kind::Idle; // keep-alive
        }
        let old_end = sent.end.min(next);
        let (filled, reordered, late) = self.fill(sent, old_end, round_trip);
        let counts = &mut self.counts;
        counts.upstream_lost_bytes += (filled - reordered) as u64;
        counts.reordered_packets += u32::from(reordered > 0);
        counts.upstream_lost_packets += u32::from(filled > 0 && reordered == 0);
        debug_assert!(late >= 0);
        let again = old_end - sent.seq - filled;
        if again > 0 {
            counts.retransmitted_packets += 1;
            counts.retransmitted_bytes += again as u64;
        }
        if filled == 0 && acked.is_some_and(|acked| old_end <= acked) {
            counts.spurious_packets += 1;
            return Kind::Idle;
        }
        Kind::Again
    }

    /// Takes `[sent.seq, end)` out of the holes: bytes filled, and how many of them were only reordered.
    fn fill(&mut self, sent: &Sent, end: i64, round_trip: Option<u64>) -> (i64, i64, i64) {
        let (mut filled, mut reordered) = (0, 0);
        let mut left = Vec::new();
        for hole in std::mem::take(&mut self.holes) {
            let (from, to) = (hole.seq.max(sent.seq), hole.end.min(end));
            if to <= from {
                left.push(hole);
                continue;
            }
            filled += to - from;
            if is_reordered(sent, &hole, round_trip) {
                reordered += to - from;
            }
            left.extend((hole.seq < from).then_some(Hole { end: from, ..hole }));
            left.extend((to < hole.end).then_some(Hole { seq: to, ..hole }));
        }
        self.holes = left;
        (filled, reordered, 0)
    }

    fn note_ts(&mut self, p: &Packet) {
        if let Some((tsval, _)) = p.ts {
            let ts = self.unwrap_ts(tsval);
            self.newest_ts = Some(self.newest_ts.map_or(ts, |newest| newest.max(ts)));
        }
    }
}

/// Was what fills a hole sent before the packet that made it? The clocks decide; without them, a packet within half
/// a round trip (or 3 ms) is no retransmission.
fn is_reordered(sent: &Sent, hole: &Hole, round_trip: Option<u64>) -> bool {
    match (sent.ts, hole.ts) {
        (Some(a), Some(b)) if a != b => a < b,
        _ => sent.at - hole.at < round_trip.map_or(3_000_000, |rtt| rtt / 2),
    }
}
