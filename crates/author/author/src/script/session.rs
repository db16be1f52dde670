//! The scheduler of one test case, as the script sees it: who waits, what became of whom.
//!
//! Invariant: every handle that is given comes back once, sent or dropped; a home that breaks this is
//! caught here, and so are homes that differ.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use fairpath_core::sched::{Drop, Home, Meta, Op, Outcome, OutcomeKind, Setting};

use super::packet::Packet;
use super::report::{Case, Failure, FailureKind, WaitingPacket};
use super::sandbox::Budget;
use super::{Bench, MAX_PRINTED_BYTES, OPERATION_INSTRUCTIONS, SHOWN_OPERATIONS, SHOWN_PACKETS};
use fairpath_sched::log::{Run, describe};
use fairpath_sched::tree::Tree;

/// Why a verb cannot go on.
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

    /// The script is wrong.
    pub fn usage(message: impl Into<String>) -> Halt {
        Halt::new(FailureKind::Script, message)
    }

    /// An expectation does not hold.
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

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Waiting,
    Sent,
    Dropped(Drop),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Waiting => write!(f, "waiting"),
            Fate::Sent => write!(f, "sent"),
            Fate::Dropped(reason) => write!(f, "dropped ({})", reason.name()),
        }
    }
}

/// A packet that was enqueued.
#[derive(Debug)]
pub(super) struct Item {
    pub packet: Rc<Packet>,
    /// The script's number or word, or which of its packet it is.
    pub tag: String,
    pub meta: Meta,
    pub handle: Cell<u32>,
    pub fate: Cell<Fate>,
    pub rank: Cell<u64>,
    pub node: Cell<u32>,
    /// How many came before it.
    pub serial: u64,
    pub came: u64,
    pub left: Cell<u64>,
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

/// One test case and its scheduler, which is made at its first operation.
#[derive(Default)]
pub(super) struct Bed {
    pub tree: Option<Rc<Tree>>,
    homes: Vec<Box<dyn Home>>,
    pub now: u64,
    waiting: BTreeMap<u32, Rc<Item>>,
    /// Handles that came back; the next that was never given.
    free: Vec<u32>,
    fresh: u32,
    /// Who left at the last operation.
    left: Vec<Rc<Item>>,
    recent: VecDeque<(Op, Vec<Outcome>)>,
    pub counts: Counts,
    /// How often each packet was enqueued, by its number.
    pub times: HashMap<u64, u64>,
    /// Floors and ceilings that were set, by node, as plans have them.
    pub rates: HashMap<u32, [u64; 2]>,
    pub checks: u64,
    operations: u64,
}

/// A running script.
pub(super) struct Session {
    pub bench: Bench,
    pub budget: Budget,
    pub bed: Bed,
    /// What stands outside of `test`, while one runs.
    pub outside: Option<Bed>,
    pub cases: Vec<Case>,
    pub failure: Option<Failure>,
    pub printed: String,
    pub cut_bytes: u64,
    pub homes: Vec<String>,
    /// Packets made, for labels.
    pub packets: u64,
    scratch: Vec<Outcome>,
}

/// Verbs share the session; none holds it while it calls the script.
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
            homes: Vec::new(),
            packets: 0,
            scratch: Vec::new(),
        }
    }

    /// The tree that is tested.
    pub fn tree(&self) -> Result<Rc<Tree>, Halt> {
        self.bed.tree.clone().ok_or_else(|| {
            Halt::usage("nothing is tested yet: name a policy or tree on the command line, or say policy(NAME) or tree(TOML) first")
        })
    }

    /// Another tree, as long as there is no operation.
    pub fn set_tree(&mut self, tree: Tree) -> Result<(), Halt> {
        if self.bench.tree.is_some() {
            return Err(Halt::usage(
                "the command line names what is tested; write - there if the script is to choose",
            ));
        }
        if !self.bed.homes.is_empty() {
            return Err(Halt::usage(
                "the scheduler is in use; choose the tree before the first operation, or in a test of its own",
            ));
        }
        self.bed.tree = Some(Rc::new(tree));
        Ok(())
    }

    fn start(&mut self) -> Result<(), Halt> {
        let tree = self.tree()?;
        for make in &self.bench.homes {
            let home = make(&tree.plan);
            let home = home.map_err(|error| Halt::new(FailureKind::Home, error.to_string()))?;
            self.bed.homes.push(home);
        }
        let names = self.bed.homes.iter().map(|home| home.name().to_owned());
        self.homes = names.collect();
        let Some(record) = &self.bench.record else {
            return Ok(());
        };
        let home = self.homes.first().map_or("", String::as_str);
        let run = Run::of(home, &tree);
        let begun = record.borrow_mut().begin(&run);
        begun.map_err(|error| Halt::new(FailureKind::Home, error.to_string()))
    }

    /// Runs one operation in all homes; what they answered, after it was believed.
    pub fn step(&mut self, op: Op, new: Option<&Rc<Item>>) -> Result<Vec<Outcome>, Halt> {
        if self.bed.homes.is_empty() {
            self.start()?;
        }
        let charged = self.budget.charge(OPERATION_INSTRUCTIONS);
        charged.map_err(|error| Halt::new(FailureKind::Limit, error.to_string()))?;
        let mut sides: Vec<Vec<Outcome>> = Vec::new();
        for home in &mut self.bed.homes {
            self.scratch.clear();
            let ran = home.run(&[op], &mut self.scratch);
            ran.map_err(|error| Halt::new(FailureKind::Home, error.to_string()))?;
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
            recorded.map_err(|error| Halt::new(FailureKind::Home, error.to_string()))?;
        }
        if sides.iter().any(|side| *side != first) {
            return Err(self.differ(&sides));
        }
        self.bed.left.clear();
        for outcome in &first {
            self.bed.believe(outcome, new)?;
        }
        Ok(first)
    }

    fn differ(&self, sides: &[Vec<Outcome>]) -> Halt {
        let homes = self.bed.homes.iter().zip(sides);
        let lines: Vec<String> = homes
            .map(|(home, side)| format!("{}: {}", home.name(), describe::outcomes(side)))
            .collect();
        Halt {
            got: Some(lines.join("\n")),
            expected: Some("the same outcomes in every home".into()),
            ..Halt::new(
                FailureKind::HomesDiffer,
                "different outcomes of one operation",
            )
        }
    }

    /// Enqueues a packet anew; or, if `again` still waits, under the same handle, which is refused.
    pub fn enqueue(
        &mut self,
        packet: &Rc<Packet>,
        tag: String,
        again: Option<&Rc<Item>>,
    ) -> Result<Rc<Item>, Halt> {
        let waiting = again.filter(|item| item.fate.get() == Fate::Waiting);
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
            fate: Cell::new(Fate::Waiting),
            rank: Cell::new(0),
            node: Cell::new(0),
            serial: self.bed.counts.enqueued,
            came: self.bed.now,
            left: Cell::new(0),
            sojourn: Cell::new(0),
            marked: Cell::new(false),
        });
        if waiting.is_none() {
            self.bed.waiting.insert(handle, item.clone());
        }
        self.bed.counts.enqueued += 1;
        let op = Op::enqueue(self.bed.now, handle, meta);
        let outcomes = self.step(op, Some(&item))?;
        let told = |outcome: &Outcome| outcome.handle == handle;
        if !outcomes.iter().any(told) {
            return Err(broken(format!(
                "{item} was enqueued, and nothing is told of it"
            )));
        }
        Ok(item)
    }

    /// Up to `count` packets, or until `bytes` have left (0: no limit), and when to ask again: now
    /// if there may be more.
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
            .filter(|item| item.fate.get() == Fate::Sent)
            .collect();
        if sent.is_empty() && nothing.is_none() {
            return Err(broken(
                "a dequeue gave neither a packet nor said that there is none",
            ));
        }
        Ok((sent, again))
    }

    /// Ends the case: what all homes must agree on and hold. `failure` is why it ended early.
    pub fn close(&mut self, name: String) {
        let bed = &self.bed;
        let first = bed.homes.first().map(|home| home.stats());
        let mut wrong = None;
        for home in &bed.homes {
            if let Err(error) = home.audit() {
                let message = format!("audit of the {} home: {error}", home.name());
                wrong = wrong.or(Some(Halt::new(FailureKind::Broken, message)));
            } else if Some(home.stats()) != first {
                let message = format!("counters at the end: {:?} and {:?}", first, home.stats());
                wrong = wrong.or(Some(Halt::new(FailureKind::HomesDiffer, message)));
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

    /// Whether the case did anything.
    pub fn is_used(&self) -> bool {
        self.bed.checks + self.bed.operations > 0 || self.failure.is_some()
    }

    /// All that is known at a failure.
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

    /// Those that wait, by rank.
    pub fn items(&self) -> Vec<Rc<Item>> {
        let mut items: Vec<Rc<Item>> = self.bed.waiting.values().cloned().collect();
        items.sort_by_key(|item| (item.rank.get(), item.serial));
        items
    }

    pub fn waiting(&self, most: usize) -> Vec<WaitingPacket> {
        let row = |item: &Rc<Item>| WaitingPacket {
            packet: item.to_string(),
            handle: item.handle.get(),
            rank: item.rank.get(),
            age_ns: self.bed.now - item.came,
            bytes: item.meta.bytes,
            node: self.node_name(item.node.get()),
            flow: describe::flow(&item.meta),
        };
        self.items().iter().take(most).map(row).collect()
    }

    pub fn waiting_packets(&self) -> usize {
        self.bed.waiting.len()
    }

    pub fn node_name(&self, node: u32) -> String {
        let tree = self.bed.tree.as_ref();
        tree.map_or_else(|| node.to_string(), |tree| tree.names.node(node).to_owned())
    }

    pub fn home(&mut self) -> Result<&dyn Home, Halt> {
        if self.bed.homes.is_empty() {
            self.start()?;
        }
        let home = self.bed.homes.first();
        home.map(|home| &**home)
            .ok_or_else(|| Halt::usage("there is no home to run in"))
    }

    pub fn print(&mut self, line: &str) {
        let room = MAX_PRINTED_BYTES.saturating_sub(self.printed.len() + 1);
        if self.cut_bytes > 0 || line.len() > room {
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

    /// A node's floor and ceiling once these operations are done; None without a tree.
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

    /// A handle that nobody has.
    fn handle(&mut self, handles: u32) -> Result<u32, Halt> {
        if let Some(handle) = self.free.pop() {
            return Ok(handle);
        }
        if self.fresh == handles {
            return Err(Halt::usage(format!(
                "all {handles} handles of the scheduler wait; dequeue first, or raise its limit"
            )));
        }
        self.fresh += 1;
        Ok(self.fresh)
    }

    /// Notes what an outcome says. `new` is the packet that the operation brought.
    fn believe(&mut self, outcome: &Outcome, new: Option<&Rc<Item>>) -> Result<(), Halt> {
        let new = new.filter(|item| item.handle.get() == outcome.handle);
        match (outcome.kind, new) {
            (OutcomeKind::Queued, Some(item)) => {
                item.rank.set(outcome.rank);
                item.node.set(outcome.node);
                Ok(())
            }
            (OutcomeKind::Queued, None) => Err(broken(format!(
                "handle {} is queued, but did not come",
                outcome.handle
            ))),
            (OutcomeKind::Dropped, Some(item)) if outcome.drop() == Some(Drop::BadHandle) => {
                item.fate.set(Fate::Dropped(Drop::BadHandle));
                *self.counts.dropped.entry(Drop::BadHandle).or_default() += 1;
                match self.waiting.get(&outcome.handle) {
                    Some(holder) if Rc::ptr_eq(holder, item) => self.give_back(outcome).map(drop),
                    _ => Ok(()),
                }
            }
            (OutcomeKind::Dropped | OutcomeKind::Sent, _) => self.leave(outcome),
            (OutcomeKind::Nothing | OutcomeKind::Done | OutcomeKind::Failed, _) => Ok(()),
        }
    }

    fn leave(&mut self, outcome: &Outcome) -> Result<(), Halt> {
        let item = self.give_back(outcome)?;
        item.left.set(self.now);
        item.node.set(outcome.node);
        let here = self.now - item.came;
        item.sojourn.set(here);
        if let Some(reason) = outcome.drop() {
            item.fate.set(Fate::Dropped(reason));
            *self.counts.dropped.entry(reason).or_default() += 1;
        } else {
            item.fate.set(Fate::Sent);
            item.rank.set(outcome.rank);
            item.marked.set(outcome.marked());
            self.counts.sent += 1;
            self.counts.marked += u64::from(outcome.marked());
            // In the queue: what an impairment held came to it later than here.
            let is_held = |tree: &Rc<Tree>| !tree.plan.impairments.is_empty();
            let is_so = match self.tree.as_ref().is_some_and(is_held) {
                true => outcome.at <= here,
                false => outcome.at == here,
            };
            if !is_so {
                return Err(broken(format!(
                    "{item} waited {here} ns, and the scheduler says {}",
                    outcome.at
                )));
            }
            item.sojourn.set(outcome.at);
        }
        self.left.push(item);
        Ok(())
    }

    fn give_back(&mut self, outcome: &Outcome) -> Result<Rc<Item>, Halt> {
        let handle = outcome.handle;
        let item = self.waiting.remove(&handle).ok_or_else(|| {
            broken(format!(
                "handle {handle} comes back ({}), and does not wait",
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
