use proptest::prelude::*;

use fairpath_core::sched::{
    ImpairConfig, ImpairStats, Meta, NEVER, NodeConfig, NodeStats, Op, OpKind, Outcome,
    OutcomeKind, Plan, SchedConfig, SchedRuntime, SchedRuntimeError, SchedStats,
};

use super::*;

fn plan() -> Plan {
    let node = |parent| NodeConfig {
        parent,
        cost: 16384,
        ..NodeConfig::default()
    };
    Plan {
        config: SchedConfig {
            packets: 16,
            nodes: 3,
            horizon: NEVER,
            ..SchedConfig::default()
        },
        nodes: vec![
            node(0),
            node(1),
            NodeConfig {
                split: 1,
                floor: NEVER,
                ..node(1)
            },
        ],
        class_table: vec![1, 2, 3],
        splits: vec![3; 64],
        impairments: vec![ImpairConfig {
            delay: NEVER,
            rho: -1,
            ..ImpairConfig::default()
        }],
        words: vec![7, NEVER],
    }
}

fn run(outcomes: bool) -> Run {
    Run {
        runtime: "native".into(),
        program: "fairpath 0.1.0".into(),
        outcomes,
        nodes: vec!["root".into()],
        policies: vec![PolicyName {
            id: 0,
            name: "fifo".into(),
            params: vec!["limit".into()],
        }],
        plan: plan(),
    }
}

fn an_op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        Just(OpKind::Enqueue),
        Just(OpKind::Dequeue),
        Just(OpKind::Param),
        Just(OpKind::Weight),
        Just(OpKind::Remove),
        Just(OpKind::Node),
        Just(OpKind::Impair),
    ];
    let meta = (
        any::<[u64; 2]>(),
        any::<[u32; 4]>(),
        0u8..3,
        0u8..64,
        0u8..4,
        any::<u8>(),
    );
    let meta = meta.prop_map(|(wide, narrow, end, dscp, ecn, segments)| Meta {
        arrival: wide[0],
        hint: wide[1],
        bytes: narrow[0],
        flow_hash: narrow[1] % 3,
        class_id: narrow[2],
        mark: narrow[3],
        source: [end; 16],
        source_port: end.into(),
        dscp,
        ecn,
        segments,
        ack_flags: narrow[0] % 2 * 0x110,
        ack: narrow[0] % 2 * narrow[1],
        sack: [wide[1] & 0xff, 0, wide[1], 0],
        ..Meta::default()
    });
    let meta = prop_oneof![Just(Meta::default()), meta];
    (kind, any::<u64>(), any::<[u32; 3]>(), meta).prop_map(
        |(kind, value, [handle, count, node], meta)| Op {
            now: 0,
            value,
            kind,
            handle,
            count,
            node,
            meta,
        },
    )
}

fn an_outcome() -> impl Strategy<Value = Outcome> {
    let kind = prop_oneof![
        Just(OutcomeKind::Queued),
        Just(OutcomeKind::Sent),
        Just(OutcomeKind::Dropped),
        Just(OutcomeKind::Nothing),
        Just(OutcomeKind::Done),
        Just(OutcomeKind::Failed),
    ];
    let word = prop_oneof![Just(NEVER), Just(0), any::<u64>()];
    (
        kind,
        [word.clone(), word],
        any::<[u32; 2]>(),
        any::<[u8; 2]>(),
        any::<u32>(),
    )
        .prop_map(
            |(kind, [rank, at], [handle, node], [reason, flags], bit)| Outcome {
                rank,
                at,
                handle,
                node,
                kind,
                reason,
                flags,
                bit: if flags & Outcome::CORRUPT != 0 {
                    bit
                } else {
                    0
                },
                ..Outcome::default()
            },
        )
}

/// Operations in order of time, each with its outcomes.
fn steps() -> impl Strategy<Value = Vec<(Op, Vec<Outcome>)>> {
    let step = (
        an_op(),
        prop::collection::vec(an_outcome(), 0..3),
        0u64..1 << 40,
    );
    prop::collection::vec(step, 0..50).prop_map(|steps| {
        let mut now = 0;
        let in_time = |(op, outcomes, later): (Op, Vec<Outcome>, u64)| {
            now += later;
            (Op { now, ..op }, outcomes)
        };
        steps.into_iter().map(in_time).collect()
    })
}

