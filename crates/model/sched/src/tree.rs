//! The tree of a scheduler: built from TOML, classes or one policy, and compiled to a plan for the core.
//!
//! ```text
//! TOML ----> draft --.
//! classes -> draft --+-> shape -> layout, check, matching --> Plan, names
//! policy --> draft --'   (parents, cycles)   (policies, modes, rates, tables)
//! ```
//!
//! All errors are reported together, each with line, column and remedy. The core can load every tree
//! that was built. The guide is `docs/guide/sched-trees.md`. Absent: changes of a running tree, which
//! is replaced as a whole.

mod check;
mod classes;
mod draft;
mod impaired;
mod layout;
mod link;
mod matching;
mod problem;
mod queue;
mod rounds;
mod shape;
mod tins;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use fairpath_core::sched::{Meta, Over, Overflow, Param, Plan, Policy};
use fairpath_policy::Author;
use thiserror::Error;
use toml::Spanned;

pub use classes::Direction;
pub use draft::dscp_number;
pub use layout::{
    DEFAULT_BURST_NS, DEFAULT_HOSTS, DEFAULT_LIMIT_PACKETS, SPARE_HANDLES, cost, exact_cost,
};
pub use link::{LINK_BURST_NS, Link, STACK_SHARE, TooDeep, stack_floor};
pub use matching::MAX_CLASS;
pub use problem::{BadTree, MAX_PROBLEMS, Problem};
pub use rounds::{LONG_ROUND_NS, Round};
pub use shape::MAX_NODES;
pub use tins::Diffserv;

use crate::impair::Spec;
use draft::{Draft, NodeDraft};
use fairpath_units::quantity::{self, written};
use problem::{NOWHERE, Problems};

/// The names that a tree can use.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The policies: `fairpath_core::sched::policies()` and the custom policy.
    pub policies: &'a [Policy],
    /// Names of the classes 1, 2 and so on. Can be empty.
    pub classes: &'a [String],
}

/// A tree that the core can load, and the names of its parts.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The plan for the core.
    pub plan: Plan,
    /// The names for reports.
    pub names: Names,
    /// Problems that are not errors.
    pub warnings: Vec<Problem>,
    /// The custom policies of some of its nodes, in the order of their numbers.
    pub customs: Vec<Arc<Author>>,
    /// The impairments before its leaves, by number minus 1.
    pub impairments: Vec<Spec>,
}

/// The names of the nodes, policies and classes of a plan.
#[derive(Clone, Debug, Default)]
pub struct Names {
    nodes: Vec<String>,
    policies: Vec<Policy>,
    /// Index into `policies`, by node.
    policy_of: Vec<usize>,
    classes: Vec<String>,
    ids: HashMap<String, u32>,
    /// The maximum weight of a node and its siblings, by node.
    heaviest: Vec<u64>,
}

impl Names {
    /// The names of the nodes, beginning with node 1.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The policies of the tree without duplicates.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The name of a node, or "?" for an unknown node. O(1).
    pub fn node(&self, id: u32) -> &str {
        let at = (id as usize).checked_sub(1);
        at.and_then(|at| self.nodes.get(at))
            .map_or("?", String::as_str)
    }

    /// The number of the node with this name. O(1).
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The policy of a node. O(1).
    pub fn policy(&self, id: u32) -> Option<&Policy> {
        let at = (id as usize).checked_sub(1)?;
        self.policies.get(*self.policy_of.get(at)?)
    }

    /// A parameter of a node, and its index. O(parameters).
    pub fn param(&self, node: u32, name: &str) -> Option<(usize, &Param)> {
        let mut params = self.policy(node)?.params.iter().enumerate();
        params.find(|(_, param)| param.name == name)
    }

    /// The weight with the cost [`COST_ONE`](fairpath_core::sched::COST_ONE) per byte. It is the
    /// maximum weight of the node and its siblings when the tree was built. O(1).
    pub fn heaviest(&self, id: u32) -> u64 {
        let at = (id as usize).checked_sub(1);
        at.and_then(|at| self.heaviest.get(at))
            .copied()
            .unwrap_or(1)
    }

    /// The name of a class, or its number if it has no name.
    pub fn class(&self, number: u32) -> String {
        let at = (number as usize).checked_sub(1);
        match at.and_then(|at| self.classes.get(at)) {
            Some(name) => name.clone(),
            None if number == 0 => "other".to_owned(),
            None => number.to_string(),
        }
    }

