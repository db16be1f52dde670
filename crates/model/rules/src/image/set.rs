//! Sets in an image: tables by hash, levels by prefix length.

use std::collections::HashMap;
use std::net::IpAddr;

use fairpath_core::rules::{SET_HEADER, SET_LEVELS, SET_PROBES, set_kind};

use super::BuildError;
use super::hash::{self, GROWTH, mix};
use crate::packet::Unknown;
use crate::sets::{Element, Sets};

pub(super) const NOMATCH: u32 = 256;
/// Offset of the seed in a set.
pub(super) const SEED: usize = SET_HEADER - 8;

/// The sets that rules use, with their numbers.
pub struct SetTable<'a> {
    sets: Option<&'a Sets>,
    numbers: HashMap<String, u32>,
    order: Vec<Source>,
}

/// A set of an image.
enum Source {
    Named(String),
    /// Addresses of a bridge's list.
    Among(Vec<Member>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Member {
    pub key: [u64; 2],
    pub port: u32,
    /// Prefix length and 1, or with [`NOMATCH`]; 0: free.
    pub level: u32,
    /// The last nanosecond; 0: it stays.
    pub end: u64,
}

impl Member {
    pub fn of(element: &Element) -> Member {
        let key = match element.net {
            IpAddr::V4(address) => [u64::from(u32::from(address).swap_bytes()), 0],
            IpAddr::V6(address) => {
                let bytes = address.octets();
                let half = |at: usize| {
                    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
                };
                [half(0), half(8)]
            }
        };
        let nomatch = if element.nomatch { NOMATCH } else { 0 };
        Member {
            key,
            port: u32::from(element.proto) << 16 | u32::from(element.port),
            level: (u32::from(element.length) + 1) | nomatch,
            end: element.options.end,
        }
    }

    /// The prefix length.
    pub fn length(&self) -> u32 {
        (self.level & 255) - 1
    }

    pub fn hash(&self, seed: u64) -> u32 {
        hash_of(seed, self.key, self.port, self.length())
    }

    pub fn write(&self, has_ends: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key[0].to_le_bytes());
        out.extend_from_slice(&self.key[1].to_le_bytes());
        out.extend_from_slice(&self.port.to_le_bytes());
        out.extend_from_slice(&self.level.to_le_bytes());
        if has_ends {
            out.extend_from_slice(&self.end.to_le_bytes());
        }
    }
}

/// The hash of the core (`fp_hash_member`).
fn hash_of(seed: u64, key: [u64; 2], port: u32, length: u32) -> u32 {
    let mut sum = mix(seed ^ key[0]);
    if length > 64 {
        sum = mix(sum ^ key[1]);
    }
    mix(sum ^ (u64::from(length) << 32 | u64::from(port))) as u32
}

impl<'a> SetTable<'a> {
    pub fn new(sets: Option<&'a Sets>) -> Self {
        Self {
            sets,
            numbers: HashMap::new(),
            order: Vec::new(),
        }
    }

    /// The dimensions of a set, 0 if it is not known.
    pub fn dimension(&self, name: &str) -> usize {
        let set = self.sets.and_then(|sets| sets.get(name));
        set.map_or(0, |set| set.dimension().into())
    }

    /// The number of a set; its members get numbers, too.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be looked up.
    pub fn number(&mut self, name: &str) -> Result<u32, Unknown> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let set = self.sets.and_then(|sets| sets.get(name));
        let set = set.ok_or(Unknown::Set)?;
        if set.opaque().is_some() {
            return Err(Unknown::SetType);
        }
        let members: Vec<String> = set.members().map(|name| name.to_owned()).collect();
        if members.len() > SET_LEVELS {
            return Err(Unknown::SetType);
        }
        for member in &members {
            // A list whose member cannot be looked up cannot be either.
            self.number(member)?;
        }
        let number = self.order.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.order.push(Source::Named(name.to_owned()));
        Ok(number)
    }

    /// A set of link-layer addresses, each with an IPv4 address or 0: prefixes of 80 or 48 bits.
    pub fn among(&mut self, addresses: impl Iterator<Item = (u64, u32)>) -> u32 {
        let members = addresses.map(|(mac, ip)| {
            let ip = u64::from(ip.swap_bytes());
            Member {
                key: [mac | ip << 48, ip >> 16],
                port: 0,
                level: if ip == 0 { 48 } else { 80 } + 1,
                end: 0,
            }
        });
        self.order.push(Source::Among(members.collect()));
        self.order.len() as u32 - 1
    }

    /// Names of sets by number; empty for those of bridges.
    pub fn names(&self) -> Vec<String> {
        let name = |source: &Source| match source {
            Source::Named(name) => name.clone(),
            Source::Among(_) => String::new(),
        };
        self.order.iter().map(name).collect()
    }

    /// The number of sets.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Forgets sets with higher numbers.
    pub fn truncate(&mut self, count: usize) {
        self.order.truncate(count);
        self.numbers.retain(|_, number| (*number as usize) < count);
    }

