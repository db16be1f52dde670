//! Builds the checked tree from drafts: names, parents, cycles, depth and order.
//!
//! Every step is linear in the number of classes, except the sorting of prefixes, so that 100,000
//! classes are checked in well under a second.

use std::collections::HashMap;

use crate::class::{Class, ClassSet, MAX_DEPTH, Rates, Sla};
use crate::criteria;
use crate::draft::{Draft, DraftRates, Drafts};
use crate::labels::Labels;
use crate::plan;
use crate::problem::{Problem, ProblemKind, Problems};
use crate::source::{At, Sources};
use fairpath_units::nearest;

/// Maximum number of suggestions for missing names, because each reads all names.
const SUGGESTIONS: usize = 8;
/// Maximum number of class names in the message about a cycle.
const MAX_CYCLE_NAMES: usize = 32;

/// The configuration of the uplinks. Marks and DSCPs need them, because they identify hosts inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplinks {
    /// Configured.
    Given,
    /// Not configured: marks and DSCPs are refused.
    Missing,
    /// Not part of these files: marks and DSCPs are accepted.
    Unknown,
}

/// The result of a check.
#[derive(Debug)]
pub struct Outcome {
    /// The classes. `None` if there is an error.
    pub set: Option<ClassSet>,
    /// Labels of remote prefixes.
    pub labels: Labels,
    /// Problems and totals.
    pub report: ClassReport,
}

/// Problems and totals of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassReport {
    /// Sorted by file and line. At most [`crate::MAX_PROBLEMS`] errors and as many warnings.
    pub problems: Vec<Problem>,
    /// Number of errors.
    pub errors: usize,
    /// Number of warnings.
    pub warnings: usize,
    /// Number of classes.
    pub classes: usize,
    /// Number of prefixes of classes.
    pub prefixes: usize,
    /// Number of levels of the tree.
    pub levels: u32,
    /// Number of labelled remote prefixes.
    pub labels: usize,
}

/// Classes in tree order with their positions. Descendants follow their class, up to its `end`.
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub draft: Draft,
    pub parent: Option<usize>,
    pub depth: u32,
    /// Index after its last descendant.
    pub end: usize,
}

impl Tree {
    /// True if `above` is an ancestor of `below`.
    pub fn is_above(&self, above: usize, below: usize) -> bool {
        above < below && below < self.nodes[above].end
    }

    /// Ancestors, the nearest first.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[of].parent, |at| self.nodes[*at].parent)
    }
}

impl ClassSet {
    /// Checks all drafts and builds the tree. O(n log n) in prefixes, otherwise O(n).
    pub fn build(mut drafts: Drafts, uplinks: Uplinks) -> Outcome {
        drafts.imply_nodes();
        drafts.report_excess();
        let Drafts {
            sources,
            mut problems,
            mut drafts,
            labels,
            ..
        } = drafts;
        // Classes without name are reported already and cannot be checked further.
        drafts.retain(|draft| !draft.name.is_empty());
        let mut tree = grow(drafts, &sources, &mut problems);
        criteria::check(&mut tree, &sources, uplinks, &mut problems);
        plan::check(&tree, &mut problems);
        let report = ClassReport {
            errors: problems.errors(),
            warnings: problems.warnings(),
            classes: tree.nodes.len(),
            prefixes: criteria::count_prefixes(&tree),
            levels: tree
                .nodes
                .iter()
                .map(|node| node.depth + 1)
                .max()
                .unwrap_or(0),
            labels: labels.prefixes().len(),
            problems: problems.into_list(&sources),
        };
        Outcome {
            set: (report.errors == 0).then(|| finish(tree)),
            labels,
            report,
        }
    }
}

impl Drafts {
    /// Without a network.json, adds undefined parent nodes as classes.
    fn imply_nodes(&mut self) {
        if self.network {
            return;
        }
        let names: std::collections::HashSet<_> =
            self.drafts.iter().map(|draft| draft.name.clone()).collect();
        for node in std::mem::take(&mut self.nodes) {
            if !names.contains(&node.value) {
                let draft = Draft {
                    place: node.place,
                    name: node.value,
                    ..Draft::default()
                };
                self.push(draft);
            }
        }
    }
}

fn grow(drafts: Vec<Draft>, sources: &Sources, problems: &mut Problems) -> Tree {
    let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    for (at, draft) in drafts.iter().enumerate() {
        let first = *by_name.entry(&draft.name).or_insert(at);
        if first != at {
            let there = sources.locate(drafts[first].place);
            let text = format!("class \"{}\": duplicate name, first at {there}", draft.name);
            problems.error(ProblemKind::Duplicate, draft.place, &draft.name, text);
        }
    }
    let mut parents = parents(&drafts, &by_name, problems);
    cut_cycles(&drafts, &mut parents, problems);
    arrange(drafts, &parents, problems)
}

