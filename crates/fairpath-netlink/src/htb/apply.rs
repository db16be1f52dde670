//! From what runs to what shall run.

use std::collections::HashSet;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::dump::{self, HtbRunning, HtbStats, Root};
use super::leaf::{self, LeafChoice, LeafKind, Leaves};
use super::wire::{self, Kept};
use super::{Device, HtbClass, HtbError, HtbTree};
use crate::connection::{Connection, NetlinkError};
use crate::message::Request;
use crate::tc::Tc;

/// HTB in one network namespace.
#[derive(Debug)]
pub struct Htb {
    connection: Connection,
}

/// What a tree came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The root was ours already: an earlier daemon's, or an earlier tree.
    pub took_over: bool,
    /// Classes that were made.
    pub added: usize,
    /// Classes that were told other rates.
    pub changed: usize,
    /// Classes that were left alone.
    pub unchanged: usize,
    /// What new leaves are; `None` where none was made.
    pub leaves: Option<LeafChoice>,
    /// Classes that nobody wants, children before parents: for [`Htb::retire`].
    pub stale: Vec<u16>,
}

/// One message, and the class that it is about.
struct Step {
    what: &'static str,
    minor: u16,
    request: Request,
}

impl Htb {
    /// Opens a socket in the calling thread's namespace. Changing needs `CAP_NET_ADMIN`, reading nothing.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Htb, NetlinkError> {
        let connection = Connection::open(NETLINK_ROUTE)?;
        Ok(Htb { connection })
    }

    /// The tree of this major that runs on the interface, if one does.
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

    /// Makes the tree run: in place of the kernel's default root, or as changes to our own tree.
    ///
    /// Nothing is removed; [`Applied::stale`] says what may be. A root of somebody else is replaced only where
    /// `replace` says so. What waits in a default root when it is replaced is lost, as the kernel has it.
    /// O(classes); ten thousand take some 100 ms.
    ///
    /// # Errors
    /// [`HtbError`] names interface and class. What was done before stays; the same call again goes on from there.
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
        let took_over = running.is_some();
        let running = running.unwrap_or_else(HtbRunning::empty);
        let inner: HashSet<u16> = tree.classes.iter().map(|class| class.parent).collect();
        let mut applied = Applied {
            took_over,
            added: 0,
            changed: 0,
            unchanged: 0,
            leaves: None,
            stale: stale(&running, tree),
        };
        let mut steps = Vec::new();
        let mut bare = Vec::new();
        for class in order.iter().map(|at| &tree.classes[*at]) {
            let leaf = !inner.contains(&class.minor);
            match running.classes.get(&class.minor) {
                None => applied.added += 1,
                Some(there) if there.parent != class.parent => {
                    return Err(HtbError::Moves {
                        name: device.name.to_owned(),
                        minor: class.minor,
                        running: there.parent,
                        wanted: class.parent,
                    });
                }
                Some(there) if there.kept.serves_as(&Kept::of(class), there.leaf) => {
                    applied.unchanged += 1;
                }
                Some(_) => applied.changed += 1,
            }
            steps.extend(step(device, tree.major, class, &running));
            if leaf && lacks_leaf(&running, class.minor, tree.leaves) {
                bare.push(class);
            } else if leaf {
                steps.extend(retarget(device, tree.major, class, &running));
            }
        }
        self.run(device, tree.major, steps)?;
        let leaves = tree.classes.len() - inner.iter().filter(|minor| **minor != 0).count();
        applied.leaves = self.give_leaves(device, tree, &running, &bare, leaves)?;
        Ok(applied)
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
            (Root::Foreign { kind, major }, _) if !replace => Err(HtbError::Foreign {
                name: name(),
                kind,
                major,
            }),
            _ => {
                let request = wire::root(device.ifindex, tree);
                let made = self.connection.command("make root qdisc", request);
                made.map(|()| None).map_err(|source| HtbError::Root {
                    name: name(),
                    what: "make HTB the root qdisc",
                    source,
                })
            }
        }
    }

    /// Gives leaves that have none a qdisc of the first kind that works.
    fn give_leaves(
        &mut self,
        device: Device<'_>,
        tree: &HtbTree,
        running: &HtbRunning,
        bare: &[&HtbClass],
        leaves: usize,
    ) -> Result<Option<LeafChoice>, HtbError> {
        let Some((first, rest)) = bare.split_first() else {
            return Ok(None);
        };
        let steps = |class: &HtbClass, kind| {
            let place = (tree.major, class.minor);
            let make = leaf::request(device.ifindex, place, kind, leaves, class.ceil_bps);
            // A qdisc of another kind has to go before: the new one gets its handle.
            let other = running.leaves.contains_key(&class.minor);
            let remove = other.then(|| leaf::removal(device.ifindex, tree.major, class.minor));
            let minor = class.minor;
            let requests = remove.into_iter().chain(make);
            requests.map(move |request| Step {
                what: "give a queue to",
                minor,
                request,
            })
        };
        let (kinds, mut passed_over) = tree.leaves.candidates(leaves);
        for kind in kinds {
            match self.run(device, tree.major, steps(first, kind).collect()) {
                Ok(()) => {
                    let rest = rest.iter().flat_map(|class| steps(class, kind)).collect();
                    self.run(device, tree.major, rest)?;
                    return Ok(Some(LeafChoice { kind, passed_over }));
                }
                Err(HtbError::Class { source, .. }) if tree.leaves == Leaves::Best => {
                    passed_over.push((kind, reason(&source)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Removes those of `stale` that are empty (an inner class: whose children are gone), and returns the others.
    ///
    /// First see to it that no packet goes there any more; then ask until none is left. To remove what will not
    /// empty, say `lose`: what waits in there is dropped. O(classes).
    ///
    /// # Errors
    /// [`HtbError`] names the class that the kernel kept.
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

    /// Counters of all classes, from one dump of classes and one of qdiscs; `None` where our tree does not run.
    ///
    /// # Errors
    /// [`HtbError::Root`].
    pub fn stats(&mut self, device: Device<'_>, major: u16) -> Result<Option<HtbStats>, HtbError> {
        let running = self.running(device, major)?;
        Ok(running.as_ref().map(HtbStats::read))
    }

    /// Removes our tree; the kernel's default returns. True if there was one.
    ///
    /// What waits in it is dropped, as the kernel has it; the interface passes packets all the time.
    ///
    /// # Errors
    /// [`HtbError::Root`]. Somebody else's root stays, and is no error.
    pub fn remove(&mut self, device: Device<'_>, major: u16) -> Result<bool, HtbError> {
        if self.running(device, major)?.is_none() {
            return Ok(false);
        }
        let removed = Tc::open().and_then(|mut tc| tc.delete_root(device.ifindex));
        removed.map(|()| true).map_err(|source| HtbError::Root {
            name: device.name.to_owned(),
            what: "remove the root qdisc",
            source,
        })
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
    fn empty() -> HtbRunning {
        HtbRunning {
            default: 0,
            direct_packets: 0,
            classes: Default::default(),
            leaves: Default::default(),
        }
    }
}

/// Classes that run and are not in the tree, children before their parents.
fn stale(running: &HtbRunning, tree: &HtbTree) -> Vec<u16> {
    let wanted: HashSet<u16> = tree.classes.iter().map(|class| class.minor).collect();
    let level = |minor: &u16| {
        std::iter::successors(Some(*minor), |at| Some(running.classes.get(at)?.parent)).count()
    };
    let mut stale: Vec<u16> = running.classes.keys().copied().collect();
    stale.retain(|minor| !wanted.contains(minor));
    stale.sort_by_key(|minor| (std::cmp::Reverse(level(minor)), *minor));
    stale
}

/// What makes a class what it shall be, if anything does.
fn step(device: Device<'_>, major: u16, class: &HtbClass, running: &HtbRunning) -> Option<Step> {
    let there = running.classes.get(&class.minor);
    if there.is_some_and(|there| there.kept.serves_as(&Kept::of(class), there.leaf)) {
        return None;
    }
    Some(Step {
        what: if there.is_some() { "change" } else { "add" },
        minor: class.minor,
        request: wire::set_class(device.ifindex, major, class, there.is_none()),
    })
}

fn lacks_leaf(running: &HtbRunning, minor: u16, leaves: Leaves) -> bool {
    let new = !running.classes.contains_key(&minor);
    let kind = running.leaves.get(&minor).and_then(|leaf| leaf.kind);
    match leaves {
        Leaves::Best => new,
        Leaves::Only(LeafKind::Fifo) => kind.is_some(),
        Leaves::Only(wanted) => kind != Some(wanted),
    }
}

/// An FQ-CoDel whose class has another rate now may need another target.
fn retarget(
    device: Device<'_>,
    major: u16,
    class: &HtbClass,
    running: &HtbRunning,
) -> Option<Step> {
    let leaf = running.leaves.get(&class.minor)?;
    let before = running.classes.get(&class.minor)?.kept.ceil * 8;
    if leaf.kind != Some(LeafKind::FqCodel) {
        return None;
    }
    Some(Step {
        what: "change the queue of",
        minor: class.minor,
        request: leaf::retarget(device.ifindex, (major, class.minor), before, class.ceil_bps)?,
    })
}

/// The kernel's words for why a kind of qdisc is not to be had.
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
