//! Limits without queues: a program at tcx egress drops packets above the rate of their class. All CPUs share a rate.
//!
//! Where the qdisc of the interface is fq, the program sets the time at which fq sends a packet instead, and drops only
//! what would wait too long. The program checks the qdisc with each packet, this process with each reading.
//!
//! Everything is in the kernel. With pins it continues after this process ends, and the next process replaces it in one
//! step. Another tree is another program, which continues with the limits of classes of the same names.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_bpf::{Attached, Mark, MarkCount, MarkOptions, MarkTo, Pins, RttMonitor, Took};
use fairpath_core::Rules;
use fairpath_core::limit::{LONGEST_NS, LimitConfig};
use fairpath_core::sched::{Account, Drop as Reason, NodeStats, Op, OpKind, Setting};
use fairpath_netlink::{ArpType, Egress, Fq, Link, Links, Tc};
use fairpath_sched::tree::Tree;
use fairpath_shape::{Both, Known, Lines, PaceQueue, Places, PolicePlan, Side, police_plan};
use fairpath_units::{IfIndex, counted};

use crate::Via;
use crate::clock::monotonic_ns;
use crate::description::{Description, Refusal, Shapes, always_ready};
use crate::prepared::Prepared;
use crate::shape::{Backend, Ended, Job, Reading};

const NO_QUEUES: &str = "it has no queues";
const OTHERS: &str = "use \"nfqueue\", \"afxdp\" or \"qdisc\"";

const fn refusal(what: &'static str) -> Option<Refusal> {
    Some(Refusal {
        what,
        why: NO_QUEUES,
        remedy: OTHERS,
    })
}

