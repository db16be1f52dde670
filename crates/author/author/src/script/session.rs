//! The state of one test case: its scheduler, the waiting packets and the outcome of each packet.
//!
//! Invariant: the scheduler returns every handle once, as sent or dropped. Violations are detected
//! here, as are runtimes that differ.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use fairpath_core::sched::{Drop, Meta, Op, Outcome, OutcomeKind, SchedRuntime, Setting};

use super::packet::Packet;
use super::report::{Case, Failure, FailureKind, WaitingPacket};
use super::sandbox::Budget;
use super::{Bench, MAX_PRINTED_BYTES, OPERATION_INSTRUCTIONS, SHOWN_OPERATIONS, SHOWN_PACKETS};
use fairpath_sched::log::{Run, describe};
use fairpath_sched::tree::Tree;

/// The reason why a verb stops.
#[derive(Debug)]
pub(super) struct Halt {
    pub kind: FailureKind,
    pub message: String,
    pub expected: Option<String>,
    pub got: Option<String>,
}

impl Halt {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Halt {
        Halt {
            kind,
            message: message.into(),
            expected: None,
            got: None,
        }
    }

    /// An error of the script.
    pub fn usage(message: impl Into<String>) -> Halt {
        Halt::new(FailureKind::Script, message)
    }

    /// A failed expectation.
    pub fn expected(
        message: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Halt {
        let (expected, got) = (Some(expected.into()), Some(got.into()));
        Halt {
            expected,
            got,
            ..Halt::new(FailureKind::Expectation, message)
        }
    }
}

/// The state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Sent,
    Dropped(Drop),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Waiting => write!(f, "waiting"),
            State::Sent => write!(f, "sent"),
            State::Dropped(reason) => write!(f, "dropped ({})", reason.name()),
        }
    }
}

/// Distinguishes the items of one packet. The number 388 and the text "388" differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Number(i64),
    Text(String),
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tag::Number(number) => write!(f, "{number}"),
            Tag::Text(text) if text.parse::<i64>().is_ok() => write!(f, "{text:?}"),
            Tag::Text(text) => f.write_str(text),
        }
    }
}

/// A packet that was enqueued.
#[derive(Debug)]
pub(super) struct Item {
    pub packet: Rc<Packet>,
    /// The tag from the script, or how often the packet was enqueued.
    pub tag: Tag,
    pub meta: Meta,
    pub handle: Cell<u32>,
    pub state: Cell<State>,
    pub rank: Cell<u64>,
    pub node: Cell<u32>,
    /// The number of items enqueued before this one.
    pub serial: u64,
    pub enqueued_at: u64,
    pub left_at: Cell<u64>,
    pub sojourn: Cell<u64>,
    pub marked: Cell<bool>,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.packet.label, self.tag)
    }
}

/// Sums of one test case.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub enqueued: u64,
    pub sent: u64,
    pub marked: u64,
    pub dropped: BTreeMap<Drop, u64>,
}

/// One test case and its scheduler, which is created at the first operation.
#[derive(Default)]
pub(super) struct Bed {
    pub tree: Option<Rc<Tree>>,
    runtimes: Vec<Box<dyn SchedRuntime>>,
    pub now: u64,
    waiting: BTreeMap<u32, Rc<Item>>,
    /// Handles that the scheduler returned.
    free: Vec<u32>,
    /// The highest handle used so far.
    fresh: u32,
    /// Items that left at the last operation.
    left: Vec<Rc<Item>>,
    recent: VecDeque<(Op, Vec<Outcome>)>,
    pub counts: Counts,
    /// The number of times that each packet was enqueued, by its number.
    pub times: HashMap<u64, i64>,
    /// Configured floors and ceilings by node, encoded as in plans.
    pub rates: HashMap<u32, [u64; 2]>,
    pub checks: u64,
    operations: u64,
}

/// A running script.
pub(super) struct Session {
    pub bench: Bench,
    pub budget: Budget,
    pub bed: Bed,
    /// The state outside of `test`, while a test runs.
    pub outside: Option<Bed>,
    pub cases: Vec<Case>,
    pub failure: Option<Failure>,
    pub printed: String,
    pub cut_bytes: u64,
    pub runtimes: Vec<String>,
    /// Packets created, for labels.
    pub packets: u64,
    scratch: Vec<Outcome>,
}

/// The session that verbs share. No verb borrows it while it calls the script.
pub(super) type Shared = Rc<RefCell<Session>>;

impl Session {
    pub fn new(bench: &Bench, budget: Budget) -> Session {
        let bed = Bed::new(bench.tree.clone().map(Rc::new));
        Session {
            bench: bench.clone(),
            budget,
            bed,
            outside: None,
            cases: Vec::new(),
            failure: None,
            printed: String::new(),
            cut_bytes: 0,
            runtimes: Vec::new(),
            packets: 0,
            scratch: Vec::new(),
        }
    }