    /// The number of a class by its name or number. O(classes).
    pub fn class_number(&self, name: &str) -> Option<u32> {
        let at = self.classes.iter().position(|class| class == name);
        at.map(|at| at as u32 + 1)
            .or_else(|| name.parse().ok().filter(|number| *number <= MAX_CLASS))
    }
}

/// A parameter was not set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("set \"{assignment}\": {wrong}")]
pub struct SetError {
    /// The assignment as written.
    pub assignment: String,
    /// The cause and the remedy.
    pub wrong: String,
}

impl Tree {
    /// Reads a tree in TOML. `file` is its name in messages. O(bytes + nodes x levels).
    ///
    /// # Errors
    /// All problems of the tree.
    pub fn read(file: &str, text: &str, known: Known<'_>) -> Result<Tree, BadTree> {
        let mut problems = Problems::default();
        let draft = draft::read(text, &mut problems);
        build(&draft, known, problems, file, text)
    }

    /// The tree of one leaf with this policy, which ranks its default elements.
    ///
    /// # Errors
    /// The policy cannot be at a leaf.
    pub fn of_policy(policy: &Policy, known: Known<'_>) -> Result<Tree, BadTree> {
        let here = NOWHERE..NOWHERE;
        let node = NodeDraft {
            name: policy.name.clone(),
            policy: Some(Spanned::new(here.clone(), policy.name.clone())),
            place: here,
            ..NodeDraft::default()
        };
        let draft = Draft {
            nodes: vec![node],
            ..Draft::default()
        };
        let file = format!("policy {}", policy.name);
        build(&draft, known, Problems::default(), &file, "")
    }

    /// The leaf of a packet, if there is one. O(levels).
    pub fn leaf(&self, meta: &Meta) -> Option<u32> {
        matching::leaf(&self.plan, meta)
    }

    /// Sets a parameter as on the command line: `quantum=300B` at every node whose policy has it,
    /// or `NODE.quantum=300B` at one.
    ///
    /// # Errors
    /// The node or parameter does not exist, or the value is out of range.
    pub fn set(&mut self, assignment: &str) -> Result<(), SetError> {
        let settings = self.settings(assignment)?;
        for (node, index, value) in settings {
            self.plan.nodes[node as usize - 1].params[index] = value;
        }
        let policy_of = |at: usize| Some(self.names.policy(at as u32 + 1)?.name.as_str());
        match window::clamped(&self.plan, policy_of).first() {
            None => Ok(()),
            Some((at, wrong)) => Err(SetError {
                assignment: assignment.to_owned(),
                wrong: format!("node {}: queue: {wrong}", self.names.node(*at as u32 + 1)),
            }),
        }
    }

    /// The nodes, indices and encoded values of an assignment; see [`Tree::set`].
    ///
    /// # Errors
    /// The same as for [`Tree::set`].
    pub fn settings(&self, assignment: &str) -> Result<Vec<(u32, usize, u64)>, SetError> {
        let bad = |wrong: String| SetError {
            assignment: assignment.to_owned(),
            wrong,
        };
        let (target, value) = assignment
            .split_once('=')
            .ok_or_else(|| bad("write NAME=VALUE or NODE.NAME=VALUE".to_owned()))?;
        let (node, name) = match target.rsplit_once('.') {
            Some((node, name)) => (Some(node), name),
            None => (None, target),
        };
        let all = 1..=self.plan.nodes.len() as u32;
        let nodes: Vec<u32> = match node {
            None => all
                .filter(|node| self.names.param(*node, name).is_some())
                .collect(),
            Some(node) => match self.names.id(node) {
                Some(id) => vec![id],
                None => return Err(bad(self.no_node(node))),
            },
        };
        if nodes.is_empty() {
            return Err(bad(self.no_param_anywhere(name)));
        }
        let setting = |node: u32| {
            let policy = self.names.policy(node);
            let Some((index, param)) = self.names.param(node, name) else {
                return Err(bad(
                    policy.map_or_else(String::new, |policy| layout::no_param(policy, name))
                ));
            };
            let number =
                quantity::read(value, &param.unit).map_err(|wrong| bad(wrong.to_string()))?;
            if !(param.min..=param.most).contains(&number) {
                let [min, max] = [param.min, param.most].map(|bound| written(bound, &param.unit));
                return Err(bad(format!("{name} is out of range: write {min} to {max}")));
            }
            Ok((node, index, param.encode(number)))
        };
        nodes.into_iter().map(setting).collect()
    }

