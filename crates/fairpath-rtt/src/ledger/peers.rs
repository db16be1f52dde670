//! Whom a class talks with most, who answers it slowest, and which of its hosts talk.
//!
//! Each list is that of Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over bytes, all of
//! which halve every [`PEER_HALF_LIFE_NS`]: a newcomer takes the place of the least entry and
//! remembers its bytes as its own possible error. What is told of an entry was counted since it
//! came in, so bytes are never too high, and too low by at most a [`PEERS_PER_CLASS`]th of the
//! class's bytes (decayed alike); whoever has more than that share is in the list. The list of the
//! slowest holds the greatest means instead; each mean counts [`PRIOR_SAMPLES`] times nothing
//! besides its samples, so that one slow answer does not displace a remote that is always slow.
//! None of that holds for a class that came when [`MAX_PEERS`] were taken: it is counted.

use std::collections::HashMap;
use std::net::IpAddr;

use fairpath_core::{Pair, PairKind, Prefix};

use crate::snapshot::Peer;

/// Entries of each list of a class.
pub const PEERS_PER_CLASS: usize = 32;
/// Entries of all lists: 8 MB.
pub const MAX_PEERS: usize = 131_072;
/// Bytes, samples and losses weigh half after this time.
pub const PEER_HALF_LIFE_NS: u64 = 300_000_000_000;
/// Entries to which nothing was added for so long are forgotten.
pub const PEER_FORGOTTEN_NS: u64 = 1_800_000_000_000;
/// Round-trip times (decayed) from which on a remote can be among the slowest.
pub const WORST_MIN_SAMPLES: f32 = 5.0;

const PRIOR_SAMPLES: f32 = 4.0;
/// Weights are brought up to date in steps of this.
const DECAY_STEP_NS: u64 = 10_000_000_000;

/// A prefix (or a host), or the number of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Who {
    Prefix(Prefix),
    Label(u32),
}

impl Who {
    fn of(pair: &Pair) -> Who {
        match pair.kind {
            PairKind::Label => Who::Label(pair.label),
            _ => Who::Prefix(Prefix {
                address: pair.address,
                len: pair.prefix_len,
            }),
        }
    }

