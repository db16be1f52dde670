//! Names of services, protocols, users and hosts. The caller reads the files (`/etc/services` and so
//! on) of the machine; without them only numbers and the protocols of every machine are known.

use std::collections::HashMap;
use std::net::IpAddr;

/// Protocols that have a name without `/etc/protocols`, as Debian 12 prints them.
const PROTOCOLS: &[(&str, u8)] = &[
    ("tcp", 6),
    ("sctp", 132),
    ("udp", 17),
    ("udplite", 136),
    ("dccp", 33),
    ("icmp", 1),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("esp", 50),
    ("ah", 51),
    ("mobility-header", 135),
    ("ipv6-mh", 135),
    ("mh", 135),
    ("hopopt", 0),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("skip", 57),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("fc", 133),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// Names and their numbers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    services: HashMap<String, u16>,
    protocols: HashMap<String, u8>,
    users: HashMap<String, u32>,
    groups: HashMap<String, u32>,
    hosts: HashMap<String, Vec<IpAddr>>,
}

impl Names {
    /// Adds lines of `/etc/services`: the first entry of a name counts, whatever its protocol.
    pub fn add_services(&mut self, text: &str) {
        for words in lines(text) {
            let Some(port) = words
                .get(1)
                .and_then(|word| word.split('/').next()?.parse().ok())
            else {
                continue;
            };
            for (at, name) in words.iter().enumerate() {
                if at != 1 {
                    self.services.entry((*name).to_owned()).or_insert(port);
                }
            }
        }
    }

    /// Adds lines of `/etc/protocols`.
    pub fn add_protocols(&mut self, text: &str) {
        for words in lines(text) {
            let Some(number) = words.get(1).and_then(|word| word.parse().ok()) else {
                continue;
            };
            for (at, name) in words.iter().enumerate() {
                if at != 1 {
                    self.protocols.entry((*name).to_owned()).or_insert(number);
                }
            }
        }
    }

    /// Adds lines of `/etc/passwd`.
    pub fn add_users(&mut self, text: &str) {
        add_accounts(&mut self.users, text);
    }

    /// Adds lines of `/etc/group`.
    pub fn add_groups(&mut self, text: &str) {
        add_accounts(&mut self.groups, text);
    }

    /// Adds lines of `/etc/hosts`.
    pub fn add_hosts(&mut self, text: &str) {
        for words in lines(text) {
            let Some(address) = words.first().and_then(|word| word.parse().ok()) else {
                continue;
            };
            for name in &words[1..] {
                self.add_host(name, address);
            }
        }
    }

    /// Adds an address of a host.
    pub fn add_host(&mut self, name: &str, address: IpAddr) {
        let addresses = self.hosts.entry(name.to_ascii_lowercase()).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }

    /// The port of a service.
    pub fn service(&self, name: &str) -> Option<u16> {
        self.services.get(name).copied()
    }

    /// The number of a protocol. Names are not case-sensitive.
    pub fn protocol(&self, name: &str) -> Option<u8> {
        let name = name.to_ascii_lowercase();
        PROTOCOLS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, number)| *number)
            .or_else(|| self.protocols.get(&name).copied())
    }

    /// The id of a user.
    pub fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    /// The id of a group.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }

    /// The addresses of a host; none if it is not known.
    pub fn host(&self, name: &str) -> &[IpAddr] {
        self.hosts
            .get(&name.to_ascii_lowercase())
            .map_or(&[], Vec::as_slice)
    }
}

/// The name under which a protocol is written, if it has one.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS
        .iter()
        .find(|(_, known)| *known == number)
        .map(|(name, _)| *name)
}

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        (!words.is_empty()).then_some(words)
    })
}

fn add_accounts(to: &mut HashMap<String, u32>, text: &str) {
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(Ok(number))) =
            (fields.next(), fields.next(), fields.next().map(str::parse))
        {
            to.entry(name.to_owned()).or_insert(number);
        }
    }
}
