//! The BPF qdisc back end: the scheduler is the queue of the interface in the kernel.
//!
//! Each side has a root qdisc, which all packets of the stack pass. It classifies in the kernel, so it
//! continues without this process. It is pinned, so that the next process can replace its tree
//! without losing packets.

use std::sync::Arc;

use anyhow::{Context, bail};
use fairpath_bpf::{
    BpfQdisc, Pins, QDISC_POLICIES, QdiscContent, QdiscError, QdiscOptions, QdiscPolicy,
    RttMonitor, qdisc_names,
};
use fairpath_core::Rules;
use fairpath_core::sched::{Changes, End, Op, OpKind, Plan, Setting};
use fairpath_netlink::{Link, QdiscPlace, Tc};
use fairpath_policy::Author;
use fairpath_shape::{Both, Figures, Known, Lines, Places, Side};
use fairpath_units::IfIndex;

use crate::Via;
use crate::description::{Description, Refusal, Shapes, always_ready};
use crate::prepared::Prepared;
use crate::shape::{Backend, Ended, Job, Reading};

/// The back end. A BPF qdisc may not write packets, so it marks none.
pub static DESCRIPTION: Description = Description {
    name: "qdisc",
    help: "Fairpath's scheduler as the interface's queue in the kernel (Linux 6.16 with BPF qdiscs)",
    marks: false,
    stack: false,
    shapes: Some(Shapes {
        start: |job, _, prepared| Ok(Box::new(Qdisc::start(job, prepared)?)),
        is_ready: always_ready,
        stop: Some("the kernel continues to shape without this process"),
        one_side: None,
        customs: QDISC_POLICIES,
        record: Some("its scheduler runs in the kernel"),
        framing: None,
        tins: None,
        ack_filter: None,
        impair: None,
        change: Some(Refusal {
            what: "duplicate or corrupt packets",
            why: "a BPF qdisc may not copy or write them",
            remedy: "use \"afxdp\"",
        }),
        vlans: false,
        forwards: false,
        pins: true,
        grows: false,
        separate: true,
        keeps_gso: true,
    }),
    impairs: None,
};

/// The back end.
pub struct Qdisc {
    sides: Both<Option<QdiscLink>>,
    pins: Option<Pins>,
    about: String,
    /// GSO packets that were impaired.
    whole: u64,
}

struct QdiscLink {
    ifindex: IfIndex,
    interface: String,
    place: String,
    qdisc: BpfQdisc,
    /// Of the active tree; `None` for a tree of an earlier process, of which only names are known.
    places: Option<Places>,
    known: Known,
    /// The tree that becomes active with the next packet.
    next: Option<Next>,
    /// Packets in a qdisc that could not be replaced.
    lost: u64,
}

/// A tree for the kernel.
struct Next {
    places: Places,
    known: Known,
    /// The custom policies of the tree, in the order of their numbers.
    customs: Vec<Arc<Author>>,
    /// Changes to the previous tree.
    changes: Changes,
    plan: Plan,
    rules: Rules,
    end: End,
    /// The names, for the next process.
    note: String,
}

/// The plan of a side for the kernel.
fn plan_of(lines: &Lines, side: Side) -> Plan {
    let mut plan = lines.trees.get(side).plan.clone();
    plan.config.accounts = 1;
    // Delayed packets need handles, in addition to queued ones.
    plan.config.packets = plan.config.packets.max(lines.held(side));
    plan
}

impl Next {
    fn of(job: &Job<'_>, side: Side, before: &Known) -> Next {
        let tree = job.lines.trees.get(side);
        let known = Known::of(tree);
        Next {
            places: Places::of(tree),
            customs: tree.customs.clone(),
            changes: before.changes_to(tree, false),
            plan: plan_of(job.lines, side),
            rules: job.rules.clone(),
            end: side.end(),
            note: known.to_text(),
            known,
        }
    }

