//! The tree of an operator's classes: every class a node, its rates the node's.
//!
//! ```text
//! root (class_tree) --+-- site (class_tree) --+-- subscriber (fq_codel)
//!                     |                       '-- site's own (fq_codel)   its hosts in no class below
//!                     '-- other (fq_codel)                                packets of no class
//! ```

use fairpath_class::{Class, ClassSet, Rates};
use toml::Spanned;

use super::draft::{Draft, Match, NodeDraft};
use super::problem::{BadTree, NOWHERE, Problems};
use super::{Known, Tree, build};

/// Which of a class's rates hold: those of what its hosts send, or of what they receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What they send.
    Up,
    /// What they receive.
    Down,
}

/// Shares of classes between their floors and ceilings.
const INNER: &str = "class_tree";
/// Flows of one class.
const LEAF: &str = "fq_codel";

impl Tree {
    /// The tree of these classes, numbered from 1 in their order, under one root.
    ///
    /// Floors of children that are more than there is are a warning here: that is how lines are
    /// sold. O(classes).
    ///
    /// # Errors
    /// Classes on more than 14 levels, since root and leaf come on top; unknown policies.
    pub fn of_classes(
        set: &ClassSet,
        way: Way,
        policies: &[fairpath_core::sched::Policy],
    ) -> Result<Tree, BadTree> {
        Tree::of_classes_with(set, way, LEAF, policies)
    }

    /// The same with another policy for the flows of a class.
    ///
    /// # Errors
    /// As [`Tree::of_classes`].
    pub fn of_classes_with(
        set: &ClassSet,
        way: Way,
        leaf: &str,
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
                ..rated(node(&class.name, Some(parent), INNER), class, way)
            };
            if has_children {
                let own = unique(&format!("{} (own)", class.name));
                draft.nodes.push(inner);
                draft
                    .nodes
                    .push(leading(node(&own, Some(&class.name), leaf), number));
            } else {
                let own = NodeDraft {
                    policy: Some(here(leaf.to_owned())),
                    ..inner
                };
                draft.nodes.push(leading(own, number));
            }
        }
        let other = unique("other");
        draft
            .nodes
            .push(leading(node(&other, Some(&root), leaf), Match::Rest));
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

fn here<T>(value: T) -> Spanned<T> {
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

fn rated(node: NodeDraft, class: &Class, way: Way) -> NodeDraft {
    let Rates {
        floor_bps,
        ceil_bps,
    } = match way {
        Way::Up => class.up,
        Way::Down => class.down,
    };
    let rate = |bps: Option<u64>| bps.filter(|bps| *bps > 0).map(here);
    NodeDraft {
        floor_bps: rate(floor_bps),
        ceil_bps: rate(ceil_bps),
        ..node
    }
}
