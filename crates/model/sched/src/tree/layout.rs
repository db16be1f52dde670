//! From a tree whose shape is sound to the core's plan: policies, modes, queues, rates, parameters.

use fairpath_core::sched::{
    COST_ONE, NodeConfig, Over, Overflow, PARAMS, Plan, Policy, SchedConfig, encode_rate,
};
use toml::Spanned;

use super::draft::{Draft, MAX_PACKETS, NodeDraft, OVERS, in_unit};
use super::problem::{NOWHERE, Problems, did_you_mean};
use super::queue;
use super::shape::Shape;
use fairpath_units::quantity::written;

/// Packets that a scheduler holds unless its tree says otherwise (the limit of RFC 8290 section 5.2.3).
pub const STANDARD_LIMIT_PACKETS: u64 = 10_240;
/// Flows that it tells apart, likewise (RFC 8290 section 5.2.4).
pub const STANDARD_FLOWS: u64 = 1024;
/// Hosts that it tells apart.
pub const STANDARD_HOSTS: u64 = 1024;
/// Handles beyond the limit, so that packets can come while the scheduler is full.
pub const SPARE_HANDLES: u64 = 64;

/// The policies that the nodes name, by draft.
pub(super) type Chosen<'a> = Vec<Option<&'a Policy>>;

/// Finds each node's policy. O(nodes).
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
                    "node \"{}\": it has no policy; name one of `fairpath sched list`",
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
                "`fairpath sched list` has their names, and --policy FILE.c adds an author's"
            } else {
                &near
            };
            let text = format!(
                "node \"{}\": there is no policy \"{}\"; {near}",
                node.name,
                name.get_ref()
            );
            problems.error(name.span(), text);
        }
        found
    };
    nodes.iter().map(&mut choose).collect()
}

/// The name of what a queue's entries are.
pub(super) fn over_name(over: Over) -> &'static str {
    let found = OVERS.iter().find(|(_, known)| *known == over);
    found.map_or("?", |(name, _)| name)
}

