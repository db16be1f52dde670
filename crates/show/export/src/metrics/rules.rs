//! The metrics of loaded rules. There are none without rules.
//!
//! The history chooses the rules that have separate series, and limits their number.

use fairpath_history::loaded_rules::{LoadedRules, PolicyCount, RuleCount, TargetCount};

use super::text::{Encoder, Kind};

/// Gauges of the rules.
const GAUGES: usize = 9;

/// The number of series of loaded rules, at most. O(1).
pub fn rule_series(rules: &LoadedRules) -> usize {
    let pairs = rules.policies.len() + rules.targets.len();
    3 * rules.exported.len() + 2 * pairs + rules.counters.len() + GAUGES
}

/// Writes all metrics of the rules.
pub(super) fn encode(encoder: &mut Encoder, rules: &LoadedRules) {
    gauges(encoder, rules);
    for (name, count) in &rules.counters {
        let name = format!("fairpath_rules_{}", super::metric_name(name));
        let help = "Counter of the programs at the hooks, as in the snapshot";
        encoder.family(&name, Kind::Counter, "", help);
        encoder.sample("", &[], *count as f64);
    }
    policies(encoder, &rules.policies);
    targets(encoder, &rules.targets);
    counts(encoder, &rules.exported);
}

fn gauges(encoder: &mut Encoder, rules: &LoadedRules) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let flag = |is: bool| f64::from(u8::from(is));
    let without = rules.rules_total - rules.exported.len() as u64;
    let gauges: [(&str, &str, &str, Option<f64>); GAUGES] = [
        (
            "fairpath_rules_loaded",
            "",
            "Loaded rules of both families",
            Some(rules.rules_total as f64),
        ),
        (
            "fairpath_rules_not_exported",
            "",
            "Loaded rules without fairpath_rule_packets: those with fewer packets than the exported ones",
            Some(without as f64),
        ),
        (
            "fairpath_rules_generation",
            "",
            "Number that changes with each load and edit of rules",
            Some(rules.generation as f64),
        ),
        (
            "fairpath_rules_deciding",
            "",
            "1 if the rules decide, 0 in the shadow",
            Some(flag(rules.deciding)),
        ),
        (
            "fairpath_rules_went_back",
            "",
            "1 if the last load was not confirmed, so that the rules before it are active",
            Some(flag(rules.went_back)),
        ),
        (
            "fairpath_rules_rejected_are_answered",
            "",
            "1 if a process answers rejected packets",
            rules.rejected_are_answered.map(flag),
        ),
        (
            "fairpath_rules_confirm_seconds",
            "seconds",
            "Time until the rules before come back, while a load waits for its confirmation",
            rules.confirm_ns.map(seconds),
        ),
        (
            "fairpath_rules_loaded_timestamp_seconds",
            "seconds",
            "Unix time of the load",
            Some(seconds(rules.loaded_unix_ns)),
        ),
        (
            "fairpath_rules_read_timestamp_seconds",
            "seconds",
            "Unix time at which the counters of rules were read",
            Some(seconds(rules.unix_ns)),
        ),
    ];
    for (name, unit, help, value) in gauges {
        if let Some(value) = value {
            encoder.family(name, Kind::Gauge, unit, help);
            encoder.sample("", &[], value);
        }
    }
}

fn policies(encoder: &mut Encoder, policies: &[PolicyCount]) {
    type Value = fn(&PolicyCount) -> u64;
    let families: [(&str, &str, &str, Value); 2] = [
        (
            "fairpath_rules_policy_packets",
            "",
            "Packets that passed a base chain up to its policy",
            |policy| policy.packets,
        ),
        (
            "fairpath_rules_policy_bytes",
            "bytes",
            "Bytes of packets that passed a base chain up to its policy",
            |policy| policy.bytes,
        ),
    ];
    for (name, unit, help, value) in families {
        encoder.family(name, Kind::Counter, unit, help);
        for policy in policies {
            let labels = [
                ("family", &policy.family[..]),
                ("table", &policy.table),
                ("chain", &policy.chain),
                ("policy", &policy.policy),
            ];
            encoder.sample("", &labels, value(policy) as f64);
        }
    }
}

fn targets(encoder: &mut Encoder, targets: &[TargetCount]) {
    type Value = fn(&TargetCount) -> u64;
    let families: [(&str, &str, &str, Value); 2] = [
        (
            "fairpath_rules_target_packets",
            "",
            "Packets that matched rules with this target, since the start of this process",
            |target| target.packets,
        ),
        (
            "fairpath_rules_target_bytes",
            "bytes",
            "Bytes of packets that matched rules with this target, since the start of this process",
            |target| target.bytes,
        ),
    ];
    for (name, unit, help, value) in families {
        encoder.family(name, Kind::Counter, unit, help);
        for target in targets {
            let labels = [
                ("family", &target.family[..]),
                ("table", &target.table),
                ("target", &target.target),
            ];
            encoder.sample("", &labels, value(target) as f64);
        }
    }
}

fn counts(encoder: &mut Encoder, rules: &[RuleCount]) {
    type Value = fn(&RuleCount) -> u64;
    let families: [(&str, &str, &str, Value); 2] = [
        (
            "fairpath_rule_packets",
            "",
            "Packets that matched the rule",
            |rule| rule.packets,
        ),
        (
            "fairpath_rule_bytes",
            "bytes",
            "Bytes of packets that matched the rule",
            |rule| rule.bytes,
        ),
    ];
    for (name, unit, help, value) in families {
        encoder.family(name, Kind::Counter, unit, help);
        for rule in rules {
            with_labels(rule, |labels| {
                encoder.sample("", labels, value(rule) as f64);
            });
        }
    }
    // Lines have a separate family: a line that is inserted above renames no counter.
    let help = "File and line of the rule; line 0 for rules of later commands";
    encoder.family("fairpath_rule", Kind::Info, "", help);
    for rule in rules {
        let line = rule.line.to_string();
        with_labels(rule, |labels| {
            let place = [("file", &rule.file[..]), ("line", &line)];
            encoder.sample("", &[labels, &place].concat(), 1.0);
        });
    }
}

/// The labels that identify a rule. The first of equal rules has no `copy`.
fn with_labels(rule: &RuleCount, write: impl FnOnce(&[(&str, &str)])) {
    let copy = rule.copy.to_string();
    let labels = [
        ("family", &rule.family[..]),
        ("table", &rule.table),
        ("chain", &rule.chain),
        ("rule", &rule.rule),
        ("copy", &copy),
    ];
    let used = if rule.copy > 0 { 5 } else { 4 };
    write(&labels[..used]);
}