/// The back end.
pub static DESCRIPTION: Description = Description {
    name: "police",
    help: "No queues: packets above the rate of their class are dropped, or wait in fq, by any number of CPUs",
    marks: false,
    stack: false,
    shapes: Some(Shapes {
        start: |job, _, prepared| Ok(Box::new(Police::start(job, prepared)?)),
        is_ready: always_ready,
        stop: Some("the kernel continues to drop without this process"),
        one_side: None,
        customs: 0,
        record: Some("it has no scheduler"),
        framing: Some(Refusal {
            what: "count the overhead of the link",
            why: "the kernel counts bytes of Ethernet frames",
            remedy: OTHERS,
        }),
        ack_filter: refusal("filter ACKs"),
        tins: refusal("split classes by DSCP"),
        impair: refusal("impair packets"),
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
pub struct Police {
    sides: Both<Option<PolicedLink>>,
    pins: Option<Pins>,
    tc: Tc,
    lasts: String,
}

/// The outcome of packets above their limit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Excess {
    /// They wait in fq.
    Waits(Fq),
    /// They are dropped: why they cannot wait.
    Dropped(String),
}

impl Excess {
    /// By the qdisc of a link.
    fn at(tc: &mut Tc, ifindex: IfIndex, name: &str) -> anyhow::Result<Excess> {
        let egress = tc.egress(ifindex);
        Ok(
            match egress.with_context(|| format!("read the qdisc of {name:?}"))? {
                Egress::Fq(fq) if fq.horizon.as_nanos() <= LONGEST_NS.into() => {
                    Excess::Dropped(format!(
                        "the horizon of its qdisc fq is {:?}, not above {:?}",
                        fq.horizon,
                        Duration::from_nanos(LONGEST_NS)
                    ))
                }
                Egress::Fq(fq) => Excess::Waits(fq),
                Egress::Other(kind) => Excess::Dropped(format!("its qdisc is {kind}, not fq")),
            },
        )
    }

    /// The limits of a plan with this outcome.
    fn limits(&self, plan: &PolicePlan) -> Vec<LimitConfig> {
        match self {
            Excess::Waits(fq) => plan.paced(PaceQueue {
                packets: fq.packets,
                flow_packets: fq.flow_packets,
            }),
            Excess::Dropped(_) => plan.limits.clone(),
        }
    }

    /// Of a plan, in words.
    fn note(&self, plan: &PolicePlan) -> String {
        let fq = match self {
            Excess::Dropped(why) => return format!("dropping packets: {why}"),
            Excess::Waits(fq) => fq,
        };
        let (mut note, capacity) = ("delaying packets by fq".to_owned(), plan.capacity());
        if fq.packets.min(fq.flow_packets) < capacity {
            note += &format!(
                " for a shorter time than usual: its limit is {} and flow_limit {}, raise both to {capacity}",
                fq.packets, fq.flow_packets
            );
        }
        note
    }

    /// True if the program and its limits need no change, whatever was dropped.
    fn is_same(&self, other: &Excess) -> bool {
        match (self, other) {
            (Excess::Waits(one), Excess::Waits(other)) => {
                (one.packets, one.flow_packets) == (other.packets, other.flow_packets)
            }
            _ => self == other,
        }
    }
}

/// A program, and what it was made of.
struct Program {
    mark: Mark,
    tree: Tree,
    plan: PolicePlan,
    places: Places,
}

struct PolicedLink {
    ifindex: IfIndex,
    name: String,
    raw: bool,
    side: Side,
    rules: Rules,
    program: Program,
    attached: Option<Attached>,
    excess: Excess,
    /// It replaced the program of an earlier process.
    continued: bool,
    /// Packets that fq dropped were reported.
    warned: bool,
    /// Counted by earlier programs of this process, by class number.
    before: Vec<MarkCount>,
    /// Times that those found another qdisc than fq.
    unpaced_before: u32,
}

impl Police {
    /// Attaches the programs, or replaces those of an earlier process.
    ///
    /// # Errors
    /// The kernel refuses, or too many rates are above each other.
    pub fn start(job: &Job<'_>, prepared: &Prepared) -> anyhow::Result<Police> {
        if let Some(pins) = prepared.pins() {
            let present: Vec<IfIndex> = Links::open()?.list()?.iter().map(|l| l.ifindex).collect();
            Mark::sweep_pins(pins, &present)?;
        }
        let mut tc = Tc::open()?;
        let sides = Both::try_of(|side| {
            let link = job.links.get(side).as_ref();
            let line =
                link.map(|link| PolicedLink::start(job, side, link, &mut tc, prepared.pins()));
            line.transpose()
        })?;
        Ok(Police {
            sides,
            pins: prepared.pins().cloned(),
            tc,
            lasts: match prepared.why_not_pinned() {
                None => "continues after this process ends".to_owned(),
                Some(why) => format!("ends with this process: {why}"),
            },
        })
    }

    fn line(&mut self, side: Side) -> anyhow::Result<&mut PolicedLink> {
        let line = self.sides.get_mut(side).as_mut();
        line.with_context(|| format!("{} is not shaped: it has no interface", side.name()))
    }
}

impl Program {
    /// A program for a tree, which continues with the limits of `before`.
    fn load(
        tree: &Tree,
        side: Side,
        rules: &Rules,
        excess: &Excess,
        before: Option<&mut Program>,
    ) -> anyhow::Result<Program> {
        let plan = police_plan(tree)?;
        let options = MarkOptions {
            classes: tree.plan.class_table.len() as u32,
            end: side.end(),
            to: MarkTo::Limits,
            queues: 0,
        };
        let mut mark = Mark::load_with(&options, &excess.limits(&plan))?;
        mark.pace(matches!(excess, Excess::Waits(_)));
        mark.set(rules, &plan.of_class)?;
        // At last, since the program before still grants.
        if let (Some(limits), Some(before)) = (mark.limits(), before)
            && let Some(old) = before.mark.limits()
        {
            let were: HashMap<&String, u32> = before.plan.names.iter().zip(0..).collect();
            for (number, name) in (0..).zip(&plan.names) {
                if let Some(was) = were.get(name) {
                    limits.continue_from(number, old, *was);
                }
            }
        }
        Ok(Program {
            mark,
            places: Places::of(tree),
            tree: tree.clone(),
            plan,
        })
    }

    /// Changes the outcome of packets above their limit.
    fn set(&mut self, excess: &Excess) -> anyhow::Result<()> {
        self.mark.pace(false);
        if let Some(limits) = self.mark.limits() {
            let rates = (0..).zip(excess.limits(&self.plan));
            let rates: Vec<_> = rates.map(|(number, limit)| (number, limit.rate)).collect();
            limits.set_rates(&rates, monotonic_ns()?)?;
        }
        self.mark.pace(matches!(excess, Excess::Waits(_)));
        Ok(())
    }
}

impl PolicedLink {
    fn start(
        job: &Job<'_>,
        side: Side,
        link: &Link,
        tc: &mut Tc,
        pins: Option<&Pins>,
    ) -> anyhow::Result<PolicedLink> {
        let raw = !matches!(link.arp_type, ArpType::Ethernet | ArpType::Loopback);
        let excess = Excess::at(tc, link.ifindex, &link.name)?;
        let program = Program::load(job.lines.trees.get(side), side, job.rules, &excess, None)
            .with_context(|| format!("shape {:?} via police", link.name))?;
        let mut line = PolicedLink {
            ifindex: link.ifindex,
            name: link.name.clone(),
            raw,
            side,
            rules: job.rules.clone(),
            program,
            attached: None,
            excess,
            continued: false,
            warned: false,
            before: Vec::new(),
            unpaced_before: 0,
        };
        line.continued = line.attach(pins)? == Took::Over;
        Ok(line)
    }

    fn about(&self) -> String {
        let plan = &self.program.plan;
        let mut about = format!(
            "{} by {} without queues, {}",
            self.name,
            counted(plan.limits.len(), "limit", "limits"),
            self.excess.note(plan)
        );
        if plan.floors > 0 {
            about += &format!(
                ", without {}",
                counted(plan.floors, "guaranteed rate", "guaranteed rates")
            );
        }
        if self.continued {
            about += ", continued";
        }
        about
    }

    /// Packets wait from now on, or are dropped, as the qdisc is now.
    fn follow_qdisc(&mut self, tc: &mut Tc) -> anyhow::Result<()> {
        let now = Excess::at(tc, self.ifindex, &self.name)?;
        let paces = self.program.mark.paces();
        if !now.is_same(&self.excess) || paces != matches!(now, Excess::Waits(_)) {
            self.program.set(&now)?;
            tracing::warn!(
                "shape via police: {:?} continues by {}",
                self.name,
                now.note(&self.program.plan)
            );
        } else if let (Excess::Waits(now), Excess::Waits(before)) = (&now, &self.excess)
            && now.drops > before.drops
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(
                "shape via police: fq on {:?} drops packets that their limits let wait: raise its limit and flow_limit",
                self.name
            );
        }
        self.excess = now;
        Ok(())
    }

    /// Attaches the present program, in place of that of an earlier process or tree.
    fn attach(&mut self, pins: Option<&Pins>) -> anyhow::Result<Took> {
        let mark = &mut self.program.mark;
        match pins {
            Some(pins) => Ok(mark.attach_pinned(pins, self.ifindex, &self.name, self.raw)?),
            None => {
                // The old one ends when the new one is attached: a packet in between pays both.
                self.attached = Some(mark.attach(self.ifindex, &self.name, self.raw)?);
                Ok(Took::Fresh)
            }
        }
    }

    /// Counts by class number, of all programs of this process.
    fn counts(&self) -> Vec<MarkCount> {
        let mut counts = self.program.mark.counts();
        for (count, before) in counts.iter_mut().zip(&self.before) {
            *count += *before;
        }
        counts
    }

    /// Continues with another tree and other rules.
    fn change(&mut self, tree: &Tree, rules: &Rules, pins: Option<&Pins>) -> anyhow::Result<()> {
        let excess = &self.excess;
        let next = Program::load(tree, self.side, rules, excess, Some(&mut self.program))
            .with_context(|| format!("shape {:?} via police", self.name))?;
        let changes = Known::of(&self.program.tree).changes_to(tree, false);
        let old = std::mem::replace(&mut self.program, next);
        if let Err(error) = self.attach(pins) {
            self.program = old;
            return Err(error);
        }
        let mut before = vec![MarkCount::default(); tree.plan.class_table.len()];
        let earlier = std::mem::take(&mut self.before);
        for (class, count) in old.mark.counts().into_iter().enumerate() {
            let now = changes.classes.get(class).copied().unwrap_or(0);
            let Some(sum) = before.get_mut(now as usize) else {
                continue;
            };
            let earlier = earlier.get(class).copied().unwrap_or_default();
            *sum += count;
            *sum += earlier;
        }
        self.before = before;
        self.unpaced_before += old.mark.unpaced();
        self.rules = rules.clone();
        Ok(())
    }

    fn end(mut self, pins: Option<&Pins>, ended: &mut Ended) {
        self.attached = None;
        if let Some(pins) = pins {
            let unpinned = Mark::detach_pinned(pins, self.ifindex, MarkTo::Limits);
            ended.note(unpinned.map(drop).map_err(Into::into));
        }
    }
}

impl Backend for Police {
    fn via(&self) -> Via {
        Via::Police
    }

    fn about(&self) -> String {
        let sides = Side::BOTH
            .iter()
            .filter_map(|side| self.sides.get(*side).as_ref());
        let mut notes: Vec<_> = sides.map(PolicedLink::about).collect();
        notes.push(self.lasts.clone());
        notes.join("; ")
    }

    fn read(&mut self, _: &RttMonitor) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        for side in Side::BOTH {
            let Some(line) = self.sides.get_mut(side) else {
                continue;
            };
            line.follow_qdisc(&mut self.tc)?;
            let mut counter = |name: &str, value: u64| {
                let key = format!("police_{}_{name}", side.name());
                reading.counters.insert(key, value);
            };
            let unpaced = line.unpaced_before + line.program.mark.unpaced();
            counter("unpaced", unpaced.into());
            if let Excess::Waits(fq) = &line.excess {
                counter("fq_dropped_packets", fq.drops);
            }
            let tree = &line.program.tree;
            let by_node = MarkCount::by_node(&line.counts(), &tree.plan);
            let figures = line.program.places.read(|node| {
                let count = by_node.get(node as usize).copied().unwrap_or_default();
                let mut account = Account {
                    arrived: count.packets,
                    arrived_bytes: count.bytes,
                    dropped_bytes: count.dropped_bytes,
                    ..Account::default()
                };
                account.dropped[Reason::Policy as usize] = count.dropped.saturating_sub(count.full);
                account.dropped[Reason::QueueFull as usize] = count.full;
                let stats = NodeStats {
                    sent: count.packets.saturating_sub(count.dropped),
                    sent_bytes: count.bytes.saturating_sub(count.dropped_bytes),
                    ..NodeStats::default()
                };
                (stats, account)
            });
            *reading.figures.get_mut(side) = Some(figures);
        }
        Ok(reading)
    }

    fn apply(&mut self, side: Side, op: Op) -> anyhow::Result<()> {
        let pins = self.pins.clone();
        let line = self.line(side)?;
        let mut tree = line.program.tree.clone();
        let node = tree.plan.nodes.get_mut((op.node as usize).wrapping_sub(1));
        match (op.kind, node) {
            (OpKind::Node, Some(node)) if op.count == Setting::Ceil as u32 => node.ceil = op.value,
            _ => bail!("limits without queues have no such node or setting: only ceilings"),
        }
        let rules = line.rules.clone();
        line.change(&tree, &rules, pins.as_ref())
    }

    fn replace(&mut self, job: &Job<'_>, _: &Lines) -> anyhow::Result<()> {
        let pins = self.pins.clone();
        for side in Side::BOTH {
            if let Some(line) = self.sides.get_mut(side) {
                line.change(job.lines.trees.get(side), job.rules, pins.as_ref())?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, side: Side) -> anyhow::Result<()> {
        let mut ended = Ended::default();
        if let Some(line) = self.sides.get_mut(side).take() {
            line.end(self.pins.as_ref(), &mut ended);
        }
        ended.reported(String::new()).map(drop)
    }

    fn join(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        let link = job.link(side)?;
        let line = PolicedLink::start(job, side, link, &mut self.tc, self.pins.as_ref())?;
        *self.sides.get_mut(side) = Some(line);
        Ok(())
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<String> {
        let mut ended = Ended::default();
        for side in Side::BOTH {
            if let Some(line) = self.sides.get_mut(side).take() {
                line.end(self.pins.as_ref(), &mut ended);
            }
        }
        ended.reported("no packet waited".to_owned())
    }
}
