//! Builds the plan of the core from a valid shape: policies, modes, queues, rates and parameters.

use fairpath_core::sched::{
    COST_ONE, NodeConfig, Over, Overflow, PARAMS, Plan, Policy, SchedConfig, encode_rate,
};
use toml::Spanned;

use super::draft::{Draft, MAX_PACKETS, NodeDraft, OVERS, in_unit};
use super::problem::{NOWHERE, Problems, did_you_mean};
use super::queue;
use super::shape::Shape;
use fairpath_units::quantity::written;

/// Default limit of packets in a scheduler (RFC 8290 section 5.2.3).
pub const DEFAULT_LIMIT_PACKETS: u64 = 10_240;
/// Default number of flows that it distinguishes, for each leaf: few subscribers have many at once.
const FLOWS_A_LEAF: u64 = 8;
/// Limits of that default: four times the 1,024 of RFC 8290 section 5.2.4, and the memory.
const DEFAULT_FLOWS: [u64; 2] = [4096, 1 << 18];
/// Default number of hosts that it distinguishes.
pub const DEFAULT_HOSTS: u64 = 1024;
/// Handles above the limit, so that a full scheduler can process a new packet.
pub const SPARE_HANDLES: u64 = 64;

/// The policies of the nodes, by draft.
pub(super) type Chosen<'a> = Vec<Option<&'a Policy>>;

/// Finds the policy of each node. O(nodes).
pub(super) fn choose<'a>(
    nodes: &[NodeDraft],
    known: &'a [Policy],
    problems: &mut Problems,
) -> Chosen<'a> {
    let mut choose = |node: &NodeDraft| {
        let Some(name) = &node.policy else {
            problems.error(
                node.place.clone(),
                format!(
                    "node \"{}\": it has no policy: add one of `fairpath sched list`",
                    node.name
                ),
            );
            return None;
        };
        let found = known.iter().find(|policy| policy.name == *name.get_ref());
        if found.is_none() {
            let near = did_you_mean(
                name.get_ref(),
                known.iter().map(|policy| policy.name.as_str()),
            );
            let near = if near.is_empty() {
                "`fairpath sched list` prints all names, and --policy-file FILE.c adds a custom policy"
            } else {
                &near
            };
            let text = format!(
                "node \"{}\": policy \"{}\" does not exist: {near}",
                node.name,
                name.get_ref()
            );
            problems.error(name.span(), text);
        }
        found
    };
    nodes.iter().map(&mut choose).collect()
}

/// The name of the elements of a queue.
pub(super) fn over_name(over: Over) -> &'static str {
    let found = OVERS.iter().find(|(_, known)| *known == over);
    found.map_or("?", |(name, _)| name)
}

/// The elements that a node ranks: as written, or the policy's default, or its first that fits.
pub(super) fn over_of(
    node: &NodeDraft,
    policy: &Policy,
    is_leaf: bool,
    problems: &mut Problems,
) -> Over {
    let fits = |over: &Over| is_leaf == matches!(over, Over::Packets | Over::Flows);
    if let Some(over) = &node.over {
        if !fits(over.get_ref()) {
            let (has, can) = match is_leaf {
                true => ("no children", "packets or flows"),
                false => ("children", "children or references"),
            };
            let text = format!(
                "node \"{}\": it has {has}, so it ranks {can}, not {}",
                node.name,
                over_name(*over.get_ref())
            );
            problems.error(over.span(), text);
        } else if !policy.over.contains(over.get_ref()) {
            cannot_rank(
                node,
                policy,
                over_name(*over.get_ref()),
                over.span(),
                problems,
            );
        }
        return *over.get_ref();
    }
    let default = [policy.usual];
    if let Some(over) = default.iter().chain(&policy.over).find(|over| fits(over)) {
        return *over;
    }
    let span = node
        .policy
        .as_ref()
        .map_or(node.place.clone(), Spanned::span);
    let what = if is_leaf {
        "packets or flows: add children to the node"
    } else {
        "children: use it at a leaf"
    };
    cannot_rank(node, policy, what, span, problems);
    if is_leaf {
        Over::Packets
    } else {
        Over::Children
    }
}

fn cannot_rank(
    node: &NodeDraft,
    policy: &Policy,
    what: &str,
    span: std::ops::Range<usize>,
    problems: &mut Problems,
) {
    let can: Vec<&str> = policy.over.iter().map(|over| over_name(*over)).collect();
    let text = format!(
        "node \"{}\": policy {} cannot rank {what} (it ranks {})",
        node.name,
        policy.name,
        can.join(", ")
    );
    problems.error(span, text);
}

/// Builds the plan of the whole tree and reports its problems. `overs` is by draft.
pub(super) fn plan(
    draft: &Draft,
    shape: &Shape,
    chosen: &Chosen<'_>,
    overs: &[Over],
    problems: &mut Problems,
) -> Plan {
    let heaviest = heaviest_children(draft, shape);
    let build = |at: &usize| {
        let node = &draft.nodes[*at];
        let parent = shape.parent[*at];
        let heaviest = parent.map_or(1, |parent| heaviest[parent]);
        let config = NodeConfig {
            parent: parent.map_or(0, |parent| shape.ids[parent]),
            over: overs[*at],
            cost: cost(heaviest, node.weight.unwrap_or(1)),
            ..NodeConfig::default()
        };
        configure(node, chosen[*at], config, problems)
    };
    let nodes: Vec<NodeConfig> = shape.order.iter().map(build).collect();
    Plan {
        config: sizes(draft, shape, chosen, overs, problems),
        nodes,
        ..Plan::default()
    }
}

