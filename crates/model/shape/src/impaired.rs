//! An impaired network before the leaves of a link: for a class, for all classes without a separate
//! impairment, or at the nodes of a custom tree.

use std::collections::BTreeMap;

use fairpath_core::sched::Plan;
use fairpath_sched::impair::Spec;
use fairpath_sched::tree::Tree;

use crate::lines::{Both, LineError, Side, direction_of};

/// Packets that may be delayed at a time on a line, unless the impairment says: real packets take
/// memory that virtual ones do not.
const PIPE: u32 = 16_384;

/// Stands for all classes without a separate impairment: no class has this name.
const OF_ALL: &str = "";

/// The impairment of packets before they are queued, by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// That of all classes without a separate one.
    pub all: Both<Option<Spec>>,
    /// Of classes, by name; of a class with classes below, theirs too.
    pub classes: BTreeMap<String, Both<Option<Spec>>>,
}

/// The impairment of links, as far as back ends treat it differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impaired {
    /// Some meet a bad network.
    pub some: bool,
    /// Some packets are duplicated or corrupted.
    pub changes: bool,
}

impl Impaired {
    /// By the leaves of a plan.
    pub(crate) fn of_plan(plan: &Plan) -> Impaired {
        let before = plan.nodes.iter().filter(|node| node.impair != 0);
        let met = before.map(|node| &plan.impairments[node.impair as usize - 1]);
        met.fold(Impaired::default(), |all, config| Impaired {
            some: true,
            changes: all.changes || config.copy | config.corrupt != 0,
        })
    }

    /// Of either.
    #[must_use]
    pub fn or(self, other: Impaired) -> Impaired {
        Impaired {
            some: self.some || other.some,
            changes: self.changes || other.changes,
        }
    }
}

/// Packets that may be delayed at a time by an impairment before real packets.
fn pipe_of(spec: &Spec) -> u32 {
    match spec.delays() {
        true => spec.pipe.unwrap_or(PIPE),
        false => 0,
    }
}

/// Packets that may be delayed at a time by what a tree by hand has at its nodes.
pub(crate) fn pipes_of_nodes(tree: &Tree) -> u32 {
    let pipes = tree.impairments.iter().map(pipe_of);
    pipes.fold(0, u32::saturating_add)
}

impl Impairments {
    /// The impairment of these, without that of a tree's nodes.
    pub fn impaired(&self) -> Impaired {
        let both = std::iter::once(&self.all).chain(self.classes.values());
        let specs = both.flat_map(|both| both.down.iter().chain(&both.up));
        specs.fold(Impaired::default(), |all, spec| Impaired {
            some: true,
            changes: all.changes || spec.duplicate > 0.0 || spec.corrupt > 0.0,
        })
    }

    /// Puts them before the leaves of a side's tree, which is on no line yet; how many packets may be
    /// delayed at a time.
    pub(crate) fn build(&self, tree: &mut Tree, side: Side) -> Result<u32, LineError> {
        let direction = direction_of(side);
        let mut pipe: u32 = 0;
        // The deepest class that has one decides: those laid last are of the classes further up.
        let mut classes = Vec::new();
        for (name, both) in &self.classes {
            let place = place_of(tree, name);
            let place = place.ok_or_else(|| LineError::Impaired { name: name.clone() })?;
            classes.extend(
                both.get(side)
                    .as_ref()
                    .map(|spec| (place, spec, name.as_str())),
            );
        }
        classes.sort_by_key(|(place, _, _)| std::cmp::Reverse(depth(&tree.plan, *place)));
        let all = self.all.get(side).iter().map(|spec| (1, spec, OF_ALL));
        if classes.iter().any(|(_, spec, _)| spec.rate_trace.is_some()) {
            return Err(LineError::TraceOfClass);
        }
        for (place, spec, name) in classes.into_iter().chain(all) {
            let number = spec.add_named(&mut tree.plan, direction, name);
            for leaf in leaves_below(&tree.plan, place) {
                let impair = &mut tree.plan.nodes[leaf as usize - 1].impair;
                *impair = if *impair == 0 { number } else { *impair };
            }
            pipe = pipe.saturating_add(pipe_of(spec));
        }
        Ok(pipe)
    }
}

