//! The running state: the root of an interface, its classes and leaves, and their counters.
//!
//! Counters of a class are the kernel's: bytes and packets sent (a GSO packet counts its segments,
//! with their headers), and drops at enqueue. [`HtbStats::read`] adds later drops by the qdisc of a
//! leaf, from a second dump, for leaves with a listed qdisc.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::leaf::{self, LeafKind};
use super::wire::{self, Header, Kept, RTM_GETTCLASS};
use super::{Device, HtbError, place_of};
use crate::connection::{Connection, NetlinkError, dumped};
use crate::message::{Request, attr, attr_str, u32_at, u64_at};
use crate::tc::{QdiscPlace, RTM_GETQDISC, TC_H_ROOT, TCA_KIND, TCA_OPTIONS, queue_parent, tcmsg};

const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
const TCA_STATS_PKT64: u16 = 8;

/// A running tree.
#[derive(Clone, Debug)]
pub struct HtbRunning {
    pub(super) default: u16,
    pub(super) direct_packets: u32,
    pub(super) classes: HashMap<u16, RunningClass>,
    /// By the minor of the leaf; none for HTB's own FIFO.
    pub(super) leaves: HashMap<u16, Leaf>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RunningClass {
    pub parent: u16,
    pub leaf: bool,
    pub kept: Kept,
    pub waiting: bool,
    stats: HtbClassStats,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub kind: Option<LeafKind>,
    /// In the unit of the kind; 0 where none is listed.
    pub limit: u32,
    drops: u32,
}

impl HtbRunning {
    /// Each class: its number, its parent's (0 the root), and whether it is a leaf. Unordered.
    pub fn classes(&self) -> impl Iterator<Item = (u16, u16, bool)> + '_ {
        let each = |(minor, class): (&u16, &RunningClass)| (*minor, class.parent, class.leaf);
        self.classes.iter().map(each)
    }

    /// The kind of the leaf of a class; `None` for a kind that is not created here.
    pub fn leaf_kind(&self, minor: u16) -> Option<LeafKind> {
        match self.leaves.get(&minor) {
            // HTB's own FIFO is not listed.
            None => Some(LeafKind::Fifo),
            Some(leaf) => leaf.kind,
        }
    }

    /// The class of packets without a class.
    pub fn default_class(&self) -> u16 {
        self.default
    }
}

/// The counters of a class. They only grow (and wrap), except backlog and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtbClassStats {
    /// Its number.
    pub minor: u16,
    /// Its parent's, 0 the root.
    pub parent: u16,
    /// It has no children.
    pub leaf: bool,
    /// Sent.
    pub bytes: u64,
    /// Sent.
    pub packets: u64,
    /// Dropped at enqueue or later by the qdisc of the leaf.
    pub drops: u32,
    /// The number of times that the class had packets but was throttled by rate and ceiling.
    pub overlimits: u32,
    /// Backlog.
    pub backlog_bytes: u32,
    /// Backlog.
    pub backlog_packets: u32,
    /// Sent at its own rate.
    pub lends: u32,
    /// Sent at an ancestor's.
    pub borrows: u32,
    /// The burst that it may send at its rate, as time; negative: time until it may send.
    pub tokens_ns: i64,
    /// The same at its ceiling.
    pub ctokens_ns: i64,
}

/// The counters of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtbStats {
    /// By number.
    pub classes: Vec<HtbClassStats>,
    /// Packets without a class, not even the default one, which passed unshaped; it wraps.
    pub direct_packets: u32,
}

/// The qdisc at the place of a tree.
pub(super) enum Root {
    /// The kernel's default, which has no handle. `parent`: of a tree in its place.
    Standard {
        parent: u32,
    },
    Ours,
    Existing {
        kind: String,
        major: u16,
    },
}

/// The qdiscs at the places of trees, and the trees that are ours, by major: one dump of qdiscs, and one of classes for
/// each of our trees.
pub(super) fn trees(
    connection: &mut Connection,
    device: Device<'_>,
    majors: impl IntoIterator<Item = u16>,
) -> Result<Vec<(Root, Option<HtbRunning>)>, HtbError> {
    let failed = |what| {
        move |source| HtbError::Root {
            name: device.name.to_owned(),
            what,
            source,
        }
    };
    let listed = Qdiscs::list(connection, device).map_err(failed("list qdiscs"))?;
    let mut trees = Vec::new();
    for major in majors {
        let (root, mut tree) = listed.tree(major);
        let ours = matches!(root, Root::Ours);
        if ours {
            tree.classes = classes(connection, device, major).map_err(failed("list classes"))?;
        }
        trees.push((root, ours.then_some(tree)));
    }
    Ok(trees)
}

