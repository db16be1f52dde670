//! Trees from TOML and classes: the plans of valid trees, and the errors of invalid ones.

use std::fmt::Write as _;

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::sched::{
    COST_ONE, Meta, Op, OutcomeKind, Over, Overflow, Plan, Policy, SchedRuntime, Scheduler,
    encode_rate, policies,
};
use fairpath_sched::tree::{BadTree, Direction, Known, Tree};
use proptest::prelude::*;

fn known() -> Known<'static> {
    Known {
        policies: policies(),
        classes: &[],
    }
}

fn read(text: &str) -> Result<Tree, BadTree> {
    Tree::read("t.toml", text, known())
}

/// The problems of a tree, one per line.
fn wrong(text: &str) -> String {
    read(text)
        .expect_err("the tree should be refused")
        .to_string()
}

const SITE: &str = r#"
[scheduler]
limit = ["2000 packets", "3MB"]
flows = 64
seed = 7

[[node]]
name = "root"
policy = "stfq"

[[node]]
name = "gold"
parent = "root"
policy = "fifo"
weight = 4
floor = "30mbit"
ceil = "80mbit"
burst = "2ms"
limit = "100 packets"
queue = { kind = "bands", buckets = 8, beyond = "drop" }
match = { class = [1, 2] }

[[node]]
name = "tins"
parent = "root"
policy = "stfq"
match = { class = ["*"] }

[[node]]
name = "voice"
parent = "tins"
policy = "fifo"
match = { dscp = ["EF", "CS5"] }

[[node]]
name = "best"
parent = "tins"
policy = "stfq"
over = "flows"
queue = { kind = "cffs", buckets = 4096, granularity = 1024, beyond = "clamp" }
match = { dscp = ["*"] }
"#;

#[test]
fn plan_matches_the_tree_in_toml() {
    let tree = read(SITE).unwrap();
    assert!(tree.warnings.is_empty(), "{:?}", tree.warnings);
    assert_eq!(
        tree.names.nodes(),
        ["root", "gold", "tins", "voice", "best"]
    );
    let plan = &tree.plan;
    let [root, gold, tins, voice, best] = <[_; 5]>::try_from(plan.nodes.clone()).unwrap();
    assert_eq!(
        (
            root.parent,
            gold.parent,
            tins.parent,
            voice.parent,
            best.parent
        ),
        (0, 1, 1, 3, 3)
    );
    assert_eq!(
        (root.over, gold.over, best.over),
        (Over::Children, Over::Packets, Over::Flows)
    );
    assert_eq!((gold.cost, tins.cost), (COST_ONE, 4 * COST_ONE));
    assert_eq!(
        (gold.floor, gold.ceil),
        (encode_rate(30_000_000), encode_rate(80_000_000))
    );
    assert_eq!((gold.burst, gold.limit_packets), (2_000_000, 100));
    assert_eq!(
        (
            best.queue,
            best.queue_buckets,
            best.queue_shift,
            best.queue_beyond,
            gold.queue_beyond
        ),
        (3, 4096, 10, 0, 1)
    );
    assert_eq!(
        (plan.config.limit_packets, plan.config.limit_bytes),
        (2000, 3_000_000)
    );
    assert_eq!(
        (plan.config.flows, plan.config.seed, plan.config.overflow),
        (64, 7, Overflow::Tail)
    );
    Scheduler::new(plan).expect("the core loads every plan");
}

#[test]
fn class_and_dscp_select_the_leaf() {
    let tree = read(SITE).unwrap();
    let leaf = |class_id, dscp| {
        let leaf = tree.leaf(&Meta {
            class_id,
            dscp,
            ..Meta::default()
        });
        tree.names.node(leaf.unwrap()).to_owned()
    };
    assert_eq!(leaf(1, 46), "gold");
    assert_eq!(leaf(2, 0), "gold");
    assert_eq!(leaf(0, 46), "voice");
    assert_eq!(leaf(3, 40), "voice");
    assert_eq!(leaf(77, 0), "best");
}