    fn customs(&self) -> Vec<QdiscPolicy<'_>> {
        let all = self.customs.iter().map(|custom| QdiscPolicy {
            policy: &custom.policy,
            identity: custom.identity(),
            object: custom.object(),
        });
        all.collect()
    }

    fn content<'a>(&'a self, customs: &'a [QdiscPolicy<'a>]) -> QdiscContent<'a> {
        QdiscContent {
            plan: &self.plan,
            customs,
            rules: &self.rules,
            end: self.end,
            note: self.note.as_bytes(),
        }
    }

    /// Posts it to a running qdisc. It is active from the next packet on.
    fn give(&self, qdisc: &mut BpfQdisc) -> Result<(), QdiscError> {
        qdisc.replace(&self.content(&self.customs()), &self.changes)
    }

    /// Changes a rate before it is active. Returns whether the node and the setting exist.
    fn change(&mut self, op: &Op) -> bool {
        let node = self.plan.nodes.get_mut((op.node as usize).wrapping_sub(1));
        let (OpKind::Node, Some(node)) = (op.kind, node) else {
            return false;
        };
        match op.count {
            setting if setting == Setting::Ceil as u32 => node.ceil = op.value,
            setting if setting == Setting::Floor as u32 => node.floor = op.value,
            _ => return false,
        }
        true
    }
}

impl Qdisc {
    /// Registers the qdiscs and attaches them to their interfaces, or continues existing ones.
    ///
    /// # Errors
    /// Where the kernel has no such qdiscs, or another's is in the way.
    pub fn start(job: &Job<'_>, prepared: &Prepared) -> anyhow::Result<Qdisc> {
        let pins = prepared.pins().cloned();
        let mut port = Box::new(Qdisc {
            sides: Both::default(),
            pins: pins.clone(),
            about: String::new(),
            whole: 0,
        });
        let mut found = Vec::new();
        for side in Side::BOTH {
            let Some(link) = job.links.get(side) else {
                continue;
            };
            match QdiscLink::start(job, side, link, pins.as_ref()) {
                Ok(line) => {
                    found.push(format!("{} has {}", link.name, line.qdisc.name()));
                    *port.sides.get_mut(side) = Some(line);
                }
                Err(error) => {
                    // Shaping one side alone was not requested.
                    let _ = port.stop();
                    return Err(error);
                }
            }
        }
        let survival = match prepared.why_not_pinned() {
            None => "continues after this process ends".to_owned(),
            Some(why) => format!(
                "continues without this process, but the next process cannot replace it: {why}"
            ),
        };
        port.about = format!("{}; {survival}", found.join(", "));
        Ok(*port)
    }

    fn line(&mut self, side: Side) -> anyhow::Result<&mut QdiscLink> {
        let line = self.sides.get_mut(side).as_mut();
        line.with_context(|| format!("{} is not shaped: it has no interface", side.name()))
    }
}

/// The network namespace, which distinguishes names of qdiscs.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/thread-self/ns/net");
    link.map_or(String::new(), |path| path.display().to_string())
}

impl QdiscLink {
    fn start(
        job: &Job<'_>,
        side: Side,
        link: &Link,
        pins: Option<&Pins>,
    ) -> anyhow::Result<QdiscLink> {
        QdiscLink::find_or_register(job, side, link.ifindex, &link.name, pins)
            .with_context(|| format!("shape {}", link.name))
    }

