//! Builds the image of the rules for look-ups by `classify.h`.
//!
//! One hash table of exact keys (linear probing, at most [`PROBES`] entries) and, for each family,
//! the prefix lengths that occur. For each prefix, there are markers at the shorter lengths on the
//! path of the binary search, whose value is the longest prefix known there.

use std::net::{IpAddr, Ipv6Addr};

use crate::aggregate::{OTHER, Prefix, Rules};

/// `FP_RULE_PROBES`.
const PROBES: usize = 16;
/// `FP_MAX_LEVEL`.
const MAX_LEVEL: usize = 129;
/// `FP_NO_SLOT`.
const NO_SLOT: u32 = u32::MAX;
pub(crate) const HEADER_BYTES: usize = 40 + 4 * MAX_LEVEL * LEVEL_BYTES;
const LEVEL_BYTES: usize = 24;
pub(crate) const RULE_BYTES: usize = 32;
/// Offset of the table.
const RULES_AT: usize = HEADER_BYTES.next_multiple_of(64);
/// Number of other seeds to try before the table is doubled.
const SEEDS: u32 = 8;

/// `enum fp_rule_kind`, without the lines of `matches.h`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Kind {
    V4 = 0,
    V6 = 1,
    LabelV4 = 2,
    LabelV6 = 3,
    Uplink = 9,
}

/// The rules do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "build the image of {rules} rules and markers: {needed} bytes exceed the {space} reserved bytes; use fewer prefixes or labels"
)]
pub struct TooManyRules {
    /// Entries of the table.
    pub rules: usize,
    /// Needed.
    pub needed: usize,
    /// Available.
    pub space: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    key: [u64; 2],
    tag: u32,
    value: u32,
}

