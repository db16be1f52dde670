//! Installs a qdisc at the egress of a link without replacing one of another program.
//!
//! A place is the root of a link, or a queue of its `mq`. Default qdiscs have no handle and may be
//! replaced. A qdisc with a handle was created by another program, and is replaced only on request.
//! Removing a qdisc restores the kernel's default.

use fairpath_units::IfIndex;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::{
    Qdisc, RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC, TC_H_ROOT, TCA_KIND, TCMSG_LEN, Tc, tcmsg,
};
use crate::connection::{NetlinkError, acked, dumped};
use crate::message::{Request, attr, attr_str, u32_at, u64_at};

const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// Handle of our `mq`: the default one has none, and can have no children.
pub(crate) const MQ_HANDLE: u32 = 0xfa1c_0000;

/// The place of a qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QdiscPlace {
    /// The whole link's.
    Root,
    /// Of one transmit queue, from 0, under the link's `mq` ([`Tc::split`]).
    Queue(u16),
}

/// Statistics of a qdisc as in `tc -s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Sent, as on the wire.
    pub bytes: u64,
    /// Sent, GSO packets by their segments.
    pub packets: u64,
    /// Waiting.
    pub qlen: u32,
    /// Bytes waiting.
    pub backlog: u32,
    /// Dropped.
    pub drops: u32,
    /// Requeued by the driver.
    pub requeues: u32,
}

/// A qdisc was not installed, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Another program created the existing qdisc.
    #[error("put a qdisc on interface {ifindex}: `{kind}` (handle {:x}:) already exists and is not the default; remove it with `tc qdisc del dev IF root`, or request its replacement", handle >> 16, ifindex = ifindex.0)]
    Existing {
        /// The link.
        ifindex: IfIndex,
        /// Its kind.
        kind: String,
        /// Its handle.
        handle: u32,
    },
    /// The kernel has no such kind.
    #[error("put a qdisc on interface {}: the kernel has no qdisc `{kind}` here; was it registered?", ifindex.0)]
    Unknown {
        /// The link.
        ifindex: IfIndex,
        /// The kind.
        kind: String,
    },
    /// Another device uses this name.
    #[error("put the qdisc `{kind}` on interface {}: in use on another interface; register one for each interface", ifindex.0)]
    InUse {
        /// The link.
        ifindex: IfIndex,
        /// The kind.
        kind: String,
    },
    /// The link has one transmit queue.
    #[error("put a qdisc on each queue of interface {}: the interface has only one queue; put a qdisc on its root", ifindex.0)]
    OneQueue {
        /// The link.
        ifindex: IfIndex,
    },
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

pub(super) fn stats_of(message: &[u8]) -> QdiscStats {
    let Some(stats) = attr(message, TCA_STATS2) else {
        return QdiscStats::default();
    };
    let basic = attr(stats, TCA_STATS_BASIC).unwrap_or(&[]);
    let queue = attr(stats, TCA_STATS_QUEUE).unwrap_or(&[]);
    let wide = attr(stats, TCA_STATS_PKT64).and_then(|value| u64_at(value, 0));
    let of = |at| u32_at(queue, at).unwrap_or(0);
    QdiscStats {
        bytes: u64_at(basic, 0).unwrap_or(0),
        packets: wide.unwrap_or_else(|| u32_at(basic, 8).unwrap_or(0).into()),
        qlen: of(0),
        backlog: of(4),
        drops: of(8),
        requeues: of(12),
    }
}

/// The qdiscs of one link, each with a part of its attributes.
pub(super) fn of_link<T>(
    tc: &mut Tc,
    ifindex: IfIndex,
    part: impl Fn(&[u8]) -> T,
) -> Result<Vec<(Qdisc, T)>, NetlinkError> {
    let request = Request::new(RTM_GETQDISC, dumped(), &tcmsg(ifindex, 0, 0, 0));
    let mut all = tc.connection.dump("list qdiscs", &request, |message| {
        let tcmsg = message.payload;
        let attributes = tcmsg.get(TCMSG_LEN..)?;
        let qdisc = Qdisc {
            ifindex: IfIndex(u32_at(tcmsg, 4)?),
            handle: u32_at(tcmsg, 8)?,
            parent: u32_at(tcmsg, 12)?,
            kind: attr_str(attributes, TCA_KIND)?,
        };
        Some((qdisc, part(attributes)))
    })?;
    all.retain(|(qdisc, _)| qdisc.ifindex == ifindex);
    Ok(all)
}

