//! The kernel's own port: HTB with the best leaves that there are, and a program that leads packets to
//! their classes.
//!
//! Everything is in the kernel: it continues after this process ends, and the next process continues with
//! differences. With several workers configured, each transmit queue has a tree (`htb/queues.rs`). There are no sojourn times, and drops by reason only as far as the leaf counts them.

mod queues;

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, bail};
use fairpath_bpf::{Attached, Mark, MarkCount, MarkOptions, MarkTo, Pins, RttMonitor, Took};
use fairpath_core::sched::{Account, Drop as Reason, NodeStats, Op, OpKind, Setting};
use fairpath_netlink::{
    ArpType, Device, FIFO_NS, HTB_MAJOR, Htb, HtbClass, HtbClassStats, HtbTree, LeafKind, Leaves,
    Link, Links, MAX_HTB_QUEUES, QdiscPlace, htb_major,
};
use fairpath_sched::tree::Tree;
use fairpath_shape::htb::{DEFAULT_MINOR, HtbNode, HtbPlan, QUEUE_INTERVAL_NS, htb_plan};
use fairpath_shape::{Both, Lines, Places, Side};
use fairpath_units::{IfIndex, counted, quantity::written};

use crate::Via;
use crate::description::{Description, Refusal, Shapes, always_ready};
use crate::prepared::Prepared;
use crate::shape::{Backend, Ended, Job, Reading};
use crate::team::WorkerFigures;

use self::queues::Queues;

/// Ethernet's header, which an MTU does not count.
const ETHERNET: u32 = 14;
/// The lowest rate of HTB, which counts bytes.
const MIN_BPS: u64 = 8;
/// Class numbers that are left free, for classes that come later.
const SPARE_CLASSES: u32 = 1024;

