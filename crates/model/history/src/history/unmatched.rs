//! Subnets of hosts that match no class: candidates for rows.
//!
//! A subnet with a row is not a candidate. The next reading may still report its traffic as unmatched,
//! from the time before the new rules.

use std::collections::{HashMap, HashSet};

use fairpath_core::{Pair, Prefix};

/// Maximum number of subnets. The smallest are dropped first, and counted.
pub const MAX_UNMATCHED: usize = 4096;
/// Half-life of bytes.
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
    /// Decays all bytes.
    pub fn fade(&mut self, dt_ns: u64) {
        let left = (-(dt_ns as f64) / UNMATCHED_HALF_LIFE_NS as f64).exp2();
        self.bytes.retain(|_, bytes| {
            *bytes *= left;
            *bytes >= 1.0
        });
    }

    /// Adds traffic, unless the subnet has a row. Call [`Unmatched::bound`] afterwards.
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

    /// Keeps the largest [`MAX_UNMATCHED`].
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

    /// Sets the subnets that have rows.
    pub fn set_rows(&mut self, rows: HashSet<Prefix>) {
        self.bytes.retain(|prefix, _| !rows.contains(prefix));
        self.rows = rows;
    }
}

/// The prefix of a row of kind [`Kind::Subnet`](crate::snapshot::Kind::Subnet) by its name, such as
/// `10.0.2.0/24`. `None` for other names.
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
    fn the_busiest_subnets_stay_within_the_limit() {
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
    fn old_bytes_decay() {
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
