//! The create line of a set whose type is supported: type, family and options.

use super::line::{Part, Word, Words, unknown};
use super::{Family, MAX_ELEMENTS};
use crate::LineError;
use std::fmt;

/// Maximum timeout in seconds (`UINT_MAX / 2 / 1000`, man 8 ipset).
pub(super) const MAX_TIMEOUT: u32 = 2_147_483;

// Defaults and limits of Linux 6.18: ip_set_hash_gen.h, ip_set_list.h.
const DEFAULT_HASHSIZE: u32 = 1024;
const MIN_HASHSIZE: u32 = 64;
/// The largest power of two that the option can hold; the memory of the machine is less.
const MAX_HASHSIZE: u32 = 1 << 31;
const DEFAULT_MAXELEM: u32 = 65_536;
const MIN_BUCKETSIZE: u8 = 2;
const MAX_BUCKETSIZE: u8 = 12;
const DEFAULT_SIZE: u32 = 8;
const MIN_SIZE: u32 = 4;

/// A supported set type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ip,
    Net,
    IpPort,
    NetPort,
    List,
}

/// Kind, name, and old name, which ipset still reads.
const KINDS: [(Kind, &str, &str); 5] = [
    (Kind::Ip, "hash:ip", "iphash"),
    (Kind::Net, "hash:net", "nethash"),
    (Kind::IpPort, "hash:ip,port", "ipporthash"),
    (Kind::NetPort, "hash:net,port", "netporthash"),
    (Kind::List, "list:set", "setlist"),
];

impl Kind {
    pub fn from_name(name: &str) -> Option<Kind> {
        let found = KINDS.iter().find(|row| row.1 == name || row.2 == name);
        found.map(|row| row.0)
    }

    pub fn name(self) -> &'static str {
        let found = KINDS.iter().find(|row| row.0 == self);
        found.expect("KINDS has a row for each kind").1
    }

    pub fn has_port(self) -> bool {
        matches!(self, Kind::IpPort | Kind::NetPort)
    }

    /// True for the types of single addresses, which `netmask` may shorten.
    pub fn has_netmask(self) -> bool {
        matches!(self, Kind::Ip | Kind::IpPort)
    }

    fn has_option(self, name: &str) -> bool {
        match name {
            "size" => self == Kind::List,
            "netmask" => self.has_netmask(),
            "timeout" | "counters" | "comment" | "skbinfo" => true,
            _ => self != Kind::List,
        }
    }
}

/// Options of a create line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub family: Family,
    pub hashsize: u32,
    pub maxelem: u32,
    /// Size of a list, which the kernel prints and does not enforce.
    pub size: u32,
    /// Prefix length of the elements of a set with [`Kind::has_netmask`].
    pub netmask: u8,
    /// Default timeout in seconds, of a set with timeouts.
    pub timeout: Option<u32>,
    pub counters: bool,
    pub comment: bool,
    pub forceadd: bool,
    pub skbinfo: bool,
    pub bucketsize: u8,
    pub initval: Option<u32>,
}

const NAMES: [&str; 12] = [
    "family",
    "hashsize",
    "maxelem",
    "size",
    "netmask",
    "timeout",
    "counters",
    "comment",
    "forceadd",
    "skbinfo",
    "bucketsize",
    "initval",
];

impl Header {
    fn new(kind: Kind) -> Header {
        Header {
            kind,
            family: Family::Inet,
            hashsize: DEFAULT_HASHSIZE,
            maxelem: DEFAULT_MAXELEM,
            size: DEFAULT_SIZE,
            netmask: Family::Inet.width(),
            timeout: None,
            counters: false,
            comment: false,
            forceadd: false,
            skbinfo: false,
            bucketsize: MAX_BUCKETSIZE,
            initval: None,
        }
    }

