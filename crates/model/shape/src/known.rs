//! What nodes and classes of a tree are called, so that a later tree knows them again.

use std::collections::HashMap;

use fairpath_core::sched::Changes;
use fairpath_sched::tree::Tree;

/// Names of nodes and classes, by number. As text: a line each, nodes and classes apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    nodes: Vec<String>,
    classes: Vec<String>,
}

/// Between nodes and classes, in a text; no name has such a character.
const APART: &str = "\u{1e}";

impl Known {
    /// Those of a tree.
    pub fn of(tree: &Tree) -> Known {
        let classes = 0..tree.plan.class_table.len() as u32;
        Known {
            nodes: tree.names.nodes().to_vec(),
            classes: classes.map(|class| tree.names.class(class)).collect(),
        }
    }

    /// As text.
    pub fn to_text(&self) -> String {
        format!(
            "{}{APART}{}",
            self.nodes.join("\n"),
            self.classes.join("\n")
        )
    }

    /// From text; impossible names belong to no class.
    pub fn from_text(text: &str) -> Known {
        let (nodes, classes) = text.split_once(APART).unwrap_or_default();
        let lines = |text: &str| text.split('\n').map(str::to_owned).collect();
        Known {
            nodes: lines(nodes),
            classes: lines(classes),
        }
    }

    /// Which nodes and classes of a later tree are which of these, by their names; with `stack`, the
    /// last class stands for what others send. O(nodes + classes).
    pub fn changes_to(&self, tree: &Tree, stack: bool) -> Changes {
        let was: HashMap<&str, u32> = self.nodes.iter().map(String::as_str).zip(1..).collect();
        let nodes = tree.names.nodes().iter();
        let nodes = nodes.map(|name| *was.get(name.as_str()).unwrap_or(&0));
        let number_of: HashMap<String, u32> =
            (Known::of(tree).classes.into_iter()).zip(0..).collect();
        let classes = self.classes.iter();
        let mut classes: Vec<u32> = classes
            .map(|name| *number_of.get(name).unwrap_or(&0))
            .collect();
        if stack && let Some(last) = classes.last_mut() {
            *last = tree.stack_class();
        }
        Changes {
            nodes: nodes.collect(),
            classes,
        }
    }
}

#[cfg(test)]
mod tests {
    use fairpath_class::ClassSet;

    use super::*;
    use crate::lines::{Lines, Settings};

    #[test]
    fn names_survive_as_text_across_unchanged_trees() {
        let lines = Lines::new(&ClassSet::default(), &Settings::default()).unwrap();
        let tree = &lines.trees.down;
        let known = Known::of(tree);
        assert_eq!(Known::from_text(&known.to_text()), known);
        let changes = known.changes_to(tree, false);
        assert_eq!(changes.nodes, [1, 2, 3]);
        assert_eq!(changes.classes, [0]);
        assert_eq!(
            Known::from_text("").changes_to(tree, false).nodes,
            [0, 0, 0]
        );
    }
}