    /// The tested tree.
    pub fn tree(&self) -> Result<Rc<Tree>, Halt> {
        self.bed.tree.clone().ok_or_else(|| {
            Halt::usage("no scheduler is selected: name a policy or tree on the command line, or call policy(NAME) or tree(TOML) first")
        })
    }

    /// Selects another tree before the first operation.
    pub fn set_tree(&mut self, tree: Tree) -> Result<(), Halt> {
        if self.bench.tree.is_some() {
            return Err(Halt::usage(
                "the command line selects the scheduler: write - there to let the script choose",
            ));
        }
        if !self.bed.runtimes.is_empty() {
            return Err(Halt::usage(
                "the scheduler is in use: choose the tree before the first operation, or in a separate test",
            ));
        }
        self.bed.tree = Some(Rc::new(tree));
        Ok(())
    }

    fn start(&mut self) -> Result<(), Halt> {
        let tree = self.tree()?;
        for make in &self.bench.runtimes {
            let runtime = make(&tree.plan);
            let runtime =
                runtime.map_err(|error| Halt::new(FailureKind::Runtime, error.to_string()))?;
            self.bed.runtimes.push(runtime);
        }
        let names = self
            .bed
            .runtimes
            .iter()
            .map(|runtime| runtime.name().to_owned());
        self.runtimes = names.collect();
        let Some(record) = &self.bench.record else {
            return Ok(());
        };
        let runtime = self.runtimes.first().map_or("", String::as_str);
        let run = Run::of(runtime, &tree);
        let begun = record.borrow_mut().begin(&run);
        begun.map_err(|error| Halt::new(FailureKind::Runtime, error.to_string()))
    }

    /// Runs one operation in all runtimes, checks the outcomes and returns them.
    pub fn step(&mut self, op: Op, new: Option<&Rc<Item>>) -> Result<Vec<Outcome>, Halt> {
        if self.bed.runtimes.is_empty() {
            self.start()?;
        }
        let charged = self.budget.charge(OPERATION_INSTRUCTIONS);
        charged.map_err(|error| Halt::new(FailureKind::Limit, error.to_string()))?;
        let mut sides: Vec<Vec<Outcome>> = Vec::new();
        for runtime in &mut self.bed.runtimes {
            self.scratch.clear();
            let ran = runtime.run(&[op], &mut self.scratch);
            ran.map_err(|error| Halt::new(FailureKind::Runtime, error.to_string()))?;
            for outcome in &mut self.scratch {
                outcome.op = 0;
            }
            sides.push(self.scratch.clone());
        }
        let first = sides.first().cloned().unwrap_or_default();
        self.bed.operations += 1;
        if self.bed.recent.len() == SHOWN_OPERATIONS {
            self.bed.recent.pop_front();
        }
        self.bed.recent.push_back((op, first.clone()));
        if let Some(record) = &self.bench.record {
            let recorded = record.borrow_mut().record(&[op], &first);
            recorded.map_err(|error| Halt::new(FailureKind::Runtime, error.to_string()))?;
        }
        if sides.iter().any(|side| *side != first) {
            return Err(self.differ(&sides));
        }
        self.bed.left.clear();
        for outcome in &first {
            self.bed.apply(outcome, new)?;
        }
        Ok(first)
    }

    fn differ(&self, sides: &[Vec<Outcome>]) -> Halt {
        let runtimes = self.bed.runtimes.iter().zip(sides);
        let lines: Vec<String> = runtimes
            .map(|(runtime, side)| format!("{}: {}", runtime.name(), describe::outcomes(side)))
            .collect();
        Halt {
            got: Some(lines.join("\n")),
            expected: Some("the same outcomes in every runtime".into()),
            ..Halt::new(
                FailureKind::RuntimesDiffer,
                "the outcomes of one operation differ",
            )
        }
    }

    /// Enqueues a packet. If the item `again` still waits, its handle is used, which the scheduler
    /// refuses.
    pub fn enqueue(
        &mut self,
        packet: &Rc<Packet>,
        tag: Tag,
        again: Option<&Rc<Item>>,
    ) -> Result<Rc<Item>, Halt> {
        let waiting = again.filter(|item| item.state.get() == State::Waiting);
        let handle = match waiting {
            Some(item) => item.handle.get(),
            None => self.bed.handle(self.tree()?.plan.config.packets)?,
        };
        let meta = Meta {
            arrival: self.bed.now,
            ..packet.meta
        };
        let item = Rc::new(Item {
            packet: packet.clone(),
            tag,
            meta,
            handle: Cell::new(handle),
            state: Cell::new(State::Waiting),
            rank: Cell::new(0),
            node: Cell::new(0),
            serial: self.bed.counts.enqueued,
            enqueued_at: self.bed.now,
            left_at: Cell::new(0),
            sojourn: Cell::new(0),
            marked: Cell::new(false),
        });
        if waiting.is_none() {
            self.bed.waiting.insert(handle, item.clone());
        }
        self.bed.counts.enqueued += 1;
        let op = Op::enqueue(self.bed.now, handle, meta);
        let outcomes = self.step(op, Some(&item))?;
        let is_outcome = |outcome: &Outcome| outcome.handle == handle;
        if !outcomes.iter().any(is_outcome) {
            return Err(broken(format!(
                "the scheduler returned no outcome for the enqueue of {item}"
            )));
        }
        Ok(item)
    }

