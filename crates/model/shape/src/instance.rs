//! A shaper instance: packets arrive, wait in a scheduler, and leave.
//!
//! The back end stores the packets and identifies them by handles, from 1 to the capacity of the
//! instance. Each handle returns once, as [`Leaving`]. Packets of the network stack on the same link are
//! charged: they use a share of the rate as if they had waited here ([`Debt`]).
//!
//! Arrivals are collected and passed to the scheduler with the next turn, in one call.

use fairpath_core::limit::LimitCpu;
use fairpath_core::sched::{
    Change, Changes, Classifier, Custom, Drop as Reason, End, Framing, HandoverError, Meta,
    NodeLimits, Op, OpKind, Outcome, OutcomeKind, Plan, SchedLayout, SchedReader, SchedRuntime,
    SchedRuntimeError, Scheduler, Setting, decode_rate,
};
use fairpath_core::{Frame, Rules, TooManyRules};
use fairpath_policy::Watch;
use fairpath_sched::log::Run;
use fairpath_sched::tree::{Tree, stack_floor};

use crate::known::Known;
use crate::recorder::Recorder;
use crate::shared::{Part, custom_policies};
use crate::stack::{Debt, StackCounts};

/// Charges that wait at once, at most; what is more is gathered and charged later.
pub const CHARGES: u32 = 64;