impl Tc {
    /// The qdisc of a place and its statistics; `None` if the kernel shows none.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn at(
        &mut self,
        ifindex: IfIndex,
        place: QdiscPlace,
    ) -> Result<Option<(Qdisc, QdiscStats)>, NetlinkError> {
        let all = of_link(self, ifindex, stats_of)?;
        let root = all.iter().find(|(qdisc, _)| qdisc.is_root());
        let parent = match (place, root) {
            (QdiscPlace::Root, _) => TC_H_ROOT,
            (QdiscPlace::Queue(queue), Some((mq, _))) if mq.kind == "mq" => under(mq, queue),
            (QdiscPlace::Queue(_), _) => return Ok(None),
        };
        Ok(all.into_iter().find(|(qdisc, _)| qdisc.parent == parent))
    }

    /// Makes an `mq` with children the root of the link, if it is none; with `anyway`, also in place of a root of
    /// another program. Returns the number of queues ([`Tc::queues`]).
    ///
    /// # Errors
    /// [`PlaceError`]; names the root of another program.
    pub fn split(&mut self, ifindex: IfIndex, anyway: bool) -> Result<u16, PlaceError> {
        let root = self.at(ifindex, QdiscPlace::Root)?.map(|(root, _)| root);
        match root {
            Some(root) if root.kind == "mq" && root.handle != 0 => {}
            Some(root) if root.handle != 0 && !anyway => return Err(existing(root)),
            _ => self
                .make(ifindex, MQ_HANDLE, TC_H_ROOT, "mq", NLM_F_REPLACE)
                .map_err(|error| match error.errno() {
                    Some(libc::EOPNOTSUPP) => PlaceError::OneQueue { ifindex },
                    _ => error.into(),
                })?,
        }
        let queues = self.queues(ifindex)?;
        Ok(queues.last().map_or(0, |(queue, _)| queue + 1))
    }

    /// The qdiscs of the queues of a link whose root is an `mq` with a handle, by queue: of each queue in use, and those
    /// with a handle of others. Empty if there is no such root.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn queues(&mut self, ifindex: IfIndex) -> Result<Vec<(u16, Qdisc)>, NetlinkError> {
        let all = of_link(self, ifindex, stats_of)?;
        let mut roots = all.iter().map(|(qdisc, _)| qdisc);
        let root = roots.find(|qdisc| qdisc.is_root() && qdisc.kind == "mq" && qdisc.handle != 0);
        let Some(mq) = root.map(|root| root.handle) else {
            return Ok(Vec::new());
        };
        let below = all.into_iter().filter_map(|(qdisc, _)| {
            let queue = (qdisc.parent ^ mq).checked_sub(1)?;
            Some((u16::try_from(queue).ok()?, qdisc))
        });
        let mut below: Vec<(u16, Qdisc)> = below.collect();
        below.sort_by_key(|(queue, _)| *queue);
        Ok(below)
    }

    /// True if the root of the link is the `mq` of [`Tc::split`].
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn is_split(&mut self, ifindex: IfIndex) -> Result<bool, NetlinkError> {
        let root = self.at(ifindex, QdiscPlace::Root)?.map(|(root, _)| root);
        Ok(root.is_some_and(|root| root.kind == "mq" && root.handle == MQ_HANDLE))
    }

    /// Installs a qdisc of `kind` at a place. The previous qdisc is removed with its packets, with
    /// `anyway` also that of another program.
    ///
    /// # Errors
    /// [`PlaceError`]; then nothing is changed.
    pub fn put(
        &mut self,
        ifindex: IfIndex,
        place: QdiscPlace,
        kind: &str,
        anyway: bool,
    ) -> Result<(), PlaceError> {
        let there = self.at(ifindex, place)?.map(|(there, _)| there);
        if let Some(there) = there.filter(|there| there.handle != 0 && there.kind != kind)
            && !anyway
        {
            return Err(existing(there));
        }
        let parent = self.parent_of(ifindex, place)?;
        let made = self.make(ifindex, 0, parent, kind, NLM_F_REPLACE);
        made.map_err(|error| match error.errno() {
            Some(libc::ENOENT) => PlaceError::Unknown {
                ifindex,
                kind: kind.into(),
            },
            Some(libc::EBUSY) => PlaceError::InUse {
                ifindex,
                kind: kind.into(),
            },
            _ => error.into(),
        })
    }

    /// Removes a qdisc of `kind` from its place and restores the kernel's default. False if it is
    /// not there.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn take_off(
        &mut self,
        ifindex: IfIndex,
        place: QdiscPlace,
        kind: &str,
    ) -> Result<bool, NetlinkError> {
        let there = self.at(ifindex, place)?.map(|(there, _)| there);
        let Some(there) = there.filter(|there| there.kind == kind) else {
            return Ok(false);
        };
        let header = tcmsg(ifindex, there.handle, there.parent, 0);
        self.connection.command(
            "delete qdisc",
            Request::new(RTM_DELQDISC, acked(0), &header),
        )?;
        Ok(true)
    }

    /// Removes an `mq` of [`Tc::split`] with its children. False if another program created it.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn unsplit(&mut self, ifindex: IfIndex) -> Result<bool, NetlinkError> {
        let ours = self.is_split(ifindex)?;
        if ours {
            self.delete_root(ifindex)?;
        }
        Ok(ours)
    }

    fn parent_of(&mut self, ifindex: IfIndex, place: QdiscPlace) -> Result<u32, PlaceError> {
        let QdiscPlace::Queue(queue) = place else {
            return Ok(TC_H_ROOT);
        };
        let root = self.at(ifindex, QdiscPlace::Root)?.map(|(root, _)| root);
        match root {
            Some(mq) if mq.kind == "mq" && mq.handle != 0 => Ok(under(&mq, queue)),
            _ => Err(PlaceError::OneQueue { ifindex }),
        }
    }

    fn make(
        &mut self,
        ifindex: IfIndex,
        handle: u32,
        parent: u32,
        kind: &str,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        let header = tcmsg(ifindex, handle, parent, 0);
        let request = Request::new(RTM_NEWQDISC, acked(NLM_F_CREATE | flags), &header);
        self.connection
            .command("add qdisc", request.attr_str(TCA_KIND, kind))
    }
}

