//! Links, their attributes and their changes, over netlink; synchronous.
//!
//! | task | item |
//! |---|---|
//! | list links | [`Links::dump`] |
//! | watch changes | [`LinkWatch`] |
//! | create, change, delete a link | [`NewLink`], [`Links::set_up`], [`Links::rename`], [`Links::delete`] |
//! | read losses of links | [`Links::drops`], [`Links::drops_of_other_end`] |
//! | list, probe and install qdiscs | [`Tc`] |
//! | classes with rates, as a desired state | [`Htb`] |
//! | list the stages of the stack | [`stages`] |
//! | read rings, channels, offloads, RSS | [`Ethtool`] |
//! | read the fields of the receive hash | [`FlowHash`] |
//! | read XDP features | [`Netdev`] |
//! | read the state of TCP sockets | [`SocketDiag`] |
//! | find the link towards an address | [`link_towards`] |
//! | read how senders are checked | [`rp_filter`] |
//! | keep descriptors from child processes | [`close_on_exec`] |
//! | probe NFQUEUE | [`bind_nfqueue`] |
//! | probe tun and ppp | [`create_tun`], [`create_ppp`] |
//!
//! Every socket belongs permanently to the network namespace of its thread at the time of opening.
//!
//! Attributes are read one by one: an unknown or longer attribute of a newer kernel never hides a
//! link. Therefore `netlink-packet-route` is not used: its link decoder then refuses the whole
//! message.
//! Deliberately absent: routes (except whether there are rules, and which link leads to an address),
//! addresses, neighbours. Fairpath does not need them.

mod connection;
mod descriptors;
mod device;
mod drops;
mod ethtool;
mod flow_hash;
mod genl;
mod htb;
mod link;
mod links;
mod message;
mod netdev;
mod nfqueue;
mod route;
mod sockets;
mod stage;
mod tc;
#[cfg(test)]
mod testing;
mod watch;

pub use connection::NetlinkError;
pub use descriptors::close_on_exec;
pub use device::{create_ppp, create_tun};
pub use drops::LinkDrops;
pub use ethtool::{Channels, Ethtool, Offloads, Rings, Rss};
pub use flow_hash::{FlowHash, FlowKind};
pub use htb::{
    Applied, BadHtb, CAKE_LEAVES, Device, FIFO_NS, HTB_MAJOR, Htb, HtbClass, HtbClassStats,
    HtbError, HtbRunning, HtbStats, HtbTree, LeafChoice, LeafKind, Leaves, MAX_HTB_QUEUES,
    MAX_LEVELS, MAX_MINOR, htb_major,
};
pub use link::{ArpType, Link, LinkKind, VlanId, XdpAttached, XdpMode};
pub use links::{Links, NewLink};
pub use netdev::{Netdev, XdpFeatures};
pub use nfqueue::bind_nfqueue;
pub use route::{LimitingRoute, limiting_routes, link_towards, local_routes, rp_filter};
pub use sockets::{BbrInfo, SocketDiag, SocketId, TcpInfo, TcpSocket};
pub use stage::{
    RulesVersion, Stage, StageError, StageKind, StageWatch, ipsec_policies, rules_version, stages,
};
pub use tc::{Egress, Fq, PlaceError, Qdisc, QdiscPlace, QdiscStats, Tc};
pub use watch::{LinkEvent, LinkTable, LinkWatch};