/// The back end.
pub static DESCRIPTION: Description = Description {
    name: "kernel",
    help: "HTB of the kernel, with fq_codel or CAKE as leaves if there are any",
    marks: true,
    stack: false,
    shapes: Some(Shapes {
        start: |job, _, prepared| Ok(Box::new(Kernel::start(job, prepared)?)),
        is_ready: always_ready,
        stop: Some("the kernel continues to shape without this process"),
        one_side: None,
        customs: 0,
        record: Some("its scheduler runs in the kernel"),
        framing: Some(Refusal {
            what: "count the overhead of the link",
            why: "HTB counts a GSO packet as one packet",
            remedy: "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        }),
        ack_filter: Some(Refusal {
            what: "filter ACKs",
            why: "HTB and its leaves do not",
            remedy: "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        }),
        tins: Some(Refusal {
            what: "split classes by DSCP",
            why: "HTB has one leaf for a class",
            remedy: "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        }),
        impair: Some(Refusal {
            what: "impair packets",
            why: "HTB and its leaves do not support it",
            remedy: "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        }),
        change: None,
        vlans: false,
        forwards: false,
        pins: true,
        grows: true,
        separate: true,
        keeps_gso: false,
    }),
    impairs: None,
};

/// The port.
pub struct Kernel {
    sides: Both<Option<HtbLink>>,
    pins: Option<Pins>,
    /// Of both sides.
    notes: Vec<String>,
}

struct HtbLink {
    ifindex: IfIndex,
    name: String,
    frame_bytes: u32,
    htb: Htb,
    mark: Mark,
    attached: Option<Attached>,
    /// The maximum number of classes of the program.
    capacity: u32,
    tree: Tree,
    plan: HtbPlan,
    places: Places,
    /// A description, for the status.
    note: String,
    /// Trees at transmit queues; none: the tree is at the root.
    queues: Option<Queues>,
    /// Classes of HTB that are to go once they are empty, by tree.
    stale: Vec<(u16, Vec<u16>)>,
    /// A transmit queue was removed.
    removed: bool,
    /// A transmit queue was added, which has no tree.
    outgrown: bool,
    /// Packets that left with a queue that was removed, by node: at the last two readings, and what was missed before.
    lost: [Vec<u64>; 3],
    /// Counted by HTB before this program marked, by node: it came by an earlier one's marks.
    before: Vec<u64>,
    leaf: LeafKind,
}

impl Kernel {
    /// Creates the trees and marks packets for them, or continues those of an earlier process.
    ///
    /// # Errors
    /// Where the kernel refuses, another's qdisc is in the way, or HTB cannot have the tree.
    pub fn start(job: &Job<'_>, prepared: &Prepared) -> anyhow::Result<Kernel> {
        if let Some(why) = prepared.mounts_end() {
            bail!(
                "shape via kernel: {why}, and then the rates of classes are lost: \
                 start it with `nsenter --net=/run/netns/NAME fairpath ...`, or use \"nfqueue\""
            );
        }
        if let Some(pins) = prepared.pins() {
            let present: Vec<IfIndex> = Links::open()?.list()?.iter().map(|l| l.ifindex).collect();
            Mark::sweep_pins(pins, &present)?;
        }
        let mut kernel = Box::new(Kernel {
            sides: Both::default(),
            pins: prepared.pins().cloned(),
            notes: vec!["continues after this process ends".to_owned()],
        });
        for side in Side::BOTH {
            let Some(link) = job.links.get(side) else {
                continue;
            };
            match HtbLink::start(job, side, link, prepared.pins()) {
                Ok(line) => *kernel.sides.get_mut(side) = Some(line),
                Err(error) => {
                    // Shaping one side alone was not requested.
                    let _ = kernel.stop();
                    return Err(error);
                }
            }
        }
        kernel.notes.extend(prepared.why_not_pinned().map(|why| {
            format!("without this process, all packets are of the default class: {why}")
        }));
        Ok(*kernel)
    }
}

/// Converts a class for netlink. `leaf_bps`: the rate for which the qdisc of a leaf is made.
fn class_of(node: &HtbNode, leaf_bps: u64) -> HtbClass {
    HtbClass {
        minor: node.minor,
        parent: node.parent,
        rate_bps: node.rate_bps,
        ceil_bps: node.ceil_bps,
        burst_bytes: node.burst_bytes,
        cburst_bytes: node.cburst_bytes,
        quantum_bytes: node.quantum_bytes,
        prio: 0,
        leaf_bps,
    }
}

/// Converts a plan for netlink.
pub fn tree_of(plan: &HtbPlan) -> HtbTree {
    tree_at(plan, HTB_MAJOR, plan.classes.iter().cloned())
}

/// The same with the major number of its place, and the rates of its classes there.
fn tree_at(plan: &HtbPlan, major: u16, classes: impl Iterator<Item = HtbNode>) -> HtbTree {
    let classes = classes.zip(&plan.classes);
    HtbTree {
        major,
        default: DEFAULT_MINOR,
        classes: classes
            .map(|(class, whole)| class_of(&class, whole.ceil_bps))
            .collect(),
        leaves: Leaves::Best,
        limit_packets: plan.limit_packets,
        frame_bytes: plan.frame_bytes,
    }
}

impl HtbLink {
    fn start(
        job: &Job<'_>,
        side: Side,
        link: &Link,
        pins: Option<&Pins>,
    ) -> anyhow::Result<HtbLink> {
        let raw = !matches!(link.arp_type, ArpType::Ethernet | ArpType::Loopback);
        let tree = job.lines.trees.get(side);
        let capacity = tree.plan.class_table.len() as u32 + SPARE_CLASSES;
        let device = Device {
            ifindex: link.ifindex,
            name: &link.name,
        };
        let (queues, why) = match job.config.workers {
            Some(workers) if workers > 1 => match queues::split(device, tree.plan.nodes.len())? {
                Ok(queues) => (Some(Queues::new(device, queues)?), None),
                Err(why) => (None, Some(why)),
            },
            _ => (None, None),
        };
        if queues.is_none() {
            queues::join(device)?;
        }
        let mark = Mark::load(&MarkOptions {
            classes: capacity,
            end: side.end(),
            to: MarkTo::Htb(HTB_MAJOR),
            queues: queues
                .as_ref()
                .map_or(0, |queues| queues.lock().rates.queues() as u16),
        })?;
        if let Some(queues) = &queues {
            queues.lock().flows = Some(mark.queue_flows()?);
        }
        let mut line = HtbLink {
            ifindex: link.ifindex,
            name: link.name.clone(),
            frame_bytes: link.mtu_bytes + if raw { 0 } else { ETHERNET },
            htb: Htb::open()?,
            mark,
            attached: None,
            capacity,
            tree: tree.clone(),
            plan: HtbPlan::default(),
            places: Places::of(tree),
            note: String::new(),
            queues,
            stale: Vec::new(),
            removed: false,
            outgrown: false,
            lost: Default::default(),
            before: Vec::new(),
            leaf: LeafKind::Fifo,
        };
        let majors = line.majors();
        let is_fresh = line.queues.is_some() && line.htb.running(device, majors.start)?.is_none();
        line.note = match line.begin(job, (tree, side), pins, raw) {
            Err(error) if is_fresh => {
                // Trees without marks would limit all packets to the rest of the line.
                if let Err(error) = queues::remove(&mut line.htb, device, majors.len() as u16) {
                    tracing::warn!("{error}");
                }
                return Err(error);
            }
            note => note?,
        };
        if let Some(why) = why {
            line.note.push_str(&format!(", at its root: {why}"));
        }
        Ok(line)
    }

    /// Makes the tree run, and leads packets there. In words.
    fn begin(
        &mut self,
        job: &Job<'_>,
        (tree, side): (&Tree, Side),
        pins: Option<&Pins>,
        raw: bool,
    ) -> anyhow::Result<String> {
        let mut note = self.apply(tree)?;
        self.classify()?;
        self.mark.set(job.rules, &self.plan.minors)?;
        let took = match pins {
            Some(pins) => self
                .mark
                .attach_pinned(pins, self.ifindex, &self.name, raw)?,
            None => {
                self.attached = Some(self.mark.attach(self.ifindex, &self.name, raw)?);
                Took::Fresh
            }
        };
        self.count_again()?;
        self.retire();
        if let Some(queues) = &mut self.queues {
            queues.run(side)?;
        }
        if took == Took::Over {
            note.push_str(", continued");
        }
        Ok(note)
    }

    /// Makes this tree run; what it takes out waits in `stale`. What was done, in words.
    fn apply(&mut self, tree: &Tree) -> anyhow::Result<String> {
        let device = Device {
            ifindex: self.ifindex,
            name: &self.name,
        };
        let majors = self.majors();
        // A class that ended may still wait at one queue.
        let mut known: HashMap<u16, (u16, bool)> = HashMap::new();
        for running in (self.htb.running_at(device, majors.clone())?)
            .iter()
            .flatten()
        {
            known.extend(running.classes().map(|(m, p, l)| (m, (p, l))));
        }
        let plan = htb_plan(tree, self.frame_bytes, self.reserved(), |minor| {
            known.get(&minor).copied()
        })?;
        let too_low = |node: &&HtbNode| node.rate_bps.min(node.ceil_bps) < MIN_BPS;
        if let Some(low) = plan.classes.iter().find(too_low) {
            let index = (low.node as usize).wrapping_sub(1);
            let class = tree.names.nodes().get(index);
            bail!(
                "shape {:?} via kernel: class {:?}: HTB has no rate below {MIN_BPS} bit/s: raise it, or use \"nfqueue\"",
                self.name,
                class.map_or("line", |name| name)
            );
        }
        if self.queues.is_some() && plan.classes.len() * majors.len() > queues::MAX_PARTS {
            bail!(
                "shape {:?} via kernel: {} at {} transmit queues are more than {} together: restart, or set workers = 1",
                self.name,
                counted(plan.classes.len(), "class", "classes"),
                majors.len(),
                queues::MAX_PARTS
            );
        }
        let mut division = self.queues.as_ref().map(Queues::lock);
        if let Some(division) = &mut division {
            division.follow(&plan)?;
        }
        let (mut stale, mut leaves) = (Vec::new(), None);
        for (queue, major) in majors.clone().enumerate() {
            let wanted = match &division {
                Some(division) => tree_at(&plan, major, division.rates.classes(queue)),
                None => tree_of(&plan),
            };
            let applied = match self.htb.apply(device, &wanted, false) {
                Ok(applied) => applied,
                Err(error) => {
                    if let Some(division) = &mut division {
                        division.return_to(&self.plan);
                    }
                    return Err(error.into());
                }
            };
            stale.push((major, applied.stale));
            leaves = leaves.or(applied.leaves);
        }
        drop(division);
        let classes = counted(plan.classes.len(), "class", "classes");
        let mut note = format!("{} by HTB, {classes}", self.name);
        if self.queues.is_some() {
            note.push_str(&format!(
                " at each of {} transmit queues, whose rates are divided every {} ms while this process runs",
                majors.len(),
                QUEUE_INTERVAL_NS / 1_000_000
            ));
        }
        if let Some(running) = self.htb.running(device, majors.start)? {
            self.leaf = running.leaf_kind(DEFAULT_MINOR).unwrap_or(LeafKind::Fifo);
        }
        if let Some(leaves) = &leaves {
            note.push_str(&format!(" with leaves {leaves}"));
        }
        if plan.shrunk > 0 {
            note.push_str(&format!(
                ", {} reduced because the sum exceeds the parent",
                counted(plan.shrunk, "guaranteed rate", "guaranteed rates")
            ));
        }
        if self.leaf == LeafKind::Fifo {
            let delay_ms = FIFO_NS / 1_000_000;
            let fifo = format!(
                "this kernel has neither FQ-CoDel nor CAKE, so a class delays its packets up to {delay_ms} ms under load"
            );
            tracing::warn!(
                "shape via kernel: {:?}: {fifo}; \"nfqueue\" does not",
                self.name
            );
            note.push_str(&format!(", {fifo}"));
        }
        // CAKE splits GSO packets.
        if let Some(bps) = plan
            .unfair_to_gso_bps
            .filter(|_| self.leaf != LeafKind::Cake)
        {
            note.push_str(&format!(
                ", GSO packets get more than their share of {}",
                written(bps, "bps")
            ));
        }
        if let Some(first) = plan.unkept.first() {
            note.push_str(&format!(", without {} of {}", first.what, first.node));
            if plan.unkept.len() > 1 {
                note.push_str(&format!(" and {} more", plan.unkept.len() - 1));
            }
        }
        self.stale = stale;
        self.plan = plan;
        self.tree = tree.clone();
        self.places = Places::of(tree);
        Ok(note)
    }

    /// The major numbers of the trees.
    fn majors(&self) -> Range<u16> {
        match &self.queues {
            None => HTB_MAJOR..HTB_MAJOR + 1,
            Some(queues) => {
                let first = htb_major(QdiscPlace::Queue(0));
                first..first + queues.lock().rates.queues() as u16
            }
        }
    }

    /// Numbers that classes do not get.
    fn reserved(&self) -> Range<u16> {
        match self.queues {
            None => HTB_MAJOR..HTB_MAJOR + 1,
            Some(_) => HTB_MAJOR..HTB_MAJOR + 1 + MAX_HTB_QUEUES,
        }
    }

    /// At each queue, the class of a packet is that of its mark.
    fn classify(&mut self) -> anyhow::Result<()> {
        let majors = self.majors();
        let (ifindex, name) = (self.ifindex, &self.name);
        for major in majors.filter(|_| self.queues.is_some()) {
            let program = self.mark.queue_class();
            (self.htb).classify(Device { ifindex, name }, major, program)?;
        }
        Ok(())
    }

    /// Removes what is stale and empty.
    fn retire(&mut self) {
        let (ifindex, name) = (self.ifindex, &self.name);
        for (major, stale) in &mut self.stale {
            if stale.is_empty() {
                continue;
            }
            match (self.htb).retire(Device { ifindex, name }, *major, stale, false) {
                Ok(left) => *stale = left,
                Err(error) => tracing::warn!("remove old classes: {error}"),
            }
        }
    }

    /// Checks that each transmit queue in use has a tree, and notes whether one was removed.
    fn check_queues(&mut self) -> anyhow::Result<()> {
        if self.queues.is_none() {
            return Ok(());
        }
        let trees = self.majors().len();
        let queues = queues::in_use(self.ifindex)?;
        self.outgrown = queues > trees;
        if self.outgrown {
            bail!(
                "{:?} has {queues} transmit queues, and had {trees} at the start: the others have no tree",
                self.name
            );
        }
        self.removed |= queues < trees;
        Ok(())
    }

    /// Counters by node, of each tree.
    fn stats_of_trees(&mut self) -> anyhow::Result<Vec<Vec<HtbClassStats>>> {
        let majors = self.majors();
        let (ifindex, name) = (self.ifindex, &self.name);
        let mut all = Vec::new();
        for stats in self.htb.stats(Device { ifindex, name }, majors)? {
            let stats = stats.with_context(|| {
                format!("the tree on {:?} was removed by another program", self.name)
            })?;
            let of_minor: HashMap<u16, HtbClassStats> = stats
                .classes
                .into_iter()
                .map(|class| (class.minor, class))
                .collect();
            let mut by_node = vec![HtbClassStats::default(); self.tree.plan.nodes.len() + 1];
            for class in &self.plan.classes {
                by_node[class.node as usize] =
                    of_minor.get(&class.minor).copied().unwrap_or_default();
            }
            all.push(by_node);
        }
        Ok(all)
    }

    /// Counters by node, of all trees together.
    fn stats(&mut self) -> anyhow::Result<Vec<HtbClassStats>> {
        Ok(sum_of(&self.stats_of_trees()?))
    }

    /// Packets by node that left with a queue that was removed (`ethtool -L`), which the kernel does not count. `early`: marks
    /// that were counted before `stats`. A packet between both is at the next reading in its class.
    fn lost(&mut self, early: &[MarkCount], stats: &[HtbClassStats]) -> Vec<u64> {
        let [last, known, missed] = &mut self.lost;
        for list in [&mut *last, &mut *known, &mut *missed] {
            list.resize(stats.len(), 0);
        }
        for (node, class) in stats.iter().enumerate() {
            let marked = early.get(node).map_or(0, |count| count.packets);
            let all = marked + self.before.get(node).copied().unwrap_or(0);
            // A GSO packet that waits is one packet.
            let now = match class.backlog_packets {
                0 => all.saturating_sub(class.all()),
                _ => continue,
            };
            // HTB counts a dropped GSO packet as one.
            if !self.removed {
                missed[node] = now;
                continue;
            }
            let now = now.saturating_sub(missed[node]);
            known[node] = known[node].max(now.min(last[node]));
            last[node] = now;
        }
        known.clone()
    }

    /// Counts the packets before this program marked, or before nodes and classes had these numbers: all that HTB counts,
    /// less those with a mark by now.
    fn count_again(&mut self) -> anyhow::Result<()> {
        self.before = self.stats()?.iter().map(HtbSum::all).collect();
        self.lost = Default::default();
        let marked = self.marked();
        for (before, marked) in self.before.iter_mut().zip(marked) {
            *before = before.saturating_sub(marked.packets);
        }
        Ok(())
    }

    /// Removes program and tree, unless they were removed by another program or with their interface.
    /// Returns the number of packets in the tree.
    fn end(mut self, pins: Option<&Pins>, ended: &mut Ended) -> u64 {
        let stats = self.stats().unwrap_or_default();
        let waited = (stats.iter())
            .map(|class| u64::from(class.backlog_packets))
            .sum();
        self.attached = None;
        if let Some(pins) = pins {
            let unpinned = Mark::detach_pinned(pins, self.ifindex, MarkTo::Htb(HTB_MAJOR));
            ended.note(unpinned.map(drop).map_err(Into::into));
        }
        let device = Device {
            ifindex: self.ifindex,
            name: &self.name,
        };
        let majors = self.majors();
        // The thread ends.
        if self.queues.take().is_some() {
            let removed = queues::remove(&mut self.htb, device, majors.len() as u16);
            ended.note(removed.map_err(Into::into));
        } else if matches!(self.htb.running(device, HTB_MAJOR), Ok(Some(_))) {
            let removed = self.htb.remove(device, HTB_MAJOR);
            ended.note(removed.map(drop).map_err(Into::into));
        }
        waited
    }

    /// Marks by node: of each class's leaf.
    fn marked(&self) -> Vec<MarkCount> {
        MarkCount::by_node(&self.mark.counts(), &self.tree.plan)
    }
}

/// Packets that a class has counted, with any outcome.
trait HtbSum {
    fn all(&self) -> u64;
}

impl HtbSum for HtbClassStats {
    fn all(&self) -> u64 {
        self.packets + u64::from(self.drops) + u64::from(self.backlog_packets)
    }
}

/// Sums of counters by node.
fn sum_of(trees: &[Vec<HtbClassStats>]) -> Vec<HtbClassStats> {
    let mut trees = trees.iter();
    let mut sums = trees.next().cloned().unwrap_or_default();
    for tree in trees {
        for (sum, class) in sums.iter_mut().zip(tree) {
            sum.bytes += class.bytes;
            sum.packets += class.packets;
            sum.drops = sum.drops.wrapping_add(class.drops);
            sum.backlog_bytes = sum.backlog_bytes.saturating_add(class.backlog_bytes);
            sum.backlog_packets += class.backlog_packets;
        }
    }
    sums
}

/// The counters of a class as of a node.
fn counts_of(stats: &[HtbClassStats], node: u32) -> NodeStats {
    let class = stats.get(node as usize).copied().unwrap_or_default();
    NodeStats {
        sent: class.packets,
        sent_bytes: class.bytes,
        packets: class.backlog_packets,
        bytes: class.backlog_bytes,
        ..NodeStats::default()
    }
}

impl Backend for Kernel {
    fn via(&self) -> Via {
        Via::Kernel
    }

    fn about(&self) -> String {
        let sides = Side::BOTH
            .iter()
            .filter_map(|side| self.sides.get(*side).as_ref());
        let notes = sides.map(|line| line.note.as_str());
        let notes = notes.chain(self.notes.iter().map(String::as_str));
        notes.collect::<Vec<_>>().join("; ")
    }

    fn read(&mut self, _: &RttMonitor) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        for side in Side::BOTH {
            let Some(line) = self.sides.get_mut(side) else {
                continue;
            };
            line.retire();
            line.check_queues()?;
            let early = line.queues.as_ref().map(|_| line.marked());
            let trees = line.stats_of_trees()?;
            let (stats, marked) = (sum_of(&trees), line.marked());
            let lost = early.map_or(Vec::new(), |early| line.lost(&early, &stats));
            let reason = match line.leaf {
                LeafKind::Fifo => Reason::QueueFull,
                _ => Reason::Policy,
            };
            let figures = line.places.read(|node| {
                let class = stats.get(node as usize).copied().unwrap_or_default();
                let before = line.before.get(node as usize).copied().unwrap_or(0);
                let arrived = marked.get(node as usize).copied().unwrap_or_default();
                let mut account = Account {
                    arrived: before + arrived.packets,
                    arrived_bytes: arrived.bytes,
                    ..Account::default()
                };
                account.dropped[Reason::Removed as usize] =
                    lost.get(node as usize).copied().unwrap_or(0);
                account.dropped[reason as usize] = class.drops.into();
                (counts_of(&stats, node), account)
            });
            *reading.figures.get_mut(side) = Some(figures);
            let stale = line.stale.iter().map(|(_, stale)| stale.len() as u64).sum();
            let key = format!("kernel_{}_classes_to_remove", side.name());
            reading.counters.insert(key, stale);
            if let Some(queues) = &line.queues {
                let division = queues.lock();
                let of_queue = |(queue, stats): (usize, &Vec<HtbClassStats>)| {
                    let read = |node| (counts_of(stats, node), Account::default());
                    let mut figures = WorkerFigures::of(&line.places.read(read));
                    figures.ceil_bps = vec![0; stats.len()];
                    for class in division.rates.classes(queue) {
                        if let Some(ceil_bps) = figures.ceil_bps.get_mut(class.node as usize) {
                            *ceil_bps = class.ceil_bps;
                        }
                    }
                    figures
                };
                *reading.workers.get_mut(side) = trees.iter().enumerate().map(of_queue).collect();
                let key = format!("kernel_{}_rates_changed", side.name());
                reading.counters.insert(key, division.changes);
            }
        }
        Ok(reading)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        let line = self.sides.get_mut(side).as_mut();
        let line =
            line.with_context(|| format!("{} is not shaped: it has no interface", side.name()))?;
        let mut tree = line.tree.clone();
        let node = tree.plan.nodes.get_mut((op.node as usize).wrapping_sub(1));
        match (op.kind, node) {
            (OpKind::Node, Some(node)) if op.count == Setting::Ceil as u32 => node.ceil = op.value,
            (OpKind::Node, Some(node)) if op.count == Setting::Floor as u32 => {
                node.floor = op.value
            }
            _ => bail!("HTB has no such node or setting"),
        }
        line.apply(&tree).map(drop)
    }

    fn replace(&mut self, job: &Job<'_>, _: &Lines) -> anyhow::Result<()> {
        for side in Side::BOTH {
            let tree = job.lines.trees.get(side);
            let Some(line) = self.sides.get_mut(side) else {
                continue;
            };
            if tree.plan.class_table.len() as u32 > line.capacity {
                bail!(
                    "the marking program on {:?} has a capacity of {}, fewer than {}: restart",
                    line.name,
                    counted(line.capacity as usize, "class", "classes"),
                    tree.plan.class_table.len()
                );
            }
            // New classes first, then packets are led there, then what is empty goes.
            line.apply(tree)?;
            line.mark.set(job.rules, &line.plan.minors)?;
            line.count_again()?;
            line.retire();
        }
        Ok(())
    }

    fn leave(&mut self, side: Side) -> anyhow::Result<()> {
        match self.sides.get_mut(side).take() {
            Some(line) => {
                let mut ended = Ended::default();
                line.end(self.pins.as_ref(), &mut ended);
                ended.reported(String::new()).map(drop)
            }
            None => Ok(()),
        }
    }

    fn join(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        let line = HtbLink::start(job, side, job.link(side)?, self.pins.as_ref())?;
        *self.sides.get_mut(side) = Some(line);
        Ok(())
    }

    fn outgrown(&self, side: Side) -> bool {
        (self.sides.get(side).as_ref()).is_some_and(|line| line.outgrown)
    }

    fn resize(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        // Or two threads would change the classes of the same trees.
        let queues = self
            .sides
            .get_mut(side)
            .as_mut()
            .and_then(|line| line.queues.as_mut());
        if let Some(queues) = queues {
            queues.rest();
        }
        // The trees continue, with other bursts and quanta; queues without a tree get one.
        self.join(job, side)
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        let (mut ended, mut waited) = (Ended::default(), 0);
        for side in Side::BOTH {
            if let Some(line) = self.sides.get_mut(side).take() {
                waited += line.end(self.pins.as_ref(), &mut ended);
            }
        }
        ended.reported(format!(
            "{waited} queued packets were dropped with their queue"
        ))
    }
}
