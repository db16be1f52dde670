//! The description of a run: the plan, and the names of its policies.
//!
//! The numbers of policies differ between builds, so a log has their names and parameters.
//! [`Run::resolve`] returns the plan with the numbers of this build. A plan from a log is always
//! valid: parents precede children, and tables refer to existing nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use fairpath_core::sched::{
    IMPAIR_WORDS, ImpairConfig, LEVELS, NodeConfig, Over, Overflow, PARAMS, Plan, Policy, SPLIT,
    SchedConfig,
};

use super::code::{self, Bad, Bytes};
use crate::tree::Tree;

/// Maximum nodes of a plan in a log.
const MAX_NODES: usize = 1 << 20;
/// Maximum entries of a table of a plan in a log.
const MAX_TABLE: usize = 1 << 24;

/// A policy in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyName {
    /// The number in the recorded plan.
    pub id: u32,
    /// The name in trees and on the command line.
    pub name: String,
    /// The names of its parameters in order.
    pub params: Vec<String>,
}

impl From<&Policy> for PolicyName {
    fn from(policy: &Policy) -> PolicyName {
        let params = policy
            .params
            .iter()
            .map(|param| param.name.clone())
            .collect();
        PolicyName {
            id: policy.id,
            name: policy.name.clone(),
            params,
        }
    }
}

/// A scheduler with the operations that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The runtime that recorded it: "native" or "kernel".
    pub runtime: String,
    /// The program that recorded it, with its version.
    pub program: String,
    /// True if operations carry their outcomes.
    pub outcomes: bool,
    /// The names of the nodes, beginning with the root. Names can be missing at the end.
    pub nodes: Vec<String>,
    /// The policies of the plan.
    pub policies: Vec<PolicyName>,
    /// The plan as recorded, with the policy ids of the recording build.
    pub plan: Plan,
}

impl Run {
    /// The description of a scheduler of this tree in `runtime`, with outcomes.
    pub fn of(runtime: &str, tree: &Tree) -> Run {
        Run {
            runtime: runtime.to_owned(),
            program: concat!("fairpath ", env!("CARGO_PKG_VERSION")).to_owned(),
            outcomes: true,
            nodes: tree.names.nodes().to_vec(),
            policies: Run::name_policies(&tree.plan, tree.names.policies()),
            plan: tree.plan.clone(),
        }
    }

    /// The names of the policies of `plan`, from `known`.
    pub fn name_policies(plan: &Plan, known: &[Policy]) -> Vec<PolicyName> {
        let used = |policy: &&Policy| plan.nodes.iter().any(|node| node.policy == policy.id);
        known.iter().filter(used).map(PolicyName::from).collect()
    }