    /// Dequeues up to `count` packets, or until `bytes` have left (0: no limit). Also returns the time
    /// of the next dequeue, which is now if more packets can leave.
    pub fn dequeue(&mut self, count: u32, bytes: u64) -> Result<(Vec<Rc<Item>>, u64), Halt> {
        let op = Op {
            value: bytes,
            ..Op::dequeue(self.bed.now, count)
        };
        let outcomes = self.step(op, None)?;
        let nothing = outcomes
            .iter()
            .find(|outcome| outcome.kind == OutcomeKind::Nothing);
        let again = nothing.map_or(self.bed.now, |outcome| outcome.at);
        let sent = std::mem::take(&mut self.bed.left);
        let sent: Vec<Rc<Item>> = sent
            .into_iter()
            .filter(|item| item.state.get() == State::Sent)
            .collect();
        if sent.is_empty() && nothing.is_none() {
            return Err(broken(
                "a dequeue returned neither a packet nor the outcome for an empty queue",
            ));
        }
        Ok((sent, again))
    }

    /// Ends the case: audits all runtimes and compares their counters.
    pub fn close(&mut self, name: String) {
        let bed = &self.bed;
        let first = bed.runtimes.first().map(|runtime| runtime.stats());
        let mut wrong = None;
        for runtime in &bed.runtimes {
            if let Err(error) = runtime.audit() {
                let message = format!("audit of the {} runtime: {error}", runtime.name());
                wrong = wrong.or(Some(Halt::new(FailureKind::Broken, message)));
            } else if Some(runtime.stats()) != first {
                let message = format!(
                    "the counters differ at the end: {:?} and {:?}",
                    first,
                    runtime.stats()
                );
                wrong = wrong.or(Some(Halt::new(FailureKind::RuntimesDiffer, message)));
            }
        }
        let failure = self.failure.take();
        let failure = failure.or_else(|| wrong.map(|halt| self.failed(halt, Vec::new())));
        let (checks, operations) = (self.bed.checks, self.bed.operations);
        self.cases.push(Case {
            name,
            checks,
            operations,
            failure,
        });
    }

    /// True if the case ran any check or operation.
    pub fn is_used(&self) -> bool {
        self.bed.checks + self.bed.operations > 0 || self.failure.is_some()
    }

    /// The details of a failure.
    pub fn failed(&self, halt: Halt, lines: Vec<usize>) -> Failure {
        let recent = self.bed.recent.iter();
        let operations = recent.map(|(op, outcomes)| {
            format!("{} -> {}", describe::op(op), describe::outcomes(outcomes))
        });
        Failure {
            kind: halt.kind,
            lines,
            message: halt.message,
            expected: halt.expected,
            got: halt.got,
            now_ns: self.bed.now,
            waiting: self.waiting(SHOWN_PACKETS),
            waiting_packets: self.bed.waiting.len(),
            operations: operations.collect(),
        }
    }

    /// Waiting items by rank.
    pub fn items(&self) -> Vec<Rc<Item>> {
        let mut items: Vec<Rc<Item>> = self.bed.waiting.values().cloned().collect();
        items.sort_by_key(|item| (item.rank.get(), item.serial));
        items
    }

    pub fn waiting(&self, max: usize) -> Vec<WaitingPacket> {
        let row = |item: &Rc<Item>| WaitingPacket {
            packet: item.to_string(),
            handle: item.handle.get(),
            rank: item.rank.get(),
            age_ns: self.bed.now - item.enqueued_at,
            bytes: item.meta.bytes,
            node: self.node_name(item.node.get()),
            flow: describe::flow(&item.meta),
        };
        self.items().iter().take(max).map(row).collect()
    }

    pub fn waiting_packets(&self) -> usize {
        self.bed.waiting.len()
    }

    pub fn node_name(&self, node: u32) -> String {
        let tree = self.bed.tree.as_ref();
        tree.map_or_else(|| node.to_string(), |tree| tree.names.node(node).to_owned())
    }

    pub fn runtime(&mut self) -> Result<&dyn SchedRuntime, Halt> {
        if self.bed.runtimes.is_empty() {
            self.start()?;
        }
        let runtime = self.bed.runtimes.first();
        runtime
            .map(|runtime| &**runtime)
            .ok_or_else(|| Halt::usage("no runtime is selected"))
    }