fn under(mq: &Qdisc, queue: u16) -> u32 {
    queue_parent(mq.handle, queue)
}

/// The class of a queue below an `mq` of this handle: minor numbers start at 1.
pub(crate) fn queue_parent(mq: u32, queue: u16) -> u32 {
    mq & 0xffff_0000 | (u32::from(queue) + 1)
}

fn existing(there: Qdisc) -> PlaceError {
    PlaceError::Existing {
        ifindex: there.ifindex,
        kind: there.kind,
        handle: there.handle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Links, NewLink};
    use crate::testing::in_scratch_namespace;

    fn veth() -> IfIndex {
        let mut links = Links::open().unwrap();
        let veth = NewLink::Veth {
            name: "q0",
            peer: "q1",
        };
        links.create(veth).unwrap();
        links.by_name("q0").unwrap().unwrap().ifindex
    }

    fn root(tc: &mut Tc, ifindex: IfIndex) -> Option<String> {
        let at = tc.at(ifindex, QdiscPlace::Root).unwrap();
        at.filter(|(qdisc, _)| qdisc.handle != 0)
            .map(|(qdisc, _)| qdisc.kind)
    }

    #[test]
    fn other_roots_are_kept_unless_requested() {
        let name = "other_roots_are_kept_unless_requested";
        in_scratch_namespace(name, || {
            let ifindex = veth();
            let mut tc = Tc::open().unwrap();
            tc.add_root(ifindex, "tbf").unwrap();
            let error = tc
                .put(ifindex, QdiscPlace::Root, "pfifo", false)
                .unwrap_err();
            assert!(
                matches!(&error, PlaceError::Existing { kind, .. } if kind == "tbf"),
                "{error}"
            );
            assert_eq!(root(&mut tc, ifindex).as_deref(), Some("tbf"));
            tc.put(ifindex, QdiscPlace::Root, "pfifo", true).unwrap();
            assert_eq!(root(&mut tc, ifindex).as_deref(), Some("pfifo"));
            let split = tc.split(ifindex, false);
            assert!(
                matches!(split, Err(PlaceError::Existing { .. })),
                "{split:?}"
            );
            if tc.split(ifindex, true).is_ok() {
                assert!(tc.is_split(ifindex).unwrap());
            }
        });
    }

    #[test]
    fn removed_qdiscs_restore_the_default() {
        let name = "removed_qdiscs_restore_the_default";
        in_scratch_namespace(name, || {
            let ifindex = veth();
            let mut tc = Tc::open().unwrap();
            let before = tc.qdiscs().unwrap();
            tc.put(ifindex, QdiscPlace::Root, "pfifo", false).unwrap();
            let (qdisc, stats) = tc.at(ifindex, QdiscPlace::Root).unwrap().unwrap();
            assert_eq!(
                (qdisc.kind.as_str(), stats),
                ("pfifo", QdiscStats::default())
            );
            assert!(!tc.take_off(ifindex, QdiscPlace::Root, "tbf").unwrap());
            assert!(tc.take_off(ifindex, QdiscPlace::Root, "pfifo").unwrap());
            assert!(!tc.take_off(ifindex, QdiscPlace::Root, "pfifo").unwrap());
            assert_eq!(tc.qdiscs().unwrap(), before);
        });
    }

    #[test]
    fn missing_kinds_and_queues_are_errors() {
        let name = "missing_kinds_and_queues_are_errors";
        in_scratch_namespace(name, || {
            let ifindex = veth();
            let mut tc = Tc::open().unwrap();
            let put = tc.put(ifindex, QdiscPlace::Root, "fairpath-none", false);
            assert!(matches!(put, Err(PlaceError::Unknown { .. })), "{put:?}");
            let mut links = Links::open().unwrap();
            let one = NewLink::Plain {
                name: "one",
                kind: "bridge",
            };
            links.create(one).unwrap();
            let ifindex = links.by_name("one").unwrap().unwrap().ifindex;
            let split = tc.split(ifindex, false);
            assert!(
                matches!(split, Err(PlaceError::OneQueue { .. })),
                "{split:?}"
            );
            assert!(tc.at(ifindex, QdiscPlace::Queue(0)).unwrap().is_none());
        });
    }

    #[test]
    fn each_queue_gets_a_separate_qdisc() {
        let name = "each_queue_gets_a_separate_qdisc";
        in_scratch_namespace(name, || {
            let ifindex = veth();
            let mut tc = Tc::open().unwrap();
            // A veth has as many queues as there are processors, and uses one.
            let queues = match tc.split(ifindex, false) {
                Err(PlaceError::OneQueue { .. }) => return,
                queues => queues.unwrap(),
            };
            assert_eq!(queues, 1);
            assert_eq!(tc.split(ifindex, false).unwrap(), queues);
            let numbers = |tc: &mut Tc| {
                let all = tc.queues(ifindex).unwrap();
                all.into_iter().map(|(queue, _)| queue).collect::<Vec<_>>()
            };
            assert_eq!(numbers(&mut tc), [0]);
            tc.put(ifindex, QdiscPlace::Queue(1), "pfifo", false)
                .unwrap();
            let kind = |tc: &mut Tc, queue| {
                let at = tc.at(ifindex, QdiscPlace::Queue(queue)).unwrap();
                at.filter(|(qdisc, _)| qdisc.handle != 0)
                    .map(|(qdisc, _)| qdisc.kind)
            };
            assert_eq!(kind(&mut tc, 1).as_deref(), Some("pfifo"));
            assert_eq!(kind(&mut tc, 0), None);
            assert_eq!(numbers(&mut tc), [0, 1]);
            assert!(tc.take_off(ifindex, QdiscPlace::Queue(1), "pfifo").unwrap());
            assert_eq!(kind(&mut tc, 1), None);
            assert!(tc.unsplit(ifindex).unwrap());
            assert!(tc.queues(ifindex).unwrap().is_empty());
            assert!(!tc.unsplit(ifindex).unwrap());
        });
    }
}
