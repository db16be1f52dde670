//! Hosts, the links between them, and which way packets go.
//!
//! ```text
//! router            client ── lan ── router ── wan ── server
//! ripe88-symmetric  client ── r1 ── r2 ── r3 ── server
//! ripe88-asymmetric client ── r1 ── r2 ── server     there
//!                             └──── r3 ─────┘        back
//! ```
//!
//! An interface has the name of its link, at both ends. A host with several links forwards. Ways are
//! the shortest, and the first in the file where two are as short, unless a route says otherwise. A link
//! is emulated at its *seat*: an end with exactly two links, between which everything passes.
//! Addresses are IPv4: link number n (from 1) is 10.77.n.0/24.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Links that a topology has at most: their numbers are one byte of an address.
const MAX_LINKS: usize = 200;
/// An interface's name has 15 characters.
const MAX_NAME: usize = 15;

/// Topologies that come with the binary.
const SHIPPED: &[(&str, &str)] = &[
    ("pair", include_str!("../topologies/pair.toml")),
    ("router", include_str!("../topologies/router.toml")),
    ("dumbbell", include_str!("../topologies/dumbbell.toml")),
    (
        "ripe88-symmetric",
        include_str!("../topologies/ripe88-symmetric.toml"),
    ),
    (
        "ripe88-asymmetric",
        include_str!("../topologies/ripe88-asymmetric.toml"),
    ),
];

/// Names of the shipped topologies.
pub fn shipped() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The topology of an experiment: a name, or a drawing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TopologyChoice {
    /// One that is shipped.
    Named(String),
    /// Its own.
    Drawn(Topology),
}

/// A topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Cables.
    #[serde(rename = "link")]
    pub links: Vec<Cable>,
    /// Ways that are not the shortest.
    #[serde(default, rename = "route")]
    pub routes: Vec<Route>,
}

/// A link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// Its name, and that of its interfaces.
    pub name: String,
    /// Two hosts.
    pub ends: [String; 2],
}

/// One host's way to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The host that decides.
    pub at: String,
    /// The host where packets go.
    pub to: String,
    /// The neighbour that gets them next.
    pub via: String,
}

/// Where a link is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat<'a> {
    /// The router.
    pub host: &'a str,
    /// Its interface on the link.
    pub interface: &'a str,
    /// Its other interface.
    pub peer: &'a str,
    /// The link's other end.
    pub far: &'a str,
}

/// A topology that cannot be built.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// None of that name.
    #[error(
        "no topology \"{name}\"; there are {known} (`fairpath lab show --topologies`), or draw one: [topology] with hosts and links"
    )]
    Unknown {
        /// As requested.
        name: String,
        /// Names that are there.
        known: String,
    },
    /// It says something impossible.
    #[error("topology: {0}")]
    Refused(String),
}

impl Topology {
    /// The chosen topology, checked.
    ///
    /// # Errors
    /// No such topology, or one that cannot be built.
    pub fn of(choice: &TopologyChoice) -> Result<Topology, TopologyError> {
        let topology = match choice {
            TopologyChoice::Drawn(topology) => topology.clone(),
            TopologyChoice::Named(name) => {
                let found = SHIPPED.iter().find(|(known, _)| known == name);
                let (_, text) = found.ok_or_else(|| TopologyError::Unknown {
                    name: name.clone(),
                    known: shipped().collect::<Vec<_>>().join(", "),
                })?;
                toml::from_str(text).map_err(|error| TopologyError::Refused(error.to_string()))?
            }
        };
        topology.check().map_err(TopologyError::Refused)?;
        Ok(topology)
    }

