//! The interface of a back end to the daemon's loop.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::{Context, bail};
use fairpath_bpf::RttMonitor;
use fairpath_class::ClassSet;
use fairpath_core::Rules;
use fairpath_core::sched::Op;
use fairpath_netlink::{Link, Links};
use fairpath_shape::{Both, Figures, Lines, Side, StackCounts};

use crate::orders::Ran;
use crate::team::WorkerFigures;
use crate::{ShapeConfig, Via};

/// The input of a back end.
pub struct Job<'a> {
    /// `[shape]`.
    pub config: &'a ShapeConfig,
    /// The classes.
    pub classes: &'a ClassSet,
    /// A tree for each side.
    pub lines: &'a Lines,
    /// The rules that lead to the classes, by their numbers.
    pub rules: &'a Rules,
    /// Class numbers by the slots of the monitor.
    pub slots: &'a [u32],
    /// The links that sides leave by: those that are there.
    pub links: Both<Option<Link>>,
}

impl Job<'_> {
    /// The interface that a side leaves by, if it is scheduled.
    pub fn interface(&self, side: Side) -> Option<&str> {
        self.config.interface(side)
    }

    /// The link of a side.
    ///
    /// # Errors
    /// There is none.
    pub fn link(&self, side: Side) -> anyhow::Result<&Link> {
        let name = self.interface(side).unwrap_or_default();
        self.links
            .get(side)
            .as_ref()
            .with_context(|| no_such_interface(name))
    }
}

/// The links of the sides of this configuration that are there now.
///
/// # Errors
/// rtnetlink cannot be read.
pub fn find_links(config: &ShapeConfig) -> anyhow::Result<Both<Option<Link>>> {
    let mut links = Links::open()?;
    Both::try_of(|side| match config.interface(side) {
        Some(name) => Ok(links.by_name(name)?),
        None => Ok(None),
    })
}

/// The message where a side has no link.
pub fn no_such_interface(name: &str) -> String {
    format!("shape {name:?}: there is no such interface")
}

/// The values of one reading of a back end.
#[derive(Debug, Default)]
pub struct Reading {
    /// By node, see [`fairpath_shape::Places::read`]; none for a side that is not scheduled.
    pub figures: Both<Option<Vec<Figures>>>,
    /// Traffic of the network stack that the back end charges; none where it is scheduled as all other.
    pub stack: Both<Option<StackCounts>>,
    /// The port's own counts by name, the kernel's drop columns among them.
    pub counters: BTreeMap<String, u64>,
    /// Which custom policy was stopped, and why: packets continue as in a FIFO.
    pub stopped: Option<String>,
    /// Packets of each worker of a side, if there are several.
    pub workers: Both<Vec<WorkerFigures>>,
    /// The threads that shape.
    pub threads: Vec<Thread>,
}

/// A thread that shapes.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The side that it serves; none: both.
    pub side: Option<Side>,
    /// Where it runs, and for how long it did.
    pub ran: Ran,
}

/// The result of stopping a back end: every step is run, even after a failure.
#[derive(Debug, Default)]
pub struct Ended {
    holes: Vec<String>,
}

impl Ended {
    /// The result of a step.
    pub fn note(&mut self, step: anyhow::Result<()>) {
        if let Err(error) = step {
            self.holes.push(format!("{error:#}"));
        }
    }

    /// The text of the result.
    ///
    /// # Errors
    /// What went wrong.
    pub fn reported(self, well: String) -> anyhow::Result<String> {
        match self.holes.is_empty() {
            true => Ok(well),
            false => Err(anyhow::anyhow!("{}", self.holes.join("; "))),
        }
    }
}

/// A port with its schedulers, running.
///
/// Dropping one without [`Backend::stop`] is what a crash does, less the crash.
pub trait Backend: Send {
    /// Which it is.
    fn via(&self) -> Via;

    /// Returns a description in a line: where packets wait, in which mode, on which CPU.
    fn about(&self) -> String;

    /// Reads what was counted.
    ///
    /// # Errors
    /// Where it does not run any more: why.
    fn read(&mut self, monitor: &RttMonitor) -> anyhow::Result<Reading>;

    /// Grants of the shared rate of a node to a worker, and times that the worker had to wait for one. None: the rate
    /// is not shared.
    fn grants(&self, _: Side, _node: u32, _worker: u32) -> Option<[u64; 2]> {
        None
    }

    /// Changes a rate or parameter of a running tree.
    ///
    /// # Errors
    /// Where it does not run, or the tree has no such node or setting.
    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()>;

    /// Continues with other links and rules, without losing a packet; `before` are the active links.
    ///
    /// # Errors
    /// Where that cannot be; then all is as it was.
    fn replace(&mut self, job: &Job<'_>, before: &Lines) -> anyhow::Result<()>;

    /// Continues without a side, whose interface was removed or renamed. Called only with [`crate::description::Shapes::separate`].
    ///
    /// # Errors
    /// Something of it remains; the side is not shaped.
    fn leave(&mut self, side: Side) -> anyhow::Result<()> {
        bail!("{} cannot be shaped separately", side.name())
    }

    /// Shapes a side again by its present link. Called only with [`crate::description::Shapes::separate`].
    ///
    /// # Errors
    /// It cannot be shaped; the other continues.
    fn join(&mut self, _: &Job<'_>, side: Side) -> anyhow::Result<()> {
        bail!("{} cannot be shaped separately", side.name())
    }

    /// True if the link of a side has more queues than are shaped: [`Backend::read`] failed for that, and
    /// [`Backend::resize`] shapes all of them.
    fn outgrown(&self, _: Side) -> bool {
        false
    }

    /// Applies another MTU, or more queues, of a side's link. Called only with [`crate::description::Shapes::separate`].
    ///
    /// # Errors
    /// The back end failed.
    fn resize(&mut self, _: &Job<'_>, _: Side) -> anyhow::Result<()> {
        Ok(())
    }

    /// Readable when it has ended before it was stopped; [`Backend::read`] returns the reason.
    fn ended(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Ends: packets that wait go their way, and nothing stays. How many went, where it is known.
    ///
    /// # Errors
    /// What was left behind, or lost.
    fn stop(self: Box<Self>) -> anyhow::Result<String>;
}
