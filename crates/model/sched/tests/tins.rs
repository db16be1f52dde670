//! Tins of classes: DSCPs, thresholds, and delay.

use std::fmt::Write;

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::sched::{
    Meta, Op, OutcomeKind, SchedLayout, SchedRuntime, Scheduler, Setting, encode_rate, policies,
};
use fairpath_sched::tree::{BadTree, Diffserv, Direction, Link, MAX_NODES, Tree};

const MBIT: u64 = 1_000_000;
const BYTES: u32 = 1000;
/// A DSCP of each tin.
const VOICE: u8 = 46;
const VIDEO: u8 = 26;
const BULK: u8 = 8;
const REST: u8 = 0;

fn classes(count: u32) -> ClassSet {
    let mut csv = String::from("name,prefix,down\n");
    for n in 0..count {
        let [_, a, b, c] = n.to_be_bytes();
        let _ = writeln!(csv, "s{n},100.{}.{b}.{c}/32,10mbit", 64 + a);
    }
    let mut drafts = Drafts::new();
    drafts.read_file("c.csv", csv.as_bytes());
    ClassSet::build(drafts, Uplinks::Unknown).set.unwrap()
}

fn split(set: &ClassSet, diffserv: Diffserv) -> Result<Tree, BadTree> {
    Tree::of_classes_with(set, Direction::Down, "fq_codel", diffserv, policies())
}

fn tree(diffserv: Diffserv) -> Tree {
    split(&classes(1), diffserv).unwrap()
}

/// The name of the tin of a DSCP in class `s0`.
fn tin(tree: &Tree, dscp: u8) -> String {
    let meta = Meta {
        class_id: 1,
        dscp,
        ..Meta::default()
    };
    let leaf = tree.names.node(tree.leaf(&meta).unwrap());
    let name = leaf
        .strip_prefix("s0 (")
        .and_then(|name| name.strip_suffix(')'));
    name.unwrap_or_else(|| panic!("{leaf}")).to_owned()
}

#[test]
fn each_dscp_is_in_the_tin_of_cake() {
    let (three, four) = (tree(Diffserv::Diffserv3), tree(Diffserv::Diffserv4));
    for dscp in 0..64 {
        let of_three = match dscp {
            1 | 8 => "bulk",
            4 | 44 | 46 | 48 | 56 => "voice",
            _ => "best effort",
        };
        let of_four = match dscp {
            1 | 8 => "bulk",
            32 | 40 | 44 | 46 | 48 | 56 => "voice",
            4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38 => "video",
            _ => "best effort",
        };
        assert_eq!(tin(&three, dscp), of_three, "{dscp}");
        assert_eq!(tin(&four, dscp), of_four, "{dscp}");
    }
    let plain = tree(Diffserv::BestEffort);
    assert_eq!(plain.names.nodes(), ["root", "s0", "other"]);
    assert_eq!(plain.plan.splits.len(), 0);
}

/// A class on a link of 8 Mbit/s, whose tins always have packets: the share of each, after its ceiling
/// was set to `ceil`.
fn shares<const N: usize>(diffserv: Diffserv, dscps: [u8; N], ceil: u64) -> [f64; N] {
    let link = Link {
        bps: 8 * MBIT,
        burst_ns: 1_000_000,
        stack: false,
    };
    let tree = tree(diffserv).on_link(&link).unwrap();
    let mut scheduler = Scheduler::new(&tree.plan).unwrap();
    let class = tree.names.id("s0").unwrap();
    let set = Op::node(0, class, Setting::Ceil, encode_rate(ceil));
    let (mut outcomes, mut sent, mut ops) = (Vec::new(), [0u32; N], vec![set]);
    let enqueue = |now, at: usize, handle| {
        let meta = Meta {
            bytes: BYTES,
            class_id: 1,
            dscp: dscps[at],
            flow_hash: at as u32 + 1,
            ..Meta::default()
        };
        Op::enqueue(now, handle, meta)
    };
    // Two packets of each wait.
    for at in 0..N {
        ops.extend((0..2).map(|more| enqueue(0, at, (2 * at + more + 1) as u32)));
    }
    let mut now = 0;
    while sent.iter().sum::<u32>() < 16_000 {
        ops.push(Op::dequeue(now, 1));
        outcomes.clear();
        scheduler.run(&ops, &mut outcomes).unwrap();
        ops.clear();
        for outcome in &outcomes {
            let at = (outcome.handle as usize).saturating_sub(1) / 2;
            match outcome.kind {
                OutcomeKind::Sent => {
                    sent[at] += 1;
                    ops.push(enqueue(now, at, outcome.handle));
                }
                // CoDel.
                OutcomeKind::Dropped => ops.push(enqueue(now, at, outcome.handle)),
                OutcomeKind::Nothing => now = now.max(outcome.at),
                _ => {}
            }
        }
        now += 10_000;
    }
    sent.map(|packets| f64::from(packets) / f64::from(sent.iter().sum::<u32>()))
}

