//! Simulations with the native runtime: accounting, shares and repeatability.

use fairpath_core::sched::{
    ImpairStats, NEVER, NodeStats, Op, Outcome, OutcomeKind, Over, SchedRuntime, SchedRuntimeError,
    SchedStats, Scheduler, policies,
};
use fairpath_sched::tree::{Known, Tree};
use fairpath_sim::simulate::{Findings, Settings, SimulateError, simulate};
use fairpath_sim::traffic::{Generator, Spec};

fn known() -> Known<'static> {
    Known {
        policies: policies(),
        classes: &[],
    }
}

fn policy(name: &str) -> Tree {
    let policy = policies()
        .iter()
        .find(|policy| policy.name == name)
        .unwrap();
    Tree::of_policy(policy, known()).unwrap()
}

fn settings(rate_bps: u64, seconds: f64) -> Settings {
    let duration_ns = Some((seconds * 1e9) as u64);
    Settings {
        rate_bps,
        overhead_bytes: 0,
        duration_ns,
    }
}

fn run(
    tree: &Tree,
    traffic: &str,
    settings: Settings,
    seed: u64,
) -> Result<Findings, SimulateError> {
    let mut runtime = Scheduler::new(&tree.plan).unwrap();
    let spec = Spec::read(traffic).unwrap();
    let mut generator = Generator::new(&spec, seed, |name| tree.names.class_number(name)).unwrap();
    simulate(
        &mut runtime,
        tree,
        &mut generator,
        &settings,
        None,
        &mut |_| true,
    )
}

fn rate(findings: &Findings, name: &str) -> f64 {
    let (_, measured) = findings
        .rows
        .iter()
        .find(|(row, _)| row.name == name)
        .unwrap();
    findings.rate_bps(measured.sent.bytes)
}

#[test]
fn stfq_shares_follow_weights_within_1_percent() {
    let tree = policy("stfq");
    let traffic = "bulk name=a cc=none rtt=1ms; bulk name=b cc=none rtt=1ms weight=3; bulk name=c cc=none rtt=1ms size=300B weight=6";
    let findings = run(&tree, traffic, settings(100_000_000, 1.0), 1).unwrap();
    for (name, share) in [("a", 0.1), ("b", 0.3), ("c", 0.6)] {
        let got = rate(&findings, name) / 100e6;
        assert!(
            (got / share - 1.0).abs() < 0.01,
            "{name}: {got} instead of {share}"
        );
    }
    assert!(findings.jain() > 0.9999, "{}", findings.jain());
    assert_eq!(findings.weights_refused, 0);
}

/// The shares are those of the weights, or the weight is refused by name.
#[test]
fn flow_weights_above_a_thousand_are_exact() {
    for weight in [1_000, 2_000, 10_000] {
        let traffic = format!(
            "bulk name=a cc=none rtt=1ms start=100ms; bulk name=b cc=none rtt=1ms weight={weight}"
        );
        let link = settings(1_000_000_000, 3.0);
        let findings = run(&policy("stfq"), &traffic, link, 1).unwrap();
        let [light, heavy] = ["a", "b"].map(|name| rate(&findings, name));
        // The heavy flow fills its window before the light one starts.
        let packets = light * 3.0 / 8.0 / 1514.0;
        let expected = heavy * 2.9 / 8.0 / 1514.0 / f64::from(weight);
        assert!(
            (packets - expected).abs() <= 1.01,
            "1:{weight}: {packets} packets, not {expected}"
        );
        let refused = run(&policy("drr"), &traffic, settings(100_000_000, 0.1), 1);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!(
                "flow \"b\": weight: {weight} would be rounded to "
            )),
            "{refused}"
        );
    }
}

/// `rate` of pacing is that of a flow of weight 1, whatever the weights of the others are.
#[test]
fn the_rate_of_pacing_is_of_weight_1() {
    let mut tree = policy("pacing");
    tree.set("rate=1mbit").unwrap();
    let traffic = "bulk name=a cc=none rtt=1ms; bulk name=b cc=none rtt=1ms weight=4; bulk name=c cc=none rtt=1ms weight=1024";
    let findings = run(&tree, traffic, settings(10_000_000_000, 1.0), 1).unwrap();
    for (name, weight) in [("a", 1.0), ("b", 4.0), ("c", 1024.0)] {
        let share = rate(&findings, name) / 1e6 / weight;
        assert!((share - 1.0).abs() < 0.02, "{name}: {share}");
    }
}

