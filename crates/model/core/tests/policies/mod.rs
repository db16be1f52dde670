//! Common parts of the tests of policies: plans by policies' names, and a runtime that is watched.
//!
//! Everything is generic over [`SchedRuntime`], so that the same operations run natively and in the kernel.

#![allow(dead_code)] // every test binary uses another part of it

use fairpath_core::sched::{
    COST_ONE, Meta, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, Policy, SchedConfig,
    SchedRuntime, Scheduler, policies,
};

/// `FP_HEAP`: the queue of policies that want none in particular.
pub const HEAP: u32 = 1;

/// The shipped policy of this name.
pub fn policy(name: &str) -> &'static Policy {
    let found = policies().iter().find(|policy| policy.name == name);
    found.unwrap_or_else(|| panic!("no policy {name}"))
}

/// A node with the policy's own queue and standard parameters, of weight 1.
pub fn node(parent: u32, name: &str, over: Over) -> NodeConfig {
    let policy = policy(name);
    let [kind, buckets, shift, full] = policy.queue;
    NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue: if kind == 0 { HEAP } else { kind },
        queue_buckets: buckets,
        queue_shift: shift,
        queue_full: full,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    }
}

/// The node with a parameter set, in the parameter's unit.
pub fn with_param(mut node: NodeConfig, policy_name: &str, param: &str, value: u64) -> NodeConfig {
    let found = policy(policy_name).param(param);
    let (index, param) = found.unwrap_or_else(|| panic!("{policy_name} has no {param}"));
    node.params[index] = param.encode(value);
    node
}

/// The node as a child of this weight.
pub fn weighing(mut node: NodeConfig, weight: u32) -> NodeConfig {
    node.cost = COST_ONE / weight;
    node
}

/// Capacity for 1000 packets and 256 flows; classes as in the table.
pub fn plan(nodes: Vec<NodeConfig>, class_table: Vec<u32>) -> Plan {
    let config = SchedConfig {
        packets: 1000,
        limit_packets: 1000,
        flows: 256,
        references: 4000,
        ..SchedConfig::default()
    };
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

/// A packet of a flow, of class 0.
pub fn packet(flow_hash: u32, bytes: u32) -> Meta {
    Meta {
        bytes,
        flow_hash,
        ..Meta::default()
    }
}

/// A home whose every packet is followed: none may be lost, doubled or left uncounted.
pub struct Watched<H: SchedRuntime> {
    runtime: H,
    waiting: Vec<bool>,
    arrived: u64,
    left: u64,
    now: u64,
    audited: bool,
}

impl Watched<Scheduler> {
    /// The plan, natively.
    pub fn natively(plan: &Plan) -> Watched<Scheduler> {
        Watched::new(Scheduler::new(plan).unwrap())
    }
}

impl<H: SchedRuntime> Watched<H> {
    pub fn new(runtime: H) -> Watched<H> {
        Watched {
            runtime,
            waiting: vec![],
            arrived: 0,
            left: 0,
            now: 0,
            audited: true,
        }
    }

    /// For long runs: handles are followed, but the runtime is not looked through each time.
    pub fn unaudited(mut self) -> Watched<H> {
        self.audited = false;
        self
    }

    /// Runs operations, audits, and keeps account of every handle.
    pub fn run(&mut self, ops: &[Op]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        self.runtime.run(ops, &mut outcomes).unwrap();
        if self.audited {
            self.runtime.audit().unwrap();
        }
        for outcome in &outcomes {
            self.account(outcome);
        }
        assert_eq!(
            self.runtime.stats().queued,
            self.arrived,
            "packets are lost"
        );
        outcomes
    }

    fn account(&mut self, outcome: &Outcome) {
        let handle = outcome.handle as usize;
        if self.waiting.len() <= handle {
            self.waiting.resize(handle + 1, false);
        }
        match outcome.kind {
            OutcomeKind::Queued => {
                assert!(!self.waiting[handle], "{handle} waits twice");
                self.waiting[handle] = true;
                self.arrived += 1;
            }
            OutcomeKind::Sent | OutcomeKind::Dropped if self.waiting[handle] => {
                self.waiting[handle] = false;
                self.left += 1;
            }
            OutcomeKind::Sent => panic!("{handle} is sent, but did not wait"),
            _ => {}
        }
    }

    /// Time for what follows.
    pub fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    /// A packet comes; whether it waits now.
    pub fn enqueue(&mut self, handle: u32, meta: Meta) -> bool {
        let outcomes = self.run(&[Op::enqueue(self.now, handle, meta)]);
        let last = outcomes.last().unwrap();
        last.handle == handle && last.kind == OutcomeKind::Queued
    }

    /// One packet leaves, if one may.
    pub fn dequeue(&mut self) -> Option<u32> {
        self.dequeue_many(1).first().copied()
    }

    /// At most this number of packets leave, in this order.
    pub fn dequeue_many(&mut self, count: u32) -> Vec<u32> {
        let outcomes = self.run(&[Op::dequeue(self.now, count)]);
        let sent = outcomes
            .iter()
            .filter(|outcome| outcome.kind == OutcomeKind::Sent);
        sent.map(|outcome| outcome.handle).collect()
    }

    /// Packets in the queue, by the reported outcomes.
    pub fn waiting(&self) -> u64 {
        self.arrived - self.left
    }

    /// The home, to read its counters.
    pub fn runtime(&mut self) -> &mut H {
        &mut self.runtime
    }
}
