//! Parquet files in DuckDB: the queries of the guide, against a recomputation from raw samples.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairpath_export::{ParquetOptions, ParquetWriter};
use fairpath_history::{Histogram, IntervalRow};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_795_600_800 * SECOND;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The SQL of a guide whose first line is a comment with this title.
fn query_of_guide(title: &str) -> String {
    let page = fs::read_to_string(repository().join("docs/export.md")).unwrap();
    let from = page
        .find(&format!("```sql\n-- {title}\n"))
        .unwrap_or_else(|| panic!("no query {title:?}"));
    let text = &page[from + "```sql\n".len()..];
    text[..text.find("```").unwrap()].to_owned()
}

/// The rows of a query, with the directory as the current one. `None` without DuckDB.
fn duckdb(test: &str, dir: &Path, query: &str) -> Option<Vec<Vec<Value>>> {
    let module = repository().join("target/tools/duckdb");
    if !module.join("duckdb").exists() {
        let reason = "DuckDB is not installed (setup/needs test installs it)";
        fairpath_units::skip_test(test, "command:duckdb", reason);
        return None;
    }
    let program = "import duckdb, json, sys\n\
                   rows = duckdb.sql(sys.argv[1]).fetchall()\n\
                   print(json.dumps(rows, default=str))";
    let output = Command::new("python3")
        .args(["-c", program, query])
        .env("PYTHONPATH", module.canonicalize().unwrap())
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{query}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Pseudo-random numbers.
fn roll(seed: &mut u64, below: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Two hours of two classes and an interface in `dir`. Returns the raw samples of each class.
fn written(dir: &Path) -> [Vec<u64>; 2] {
    let mut writer = ParquetWriter::open(dir, ParquetOptions::default()).unwrap();
    let (mut seed, mut raw) = (7, <[Vec<u64>; 2]>::default());
    for at in (0..7_200).step_by(5) {
        let mut rows = Vec::new();
        for (class, name) in ["anna", "bert"].into_iter().enumerate() {
            let mut row = IntervalRow {
                unix_ns: START + at * SECOND,
                interval_ns: 5 * SECOND,
                name: name.to_owned(),
                bytes_down: 1_000_000 * (class as u64 + 1),
                packets_down: 900,
                inside_data_to_packets: 800,
                inside_lost_to_packets: 8 * class as u64,
                ..IntervalRow::default()
            };
            for _ in 0..roll(&mut seed, 9) {
                let scale = 10 + roll(&mut seed, 20);
                let rtt = (1 + class as u64) * 4_000_000 + roll(&mut seed, 1 << scale);
                raw[class].push(rtt);
                row.inside_histogram.record(rtt);
                row.inside_sum_rtt_ns += rtt;
                row.inside_samples += 1;
            }
            row.settle();
            rows.push(row);
        }
        writer.write(rows).unwrap();
    }
    writer.finish().unwrap();
    raw
}

#[test]
fn duckdb_merges_classes_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let raw = written(dir.path());
    let test = "duckdb_merges_classes_and_time";
    let volume = query_of_guide("Volume and loss by class and hour");
    let Some(rows) = duckdb(test, dir.path(), &volume) else {
        return;
    };
    assert_eq!(rows.len(), 2 * 2, "{rows:?}");
    let hour = |class: usize| 720 * 1_000_000 * (class as u64 + 1);
    for row in &rows {
        let class = usize::from(row[1] == "bert");
        assert_eq!(row[2].as_f64(), Some(hour(class) as f64 / 1e9), "{row:?}");
        assert_eq!(row[3].as_f64(), Some(class as f64), "percent lost: {row:?}");
    }
    // One class, and both together: exactly the merged distribution, near the raw samples.
    let by_class = duckdb(
        test,
        dir.path(),
        &query_of_guide("95th percentile by class"),
    )
    .unwrap();
    let of_all = duckdb(
        test,
        dir.path(),
        &query_of_guide("95th percentile of all classes together"),
    )
    .unwrap();
    let found = |name: &str| by_class.iter().find(|row| row[0] == name).unwrap()[1].as_f64();
    for (samples, found) in [
        (raw[0].clone(), found("anna")),
        (raw[1].clone(), found("bert")),
        (raw.concat(), of_all[0][0].as_f64()),
    ] {
        let mut histogram = Histogram::default();
        samples.iter().for_each(|rtt| histogram.record(*rtt));
        let p95 = histogram.quantile(0.95).unwrap() as f64 / 1e6;
        assert_eq!(found, Some(p95));
        let mut sorted = samples;
        sorted.sort_unstable();
        let exact = sorted[(0.95 * sorted.len() as f64).ceil() as usize - 1] as f64 / 1e6;
        assert!((p95 / exact - 1.0).abs() < 0.03, "{p95} of {exact}");
    }
}