/// The root of the interface, and its tree if it is ours.
pub(super) fn running(
    connection: &mut Connection,
    device: Device<'_>,
    major: u16,
) -> Result<(Root, Option<HtbRunning>), HtbError> {
    let mut trees = trees(connection, device, [major])?;
    Ok(trees.pop().expect("a tree for each major"))
}

/// The qdiscs of an interface, by parent.
struct Qdiscs(Vec<(Header, Listed)>);

impl Qdiscs {
    fn list(connection: &mut Connection, device: Device<'_>) -> Result<Qdiscs, NetlinkError> {
        let request = Request::new(RTM_GETQDISC, dumped(), &tcmsg(device.ifindex, 0, 0, 0));
        let mut found = connection.dump("list qdiscs", &request, |message| {
            let (header, attributes) = Header::read(message.payload)?;
            (header.ifindex == device.ifindex.0).then(|| (header, Listed::read(attributes)))
        })?;
        found.sort_by_key(|(header, _)| header.parent);
        Ok(Qdiscs(found))
    }

    /// The qdiscs whose parents have these numbers.
    fn below(&self, parents: RangeInclusive<u32>) -> &[(Header, Listed)] {
        let begin = (self.0).partition_point(|(header, _)| header.parent < *parents.start());
        let below = &self.0[begin..];
        let end = below.partition_point(|(header, _)| header.parent <= *parents.end());
        &below[..end]
    }

    /// The qdisc at the place of a tree, and the tree without its classes. O(its leaves).
    fn tree(&self, major: u16) -> (Root, HtbRunning) {
        let mut tree = HtbRunning::empty();
        let mut roots = self.below(TC_H_ROOT..=TC_H_ROOT).iter();
        let mq = roots.find(|(header, listed)| header.handle != 0 && listed.kind == "mq");
        let parent = match (place_of(major), mq) {
            (QdiscPlace::Root, _) => TC_H_ROOT,
            (QdiscPlace::Queue(queue), Some((mq, _))) => queue_parent(mq.handle, queue),
            // There are no queues.
            (QdiscPlace::Queue(_), None) => return (Root::Standard { parent: 0 }, tree),
        };
        let mut root = Root::Standard { parent };
        for (header, listed) in self.below(parent..=parent) {
            root = match (listed.kind.as_str(), (header.handle >> 16) as u16) {
                (_, 0) => Root::Standard { parent },
                ("htb", its) if its == major => Root::Ours,
                (kind, major) => Root::Existing {
                    kind: kind.to_owned(),
                    major,
                },
            };
            (tree.default, tree.direct_packets) = listed.globals.unwrap_or_default();
        }
        let leaves = self.below(wire::handle(major, 0)..=wire::handle(major, u16::MAX));
        tree.leaves = (leaves.iter())
            .map(|(header, listed)| (header.parent as u16, Leaf::from(listed)))
            .collect();
        (root, tree)
    }
}

struct Listed {
    kind: String,
    limit: u32,
    drops: u32,
    /// Default class and direct packets of HTB.
    globals: Option<(u16, u32)>,
}

impl From<&Listed> for Leaf {
    fn from(listed: &Listed) -> Leaf {
        Leaf {
            kind: LeafKind::of_name(&listed.kind),
            limit: listed.limit,
            drops: listed.drops,
        }
    }
}

impl Listed {
    fn read(attributes: &[u8]) -> Listed {
        let options = attr(attributes, TCA_OPTIONS);
        let kind = attr_str(attributes, TCA_KIND).unwrap_or_default();
        let limit = LeafKind::of_name(&kind)
            .zip(options)
            .and_then(|(kind, options)| leaf::limit_of(kind, options));
        let globals = options.filter(|_| kind == "htb");
        Listed {
            kind,
            limit: limit.unwrap_or(0),
            drops: attr(attributes, TCA_STATS2)
                .and_then(|stats| u32_at(attr(stats, TCA_STATS_QUEUE)?, 8))
                .unwrap_or(0),
            globals: globals.and_then(wire::read_root),
        }
    }
}

