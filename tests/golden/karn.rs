//! Karn's rule by its definition: every packet is compared with all earlier packets.
//!
//! Nothing is shared with the core: streams, numbers and times are what tshark printed. A sample is
//! valid, as tcptrace has it (`rtt_ackin`), if an ACK that advances ends where a segment does that
//! was never sent again, in whole or in part, and no earlier number was sent after that segment.

use std::collections::BTreeMap;

use crate::Samples;
use crate::subject::Sample;

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub frame: u64,
    /// Nanoseconds.
    pub time: u64,
    pub stream: u32,
    /// Of the sender.
    pub port: u32,
    pub seq: u32,
    /// Where the ACK flag is set.
    pub ack: Option<u32>,
    /// Payload, SYN and FIN.
    pub numbers: u32,
    pub tsval: Option<u32>,
    pub tsecr: Option<u32>,
}

impl Packet {
    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.numbers)
    }

    fn overlaps(&self, other: &Packet) -> bool {
        before(self.seq, other.end()) && before(other.seq, self.end())
    }
}

/// RFC 1982.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// An ACK that advances, and the segments of the other side that passed before it.
struct Advance<'a> {
    packet: &'a Packet,
    ack: u32,
    /// The highest ACK before.
    una: Option<u32>,
    sent: Vec<&'a Packet>,
}

impl Advance<'_> {
    fn covers(&self, segment: &Packet) -> bool {
        before(segment.seq, self.ack) && self.una.is_none_or(|una| before(una, segment.end()))
    }

    fn sent_once(&self, segment: &Packet) -> bool {
        self.sent
            .iter()
            .filter(|other| other.overlaps(segment))
            .count()
            == 1
    }

    fn rtt(&self, segment: &Packet) -> u64 {
        self.packet.time - segment.time
    }

    fn valid(&self) -> Option<(u64, u64)> {
        let fits = |segment: &&&Packet| segment.end() == self.ack && self.sent_once(segment);
        let segment = *self.sent.iter().find(fits)?;
        let later = self
            .sent
            .iter()
            .skip_while(|other| other.frame <= segment.frame);
        let disturbed = later
            .into_iter()
            .any(|other| before(other.seq, segment.seq));
        (!disturbed).then(|| (self.packet.frame, self.rtt(segment)))
    }

    fn covered(&self) -> Covered {
        let covered = || self.sent.iter().filter(|segment| self.covers(segment));
        let echoed =
            |segment: &&&Packet| self.packet.tsecr.is_some() && segment.tsval == self.packet.tsecr;
        Covered {
            once: covered()
                .filter(|segment| self.sent_once(segment))
                .map(|s| self.rtt(s))
                .collect(),
            echoed: covered().filter(echoed).map(|s| self.rtt(s)).collect(),
        }
    }
}

/// Round-trip times of what an ACK covers.
#[derive(Clone, Debug)]
pub struct Covered {
    /// Of segments that were sent once.
    once: Vec<u64>,
    /// Of any copy whose TSval the ACK echoes.
    echoed: Vec<u64>,
}

impl Covered {
    /// Is the sample between the segments sent once; or, if a timestamp distinguishes copies, of
    /// the echoed copy?
    pub fn allows(&self, sample: &Sample) -> bool {
        let within = match (self.once.iter().min(), self.once.iter().max()) {
            (Some(min), Some(max)) => (min..=max).contains(&&sample.rtt),
            _ => false,
        };
        let is_distinct = sample.method != "seq" && self.echoed.contains(&sample.rtt);
        within || is_distinct
    }
}

/// Every advancing ACK of a capture.
fn advances(packets: &[Packet]) -> impl Iterator<Item = Advance<'_>> {
    let mut highest: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    packets.iter().enumerate().filter_map(move |(at, packet)| {
        let ack = packet.ack?;
        let una = highest.insert((packet.stream, packet.port), ack);
        if una.is_some_and(|una| !before(una, ack)) {
            highest.insert((packet.stream, packet.port), una?);
            return None;
        }
        let earlier = packets[..at].iter();
        let other_side =
            |p: &&Packet| p.stream == packet.stream && p.port != packet.port && p.numbers > 0;
        let sent = earlier.filter(other_side).collect();
        Some(Advance {
            packet,
            ack,
            una,
            sent,
        })
    })
}

/// The samples that Karn's rule allows.
pub fn valid(packets: &[Packet]) -> Samples {
    advances(packets)
        .filter_map(|advance| advance.valid())
        .collect()
}

/// By frame, what each advancing ACK covers.
pub fn covered(packets: &[Packet]) -> BTreeMap<u64, Covered> {
    let with_frame = |advance: Advance<'_>| (advance.packet.frame, advance.covered());
    advances(packets).map(with_frame).collect()
}