/// An instance could not be created, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ShapeInstanceError {
    /// The scheduler.
    #[error(transparent)]
    SchedRuntime(#[from] SchedRuntimeError),
    /// The rules of the classes do not fit.
    #[error(transparent)]
    Rules(#[from] TooManyRules),
    /// Another tree.
    #[error(transparent)]
    Handover(#[from] HandoverError),
}

/// The outcome of a packet; its handle is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It is sent.
    Send {
        /// As it came.
        handle: u32,
        /// What the port does to it before.
        change: Change,
    },
    /// It was dropped; the instance has counted it.
    Drop {
        /// As it came.
        handle: u32,
        /// Why.
        reason: Reason,
    },
}

/// A scheduler and rules, ready to replace those of an instance; created in any thread.
#[derive(Debug)]
pub struct Successor {
    /// Limits of its nodes, and other pools than before.
    limits: Option<(Vec<NodeLimits>, Option<LimitCpu>)>,
    scheduler: Scheduler,
    classifier: Classifier,
    changes: Changes,
    stack: Option<Stack>,
    copies: bool,
    framing: Framing,
    watches: Vec<Watch>,
}

/// The class of what the network stack sends, in one tree.
#[derive(Clone, Copy, Debug)]
struct Stack {
    class_id: u32,
    node: u32,
    /// The link rate, bits per second.
    bps: u64,
}

impl Stack {
    fn of(tree: &Tree) -> Stack {
        Stack {
            class_id: tree.stack_class(),
            node: tree.stack_node(),
            bps: decode_rate(tree.plan.nodes[Tree::SHARED as usize - 1].ceil),
        }
    }
}

impl Successor {
    /// For [`ShapeInstance::replace`]. `before` is the active tree; `handles` and `stack` are those of the
    /// instance. Nodes are the same if their names are.
    ///
    /// # Errors
    /// As [`ShapeInstance::new`].
    pub fn new(
        tree: &Tree,
        before: &Tree,
        rules: &Rules,
        handles: u32,
        stack: bool,
    ) -> Result<Successor, ShapeInstanceError> {
        Successor::sharing(tree, before, rules, handles, stack, None)
    }

    /// The same for the instance of a worker that shares its rates; `limits` are those of the nodes, and pools of
    /// larger limits.
    ///
    /// # Errors
    /// As [`ShapeInstance::new`].
    pub fn sharing(
        tree: &Tree,
        before: &Tree,
        rules: &Rules,
        handles: u32,
        stack: bool,
        limits: Option<(Vec<NodeLimits>, Option<LimitCpu>)>,
    ) -> Result<Successor, ShapeInstanceError> {
        let (scheduler, classifier, watches) =
            build(tree, rules, handles, stack, limits.is_some())?;
        Ok(Successor {
            limits,
            watches,
            scheduler,
            classifier,
            copies: copies(tree),
            framing: tree.plan.config.framing,
            changes: Known::of(before).changes_to(tree, stack),
            stack: stack.then(|| Stack::of(tree)),
        })
    }

    /// For another thread.
    pub fn reader(&self) -> SchedReader {
        self.scheduler.reader()
    }

    /// See [`ShapeInstance::watches`].
    pub fn watches(&self) -> Vec<Watch> {
        self.watches.clone()
    }
}

/// Whether some of a tree's packets may leave twice.
fn copies(tree: &Tree) -> bool {
    tree.plan.impairments.iter().any(|config| config.copy != 0)
}

fn build(
    tree: &Tree,
    rules: &Rules,
    handles: u32,
    stack: bool,
    limited: bool,
) -> Result<(Scheduler, Classifier, Vec<Watch>), ShapeInstanceError> {
    let plan = plan_of(tree, handles, stack, limited);
    let classes = plan.class_table.len() as u32;
    let mut classifier = Classifier::with_seed(classes, plan.config.seed.into());
    classifier.set_rules(rules)?;
    let (mut scheduler, watches) = runtime(&plan, tree)?;
    // Here, not where packets wait for it.
    scheduler.commit();
    Ok((scheduler, classifier, watches))
}

fn plan_of(tree: &Tree, handles: u32, stack: bool, limited: bool) -> Plan {
    let mut plan = tree.plan.clone();
    plan.config.packets = handles + CHARGES;
    // Waiting charges leave the same capacity for packets.
    let limit = plan.config.limit_packets + if stack { CHARGES } else { 0 };
    plan.config.limit_packets = limit.min(handles);
    plan.config.accounts = 1;
    plan.config.limited = limited.into();
    plan
}

/// Custom policies are compiled where that is possible, and can be stopped.
fn runtime(plan: &Plan, tree: &Tree) -> Result<(Scheduler, Vec<Watch>), SchedRuntimeError> {
    let mut watches = Vec::new();
    let customs = tree.customs.iter().map(|custom| {
        let machine = custom.fastest();
        watches.push(machine.watch());
        let machine: Box<dyn Custom> = Box::new(machine);
        (custom.policy.clone(), machine)
    });
    let scheduler = Scheduler::with_customs(plan, customs.collect())?;
    Ok((scheduler, watches))
}

/// A scheduler with a classifier before it.
#[derive(Debug)]
pub struct ShapeInstance {
    scheduler: Scheduler,
    classifier: Classifier,
    end: End,
    handles: u32,
    stack: Option<Stack>,
    copies: bool,
    framing: Framing,
    waiting: Vec<Op>,
    outcomes: Vec<Outcome>,
    charges: Charges,
    watches: Vec<Watch>,
    recorder: Option<Recorder>,
}

/// Bytes that the stack sent and that do not wait in the scheduler yet, and the handles that stand for charges.
#[derive(Debug)]
struct Charges {
    debt: Debt,
    bytes: u64,
    free: Vec<u32>,
    /// By handle, less the packets': bytes that it stands for.
    stands_for: Vec<u32>,
    /// The last counters: bytes and packets.
    read: [u64; 2],
    /// The bytes as they are on the link.
    on_link: u64,
}

impl ShapeInstance {
    /// An instance for `handles` packets at once; with `stack`, the tree's last class is for charges.
    ///
    /// # Errors
    /// The tree cannot be built, or the rules do not fit.
    pub fn new(
        tree: &Tree,
        end: End,
        rules: &Rules,
        handles: u32,
        stack: bool,
    ) -> Result<ShapeInstance, ShapeInstanceError> {
        ShapeInstance::sharing(tree, end, rules, handles, stack, None)
    }

    /// The instance of a worker that shares its rates with others.
    ///
    /// # Errors
    /// As [`ShapeInstance::new`].
    pub fn sharing(
        tree: &Tree,
        end: End,
        rules: &Rules,
        handles: u32,
        stack: bool,
        part: Option<Part>,
    ) -> Result<ShapeInstance, ShapeInstanceError> {
        let (mut scheduler, classifier, watches) =
            build(tree, rules, handles, stack, part.is_some())?;
        if let Some(part) = part {
            scheduler.draw_from(part.cpu, &part.nodes)?;
        }
        let stack = stack.then(|| Stack::of(tree));
        Ok(ShapeInstance {
            watches,
            scheduler,
            classifier,
            end,
            handles,
            stack,
            copies: copies(tree),
            framing: tree.plan.config.framing,
            waiting: Vec::new(),
            outcomes: Vec::new(),
            recorder: None,
            charges: Charges {
                debt: Debt::new(stack.map_or(0, |stack| stack.bps)),
                bytes: 0,
                free: (handles + 1..=handles + CHARGES).rev().collect(),
                stands_for: vec![0; CHARGES as usize],
                read: [0; 2],
                on_link: 0,
            },
        })
    }

    /// Bytes of the scheduler of such an instance; `shares`: with others ([`ShapeInstance::sharing`]).
    ///
    /// # Errors
    /// The tree cannot be built.
    pub fn bytes(
        tree: &Tree,
        handles: u32,
        stack: bool,
        shares: bool,
    ) -> Result<u64, ShapeInstanceError> {
        let plan = plan_of(tree, handles, stack, shares);
        Ok(SchedLayout::new(&plan, &custom_policies(tree))?.bytes())
    }

    /// Records all operations of its scheduler, from the first packet to the next tree.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// The header of a log of this instance; `tree` is the one that it was built from.
    pub fn run_of(&self, tree: &Tree) -> Run {
        Run {
            plan: plan_of(tree, self.handles, self.stack.is_some(), false),
            ..Run::of("native", tree)
        }
    }

    /// Whose class counts here.
    pub fn end(&self) -> End {
        self.end
    }

    /// For another thread.
    pub fn reader(&self) -> SchedReader {
        self.scheduler.reader()
    }

    /// Of each custom policy of the tree: lets another thread check whether it was stopped. A stopped policy
    /// answers 0 to every call, and packets continue as in a FIFO until the instance ends.
    pub fn watches(&self) -> Vec<Watch> {
        self.watches.clone()
    }

    /// Whether packets may leave twice ([`Change::twice`]): then half a port's room is sure to do.
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// Packets that it can hold.
    pub fn handles(&self) -> u32 {
        self.handles
    }

    /// A packet comes whose first bytes are `head`; `bytes` are of Ethernet frames, all headers included.
    pub fn arrive(&mut self, handle: u32, frame: &Frame, head: &[u8], bytes: u32) {
        let meta = self.look(frame, head, bytes);
        self.arrive_as(handle, frame.now, meta);
    }

    /// The metadata of a packet; see [`ShapeInstance::arrive`].
    pub fn look(&mut self, frame: &Frame, head: &[u8], bytes: u32) -> Meta {
        let (mut meta, _) = self.classifier.look(frame, head, self.end);
        meta.bytes = bytes;
        meta
    }

    /// True if a packet takes longer than `ns` at the lowest ceiling above it, as it is now.
    pub fn takes_longer(&self, meta: &Meta, ns: u64) -> bool {
        self.scheduler.takes_longer(&self.on_link(*meta), ns)
    }

    /// The packet with its bytes on the link, and not those of its frames.
    fn on_link(&self, meta: Meta) -> Meta {
        let bytes = self.framing.link_bytes(meta.bytes, meta.segments.into());
        Meta { bytes, ..meta }
    }

    /// A parsed packet arrives. Its bytes are of Ethernet frames.
    pub fn arrive_as(&mut self, handle: u32, now: u64, meta: Meta) {
        // A handle of no packet would be taken for a charge.
        let handle = if handle > self.handles { 0 } else { handle };
        let meta = self.on_link(meta);
        self.waiting.push(Op::enqueue(now, handle, meta));
    }

    /// The network stack has sent `counter` bytes on the same link until `now`; see [`Debt::take`].
    pub fn charge(&mut self, now: u64, counter: u64) {
        if self.stack.is_some() {
            self.charges.bytes += self.charges.debt.take(now, counter);
        }
    }

    /// The network stack has sent these bytes of Ethernet frames, in these packets, until `now`: they are
    /// charged as packets of equal length.
    pub fn charge_packets(&mut self, now: u64, bytes: u64, packets: u64) {
        let [before, count] = self.charges.read;
        if bytes != before {
            self.charges.read = [bytes, packets];
            let more = [bytes.checked_sub(before), packets.checked_sub(count)];
            let more = more.map(|more| more.and_then(|more| u32::try_from(more).ok()));
            self.charges.on_link = match more {
                [Some(bytes), Some(packets)] => {
                    let more = self.framing.link_bytes(bytes, packets);
                    self.charges.on_link + u64::from(more)
                }
                // The counters were reset, or this is the first reading of old ones.
                _ => 0,
            };
        }
        self.charge(now, self.charges.on_link);
    }

    /// Nothing that was sent before the next [`ShapeInstance::charge`] is charged.
    pub fn pause_charges(&mut self) {
        self.charges.debt.pause();
    }

    /// What the network stack sent on the same link.
    pub fn stack_counts(&self) -> StackCounts {
        self.charges.debt.counts()
    }

    /// Packets that came in since the last turn go in, and up to `most` leave. Returns when to ask
    /// again where nothing more may leave before; `None`: when something comes.
    ///
    /// # Errors
    /// A native runtime does not fail; see [`SchedRuntime::run`].
    pub fn turn(
        &mut self,
        now: u64,
        most: u32,
        leaving: &mut Vec<Leaving>,
    ) -> Result<Option<u64>, SchedRuntimeError> {
        self.bring_charges(now);
        let mut most = most;
        loop {
            let before = leaving.len();
            if most > 0 {
                self.waiting.push(Op::dequeue(now, most));
            }
            self.outcomes.clear();
            let ran = self.scheduler.run(&self.waiting, &mut self.outcomes);
            if let Some(recorder) = &mut self.recorder {
                recorder.take(&self.waiting, &self.outcomes);
            }
            self.waiting.clear();
            ran?;
            let (charged, next) = self.settle(leaving);
            // Places that charges took are for packets.
            let sent = leaving[before..]
                .iter()
                .filter(|l| matches!(l, Leaving::Send { .. }));
            most = most.saturating_sub(sent.count() as u32);
            if charged == 0 || most == 0 {
                return Ok(next);
            }
            self.bring_charges(now);
        }
    }

    /// Changes what runs: rates, parameters. Returns whether the scheduler took it.
    ///
    /// # Errors
    /// As [`SchedRuntime::run`].
    pub fn apply(&mut self, op: Op) -> Result<bool, SchedRuntimeError> {
        self.apply_limited(op, None)
    }

    /// The same where rates are shared: the node has these limits from now on.
    ///
    /// # Errors
    /// As [`SchedRuntime::run`].
    pub fn apply_limited(
        &mut self,
        op: Op,
        limits: Option<NodeLimits>,
    ) -> Result<bool, SchedRuntimeError> {
        if let Some(limits) = limits {
            self.scheduler.limit_node(op.node, limits);
        }
        let mut outcomes = Vec::new();
        // Any word of an impairment may be that of its copies.
        self.copies |= op.kind == OpKind::Impair;
        self.scheduler.run(&[op], &mut outcomes)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.take(&[op], &outcomes);
        }
        let done = outcomes.iter().any(|o| o.kind == OutcomeKind::Done);
        // The share of the stack follows the link rate.
        if let Some(stack) = self.stack.filter(|_| done && is_link_rate(&op)) {
            self.charges.debt.set_rate(decode_rate(op.value));
            self.apply(Op::node(
                op.now,
                stack.node,
                Setting::Floor,
                stack_floor(op.value),
            ))?;
        }
        Ok(done)
    }

    /// Continues with another tree and other rules from the next packet on. Queued packets are moved, which
    /// takes about 200 ns per node and 1 to 2 us per packet. Packets without a slot in the new tree are in
    /// `leaving`.
    ///
    /// # Errors
    /// [`HandoverError`]: the successor was made for fewer handles; nothing has changed then.
    pub fn replace(
        &mut self,
        successor: Successor,
        now: u64,
        leaving: &mut Vec<Leaving>,
    ) -> Result<(), ShapeInstanceError> {
        self.turn(now, 0, leaving)?;
        // A log begins with an empty scheduler, and the next one is not.
        self.recorder = None;
        let Successor {
            mut scheduler,
            classifier,
            changes,
            stack,
            copies,
            framing,
            watches,
            limits,
        } = successor;
        let own = self.scheduler.release_limits();
        // With other pools, those of before are not used any more, unless the trees stay.
        let mut before = None;
        if let Some((nodes, cpu)) = limits {
            let next = match cpu {
                Some(cpu) => {
                    before = own;
                    Some(cpu)
                }
                None => own,
            };
            if let Some(cpu) = next {
                scheduler.draw_from(cpu, &nodes)?;
            }
        }
        self.outcomes.clear();
        let adopted = scheduler.adopt(&mut self.scheduler, &changes, now, &mut self.outcomes);
        if let Err(error) = adopted {
            let theirs = scheduler.release_limits();
            if let Some(cpu) = before.or(theirs) {
                self.scheduler.resume_limits(cpu);
            }
            return Err(error.into());
        }
        self.scheduler = scheduler;
        self.classifier = classifier;
        (self.stack, self.watches, self.copies) = (stack, watches, copies);
        self.framing = framing;
        let bps = stack.map_or(0, |stack| stack.bps);
        self.charges.debt.set_rate(bps);
        self.settle(leaving);
        Ok(())
    }

    /// Looks for what contradicts itself. Walks everything: for tests.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.scheduler.audit()
    }

    fn bring_charges(&mut self, now: u64) {
        let Some(Stack { class_id, .. }) = self.stack else {
            return;
        };
        let part = self.charges.debt.part();
        while self.charges.bytes > 0 {
            let Some(handle) = self.charges.free.pop() else {
                return;
            };
            let bytes = self.charges.bytes.min(part);
            self.charges.bytes -= bytes;
            self.charges.stands_for[(handle - self.handles - 1) as usize] = bytes as u32;
            let meta = Meta {
                arrival: now,
                bytes: bytes as u32,
                class_id,
                ..Meta::default()
            };
            self.waiting.push(Op::enqueue(now, handle, meta));
        }
    }

    /// Passes on the outcomes of the scheduler: the number of charges that left, and the time of the next turn.
    fn settle(&mut self, leaving: &mut Vec<Leaving>) -> (u32, Option<u64>) {
        let (mut charged, mut next) = (0, None);
        for outcome in &self.outcomes {
            let handle = outcome.handle;
            let is_charge = handle > self.handles;
            match outcome.kind {
                OutcomeKind::Sent | OutcomeKind::Dropped if is_charge => {
                    let at = (handle - self.handles - 1) as usize;
                    let bytes = std::mem::take(&mut self.charges.stands_for[at]);
                    self.charges.free.push(handle);
                    match outcome.kind {
                        // It was sent, whatever the scheduler says: charged again.
                        OutcomeKind::Dropped => self.charges.bytes += u64::from(bytes),
                        _ => {
                            self.charges.debt.pay(bytes.into());
                            charged += 1;
                        }
                    }
                }
                OutcomeKind::Sent => leaving.push(Leaving::Send {
                    handle,
                    change: outcome.change(),
                }),
                OutcomeKind::Dropped if handle != 0 => {
                    let reason = outcome.drop();
                    leaving.extend(reason.map(|reason| Leaving::Drop { handle, reason }));
                }
                OutcomeKind::Nothing => next = (outcome.at != u64::MAX).then_some(outcome.at),
                _ => {}
            }
        }
        (charged, next)
    }
}