    /// Equal for equals, and seldom for others.
    fn print(self) -> u32 {
        let bits = match self {
            Who::Label(number) => u128::from(number) | 1 << 64,
            Who::Prefix(prefix) => match prefix.address {
                IpAddr::V4(v4) => u128::from(u32::from(v4)) | u128::from(prefix.len) << 40,
                IpAddr::V6(v6) => u128::from(v6).rotate_left(7) ^ u128::from(prefix.len),
            },
        };
        let folded = (bits >> 64) as u64 ^ bits as u64;
        // 2^64 by the golden ratio.
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// A prefix of one host is shown as its address, a label without a name as its number.
    fn name(self, labels: &HashMap<u32, String>) -> String {
        match self {
            Who::Label(number) => match labels.get(&number) {
                Some(name) => name.clone(),
                None => format!("label {number}"),
            },
            Who::Prefix(prefix) => {
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
struct Entry {
    who: Who,
    bytes_up: f32,
    bytes_down: f32,
    /// Bytes of those that had the place before.
    error: f32,
    samples: f32,
    rtt_sum_us: f32,
    max_rtt_us: u32,
    lost: f32,
    /// Ledger time, seconds.
    seen_s: u32,
}

impl Entry {
    fn new(who: Who) -> Entry {
        Entry {
            who,
            bytes_up: 0.0,
            bytes_down: 0.0,
            error: 0.0,
            samples: 0.0,
            rtt_sum_us: 0.0,
            max_rtt_us: 0,
            lost: 0.0,
            seen_s: 0,
        }
    }

    fn add(&mut self, pair: &Pair, t: u64) {
        self.bytes_up += pair.bytes_up as f32;
        self.bytes_down += pair.bytes_down as f32;
        self.samples += pair.samples as f32;
        self.rtt_sum_us += pair.rtt_sum_ns as f32 / 1e3;
        self.max_rtt_us = self.max_rtt_us.max(pair.max_rtt_us);
        self.lost += pair.lost_packets as f32;
        self.seen_s = (t / 1_000_000_000) as u32;
    }

    /// `other` is the same peer, of another class.
    fn merge(&mut self, other: &Entry) {
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
            print: self.who.print(),
            rank: rank(self),
        }
    }

    /// Bytes that it has at most.
    fn weight(&self) -> f32 {
        self.bytes() + self.error
    }

    fn bytes(&self) -> f32 {
        self.bytes_up + self.bytes_down
    }

    fn slowness(&self) -> f32 {
        self.rtt_sum_us / (self.samples + PRIOR_SAMPLES)
    }

    fn mean_us(&self) -> Option<f32> {
        // A sample that has faded below a thousandth is none.
        (self.samples > 1e-3).then(|| self.rtt_sum_us / self.samples)
    }

    fn peer(&self, labels: &HashMap<u32, String>) -> Peer {
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

/// Places for entries, over all classes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub used: usize,
    /// Pairs that found none.
    pub refused: u64,
}

/// By what an entry stays in its list.
type Rank = fn(&Entry) -> f32;

/// What is looked at of each entry to find one: 8 bytes of 52.
#[derive(Clone, Copy, Debug)]
struct Sign {
    print: u32,
    rank: f32,
}

#[derive(Clone, Debug, Default)]
struct List {
    entries: Vec<Entry>,
    /// Of the entries, in their order.
    signs: Vec<Sign>,
    at: u64,
}

impl List {
    fn fade(&mut self, t: u64, rank: Rank) {
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

    /// Adds to the entry that is there; `false` if none is.
    fn add(&mut self, pair: &Pair, who: Who, t: u64, rank: Rank) -> bool {
        let print = who.print();
        for (at, sign) in self.signs.iter_mut().enumerate() {
            if sign.print == print && self.entries[at].who == who {
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

    fn has_room(&self, places: &Places) -> bool {
        self.entries.len() < PEERS_PER_CLASS && places.used < MAX_PEERS
    }

    /// Where the entry of the least rank is.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, f32)> = None;
        for (at, sign) in self.signs.iter().enumerate() {
            if least.is_none_or(|(_, rank)| sign.rank < rank) {
                least = Some((at, sign.rank));
            }
        }
        least.map(|(at, _)| at)
    }

    fn replace(&mut self, at: usize, entry: Entry, rank: Rank) {
        self.signs[at] = entry.sign(rank);
        self.entries[at] = entry;
    }

    /// Space-Saving over bytes.
    fn add_by_bytes(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        self.fade(t, Entry::weight);
        let who = Who::of(pair);
        if self.add(pair, who, t, Entry::weight) {
            return;
        }
        let mut newcomer = Entry::new(who);
        newcomer.add(pair, t);
        if self.has_room(places) {
            self.push(newcomer, Entry::weight, places);
        } else if let Some(least) = self.least() {
            newcomer.error = self.signs[least].rank;
            self.replace(least, newcomer, Entry::weight);
        } else {
            places.refused += 1;
        }
    }

    /// Keeps the slowest.
    fn add_by_slowness(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        self.fade(t, Entry::slowness);
        let who = Who::of(pair);
        if self.add(pair, who, t, Entry::slowness) || pair.samples == 0 {
            return;
        }
        let mut newcomer = Entry::new(who);
        newcomer.add(pair, t);
        if self.has_room(places) {
            self.push(newcomer, Entry::slowness, places);
        } else if let Some(least) = self.least() {
            if newcomer.slowness() > self.signs[least].rank {
                self.replace(least, newcomer, Entry::slowness);
            }
        } else {
            places.refused += 1;
        }
    }

    fn forget(&mut self, t: u64, places: &mut Places) {
        let oldest_s = t.saturating_sub(PEER_FORGOTTEN_NS) / 1_000_000_000;
        let mut at = 0;
        while at < self.entries.len() {
            if u64::from(self.entries[at].seen_s) >= oldest_s {
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

/// The lists of a class: of its own slot, without the classes below.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    busiest: List,
    worst: List,
    talkers: List,
}

impl Peers {
    /// Takes in what passed with a remote or a host. O([`PEERS_PER_CLASS`]).
    pub fn add(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        if pair.kind == PairKind::Talker {
            return self.talkers.add_by_bytes(pair, t, places);
        }
        self.busiest.add_by_bytes(pair, t, places);
        self.worst.add_by_slowness(pair, t, places);
    }

    /// Drops what is long silent, and gives its places back.
    pub fn forget(&mut self, t: u64, places: &mut Places) {
        for list in [&mut self.busiest, &mut self.worst, &mut self.talkers] {
            list.forget(t, places);
        }
    }

    /// How many places it holds.
    pub fn places(&self) -> usize {
        [&self.busiest, &self.worst, &self.talkers]
            .iter()
            .map(|list| list.entries.len())
            .sum()
    }
}

/// What is shown of several classes together.
pub(super) struct Shown {
    pub worst: Vec<Peer>,
    pub busiest: Vec<Peer>,
    pub talkers: Vec<Peer>,
}

/// The lists of several classes as one, each at most `limit` long, as they stand at `t`.
pub(super) fn show(
    classes: &[&Peers],
    t: u64,
    limit: usize,
    labels: &HashMap<u32, String>,
) -> Shown {
    let by_bytes = |list: fn(&Peers) -> &List| {
        let mut all = together(classes.iter().map(|peers| list(peers)), t);
        all.retain(|entry| entry.bytes() >= 0.5);
        sorted(all, Entry::bytes, limit, labels)
    };
    let mut worst = together(classes.iter().map(|peers| &peers.worst), t);
    worst.retain(|entry| entry.samples >= WORST_MIN_SAMPLES);
    Shown {
        worst: sorted(worst, |entry| entry.mean_us().unwrap_or(0.0), limit, labels),
        busiest: by_bytes(|peers| &peers.busiest),
        talkers: by_bytes(|peers| &peers.talkers),
    }
}

fn together<'a>(lists: impl Iterator<Item = &'a List>, t: u64) -> Vec<Entry> {
    let mut all: HashMap<Who, Entry> = HashMap::new();
    for list in lists {
        let mut list = list.clone();
        list.fade(t, Entry::weight);
        for entry in &list.entries {
            let sum = all
                .entry(entry.who)
                .or_insert_with(|| Entry::new(entry.who));
            sum.merge(entry);
        }
    }
    all.into_values().collect()
}

fn sorted(
    mut entries: Vec<Entry>,
    rank: fn(&Entry) -> f32,
    limit: usize,
    labels: &HashMap<u32, String>,
) -> Vec<Peer> {
    let order = |a: &Entry, b: &Entry| rank(b).total_cmp(&rank(a)).then(a.who.cmp(&b.who));
    entries.sort_unstable_by(order);
    entries.truncate(limit);
    entries.iter().map(|entry| entry.peer(labels)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SECOND: u64 = 1_000_000_000;

    fn pair(net: u32, bytes: u64, samples: u32, rtt_ms: u64) -> Pair {
        Pair {
            address: IpAddr::V4(Ipv4Addr::from(0xc000_0000 + (net << 8))),
            prefix_len: 24,
            bytes_down: bytes,
            samples,
            rtt_sum_ns: u64::from(samples) * rtt_ms * 1_000_000,
            max_rtt_us: (rtt_ms * 1000) as u32,
            ..Pair::default()
        }
    }

    fn shown(peers: &Peers, t: u64) -> Shown {
        show(&[peers], t, 10, &HashMap::new())
    }

    #[test]
    fn the_busiest_are_found_among_ten_thousand_within_the_stated_error() {
        let (mut peers, mut places) = (Peers::default(), Places::default());
        let (mut all, mut seed) = (0u64, 7u64);
        for i in 0..10_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = pair(1_000 + i, seed >> 54, 0, 0);
            let heavy = pair(i % 3, 200 * u64::from(i % 3 + 1), 0, 0);
            for pair in [&noise, &heavy] {
                all += pair.bytes_down;
                peers.add(pair, SECOND, &mut places);
            }
        }
        let busiest = shown(&peers, SECOND).busiest;
        let names: Vec<&str> = busiest.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names[..2], ["192.0.2.0/24", "192.0.1.0/24"]);
        let exact = 600 * 3333;
        let error = all / PEERS_PER_CLASS as u64;
        assert!(busiest[0].bytes_down <= exact, "{busiest:?}");
        assert!(busiest[0].bytes_down + error >= exact, "{busiest:?}");
        assert_eq!(peers.places(), PEERS_PER_CLASS);
        assert_eq!(places.used, PEERS_PER_CLASS);
    }

    #[test]
    fn bytes_fade_and_the_silent_are_forgotten() {
        let (mut peers, mut places) = (Peers::default(), Places::default());
        peers.add(&pair(1, 1_000_000, 8, 20), 0, &mut places);
        let half = shown(&peers, PEER_HALF_LIFE_NS).busiest;
        assert_eq!(half[0].bytes_down, 500_000);
        peers.forget(PEER_FORGOTTEN_NS + 2 * SECOND, &mut places);
        assert_eq!((peers.places(), places.used), (0, 0));
    }

    #[test]
    fn the_worst_are_slow_again_and_again_not_once() {
        let (mut peers, mut places) = (Peers::default(), Places::default());
        for i in 0..200 {
            peers.add(&pair(i, 1000, 20, 10 + u64::from(i)), SECOND, &mut places);
        }
        peers.add(&pair(900, 1000, 1, 900), SECOND, &mut places);
        let worst = shown(&peers, SECOND).worst;
        assert_eq!(worst[0].name, "192.0.199.0/24");
        assert_eq!(worst[0].mean_rtt_ns.map(|ns| ns / 1_000_000), Some(209));
        assert_eq!(worst[0].max_rtt_ns, Some(209_000_000));
        assert!(worst.iter().all(|peer| peer.name != "192.3.132.0/24"));
    }

    #[test]
    fn labels_have_names_hosts_have_addresses_and_classes_add_up() {
        let (mut one, mut two) = (Peers::default(), Peers::default());
        let mut places = Places::default();
        let label = |number: u32| Pair {
            kind: PairKind::Label,
            label: number,
            ..pair(0, 100, 1, 5)
        };
        one.add(&label(4), 0, &mut places);
        two.add(&label(4), 0, &mut places);
        two.add(&label(5), 0, &mut places);
        let host = Pair {
            kind: PairKind::Talker,
            prefix_len: 32,
            ..pair(1, 70, 0, 0)
        };
        one.add(&host, 0, &mut places);
        let labels = HashMap::from([(4, "video".to_owned())]);
        let shown = show(&[&one, &two], 0, 10, &labels);
        let line = |peer: &Peer| (peer.name.clone(), peer.bytes_down);
        let busiest: Vec<_> = shown.busiest.iter().map(line).collect();
        assert_eq!(busiest, [("video".into(), 200), ("label 5".into(), 100)]);
        assert_eq!(line(&shown.talkers[0]), ("192.0.1.0".into(), 70));
    }
}