    fn check(&self) -> Result<(), String> {
        if self.links.is_empty() || self.links.len() > MAX_LINKS {
            return Err(format!(
                "{} links are not between 1 and {MAX_LINKS}",
                self.links.len()
            ));
        }
        for (index, link) in self.links.iter().enumerate() {
            let name = &link.name;
            if name.is_empty()
                || name.len() > MAX_NAME
                || name.contains(['/', ' ', ':'])
                || name == "lo"
            {
                return Err(format!(
                    "link \"{name}\" cannot name an interface; use up to {MAX_NAME} plain characters"
                ));
            }
            if self.links[..index].iter().any(|other| other.name == *name) {
                return Err(format!("link {name} is there twice; name each once"));
            }
            let [a, b] = &link.ends;
            if a == b || !self.hosts.contains(a) || !self.hosts.contains(b) {
                return Err(format!(
                    "link {name} needs two of the hosts {}",
                    self.hosts.join(", ")
                ));
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if self.hosts[..index].contains(host) {
                return Err(format!("host {host} is there twice; name each once"));
            }
            if let Some(other) = self
                .hosts
                .iter()
                .find(|other| self.path(host, other).is_none())
            {
                return Err(format!("no way from {host} to {other}; link them"));
            }
        }
        self.routes
            .iter()
            .try_for_each(|route| match self.between(&route.at, &route.via) {
                Some(_) if self.hosts.contains(&route.to) => Ok(()),
                _ => Err(format!(
                    "route at {} to {} via {}: hosts that are linked are needed",
                    route.at, route.to, route.via
                )),
            })
    }

    /// The link called so.
    pub fn link(&self, name: &str) -> Option<&Cable> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Links at a host, in the file's order.
    pub fn links_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Cable> {
        self.links
            .iter()
            .filter(move |link| link.ends.iter().any(|end| end == host))
    }

    fn between(&self, a: &str, b: &str) -> Option<&Cable> {
        let joins = |link: &&Cable| link.ends.iter().any(|end| end == a) && link.other(a) == b;
        self.links.iter().find(joins)
    }

    /// The router that can emulate a link, if an end has exactly two links; the first such end.
    pub fn seat<'a>(&'a self, link: &'a Cable) -> Option<Seat<'a>> {
        link.ends.iter().find_map(|host| {
            let links: Vec<&Cable> = self.links_of(host).collect();
            let [first, second] = links[..] else {
                return None;
            };
            let peer = if first == link { second } else { first };
            Some(Seat {
                host,
                interface: &link.name,
                peer: &peer.name,
                far: link.other(host),
            })
        })
    }

    /// The address by which others know a host: that of its first link.
    pub fn address(&self, host: &str) -> Option<Ipv4Addr> {
        let link = self.links_of(host).next()?;
        self.address_on(link, host)
    }

    /// A host's address on a link.
    pub fn address_on(&self, link: &Cable, host: &str) -> Option<Ipv4Addr> {
        let number = self.links.iter().position(|other| other == link)? + 1;
        let end = link.ends.iter().position(|end| end == host)? + 1;
        Some(Ipv4Addr::new(
            10,
            77,
            u8::try_from(number).ok()?,
            u8::try_from(end).ok()?,
        ))
    }

    /// The neighbour to which `at` gives what is for `to`.
    pub fn next<'a>(&'a self, at: &str, to: &str) -> Option<&'a str> {
        let stated = |route: &&Route| route.at == at && route.to == to;
        if let Some(route) = self.routes.iter().find(stated) {
            return Some(&route.via);
        }
        let neighbour = |link: &&'a Cable| link.ends.iter().any(|end| end == at);
        let neighbours = self
            .links
            .iter()
            .filter(neighbour)
            .map(|link| link.other(at));
        let distance = self.distances(to);
        neighbours.min_by_key(|next| distance.get(*next).copied().unwrap_or(usize::MAX))
    }

    /// Links to `to` from every host that has a way.
    fn distances<'a>(&'a self, to: &'a str) -> BTreeMap<&'a str, usize> {
        let mut distance = BTreeMap::from([(to, 0)]);
        let mut ahead = VecDeque::from([to]);
        while let Some(host) = ahead.pop_front() {
            let next = distance[host] + 1;
            for link in self.links_of(host) {
                let other = link.other(host);
                if !distance.contains_key(other) {
                    distance.insert(other, next);
                    ahead.push_back(other);
                }
            }
        }
        distance
    }

    /// Links from one host to another, each with the host that it leads to; none: no way, or a circle.
    pub fn path<'a>(&'a self, from: &'a str, to: &'a str) -> Option<Vec<(&'a Cable, &'a str)>> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            let next = self.next(at, to)?;
            path.push((self.between(at, next)?, next));
            if path.len() > self.links.len() {
                return None;
            }
            at = next;
        }
        Some(path)
    }
}

impl Cable {
    /// The end that is not `host`.
    pub fn other(&self, host: &str) -> &str {
        let [a, b] = &self.ends;
        if a == host { b } else { a }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Topology {
        Topology::of(&TopologyChoice::Named(name.to_owned())).unwrap()
    }

    fn hops(topology: &Topology, from: &str, to: &str) -> Vec<String> {
        let path = topology.path(from, to).unwrap();
        path.into_iter().map(|(_, host)| host.to_owned()).collect()
    }

    #[test]
    fn every_shipped_topology_can_be_built() {
        shipped().for_each(|name| drop(named(name)));
    }

    #[test]
    fn the_asymmetric_return_path_differs() {
        let symmetric = named("ripe88-symmetric");
        assert_eq!(
            hops(&symmetric, "client", "server"),
            ["r1", "r2", "r3", "server"]
        );
        assert_eq!(
            hops(&symmetric, "server", "client"),
            ["r3", "r2", "r1", "client"]
        );
        let asymmetric = named("ripe88-asymmetric");
        assert_eq!(
            hops(&asymmetric, "client", "server"),
            ["r1", "r2", "server"]
        );
        assert_eq!(
            hops(&asymmetric, "server", "client"),
            ["r3", "r1", "client"]
        );
        for (topology, host) in [(&symmetric, "r3"), (&asymmetric, "r2")] {
            assert_eq!(topology.hosts.len(), 5);
            let bottleneck = topology.link("bottleneck").unwrap();
            let seat = topology.seat(bottleneck).unwrap();
            assert_eq!((seat.host, seat.far), (host, "server"));
        }
    }

    #[test]
    fn links_are_emulated_at_routers_with_two_links() {
        let router = named("router");
        let seat = router.seat(router.link("wan").unwrap()).unwrap();
        assert_eq!(
            (seat.host, seat.interface, seat.peer, seat.far),
            ("router", "wan", "lan", "server")
        );
        let pair = named("pair");
        assert_eq!(pair.seat(&pair.links[0]), None);
    }

    #[test]
    fn unsupported_trees_are_refused_by_name() {
        let refused = |text: &str| {
            let topology: Topology = toml::from_str(text).unwrap();
            Topology::of(&TopologyChoice::Drawn(topology))
                .unwrap_err()
                .to_string()
        };
        let lonely = refused("hosts = ['a', 'b', 'c']\n[[link]]\nname = 'x'\nends = ['a', 'b']\n");
        assert!(lonely.contains("no way from a to c"), "{lonely}");
        let itself = refused("hosts = ['a', 'b']\n[[link]]\nname = 'x'\nends = ['a', 'a']\n");
        assert!(itself.contains("two of the hosts"), "{itself}");
        let long = refused(
            "hosts = ['a', 'b']\n[[link]]\nname = 'a-name-of-sixteen'\nends = ['a', 'b']\n",
        );
        assert!(long.contains("15 plain characters"), "{long}");
    }
}
