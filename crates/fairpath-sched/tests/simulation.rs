//! The simulation over the native home: what adds up, what is shared, what is the same again.

use fairpath_core::sched::{Scheduler, policies};
use fairpath_sched::simulate::{Findings, Settings, SimulateError, simulate};
use fairpath_sched::traffic::{Generator, Spec};
use fairpath_sched::tree::{Known, Tree};

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
    let mut home = Scheduler::new(&tree.plan).unwrap();
    let spec = Spec::read(traffic).unwrap();
    let mut generator = Generator::new(&spec, seed, |name| tree.names.class_number(name)).unwrap();
    simulate(
        &mut home,
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
fn stfq_gives_weights_within_1_percent_over_one_second() {
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

#[test]
fn a_link_that_is_asked_for_more_sends_its_rate_and_never_rests() {
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
        link.busy_ns + link.idle_empty_ns + link.idle_held_ns + link.idle_wrong_ns,
        findings.duration_ns
    );
    assert_eq!((link.idle_held_ns, link.idle_wrong_ns), (0, 0));
}
