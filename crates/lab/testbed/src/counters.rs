//! The counters of `ip -j` for the links of a namespace.

use std::collections::HashSet;

use serde::Deserialize;

use crate::link::LinkError;
use crate::netns::Netns;

/// The counters of an interface since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names, rtnl_link_stats64")]
pub struct LinkCounters {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
}

#[derive(Deserialize)]
struct LinkJson {
    ifname: String,
    stats64: Option<Stats64>,
}

#[derive(Deserialize)]
struct Stats64 {
    rx: Side,
    tx: Side,
}

#[derive(Deserialize)]
struct Side {
    packets: u64,
    bytes: u64,
    dropped: u64,
}

impl Netns {
    /// Returns the counters of the interface `ifname`.
    pub fn link_counters(&self, ifname: &str) -> Result<LinkCounters, LinkError> {
        let text = self.run(&["ip", "-j", "-s", "link", "show", "dev", ifname])?;
        let malformed = |source| LinkError::Output {
            ifname: ifname.to_owned(),
            source,
        };
        let [link]: [LinkJson; 1] = serde_json::from_str(&text).map_err(malformed)?;
        let Some(Stats64 { rx, tx }) = link.stats64 else {
            return Err(malformed(serde::de::Error::missing_field("stats64")));
        };
        Ok(LinkCounters {
            rx_packets: rx.packets,
            rx_bytes: rx.bytes,
            rx_dropped: rx.dropped,
            tx_packets: tx.packets,
            tx_bytes: tx.bytes,
            tx_dropped: tx.dropped,
        })
    }

    /// Names of the links in the namespace, `lo` among them.
    pub fn link_names(&self) -> Result<HashSet<String>, LinkError> {
        let text = self.run(&["ip", "-j", "link", "show"])?;
        let malformed = |source| LinkError::Output {
            ifname: "*".to_owned(),
            source,
        };
        let links: Vec<LinkJson> = serde_json::from_str(&text).map_err(malformed)?;
        Ok(links.into_iter().map(|link| link.ifname).collect())
    }
}
