//! A direction as built: its tree, and the contents of its path.

use fairpath_core::sched::{End, Policy};
use fairpath_sched::tree::Tree;
use fairpath_shape::{Places, ShapeInstance};

use crate::path::Path;

/// One direction, ready to build.
pub struct Plan {
    /// The name: "to-peer", "from-peer", "out" or "in".
    pub name: &'static str,
    /// Its line, the impaired leaf on it.
    pub tree: Tree,
    /// Packets that it holds at most, those in the pipe among them.
    pub packets: u32,
    /// Packets are duplicated or corrupted: back ends need their bytes.
    pub changes: bool,
    /// Packets leave in the order of their arrival, as far as it goes by the plan.
    pub in_order: bool,
}

impl Plan {
    /// Its shaper instance, on its own clock.
    ///
    /// # Errors
    /// The tree cannot be built.
    pub fn path(&self, handles: u32) -> anyhow::Result<Path> {
        self.path_of(&self.tree, handles)
    }

    /// The same, for a back end that cannot set CE: the policy drops packets that it would mark.
    ///
    /// # Errors
    /// As [`Plan::path`].
    pub fn path_without_marks(&self, handles: u32) -> anyhow::Result<Path> {
        let mut tree = self.tree.clone();
        // Policies without this parameter mark nothing.
        let _ = tree.set("ecn=0");
        self.path_of(&tree, handles)
    }

    fn path_of(&self, tree: &Tree, handles: u32) -> anyhow::Result<Path> {
        let (end, rules) = (End::Receiver, Default::default());
        let instance = ShapeInstance::new(tree, end, &rules, handles, false)?;
        Ok(Path::new(
            instance,
            Places::of(tree),
            self.packets,
            self.in_order,
        ))
    }
}

/// A policy that keeps the order of all its packets.
pub fn keeps_order(policy: &Policy) -> bool {
    matches!(policy.name.as_str(), "fifo" | "codel")
}
