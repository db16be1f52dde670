//! Link changes as events, without gaps: after a loss of messages, all links are listed again.
//!
//! ```text
//!   RTNLGRP_LINK --> socket --> LinkTable --> events
//!   overflow -----> list all ------^
//! ```
//!
//! Invariant: after every call, the table equals the last state reported by the kernel, and the
//! events so far, applied in order, lead from nothing to the table. The socket joins the group
//! before the first listing, so a change in between arrives twice rather than never. The second
//! time it makes no event.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fairpath_units::IfIndex;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::{NetlinkError, open_socket, receive_datagram};
use crate::link::{Link, parse_removed};
use crate::links::{Links, RTM_DELLINK, RTM_NEWLINK};
use crate::message::messages;

const RTNLGRP_LINK: u32 = 1;
const DATAGRAM_LIMIT_BYTES: usize = 128 * 1024;
/// Maximum of datagrams per call, so that a storm of changes cannot block the caller.
const DATAGRAMS_PER_CALL: usize = 256;

/// A change of one link. Each carries the link as it is after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A new link (created, or moved into this namespace).
    Appeared(Link),
    /// A link has another name; its index is the same.
    Renamed {
        /// The name before.
        from: String,
        /// The link now.
        link: Link,
    },
    /// A link is able to pass packets now ([`Link::running`]).
    Up(Link),
    /// A link is no longer able to pass packets.
    Down(Link),
    /// Another change: MTU, master, qdisc, XDP program, ...
    Changed(Link),
    /// A link was removed (deleted, or moved to another namespace); its last state.
    Removed(Link),
}

/// The known links; turns reports into events. Pure: reads no socket.
#[derive(Clone, Debug, Default)]
pub struct LinkTable {
    links: BTreeMap<IfIndex, Link>,
}

impl LinkTable {
    /// The links now, by index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The link with this index.
    pub fn get(&self, ifindex: IfIndex) -> Option<&Link> {
        self.links.get(&ifindex)
    }

    /// Applies a report of the current state of a link, and appends the changes.
    ///
    /// One report may make two events: a rename first, then up, down or another change.
    pub fn apply(&mut self, link: Link, events: &mut Vec<LinkEvent>) {
        let Some(old) = self.links.insert(link.ifindex, link.clone()) else {
            events.push(LinkEvent::Appeared(link));
            return;
        };
        if old.name != link.name {
            events.push(LinkEvent::Renamed {
                from: old.name.clone(),
                link: link.clone(),
            });
        }
        let renamed = Link {
            name: link.name.clone(),
            ..old
        };
        match (renamed.running, link.running) {
            (false, true) => events.push(LinkEvent::Up(link)),
            (true, false) => events.push(LinkEvent::Down(link)),
            _ if renamed != link => events.push(LinkEvent::Changed(link)),
            _ => {}
        }
    }

    /// Applies the removal of a link. An unknown link makes no event.
    pub fn remove(&mut self, ifindex: IfIndex, events: &mut Vec<LinkEvent>) {
        events.extend(self.links.remove(&ifindex).map(LinkEvent::Removed));
    }

    /// Applies a whole listing: links that are not in it were removed.
    pub fn resync(&mut self, listing: Vec<Link>, events: &mut Vec<LinkEvent>) {
        let removed: Vec<IfIndex> = self
            .links
            .keys()
            .filter(|known| !listing.iter().any(|link| link.ifindex == **known))
            .copied()
            .collect();
        for ifindex in removed {
            self.remove(ifindex, events);
        }
        for link in listing {
            self.apply(link, events);
        }
    }
}

/// A subscription to the link changes of one namespace; needs no privilege.
///
/// ```no_run
/// use fairpath_netlink::{LinkEvent, LinkWatch};
/// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
/// use std::os::fd::AsFd;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut watch = LinkWatch::open()?;
/// for event in watch.events()? {
///     if let LinkEvent::Appeared(link) = event {
///         println!("there is {}", link.name); // first all that were there already
///     }
/// }
/// loop {
///     poll(&mut [PollFd::new(watch.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
///     for event in watch.events()? {
///         println!("{event:?}");
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct LinkWatch {
    socket: Socket,
    lister: Links,
    table: LinkTable,
    stale: bool,
    overflows: u64,
    buffer: Vec<u8>,
}

impl LinkWatch {
    /// Subscribes in the calling thread's namespace.
    ///
    /// The first call of [`LinkWatch::events`] reports all existing links as
    /// [`LinkEvent::Appeared`].
    pub fn open() -> Result<LinkWatch, NetlinkError> {
        let socket = subscribe().map_err(|source| NetlinkError::Socket {
            operation: "watch links",
            source,
        })?;
        Ok(LinkWatch {
            socket,
            lister: Links::open()?,
            table: LinkTable::default(),
            stale: true,
            overflows: 0,
            buffer: Vec::with_capacity(DATAGRAM_LIMIT_BYTES),
        })
    }

