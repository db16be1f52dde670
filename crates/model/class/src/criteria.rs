//! Checks criteria against each other: duplicates, overlaps, conflicts.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use fairpath_core::Prefix;

use crate::criterion::{Criterion, Whom};
use crate::problem::{ProblemKind, Problems};
use crate::source::{At, Place, Sources};
use crate::tree::{Tree, Uplinks};

/// Reports all problems, and removes duplicates within a class.
pub(crate) fn check(tree: &mut Tree, sources: &Sources, uplinks: Uplinks, problems: &mut Problems) {
    duplicates(tree, sources, problems);
    conflicts(tree, sources, uplinks, problems);
    empty(tree, problems);
    prefixes(tree, sources, problems);
}

/// Number of prefixes of classes.
pub(crate) fn count_prefixes(tree: &Tree) -> usize {
    all(tree)
        .filter(|(_, found)| matches!(found.value, Criterion::Prefix(_)))
        .count()
}

fn all(tree: &Tree) -> impl Iterator<Item = (usize, &At<Criterion>)> {
    let nodes = tree.nodes.iter().enumerate();
    nodes.flat_map(|(at, node)| node.draft.criteria.iter().map(move |found| (at, found)))
}

fn duplicates(tree: &mut Tree, sources: &Sources, problems: &mut Problems) {
    let mut first: HashMap<Criterion, (usize, Place)> = HashMap::new();
    for at in 0..tree.nodes.len() {
        let criteria = std::mem::take(&mut tree.nodes[at].draft.criteria);
        let mut kept = Vec::with_capacity(criteria.len());
        for found in criteria {
            let (owner, place) = *first
                .entry(found.value.clone())
                .or_insert((at, found.place));
            if (owner, place) == (at, found.place) {
                kept.push(found);
                continue;
            }
            let (name, other) = (&tree.nodes[at].draft.name, &tree.nodes[owner].draft.name);
            if owner == at {
                let text = format!("class \"{name}\": duplicate {}", found.value);
                problems.warning(ProblemKind::Duplicate, found.place, name, text);
            } else {
                let there = sources.locate(place);
                let text = format!(
                    "class \"{name}\": {} also belongs to class \"{other}\" ({there})",
                    found.value
                );
                problems.error(ProblemKind::Duplicate, found.place, name, text);
            }
        }
        tree.nodes[at].draft.criteria = kept;
    }
}

fn conflicts(tree: &Tree, sources: &Sources, uplinks: Uplinks, problems: &mut Problems) {
    let find = |wanted: fn(&Criterion) -> bool| all(tree).find(|(_, found)| wanted(&found.value));
    let mark = find(|criterion| matches!(criterion, Criterion::Mark(_)));
    let link = find(|criterion| matches!(criterion.whom(), Whom::Link(_)));
    let name = |at: usize| tree.nodes[at].draft.name.as_str();
    if let (Some((at, marked)), Some((other, linked))) = (mark, link) {
        let text = format!(
            "class \"{}\": {} cannot be combined with {} of class \"{}\" ({}): packets of a host have their mark only \
             at egress, and their MAC address and VLAN only at ingress; remove one of them",
            name(at),
            marked.value,
            linked.value,
            name(other),
            sources.locate(linked.place)
        );
        problems.error(ProblemKind::Conflict, marked.place, name(at), text);
    }
    if uplinks == Uplinks::Missing {
        let inside = all(tree).filter(|(_, found)| found.value.whom() == Whom::Inside);
        // Reports one criterion of each kind, in their order.
        let mut reported = HashSet::new();
        let first =
            |(_, found): &(usize, &At<Criterion>)| reported.insert(discriminant(&found.value));
        let mut inside: Vec<_> = inside.filter(first).collect();
        inside.sort_by(|(_, a), (_, b)| a.value.cmp(&b.value));
        for (at, found) in inside {
            let text = format!(
                "class \"{}\": {} identifies hosts inside, so the uplinks must be configured: \
                 set uplinks in [monitor]",
                name(at),
                found.value
            );
            problems.error(ProblemKind::Conflict, found.place, name(at), text);
        }
    }
}

fn empty(tree: &Tree, problems: &mut Problems) {
    for (at, node) in tree.nodes.iter().enumerate() {
        if node.draft.criteria.is_empty() && node.end == at + 1 && !node.draft.incomplete {
            let name = &node.draft.name;
            let text = format!("class \"{name}\": no criteria and no children");
            problems.warning(ProblemKind::Empty, node.draft.place, name, text);
        }
    }
}

/// A prefix with its class and position.
struct Owned {
    prefix: Prefix,
    class: usize,
    place: Place,
}

/// Checks all prefixes in order, with a stack of the prefixes that contain the current one (at most
/// one of each length).
fn prefixes(tree: &Tree, sources: &Sources, problems: &mut Problems) {
    let owned = |(class, found): (usize, &At<Criterion>)| match found.value {
        Criterion::Prefix(prefix) => Some(Owned {
            prefix,
            class,
            place: found.place,
        }),
        _ => None,
    };
    let mut sorted: Vec<Owned> = all(tree).filter_map(owned).collect();
    sorted.sort_by_key(|owned| owned.prefix);
    let bounds = bounds(tree);
    let mut around: Vec<&Owned> = Vec::new();
    for one in &sorted {
        // An earlier prefix that contains the address is not longer.
        let is_inside = |outer: &Owned| outer.prefix.contains(one.prefix.address);
        while around.last().is_some_and(|outer| !is_inside(outer)) {
            around.pop();
        }
        overlap(tree, one, &around, sources, problems);
        if let Some(bound) = bounds[one.class]
            && !around.iter().any(|outer| outer.class == bound)
        {
            let (name, above) = (
                &tree.nodes[one.class].draft.name,
                &tree.nodes[bound].draft.name,
            );
            let text = format!(
                "class \"{name}\": prefix {} is outside of all prefixes of its ancestor \"{above}\"",
                one.prefix
            );
            problems.warning(ProblemKind::Outside, one.place, name, text);
        }
        around.push(one);
    }
}

/// Reports if the next shorter prefix belongs to a class that is not an ancestor. Prefixes further out
/// are reported for that one. A prefix of length 0 is never reported.
fn overlap(
    tree: &Tree,
    one: &Owned,
    around: &[&Owned],
    sources: &Sources,
    problems: &mut Problems,
) {
    let Some(outer) = around.iter().rev().find(|outer| outer.class != one.class) else {
        return;
    };
    if outer.prefix.len == 0 || tree.is_above(outer.class, one.class) {
        return;
    }
    let (name, other) = (
        &tree.nodes[one.class].draft.name,
        &tree.nodes[outer.class].draft.name,
    );
    let text = format!(
        "class \"{name}\": prefix {} overlaps {} of class \"{other}\" ({}), which is not an ancestor: the longer prefix applies",
        one.prefix,
        outer.prefix,
        sources.locate(outer.place)
    );
    problems.warning(ProblemKind::Overlap, one.place, name, text);
}

/// For each class, the nearest ancestor to which anything leads, if that is prefixes only.
fn bounds(tree: &Tree) -> Vec<Option<usize>> {
    let mut bounds: Vec<Option<usize>> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        // Parents come first, so theirs is known.
        let bound = node.parent.and_then(|parent| {
            let criteria = &tree.nodes[parent].draft.criteria;
            if criteria.is_empty() {
                bounds[parent]
            } else {
                let is_prefix = |found: &At<Criterion>| matches!(found.value, Criterion::Prefix(_));
                criteria.iter().all(is_prefix).then_some(parent)
            }
        });
        bounds.push(bound);
    }
    bounds
}
