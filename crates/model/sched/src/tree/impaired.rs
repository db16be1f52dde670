//! Impairments of a tree: `impair = { ... }` of nodes, and one impairment for a whole tree.
//!
//! The impairment of a node applies to all leaves below it that have no separate one. These leaves
//! share it, so it numbers their packets together. A rate trace belongs to the link, so only the root
//! can have one.

use std::collections::HashMap;
use std::ops::Range;

use fairpath_core::sched::{Over, Plan};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Tree;
use super::draft::{Draft, MAX_PACKETS};
use super::problem::{NOWHERE, Problems};
use super::shape::Shape;
use crate::impair::{BadSetting, BadSpec, Builder, Spec};

/// The default direction, from which the random outcomes derive.
const FIRST_DIRECTION: u64 = 0;

/// Reads the table. `of` is the owner in messages.
pub(super) fn read(
    of: &str,
    place: Range<usize>,
    table: DeTable<'_>,
    problems: &mut Problems,
) -> Spec {
    let mut builder = Builder::default();
    let mut places: HashMap<String, Range<usize>> = HashMap::new();
    for (key, value) in table {
        let (span, name) = (value.span(), key.get_ref().to_string());
        places.insert(name.clone(), span.clone());
        let set = match words(value.get_ref()) {
            Some(text) => builder.set(&name, &text),
            None => Err(BadSetting {
                key: name,
                wrong: "the value has the wrong type: write a string, a number or a table such as \
                        { p = \"1%\" }"
                    .into(),
            }),
        };
        if let Err(bad) = set {
            problems.error(span, format!("{of}: impair: {bad}"));
        }
    }
    builder.finish().unwrap_or_else(|BadSpec(wrong)| {
        for bad in wrong {
            let span = places.get(&bad.key).cloned();
            problems.error(
                span.unwrap_or(place.clone()),
                format!("{of}: impair: {bad}"),
            );
        }
        Spec::default()
    })
}

/// A value in the form of options: `key=value,key=value` for tables, and commas between list items.
fn words(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Array(entries) => {
            let entries = entries.iter().map(|entry| words(entry.get_ref()));
            Some(entries.collect::<Option<Vec<_>>>()?.join(", "))
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Some(format!("{key}={}", words(value.get_ref())?))
            };
            Some(
                table
                    .iter()
                    .map(pair)
                    .collect::<Option<Vec<_>>>()?
                    .join(","),
            )
        }
        _ => None,
    }
}

/// Adds the impairments of the nodes to the plan. Returns the specifications by number minus 1.
pub(super) fn add_to_plan(
    draft: &Draft,
    shape: &Shape,
    plan: &mut Plan,
    problems: &mut Problems,
) -> Vec<Spec> {
    let mut specs: Vec<Spec> = Vec::new();
    // The impairment of each node or of its parent. Parents precede their children.
    let mut of_node = vec![0; draft.nodes.len()];
    for (place, at) in shape.order.iter().enumerate() {
        let node = &draft.nodes[*at];
        let above = shape.parent[*at];
        of_node[*at] = above.map_or(0, |parent| of_node[parent]);
        if let Some(spec) = &node.impair {
            if spec.get_ref().rate_trace.is_some() && above.is_some() {
                let text = format!(
                    "node \"{}\": impair: rate_trace applies to the whole link: move it to the root",
                    node.name
                );
                problems.error(spec.span(), text);
            }
            of_node[*at] = spec.get_ref().add_to(plan, FIRST_DIRECTION);
            specs.push(spec.get_ref().clone());
        }
        if shape.children[*at].is_empty() {
            plan.nodes[place].impair = of_node[*at];
        }
    }
    give_handles(plan, &specs, problems);
    specs
}

/// Adds handles for delayed packets to the handles for queued packets.
fn give_handles(plan: &mut Plan, specs: &[Spec], problems: &mut Problems) {
    let pipes = specs.iter().map(|spec| u64::from(spec.pipe_packets()));
    let all = u64::from(plan.config.packets) + pipes.sum::<u64>();
    if all > MAX_PACKETS {
        let text = format!(
            "the limit and the pipes sum to {all} packets, and the maximum is {MAX_PACKETS}: lower scheduler.limit or impair.pipe"
        );
        problems.error(NOWHERE..NOWHERE, text);
    }
    plan.config.packets = all.min(MAX_PACKETS) as u32;
}

impl Tree {
    /// Adds one impairment for all leaves that have none. It numbers their packets together. A rate
    /// trace applies to the root. Leaves that are added later, as those of a link, have none. O(nodes).
    ///
    /// `direction` distinguishes the directions of a link, so that each has separate random outcomes.
    /// The plan gets handles for the delayed packets.
    pub fn impair(&mut self, spec: &Spec, direction: u64) {
        if spec.is_nothing() {
            return;
        }
        let number = spec.add_to(&mut self.plan, direction);
        let is_leaf = |over| matches!(over, Over::Packets | Over::Flows);
        let leaves = self.plan.nodes.iter_mut();
        for leaf in leaves.filter(|node| is_leaf(node.over) && node.impair == 0) {
            leaf.impair = number;
        }
        self.plan.config.packets += spec.pipe_packets();
        self.impairments.push(spec.clone());
    }

    /// Selects the random outcomes of another direction, for a tree that serves both ends of a link.
    /// Call it before the first packet. O(impairments).
    pub fn set_direction(&mut self, direction: u64) {
        let numbered = (0..).zip(&mut self.plan.impairments).zip(&self.impairments);
        for ((number, config), spec) in numbered {
            config.loss.seed = crate::impair::seed_of(spec.seed, direction, number);
        }
    }
}