    /// The plan with the ids of the `known` policies of this build. O((nodes + policies) log policies).
    ///
    /// # Errors
    /// A policy is missing or has other parameters, as a message with the remedy.
    pub fn resolve(&self, known: &[Policy]) -> Result<Plan, String> {
        let named: BTreeMap<u32, &PolicyName> = self
            .policies
            .iter()
            .map(|named| (named.id, named))
            .collect();
        let mut resolved = BTreeMap::new();
        let mut plan = self.plan.clone();
        for node in &mut plan.nodes {
            node.policy = match resolved.entry(node.policy) {
                Entry::Occupied(id) => *id.get(),
                Entry::Vacant(entry) => {
                    let named = named.get(entry.key());
                    let named =
                        named.ok_or_else(|| format!("policy {} has no name", entry.key()))?;
                    *entry.insert(named.resolve(known)?)
                }
            };
        }
        Ok(plan)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let to = &mut Vec::new();
        code::text(to, &self.runtime);
        code::text(to, &self.program);
        code::number(to, self.outcomes.into());
        code::number(to, self.nodes.len() as u64);
        for name in &self.nodes {
            code::text(to, name);
        }
        code::number(to, self.policies.len() as u64);
        for policy in &self.policies {
            code::number(to, policy.id.into());
            code::text(to, &policy.name);
            code::number(to, policy.params.len() as u64);
            for param in &policy.params {
                code::text(to, param);
            }
        }
        encode_plan(to, &self.plan);
        std::mem::take(to)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Run, Bad> {
        let from = &mut Bytes(bytes);
        let (runtime, program) = (from.text()?, from.text()?);
        let outcomes = match from.number()? {
            0 => false,
            1 => true,
            _ => return Err("this version does not support the flags of the run"),
        };
        let nodes = list(from, MAX_NODES, Bytes::text)?;
        let policies = list(from, MAX_NODES, |from| {
            let (id, name) = (from.small()?, from.text()?);
            let params = list(from, PARAMS, Bytes::text)?;
            Ok(PolicyName { id, name, params })
        })?;
        let plan = decode_plan(from)?;
        if !from.0.is_empty() {
            return Err("the description of the run is longer than its length");
        }
        check(&plan)?;
        Ok(Run {
            runtime,
            program,
            outcomes,
            nodes,
            policies,
            plan,
        })
    }
}

impl PolicyName {
    /// The id of the policy in this build.
    fn resolve(&self, known: &[Policy]) -> Result<u32, String> {
        let here = known.iter().find(|policy| policy.name == self.name);
        let here = here.ok_or_else(|| {
            format!(
                "policy {} is not built in: name the file of a custom policy with --policy-file",
                self.name
            )
        })?;
        let params = PolicyName::from(here).params;
        if params != self.params {
            return Err(format!(
                "policy {} has the parameters ({}) in this build, but ({}) in the log: record \
                 the log again",
                self.name,
                params.join(", "),
                self.params.join(", ")
            ));
        }
        Ok(here.id)
    }
}

/// Reads a counted list. Memory grows with the items read, not with the count in the log.
fn list<'a, T>(
    from: &mut Bytes<'a>,
    most: usize,
    mut item: impl FnMut(&mut Bytes<'a>) -> Result<T, Bad>,
) -> Result<Vec<T>, Bad> {
    let count = from.small()? as usize;
    if count > most {
        return Err("a list is longer than its limit");
    }
    (0..count).map(|_| item(from)).collect()
}

fn config_fields(config: &SchedConfig) -> [u64; 15] {
    [
        config.packets.into(),
        config.limit_packets.into(),
        config.flows.into(),
        config.hosts.into(),
        config.nodes.into(),
        config.classes.into(),
        config.splits.into(),
        config.references.into(),
        u64::from(config.overflow as u32),
        config.limit_bytes.into(),
        config.seed.into(),
        config.horizon,
        config.service.into(),
        config.max_sojourn,
        config.ack_filter.into(),
    ]
}

fn node_fields(node: &NodeConfig) -> [u64; 18] {
    [
        node.parent.into(),
        node.policy.into(),
        u64::from(node.over as u32),
        node.queue.into(),
        node.queue_capacity.into(),
        node.queue_buckets.into(),
        node.queue_shift.into(),
        node.queue_below.into(),
        node.queue_beyond.into(),
        node.queue_full.into(),
        node.limit_packets.into(),
        node.limit_bytes.into(),
        node.split.into(),
        node.cost.into(),
        node.impair.into(),
        node.floor,
        node.ceil,
        node.burst,
    ]
}

fn encode_plan(to: &mut Vec<u8>, plan: &Plan) {
    let config = config_fields(&plan.config).into_iter();
    config.for_each(|field| code::number(to, field));
    code::number(to, plan.nodes.len() as u64);
    for node in &plan.nodes {
        let fields = node_fields(node).into_iter().chain(node.params);
        fields.for_each(|field| code::number(to, field));
    }
    for table in [&plan.class_table, &plan.splits] {
        code::number(to, table.len() as u64);
        table
            .iter()
            .for_each(|entry| code::number(to, (*entry).into()));
    }
    code::number(to, plan.impairments.len() as u64);
    let words = plan.impairments.iter().flat_map(ImpairConfig::to_words);
    words.for_each(|word| code::number(to, word));
    code::number(to, plan.words.len() as u64);
    plan.words.iter().for_each(|word| code::number(to, *word));
}

fn decode_plan(from: &mut Bytes<'_>) -> Result<Plan, Bad> {
    let config = SchedConfig {
        packets: from.small()?,
        limit_packets: from.small()?,
        flows: from.small()?,
        hosts: from.small()?,
        nodes: from.small()?,
        classes: from.small()?,
        splits: from.small()?,
        references: from.small()?,
        overflow: match from.number()? {
            0 => Overflow::Tail,
            1 => Overflow::Fattest,
            _ => return Err("this version does not support the overflow mode of the scheduler"),
        },
        limit_bytes: from.small()?,
        seed: from.small()?,
        horizon: from.number()?,
        service: from.small()?,
        max_sojourn: from.number()?,
        ack_filter: from.small()?,
        ..SchedConfig::default()
    };
    let nodes = list(from, MAX_NODES, decode_node)?;
    let class_table = list(from, MAX_TABLE, Bytes::small)?;
    let splits = list(from, MAX_TABLE, Bytes::small)?;
    let impairments = list(from, MAX_NODES, decode_impairment)?;
    let words = list(from, MAX_TABLE, Bytes::number)?;
    Ok(Plan {
        config,
        nodes,
        class_table,
        splits,
        impairments,
        words,
    })
}

fn decode_impairment(from: &mut Bytes<'_>) -> Result<ImpairConfig, Bad> {
    let mut words = [0; IMPAIR_WORDS];
    for word in &mut words {
        *word = from.number()?;
    }
    Ok(ImpairConfig::from_words(&words))
}

fn decode_node(from: &mut Bytes<'_>) -> Result<NodeConfig, Bad> {
    let mut node = NodeConfig {
        parent: from.small()?,
        policy: from.small()?,
        over: match from.number()? {
            1 => Over::Packets,
            2 => Over::Flows,
            3 => Over::Children,
            4 => Over::References,
            _ => return Err("this version does not support the elements that a node ranks"),
        },
        queue: from.small()?,
        queue_capacity: from.small()?,
        queue_buckets: from.small()?,
        queue_shift: from.small()?,
        queue_below: from.small()?,
        queue_beyond: from.small()?,
        queue_full: from.small()?,
        limit_packets: from.small()?,
        limit_bytes: from.small()?,
        split: from.small()?,
        cost: from.small()?,
        impair: from.small()?,
        zero: 0,
        floor: from.number()?,
        ceil: from.number()?,
        burst: from.number()?,
        params: [0; PARAMS],
    };
    for param in &mut node.params {
        *param = from.number()?;
    }
    Ok(node)
}

/// Checks the references of a plan, which no runtime could use if they were invalid.
fn check(plan: &Plan) -> Result<(), Bad> {
    let mut levels: Vec<usize> = Vec::with_capacity(plan.nodes.len());
    for (index, node) in plan.nodes.iter().enumerate() {
        let parent = node.parent as usize;
        if (parent == 0) != (index == 0) || parent > index {
            return Err("a node precedes its parent");
        }
        let level = if parent == 0 {
            1
        } else {
            levels[parent - 1] + 1
        };
        if level > LEVELS {
            return Err("the tree is deeper than the scheduler allows");
        }
        levels.push(level);
        let split = node.split as usize;
        if split != 0 && plan.splits.len() < split - 1 + SPLIT {
            return Err("the table of a node does not exist");
        }
        if node.impair as usize > plan.impairments.len() {
            return Err("the impairment of a node does not exist");
        }
    }
    if plan.config.service as usize > plan.impairments.len() {
        return Err("the rate trace of the root does not exist");
    }
    if plan.nodes.is_empty() {
        return Err("the tree has no nodes");
    }
    let mut entries = plan.class_table.iter().chain(&plan.splits);
    if entries.any(|entry| *entry as usize > plan.nodes.len()) {
        return Err("a table refers to a node that does not exist");
    }
    Ok(())
}