/// Transfers are new flows without a weight, and flows next to them have theirs.
#[test]
fn flows_without_a_weight_have_weight_1() {
    let traffic = "transfers load=60mbit name=a; bulk name=b cc=none rtt=1ms weight=64";
    let findings = run(&policy("stfq"), traffic, settings(65_000_000, 1.0), 1).unwrap();
    let heavy = rate(&findings, "b") / 1e6;
    assert!(heavy > 40.0, "{heavy} Mbit/s");
    let refused = Spec::read("transfers load=1mbit weight=2").unwrap_err();
    assert!(refused.to_string().contains("weight"), "{refused}");
}

#[test]
fn overloaded_link_sends_at_its_rate() {
    let findings = run(
        &policy("fifo"),
        "bulk flows=4 cc=none rtt=10us",
        settings(1_000_000_000, 1.0),
        2,
    )
    .unwrap();
    let sent = findings.rate_bps(findings.total.sent.bytes);
    assert!((sent / 1e9 - 1.0).abs() < 1e-3, "{sent}");
    assert!(findings.utilisation() > 0.9999, "{:?}", findings.link);
    let link = findings.link;
    assert_eq!(
        link.busy_ns + link.idle_empty_ns + link.idle_throttled_ns + link.idle_wrong_ns,
        findings.duration_ns
    );
    assert_eq!((link.idle_throttled_ns, link.idle_wrong_ns), (0, 0));
}

#[test]
fn only_the_same_seed_repeats_results() {
    let traffic = "poisson rate=60mbit; onoff flows=3 rate=30mbit; bulk flows=2; transfers load=20mbit; incast flows=8";
    let found = |seed| {
        let findings = run(&policy("stfq"), traffic, settings(100_000_000, 0.5), seed).unwrap();
        format!("{findings:?}")
    };
    assert_eq!(found(5), found(5));
    assert_ne!(found(5), found(6));
}

#[test]
fn every_policy_accounts_for_every_packet() {
    let traffic = "cbr rate=20mbit flows=2; poisson rate=30mbit size=imix deadline=5ms; onoff rate=40mbit flows=3 size=64-1514; \
                   bulk flows=4 ecn=yes rtt=5ms; transfers load=30mbit mean=20KB max=1MB; incast flows=20 bytes=30KB every=50ms; voice flows=3";
    let leaves = policies()
        .iter()
        .filter(|p| p.over.contains(&Over::Packets) || p.over.contains(&Over::Flows));
    for policy in leaves {
        let tree = Tree::of_policy(policy, known()).unwrap();
        let findings = run(&tree, traffic, settings(50_000_000, 0.4), 9)
            .unwrap_or_else(|error| panic!("{}: {error}", policy.name));
        let total = &findings.total;
        assert_eq!(
            total.offered.packets,
            total.sent.packets + total.dropped.packets + findings.backlog,
            "{}",
            policy.name
        );
        assert!(
            total.sent.packets > 500,
            "{}: {} packets",
            policy.name,
            total.sent.packets
        );
        let rows: u64 = findings
            .rows
            .iter()
            .map(|(_, measured)| measured.sent.bytes)
            .sum();
        let slots: u64 = total.series.sums().iter().sum();
        assert_eq!(
            (rows, slots),
            (total.sent.bytes, total.sent.bytes),
            "{}",
            policy.name
        );
    }
}

#[test]
fn only_approximate_queues_invert_ranks() {
    let exact = run(
        &policy("stfq"),
        "poisson flows=20 rate=8mbit",
        settings(100_000_000, 0.5),
        3,
    )
    .unwrap();
    assert!(exact.inversions.checked > 1000);
    assert_eq!((exact.inversions.packets, exact.inversions.pairs), (0, 0));
    let toml =
        "[[node]]\nname = \"a\"\npolicy = \"stfq\"\nqueue = { kind = \"sp-pifo\", buckets = 2 }\n";
    let rough = Tree::read("t", toml, known()).unwrap();
    let rough = run(
        &rough,
        "poisson flows=20 rate=8mbit",
        settings(100_000_000, 0.5),
        3,
    )
    .unwrap();
    assert!(rough.inversions.packets > 100, "{:?}", rough.inversions);
    assert!(rough.inversions.pairs >= rough.inversions.packets);
}

