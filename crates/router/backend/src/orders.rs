//! Shaper instances in threads: the loop sends them orders and reads their counters.

use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_afxdp::PREFERENCE;
use fairpath_core::sched::{NodeLimits, Op, SchedReader};
use fairpath_policy::Watch;
use fairpath_sched::tree::Tree;
use fairpath_shape::{Figures, Leaving, Part, Places, ShapeInstance, Side, Successor};
use nix::sched::sched_getcpu;
use nix::time::{ClockId, clock_gettime};

use crate::record::Recording;
use crate::shape::Job;

/// The maximum number of commands that wait for a thread.
const COMMANDS: usize = 16;
/// The maximum time for which the loop waits for a thread's answer: it answers between two packets.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum time until a thread ends: more than a packet queue takes to be drained.
const LEAVING: Duration = Duration::from_secs(4);

/// The orders of the loop to a thread.
pub enum Command<C> {
    /// Changes a running tree, and limits of the node; whether it took it.
    Apply(Side, Op, Option<NodeLimits>, SyncSender<bool>),
    /// Continue with another tree.
    Replace(Side, Box<Successor>, SyncSender<Result<(), String>>),
    /// Return the counters of the back end, and the time that the thread ran.
    Count(SyncSender<(C, Ran)>),
    /// Class numbers by the monitor's slots.
    Classes(Vec<u32>),
    /// Packets come from now on: those before were the kernel's.
    Begin,
    /// End, and return the number of released packets.
    Stop(SyncSender<Result<u64, String>>),
}

/// Where a thread runs, and for how long it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The present CPU.
    pub cpu: u32,
    /// Nanoseconds since its start.
    pub ns: u64,
}

impl Ran {
    /// Of the calling thread.
    pub fn now() -> Ran {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
        Ran {
            cpu: sched_getcpu().map_or(0, |cpu| cpu as u32),
            ns: time.map_or(0, |time| time.as_nanos() as u64),
        }
    }
}

/// The thread's side.
pub struct Orders<C> {
    commands: Receiver<Command<C>>,
}

impl<C> Orders<C> {
    /// The next one, if there is any.
    ///
    /// # Errors
    /// [`Orphan`].
    pub fn next(&self) -> Result<Option<Command<C>>, Orphan> {
        match self.commands.try_recv() {
            Ok(command) => Ok(Some(command)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Orphan),
        }
    }
}

/// The loop dropped the back end, so no order can follow.
pub struct Orphan;

/// The loop's side; when it is dropped, the thread is woken and ends.
pub struct Lead<C> {
    commands: Option<SyncSender<Command<C>>>,
    ring: Box<dyn Fn() + Send>,
}

/// A way to ask a thread, which `ring` wakes.
pub fn pair<C>(ring: impl Fn() + Send + 'static) -> (Lead<C>, Orders<C>) {
    let (sender, commands) = mpsc::sync_channel(COMMANDS);
    let lead = Lead {
        commands: Some(sender),
        ring: Box::new(ring),
    };
    (lead, Orders { commands })
}

impl<C> Lead<C> {
    /// Sends an order without an answer.
    ///
    /// # Errors
    /// Where the thread has ended.
    pub fn report(&self, command: Command<C>) -> anyhow::Result<()> {
        let sent = match &self.commands {
            Some(commands) => commands.try_send(command).is_ok(),
            None => false,
        };
        if !sent {
            bail!("the worker thread has ended, or does not answer");
        }
        (self.ring)();
        Ok(())
    }

    fn query<T>(&self, make: impl FnOnce(SyncSender<T>) -> Command<C>) -> anyhow::Result<T> {
        self.query_within(PATIENCE, make)
    }

    fn query_within<T>(
        &self,
        patience: Duration,
        make: impl FnOnce(SyncSender<T>) -> Command<C>,
    ) -> anyhow::Result<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.report(make(reply))?;
        answer
            .recv_timeout(patience)
            .context("the worker thread does not answer")
    }

    /// Changes a running tree.
    ///
    /// # Errors
    /// Where the tree has no such node, or the thread does not answer.
    pub fn apply(&self, side: Side, op: Op, limits: Option<NodeLimits>) -> anyhow::Result<()> {
        if self.query(|reply| Command::Apply(side, op, limits, reply))? {
            return Ok(());
        }
        bail!("the scheduler has no such node or setting");
    }

    /// Continues with another tree.
    ///
    /// # Errors
    /// The tree cannot be adopted, or the thread does not answer.
    pub fn replace(&self, side: Side, successor: Successor) -> anyhow::Result<()> {
        self.query(|reply| Command::Replace(side, Box::new(successor), reply))?
            .map_err(anyhow::Error::msg)
    }

    /// The port's counts, and the time that the thread ran.
    ///
    /// # Errors
    /// Where the thread does not answer.
    pub fn count(&self) -> anyhow::Result<(C, Ran)> {
        self.query(Command::Count)
    }

    /// Ends the thread, and returns the number of released packets.
    ///
    /// # Errors
    /// What was lost, or where the thread does not answer.
    pub fn stop(&self) -> anyhow::Result<u64> {
        self.query_within(LEAVING, Command::Stop)?
            .map_err(anyhow::Error::msg)
    }
}