fn is_link_rate(op: &Op) -> bool {
    op.kind == OpKind::Node && op.node == Tree::SHARED && op.count == Setting::Ceil as u32
}

#[cfg(test)]
mod tests {
    use fairpath_class::ClassSet;
    use fairpath_core::Link;
    use fairpath_core::sched::encode_rate;
    use fairpath_sched::impair::Spec;
    use proptest::prelude::*;

    use super::*;
    use crate::figures::Places;
    use crate::lines::{Both, Lines, Settings};

    const MS: u64 = 1_000_000;

    fn instance(bps: u64, handles: u32, stack: bool) -> (ShapeInstance, Places) {
        let settings = Settings {
            bps: Both { down: bps, up: bps },
            stack,
            ..Settings::default()
        };
        let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
        let tree = &lines.trees.down;
        let instance =
            ShapeInstance::new(tree, End::Receiver, &Rules::default(), handles, stack).unwrap();
        (instance, Places::of(tree))
    }

    /// A UDP packet over IPv4 of `flow`.
    fn packet(flow: u8) -> [u8; 28] {
        let mut ip = [0; 28];
        (ip[0], ip[3], ip[9], ip[21]) = (0x45, 28, 17, flow);
        ip[12..20].copy_from_slice(&[198, 51, 100, 1, 192, 0, 2, 1]);
        ip
    }

