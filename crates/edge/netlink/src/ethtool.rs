//! Rings, channels, offloads and receive-side scaling of a driver (ethtool's netlink family).
//!
//! Read only; needs no privilege. The result is `None` if the driver does not support the request.

use std::collections::BTreeSet;

use fairpath_units::IfIndex;

use crate::connection::NetlinkError;
use crate::genl::Family;
use crate::message::{Request, attr, attr_str, attr_u32, attrs, u32_at};

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_RINGS_GET: u8 = 15;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_RSS_GET: u8 = 38;
/// The first attribute of every request, whatever the command.
const ETHTOOL_A_REQUEST_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_FEATURES_NOCHANGE: u16 = 5;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const ETHTOOL_A_RINGS_RX_MAX: u16 = 2;
const ETHTOOL_A_RINGS_TX_MAX: u16 = 5;
const ETHTOOL_A_RINGS_RX: u16 = 6;
const ETHTOOL_A_RINGS_TX: u16 = 9;
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_TX_MAX: u16 = 3;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
const ETHTOOL_A_RSS_INDIR: u16 = 4;
const ETHTOOL_A_RSS_HKEY: u16 = 5;

/// Sizes of the descriptor rings, in descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Receive, current.
    pub rx: u32,
    /// Receive, maximum.
    pub rx_max: u32,
    /// Transmit, current.
    pub tx: u32,
    /// Transmit, maximum.
    pub tx_max: u32,
}

/// Numbers of channels: queues with a separate interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive only, current.
    pub rx: u32,
    /// Receive only, maximum.
    pub rx_max: u32,
    /// Transmit only, current.
    pub tx: u32,
    /// Transmit only, maximum.
    pub tx_max: u32,
    /// Both directions in one, current.
    pub combined: u32,
    /// Both directions in one, maximum.
    pub combined_max: u32,
}

/// The distribution of received packets to receive queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// The queue of each hash bucket; empty if the driver has no table.
    pub indirection: Vec<u32>,
    /// True if the driver shows a hash key.
    pub has_key: bool,
}

/// The offloads by the kernel's names (`rx-gro`, `rx-lro`, ...).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Those in use.
    pub active: BTreeSet<String>,
    /// Those that can be switched.
    pub changeable: BTreeSet<String>,
}

impl Offloads {
    /// True if `name` is in use.
    pub fn is_on(&self, name: &str) -> bool {
        self.active.contains(name)
    }

    /// True if `name` can be switched.
    pub fn can_change(&self, name: &str) -> bool {
        self.changeable.contains(name)
    }
}

/// The ethtool family of the calling thread's namespace.
#[derive(Debug)]
pub struct Ethtool {
    family: Family,
}

impl Ethtool {
    /// Opens a socket and finds the family.
    pub fn open() -> Result<Ethtool, NetlinkError> {
        Ok(Ethtool {
            family: Family::open("ethtool")?,
        })
    }

    /// The ring sizes.
    pub fn rings(&mut self, ifindex: IfIndex) -> Result<Option<Rings>, NetlinkError> {
        let request = self.about(ETHTOOL_MSG_RINGS_GET, ifindex);
        self.family.query("read ring sizes", request, |a| Rings {
            rx: attr_u32(a, ETHTOOL_A_RINGS_RX).unwrap_or(0),
            rx_max: attr_u32(a, ETHTOOL_A_RINGS_RX_MAX).unwrap_or(0),
            tx: attr_u32(a, ETHTOOL_A_RINGS_TX).unwrap_or(0),
            tx_max: attr_u32(a, ETHTOOL_A_RINGS_TX_MAX).unwrap_or(0),
        })
    }

