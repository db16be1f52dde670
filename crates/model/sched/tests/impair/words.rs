//! The text of impairments: parsed, refused, and printed again.

use fairpath_core::sched::policies;
use fairpath_sched::impair::{Builder, KEYS, Spec};
use fairpath_sched::tree::{Known, Tree};

#[test]
fn printed_impairments_parse_to_the_same_value() {
    for text in [
        "nothing",
        "loss=1%",
        "loss=0.07% loss_correlation=25%",
        "gilbert_elliott=p=1%,r=25%,h=70%,k=0.1%",
        "four_state=p13=1%,p31=30%,p32=10%,p23=80%,p14=0.5%",
        "pattern=0001000 delay=20ms jitter=2ms distribution=pareto correlation=-25% order=free",
        "delay=20ms reorder=1% reorder_gap=5 duplicate=0.1% corrupt=0.1%",
        "slot=min=5ms,max=10ms,packets=32,bytes=64KiB release=10ms",
        "delay_trace=\"0s 20ms, 10s 80ms, 20s\" overhead=38 cell=48 seed=7 pipe=1000",
        "overhead=18 cell=48 cell_overhead=4",
        "overhead=30 mpu=64 atm=ptm",
    ] {
        let spec: Spec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
    }
}

fn refused(text: &str) -> String {
    text.parse::<Spec>().unwrap_err().to_string()
}

#[test]
fn invalid_impairments_are_refused_with_a_remedy() {
    for (text, reported) in [
        (
            "loss=101%",
            "loss: \"101%\" is not a share: write 1% or 0.01, at most 100%",
        ),
        ("loss=-1%", "is not a share"),
        ("loss=nan", "is not a share"),
        ("los=1%", "los: unknown key: did you mean \"loss\"?"),
        ("delay=20", "delay: time \"20\" has no unit: write 5ms"),
        ("delay=2h", "out of range"),
        ("delay=1ms delay=2ms", "set twice"),
        ("loss=1% pattern=01", "pattern: loss already sets the loss"),
        (
            "jitter=2ms delay=5ms distribution=gauss",
            "one of uniform, normal",
        ),
        ("distribution=normal", "it has no effect without jitter"),
        (
            "distribution=/nowhere/delays",
            "read /nowhere/delays: No such file",
        ),
        ("correlation=100% jitter=1ms", "write less than 100%"),
        ("loss_correlation=10%", "it has no effect without loss"),
        ("reorder=1%", "it has no effect without a delay"),
        (
            "reorder_gap=3 delay=1ms",
            "it has no effect without reorder",
        ),
        ("slot=packets=3", "write min=5ms"),
        ("slot=min=5ms,max=3ms", "max is less than min"),
        ("slot=min=1ms,max=10s", "4.29 s above min"),
        ("slot=min=1ms order=free", "slots keep the order of packets"),
        ("pattern=0120", "'2' is not a bit"),
        (
            "four_state=p13=60%,p14=50%",
            "p13 and p14 sum to more than 100%",
        ),
        (
            "gilbert_elliott=r=10%",
            "p, the probability of good to bad, is missing",
        ),
        (
            "gilbert_elliott=p=1%,x=2%",
            "\"x=2%\" is unknown: write KEY=VALUE with the keys p, r, h, k",
        ),
        ("delay_trace=\"1s 2ms, 3s\"", "its first point is not at 0s"),
        (
            "delay_trace=\"0s 2ms, 0s 3ms\"",
            "not after the previous time",
        ),
        ("delay=1ms delay_trace=\"0s 2ms, 1s\"", "omit one of them"),
        ("pipe=5", "it has no effect without a delay"),
        ("atm=vdsl", "write none, atm or ptm"),
        ("atm=atm cell=48", "cell: atm already sets the cells"),
        ("mpu=4096", "out of range: write 0 to 2KiB"),
        ("order=random", "write kept or free"),
        ("seed=x", "seed: whole number \"x\" is invalid"),
    ] {
        let error = refused(text);
        assert!(error.contains(reported), "{text}: {error}");
    }
    // All problems are reported together.
    assert_eq!(
        refused("loss=2 delay=x order=y reorder_gap=2")
            .lines()
            .count(),
        4
    );
}

#[test]
fn keys_accept_hyphens_and_underscores() {
    for (key, about) in KEYS {
        let mut builder = Builder::default();
        let wrong = builder.set(&key.replace('_', "-"), "\u{1}").err();
        // The key exists, so only the value can be invalid.
        let reported = wrong.map_or(String::new(), |bad| bad.wrong);
        assert!(
            !reported.contains("unknown key") && !about.is_empty(),
            "{key}: {reported}"
        );
    }
}

fn read(text: &str) -> Result<Tree, String> {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    Tree::read("t", text, known).map_err(|bad| bad.to_string())
}

const TREE: &str = "[[node]]
name = \"root\"
policy = \"stfq\"
impair = { delay = \"5ms\", loss = \"1%\" }
[[node]]
name = \"a\"
parent = \"root\"
policy = \"fifo\"
match = { class = [1] }
[[node]]
name = \"b\"
parent = \"root\"
policy = \"fifo\"
match = { class = [2] }
impair = { gilbert_elliott = { p = \"1%\", r = \"25%\", h = 0.7 }, seed = 4, overhead = 38, delay_trace = [\"0s 1ms\", \"2s 3ms\", \"4s\"] }
[[node]]
name = \"c\"
parent = \"root\"
policy = \"fifo\"
match = { class = [\"*\"] }
";

#[test]
fn child_nodes_inherit_impairments() {
    let tree = read(TREE).unwrap();
    let of: Vec<u32> = tree.plan.nodes.iter().map(|node| node.impair).collect();
    assert_eq!(of, [0, 1, 2, 1]);
    let texts: Vec<String> = tree.impairments.iter().map(Spec::to_string).collect();
    assert_eq!(
        texts,
        [
            "loss=1% delay=5ms",
            "gilbert_elliott=p=1%,r=25%,h=70%,k=0% delay_trace=\"0s 1ms, 2s 3ms, 4s\" overhead=38 seed=4"
        ]
    );
    // Delayed packets have handles in addition to queued packets.
    assert_eq!(tree.plan.config.packets, 10_240 + 64 + 2 * 65_536);
    let seeds = |tree: &Tree| -> Vec<u64> {
        tree.plan
            .impairments
            .iter()
            .map(|config| config.loss.seed)
            .collect()
    };
    let mut other = tree.clone();
    other.set_direction(1);
    assert!(seeds(&tree).iter().zip(seeds(&other)).all(|(a, b)| *a != b));
    other.set_direction(0);
    assert_eq!(seeds(&tree), seeds(&other));
}

#[test]
fn invalid_impairments_in_toml_have_positions() {
    let wrong = TREE
        .replace("delay = \"5ms\"", "delay = 5, jiter = \"2ms\"")
        .replace("seed = 4", "reorder_gap = 4");
    assert_eq!(
        read(&wrong).unwrap_err(),
        "t:4:20: error: node \"root\": impair: delay: time \"5\" has no unit: write 5ms, 100us or 1.5s\n\
         t:4:31: error: node \"root\": impair: jiter: unknown key: did you mean \"jitter\"?\n\
         t:15:78: error: node \"b\": impair: reorder_gap: it has no effect without reorder: add reorder"
    );
}
