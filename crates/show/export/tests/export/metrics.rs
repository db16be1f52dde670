//! Both text formats: promtool's result, escaped values, number of series.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use fairpath_export::{
    Exposition, MAX_SERIES, MetricsOptions, openmetrics, rule_series, series_needed,
};
use fairpath_history::snapshot::{Snapshot, SnapshotRow};

use crate::made::{ODD, ODD_RULE, Router, TYPICAL_RTT_NS};
use crate::needs::command;

fn snapshot() -> Snapshot {
    let router = Router::new(1_700_000_000_000_000_000);
    (0..4).for_each(|_| drop(router.snapshot()));
    router.snapshot()
}

fn text(exposition: Exposition, max_series: usize) -> String {
    openmetrics(
        &snapshot(),
        &MetricsOptions {
            max_series,
            exposition,
        },
    )
}

fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// The value of a series, named with its labels.
fn value(text: &str, name: &str) -> f64 {
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found
        .unwrap_or_else(|| panic!("no {name} in\n{text}"))
        .parse()
        .unwrap()
}

#[test]
fn promtool_accepts_the_metrics() {
    let Some(promtool) = command("promtool_accepts_the_metrics", "promtool") else {
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = text(Exposition::Prometheus, 20_000);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn both_formats_have_the_same_series() {
    let (open, classic) = (
        text(Exposition::OpenMetrics, 20_000),
        text(Exposition::Prometheus, 20_000),
    );
    assert_eq!(series(&open), series(&classic));
    assert!(open.ends_with("# EOF\n") && !classic.contains("# EOF"));
    assert!(
        open.contains("# TYPE fairpath_class_bytes counter\n# UNIT fairpath_class_bytes bytes\n")
    );
    assert!(classic.contains("# TYPE fairpath_class_bytes_total counter\n"));
}

#[test]
fn series_have_unique_names_and_escaped_labels() {
    let text = text(Exposition::OpenMetrics, 20_000);
    let names: Vec<&str> = series(&text)
        .iter()
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let unique: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    let escaped = ODD.replace('\\', "\\\\").replace('"', "\\\"");
    assert!(text.contains(&format!(
        "fairpath_class_flows_open{{class=\"{escaped}\",kind=\"class\"}} 40\n"
    )));
    assert_eq!(
        value(&text, "fairpath_monitor_odd_name_total"),
        3.0,
        "equal names are summed"
    );
}

#[test]
fn the_histogram_is_cumulative_and_consistent() {
    let text = text(Exposition::OpenMetrics, 20_000);
    let labels = "class=\"sub-10000\",kind=\"class\",leg=\"inside\"";
    let begins = format!("fairpath_rtt_seconds_bucket{{{labels},le=");
    let buckets: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with(&begins))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(buckets.len(), 20);
    assert!(buckets.is_sorted());
    let part = |part: &str| value(&text, &format!("fairpath_rtt_seconds_{part}{{{labels}}}"));
    assert_eq!(buckets.last().copied().unwrap(), part("count"));
    assert_eq!(part("count"), 100.0);
    let mean_s = part("sum") / part("count");
    let typical_s = TYPICAL_RTT_NS as f64 / 1e9;
    assert!((0.9..1.6).contains(&(mean_s / typical_s)), "{mean_s}");
    let up_to = |le: &str| value(&text, &format!("{begins}\"{le}\"}}"));
    assert_eq!(
        up_to("0.01"),
        0.0,
        "no sample is below 0.7 times the typical RTT"
    );
    assert_eq!(up_to("0.1"), 100.0);
}

#[test]
fn an_unmeasured_value_has_no_series() {
    let text = text(Exposition::OpenMetrics, 20_000);
    assert!(!text.contains("fairpath_class_load_score{class=\"eth1\""));
    assert!(!text.contains("fairpath_class_unmeasured_ratio{class=\"eth1\""));
    assert_eq!(
        value(
            &text,
            "fairpath_class_lost_packets_total{class=\"eth1\",kind=\"interface\",leg=\"inside\"}"
        ),
        0.0
    );
    assert_eq!(
        value(
            &text,
            "fairpath_alert_active{class=\"sub-10074\",kind=\"class\",alert=\"loss\"}"
        ),
        1.0
    );
}

/// 5,000 subscribers with their sites, subnets and interfaces, each with all values.
#[test]
fn the_default_limit_fits_5000_subscribers() {
    let mut snapshot = snapshot();
    let whole = snapshot.rows[0].clone();
    snapshot.rows = (0..5_900)
        .map(|at| SnapshotRow {
            name: format!("row-{at}"),
            ..whole.clone()
        })
        .collect();
    let text = openmetrics(&snapshot, &MetricsOptions::default());
    assert_eq!(value(&text, "fairpath_rows_folded"), 0.0);
    let needed = value(&text, "fairpath_series_needed");
    assert!(needed <= MAX_SERIES as f64, "{needed}");
    assert!(series(&text).len() as f64 <= needed);
    assert!(text.len() < 100 * series(&text).len(), "{}", text.len());
}

#[test]
fn the_needed_series_sum_no_row() {
    let Snapshot { rows, rules, .. } = snapshot();
    let needed = series_needed(rows.len(), rule_series(&rules.unwrap()));
    let folded = |max_series| {
        let text = text(Exposition::OpenMetrics, max_series);
        assert_eq!(value(&text, "fairpath_series_needed"), needed as f64);
        value(&text, "fairpath_rows_folded")
    };
    assert_eq!(folded(needed), 0.0);
    assert!(folded(needed - 1) > 0.0);
}

/// One fault is one alert: those of its parents and children are not reported.
#[test]
fn alerts_that_were_not_reported_are_0() {
    let mut snapshot = snapshot();
    let active = |snapshot: &Snapshot, max_series| {
        let options = MetricsOptions {
            max_series,
            exposition: Exposition::OpenMetrics,
        };
        let text = openmetrics(snapshot, &options);
        let lines = series(&text).into_iter();
        let alerts = lines.filter(|line| line.starts_with("fairpath_alert_active"));
        alerts.filter(|line| line.ends_with(" 1")).count()
    };
    let all = active(&snapshot, MAX_SERIES);
    assert!(all > 0 && active(&snapshot, 1000) > 0, "also in sums");
    snapshot.alerts.truncate(1);
    assert_eq!(active(&snapshot, MAX_SERIES), 1);
    snapshot.alerts.clear();
    assert_eq!([MAX_SERIES, 1000].map(|max| active(&snapshot, max)), [0, 0]);
}

#[test]
fn series_stay_within_the_limit() {
    for max_series in [0, 20, 100, 150, 400, 1000, 5000] {
        let text = text(Exposition::OpenMetrics, max_series);
        let count = series(&text).len();
        assert!(count <= max_series.max(20), "{count} of {max_series}");
        let folded = value(&text, "fairpath_rows_folded");
        assert_eq!(folded > 0.0, count < 1500, "{max_series}: {folded}");
    }
    let text = text(Exposition::OpenMetrics, 1000);
    assert!(
        text.contains(
            "fairpath_class_bytes_total{class=\"other\",kind=\"class\",direction=\"down\"}"
        )
    );
    assert!(value(&text, "fairpath_rows") > 30.0);
}

#[test]
fn every_metric_is_in_the_documentation() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/export.md");
    let page = std::fs::read_to_string(page).unwrap();
    let text = text(Exposition::Prometheus, 20_000);
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: Vec<&str> = types
        .filter(|name| !name.starts_with("fairpath_monitor_"))
        .collect();
    assert!(names.len() > 20);
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn rules_have_counters_by_their_text() {
    let text = text(Exposition::OpenMetrics, 20_000);
    let place = "family=\"IPv4\",table=\"filter\"";
    let established = "rule=\"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\"";
    let input = format!("fairpath_rule_packets_total{{{place},chain=\"INPUT\",{established}");
    assert_eq!(value(&text, &format!("{input}}}")), 25_000.0);
    assert_eq!(value(&text, &format!("{input},copy=\"1\"}}")), 16_000.0);
    let odd = ODD_RULE.replace('\\', "\\\\").replace('"', "\\\"");
    let forward = format!("{place},chain=\"FORWARD\",rule=\"{odd}\"");
    let bytes = format!("fairpath_rule_bytes_total{{{forward}}}");
    assert_eq!(value(&text, &bytes), 16_400_000.0);
    let info = format!("fairpath_rule_info{{{forward},file=\"rules.v4\",line=\"13\"}}");
    assert_eq!(value(&text, &info), 1.0);
    let policy = format!("{{{place},chain=\"INPUT\",policy=\"DROP\"}}");
    let policy = format!("fairpath_rules_policy_packets_total{policy}");
    assert_eq!(value(&text, &policy), 15.0);
    let dropped = format!("fairpath_rules_target_packets_total{{{place},target=\"DROP\"}}");
    assert_eq!(value(&text, &dropped), 20_500.0);
    assert_eq!(value(&text, "fairpath_rules_loaded"), 1_305.0);
    assert_eq!(value(&text, "fairpath_rules_not_exported"), 1_300.0);
    assert_eq!(value(&text, "fairpath_rules_confirm_seconds"), 42.5);
    assert_eq!(value(&text, "fairpath_rules_packets_parked_total"), 3.0);
}

#[test]
fn rules_have_no_more_series_than_needed() {
    let rules = *snapshot().rules.unwrap();
    let text = text(Exposition::OpenMetrics, 20_000);
    let of_rules = |line: &&&str| line.starts_with("fairpath_rule");
    let count = series(&text).iter().filter(of_rules).count();
    assert_eq!(count, rule_series(&rules));
    // Without space for all of them there are none.
    let none = self::text(Exposition::OpenMetrics, 200 + count - 1);
    assert!(!none.contains("fairpath_rule"), "{none}");
    assert!(self::text(Exposition::OpenMetrics, 200 + count).contains("fairpath_rule_info"));
}

#[test]
fn without_loaded_rules_there_are_no_metrics() {
    let without = Snapshot {
        rules: None,
        ..snapshot()
    };
    let text = openmetrics(&without, &MetricsOptions::default());
    assert!(!text.contains("fairpath_rule"), "{text}");
}