/// The node of a class: its own name's, or where its packets go.
fn place_of(tree: &Tree, name: &str) -> Option<u32> {
    let named = tree.names.id(name);
    named.or_else(|| {
        let number = tree.names.class_number(name)?;
        let node = *tree.plan.class_table.get(number as usize)?;
        (node != 0).then_some(node)
    })
}

fn depth(plan: &Plan, node: u32) -> usize {
    let up = |node: &u32| match plan.nodes[*node as usize - 1].parent {
        0 => None,
        parent => Some(parent),
    };
    std::iter::successors(Some(node), up).count()
}

fn leaves_below(plan: &Plan, top: u32) -> Vec<u32> {
    let mut is_below = vec![false; plan.nodes.len() + 1];
    let mut has_children = vec![false; plan.nodes.len() + 1];
    // Parents stand before their children.
    for (node, config) in (1..).zip(&plan.nodes) {
        is_below[node as usize] = node == top || is_below[config.parent as usize];
        has_children[config.parent as usize] = true;
    }
    (1..=plan.nodes.len() as u32)
        .filter(|node| is_below[*node as usize] && !has_children[*node as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use fairpath_class::{ClassSet, Drafts, Uplinks};

    use super::{Impaired, PIPE};
    use crate::{Both, Impairments, Leaving, Lines, Settings, ShapeInstance, Side};
    use fairpath_core::Rules;
    use fairpath_core::sched::{End, Meta};

    fn lines(impair: Impairments) -> Result<Lines, String> {
        let text = "[[class]]\nname = \"site\"\nprefix = \"10.0.0.0/8\"\n\
            [[class]]\nname = \"anna\"\nparent = \"site\"\nprefix = \"10.1.0.0/16\"\n\
            [[class]]\nname = \"bert\"\nprefix = \"11.1.0.0/16\"\n";
        let mut drafts = Drafts::new();
        drafts.read_file("classes.toml", text.as_bytes());
        let set = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
        let settings = Settings {
            impair,
            ..Settings::default()
        };
        Lines::new(&set, &settings).map_err(|error| error.to_string())
    }

    fn both(down: &str) -> Both<Option<fairpath_sched::impair::Spec>> {
        Both {
            down: Some(down.parse().unwrap()),
            up: None,
        }
    }

    #[test]
    fn the_nearest_class_overrides_what_all_have() {
        let classes = [("site", "loss=2%"), ("anna", "loss=3% delay=5ms")];
        let impair = Impairments {
            all: both("loss=1%"),
            classes: classes
                .map(|(name, spec)| (name.to_owned(), both(spec)))
                .into(),
        };
        let lines = lines(impair).unwrap();
        let tree = &lines.trees.down;
        let share = |leaf: &str| {
            let id = tree.names.id(leaf).unwrap();
            let at = tree.plan.nodes[id as usize - 1].impair as usize;
            let chance = tree.plan.impairments[at - 1].loss.chances[0];
            (chance as f64 / u64::MAX as f64 * 100.0).round() as u32
        };
        assert_eq!(
            ["anna", "site (own)", "bert", "other"].map(share),
            [3, 2, 1, 1]
        );
        assert!(lines.trees.up.plan.impairments.is_empty());
        let limit = tree.plan.config.limit_packets;
        assert!(lines.held(Side::Down) > limit && lines.is_impaired(Side::Down));
        assert!(lines.held(Side::Up) == limit && !lines.is_impaired(Side::Up));
    }

    #[test]
    fn a_rate_trace_belongs_to_the_link_only() {
        let mut spec: fairpath_sched::impair::Spec = "loss=1%".parse().unwrap();
        spec.rate_trace = Some(fairpath_sched::impair::RateTrace {
            source: "trace".into(),
            times_ns: vec![0],
            period_ns: 1_000_000,
        });
        let traced = Both {
            down: Some(spec),
            up: None,
        };
        let of_class = Impairments {
            classes: [("anna".to_owned(), traced.clone())].into(),
            ..Impairments::default()
        };
        let error = lines(of_class).unwrap_err();
        assert!(
            error.contains("rate_trace") && error.contains("[shape.impair]"),
            "{error}"
        );
        let of_all = Impairments {
            all: traced,
            ..Impairments::default()
        };
        assert!(lines(of_all).is_ok());
    }

    /// Lines of a tree by hand, whose only leaf has this impairment.
    fn by_hand(impair: &str, packets: Option<u32>) -> Lines {
        let text =
            format!("[[node]]\nname = \"far\"\npolicy = \"fifo\"\nimpair = {{ {impair} }}\n");
        let settings = Settings {
            tree: Some(("tree.toml".into(), text)),
            limit_packets: packets,
            ..Settings::default()
        };
        Lines::new(&ClassSet::default(), &settings).unwrap()
    }

    #[test]
    fn packets_delayed_by_a_node_have_a_handle() {
        let held = |impair| by_hand(impair, Some(500)).held(Side::Down);
        assert_eq!(held("loss = \"1%\""), 500);
        assert_eq!(held("delay = \"20ms\""), 500 + PIPE);
        assert_eq!(held("delay = \"20ms\", pipe = 70"), 570);
        // 200 ms at 20,000 packets a second, where 64 may wait.
        let lines = by_hand("delay = \"200ms\"", Some(64));
        let (tree, handles) = (&lines.trees.down, lines.held(Side::Down));
        let mut instance =
            ShapeInstance::new(tree, End::Receiver, &Rules::default(), handles, false).unwrap();
        let far = Meta {
            bytes: 100,
            ..Meta::default()
        };
        let (mut leaving, mut now) = (Vec::new(), 0);
        for handle in 1..=handles.min(8000) {
            instance.arrive_as(handle, now, far);
            instance.turn(now, 64, &mut leaving).unwrap();
            now += 50_000;
        }
        while let Some(next) = instance.turn(now, 64, &mut leaving).unwrap() {
            now = next.max(now);
        }
        let sent = |departed: &&Leaving| matches!(departed, Leaving::Send { .. });
        assert_eq!(leaving.iter().filter(sent).count(), 8000);
    }

    #[test]
    fn trees_report_the_behaviour_of_their_nodes() {
        let of = |impair| by_hand(impair, None).impaired();
        let changes = |changes| Impaired {
            some: true,
            changes,
        };
        assert_eq!(of("loss = \"1%\""), changes(false));
        assert_eq!(of("duplicate = \"1%\""), changes(true));
        assert_eq!(of("corrupt = \"1%\""), changes(true));
        let good = lines(Impairments::default()).unwrap();
        assert_eq!(good.impaired(), Impaired::default());
        // Up and down lose other packets.
        let lines = by_hand("loss = \"1%\"", None);
        let seed = |side| lines.trees.get(side).plan.impairments[0].loss.seed;
        assert_ne!(seed(Side::Down), seed(Side::Up));
    }

    #[test]
    fn another_class_keeps_the_outcomes_of_others() {
        let seeds = |classes: &[&str]| {
            let impair = Impairments {
                all: both("loss=1%"),
                classes: classes
                    .iter()
                    .map(|name| ((*name).to_owned(), both("loss=1%")))
                    .collect(),
            };
            let tree = lines(impair).unwrap().trees.down;
            ["anna", "bert", "other"].map(|leaf| {
                let id = tree.names.id(leaf).unwrap();
                let at = tree.plan.nodes[id as usize - 1].impair as usize;
                tree.plan.impairments[at - 1].loss.seed
            })
        };
        let [anna, bert, other] = seeds(&["bert"]);
        // By name and by depth, anna's comes before bert's.
        let [own, still, rest] = seeds(&["anna", "bert"]);
        assert_eq!((bert, other), (still, rest));
        assert!(anna == other && own != other && own != bert);
    }

    #[test]
    fn an_unknown_class_is_named() {
        let impair = Impairments {
            classes: [("ann".to_owned(), both("loss=1%"))].into(),
            ..Impairments::default()
        };
        let error = lines(impair).unwrap_err();
        assert!(error.contains("\"ann\""), "{error}");
    }
}
