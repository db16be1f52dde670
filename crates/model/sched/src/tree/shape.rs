//! The hierarchy of nodes: names, parents, cycles, levels, and the order of nodes for the core.

use std::collections::HashMap;

use fairpath_core::sched::LEVELS;

use super::draft::NodeDraft;
use super::problem::{NOWHERE, Problems, did_you_mean};

/// Maximum nodes of a tree.
pub const MAX_NODES: usize = 131_072;
/// Maximum missing parents with a suggestion. Each of them needs a search of all names.
const SUGGESTIONS: usize = 8;
/// Maximum nodes of a cycle in a message.
const CYCLE_NAMES: usize = 16;

/// Positions are those of the drafts.
#[derive(Default)]
pub(super) struct Shape {
    /// The nodes below the root: each before its children, and siblings in the order of the file.
    pub order: Vec<usize>,
    /// The number of each draft in the core: its position in the order plus 1, or 0 without one.
    pub ids: Vec<u32>,
    pub parent: Vec<Option<usize>>,
    pub children: Vec<Vec<usize>>,
}

impl Shape {
    /// The ancestors of a node, beginning with its parent.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parent[of], |at| self.parent[*at])
    }
}

/// Finds the hierarchy and reports its problems. O(nodes).
pub(super) fn grow(nodes: &[NodeDraft], problems: &mut Problems) -> Shape {
    if nodes.is_empty() {
        problems.error(
            NOWHERE..NOWHERE,
            "the tree has no nodes: write a [[node]] with a name and a policy".into(),
        );
    }
    if let Some(node) = nodes.get(MAX_NODES) {
        let text = format!(
            "the tree has {} nodes: the maximum is {MAX_NODES}",
            nodes.len()
        );
        problems.error(node.place.clone(), text);
        return Shape::default();
    }
    let mut shape = Shape {
        parent: parents(nodes, problems),
        children: vec![Vec::new(); nodes.len()],
        order: Vec::with_capacity(nodes.len()),
        ids: vec![0; nodes.len()],
    };
    one_root(nodes, problems);
    break_cycles(nodes, &mut shape.parent, problems);
    for (at, parent) in shape.parent.iter().enumerate() {
        if let Some(parent) = parent {
            shape.children[*parent].push(at);
        }
    }
    descend(nodes, &mut shape, problems);
    shape
}

fn parents(nodes: &[NodeDraft], problems: &mut Problems) -> Vec<Option<usize>> {
    let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
    for (at, node) in nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.name.is_empty())
    {
        if *by_name.entry(&node.name).or_insert(at) != at {
            let text = format!(
                "node \"{}\": another node has this name: choose another",
                node.name
            );
            problems.error(node.place.clone(), text);
        }
    }
    let mut suggestions = 0;
    let mut parent_of = |node: &NodeDraft| {
        let parent = node.parent.as_ref()?;
        let found = by_name.get(parent.get_ref().as_str());
        if found.is_none() {
            suggestions += 1;
            let names = nodes.iter().map(|node| node.name.as_str());
            let names = names.filter(|name| *name != node.name);
            let near = match suggestions {
                0..=SUGGESTIONS => did_you_mean(parent.get_ref(), names),
                _ => String::new(),
            };
            let near = if near.is_empty() {
                "write the name of a node"
            } else {
                &near
            };
            let text = format!(
                "node \"{}\": parent \"{}\" does not exist: {near}",
                node.name,
                parent.get_ref()
            );
            problems.error(parent.span(), text);
        }
        found.copied()
    };
    nodes.iter().map(&mut parent_of).collect()
}

fn one_root(nodes: &[NodeDraft], problems: &mut Problems) {
    let mut roots = nodes.iter().filter(|node| node.parent.is_none());
    let first = roots.next();
    for other in roots {
        let root = first.map_or("", |first| first.name.as_str());
        let text = format!(
            "node \"{}\": it has no parent, but \"{root}\" is already the root: add a parent",
            other.name
        );
        problems.error(other.place.clone(), text);
    }
}

/// Breaks every cycle of parents and reports it.
fn break_cycles(nodes: &[NodeDraft], parents: &mut [Option<usize>], problems: &mut Problems) {
    // The walk that visited each node first, or 0.
    let mut met = vec![0; nodes.len()];
    for start in 0..nodes.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(node) = at.filter(|node| met[*node] == 0) {
            met[node] = walk;
            at = parents[node];
        }
        // A walk that reaches a node of itself has found a cycle.
        if let Some(member) = at.filter(|node| met[*node] == walk) {
            let mut cycle = vec![member];
            let mut at = parents[member].take();
            while let Some(node) = at.filter(|node| *node != member) {
                cycle.push(node);
                at = parents[node].take();
            }
            report_cycle(nodes, &mut cycle, problems);
        }
    }
}

fn report_cycle(nodes: &[NodeDraft], cycle: &mut [usize], problems: &mut Problems) {
    let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or(0);
    cycle.rotate_left(first);
    let name = |at: &usize| format!("\"{}\"", nodes[*at].name);
    let mut names: Vec<String> = cycle.iter().take(CYCLE_NAMES).map(name).collect();
    if cycle.len() > CYCLE_NAMES {
        names.push(format!("{} more", cycle.len() - CYCLE_NAMES));
    }
    names.push(name(&cycle[0]));
    let node = &nodes[cycle[0]];
    let span = node
        .parent
        .as_ref()
        .map_or(node.place.clone(), toml::Spanned::span);
    let text = format!(
        "nodes are their own ancestors: {}: change the parent of one of them",
        names.join(" below ")
    );
    problems.error(span, text);
}

/// Orders the nodes from the root, parents before children.
fn descend(nodes: &[NodeDraft], shape: &mut Shape, problems: &mut Problems) {
    let root = nodes.iter().position(|node| node.parent.is_none());
    let mut waiting: Vec<(usize, usize)> = root.into_iter().map(|root| (root, 1)).collect();
    while let Some((at, level)) = waiting.pop() {
        if level > LEVELS {
            let text = format!(
                "node \"{}\": it is on level {level}: the maximum is {LEVELS} levels",
                nodes[at].name
            );
            problems.error(nodes[at].place.clone(), text);
            continue;
        }
        shape.order.push(at);
        shape.ids[at] = shape.order.len() as u32;
        let children = shape.children[at].iter().rev();
        waiting.extend(children.map(|child| (*child, level + 1)));
    }
}
