//! The answer of `/api/page`: a snapshot in the few bytes that the page shows.
//!
//! It is requested every second, so 24 rows must need less than 10 kB. Rows are lists of numbers, and a
//! sparkline is one character for each interval. Rates are bits per second, round-trip times
//! microseconds, losses parts per million, times milliseconds. A value that was not measured is null.

use std::collections::BTreeMap;

use fairpath_history::judge::{self, Level};
use fairpath_history::loaded_rules::{LoadedRules, RuleCount};
use fairpath_history::snapshot::{
    Affected, Alert, AlertKind, DayPoint, Detail, Kind, Point, Snapshot, SnapshotRow,
};
use fairpath_units::text::line;
use serde::Serialize;
use serde_json::{Value, json};

use super::query::PageQuery;

/// The digits of sparklines, lowest first.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Maximum size of the text of an alert, characters.
const MAX_ALERT_CHARS: usize = 300;

/// The answer. The page reads `rows` by the positions in `row()`, and `total` by those in `point()`.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    unix_ms: u64,
    hostname: &'a str,
    version: &'a str,
    uptime_ns: u64,
    counting_since_ms: u64,
    restart_gap_ns: Option<u64>,
    interval_ns: u64,
    rows_total: u64,
    rows_selected: u64,
    offset: usize,
    rows: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lists: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<&'a BTreeMap<String, u64>>,
}