    /// The links as of the last call of [`LinkWatch::events`].
    pub fn table(&self) -> &LinkTable {
        &self.table
    }

    /// The number of times that the socket overflowed and the links were listed again.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns the changes since the last call, in order; empty if there are none. Never waits for a change.
    ///
    /// After an overflow of the socket (`ENOBUFS`), it lists all links and reports the difference.
    /// An error loses nothing: the next call lists all links again. Reads at most 256 datagrams; if
    /// there are more, the descriptor stays readable.
    pub fn events(&mut self) -> Result<Vec<LinkEvent>, NetlinkError> {
        let mut events = Vec::new();
        for _ in 0..DATAGRAMS_PER_CALL {
            if self.stale {
                self.resync(&mut events)?;
            }
            if self.stale {
                break;
            }
            match receive_datagram(&self.socket, &mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(()) => self.take_datagram(&mut events),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.overflows += 1;
                    self.stale = true;
                }
                Err(source) => return Err(self.broken(source)),
            }
        }
        Ok(events)
    }

    /// Reads old reports from the queue before listing: applied later, they would undo the list. An
    /// empty queue also ends the state in which the kernel drops reports without another error.
    fn resync(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), NetlinkError> {
        let emptied = self.discard_queued()?;
        let listing = self.lister.list()?;
        self.table.resync(listing, events);
        self.stale = !emptied;
        Ok(())
    }

    /// True if the queue was empty in the end.
    fn discard_queued(&mut self) -> Result<bool, NetlinkError> {
        for _ in 0..DATAGRAMS_PER_CALL {
            match receive_datagram(&self.socket, &mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.overflows += 1,
                Err(source) => return Err(self.broken(source)),
            }
        }
        Ok(false)
    }

    fn take_datagram(&mut self, events: &mut Vec<LinkEvent>) {
        for message in messages(&self.buffer) {
            match message.kind {
                RTM_NEWLINK => {
                    if let Some(link) = Link::parse(message.payload) {
                        self.table.apply(link, events);
                    }
                }
                RTM_DELLINK => {
                    if let Some(ifindex) = parse_removed(message.payload) {
                        self.table.remove(ifindex, events);
                    }
                }
                _ => {}
            }
        }
    }

    fn broken(&mut self, source: io::Error) -> NetlinkError {
        self.stale = true;
        NetlinkError::Socket {
            operation: "watch links",
            source,
        }
    }
}