/// What the node's entries are: as written, else the policy's usual, else the first that fits.
pub(super) fn over_of(
    node: &NodeDraft,
    policy: &Policy,
    is_leaf: bool,
    problems: &mut Problems,
) -> Over {
    let fits = |over: &Over| is_leaf == matches!(over, Over::Packets | Over::Flows);
    if let Some(over) = &node.over {
        if !fits(over.get_ref()) {
            let (is, wants) = match is_leaf {
                true => ("no children", "packets or flows"),
                false => ("children", "children or references"),
            };
            let text = format!(
                "node \"{}\": it has {is}, so it is over {wants}, not {}",
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
    let usual = [policy.usual];
    if let Some(over) = usual.iter().chain(&policy.over).find(|over| fits(over)) {
        return *over;
    }
    let span = node
        .policy
        .as_ref()
        .map_or(node.place.clone(), Spanned::span);
    let what = if is_leaf {
        "packets or flows: give the node children"
    } else {
        "children: only a leaf can have it"
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
        "node \"{}\": policy {} cannot rank {what}; it ranks {}",
        node.name,
        policy.name,
        can.join(", ")
    );
    problems.error(span, text);
}

/// Lays the whole tree out; `overs` by draft. What cannot be is told.
pub(super) fn plan(
    draft: &Draft,
    shape: &Shape,
    chosen: &Chosen<'_>,
    overs: &[Over],
    problems: &mut Problems,
) -> Plan {
    let heaviest = heaviest_children(draft, shape);
    let lay_out = |at: &usize| {
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
    let nodes: Vec<NodeConfig> = shape.order.iter().map(lay_out).collect();
    Plan {
        config: sizes(draft, shape, chosen, overs, problems),
        nodes,
        ..Plan::default()
    }
}

/// What a byte costs a sibling of weight `weight`, where the heaviest weighs `heaviest`.
pub fn cost(heaviest: u64, weight: u64) -> u32 {
    let cost = (u64::from(COST_ONE) * heaviest + weight / 2) / weight.max(1);
    u32::try_from(cost).unwrap_or(u32::MAX)
}

/// The greatest weight among each node's children, by draft.
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
    // What the policy says of its queue holds for a queue of that kind only.
    let usual = |value: u32| if kind == usual_kind { value } else { 0 };
    let config = NodeConfig {
        policy: policy.id,
        queue: kind,
        queue_capacity: node.queue.capacity.unwrap_or(0) as u32,
        queue_buckets: buckets(node, kind, usual(usual_buckets), problems),
        queue_shift: node.queue.shift.unwrap_or(usual(usual_shift)),
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
        burst: node.burst_ns.unwrap_or(STANDARD_BURST_NS),
        params: params(node, policy, problems),
        ..config
    };
    if config.may_strand(policy) {
        let text = format!(
            "node \"{}\": queue: it may refuse {}, whose packets would never leave; leave out capacity, below and beyond, and use no aifo",
            node.name,
            over_name(config.over)
        );
        problems.error(node.place.clone(), text);
    }
    if queue::is_exact(kind) && (node.queue.below.is_some() || node.queue.beyond.is_some()) {
        let text = format!(
            "node \"{}\": queue: a {} has no window, so nothing is below or beyond it; leave these keys out",
            node.name,
            queue::kind_name(kind)
        );
        problems.error(node.place.clone(), text);
    }
    config
}

/// How far a child may run ahead of its ceiling unless its node says: short beside what people
/// notice, long beside the packets of a slow link.
pub const STANDARD_BURST_NS: u64 = 5_000_000;

fn buckets(node: &NodeDraft, kind: u32, usual: u32, problems: &mut Problems) -> u32 {
    let most = queue::most_buckets(kind);
    let name = queue::kind_name(kind);
    match &node.queue.buckets {
        Some(buckets) if *buckets.get_ref() > most => {
            let remedy = match most {
                0 => format!("a {name} has none; leave the key out"),
                most => format!("{most} at most for {name}"),
            };
            let text = format!(
                "node \"{}\": queue: {} buckets; {remedy}",
                node.name,
                buckets.get_ref()
            );
            problems.error(buckets.span(), text);
            0
        }
        Some(buckets) => *buckets.get_ref() as u32,
        None if usual != 0 || most == 0 => usual,
        None => STANDARD_BUCKETS.min(most) as u32,
    }
}

/// Of a queue that has buckets, unless somebody says otherwise.
const STANDARD_BUCKETS: u64 = 4096;

fn params(node: &NodeDraft, policy: &Policy, problems: &mut Problems) -> [u64; PARAMS] {
    let mut encoded = [0; PARAMS];
    for (place, param) in encoded.iter_mut().zip(&policy.params) {
        *place = param.encode(param.standard);
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
            Ok(number) if (param.least..=param.most).contains(&number) => {
                encoded[at] = param.encode(number);
                continue;
            }
            Ok(_) => format!(
                "is out of range; {} to {}",
                written(param.least, &param.unit),
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

/// That a policy has no such parameter, and which is meant.
pub(super) fn no_param(policy: &Policy, name: &str) -> String {
    let names = || policy.params.iter().map(|param| param.name.as_str());
    let remedy = match did_you_mean(name, names()) {
        near if !near.is_empty() => near,
        _ if policy.params.is_empty() => "it has none".to_owned(),
        _ => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
    };
    format!(
        "policy {} has no parameter \"{name}\"; {remedy}",
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
    let limit = draft.limit_packets.unwrap_or(STANDARD_LIMIT_PACKETS);
    let by_flow = shape
        .order
        .iter()
        .any(|at| matches!(overs[*at], Over::Flows | Over::Packets));
    let by_host = chosen
        .iter()
        .flatten()
        .any(|policy| policy.wants & WANTS_HOSTS != 0);
    // Each packet has a reference in every such node above it.
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
    let references = leaves.map(above).max().unwrap_or(0) * (limit + SPARE_HANDLES);
    if references > MAX_PACKETS {
        let text = format!(
            "the tree needs {references} references, one a packet and level; {MAX_PACKETS} at most: lower scheduler.limit"
        );
        problems.error(NOWHERE..NOWHERE, text);
    }
    SchedConfig {
        packets: (limit + SPARE_HANDLES) as u32,
        limit_packets: limit as u32,
        limit_bytes: draft.limit_bytes as u32,
        flows: draft
            .flows
            .unwrap_or(if by_flow { STANDARD_FLOWS } else { 8 }) as u32,
        hosts: draft
            .hosts
            .unwrap_or(if by_host { STANDARD_HOSTS } else { 8 }) as u32,
        nodes: shape.order.len() as u32,
        references: references.min(MAX_PACKETS) as u32,
        overflow: draft
            .overflow
            .as_ref()
            .map_or(Overflow::Tail, |overflow| *overflow.get_ref()),
        seed: draft.seed,
        horizon: draft.horizon_ns,
        ..SchedConfig::default()
    }
}
