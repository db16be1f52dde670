//! Chains of iptables and ip6tables in their legacy form (`iptables-legacy`); the newer form is
//! nftables.
//!
//! A table is a blob of entries. Each built-in chain goes from the first entry of its hook to its
//! last, the policy. A chain whose first entry is its last and accepts has no effect.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Stage, StageError, StageKind, read};
use crate::message::u16_at;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; the same numbers for both families.
const SO_GET_INFO: i32 = 64;
const SO_GET_ENTRIES: i32 = 65;
const NAME_BYTES: usize = 32;
/// `struct ipt_getinfo`: name, valid hooks, 5 first entries, 5 last ones, number and bytes of entries.
const INFO_BYTES: usize = NAME_BYTES + 4 * 13;
/// `struct ipt_get_entries`: name and size, then what is aligned to 8.
const ENTRIES_AT: usize = NAME_BYTES + 8;
/// A larger table is not read, and counts as one with rules.
const MAX_TABLE_BYTES: usize = 256 << 20;
/// `struct xt_entry_target`.
const TARGET_BYTES: usize = 32;
/// `-NF_ACCEPT - 1`.
const ACCEPTS: i32 = -2;

/// For forwarded packets: hook number and built-in chain.
const CHAINS: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];

struct Family {
    tool: &'static str,
    domain: i32,
    level: i32,
    /// Offset in an entry of the offset of its target: after the match on addresses and a word.
    target_offset_at: usize,
    names: &'static str,
}

/// The files of a thread's own namespace: `/proc/net` is that of the process.
const FAMILIES: [Family; 2] = [
    Family {
        tool: "iptables",
        domain: libc::AF_INET,
        level: libc::IPPROTO_IP,
        target_offset_at: 84 + 4,
        names: "/proc/thread-self/net/ip_tables_names",
    },
    Family {
        tool: "ip6tables",
        domain: libc::AF_INET6,
        level: libc::IPPROTO_IPV6,
        target_offset_at: 136 + 4,
        names: "/proc/thread-self/net/ip6_tables_names",
    },
];

/// Chains with an effect, in both families.
pub(super) fn chains() -> Result<Vec<Stage>, StageError> {
    let mut found = Vec::new();
    for family in &FAMILIES {
        let names = read(family.names)?.unwrap_or_default();
        for table in names.lines() {
            let busy = family.busy(table).map_err(|source| StageError::Table {
                table: table.to_owned(),
                tool: family.tool,
                source,
            })?;
            found.extend(busy.into_iter().map(|chain| Stage {
                kind: if table == "nat" {
                    StageKind::Nat
                } else {
                    StageKind::Netfilter
                },
                name: format!("{} {table} {chain}", family.tool),
                interface: None,
            }));
        }
    }
    Ok(found)
}

/// The layouts of the tables that exist in both families: hooks, first and last entries, number, bytes.
/// Reading another table would create it.
pub(super) fn layouts() -> Result<Vec<(String, Vec<u8>)>, StageError> {
    let mut all = Vec::new();
    for family in &FAMILIES {
        let names = read(family.names)?.unwrap_or_default();
        for table in names.lines() {
            let (_, info) = family.info(table).map_err(|source| StageError::Table {
                table: table.to_owned(),
                tool: family.tool,
                source,
            })?;
            all.push((format!("{} {table}", family.tool), info.0));
        }
    }
    all.sort_unstable();
    Ok(all)
}

impl Family {
    fn info(&self, table: &str) -> io::Result<(OwnedFd, Info)> {
        let socket = raw_socket(self.domain)?;
        let mut info = vec![0; INFO_BYTES];
        put_name(&mut info, table);
        query(&socket, self.level, SO_GET_INFO, &mut info)?;
        Ok((socket, Info(info)))
    }

    fn busy(&self, table: &str) -> io::Result<Vec<&'static str>> {
        let (socket, info) = self.info(table)?;
        let bytes = info.word(12) as usize;
        if bytes > MAX_TABLE_BYTES {
            return Ok(CHAINS.map(|(_, chain)| chain).to_vec());
        }
        let mut blob = vec![0; ENTRIES_AT + bytes];
        put_name(&mut blob, table);
        blob[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&info.word(12).to_ne_bytes());
        query(&socket, self.level, SO_GET_ENTRIES, &mut blob)?;
        let has = |hook: usize| info.word(0) & 1 << hook != 0;
        let does = |hook: usize| {
            let (first, last) = (info.word(1 + hook), info.word(6 + hook));
            first != last || self.verdict(&blob, last as usize) != Some(ACCEPTS)
        };
        let busy = CHAINS.iter().filter(|(hook, _)| has(*hook) && does(*hook));
        Ok(busy.map(|(_, chain)| *chain).collect())
    }

    /// The standard target of the entry at this offset.
    fn verdict(&self, blob: &[u8], entry: usize) -> Option<i32> {
        let entry = blob.get(ENTRIES_AT + entry..)?;
        let target = u16_at(entry, self.target_offset_at)? as usize;
        let bytes = entry.get(target + TARGET_BYTES..target + TARGET_BYTES + 4)?;
        Some(i32::from_ne_bytes(bytes.try_into().ok()?))
    }
}

struct Info(Vec<u8>);

impl Info {
    /// The words behind the name.
    fn word(&self, at: usize) -> u32 {
        crate::message::u32_at(&self.0, NAME_BYTES + 4 * at).unwrap_or(0)
    }
}

fn put_name(to: &mut [u8], name: &str) {
    let bytes = name.bytes().take(NAME_BYTES - 1);
    to.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
}

fn raw_socket(domain: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(domain, kind, libc::IPPROTO_RAW) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn query(socket: &OwnedFd, level: i32, option: i32, about: &mut [u8]) -> io::Result<()> {
    let mut len = about.len() as libc::socklen_t;
    let to = about.as_mut_ptr().cast();
    // SAFETY: `to` points to `len` writable bytes.
    let requested =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, to, &raw mut len) };
    if requested < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
