//! Both lines of a shaper: from classes and rates to a tree for each way.

use std::sync::Arc;

use crate::impaired::{Impaired, Impairments, pipes_of_nodes};
use fairpath_class::ClassSet;
use fairpath_core::sched::{End, Framing, Over, Policy};
use fairpath_policy::Author;
use fairpath_sched::tree::{
    BadTree, Diffserv, Direction, Known, LINK_BURST_NS, Link, SetError, TooDeep, Tree,
};

/// What leaves by which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Towards subscribers: what they receive.
    Down,
    /// Towards the internet: what they send.
    Up,
}

impl Side {
    /// Both, in the order of [`Both`].
    pub const BOTH: [Side; 2] = [Side::Down, Side::Up];

    /// Whose class counts.
    pub fn end(self) -> End {
        match self {
            Side::Down => End::Receiver,
            Side::Up => End::Sender,
        }
    }

    /// "down" or "up".
    pub fn name(self) -> &'static str {
        match self {
            Side::Down => "down",
            Side::Up => "up",
        }
    }
}

/// One of something for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// For [`Side::Down`].
    pub down: T,
    /// For [`Side::Up`].
    pub up: T,
}

impl<T> Both<T> {
    /// One for each.
    ///
    /// # Errors
    /// The first that `make` gives.
    pub fn try_of<E>(mut make: impl FnMut(Side) -> Result<T, E>) -> Result<Both<T>, E> {
        Ok(Both {
            down: make(Side::Down)?,
            up: make(Side::Up)?,
        })
    }

    /// One for each, of one for each.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> Both<U> {
        Both {
            down: make(self.down),
            up: make(self.up),
        }
    }

    /// That of a side.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Down => &self.down,
            Side::Up => &self.up,
        }
    }

    /// That of a side.
    pub fn get_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Down => &mut self.down,
            Side::Up => &mut self.up,
        }
    }
}

/// A custom policy, and its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Own {
    /// As it was named.
    pub file: String,
    /// What it is and does.
    pub author: Arc<Author>,
}

/// Maximum time in a queue unless configured. CoDel does not slow down a flood, which would fill a queue with seconds.
pub const DEFAULT_MAX_SOJOURN_NS: u64 = 500_000_000;

/// How lines are made of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Rate of each line, bits a second; 0: only classes have rates.
    pub bps: Both<u64>,
    /// A tree in TOML instead of the classes': its file's name and text.
    pub tree: Option<(String, String)>,
    /// The policy of a class's flows, or of all where there are no classes.
    pub policy: String,
    /// Custom policies, which `policy` or nodes of `tree` name: at most [`Policy::CUSTOMS`].
    pub customs: Vec<Own>,
    /// The tins of each class, without a tree in TOML.
    pub diffserv: Diffserv,
    /// A TCP ACK replaces one ahead in the queue of its flow.
    pub ack_filter: bool,
    /// Parameters, as `fairpath sched run --set` takes them.
    pub set: Vec<String>,
    /// Packets that each line holds at most; `None`: the tree's limit.
    pub limit_packets: Option<u32>,
    /// The bytes of a packet on the link in addition to its Ethernet frame.
    pub framing: Framing,
    /// Maximum time in a queue, ns; 0: none. `None`: the tree's, or [`DEFAULT_MAX_SOJOURN_NS`].
    pub max_sojourn_ns: Option<u64>,
    /// What a bad network does to packets before they wait.
    pub impair: Impairments,
    /// The back end cannot mark packets: policies drop instead.
    pub marks: bool,
    /// Others send by the same interfaces, and the port can only charge them.
    pub stack: bool,
    /// The seed of hashes in a tree that sets none. It stays the same while a shaper runs, so that
    /// a flow keeps its hash.
    pub seed: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            bps: Both::default(),
            tree: None,
            policy: "fq_codel".to_owned(),
            customs: Vec::new(),
            diffserv: Diffserv::default(),
            ack_filter: false,
            set: Vec::new(),
            limit_packets: None,
            framing: Framing::default(),
            max_sojourn_ns: None,
            impair: Impairments::default(),
            marks: true,
            stack: false,
            seed: 0,
        }
    }
}

impl Settings {
    /// The impairment of its links, for any back end.
    ///
    /// # Errors
    /// [`LineError`] says what is wrong with the tree.
    pub fn impaired(&self, set: &ClassSet) -> Result<Impaired, LineError> {
        match self.tree {
            // Without making lines of many classes twice.
            None => Ok(self.impair.impaired()),
            Some(_) => Ok(Lines::new(set, self)?.impaired()),
        }
    }
}