/// An address as 128 bits, IPv4 mapped into IPv6, and a length of as many.
fn widen(prefix: &Prefix) -> (u128, u8) {
    match prefix.address {
        IpAddr::V4(v4) => (u128::from(v4.to_ipv6_mapped()), prefix.len + 96),
        IpAddr::V6(v6) => (u128::from(v6), prefix.len),
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The words of an address as the core loads them from a packet.
fn words(address: u128) -> [u64; 2] {
    let bytes = address.to_be_bytes();
    let word = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    [word(0), word(8)]
}

fn tag(kind: u32, len: u8) -> u32 {
    (kind + 1) | u32::from(len) << 8
}

/// `fp_hash_rule()`.
fn hash(key: [u64; 2], tag: u32, seed: u32) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let h = (key[0] ^ (u64::from(seed) << 32 | u64::from(tag))).wrapping_mul(ODD);
    let h = (h ^ h >> 29) ^ key[1];
    let h = (h ^ h >> 32).wrapping_mul(ODD);
    (h >> 32) as u32
}

/// A prefix for the table: `value` is `None` for a marker.
#[derive(Clone, Copy)]
struct Node {
    address: u128,
    len: u8,
    value: Option<u32>,
}

/// The prefixes of one family and their markers; returns the lengths that occur, ascending.
fn add_family(prefixes: &[(Prefix, u32)], kind: Kind, entries: &mut Vec<Entry>) -> Vec<u8> {
    let mut nodes: Vec<Node> = Vec::with_capacity(prefixes.len() * 2);
    let mut lens: Vec<u8> = prefixes.iter().map(|(p, _)| widen(p).1).collect();
    lens.sort_unstable();
    lens.dedup();
    for (prefix, value) in prefixes {
        let (address, len) = widen(prefix);
        nodes.push(Node {
            address,
            len,
            value: Some(*value),
        });
        nodes.extend(markers(address, len, &lens));
    }
    // Shorter prefixes of an address first, and a prefix before the marker at the same position.
    nodes.sort_unstable_by_key(|n| (n.address, n.len, n.value.is_none()));
    nodes.dedup_by_key(|n| (n.address, n.len));
    let mut above: Vec<Node> = Vec::new();
    for node in nodes {
        while above
            .last()
            .is_some_and(|a| node.address & mask(a.len) != a.address)
        {
            above.pop();
        }
        let known = above.last().and_then(|a| a.value);
        entries.push(Entry {
            key: words(node.address),
            tag: tag(kind as u32, node.len),
            value: node.value.or(known).unwrap_or(NO_SLOT),
        });
        if node.value.is_some() {
            above.push(node);
        }
    }
    lens
}

/// The markers that lead a binary search over `lens` to `len`.
fn markers(address: u128, len: u8, lens: &[u8]) -> impl Iterator<Item = Node> + use<> {
    let mut path = Vec::new();
    let (mut low, mut high) = (0, lens.len());
    while low < high {
        let middle = (low + high) / 2;
        if lens[middle] == len {
            break;
        }
        if lens[middle] < len {
            path.push(lens[middle]);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    path.into_iter().map(move |len| Node {
        address: address & mask(len),
        len,
        value: None,
    })
}

/// The table of `size` entries, or `None` if an entry would be too far from its position.
fn fill(entries: &[Entry], size: usize, seed: u32) -> Option<Vec<Option<u32>>> {
    let mut table = vec![None; size];
    for (index, entry) in entries.iter().enumerate() {
        let at = hash(entry.key, entry.tag, seed) as usize;
        let place = (0..PROBES).map(|i| (at + i) & (size - 1));
        let free = place.into_iter().find(|p| table[*p].is_none())?;
        table[free] = Some(index as u32);
    }
    Some(table)
}

fn exact(kind: u32, number: u64, value: u32) -> Entry {
    Entry {
        key: [number, 0],
        tag: tag(kind, 0),
        value,
    }
}

fn add_exact(rules: &Rules, entries: &mut Vec<Entry>) {
    rules.each_number(|kind, number, slot| entries.push(exact(kind, number, slot)));
    let uplinks = rules.uplinks.iter();
    entries.extend(uplinks.map(|ifindex| exact(Kind::Uplink as u32, u64::from(*ifindex), 1)));
}

fn of_family(prefixes: &[(Prefix, u32)], v4: bool) -> Vec<(Prefix, u32)> {
    let mut some = prefixes.to_vec();
    some.retain(|(prefix, _)| prefix.address.is_ipv4() == v4);
    some
}

/// The bytes of the image. O(n log n) for n prefixes; a hundred thousand take about 0.1 s.
///
/// # Errors
/// [`TooManyRules`] if it would take more than `space` bytes.
pub(crate) fn build(rules: &Rules, generation: u32, space: usize) -> Result<Vec<u8>, TooManyRules> {
    let mut entries = Vec::new();
    let levels = [
        add_family(&of_family(&rules.prefixes, true), Kind::V4, &mut entries),
        add_family(&of_family(&rules.prefixes, false), Kind::V6, &mut entries),
        add_family(&of_family(&rules.labels, true), Kind::LabelV4, &mut entries),
        add_family(
            &of_family(&rules.labels, false),
            Kind::LabelV6,
            &mut entries,
        ),
    ];
    add_exact(rules, &mut entries);

    let mut size = (entries.len() * 2).next_power_of_two().max(64);
    let (table, seed) = 'fit: loop {
        let needed = RULES_AT + size * RULE_BYTES;
        if needed > space {
            return Err(TooManyRules {
                rules: entries.len(),
                needed,
                space,
            });
        }
        for seed in 0..SEEDS {
            if let Some(table) = fill(&entries, size, seed) {
                break 'fit (table, seed);
            }
        }
        size *= 2;
    };

    let mut image = Vec::with_capacity(RULES_AT + size * RULE_BYTES);
    let mut uses = 0;
    for entry in &entries {
        uses |= 1 << ((entry.tag & 0xff) - 1);
    }
    for word in [generation, uses, size as u32 - 1, seed] {
        image.extend_from_slice(&word.to_le_bytes());
    }
    image.extend_from_slice(&(RULES_AT as u64).to_le_bytes());
    for lens in &levels {
        image.extend_from_slice(&(lens.len() as u32).to_le_bytes());
    }
    for (kind, lens) in [Kind::V4, Kind::V6, Kind::LabelV4, Kind::LabelV6]
        .into_iter()
        .zip(&levels)
    {
        put_levels(&mut image, kind, lens);
    }
    image.resize(RULES_AT, 0);
    for place in table {
        put_rule(&mut image, place.map(|index| entries[index as usize]));
    }
    Ok(image)
}

fn put_levels(image: &mut Vec<u8>, kind: Kind, lens: &[u8]) {
    let end = image.len() + MAX_LEVEL * LEVEL_BYTES;
    for len in lens {
        for word in words(mask(*len)) {
            image.extend_from_slice(&word.to_le_bytes());
        }
        image.extend_from_slice(&u64::from(tag(kind as u32, *len)).to_le_bytes());
    }
    image.resize(end, 0);
}

fn put_rule(image: &mut Vec<u8>, rule: Option<Entry>) {
    let end = image.len() + RULE_BYTES;
    if let Some(rule) = rule {
        for word in rule.key {
            image.extend_from_slice(&word.to_le_bytes());
        }
        image.extend_from_slice(&rule.tag.to_le_bytes());
        image.extend_from_slice(&rule.value.to_le_bytes());
    }
    image.resize(end, 0);
}

const _: () = assert!(OTHER == 0, "absent keys are answered with 0");

/// A prefix as masked words and the mask.
pub(crate) fn masked(prefix: &Prefix) -> ([u64; 2], [u64; 2]) {
    let (address, len) = widen(prefix);
    (words(address & mask(len)), words(mask(len)))
}

/// An address as the core stores it, and a length of 128 bits, in readable form.
pub(crate) fn address_of(loaded: [u64; 2], len: u8) -> (IpAddr, u8) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&loaded[0].to_le_bytes());
    bytes[8..].copy_from_slice(&loaded[1].to_le_bytes());
    let address = Ipv6Addr::from(bytes);
    match address.to_ipv4_mapped() {
        Some(v4) if len >= 96 => (IpAddr::V4(v4), len - 96),
        _ => (IpAddr::V6(address), len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adjacent addresses, as providers assign them, must not collide.
    #[test]
    fn a_table_of_neighbours_is_not_doubled() {
        let v4 = (0..30_000u32).map(|i| {
            let address = std::net::Ipv4Addr::from(0x0a40_0001 + i);
            (Prefix::new(address.into(), 32), i)
        });
        let v6 = (0..30_000u32).map(|i| {
            let address = Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(i) << 72);
            (Prefix::new(address.into(), 56), i)
        });
        let rules = Rules {
            prefixes: v4.chain(v6).collect(),
            ..Rules::default()
        };
        let image = build(&rules, 1, usize::MAX).unwrap();
        assert_eq!(image.len(), RULES_AT + (1 << 17) * RULE_BYTES);
    }
}