    fn no_node(&self, name: &str) -> String {
        let near = problem::did_you_mean(name, self.names.nodes.iter().map(String::as_str));
        format!(
            "node \"{name}\" does not exist: {}",
            if near.is_empty() {
                "write the name of a node of this tree"
            } else {
                &near
            }
        )
    }

    fn no_param_anywhere(&self, name: &str) -> String {
        match self.names.policies.as_slice() {
            [policy] => layout::no_param(policy, name),
            policies => {
                let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
                format!(
                    "no policy of this tree has a parameter \"{name}\": `fairpath sched show` lists those of {}",
                    names.join(", ")
                )
            }
        }
    }
}

fn build(
    draft: &Draft,
    known: Known<'_>,
    mut problems: Problems,
    file: &str,
    text: &str,
) -> Result<Tree, BadTree> {
    let shape = shape::grow(&draft.nodes, &mut problems);
    // Without a hierarchy, every other message would be a wrong one.
    if draft.nodes.len() > MAX_NODES {
        let (problems, omitted) = problems.located(file, text);
        return Err(BadTree { problems, omitted });
    }
    let chosen = layout::choose(&draft.nodes, known.policies, &mut problems);
    let over = |(at, node): (usize, &NodeDraft)| {
        let is_leaf = shape.children[at].is_empty();
        chosen[at].map_or_else(Over::default, |policy| {
            layout::over_of(node, policy, is_leaf, &mut problems)
        })
    };
    let overs: Vec<Over> = draft.nodes.iter().enumerate().map(over).collect();
    let mut plan = layout::plan(draft, &shape, &chosen, &overs, &mut problems);
    if draft.overflow.is_none() && leaves_are_over_flows(&shape, &overs) {
        plan.config.overflow = Overflow::Fattest;
    }
    let full: Vec<u32> = plan.nodes.iter().map(|node| node.queue_full).collect();
    check::check(draft, &shape, &overs, &full, &mut problems);
    let policy_of = |place: usize| chosen[shape.order[place]].map(|policy| policy.name.as_str());
    for (place, wrong) in window::clamped(&plan, policy_of) {
        let node = &draft.nodes[shape.order[place]];
        let text = format!("node \"{}\": queue: {wrong}", node.name);
        problems.error(node.place.clone(), text);
    }
    matching::fill(draft, &shape, known.classes, &mut plan, &mut problems);
    let impairments = impaired::add_to_plan(draft, &shape, &mut plan, &mut problems);
    let is_sound = !problems.has_errors();
    let (problems, omitted) = problems.located(file, text);
    if !is_sound {
        return Err(BadTree { problems, omitted });
    }
    Ok(Tree {
        names: names(draft, &shape, &chosen, known),
        plan,
        warnings: problems,
        customs: Vec::new(),
        impairments,
    })
}

/// A full scheduler can drop from the fattest flow if every leaf has flows (RFC 8290 section 4.1.3).
fn leaves_are_over_flows(shape: &shape::Shape, overs: &[Over]) -> bool {
    let mut leaves = shape
        .order
        .iter()
        .filter(|at| shape.children[**at].is_empty());
    leaves.all(|leaf| overs[*leaf] == Over::Flows)
}

fn names(
    draft: &Draft,
    shape: &shape::Shape,
    chosen: &layout::Chosen<'_>,
    known: Known<'_>,
) -> Names {
    let mut names = Names {
        classes: known.classes.to_vec(),
        ..Names::default()
    };
    let mut places: HashMap<u32, usize> = HashMap::new();
    let heaviest = layout::heaviest_children(draft, shape);
    for (place, at) in shape.order.iter().enumerate() {
        let name = &draft.nodes[*at].name;
        names.nodes.push(name.clone());
        names.ids.insert(name.clone(), place as u32 + 1);
        let above = shape.parent[*at];
        names
            .heaviest
            .push(above.map_or(1, |parent| heaviest[parent]));
        if let Some(policy) = chosen[*at] {
            let policies = &mut names.policies;
            let place = *places.entry(policy.id).or_insert_with(|| {
                policies.push(policy.clone());
                policies.len() - 1
            });
            names.policy_of.push(place);
        }
    }
    names
}