/// A line could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The tree, or the classes.
    #[error(transparent)]
    Tree(#[from] BadTree),
    /// Too many levels.
    #[error(transparent)]
    Deep(#[from] TooDeep),
    /// A parameter.
    #[error(transparent)]
    Set(#[from] SetError),
    /// A class has the name of the whole link.
    #[error(
        "class \"line\": this is the name of the whole link in the status and in `fairpath shape set`: name the class differently"
    )]
    Reserved,
    /// There is no such policy.
    #[error("policy {name:?}: unknown policy{near}: `fairpath sched list` lists all")]
    Policy {
        /// As given.
        name: String,
        /// The nearest known one, as a question.
        near: String,
    },
    /// A policy of children at classes, which have none.
    #[error(
        "policy {name:?}: it ranks children, and classes have packets and flows: choose another, such as \"fq_codel\", or use it in a tree"
    )]
    Children {
        /// As given.
        name: String,
    },
    /// No queue has flows, whose ACKs could be filtered.
    #[error(
        "filter ACKs: no policy here has a queue for each flow: use fq_codel, or a tree with such a leaf, or omit ack_filter"
    )]
    NoFlows,
    /// A class that there is not is to be impaired.
    #[error("impair class {name:?}: there is no such class; name one that the configuration has")]
    Impaired {
        /// As given.
        name: String,
    },
    /// A class is to be sent by a trace.
    #[error(
        "impair_class: a rate_trace is the whole line's, and no class's; put it into [shape.impair]"
    )]
    TraceOfClass,
    /// No node of the tree has the custom policy.
    #[error(
        "policy {file}: no node of the tree has it; name it there (policy = {name:?}), or leave it out"
    )]
    Unused {
        /// The author's file.
        file: String,
        /// What the policy calls itself.
        name: String,
    },
}

/// A tree for each side, on its line.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The trees.
    pub trees: Both<Tree>,
    /// Packets that may be delayed at a time.
    pipes: Both<u32>,
}

impl Lines {
    /// The trees of these classes, or the one that the settings give.
    ///
    /// # Errors
    /// [`LineError`] says what is wrong.
    pub fn new(set: &ClassSet, settings: &Settings) -> Result<Lines, LineError> {
        if set.classes().iter().any(|class| class.name == "line") {
            return Err(LineError::Reserved);
        }
        let mut pipes = Both::default();
        let trees = Both::try_of(|side| {
            let (tree, pipe) = line(set, settings, side)?;
            *pipes.get_mut(side) = pipe;
            Ok::<_, LineError>(tree)
        })?;
        Ok(Lines { trees, pipes })
    }

    /// Packets that a side holds at most, the delayed ones among them.
    pub fn held(&self, side: Side) -> u32 {
        let limit = self.trees.get(side).plan.config.limit_packets;
        limit.saturating_add(*self.pipes.get(side))
    }

    /// Packets that a side holds at most, if `limit` of them are not delayed.
    pub fn held_with(&self, side: Side, limit: u32) -> u32 {
        limit.saturating_add(*self.pipes.get(side))
    }

    /// Whether some packets of a side meet a bad network.
    pub fn is_impaired(&self, side: Side) -> bool {
        Impaired::of_plan(&self.trees.get(side).plan).some
    }

    /// The impairment of packets, on either side.
    pub fn impaired(&self) -> Impaired {
        let of = |side| Impaired::of_plan(&self.trees.get(side).plan);
        of(Side::Down).or(of(Side::Up))
    }
}