#[test]
fn invalid_trees_are_refused_with_position_and_remedy() {
    let node = |name: &str, more: &str| {
        format!("[[node]]\nname = \"{name}\"\npolicy = \"fifo\"\n{more}\n")
    };
    let root = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n";
    let cases = [
        (String::new(), "the tree has no nodes"),
        (
            node("a", "parent = \"b\"") + &node("b", "parent = \"a\""),
            "t.toml:4:10: error: nodes are their own ancestors: \"a\" below \"b\" below \"a\"",
        ),
        (
            root.to_owned() + &node("a", "parent = \"rot\""),
            "7:10: error: node \"a\": parent \"rot\" does not exist: did you mean \"root\"?",
        ),
        (
            node("a", "") + &node("a", "parent = \"a\""),
            "node \"a\": another node has this name",
        ),
        (node("a", "") + &node("b", ""), "\"a\" is already the root"),
        (
            node("a", "").replace("fifo", "fifi"),
            "3:10: error: node \"a\": policy \"fifi\" does not exist: did you mean \"fifo\"?",
        ),
        (
            node("a", "over = \"children\""),
            "it has no children, so it ranks packets or flows, not children",
        ),
        (
            node("a", "params = { qantum = 3 }"),
            "policy fifo has no parameter \"qantum\"",
        ),
        (
            node("a", "wieght = 3"),
            "4:1: error: node \"a\": unknown key \"wieght\": did you mean \"weight\"?",
        ),
        (
            node("a", "weight = 0"),
            "weight is out of range: write 1 to 65536",
        ),
        (
            node("a", "ceil = 5"),
            "ceil: rate \"5\" has no unit: write 100kbit, 100mbit or 100gbit",
        ),
        (
            node("a", "queue = { kind = \"heep\" }"),
            "kind \"heep\" is unknown: write one of heap, bands, cffs",
        ),
        (
            node("a", "queue = { kind = \"cffs\", granularity = 3 }"),
            "granularity is not a power of two",
        ),
        (
            node("a", "queue = { kind = \"bands\", buckets = 65 }"),
            "buckets = 65: the maximum for bands is 64",
        ),
        (
            node("a", "match = { dscp = [\"EE\"] }"),
            "\"EE\" is not a DSCP",
        ),
        (
            node("a", "match = { class = [\"gold\"] }"),
            "no class file was given",
        ),
        (
            "[scheduler]\noverflow = \"fattest\"\n".to_owned() + &node("a", ""),
            "leaf \"a\" ranks packets",
        ),
        (
            root.to_owned()
                + &node("a", "parent = \"root\"\nmatch = { class = [1] }")
                + &node("b", "parent = \"root\""),
            "no packet reaches it",
        ),
        (
            root.to_owned() + &node("a", "parent = \"root\""),
            "it has children, so packets cannot end here",
        ),
        (
            root.to_owned() + &node("a", "parent = \"root\"\nmatch = { dscp = [\"EF\"] }"),
            "no child matches DSCP 0",
        ),
        (
            "x = 1\n".to_owned() + &node("a", ""),
            "the file: unknown key \"x\"",
        ),
        ("[[node]\n".to_owned(), "invalid TOML"),
    ];
    for (text, words) in cases {
        let reported = wrong(&text);
        assert!(
            reported.contains(words),
            "{text}\n{reported}\nexpected: {words}"
        );
    }
}

