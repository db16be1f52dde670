//! What people write: read, refused, and written again.

use fairpath_core::sched::policies;
use fairpath_sched::impair::{Builder, KEYS, Spec};
use fairpath_sched::tree::{Known, Tree};

#[test]
fn what_is_written_reads_as_the_same() {
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
fn what_cannot_be_is_refused_with_a_remedy() {
    for (text, told) in [
        (
            "loss=101%",
            "loss: \"101%\" is no share; write 1% or 0.01, at most 100%",
        ),
        ("loss=-1%", "is no share"),
        ("loss=nan", "is no share"),
        (
            "los=1%",
            "los: there is no such key; did you mean \"loss\"?",
        ),
        ("delay=20", "delay: \"20\" is no time; write 5ms"),
        ("delay=2h", "out of range"),
        ("delay=1ms delay=2ms", "said twice"),
        (
            "loss=1% pattern=01",
            "pattern: packets are lost by loss already",
        ),
        (
            "jitter=2ms delay=5ms distribution=gauss",
            "one of uniform, normal",
        ),
        ("distribution=normal", "it says how jitter is"),
        (
            "distribution=/nowhere/delays",
            "read /nowhere/delays: No such file",
        ),
        ("correlation=100% jitter=1ms", "leaves nothing to chance"),
        ("loss_correlation=10%", "it says how loss is"),
        ("reorder=1%", "nobody can be overtaken"),
        ("reorder_gap=3 delay=1ms", "it says how reorder is"),
        ("slot=packets=3", "write min=5ms"),
        ("slot=min=5ms,max=3ms", "max is less than min"),
        ("slot=min=1ms,max=10s", "4.29 s above min"),
        ("slot=min=1ms order=free", "slots are filled in order"),
        ("pattern=0120", "'2' is no bit"),
        (
            "four_state=p13=60%,p14=50%",
            "p13 and p14 are more than 100%",
        ),
        ("gilbert_elliott=r=10%", "p is missing"),
        (
            "gilbert_elliott=p=1%,x=2%",
            "\"x=2%\" is not known; write KEY=VALUE of p, r, h, k",
        ),
        ("delay_trace=\"1s 2ms, 3s\"", "its first point is not at 0s"),
        ("delay_trace=\"0s 2ms, 0s 3ms\"", "not after the one before"),
        ("delay=1ms delay_trace=\"0s 2ms, 1s\"", "leave one out"),
        ("pipe=5", "nothing is delayed"),
        ("order=random", "write kept or free"),
        ("seed=x", "seed: \"x\" is no whole number"),
    ] {
        let error = refused(text);
        assert!(error.contains(told), "{text}: {error}");
    }
    // All at once.
    assert_eq!(
        refused("loss=2 delay=x order=y reorder_gap=2")
            .lines()
            .count(),
        4
    );
}

#[test]
fn every_key_can_be_set_by_its_name_and_by_its_flag() {
    for (key, about) in KEYS {
        let mut builder = Builder::default();
        let wrong = builder.set(&key.replace('_', "-"), "\u{1}").err();
        // It is known: what is wrong is the value, or nothing is there to be wrong.
        let told = wrong.map_or(String::new(), |bad| bad.wrong);
        assert!(
            !told.contains("no such key") && !about.is_empty(),
            "{key}: {told}"
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
fn nodes_in_toml_have_impairments_and_hand_them_down() {
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
    // Handles for those that are delayed besides those that wait.
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
fn wrong_impairments_in_toml_are_told_with_their_places() {
    let wrong = TREE
        .replace("delay = \"5ms\"", "delay = 5, jiter = \"2ms\"")
        .replace("seed = 4", "reorder_gap = 4");
    assert_eq!(
        read(&wrong).unwrap_err(),
        "t:4:20: error: node \"root\": impair: delay: \"5\" is no time; write 5ms, 100us or 1.5s\n\
         t:4:31: error: node \"root\": impair: jiter: there is no such key; did you mean \"jitter\"?\n\
         t:15:78: error: node \"b\": impair: reorder_gap: it says how reorder is, which is not there; add it"
    );
}
