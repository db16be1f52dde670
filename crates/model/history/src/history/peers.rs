//! Remotes of a class with the most bytes and the largest RTT, and its busiest hosts.
//!
//! Each list follows Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over bytes, which halve
//! every [`PEER_HALF_LIFE_NS`]. A new entry evicts the smallest and records its bytes as possible error.
//! Reported values count from the insertion of an entry. So bytes are never too high, and too low by
//! at most 1/[`PEERS_PER_CLASS`] of the (decayed) bytes of the class. A peer with more than that share
//! is in the list. The list of the slowest remotes has the largest means instead. Each mean includes a
//! few samples of 0, so that one slow answer does not evict a remote that is always slow. A class that
//! appears after [`MAX_PEERS`] entries are in use has no entries, which is counted.

use std::collections::HashMap;

use fairpath_core::{Pair, PairKind};

use super::peer_list::{Entry, List, PeerKey, Places};
use crate::snapshot::Peer;

/// Maximum length of each list of a class.
pub const PEERS_PER_CLASS: usize = 32;
/// Maximum number of entries of all lists: 8 MB.
pub const MAX_PEERS: usize = 131_072;
/// Half-life of bytes, samples and losses.
pub const PEER_HALF_LIFE_NS: u64 = 300_000_000_000;
/// Idle time after which an entry is removed.
pub const PEER_FORGOTTEN_NS: u64 = 1_800_000_000_000;
/// Minimum number of (decayed) samples of a remote among the slowest.
pub const WORST_MIN_SAMPLES: f32 = 5.0;

/// The lists of a class, without those of its descendants.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    busiest: List,
    worst: List,
    hosts: List,
}

impl Peers {
    /// Adds the traffic of a remote or a host. O([`PEERS_PER_CLASS`]).
    pub fn add(&mut self, pair: &Pair, t: u64, places: &mut Places) {
        if pair.kind == PairKind::Talker {
            return self.hosts.add_by_bytes(pair, t, places);
        }
        self.busiest.add_by_bytes(pair, t, places);
        self.worst.add_by_slowness(pair, t, places);
    }

    /// Loads the lists of a kind of pairs.
    pub fn prefetch(&self, kind: PairKind) {
        match kind {
            PairKind::Talker => self.hosts.prefetch(),
            _ => [&self.busiest, &self.worst]
                .map(List::prefetch)
                .into_iter()
                .collect(),
        }
    }

    /// Removes idle entries.
    pub fn forget(&mut self, t: u64, places: &mut Places) {
        for list in [&mut self.busiest, &mut self.worst, &mut self.hosts] {
            list.forget(t, places);
        }
    }

    /// Number of its entries.
    pub fn places(&self) -> usize {
        [&self.busiest, &self.worst, &self.hosts]
            .iter()
            .map(|list| list.entries.len())
            .sum()
    }
}

/// The lists of several classes together.
pub(super) struct Shown {
    pub worst: Vec<Peer>,
    pub busiest: Vec<Peer>,
    pub hosts: Vec<Peer>,
}

/// Merges the lists of several classes at `t`, each with at most `limit` entries.
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
        hosts: by_bytes(|peers| &peers.hosts),
    }
}

fn together<'a>(lists: impl Iterator<Item = &'a List>, t: u64) -> Vec<Entry> {
    let mut all: HashMap<PeerKey, Entry> = HashMap::new();
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
    fn the_busiest_peers_have_the_stated_error() {
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
    fn the_worst_remotes_are_slow_repeatedly() {
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
    fn peers_of_several_classes_are_merged() {
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
        assert_eq!(line(&shown.hosts[0]), ("192.0.1.0".into(), 70));
    }
}