    pub fn print(&mut self, line: &str) {
        let capacity = MAX_PRINTED_BYTES.saturating_sub(self.printed.len() + 1);
        if self.cut_bytes > 0 || line.len() > capacity {
            self.cut_bytes += line.len() as u64 + 1;
            return;
        }
        self.printed.push_str(line);
        self.printed.push('\n');
    }
}

impl Bed {
    pub fn new(tree: Option<Rc<Tree>>) -> Bed {
        Bed {
            tree,
            ..Bed::default()
        }
    }

    /// The floor and ceiling of a node after these operations, or `None` without a tree.
    pub fn rates_with(&self, node: u32, ops: &[Op]) -> Option<[u64; 2]> {
        let config = self.tree.as_ref()?.plan.nodes.get(node as usize - 1)?;
        let before = self.rates.get(&node).copied();
        let mut rates = before.unwrap_or([config.floor, config.ceil]);
        for op in ops {
            match op.count {
                at if at == Setting::Floor as u32 => rates[0] = op.value,
                at if at == Setting::Ceil as u32 => rates[1] = op.value,
                _ => {}
            }
        }
        Some(rates)
    }

    /// An unused handle.
    fn handle(&mut self, handles: u32) -> Result<u32, Halt> {
        if let Some(handle) = self.free.pop() {
            return Ok(handle);
        }
        if self.fresh == handles {
            return Err(Halt::usage(format!(
                "all {handles} handles of the scheduler are in use: dequeue first, or raise its limit"
            )));
        }
        self.fresh += 1;
        Ok(self.fresh)
    }

    /// Applies an outcome to the state. `new` is the packet that the operation enqueued.
    fn apply(&mut self, outcome: &Outcome, new: Option<&Rc<Item>>) -> Result<(), Halt> {
        let new = new.filter(|item| item.handle.get() == outcome.handle);
        match (outcome.kind, new) {
            (OutcomeKind::Queued, Some(item)) => {
                item.rank.set(outcome.rank);
                item.node.set(outcome.node);
                Ok(())
            }
            (OutcomeKind::Queued, None) => Err(broken(format!(
                "handle {} is queued, but was not enqueued",
                outcome.handle
            ))),
            (OutcomeKind::Dropped, Some(item)) if outcome.drop() == Some(Drop::BadHandle) => {
                item.state.set(State::Dropped(Drop::BadHandle));
                *self.counts.dropped.entry(Drop::BadHandle).or_default() += 1;
                match self.waiting.get(&outcome.handle) {
                    Some(holder) if Rc::ptr_eq(holder, item) => self.release(outcome).map(drop),
                    _ => Ok(()),
                }
            }
            (OutcomeKind::Dropped | OutcomeKind::Sent, _) => self.leave(outcome),
            (OutcomeKind::Nothing | OutcomeKind::Done | OutcomeKind::Failed, _) => Ok(()),
        }
    }

    fn leave(&mut self, outcome: &Outcome) -> Result<(), Halt> {
        let item = self.release(outcome)?;
        item.left_at.set(self.now);
        item.node.set(outcome.node);
        let elapsed = self.now - item.enqueued_at;
        item.sojourn.set(elapsed);
        if let Some(reason) = outcome.drop() {
            item.state.set(State::Dropped(reason));
            *self.counts.dropped.entry(reason).or_default() += 1;
        } else {
            item.state.set(State::Sent);
            item.rank.set(outcome.rank);
            item.marked.set(outcome.marked());
            self.counts.sent += 1;
            self.counts.marked += u64::from(outcome.marked());
            // The scheduler reports the time in the queue. An impairment delays packets before it.
            let is_impaired = |tree: &Rc<Tree>| !tree.plan.impairments.is_empty();
            let is_consistent = match self.tree.as_ref().is_some_and(is_impaired) {
                true => outcome.at <= elapsed,
                false => outcome.at == elapsed,
            };
            if !is_consistent {
                return Err(broken(format!(
                    "{item} waited {elapsed} ns, but the scheduler reports {}",
                    outcome.at
                )));
            }
            item.sojourn.set(outcome.at);
        }
        self.left.push(item);
        Ok(())
    }

    fn release(&mut self, outcome: &Outcome) -> Result<Rc<Item>, Halt> {
        let handle = outcome.handle;
        let item = self.waiting.remove(&handle).ok_or_else(|| {
            broken(format!(
                "the scheduler returned handle {handle} ({}), which does not wait",
                describe::outcome(outcome)
            ))
        })?;
        self.free.push(handle);
        Ok(item)
    }
}

fn broken(message: impl Into<String>) -> Halt {
    Halt::new(FailureKind::Broken, message)
}