    fn find_or_register(
        job: &Job<'_>,
        side: Side,
        ifindex: IfIndex,
        interface: &str,
        pins: Option<&Pins>,
    ) -> anyhow::Result<QdiscLink> {
        let place = format!("{} {interface}", namespace());
        let mut tc = Tc::open()?;
        let there = tc.at(ifindex, QdiscPlace::Root)?.map(|(root, _)| root.kind);
        let mut lost = 0;
        let ours = there.filter(|kind| qdisc_names(&place).any(|name| name == *kind));
        // On the interface, or left behind by one that is gone.
        let left = left_behind(pins, &place)?;
        let known_name = ours.as_ref().or(left.first());
        if let (Some(kind), Some(pins)) = (known_name, pins)
            && let Some(mut qdisc) = BpfQdisc::find(pins, kind)?
            && (ours.is_some() || !qdisc.is_used())
        {
            let before = Known::from_text(&String::from_utf8_lossy(&qdisc.note()));
            let next = Next::of(job, side, &before);
            match next.give(&mut qdisc) {
                Ok(()) => {
                    if ours.is_none() {
                        tc.put(ifindex, QdiscPlace::Root, kind, false)?;
                    }
                    return Ok(QdiscLink {
                        ifindex,
                        interface: interface.to_owned(),
                        place,
                        qdisc,
                        places: None,
                        known: before,
                        next: Some(next),
                        lost,
                    });
                }
                Err(QdiscError::TooLarge { .. } | QdiscError::TooFew { .. }) => {
                    lost = qdisc.counters().waiting
                }
                Err(error) => return Err(error.into()),
            }
        }
        let fresh = Next::of(job, side, &Known::default());
        let qdisc = register(&fresh.content(&fresh.customs()), &place, pins)?;
        tc.put(ifindex, QdiscPlace::Root, qdisc.name(), ours.is_some())?;
        // Names that are of no use any more.
        for name in left.iter().filter(|name| *name != qdisc.name()) {
            if let Some(pins) = pins {
                pins.remove_qdisc(name)?;
            }
        }
        Ok(QdiscLink {
            ifindex,
            interface: interface.to_owned(),
            place,
            qdisc,
            places: Some(fresh.places),
            known: fresh.known,
            next: None,
            lost,
        })
    }

    /// Checks whether a packet has activated the requested content.
    fn settle(&mut self) {
        if self.qdisc.is_settled()
            && let Some(next) = self.next.take()
        {
            (self.places, self.known) = (Some(next.places), next.known);
        }
    }

    /// By the nodes of the last requested tree. Until it is active, counts are those of the previous tree,
    /// by their names.
    fn figures(&self) -> Option<Vec<Figures>> {
        let qdisc = &self.qdisc;
        let places = self.places.as_ref()?;
        let now = places.read(|node| (qdisc.node_stats(node), qdisc.account(node)));
        let Some(next) = &self.next else {
            return Some(now);
        };
        let was = |node: &u32| match node {
            0 => Figures::default(),
            node => now.get(*node as usize).cloned().unwrap_or_default(),
        };
        let all = now.first().cloned().unwrap_or_default();
        Some(
            std::iter::once(all)
                .chain(next.changes.nodes.iter().map(was))
                .collect(),
        )
    }

    fn apply(&mut self, op: &Op) -> anyhow::Result<()> {
        self.settle();
        let Some(next) = &mut self.next else {
            return Ok(self.qdisc.post(op)?);
        };
        if !next.change(op) {
            bail!("the tree has no such node or setting");
        }
        Ok(next.give(&mut self.qdisc)?)
    }

    /// Removes the qdisc, unless it was removed by another program or with its interface. Returns the
    /// number of packets in it.
    fn end(self, pins: Option<&Pins>, ended: &mut Ended) -> u64 {
        let waited = self.qdisc.counters().waiting;
        if self.qdisc.is_used() {
            let taken = Tc::open()
                .and_then(|mut tc| tc.take_off(self.ifindex, QdiscPlace::Root, self.qdisc.name()));
            ended.note(taken.map(drop).map_err(Into::into));
        }
        ended.note(self.qdisc.remove(pins).map_err(Into::into));
        waited
    }

    fn replace(&mut self, job: &Job<'_>, side: Side, pins: Option<&Pins>) -> anyhow::Result<()> {
        self.settle();
        let next = Next::of(job, side, &self.known);
        match next.give(&mut self.qdisc) {
            Ok(()) => {
                self.next = Some(next);
                return Ok(());
            }
            // More than the reserved capacity: a new one replaces it, and queued packets are lost.
            Err(QdiscError::TooLarge { .. } | QdiscError::TooFew { .. }) => {
                let qdisc = register(&next.content(&next.customs()), &self.place, pins)?;
                let mut tc = Tc::open()?;
                tc.put(self.ifindex, QdiscPlace::Root, qdisc.name(), true)?;
                self.lost += self.qdisc.counters().waiting;
                let old = std::mem::replace(&mut self.qdisc, qdisc);
                old.remove(pins)?;
            }
            Err(error) => return Err(error.into()),
        }
        (self.places, self.known, self.next) = (Some(next.places), next.known, None);
        Ok(())
    }
}