#[test]
fn impossible_rates_are_refused() {
    let tree = |parent: &str, floors: [&str; 2]| {
        let [a, b] = floors;
        let leaf = |name: &str, floor: &str, class: &str| {
            format!(
                "[[node]]\nname = \"{name}\"\nparent = \"in\"\npolicy = \"fifo\"\nfloor = \"{floor}\"\nmatch = {{ class = [{class}] }}\n"
            )
        };
        format!(
            "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n[[node]]\nname = \"in\"\nparent = \"root\"\npolicy = \"stfq\"\n{parent}\n"
        ) + &leaf("a", a, "\"*\"")
            + &leaf("b", b, "1")
    };
    assert!(read(&tree("ceil = \"10mbit\"", ["4mbit", "6mbit"])).is_ok());
    let reported = wrong(&tree("ceil = \"10mbit\"", ["5mbit", "6mbit"]));
    assert!(
        reported.contains("the floors of its children sum to 11mbit and exceed its ceiling 10mbit"),
        "{reported}"
    );
    let reported = wrong(&tree(
        "floor = \"9mbit\"\nceil = \"10mbit\"",
        ["4mbit", "6mbit"],
    ));
    assert!(reported.contains("exceed its floor 9mbit"), "{reported}");
    let reported = wrong(&tree(
        "floor = \"11mbit\"\nceil = \"10mbit\"",
        ["1mbit", "1mbit"],
    ));
    assert!(
        reported.contains("its floor 11mbit exceeds its ceiling 10mbit"),
        "{reported}"
    );
    let reported = wrong(
        "[[node]]\nname = \"root\"\npolicy = \"stfq\"\nceil = \"1mbit\"\n[[node]]\nname = \"a\"\nparent = \"root\"\npolicy = \"fifo\"\nmatch = { class = [\"*\"] }",
    );
    assert!(reported.contains("the root has no parent"), "{reported}");
}

#[test]
fn more_than_16_levels_are_refused() {
    let chain = |levels: usize| {
        let mut text = "[[node]]\nname = \"1\"\npolicy = \"stfq\"\n".to_owned();
        for level in 2..=levels {
            let _ = writeln!(
                text,
                "[[node]]\nname = \"{level}\"\nparent = \"{}\"\npolicy = \"stfq\"",
                level - 1
            );
        }
        text + "match = { class = [\"*\"] }\n"
    };
    let tree = read(&chain(16)).unwrap();
    Scheduler::new(&tree.plan).expect("the core loads 16 levels");
    assert!(wrong(&chain(17)).contains("node \"17\": it is on level 17: the maximum is 16 levels"));
}

#[test]
fn nodes_below_references_must_keep_packets() {
    let tree = |below: &str| {
        format!(
            "[[node]]\nname = \"root\"\npolicy = \"stfq\"\nover = \"references\"\n[[node]]\nname = \"a\"\nparent = \"root\"\npolicy = \"stfq\"\nmatch = {{ class = [\"*\"] }}\n{below}\n"
        )
    };
    let sound = read(&tree("")).unwrap();
    assert_eq!(sound.plan.config.references, sound.plan.config.packets);
    Scheduler::new(&sound.plan).unwrap();
    assert!(
        wrong(&tree("queue = { full = \"push-out\" }"))
            .contains("does not work below a node that ranks references")
    );
    assert!(
        wrong(&tree("over = \"flows\""))
            .contains("it ranks flows below a node that ranks references")
    );
    let inner =
        "[[node]]\nname = \"b\"\nparent = \"a\"\npolicy = \"fifo\"\nmatch = { class = [1] }";
    assert!(wrong(&tree(inner)).contains("it ranks children below a node that ranks references"));
}

#[test]
fn parameters_of_a_policy_are_set_by_name() {
    let with_params =
        |policy: &&Policy| !policy.params.is_empty() && policy.over.contains(&Over::Flows);
    let policy = policies()
        .iter()
        .find(with_params)
        .expect("a policy with parameters");
    let mut tree = Tree::of_policy(policy, known()).unwrap();
    let param = &policy.params[0];
    let most = fairpath_units::quantity::written(param.most, &param.unit);
    tree.set(&format!("{}={most}", param.name)).unwrap();
    assert_eq!(tree.plan.nodes[0].params[0], param.encode(param.most));
    tree.set(&format!("{}.{}={most}", policy.name, param.name))
        .unwrap();
    for bad in ["nothing", "nosuch=1", "nonode.x=1"] {
        assert!(tree.set(bad).is_err(), "{bad}");
    }
}