/// The cost of a byte at `weight`, where `heaviest` is the maximum weight of its siblings.
pub fn cost(heaviest: u64, weight: u64) -> u32 {
    let cost = (u64::from(COST_ONE) * heaviest + weight / 2) / weight.max(1);
    u32::try_from(cost).unwrap_or(u32::MAX)
}

/// The cost of a byte at `weight`, where weight `one` has the cost [`COST_ONE`]. 1 for flows.
///
/// # Errors
/// The cost would change the weight by more than 1 %. The error names a weight that it does not change.
pub fn exact_cost(weight: f64, one: u64) -> Result<u32, String> {
    let one = f64::from(COST_ONE) * one as f64;
    let cost = (one / weight).round();
    if weight.is_nan() || weight <= 0.0 || cost > f64::from(u32::MAX) {
        let (min, max) = (one / f64::from(u32::MAX), one);
        return Err(format!(
            "weight: {weight} is out of range: write {min:.7} to {max}"
        ));
    }
    let nearest = one / cost.max(1.0);
    if (nearest / weight - 1.0).abs() > MAX_ROUNDING {
        return Err(format!(
            "weight: {weight} would be rounded to {nearest}: write that, or at most {}",
            (one / SAFE_COST).floor()
        ));
    }
    Ok(cost as u32)
}

/// The maximum relative change of a weight by its cost.
const MAX_ROUNDING: f64 = 0.01;
/// Rounding changes larger costs by less than that.
const SAFE_COST: f64 = 0.5 / MAX_ROUNDING;

/// The maximum weight of the children of each node, by draft.
pub(super) fn heaviest_children(draft: &Draft, shape: &Shape) -> Vec<u64> {
    let weight = |child: &usize| draft.nodes[*child].weight.unwrap_or(1);
    let heaviest = |children: &Vec<usize>| children.iter().map(weight).max().unwrap_or(1);
    shape.children.iter().map(heaviest).collect()
}

fn configure(
    node: &NodeDraft,
    policy: Option<&Policy>,
    config: NodeConfig,
    problems: &mut Problems,
) -> NodeConfig {
    let rate =
        |rate: &Option<Spanned<u64>>| rate.as_ref().map_or(0, |rate| encode_rate(*rate.get_ref()));
    let Some(policy) = policy else {
        return config;
    };
    let [usual_kind, usual_buckets, usual_shift, usual_full] = policy.queue;
    let usual_kind = if usual_kind == 0 {
        queue::HEAP
    } else {
        usual_kind
    };
    let kind = node.queue.kind.unwrap_or(usual_kind);
    // The defaults of the policy apply to its kind of queue only.
    let usual = |value: u32| if kind == usual_kind { value } else { 0 };
    let config = NodeConfig {
        policy: policy.id,
        queue: kind,
        queue_capacity: node.queue.capacity.unwrap_or(0) as u32,
        queue_buckets: buckets(node, kind, usual(usual_buckets), problems),
        queue_shift: shift(node, kind, usual(usual_shift), problems),
        queue_below: node.queue.below.unwrap_or(0),
        queue_beyond: node.queue.beyond.unwrap_or(0),
        queue_full: node
            .queue
            .full
            .as_ref()
            .map_or(usual_full, |full| *full.get_ref()),
        limit_packets: node.limit_packets as u32,
        limit_bytes: node.limit_bytes as u32,
        floor: rate(&node.floor_bps),
        ceil: rate(&node.ceil_bps),
        burst: node.burst_ns.unwrap_or(DEFAULT_BURST_NS),
        params: params(node, policy, problems),
        ..config
    };
    if config.may_strand(policy) {
        let text = format!(
            "node \"{}\": queue: it could refuse {}, whose packets would never leave: omit capacity, below and beyond, and do not use aifo",
            node.name,
            over_name(config.over)
        );
        problems.error(node.place.clone(), text);
    }
    if queue::is_exact(kind) && (node.queue.below.is_some() || node.queue.beyond.is_some()) {
        let text = format!(
            "node \"{}\": queue: a {} has no window: omit below and beyond",
            node.name,
            queue::kind_name(kind)
        );
        problems.error(node.place.clone(), text);
    }
    config
}

/// Default burst of a node with a ceiling. It is shorter than a noticeable delay, and longer than the
/// packets of a slow link.
pub const DEFAULT_BURST_NS: u64 = 5_000_000;

