//! Trees become HTB classes with the invariants that HTB does not ensure.

use std::collections::{HashMap, HashSet};

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::sched::policies;
use fairpath_sched::tree::{Known, LINK_BURST_NS, Link};
use proptest::prelude::*;

use super::*;
use crate::{Both, Lines, Settings};

const FRAME: u32 = 1514;
const MAJOR: u16 = 0x0fa1;

/// Name, parent, and whatever else of a node.
type Written<'a> = (&'a str, &'a str, &'a str);

fn tree(nodes: &[Written<'_>]) -> Tree {
    let mut text = String::new();
    let inner: HashSet<&str> = nodes.iter().map(|node| node.1).collect();
    for (name, parent, rest) in nodes {
        let policy = match (rest.contains("policy"), inner.contains(name)) {
            (true, _) => "",
            (false, true) => "policy = \"class_tree\"\n",
            (false, false) => "policy = \"fq_codel\"\n",
        };
        let parent = match *parent {
            "" => String::new(),
            parent => format!("parent = \"{parent}\"\n"),
        };
        text += &format!("[[node]]\nname = \"{name}\"\n{parent}{policy}{rest}\n");
    }
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    Tree::read("t", &text, known).unwrap_or_else(|bad| panic!("{bad}\n{text}"))
}

fn on_link(nodes: &[Written<'_>], bps: u64) -> Tree {
    let line = Link {
        bps,
        burst_ns: LINK_BURST_NS,
        stack: false,
    };
    tree(nodes).on_link(&line).unwrap()
}

fn plan(tree: &Tree) -> HtbPlan {
    htb_plan(tree, FRAME, MAJOR..MAJOR + 1, |_| None).unwrap()
}

fn named<'a>(plan: &'a HtbPlan, tree: &Tree, name: &str) -> &'a HtbNode {
    let node = tree.names.id(name).unwrap();
    plan.classes
        .iter()
        .find(|class| class.node == node)
        .unwrap()
}

/// In the form of the kernel's dump.
fn running(plan: &HtbPlan) -> HashMap<u16, (u16, bool)> {
    let each = plan.classes.iter().map(|c| (c.minor, (c.parent, c.leaf)));
    each.collect()
}

const MATCH_1: &str = "match = { class = [1] }";
const REST: &str = "match = { class = [\"*\"] }";

#[test]
fn floors_become_rates_ceilings_ceilings_and_weights_quanta() {
    let tree = on_link(
        &[
            ("root", "", ""),
            (
                "a",
                "root",
                "floor = \"12mbit\"\nceil = \"15mbit\"\nweight = 3\nmatch = { class = [1] }",
            ),
            ("b", "root", "floor = \"4mbit\"\nmatch = { class = [2] }"),
            ("other", "root", REST),
        ],
        20_000_000,
    );
    let plan = plan(&tree);
    let rates = |name| {
        let class = named(&plan, &tree, name);
        (class.rate_bps, class.ceil_bps, class.quantum_bytes)
    };
    // The lightest sends 2.8 ms of the line in a turn.
    assert_eq!(rates("a"), (12_000_000, 15_000_000, 3 * 7_000));
    assert_eq!(rates("b"), (4_000_000, 20_000_000, 7_000));
    assert_eq!(rates("other"), (MIN_BPS, 20_000_000, 7_000));
    assert_eq!(plan.unfair_to_gso_bps, Some(20_000_000));
    // The line's two nodes with the root's: one class.
    assert_eq!(plan.classes.len(), 4);
    let top = &plan.classes[0];
    assert_eq!(
        (top.rate_bps, top.ceil_bps, top.parent),
        (20_000_000, 20_000_000, 0)
    );
    assert_eq!((plan.shrunk, plan.unkept.len()), (0, 0));
    let minor = |name| named(&plan, &tree, name).minor;
    assert_eq!(plan.minors[..3], [DEFAULT_MINOR, minor("a"), minor("b")]);
    assert_eq!(minor("other"), DEFAULT_MINOR);
}

