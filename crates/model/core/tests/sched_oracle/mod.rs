//! The oracle of the scheduler, computed slowly: ordered maps, recursion, and a copy of everything that
//! is put back where a push is refused.
//!
//! Written from `bpf/core/sched/abi.h`, `policy.h` and the heads of `tree.h`, `leaf.h` and `sched.h`.
//! Flows and hosts never share an entry here: tests have tables with capacity for all. Queues are heaps
//! and bands; the approximate ones and the windows have a separate oracle (`pifo_oracle`).

#![allow(dead_code)] // every test binary uses another part of it

pub mod case;
pub mod corruption;
pub mod framing;
pub mod impair;
pub mod impairments;
pub mod leaf;
#[path = "../limit_oracle/mod.rs"]
pub mod limits;
pub mod log;
pub mod policy;
pub mod queue;
pub mod shipped;
pub mod tree;
pub mod trees;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use fairpath_core::sched::{
    COST_ONE, Function, LEVELS, Meta, NEVER, NodeConfig, NodeLimits, NodeStats, Op, OpKind,
    Outcome, OutcomeKind, Over, Overflow, Plan, Policy, SPLIT, SchedStats, Share,
};

use impair::Impairment;
use limits::Oracle as Limits;
use policy::{Call, State};
use queue::{Item, Queue, Rules};

/// Reasons, by the numbers of `enum fp_drop`.
pub mod reason {
    pub const LIMIT: u8 = 16;
    pub const NODE_LIMIT: u8 = 17;
    pub const PUSHED_OUT: u8 = 18;
    pub const FATTEST: u8 = 19;
    pub const REFUSED: u8 = 20;
    pub const POLICY: u8 = 21;
    pub const HORIZON: u8 = 22;
    pub const NO_LEAF: u8 = 23;
    pub const BAD_HANDLE: u8 = 24;
    pub const NO_REFERENCE: u8 = 25;
    pub const REMOVED: u8 = 27;
    pub const IMPAIRED: u8 = 29;
    pub const TOO_OLD: u8 = 30;
    pub const ACK_FILTERED: u8 = 31;
}

/// `FP_DEQUEUE_TRIES`.
const TRIES: u32 = 1024;
/// `FP_FAT_BATCH`.
const FAT_BATCH: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    meta: Meta,
    enqueued: u64,
    rank: u64,
    leaf: u32,
    /// The key of its flow; `None` if its leaf has no flows.
    flow: Option<(u32, u32)>,
    /// Its place among all that came.
    order: u64,
    /// Bytes that the line is charged beyond its own.
    more: u32,
    flags: u8,
    bit: u32,
}

#[derive(Clone, Debug)]
struct Flow {
    /// Of a leaf over flows: its packets, in order.
    queue: VecDeque<u32>,
    packets: u32,
    bytes: u32,
    cost: u32,
    /// While the shaper holds it.
    rank: u64,
    /// Source and destination that count it as waiting.
    hosts: Option<[[u8; 16]; 2]>,
    state: [u64; 8],
}

#[derive(Clone, Debug)]
struct Node {
    class: [u64; 16],
    child: [u64; 8],
    rank: u64,
    due: u64,
    stats: NodeStats,
}

#[derive(Clone, Copy, Debug)]
struct Reference {
    child: u32,
    leaf: u32,
    rank: u64,
}

/// Copied when it is written to: a copy of the world costs what changes.
#[derive(Clone, Debug)]
struct Shared<T>(Rc<T>);

