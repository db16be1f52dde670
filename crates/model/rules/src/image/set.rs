//! Sets in an image: tables by hash, levels by prefix length.

use std::collections::HashMap;
use std::net::IpAddr;

use fairpath_core::rules::SET_PROBES;

use super::BuildError;
use super::hash::{self, GROWTH, mix};
use crate::packet::Unknown;
use crate::sets::Sets;

const PORTS: u32 = 1;
const IPV6: u32 = 2;
const LIST: u32 = 4;
const NOMATCH: u32 = 256;
const SEED: usize = 16 + 130 * 4;
const HEADER: usize = SEED + 8;
/// Most prefix lengths of a set, and members of a list.
const LEVELS: usize = 129;

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

struct Member {
    key: [u64; 2],
    port: u32,
    level: u32,
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
        if members.len() > LEVELS {
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
            }
        });
        self.order.push(Source::Among(members.collect()));
        self.order.len() as u32 - 1
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
                    Source::Among(members) => (write_members(members, 0, out), "of a match among"),
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
        if set.family().is_none() {
            let mut header = [0u32; HEADER / 4];
            let members: Vec<u32> = set
                .members()
                .filter_map(|member| self.numbers.get(member).copied())
                .collect();
            header[0] = members.len() as u32;
            header[3] = LIST;
            header[4..4 + members.len()].copy_from_slice(&members);
            push(out, &header);
            return Some(());
        }
        let ipv6 = set.family() == Some(crate::sets::Family::Inet6);
        let ports = set.dimension() > 1;
        let mut members = Vec::new();
        for element in set.elements() {
            let (key, shift) = match element.net {
                IpAddr::V4(address) => ([u64::from(u32::from(address).swap_bytes()), 0], 0),
                IpAddr::V6(address) => {
                    let bytes = address.octets();
                    let half = |at: usize| {
                        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
                    };
                    ([half(0), half(8)], 0)
                }
            };
            let length = u32::from(element.length) + shift;
            members.push(Member {
                key,
                port: if ports {
                    u32::from(element.proto) << 16 | u32::from(element.port)
                } else {
                    0
                },
                level: (length + 1) | if element.nomatch { NOMATCH } else { 0 },
            });
        }
        let kind = if ports { PORTS } else { 0 } | if ipv6 { IPV6 } else { 0 };
        write_members(&members, kind, out)
    }
}

fn write_members(members: &[Member], kind: u32, out: &mut Vec<u8>) -> Option<()> {
    let mut header = [0u32; HEADER / 4];
    let mut levels = [false; LEVELS];
    for member in members {
        levels[((member.level & 255) - 1) as usize] = true;
    }
    let lengths: Vec<u32> = (0..LEVELS as u32)
        .rev()
        .filter(|length| levels[*length as usize])
        .collect();
    header[0] = lengths.len() as u32;
    header[4..4 + lengths.len()].copy_from_slice(&lengths);
    header[3] = kind;
    let (seed, table) = place(members)?;
    header[1] = table.len() as u32 - 1;
    header[2] = HEADER as u32;
    header[SEED / 4] = seed as u32;
    header[SEED / 4 + 1] = (seed >> 32) as u32;
    push(out, &header);
    for slot in &table {
        match slot {
            None => out.extend_from_slice(&[0; 24]),
            Some(at) => {
                let member = &members[*at as usize];
                out.extend_from_slice(&member.key[0].to_le_bytes());
                out.extend_from_slice(&member.key[1].to_le_bytes());
                out.extend_from_slice(&member.port.to_le_bytes());
                out.extend_from_slice(&member.level.to_le_bytes());
            }
        }
    }
    Some(())
}

/// The seed, and members by place. None if they collide under every seed.
fn place(members: &[Member]) -> Option<(u64, Vec<Option<u32>>)> {
    GROWTH.into_iter().find_map(|growth| {
        let seed = hash::seed(growth);
        let hashes = members.iter().map(|member| {
            let length = (member.level & 255) - 1;
            hash_of(seed, member.key, member.port, length)
        });
        Some((seed, hash::place(hashes, growth, SET_PROBES)?))
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
            port: 0,
            level: 33,
        };
        let usual: Vec<Member> = (0..200).map(member).collect();
        assert!(place(&usual).is_some());
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
        assert!(place(&made).is_none());
    }
}