#[test]
fn busy_tins_have_the_thresholds_of_cake() {
    use Diffserv::{Diffserv3, Diffserv4};
    #[track_caller]
    fn check<const N: usize>(diffserv: Diffserv, tins: [(u8, f64); N]) {
        // Shares are of the present rate: that of the link, and less.
        for ceil in [8 * MBIT, MBIT] {
            let shares = shares(diffserv, tins.map(|(dscp, _)| dscp), ceil);
            for (share, (dscp, expected)) in shares.into_iter().zip(tins) {
                assert!((share - expected).abs() < 0.002, "{dscp}: {share}");
            }
        }
    }
    check(Diffserv3, [(VOICE, 0.25), (REST, 0.75)]);
    check(Diffserv3, [(BULK, 0.0625), (REST, 0.9375)]);
    check(Diffserv3, [(VOICE, 0.25), (BULK, 0.0625), (REST, 0.6875)]);
    check(
        Diffserv4,
        [(VOICE, 0.25), (VIDEO, 0.5), (BULK, 0.0625), (REST, 0.1875)],
    );
    check(Diffserv4, [(VIDEO, 0.5), (REST, 0.5)]);
    // Nothing is unused: tins above their thresholds have what is left, by their weights.
    check(Diffserv3, [(VOICE, 0.8), (BULK, 0.2)]);
    check(Diffserv4, [(VOICE, 1.0)]);
}

/// The longest time that a sparse packet of this DSCP waits, in packets of the others, which are busy.
fn wait_of(diffserv: Diffserv, sparse: u8, busy: &[u8]) -> u64 {
    const TIME: u64 = 1_000_000;
    let mut scheduler = Scheduler::new(&tree(diffserv).plan).unwrap();
    let (mut outcomes, mut longest) = (Vec::new(), 0);
    let meta = |dscp: u8, bytes| Meta {
        bytes,
        class_id: 1,
        dscp,
        flow_hash: u32::from(dscp) + 1,
        ..Meta::default()
    };
    let mut next = 100;
    for round in 0..4000u64 {
        let now = round * TIME;
        let mut ops = Vec::new();
        for (handle, dscp) in (1..).zip(busy) {
            // One that waits already is refused.
            ops.push(Op::enqueue(now, handle, meta(*dscp, BYTES)));
            ops.push(Op::enqueue(now, handle + 10, meta(*dscp, BYTES)));
        }
        if round % 37 == 5 {
            next += 1;
            ops.push(Op::enqueue(now, next, meta(sparse, 200)));
        }
        ops.push(Op::dequeue(now, 1));
        outcomes.clear();
        scheduler.run(&ops, &mut outcomes).unwrap();
        let sent = outcomes.iter().filter(|o| o.kind == OutcomeKind::Sent);
        for outcome in sent.filter(|outcome| outcome.handle > 100) {
            longest = longest.max(outcome.at / TIME);
        }
    }
    assert!(next > 200);
    longest
}

#[test]
fn a_sparse_tin_waits_for_no_other() {
    let (three, four) = (Diffserv::Diffserv3, Diffserv::Diffserv4);
    // No other packet is between its arrival and its turn.
    assert_eq!(wait_of(three, VOICE, &[REST, BULK]), 0);
    assert_eq!(wait_of(four, VOICE, &[REST, BULK, VIDEO]), 0);
    // Video waits for voice within its threshold, and bulk for both.
    assert!(wait_of(four, VIDEO, &[REST, BULK, VOICE]) <= 1);
    assert!(wait_of(four, BULK, &[REST, VIDEO, VOICE]) <= 4);
    // Bulk above its threshold, and the rest, wait for nothing else.
    assert!(wait_of(three, REST, &[BULK]) <= 1);
}

#[test]
fn thousands_of_classes_have_tins_within_limits() {
    let bytes = |diffserv, count| {
        let tree = split(&classes(count), diffserv).unwrap();
        SchedLayout::new(&tree.plan, &[]).unwrap().bytes()
    };
    let of_leaves = bytes(Diffserv::BestEffort, 10_000);
    let of_tins = bytes(Diffserv::Diffserv4, 10_000);
    println!("{of_leaves} bytes with one leaf per class, {of_tins} with four tins");
    assert!(of_tins < 300 << 20, "{of_tins}");
    // 26,500 classes have 132,506 nodes.
    let error = split(&classes(26_500), Diffserv::Diffserv4)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("132506 nodes") && error.contains(&MAX_NODES.to_string()),
        "{error}"
    );
}