#[test]
fn floors_that_were_sold_twice_shrink_in_proportion() {
    let tree = classes(
        "site,,10.1.0.0/16,10mbit,9mbit\n\
         a,site,192.0.2.1/32,50mbit,12mbit\n\
         b,site,192.0.2.2/32,50mbit,3mbit\n",
        100_000_000,
    );
    let plan = plan(&tree);
    let rate = |name| named(&plan, &tree, name).rate_bps;
    // What a could have at most is 10, of 13 together, and the site's own hosts'.
    assert_eq!(rate("site"), 10_000_000);
    assert_eq!(rate("a"), 10_000_000u64 * 10_000 / 13_001);
    assert_eq!(rate("b"), 10_000_000u64 * 3_000 / 13_001);
    assert_eq!(plan.shrunk, 2);
    let own = tree.names.id("site (own)").unwrap();
    assert!(
        plan.classes
            .iter()
            .any(|class| class.node == own && class.leaf)
    );
}

/// The tree of classes, on its line: name, parent, prefix, ceiling, floor.
fn classes(rows: &str, bps: u64) -> Tree {
    let mut drafts = Drafts::new();
    let csv = format!("name,parent,prefix,down,down_floor\n{rows}");
    drafts.read_file("classes.csv", csv.as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    let set = outcome
        .set
        .unwrap_or_else(|| panic!("{:?}", outcome.report));
    let settings = Settings {
        bps: Both { down: bps, up: bps },
        ..Settings::default()
    };
    Lines::new(&set, &settings).unwrap().trees.down
}

#[test]
fn htb_limitations_are_listed_or_refused() {
    let tree = tree(&[
        ("root", "", "policy = \"drr\""),
        ("site", "root", "weight = 2\npolicy = \"class_tree\""),
        ("a", "site", "policy = \"fifo\"\nmatch = { class = [1] }"),
        ("other", "root", REST),
    ]);
    let lost: Vec<String> = plan(&tree).unkept.into_iter().map(|u| u.node).collect();
    assert_eq!(lost, ["root", "site", "a"]);
    let split = self::tree(&[
        ("root", "", ""),
        ("a", "root", REST),
        ("calls", "a", "match = { dscp = [\"EF\"] }"),
        ("rest", "a", "match = { dscp = [\"*\"] }"),
    ]);
    let refused = htb_plan(&split, FRAME, MAJOR..MAJOR + 1, |_| None).unwrap_err();
    assert_eq!(refused, HtbPlanError::Split { node: "a".into() });
}

#[test]
fn weights_beyond_the_quanta_are_listed() {
    let weights = |heavy: u32| {
        let weight = format!("weight = {heavy}\n{MATCH_1}");
        on_link(
            &[
                ("root", "", ""),
                ("a", "root", &weight),
                ("other", "root", REST),
            ],
            1_000_000_000,
        )
    };
    let kept = plan(&weights(132));
    assert_eq!((kept.unkept.len(), kept.unfair_to_gso_bps), (0, None));
    let lost = plan(&weights(133)).unkept;
    assert_eq!(lost[0].node, "a");
    assert!(lost[0].what.contains("200,000"), "{lost:?}");
}

#[test]
fn a_tree_deeper_than_htb_is_refused() {
    let names: Vec<String> = (0..10).map(|level| format!("n{level}")).collect();
    let side: Vec<String> = (0..10).map(|level| format!("s{level}")).collect();
    let mut nodes: Vec<Written<'_>> = vec![("n0", "", "")];
    for level in 1..10 {
        let rest = if level == 9 { REST } else { "" };
        nodes.push((&names[level], &names[level - 1], rest));
        if level < 9 {
            nodes.push((&side[level], &names[level - 1], MATCH_1));
        }
    }
    // Every class leads to one leaf.
    for (at, node) in nodes
        .iter_mut()
        .filter(|n| n.0.starts_with('s'))
        .enumerate()
    {
        node.2 = [
            "match = { class = [1] }",
            "match = { class = [2] }",
            "match = { class = [3] }",
            "match = { class = [4] }",
            "match = { class = [5] }",
            "match = { class = [6] }",
            "match = { class = [7] }",
            "match = { class = [8] }",
        ][at];
    }
    let refused = htb_plan(&tree(&nodes), FRAME, MAJOR..MAJOR + 1, |_| None).unwrap_err();
    assert!(
        matches!(&refused, HtbPlanError::TooDeep { node, level: 9 } if node == "n8"),
        "{refused}"
    );
}

#[test]
fn more_classes_than_htb_numbers_are_refused() {
    let mut tree = tree(&[("root", "", ""), ("other", "root", REST)]);
    let leaf = tree.plan.nodes[1];
    tree.plan.nodes.resize(MAX_HTB_CLASSES + 1, leaf);
    let refused = htb_plan(&tree, FRAME, MAJOR..MAJOR + 1, |_| None).unwrap_err();
    let classes = MAX_HTB_CLASSES + 1;
    assert_eq!(refused, HtbPlanError::TooMany { classes });
}

#[test]
fn a_tree_without_rest_leaf_gets_one() {
    let tree = tree(&[("root", "", ""), ("a", "root", MATCH_1)]);
    let plan = plan(&tree);
    let rest = plan.classes.last().unwrap();
    assert_eq!((rest.node, rest.minor, rest.leaf), (0, DEFAULT_MINOR, true));
    assert_eq!((rest.rate_bps, rest.ceil_bps), (MIN_BPS, UNLIMITED_BPS));
    assert_eq!(plan.minors[0], DEFAULT_MINOR);
}

/// Sites, each with its subscribers: site, and a number each, from which all else follows.
fn network(sites: &[(u8, Vec<u8>)], bps: u64) -> Tree {
    let mut rows = String::new();
    for (site, subscribers) in sites {
        rows += &format!("site {site},,172.16.{site}.0/24,50mbit,\n");
        for number in subscribers {
            let floor = number % 40 + 1;
            rows += &format!("{site}/{number},site {site},10.{site}.{number}.0/24,,{floor}mbit\n");
        }
    }
    classes(&rows, bps)
}

fn sites() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let subscribers = proptest::collection::hash_set(any::<u8>(), 1..30);
    let sites = proptest::collection::hash_map(any::<u8>(), subscribers, 1..8);
    sites.prop_map(|sites| {
        let each = sites
            .into_iter()
            .map(|(site, all)| (site, all.into_iter().collect()));
        each.collect()
    })
}