/// The index of the parent of each draft.
fn parents(
    drafts: &[Draft],
    by_name: &HashMap<&str, usize>,
    problems: &mut Problems,
) -> Vec<Option<usize>> {
    let mut suggestions: HashMap<String, String> = HashMap::new();
    let mut parent_of = |draft: &'_ Draft| -> Option<usize> {
        // A parent without name is reported already.
        let At { value, place } = draft
            .parent
            .as_ref()
            .filter(|parent| !parent.value.is_empty())?;
        if let Some(found) = by_name.get(value.as_str()) {
            return Some(*found);
        }
        if !suggestions.contains_key(value.as_str()) && suggestions.len() < SUGGESTIONS {
            let names = drafts.iter().map(|draft| draft.name.as_str());
            let near = nearest(value, names.filter(|name| *name != draft.name));
            let near = near.map(|near| format!("; did you mean \"{near}\"?"));
            suggestions.insert(value.clone(), near.unwrap_or_default());
        }
        let suggestion = suggestions.get(value.as_str()).map_or("", String::as_str);
        let text = format!(
            "class \"{}\": there is no parent \"{value}\"{suggestion}",
            draft.name
        );
        problems.error(ProblemKind::Orphan, *place, &draft.name, text);
        None
    };
    drafts.iter().map(&mut parent_of).collect()
}

/// Reports and removes every cycle.
fn cut_cycles(drafts: &[Draft], parents: &mut [Option<usize>], problems: &mut Problems) {
    // The first walk that visited each class, 0 for none.
    let mut visited: Vec<usize> = vec![0; drafts.len()];
    for start in 0..drafts.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(class) = at.filter(|class| visited[*class] == 0) {
            visited[class] = walk;
            at = parents[class];
        }
        // A walk that visits a class twice found a cycle.
        if let Some(class) = at.filter(|class| visited[*class] == walk) {
            cut_cycle(drafts, parents, class, problems);
        }
    }
}

/// Removes the cycle of `member`: each of its classes loses its parent.
fn cut_cycle(
    drafts: &[Draft],
    parents: &mut [Option<usize>],
    member: usize,
    problems: &mut Problems,
) {
    let mut cycle = Vec::new();
    let mut at = member;
    while let Some(parent) = parents[at].take() {
        cycle.push(at);
        at = parent;
    }
    let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or(0);
    cycle.rotate_left(first);
    let name = |at: &usize| format!("\"{}\"", drafts[*at].name);
    let mut names: Vec<String> = cycle.iter().take(MAX_CYCLE_NAMES).map(name).collect();
    if cycle.len() > MAX_CYCLE_NAMES {
        names.push(format!("{} more", cycle.len() - MAX_CYCLE_NAMES));
    }
    names.push(name(&cycle[0]));
    let draft = &drafts[cycle[0]];
    let place = draft
        .parent
        .as_ref()
        .map_or(draft.place, |parent| parent.place);
    let text = format!("cycle of parents: {}", names.join(" in "));
    problems.error(ProblemKind::Cycle, place, &draft.name, text);
}

fn arrange(drafts: Vec<Draft>, parents: &[Option<usize>], problems: &mut Problems) -> Tree {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); drafts.len()];
    for (at, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            children[*parent].push(at);
        }
    }
    let mut drafts: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    let mut nodes: Vec<Node> = Vec::with_capacity(drafts.len());
    let roots = (0..drafts.len()).filter(|at| parents[*at].is_none());
    // Siblings are pushed in reverse, so that they are popped in their order.
    let mut waiting: Vec<(usize, Option<usize>)> = roots.map(|at| (at, None)).collect();
    waiting.reverse();
    while let Some((at, parent)) = waiting.pop() {
        let Some(draft) = drafts[at].take() else {
            continue;
        };
        let depth = parent.map_or(0, |parent: usize| nodes[parent].depth + 1);
        if depth == MAX_DEPTH {
            let text = format!(
                "class \"{}\": too deep: on level {}, the maximum is {MAX_DEPTH}",
                draft.name,
                depth + 1
            );
            problems.error(ProblemKind::TooDeep, draft.place, &draft.name, text);
        }
        let position = nodes.len();
        nodes.push(Node {
            draft,
            parent,
            depth,
            end: position + 1,
        });
        waiting.extend(
            children[at]
                .iter()
                .rev()
                .map(|child| (*child, Some(position))),
        );
    }
    // In reverse: each class ends where its last descendant ends.
    for at in (0..nodes.len()).rev() {
        if let Some(parent) = nodes[at].parent {
            nodes[parent].end = nodes[parent].end.max(nodes[at].end);
        }
    }
    Tree { nodes }
}

fn finish(tree: Tree) -> ClassSet {
    let rates = |rates: DraftRates| Rates {
        floor_bps: rates.floor_bps.map(|rate| rate.value),
        ceil_bps: rates.ceil_bps.map(|rate| rate.value),
    };
    let ends = tree.nodes.iter().map(|node| node.end).collect();
    let class = |node: Node| Class {
        name: node.draft.name,
        parent: node.parent,
        depth: node.depth,
        criteria: node
            .draft
            .criteria
            .into_iter()
            .map(|criterion| criterion.value)
            .collect(),
        up: rates(node.draft.up),
        down: rates(node.draft.down),
        sla: Sla {
            rtt_p95_ns: node.draft.rtt_p95_ns,
            loss: node.draft.loss,
        },
        attributes: node.draft.attributes,
    };
    ClassSet::new(tree.nodes.into_iter().map(class).collect(), ends)
}