impl<T> Shared<T> {
    fn new(value: T) -> Shared<T> {
        Shared(Rc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

/// The state that a refused push restores: all of it.
#[derive(Clone, Debug)]
struct World {
    packets: Shared<BTreeMap<u32, Packet>>,
    flows: Shared<BTreeMap<(u32, u32), Shared<Flow>>>,
    nodes: Vec<Shared<Node>>,
    references: Shared<BTreeMap<u32, Reference>>,
    queues: Vec<Shared<Queue>>,
    /// Children by the time that they are due, of each node.
    due: Vec<Shared<Queue>>,
    shaper: Shared<BTreeMap<(u64, u64), Item>>,
    /// The last rank of each flow's entry, an input of policies.
    ranks: Shared<BTreeMap<Item, u64>>,
    fat: Shared<Queue>,
    global: Shared<[[u64; 8]; 32]>,
}

#[derive(Clone, Debug)]
pub struct Oracle {
    plan: Plan,
    policies: Vec<Policy>,
    /// Some queue may refuse an entry; else there is nothing to put back.
    may_refuse: bool,
    world: World,
    impairments: Vec<Impairment>,
    /// Packets that were not released yet, by time and arrival.
    delay_queue: BTreeMap<(u64, u64), u32>,
    now: u64,
    seq: u64,
    next_reference: u32,
    call: Call,
    /// Limits of nodes, if the plan has them.
    share: Share,
    limits: Limits,
    op: u32,
    reported: Vec<Outcome>,
    stats: SchedStats,
}

fn rules(plan: &Plan, id: u32) -> Rules {
    let node = &plan.nodes[id as usize - 1];
    let bands = (node.queue == 2).then_some((node.queue_buckets.into(), node.queue_beyond == 1));
    let capacity = match node.queue_capacity {
        0 => usize::MAX,
        capacity => capacity as usize,
    };
    Rules {
        capacity,
        push_out: node.queue_full == 1,
        bands,
    }
}

const ENDLESS: Rules = Rules {
    capacity: usize::MAX,
    push_out: false,
    bands: None,
};

impl Oracle {
    /// `policies`: of each node.
    pub fn new(plan: &Plan, policies: Vec<Policy>) -> Oracle {
        let count = plan.nodes.len() as u32;
        let node = |config: &NodeConfig| {
            let mut class = [0; 16];
            class[..8].copy_from_slice(&config.params);
            Shared::new(Node {
                class,
                child: [0; 8],
                rank: 0,
                due: NEVER,
                stats: NodeStats::default(),
            })
        };
        let queue = |id| Shared::new(Queue::new(rules(plan, id)));
        let world = World {
            packets: Shared::new(BTreeMap::new()),
            flows: Shared::new(BTreeMap::new()),
            nodes: plan.nodes.iter().map(node).collect(),
            references: Shared::new(BTreeMap::new()),
            queues: (1..=count).map(queue).collect(),
            due: (1..=count)
                .map(|_| Shared::new(Queue::new(ENDLESS)))
                .collect(),
            shaper: Shared::new(BTreeMap::new()),
            ranks: Shared::new(BTreeMap::new()),
            fat: Shared::new(Queue::new(ENDLESS)),
            global: Shared::new([[0; 8]; 32]),
        };
        let refuses = |node: &NodeConfig| {
            node.queue_capacity > 0 || node.queue_beyond > 0 || node.over == Over::References
        };
        let share = match plan.config.limited {
            0 => Share::default(),
            _ => Share::of(plan, &policies).unwrap(),
        };
        Oracle {
            plan: plan.clone(),
            policies,
            may_refuse: plan.config.horizon > 0 || plan.nodes.iter().any(refuses),
            world,
            impairments: plan.impairments.iter().map(Impairment::new).collect(),
            delay_queue: BTreeMap::new(),
            now: 0,
            seq: 0,
            next_reference: 0,
            call: Call::default(),
            limits: Limits::new(1, &share.limits),
            share,
            op: 0,
            reported: vec![],
            stats: SchedStats::default(),
        }
    }

    pub fn stats(&self) -> SchedStats {
        self.stats
    }

    pub fn node_stats(&self, node: u32) -> NodeStats {
        self.world.nodes[node as usize - 1].stats
    }

    /// Runs one operation; returns its outcomes.
    pub fn run(&mut self, index: u32, op: &Op) -> Vec<Outcome> {
        self.op = index;
        self.now = self.now.max(op.now);
        self.serve();
        self.admit_due();
        self.wake();
        match op.kind {
            OpKind::Enqueue => self.enqueue(op),
            OpKind::Dequeue => self.dequeue(op.count, op.value),
            OpKind::Param => {
                let known = self.has_node(op.node) && op.count < 8;
                if known {
                    self.node_mut(op.node).class[op.count as usize] = op.value;
                }
                self.answer(known);
            }
            OpKind::Weight => {
                let known = self.has_node(op.node) && self.supports_flows(op.node) && op.value > 0;
                if known {
                    self.flow_mut((op.node, op.handle)).cost = op.value as u32;
                }
                self.answer(known);
            }
            OpKind::Remove => self.remove(op.handle),
            OpKind::Impair => {
                let known = self.set_impairment(op);
                self.answer(known);
            }
            OpKind::Node => {
                let known = self.has_node(op.node) && self.set_node(op);
                self.answer(known);
            }
        }
        std::mem::take(&mut self.reported)
    }

    fn set_node(&mut self, op: &Op) -> bool {
        let rates = |config: &NodeConfig| (config.floor, config.ceil);
        let before = rates(self.config(op.node));
        let known = self.set_config(op);
        if rates(self.config(op.node)) != before {
            self.rank_again(op.node);
        }
        known
    }

    fn set_config(&mut self, op: &Op) -> bool {
        let config = &mut self.plan.nodes[op.node as usize - 1];
        match (op.count, u32::try_from(op.value)) {
            (0, Ok(cost)) if cost > 0 => config.cost = cost,
            (1, _) => config.floor = op.value,
            (2, _) => config.ceil = op.value,
            (3, _) => config.burst = op.value,
            _ => return false,
        }
        true
    }

    fn answer(&mut self, known: bool) {
        let kind = if known {
            OutcomeKind::Done
        } else {
            OutcomeKind::Failed
        };
        self.report(kind, 0, 0, self.now);
    }

    fn has_node(&self, id: u32) -> bool {
        (1..=self.plan.nodes.len() as u32).contains(&id)
    }

    fn report(&mut self, kind: OutcomeKind, handle: u32, reason: u8, at: u64) {
        let packet = self.world.packets.get(&handle).copied().unwrap_or_default();
        self.reported.push(Outcome {
            rank: packet.rank,
            at,
            op: self.op,
            handle,
            node: packet.leaf,
            kind,
            reason,
            ..Outcome::default()
        });
    }

    fn config(&self, id: u32) -> &NodeConfig {
        &self.plan.nodes[id as usize - 1]
    }

    fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.world.nodes[id as usize - 1]
    }

    fn queue(&mut self, id: u32) -> &mut Queue {
        &mut self.world.queues[id as usize - 1]
    }

    /// The parent, if it is over `over`.
    fn parent(&self, id: u32, over: Over) -> Option<u32> {
        let parent = self.config(id).parent;
        (parent != 0 && self.config(parent).over == over).then_some(parent)
    }

    /// Entries that may leave, eligible or not.
    fn waiting(&self, id: u32) -> usize {
        match self.world.queues[id as usize - 1].len() {
            0 if self.wants(id, Policy::WANTS_ELIGIBLE) => self.world.due[id as usize - 1].len(),
            count => count,
        }
    }

    fn has(&self, id: u32, function: Function) -> bool {
        self.policies[id as usize - 1].functions.contains(&function)
    }

    fn wants(&self, id: u32, bit: u32) -> bool {
        self.policies[id as usize - 1].wants & bit != 0
    }

    fn supports_flows(&self, leaf: u32) -> bool {
        let states = self.policies[leaf as usize - 1].state_bytes[0] > 0;
        match self.config(leaf).over {
            Over::Flows => true,
            Over::Packets => states,
            _ => false,
        }
    }

    fn flow_mut(&mut self, key: (u32, u32)) -> &mut Flow {
        self.world.flows.entry(key).or_insert_with(|| {
            Shared::new(Flow {
                queue: VecDeque::new(),
                packets: 0,
                bytes: 0,
                cost: COST_ONE,
                rank: 0,
                hosts: None,
                state: [0; 8],
            })
        })
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// In a queue or with the shaper.
    fn holds(&self, item: Item) -> bool {
        let shaped = self.world.shaper.values().any(|held| *held == item);
        let mut queues = self.world.queues.iter().chain(&self.world.due);
        shaped || queues.any(|queue| queue.holds(item))
    }

    fn shape(&mut self, item: Item, at: u64) {
        let seq = self.next_seq();
        self.world.shaper.insert((at, seq), item);
        self.world.ranks.insert(item, at);
    }

    fn unshape(&mut self, item: Item) {
        self.world.shaper.retain(|_, held| *held != item);
    }

    /// Calls the policy of `node` with `self.call`, for a packet and the state of `about`.
    fn query(&mut self, node: u32, function: Function, meta: &Meta, about: Item) -> Option<u64> {
        let policy = &self.policies[node as usize - 1];
        let mut nobody = [0; 8];
        let mut child = match about {
            Item::Node(id) => self.world.nodes[id as usize - 1].child,
            _ => [0; 8],
        };
        let flow = match about {
            Item::Flow(leaf, hash) => &mut self.world.flows.get_mut(&(leaf, hash)).unwrap().state,
            Item::Node(_) => &mut child,
            _ => &mut nobody,
        };
        let state = State {
            flow,
            class: &mut self.world.nodes[node as usize - 1].class,
            global: &mut self.world.global[policy.id as usize],
        };
        let answer = policy::query(policy, function, meta, state, &mut self.call);
        if let Item::Node(id) = about {
            self.world.nodes[id as usize - 1].child = child;
        }
        answer
    }

    /// The same, with the answers' fields as they are before a call.
    fn query_again(
        &mut self,
        node: u32,
        function: Function,
        meta: &Meta,
        about: Item,
    ) -> Option<u64> {
        (self.call.due, self.call.verdict) = (NEVER, 0);
        self.query(node, function, meta, about)
    }

    fn send_time(&mut self, node: u32, meta: &Meta, about: Item) -> u64 {
        let kept = (self.call.due, self.call.verdict);
        let at = self
            .query(node, Function::SendTime, meta, about)
            .unwrap_or(0);
        assert_eq!(
            kept,
            (self.call.due, self.call.verdict),
            "SEND_TIME answers only times"
        );
        at
    }

    /// The common input of calls; `leaf` is 0 for a woken child whose packet is unknown.
    fn begin_call(&mut self, node: u32, leaf: u32) {
        let leaf = match leaf {
            0 => NodeStats::default(),
            leaf => self.node_mut(leaf).stats,
        };
        self.call = Call {
            now: self.now,
            over: self.config(node).over as u32,
            queue_packets: leaf.packets,
            queue_bytes: leaf.bytes,
            waiting: self.waiting(node) as u32,
            packets: leaf.packets,
            bytes: leaf.bytes,
            hosts: 1,
            due: self.call.due,
            verdict: self.call.verdict,
            ..Call::default()
        };
    }

    fn about_child(&mut self, child: u32) -> Item {
        let config = *self.config(child);
        let limits = self.limits_of(child);
        self.call.floor = limits.floor.map_or(config.floor, |_| 0);
        self.call.ceil = limits.ceil.map_or(config.ceil, |_| 0);
        (self.call.burst, self.call.cost) = (config.burst, config.cost);
        Item::Node(child)
    }

    fn limits_of(&self, child: u32) -> NodeLimits {
        let limits = self.share.nodes.get(child as usize - 1).copied();
        limits.unwrap_or_default()
    }

    /// The child sent bytes: the time of its shared ceiling, and the due time of its shared floor.
    fn pay(&mut self, child: u32, bytes: u32, next: u32, by_floor: bool) -> u64 {
        let (limits, now) = (self.limits_of(child), self.now);
        let ceil = limits
            .ceil
            .map(|limit| self.limits.pay(limit, 0, bytes, next, now));
        if let Some(limit) = limits.floor {
            let counts = by_floor || self.limits.tokens(limit, 0) > 0;
            let bytes = if counts { bytes } else { 0 };
            let due = self.limits.pay(limit, 0, bytes, next, now);
            self.call.due = due.err().unwrap_or(now).max(now);
        }
        ceil.and_then(Result::err).unwrap_or(0)
    }

    /// Nothing waits below the child: other schedulers may have its grants.
    fn return_grants(&mut self, child: u32) {
        let (limits, now) = (self.limits_of(child), self.now);
        for limit in [limits.ceil, limits.floor].into_iter().flatten() {
            let _ = self.limits.pay(limit, 0, 0, 0, now);
        }
    }

    fn about_flow(&mut self, leaf: u32, flow: Option<(u32, u32)>) -> Item {
        let config = *self.config(leaf);
        (self.call.floor, self.call.ceil, self.call.burst) =
            (config.floor, config.ceil, config.burst);
        let Some(key) = flow else {
            (self.call.packets, self.call.bytes, self.call.cost) = (0, 0, COST_ONE);
            return Item::Packet(0);
        };
        let flow = self.flow_mut(key);
        let (packets, bytes, cost) = (flow.packets, flow.bytes, flow.cost);
        (self.call.packets, self.call.bytes, self.call.cost) = (packets, bytes, cost);
        self.call.hosts = self.busier_host(key);
        Item::Flow(key.0, key.1)
    }

    /// Waiting flows of the busier of the flow's two hosts; at least 1.
    fn busier_host(&self, key: (u32, u32)) -> u32 {
        let Some(hosts) = self.world.flows[&key].hosts else {
            return 1;
        };
        let flows = self.world.flows.iter().filter(|flow| flow.0.0 == key.0);
        let counted: Vec<_> = flows.filter_map(|flow| flow.1.hosts).collect();
        let count = |side: usize| counted.iter().filter(|of| of[side] == hosts[side]).count();
        count(0).max(count(1)) as u32
    }

    /// The leaf for a packet, if it has one.
    fn leaf_of(&self, meta: &Meta) -> Option<u32> {
        let classes = &self.plan.class_table;
        let entry = classes.get(meta.class_id as usize).unwrap_or(&classes[0]);
        let mut node = *entry;
        for _ in 0..LEVELS {
            if !self.has_node(node) || self.config(node).split == 0 {
                break;
            }
            let first = self.config(node).split as usize - 1;
            node = self.plan.splits[first + meta.dscp as usize % SPLIT];
        }
        let leaf = self.has_node(node) && self.config(node).over as u32 <= Over::Flows as u32;
        leaf.then_some(node)
    }

    fn waiting_packets(&self) -> (u32, u32) {
        let stats = self.world.nodes.iter().map(|node| &node.stats);
        stats.fold((0, 0), |sum, node| {
            (sum.0 + node.packets, sum.1 + node.bytes)
        })
    }

    fn is_full(&self, bytes: u32) -> bool {
        let (packets, waiting) = self.waiting_packets();
        let config = &self.plan.config;
        let too_many_bytes = config.limit_bytes > 0 && waiting + bytes > config.limit_bytes;
        packets >= config.limit_packets || too_many_bytes
    }

    fn drop_packet(&mut self, handle: u32, reason: u8) {
        self.stats.dropped[reason as usize] += 1;
        let packet = self.world.packets[&handle];
        if packet.leaf > 0 {
            self.node_mut(packet.leaf).stats.dropped += 1;
        }
        self.report(
            OutcomeKind::Dropped,
            handle,
            reason,
            self.now.saturating_sub(packet.enqueued),
        );
        self.world.packets.remove(&handle);
    }

    fn enqueue(&mut self, op: &Op) {
        self.stats.enqueued += 1;
        let known = (1..=self.plan.config.packets).contains(&op.handle);
        if !known || self.world.packets.contains_key(&op.handle) {
            self.stats.dropped[reason::BAD_HANDLE as usize] += 1;
            return self.report(OutcomeKind::Dropped, 0, reason::BAD_HANDLE, 0);
        }
        let leaf = self.leaf_of(&op.meta);
        let packet = Packet {
            meta: op.meta,
            enqueued: self.now,
            leaf: leaf.unwrap_or(0),
            order: self.stats.enqueued,
            ..Packet::default()
        };
        self.world.packets.insert(op.handle, packet);
        let Some(leaf) = leaf else {
            return self.drop_packet(op.handle, reason::NO_LEAF);
        };
        let impairment = self.config(leaf).impair as usize;
        if impairment > 0 && !self.impair(impairment - 1, op.handle) {
            return;
        }
        if let Some(at) = self.place(op.handle) {
            self.stats.queued += 1;
            self.report(OutcomeKind::Queued, op.handle, 0, at);
        }
    }

    /// The packet comes to its leaf; when it may leave, if it was not dropped.
    fn place(&mut self, handle: u32) -> Option<u64> {
        let bytes = self.world.packets[&handle].meta.bytes;
        if self.is_full(bytes) {
            if self.plan.config.overflow == Overflow::Fattest {
                self.slim();
            }
            if self.is_full(bytes) {
                self.drop_packet(handle, reason::LIMIT);
                return None;
            }
        }
        let admitted = self.admit(handle);
        admitted
            .map_err(|reason| self.drop_packet(handle, reason))
            .ok()
    }

    /// A full scheduler drops half of the fattest flow, from its head.
    fn slim(&mut self) {
        let Some((Item::Flow(leaf, hash), _)) = self.world.fat.first() else {
            return;
        };
        let goal = self.flow_mut((leaf, hash)).bytes / 2;
        for _ in 0..FAT_BATCH {
            let flow = self.flow_mut((leaf, hash));
            let Some(head) = flow.queue.front().copied() else {
                break;
            };
            self.take_out(head, reason::FATTEST);
            if self.flow_mut((leaf, hash)).bytes <= goal {
                break;
            }
        }
        self.settle(leaf);
    }

    fn remove(&mut self, handle: u32) {
        if self.leave_delay_queue(handle) {
            return self.drop_packet(handle, reason::REMOVED);
        }
        let leaf = self
            .world
            .packets
            .get(&handle)
            .map_or(0, |packet| packet.leaf);
        if leaf == 0 || self.parent(leaf, Over::References).is_some() {
            return self.report(OutcomeKind::Failed, 0, 0, self.now);
        }
        self.take_out(handle, reason::REMOVED);
        self.settle(leaf);
    }

    fn dequeue(&mut self, count: u32, bytes: u64) {
        let (before, mut wanted) = (self.stats.sent_bytes, count);
        let mut tries = 0;
        while tries < TRIES {
            if wanted == 0 || (bytes > 0 && self.stats.sent_bytes - before >= bytes) {
                return;
            }
            if self.waiting(1) == 0 || !self.is_served() {
                break;
            }
            wanted -= u32::from(self.try_one());
            tries += 1;
        }
        if tries == TRIES {
            self.stats.tries_spent += 1;
        }
        let next = self.world.shaper.keys().next().map_or(NEVER, |key| key.0);
        let delay_queue = self.delay_queue.keys().next().map_or(NEVER, |key| key.0);
        let waits = match self.waiting(1) {
            0 => NEVER,
            _ if self.is_served() => self.now,
            _ => self.next_opportunity(),
        };
        let at = next.min(delay_queue).min(waits);
        self.report(OutcomeKind::Nothing, 0, 0, at);
    }

    /// Everything whose time has come goes back to its queue.
    fn wake(&mut self) {
        while let Some((key, item)) = self.world.shaper.first_key_value() {
            let (key, item) = (*key, *item);
            if key.0 > self.now {
                break;
            }
            self.world.shaper.remove(&key);
            self.stats.woken += 1;
            match item {
                Item::Packet(handle) => self.wake_packet(handle),
                Item::Flow(leaf, hash) => self.wake_flow((leaf, hash)),
                Item::Node(child) if self.waiting(child) > 0 => {
                    self.show(child);
                    let parent = self.config(child).parent;
                    self.activate(parent, 0, &Meta::default());
                }
                Item::Node(child) => self.return_grants(child),
                Item::Reference(id) => self.wake_reference(id),
            }
        }
    }
}
