//! Veth pairs between namespaces.
//!
//! Links belong to their namespaces and are removed with them; a [`Veth`] is a handle and may be dropped.
//! Both ends are made in place, never in the namespace of the caller. Offloads are disabled unless
//! requested, so that captures show wire-sized frames with finished checksums.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::counters::LinkCounters;
use crate::netns::Netns;
use crate::process::RunError;
use crate::sysctl::SysctlError;

/// A link could not be made, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// `ip` or `ethtool` refused.
    #[error("configure link")]
    Tool(#[from] RunError),
    /// A sysctl of the link refused.
    #[error("configure link")]
    Sysctl(#[from] SysctlError),
    /// `ip -j` printed something unexpected.
    #[error("read `ip -j` output for \"{ifname}\"")]
    Output {
        /// The interface asked about.
        ifname: String,
        /// The error of the parser.
        source: serde_json::Error,
    },
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// A locally administered address that this process has not used before.
    fn fresh() -> Mac {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        let [a, b, c, d] = COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Mac([0x02, 0xfa, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// An address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
}

impl Address {
    /// An address in a network of `prefix` bits.
    pub fn new(ip: impl Into<IpAddr>, prefix: u8) -> Address {
        Address {
            ip: ip.into(),
            prefix,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.ip, self.prefix)
    }
}

/// The permission for the kernel to build frames larger than the wire's or leave checksums unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// No GRO, GSO, TSO and no checksum offload: frames are what a wire would carry.
    #[default]
    Off,
    /// The kernel's defaults: fastest, but frames of 64 KiB with partial checksums.
    On,
}

/// One end of a link: an interface in a namespace.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    ns: Netns,
    ifname: String,
    mac: Mac,
    addresses: Vec<Address>,
}

impl LinkEnd {
    /// An end called `ifname` in `ns`, with a fresh MAC and no address; nothing is made yet.
    pub fn new(ns: &Netns, ifname: &str) -> LinkEnd {
        let (ns, ifname) = (ns.clone(), ifname.to_owned());
        LinkEnd {
            ns,
            ifname,
            mac: Mac::fresh(),
            addresses: Vec::new(),
        }
    }

    /// Sets the MAC address.
    #[must_use]
    pub fn with_mac(mut self, mac: [u8; 6]) -> LinkEnd {
        self.mac = Mac(mac);
        self
    }

    /// Adds an IPv4 or IPv6 address; it is usable at once (`nodad`).
    #[must_use]
    pub fn with_address(mut self, ip: impl Into<IpAddr>, prefix: u8) -> LinkEnd {
        self.addresses.push(Address::new(ip, prefix));
        self
    }

    /// The namespace.
    pub fn ns(&self) -> &Netns {
        &self.ns
    }

    /// The interface's name.
    pub fn ifname(&self) -> &str {
        &self.ifname
    }

    /// The MAC address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// The addresses, in the order they were given.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Turns offloads on or off with `ethtool`.
    ///
    /// The *sender's* settings decide what a frame looks like: change both ends of a pair.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<(), LinkError> {
        let state = match offloads {
            Offloads::Off => "off",
            Offloads::On => "on",
        };
        let mut argv = vec!["ethtool", "-K", &self.ifname];
        for feature in ["tx", "sg", "tso", "gso", "gro"] {
            argv.extend([feature, state]);
        }
        self.ns.run(&argv)?;
        Ok(())
    }

    /// Sets the MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LinkError> {
        self.ns.run(&[
            "ip",
            "link",
            "set",
            "dev",
            &self.ifname,
            "mtu",
            &mtu.to_string(),
        ])?;
        Ok(())
    }

    /// Sets the link up or down; down loses IPv6 addresses.
    pub fn set_up(&self, up: bool) -> Result<(), LinkError> {
        let state = if up { "up" } else { "down" };
        self.ns
            .run(&["ip", "link", "set", "dev", &self.ifname, state])?;
        Ok(())
    }

    /// Makes the kernel's stack deaf and mute for IPv6 on this link, for links that only carry frames.
    pub(crate) fn disable_ipv6(&self) -> Result<(), LinkError> {
        let key = format!("net/ipv6/conf/{}/disable_ipv6", self.ifname);
        Ok(self.ns.set_sysctl(&key, "1")?)
    }

    /// Returns the counters of the interface.
    pub fn counters(&self) -> Result<LinkCounters, LinkError> {
        self.ns.link_counters(&self.ifname)
    }

    fn configuration(&self, mtu: u32) -> Vec<String> {
        let dev = &self.ifname;
        let address = |address: &Address| match address.ip {
            IpAddr::V4(_) => format!("address add {address} dev {dev}"),
            IpAddr::V6(_) => format!("address add {address} dev {dev} nodad"),
        };
        let mut lines = vec![format!("link set dev {dev} mtu {mtu} up")];
        lines.extend(self.addresses.iter().map(address));
        lines
    }
}

