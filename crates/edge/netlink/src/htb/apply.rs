//! From the running tree to the desired tree.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::diff::{Step, Work, leaf_steps, stale};
use super::dump::{self, HtbClassStats, HtbRunning, HtbStats, Root};
use super::leaf::{LeafChoice, LeafKind, Leaves};
use super::wire;
use super::{Device, HtbClass, HtbError, HtbTree, place_of};
use crate::connection::{Connection, NetlinkError};
use crate::tc::{QdiscPlace, TC_H_ROOT, Tc};

/// HTB in one network namespace.
#[derive(Debug)]
pub struct Htb {
    connection: Connection,
}

/// The result of applying a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The root was ours already, from an earlier daemon or an earlier tree.
    pub handed_over: bool,
    /// Created classes.
    pub added: usize,
    /// Classes with changed rates.
    pub changed: usize,
    /// Unchanged classes.
    pub unchanged: usize,
    /// The kind of new leaves; `None` if there are none.
    pub leaves: Option<LeafChoice>,
    /// Unwanted classes, children before parents: for [`Htb::retire`].
    pub stale: Vec<u16>,
}

impl Htb {
    /// Opens a socket in the calling thread's namespace. Changes need `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Htb, NetlinkError> {
        let connection = Connection::open(NETLINK_ROUTE)?;
        Ok(Htb { connection })
    }

    /// The running tree of this major on the interface, if there is one.
    ///
    /// # Errors
    /// [`HtbError::Root`].
    pub fn running(
        &mut self,
        device: Device<'_>,
        major: u16,
    ) -> Result<Option<HtbRunning>, HtbError> {
        Ok(dump::running(&mut self.connection, device, major)?.1)
    }

    /// The running trees of these majors: one dump of qdiscs, and one of classes for each tree. O(classes of all trees).
    ///
    /// # Errors
    /// [`HtbError::Root`].
    pub fn running_at(
        &mut self,
        device: Device<'_>,
        majors: impl IntoIterator<Item = u16>,
    ) -> Result<Vec<Option<HtbRunning>>, HtbError> {
        let trees = dump::trees(&mut self.connection, device, majors)?;
        Ok(trees.into_iter().map(|(_, running)| running).collect())
    }

    /// Makes the tree run: replaces the kernel's default root, or changes our own tree.
    ///
    /// Removes nothing; [`Applied::stale`] lists what may be removed. A root of another program is
    /// replaced only with `replace`. The kernel drops packets in a default root that is replaced.
    /// O(classes); ten thousand take about 100 ms.
    ///
    /// # Errors
    /// [`HtbError`] names interface and class. Completed changes remain, and the same call
    /// continues.
    pub fn apply(
        &mut self,
        device: Device<'_>,
        tree: &HtbTree,
        replace: bool,
    ) -> Result<Applied, HtbError> {
        let order = tree.check().map_err(|bad| HtbError::Tree {
            name: device.name.to_owned(),
            bad,
        })?;
        let running = self.take_root(device, tree, replace)?;
        let handed_over = running.is_some();
        let running = running.unwrap_or_else(HtbRunning::empty);
        let work = Work::find(device, tree, &order, &running)?;
        let [added, changed, unchanged] = work.counts;
        Ok(Applied {
            handed_over,
            added,
            changed,
            unchanged,
            leaves: self.make(device, tree, &running, work)?,
            stale: stale(&running, tree),
        })
    }

    /// Our running tree, or a fresh root.
    fn take_root(
        &mut self,
        device: Device<'_>,
        tree: &HtbTree,
        replace: bool,
    ) -> Result<Option<HtbRunning>, HtbError> {
        let name = || device.name.to_owned();
        match dump::running(&mut self.connection, device, tree.major)? {
            (Root::Ours, Some(running)) if running.default != tree.default => {
                Err(HtbError::Default {
                    name: name(),
                    running: running.default,
                    wanted: tree.default,
                })
            }
            (Root::Ours, running) => Ok(running),
            (Root::Existing { kind, major }, _) if !replace => Err(HtbError::Existing {
                name: name(),
                kind,
                major,
            }),
            (Root::Standard { parent: 0 }, _) => Err(HtbError::Queues { name: name() }),
            (found, _) => {
                let parent = match found {
                    Root::Standard { parent } => parent,
                    _ => TC_H_ROOT,
                };
                let request = wire::root(device.ifindex, parent, tree);
                let made = self.connection.command("create root qdisc", request);
                made.map(|()| None).map_err(|source| HtbError::Root {
                    name: name(),
                    what: "add HTB to the root or a queue",
                    source,
                })
            }
        }
    }

    /// Creates classes, each leaf directly followed by its qdisc, so that an interruption leaves
    /// none without one.
    fn make(
        &mut self,
        device: Device<'_>,
        tree: &HtbTree,
        running: &HtbRunning,
        work: Work<'_>,
    ) -> Result<Option<LeafChoice>, HtbError> {
        let limits = work.limits(tree);
        let mut steps = work.steps;
        let Some(((at, first), bare)) = work.bare.split_first() else {
            return self.run(device, tree.major, steps).map(|()| None);
        };
        let rest = steps.split_off(*at);
        self.run(device, tree.major, steps)?;
        let give = |class: &HtbClass, kind| {
            leaf_steps((device, tree.major), running, class, kind, &limits)
        };
        let choice = self.choose_leaf(device, tree, work.leaves, |kind| give(first, kind))?;
        let mut bare = bare.iter().peekable();
        let mut all = Vec::with_capacity(rest.len() + bare.len());
        for (step, place) in rest.into_iter().zip(*at..) {
            while let Some((_, class)) = bare.next_if(|(after, _)| *after <= place) {
                all.extend(give(class, choice.kind));
            }
            all.push(step);
        }
        all.extend(bare.flat_map(|(_, class)| give(class, choice.kind)));
        self.run(device, tree.major, all)?;
        Ok(Some(choice))
    }

    /// Adds a qdisc of the first kind that works to a leaf.
    fn choose_leaf(
        &mut self,
        device: Device<'_>,
        tree: &HtbTree,
        leaves: usize,
        give: impl Fn(LeafKind) -> Vec<Step>,
    ) -> Result<LeafChoice, HtbError> {
        let (kinds, mut passed_over) = tree.leaves.candidates(leaves);
        for kind in kinds {
            match self.run(device, tree.major, give(kind)) {
                Ok(()) => return Ok(LeafChoice { kind, passed_over }),
                Err(HtbError::Class { source, .. })
                    if tree.leaves == Leaves::Best && kind != LeafKind::Fifo =>
                {
                    passed_over.push((kind, reason(&source)));
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last candidate is a FIFO, or the only one")
    }

    /// Removes the classes of `stale` that are empty (inner classes: without children), and returns
    /// the others.
    ///
    /// First ensure that they get no more packets, then call this until none is left. `lose` also
    /// removes classes with packets, which are dropped. O(classes).
    ///
    /// # Errors
    /// [`HtbError`] names the class that the kernel did not remove.
    pub fn retire(
        &mut self,
        device: Device<'_>,
        major: u16,
        stale: &[u16],
        lose: bool,
    ) -> Result<Vec<u16>, HtbError> {
        let (_, running) = dump::running(&mut self.connection, device, major)?;
        let Some(running) = running else {
            return Ok(Vec::new());
        };
        let (mut steps, mut left) = (Vec::new(), Vec::new());
        let mut busy = HashSet::new();
        for minor in stale {
            let Some(class) = running.classes.get(minor) else {
                continue;
            };
            if (class.waiting && !lose) || busy.contains(minor) {
                busy.insert(class.parent);
                left.push(*minor);
                continue;
            }
            steps.push(Step {
                what: "remove",
                minor: *minor,
                request: wire::delete_class(device.ifindex, major, *minor),
            });
        }
        self.run(device, major, steps)?;
        Ok(left)
    }

    /// Counters of all classes of the trees of these majors, as [`Htb::running_at`]. `None` for a tree that does not run.
    ///
    /// # Errors
    /// [`HtbError::Root`].
    pub fn stats(
        &mut self,
        device: Device<'_>,
        majors: impl IntoIterator<Item = u16>,
    ) -> Result<Vec<Option<HtbStats>>, HtbError> {
        let running = self.running_at(device, majors)?;
        let read = |tree: &Option<HtbRunning>| tree.as_ref().map(HtbStats::read);
        Ok(running.iter().map(read).collect())
    }

    /// The counters of the classes of our tree, without drops by the qdiscs of leaves. One dump; O(classes).
    ///
    /// # Errors
    /// [`HtbError::Root`]; the tree was removed, for example.
    pub fn class_stats(
        &mut self,
        device: Device<'_>,
        major: u16,
    ) -> Result<Vec<HtbClassStats>, HtbError> {
        let stats = dump::class_stats(&mut self.connection, device, major);
        stats.map_err(|source| HtbError::Root {
            name: device.name.to_owned(),
            what: "list classes",
            source,
        })
    }

    /// Changes running classes, each with the major number of its tree, in this order.
    ///
    /// # Errors
    /// [`HtbError::Class`] names the first class that the kernel did not change. Others are changed.
    pub fn change(
        &mut self,
        device: Device<'_>,
        classes: &[(u16, HtbClass)],
    ) -> Result<(), HtbError> {
        let step = |(major, class): &(u16, HtbClass)| Step {
            what: "change",
            minor: class.minor,
            request: wire::set_class(device.ifindex, *major, class, false),
        };
        let steps = classes.iter().map(step).collect();
        let major = classes.first().map_or(0, |(major, _)| *major);
        self.run(device, major, steps)
    }

    /// Adds a program that selects the class of a packet to the tree, or replaces an earlier one. It applies to packets
    /// whose priority is no class of the tree.
    ///
    /// # Errors
    /// [`HtbError::Root`]: the kernel has no BPF filters, for example.
    pub fn classify(
        &mut self,
        device: Device<'_>,
        major: u16,
        program: BorrowedFd<'_>,
    ) -> Result<(), HtbError> {
        let request = wire::classifier(device.ifindex, major, program.as_raw_fd());
        let added = self.connection.command("add BPF filter", request);
        added.map_err(|source| HtbError::Root {
            name: device.name.to_owned(),
            what: "add the filter of HTB",
            source,
        })
    }

    /// Removes our tree; the kernel's default returns. True if there was one.
    ///
    /// The kernel drops its waiting packets. The interface always passes packets.
    ///
    /// # Errors
    /// [`HtbError::Root`]. A root of another program stays, without an error.
    pub fn remove(&mut self, device: Device<'_>, major: u16) -> Result<bool, HtbError> {
        if self.running(device, major)?.is_none() {
            return Ok(false);
        }
        let removed = Tc::open().and_then(|mut tc| match place_of(major) {
            QdiscPlace::Root => tc.delete_root(device.ifindex).map(|()| true),
            queue => tc.take_off(device.ifindex, queue, "htb"),
        });
        removed.map_err(|source| HtbError::Root {
            name: device.name.to_owned(),
            what: "remove the root qdisc",
            source,
        })
    }

    /// Requests to the kernel until now.
    #[cfg(test)]
    pub(super) fn requests(&self) -> u32 {
        self.connection.requests()
    }

    fn run(&mut self, device: Device<'_>, major: u16, steps: Vec<Step>) -> Result<(), HtbError> {
        let about: Vec<(&'static str, u16)> = steps.iter().map(|s| (s.what, s.minor)).collect();
        let requests = steps.into_iter().map(|step| step.request).collect();
        let mut first = None;
        let sent = self
            .connection
            .batch("change HTB classes", requests, |at, error| {
                first.get_or_insert((at, error));
            });
        let class = |at: usize, source| {
            let (what, minor) = about.get(at).copied().unwrap_or(("change", 0));
            HtbError::Class {
                name: device.name.to_owned(),
                what,
                major,
                minor,
                source,
            }
        };
        match (sent, first) {
            (Err(error), _) => Err(class(0, error)),
            (Ok(()), Some((at, error))) => Err(class(at, error)),
            (Ok(()), None) => Ok(()),
        }
    }
}

impl HtbRunning {
    pub(super) fn empty() -> HtbRunning {
        HtbRunning {
            default: 0,
            direct_packets: 0,
            classes: Default::default(),
            leaves: Default::default(),
        }
    }
}

/// The kernel's reason why a kind of qdisc is not available.
fn reason(error: &NetlinkError) -> String {
    match error {
        _ if error.errno() == Some(libc::ENOENT) => "the kernel has none".to_owned(),
        NetlinkError::Refused {
            message: Some(message),
            source,
            ..
        } => format!("{source} ({message})"),
        NetlinkError::Refused { source, .. } | NetlinkError::Socket { source, .. } => {
            source.to_string()
        }
        NetlinkError::Malformed { .. } => error.to_string(),
    }
}