fn buckets(node: &NodeDraft, kind: u32, usual: u32, problems: &mut Problems) -> u32 {
    let max = queue::max_buckets(kind);
    let name = queue::kind_name(kind);
    match &node.queue.buckets {
        Some(buckets) if *buckets.get_ref() > max => {
            let remedy = match max {
                0 => format!("a {name} has no buckets: omit the key"),
                max => format!("the maximum for {name} is {max}"),
            };
            let text = format!(
                "node \"{}\": queue: buckets = {}: {remedy}",
                node.name,
                buckets.get_ref()
            );
            problems.error(buckets.span(), text);
            0
        }
        Some(buckets) => *buckets.get_ref() as u32,
        None if usual != 0 || max == 0 => usual,
        None => DEFAULT_BUCKETS.min(max) as u32,
    }
}

/// The granularity; of `aifo` the headroom.
fn shift(node: &NodeDraft, kind: u32, usual: u32, problems: &mut Problems) -> u32 {
    let Some(shift) = &node.queue.shift else {
        return usual;
    };
    let wrong = match (queue::has_headroom(kind), node.queue.is_headroom) {
        (true, false) => "aifo has no granularity: write headroom",
        (false, true) => "headroom is of aifo only: omit the key",
        _ => return *shift.get_ref(),
    };
    let text = format!("node \"{}\": queue: {wrong}", node.name);
    problems.error(shift.span(), text);
    usual
}

/// Default number of buckets.
const DEFAULT_BUCKETS: u64 = 4096;

fn params(node: &NodeDraft, policy: &Policy, problems: &mut Problems) -> [u64; PARAMS] {
    let mut encoded = [0; PARAMS];
    for (value, param) in encoded.iter_mut().zip(&policy.params) {
        *value = param.encode(param.standard);
    }
    for (name, value) in &node.params {
        let Some(at) = policy
            .params
            .iter()
            .position(|param| param.name == *name.get_ref())
        else {
            let text = format!(
                "node \"{}\": {}",
                node.name,
                no_param(policy, name.get_ref())
            );
            problems.error(name.span(), text);
            continue;
        };
        let param = &policy.params[at];
        let wrong = match in_unit(value.get_ref(), &param.unit) {
            Ok(number) if (param.min..=param.most).contains(&number) => {
                encoded[at] = param.encode(number);
                continue;
            }
            Ok(_) => format!(
                "it is out of range: write {} to {}",
                written(param.min, &param.unit),
                written(param.most, &param.unit)
            ),
            Err(bad) => bad.to_string(),
        };
        problems.error(
            value.span(),
            format!("node \"{}\": parameter {}: {wrong}", node.name, param.name),
        );
    }
    encoded
}

/// The message for an unknown parameter, with a suggestion.
pub(super) fn no_param(policy: &Policy, name: &str) -> String {
    let names = || policy.params.iter().map(|param| param.name.as_str());
    let remedy = match did_you_mean(name, names()) {
        near if !near.is_empty() => near,
        _ if policy.params.is_empty() => "it has none".to_owned(),
        _ => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
    };
    format!(
        "policy {} has no parameter \"{name}\": {remedy}",
        policy.name
    )
}

fn sizes(
    draft: &Draft,
    shape: &Shape,
    chosen: &Chosen<'_>,
    overs: &[Over],
    problems: &mut Problems,
) -> SchedConfig {
    const WANTS_HOSTS: u32 = 1;
    let limit = draft.limit_packets.unwrap_or(DEFAULT_LIMIT_PACKETS);
    let by_flow = shape
        .order
        .iter()
        .any(|at| matches!(overs[*at], Over::Flows | Over::Packets));
    let by_host = chosen
        .iter()
        .flatten()
        .any(|policy| policy.wants & WANTS_HOSTS != 0);
    // Each packet has a reference in every node above it that ranks references.
    let above = |leaf: &usize| {
        shape
            .ancestors(*leaf)
            .filter(|at| overs[*at] == Over::References)
            .count() as u64
    };
    let leaves = shape
        .order
        .iter()
        .filter(|at| shape.children[**at].is_empty());
    let [min, most] = DEFAULT_FLOWS;
    let flows = (leaves.clone().count() as u64 * FLOWS_A_LEAF).clamp(min, most);
    let references = leaves.map(above).max().unwrap_or(0) * (limit + SPARE_HANDLES);
    if references > MAX_PACKETS {
        let text = format!(
            "the tree needs {references} references, one per packet and level, and the maximum is {MAX_PACKETS}: lower scheduler.limit"
        );
        problems.error(NOWHERE..NOWHERE, text);
    }
    SchedConfig {
        packets: (limit + SPARE_HANDLES) as u32,
        limit_packets: limit as u32,
        limit_bytes: draft.limit_bytes as u32,
        flows: draft.flows.unwrap_or(if by_flow { flows } else { 8 }) as u32,
        hosts: draft
            .hosts
            .unwrap_or(if by_host { DEFAULT_HOSTS } else { 8 }) as u32,
        nodes: shape.order.len() as u32,
        references: references.min(MAX_PACKETS) as u32,
        overflow: draft
            .overflow
            .as_ref()
            .map_or(Overflow::Tail, |overflow| *overflow.get_ref()),
        seed: draft.seed,
        horizon: draft.horizon_ns,
        max_sojourn: draft.max_sojourn_ns,
        ..SchedConfig::default()
    }
}