    fn frame(now: u64) -> Frame {
        Frame {
            now,
            wire_len: 28,
            link: Link::Raw as u16,
            ..Frame::default()
        }
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(64))]

        #[test]
        fn every_handle_returns_once_and_counts_agree(
            steps in prop::collection::vec((0u8..12, 0u8..4, 0u32..6, 0u64..3_000), 1..400),
        ) {
            let (mut instance, places) = instance(2_000_000, 80, true);
            let mut free: Vec<u32> = (1..=80).collect();
            let (mut now, mut leaving, mut arrived, mut back) = (0, Vec::new(), 0u64, 0u64);
            let mut counter = 0;
            for (arrivals, flow, most, charge) in steps {
                now += 1_300_000;
                for _ in 0..arrivals {
                    let Some(handle) = free.pop() else { break };
                    instance.arrive(handle, &frame(now), &packet(flow), 1000);
                    arrived += 1;
                }
                counter += charge;
                instance.charge(now, counter);
                leaving.clear();
                instance.turn(now, most, &mut leaving).unwrap();
                let sent = leaving.iter().filter(|l| matches!(l, Leaving::Send { .. })).count();
                prop_assert!(sent <= most as usize);
                for departed in &leaving {
                    let (Leaving::Send { handle, .. } | Leaving::Drop { handle, .. }) = *departed;
                    prop_assert!(!free.contains(&handle), "handle {handle} came back twice");
                    free.push(handle);
                    back += 1;
                }
                instance.audit().unwrap();
            }
            let reader = instance.reader();
            let figures = places.read(|node| (reader.node_stats(node), reader.account(node)));
            let stack = &figures[figures.len() - 1];
            let all = &figures[0];
            prop_assert_eq!(all.arrived, all.sent + all.dropped() + all.held);
            prop_assert_eq!(all.arrived - stack.arrived, arrived);
            prop_assert_eq!(all.held - stack.held, arrived - back);
            prop_assert_eq!(all.sojourns.count(), all.sent);
        }
    }

    #[test]
    fn replacing_the_tree_loses_no_packet() {
        let bps = |rate| Settings {
            bps: Both {
                down: rate,
                up: rate,
            },
            policy: if rate > 1_000_000 { "drr" } else { "fq_codel" }.to_owned(),
            stack: true,
            ..Settings::default()
        };
        let lines = |rate| Lines::new(&ClassSet::default(), &bps(rate)).unwrap();
        let (mut instance, _) = instance(1_000_000, 200, true);
        let (mut leaving, mut sent) = (Vec::new(), Vec::new());
        let mut before = lines(1_000_000).trees.down;
        let mut places = Places::of(&before);
        for round in 0..40u32 {
            let now = u64::from(round) * 2 * MS;
            instance.arrive(round + 1, &frame(now), &packet(round as u8 % 3), 500);
            instance.charge(now, u64::from(round) * 100);
            if round % 7 == 3 {
                let next = lines(1_000_000 + u64::from(round % 2)).trees.down;
                let rules = Rules::default();
                let successor = Successor::new(&next, &before, &rules, 200, true).unwrap();
                instance.replace(successor, now, &mut leaving).unwrap();
                (places, before) = (Places::of(&next), next);
            }
            instance.turn(now, 8, &mut leaving).unwrap();
            instance.audit().unwrap();
        }
        let mut next = Some(100 * MS);
        while let Some(at) = next {
            next = instance.turn(at, 8, &mut leaving).unwrap();
        }
        for leaving in leaving {
            match leaving {
                Leaving::Send { handle, .. } => sent.push(handle),
                Leaving::Drop { handle, reason } => {
                    panic!("packet {handle} was dropped: {reason:?}")
                }
            }
        }
        sent.sort_unstable();
        assert_eq!(sent, (1..=40).collect::<Vec<u32>>());
        let reader = instance.reader();
        let figures = places.read(|node| (reader.node_stats(node), reader.account(node)));
        let other = &figures[before.names.id("other").unwrap() as usize];
        assert_eq!((other.arrived, other.sent, other.held), (40, 40, 0));
        assert_eq!(figures[0].arrived, figures[0].sent);
    }

    #[test]
    fn other_traffic_reduces_the_available_rate() {
        let sent = |charge: u64| {
            let (mut instance, _) = instance(8_000_000, 200, true);
            let (mut leaving, mut held, mut sent) = (Vec::new(), 0, 0);
            for step in 0..10_000u64 {
                let now = step * MS / 10;
                if held == 0 {
                    instance.arrive(1, &frame(now), &packet(1), 1000);
                    held = 1;
                }
                instance.charge(now, charge / 10_000 * step);
                leaving.clear();
                instance.turn(now, 8, &mut leaving).unwrap();
                let left = leaving.iter().filter(|l| matches!(l, Leaving::Send { .. }));
                sent += 1000 * left.count() as u64;
                held -= leaving.len();
            }
            sent
        };
        let (alone, charged) = (sent(0), sent(400_000));
        assert!((990_000..=1_005_000).contains(&alone), "{alone}");
        assert!((585_000..=615_000).contains(&charged), "{charged}");
    }

    #[test]
    fn the_stack_is_charged_with_overhead() {
        let settings = Settings {
            bps: Both {
                down: 8_000_000,
                up: 8_000_000,
            },
            framing: crate::framing::framing(Some(38), 84, crate::framing::Cells::None),
            stack: true,
            ..Settings::default()
        };
        let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
        let tree = &lines.trees.down;
        let rules = Rules::default();
        let mut instance = ShapeInstance::new(tree, End::Receiver, &rules, 64, true).unwrap();
        let meta = instance.look(&frame(0), &packet(1), 42);
        assert_eq!(instance.on_link(meta).bytes, 84);
        let mut sent = Vec::new();
        // The first reading is the base, and a reset one is a base again.
        for (ms, bytes, packets) in [
            (1, 9000, 9),
            (2, 9000, 9),
            (3, 10_000, 10),
            (4, 10_000, 10),
            (5, 10_108, 12),
            (6, 500, 1),
            (7, 1500, 2),
        ] {
            instance.charge_packets(ms * MS, bytes, packets);
            sent.push(instance.stack_counts().sent);
        }
        assert_eq!(sent, [0, 0, 1024, 1024, 1192, 1192, 2216]);
    }

    /// A line of `bps` on which the stack sends `load` times the rate during the second second, and then
    /// nothing.
    struct Flood {
        instance: ShapeInstance,
        bps: u64,
        load: u64,
        now: u64,
        counter: u64,
    }

    impl Flood {
        const STEP: u64 = MS / 10;

        fn new(bps: u64, load: u64) -> Flood {
            let (mut instance, _) = instance(bps, 4000, true);
            instance.charge(0, 0);
            Flood {
                instance,
                bps,
                load,
                now: 0,
                counter: 0,
            }
        }

        /// The next step, after which `leaving` has left.
        fn step(&mut self, leaving: &mut Vec<Leaving>) {
            self.now += Flood::STEP;
            if (1000 * MS..2000 * MS).contains(&self.now) {
                self.counter += self.bps / 8 * self.load * Flood::STEP / (1000 * MS);
            }
            self.instance.charge(self.now, self.counter);
            leaving.clear();
            self.instance.turn(self.now, 4000, leaving).unwrap();
        }
    }

    #[test]
    fn subscribers_keep_half_of_a_flooded_link() {
        for bps in [8_000_000, 100_000_000, 1_000_000_000] {
            let mut flood = Flood::new(bps, 25);
            let mut free: Vec<u32> = (1..=1000).collect();
            let (mut leaving, mut sent) = (Vec::new(), [0u64; 3]);
            while flood.now < 3000 * MS {
                let frame = frame(flood.now);
                for handle in free.drain(..) {
                    flood.instance.arrive(handle, &frame, &packet(1), 1000);
                }
                flood.step(&mut leaving);
                for departed in &leaving {
                    let (Leaving::Send { handle, .. } | Leaving::Drop { handle, .. }) = *departed;
                    free.push(handle);
                    if matches!(departed, Leaving::Send { .. }) {
                        sent[((flood.now - 1) / (1000 * MS)) as usize] += 8000;
                    }
                }
            }
            let share = sent.map(|bits| bits as f64 / bps as f64);
            assert!((0.98..1.02).contains(&share[0]), "{bps}: {share:?}");
            assert!((0.49..0.52).contains(&share[1]), "{bps}: {share:?}");
            // The debt is paid within hundredths.
            assert!((0.98..1.02).contains(&share[2]), "{bps}: {share:?}");
            let counts = flood.instance.stack_counts();
            assert_eq!((counts.sent, counts.debt), (flood.counter, 0));
            assert!(counts.not_charged > counts.sent * 9 / 10, "{counts:?}");
        }
    }

    #[test]
    fn a_flooding_stack_delays_sparse_flows_briefly() {
        for (bps, most) in [
            (1_000_000, 40 * MS),
            (19_000_000, 3 * MS),
            (500_000_000, MS),
            (10_000_000_000, MS),
        ] {
            let mut flood = Flood::new(bps, 25);
            let (mut leaving, mut enqueued, mut longest) = (Vec::new(), None, 0);
            while flood.now < 3000 * MS {
                if flood.now.is_multiple_of(20 * MS) && enqueued.is_none() {
                    let frame = frame(flood.now);
                    flood.instance.arrive(1, &frame, &packet(1), 98);
                    enqueued = Some(flood.now);
                }
                flood.step(&mut leaving);
                if !leaving.is_empty() {
                    longest = longest.max(flood.now - enqueued.take().unwrap());
                }
            }
            assert!(longest <= most, "{bps}: {longest} ns");
        }
    }

    #[test]
    fn an_hour_of_the_stack_alone_is_forgotten() {
        let (mut instance, _) = instance(8_000_000, 100, true);
        let mut leaving = Vec::new();
        instance.charge(0, 0);
        instance.turn(0, 8, &mut leaving).unwrap();
        let hour = 3_600_000 * MS;
        instance.charge(hour, 1 << 50);
        instance.arrive(1, &frame(hour), &packet(1), 1000);
        let mut at = hour;
        while leaving.is_empty() {
            at = instance.turn(at, 8, &mut leaving).unwrap().unwrap_or(at);
        }
        assert!(at - hour <= 2 * MS, "{} ns", at - hour);
    }

    /// A FIFO that drops nothing except above its limit of packets.
    fn unlimited(bps: u64, limit: u32, handles: u32) -> ShapeInstance {
        let settings = Settings {
            bps: Both { down: bps, up: bps },
            policy: "fifo".to_owned(),
            limit_packets: Some(limit),
            max_sojourn_ns: Some(0),
            ..Settings::default()
        };
        let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
        let (tree, rules) = (&lines.trees.down, Rules::default());
        ShapeInstance::new(tree, End::Receiver, &rules, handles, false).unwrap()
    }

    /// The time that `packets` of 1,000 bytes take, after the burst.
    fn time_of(bps: u64, packets: u32) -> u64 {
        let mut instance = unlimited(bps, 2 * packets, 2 * packets);
        let (mut now, mut sent, mut leaving) = (0, 0, Vec::new());
        let mut times = Vec::new();
        for handle in 1..=2 * packets {
            instance.arrive(handle, &frame(0), &packet(1), 1000);
        }
        while sent < 2 * packets {
            let next = instance.turn(now, 1, &mut leaving).unwrap();
            for left in leaving.drain(..) {
                assert!(matches!(left, Leaving::Send { .. }), "{bps}: {left:?}");
                sent += 1;
                times.push(now);
            }
            now = next.unwrap_or(now).max(now);
        }
        times[2 * packets as usize - 1] - times[packets as usize - 1]
    }

    /// From 1 bit/s, where a packet of 1,000 bytes takes more than two hours, to 1 Tbit/s, where it takes 8 ns.
    #[test]
    fn rates_hold_at_every_size() {
        for (bps, packets) in [
            (1, 20),
            (1_000, 20),
            (100_000_000_000, 100_000),
            (400_000_000_000, 400_000),
            (1_000_000_000_000, 500_000),
        ] {
            let (took, due_ns) = (
                time_of(bps, packets),
                8e12 * f64::from(packets) / bps as f64,
            );
            // The time of a packet is in whole nanoseconds, rounded down.
            let shortest = due_ns - f64::from(packets);
            let holds = (shortest..1.001 * due_ns).contains(&(took as f64));
            assert!(holds, "{bps} bit/s: {took} ns, {due_ns} expected");
        }
    }

    #[test]
    fn the_packet_limit_is_exact_at_both_ends() {
        for limit in [64, 1 << 20] {
            let handles = limit + 10;
            let mut instance = unlimited(1_000_000, limit, handles);
            for handle in 1..=handles {
                instance.arrive(handle, &frame(0), &packet(1), 1000);
            }
            let mut leaving = Vec::new();
            instance.turn(0, 0, &mut leaving).unwrap();
            let dropped = leaving
                .iter()
                .filter(|left| matches!(left, Leaving::Drop { .. }));
            assert_eq!(dropped.count(), 10, "{limit}");
        }
    }

    /// Nothing of before is left: no credit beyond the burst, no packet, no time to come.
    #[test]
    fn an_hour_of_silence_leaves_no_credit() {
        const BPS: u64 = 8_000_000;
        let (mut instance, places) = instance(BPS, 4000, false);
        let hour = 3_600_000 * MS;
        let mut of_second = Vec::new();
        for begin in [0, hour, 2 * hour] {
            let (mut now, mut leaving, mut sent) = (begin, Vec::new(), 0);
            for handle in 1..=2000 {
                instance.arrive(handle, &frame(begin), &packet(1), 1000);
            }
            let mut next = Some(begin);
            while let Some(at) = next.filter(|at| *at < begin + 1000 * MS) {
                assert!(at >= now, "{at} is before {now}");
                now = at.max(now + 1);
                next = instance.turn(now, 4000, &mut leaving).unwrap();
                let of_now = leaving.drain(..);
                sent += of_now
                    .filter(|left| matches!(left, Leaving::Send { .. }))
                    .count();
            }
            of_second.push(sent);
            // What waited for an hour is too old, and the link is idle then.
            let end = begin + hour - 1;
            while instance.turn(end, 4000, &mut leaving).unwrap().is_some() {}
            let late = leaving
                .drain(..)
                .filter(|left| matches!(left, Leaving::Send { .. }));
            assert!(late.count() <= 4, "packets of an hour ago");
            let reader = instance.reader();
            let figures = places.read(|node| (reader.node_stats(node), reader.account(node)));
            assert_eq!(figures[0].held, 0);
            instance.audit().unwrap();
        }
        // A packet a millisecond, and none that waited for more than 500; then also a burst of 5 ms.
        assert!((495..=502).contains(&of_second[0]), "{of_second:?}");
        let after_silence = of_second[0] + 3..=of_second[0] + 5;
        assert!(after_silence.contains(&of_second[1]), "{of_second:?}");
        assert_eq!(of_second[1], of_second[2]);
    }

    #[test]
    fn the_stacks_share_follows_the_link_rate() {
        let mut flood = Flood::new(8_000_000, 100);
        flood.bps = 80_000_000;
        let op = Op::node(0, Tree::SHARED, Setting::Ceil, encode_rate(flood.bps));
        assert!(flood.instance.apply(op).unwrap());
        let (mut leaving, mut sent) = (Vec::new(), 0u64);
        let mut free: Vec<u32> = (1..=1000).collect();
        while flood.now < 2000 * MS {
            let frame = frame(flood.now);
            for handle in free.drain(..) {
                flood.instance.arrive(handle, &frame, &packet(1), 1000);
            }
            flood.step(&mut leaving);
            for departed in &leaving {
                let (Leaving::Send { handle, .. } | Leaving::Drop { handle, .. }) = *departed;
                free.push(handle);
                sent += u64::from(flood.now >= 1000 * MS) * 8000;
            }
        }
        assert!((39_000_000..41_500_000).contains(&sent), "{sent}");
        let debt_ns = flood.instance.stack_counts().debt_ns;
        assert!((9_000_000..=10_000_000).contains(&debt_ns), "{debt_ns}");
    }

    #[test]
    fn an_instance_reports_possible_duplication() {
        let tree = |duplicate: f64| {
            let spec = Spec {
                duplicate,
                ..Spec::default()
            };
            let bps = Both {
                down: 1_000_000,
                up: 1_000_000,
            };
            let mut settings = Settings {
                bps,
                ..Settings::default()
            };
            settings.impair.all.down = Some(spec);
            let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
            lines.trees.down
        };
        let (plain, twice, rules) = (tree(0.0), tree(0.1), Rules::default());
        let mut instance = ShapeInstance::new(&plain, End::Receiver, &rules, 50, false).unwrap();
        assert!(!instance.copies());
        for (next, before, copies) in [(&twice, &plain, true), (&plain, &twice, false)] {
            let successor = Successor::new(next, before, &rules, 50, false).unwrap();
            instance.replace(successor, 0, &mut Vec::new()).unwrap();
            assert_eq!(instance.copies(), copies);
        }
        instance.apply(Op::impair(0, 1, 0, 0)).unwrap();
        assert!(instance.copies(), "the option does not matter");
    }

    #[test]
    fn an_instance_returns_its_next_time() {
        let (mut instance, _) = instance(1_000_000, 100, false);
        let mut leaving = Vec::new();
        for handle in 1..=20 {
            instance.arrive(handle, &frame(0), &packet(1), 1000);
        }
        let next = instance.turn(0, 100, &mut leaving).unwrap().unwrap();
        assert!(!leaving.is_empty() && leaving.len() < 20);
        let before = leaving.len();
        instance.turn(next - 1, 100, &mut leaving).unwrap();
        assert_eq!(leaving.len(), before);
        instance.turn(next, 100, &mut leaving).unwrap();
        assert!(leaving.len() > before);
        let mut next = Some(next);
        while let Some(at) = next {
            next = instance.turn(at, 100, &mut leaving).unwrap();
        }
        assert_eq!(leaving.len(), 20);
    }
}