/// A veth pair that exists.
#[derive(Clone, Debug)]
pub struct Veth {
    left: LinkEnd,
    right: LinkEnd,
}

impl Veth {
    /// Describes a pair; [`VethBuilder::build`] makes it.
    pub fn between(left: LinkEnd, right: LinkEnd) -> VethBuilder {
        VethBuilder {
            left,
            right,
            mtu: 1500,
            offloads: Offloads::Off,
            queues: None,
        }
    }

    /// The end given first.
    pub fn left(&self) -> &LinkEnd {
        &self.left
    }

    /// The end given second.
    pub fn right(&self) -> &LinkEnd {
        &self.right
    }

    /// Both ends.
    pub fn ends(&self) -> [&LinkEnd; 2] {
        [&self.left, &self.right]
    }

    /// Sets the MTU of both ends.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LinkError> {
        self.ends().into_iter().try_for_each(|end| end.set_mtu(mtu))
    }

    /// Turns offloads of both ends on or off.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<(), LinkError> {
        self.ends()
            .into_iter()
            .try_for_each(|end| end.set_offloads(offloads))
    }

    /// Writes permanent neighbour entries for all addresses of each end into the other's namespace.
    ///
    /// No ARP or neighbour discovery will be seen on the link.
    pub fn fix_neighbours(&self) -> Result<(), LinkError> {
        for (at, of) in [(&self.left, &self.right), (&self.right, &self.left)] {
            fix_neighbours(at, of)?;
        }
        Ok(())
    }

    /// Deletes the pair.
    pub fn remove(self) -> Result<(), LinkError> {
        self.left
            .ns
            .run(&["ip", "link", "delete", "dev", &self.left.ifname])?;
        Ok(())
    }
}

/// Adds the MAC address of each address of `of` to the namespace of `at`.
pub(crate) fn fix_neighbours(at: &LinkEnd, of: &LinkEnd) -> Result<(), LinkError> {
    let entry = |address: &Address| {
        let (ip, mac, dev) = (address.ip, of.mac, &at.ifname);
        format!("neighbour replace {ip} lladdr {mac} dev {dev} nud permanent")
    };
    let lines: Vec<_> = of.addresses.iter().map(entry).collect();
    Ok(at.ns.ip_batch(&lines)?)
}

/// A veth pair to be made.
#[derive(Clone, Debug)]
pub struct VethBuilder {
    left: LinkEnd,
    right: LinkEnd,
    mtu: u32,
    offloads: Offloads,
    queues: Option<u32>,
}

impl VethBuilder {
    /// Sets the MTU of both ends (1500).
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> VethBuilder {
        self.mtu = mtu;
        self
    }

    /// Sets the offloads of both ends ([`Offloads::Off`]).
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> VethBuilder {
        self.offloads = offloads;
        self
    }

    /// Sets the maximum number of queues of both ends, of each direction (one per CPU). One is in use, until `ethtool -L`.
    #[must_use]
    pub fn queues(mut self, most: u32) -> VethBuilder {
        self.queues = Some(most);
        self
    }

    /// Makes the pair, with MTU, MACs, addresses and offloads set and both ends up.
    pub fn build(self) -> Result<Veth, LinkError> {
        let VethBuilder {
            left,
            right,
            mtu,
            offloads,
            queues,
        } = self;
        let most = queues.map_or(String::new(), |most| {
            format!("numtxqueues {most} numrxqueues {most} ")
        });
        let add = format!(
            "link add name {} address {} {most}type veth peer name {} address {} {most}netns {}",
            left.ifname,
            left.mac,
            right.ifname,
            right.mac,
            right.ns.path()
        );
        let lines: Vec<_> = [add].into_iter().chain(left.configuration(mtu)).collect();
        left.ns.ip_batch(&lines)?;
        right.ns.ip_batch(&right.configuration(mtu))?;
        let veth = Veth { left, right };
        for end in veth.ends().into_iter().filter(|_| queues.is_some()) {
            let words = ["ethtool", "-L", &end.ifname, "rx", "1", "tx", "1"];
            end.ns.run(&words)?;
        }
        if offloads == Offloads::Off {
            veth.set_offloads(offloads)?;
        }
        Ok(veth)
    }
}

impl Netns {
    /// Adds a route; `to` is a prefix or `default`.
    pub fn add_route(&self, to: &str, via: IpAddr) -> Result<(), LinkError> {
        let family = if via.is_ipv6() { "-6" } else { "-4" };
        self.run(&["ip", family, "route", "add", to, "via", &via.to_string()])?;
        Ok(())
    }
}
