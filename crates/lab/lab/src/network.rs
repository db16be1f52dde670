//! A topology in namespaces, ready for packets.
//!
//! Conditions for TCP: no cached metrics, windows above twice any product of rate and delay, one MTU,
//! neighbours known, and frames as on a wire: no interface accepts a GSO packet, and senders segment
//! theirs before the link. Everything is removed with the last descriptor.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use fairpath_testbed::{
    LinkEnd, LinkError, Netns, NetnsError, Offloads, RunError, SysctlError, Testbed, Veth,
};
use thiserror::Error;

use fairpath_analysis::topology::Topology;

/// Most that a socket's buffers grow to, bytes: BBR has twice in flight what the path holds, which is 25 MB at
/// 1 Gbit/s over 100 ms, and the kernel counts the memory that packets lie in, half as much again or more.
const MAX_WINDOW: &str = "134217728";
/// Bytes of each link's packets.
pub const MTU: u32 = 1500;

/// A network could not be built.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// A namespace.
    #[error("build the network's hosts")]
    Netns(#[from] NetnsError),
    /// A link.
    #[error("build the network's links")]
    Link(#[from] LinkError),
    /// A tool.
    #[error("configure the network")]
    Tool(#[from] RunError),
    /// A sysctl.
    #[error("configure the network")]
    Sysctl(#[from] SysctlError),
}

/// Namespaces that are linked.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    hosts: BTreeMap<String, Netns>,
}

impl Network {
    /// Builds it; returns when packets can flow. About a quarter of a second for five hosts.
    ///
    /// With `offloads`, interfaces accept GSO packets, which is a fault that is detected.
    ///
    /// # Errors
    /// No rights, or the kernel refuses.
    pub fn build(topology: &Topology, offloads: bool) -> Result<Network, NetworkError> {
        let testbed = Testbed::new();
        let mut hosts = BTreeMap::new();
        for name in &topology.hosts {
            let host = testbed.netns(name)?;
            host.set_sysctls(&[
                ("net.ipv4.tcp_no_metrics_save", "1"),
                ("net.ipv4.tcp_rmem", &format!("4096 131072 {MAX_WINDOW}")),
                ("net.ipv4.tcp_wmem", &format!("4096 65536 {MAX_WINDOW}")),
            ])?;
            host.set_forwarding(topology.links_of(name).count() > 1)?;
            hosts.insert(name.clone(), host);
        }
        let network = Network {
            topology: topology.clone(),
            hosts,
        };
        network.link_up(offloads)?;
        network.add_routes()?;
        Ok(network)
    }

    fn link_up(&self, offloads: bool) -> Result<(), NetworkError> {
        for link in &self.topology.links {
            let end = |host: &String| {
                let address = self.topology.address_on(link, host);
                let end = LinkEnd::new(self.host(host), &link.name);
                address
                    .into_iter()
                    .fold(end, |end, ip| end.with_address(ip, 24))
            };
            let [left, right] = link.ends.each_ref().map(end);
            let veth = Veth::between(left, right)
                .mtu(MTU)
                .offloads(Offloads::On)
                .build()?;
            veth.fix_neighbours()?;
            for end in veth.ends() {
                wire_sized(end, offloads)?;
            }
        }
        Ok(())
    }

    fn add_routes(&self) -> Result<(), NetworkError> {
        for at in &self.topology.hosts {
            let mut lines = Vec::new();
            for link in &self.topology.links {
                if link.ends.contains(at) {
                    continue;
                }
                lines.extend(link.ends.iter().filter_map(|end| self.route(at, end, link)));
            }
            // Own links of others that a route of the topology sends elsewhere come as host routes too.
            let elsewhere = self.topology.routes.iter().filter(|route| route.at == *at);
            lines.extend(elsewhere.filter_map(|route| {
                let link = self.topology.links_of(&route.to).next()?;
                self.route(at, &route.to, link)
            }));
            self.host(at).ip_batch(&lines)?;
        }
        Ok(())
    }

    /// The command that sets the next hop of `at` to `end`'s address on `link`.
    fn route(
        &self,
        at: &str,
        end: &str,
        link: &fairpath_analysis::topology::Cable,
    ) -> Option<String> {
        let address = self.topology.address_on(link, end)?;
        let next = self.topology.next(at, end)?;
        let (over, _) = self.topology.path(at, end)?.into_iter().next()?;
        let gateway = self.topology.address_on(over, next)?;
        Some(format!("route replace {address}/32 via {gateway}"))
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A host's namespace.
    ///
    /// # Panics
    /// For a name that is not in the topology: experiments are checked against it before.
    pub fn host(&self, name: &str) -> &Netns {
        &self.hosts[name]
    }

    /// Hosts by name.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &Netns)> {
        self.hosts.iter().map(|(name, host)| (name.as_str(), host))
    }

    /// The address by which others know a host.
    ///
    /// # Panics
    /// As [`Network::host`].
    pub fn address(&self, name: &str) -> Ipv4Addr {
        let address = self.topology.address(name);
        address.expect("every host of a checked topology has a link")
    }

    /// The offloads of each interface, "router/lan" -> "tso off, gso on, ...".
    ///
    /// # Errors
    /// ethtool refuses.
    pub fn offloads(&self) -> Result<BTreeMap<String, String>, NetworkError> {
        let mut found = BTreeMap::new();
        for link in &self.topology.links {
            for host in &link.ends {
                let text = self.host(host).run(&["ethtool", "-k", &link.name])?;
                found.insert(format!("{host}/{}", link.name), offloads_in(&text));
            }
        }
        Ok(found)
    }
}

/// Names of `ethtool -k`, and ours.
const REPORTED: [(&str, &str); 5] = [
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("tx-checksumming", "tx"),
    ("scatter-gather", "sg"),
];

fn offloads_in(text: &str) -> String {
    let state = |(long, short): &(&str, &str)| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{long}:")))?;
        Some(format!("{short} {}", line.split_whitespace().next()?))
    };
    REPORTED
        .iter()
        .filter_map(state)
        .collect::<Vec<_>>()
        .join(", ")
}

/// GSO packets are segmented before they reach the interface, and none are built at it.
fn wire_sized(end: &LinkEnd, offloads: bool) -> Result<(), NetworkError> {
    if offloads {
        return Ok(());
    }
    let mut argv = vec!["ethtool", "-K", end.ifname()];
    for (feature, state) in [
        ("tx", "off"),
        ("tso", "off"),
        ("gro", "off"),
        ("sg", "on"),
        ("gso", "on"),
    ] {
        argv.extend([feature, state]);
    }
    end.ns().run(&argv)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_reported_in_one_line() {
        let text = "Features for lan:\nrx-checksumming: on\ntx-checksumming: off\n\ttx-checksum-ip-generic: off\n\
            scatter-gather: on\ntcp-segmentation-offload: off [requested on]\n\
            generic-segmentation-offload: on\ngeneric-receive-offload: off\n";
        assert_eq!(offloads_in(text), "tso off, gso on, gro off, tx off, sg on");
    }
}
