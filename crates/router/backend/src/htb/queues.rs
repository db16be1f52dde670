//! HTB at each transmit queue below `mq`, and the thread that divides the rates of classes among them.
//!
//! Queues have separate locks, so CPUs do not wait for each other. The kernel continues with the last division after
//! this process ends: then the queues of a class have at most [`fairpath_shape::htb::QueueRates`]'s sum of ceilings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairpath_bpf::QueueFlows;
use fairpath_netlink::{
    Device, Ethtool, Htb, HtbClassStats, HtbError, MAX_HTB_QUEUES, PlaceError, Qdisc, QdiscPlace,
    QdiscStats, Tc, htb_major,
};
use fairpath_shape::Side;
use fairpath_shape::htb::{HtbPlan, QUEUE_INTERVAL_NS, QueueChange, QueueCounts, QueueRates};
use fairpath_units::IfIndex;

use crate::monotonic_ns;
use crate::repeat::Repeat;

/// Nanoseconds between two counts of flows.
const FLOWS_NS: u64 = 100_000_000;
/// The share of each lower count in the sum with those before.
const LOWER: f64 = 0.25;
/// Classes at all queues of an interface, which a turn reads. With more, it would take more than 2 ms of a CPU, and so come
/// less often than each 100 ms.
pub(super) const MAX_PARTS: usize = 1024;

/// The transmit queues of an interface that are in use; 0 if its driver does not report them.
pub(super) fn in_use(ifindex: IfIndex) -> anyhow::Result<usize> {
    let channels = Ethtool::open()?.channels(ifindex)?;
    Ok(channels.map_or(0, |channels| channels.tx + channels.combined) as usize)
}

/// The transmit queues of an interface that get a tree each, or why it has one at its root.
pub(super) fn split(device: Device<'_>, classes: usize) -> anyhow::Result<Result<u16, String>> {
    // Before anything is changed: a tree at the root continues if it stays there.
    let why = match in_use(device.ifindex)? {
        0 => Some("the interface does not report its transmit queues".to_owned()),
        1 => Some("the interface has one transmit queue".to_owned()),
        queues if queues > usize::from(MAX_HTB_QUEUES) => Some(format!(
            "{queues} transmit queues are more than {MAX_HTB_QUEUES}"
        )),
        queues if classes * queues > MAX_PARTS => Some(format!(
            "{classes} classes at {queues} transmit queues are more than {MAX_PARTS} together"
        )),
        _ => None,
    };
    if let Some(why) = why {
        return Ok(Err(why));
    }
    let mut tc = Tc::open()?;
    // Its queues would have no qdisc after the end, and pass nothing.
    let of_other = |(qdisc, _): &(Qdisc, QdiscStats)| qdisc.kind == "mq" && qdisc.handle != 0;
    if tc
        .at(device.ifindex, QdiscPlace::Root)?
        .is_some_and(|root| of_other(&root))
        && !tc.is_split(device.ifindex)?
    {
        return Ok(Err("its mq belongs to another program".to_owned()));
    }
    let mut htb = Htb::open()?;
    let root = htb_major(QdiscPlace::Root);
    if htb.running(device, root)?.is_some() {
        tracing::warn!(
            "shape via kernel: {:?}: HTB at the root is replaced by HTB at each queue; packets that wait are dropped",
            device.name
        );
        htb.remove(device, root)?;
    }
    match tc.split(device.ifindex, false) {
        Err(PlaceError::OneQueue { .. }) => {
            Ok(Err("the interface has one transmit queue".to_owned()))
        }
        queues => Ok(Ok(queues?)),
    }
}

/// Removes trees at queues, so that the root is free for one.
pub(super) fn join(device: Device<'_>) -> anyhow::Result<()> {
    if Tc::open()?.unsplit(device.ifindex)? {
        tracing::warn!(
            "shape via kernel: {:?}: HTB at each queue is replaced by HTB at the root; packets that wait are dropped",
            device.name
        );
    }
    Ok(())
}

/// The rates of the queues of an interface, and the thread that divides them.
pub(super) struct Queues {
    /// Once all queues have their trees.
    thread: Option<Repeat>,
    state: Arc<Mutex<Division>>,
}

/// The parts of the queues, and the present counts.
pub(super) struct Division {
    ifindex: IfIndex,
    name: String,
    htb: Htb,
    pub rates: QueueRates,
    /// Flows of classes, once packets have classes.
    pub flows: Option<QueueFlows>,
    /// By queue and minor: enqueued bytes and flows, at the last count.
    counted: HashMap<(u16, u16), (u64, f64)>,
    counted_at: u64,
    /// Changes of classes that were sent.
    pub changes: u64,
    failed: bool,
}

impl Queues {
    /// Without trees yet.
    pub fn new(device: Device<'_>, queues: u16) -> anyhow::Result<Queues> {
        let division = Division {
            ifindex: device.ifindex,
            name: device.name.to_owned(),
            htb: Htb::open()?,
            rates: QueueRates::new(&HtbPlan::default(), queues.into()),
            flows: None,
            counted: HashMap::new(),
            counted_at: 0,
            changes: 0,
            failed: false,
        };
        Ok(Queues {
            thread: None,
            state: Arc::new(Mutex::new(division)),
        })
    }

