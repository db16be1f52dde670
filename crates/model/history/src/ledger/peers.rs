//! Whom a class talks with most, who answers it slowest, and which of its hosts talk.
//!
//! Each list is that of Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over bytes, all of
//! which halve every [`PEER_HALF_LIFE_NS`]: a newcomer takes the place of the least entry and
//! remembers its bytes as its own possible error. What is told of an entry was counted since it
//! came in, so bytes are never too high, and too low by at most a [`PEERS_PER_CLASS`]th of the
//! class's bytes (decayed alike); whoever has more than that share is in the list. The list of the
//! slowest holds the greatest means instead; each mean counts a few times nothing
//! besides its samples, so that one slow answer does not displace a remote that is always slow.
//! None of that holds for a class that came when [`MAX_PEERS`] were taken: it is counted.

use std::collections::HashMap;

use fairpath_core::{Pair, PairKind};

use super::peer_list::{Entry, List, Places, Who};
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
    use std::net::{IpAddr, Ipv4Addr};

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
