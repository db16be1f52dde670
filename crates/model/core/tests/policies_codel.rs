//! `codel` and `fq_codel`, packet by packet, compared with the text of RFC 8289 and RFC 8290.

#[path = "policies/link.rs"]
mod link;
mod policies;
#[path = "policies/rfc8289.rs"]
mod rfc8289;
#[path = "policies/rfc8290.rs"]
mod rfc8290;

use fairpath_core::sched::{
    Drop, Meta, NodeConfig, Op, Outcome, OutcomeKind, Over, Overflow, Plan, SchedRuntime, Scheduler,
};
use link::{Audited, Link, MS, SECOND, bytes_by_source, within_a_percent};
use policies::{Watched, node, packet, plan, policy, with_param};
use proptest::prelude::*;
use rfc8289::{Codel, PacketOutcome, Settings, Waiting};
use rfc8290::FqCodel;

const STANDARD: Settings = Settings {
    target: 5 * MS,
    interval: 100 * MS,
    ecn: true,
    ce_threshold: 0,
    mtu: 1514,
};

/// The next step: a packet arrives after this time, or this number may leave.
#[derive(Clone, Copy, Debug)]
enum Step {
    Comes {
        after: u64,
        flow: u8,
        bytes: u32,
        ecn: u8,
    },
    Leave {
        after: u64,
        count: u32,
    },
}

fn flow_hash(flow: u8) -> u32 {
    u32::from(flow).wrapping_mul(0x9e37_79b1)
}

/// Bursts and silences, so that queues stand, empty and stand again.
fn steps(flows: u8, most_bytes: u32) -> impl Strategy<Value = Vec<Step>> {
    let after = || prop_oneof![8 => 0..200_000_u64, 3 => 0..8_000_000_u64, 1 => 0..400_000_000_u64];
    let comes =
        (after(), 0..flows, 60..=most_bytes, 0..4_u8).prop_map(|(after, flow, bytes, ecn)| {
            Step::Comes {
                after,
                flow,
                bytes,
                ecn: ecn / 3 * 2,
            }
        });
    let leave = (after(), 0..3_u32).prop_map(|(after, count)| Step::Leave { after, count });
    proptest::collection::vec(prop_oneof![5 => comes, 4 => leave], 1..1500)
}

fn meta_of(flow: u8, bytes: u32, ecn: u8) -> Meta {
    Meta {
        ecn,
        ..packet(flow_hash(flow), bytes)
    }
}

fn outcomes_of(outcomes: &[Outcome]) -> Vec<PacketOutcome> {
    let outcome = |outcome: &Outcome| {
        let (handle, marked) = (outcome.handle, outcome.marked());
        match outcome.kind {
            OutcomeKind::Sent => Some(PacketOutcome::Sent { handle, marked }),
            OutcomeKind::Dropped => {
                assert_eq!(outcome.drop(), Some(Drop::Policy));
                Some(PacketOutcome::Dropped { handle })
            }
            _ => None,
        }
    };
    outcomes.iter().filter_map(outcome).collect()
}

/// A node with CoDel's parameters as the settings have them.
fn codel_node(name: &str, over: Over, settings: &Settings) -> NodeConfig {
    let node = with_param(node(0, name, over), name, "target", settings.target);
    let node = with_param(node, name, "interval", settings.interval);
    let node = with_param(node, name, "ecn", u64::from(settings.ecn));
    let node = with_param(node, name, "ce_threshold", settings.ce_threshold);
    with_param(node, name, "mtu", settings.mtu)
}

fn capacity(nodes: Vec<NodeConfig>) -> Plan {
    let mut plan = plan(nodes, vec![1]);
    plan.config.packets = 2000;
    plan.config.limit_packets = 2000;
    plan.config.hosts = 64;
    plan
}

/// The model for comparison with the runtime.
trait Model {
    fn comes(&mut self, flow: u8, packet: Waiting);
    fn leaves(&mut self, now: u64, results: &mut Vec<PacketOutcome>);
}

impl Model for (Settings, Codel) {
    fn comes(&mut self, _flow: u8, packet: Waiting) {
        self.1.enqueue(packet);
    }

