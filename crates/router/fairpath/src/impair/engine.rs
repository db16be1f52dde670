//! What the ports of an impairment have in common.

use fairpath_afxdp::Precedence;
use fairpath_core::sched::Policy;
use fairpath_sched::tree::Tree;
use fairpath_shape::{Lane, Places};

use super::counts::Counts;
use super::path::Path;

/// Longest before its time that a thread stays awake, ns: where it runs before all others, a sleep
/// ends within some 50 us of its time.
const AWAKE_FIRST_NS: u64 = 60_000;
/// Likewise where it runs as others do.
const AWAKE_USUAL_NS: u64 = 300_000;

/// Puts the calling thread before others; how long before its time it is to stay awake.
pub fn awake_ns() -> u64 {
    match fairpath_afxdp::precede() {
        Ok(Precedence::RealTime) => AWAKE_FIRST_NS,
        Ok(Precedence::Usual) => AWAKE_USUAL_NS,
        Err(error) => {
            eprintln!("fairpath impair: ask for exact timers: {error}; packets may leave late");
            AWAKE_USUAL_NS
        }
    }
}

/// One direction, ready to be laid out.
pub struct Plan {
    /// What it is called: "to-peer", "from-peer", "out" or "in".
    pub name: &'static str,
    /// Its line, the impaired leaf on it.
    pub tree: Tree,
    /// Packets that it holds at most, those in the pipe among them.
    pub packets: u32,
    /// Packets are copied or damaged: ports need their bytes.
    pub changes: bool,
    /// Packets leave in the order of their arrival, as far as it goes by the plan.
    pub in_order: bool,
}

impl Plan {
    /// Its lane, on its own clock.
    ///
    /// # Errors
    /// Where the tree cannot be laid out.
    pub fn path(&self, handles: u32) -> anyhow::Result<Path> {
        self.path_of(&self.tree, handles)
    }

    /// Likewise, for a port that cannot set CE: its policy drops what it would mark.
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
        let (end, rules) = (fairpath_core::sched::End::Receiver, Default::default());
        let lane = Lane::new(tree, end, &rules, handles, false)?;
        Ok(Path::new(
            lane,
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

/// A port with its directions, running. Dropping it takes away what is attached.
pub trait Engine {
    /// What it does in a line.
    fn about(&self) -> String;

    /// What became of packets so far, by direction.
    ///
    /// # Errors
    /// Where it does not run any more: why.
    fn read(&mut self) -> anyhow::Result<Vec<Counts>>;

    /// Ends: nothing is impaired any more, and what waits goes on or is dropped. The last counts.
    ///
    /// # Errors
    /// What was left behind.
    fn stop(self: Box<Self>) -> anyhow::Result<Vec<Counts>>;
}
