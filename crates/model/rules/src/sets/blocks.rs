//! Blocks of addresses that an entry names: one address, a network, or a range.
//!
//! A set of single addresses gets a block of its netmask's length for each, a set of networks the
//! largest networks that fit, from the first address on.

use super::Family;
use super::element::address_of;
use super::header::{Header, Kind};
use super::line::Part;
use super::table::network;
use crate::LineError;

/// Addresses from `next` to `last`, in blocks.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    next: u128,
    last: u128,
    /// Prefix length of each block; `None` takes the largest blocks that fit.
    length: Option<u8>,
    width: u8,
}

impl Blocks {
    pub fn read(entry: Part, header: &Header) -> Result<Blocks, LineError> {
        let family = header.family;
        let width = family.width();
        let (first, last, length) = if let Some((address, length)) = entry.split('/') {
            let address = address_of(address, family)?;
            let length = length.number("prefix length", 1..=width.into())? as u8;
            (address, address, length)
        } else if let Some((first, last)) = entry.split('-') {
            if family == Family::Inet6 {
                return Err(entry.error(format!(
                    "\"{}\" is a range, which family inet6 does not have: write networks",
                    entry.text
                )));
            }
            (address_of(first, family)?, address_of(last, family)?, width)
        } else {
            let address = address_of(entry, family)?;
            (address, address, width)
        };
        match header.kind.has_netmask() {
            true => Blocks::hosts(entry, header, (first, last), length),
            false => Blocks::networks(entry, (first, last), length, width),
        }
    }

    /// Blocks of the netmask's length that contain the addresses.
    fn hosts(
        entry: Part,
        header: &Header,
        (first, last): (u128, u128),
        length: u8,
    ) -> Result<Blocks, LineError> {
        let width = header.family.width();
        let netmask = header.netmask;
        let block = length < width;
        if header.family == Family::Inet6 && block {
            return Err(entry.error(format!(
                "\"{}\" is a network, but type {} of family inet6 has single addresses: \
                 use hash:net or hash:net,port",
                entry.text,
                header.kind.name()
            )));
        }
        if header.kind == Kind::IpPort && netmask < width && (block || first != last) {
            // Linux stores addresses that no packet matches.
            return Err(entry.error(format!(
                "\"{}\" is a range, but the set has a netmask: write single addresses",
                entry.text
            )));
        }
        let (next, last) = match block {
            true => {
                let next = network(first, length, width);
                (next, next + block_size(length, width) - 1)
            }
            false => (first.min(last), first.max(last)),
        };
        let next = network(next, netmask, width);
        if next == 0 {
            // Linux stores a part of such blocks, and does not restore it.
            return Err(entry.error(format!(
                "\"{}\" has address 0, which a set of type {} cannot contain: remove it",
                entry.text,
                header.kind.name()
            )));
        }
        Ok(Blocks {
            next,
            last,
            length: Some(netmask),
            width,
        })
    }

    fn networks(
        entry: Part,
        (first, last): (u128, u128),
        length: u8,
        width: u8,
    ) -> Result<Blocks, LineError> {
        if first == last {
            let net = network(first, length, width);
            return Ok(Blocks {
                next: net,
                last: net,
                length: Some(length),
                width,
            });
        }
        let (next, last) = (first.min(last), first.max(last));
        if last - next == u128::from(u32::MAX) {
            return Err(entry.error(format!(
                "\"{}\" is the whole address space: write two halves",
                entry.text
            )));
        }
        Ok(Blocks {
            next,
            last,
            length: None,
            width,
        })
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        match self.length {
            Some(length) => {
                let blocks = (self.last - self.next) / block_size(length, self.width) + 1;
                usize::try_from(blocks).unwrap_or(usize::MAX)
            }
            None => self.clone().count(),
        }
    }

    /// Length of the largest block that begins at `next` and ends at `last` or earlier.
    fn largest(&self) -> u8 {
        let left = self.last - self.next + 1;
        let bits = self.next.trailing_zeros().min(left.ilog2()) as u8;
        self.width - bits.min(self.width)
    }
}

/// Addresses of a block; `length` is not 0 for family inet6.
fn block_size(length: u8, width: u8) -> u128 {
    1 << (width - length)
}

impl Iterator for Blocks {
    type Item = (u128, u8);

    fn next(&mut self) -> Option<(u128, u8)> {
        if self.next > self.last {
            return None;
        }
        let net = self.next;
        let length = self.length.unwrap_or_else(|| self.largest());
        match net.checked_add(block_size(length, self.width)) {
            Some(next) => self.next = next,
            // The last block of IPv6 ends the iteration.
            None => (self.next, self.last) = (1, 0),
        }
        Some((net, length))
    }
}