#[test]
fn recorded_operations_repeat_their_outcomes() {
    let tree = policy("stfq");
    let spec = Spec::read("bulk flows=3 rtt=2ms; poisson rate=30mbit").unwrap();
    let mut generator = Generator::new(&spec, 1, |_| Some(0)).unwrap();
    let mut runtime = Scheduler::new(&tree.plan).unwrap();
    let mut again = Scheduler::new(&tree.plan).unwrap();
    let (mut ops_seen, mut capacity) = (0, Vec::new());
    let mut tap = |ops: &[Op], outcomes: &[Outcome]| {
        capacity.clear();
        again.run(ops, &mut capacity).unwrap();
        assert_eq!(capacity, outcomes);
        ops_seen += ops.len();
    };
    simulate(
        &mut runtime,
        &tree,
        &mut generator,
        &settings(50_000_000, 0.2),
        Some(&mut tap),
        &mut |_| true,
    )
    .unwrap();
    assert!(ops_seen > 1000, "{ops_seen}");
}

/// A runtime that never returns one of its packets.
struct Forgetful(Scheduler, bool);

impl SchedRuntime for Forgetful {
    fn name(&self) -> &'static str {
        "native"
    }
    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        self.0.run(ops, outcomes)?;
        let sent = outcomes
            .iter()
            .position(|outcome| outcome.kind == OutcomeKind::Sent);
        if let (Some(at), false) = (sent, self.1) {
            outcomes[at] = Outcome {
                kind: OutcomeKind::Nothing,
                at: NEVER,
                ..outcomes[at]
            };
            self.1 = true;
        }
        Ok(())
    }
    fn stats(&self) -> SchedStats {
        self.0.stats()
    }
    fn node_stats(&self, node: u32) -> NodeStats {
        self.0.node_stats(node)
    }
    fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.0.impair_stats(impairment)
    }
    fn audit(&self) -> Result<(), String> {
        self.0.audit()
    }
}

#[test]
fn lost_packet_in_the_runtime_is_an_error() {
    let tree = policy("fifo");
    let mut runtime = Forgetful(Scheduler::new(&tree.plan).unwrap(), false);
    let spec = Spec::read("bulk").unwrap();
    let mut generator = Generator::new(&spec, 1, |_| Some(0)).unwrap();
    let result = simulate(
        &mut runtime,
        &tree,
        &mut generator,
        &settings(50_000_000, 0.2),
        None,
        &mut |_| true,
    );
    assert!(
        matches!(result, Err(SimulateError::Accounting { .. })),
        "{result:?}"
    );
}

#[test]
fn interrupted_simulation_reports_partial_results() {
    // Above the link rate, some operations are always pending.
    for rate in ["900mbit", "5gbit", "70gbit"] {
        interrupted(&format!("cbr rate={rate}"));
    }
}

fn interrupted(traffic: &str) {
    let tree = policy("fifo");
    let mut runtime = Scheduler::new(&tree.plan).unwrap();
    let spec = Spec::read(traffic).unwrap();
    let mut generator = Generator::new(&spec, 1, |_| Some(0)).unwrap();
    let mut looks = 0;
    let mut watch = |_| {
        looks += 1;
        looks < 3
    };
    let findings = simulate(
        &mut runtime,
        &tree,
        &mut generator,
        &settings(1_000_000_000, 60.0),
        None,
        &mut watch,
    )
    .unwrap();
    assert!(
        findings.interrupted && findings.duration_ns < 1_000_000_000,
        "{}",
        findings.duration_ns
    );
    let link = findings.link;
    assert!(findings.total.sent.packets > 100 && link.busy_ns > 0);
}

#[test]
fn reacting_senders_keep_queues_shorter() {
    let tree = policy("fifo");
    let wait = |traffic: &str| {
        let findings = run(&tree, traffic, settings(20_000_000, 2.0), 1).unwrap();
        findings.total.sojourn.quantile(0.5)
    };
    let limit = "[scheduler]\nlimit = \"60 packets\"\n[[node]]\nname = \"a\"\npolicy = \"fifo\"\n";
    let short = Tree::read("t", limit, known()).unwrap();
    let findings = run(&short, "bulk rtt=20ms", settings(20_000_000, 4.0), 1).unwrap();
    assert!(
        findings.total.dropped.packets > 0 && findings.utilisation() > 0.8,
        "{findings:?}"
    );
    assert!(wait("bulk cc=none window=500 rtt=20ms") > 5 * findings.total.sojourn.quantile(0.5));
}
