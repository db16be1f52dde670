//! Outcomes of packets after our verdict.
//!
//! ```text
//!   forward hook: our queue --> rules behind it, connection tracking --> IP output: counted --> interface
//! ```
//!
//! A drop by a later rule is the intention of its author. But connection tracking drops segments of UDP
//! GSO packets whose flow is not confirmed, after it accepted our verdict, without a counter. So the
//! released packets are compared with those that IP gave to interfaces. That number is of the whole
//! namespace: packets of this host hide missing ones, so the result is a minimum.

use std::fs;

/// Of both families, for the namespace of the thread that asks.
const V4: &str = "/proc/thread-self/net/snmp";
const V6: &str = "/proc/thread-self/net/snmp6";

/// Since packets are diverted.
pub struct Beyond {
    before: u64,
}

impl Beyond {
    /// From now on; `None` where this kernel has no such counts (they came with 6.6).
    pub fn begin() -> Option<Beyond> {
        transmitted().map(|before| Beyond { before })
    }

    /// The minimum number of the `release` forwarded packets that were dropped later. Call it after their release.
    pub fn missing(&self, release: u64) -> u64 {
        let now = transmitted().unwrap_or(u64::MAX);
        release.saturating_sub(now.saturating_sub(self.before))
    }
}

/// Packets of both families that IP handed to interfaces.
fn transmitted() -> Option<u64> {
    let v4 = of_v4(&fs::read_to_string(V4).ok()?)?;
    // A host without IPv6 has no such file.
    let v6 = fs::read_to_string(V6).unwrap_or_default();
    Some(v4 + of_v6(&v6))
}

/// A line of names, and one of their values.
fn of_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Ip: "));
    let names = lines.next()?.split(' ');
    let values = lines.next()?.split(' ');
    let (_, value) = names
        .zip(values)
        .find(|(name, _)| *name == "OutTransmits")?;
    value.parse().ok()
}

/// A name and its value in each line.
fn of_v6(text: &str) -> u64 {
    let pairs = text
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace));
    let mut found = pairs.filter(|(name, _)| *name == "Ip6OutTransmits");
    let value = found
        .next()
        .and_then(|(_, value)| value.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_the_kernel_writes_them() {
        let v4 =
            "Ip: Forwarding OutDiscards OutTransmits\nIp: 1 7 42\nIcmp: OutTransmits\nIcmp: 3\n";
        assert_eq!(of_v4(v4), Some(42));
        assert_eq!(of_v4("Ip: Forwarding OutDiscards\nIp: 1 7\n"), None);
        let v6 = "Ip6OutRequests                  \t8\nIp6OutTransmits                 \t76\n";
        assert_eq!(of_v6(v6), 76);
        assert_eq!(of_v6(""), 0);
    }

    #[test]
    fn other_traffic_causes_no_false_finding() {
        let beyond = Beyond { before: 0 };
        assert_eq!(beyond.missing(0), 0);
        let all = transmitted().unwrap();
        assert!(beyond.missing(all + 1_000_000_000) > 0);
        let beyond = Beyond { before: u64::MAX };
        assert_eq!(beyond.missing(5), 5);
    }
}
