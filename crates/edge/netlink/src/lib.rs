//! Links, their attributes and their changes, over netlink; synchronous.
//!
//! | question | answer |
//! |---|---|
//! | which links are there | [`Links::dump`] |
//! | what changes from now on | [`LinkWatch`] |
//! | make, change, delete a link | [`NewLink`], [`Links::set_up`], [`Links::rename`], [`Links::delete`] |
//! | what did links lose | [`Links::drops`], [`Links::drops_of_other_end`] |
//! | which qdiscs sit where, can this kernel make that one, putting one on | [`Tc`] |
//! | classes with rates, as an intent | [`Htb`] |
//! | what do packets pass in the stack | [`stages`] |
//! | what does the driver say of rings, channels, offloads, RSS | [`Ethtool`] |
//! | what does the driver say of XDP | [`Netdev`] |
//! | what do TCP sockets tell of themselves | [`SocketDiag`] |
//! | by which link do packets to an address leave | [`link_towards`] |
//! | can a packet queue be bound | [`bind_nfqueue`] |
//! | can tun and ppp units be made | [`create_tun`], [`create_ppp`] |
//!
//! Every socket belongs to the network namespace its thread was in when it was opened, and stays there.
//!
//! Attributes are walked, not decoded whole: a newer kernel's unknown or grown attribute never hides a link.
//! That is why `netlink-packet-route`, whose link decoder refuses the whole message then, is not used here.
//! Deliberately absent: routes (but for the questions whether there are rules, and which link leads to an address), addresses, neighbours (nothing in Fairpath asks for them yet).

mod connection;
mod device;
mod drops;
mod ethtool;
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
pub use device::{create_ppp, create_tun};
pub use drops::LinkDrops;
pub use ethtool::{Channels, Ethtool, Offloads, Rings, Rss};
pub use htb::{
    Applied, BadHtb, CAKE_LEAVES, Device, HTB_MAJOR, Htb, HtbClass, HtbClassStats, HtbError,
    HtbRunning, HtbStats, HtbTree, LeafChoice, LeafKind, Leaves, MAX_LEVELS, MAX_MINOR,
};
pub use link::{ArpType, Link, LinkKind, VlanId, XdpAttached, XdpMode};
pub use links::{Links, NewLink};
pub use netdev::{Netdev, XdpFeatures};
pub use nfqueue::bind_nfqueue;
pub use route::link_towards;
pub use sockets::{BbrInfo, SocketDiag, SocketId, TcpInfo, TcpSocket};
pub use stage::{Stage, StageError, StageKind, stages};
pub use tc::{PlaceError, Qdisc, QdiscPlace, QdiscStats, Tc};
pub use watch::{LinkEvent, LinkTable, LinkWatch};