fn flat(steps: &[(Op, Vec<Outcome>)]) -> (Vec<Op>, Vec<Outcome>) {
    let ops = steps.iter().map(|(op, _)| *op).collect();
    let numbered = (0u32..).zip(steps);
    let outcomes = numbered.flat_map(|(index, (_, outcomes))| {
        outcomes.iter().map(move |outcome| Outcome {
            op: index,
            ..*outcome
        })
    });
    (ops, outcomes.collect())
}

fn written(outcomes: bool, steps: &[(Op, Vec<Outcome>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.begin(&run(outcomes)).unwrap();
    let (ops, outcomes) = flat(steps);
    writer.record(&ops, &outcomes).unwrap();
    writer.finish().unwrap()
}

fn read_back(bytes: &[u8]) -> Result<(Vec<Run>, Batch), LogError> {
    let mut reader = Reader::new(bytes)?;
    let (mut runs, mut all) = (Vec::new(), Batch::default());
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Run(run) => runs.push(*run),
            Part::Ops(batch) => {
                let base = u32::try_from(all.ops.len()).unwrap();
                all.ops.extend(batch.ops);
                let moved = |outcome: Outcome| Outcome {
                    op: outcome.op + base,
                    ..outcome
                };
                all.outcomes.extend(batch.outcomes.into_iter().map(moved));
            }
        }
    }
    Ok((runs, all))
}

/// A log with all kinds of values, small enough to change each of its bytes.
fn some_steps() -> Vec<(Op, Vec<Outcome>)> {
    let meta = Meta {
        bytes: 1514,
        arrival: 7,
        dscp: 46,
        ..Meta::default()
    }
    .with_flow_hash();
    let queued = Outcome {
        kind: OutcomeKind::Queued,
        handle: 1,
        node: 1,
        ..Outcome::default()
    };
    let sent = Outcome {
        kind: OutcomeKind::Sent,
        at: 5,
        ..queued
    };
    vec![
        (Op::enqueue(7, 1, meta), vec![queued]),
        (Op::weight(8, 1, meta.flow_hash, 64), vec![]),
        (Op::param(8, 1, 2, 1 << 50), vec![]),
        (Op::dequeue(12, 1), vec![sent]),
    ]
}

proptest! {
    #![proptest_config(fairpath_units::property!(256))]

    #[test]
    fn recorded_operations_are_read_back(steps in steps(), outcomes in any::<bool>()) {
        let bytes = written(outcomes, &steps);
        let (runs, all) = read_back(&bytes).unwrap();
        let (ops, expected) = flat(&steps);
        prop_assert_eq!(runs, vec![run(outcomes)]);
        prop_assert_eq!(all.ops, ops);
        prop_assert_eq!(all.outcomes, if outcomes { expected } else { vec![] });
    }

    #[test]
    fn any_bytes_return_an_error_or_a_log(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut log = MAGIC.to_vec();
        log.extend(VERSION.to_le_bytes());
        log.extend(&bytes);
        prop_assert!(check(&bytes[..]).is_err());
        prop_assert!(check(&log[..]).is_err());
    }

    /// With a valid checksum, so that only the decoder detects errors.
    #[test]
    fn any_payload_returns_an_error_or_operations(
        kind in prop_oneof![Just(RUN), Just(OPS), Just(END)],
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut log = written(true, &[]);
        log.truncate(log.len() - 14);
        let length = u32::try_from(payload.len()).unwrap();
        for word in [kind, length, super::write::checksum(kind, length, &payload)] {
            log.extend(word.to_le_bytes());
        }
        log.extend(&payload);
        prop_assert!(check(&log[..]).is_err());
    }
}

#[test]
fn every_inverted_bit_is_detected() {
    let bytes = written(true, &some_steps());
    assert_eq!(check(&bytes[..]).unwrap(), Summary { runs: 1, ops: 4 });
    for index in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[index / 8] ^= 1 << (index % 8);
        assert!(
            check(&flipped[..]).is_err(),
            "bit {index} of {}",
            bytes.len() * 8
        );
    }
}

#[test]
fn truncated_log_is_detected_with_its_offset() {
    let bytes = written(true, &some_steps());
    for length in 0..bytes.len() {
        let error = check(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, LogError::Corrupt { offset, .. } if offset <= length as u64),
            "{error}"
        );
    }
    let error = check(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
    assert!(error.contains("incomplete"), "{error}");
}

#[test]
fn data_after_the_end_is_detected() {
    let mut bytes = written(true, &some_steps());
    bytes.push(0);
    let error = check(&bytes[..]).unwrap_err().to_string();
    assert!(error.contains("data follows"), "{error}");
}

