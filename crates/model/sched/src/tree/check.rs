//! What a tree may not say although every value in it is sound.

use fairpath_core::sched::{Over, Overflow};
use toml::Spanned;

use super::draft::{Draft, NodeDraft};
use super::layout::over_name;
use super::problem::Problems;
use super::queue::PUSH_OUT;
use super::shape::Shape;
use fairpath_units::quantity::written;

/// Modes and rates against each other. O(nodes x levels).
pub(super) fn check(
    draft: &Draft,
    shape: &Shape,
    overs: &[Over],
    full: &[u32],
    problems: &mut Problems,
) {
    for (place, at) in shape.order.iter().enumerate() {
        let node = &draft.nodes[*at];
        let is_leaf = shape.children[*at].is_empty();
        below_references(node, *at, shape, overs, problems);
        if is_leaf && full[place] == PUSH_OUT {
            push_out(node, *at, shape, overs, problems);
        }
        if is_leaf {
            overflow(draft, node, overs[*at], problems);
        } else if node.limit_packets > 0 || node.limit_bytes > 0 {
            let text = format!(
                "node \"{}\": limit is a leaf's, and it has children; limit these, or the scheduler",
                node.name
            );
            problems.error(node.place.clone(), text);
        }
        rates(draft, *at, shape, problems);
    }
}

/// A reference stands for one packet all the way down.
fn below_references(
    node: &NodeDraft,
    at: usize,
    shape: &Shape,
    overs: &[Over],
    problems: &mut Problems,
) {
    let above = shape.parent[at].filter(|parent| overs[*parent] == Over::References);
    let remedy = match overs[at] {
        _ if above.is_none() => return,
        Over::Children => "make it over references, or a leaf over packets",
        Over::Flows => "make it over packets: no flow has a reference",
        Over::Packets | Over::References => return,
    };
    let span = node.over.as_ref().map_or(node.place.clone(), Spanned::span);
    let text = format!(
        "node \"{}\": it is over {} below a node over references; {remedy}",
        node.name,
        over_name(overs[at])
    );
    problems.error(span, text);
}

fn push_out(node: &NodeDraft, at: usize, shape: &Shape, overs: &[Over], problems: &mut Problems) {
    if shape
        .ancestors(at)
        .any(|above| overs[above] == Over::References)
    {
        let span = node
            .queue
            .full
            .as_ref()
            .map_or(node.place.clone(), Spanned::span);
        let text = format!(
            "node \"{}\": it pushes packets out below a node over references, which would keep theirs; write full = \"tail\", or put it over children",
            node.name
        );
        problems.error(span, text);
    }
}

fn overflow(draft: &Draft, node: &NodeDraft, over: Over, problems: &mut Problems) {
    let fattest = draft
        .overflow
        .as_ref()
        .filter(|overflow| *overflow.get_ref() == Overflow::Fattest);
    if let Some(overflow) = fattest.filter(|_| over == Over::Packets) {
        let text = format!(
            "scheduler: overflow = \"fattest\" looks for flows, and leaf \"{}\" is over packets; make it over flows, or write \"tail\"",
            node.name
        );
        problems.error(overflow.span(), text);
    }
}

fn rates(draft: &Draft, at: usize, shape: &Shape, problems: &mut Problems) {
    let node = &draft.nodes[at];
    let rate = |rate: &Option<Spanned<u64>>| rate.as_ref().map(|rate| *rate.get_ref());
    let (floor, ceil) = (rate(&node.floor_bps), rate(&node.ceil_bps));
    let bits = |bps: u64| written(bps, "bps");
    if let (Some(floor), Some(ceil), Some(place)) = (floor, ceil, &node.floor_bps)
        && floor > ceil
    {
        let text = format!(
            "node \"{}\": its floor {} is above its ceiling {}; lower the floor",
            node.name,
            bits(floor),
            bits(ceil)
        );
        problems.error(place.span(), text);
    }
    let is_inner_root = shape.parent[at].is_none() && !shape.children[at].is_empty();
    if is_inner_root && (floor.is_some() || ceil.is_some() || node.weight.is_some()) {
        let text = format!(
            "node \"{}\": it is the root, and floor, ceil and weight are what a parent sees to; leave them out",
            node.name
        );
        problems.error(node.place.clone(), text);
    }
    let promised: u64 = shape.children[at]
        .iter()
        .filter_map(|child| rate(&draft.nodes[*child].floor_bps))
        .sum();
    let has = |limit: Option<u64>, what: &str| {
        limit
            .filter(|limit| promised > *limit)
            .map(|limit| format!("{what} {}", bits(limit)))
    };
    if let Some(limit) = has(floor, "floor").or_else(|| has(ceil, "ceiling")) {
        let text = format!(
            "node \"{}\": the floors of its children are {} together, above its {limit}; lower them or raise it",
            node.name,
            bits(promised)
        );
        let span = node.place.clone();
        match draft.overbooked {
            true => problems.warning(span, text),
            false => problems.error(span, text),
        }
    }
}