    fn leaves(&mut self, now: u64, results: &mut Vec<PacketOutcome>) {
        if let Some((packet, marked)) = self.1.dequeue(&self.0, now, results) {
            let handle = packet.handle;
            results.push(PacketOutcome::Sent { handle, marked });
        }
    }
}

impl Model for FqCodel {
    fn comes(&mut self, flow: u8, packet: Waiting) {
        self.enqueue(flow.into(), packet);
    }

    fn leaves(&mut self, now: u64, results: &mut Vec<PacketOutcome>) {
        self.dequeue(now, results);
    }
}

/// Runs the steps in the runtime and in the model; every packet's outcome is the same.
fn compare<H: SchedRuntime>(runtime: H, model: &mut dyn Model, steps: &[Step]) {
    let mut audited = Audited::new(runtime);
    let mut now = 1;
    for (step, handle) in steps.iter().zip(1..) {
        match *step {
            Step::Comes {
                after,
                flow,
                bytes,
                ecn,
            } => {
                now += after;
                let arrived = now;
                model.comes(
                    flow,
                    Waiting {
                        handle,
                        bytes,
                        ecn,
                        arrived,
                    },
                );
                audited.run(Op::enqueue(now, handle, meta_of(flow, bytes, ecn)));
            }
            Step::Leave { after, count } => {
                now += after;
                let mut expected = vec![];
                (0..count).for_each(|_| model.leaves(now, &mut expected));
                let outcomes = audited.run(Op::dequeue(now, count));
                assert_eq!(outcomes_of(&outcomes), expected, "at {now}");
            }
        }
    }
    audited.runtime.audit().unwrap();
    let stats = audited.runtime.stats();
    assert_eq!((stats.shared, stats.state_lost), (0, 0), "flows meet");
}

fn settings() -> impl Strategy<Value = Settings> {
    let threshold = prop_oneof![Just(0), Just(MS)];
    (any::<bool>(), threshold, 64..3000_u64).prop_map(|(ecn, ce_threshold, mtu)| Settings {
        ecn,
        ce_threshold,
        mtu,
        ..STANDARD
    })
}

proptest! {
    #![proptest_config(fairpath_units::property!(100))]

    #[test]
    fn codel_decides_each_packet_as_rfc_8289(steps in steps(1, 1514), settings in settings()) {
        let plan = capacity(vec![codel_node("codel", Over::Packets, &settings)]);
        let mut model = (settings, Codel::default());
        compare(Scheduler::new(&plan).unwrap(), &mut model, &steps);
    }

    #[test]
    fn fq_codel_decides_each_packet_as_rfc_8290(
        steps in steps(12, 1514),
        settings in settings(),
        quantum in prop_oneof![Just(1514), Just(5000)],
    ) {
        let node = codel_node("fq_codel", Over::Flows, &settings);
        let node = with_param(node, "fq_codel", "quantum", quantum);
        let node = with_param(node, "fq_codel", "hosts", 0);
        let mut model = FqCodel::new(settings, quantum as i64);
        compare(Scheduler::new(&capacity(vec![node])).unwrap(), &mut model, &steps);
    }
}

fn link_over(nodes: Vec<NodeConfig>, rate_bps: u64, templates: Vec<Meta>) -> Link<Scheduler> {
    let plan = capacity(nodes);
    Link::new(
        Scheduler::new(&plan).unwrap(),
        plan.config.packets,
        rate_bps,
        templates,
    )
}

/// A link of 10 Mbit/s that is kept full by one source: when packets are dropped.
fn drops_of(nodes: Vec<NodeConfig>) -> Vec<u64> {
    let mut link = link_over(nodes, 10_000_000, vec![packet(7, 1500)]);
    let mut drops = vec![];
    while link.now < 3 * SECOND {
        let before = link.dropped.len();
        link.saturate(link.now + 1, 100, |_, _| true);
        (before..link.dropped.len()).for_each(|_| drops.push(link.now));
    }
    drops
}