    /// The numbers of channels.
    pub fn channels(&mut self, ifindex: IfIndex) -> Result<Option<Channels>, NetlinkError> {
        let request = self.about(ETHTOOL_MSG_CHANNELS_GET, ifindex);
        self.family.query("read channels", request, |a| Channels {
            rx: attr_u32(a, ETHTOOL_A_CHANNELS_RX_COUNT).unwrap_or(0),
            rx_max: attr_u32(a, ETHTOOL_A_CHANNELS_RX_MAX).unwrap_or(0),
            tx: attr_u32(a, ETHTOOL_A_CHANNELS_TX_COUNT).unwrap_or(0),
            tx_max: attr_u32(a, ETHTOOL_A_CHANNELS_TX_MAX).unwrap_or(0),
            combined: attr_u32(a, ETHTOOL_A_CHANNELS_COMBINED_COUNT).unwrap_or(0),
            combined_max: attr_u32(a, ETHTOOL_A_CHANNELS_COMBINED_MAX).unwrap_or(0),
        })
    }

    /// The receive-side scaling.
    pub fn rss(&mut self, ifindex: IfIndex) -> Result<Option<Rss>, NetlinkError> {
        let request = self.about(ETHTOOL_MSG_RSS_GET, ifindex);
        self.family.query("read RSS settings", request, |a| Rss {
            indirection: attr(a, ETHTOOL_A_RSS_INDIR)
                .unwrap_or(&[])
                .chunks_exact(4)
                .filter_map(|word| u32_at(word, 0))
                .collect(),
            has_key: attr(a, ETHTOOL_A_RSS_HKEY).is_some_and(|key| !key.is_empty()),
        })
    }

    /// The offloads.
    pub fn offloads(&mut self, ifindex: IfIndex) -> Result<Option<Offloads>, NetlinkError> {
        let request = self.about(ETHTOOL_MSG_FEATURES_GET, ifindex);
        self.family.query("read offloads", request, |a| {
            let fixed = bitset(attr(a, ETHTOOL_A_FEATURES_NOCHANGE));
            let switchable = bitset(attr(a, ETHTOOL_A_FEATURES_HW));
            Offloads {
                active: bitset(attr(a, ETHTOOL_A_FEATURES_ACTIVE)),
                changeable: switchable.difference(&fixed).cloned().collect(),
            }
        })
    }

    fn about(&self, command: u8, ifindex: IfIndex) -> Request {
        self.family
            .request(command)
            .nest(ETHTOOL_A_REQUEST_HEADER, |r| {
                r.attr_u32(ETHTOOL_A_HEADER_DEV_INDEX, ifindex.0)
            })
    }
}

/// The names of the set bits. Without a mask, all listed bits are set. With one, those that carry
/// the flag.
fn bitset(nested: Option<&[u8]>) -> BTreeSet<String> {
    let Some(nested) = nested else {
        return BTreeSet::new();
    };
    let all_listed_are_set = attr(nested, ETHTOOL_A_BITSET_NOMASK).is_some();
    attrs(attr(nested, ETHTOOL_A_BITSET_BITS).unwrap_or(&[]))
        .filter(|(_, bit)| all_listed_are_set || attr(bit, ETHTOOL_A_BITSET_BIT_VALUE).is_some())
        .filter_map(|(_, bit)| attr_str(bit, ETHTOOL_A_BITSET_BIT_NAME))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Links, NewLink};
    use crate::testing::in_scratch_namespace;

    #[test]
    fn veth_reports_offloads_and_channels() {
        in_scratch_namespace("veth_reports_offloads_and_channels", || {
            let mut links = Links::open().unwrap();
            let veth = NewLink::Veth {
                name: "e0",
                peer: "e1",
            };
            links.create(veth).unwrap();
            let ifindex = links.by_name("e0").unwrap().unwrap().ifindex;
            let mut ethtool = Ethtool::open().unwrap();
            let offloads = ethtool.offloads(ifindex).unwrap().unwrap();
            assert!(offloads.is_on("tx-generic-segmentation"), "{offloads:?}");
            assert!(offloads.can_change("rx-gro"), "{offloads:?}");
            assert!(!offloads.is_on("rx-lro"), "{offloads:?}");
            let channels = ethtool.channels(ifindex).unwrap().unwrap();
            assert!(channels.combined + channels.rx > 0, "{channels:?}");
        });
    }
}