#[test]
fn writer_refuses_decreasing_times() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    assert!(writer.record(&[Op::dequeue(0, 1)], &[]).is_err(), "no run");
    writer.begin(&run(false)).unwrap();
    let error = writer
        .record(&[Op::dequeue(5, 1), Op::dequeue(4, 1)], &[])
        .unwrap_err();
    assert!(error.to_string().contains("operation 1"), "{error}");
}

#[test]
fn plans_with_invalid_references_are_refused() {
    let broken: [fn(&mut Plan); 5] = [
        |plan| plan.nodes[0].parent = 1,
        |plan| plan.nodes[1].parent = 2,
        |plan| plan.nodes[2].split = 2,
        |plan| plan.class_table[1] = 4,
        |plan| plan.nodes.clear(),
    ];
    for (index, breaks) in broken.into_iter().enumerate() {
        let mut run = run(false);
        breaks(&mut run.plan);
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.begin(&run).unwrap();
        let bytes = writer.finish().unwrap();
        assert!(
            matches!(check(&bytes[..]), Err(LogError::Corrupt { offset: 12, .. })),
            "{index}"
        );
    }
}

/// A runtime that returns the given outcomes in order.
struct Parrot(Vec<Outcome>, usize);

impl SchedRuntime for Parrot {
    fn name(&self) -> &'static str {
        "native"
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        for op in 0..u32::try_from(ops.len()).unwrap() {
            outcomes.push(Outcome {
                op,
                ..self.0[self.1]
            });
            self.1 += 1;
        }
        Ok(())
    }

    fn stats(&self) -> SchedStats {
        SchedStats::default()
    }

    fn node_stats(&self, _: u32) -> NodeStats {
        NodeStats::default()
    }

    fn impair_stats(&self, _: u32) -> ImpairStats {
        ImpairStats::default()
    }

    fn audit(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Replays 20,000 dequeues in several blocks. The runtime returns another outcome at number `wrong`.
fn replayed(wrong: Option<usize>) -> Replayed {
    let sent = |handle| Outcome {
        kind: OutcomeKind::Sent,
        handle,
        ..Outcome::default()
    };
    let outcomes: Vec<Outcome> = (0..20_000).map(sent).collect();
    let steps: Vec<_> = outcomes
        .iter()
        .map(|o| (Op::dequeue(o.handle.into(), 1), vec![*o]))
        .collect();
    let bytes = written(true, &steps);
    let mut answers = outcomes;
    if let Some(wrong) = wrong {
        answers[wrong].rank += 1;
    }
    let mut make = |_: &Run| {
        Ok(vec![
            Box::new(Parrot(answers.clone(), 0)) as Box<dyn SchedRuntime>
        ])
    };
    replay(&bytes[..], &mut make).unwrap()
}

#[test]
fn replay_compares_all_outcomes() {
    let replayed = replayed(None);
    assert_eq!(replayed.difference, None);
    assert_eq!((replayed.compared, replayed.summary.ops), (20_000, 20_000));
}

#[test]
fn first_difference_includes_previous_operations() {
    for wrong in [0, 3, BLOCK_OPS - 1, BLOCK_OPS, BLOCK_OPS + 2, 19_999] {
        let difference = replayed(Some(wrong)).difference.unwrap();
        assert_eq!(difference.index, wrong as u64);
        assert_eq!(difference.op.now, wrong as u64);
        let ranks: Vec<u64> = difference
            .sides
            .iter()
            .map(|side| side.outcomes[0].rank)
            .collect();
        assert_eq!(ranks, [0, 1]);
        let first = wrong.saturating_sub(BEFORE) as u64;
        let before: Vec<u64> = difference.before.iter().map(|(index, ..)| *index).collect();
        assert_eq!(before, (first..wrong as u64).collect::<Vec<_>>());
    }
}

/// Each node has another policy of the log. With a search of all policies for each node this would
/// take minutes.
#[test]
fn many_policies_are_resolved_in_linear_time() {
    let mut known = fairpath_core::sched::policies().iter();
    let fifo = known.find(|policy| policy.name == "fifo").unwrap();
    let mut run = run(false);
    let many = 131_072;
    run.policies = (0..many)
        .map(|id| PolicyName {
            id,
            ..PolicyName::from(fifo)
        })
        .collect();
    run.plan.nodes = (0..many)
        .map(|node| NodeConfig {
            parent: u32::from(node > 0),
            policy: many - 1 - node,
            ..NodeConfig::default()
        })
        .collect();
    let plan = run.resolve(fairpath_core::sched::policies()).unwrap();
    assert!(plan.nodes.iter().all(|node| node.policy == fifo.id));
}
