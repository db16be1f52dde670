//! `class_tree` and `hclock`: floors, ceilings, shares and bursts, by an oracle that searches and by
//! rates on a link in virtual time.

#[path = "policies/link.rs"]
mod link;
mod policies;
#[path = "policies/tree_oracle.rs"]
mod tree_oracle;

use fairpath_core::sched::{
    COST_ONE, Changes, Meta, NodeConfig, Op, OutcomeKind, Over, Plan, SchedConfig, SchedRuntime,
    Scheduler, Setting, encode_rate,
};
use link::{Audited, Link, MS, SECOND, Sent, bytes_by_source, within_a_percent};
use policies::{node, packet, plan, weighing};
use proptest::prelude::*;
use tree_oracle::{Node, Tree};

const MBIT: u64 = 1_000_000;
const GBIT: u64 = 1000 * MBIT;

fn inner(parent: u32) -> NodeConfig {
    node(parent, "class_tree", Over::Children)
}

fn leaf(parent: u32) -> NodeConfig {
    node(parent, "fifo", Over::Packets)
}

fn between(mut node: NodeConfig, floor_bps: u64, ceil_bps: u64, burst: u64) -> NodeConfig {
    (node.floor, node.ceil) = (encode_rate(floor_bps), encode_rate(ceil_bps));
    node.burst = burst;
    node
}

/// Of class 1, 2, ... : a packet of 1000 bytes.
fn of_class(class_id: u32) -> Meta {
    Meta {
        class_id,
        ..packet(class_id, 1000)
    }
}

/// A link over these leaves, below one root of `policy`; a source for each.
fn link_below(
    policy: &str,
    rate_bps: u64,
    leaves: &[NodeConfig],
    bytes: &[u32],
) -> Link<Scheduler> {
    let mut nodes = vec![node(0, policy, Over::Children)];
    nodes.extend(leaves);
    let classes: Vec<u32> = (0..=leaves.len() as u32)
        .map(|class| if class == 0 { 0 } else { class + 1 })
        .collect();
    let sources = (1..=leaves.len() as u32).map(|class| Meta {
        bytes: bytes[(class as usize - 1) % bytes.len()],
        ..of_class(class)
    });
    Link::new(
        Scheduler::new(&plan(nodes, classes)).unwrap(),
        1000,
        rate_bps,
        sources.collect(),
    )
}

fn link_of(rate_bps: u64, leaves: &[NodeConfig], bytes: &[u32]) -> Link<Scheduler> {
    link_below("class_tree", rate_bps, leaves, bytes)
}