/// A side's tree, and packets that may be delayed in it at a time.
fn line(set: &ClassSet, settings: &Settings, side: Side) -> Result<(Tree, u32), LineError> {
    let direction = match side {
        Side::Down => Direction::Down,
        Side::Up => Direction::Up,
    };
    let names: Vec<String> = set
        .classes()
        .iter()
        .map(|class| class.name.clone())
        .collect();
    let numbered = settings.customs.iter().enumerate();
    let customs: Vec<Arc<Author>> = numbered
        .map(|(place, own)| Arc::new(own.author.numbered(place)))
        .collect();
    let policies = fairpath_policy::known(customs.iter().map(AsRef::as_ref));
    let known = Known {
        policies: &policies,
        classes: &names,
    };
    let mut tree = match &settings.tree {
        Some((file, text)) => Tree::read(file, text, known)?,
        None => {
            find(&settings.policy, &policies)?;
            let (leaf, diffserv) = (&settings.policy, settings.diffserv);
            Tree::of_classes_with(set, direction, leaf, diffserv, &policies)?
        }
    };
    // Both directions have the same nodes, and separate outcomes.
    tree.set_direction(direction_of(side));
    check_used(settings, &tree)?;
    tree.customs = customs;
    for assignment in &settings.set {
        tree.set(assignment)?;
    }
    if !settings.marks {
        // No node of the tree need have it.
        let _ = tree.set("ecn=0");
    }
    let config = &mut tree.plan.config;
    config.framing = settings.framing;
    if config.seed == 0 {
        config.seed = settings.seed;
    }
    if let Some(limit) = settings.limit_packets {
        config.limit_packets = limit;
        config.packets = config.packets.max(limit);
    }
    if settings.ack_filter && tree.plan.nodes.iter().all(|node| node.over != Over::Flows) {
        return Err(LineError::NoFlows);
    }
    let config = &mut tree.plan.config;
    config.ack_filter = settings.ack_filter.into();
    config.max_sojourn = match (settings.max_sojourn_ns, config.max_sojourn) {
        (Some(given), _) => given,
        (None, 0) => DEFAULT_MAX_SOJOURN_NS,
        (None, of_tree) => of_tree,
    };
    let of_nodes = pipes_of_nodes(&tree);
    let pipe = settings.impair.build(&mut tree, side)?;
    let line = Link {
        bps: *settings.bps.get(side),
        burst_ns: LINK_BURST_NS,
        stack: settings.stack,
    };
    Ok((tree.on_link(&line)?, pipe.saturating_add(of_nodes)))
}

/// The direction of random outcomes.
pub(crate) fn direction_of(side: Side) -> u64 {
    u64::from(side == Side::Up)
}

fn find(name: &str, policies: &[Policy]) -> Result<(), LineError> {
    if let Some(policy) = policies.iter().find(|policy| policy.name == name) {
        let at_leaves = policy.over.iter().chain([&policy.usual]);
        return match at_leaves.into_iter().any(|over| *over != Over::Children) {
            true => Ok(()),
            false => Err(LineError::Children {
                name: name.to_owned(),
            }),
        };
    }
    let known = policies.iter().map(|policy| policy.name.as_str());
    Err(LineError::Policy {
        name: name.to_owned(),
        near: fairpath_units::nearest(name, known)
            .map_or(String::new(), |near| format!(", is {near:?} meant?")),
    })
}

/// Every custom policy must be in the tree.
fn check_used(settings: &Settings, tree: &Tree) -> Result<(), LineError> {
    for (number, own) in (Policy::CUSTOM..).zip(&settings.customs) {
        let mut policies = tree.names.policies().iter();
        if !policies.any(|policy| policy.id == number) {
            return Err(LineError::Unused {
                file: own.file.clone(),
                name: own.author.policy.name.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_classes() -> ClassSet {
        ClassSet::default()
    }

    #[test]
    fn without_classes_line_has_one_leaf_for_all() {
        let settings = Settings {
            bps: Both {
                down: 100_000_000,
                up: 20_000_000,
            },
            ..Settings::default()
        };
        let lines = Lines::new(&no_classes(), &settings).unwrap();
        assert_eq!(lines.trees.down.names.nodes(), ["line", "root", "other"]);
        let ceil = |side| lines.trees.get(side).plan.nodes[Tree::SHARED as usize - 1].ceil;
        assert_eq!(ceil(Side::Up), 5 * ceil(Side::Down));
    }

    #[test]
    fn an_unknown_policy_is_named_with_the_nearest() {
        let settings = Settings {
            policy: "fq_codl".into(),
            ..Settings::default()
        };
        let error = Lines::new(&no_classes(), &settings)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is \"fq_codel\" meant?"), "{error}");
    }

    #[test]
    fn port_that_cannot_mark_has_policies_that_drop() {
        let ecn = |marks| {
            let settings = Settings {
                marks,
                ..Settings::default()
            };
            let tree = Lines::new(&no_classes(), &settings).unwrap().trees.down;
            let leaf = tree.names.id("other").unwrap();
            let (at, _) = tree.names.param(leaf, "ecn").unwrap();
            tree.plan.nodes[leaf as usize - 1].params[at]
        };
        assert_eq!((ecn(true), ecn(false)), (1, 0));
    }
}