#[test]
fn a_queue_that_was_emptied_starts_afresh() {
    for (name, over) in [("codel", Over::Packets), ("fq_codel", Over::Flows)] {
        let mut watched = Watched::natively(&capacity(vec![node(0, name, over)]));
        (1..=4).for_each(|handle| assert!(watched.enqueue(handle, packet(7, 1500))));
        // Above target from here on: a drop would be due at 110 ms. But the rest is taken out.
        assert_eq!(watched.at(10 * MS).dequeue(), Some(1));
        (2..=4).for_each(|handle| {
            watched.run(&[Op::remove(15 * MS, handle)]);
        });
        assert_eq!(watched.at(20 * MS).dequeue(), None);
        watched.at(200 * MS);
        (5..=8).for_each(|handle| assert!(watched.enqueue(handle, packet(7, 1500))));
        assert_eq!(watched.at(210 * MS).dequeue(), Some(5), "{name}");
    }
}

#[test]
fn codel_drops_by_square_root_after_an_interval() {
    let drops = drops_of(vec![node(0, "codel", Over::Packets)]);
    // The queue of 100 packets lasts 120 ms; an interval after the first packet that waited 5 ms.
    assert!((105 * MS..112 * MS).contains(&drops[0]), "{drops:?}");
    let steps: Vec<u64> = drops.windows(2).map(|two| two[1] - two[0]).collect();
    for (step, count) in steps.iter().zip(1_u64..) {
        let law = (100.0 * MS as f64 / (count as f64).sqrt()) as u64;
        // A drop happens as the next packet leaves: a packet takes 1.2 ms.
        assert!(
            step.abs_diff(law) <= 2_400_000,
            "step {count}: {step} instead of {law}"
        );
    }
    assert!(steps.len() > 100, "{}", steps.len());
}

#[test]
fn fq_codel_waits_five_milliseconds_and_not_ten() {
    let target = policy("fq_codel").param("target").unwrap().1.standard;
    assert_eq!(target, 5 * MS);
    assert!(!drops_of(vec![node(0, "fq_codel", Over::Flows)]).is_empty());
}

#[test]
fn a_codel_drop_costs_no_turn() {
    for (name, over) in [("codel", Over::Packets), ("fq_codel", Over::Flows)] {
        let mut link = link_over(vec![node(0, name, over)], 10_000_000, vec![packet(7, 1500)]);
        let sent = link.saturate(3 * SECOND, 100, |_, _| true);
        assert!(link.dropped.len() > 50, "{name}");
        let busy = link.busy(1500);
        assert!(
            sent.windows(2).all(|two| two[1].at - two[0].at == busy),
            "{name}"
        );
    }
}

#[test]
fn ecn_capable_packets_are_marked() {
    for (name, over) in [("codel", Over::Packets), ("fq_codel", Over::Flows)] {
        let template = Meta {
            ecn: 2,
            ..packet(7, 1500)
        };
        let mut link = link_over(vec![node(0, name, over)], 10_000_000, vec![template]);
        let sent = link.saturate(2 * SECOND, 100, |_, _| true);
        let marked = sent.iter().filter(|one| one.marked).count();
        assert!(marked > 50, "{name}: {marked}");
        assert!(link.dropped.is_empty(), "{name}");
    }
}

#[test]
fn sparse_flow_goes_before_those_that_fill_link() {
    let templates = vec![packet(1, 1500), packet(2, 1500), packet(3, 100)];
    let mut link = link_over(
        vec![node(0, "fq_codel", Over::Flows)],
        10_000_000,
        templates,
    );
    // A packet of the sparse flow every 20 ms.
    let mut waits: Vec<u64> = vec![];
    for turn in 1..100 {
        link.offer(2);
        let sent = link.saturate(turn * 20 * MS, 50, |source, _| source < 2);
        waits.extend(
            sent.iter()
                .filter(|one| one.source == 2)
                .map(|one| one.sojourn),
        );
    }
    assert_eq!(waits.len(), 99);
    assert_eq!(
        waits.iter().max(),
        Some(&0),
        "it leaves as soon as the link is free"
    );
}

