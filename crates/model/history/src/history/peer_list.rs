//! A bounded list of the largest peers, and the decay of its entries.

use std::collections::HashMap;
use std::net::IpAddr;

use fairpath_core::{Pair, PairKind, Prefix, prefetch};

use super::peers::{MAX_PEERS, PEER_FORGOTTEN_NS, PEER_HALF_LIFE_NS, PEERS_PER_CLASS};
use crate::snapshot::Peer;

const PRIOR_SAMPLES: f32 = 4.0;
/// Interval of decay steps.
const DECAY_STEP_NS: u64 = 10_000_000_000;

/// A prefix (or a host), or the number of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PeerKey {
    Prefix(Prefix),
    Label(u32),
}

impl PeerKey {
    fn of(pair: &Pair) -> PeerKey {
        match pair.kind {
            PairKind::Label => PeerKey::Label(pair.label),
            _ => PeerKey::Prefix(Prefix {
                address: pair.address,
                len: pair.prefix_len,
            }),
        }
    }

    /// A hash for comparison.
    fn hash(self) -> u32 {
        let bits = match self {
            PeerKey::Label(number) => u128::from(number) | 1 << 64,
            PeerKey::Prefix(prefix) => match prefix.address {
                IpAddr::V4(v4) => u128::from(u32::from(v4)) | u128::from(prefix.len) << 40,
                IpAddr::V6(v6) => u128::from(v6).rotate_left(7) ^ u128::from(prefix.len),
            },
        };
        let folded = (bits >> 64) as u64 ^ bits as u64;
        // 2^64 divided by the golden ratio.
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// The prefix of one host appears as its address, a label without name as its number.
    fn name(self, labels: &HashMap<u32, String>) -> String {
        match self {
            PeerKey::Label(number) => match labels.get(&number) {
                Some(name) => name.clone(),
                None => format!("label {number}"),
            },
            PeerKey::Prefix(prefix) => {
                let whole = if prefix.address.is_ipv4() { 32 } else { 128 };
                if prefix.len == whole {
                    prefix.address.to_string()
                } else {
                    prefix.to_string()
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub who: PeerKey,
    bytes_up: f32,
    bytes_down: f32,
    /// Bytes of evicted entries before it.
    error: f32,
    pub samples: f32,
    rtt_sum_us: f32,
    max_rtt_us: u32,
    lost: f32,
    /// History time of its last traffic, seconds.
    active_s: u32,
}

impl Entry {
    pub fn new(who: PeerKey) -> Entry {
        Entry {
            who,
            bytes_up: 0.0,
            bytes_down: 0.0,
            error: 0.0,
            samples: 0.0,
            rtt_sum_us: 0.0,
            max_rtt_us: 0,
            lost: 0.0,
            active_s: 0,
        }
    }

    fn add(&mut self, pair: &Pair, t: u64) {
        self.bytes_up += pair.bytes_up as f32;
        self.bytes_down += pair.bytes_down as f32;
        self.samples += pair.samples as f32;
        self.rtt_sum_us += pair.rtt_sum_ns as f32 / 1e3;
        self.max_rtt_us = self.max_rtt_us.max(pair.max_rtt_us);
        self.lost += pair.lost_packets as f32;
        self.active_s = (t / 1_000_000_000) as u32;
    }

    /// Adds the entry of the same peer in another class.
    pub fn merge(&mut self, other: &Entry) {
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.samples += other.samples;
        self.rtt_sum_us += other.rtt_sum_us;
        self.max_rtt_us = self.max_rtt_us.max(other.max_rtt_us);
        self.lost += other.lost;
    }

    fn fade(&mut self, left: f32) {
        for weight in [
            &mut self.bytes_up,
            &mut self.bytes_down,
            &mut self.error,
            &mut self.samples,
            &mut self.rtt_sum_us,
            &mut self.lost,
        ] {
            *weight *= left;
        }
    }

    fn sign(&self, rank: Rank) -> Sign {
        Sign {
            hash: self.who.hash(),
            rank: rank(self),
        }
    }

    /// Upper bound of its bytes.
    pub fn weight(&self) -> f32 {
        self.bytes() + self.error
    }

    pub fn bytes(&self) -> f32 {
        self.bytes_up + self.bytes_down
    }

    pub fn slowness(&self) -> f32 {
        self.rtt_sum_us / (self.samples + PRIOR_SAMPLES)
    }

    pub fn mean_us(&self) -> Option<f32> {
        // A sample that decayed below 0.001 does not count.
        (self.samples > 1e-3).then(|| self.rtt_sum_us / self.samples)
    }

    pub fn peer(&self, labels: &HashMap<u32, String>) -> Peer {
        Peer {
            name: self.who.name(labels),
            bytes_up: self.bytes_up.round() as u64,
            bytes_down: self.bytes_down.round() as u64,
            samples: self.samples.round() as u64,
            mean_rtt_ns: self.mean_us().map(|us| (f64::from(us) * 1e3) as u64),
            max_rtt_ns: (self.max_rtt_us > 0).then(|| u64::from(self.max_rtt_us) * 1000),
            lost_packets: self.lost.round() as u64,
        }
    }
}

/// Number of entries over all classes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub used: usize,
    /// Pairs that were refused because of the limit.
    pub refused: u64,
}

/// The sort key of entries in a list.
pub(super) type Rank = fn(&Entry) -> f32;

/// The part of an entry that searches read: 8 bytes of 52.
#[derive(Clone, Copy, Debug)]
struct Sign {
    hash: u32,
    rank: f32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub entries: Vec<Entry>,
    /// One for each entry, in their order.
    signs: Vec<Sign>,
    at: u64,
}

impl List {
    pub fn fade(&mut self, t: u64, rank: Rank) {
        let age = t.saturating_sub(self.at);
        if age < DECAY_STEP_NS {
            return;
        }
        let left = (-(age as f64) / PEER_HALF_LIFE_NS as f64).exp2() as f32;
        for (entry, sign) in self.entries.iter_mut().zip(&mut self.signs) {
            entry.fade(left);
            sign.rank = rank(entry);
        }
        self.at = t;
    }

    /// Loads what [`List::add`] searches.
    pub fn prefetch(&self) {
        prefetch(&*self.signs);
        self.entries.first().inspect(|entry| prefetch(*entry));
    }

    /// Adds to an existing entry. Returns false if there is none.
    fn add(&mut self, pair: &Pair, who: PeerKey, t: u64, rank: Rank) -> bool {
        let hash = who.hash();
        for (at, sign) in self.signs.iter_mut().enumerate() {
            if sign.hash == hash && self.entries[at].who == who {
                self.entries[at].add(pair, t);
                sign.rank = rank(&self.entries[at]);
                return true;
            }
        }
        false
    }

    fn push(&mut self, entry: Entry, rank: Rank, places: &mut Places) {
        self.signs.push(entry.sign(rank));
        self.entries.push(entry);
        places.used += 1;
    }

    fn has_capacity(&self, places: &Places) -> bool {
        self.entries.len() < PEERS_PER_CLASS && places.used < MAX_PEERS
    }

    /// The index of the entry with the lowest rank.
    fn lowest(&self) -> Option<usize> {
        let mut lowest: Option<(usize, f32)> = None;
        for (at, sign) in self.signs.iter().enumerate() {
            if lowest.is_none_or(|(_, rank)| sign.rank < rank) {
                lowest = Some((at, sign.rank));
            }
        }
        lowest.map(|(at, _)| at)
    }

    fn replace(&mut self, at: usize, entry: Entry, rank: Rank) {
        self.signs[at] = entry.sign(rank);
        self.entries[at] = entry;
    }

    /// Adds by bytes, with the Space-Saving algorithm.
    pub fn add_by_bytes(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        self.fade(t, Entry::weight);
        let who = PeerKey::of(pair);
        if self.add(pair, who, t, Entry::weight) {
            return;
        }
        let mut new = Entry::new(who);
        new.add(pair, t);
        if self.has_capacity(places) {
            self.push(new, Entry::weight, places);
        } else if let Some(lowest) = self.lowest() {
            new.error = self.signs[lowest].rank;
            self.replace(lowest, new, Entry::weight);
        } else {
            places.refused += 1;
        }
    }

    /// Adds by mean RTT, and keeps the slowest.
    pub fn add_by_slowness(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        self.fade(t, Entry::slowness);
        let who = PeerKey::of(pair);
        if self.add(pair, who, t, Entry::slowness) || pair.samples == 0 {
            return;
        }
        let mut new = Entry::new(who);
        new.add(pair, t);
        if self.has_capacity(places) {
            self.push(new, Entry::slowness, places);
        } else if let Some(lowest) = self.lowest() {
            if new.slowness() > self.signs[lowest].rank {
                self.replace(lowest, new, Entry::slowness);
            }
        } else {
            places.refused += 1;
        }
    }

    pub fn forget(&mut self, t: u64, places: &mut Places) {
        let oldest_s = t.saturating_sub(PEER_FORGOTTEN_NS) / 1_000_000_000;
        let mut at = 0;
        while at < self.entries.len() {
            if u64::from(self.entries[at].active_s) >= oldest_s {
                at += 1;
                continue;
            }
            self.entries.swap_remove(at);
            self.signs.swap_remove(at);
            places.used -= 1;
        }
        if self.entries.is_empty() {
            (self.entries, self.signs) = Default::default();
        }
    }
}