#[test]
fn core_loads_every_policy_as_a_leaf() {
    let leaves = policies()
        .iter()
        .filter(|p| p.over.contains(&Over::Packets) || p.over.contains(&Over::Flows));
    for policy in leaves {
        let tree =
            Tree::of_policy(policy, known()).unwrap_or_else(|bad| panic!("{}: {bad}", policy.name));
        Scheduler::new(&tree.plan).unwrap_or_else(|error| panic!("{}: {error}", policy.name));
    }
}

#[test]
fn classes_become_nodes_with_rates_and_leaves() {
    let mut drafts = Drafts::new();
    let csv = "name,parent,prefix,up,down,down_floor\nsite,,10.0.0.0/8,20M,100mbit,50mbit\nsub,site,10.1.0.0/16,5M,20mbit,10mbit\n";
    drafts.read_file("c.csv", csv.as_bytes());
    let set = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
    // A build can lack the policies of class trees.
    let has = |name: &str| policies().iter().any(|policy| policy.name == name);
    if !has("class_tree") || !has("fq_codel") {
        let bad = Tree::of_classes(&set, Direction::Down, policies()).unwrap_err();
        assert!(bad.to_string().contains("does not exist"), "{bad}");
        return;
    }
    let tree = Tree::of_classes(&set, Direction::Down, policies()).unwrap();
    assert_eq!(
        tree.names.nodes(),
        ["root", "site", "site (own)", "sub", "other"]
    );
    let rates: Vec<u64> = tree.plan.nodes.iter().map(|node| node.ceil).collect();
    assert_eq!(
        rates,
        [0, encode_rate(100_000_000), 0, encode_rate(20_000_000), 0]
    );
    let leaf = |class_id| {
        tree.names.node(
            tree.leaf(&Meta {
                class_id,
                ..Meta::default()
            })
            .unwrap(),
        )
    };
    assert_eq!(
        [leaf(0), leaf(1), leaf(2), leaf(9)],
        ["other", "site (own)", "sub", "other"]
    );
    Scheduler::new(&tree.plan).unwrap();
    let up = Tree::of_classes(&set, Direction::Up, policies()).unwrap();
    assert_eq!(up.plan.nodes[3].ceil, encode_rate(5_000_000));
}

#[test]
fn trees_of_100000_nodes_are_built() {
    let mut text = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n".to_owned();
    for site in 0..100 {
        let _ = writeln!(
            text,
            "[[node]]\nname = \"s{site}\"\nparent = \"root\"\npolicy = \"stfq\""
        );
        for leaf in 0..999 {
            let class = site * 999 + leaf;
            let _ = writeln!(
                text,
                "[[node]]\nname = \"l{class}\"\nparent = \"s{site}\"\npolicy = \"fifo\"\nweight = {}\nmatch = {{ class = [{class}] }}",
                leaf % 7 + 1
            );
        }
    }
    let tree = read(&text).unwrap();
    assert_eq!(tree.plan.nodes.len(), 100_001);
    assert_eq!(tree.plan.class_table.len(), 99_900);
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(fairpath_units::test_seed()), ..ProptestConfig::with_cases(300) })]

    /// Every file is either a tree that the core loads, or a list of problems.
    #[test]
    fn modified_trees_are_built_or_refused(at in 0..SITE.len(), length in 0..40usize, with in "[a-z0-9\" =\\[\\]{}\n.-]{0,12}") {
        let cut = |at: usize| (at..=SITE.len()).find(|at| SITE.is_char_boundary(*at)).unwrap_or(SITE.len());
        let (from, to) = (cut(at), cut((at + length).min(SITE.len())));
        let text = format!("{}{with}{}", &SITE[..from], &SITE[to..]);
        match read(&text) {
            Ok(tree) => prop_assert!(Scheduler::new(&tree.plan).is_ok(), "{text}"),
            Err(bad) => prop_assert!(bad.problems.iter().any(|problem| !problem.warning), "{text}"),
        }
    }
}

