//! The tree of the configured classes: one node per class, with the rates of the class.
//!
//! ```text
//! root (class_tree) --+-- site (class_tree) --+-- subscriber (fq_codel)
//!                     |                       '-- own packets (fq_codel)   hosts in no class below
//!                     '-- other (fq_codel)                                 packets without a class
//! ```

use fairpath_class::{Class, ClassSet, Rates};
use toml::Spanned;

use super::draft::{Draft, Match, NodeDraft};
use super::problem::{BadTree, NOWHERE, Problems};
use super::tins::Diffserv;
use super::{Known, Tree, build};

/// The direction whose rates of a class apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that the hosts send.
    Up,
    /// Packets that the hosts receive.
    Down,
}

/// The policy of inner nodes: shares between floors and ceilings.
const INNER: &str = "class_tree";
/// The policy of leaves: flows of one class.
const LEAF: &str = "fq_codel";

impl Tree {
    /// Builds the tree of these classes under one root. They are numbered from 1 in their order.
    ///
    /// Floors of children that exceed their parent are only a warning here, because operators
    /// oversubscribe links. O(classes).
    ///
    /// # Errors
    /// The classes have more than 14 levels (root and leaf add two), or a policy is unknown.
    pub fn of_classes(
        set: &ClassSet,
        direction: Direction,
        policies: &[fairpath_core::sched::Policy],
    ) -> Result<Tree, BadTree> {
        Tree::of_classes_with(set, direction, LEAF, Diffserv::BestEffort, policies)
    }

    /// Builds the same tree with another policy for the flows of a class, and tins in each class.
    ///
    /// # Errors
    /// The same as for [`Tree::of_classes`].
    pub fn of_classes_with(
        set: &ClassSet,
        direction: Direction,
        leaf: &str,
        diffserv: Diffserv,
        policies: &[fairpath_core::sched::Policy],
    ) -> Result<Tree, BadTree> {
        let classes: Vec<String> = set
            .classes()
            .iter()
            .map(|class| class.name.clone())
            .collect();
        let mut draft = Draft {
            overbooked: true,
            ..Draft::default()
        };
        let unique = |name: &str| {
            let mut name = name.to_owned();
            while set.get(&name).is_some() {
                name.push('_');
            }
            name
        };
        let root = unique("root");
        draft.nodes.push(node(&root, None, INNER));
        for (at, class) in set.classes().iter().enumerate() {
            let parent = set.parent(class).map_or(&root, |parent| &parent.name);
            let has_children = set.subtree(at).len() > 1;
            let number = Match::Number(at as u32 + 1);
            let inner = NodeDraft {
                ..rated(node(&class.name, Some(parent), INNER), class, direction)
            };
            if has_children {
                let own = unique(&format!("{} (own)", class.name));
                draft.nodes.push(inner);
                let own = leading(node(&own, Some(&class.name), leaf), number);
                draft.nodes.extend(diffserv.split(own, unique));
            } else {
                let own = NodeDraft {
                    policy: Some(here(leaf.to_owned())),
                    ..inner
                };
                draft
                    .nodes
                    .extend(diffserv.split(leading(own, number), unique));
            }
        }
        let other = unique("other");
        let other = leading(node(&other, Some(&root), leaf), Match::Rest);
        draft.nodes.extend(diffserv.split(other, unique));
        build(
            &draft,
            Known {
                policies,
                classes: &classes,
            },
            Problems::default(),
            "classes",
            "",
        )
    }
}

pub(super) fn here<T>(value: T) -> Spanned<T> {
    Spanned::new(NOWHERE..NOWHERE, value)
}

fn node(name: &str, parent: Option<&str>, policy: &str) -> NodeDraft {
    NodeDraft {
        place: NOWHERE..NOWHERE,
        name: name.to_owned(),
        parent: parent.map(|parent| here(parent.to_owned())),
        policy: Some(here(policy.to_owned())),
        ..NodeDraft::default()
    }
}

fn leading(node: NodeDraft, class: Match) -> NodeDraft {
    NodeDraft {
        classes: vec![here(class)],
        ..node
    }
}

fn rated(node: NodeDraft, class: &Class, direction: Direction) -> NodeDraft {
    let Rates {
        floor_bps,
        ceil_bps,
    } = match direction {
        Direction::Up => class.up,
        Direction::Down => class.down,
    };
    let rate = |bps: Option<u64>| bps.filter(|bps| *bps > 0).map(here);
    NodeDraft {
        floor_bps: rate(floor_bps),
        ceil_bps: rate(ceil_bps),
        ..node
    }
}
