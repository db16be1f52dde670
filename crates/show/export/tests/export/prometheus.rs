//! A real Prometheus scrapes the server, and evaluates the rules and the dashboard.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fairpath_export::ServerOptions;
use serde_json::Value;

use crate::made::{Router, TYPICAL_RTT_NS};
use crate::needs::command;
use crate::scraper::{DEADLINE, PAUSE, Prometheus};
use crate::web::start;

/// A file of packaging/.
pub fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../packaging")
        .join(file)
}

fn promtool(test: &str, arguments: &[&str]) {
    let Some(promtool) = command(test, "promtool") else {
        return;
    };
    let mut command = Command::new(promtool);
    let output = command
        .args(arguments)
        .current_dir(packaging("prometheus"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("SUCCESS"), "{text}");
}

#[test]
fn the_alert_rules_are_valid() {
    promtool(
        "the_alert_rules_are_valid",
        &["check", "rules", "fairpath.rules.yml"],
    );
}

#[test]
fn the_alert_rules_pass_their_tests() {
    promtool(
        "the_alert_rules_pass_their_tests",
        &["test", "rules", "fairpath.test.yml"],
    );
}

#[test]
fn every_alert_has_a_runbook() {
    let rules = fs::read_to_string(packaging("prometheus/fairpath.rules.yml")).unwrap();
    let count = |word: &str| {
        rules
            .lines()
            .filter(|line| line.trim().starts_with(word))
            .count()
    };
    assert!(count("- alert:") >= 8);
    assert_eq!(count("- alert:"), count("runbook: |"));
    assert_eq!(count("- alert:"), count("summary:"));
}

/// The server of the test router and a Prometheus that scrapes it. Skips without Prometheus.
fn scraped(test: &str) -> Option<(Arc<Router>, fairpath_export::Server, Prometheus)> {
    let binary = command(test, "prometheus")?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let router = Arc::new(Router::new(now.as_nanos() as u64));
    let (server, address) = start(router.clone(), ServerOptions::default());
    Some((router, server, Prometheus::start(&binary, address)))
}

#[test]
fn prometheus_quantiles_match_the_histogram() {
    let test = "prometheus_quantiles_match_the_histogram";
    let Some((router, _server, prometheus)) = scraped(test) else {
        return;
    };
    prometheus.until_some("up{job=\"fairpath\"} == 1");
    let class = "class=\"sub-10000\", leg=\"inside\"";
    for q in [0.5, 0.95] {
        let samples = prometheus.until_some(&format!(
            "histogram_quantile({q}, rate(fairpath_rtt_seconds_bucket{{{class}}}[5s]))"
        ));
        let row = router
            .snapshot()
            .rows
            .into_iter()
            .find(|row| row.name == "sub-10000")
            .unwrap();
        let expected = row.inside.total.histogram.quantile(q).unwrap() as f64 / 1e9;
        let reported = samples[0].1;
        // The buckets around it are 15 to 20, 20 to 30 and 30 to 40 ms wide.
        assert!(
            (reported - expected).abs() < 0.01,
            "{q}: {reported} {expected}"
        );
    }
    let mean = prometheus.until_some(&format!(
        "rate(fairpath_rtt_seconds_sum{{{class}}}[5s]) / rate(fairpath_rtt_seconds_count{{{class}}}[5s])"
    ))[0].1;
    assert!(
        (0.9..1.6).contains(&(mean * 1e9 / TYPICAL_RTT_NS as f64)),
        "{mean}"
    );
    assert!(prometheus.query("fairpath_build_info")[0].0["version"] == "0.1.0");
    let metadata = prometheus.request("/api/v1/metadata?metric=fairpath_rtt_seconds");
    assert_eq!(metadata["fairpath_rtt_seconds"][0]["type"], "histogram");
}

#[test]
fn every_rule_evaluates_on_scraped_series() {
    let Some((_router, _server, prometheus)) = scraped("every_rule_evaluates_on_scraped_series")
    else {
        return;
    };
    let since = Instant::now();
    let rules = loop {
        let groups = prometheus.request("/api/v1/rules")["groups"].take();
        let rules: Vec<Value> = groups
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect();
        if rules.iter().all(|rule| rule["health"] != "unknown") {
            break rules;
        }
        assert!(since.elapsed() < DEADLINE, "rules were never evaluated");
        std::thread::sleep(PAUSE);
    };
    assert!(rules.len() >= 12);
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let firing =
        prometheus.until_some("ALERTS{alertname=\"FairpathAlert\", alertstate=\"firing\"}");
    assert_eq!(
        firing[0].0["class"]
            .as_str()
            .map(|class| class.starts_with("sub-1")),
        Some(true)
    );
    prometheus.until_some(
        "class_leg:fairpath_lost_packets:ratio_5m{class=\"sub-10074\", leg=\"inside\"} > 0.02",
    );
}

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(packaging("grafana/fairpath.json")).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().collect()
}

#[test]
fn every_dashboard_expression_has_a_result() {
    let Some((_router, _server, prometheus)) = scraped("every_dashboard_expression_has_a_result")
    else {
        return;
    };
    let dashboard = dashboard();
    let mut tried = 0;
    for target in panels(&dashboard)
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
    {
        let expression = target["expr"]
            .as_str()
            .unwrap()
            .replace("$__rate_interval", "5s")
            .replace("$instance", ".*")
            .replace("$job", "fairpath")
            .replace("$class", "sub-10000|sub-10074");
        assert!(!expression.contains('$'), "{expression}");
        prometheus.until_some(&expression);
        tried += 1;
    }
    assert!(tried >= 20, "{tried}");
    for label in ["instance", "class"] {
        let values = prometheus.request(&format!("/api/v1/label/{label}/values"));
        assert!(!values.as_array().unwrap().is_empty(), "{label}");
    }
}

#[test]
fn the_dashboard_is_complete() {
    let dashboard = dashboard();
    assert_eq!(
        (&dashboard["uid"], &dashboard["title"]),
        (&Value::from("fairpath"), &Value::from("Fairpath"))
    );
    let panels = panels(&dashboard);
    let mut ids: Vec<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let place = |panel: &Value, of: &str| panel["gridPos"][of].as_u64().unwrap();
    for (i, panel) in panels.iter().enumerate() {
        assert!(
            place(panel, "x") + place(panel, "w") <= 24,
            "{}",
            panel["title"]
        );
        let overlaps = |other: &&&Value| {
            let apart = |at: &str, size: &str| {
                place(panel, at) + place(panel, size) <= place(other, at)
                    || place(other, at) + place(other, size) <= place(panel, at)
            };
            !apart("x", "w") && !apart("y", "h")
        };
        assert!(
            panels[i + 1..].iter().find(overlaps).is_none(),
            "{} overlaps",
            panel["title"]
        );
        if panel["type"] != "row" {
            assert_eq!(
                panel["datasource"]["uid"], "${datasource}",
                "{}",
                panel["title"]
            );
            assert!(
                panel["fieldConfig"]["defaults"]["unit"].is_string(),
                "{}",
                panel["title"]
            );
        }
    }
    let names: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "job", "instance", "class"]);
}