    /// Appends the sets; returns their offsets.
    ///
    /// # Errors
    ///
    /// [`BuildError::SetCollides`].
    pub fn write(&self, out: &mut Vec<u8>) -> Result<Vec<u32>, BuildError> {
        self.order
            .iter()
            .map(|source| {
                out.resize(out.len().next_multiple_of(16), 0);
                let at = out.len() as u32;
                let (written, name) = match source {
                    Source::Named(name) => (self.write_set(name, out), &name[..]),
                    Source::Among(members) => {
                        let written = write_members(members, members.len(), 0, out);
                        (written, "of a match among")
                    }
                };
                let collides = || BuildError::SetCollides {
                    name: name.to_owned(),
                };
                written.ok_or_else(collides)?;
                Ok(at)
            })
            .collect()
    }

    fn write_set(&self, name: &str, out: &mut Vec<u8>) -> Option<()> {
        let set = self
            .sets
            .and_then(|sets| sets.get(name))
            .expect("only sets that exist have numbers");
        let has_time = self.sets.is_some_and(Sets::has_time);
        let ends = u32::from(has_time && set.has_timeouts()) * set_kind::ENDS;
        if set.family().is_none() {
            let mut header = [0u32; SET_HEADER / 4];
            let members = set.member_ends();
            let members: Vec<(u32, u64)> = members
                .filter_map(|(member, end)| Some((self.numbers.get(member).copied()?, end)))
                .collect();
            header[0] = members.len() as u32;
            header[2] = SET_HEADER as u32;
            header[3] = set_kind::LIST | ends;
            for (place, (member, _)) in header[4..].iter_mut().zip(&members) {
                *place = *member;
            }
            push(out, &header);
            for (_, end) in members.iter().filter(|_| ends != 0) {
                out.extend_from_slice(&end.to_le_bytes());
            }
            return Some(());
        }
        let ipv6 = set.family() == Some(crate::sets::Family::Inet6);
        let ports = set.dimension() > 1;
        let members: Vec<Member> = set.elements().map(|element| Member::of(&element)).collect();
        let kind = u32::from(ports) * set_kind::PORTS + u32::from(ipv6) * set_kind::IPV6 + ends;
        write_members(&members, members.len(), kind, out)
    }
}

/// Appends a set of these members, with space for `room`. `None`: they collide under every seed.
pub(super) fn write_members(
    members: &[Member],
    room: usize,
    kind: u32,
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut numbers = [0u32; SET_LEVELS];
    for member in members {
        numbers[member.length() as usize] += 1;
    }
    let (seed, table) = place(members, room)?;
    push(out, &header(&numbers, kind, seed, table.len()));
    let has_ends = kind & set_kind::ENDS != 0;
    for slot in &table {
        let member = slot.map_or_else(Member::default, |at| members[at as usize]);
        member.write(has_ends, out);
    }
    Some(())
}

/// The header of a set with these numbers of members by prefix length.
pub(super) fn header(
    numbers: &[u32; SET_LEVELS],
    kind: u32,
    seed: u64,
    places: usize,
) -> [u32; SET_HEADER / 4] {
    let mut header = [0u32; SET_HEADER / 4];
    let used = (0..SET_LEVELS as u32).zip(numbers).rev();
    let used = used.filter(|(_, number)| **number > 0);
    for (place, (length, number)) in header[4..].iter_mut().zip(used) {
        *place = length | number << 8;
    }
    header[0] = numbers.iter().filter(|number| **number > 0).count() as u32;
    header[1] = places as u32 - 1;
    header[2] = SET_HEADER as u32;
    header[3] = kind;
    header[SEED / 4] = seed as u32;
    header[SEED / 4 + 1] = (seed >> 32) as u32;
    header
}

/// The seed, and members by place. None if they collide under every seed.
fn place(members: &[Member], room: usize) -> Option<(u64, Vec<Option<u32>>)> {
    GROWTH.into_iter().find_map(|growth| {
        let seed = hash::seed(growth);
        let hashes = members.iter().map(|member| member.hash(seed));
        Some((seed, hash::place(hashes, room, growth, SET_PROBES)?))
    })
}

fn push(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_made_to_collide_are_refused() {
        let member = |address: u32| Member {
            key: [u64::from(address), 0],
            level: 33,
            ..Member::default()
        };
        let usual: Vec<Member> = (0..200).map(member).collect();
        assert!(place(&usual, usual.len()).is_some());
        // With a known seed; for each of them some.
        let made: Vec<Member> = GROWTH
            .flat_map(|growth| {
                let hash = move |address: &u32| {
                    hash_of(hash::seed(growth), [u64::from(*address), 0], 0, 32)
                };
                (0..u32::MAX)
                    .filter(move |address| hash(address) & 0x3fff == 0)
                    .take(80)
            })
            .map(member)
            .collect();
        assert!(place(&made, made.len()).is_none());
    }
}