/// The next step: a packet arrives after this time, or this number may leave.
#[derive(Clone, Copy, Debug)]
enum Step {
    Comes { after: u64, leaf: usize, bytes: u32 },
    Leave { after: u64, count: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let after = || {
        prop_oneof![
            4 => Just(0_u64),
            8 => 0..2_000_000_u64,
            1 => 0..100_000_000_u64,
            // A turn of the wheel of due times and more, and silence of weeks.
            1 => prop_oneof![0..4_000_000_000_u64, 0..4_000_000_000_000_000_u64],
        ]
    };
    let bytes = prop_oneof![Just(1000_u32), 60..1500_u32];
    let comes = (after(), 0..100_usize, bytes).prop_map(|(after, leaf, bytes)| Step::Comes {
        after,
        leaf,
        bytes,
    });
    let leave = (after(), 1..4_u32).prop_map(|(after, count)| Step::Leave { after, count });
    proptest::collection::vec(prop_oneof![5 => comes, 4 => leave], 1..400)
}

/// Parents, weights, rates and bursts of up to a dozen nodes.
fn trees() -> impl Strategy<Value = Vec<NodeConfig>> {
    let rate = || {
        prop_oneof![
            Just(0_u64),
            Just(MBIT),
            Just(4 * MBIT),
            // A packet within minutes: later than all slots of the wheel.
            100..100_000_u64,
            100_000..20_000_000_u64
        ]
    };
    let burst = prop_oneof![Just(0_u64), 0..30_000_000_u64];
    let child = (0..100_u32, 1..6_u32, rate(), rate(), burst);
    proptest::collection::vec(child, 1..12).prop_map(|children| {
        let mut nodes = vec![inner(0)];
        for (index, (parent, weight, floor, ceil, burst)) in children.into_iter().enumerate() {
            let child = weighing(inner(1 + parent % (1 + index as u32)), weight);
            nodes.push(between(child, floor, ceil, burst));
        }
        for index in 0..nodes.len() as u32 {
            if !nodes.iter().any(|node| node.parent == index + 1) {
                let mut as_leaf = leaf(nodes[index as usize].parent);
                let inner = nodes[index as usize];
                (as_leaf.cost, as_leaf.burst) = (inner.cost, inner.burst);
                (as_leaf.floor, as_leaf.ceil) = (inner.floor, inner.ceil);
                nodes[index as usize] = as_leaf;
            }
        }
        nodes
    })
}

/// Runs the steps in the runtime and in the oracle: every packet that leaves is the same.
fn compare<H: SchedRuntime>(runtime: H, nodes: &[NodeConfig], leaves: &[u32], steps: &[Step]) {
    let oracle_node = |node: &NodeConfig| {
        Node::new(
            (node.parent as usize).saturating_sub(1),
            node.cost.into(),
            node.floor,
            node.ceil,
            node.burst,
        )
    };
    let mut oracle = Tree::new(nodes.iter().map(oracle_node).collect());
    let mut audited = Audited::new(runtime);
    let mut now = 0;
    for (step, handle) in steps.iter().zip(1..) {
        match *step {
            Step::Comes { after, leaf, bytes } => {
                now += after;
                oracle.at(now);
                let class = leaf % leaves.len();
                oracle.enqueue(leaves[class] as usize - 1, handle, bytes.into());
                let meta = Meta {
                    bytes,
                    ..of_class(class as u32 + 1)
                };
                audited.run(Op::enqueue(now, handle, meta));
            }
            Step::Leave { after, count } => {
                now += after;
                oracle.at(now);
                let expected: Vec<u32> = (0..count).map_while(|_| oracle.dequeue()).collect();
                let outcomes = audited.run(Op::dequeue(now, count));
                let sent = outcomes
                    .iter()
                    .filter(|outcome| outcome.kind == OutcomeKind::Sent);
                assert_eq!(
                    sent.map(|one| one.handle).collect::<Vec<_>>(),
                    expected,
                    "at {now}"
                );
                let again = outcomes
                    .iter()
                    .find(|outcome| outcome.kind == OutcomeKind::Nothing);
                assert!(
                    again.is_none_or(|again| again.at == oracle.next()),
                    "at {now}: {again:?}"
                );
            }
        }
    }
    audited.runtime.audit().unwrap();
}

proptest! {
    #![proptest_config(fairpath_units::property!(400))]

    #[test]
    fn class_trees_borrow_exactly_to_a_packet(nodes in trees(), steps in steps()) {
        let ids = 1..=nodes.len() as u32;
        let leaves: Vec<u32> = ids.filter(|id| nodes[*id as usize - 1].over == Over::Packets).collect();
        let classes = std::iter::once(0).chain(leaves.iter().copied()).collect();
        let scheduler = Scheduler::new(&plan(nodes.clone(), classes)).unwrap();
        compare(scheduler, &nodes, &leaves, &steps);
    }
}

/// More children than one operation moves in the wheel of due times.
fn thousands_of_floors_are_due(after: u64) {
    const CHILDREN: u32 = 6_000;
    let child = || between(leaf(1), MBIT / 10, 0, 0);
    let nodes: Vec<NodeConfig> = std::iter::once(inner(0))
        .chain((0..CHILDREN).map(|_| child()))
        .collect();
    let mut plan = plan(nodes, (0..=CHILDREN + 1).collect());
    (plan.config.packets, plan.config.limit_packets) = (2 * CHILDREN, 2 * CHILDREN);
    let mut scheduler = Scheduler::new(&plan).unwrap();
    let mut outcomes = Vec::new();
    let come: Vec<Op> = (0..2 * CHILDREN)
        .map(|at| Op::enqueue(0, at + 1, of_class(2 + at % CHILDREN)))
        .collect();
    scheduler.run(&come, &mut outcomes).unwrap();
    let mut by_floor = |now: u64| {
        let leave: Vec<Op> = (0..CHILDREN).map(|_| Op::dequeue(now, 1)).collect();
        scheduler.run(&leave, &mut outcomes).unwrap();
        scheduler.audit().unwrap();
        let stats = (2..=CHILDREN + 1).map(|node| scheduler.node_stats(node));
        stats.map(|stats| stats.by_floor).sum::<u64>()
    };
    assert_eq!(by_floor(0), u64::from(CHILDREN));
    // 1000 bytes at 100 kbit/s: `after` 80 ms or more, the others are due.
    assert_eq!(by_floor(after), 2 * u64::from(CHILDREN));
}

#[test]
fn thousands_of_floors_are_due_after_silence() {
    thousands_of_floors_are_due(3_600 * SECOND);
}

#[test]
fn thousands_of_floors_are_due_at_once() {
    thousands_of_floors_are_due(80 * MS);
}

fn order(sent: &[Sent]) -> String {
    sent.iter()
        .map(|one| char::from(b'A' + one.source as u8))
        .collect()
}

#[test]
fn a_floor_of_six_tenths_is_kept_evenly() {
    for policy in ["class_tree", "hclock"] {
        // A packet takes a millisecond; both want everything and weigh the same.
        let leaves = [between(leaf(1), 4_800_000, 0, 0), leaf(1)];
        let mut link = link_below(policy, 8 * MBIT, &leaves, &[1000]);
        let sent = link.saturate(20 * MS, 5, |_, _| true);
        assert_eq!(order(&sent), "ABABAABABAABABAABABA", "{policy}");
    }
}

#[test]
fn weights_hold_within_a_percent_over_a_second() {
    for policy in ["class_tree", "hclock"] {
        let weights = [1, 2, 3, 10];
        let leaves = weights.map(|weight| weighing(leaf(1), weight));
        let mut link = link_below(policy, 100 * MBIT, &leaves, &[1500, 300, 1000, 64]);
        let sent = link.saturate(SECOND, 5, |_, _| true);
        let bytes = bytes_by_source(&sent, 4);
        let all: u64 = bytes.iter().sum();
        for (bytes, weight) in bytes.iter().zip(weights) {
            within_a_percent(*bytes, all * u64::from(weight) / 16, policy);
        }
    }
}

#[test]
fn floors_hold_under_load_with_any_weights() {
    for policy in ["class_tree", "hclock"] {
        let floors = [50, 30, 15, 5];
        let weights = [1, 2, 30, 300];
        let leaves: Vec<NodeConfig> = floors
            .iter()
            .zip(weights)
            .map(|(floor, weight)| between(weighing(leaf(1), weight), floor * MBIT, 0, 0))
            .collect();
        let mut link = link_below(policy, 100 * MBIT, &leaves, &[1000, 1500, 64, 500]);
        let sent = link.saturate(2 * SECOND, 5, |_, _| true);
        for second in [0..SECOND, SECOND..2 * SECOND] {
            let part: Vec<Sent> = sent
                .iter()
                .filter(|one| second.contains(&one.at))
                .copied()
                .collect();
            for (bytes, floor) in bytes_by_source(&part, 4).iter().zip(floors) {
                within_a_percent(*bytes * 8, floor * MBIT, policy);
            }
        }
    }
}

#[test]
fn children_get_the_larger_of_floor_and_share() {
    // Of 100 Mbit/s, A has a floor above its share, B one below, C none.
    let leaves = [
        between(leaf(1), 60 * MBIT, 0, 0),
        between(leaf(1), 5 * MBIT, 0, 0),
        leaf(1),
    ];
    let mut link = link_of(100 * MBIT, &leaves, &[1000]);
    let sent = link.saturate(2 * SECOND, 5, |_, _| true);
    let bytes = bytes_by_source(&sent, 3);
    for (bytes, expected) in bytes.iter().zip([60, 20, 20]) {
        within_a_percent(*bytes * 4, expected * MBIT, "of 100 Mbit/s");
    }
}

#[test]
fn no_interval_exceeds_the_ceiling_and_its_bucket() {
    let burst = 20 * MS;
    let leaves = [between(leaf(1), 0, 10 * MBIT, burst), leaf(1)];
    let mut link = link_of(100 * MBIT, &leaves, &[1000]);
    // Full, silent for a while, full again: the silence is worth no more than the burst.
    let busy = |now: u64| !(200 * MS..600 * MS).contains(&now);
    let sent = link.saturate(SECOND, 5, |source, now| source == 1 || busy(now));
    let times: Vec<u64> = sent
        .iter()
        .filter(|one| one.source == 0)
        .map(|one| one.at)
        .collect();
    for (first, from) in times.iter().enumerate() {
        for (count, to) in times[first..]
            .iter()
            .zip(1_u64..)
            .map(|(to, count)| (count, to))
        {
            // 1000 bytes take 800 us at 10 Mbit/s; the bucket may go negative by the last packet.
            let allowed = (to - from + burst) / 800_000 + 1;
            assert!(
                count <= allowed,
                "{count} packets from {from} to {to}, {allowed} are allowed"
            );
        }
    }
    let burst_after_silence = times
        .iter()
        .filter(|at| (600 * MS..602 * MS).contains(*at))
        .count();
    assert!(
        (12..=13).contains(&burst_after_silence),
        "{burst_after_silence} at link speed, by turns"
    );
}

#[test]
fn ceilings_are_reached_and_the_rest_is_lent() {
    let leaves = [
        between(leaf(1), 0, 10 * MBIT, 0),
        between(leaf(1), 0, 33 * MBIT, MS),
        leaf(1),
    ];
    let mut link = link_of(100 * MBIT, &leaves, &[1000, 1500, 64]);
    let sent = link.saturate(2 * SECOND, 5, |_, _| true);
    let bytes = bytes_by_source(&sent, 3);
    for (bytes, expected) in bytes.iter().zip([10, 33, 57]) {
        within_a_percent(*bytes * 4, expected * MBIT, "of 100 Mbit/s");
    }
    let gaps = sent
        .windows(2)
        .all(|two| two[1].at - two[0].at == link.busy(two[0].bytes));
    assert!(gaps, "the link is never idle: C has no ceiling");
}

#[test]
fn below_all_ceilings_link_rests_and_no_longer() {
    let leaves = [
        between(leaf(1), 0, 10 * MBIT, 0),
        between(leaf(1), 0, 20 * MBIT, 0),
    ];
    let mut link = link_of(100 * MBIT, &leaves, &[1000]);
    let sent = link.saturate(2 * SECOND, 5, |_, _| true);
    let bytes = bytes_by_source(&sent, 2);
    within_a_percent(bytes[0] * 4, 10 * MBIT, "A");
    within_a_percent(bytes[1] * 4, 20 * MBIT, "B");
}

#[test]
fn idle_time_gives_nothing_without_burst() {
    let leaves = [between(leaf(1), 20 * MBIT, 0, 0), leaf(1)];
    let mut link = link_of(100 * MBIT, &leaves, &[1000]);
    link.saturate(10 * SECOND, 5, |source, _| source == 1);
    let sent = link.saturate(10 * SECOND + 100 * MS, 5, |_, _| true);
    let bytes = bytes_by_source(&sent, 2);
    assert!(bytes[0].abs_diff(bytes[1]) <= 2000, "{bytes:?}");
    // And the reverse: service that B had alone does not count against it.
    let sent = link.saturate(10 * SECOND + 200 * MS, 5, |_, _| true);
    let bytes = bytes_by_source(&sent, 2);
    assert!(bytes[0].abs_diff(bytes[1]) <= 2000, "{bytes:?}");
}

#[test]
fn unused_rate_goes_to_sibling_sites() {
    // ISP -> two sites of 50 each -> two subscribers each; one subscriber may have 10 at most.
    let nodes = vec![
        inner(0),
        between(inner(1), 50 * MBIT, 0, 0),
        between(inner(1), 50 * MBIT, 0, 0),
        between(leaf(2), 25 * MBIT, 10 * MBIT, 0),
        between(leaf(2), 25 * MBIT, 0, 0),
        between(leaf(3), 40 * MBIT, 0, 0),
        between(leaf(3), 10 * MBIT, 0, 0),
    ];
    let plan = plan(nodes, vec![0, 4, 5, 6, 7]);
    let sources = (1..=4).map(of_class).collect();
    let mut link = Link::new(Scheduler::new(&plan).unwrap(), 1000, 100 * MBIT, sources);
    let sent = link.saturate(2 * SECOND, 5, |_, _| true);
    for (bytes, expected) in bytes_by_source(&sent, 4).iter().zip([10, 40, 40, 10]) {
        within_a_percent(*bytes * 4, expected * MBIT, "all want everything");
    }
    let start = link.now;
    let sent = link.saturate(start + 2 * SECOND, 5, |source, _| source != 1);
    let later: Vec<Sent> = sent
        .into_iter()
        .filter(|one| one.at > start + SECOND)
        .collect();
    for (bytes, expected) in bytes_by_source(&later, 4).iter().zip([10, 0, 45, 45]) {
        if expected > 0 {
            within_a_percent(
                *bytes * 8,
                expected * MBIT,
                "one is silent, and its place is lent",
            );
        }
    }
}

/// Rates that a person may type, and the clamps: 1 bit/s, the largest, and none.
const WRONG_RATES: [u64; 6] = [1, 100, 1_000, 100 * GBIT, u64::MAX, 0];

/// One backlogged class of `policy` with this ceiling, or this floor, and its parent.
fn one_class(policy: &str, setting: Setting, bps: u64) -> Plan {
    let mut class = leaf(1);
    match setting {
        Setting::Floor => class.floor = encode_rate(bps),
        _ => class.ceil = encode_rate(bps),
    }
    plan(vec![node(0, policy, Over::Children), class], vec![0, 2])
}

/// Times at which packets of 1,000 bytes leave a backlogged class until `end`.
fn leaving_times(scheduler: &mut Scheduler, from: u64, end: u64) -> Vec<u64> {
    let mut times = vec![];
    let mut now = from;
    while now < end {
        let mut outcomes = vec![];
        scheduler
            .run(&[Op::dequeue(now, 1)], &mut outcomes)
            .unwrap();
        for outcome in outcomes {
            match outcome.kind {
                OutcomeKind::Sent => {
                    times.push(now);
                    let again = Op::enqueue(now, outcome.handle, of_class(1));
                    scheduler.run(&[again], &mut vec![]).unwrap();
                    // The link takes 80 Mbit/s.
                    now += MS / 10;
                }
                OutcomeKind::Nothing => now = outcome.at,
                _ => {}
            }
        }
    }
    scheduler.audit().unwrap();
    times
}

/// A class with the rate `wrong` for two seconds, then 8 Mbit/s, by `set` or by a reload: when its
/// packets leave in the second after that.
fn after_a_correction(policy: &str, wrong: u64, reload: bool) -> Vec<u64> {
    let plan_of = |bps| one_class(policy, Setting::Ceil, bps);
    let mut scheduler = Scheduler::new(&plan_of(wrong)).unwrap();
    for handle in 1..=20 {
        let op = Op::enqueue(SECOND, handle, of_class(1));
        scheduler.run(&[op], &mut vec![]).unwrap();
    }
    let corrected = 3 * SECOND;
    leaving_times(&mut scheduler, SECOND, corrected);
    if reload {
        let mut old = scheduler;
        scheduler = Scheduler::new(&plan_of(8 * MBIT)).unwrap();
        let changes = Changes::none(2);
        scheduler
            .adopt(&mut old, &changes, corrected, &mut vec![])
            .unwrap();
    } else {
        let op = Op::node(corrected, 2, Setting::Ceil, encode_rate(8 * MBIT));
        scheduler.run(&[op], &mut vec![]).unwrap();
    }
    leaving_times(&mut scheduler, corrected, corrected + SECOND)
}

#[test]
fn corrected_ceilings_take_effect_within_a_frame() {
    for policy in ["class_tree", "hclock"] {
        for (wrong, reload) in WRONG_RATES
            .into_iter()
            .flat_map(|bps| [(bps, false), (bps, true)])
        {
            let times = after_a_correction(policy, wrong, reload);
            let what = format!("{policy}, {wrong} bit/s, reload {reload}: {times:?}");
            // A frame takes a millisecond; a thousand of them a second.
            assert!(
                times
                    .first()
                    .is_some_and(|at| *at <= 3 * SECOND + MS + MS / 10),
                "{what}"
            );
            assert!(
                (999..=1002).contains(&times.len()),
                "{} {what}",
                times.len()
            );
            assert!(
                times.windows(3).all(|three| three[2] - three[0] >= MS),
                "{what}"
            );
        }
    }
}

#[test]
fn repeated_equal_rates_change_nothing() {
    let set = |bps| {
        let mut scheduler = Scheduler::new(&one_class("class_tree", Setting::Ceil, MBIT)).unwrap();
        for handle in 1..=20 {
            let op = Op::enqueue(SECOND, handle, of_class(1));
            scheduler.run(&[op], &mut vec![]).unwrap();
        }
        let mut times = vec![];
        for ms in 1000..3000 {
            let op = Op::node(ms * MS, 2, Setting::Ceil, encode_rate(bps));
            scheduler.run(&[op], &mut vec![]).unwrap();
            times.extend(leaving_times(&mut scheduler, ms * MS, (ms + 1) * MS));
        }
        times.len()
    };
    // Two seconds, and the packet that may leave at once.
    assert_eq!(set(MBIT), 250);
}

#[test]
fn alternating_rates_gain_no_packet() {
    let mut scheduler = Scheduler::new(&one_class("class_tree", Setting::Ceil, MBIT)).unwrap();
    for handle in 1..=20 {
        let op = Op::enqueue(SECOND, handle, of_class(1));
        scheduler.run(&[op], &mut vec![]).unwrap();
    }
    let mut sent = 0;
    for ms in 1000..3000 {
        let bps = [MBIT, 2 * MBIT][ms as usize % 2];
        let op = Op::node(ms * MS, 2, Setting::Ceil, encode_rate(bps));
        scheduler.run(&[op], &mut vec![]).unwrap();
        sent += leaving_times(&mut scheduler, ms * MS, (ms + 1) * MS).len();
    }
    // Two seconds at 1.5 Mbit/s.
    assert!((374..=376).contains(&sent), "{sent}");
}

#[test]
fn corrected_floors_take_effect_within_a_frame() {
    for policy in ["class_tree", "hclock"] {
        for wrong in WRONG_RATES {
            // A floor of 60 of 100 Mbit/s, and a sibling that weighs a thousand times more.
            let leaves = [between(leaf(1), wrong, 0, 0), weighing(leaf(1), 1000)];
            let mut link = link_below(policy, 100 * MBIT, &leaves, &[1000]);
            link.saturate(SECOND, 5, |_, _| true);
            link.runtime.run(Op::node(
                link.now,
                2,
                Setting::Floor,
                encode_rate(60 * MBIT),
            ));
            let from = link.now;
            let sent = link.saturate(from + SECOND, 5, |_, _| true);
            let bytes = bytes_by_source(&sent, 2)[0];
            within_a_percent(bytes * 8, 60 * MBIT, policy);
        }
    }
}

/// Ten regions, ten sites each, a hundred subscribers each.
fn four_levels() -> Plan {
    let mut nodes = vec![inner(0)];
    nodes.extend((0..10).map(|region| weighing(inner(1), region + 1)));
    nodes.extend((0..100).map(|site| inner(2 + site / 10)));
    nodes.extend((0..10_000).map(|subscriber| leaf(12 + subscriber / 100)));
    let config = SchedConfig {
        packets: 30_000,
        limit_packets: 30_000,
        ..SchedConfig::default()
    };
    let class_table = std::iter::once(0).chain(112..10_112).collect();
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

#[test]
fn ten_thousand_classes_on_four_levels_share_correctly() {
    let plan = four_levels();
    assert!(plan.nodes.iter().all(|node| node.cost <= COST_ONE));
    let sources = (1..=10_000).map(of_class).collect();
    // As many packets as a region of weight 1 needs to come round four times: 1000 * 4 * 55.
    let mut link = Link::new(
        Scheduler::new(&plan).unwrap(),
        30_000,
        10_000 * MBIT,
        sources,
    );
    let sent = link.saturate_by_turns(220_000, 2);
    let bytes = bytes_by_source(&sent, 10_000);
    let all: u64 = bytes.iter().sum();
    for region in 0..10 {
        let of_region = &bytes[region * 1000..(region + 1) * 1000];
        let sum: u64 = of_region.iter().sum();
        within_a_percent(sum, all * (region as u64 + 1) / 55, "a region");
        let (min, most) = (
            of_region.iter().min().unwrap(),
            of_region.iter().max().unwrap(),
        );
        assert!(
            most - min <= 1000,
            "subscribers of region {region}: {min} to {most} bytes"
        );
    }
}
