//! Records of the code against the JSON Schemas in `docs/schema`.
//!
//! A record must be valid, and its schema must describe every key of it.

mod records;

use fairpath_export::{JsonLines, RowsWanted};
use fairpath_history::series::{SERIES_SCHEMA, Series};
use fairpath_testbed::Schema;
use serde_json::Value;

#[track_caller]
fn assert_valid(schema: &str, record: &Value) {
    let errors = Schema::load(schema).errors(record);
    assert!(errors.is_empty(), "{}\n{record:#}", errors.join("\n"));
}

#[test]
fn rtt_samples_match_their_schema() {
    for known in [true, false] {
        assert_valid("rtt-sample", &records::sample(known));
    }
}

#[test]
fn rtt_flows_match_their_schema() {
    for event in ["opened", "closed", "alive"] {
        assert_valid("rtt-flow", &records::flow(event));
    }
}

#[test]
fn rtt_summaries_match_their_schema() {
    let summary = records::summary();
    assert_eq!(summary["towards"].as_array().unwrap().len(), 1);
    assert_eq!(summary["flows"][0]["loss"]["data_packets"], 40);
    assert_valid("rtt-summary", &summary);
}

#[test]
fn snapshots_match_their_schema() {
    for snapshot in [records::snapshot(), records::empty_snapshot()] {
        assert_valid("snapshot", &serde_json::to_value(&snapshot).unwrap());
    }
}

#[test]
fn details_match_their_schema() {
    assert_valid("detail", &serde_json::to_value(records::detail()).unwrap());
}

#[test]
fn series_match_their_schema() {
    for series in [records::series(), Series::default()] {
        let mut record = serde_json::to_value(&series).unwrap();
        record["schema"] = SERIES_SCHEMA.into();
        assert_valid("series", &record);
    }
}

#[test]
fn alerts_match_their_schema() {
    for alert in records::alerts() {
        assert_valid("alert", &serde_json::to_value(&alert).unwrap());
    }
}

#[test]
fn interval_rows_match_their_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.json");
    let mut rows = JsonLines::open(&path, RowsWanted::All).unwrap();
    rows.write(&records::interval_rows()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        assert_valid("row", &serde_json::from_str(line).unwrap());
    }
}

#[test]
fn the_validator_finds_every_kind_of_error() {
    let schema = Schema::load("rtt-sample");
    let valid = records::sample(true);
    let changed = |key: &str, value: Value| {
        let mut record = valid.clone();
        record[key] = value;
        schema.errors(&record)
    };
    assert_eq!(changed("rtt_ns", "fast".into()).len(), 1, "type");
    assert_eq!(changed("rtt_ns", (-1).into()).len(), 1, "minimum");
    assert_eq!(changed("src_port", 65_536.into()).len(), 1, "maximum");
    assert_eq!(changed("protocol", "udp".into()).len(), 1, "enum");
    assert_eq!(changed("type", "flow".into()).len(), 1, "const");
    assert_eq!(changed("sport", 1.into()).len(), 1, "unknown key");
    let mut record = valid.clone();
    record.as_object_mut().unwrap().remove("method");
    assert_eq!(schema.errors(&record).len(), 1, "missing key");
}