    /// Reads the options after the type.
    pub fn read(kind: Kind, words: &mut Words) -> Result<Header, LineError> {
        let mut header = Header::new(kind);
        let mut seen = Vec::new();
        // Its limit depends on the family, which may follow.
        let mut netmask = None;
        while let Some(word) = words.next()? {
            let (name, family) = match word.text() {
                "-4" => ("family", Some(Family::Inet)),
                "-6" => ("family", Some(Family::Inet6)),
                name => (name, None),
            };
            let known = NAMES.iter().find(|known| **known == name);
            let Some(name) = known.filter(|name| kind.has_option(name)) else {
                return Err(unknown(&word));
            };
            if seen.contains(name) {
                return Err(word.error(format!("option \"{name}\" occurs twice: remove one")));
            }
            seen.push(*name);
            match (*name, family) {
                ("family", Some(family)) => header.family = family,
                ("netmask", _) => netmask = Some(words.value(&word)?),
                _ => header.set(&word, words)?,
            }
        }
        let width = header.family.width();
        header.netmask = match netmask {
            Some(value) => value.part().number("netmask", 1..=width.into())? as u8,
            None => width,
        };
        Ok(header)
    }

    fn set(&mut self, word: &Word, words: &mut Words) -> Result<(), LineError> {
        let flag = match word.text() {
            "counters" => Some(&mut self.counters),
            "comment" => Some(&mut self.comment),
            "forceadd" => Some(&mut self.forceadd),
            "skbinfo" => Some(&mut self.skbinfo),
            _ => None,
        };
        if let Some(flag) = flag {
            *flag = true;
            return Ok(());
        }
        let value = words.value(word)?;
        let value = value.part();
        let up_to = |max: u32| value.number(word.text(), 0..=max.into()).map(|n| n as u32);
        match word.text() {
            "family" => self.family = family(value)?,
            "hashsize" => {
                self.hashsize = up_to(MAX_HASHSIZE)?.max(MIN_HASHSIZE).next_power_of_two();
            }
            "maxelem" => self.maxelem = up_to(u32::MAX)?,
            "size" => self.size = up_to(u32::MAX)?.max(MIN_SIZE),
            "timeout" => self.timeout = Some(up_to(MAX_TIMEOUT)?),
            "bucketsize" => {
                let size = up_to(u8::MAX.into())? as u8;
                self.bucketsize = size
                    .clamp(MIN_BUCKETSIZE, MAX_BUCKETSIZE)
                    .next_multiple_of(2);
            }
            _ => self.initval = Some(up_to(u32::MAX)?),
        }
        Ok(())
    }

    /// Maximum number of elements of the set.
    pub fn capacity(&self) -> usize {
        (self.maxelem as usize).min(MAX_ELEMENTS)
    }

    /// True if `create -exist` accepts `other` as the same set: sizes of the hash may differ.
    pub fn is_same(&self, other: &Header) -> bool {
        let identity = |header: &Header| Header {
            hashsize: 0,
            bucketsize: 0,
            initval: None,
            forceadd: false,
            ..header.clone()
        };
        identity(self) == identity(other)
    }
}

fn family(value: Part) -> Result<Family, LineError> {
    match value.text {
        "inet" | "ipv4" => Ok(Family::Inet),
        "inet6" | "ipv6" => Ok(Family::Inet6),
        text => Err(value.error(format!(
            "family \"{text}\" is not supported: write inet or inet6"
        ))),
    }
}

impl fmt::Display for Header {
    /// The create line after the name, as `ipset save` prints it.
    ///
    /// `ipset save` prints the random `initval` of the kernel, and forgets `forceadd`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.kind == Kind::List {
            write!(f, " size {}", self.size)?;
            return self.write_extensions(f);
        }
        let family = self.family;
        let (hashsize, maxelem) = (self.hashsize, self.maxelem);
        write!(f, " family {family} hashsize {hashsize} maxelem {maxelem}")?;
        let shortened = self.netmask < self.family.width();
        if shortened && self.kind == Kind::Ip {
            write!(f, " netmask {}", self.netmask)?;
        }
        self.write_extensions(f)?;
        write!(f, " bucketsize {}", self.bucketsize)?;
        if let Some(initval) = self.initval {
            write!(f, " initval {initval:#010x}")?;
        }
        if shortened && self.kind == Kind::IpPort {
            write!(f, " netmask {}", self.netmask)?;
        }
        Ok(())
    }
}

impl Header {
    fn write_extensions(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(timeout) = self.timeout {
            write!(f, " timeout {timeout}")?;
        }
        let flags = [
            (self.counters, " counters"),
            (self.comment, " comment"),
            (self.forceadd, " forceadd"),
            (self.skbinfo, " skbinfo"),
        ];
        for (_, name) in flags.iter().filter(|(there, _)| *there) {
            f.write_str(name)?;
        }
        Ok(())
    }
}
