//! The scheduler's tree and its leaves, natively.

use fairpath_core::sched::{
    COST_ONE, Drop, Meta, NEVER, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, RATE_SHIFT,
    SchedConfig, SchedRuntime, Scheduler, Setting, encode_rate, policies,
};

/// Queues, by the numbers of `enum fp_pifo_kind`.
const HEAP: u32 = 1;
const BANDS: u32 = 2;

fn policy(name: &str) -> u32 {
    let found = policies().iter().find(|policy| policy.name == name);
    found.unwrap_or_else(|| panic!("no policy {name}")).id
}

fn node(parent: u32, name: &str, over: Over) -> NodeConfig {
    let policy = policy(name);
    NodeConfig {
        parent,
        policy,
        over,
        queue: HEAP,
        cost: COST_ONE,
        ..NodeConfig::default()
    }
}

fn plan(nodes: Vec<NodeConfig>, class_table: Vec<u32>) -> Plan {
    let config = SchedConfig {
        packets: 64,
        limit_packets: 64,
        flows: 64,
        references: 256,
        ..SchedConfig::default()
    };
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

fn packet(flow_hash: u32, class_id: u32) -> Meta {
    Meta {
        bytes: 1000,
        flow_hash,
        class_id,
        ..Meta::default()
    }
}

fn run(scheduler: &mut Scheduler, ops: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    scheduler.run(ops, &mut outcomes).unwrap();
    scheduler.audit().unwrap();
    outcomes
}

/// The handles that leave, in order.
fn drain(scheduler: &mut Scheduler, now: u64) -> Vec<u32> {
    let outcomes = run(scheduler, &[Op::dequeue(now, 1000)]);
    let sent = outcomes
        .iter()
        .filter(|outcome| outcome.kind == OutcomeKind::Sent);
    sent.map(|outcome| outcome.handle).collect()
}

#[test]
fn packets_of_two_flows_alternate_by_start_time() {
    for over in [Over::Packets, Over::Flows] {
        let mut scheduler = Scheduler::new(&plan(vec![node(0, "stfq", over)], vec![1])).unwrap();
        let ops: Vec<Op> = [(1, 7), (2, 7), (3, 7), (4, 9), (5, 9), (6, 9)]
            .map(|(handle, flow)| Op::enqueue(0, handle, packet(flow, 0)))
            .to_vec();
        run(&mut scheduler, &ops);
        assert_eq!(drain(&mut scheduler, 1), [1, 4, 2, 5, 3, 6], "{over:?}");
    }
}

#[test]
fn trees_of_references_and_children_share_by_class() {
    for over in [Over::Children, Over::References] {
        let nodes = vec![
            node(0, "stfq", over),
            node(1, "stfq", Over::Packets),
            node(1, "stfq", Over::Packets),
        ];
        let mut scheduler = Scheduler::new(&plan(nodes, vec![0, 2, 3])).unwrap();
        let packets = [
            (1, 1, 1),
            (2, 1, 1),
            (3, 2, 1),
            (4, 2, 1),
            (5, 3, 2),
            (6, 3, 2),
        ];
        let ops = packets.map(|(handle, flow, class)| Op::enqueue(0, handle, packet(flow, class)));
        run(&mut scheduler, &ops);
        assert_eq!(drain(&mut scheduler, 1), [1, 5, 3, 6, 2, 4], "{over:?}");
    }
}

#[test]
fn packets_without_leaf_or_handle_are_dropped() {
    let mut scheduler =
        Scheduler::new(&plan(vec![node(0, "fifo", Over::Packets)], vec![0, 1])).unwrap();
    let ops = [
        Op::enqueue(0, 1, packet(1, 0)),
        Op::enqueue(0, 1, packet(1, 1)),
        Op::enqueue(0, 1, packet(1, 1)),
        Op::enqueue(0, 65, packet(1, 1)),
        Op::dequeue(0, 9),
    ];
    let outcomes = run(&mut scheduler, &ops);
    let drops: Vec<_> = outcomes.iter().map(Outcome::drop).collect();
    assert_eq!(
        drops[..4],
        [
            Some(Drop::NoLeaf),
            None,
            Some(Drop::BadHandle),
            Some(Drop::BadHandle)
        ]
    );
    assert_eq!(outcomes[4].kind, OutcomeKind::Sent);
    assert_eq!(
        (outcomes[5].kind, outcomes[5].at),
        (OutcomeKind::Nothing, NEVER)
    );
}

#[test]
fn packet_with_the_last_handle_has_no_flow() {
    let mut scheduler =
        Scheduler::new(&plan(vec![node(0, "priority", Over::Packets)], vec![1])).unwrap();
    let urgent = Meta {
        dscp: 46,
        ..packet(1, 0)
    };
    let ops = [Op::enqueue(0, 64, packet(2, 0)), Op::enqueue(0, 1, urgent)];
    run(&mut scheduler, &ops);
    assert_eq!(drain(&mut scheduler, 1), [1, 64]);
}

#[test]
fn flows_of_two_leaves_never_share_a_queue() {
    for over in [Over::Flows, Over::Packets] {
        let nodes = vec![
            node(0, "fifo", Over::Children),
            node(1, "stfq", Over::Flows),
            node(1, "stfq", over),
        ];
        let mut plan = plan(nodes, vec![0, 2, 3]);
        plan.config.flows = 8;
        let mut scheduler = Scheduler::new(&plan).unwrap();
        let ten = (1..11).map(|flow| Op::enqueue(0, flow, packet(flow, 1)));
        run(&mut scheduler, &ten.collect::<Vec<_>>());
        assert_eq!(scheduler.stats().shared, 1, "ten flows in nine places");
        // The place of the other leaf is its own.
        let outcomes = run(
            &mut scheduler,
            &[Op::enqueue(0, 11, packet(11, 2)), Op::weight(0, 3, 11, 1)],
        );
        assert_eq!(outcomes[0].kind, OutcomeKind::Queued);
        assert_ne!(outcomes[1].kind, OutcomeKind::Failed);
        assert_eq!(scheduler.stats().shared, 1);
        let sent = run(&mut scheduler, &[Op::dequeue(1, 20)]);
        let leaves = sent
            .iter()
            .filter(|outcome| outcome.kind == OutcomeKind::Sent);
        let of_first = leaves.filter(|outcome| outcome.node == 2).count();
        assert_eq!(of_first, 10);
    }
}

#[test]
fn plans_that_strand_flows_are_refused() {
    let stuck = |name, over, disturb: fn(&mut NodeConfig)| {
        let mut nodes = vec![node(0, name, over)];
        if over == Over::Children {
            nodes.push(node(1, "fifo", Over::Packets));
        }
        disturb(&mut nodes[0]);
        let plan = Scheduler::new(&plan(nodes, vec![1]));
        plan.err().map(|error| error.to_string())
    };
    let aifo: fn(&mut NodeConfig) = |node| (node.queue, node.queue_buckets) = (6, 8);
    let beyond: fn(&mut NodeConfig) =
        |node| (node.queue, node.queue_buckets, node.queue_beyond) = (BANDS, 8, 1);
    let few: fn(&mut NodeConfig) = |node| node.queue_capacity = 1;
    let push_out: fn(&mut NodeConfig) = |node| (node.queue_capacity, node.queue_full) = (1, 1);
    assert_eq!(
        stuck("fifo", Over::Flows, few),
        None,
        "its packets are refused"
    );
    for (name, over, disturb) in [
        ("fifo", Over::Children, aifo),
        ("fifo", Over::Children, beyond),
        ("fifo", Over::Children, few),
        ("fifo", Over::Flows, push_out),
        ("fq_codel", Over::Flows, beyond),
        ("token_bucket", Over::Flows, few),
    ] {
        assert_eq!(stuck(name, over, |_| ()), None);
        let reported = stuck(name, over, disturb).unwrap();
        assert!(
            reported.contains("node 1") && reported.contains("never leave"),
            "{reported}"
        );
    }
}

#[test]
fn plans_beyond_the_memory_are_refused() {
    let root = node(0, "fifo", Over::Children);
    let leaf = node(1, "fifo", Over::Packets);
    let mut plan = plan([vec![root], vec![leaf; 1 << 16]].concat(), vec![2]);
    plan.config.packets = 1 << 24;
    let error = Scheduler::new(&plan).unwrap_err().to_string();
    assert!(error.contains("this machine does not provide"), "{error}");
}

#[test]
fn weights_given_before_the_first_packet_are_kept() {
    let mut scheduler = Scheduler::new(&plan(vec![node(0, "stfq", Over::Flows)], vec![1])).unwrap();
    let weights: Vec<Op> = (0..32).map(|flow| Op::weight(0, 1, flow, 1)).collect();
    run(&mut scheduler, &weights);
    assert_eq!(scheduler.stats().state_lost, 0);
}

#[test]
fn shipped_policies_have_valid_descriptions() {
    assert!(policies().len() >= 2);
    for policy in policies() {
        assert!(policy.over.contains(&policy.usual), "{policy:?}");
    }
    assert_eq!(policy("fifo"), 1);
    let _ = BANDS;
}

/// By the definition: the packet's time at each ceiling from its leaf to the root.
fn takes_longer(nodes: &[NodeConfig], leaf: u32, bytes: u32, ns: u64) -> bool {
    let mut node = leaf;
    while node != 0 {
        let NodeConfig { parent, ceil, .. } = nodes[node as usize - 1];
        if ceil != 0 && u128::from(bytes) * u128::from(ceil) >= u128::from(ns + 1) << RATE_SHIFT {
            return true;
        }
        node = parent;
    }
    false
}

#[test]
fn the_lowest_ceiling_decides_how_long_packets_take() {
    const RATES: [u64; 8] = [
        0,
        1,
        8_000,
        19_000_000,
        500_000_000,
        524_000_000,
        600_000_000,
        100_000_000_000,
    ];
    let (mut longer, mut all) = (0, 0);
    for link in RATES {
        for branch in RATES {
            let mut nodes = vec![node(0, "stfq", Over::Children)];
            nodes.push(node(1, "stfq", Over::Children));
            nodes.push(node(2, "fifo", Over::Packets));
            nodes.push(node(1, "fifo", Over::Packets));
            nodes[0].ceil = encode_rate(link);
            nodes[1].ceil = encode_rate(branch);
            let mut scheduler = Scheduler::new(&plan(nodes.clone(), vec![4, 3, 0])).unwrap();
            for leaf in RATES {
                // A change of a running tree counts at once.
                nodes[2].ceil = encode_rate(leaf);
                run(
                    &mut scheduler,
                    &[Op::node(0, 3, Setting::Ceil, encode_rate(leaf))],
                );
                for bytes in [60, 1514, 9_000, 67_000, u32::MAX] {
                    for (class_id, leaf) in [(0, 4), (1, 3), (2, 0), (99, 4)] {
                        let meta = Meta {
                            bytes,
                            ..packet(1, class_id)
                        };
                        let found = scheduler.takes_longer(&meta, 1_000_000);
                        let wanted = takes_longer(&nodes, leaf, bytes, 1_000_000);
                        assert_eq!(found, wanted, "{link} {branch} {bytes} {class_id}");
                        (longer, all) = (longer + u32::from(found), all + 1);
                    }
                }
            }
        }
    }
    assert!((all / 10..all * 9 / 10).contains(&longer), "{longer}");
}