proptest! {
    #![proptest_config(fairpath_units::property!(100))]

    #[test]
    fn nothing_below_a_node_can_exceed_it(sites in sites(), bps in 1_000_000u64..1_000_000_000) {
        let plan = plan(&network(&sites, bps));
        let by_minor: HashMap<u16, &HtbNode> = plan.classes.iter().map(|c| (c.minor, c)).collect();
        prop_assert_eq!(by_minor.len(), plan.classes.len());
        let mut below: HashMap<u16, u64> = HashMap::new();
        for class in &plan.classes {
            prop_assert!(class.rate_bps <= class.ceil_bps && class.rate_bps >= 8);
            prop_assert!(class.minor != 0 && class.minor != MAJOR && class.minor < u16::MAX);
            *below.entry(class.parent).or_default() += class.rate_bps;
            if let Some(parent) = by_minor.get(&class.parent) {
                prop_assert!(class.ceil_bps <= parent.ceil_bps);
                prop_assert!(!parent.leaf);
            }
        }
        for class in plan.classes.iter().filter(|class| !class.leaf) {
            // A byte a second each is what the kernel takes at least.
            let min = 8 * plan.classes.len() as u64;
            prop_assert!(below[&class.minor] <= class.rate_bps + min);
        }
    }

    #[test]
    fn numbers_are_stable_and_running_classes_stay(one in sites(), two in sites()) {
        let (first, second) = (network(&one, 100_000_000), network(&two, 100_000_000));
        let before = plan(&first);
        let there = running(&before);
        let again = htb_plan(&first, FRAME, MAJOR..MAJOR + 1, |minor| there.get(&minor).copied()).unwrap();
        prop_assert_eq!(&again, &before);
        let after = htb_plan(&second, FRAME, MAJOR..MAJOR + 1, |minor| there.get(&minor).copied()).unwrap();
        for class in &after.classes {
            let was = there.get(&class.minor);
            prop_assert!(was.is_none_or(|was| *was == (class.parent, class.leaf)));
        }
    }
}
