//! Detects an interface that carries the caller's own remote login.
//!
//! `SSH_CONNECTION` names both ends of it. `sudo` removes the variable, so the environments of the parent
//! processes are read as well. The links that carry the login are the link with its local address, the
//! link of the route to its remote address, and all lower links of these: ports of a bridge or a bond,
//! the parent of a VLAN.
//!
//! A failed read is an error, whose remedy is `--yes`. A session of `tmux` or `screen` that was started on
//! a console and is used remotely is not detected.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use fairpath_netlink::{Link, Links, link_towards};
use fairpath_units::IfIndex;

/// Maximum number of parent processes that are read.
const ABOVE: u32 = 32;

/// A remote login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its other end.
    pub peer: IpAddr,
    /// The address it came to.
    pub here: IpAddr,
}

impl Login {
    /// The caller's, if it is one.
    ///
    /// # Errors
    /// A parent process cannot be read.
    pub fn find() -> anyhow::Result<Option<Login>> {
        let mut process = std::process::id();
        for _ in 0..ABOVE {
            let place = Path::new("/proc").join(process.to_string());
            let environment = match fs::read(place.join("environ")) {
                // It has just ended: no login depends on it.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                read => read.with_context(|| format!("read the environment of process {process}")),
            }?;
            if let Some(login) = in_environment(&environment) {
                return Ok(Some(login));
            }
            let stat = fs::read_to_string(place.join("stat"));
            let above = stat.with_context(|| format!("read the state of process {process}"))?;
            process =
                parent(&above).with_context(|| format!("find the parent of process {process}"))?;
            if process <= 1 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// True if it goes by the link of this name.
    ///
    /// # Errors
    /// Where links, addresses or routes cannot be read.
    pub fn goes_by(&self, interface: &str) -> anyhow::Result<bool> {
        let links = Links::dump()?;
        let mut carriers: BTreeSet<IfIndex> = link_towards(self.peer)?.into_iter().collect();
        let addresses = nix::ifaddrs::getifaddrs().context("list the addresses of this host")?;
        for entry in addresses {
            let own = entry.address.as_ref().and_then(address);
            // The label of an address may follow a colon.
            let name = entry.interface_name.split(':').next().unwrap_or_default();
            if own == Some(self.here) {
                let link = links.iter().find(|link| link.name == name);
                carriers.extend(link.map(|link| link.ifindex));
            }
        }
        add_beneath(&links, &mut carriers);
        let named = links.iter().find(|link| link.name == interface);
        Ok(named.is_some_and(|link| carriers.contains(&link.ifindex)))
    }
}

/// Adds what carries the packets of these links: links below them, ports that belong to them.
fn add_beneath(links: &[Link], carriers: &mut BTreeSet<IfIndex>) {
    loop {
        let is_in = |index: Option<IfIndex>| index.is_some_and(|index| carriers.contains(&index));
        let lower = links.iter().filter(|link| is_in(Some(link.ifindex)));
        let lower = lower.filter_map(|link| link.lower);
        let ports = links.iter().filter(|link| is_in(link.master));
        let beneath: BTreeSet<IfIndex> = lower.chain(ports.map(|port| port.ifindex)).collect();
        if beneath.is_subset(carriers) {
            return;
        }
        carriers.extend(beneath);
    }
}

/// The value as sshd sets it: client's address and port, server's address and port.
fn in_environment(environment: &[u8]) -> Option<Login> {
    let is_it = |entry: &&[u8]| entry.starts_with(b"SSH_CONNECTION=");
    let entry = environment.split(|byte| *byte == 0).find(is_it)?;
    let text = std::str::from_utf8(entry).ok()?.split_once('=')?.1;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [peer, _, here, _] = words[..] else {
        return None;
    };
    // Link-local ones name their interface behind a percent sign.
    let address = |word: &str| word.split('%').next()?.parse::<IpAddr>().ok();
    Some(Login {
        peer: plain(address(peer)?),
        here: plain(address(here)?),
    })
}

/// IPv4 is IPv4, however a socket of both families shows it.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The parent in `/proc/PID/stat`, whose second field may hold blanks and brackets.
fn parent(stat: &str) -> Option<u32> {
    let behind = stat.rsplit_once(')')?.1;
    behind.split_whitespace().nth(1)?.parse().ok()
}

fn address(storage: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(environment: &[u8]) -> Option<[String; 2]> {
        let login = in_environment(environment)?;
        Some([login.peer.to_string(), login.here.to_string()])
    }

    #[test]
    fn a_login_is_read_as_sshd_writes_it() {
        let both = |a: &str, b: &str| Some([a.to_owned(), b.to_owned()]);
        assert_eq!(
            login(b"HOME=/root\0SSH_CONNECTION=192.0.2.7 50000 198.51.100.1 22\0X=y\0"),
            both("192.0.2.7", "198.51.100.1")
        );
        assert_eq!(
            login(b"SSH_CONNECTION=fe80::1%eth0 50000 ::ffff:10.0.0.1 22"),
            both("fe80::1", "10.0.0.1")
        );
        for none in [
            &b""[..],
            b"SSH_CONNECTION=",
            b"XSSH_CONNECTION=1.2.3.4 1 1.2.3.4 2",
        ] {
            assert_eq!(login(none), None);
        }
    }

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (a) b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn the_route_to_loopback_is_loopback() {
        let login = Login {
            peer: IpAddr::from([127, 0, 0, 1]),
            here: IpAddr::from([192, 0, 2, 1]),
        };
        assert!(login.goes_by("lo").unwrap());
        assert!(!login.goes_by("eth77").unwrap());
    }
}