#[test]
fn emptied_new_flows_wait_behind_old_ones() {
    let mut watched = Watched::natively(&capacity(vec![with_param(
        node(0, "fq_codel", Over::Flows),
        "fq_codel",
        "hosts",
        0,
    )]));
    let big = |flow| packet(flow, 1500);
    // Flows 1 and 2 become old ones.
    (1..=3).for_each(|handle| assert!(watched.enqueue(handle, big(1))));
    (4..=6).for_each(|handle| assert!(watched.enqueue(handle, big(2))));
    assert_eq!(watched.dequeue_many(4), [1, 2, 4, 5]);
    // Flow 3 is new, and sends whenever it may: it is found empty once, and waits its turn then.
    assert!(watched.enqueue(7, packet(3, 100)));
    assert_eq!(watched.dequeue_many(2), [7, 3]);
    assert!(watched.enqueue(8, packet(3, 100)));
    assert_eq!(watched.dequeue_many(3), [6, 8]);
}

#[test]
fn hosts_share_equally_for_any_flow_count() {
    let from = |flow: u32, host: u8, to: u8| {
        let mut meta = packet(flow.wrapping_mul(0x9e37_79b1), 1500);
        (meta.source[15], meta.destination[15]) = (host, to);
        meta
    };
    for towards in [false, true] {
        let end = |host: u8, other: u32| {
            if towards {
                (100 + other as u8, host)
            } else {
                (host, 100 + other as u8)
            }
        };
        let mut templates: Vec<Meta> = (0..100)
            .map(|flow| {
                let (source, destination) = end(1, flow);
                from(flow, source, destination)
            })
            .collect();
        let (source, destination) = end(2, 110);
        templates.push(from(500, source, destination));
        let nodes = vec![with_param(
            node(0, "fq_codel", Over::Flows),
            "fq_codel",
            "ecn",
            0,
        )];
        let mut plan = capacity(nodes);
        plan.config.flows = 4096;
        plan.config.hosts = 1024;
        let mut link = Link::new(
            Scheduler::new(&plan).unwrap(),
            plan.config.packets,
            1_000_000_000,
            templates,
        );
        let sent = link.saturate(5 * SECOND, 3, |_, _| true);
        let bytes = bytes_by_source(&sent[sent.len() / 5..], 101);
        let crowd: u64 = bytes[..100].iter().sum();
        within_a_percent(crowd, bytes[100], "the host with 100 flows");
        let most = bytes[..100].iter().max().unwrap();
        within_a_percent(*most, crowd / 100, "flows of one host");
        // A regression: each flow once passed through the list a hundred times per packet,
        // and dequeues failed.
        let stats = link.runtime.runtime.stats();
        assert_eq!(stats.tries_spent, 0);
        assert!(
            stats.put_off <= 2 * stats.sent,
            "{} put off for {} sent",
            stats.put_off,
            stats.sent
        );
    }
}

#[test]
fn gso_packets_are_charged_by_their_bytes() {
    let templates = vec![
        Meta {
            segments: 40,
            ..packet(1, 60_000)
        },
        packet(2, 1500),
    ];
    let mut link = link_over(
        vec![node(0, "fq_codel", Over::Flows)],
        1_000_000_000,
        templates,
    );
    let sent = link.saturate(4 * SECOND, 4, |_, _| true);
    let bytes = bytes_by_source(&sent, 2);
    within_a_percent(bytes[0], bytes[1], "the flow of GSO packets");
}

#[test]
fn a_full_scheduler_drops_from_the_fattest_flow() {
    let mut plan = capacity(vec![node(0, "fq_codel", Over::Flows)]);
    plan.config.limit_packets = 100;
    plan.config.overflow = Overflow::Fattest;
    let mut watched = Watched::natively(&plan);
    (1..=90).for_each(|handle| assert!(watched.enqueue(handle, packet(1, 1500))));
    (91..=100).for_each(|handle| assert!(watched.enqueue(handle, packet(handle, 1500))));
    let outcomes = watched.run(&[Op::enqueue(0, 101, packet(2, 100))]);
    let dropped: Vec<u32> = outcomes
        .iter()
        .filter(|o| o.drop().is_some())
        .map(|o| o.handle)
        .collect();
    assert_eq!(
        dropped,
        (1..=45).collect::<Vec<_>>(),
        "half of its bytes, from its head"
    );
    assert!(
        outcomes
            .iter()
            .any(|o| o.kind == OutcomeKind::Queued && o.handle == 101)
    );
    assert!(
        outcomes
            .iter()
            .filter_map(Outcome::drop)
            .all(|why| why == Drop::Fattest)
    );
}