impl AsFd for LinkWatch {
    /// Readable when [`LinkWatch::events`] has something to read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn subscribe() -> io::Result<Socket> {
    let socket = open_socket(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    socket.add_membership(RTNLGRP_LINK)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::link::ArpType;
    use crate::links::NewLink;
    use crate::testing::in_scratch_namespace;

    fn link(index: u32, name: &str, running: bool) -> Link {
        Link {
            ifindex: IfIndex(index),
            name: name.to_owned(),
            arp_type: ArpType::Ethernet,
            kind: None,
            master: None,
            lower: None,
            lower_elsewhere: false,
            mtu_bytes: 1500,
            up: running,
            arp: true,
            running,
            vlan_id: None,
            tx_queues: 1,
            rx_queues: 1,
            txqueuelen_packets: 1000,
            qdisc: None,
            xdp: None,
        }
    }

    /// Collects events until `done` returns true, with a deadline.
    fn collect(watch: &mut LinkWatch, done: impl Fn(&[LinkEvent]) -> bool) -> Vec<LinkEvent> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut all = Vec::new();
        loop {
            all.extend(watch.events().unwrap());
            if done(&all) {
                return all;
            }
            assert!(Instant::now() < deadline, "not seen in time: {all:?}");
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(1000u16)).unwrap();
        }
    }

    #[test]
    fn one_report_makes_a_rename_and_an_up() {
        let mut table = LinkTable::default();
        let mut events = Vec::new();
        table.apply(link(3, "eth0", false), &mut events);
        table.apply(link(3, "wan", true), &mut events);
        table.apply(link(3, "wan", true), &mut events);
        assert_eq!(
            events,
            [
                LinkEvent::Appeared(link(3, "eth0", false)),
                LinkEvent::Renamed {
                    from: "eth0".to_owned(),
                    link: link(3, "wan", true)
                },
                LinkEvent::Up(link(3, "wan", true)),
            ]
        );
    }

    #[test]
    fn a_listing_reports_only_the_difference() {
        let mut table = LinkTable::default();
        let mut events = Vec::new();
        let before = vec![link(1, "lo", true), link(2, "ppp0", true)];
        table.resync(before, &mut events);
        events.clear();
        let now = vec![link(1, "lo", true), link(3, "ppp0", false)];
        table.resync(now, &mut events);
        assert_eq!(
            events,
            [
                LinkEvent::Removed(link(2, "ppp0", true)),
                LinkEvent::Appeared(link(3, "ppp0", false)),
            ]
        );
    }

    #[test]
    fn link_watch_reports_creation_to_removal() {
        in_scratch_namespace("link_watch_reports_creation_to_removal", || {
            let mut watch = LinkWatch::open().unwrap();
            let first = watch.events().unwrap();
            assert!(matches!(&first[..], [LinkEvent::Appeared(lo)] if lo.name == "lo"));
            assert_eq!(watch.events().unwrap(), []);

            let mut links = Links::open().unwrap();
            links
                .create(NewLink::Veth {
                    name: "a0",
                    peer: "a1",
                })
                .unwrap();
            let a = links.by_name("a0").unwrap().unwrap().ifindex;
            let b = links.by_name("a1").unwrap().unwrap().ifindex;
            links.rename(a, "b0").unwrap();
            links.set_up(a, true).unwrap();
            links.set_up(b, true).unwrap();
            let seen = collect(&mut watch, |all| {
                all.iter()
                    .any(|e| matches!(e, LinkEvent::Up(l) if l.ifindex == a))
            });
            assert!(
                seen.iter()
                    .any(|e| matches!(e, LinkEvent::Appeared(l) if l.name == "a0"))
            );
            assert!(seen.iter().any(
                |e| matches!(e, LinkEvent::Renamed { from, link } if from == "a0" && link.name == "b0")
            ));

            links.set_up(b, false).unwrap();
            collect(&mut watch, |all| {
                all.iter()
                    .any(|e| matches!(e, LinkEvent::Down(l) if l.ifindex == a))
            });
            links.delete(a).unwrap();
            collect(&mut watch, |all| {
                let removed = |e: &&LinkEvent| matches!(e, LinkEvent::Removed(_));
                all.iter().filter(removed).count() == 2
            });
            assert!(watch.table().get(a).is_none() && watch.table().get(b).is_none());
        });
    }

    #[test]
    fn leaving_a_bridge_is_not_removal() {
        in_scratch_namespace("leaving_a_bridge_is_not_removal", || {
            let mut links = Links::open().unwrap();
            let veth = NewLink::Veth {
                name: "p0",
                peer: "p1",
            };
            links.create(veth).unwrap();
            let bridge = NewLink::Plain {
                name: "br0",
                kind: "bridge",
            };
            if links.create(bridge).is_err() {
                fairpath_units::skip_test(
                    "leaving_a_bridge_is_not_removal",
                    "feature:bridge",
                    "kernel has no bridge",
                );
                return;
            }
            let port = links.by_name("p0").unwrap().unwrap().ifindex;
            let master = links.by_name("br0").unwrap().unwrap().ifindex;
            let mut watch = LinkWatch::open().unwrap();
            watch.events().unwrap();
            links.set_master(port, Some(master)).unwrap();
            links.set_master(port, None).unwrap();
            links.delete(master).unwrap();
            let seen = collect(&mut watch, |all| {
                all.iter()
                    .any(|e| matches!(e, LinkEvent::Removed(l) if l.ifindex == master))
            });
            assert!(
                seen.iter()
                    .any(|e| matches!(e, LinkEvent::Changed(l) if l.master == Some(master)))
            );
            assert!(watch.table().get(port).is_some());
        });
    }

    #[test]
    fn link_watch_recovers_from_overflow() {
        in_scratch_namespace("link_watch_recovers_from_overflow", || {
            let mut watch = LinkWatch::open().unwrap();
            watch.socket.set_rx_buf_sz(1u32).unwrap(); // the kernel makes it its minimum
            watch.events().unwrap();
            let mut links = Links::open().unwrap();
            for number in 0..40 {
                let (name, peer) = (format!("x{number}"), format!("y{number}"));
                links
                    .create(NewLink::Veth {
                        name: &name,
                        peer: &peer,
                    })
                    .unwrap();
            }
            let removed = links.by_name("x7").unwrap().unwrap().ifindex;
            links.delete(removed).unwrap();
            watch.events().unwrap();
            assert!(
                watch.overflows() > 0,
                "the buffer was too large for this test"
            );
            let known: Vec<Link> = watch.table().links().cloned().collect();
            assert_eq!(known, links.list().unwrap());
            assert_eq!(known.len(), 1 + 2 * 39);
        });
    }
}
