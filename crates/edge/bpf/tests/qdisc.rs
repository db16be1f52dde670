//! Properties of BPF qdiscs on any kernel: what is refused before the kernel is asked, and what it says
//! where it has none. The rest is the guest's: tests/vm/scenarios/qdisc*.sh.

use fairpath_bpf::probe::bpf_qdisc;
use fairpath_bpf::{BpfQdisc, Pins, QdiscContent, QdiscError, QdiscOptions, without_marks};
use fairpath_core::Rules;
use fairpath_core::sched::{End, ImpairConfig, NodeConfig, Over, Plan, SchedConfig, policies};
use nix::unistd::Uid;

fn plan(policy: &str) -> Plan {
    let named = policies().iter().find(|known| known.name == policy);
    let policy = named.unwrap();
    let node = NodeConfig {
        policy: policy.id,
        over: policy.over[0],
        queue: policy.queue[0].max(1),
        queue_buckets: policy.queue[1],
        params: policy.standards(),
        ..NodeConfig::default()
    };
    let config = SchedConfig {
        packets: 100,
        limit_packets: 100,
        flows: 8,
        ..SchedConfig::default()
    };
    Plan {
        config,
        nodes: vec![node],
        class_table: vec![1],
        ..Plan::default()
    }
}

fn register(plan: &Plan, name: &str) -> QdiscError {
    let rules = Rules::default();
    let content = QdiscContent {
        plan,
        customs: &[],
        rules: &rules,
        end: End::Receiver,
        note: &[],
    };
    BpfQdisc::register(&content, name, QdiscOptions::default()).unwrap_err()
}

#[test]
fn invalid_qdisc_names_are_refused() {
    for name in ["", "sixteen-bytes-ab", "a b", "root/x"] {
        let error = register(&plan("fifo"), name);
        assert!(matches!(error, QdiscError::Name(_)), "{name:?}: {error}");
    }
}

#[test]
fn invalid_plans_are_refused_before_loading() {
    let mut no_tree = plan("fifo");
    no_tree.nodes.clear();
    let error = register(&no_tree, "fairpath-test");
    assert!(matches!(error, QdiscError::Plan(_)), "{error}");
    let mut large = plan("fifo");
    large.config.packets = 1 << 24;
    large.config.flows = 1 << 24;
    let error = register(&large, "fairpath-test");
    assert!(matches!(error, QdiscError::TooLarge { .. }), "{error}");
}

#[test]
fn qdisc_refuses_duplication_and_corruption() {
    let copies = ImpairConfig {
        copy: 1,
        ..ImpairConfig::default()
    };
    let corrupts = ImpairConfig {
        corrupt: 1,
        ..ImpairConfig::default()
    };
    for impairment in [copies, corrupts] {
        let mut impaired = plan("fifo");
        impaired.impairments = vec![ImpairConfig::default(), impairment];
        let error = register(&impaired, "fairpath-test").to_string();
        assert!(
            error.contains("impairment 2 duplicates or corrupts"),
            "{error}"
        );
    }
}

#[test]
fn missing_qdisc_support_is_named() {
    let name = "missing_qdisc_support_is_named";
    if bpf_qdisc().is_ok() {
        fairpath_units::skip_test(name, "a kernel without BPF qdiscs", "this one has them");
        return;
    }
    let error = register(&plan("fifo"), "fairpath-test");
    let text = error.to_string();
    assert!(matches!(error, QdiscError::Refused(_)), "{text}");
    for word in ["6.16", "CONFIG_NET_SCH_BPF", "CAP_BPF", "fairpath features"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn qdisc_policies_never_mark() {
    let marked = plan("fq_codel");
    let (index, _) = policies()[2].param("ecn").unwrap();
    assert_eq!(policies()[2].name, "fq_codel");
    let mut result = marked.clone();
    result.nodes[0].params[index] = 1;
    assert_eq!(without_marks(&result, &[]).nodes[0].params[index], 0);
    assert_eq!(without_marks(&plan("fifo"), &[]), plan("fifo"));
    assert_eq!(marked.nodes[0].over, Over::Flows);
}

#[test]
fn unknown_qdisc_names_are_not_found() {
    let name = "unknown_qdisc_names_are_not_found";
    if !Uid::effective().is_root() {
        fairpath_units::skip_test(name, "root", "needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pins = Pins::at(dir.path().join("pins")).unwrap();
    assert!(BpfQdisc::find(&pins, "fairpath-none").unwrap().is_none());
    assert!(!pins.remove_qdisc("fairpath-none").unwrap());
    assert_eq!(pins.qdiscs().unwrap(), [] as [String; 0]);
    pins.unmount().unwrap();
}
