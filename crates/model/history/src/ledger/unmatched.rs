//! Subnets of endpoints that no class matched: candidates for rows of their own.
//!
//! A subnet that has a row is no candidate, whatever is still told of it: what passed between a
//! reading and the rules that lead to the new row comes with the next reading, as unmatched.

use std::collections::{HashMap, HashSet};

use fairpath_core::{Pair, Prefix};

/// Subnets that are remembered; the least are dropped first, and counted.
pub const MAX_UNMATCHED: usize = 4096;
/// Bytes weigh half after this time.
pub const UNMATCHED_HALF_LIFE_NS: u64 = 30_000_000_000;

/// Bytes of subnets, decayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Unmatched {
    bytes: HashMap<Prefix, f64>,
    /// Subnets that have rows.
    rows: HashSet<Prefix>,
    /// Subnets dropped.
    pub dropped: u64,
}

impl Unmatched {
    /// Time passes.
    pub fn fade(&mut self, dt_ns: u64) {
        let left = (-(dt_ns as f64) / UNMATCHED_HALF_LIFE_NS as f64).exp2();
        self.bytes.retain(|_, bytes| {
            *bytes *= left;
            *bytes >= 1.0
        });
    }

    /// Takes in what passed, unless the subnet has a row; [`Unmatched::bound`] follows.
    pub fn add(&mut self, pair: &Pair) {
        let prefix = Prefix {
            address: pair.address,
            len: pair.prefix_len,
        };
        if self.rows.contains(&prefix) {
            return;
        }
        *self.bytes.entry(prefix).or_default() += (pair.bytes_up + pair.bytes_down) as f64;
    }

    /// Keeps the greatest [`MAX_UNMATCHED`].
    pub fn bound(&mut self) {
        if self.bytes.len() <= MAX_UNMATCHED {
            return;
        }
        let kept = self.busiest(MAX_UNMATCHED);
        self.dropped += (self.bytes.len() - kept.len()) as u64;
        self.bytes = kept.into_iter().collect();
    }

    /// The `n` with the most bytes, most first.
    pub fn busiest(&self, n: usize) -> Vec<(Prefix, f64)> {
        let mut all: Vec<(Prefix, f64)> = self.bytes.iter().map(|(p, b)| (*p, *b)).collect();
        all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(n);
        all
    }

    /// These have rows from now on, and no others.
    pub fn set_rows(&mut self, rows: HashSet<Prefix>) {
        self.bytes.retain(|prefix, _| !rows.contains(prefix));
        self.rows = rows;
    }
}

/// The prefix of a row of kind [`Kind::Subnet`](crate::snapshot::Kind::Subnet), which is called as
/// its prefix is written: `10.0.2.0/24`. `None` for what is no prefix.
pub fn parse_subnet(name: &str) -> Option<Prefix> {
    let (address, len) = name.split_once('/')?;
    Some(Prefix::new(address.parse().ok()?, len.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn pair(net: u32, bytes: u64) -> Pair {
        Pair {
            address: IpAddr::V4(Ipv4Addr::from(net << 8)),
            prefix_len: 24,
            bytes_up: bytes,
            ..Pair::default()
        }
    }

    #[test]
    fn the_busiest_subnets_stay_when_there_are_too_many_and_the_rest_is_counted() {
        let mut unmatched = Unmatched::default();
        for net in 0..MAX_UNMATCHED as u32 + 100 {
            unmatched.add(&pair(net, 1000 + u64::from(net)));
        }
        unmatched.bound();
        assert_eq!(unmatched.dropped, 100);
        let busiest = unmatched.busiest(MAX_UNMATCHED + 1);
        assert_eq!(busiest.len(), MAX_UNMATCHED);
        assert_eq!(busiest.last().map(|(_, bytes)| *bytes), Some(1100.0));
        unmatched.add(&pair(0, 1));
        unmatched.bound();
        assert_eq!(unmatched.dropped, 101);
    }

    #[test]
    fn what_was_long_ago_weighs_less_than_what_is_now() {
        let mut unmatched = Unmatched::default();
        unmatched.add(&pair(1, 1000));
        unmatched.fade(2 * UNMATCHED_HALF_LIFE_NS);
        unmatched.add(&pair(2, 300));
        let busiest: Vec<f64> = unmatched
            .busiest(9)
            .iter()
            .map(|(_, bytes)| *bytes)
            .collect();
        assert_eq!(busiest, [300.0, 250.0]);
        unmatched.fade(60 * UNMATCHED_HALF_LIFE_NS);
        assert!(unmatched.busiest(9).is_empty());
    }
}
