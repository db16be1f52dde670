//! Checks between values: each value is valid alone, but some combinations are not.

use fairpath_core::sched::{Over, Overflow};
use toml::Spanned;

use super::draft::{Draft, NodeDraft};
use super::layout::over_name;
use super::problem::Problems;
use super::queue::PUSH_OUT;
use super::shape::Shape;
use fairpath_units::quantity::written;

/// Checks the modes and rates of all nodes. O(nodes x levels).
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
                "node \"{}\": limit is for leaves, and the node has children: set a limit there, or in [scheduler]",
                node.name
            );
            problems.error(node.place.clone(), text);
        }
        rates(draft, *at, shape, problems);
    }
}

/// A reference represents one packet in every node below.
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
        Over::Children => "write over = \"references\", or make it a leaf with over = \"packets\"",
        Over::Flows => "write over = \"packets\"",
        Over::Packets | Over::References => return,
    };
    let span = node.over.as_ref().map_or(node.place.clone(), Spanned::span);
    let text = format!(
        "node \"{}\": it ranks {} below a node that ranks references: {remedy}",
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
            "node \"{}\": full = \"push-out\" does not work below a node that ranks references: write full = \"tail\", or move the node below one that ranks children",
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
            "scheduler: overflow = \"fattest\" needs flows, and leaf \"{}\" ranks packets: write over = \"flows\" there, or overflow = \"tail\"",
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
            "node \"{}\": its floor {} exceeds its ceiling {}: lower the floor",
            node.name,
            bits(floor),
            bits(ceil)
        );
        problems.error(place.span(), text);
    }
    let is_inner_root = shape.parent[at].is_none() && !shape.children[at].is_empty();
    if is_inner_root && (floor.is_some() || ceil.is_some() || node.weight.is_some()) {
        let text = format!(
            "node \"{}\": the root has no parent that applies floor, ceil and weight: omit them",
            node.name
        );
        problems.error(node.place.clone(), text);
    }
    let floors: u64 = shape.children[at]
        .iter()
        .filter_map(|child| rate(&draft.nodes[*child].floor_bps))
        .sum();
    let has = |limit: Option<u64>, what: &str| {
        limit
            .filter(|limit| floors > *limit)
            .map(|limit| format!("{what} {}", bits(limit)))
    };
    if let Some(limit) = has(floor, "floor").or_else(|| has(ceil, "ceiling")) {
        let text = format!(
            "node \"{}\": the floors of its children sum to {} and exceed its {limit}: lower them or raise it",
            node.name,
            bits(floors)
        );
        let span = node.place.clone();
        match draft.overbooked {
            true => problems.warning(span, text),
            false => problems.error(span, text),
        }
    }
}
