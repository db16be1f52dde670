//! Who is below whom: names, parents, cycles, levels, and the order in which the core wants nodes.

use std::collections::HashMap;

use fairpath_core::sched::LEVELS;

use super::draft::NodeDraft;
use super::problem::{NOWHERE, Problems, did_you_mean};

/// Most nodes of a tree.
pub const MAX_NODES: usize = 131_072;
/// How many missing parents get a suggestion: each costs a look at all names.
const SUGGESTIONS: usize = 8;
/// How many nodes of a ring are named.
const RING_NAMES: usize = 16;

/// Positions are those of the drafts.
#[derive(Default)]
pub(super) struct Shape {
    /// Each node before its children, siblings as written; only what hangs on the root.
    pub order: Vec<usize>,
    /// The core's number of each draft: its place in the order plus 1; 0 if it is not in there.
    pub ids: Vec<u32>,
    pub parent: Vec<Option<usize>>,
    pub children: Vec<Vec<usize>>,
}

impl Shape {
    /// The node's parent, its parent's parent and so on.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parent[of], |at| self.parent[*at])
    }
}

/// Finds the shape; what is wrong with it is told. O(nodes).
pub(super) fn grow(nodes: &[NodeDraft], problems: &mut Problems) -> Shape {
    if nodes.is_empty() {
        problems.error(
            NOWHERE..NOWHERE,
            "the tree has no nodes; write a [[node]] with a name and a policy".into(),
        );
    }
    if let Some(node) = nodes.get(MAX_NODES) {
        let text = format!("the tree has {} nodes; {MAX_NODES} at most", nodes.len());
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
    cut_rings(nodes, &mut shape.parent, problems);
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
            let text = format!("node \"{}\": the name is taken; give it another", node.name);
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
                "name one of the nodes"
            } else {
                &near
            };
            let text = format!(
                "node \"{}\": there is no parent \"{}\"; {near}",
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
            "node \"{}\": it has no parent, and \"{root}\" is the root already; name its parent",
            other.name
        );
        problems.error(other.place.clone(), text);
    }
}

/// Takes every ring of parents apart, and names it.
fn cut_rings(nodes: &[NodeDraft], parents: &mut [Option<usize>], problems: &mut Problems) {
    // By which walk each node was met first; 0 is none.
    let mut met = vec![0; nodes.len()];
    for start in 0..nodes.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(node) = at.filter(|node| met[*node] == 0) {
            met[node] = walk;
            at = parents[node];
        }
        // A walk that comes upon its own steps went round.
        if let Some(member) = at.filter(|node| met[*node] == walk) {
            let mut ring = vec![member];
            let mut at = parents[member].take();
            while let Some(node) = at.filter(|node| *node != member) {
                ring.push(node);
                at = parents[node].take();
            }
            tell_ring(nodes, &mut ring, problems);
        }
    }
}

fn tell_ring(nodes: &[NodeDraft], ring: &mut [usize], problems: &mut Problems) {
    let first = (0..ring.len()).min_by_key(|at| ring[*at]).unwrap_or(0);
    ring.rotate_left(first);
    let name = |at: &usize| format!("\"{}\"", nodes[*at].name);
    let mut names: Vec<String> = ring.iter().take(RING_NAMES).map(name).collect();
    if ring.len() > RING_NAMES {
        names.push(format!("{} more", ring.len() - RING_NAMES));
    }
    names.push(name(&ring[0]));
    let node = &nodes[ring[0]];
    let span = node
        .parent
        .as_ref()
        .map_or(node.place.clone(), toml::Spanned::span);
    let text = format!(
        "nodes are their own ancestors: {}; one of them needs another parent",
        names.join(" below ")
    );
    problems.error(span, text);
}

/// Parents before children, from the root down.
fn descend(nodes: &[NodeDraft], shape: &mut Shape, problems: &mut Problems) {
    let root = nodes.iter().position(|node| node.parent.is_none());
    let mut waiting: Vec<(usize, usize)> = root.into_iter().map(|root| (root, 1)).collect();
    while let Some((at, level)) = waiting.pop() {
        if level > LEVELS {
            let text = format!(
                "node \"{}\": it is on level {level}; {LEVELS} levels at most",
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