/// Names of the place that are pinned.
fn left_behind(pins: Option<&Pins>, place: &str) -> anyhow::Result<Vec<String>> {
    let Some(pins) = pins else {
        return Ok(Vec::new());
    };
    let pinned = pins.qdiscs()?;
    Ok(qdisc_names(place)
        .filter(|name| pinned.contains(name))
        .collect())
}

/// Under the first name of the place that is free.
fn register(
    content: &QdiscContent<'_>,
    place: &str,
    pins: Option<&Pins>,
) -> anyhow::Result<BpfQdisc> {
    let mut taken = None;
    for name in qdisc_names(place) {
        let options = QdiscOptions {
            pins,
            ..QdiscOptions::default()
        };
        match BpfQdisc::register(content, &name, options) {
            Ok(qdisc) => return Ok(qdisc),
            Err(error @ QdiscError::Taken(_)) => taken = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(taken.map_or_else(
        || anyhow::anyhow!("all names of qdiscs are in use"),
        Into::into,
    ))
}

impl Backend for Qdisc {
    fn via(&self) -> Via {
        Via::Qdisc
    }

    fn about(&self) -> String {
        match self.whole {
            0 => self.about.clone(),
            count => format!(
                "{}; {count} GSO packets were impaired as one packet each: use `ip link set dev IF gso_max_segs 1`, and `ethtool -K IF gro off` at their ingress interface",
                self.about
            ),
        }
    }

    fn read(&mut self, _: &RttMonitor) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        self.whole = 0;
        for side in Side::BOTH {
            let Some(line) = self.sides.get_mut(side) else {
                continue;
            };
            line.settle();
            if !line.qdisc.is_used() {
                bail!(
                    "the qdisc {} on {:?} was removed by another program",
                    line.qdisc.name(),
                    line.interface
                );
            }
            let mut figures = line.figures();
            if line.next.is_some() && line.qdisc.is_settled() {
                // It came into force in between.
                line.settle();
                figures = line.figures();
            }
            *reading.figures.get_mut(side) = figures;
            let counters = line.qdisc.counters();
            self.whole += counters.impaired_whole;
            let mut put = |name: &str, n: u64| {
                reading
                    .counters
                    .insert(format!("qdisc_{}_{name}", side.name()), n);
            };
            put("enqueued", counters.arrived);
            put("sent", counters.sent_packets);
            put("dropped", counters.dropped);
            put("no_handle", counters.no_handle);
            put("lost", counters.lost + line.lost);
            put("waiting", counters.waiting);
            put("strangers", counters.strangers);
            put("impaired_whole", counters.impaired_whole);
            put("plans", counters.flips);
            put("plans_refused", counters.flips_refused);
        }
        Ok(reading)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        self.line(side)?.apply(&op)
    }

    fn replace(&mut self, job: &Job<'_>, _: &Lines) -> anyhow::Result<()> {
        let pins = self.pins.clone();
        for side in Side::BOTH {
            if let Some(line) = self.sides.get_mut(side) {
                line.replace(job, side, pins.as_ref())?;
            }
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
        let link = job.link(side)?;
        let line = QdiscLink::start(job, side, link, self.pins.as_ref())?;
        *self.sides.get_mut(side) = Some(line);
        Ok(())
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

#[cfg(test)]
mod tests {
    use fairpath_class::ClassSet;
    use fairpath_shape::{Impairments, Settings};

    use super::*;

    #[test]
    fn delayed_packets_have_additional_handles() {
        let all = Both {
            down: Some("delay=20ms pipe=20000".parse().unwrap()),
            up: None,
        };
        let settings = Settings {
            limit_packets: Some(64),
            impair: Impairments {
                all,
                ..Impairments::default()
            },
            ..Settings::default()
        };
        let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
        let handles = |side| plan_of(&lines, side).config.packets;
        assert!(handles(Side::Down) >= 20_064, "{}", handles(Side::Down));
        assert!(handles(Side::Up) < 20_064, "{}", handles(Side::Up));
    }
}