impl<C> Drop for Lead<C> {
    fn drop(&mut self) {
        self.commands = None;
        (self.ring)();
    }
}

/// The place of an instance's figures.
pub struct Gauge {
    places: Places,
    reader: SchedReader,
    /// Of each custom policy, with its name.
    watches: Vec<(String, Watch)>,
    /// The figures of this tree's instance, until it ends or another tree replaces it.
    #[expect(dead_code, reason = "held")]
    recording: Option<Recording>,
}

/// The shaper instance of a side, and the place of its figures. A recording ends with its instance, so
/// the instance is dropped before its gauge.
///
/// # Errors
/// The tree cannot be built.
pub fn begin(
    job: &Job<'_>,
    (tree, side): (&Tree, Side),
    handles: u32,
    stack: bool,
    part: Option<Part>,
) -> anyhow::Result<(Gauge, ShapeInstance)> {
    let mut instance = ShapeInstance::sharing(tree, side.end(), job.rules, handles, stack, part)?;
    let directory = job.config.record.as_deref();
    let recording = directory.and_then(|directory| {
        let begun = Recording::begin(&mut instance, tree, side, directory);
        begun
            .inspect_err(|error| tracing::warn!("{error:#}; it is not recorded"))
            .ok()
    });
    let gauge = Gauge {
        places: Places::of(tree),
        reader: instance.reader(),
        watches: named(tree, instance.watches()),
        recording,
    };
    Ok((gauge, instance))
}

impl Gauge {
    /// Of a successor, which is not recorded.
    pub fn of(tree: &Tree, successor: &Successor) -> Gauge {
        Gauge {
            places: Places::of(tree),
            reader: successor.reader(),
            watches: named(tree, successor.watches()),
            recording: None,
        }
    }

    /// By node.
    pub fn read(&self) -> Vec<Figures> {
        let reader = &self.reader;
        self.places
            .read(|node| (reader.node_stats(node), reader.account(node)))
    }

    /// Which custom policy was stopped, and why.
    pub fn stopped(&self) -> Option<String> {
        let mut watches = self.watches.iter();
        watches.find_map(|(name, watch)| Some(format!("{name} was stopped: {}", watch.fault()?)))
    }
}

fn named(tree: &Tree, watches: Vec<Watch>) -> Vec<(String, Watch)> {
    let names = tree.customs.iter().map(|custom| custom.policy.name.clone());
    names.zip(watches).collect()
}

/// A worker that did not run for longer drops the packets that came before it ran again: they may be older, and wait
/// up to `max_sojourn` more.
pub const MAX_PAUSE_NS: u64 = 500_000_000;

/// Makes the calling thread a forwarding thread: with real-time priority and exact timers.
///
/// Lateness of the thread beyond the burst reduces the rate. A refusal is reported and costs only
/// that.
pub fn prefer_this_thread() {
    if let Err(error) = fairpath_afxdp::prefer() {
        tracing::warn!("raise the priority of the worker thread (nice {PREFERENCE}): {error}");
    }
    if let Err(error) = fairpath_afxdp::exact_timers() {
        tracing::warn!("set exact timers: {error}");
    }
}

/// Runs an order for one instance, and returns other orders.
pub fn obey<C>(
    instance: &mut ShapeInstance,
    command: Command<C>,
    now: u64,
    leaving: &mut Vec<Leaving>,
) -> Option<Command<C>> {
    match command {
        Command::Apply(_, mut op, limits, reply) => {
            op.now = now;
            // Who asked may have given up.
            let _ = reply.try_send(instance.apply_limited(op, limits).unwrap_or(false));
            None
        }
        Command::Replace(_, successor, reply) => {
            let done = instance.replace(*successor, now, leaving);
            let _ = reply.try_send(done.map_err(|error| error.to_string()));
            None
        }
        other => Some(other),
    }
}