impl<'a> View<'a> {
    pub fn new(snapshot: &'a Snapshot, wanted: &PageQuery) -> View<'a> {
        View {
            unix_ms: ms(snapshot.unix_ns),
            hostname: &snapshot.host,
            version: &snapshot.version,
            uptime_ns: snapshot.up_ns,
            counting_since_ms: ms(snapshot.counting_since_unix_ns),
            restart_gap_ns: snapshot.gap_ns,
            interval_ns: snapshot.interval_ns,
            rows_total: snapshot.rows_total,
            rows_selected: snapshot.rows_selected,
            offset: wanted.query.offset,
            rows: snapshot.rows.iter().map(row).collect(),
            total: snapshot.total.as_ref().map(|total| {
                let points = |points: &[DayPoint]| points.iter().map(point).collect::<Vec<_>>();
                json!({"recent": points(&total.recent), "day": points(&total.day)})
            }),
            lists: (wanted.lists > 0).then(|| lists(snapshot, wanted.lists)),
            rules: snapshot.rules.as_deref().map(rules),
            counters: wanted.counters.then_some(&snapshot.counters),
        }
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

fn us(ns: Option<u64>) -> Option<u64> {
    ns.map(|ns| ns.div_ceil(1000))
}

fn ppm(share: Option<f64>) -> Option<u64> {
    share.map(|share| (share * 1e6).ceil() as u64)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "other",
    }
}

fn alert(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::RttShift => "rtt_shift",
        AlertKind::Loss => "loss",
        AlertKind::SlaBreach => "sla_breach",
    }
}

fn digit(level: Level) -> char {
    match level {
        Level::Normal => '0',
        Level::Warning => '1',
        Level::Critical => '2',
    }
}

/// Details, and the verdicts of its row.
#[derive(Debug, Serialize)]
pub(super) struct JudgedDetail {
    #[serde(flatten)]
    detail: Detail,
    levels: String,
}

impl JudgedDetail {
    pub fn new(detail: Detail) -> JudgedDetail {
        JudgedDetail {
            levels: levels(&detail.row),
            detail,
        }
    }
}

/// The verdicts of `top`, one digit each: p95 inside and outside, growth, score, loss inside and outside.
fn levels(row: &SnapshotRow) -> String {
    let [inside, outside] = [&row.inside, &row.outside].map(judge::larger_loss);
    [
        judge::inside_p95(&row.inside),
        judge::outside_p95(&row.outside),
        judge::growth(row),
        judge::score(row),
        judge::loss(inside),
        judge::loss(outside),
    ]
    .map(digit)
    .iter()
    .collect()
}

/// A row: name, kind, parent, depth, children, alerts, rate down and up, p50 and p95 inside, p50 and p95
/// outside, growth, score, loss inside and outside, open flows, levels of six values, sparkline.
fn row(row: &SnapshotRow) -> Value {
    let alerts: Vec<&str> = row.alerts.iter().map(|kind| alert(*kind)).collect();
    let [inside, outside] = [&row.inside, &row.outside].map(judge::larger_loss);
    json!([
        row.name,
        kind(row.kind),
        row.parent,
        row.depth,
        row.children,
        alerts,
        row.down.rate_bps.round() as u64,
        row.up.rate_bps.round() as u64,
        us(row.inside.p50_rtt_ns),
        us(row.inside.p95_rtt_ns),
        us(row.outside.p50_rtt_ns),
        us(row.outside.p95_rtt_ns),
        us(row.load.rtt_growth_ns),
        row.load.score,
        ppm(inside),
        ppm(outside),
        row.flows.open(),
        levels(row),
        spark(&row.history),
    ])
}

/// One digit for each point, of the row's maximum.
fn spark(points: &[Point]) -> String {
    let max = points
        .iter()
        .map(|point| point.rate_bps)
        .fold(0.0, f64::max);
    let place = |point: &Point| (point.rate_bps / max.max(1.0) * 61.0).round() as usize;
    let digits = points
        .iter()
        .map(|point| DIGITS[place(point).min(61)] as char);
    digits.collect()
}

/// A point: begin, rate down and up, p50 and p95 inside, p50 and p95 outside, loss inside.
fn point(point: &DayPoint) -> Value {
    json!([
        ms(point.unix_ns),
        point.rate_down_bps.round() as u64,
        point.rate_up_bps.round() as u64,
        us(point.inside_p50_rtt_ns),
        us(point.inside_p95_rtt_ns),
        us(point.outside_p50_rtt_ns),
        us(point.outside_p95_rtt_ns),
        ppm(point.inside_loss_ratio),
    ])
}

/// The state of the loaded rules, and rules: family, table, chain, text, file, line, packets, bytes, packets
/// and bits per second.
fn rules(rules: &LoadedRules) -> Value {
    let rule = |rule: &RuleCount| {
        json!([
            rule.family,
            rule.table,
            rule.chain,
            rule.rule,
            rule.file,
            rule.line,
            rule.packets,
            rule.bytes,
            (rule.rate_pps * 10.0).round() / 10.0,
            rule.rate_bps.round() as u64,
        ])
    };
    json!({
        "unix_ms": ms(rules.unix_ns), "has_rates": rules.interval_ns.is_some(),
        "total": rules.rules_total, "deciding": rules.deciding,
        "counter_mode": rules.counter_mode, "confirm_ms": rules.confirm_ns.map(ms),
        "went_back": rules.went_back, "rejected_are_answered": rules.rejected_are_answered,
        "rules": rules.rules.iter().map(rule).collect::<Vec<_>>(),
    })
}

fn lists(snapshot: &Snapshot, limit: usize) -> Value {
    let alert = |shown: &Alert| {
        let text: String = line(&shown.text).chars().take(MAX_ALERT_CHARS).collect();
        json!({
            "class": shown.class, "kind": kind(shown.kind), "leg": shown.leg,
            "alert": alert(shown.alert), "since_ms": ms(shown.since_unix_ns),
            "unix_ms": ms(shown.unix_ns), "text": text,
        })
    };
    let affected = |shown: &Affected| {
        let worst = [
            judge::excess(shown.excess_rtt_ns),
            judge::loss(shown.loss_ratio),
        ];
        json!({
            "class": shown.class, "kind": kind(shown.kind), "parent": shown.parent,
            "leg": shown.leg, "since_ms": ms(shown.since_unix_ns),
            "p95_us": us(shown.p95_rtt_ns), "excess_us": us(shown.excess_rtt_ns),
            "loss_ppm": ppm(shown.loss_ratio),
            "levels": worst.map(digit).iter().collect::<String>(),
        })
    };
    // The newest of the active ones, which are sorted by class.
    let mut active: Vec<&Alert> = snapshot.alerts.iter().collect();
    active.sort_by_key(|shown| std::cmp::Reverse(shown.since_unix_ns));
    json!({
        "affected": snapshot.affected.iter().map(affected).collect::<Vec<_>>(),
        "affected_total": snapshot.affected_total,
        "alerts": active.into_iter().take(limit).map(alert).collect::<Vec<_>>(),
        "alerts_total": snapshot.alerts.len(),
        "past": snapshot.past_alerts.iter().take(limit).map(alert).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_is_relative_to_its_maximum() {
        let points = |rates: &[f64]| -> Vec<Point> {
            let point = |rate: &f64| Point {
                rate_bps: *rate,
                p95_rtt_ns: None,
            };
            rates.iter().map(point).collect()
        };
        assert_eq!(spark(&points(&[0.0, 5e9, 1e10])), "0Vz");
        assert_eq!(spark(&points(&[0.0, 0.0])), "00");
        assert_eq!(spark(&[]), "");
    }

    #[test]
    fn small_values_do_not_become_zero() {
        assert_eq!(
            (us(Some(1)), us(Some(0)), us(None)),
            (Some(1), Some(0), None)
        );
        assert_eq!((ppm(Some(1e-9)), ppm(Some(0.0))), (Some(1), Some(0)));
    }
}