/// Classes of one qdisc: without its handle, the kernel would list the flows of every leaf as well.
fn classes(
    connection: &mut Connection,
    device: Device<'_>,
    major: u16,
) -> Result<HashMap<u16, RunningClass>, NetlinkError> {
    let header = tcmsg(device.ifindex, 0, wire::handle(major, 0), 0);
    let request = Request::new(RTM_GETTCLASS, dumped(), &header);
    let found = connection.dump("list classes", &request, |message| {
        let (header, attributes) = Header::read(message.payload)?;
        let ours = (header.handle >> 16) as u16 == major;
        ours.then(|| class_of(&header, attributes)).flatten()
    })?;
    Ok(found.into_iter().collect())
}

fn class_of(header: &Header, attributes: &[u8]) -> Option<(u16, RunningClass)> {
    let kept = Kept::read(attr(attributes, TCA_OPTIONS)?)?;
    let parent = match header.parent {
        TC_H_ROOT => 0,
        handle => handle as u16,
    };
    // An inner class has no qdisc, which its level shows.
    let leaf = level(attributes) == Some(0);
    let stats = stats_of(header.minor(), parent, leaf, attributes);
    let class = RunningClass {
        parent,
        leaf,
        kept,
        waiting: stats.backlog_packets > 0,
        stats,
    };
    Some((header.minor(), class))
}

fn level(attributes: &[u8]) -> Option<u32> {
    const TCA_HTB_PARMS: u16 = 1;
    const LEVEL_AT: usize = 36;
    u32_at(
        attr(attr(attributes, TCA_OPTIONS)?, TCA_HTB_PARMS)?,
        LEVEL_AT,
    )
}

fn stats_of(minor: u16, parent: u16, leaf: bool, attributes: &[u8]) -> HtbClassStats {
    let stats = attr(attributes, TCA_STATS2).unwrap_or(&[]);
    let part = |kind| attr(stats, kind).unwrap_or(&[]);
    let (basic, queue, own) = (
        part(TCA_STATS_BASIC),
        part(TCA_STATS_QUEUE),
        part(TCA_STATS_APP),
    );
    let word = |bytes, at: usize| u32_at(bytes, 4 * at).unwrap_or(0);
    HtbClassStats {
        minor,
        parent,
        leaf,
        bytes: u64_at(basic, 0).unwrap_or(0),
        packets: u64_at(part(TCA_STATS_PKT64), 0).unwrap_or(word(basic, 2).into()),
        backlog_packets: word(queue, 0),
        backlog_bytes: word(queue, 1),
        drops: word(queue, 2),
        overlimits: word(queue, 4),
        lends: word(own, 0),
        borrows: word(own, 1),
        tokens_ns: wire::ticks_to_ns(word(own, 3) as i32),
        ctokens_ns: wire::ticks_to_ns(word(own, 4) as i32),
    }
}

/// The counters of the classes of a tree, without drops by the qdiscs of leaves. Unordered.
pub(super) fn class_stats(
    connection: &mut Connection,
    device: Device<'_>,
    major: u16,
) -> Result<Vec<HtbClassStats>, NetlinkError> {
    let found = classes(connection, device, major)?;
    Ok(found.into_values().map(|class| class.stats).collect())
}

impl HtbStats {
    /// The counters of a tree that was just read. O(classes).
    pub(super) fn read(running: &HtbRunning) -> HtbStats {
        let whole = |(minor, class): (&u16, &RunningClass)| {
            // A listed leaf counts every drop of the class, including its own.
            let leaf = running.leaves.get(minor).map_or(0, |leaf| leaf.drops);
            HtbClassStats {
                drops: class.stats.drops.max(leaf),
                ..class.stats
            }
        };
        let mut classes: Vec<HtbClassStats> = running.classes.iter().map(whole).collect();
        classes.sort_unstable_by_key(|class| class.minor);
        HtbStats {
            classes,
            direct_packets: running.direct_packets,
        }
    }
}