/// Enqueues packets of these classes and flows, and returns how many of them were queued.
fn queued(plan: &Plan, packets: impl Iterator<Item = (u32, u32)>) -> usize {
    let ops: Vec<Op> = packets
        .zip(1..)
        .map(|((class_id, flow_hash), handle)| {
            let meta = Meta {
                bytes: 1000,
                class_id,
                flow_hash,
                ..Meta::default()
            };
            Op::enqueue(0, handle, meta)
        })
        .collect();
    let mut scheduler = Scheduler::new(plan).unwrap();
    let mut outcomes = Vec::new();
    scheduler.run(&ops, &mut outcomes).unwrap();
    scheduler.audit().unwrap();
    let queued = outcomes.iter();
    queued
        .filter(|outcome| outcome.kind == OutcomeKind::Queued)
        .count()
}

/// The tree that `classes` subscribers get, with all defaults.
fn subscribers(classes: u32) -> Plan {
    let mut csv = String::from("name,prefix\n");
    for n in 0..classes {
        let _ = writeln!(
            csv,
            "s{n},100.{}.{}.{}/32",
            64 + (n >> 16),
            n >> 8 & 255,
            n & 255
        );
    }
    let mut drafts = Drafts::new();
    drafts.read_file("c.csv", csv.as_bytes());
    let set = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
    let tree = Tree::of_classes(&set, Direction::Down, policies()).unwrap();
    tree.plan
}

#[test]
fn every_class_has_a_place_for_a_packet() {
    for classes in [500, 1_000, 10_000] {
        let mut plan = subscribers(classes);
        // Flows of random hashes, of one hash, and of hashes that step.
        for hash in [|n: u32| n.wrapping_mul(0x9e37_79b1), |_| 7, |n| n << 20] {
            for (seed, flows) in [(0, plan.config.flows), (1, 1024), (0x0123_4567, 8)] {
                (plan.config.seed, plan.config.flows) = (seed, flows);
                let packets = (1..=classes).map(|class| (class, hash(class)));
                assert_eq!(
                    queued(&plan, packets),
                    classes as usize,
                    "{classes}, {seed}"
                );
            }
        }
    }
}

#[test]
fn a_class_of_many_flows_takes_no_place() {
    const CLASSES: u32 = 900;
    const FLOWS: u32 = 8_000;
    let mut plan = subscribers(CLASSES);
    // The first class fills the table, which is then far too small.
    plan.config.flows = 1024;
    let flood = (0..FLOWS).map(|flow| (1, flow.wrapping_mul(0x9e37_79b1)));
    let others = (2..=CLASSES).map(|class| (class, 1));
    let packets = (FLOWS + CLASSES - 1) as usize;
    assert_eq!(queued(&plan, flood.chain(others)), packets);
}

#[test]
fn every_leaf_of_a_tree_has_a_place() {
    let mut text = String::from("[[node]]\nname = \"root\"\npolicy = \"stfq\"\n");
    for leaf in 1..=900 {
        let _ = write!(
            text,
            "[[node]]\nname = \"n{leaf}\"\nparent = \"root\"\npolicy = \"fq_codel\"\nmatch = {{ class = [{leaf}] }}\n"
        );
    }
    let tree = read(&text).unwrap();
    assert_eq!(
        queued(&tree.plan, (1..=900).map(|class| (class, class))),
        900
    );
}

#[test]
fn aifo_has_a_headroom_and_no_granularity() {
    let tree = |queue: &str| {
        read(&format!(
            "[[node]]\nname = \"a\"\npolicy = \"aifo\"\nqueue = {{ kind = \"aifo\", capacity = 100, {queue} }}\n"
        ))
    };
    assert_eq!(tree("headroom = 51").unwrap().plan.nodes[0].queue_shift, 51);
    for (queue, remedy) in [
        ("granularity = 4", "write headroom"),
        ("headroom = 256", "headroom"),
    ] {
        let text = tree(queue).expect_err(queue).to_string();
        assert!(text.contains(remedy), "{text}");
    }
    let text = wrong(
        "[[node]]\nname = \"a\"\npolicy = \"stfq\"\nqueue = { kind = \"cffs\", headroom = 3 }\n",
    );
    assert!(text.contains("of aifo only"), "{text}");
}