    /// Starts the thread: all queues have their trees.
    pub fn run(&mut self, side: Side) -> anyhow::Result<()> {
        let name = format!("rates {}", side.name());
        let thread = Repeat::start(name, QUEUE_INTERVAL_NS, &self.state, Division::repeat)?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Ends the thread: the last division stays.
    pub fn rest(&mut self) {
        self.thread = None;
    }

    pub fn lock(&self) -> MutexGuard<'_, Division> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Division {
    /// Continues with another plan, by the present counters: those of an earlier process, too.
    pub fn follow(&mut self, plan: &HtbPlan) -> anyhow::Result<()> {
        self.rates.follow(plan);
        self.look().map(drop)
    }

    /// Returns to the plan that runs, after another one was refused.
    pub fn return_to(&mut self, plan: &HtbPlan) {
        self.rates.follow(plan);
        self.rates.give_again();
    }

    /// A turn, of which the first error is logged.
    fn repeat(&mut self) {
        let done = self.turn();
        if let Err(error) = &done
            && !self.failed
        {
            tracing::warn!(
                "divide the rates of the queues of {:?}: {error:#}",
                self.name
            );
        }
        self.failed = done.is_err();
    }

    /// Reads the counters, and changes classes whose parts differ.
    fn turn(&mut self) -> anyhow::Result<()> {
        let changes = self.look()?;
        let classes: Vec<_> = (changes.iter())
            .map(|change| {
                let major = htb_major(QdiscPlace::Queue(change.queue as u16));
                (major, super::class_of(&change.class, change.class.ceil_bps))
            })
            .collect();
        if classes.is_empty() {
            return Ok(());
        }
        let (ifindex, name) = (self.ifindex, &self.name);
        if let Err(error) = self.htb.change(Device { ifindex, name }, &classes) {
            self.rates.give_again();
            return Err(error.into());
        }
        self.changes += classes.len() as u64;
        Ok(())
    }

    /// Flows of a class at a queue, counted again if `counts`; none are one.
    fn flows_of(&mut self, queue: u16, class: &HtbClassStats, counts: bool) -> f64 {
        let Some(flows) = self.flows.as_ref().filter(|_| class.leaf) else {
            return 1.0;
        };
        let enqueued = class.bytes + u64::from(class.backlog_bytes);
        let (before, known) = (self.counted.entry((queue, class.minor))).or_insert((0, 1.0));
        if counts && *before != enqueued {
            // Without a count, its queues have equal parts. Flows that pause for a count are still there.
            let now = flows.take(queue, class.minor).unwrap_or(1.0).max(1.0);
            (*before, *known) = (enqueued, now.max(*known + (now - *known) * LOWER));
        }
        *known
    }

    fn look(&mut self) -> anyhow::Result<Vec<QueueChange>> {
        let (ifindex, name) = (self.ifindex, &self.name);
        let device = Device { ifindex, name };
        let begin = monotonic_ns()?;
        let counts_flows = begin.saturating_sub(self.counted_at) >= FLOWS_NS;
        if counts_flows {
            self.counted_at = begin;
        }
        let mut all: Vec<(u16, Vec<HtbClassStats>)> = Vec::new();
        for queue in 0..self.rates.queues() as u16 {
            let major = htb_major(QdiscPlace::Queue(queue));
            let classes = self.htb.class_stats(device, major)?;
            all.push((queue, classes));
        }
        let now = monotonic_ns()?;
        let all: Vec<HashMap<u16, QueueCounts>> = (all.into_iter())
            .map(|(queue, classes)| {
                let counts = classes.into_iter().map(|class| {
                    let flows = self.flows_of(queue, &class, counts_flows);
                    (class.minor, counts_of(&class, flows))
                });
                counts.collect()
            })
            .collect();
        let within = now.saturating_sub(begin);
        Ok((self.rates).look((now, within), |queue, minor| {
            all[queue].get(&minor).copied()
        }))
    }
}

fn counts_of(class: &HtbClassStats, flows: f64) -> QueueCounts {
    QueueCounts {
        sent_bytes: class.bytes,
        waiting: class.backlog_packets,
        throttled: class.overlimits,
        flows,
    }
}

/// Removes the trees of an interface, and its `mq` if it is ours.
///
/// # Errors
/// The kernel refuses.
pub(super) fn remove(htb: &mut Htb, device: Device<'_>, queues: u16) -> Result<(), HtbError> {
    // With mq, so that no queue is without a qdisc in between.
    let unsplit = Tc::open().and_then(|mut tc| tc.unsplit(device.ifindex));
    let unsplit = unsplit.map_err(|source| HtbError::Root {
        name: device.name.to_owned(),
        what: "remove mq",
        source,
    })?;
    for queue in (0..queues).filter(|_| !unsplit) {
        htb.remove(device, htb_major(QdiscPlace::Queue(queue)))?;
    }
    Ok(())
}
